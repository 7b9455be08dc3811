//! One of the spaces `kernel` and `daemon`.
//!
//! A device, and everything that follows it there, is in the space of its ring's writer: the kernel's program, or a
//! thread of the daemon that copies from a packet socket. The thread writes where that was asked for, or where the
//! program would see other packets. Without a daemon this process's own thread copies, and the kernel filters in front
//! of it as far as it can. That counts as `kernel`.
//!
//! In: steps of a transaction. Out: a source for every place where packets leave this space.
//!
//! The space connects all nodes before it opens any device. Only then does it know which selectors stand between a
//! device and an edge that leaves. A selector that this space cannot run is refused, and placed one space higher.
//!
//! Where packets are only counted (`count`), they are not copied: only the record of the counts leaves.
//!
//! A device that a request has to itself (`af_xdp`, `af_packet`) is here, too: the expressions behind it choose what it
//! takes away from the host, or what its socket lets in.
//!
//! Packets that the filters above cannot want stay here as well, even if those filters cannot run here. They say what a
//! packet must be ([`filter::Kind::pre_filter`], or an expression); anything else is not captured.
//!
//! [`lowering`](super::lowering) decides what can be done here before anything is opened; this module opens it.

use super::forward;
use super::lowering::{self, Behind, DAEMON, Judge, Lowered, counts, forwards_to, is_own};
use super::ration;
use super::selection::{OneByOne, Selection, is_undecided};
use crate::parser::space::NAME as PARSER;
use crate::session::{Left, Opened};
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::writer::own;
use capture::{By, CaptureError, CaptureErrorKind, CaptureReader, CaptureRequest, Devices, ETHERNET, Mode, Share};
use control::{Before, Offer, Space, StepError, Verdict};
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::device::{Choice, Exclusive, Shared, XdpProgram, snap_len};
use filter::run::Instance;
use filter::{Decides, DeviceAccess, Kind, Lower, ParamError, Params, Spaces};
use kernel::{ConsumeProgram, Wanted};
use program::{Compile, Expression, Passes, Program, to_cbpf};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct LiveSpace {
    name: &'static str,
    devices: Arc<dyn Devices>,
    compiler: Arc<dyn Compile>,
    /// May filters run here besides devices?
    push_down: bool,
    nodes: BTreeMap<NodeId, Prepared>,
    /// Edges that leave a node of this space. They stay in the space when `nodes` has their target.
    edges: Vec<Laid>,
    opened: BTreeMap<NodeId, Vec<Reading>>,
    /// The sources of the running plan that this plan is to replace; empty without one.
    running: Vec<RunningSource>,
    /// How much later than it came a packet may be found. `None`: not set.
    latency: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Packets(CaptureRequest, Option<Share>, Given),
    /// Numbers of packets, from one reader for each entry.
    Counts(Vec<Counted>),
    /// A device that only this request has.
    Own {
        /// The device's name and the filters behind it, for people.
        label: String,
        /// It gives what any of these passes. `None`: everything.
        wanted: Option<Vec<Program>>,
    },
    /// Nothing: frames go from one device to another.
    Forward {
        /// For people.
        label: String,
        /// The frames to forward. `None`: all.
        wanted: Option<Program>,
        /// The other device.
        to: String,
    },
}

impl Reads {
    pub(super) fn all_asked(&self) -> Vec<&CaptureRequest> {
        match self {
            Reads::Packets(asked, ..) => vec![asked],
            Reads::Counts(all) => {
                let undecided = all.iter().filter_map(|counted| counted.undecided.as_ref().map(|(asked, _)| asked));
                all.iter().map(|counted| &counted.asked).chain(undecided).collect()
            }
            Reads::Own { .. } | Reads::Forward { .. } => Vec::new(),
        }
    }
}

/// What a source gives of each packet that it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Most bytes of each packet, 0 = all.
    snap_len: u32,
    /// The selectors that decide in the reader, for people. `None`: none do.
    decided_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    asked: CaptureRequest,
    share: Option<Share>,
    /// A reader for packets that the program cannot decide about, and the selectors that decide.
    undecided: Option<(CaptureRequest, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct RunningSource {
    pub(crate) node: usize,
    pub(crate) reads: Reads,
}

struct Reading {
    paths: Vec<Vec<NodeId>>,
    reads: Reads,
    how: How,
}

enum How {
    CaptureReader(Box<CaptureReader>),
    /// Readers that count, and readers of packets that only they can decide about.
    Counts(Vec<CaptureReader>, Vec<filters::count::Undecided>),
    /// A reader that can replace other readers of its device, from this packet on.
    Sure(Box<CaptureReader>, u64),
    Own(Instance),
    /// This source of the running plan, which reads the same.
    Running(usize),
}

/// How many packets are left out, of those that no filter above can want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreFiltering {
    /// All those that a program can tell.
    Wanted,
    /// Those that cheap programs can tell.
    Roughly,
    None,
}

