//! A request that gives its blocks to the program and takes blocks from it, at the program's pace.
//!
//! [`Session::stream`] makes one. [`Stream::next`] runs the request's worker, one batch at a time, until a block comes
//! out of an open end (an end without a sink). The block stays where it lies, and is lent until the next call.
//!
//! A request in stages (`||`, `workers`) runs the stage with the open ends in the program's thread. That stage also has
//! the source for the program's blocks, and all nodes between. Other stages run on threads of their own, which end with
//! the stream. Without other stages no thread is started.
//!
//! A request that begins with `push_frames`, `push_bytes` or `push_messages` takes blocks from [`Stream::push`].
//!
//! Not for requests that run beside the program: that is [`Job`].

use crate::error::Error;
use crate::session::{Finished, Job, Session, Timer};
use base::atomic::StopFlag;
use base::id::Class;
use base::limits::{BLOCK_BYTES, PUSHED_BYTES};
use buffer::{Flags, Interface, SegmentId, ViewId};
use control::Registry;
use engine::{NodeId, Report, Run, Stages, Task, Turn};
use filter::record::schema_id;
use filter::{Kind, Row, Schema, StreamFacts, Type, Types};
use filters::conversations;
use filters::embedding::{self, Exchange, Given, Pushed, RowShapes, give, push};
use request::Diagnostic;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request that gives blocks to the program, and may take blocks from it.
pub struct Stream {
    job: Job,
    run: Run,
    stop: StopFlag,
    _timer: Option<Timer>,
    exchange: Exchange,
    ends: Vec<OpenEnd>,
    /// The blocks of the last turn. Those before `next` are released, except the last one while it is lent.
    given: Vec<Given>,
    next: usize,
    /// The block before `next` is lent to the program.
    is_lent: bool,
    input: Option<Input>,
    /// How the request ended. `None`: it runs.
    over: Option<Result<Finished, Error>>,
    schemas: Arc<[&'static Schema]>,
    shapes: RefCell<RowShapes>,
}

/// An open end of the request, where blocks come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenEnd {
    /// The filters before this end, as request text.
    pub label: String,
    /// The type of its blocks.
    pub kind: Type,
}

/// The source for the program's blocks.
struct Input {
    kind: &'static Kind,
    segment: SegmentId,
    view: ViewId,
    /// Bytes that have not gone through the request yet.
    waiting_bytes: u64,
}

/// Facts about a pushed block. Default: the block is seen now, and stands for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// When the block was seen, in ns since 1970 UTC. `None`: now.
    pub time: Option<u64>,
    /// The block comes from the server of its stream, not from the client. Not for frames.
    pub from_server: bool,
    /// More of the same message follows. For messages only.
    pub more: bool,
    /// The stream ends behind this block, in both directions. For byte streams only.
    pub last: bool,
}

/// A block that came out of an open end; its bytes are not copied.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    stream: &'a Stream,
    given: &'a Given,
}

impl Session {
    /// Prepares a request whose open ends give their blocks to the program. It opens all it needs, or leaves all
    /// closed.
    pub fn stream(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Stream, Error> {
        static LISTS: [&[&Kind]; 5] =
            [filters::KINDS, conversations::KINDS, inspection::KINDS, columns::KINDS, embedding::KINDS];
        let registry = Registry::new(&LISTS).without(columns::LEFT_OUT).ending_in(&give::KIND);
        let session = self.with_registry(registry);
        let exchange = Exchange::default();
        let (mut ends, mut inputs) = (Vec::new(), Vec::new());
        let mut failed: Option<Diagnostic> = None;
        let mut undivided = None;
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
                    // The space has already made the node once, so its parameters are right.
                    made.into_iter().for_each(|instance| app.replace(id, instance));
                    inputs.push((*filter, link_type, design.sites[index].span));
                } else {
                    continue;
                }
                rest.run_in_caller(id);
            }
            undivided = Stages::of(&rest.plan).undivided;
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
        if let Some(why) = undivided {
            job.worker.add_notice(format!("`workers` shares nothing: {why}"));
        }
        let stop = StopFlag::new();
        Ok(Stream {
            run: job.worker.begin(&stop),
            _timer: job.timer(&stop),
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
    /// The next block of the request, lent until the next call. `None`: the request has ended, or waits for more from
    /// [`push`](Stream::push) or for [`end`](Stream::end). [`is_over`](Stream::is_over) tells these apart.
    ///
    /// Waits while a device gives nothing; another thread ends the wait by the [`stop_flag`](Stream::stop_flag).
    ///
    /// # Errors
    /// The request's error comes after its blocks, and again at each further call.
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

    /// Pushes a block: a frame, a piece of a byte stream from its client, or a message. Copies its bytes once.
    /// [`next`](Stream::next) takes it through the request.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.push_with(bytes, Push::default())
    }

    /// Like [`push`](Stream::push), with facts about the block.
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

    /// Says that the program pushes no more: [`next`](Stream::next) takes the request to its end.
    pub fn end(&mut self) -> Result<(), Error> {
        if self.input.is_none() {
            return Err(Error::Input("the request takes no blocks from the program, and ends by itself".into()));
        }
        self.exchange.sides().has_ended = true;
        Ok(())
    }

    /// Whether the request has ended, and all its blocks have been given.
    pub fn is_over(&self) -> bool {
        self.over.is_some() && self.next == self.given.len()
    }

    /// The open ends; [`Block::end`] is an index into this list.
    pub fn ends(&self) -> &[OpenEnd] {
        &self.ends
    }

    /// A flag by which another thread, or a signal handler, may end the request.
    pub fn stop_flag(&self) -> StopFlag {
        self.stop.clone()
    }

    /// Takes the lines for people since the last call.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.job.worker.take_notices()
    }

