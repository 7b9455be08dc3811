//! Watches an edge: reads a ring of copies as a source, with one of our sinks behind it.
//!
//! In: a ring's place, as a running request gives it. Out: a capture, lines or bytes on the session's output, and the
//! number of missing blocks.

use super::protocol::RingPlace;
use crate::error::Error;
use crate::session::Session;
use base::atomic::StopFlag;
use base::id::Class;
use base::limits::PULL_BLOCKS;
use buffer::keeper::client::{Named, NamedReader};
use buffer::ring::{From, Nothing, OnFull, Seen};
use buffer::{Descriptor, Flags, Interface, SegmentId, ViewId};
use engine::{Edge, Node, NodeId, Plan, Task, Worker};
use filter::env::Reader;
use filter::param::Value;
use filter::ring_header::{BlockHeader, HEADER_BYTES, Header};
use filter::{
    Batch, Context, Env, Failure, Filter, Instance, Kind, Made, Output, ParamError, Params, Pull, Source, Status, Type,
    Types,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A pcapng capture; blocks that are no frames have the link type USER0.
    Pcapng,
    /// A classic pcap capture, otherwise as [`Form::Pcapng`].
    Pcap,
    /// A line for each block, as `inspect` writes them.
    Lines,
    /// A JSON document for each record or message, as `json` writes them.
    Json,
    /// Just the bytes.
    Raw,
}

/// LINKTYPE_USER0, whose meaning its users agree on: here a block of a stream or message.
pub const USER0: u16 = 147;

/// How long to sleep at a time when the ring is empty and everything has been written out.
const SLEEP: Duration = Duration::from_millis(50);

/// How long to wait for the worker's greeting; a worker that is not in the middle of a batch is faster.
const GREETING: Duration = Duration::from_millis(200);

const LINK_TYPES: usize = 64;

/// How many blocks were seen, and how many were missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks seen.
    pub seen: u64,
    /// Blocks lost between two seen ones: overwritten, or left out of the ring.
    pub lost: u64,
    /// The process that ran the request died.
    pub died: bool,
    /// The reader was to miss nothing, but kept the request waiting too long and was overtaken.
    pub demoted: bool,
}

#[derive(Default)]
struct Counted {
    seen: AtomicU64,
    lost: AtomicU64,
    died: AtomicBool,
    demoted: AtomicBool,
}

/// An opened ring and its sink, ready to run.
pub struct Watched {
    worker: Worker,
    counted: Arc<Counted>,
}

fn never(_: &Params, _: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("it is made from a ring"))
}

static WATCHED: Kind = Kind::new("watched", "copies of what goes along an edge", never).source(Type::Frame);
static RAW: Kind = Kind::new("raw", "writes bytes", never).sink();

impl Watched {
    /// Opens a ring for reading. `count`: stop after this number of blocks (`None` = no limit). For messages as JSON it
    /// counts documents: one document is made of many blocks, and one whose end has not come by then is not shown.
    ///
    /// With the contract [`OnFull::Wait`] on a ring without loss, the request waits for this reader.
    ///
    /// `place` is what the request said about the ring; `named` is the ring itself ([`super::client::ring`]).
    pub fn new(
        session: &Session,
        place: &RingPlace,
        named: &Named,
        form: Form,
        count: Option<u64>,
        contract: OnFull,
    ) -> Result<Watched, Error> {
        let documents = count.filter(|_| form == Form::Json && place.types.has(Type::Message));
        let stdout = documents.map_or(session.env().stdout.clone(), |count| session.env().stdout.for_lines(count));
        let (kind, sink) = sink(session, stdout, place.types, form)?;
        let gone = |error: std::io::Error| Error::System(format!("the edge cannot be watched: {error}"));
        let deadline = Instant::now() + Duration::from_secs(5);
        let reader = named.open_reader(contract, From::Next, Some(deadline)).map_err(gone)?;
        let counted = Arc::<Counted>::default();
        let mut source = FromRing {
            reader,
            landing: Landing { name: place.label.clone(), segment: None, views: BTreeMap::new() },
            counted: Arc::clone(&counted),
            contract,
            expected: None,
            left: count.filter(|count| documents.is_none() || *count == 0).unwrap_or(u64::MAX),
            quiet: false,
        };
        source.hear_greeting();
        let node = |kind: &'static Kind, input: Types, edges: Vec<Edge>| Node {
            label: kind.name.into(),
            task: Task::Filter { kind, params: Params::new() },
            space: "app".into(),
            input,
            how: Default::default(),
            edges,
        };
        let edge = Edge::plain(NodeId(1));
        let nodes = vec![node(&WATCHED, Types::NONE, vec![edge]), node(kind, place.types, Vec::new())];
        let plan = Plan { nodes, ..Plan::default() };
        let worker = Worker::new(&plan, vec![Some(Instance::source(source)), Some(sink)]);
        Ok(Watched { worker, counted })
    }

    /// Watches until the request ends, `count` is reached, the output is closed, or `stop` is set.
    pub fn run(&mut self, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> (Result<(), Error>, Tally) {
        let ended = self.worker.run(stop, look);
        // Relaxed: this thread counted.
        let tally = Tally {
            seen: self.counted.seen.load(Ordering::Relaxed),
            lost: self.counted.lost.load(Ordering::Relaxed),
            died: self.counted.died.load(Ordering::Relaxed),
            demoted: self.counted.demoted.load(Ordering::Relaxed),
        };
        (ended.map(drop).map_err(Error::from), tally)
    }
}

