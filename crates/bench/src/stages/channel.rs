//! The cost of a descriptor from thread to thread: by the engine's channel, with the facts of its stream and the
//! returning credit, against rtrb's chunks, which carry only the descriptor. Both sides spin while they wait.

use crate::case::{Case, CaseError, How, Sides};
use crate::measure::{Clock, Figure, Side};
use crate::process::{Cost, Stopwatch};
use crate::rings::queues;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use base::id::Class;
use buffer::Interface;
use engine::{Edge, Node, NodeId, Plan, Task, Worker};
use filter::Wait;
use filter::prelude::*;
use packet::flow::Flow;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use streamline::StopFlag;

static SOURCE: Kind = Kind::new("numbered", "descriptors with numbers", by_hand).source(Type::Bytes);
static SINK: Kind = Kind::new("checked", "descriptors in order", by_hand).mode(Mode::Serial).sink();

fn by_hand(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("made by hand, with its plan"))
}

/// Descriptors in a run, and in a batch.
const BLOCKS: u64 = 4_000_000;
const BATCH: u64 = 32;
/// Number of streams, to which batches belong in turn.
const STREAMS: u64 = 8;
const BLOCK_BYTES: u64 = 64;
const FILE_BYTES: u64 = 1 << 20;

const fn row(
    about: &'static str,
    against: &'static str,
    goal: Goal,
    figure: Figure,
    sides: fn(&Setting) -> Result<Sides<'_>, CaseError>,
) -> Case {
    Case { about, against, goal, touched: Touched::None, how: How::Time(Clock::Wall, figure, sides) }
}

/// The rows.
pub static CASES: &[Case] = &[
    row(
        "a descriptor through a thread channel, batches of 32, facts and credit included",
        "rtrb, chunks of 32",
        Goal::AtMost(1.25, 1.0),
        Figure::Share,
        |setting| Ok(Sides { ours: through_channel(setting)?, peer: rtrb() }),
    ),
    row(
        "the same filters in one stage, no channel",
        "through a thread channel",
        Goal::Reported,
        Figure::Share,
        |setting| Ok(Sides { ours: in_one_stage(setting)?, peer: through_channel(setting)? }),
    ),
    row(
        "a descriptor through a FastForward queue alone, batches of 32",
        "rtrb, chunks of 32",
        Goal::Reported,
        Figure::Share,
        |_| Ok(Sides { ours: side(queues::fast_forward_batches), peer: rtrb() }),
    ),
];

fn side<'a>(run: impl Fn(u64) -> Result<Cost, String> + 'a) -> Side<'a> {
    Side::new(move || run(BLOCKS)).per_item(BLOCKS as f64)
}

fn rtrb<'a>() -> Side<'a> {
    side(queues::rtrb_batches)
}

fn through_channel<'a>(setting: &Setting) -> Result<Side<'a>, CaseError> {
    let path = setting.store.noise(FILE_BYTES)?;
    Ok(side(move |blocks| cross(&path, blocks, true)))
}

fn in_one_stage<'a>(setting: &Setting) -> Result<Side<'a>, CaseError> {
    let path = setting.store.noise(FILE_BYTES)?;
    Ok(side(move |blocks| cross(&path, blocks, false)))
}

/// Takes descriptors from a source to a sink, with a channel between them (`cut`) or without.
fn cross(path: &std::path::Path, blocks: u64, cut: bool) -> Result<Cost, String> {
    let begun = Arc::new(Mutex::new(None));
    let wrong = Arc::new(Mutex::new(None));
    let source = Numbered { path: path.to_owned(), place: None, next: 0, blocks, begun: Arc::clone(&begun) };
    let sink = Checked { next: 0, wrong: 0, said: Arc::clone(&wrong) };
    let node = |kind: &'static Kind, input, edges| Node {
        label: kind.name.to_owned(),
        task: Task::Filter { kind, params: Params::new() },
        space: "app".to_owned(),
        input,
        how: engine::How::default(),
        edges,
    };
    let edge = Edge { cut, ..Edge::plain(NodeId(1)) };
    let nodes = vec![node(&SOURCE, Types::NONE, vec![edge]), node(&SINK, Types::of(&[Type::Bytes]), Vec::new())];
    let plan = Plan { nodes, wait: Wait::Busy, ..Plan::default() };
    let mut worker = Worker::new(&plan, vec![Some(Instance::source(source)), Some(Instance::filter(sink))]);
    worker.run(&StopFlag::new(), &mut |_| {}).map_err(|failure| failure.to_string())?;
    let begun: Option<Stopwatch> = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
    let cost = begun.ok_or("the source was never asked")?.stop()?;
    worker.report().check()?;
    match wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some((count, 0)) if count == blocks => Ok(cost),
        said => Err(format!("blocks, and a sign of wrong ones: {said:?}, of {blocks}")),
    }
}

fn facts(number: u64) -> StreamFacts {
    let (client, server) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let flow = Flow {
        source: client.into(),
        target: server.into(),
        source_port: 40_000 + number as u16,
        target_port: 80,
        protocol: 6,
    };
    StreamFacts::new(flow, number, StreamState::Established)
}

struct Numbered {
    path: PathBuf,
    /// A descriptor without a position, and the streams of batches in turn. `None` before the first pull.
    place: Option<(Descriptor, Vec<Class>)>,
    next: u64,
    blocks: u64,
    /// Started once all is prepared.
    begun: Arc<Mutex<Option<Stopwatch>>>,
}

impl Source for Numbered {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let failed = |text: String| Box::new(Failure::System(text));
        let Some((block, streams)) = &self.place else {
            let file = crate::floors::map(&self.path).map_err(failed)?;
            let segment = cx.rings.add_file(file);
            let view = cx.rings.add_view(segment, Interface::default());
            let view = view.ok_or_else(|| failed("no ring is free".to_owned()))?;
            let open = |number| cx.streams.open(facts(number)).map(|number| Class::of_stream(number, 0));
            let streams: Option<Vec<Class>> = (0..STREAMS).map(open).collect();
            let streams = streams.ok_or_else(|| failed("no stream is free".to_owned()))?;
            self.place = Some((view.block(0, BLOCK_BYTES as u32), streams));
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Stopwatch::start_here().map_err(failed)?);
            return Ok(Pull::Ready);
        };
        let class = streams[(self.next / BATCH % STREAMS) as usize];
        let end = self.blocks.min(self.next + BATCH);
        let made = |number| Descriptor { pos: number * BLOCK_BYTES % FILE_BYTES, time: number, class, ..*block };
        cx.out.extend((self.next..end).map(made));
        self.next = end;
        Ok(if end == self.blocks { Pull::End } else { Pull::Ready })
    }
}

struct Checked {
    next: u64,
    /// Not 0: at least one was wrong.
    wrong: u64,
    said: Arc<Mutex<Option<(u64, u64)>>>,
}

impl Filter for Checked {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            self.wrong |= (block.time ^ self.next) | (block.pos ^ (self.next * BLOCK_BYTES % FILE_BYTES));
            self.next += 1;
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.next, self.wrong));
        Ok(Status::Done)
    }
}
