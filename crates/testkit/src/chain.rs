//! Runs filters one after the other over blocks in memory, through the real engine.
//!
//! ```text
//! let outcome = Chain::frames(1, &[(0, frame)]).then(&tcp::KIND, &[]).run();
//! assert_eq!(outcome.blocks[0].bytes, b"hello");
//! ```

use base::atomic::StopFlag;
use buffer::{Descriptor, Interface, ViewId};
use engine::{Edge, Node, NodeId, Plan, Report, Task, Worker};
use filter::prelude::*;
use program::compile::{Compile, CompileError};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// A chain under construction.
pub struct Chain {
    /// `None`: the first filter is a source itself.
    source: Option<First>,
    input: Types,
    nodes: Vec<(&'static Kind, Params)>,
    compiler: Arc<dyn Compile>,
    schemas: Vec<&'static Schema>,
    terminal: Option<usize>,
}

/// A block that came out, with a copy of its bytes.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Facts about its stream. `None`: it has no stream.
    pub stream: Option<StreamFacts>,
    /// It is in the source's ring, so it was not copied.
    pub from_source: bool,
    /// The interface that its view names.
    pub interface: Option<Arc<Interface>>,
}

/// The result of a chain.
#[derive(Debug)]
pub struct Outcome {
    /// Blocks that came out at the end.
    pub blocks: Vec<Block>,
    /// The text on standard output.
    pub stdout: String,
    /// The bytes on standard output.
    pub stdout_bytes: Vec<u8>,
    /// Lines for people.
    pub notices: Vec<String>,
    /// The counters. They add up, or `run` would have panicked.
    pub report: Report,
    /// Why the run failed. `None`: it did not.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// All bytes that came out, by class, with gaps closed. META blocks are left out.
    pub fn by_class(&self) -> std::collections::BTreeMap<u32, Vec<u8>> {
        let mut streams = std::collections::BTreeMap::<u32, Vec<u8>>::new();
        for block in self.blocks.iter().filter(|block| !block.descriptor.has(Flags::META)) {
            streams.entry(block.descriptor.class.0).or_default().extend_from_slice(&block.bytes);
        }
        streams
    }

    /// Counters of the first node whose label is this kind's name.
    pub fn counters(&self, name: &str) -> &filter::Counters {
        &self.report.nodes.iter().find(|node| node.label == name).expect("a node of that name").counters
    }
}

impl Chain {
    /// A source of frames of one link type: (time in ns, bytes).
    pub fn frames(link_type: u16, frames: &[(u64, Vec<u8>)]) -> Chain {
        let pieces = frames.iter().map(|(time, bytes)| {
            let mut block = Descriptor { time: *time, ..Descriptor::default() };
            block.set_wire(bytes.len() as u32);
            (block, bytes.clone())
        });
        Chain::pieces(Type::Frame, Some(link_type), pieces.collect())
    }

    /// A source of blocks of any type. Uses the time, wire length, flags and class of each descriptor.
    pub fn pieces(of: Type, link_type: Option<u16>, pieces: Vec<(Descriptor, Vec<u8>)>) -> Chain {
        let memory = Memory { pieces, link_type, view: None, streams: Vec::new(), at: 0 };
        Chain::beginning(Some(First::Memory(memory)), Types::of(&[of]))
    }

    /// A source of frames that is made already.
    pub fn made(source: Instance) -> Chain {
        Chain::beginning(Some(First::Made(source)), Types::of(&[Type::Frame]))
    }

    /// A kind that is a source itself, with parameters as text.
    pub fn source(kind: &'static Kind, given: &[(&str, &str)]) -> Chain {
        assert!(kind.is_source(), "{} is a source", kind.name);
        Chain::beginning(None, Types::NONE).then(kind, given)
    }

    fn beginning(source: Option<First>, input: Types) -> Chain {
        Chain { source, input, nodes: Vec::new(), compiler: Arc::new(NoCompiler), schemas: Vec::new(), terminal: None }
    }