fn sink(session: &Session, stdout: Output, types: Types, form: Form) -> Result<(&'static Kind, Instance), Error> {
    let structured = Types::of(&[Type::Record, Type::Message]);
    let mut params = Params::new();
    let kind = match form {
        Form::Pcapng | Form::Pcap if types.has(Type::Record) => {
            return Err(Error::Input("records are no packets: a capture cannot hold them".into()));
        }
        Form::Json if types.is_none() || !structured.has_all(types) => {
            return Err(Error::Input(format!("{types} cannot be written as JSON: only records and messages can")));
        }
        Form::Pcapng | Form::Pcap => {
            params.set("file", Value::Text("-".into()));
            let format = if form == Form::Pcap { "pcap" } else { "pcapng" };
            params.set("format", Value::Text(format.into()));
            &filters::save::KIND
        }
        Form::Lines => &filters::inspect::KIND,
        Form::Json => &filters::json::KIND,
        Form::Raw => return Ok((&RAW, Instance::filter(Raw { stdout }))),
    };
    let missing = |param: &filter::Param| Error::System(format!("`{}` of {} is not set", param.key, kind.name));
    params.fill_defaults(kind.params).map_err(missing)?;
    let env = Env { input: types, stdout, ..session.env().clone() };
    let made = (kind.make)(&params, &env);
    let instance = made.map_err(|error| {
        let help = error.help.map_or(String::new(), |help| format!(" ({help})"));
        Error::Input(format!("{}{help}", error.message))
    })?;
    Ok((kind, instance))
}

struct FromRing {
    reader: NamedReader,
    landing: Landing,
    counted: Arc<Counted>,
    /// The contract that the reader was granted.
    contract: OnFull,
    /// Number of the next block. `None`: no block was seen yet.
    expected: Option<u64>,
    /// Blocks still to see.
    left: u64,
    quiet: bool,
}

/// Where blocks are copied to, with one view for each link type.
struct Landing {
    name: String,
    segment: Option<SegmentId>,
    views: BTreeMap<u16, ViewId>,
}

impl Landing {
    /// Lets the segment be used again. All earlier blocks must have gone through the sink.
    fn recycle(&mut self, cx: &mut Context<'_>) -> SegmentId {
        match self.segment {
            Some(segment) => {
                cx.rings.recycle(segment);
                segment
            }
            None => *self.segment.insert(cx.rings.add_append_ring()),
        }
    }

    /// The view for frames of this link type. `None`: there are too many link types.
    fn view(&mut self, segment: SegmentId, link_type: u16, cx: &mut Context<'_>) -> Option<ViewId> {
        if let Some(view) = self.views.get(&link_type) {
            return Some(*view);
        }
        if self.views.len() >= LINK_TYPES {
            return None;
        }
        let name = Some(self.name.clone());
        let interface = Interface { link_type: Some(link_type), name, ..Interface::default() };
        let view = cx.rings.add_view(segment, interface)?;
        self.views.insert(link_type, view);
        Some(view)
    }
}