/// Why a path cannot be opened, and where something else could be tried.
pub(super) enum Why {
    CaptureError(CaptureError),
    Param(ParamError),
}

impl From<CaptureError> for Why {
    fn from(error: CaptureError) -> Why {
        Why::CaptureError(error)
    }
}

struct Prepared {
    label: String,
    what: What,
}

struct Laid {
    from: NodeId,
    to: NodeId,
    /// The packets that filters behind it can want. `None`: not asked.
    behind: Option<Behind>,
}

enum What {
    Device(Shared, CaptureRequest, Option<Share>, Params),
    /// A device that only this request has.
    Own(Exclusive, Params),
    Filter(Selection),
}

impl LiveSpace {
    pub(super) fn new(
        name: &'static str,
        devices: Arc<dyn Devices>,
        compiler: Arc<dyn Compile>,
        push_down: bool,
    ) -> LiveSpace {
        let (nodes, edges, opened) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        LiveSpace { name, devices, compiler, push_down, nodes, edges, opened, running: Vec::new(), latency: None }
    }

    /// A copy of the space in which this plan is prepared up to the point where something would be opened. Edges that
    /// leave it are those to shared nodes (`to_shared`), or all others. `None`: the plan cannot be prepared.
    pub(super) fn rehearsed(&self, plan: &Plan, to_shared: bool) -> Option<LiveSpace> {
        let (devices, compiler) = (Arc::clone(&self.devices), Arc::clone(&self.compiler));
        let mut space = LiveSpace::new(self.name, devices, compiler, self.push_down);
        space.set_beside(&self.running);
        let is_here = |id: NodeId| plan.nodes[id.index()].space == self.name;
        let here = || (0..plan.nodes.len()).map(|index| NodeId(index as u32)).filter(|id| is_here(*id));
        for id in here() {
            space.prepare(id, &plan.nodes[id.index()]).ok()?;
        }
        for from in here() {
            let is_shared = |edge: &Edge| plan.nodes[edge.to.index()].space == PARSER;
            let edges = plan.nodes[from.index()].edges.iter();
            edges
                .filter(|edge| is_here(edge.to) || is_shared(edge) == to_shared)
                .for_each(|edge| space.lay(from, edge, plan));
        }
        Some(space)
    }

    /// Marks a running source as taken, as going on with it would.
    pub(super) fn takes_over(&mut self, id: NodeId, paths: Vec<Vec<NodeId>>, reads: Reads, node: usize) {
        self.opened.entry(id).or_default().push(Reading { paths, reads, how: How::Running(node) });
    }

    pub(super) fn devices(&self) -> &dyn Devices {
        self.devices.as_ref()
    }

    pub(super) fn set_latency(&mut self, latency: Option<Duration>) {
        self.latency = latency;
    }

    pub(super) fn set_beside(&mut self, running: &[RunningSource]) {
        self.running = running.to_vec();
    }

    /// Takes what leaves this space at a node: each source's label, task, and the source itself.
    pub(super) fn take_sources(&mut self, id: NodeId, plan: &Plan) -> Vec<(String, Task, Left)> {
        let node = &plan.nodes[id.index()];
        let is_count = matches!(&node.task, Task::Filter { kind, .. } if counts(kind));
        let readings = self.opened.remove(&id).unwrap_or_default();
        let source = |Reading { paths, reads, how }: Reading| {
            let first = paths.first()?;
            let (kind, params) = self.device(plan, *first.first()?)?;
            let task = if is_count { node.task.clone() } else { Task::Filter { kind, params: params.clone() } };
            let labels: Vec<String> = paths.iter().map(|path| self.label(path)).collect();
            let given = |reader: CaptureReader| {
                let decides = self.decides(first, reader.device().link_type).ok().flatten();
                Opened::New(filters::source(reader, &params, decides))
            };
            let (source, first) = match how {
                How::Running(node) => (Opened::Running(node), None),
                How::Own(source) => (Opened::New(source), None),
                How::Sure(reader, first) => (given(*reader), Some(first)),
                How::Counts(registry, undecided) => (Opened::New(filters::count::source(registry, undecided)), None),
                How::CaptureReader(reader) => (given(*reader), None),
            };
            Some((labels.join(" + "), task, Left::Source { origin: id, source, reads, first }))
        };
        readings.into_iter().filter_map(source).collect()
    }

