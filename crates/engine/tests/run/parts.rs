//! Small filters and a way to put them together into any graph.

use base::atomic::StopFlag;
use base::id::Class;
use engine::{Choice, Edge, End, Node, NodeId, Plan, Report, Select, Task, Worker};
use filter::prelude::*;
use std::sync::{Arc, Mutex};

/// The blocks that sinks saw: (name of the sink, class, bytes).
pub type Seen = Arc<Mutex<Vec<(&'static str, u32, Vec<u8>)>>>;

#[derive(Default)]
pub struct Graph {
    plan: Plan,
    instances: Vec<Option<Instance>>,
    pub seen: Seen,
}

fn never(_: &Params, _: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("made by hand"))
}

static SOURCE: Kind = Kind::new("source", "", never).source(Type::Frame);
static IN_PLACE: Kind =
    Kind::new("in_place", "", never).touches(Parts::DATA, Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS));
static MODEST: Kind = Kind::new("modest", "", never);
static MAKER: Kind = Kind::new("maker", "", never).gives(Type::Bytes).touches(Parts::DATA, Parts::STREAMS);
static STREAMS: Kind = Kind::new("streams", "", never)
    .takes(&[Type::Frame])
    .gives(Type::Bytes)
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS);
static SINK: Kind = Kind::new("sink", "", never).sink();

impl Graph {
    fn add(&mut self, label: &str, task: Task, instance: Option<Instance>) -> NodeId {
        let node = Node {
            label: label.into(),
            task,
            space: "app".into(),
            input: Types::ANY,
            how: Default::default(),
            edges: Vec::new(),
        };
        self.plan.nodes.push(node);
        self.instances.push(instance);
        NodeId((self.plan.nodes.len() - 1) as u32)
    }

    fn filter(&mut self, label: &str, kind: &'static Kind, instance: Instance) -> NodeId {
        self.add(label, Task::Filter { kind, params: Params::new() }, Some(instance))
    }

    /// A source of blocks with these classes and bytes, one each millisecond from 1 s on.
    pub fn source(&mut self, blocks: &[(u32, &[u8])]) -> NodeId {
        let second = 1_000_000_000;
        let timed = blocks
            .iter()
            .enumerate()
            .map(|(i, (class, bytes))| (second + i as u64 * 1_000_000, *class, Flags::NONE, bytes.to_vec()));
        self.timed_source(timed.collect())
    }

    /// A source of blocks of (time, class, flags, bytes).
    pub fn timed_source(&mut self, blocks: Vec<(u64, u32, Flags, Vec<u8>)>) -> NodeId {
        self.filter("source", &SOURCE, Instance::source(Blocks { blocks, at: 0, made: false }))
    }

    pub fn broken_source(&mut self, source: impl Source + 'static) -> NodeId {
        self.filter("broken", &SOURCE, Instance::source(source))
    }

    pub fn in_place(&mut self, label: &str, filter: impl Filter + 'static) -> NodeId {
        self.filter(label, &IN_PLACE, Instance::filter(filter))
    }

    /// A filter that works in place, whose kind says that it changes nothing.
    pub fn modest(&mut self, label: &str, filter: impl Filter + 'static) -> NodeId {
        self.filter(label, &MODEST, Instance::filter(filter))
    }

    /// A filter that gives new blocks, of any instance.
    pub fn maker(&mut self, label: &str, instance: Instance) -> NodeId {
        self.filter(label, &MAKER, instance)
    }

    /// A filter that makes streams from frames, each flow by itself.
    pub fn streams(&mut self, label: &str, filter: impl Filter + 'static) -> NodeId {
        self.filter(label, &STREAMS, Instance::filter(filter))
    }

    pub fn sink(&mut self, name: &'static str) -> NodeId {
        let seen = Arc::clone(&self.seen);
        self.filter(name, &SINK, Instance::filter(Watch { name, seen }))
    }

    pub fn own_sink(&mut self, label: &str, filter: impl Filter + 'static) -> NodeId {
        self.filter(label, &SINK, Instance::filter(filter))
    }

    /// A selection; its operands are in-place nodes added before.
    pub fn choose(&mut self, choice: Choice) -> NodeId {
        self.add("choice", Task::Choose(choice), None)
    }

    pub fn edge(&mut self, from: NodeId, to: NodeId) {
        self.selected(from, to, None);
    }

