//! A request whose blocks go to the program and come from it, at its pace.
//!
//! [`Session::stream`] makes it. [`Stream::next`] runs the request's worker, one batch at a time, until a block comes out of
//! an open end: an end without a sink. The block stays where it lies, and is lent until the next call.
//! Of a request in stages (`||`, `workers`) the program's thread runs the stage with the open ends and the source for the
//! program's blocks: they are in one stage, and what lies between them is in it as well. Other stages run on threads of their
//! own, which end with the stream; without other stages no thread is started.
//! A request that begins with `push_frames`, `push_bytes` or `push_messages` takes blocks from [`Stream::push`].
//!
//! Not for requests that run beside the program: that is [`Job`].

use crate::session::{Error, Finished, Job, Session};
use base::atomic::StopFlag;
use base::id::Class;
use base::limits::{BLOCK_BYTES, PUSHED_BYTES};
use buffer::{Flags, Interface, SegmentId, ViewId};
use control::Registry;
use engine::{NodeId, Report, Run, Stages, Task, Turn};
use filter::record::schema_id;
use filter::{Kind, Row, Schema, StreamFacts, Type, Types};
use filters::embedding::{Exchange, Given, Pushed, RowShapes, give, push};
use request::Diagnostic;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request that gives its blocks to the program, and may take blocks from it.
pub struct Stream {
    job: Job,
    run: Run,
    stop: StopFlag,
    exchange: Exchange,
    ends: Vec<OpenEnd>,
    /// The blocks of the last turn; those before `next` are released, but for the last of them.
    given: Vec<Given>,
    next: usize,
    /// The block before `next` is lent.
    is_lent: bool,
    input: Option<Input>,
    /// How it ended.
    over: Option<Result<Finished, Error>>,
    schemas: Arc<[&'static Schema]>,
    shapes: RefCell<RowShapes>,
}

/// An end of the request without a sink: here blocks come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenEnd {
    /// The filters whose blocks come out, as request text.
    pub label: String,
    /// The type of its blocks.
    pub kind: Type,
}

/// Where blocks of the program begin.
struct Input {
    kind: &'static Kind,
    segment: SegmentId,
    view: ViewId,
    /// Bytes that the request has not met yet.
    waiting_bytes: u64,
}

/// A description of a block that the program pushes. The default: the time is now, and the block stands for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// When the block was seen, in ns since 1970 UTC; `None` for now.
    pub time: Option<u64>,
    /// The block comes from the server of its stream; else from the client. Not for frames.
    pub from_server: bool,
    /// More of the same message follows. For messages only.
    pub more: bool,
    /// The stream ends behind this block, in both directions. For byte streams only.
    pub last: bool,
}

/// A block that came out of an open end, where it lies.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    stream: &'a Stream,
    given: &'a Given,
}