    /// Why a thread of the daemon copies the packets of this capture request. `None`: no thread does, as far as that is
    /// known before the device is open.
    fn copied_in_daemon(&self, asked: &CaptureRequest) -> Option<String> {
        // The kernel's program chooses what is taken away from the host, even if a thread copies it then.
        if asked.mode == Mode::Consume || asked.by == By::Kernel || !self.devices.is_elsewhere() {
            return None;
        }
        if asked.by == By::PacketSocket {
            return Some("its packets are copied from a packet socket, as was asked for".into());
        }
        self.devices.device(&asked.device).ok().filter(|device| device.copied).map(|device| device.how)
    }

    /// The paths from a device to this node that are completely inside this space; each begins with the device.
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

    /// Calls `open` for the source at the end of these paths: one source, even of several paths that are counted
    /// together. If `open` cannot do it for just the wanted packets, it is called again for more packets.
    pub(super) fn narrowest<T>(
        &self,
        paths: &[Vec<NodeId>],
        mut open: impl FnMut(Reads) -> Result<T, Why>,
    ) -> Result<(T, PreFiltering), Why> {
        let mut refused: Option<(Reads, Why)> = None;
        for pre_filtering in [PreFiltering::Wanted, PreFiltering::Roughly, PreFiltering::None] {
            let reads = self.reads(paths, pre_filtering)?;
            if refused.as_ref().is_some_and(|(before, _)| *before == reads) {
                continue;
            }
            match open(reads.clone()) {
                Err(Why::CaptureError(error)) if error.kind == CaptureErrorKind::Cannot => {
                    refused = Some((reads, error.into()));
                }
                opened => return opened.map(|opened| (opened, pre_filtering)),
            }
        }
        Err(refused.map_or_else(|| nothing_comes().into(), |(_, why)| why))
    }

    fn open_reading(&self, paths: Vec<Vec<NodeId>>, reads: Reads) -> Result<Reading, Why> {
        if let Some(node) = self.goes_on(&reads) {
            return Ok(Reading { paths, reads, how: How::Running(node) });
        }
        let mut how = match &reads {
            Reads::Packets(asked, share, _) if self.running.iter().any(|source| hands_over(&source.reads, asked)) => {
                // Earlier packets belong to the reader before this one.
                let (reader, first) =
                    self.devices.open_sure(&CaptureRequest { last_ns: 0, ..asked.clone() }, *share)?;
                How::Sure(Box::new(reader), first)
            }
            Reads::Packets(asked, share, _) => How::CaptureReader(Box::new(self.devices.open(asked, *share)?)),
            Reads::Counts(all) => self.open_counts(&paths, all)?,
            Reads::Own { wanted, .. } => match self.first(paths.first().map_or(&[], Vec::as_slice)) {
                Some(What::Own(own, params)) => How::Own(open_own(*own, params, wanted.as_deref())?),
                _ => return Err(nothing_comes().into()),
            },
            Reads::Forward { wanted, to, .. } => match self.first(paths.first().map_or(&[], Vec::as_slice)) {
                Some(What::Device(.., params) | What::Own(_, params)) => {
                    let opened = forward::open(params, to, wanted.as_ref());
                    How::Own(opened.map_err(|text| CaptureError::new(CaptureErrorKind::Cannot, text))?)
                }
                _ => return Err(nothing_comes().into()),
            },
        };
        if let Some(latency) = self.latency {
            match &mut how {
                How::CaptureReader(reader) | How::Sure(reader, _) => reader.set_latency(latency),
                How::Counts(..) | How::Own(_) | How::Running(_) => {}
            }
        }
        Ok(Reading { paths, reads, how })
    }

    /// Finds a node whose reading this space would refuse on any device. It tries the steps that lead to reading,
    /// without opening a device.
    fn refused_request(&self, plan: &Plan) -> Option<(NodeId, ParamError)> {
        let is_taken = |node: &Node| matches!(&node.task, Task::Filter { kind, params } if kind.takes_away(params));
        // Only taking packets away can be refused without knowing the device.
        if !plan.nodes.iter().any(|node| node.space == self.name && is_taken(node)) {
            return None;
        }
        [true, false].into_iter().find_map(|to_shared| {
            // Other errors are reported when the plan is prepared.
            let trial = self.rehearsed(plan, to_shared)?;
            let refused = |id: NodeId| {
                trial.leaving(id).iter().find_map(|paths| match trial.reads(paths, PreFiltering::Wanted) {
                    Err(Why::Param(error)) => Some((id, error)),
                    _ => None,
                })
            };
            (0..plan.nodes.len()).map(|index| NodeId(index as u32)).find_map(refused)
        })
    }