    /// Registers stream facts before the first block: the first is connection 0, the next 1, and so on.
    ///
    /// # Panics
    /// When the chain has a source of its own, which makes the streams itself.
    #[must_use]
    pub fn streams(mut self, facts: &[StreamFacts]) -> Chain {
        match &mut self.source {
            Some(First::Memory(memory)) => memory.streams = facts.to_vec(),
            Some(First::Made(_)) | None => panic!("the chain's source makes its streams"),
        }
        self
    }

    /// Makes a schema known that no kind of the chain declares.
    #[must_use]
    pub fn schema(mut self, schema: &'static filter::Schema) -> Chain {
        self.schemas.push(schema);
        self
    }

    /// Makes standard output a terminal of so many columns.
    #[must_use]
    pub fn terminal(mut self, columns: usize) -> Chain {
        self.terminal = Some(columns);
        self
    }

    /// Uses this compiler for tcpdump's expressions.
    #[must_use]
    pub fn compiler(mut self, compiler: Arc<dyn Compile>) -> Chain {
        self.compiler = compiler;
        self
    }

    /// Adds a filter with parameters as text.
    ///
    /// # Panics
    /// When the kind does not know a parameter, or refuses its text.
    #[must_use]
    pub fn then(mut self, kind: &'static Kind, given: &[(&str, &str)]) -> Chain {
        self.nodes.push((kind, params(kind, given)));
        self.schemas.extend([kind.schema, kind.other_schema].into_iter().flatten());
        self
    }

    /// Makes an instance of the last filter, and gives its error, if any.
    pub fn refusal(&self) -> Option<ParamError> {
        let (kind, params) = self.nodes.last()?;
        (kind.make)(params, &self.env(self.input, &Captured::default())).err()
    }

    fn env(&self, input: Types, stdout: &Captured) -> Env {
        let stdout = Box::new(stdout.clone());
        let stdout = match self.terminal {
            Some(columns) => Output::terminal(stdout, move || columns),
            None => Output::new(stdout, false),
        };
        Env {
            input,
            stdout,
            compiler: Arc::clone(&self.compiler),
            schemas: self.schemas.clone().into(),
            wait: filter::Wait::default(),
            latency: None,
            make_ring: [].into(),
            daemon: None,
        }
    }

    /// Runs the chain.
    ///
    /// # Panics
    /// When a filter cannot be made, or when the counters do not add up.
    pub fn run(self) -> Outcome {
        let (stdout, collected) = (Captured::default(), Arc::new(Mutex::new(Vec::new())));
        let mut plan = Plan::default();
        let mut input = self.input;
        let mut instances = Vec::new();
        let label = |kind: &'static Kind, params: Params| Task::Filter { kind, params };
        let mut add = |task: Task, label: &str, input: Types, instance: Instance| {
            let next = Edge::plain(NodeId(plan.nodes.len() as u32 + 1));
            plan.nodes.push(Node {
                label: label.into(),
                task,
                space: "app".into(),
                input,
                how: Default::default(),
                edges: vec![next],
            });
            instances.push(Some(instance));
        };
        let env = self.env(input, &stdout);
        let source_kind: &'static Kind = &SOURCE;
        let chain_end: &'static Kind = &COLLECT;
        let nodes = self.nodes;
        if let Some(source) = self.source {
            let source = match source {
                First::Memory(memory) => Instance::source(memory),
                First::Made(source) => source,
            };
            add(label(source_kind, Params::new()), source_kind.name, Types::NONE, source);
        }
        for (kind, params) in nodes {
            let env = Env { input, ..env.clone() };
            let instance =
                (kind.make)(&params, &env).unwrap_or_else(|error| panic!("{}: {}", kind.name, error.message));
            let output = kind.output(input, &params);
            add(label(kind, params), kind.name, input, instance);
            input = output;
        }
        let collect = Collect { blocks: Arc::clone(&collected) };
        add(label(chain_end, Params::new()), chain_end.name, input, Instance::filter(collect));
        plan.nodes.last_mut().expect("the collector").edges.clear();
        let count = plan.nodes.len();
        if input.is_none() {
            // The last filter is a sink, so no edge leads to the collector.
            plan.nodes[count - 2].edges.clear();
        }
        let mut worker = Worker::new(&plan, instances);
        let mut notices = Vec::new();
        let end = worker.run(&StopFlag::new(), &mut |worker| notices.extend(worker.take_notices()));
        let report = worker.report();
        report.check().unwrap_or_else(|wrong| panic!("counters: {wrong}"));
        assert_eq!(report.traffic.faults, 0, "a descriptor named nothing");
        let blocks = std::mem::take(&mut *collected.lock().expect("no other thread"));
        let failure = end.err().map(|failure| *failure);
        Outcome { blocks, stdout: stdout.text(), stdout_bytes: stdout.bytes(), notices, report, failure }
    }
}