impl Session {
    /// Prepares a request whose open ends give their blocks to the program: everything it needs is open, or nothing is.
    pub fn stream(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Stream, Error> {
        let registry = Registry::new(filters::EMBEDDED_KINDS).ending_in(&give::KIND);
        let session = self.with_registry(registry);
        let exchange = Exchange::default();
        let (mut ends, mut inputs) = (Vec::new(), Vec::new());
        let mut failed: Option<Diagnostic> = None;
        let mut unshared = None;
        let mut job = session.prepare_but(source, variables, |design, app, rest| {
            for (index, node) in design.plan.nodes.iter().enumerate() {
                let Task::Filter { kind: filter, params } = &node.task else { continue };
                let id = NodeId(index as u32);
                if std::ptr::eq(*filter, &give::KIND) {
                    app.replace(id, give::instance(exchange.clone(), ends.len() as u32, node.input));
                    let gives = |above: &&engine::Node| above.edges.iter().any(|edge| edge.to == id);
                    let above: Vec<&str> =
                        design.plan.nodes.iter().filter(gives).map(|above| above.label.as_str()).collect();
                    let mut types = node.input.iter();
                    let (Some(kind), None) = (types.next(), types.next()) else {
                        let error = format!("{} come out here, and cannot be told apart", node.input);
                        failed.get_or_insert(
                            Diagnostic::new(error, design.sites[index].span)
                                .with_help("end each branch by itself: { a + b }"),
                        );
                        continue;
                    };
                    ends.push(OpenEnd { label: above.join(" + "), kind });
                } else if [&push::FRAMES, &push::BYTES, &push::MESSAGES]
                    .into_iter()
                    .any(|one| std::ptr::eq(one, *filter))
                {
                    let made = push::instance(filter, params, exchange.clone());
                    let link_type = push::link_type(params).ok().filter(|_| std::ptr::eq(*filter, &push::FRAMES));
                    // Wrong parameters were an error when the space prepared the node.
                    made.into_iter().for_each(|instance| app.replace(id, instance));
                    inputs.push((*filter, link_type, design.sites[index].span));
                } else {
                    continue;
                }
                rest.run_in_caller(id);
            }
            unshared = Stages::of(&rest.plan).unshared;
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        if let [_, (_, _, span), ..] = inputs[..] {
            return Err(Diagnostic::new("a program pushes into one source, and this is the second", span)
                .with_label("another source takes the program's blocks already")
                .with_help("open a request for each; what begins alike is one source")
                .into());
        }
        let input = match inputs.pop() {
            None => None,
            Some((kind, link_type, _)) => {
                let rings = job.worker.rings_mut();
                let segment = rings.add_append_ring();
                let interface = Interface { link_type, name: Some(kind.name.to_string()), ..Interface::default() };
                let view = rings.add_view(segment, interface);
                let view = view.ok_or_else(|| Error::System("there are more sources than views".into()))?;
                Some(Input { kind, segment, view, waiting_bytes: 0 })
            }
        };
        if let Some(why) = unshared {
            job.worker.add_notice(format!("`workers` shares nothing: {why}"));
        }
        let stop = StopFlag::new();
        Ok(Stream {
            run: job.worker.begin(&stop),
            job,
            stop,
            exchange,
            ends,
            given: Vec::new(),
            next: 0,
            is_lent: false,
            input,
            over: None,
            schemas: Arc::clone(&session.env().schemas),
            shapes: RefCell::new(RowShapes::new(session.env())),
        })
    }
}

impl Stream {
    /// The next block that comes out of the request. It is lent until the next call. `None` at the end; of a request that
    /// the program feeds also where it waits for more from [`push`](Stream::push) or for [`end`](Stream::end), which
    /// [`is_over`](Stream::is_over) tells apart.
    ///
    /// An error of the request comes after its blocks, and again with every further call. Where nothing comes from a device
    /// this waits; another thread ends the waiting by the [`stop_flag`](Stream::stop_flag).
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<Block<'_>>, Error> {
        self.release();
        while self.next == self.given.len() {
            if let Some(over) = &self.over {
                return over.clone().map(|_| None);
            }
            if !self.turn() {
                return Ok(None);
            }
        }
        self.next += 1;
        self.is_lent = true;
        Ok(self.current())
    }

    /// The block that the last call of [`next`](Stream::next) gave.
    pub fn current(&self) -> Option<Block<'_>> {
        let given = self.next.checked_sub(1).filter(|_| self.is_lent).and_then(|at| self.given.get(at))?;
        Some(Block { stream: self, given })
    }

    /// Pushes a block: a frame, a piece of a byte stream from its client, or a message. Its bytes are copied once.
    /// [`next`](Stream::next) takes them through the request.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.push_with(bytes, Push::default())
    }

