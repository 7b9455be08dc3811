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

use crate::session::{Left, Rest};
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
    opened: BTreeMap<NodeId, Vec<(Vec<NodeId>, Opened)>>,
}

/// What comes out at the end of a path.
enum Opened {
    Tap(Box<Tap>),
    /// Of a device that nobody shares.
    Own(Instance),
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
        LiveSpace { devices, compiler, push_down, nodes: BTreeMap::new(), edges: Vec::new(), opened: BTreeMap::new() }
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

    /// Opens what comes out at the end of a path.
    fn open(&self, path: &[NodeId]) -> Result<Opened, Why> {
        let first = path.first().and_then(|first| self.nodes.get(first)).map(|node| &node.what);
        match first {
            Some(What::Device(wish, share, params)) => {
                Ok(Opened::Tap(Box::new(self.open_tap(wish.clone(), *share, params, path)?)))
            }
            Some(What::Own(kind, params)) if kind.name == filters::af_packet::KIND.name => {
                self.open_packet_socket(params, path).map(Opened::Own)
            }
            Some(What::Own(_, params)) => self.open_own(params, path).map(Opened::Own),
            Some(What::Filter(..)) | None => {
                Err(Trouble::new(TroubleKind::Cannot, "nothing comes from a device here").into())
            }
        }
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

    fn open_tap(&self, mut wish: Wish, share: Option<Share>, device: &Params, path: &[NodeId]) -> Result<Tap, Trouble> {
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
        self.devices.open(&wish, share)
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
            left.push(Left::Given(id, source));
        };
        if let Some((label, inlet)) = inlets.remove(&id) {
            // Its kind says that it is a source, and nothing else of it counts here.
            push(label, Task::Filter { kind: &filters::ethernet::KIND, params: Params::new() }, inlet);
        }
        let is_count = matches!(&node.task, Task::Filter { kind, .. } if counts(kind));
        let (mut labels, mut counted) = (Vec::new(), Vec::new());
        for (path, opened) in live.opened.remove(&id).unwrap_or_default() {
            let Some((kind, params)) = path.first().and_then(|first| live.device(plan, *first)) else { continue };
            let task = Task::Filter { kind, params: params.clone() };
            match opened {
                Opened::Tap(tap) if is_count => {
                    labels.push(live.label(&path));
                    counted.push(*tap);
                }
                Opened::Tap(tap) => push(live.label(&path), task, filters::ethernet::source(*tap, &params)),
                Opened::Own(source) => push(live.label(&path), task, source),
            }
        }
        if !counted.is_empty() {
            // One record, wherever its packets come from.
            push(labels.join(" + "), node.task.clone(), filters::count::source(counted));
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
        let is_device =
            |id: &NodeId| self.nodes.get(id).is_some_and(|node| matches!(node.what, What::Device(..) | What::Own(..)));
        let mut opened = Vec::new();
        for path in self.paths(id) {
            let own = path
                .first()
                .filter(|first| self.nodes.get(first).is_some_and(|node| matches!(node.what, What::Own(..))));
            if own.is_some_and(|device| self.ends_of(*device) > 1) && !is_device(&id) {
                // It is taken once, so that nobody can say that the rest is the host's.
                return Err(refused("others have to do with what it rejects"));
            }
            match self.open(&path) {
                Ok(found) => opened.push((path, found)),
                // A selector that cannot run here may run one space higher; a device that is not there is not there.
                Err(Why::Trouble(trouble)) if trouble.kind == TroubleKind::Cannot && !is_device(&id) => {
                    return Err(refused(trouble.text));
                }
                Err(Why::Trouble(trouble)) => {
                    return Err(StepError { refused: false, error: filters::ethernet::refusal(trouble) });
                }
                Err(Why::Param(error)) => return Err(StepError { refused: false, error }),
            }
        }
        self.opened.insert(id, opened);
        Ok(())
    }

    fn deactivate(&mut self, id: NodeId) {
        self.opened.remove(&id);
    }
}