    /// Does anything leave this space at a node, or go out by a device there?
    fn leaves(&self, id: NodeId) -> bool {
        self.forwards_to(&[id]).is_some()
            || self.edges.iter().any(|edge| edge.from == id && !self.nodes.contains_key(&edge.to))
    }

    /// The running plan's source that reads this, unless it is in use already.
    pub(super) fn goes_on(&self, reads: &Reads) -> Option<usize> {
        let is_taken = |node: usize| {
            let mut readings = self.opened.values().flatten();
            readings.any(|reading| matches!(reading.how, How::Running(taken) if taken == node))
        };
        let mut same = self.running.iter().filter(|source| source.reads == *reads && !is_taken(source.node));
        same.next().map(|source| source.node)
    }

    /// What leaves this space at a node: for each source, the paths that lead to it.
    pub(super) fn leaving(&self, id: NodeId) -> Vec<Vec<Vec<NodeId>>> {
        if !self.leaves(id) {
            return Vec::new();
        }
        let paths = self.paths(id);
        // Where packets are counted, one source counts the packets of all paths.
        let is_count = matches!(self.nodes.get(&id), Some(Prepared { what: What::Filter(Selection::Filter(kind, _)), .. }) if counts(kind));
        if is_count { vec![paths] } else { paths.into_iter().map(|path| vec![path]).collect() }
    }

    pub(super) fn lay(&mut self, from: NodeId, edge: &Edge, plan: &Plan) {
        let behind = self.push_down.then(|| Behind::of(plan, edge));
        self.edges.push(Laid { from, to: edge.to, behind });
    }

    /// Opens readers that count, one for each path, and readers of packets that those cannot decide about.
    fn open_counts(&self, paths: &[Vec<NodeId>], all: &[Counted]) -> Result<How, CaptureError> {
        let (mut registry, mut undecided) = (Vec::new(), Vec::new());
        for (path, counted) in paths.iter().zip(all) {
            registry.push(self.devices.open(&counted.asked, counted.share)?);
            let Some((asked, _)) = &counted.undecided else { continue };
            let reader = self.devices.open(asked, counted.share)?;
            let decides = self.decides(path, reader.device().link_type)?.ok_or_else(nothing_comes)?;
            undecided.push(filters::count::Undecided::new(reader, decides));
        }
        Ok(How::Counts(registry, undecided))
    }

    /// How to read the source at the end of these paths; opens no device. Packets that no filter above can want are
    /// never taken away from the host.
    fn reads(&self, paths: &[Vec<NodeId>], pre_filtering: PreFiltering) -> Result<Reads, Why> {
        if let [path] = paths
            && let Some(to) = self.forwards_to(path)
        {
            let wanted = self.lowered(path, ETHERNET)?.expression().program(Passes::Surely);
            let wanted = wanted.filter(|program| program.always().is_none_or(|length| length == 0));
            if let Some(What::Device(shared, asked, _, params)) = self.first(path) {
                let program = wanted.as_ref().map_or_else(Vec::new, to_cbpf);
                (shared.permits)(&CaptureRequest { program, ..asked.clone() }, params).map_err(Why::Param)?;
            }
            return Ok(Reads::Forward { label: self.label(path), wanted, to });
        }
        if let [path] = paths
            && let Some(What::Own(own, params)) = self.first(path)
        {
            let (label, wanted) = (self.label(path), self.of_own(*own, params, path, pre_filtering)?);
            return Ok(Reads::Own { label, wanted });
        }
        let mut all = Vec::new();
        for path in paths {
            let Some(What::Device(shared, asked, share, params)) = self.first(path) else {
                return Err(nothing_comes().into());
            };
            let link_type = self.devices.device(&asked.device)?.link_type;
            let lowered = self.lowered(path, link_type)?;
            if lowered.counts {
                let counted = self.counted(asked, *share, params, path, &lowered)?;
                (shared.permits)(&counted.asked, params).map_err(Why::Param)?;
                all.push(counted);
                continue;
            }
            let asked = self.capture_request(asked.clone(), params, path, &lowered, (pre_filtering, link_type));
            (shared.permits)(&asked, params).map_err(Why::Param)?;
            return Ok(Reads::Packets(asked, *share, self.given(path)));
        }
        Ok(Reads::Counts(all))
    }