/// Checked parameters of a kind, from text.
///
/// # Panics
/// When the kind does not know a parameter, or refuses its text.
pub fn params(kind: &'static Kind, given: &[(&str, &str)]) -> Params {
    let mut params = Params::new();
    for (key, text) in given {
        let param = kind.params.iter().find(|param| param.key == *key);
        let param = param.unwrap_or_else(|| panic!("{} has no parameter {key}", kind.name));
        params.set(param.key, param.kind.parse(text).unwrap_or_else(|error| panic!("{key}: {error}")));
    }
    params.fill_defaults(kind.params).unwrap_or_else(|param| panic!("{} wants {}", kind.name, param.key));
    params
}

static SOURCE: Kind =
    Kind::new("memory", "blocks in memory", |_, _| Err(ParamError::system("made by the chain"))).source(Type::Frame);
static COLLECT: Kind = Kind::new("collect", "keeps copies", |_, _| Err(ParamError::system("made by the chain"))).sink();

/// The beginning of a chain.
enum First {
    Memory(Memory),
    Made(Instance),
}

/// Blocks in memory.
struct Memory {
    pieces: Vec<(Descriptor, Vec<u8>)>,
    link_type: Option<u16>,
    view: Option<ViewId>,
    streams: Vec<StreamFacts>,
    at: usize,
}

impl Source for Memory {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let view = match self.view {
            Some(view) => view,
            None => {
                for facts in self.streams.drain(..) {
                    cx.streams.open(facts);
                }
                let segment = cx.rings.add_append_ring();
                let interface = Interface { link_type: self.link_type, ..Interface::default() };
                *self.view.insert(cx.rings.add_view(segment, interface).expect("a free view"))
            }
        };
        let end = self.pieces.len().min(self.at + base::limits::BATCH_BLOCKS);
        for (given, bytes) in &self.pieces[self.at..end] {
            let mut block = cx.rings.append_copy(view, &[bytes]).expect("a block that fits");
            (block.time, block.class) = (given.time, given.class);
            block.set_wire(given.wire().max(block.len));
            block.set_flags(given.flags());
            cx.out.push(block);
        }
        self.at = end;
        Ok(if self.at == self.pieces.len() { Pull::End } else { Pull::Ready })
    }
}

struct Collect {
    blocks: Arc<Mutex<Vec<Block>>>,
}

impl Filter for Collect {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut blocks = self.blocks.lock().expect("no other thread");
        for (_, block) in batch.iter() {
            blocks.push(Block {
                descriptor: *block,
                bytes: cx.rings.bytes(block).to_vec(),
                stream: cx.streams.get(block.class).cloned(),
                from_source: cx.rings.link_type(block).is_some(),
                interface: cx.rings.interface(block).cloned(),
            });
        }
        Ok(Status::Done)
    }
}

/// A copy of standard output.
#[derive(Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// The text written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no other thread").clone()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no other thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A missing compiler, as on a machine without libpcap.
struct NoCompiler;

impl Compile for NoCompiler {
    fn compile(&self, _: &str, _: u16, _: u32) -> Result<Vec<program::cbpf::Instruction>, CompileError> {
        Err(CompileError::unavailable("no compiler in this test"))
    }

    fn describe(&self) -> String {
        "none".into()
    }
}