impl FromRing {
    /// Waits a little for the worker's greeting, which says how many blocks went before. From there on losses are
    /// counted exactly.
    fn hear_greeting(&mut self) {
        let reader = self.reader.reader();
        let _ = reader.wait(Some(Instant::now() + GREETING));
        if let Ok(seen) = reader.peek() {
            let bytes = reader.bytes(&seen).copy_to_vec();
            let mark = bytes.first_chunk().map(BlockHeader::of).filter(|header| header.is_mark);
            if let (Some(mark), Ok(())) = (mark, reader.take(&seen)) {
                self.expected = Some(mark.at);
            }
        }
    }

    /// Copies a block out of the ring and gives it on, unless it is overwritten meanwhile or is malformed.
    fn give(&mut self, seen: &Seen, segment: SegmentId, cx: &mut Context<'_>) {
        let mut header = [0; HEADER_BYTES];
        let mut block = None;
        let len = seen.block.len as usize;
        let fields = (!seen.elsewhere && len >= HEADER_BYTES).then(|| {
            self.reader.reader().bytes(seen).part(0, HEADER_BYTES).copy_to(&mut header);
            BlockHeader::of(&header)
        });
        let about = Header::from_bytes(&header);
        if let Some(fields) = fields.filter(|fields| !fields.is_mark && about.is_some())
            && let Some(view) = self.landing.view(segment, fields.link_type.unwrap_or(USER0), cx)
        {
            let len = len - HEADER_BYTES;
            let bytes = self.reader.reader().bytes(seen).part(HEADER_BYTES, len);
            block = cx.rings.append(view, len, |space| (bytes.copy_to(space), ())).map(|(block, ())| block);
        }
        // The copy is valid only if the block was not overwritten until now.
        if self.reader.reader().take(seen).is_err() {
            return;
        }
        let (Some(fields), Some(about)) = (fields, about) else { return };
        let lost = self.expected.map_or(0, |expected| fields.at.saturating_sub(expected));
        self.counted.lost.fetch_add(lost, Ordering::Relaxed);
        let expected = self.expected.unwrap_or(0).max(fields.at);
        self.expected = Some(expected);
        let Some(block) = block else { return };
        self.expected = Some(expected.saturating_add(1));
        self.counted.seen.fetch_add(1, Ordering::Relaxed);
        self.left -= 1;
        let class = Class(seen.block.class.0);
        if let Some(facts) = about.facts {
            cx.streams.mirror(class, facts, about.epoch);
        }
        cx.emit(Descriptor { time: seen.block.time, wire_and_flags: fields.wire_and_flags, class, ..block });
    }
}

impl Source for FromRing {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let segment = self.landing.recycle(cx);
        if self.quiet {
            // Everything has been written out: now there is time to sleep.
            let _ = self.reader.reader().wait(Some(Instant::now() + SLEEP));
        }
        let before = cx.out.len();
        for _ in 0..PULL_BLOCKS {
            if self.left == 0 {
                return Ok(Pull::End);
            }
            match self.reader.reader().peek() {
                Ok(seen) => self.give(&seen, segment, cx),
                Err(Nothing::Yet) => break,
                Err(Nothing::Ended | Nothing::Moved | Nothing::Removed) => return Ok(Pull::End),
                Err(Nothing::Retired) => {
                    self.counted.died.store(true, Ordering::Relaxed);
                    return Ok(Pull::End);
                }
                Err(Nothing::Damaged) => {
                    let text = "what is in the ring of the edge makes no sense".to_string();
                    return Err(Box::new(Failure::System(text)));
                }
            }
        }
        if self.reader.reader_ref().contract() != self.contract {
            self.counted.demoted.store(true, Ordering::Relaxed);
        }
        if cx.out.len() > before {
            self.quiet = false;
            return Ok(Pull::Ready);
        }
        if self.quiet {
            // The ring's keeper dies with the writer's process, so no message would report its death.
            self.reader.reader().look_after_writer();
        }
        self.quiet = true;
        Ok(Pull::Idle(Duration::ZERO))
    }

    fn stop(&mut self) -> bool {
        false
    }
}

/// Writes just the bytes.
struct Raw {
    stdout: Output,
}

impl Filter for Raw {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let blocks = batch.iter().filter(|(_, block)| !block.has(Flags::META));
        let bytes: Vec<u8> = blocks.flat_map(|(_, block)| cx.rings.bytes(block)).copied().collect();
        match self.stdout.write(&bytes)? {
            Reader::Present => Ok(Status::Done),
            Reader::Gone => Ok(Status::Finished),
        }
    }
}