    fn counted(
        &self,
        asked: &CaptureRequest,
        share: Option<Share>,
        device: &Params,
        path: &[NodeId],
        lowered: &Lowered,
    ) -> Result<Counted, CaptureError> {
        let chosen = lowered.expression();
        // Use both programs or neither: what one surely counts, the other leaves out.
        let of = |passes| {
            let program = chosen.program(passes).filter(|program| to_cbpf(program).len() <= PROGRAM_INSTRUCTIONS);
            program
                .ok_or_else(|| CaptureError::new(CaptureErrorKind::Cannot, "the expression is too long for a program"))
        };
        let asked = CaptureRequest { program: Vec::new(), sample: lowered.sample, counts: None, ..asked.clone() };
        let undecided = match chosen.is_exact() {
            true => None,
            false => Some((
                CaptureRequest { program: to_cbpf(&of(Passes::Unsure)?), ..asked.clone() },
                self.decided_by(path).unwrap_or_default(),
            )),
        };
        let program = if lowered.chosen.is_empty() { Vec::new() } else { to_cbpf(&of(Passes::Surely)?) };
        let asked = CaptureRequest { program, counts: Some(snap_len(device)), ..asked };
        Ok(Counted { asked, share, undecided })
    }

    /// The device by which a path's frames are forwarded. `None`: the path does not end so.
    fn forwards_to(&self, path: &[NodeId]) -> Option<String> {
        match &self.nodes.get(path.last()?)?.what {
            What::Filter(Selection::Filter(kind, params)) => forwards_to(kind, params),
            What::Filter(_) | What::Device(..) | What::Own(..) => None,
        }
    }

    fn given(&self, path: &[NodeId]) -> Given {
        let snap_len = match self.first(path) {
            Some(What::Device(.., params)) => snap_len(params),
            _ => 0,
        };
        Given { snap_len, decided_by: self.decided_by(path) }
    }

    /// The selectors on a path that decide in the reader, for people.
    fn decided_by(&self, path: &[NodeId]) -> Option<String> {
        let is_typed = |node: &&Prepared| matches!(&node.what, What::Filter(selection) if selection.is_typed());
        let nodes = path.iter().filter_map(|id| self.nodes.get(id)).filter(is_typed);
        let labels: Vec<&str> = nodes.map(|node| node.label.as_str()).collect();
        (!labels.is_empty()).then(|| labels.join(" | "))
    }

    /// Makes what decides in the reader at the end of a path. `None`: programs decide about all packets.
    fn decides(&self, path: &[NodeId], link_type: u16) -> Result<Option<Box<dyn Decides>>, CaptureError> {
        let mut all = Vec::new();
        for node in path.iter().filter_map(|id| self.nodes.get(id)) {
            let What::Filter(selection) = &node.what else { continue };
            let decider = selection.decider(self.compiler.as_ref(), link_type);
            all.extend(decider.map_err(|text| CaptureError::new(CaptureErrorKind::Cannot, text))?);
        }
        Ok((!all.is_empty()).then(|| Box::new(OneByOne(all)) as Box<dyn Decides>))
    }

    fn first(&self, path: &[NodeId]) -> Option<&What> {
        path.first().and_then(|first| self.nodes.get(first)).map(|node| &node.what)
    }

    fn lowered(&self, path: &[NodeId], link_type: u16) -> Result<Lowered, CaptureError> {
        let filters = path[1..].iter().map(|id| match self.nodes.get(id).map(|node| &node.what) {
            Some(What::Filter(selection)) => Ok(selection),
            _ => Err(CaptureError::new(CaptureErrorKind::Cannot, "devices stand before everything else")),
        });
        lowering::lowered(filters.collect::<Result<Vec<_>, _>>()?, self.compiler.as_ref(), link_type)
    }

    /// The packets wanted behind this node, of those that leave the space there. `None`: all may be.
    fn wanted(&self, node: NodeId, only_written: bool, link_type: u16, snap_len: u32) -> Option<Vec<Expression>> {
        let leaving = self.edges.iter().filter(|edge| edge.from == node && !self.nodes.contains_key(&edge.to));
        let behind: Option<Vec<&Behind>> = leaving.map(|edge| edge.behind.as_ref()).collect();
        lowering::wanted(&behind?, only_written, self.compiler.as_ref(), link_type, snap_len)
    }

