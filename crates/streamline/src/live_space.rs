//! The space `kernel`: devices, and selectors on what they give, run where the packets are.
//!
//! In: steps of a transaction. Out: a [`Tap`] for every place where packets leave this space, and the part of the plan
//! that is left for a worker ([`rest`]): all that runs further down becomes a source there.
//!
//! Nothing is opened before everything is connected: which selectors stand between a device and an edge that leaves is
//! known only then. Whatever a selector cannot do here is refused, and placed one space higher.
//!
//! Where packets are only counted (`count`), none is copied: its record is all that leaves.
//!
//! A device that a request has for itself (`af_xdp`, `af_packet`) is here, too: the one expression behind it chooses what it
//! takes away from the host, or what its socket lets in. What filters above cannot want is taken all the same, for to leave it
//! to the host would be more than they say.
//!
//! What the filters above cannot want stays here, too, even where none of them can run here: they say what a packet must be
//! ([`filter::Kind::narrow`]), and what is something else for sure is not captured.

use crate::session::{Left, Opened, Rest};
use crate::shared::space::NAME as SHARED;
use capture::{ETHERNET, Share, Tap, Trouble, Wish, writer::TroubleKind};
use control::{Before, Offer, Space, StepError};
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::run::Instance;
use filter::{Devices, Kind, Lower, ParamError, Params, Spaces};
use kernel::{Sieve, Steer};
use program::narrow::Narrow;
use program::{Compile, ir};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The space `kernel`.
pub(crate) struct LiveSpace {
    devices: Arc<dyn Devices>,
    compiler: Arc<dyn Compile>,
    /// May anything but devices run here?
    push_down: bool,
    nodes: BTreeMap<NodeId, Prepared>,
    /// Edges that leave a node of this space; whether they stay in it is known by `nodes`.
    edges: Vec<Laid>,
    opened: BTreeMap<NodeId, Vec<Reading>>,
    /// What runs, where a plan is to take its place.
    running: Vec<RunningSource>,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Packets of a device.
    Packets(Wish, Option<Share>),
    /// Numbers of packets, of so many readers.
    Counts(Vec<(Wish, Option<Share>)>),
    /// A device that nobody shares, as people know it with what chooses of it.
    Own(String),
}

/// A source of the running plan.
#[derive(Clone, Debug)]
pub(crate) struct RunningSource {
    /// Where it is in the worker.
    pub(crate) node: usize,
    /// What it reads.
    pub(crate) reads: Reads,
}

/// What comes out at the end of a path, or of several that are counted together.
struct Reading {
    paths: Vec<Vec<NodeId>>,
    reads: Reads,
    how: How,
}

enum How {
    /// Readers: one, but where packets are counted.
    Taps(Vec<Tap>),
    /// One that can take over from others of its device, from this packet on.
    Sure(Box<Tap>, u64),
    /// A device that nobody shares.
    Own(Instance),
    /// This source of the running plan reads the same.
    Running(usize),
}

/// Why a path cannot be opened, and where something else could be tried.
enum Why {
    Trouble(Trouble),
    Param(ParamError),
}

impl From<Trouble> for Why {
    fn from(trouble: Trouble) -> Why {
        Why::Trouble(trouble)
    }
}

/// What filters are together.
struct Lowered {
    program: Option<ir::Program>,
    sample: u32,
    counts: bool,
}

/// A node that was prepared.
struct Prepared {
    label: String,
    what: What,
}

/// An edge.
struct Laid {
    from: NodeId,
    to: NodeId,
    /// What packets must be for the filter it reaches to want them; none if that is not known.
    narrow: Option<Narrow>,
}

enum What {
    Device(Wish, Option<Share>, Params),
    /// A device that nobody shares.
    Own(&'static Kind, Params),
    Filter(Lower, Params),
}

impl LiveSpace {
    pub(crate) fn new(devices: Arc<dyn Devices>, compiler: Arc<dyn Compile>, push_down: bool) -> LiveSpace {
        let (nodes, edges, opened) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        LiveSpace { devices, compiler, push_down, nodes, edges, opened, running: Vec::new() }
    }