    /// The same, with what is to be said of the block.
    pub fn push_with(&mut self, bytes: &[u8], push: Push) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Input(text));
        let Some(input) = &mut self.input else {
            return wrong(
                "the request takes no blocks: it begins with none of push_frames, push_bytes, push_messages".into(),
            );
        };
        let (name, gives) = (input.kind.name, input.kind.output(Types::NONE, &filter::Params::default()));
        if push.more && !gives.has(Type::Message) {
            return wrong(format!("`{name}` takes {gives}, and only a message has more to follow"));
        }
        if push.last && !gives.has(Type::Bytes) {
            return wrong(format!("`{name}` takes {gives}, and only a byte stream has a last piece"));
        }
        if push.from_server && gives.has(Type::Frame) {
            return wrong(format!("`{name}` takes {gives}, and a frame has no side that it comes from"));
        }
        if bytes.len() > BLOCK_BYTES {
            return wrong(format!("a block has {BLOCK_BYTES} bytes at most, and this one {}", bytes.len()));
        }
        match &self.over {
            Some(Ok(_)) => return wrong("the request is over, and takes no more blocks".into()),
            Some(Err(error)) => return Err(error.clone()),
            None => {}
        }
        let mut sides = self.exchange.sides();
        if sides.has_ended {
            return wrong("the program pushes a block after the end".into());
        }
        if sides.pushed.is_empty() {
            // What was pushed before has gone all the way down, or is held.
            input.waiting_bytes = 0;
            self.job.worker.rings_mut().recycle(input.segment);
        }
        if input.waiting_bytes + bytes.len() as u64 > PUSHED_BYTES {
            return wrong(format!(
                "{} MiB wait for the request: take its blocks before you push more",
                PUSHED_BYTES >> 20
            ));
        }
        let Some(mut block) = self.job.worker.rings().append_copy(input.view, &[bytes]) else {
            return Err(Error::System("there is no room for the block".into()));
        };
        input.waiting_bytes += bytes.len() as u64;
        block.time = push.time.unwrap_or_else(capture::clock::real);
        sides.pushed.push(Pushed { block, from_server: push.from_server, more: push.more, last: push.last });
        Ok(())
    }

    /// The program pushes no more: [`next`](Stream::next) takes the request to its end.
    pub fn end(&mut self) -> Result<(), Error> {
        if self.input.is_none() {
            return Err(Error::Input("the request takes no blocks from the program, and ends by itself".into()));
        }
        self.exchange.sides().has_ended = true;
        Ok(())
    }

    /// Has the request ended, and were all its blocks given?
    pub fn is_over(&self) -> bool {
        self.over.is_some() && self.next == self.given.len()
    }

    /// The ends where blocks come out: [`Block::end`] is a place in this list.
    pub fn ends(&self) -> &[OpenEnd] {
        &self.ends
    }

    /// Another thread, or a signal handler, may end the request by this.
    pub fn stop_flag(&self) -> StopFlag {
        self.stop.clone()
    }

    /// Takes the lines for people that came since the last call.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.job.worker.take_notices()
    }

    /// The counters so far. A request in stages has those of all stages when it is over.
    pub fn report(&self) -> Report {
        self.job.worker.report()
    }

    /// Bytes of memory that its blocks take now. Mapped files are page cache and not counted.
    pub fn memory_bytes(&self) -> usize {
        self.job.worker.memory_bytes()
    }

    /// Ends the request, wherever it is: its filters finish, and files that it writes are whole. Dropping the stream does the
    /// same and says nothing.
    pub fn close(mut self) -> Result<Finished, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Finished, Error> {
        self.exchange.sides().is_closed = true;
        self.stop.stop();
        loop {
            self.release();
            while let Some(given) = self.given.get(self.next) {
                given.release(self.job.worker.rings());
                self.next += 1;
            }
            match &self.over {
                Some(over) => return over.clone(),
                None => self.turn(),
            };
        }
    }

    /// Takes back the block that is lent.
    fn release(&mut self) {
        if std::mem::take(&mut self.is_lent)
            && let Some(given) = self.next.checked_sub(1).and_then(|at| self.given.get(at))
        {
            given.release(self.job.worker.rings());
        }
    }

    /// Carries the request on, and takes what it gives; false where it can go on only when the program has pushed more.
    fn turn(&mut self) -> bool {
        let worker = &mut self.job.worker;
        let turn = worker.turn(&mut self.run, &self.stop, &mut |_| {});
        self.given.clear();
        self.next = 0;
        let mut sides = self.exchange.sides();
        std::mem::swap(&mut self.given, &mut sides.given);
        sides.given_bytes = 0;
        match turn {
            Turn::Ready => {}
            Turn::Idle(_) if !self.given.is_empty() => {}
            Turn::Idle(Duration::MAX) => return false,
            Turn::Idle(nap) => worker.rest(&self.run, nap),
            Turn::End(end) => {
                let report = worker.report();
                debug_assert_eq!(report.check(), Ok(()));
                self.over = Some(end.map(|end| Finished { end, report }).map_err(Error::from));
            }
        }
        true
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The panic may have come from within a turn: the request does not run again.
        if !std::thread::panicking() {
            // Its error has nobody to hear it.
            let _ = self.finish();
        }
    }
}