    pub fn selected(&mut self, from: NodeId, to: NodeId, select: Option<Select>) {
        self.plan.nodes[from.index()].edges.push(Edge { select, ..Edge::plain(to) });
    }

    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.plan.nodes[from.index()].edges.push(Edge { cut: true, ..Edge::plain(to) });
    }

    pub fn rejected(&mut self, from: NodeId, to: NodeId, select: Option<Select>) {
        self.plan.nodes[from.index()].edges.push(Edge { select, rejected: true, ..Edge::plain(to) });
    }

    /// Runs the graph. Gives the most bytes of memory that its rings had after any batch.
    pub fn run_and_measure(self) -> usize {
        let mut worker = Worker::new(&self.plan, self.instances);
        let mut most = 0;
        worker.run(&StopFlag::new(), &mut |worker| most = most.max(worker.memory_bytes())).unwrap();
        most
    }

    pub fn worker(self) -> Worker {
        Worker::new(&self.plan, self.instances)
    }

    /// A graph whose sinks write down their blocks beside those of others.
    pub fn beside(seen: &Seen) -> Graph {
        Graph { seen: Arc::clone(seen), ..Graph::default() }
    }

    pub fn taken(self) -> (Plan, Vec<Option<Instance>>) {
        (self.plan, self.instances)
    }

    /// Runs the graph. Panics unless the counters add up.
    pub fn run(self) -> (Result<End, Box<Failure>>, Report) {
        self.run_until(&StopFlag::new())
    }

    pub fn run_until(self, stop: &StopFlag) -> (Result<End, Box<Failure>>, Report) {
        let mut worker = Worker::new(&self.plan, self.instances);
        let end = worker.run(stop, &mut |_| {});
        let report = worker.report();
        report.check().unwrap();
        assert_eq!(report.traffic.faults, 0);
        (end, report)
    }
}

pub fn exactly(number: u32) -> Select {
    Select::Classes { low: number, high: number, invert: false, halves: false }
}

pub fn texts(seen: &Seen, sink: &str) -> Vec<String> {
    let seen = seen.lock().unwrap();
    let own = seen.iter().filter(|(name, ..)| *name == sink);
    own.map(|(_, _, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
}

struct Blocks {
    blocks: Vec<(u64, u32, Flags, Vec<u8>)>,
    at: usize,
    made: bool,
}

impl Source for Blocks {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        assert!(!self.made || self.at <= self.blocks.len());
        self.made = true;
        let end = self.blocks.len().min(self.at + base::limits::BATCH_BLOCKS);
        for (time, class, flags, bytes) in &self.blocks[self.at..end] {
            let mut block = cx.rings.append_copy(cx.own, &[bytes]).unwrap();
            (block.time, block.class) = (*time, Class(*class));
            block.set_flags(*flags);
            cx.out.push(block);
        }
        self.at = end;
        Ok(if end == self.blocks.len() { Pull::End } else { Pull::Ready })
    }
}

struct Watch {
    name: &'static str,
    seen: Seen,
}

impl Filter for Watch {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut seen = self.seen.lock().unwrap();
        for (_, block) in batch.iter() {
            seen.push((self.name, block.class.0, cx.rings.bytes(block).to_vec()));
        }
        Ok(Status::Done)
    }
}

/// Keeps blocks whose first byte `like` accepts, and may set the class to that byte.
pub struct Keep {
    pub like: fn(u8) -> bool,
    pub set_class: bool,
}

impl Filter for Keep {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        batch.keep_if(|block| {
            let first = cx.rings.bytes(block).first().copied().unwrap_or(0);
            if self.set_class {
                block.class = Class(u32::from(first));
            }
            (self.like)(first)
        });
        Ok(Status::Done)
    }
}

pub struct Passes;

impl Filter for Passes {
    fn run(&mut self, _: &mut Batch<'_>, _: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

/// Writes upper case letters over every block.
pub struct Shout;

impl Filter for Shout {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for place in filter::batch::places(batch.live()) {
            match cx.edit(batch.block_mut(place), buffer::Room::default()) {
                Ok(bytes) => bytes.make_ascii_uppercase(),
                Err(_) => cx.drop_of(batch, 1 << place, "gone"),
            }
        }
        Ok(Status::Done)
    }
}