    /// Completes a device's capture request with the filters behind the device.
    fn capture_request(
        &self,
        mut asked: CaptureRequest,
        device: &Params,
        path: &[NodeId],
        lowered: &Lowered,
        (pre_filtering, link_type): (PreFiltering, u16),
    ) -> CaptureRequest {
        let chosen = lowered.expression();
        asked.sample = lowered.sample;
        let is_taken = asked.mode == Mode::Consume;
        // No pre-filter before `sample`: it would change which packets are the first of each `sample`.
        let last = path.last().filter(|_| (pre_filtering != PreFiltering::None || is_taken) && lowered.sample == 1);
        let wanted = last.and_then(|last| self.wanted(*last, is_taken, link_type, snap_len(device)));
        let wanted = wanted.and_then(|wanted| match pre_filtering {
            PreFiltering::Roughly if !is_taken => lowering::roughly(wanted),
            _ => Some(wanted),
        });
        let program = lowering::program(&chosen, wanted.as_deref(), Passes::Perhaps);
        asked.program = program.as_ref().map_or_else(Vec::new, to_cbpf);
        asked
    }

    /// The packets wanted of a device that only this request has: those that any of these programs passes. `None`: all.
    fn of_own(
        &self,
        own: Exclusive,
        params: &Params,
        path: &[NodeId],
        pre_filtering: PreFiltering,
    ) -> Result<Option<Vec<Program>>, CaptureError> {
        let link_type = (own.link_type)(params).unwrap_or(ETHERNET);
        let chosen = self.lowered(path, link_type)?.expression();
        let is_taken = matches!(own.choice, Choice::Xdp { .. });
        let last = path.last().filter(|_| pre_filtering != PreFiltering::None || is_taken);
        let wanted = last.and_then(|last| self.wanted(*last, is_taken, link_type, snap_len(params)));
        Ok(lowering::programs(&chosen, wanted.as_deref()))
    }

    fn label(&self, path: &[NodeId]) -> String {
        let labels = path.iter().filter_map(|id| self.nodes.get(id)).map(|node| node.label.as_str());
        labels.collect::<Vec<_>>().join(" | ")
    }

    fn device(&self, plan: &Plan, id: NodeId) -> Option<(&'static Kind, Params)> {
        match (&plan.nodes[id.index()].task, &self.nodes.get(&id)?.what) {
            (Task::Filter { kind, .. }, What::Device(.., params) | What::Own(_, params)) => {
                Some((kind, params.clone()))
            }
            _ => None,
        }
    }
}

/// Opens a device that only this request has. `wanted`: give what any of these programs passes; `None` = everything.
fn open_own(device: Exclusive, params: &Params, wanted: Option<&[Program]>) -> Result<Instance, Why> {
    let opened = match (device.choice, wanted) {
        (Choice::SocketFilter { open, .. }, None) => open(params, None),
        (Choice::Xdp { open, .. }, None) => open(params, None),
        (Choice::SocketFilter { ways, open }, Some(wanted)) => {
            let link_type = (device.link_type)(params).map_err(Why::Param)?;
            // Without the right to load programs the socket may still open; the expressions are then asked above.
            let socket_filter = lowering::socket_filter(wanted, ways(params), link_type);
            let (filter, socket_filter) =
                socket_filter.map_err(|error| CaptureError::new(CaptureErrorKind::Cannot, error.to_string()))?;
            open(params, Some((filter, ("kept out of the socket", Box::new(move || socket_filter.kept_out().packets)))))
        }
        (Choice::Xdp { queues, open }, Some(wanted)) => {
            let wanted: Vec<&Program> = wanted.iter().collect();
            let consume_program = ConsumeProgram::new(queues(params).map_err(Why::Param)?, Wanted::Any(&wanted));
            let consume_program = consume_program.map_err(crate::devices::cannot_choose)?;
            let program =
                XdpProgram { program: own(consume_program.program())?, sockets: own(consume_program.sockets())? };
            let counting = consume_program.counting();
            open(params, Some((program, ("left to the host", Box::new(move || counting.counted().left)))))
        }
    };
    opened.map_err(Why::Param)
}