    /// The counters so far. Those of other stages are included once the request is over.
    pub fn report(&self) -> Report {
        self.job.worker.report()
    }

    /// Bytes of memory that its blocks take now. Mapped files are page cache and do not count.
    pub fn memory_bytes(&self) -> usize {
        self.job.worker.memory_bytes()
    }

    /// Ends the request at once: its filters finish, and files that it writes are complete. Dropping the stream does
    /// the same, but reports nothing.
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

    fn release(&mut self) {
        if std::mem::take(&mut self.is_lent)
            && let Some(given) = self.next.checked_sub(1).and_then(|at| self.given.get(at))
        {
            given.release(self.job.worker.rings());
        }
    }

    /// Runs one turn and takes its blocks. `false`: the request waits until the program pushes more.
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
        // The panic may have come from within a turn, so do not run the request again.
        if !std::thread::panicking() {
            // A drop cannot report an error.
            let _ = self.finish();
        }
    }
}

impl<'a> Block<'a> {
    /// Its bytes, not copied.
    pub fn bytes(&self) -> &'a [u8] {
        self.stream.job.worker.rings().bytes(&self.given.block)
    }

    /// Its type.
    pub fn kind(&self) -> Type {
        self.stream.ends[self.end()].kind
    }

    /// The open end that it came out of: an index into [`Stream::ends`].
    pub fn end(&self) -> usize {
        self.given.end as usize
    }

    /// When it was seen, in ns since 1970 UTC.
    pub fn time(&self) -> u64 {
        self.given.block.time
    }

    /// Its bytes on the wire. For a stream or message: its own bytes plus those missing before it.
    pub fn wire(&self) -> u32 {
        self.given.block.wire()
    }

    /// Bytes that are missing before it, in a stream or message.
    pub fn missing_before(&self) -> u32 {
        self.given.block.gap()
    }

    /// Flags: its place in its stream or message, and more.
    pub fn flags(&self) -> Flags {
        self.given.block.flags()
    }

    /// Whether it is the first of its stream or message.
    pub fn is_first(&self) -> bool {
        self.given.block.has(Flags::FIRST)
    }

    /// Whether it is the last of its stream or message.
    pub fn is_last(&self) -> bool {
        self.given.block.has(Flags::LAST)
    }

    /// Whether the end of its message or stream is missing.
    pub fn is_cut(&self) -> bool {
        self.given.block.has(Flags::TRUNCATED)
    }

    /// Its class: the number set by the last filter that sets one. Pieces of one message or stream have the same.
    pub fn class(&self) -> Class {
        self.given.block.class
    }

    /// Facts about its stream: addresses, ports, state. `None` for frames, packets and records.
    pub fn facts(&self) -> Option<&'a StreamFacts> {
        self.given.facts.as_ref()
    }

    /// The link type of a frame or packet, as in captures. `None` for other blocks.
    pub fn link_type(&self) -> Option<u16> {
        let is_frame = [Type::Frame, Type::Packet].contains(&self.kind());
        self.stream.job.worker.rings().link_type(&self.given.block).filter(|_| is_frame)
    }

    /// Whether it holds a record: one from a filter that gives records, or the record of a message's head.
    pub fn is_record(&self) -> bool {
        self.kind() == Type::Record || self.given.block.has(Flags::META)
    }

    /// Its record, whose fields can be read by name. `None`: it holds none.
    pub fn record(&self) -> Option<Row<'a>> {
        let bytes = self.is_record().then(|| self.bytes())?;
        let id = schema_id(bytes)?;
        let known = self.stream.schemas.iter().copied().find(|schema| schema.id() == id);
        let schema = known.or_else(|| filter::record::made_with_id(id))?;
        Row::new(schema, bytes)
    }

    /// Its record as one JSON object, in the form that `json` writes. `None`: it holds none. Allocates.
    pub fn json(&self) -> Option<String> {
        let bytes = self.is_record().then(|| self.bytes())?;
        let mut text = Vec::new();
        let is_row = self.stream.shapes.borrow_mut().append(&mut text, bytes, None);
        // JSON is UTF-8 here: other bytes were escaped.
        String::from_utf8(text).ok().filter(|_| is_row)
    }
}

impl std::fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("block", &self.given.block).field("facts", &self.given.facts).finish()
    }
}