    /// The same beside sources that run, and whose places are to be taken: who wants what one of them reads gets that one,
    /// and who reads the same device otherwise takes over at one packet.
    pub(crate) fn beside(mut self, running: Vec<RunningSource>) -> LiveSpace {
        self.running = running;
        self
    }

    /// The ways from a device to this node, all inside this space; each begins with the device.
    fn paths(&self, to: NodeId) -> Vec<Vec<NodeId>> {
        let above: Vec<NodeId> = self.edges.iter().filter(|edge| edge.to == to).map(|edge| edge.from).collect();
        let above: Vec<NodeId> = above.into_iter().filter(|id| self.nodes.contains_key(id)).collect();
        if above.is_empty() {
            return vec![vec![to]];
        }
        let mut paths = Vec::new();
        for from in above {
            paths.extend(self.paths(from).into_iter().map(|mut path| {
                path.push(to);
                path
            }));
        }
        paths
    }

    /// Opens what comes out at the end of these paths, which is one source: that of several where packets are counted.
    fn open(&self, paths: Vec<Vec<NodeId>>) -> Result<Reading, Why> {
        let reads = self.reads(&paths)?;
        if let Some(node) = self.goes_on(&reads) {
            return Ok(Reading { paths, reads, how: How::Running(node) });
        }
        let how = match &reads {
            Reads::Packets(wish, share) if self.running.iter().any(|source| hands_over(&source.reads, wish)) => {
                // What had come before was the other's.
                let (tap, first) = self.devices.open_sure(&Wish { last_ns: 0, ..wish.clone() }, *share)?;
                How::Sure(Box::new(tap), first)
            }
            Reads::Packets(wish, share) => How::Taps(vec![self.devices.open(wish, *share)?]),
            Reads::Counts(wishes) => {
                let taps = wishes.iter().map(|(wish, share)| self.devices.open(wish, *share));
                How::Taps(taps.collect::<Result<_, _>>()?)
            }
            Reads::Own(_) => {
                let path = paths.first().map_or(&[][..], Vec::as_slice);
                match path.first().and_then(|first| self.nodes.get(first)).map(|node| &node.what) {
                    Some(What::Own(kind, params)) if kind.name == filters::af_packet::KIND.name => {
                        How::Own(self.open_packet_socket(params, path)?)
                    }
                    Some(What::Own(_, params)) => How::Own(self.open_own(params, path)?),
                    _ => return Err(nothing_comes().into()),
                }
            }
        };
        Ok(Reading { paths, reads, how })
    }

    /// The source of the running plan that reads this, unless it goes on elsewhere already.
    fn goes_on(&self, reads: &Reads) -> Option<usize> {
        let is_taken = |node: usize| {
            let mut readings = self.opened.values().flatten();
            readings.any(|reading| matches!(reading.how, How::Running(taken) if taken == node))
        };
        let mut same = self.running.iter().filter(|source| source.reads == *reads && !is_taken(source.node));
        same.next().map(|source| source.node)
    }

    /// What comes out at the end of these paths, before anything is opened.
    fn reads(&self, paths: &[Vec<NodeId>]) -> Result<Reads, Trouble> {
        let wish = |path: &Vec<NodeId>| match path.first().and_then(|id| self.nodes.get(id)).map(|node| &node.what) {
            Some(What::Device(wish, share, params)) => Ok((self.wish(wish.clone(), params, path)?, *share)),
            Some(What::Own(..) | What::Filter(..)) | None => Err(nothing_comes()),
        };
        match paths {
            [path] if self.begins_with_own(path) => Ok(Reads::Own(self.label(path))),
            [path] => {
                let (wish, share) = wish(path)?;
                let is_count = wish.counts.is_some();
                Ok(if is_count { Reads::Counts(vec![(wish, share)]) } else { Reads::Packets(wish, share) })
            }
            paths => Ok(Reads::Counts(paths.iter().map(wish).collect::<Result<_, _>>()?)),
        }
    }