impl<'a> Block<'a> {
    /// Its bytes, where they lie.
    pub fn bytes(&self) -> &'a [u8] {
        self.stream.job.worker.rings().bytes(&self.given.block)
    }

    /// What it is.
    pub fn kind(&self) -> Type {
        self.stream.ends[self.end()].kind
    }

    /// The open end that it came out of: a place in [`Stream::ends`].
    pub fn end(&self) -> usize {
        self.given.end as usize
    }

    /// When it was seen, in ns since 1970 UTC.
    pub fn time(&self) -> u64 {
        self.given.block.time
    }

    /// Bytes that it had on the wire. Of a stream or message: its own and those that are missing before it.
    pub fn wire(&self) -> u32 {
        self.given.block.wire()
    }

    /// Bytes that are missing before it, of a stream or message.
    pub fn missing_before(&self) -> u32 {
        self.given.block.gap()
    }

    /// Its place in its stream or message, and what else is said of it.
    pub fn flags(&self) -> Flags {
        self.given.block.flags()
    }

    /// Is it the first of its stream or message?
    pub fn is_first(&self) -> bool {
        self.given.block.has(Flags::FIRST)
    }

    /// Is it the last of its stream or message?
    pub fn is_last(&self) -> bool {
        self.given.block.has(Flags::LAST)
    }

    /// Is the end of its message or stream missing?
    pub fn is_cut(&self) -> bool {
        self.given.block.has(Flags::TRUNCATED)
    }

    /// The number that the last filter which sets one gave it. Pieces of one message or stream have the same.
    pub fn class(&self) -> Class {
        self.given.block.class
    }

    /// What is known of its stream: addresses, ports, state. `None` for frames, packets and records.
    pub fn facts(&self) -> Option<&'a StreamFacts> {
        self.given.facts.as_ref()
    }

    /// The link type of a frame or packet, as captures number it.
    pub fn link_type(&self) -> Option<u16> {
        let is_frame = [Type::Frame, Type::Packet].contains(&self.kind());
        self.stream.job.worker.rings().link_type(&self.given.block).filter(|_| is_frame)
    }

    /// Does it hold a record: one of a filter that gives records, or what is known of a message before its body?
    pub fn is_record(&self) -> bool {
        self.kind() == Type::Record || self.given.block.has(Flags::META)
    }

    /// The record in it, whose fields can be asked for by name; `None` where it holds none.
    pub fn record(&self) -> Option<Row<'a>> {
        let bytes = self.is_record().then(|| self.bytes())?;
        let id = schema_id(bytes)?;
        let known = self.stream.schemas.iter().copied().find(|schema| schema.id() == id);
        let schema = known.or_else(|| filter::record::made_with_id(id))?;
        Row::new(schema, bytes)
    }

    /// The record in it as one JSON object, as `json` writes it; `None` where it holds none. Allocates.
    pub fn json(&self) -> Option<String> {
        let bytes = self.is_record().then(|| self.bytes())?;
        let mut text = Vec::new();
        let is_row = self.stream.shapes.borrow_mut().append(&mut text, bytes, None);
        // What is not UTF-8 was escaped.
        String::from_utf8(text).ok().filter(|_| is_row)
    }
}

impl std::fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("block", &self.given.block).field("facts", &self.given.facts).finish()
    }
}