/// Does any of these filters take one packet in N?
fn samples(filters: &[Before<'_>]) -> bool {
    filters.iter().any(|(kind, _)| matches!(kind.lower, Some(Lower::OneIn(_))))
}

fn nothing_comes() -> CaptureError {
    CaptureError::new(CaptureErrorKind::Cannot, "nothing comes from a device here")
}

/// Can a reader for this capture request take over from a source that reads `reads`? It can if both number their
/// packets alike, which takes the same ring: the same device and the same writer.
pub(crate) fn hands_over(reads: &Reads, asked: &CaptureRequest) -> bool {
    let is_same =
        |other: &CaptureRequest| (&other.device, other.by) == (&asked.device, asked.by) && other.mode == asked.mode;
    matches!(reads, Reads::Packets(other, ..) if is_same(other))
}

/// Checks that a device's program decides on every packet. The error says which packets the reader chooses.
fn decides_on_all(before: &[Before<'_>]) -> Result<(), String> {
    for (kind, params) in before {
        let Some(DeviceAccess::Shared(shared)) = kind.device else { continue };
        let (asked, share) = (shared.asked)(params).map_err(|error| error.message)?;
        if share.is_some() {
            return Err("flows of one part are chosen by the reader".into());
        }
        if asked.last_ns > 0 {
            return Err("packets of the past are looked at by the reader".into());
        }
    }
    Ok(())
}

/// The offer of this space for anything it can run: no other space is cheaper.
const OFFER: Option<Offer> = Some(Offer { cost: 1 });

fn refused(text: impl Into<String>) -> StepError {
    StepError { refused: true, error: ParamError::system(text) }
}

impl Space for LiveSpace {
    fn name(&self) -> &str {
        self.name
    }

    fn sort(&self) -> Spaces {
        if self.name == DAEMON { Spaces::DAEMON } else { Spaces::KERNEL }
    }

    fn offer(&self, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Result<Option<Offer>, String> {
        // In the daemon, only nodes behind a source of the daemon can run.
        if self.name == DAEMON && !kind.is_source() && !before.iter().any(|(kind, _)| kind.is_source()) {
            return Ok(None);
        }
        if is_own(kind) {
            return if self.push_down { Ok(OFFER) } else { Err("it was asked to stay out of the kernel".into()) };
        }
        if let Some(DeviceAccess::Shared(shared)) = kind.device {
            let (asked, _) = (shared.asked)(params).map_err(|error| error.message)?;
            return match (self.copied_in_daemon(&asked), self.name == DAEMON) {
                (Some(_), true) | (None, false) => Ok(OFFER),
                (Some(why), false) => Err(why),
                (None, true) => Ok(None),
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
            Some(Lower::Forwards(_)) if self.name == DAEMON => Ok(None),
            Some(Lower::Forwards(target)) => {
                let to = target(params)?;
                if !forward::is_here(before, self.devices.is_elsewhere()) {
                    return Err("a daemon captures, and sends nothing".into());
                }
                forward::check(&to, before).map(|()| OFFER)
            }
            Some(Lower::Program(_)) if samples(before) => {
                Err("it asks before it takes one in so many, not after".into())
            }
            Some(Lower::Program(_)) => Ok(OFFER),
            Some(_) if before.iter().any(|(kind, _)| is_own(kind)) => {
                Err("of a device that is not shared it only chooses what is taken".into())
            }
            Some(Lower::Selects(_)) if before.iter().any(|(_, params)| snap_len(params) > 0) => {
                Err("of packets that are cut it decides by what is left".into())
            }
            Some(Lower::Selects(make)) => make(params).map(|_| OFFER).map_err(|error| error.message),
            Some(Lower::OneIn(_)) if before.iter().any(|(kind, params)| is_undecided(kind, params)) => {
                Err("the reader decides about packets that a program cannot tell about".into())
            }
            Some(Lower::Counts)
                if samples(before) && before.iter().any(|(kind, params)| is_undecided(kind, params)) =>
            {
                Err("the reader decides about packets that a program cannot tell about".into())
            }
            Some(Lower::OneIn(one_in)) => {
                one_in(params)?;
                decides_on_all(before)?;
                Ok(OFFER)
            }
            Some(Lower::Counts) => {
                decides_on_all(before)?;
                Ok(OFFER)
            }
        }
    }

    fn judge(&self, plan: &Plan) -> Verdict {
        let verdict = match self.push_down {
            true => Judge::new(self.name, plan, self.devices.as_ref(), self.compiler.as_ref())
                .judge(&|| ration::ration(self, plan)),
            false => Verdict::default(),
        };
        // Refused nodes are placed elsewhere, and the new plan is judged again.
        let wrong = if verdict.refused.is_empty() { self.refused_request(plan) } else { None };
        Verdict { wrong, ..verdict }
    }

    fn prepare(&mut self, id: NodeId, node: &Node) -> Result<(), StepError> {
        let (kind, params) = match &node.task {
            Task::Filter { kind, params } => (kind, params),
            Task::Choose(choice) => {
                // The operands have been prepared already.
                let selection = Selection::of(choice, &|id| match &self.nodes.get(&id)?.what {
                    What::Filter(Selection::Filter(kind, params)) => Some((*kind, params.clone())),
                    _ => None,
                });
                let selection = selection.ok_or_else(|| refused("no program knows the class"))?;
                self.nodes.insert(id, Prepared { label: node.label.clone(), what: What::Filter(selection) });
                return Ok(());
            }
        };
        let what = match kind.device {
            Some(DeviceAccess::Exclusive(exclusive)) => What::Own(exclusive, params.clone()),
            Some(DeviceAccess::Shared(shared)) => {
                let wanted = (shared.asked)(params);
                let (asked, share) = wanted.map_err(|error| StepError { refused: false, error })?;
                What::Device(shared, asked, share, params.clone())
            }
            Some(DeviceAccess::Made) | None => {
                if let Some(Lower::Selects(make)) = kind.lower {
                    // Fail now if the selector cannot be made.
                    make(params).map_err(|error| StepError { refused: false, error })?;
                }
                What::Filter(Selection::Filter(kind, params.clone()))
            }
        };
        self.nodes.insert(id, Prepared { label: node.label.clone(), what });
        Ok(())
    }

    fn discard(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    fn connect(&mut self, from: NodeId, edge: &Edge, plan: &Plan) -> Result<(), StepError> {
        // The parser process takes packets for shared nodes from the kernel itself.
        if plan.nodes[edge.to.index()].space != PARSER {
            self.lay(from, edge, plan);
        }
        Ok(())
    }

    fn disconnect(&mut self, from: NodeId, edge: &Edge) {
        if let Some(at) = self.edges.iter().rposition(|known| (known.from, known.to) == (from, edge.to)) {
            self.edges.remove(at);
        }
    }

    fn activate(&mut self, id: NodeId) -> Result<(), StepError> {
        let node = self.nodes.get(&id).map(|node| &node.what);
        let is_device = matches!(node, Some(What::Device(..) | What::Own(..)));
        for paths in self.leaving(id) {
            let opened = self.narrowest(&paths, |reads| self.open_reading(paths.clone(), reads));
            let opened = opened.map(|(reading, _)| reading).map_err(|why| match why {
                // A refused selector may run one space higher. A missing device is an error in any space.
                Why::CaptureError(error) if error.kind == CaptureErrorKind::Cannot && !is_device => refused(error.text),
                Why::CaptureError(error) => StepError { refused: false, error: error.into() },
                Why::Param(error) => StepError { refused: false, error },
            });
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

#[cfg(test)]
mod tests {
    use super::super::lowering::KERNEL;
    use super::*;
    use crate::devices::Place;
    use crate::devices::auto::AutoDevices;
    use filter::device::opened_by_owner;

    static PARSER: Kind = Kind::new("other", "a device that no file knows by name", opened_by_owner).device(
        DeviceAccess::Shared(filter::device::Shared {
            asked: |params| {
                let mode = if params.flag("away") { Mode::Consume } else { Mode::Tap };
                Ok((CaptureRequest { device: "other0".into(), mode, ..CaptureRequest::default() }, None))
            },
            permits: |_, _| Ok(()),
        }),
    );

    static TAKEN: Kind = Kind::new("taken", "a device that one request takes away", opened_by_owner).device(
        DeviceAccess::Exclusive(Exclusive {
            link_type: |_| Ok(ETHERNET),
            choice: Choice::Xdp { queues: |_| Ok(1), open: |_, _| Err(ParamError::new("device", "it was opened")) },
        }),
    );

    #[test]
    fn a_device_is_known_by_what_its_kind_says() {
        let devices = || Arc::new(AutoDevices::new(Place::Here));
        let space = |push_down| LiveSpace::new(KERNEL, devices(), Arc::new(testkit::Compiler::new()), push_down);
        let mut params = Params::new();
        assert_eq!((PARSER.takes_away(&params), TAKEN.takes_away(&params)), (false, true));
        let offers = |push_down, kind| space(push_down).offer(kind, &params, &[]);
        assert_eq!((offers(true, &PARSER), offers(false, &PARSER)), (Ok(OFFER), Ok(OFFER)));
        assert_eq!(offers(true, &TAKEN), Ok(OFFER));
        assert!(offers(false, &TAKEN).is_err(), "it can be opened without a program");
        let Some(DeviceAccess::Exclusive(taken)) = TAKEN.device else { panic!("it is for one request") };
        let Err(Why::Param(error)) = open_own(taken, &params, None) else { panic!("it says so when it is opened") };
        assert_eq!(error.message, "it was opened");
        params.set("away", filter::param::Value::Flag(true));
        assert!(PARSER.takes_away(&params));
    }
}