    fn begins_with_own(&self, path: &[NodeId]) -> bool {
        let first = path.first().and_then(|first| self.nodes.get(first));
        first.is_some_and(|node| matches!(node.what, What::Own(..)))
    }

    /// What the filters of a path are together, over frames of a link type.
    fn lowered(&self, path: &[NodeId], link_type: u16) -> Result<Lowered, Trouble> {
        let cannot = |text: String| Trouble::new(TroubleKind::Cannot, text);
        let mut all = Lowered { program: None, sample: 1, counts: false };
        for id in &path[1..] {
            let node = self.nodes.get(id).ok_or_else(|| Trouble::new(TroubleKind::System, "the plan has changed"))?;
            let What::Filter(lower, params) = &node.what else {
                return Err(cannot("devices stand before everything else".into()));
            };
            match lower {
                Lower::Counts => all.counts = true,
                Lower::Program(lower) => {
                    let code = lower(params, self.compiler.as_ref(), link_type).map_err(cannot)?;
                    let program = program::from_cbpf(&code).map_err(|error| cannot(error.to_string()))?;
                    all.program = Some(match all.program {
                        None => program,
                        Some(before) => before.and_then(&program).map_err(|error| cannot(error.to_string()))?,
                    });
                }
                // The first of each m of the first of each n is the first of each m * n.
                Lower::OneIn(one_in) => {
                    let sample = one_in(params).map_err(cannot)?.checked_mul(all.sample);
                    all.sample = sample.ok_or_else(|| cannot("so few packets are not counted there".into()))?;
                }
            }
        }
        Ok(all)
    }

    /// What filters behind a device make of a wish for it.
    fn wish(&self, mut wish: Wish, device: &Params, path: &[NodeId]) -> Result<Wish, Trouble> {
        let link_type = self.devices.device(&wish.device)?.link_type;
        let Lowered { program: mut all, sample, counts } = self.lowered(path, link_type)?;
        wish.sample = sample;
        wish.counts = counts.then(|| filters::ethernet::snap_len(device));
        let narrow = path.last().and_then(|last| self.narrow(*last));
        // What is left out before packets are counted would make others the first of so many.
        if let Some(narrow) = narrow.filter(|_| link_type == ETHERNET && sample == 1 && !counts) {
            all = match &all {
                None => Some(narrow),
                // Asked second: what was written decides first. Where both are too much, that alone.
                Some(before) => before.and_then(&narrow).ok().or(all),
            };
        }
        wish.program = all.as_ref().map_or_else(Vec::new, program::to_cbpf);
        Ok(wish)
    }

    /// A device that nobody shares: what an expression chooses of it, or all.
    fn open_own(&self, params: &Params, path: &[NodeId]) -> Result<Instance, Why> {
        if path.len() == 1 {
            return filters::af_xdp::open(params, None).map_err(Why::Param);
        }
        let (queues, link_type) = filters::af_xdp::look_up(params).map_err(Why::Param)?;
        let program = self.lowered(path, link_type)?.program;
        let steer = Steer::new(queues, program.as_ref()).map_err(crate::devices::trouble)?;
        let own = |fd: BorrowedFd<'_>| capture::writer::own(fd);
        let chooses = driver::af_xdp::Program { program: own(steer.program())?, sockets: own(steer.sockets())? };
        let left = Box::new(move || steer.counted().left());
        filters::af_xdp::open(params, Some((chooses, ("left to the host", left)))).map_err(Why::Param)
    }

    /// A packet socket of this process's own: what an expression chooses, as its filter, or all.
    fn open_packet_socket(&self, params: &Params, path: &[NodeId]) -> Result<Instance, Why> {
        if path.len() == 1 {
            return filters::af_packet::open(params, None).map_err(Why::Param);
        }
        let link_type = filters::af_packet::link_type(params).map_err(Why::Param)?;
        let (incoming, outgoing) = filters::af_packet::ways(params);
        let program = self.lowered(path, link_type)?.program.map(Arc::new);
        let expression = kernel::Expression { incoming, outgoing, ..kernel::Expression::new(0, program) };
        // Whoever may not load programs may still have the socket: the expression is asked above then.
        let cannot = |error: kernel::tap::TapError| Trouble::new(TroubleKind::Cannot, error.to_string());
        let sieve = Sieve::new(link_type == ETHERNET).map_err(cannot)?;
        let filter = sieve.program(&[expression]).map_err(cannot)?;
        let kept_out = Box::new(move || sieve.kept_out().packets);
        filters::af_packet::open(params, Some((filter, ("kept out of the socket", kept_out)))).map_err(Why::Param)
    }

    /// The nodes of this space from which what comes from a device leaves it.
    fn ends_of(&self, device: NodeId) -> usize {
        let leaves = |id: &NodeId| {
            self.edges.iter().any(|edge| edge.from == *id && !self.nodes.contains_key(&edge.to))
                && self.paths(*id).iter().any(|path| path.first() == Some(&device))
        };
        self.nodes.keys().filter(|id| leaves(id)).count()
    }

    /// What leaves out packets that nobody behind the edges that leave this node can want.
    fn narrow(&self, node: NodeId) -> Option<program::Program> {
        let leaving = self.edges.iter().filter(|edge| edge.from == node && !self.nodes.contains_key(&edge.to));
        let wanted: Option<Vec<Narrow>> = leaving.map(|edge| edge.narrow.clone()).collect();
        program::narrow::program(&wanted?)
    }

    /// What people know a path by.
    fn label(&self, path: &[NodeId]) -> String {
        let labels = path.iter().filter_map(|id| self.nodes.get(id)).map(|node| node.label.as_str());
        labels.collect::<Vec<_>>().join(" | ")
    }

    fn device(&self, plan: &Plan, id: NodeId) -> Option<(&'static Kind, Params)> {
        match (&plan.nodes[id.index()].task, &self.nodes.get(&id)?.what) {
            (Task::Filter { kind, .. }, What::Device(_, _, params) | What::Own(_, params)) => {
                Some((kind, params.clone()))
            }
            _ => None,
        }
    }
}

/// The part of a plan that is left for a worker: what runs in the kernel, and what others run for this request (by node of
/// the plan: its name and its source), have become sources.
pub(crate) fn rest(mut live: LiveSpace, mut inlets: BTreeMap<NodeId, (String, Instance)>, plan: &Plan) -> Rest {
    let mut rest = Plan::default();
    let mut left = Vec::new();
    // By node of the whole plan; only those that stay have one.
    let mut places: Vec<Option<NodeId>> = vec![None; plan.nodes.len()];
    let is_below = |id: NodeId| [NAME, SHARED].contains(&plan.nodes[id.index()].space.as_str());
    let ids = || (0..plan.nodes.len()).map(|index| NodeId(index as u32));
    let mut pushed = Vec::new();
    for id in ids() {
        let node = &plan.nodes[id.index()];
        if !is_below(id) {
            places[id.index()] = Some(NodeId(rest.nodes.len() as u32));
            pushed.push(node.edges.clone());
            rest.nodes.push(Node { edges: Vec::new(), ..node.clone() });
            left.push(Left::Node(id));
            continue;
        }
        let edges: Vec<Edge> = node.edges.iter().filter(|edge| !is_below(edge.to)).cloned().collect();
        let mut push = |label, task, source| {
            let space = node.space.clone();
            pushed.push(edges.clone());
            rest.nodes.push(Node { label, task, space, input: Default::default(), edges: Vec::new() });
            left.push(source);
        };
        if let Some((label, inlet)) = inlets.remove(&id) {
            // Its kind says that it is a source, and nothing else of it counts here.
            push(label, Task::Filter { kind: &filters::ethernet::KIND, params: Params::new() }, Left::Given(id, inlet));
        }
        let is_count = matches!(&node.task, Task::Filter { kind, .. } if counts(kind));
        for Reading { paths, reads, how } in live.opened.remove(&id).unwrap_or_default() {
            let first = paths.first().and_then(|path| path.first());
            let Some((kind, params)) = first.and_then(|first| live.device(plan, *first)) else { continue };
            // One record, wherever its packets come from.
            let task = if is_count { node.task.clone() } else { Task::Filter { kind, params: params.clone() } };
            let labels: Vec<String> = paths.iter().map(|path| live.label(path)).collect();
            let (source, first) = match how {
                How::Running(node) => (Opened::Running(node), None),
                How::Own(source) => (Opened::New(source), None),
                How::Sure(tap, first) => (Opened::New(filters::ethernet::source(*tap, &params)), Some(first)),
                How::Taps(taps) if is_count => (Opened::New(filters::count::source(taps)), None),
                How::Taps(taps) => {
                    let Some(tap) = taps.into_iter().next() else { continue };
                    (Opened::New(filters::ethernet::source(tap, &params)), None)
                }
            };
            push(labels.join(" + "), task, Left::Source { origin: id, source, reads, first });
        }
    }
    for (node, edges) in rest.nodes.iter_mut().zip(pushed) {
        let moved = edges.into_iter().filter_map(|edge| Some(Edge { to: places[edge.to.index()]?, ..edge }));
        node.edges = moved.collect();
    }
    for node in &mut rest.nodes {
        if let Task::Choose(choice) = &mut node.task {
            choice.renumber(&|id| places[id.index()].unwrap_or(id));
        }
    }
    Rest { plan: rest, left }
}

/// The name of this space.
pub(crate) const NAME: &str = "kernel";

/// Is any of these one that takes one packet in so many?
fn samples(filters: &[Before<'_>]) -> bool {
    filters.iter().any(|(kind, _)| matches!(kind.lower, Some(Lower::OneIn(_))))
}

/// Is it a device that a request has for itself?
fn is_own(kind: &Kind) -> bool {
    [filters::af_xdp::KIND.name, filters::af_packet::KIND.name].contains(&kind.name)
}

fn nothing_comes() -> Trouble {
    Trouble::new(TroubleKind::Cannot, "nothing comes from a device here")
}

/// Are the packets of a source that reads this numbered as those are that are wished for, so that a reader of these can take
/// over? Rings are of a device and of who writes them.
pub(crate) fn hands_over(reads: &Reads, wish: &Wish) -> bool {
    let is_same = |other: &Wish| (&other.device, other.by) == (&wish.device, wish.by) && other.mode == wish.mode;
    matches!(reads, Reads::Packets(other, _) if is_same(other))
}

/// Does it give numbers of packets, and no packets?
fn counts(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Counts))
}

/// Does a device's program decide on every packet that comes from it? Else says which are chosen by the reader.
fn decides_on_all(before: &[Before<'_>]) -> Result<(), String> {
    for (_, params) in before.iter().filter(|(kind, _)| kind.is_source() && !is_own(kind)) {
        let (wish, share) = filters::ethernet::wish(params).map_err(|error| error.message)?;
        if share.is_some() {
            return Err("flows of one part are chosen by the reader".into());
        }
        if wish.last_ns > 0 {
            return Err("packets of the past are looked at by the reader".into());
        }
    }
    Ok(())
}

fn refused(text: impl Into<String>) -> StepError {
    StepError { refused: true, error: ParamError::system(text) }
}

impl Space for LiveSpace {
    fn name(&self) -> &str {
        NAME
    }

    fn sort(&self) -> Spaces {
        Spaces::KERNEL
    }

    fn offer(&self, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Result<Offer, String> {
        if is_own(kind) {
            return if self.push_down {
                Ok(Offer { cost: 1 })
            } else {
                Err("it was asked to stay out of the kernel".into())
            };
        }
        if kind.is_source() {
            let (wish, _) = filters::ethernet::wish(params).map_err(|error| error.message)?;
            return match wish.mode {
                capture::Mode::Tap => Ok(Offer { cost: 1 }),
                capture::Mode::Consume => Err("it takes copies only".into()),
            };
        }
        if !self.push_down {
            return Err("it was asked to stay out of the kernel".into());
        }
        if before.iter().any(|(kind, _)| counts(kind)) {
            return Err("it counts packets there, and has no records".into());
        }
        match kind.lower {
            None => Err(format!("it has no program for `{}`", kind.name)),
            Some(Lower::Program(_)) if samples(before) => {
                Err("it asks before it takes one in so many, not after".into())
            }
            Some(Lower::Program(_)) => Ok(Offer { cost: 1 }),
            Some(_) if before.iter().any(|(kind, _)| is_own(kind)) => {
                Err("of a device that is not shared it only chooses what is taken".into())
            }
            Some(Lower::OneIn(one_in)) => {
                one_in(params)?;
                decides_on_all(before)?;
                Ok(Offer { cost: 1 })
            }
            Some(Lower::Counts) => {
                decides_on_all(before)?;
                Ok(Offer { cost: 1 })
            }
        }
    }

    fn keeps_back(&self, before: &[Before<'_>]) -> bool {
        self.push_down && !samples(before) && !before.iter().any(|(kind, _)| is_own(kind))
    }

    fn prepare(&mut self, id: NodeId, node: &Node) -> Result<(), StepError> {
        let Task::Filter { kind, params } = &node.task else {
            return Err(refused("selections run one space higher"));
        };
        let what = if is_own(kind) {
            What::Own(kind, params.clone())
        } else if kind.is_source() {
            let wished = filters::ethernet::wish(params);
            let (wish, share) = wished.map_err(|error| StepError { refused: false, error })?;
            What::Device(wish, share, params.clone())
        } else {
            let lower = kind.lower.ok_or_else(|| refused(format!("there is no program for `{}`", kind.name)))?;
            What::Filter(lower, params.clone())
        };
        self.nodes.insert(id, Prepared { label: node.label.clone(), what });
        Ok(())
    }

    fn discard(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    fn connect(&mut self, from: NodeId, edge: &Edge, to: &Node) -> Result<(), StepError> {
        if to.space == SHARED {
            // Whoever runs it takes its packets from the kernel, too.
            return Ok(());
        }
        let narrow = match &to.task {
            Task::Filter { kind, params } if self.push_down => kind.narrow.and_then(|narrow| narrow(params)),
            Task::Filter { .. } | Task::Choose(_) => None,
        };
        self.edges.push(Laid { from, to: edge.to, narrow });
        Ok(())
    }

    fn disconnect(&mut self, from: NodeId, edge: &Edge) {
        if let Some(at) = self.edges.iter().rposition(|known| (known.from, known.to) == (from, edge.to)) {
            self.edges.remove(at);
        }
    }

    fn activate(&mut self, id: NodeId) -> Result<(), StepError> {
        let leaves = self.edges.iter().any(|edge| edge.from == id && !self.nodes.contains_key(&edge.to));
        if !leaves {
            return Ok(());
        }
        let node = self.nodes.get(&id).map(|node| &node.what);
        let is_device = matches!(node, Some(What::Device(..) | What::Own(..)));
        // Where packets are counted, one source counts those of all paths.
        let is_count = matches!(node, Some(What::Filter(Lower::Counts, _)));
        let paths = self.paths(id);
        let paths = if is_count { vec![paths] } else { paths.into_iter().map(|path| vec![path]).collect() };
        for paths in paths {
            let own = paths.iter().find(|path| self.begins_with_own(path)).and_then(|path| path.first());
            let opened = if own.is_some_and(|device| self.ends_of(*device) > 1) && !is_device {
                // It is taken once, so that nobody can say that the rest is the host's.
                Err(refused("others have to do with what it rejects"))
            } else {
                self.open(paths).map_err(|why| match why {
                    // A selector that cannot run here may run one space higher; a device that is not there is not there.
                    Why::Trouble(trouble) if trouble.kind == TroubleKind::Cannot && !is_device => refused(trouble.text),
                    Why::Trouble(trouble) => StepError { refused: false, error: filters::ethernet::refusal(trouble) },
                    Why::Param(error) => StepError { refused: false, error },
                })
            };
            match opened {
                Ok(reading) => self.opened.entry(id).or_default().push(reading),
                Err(error) => {
                    self.opened.remove(&id);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn deactivate(&mut self, id: NodeId) {
        self.opened.remove(&id);
    }
}
