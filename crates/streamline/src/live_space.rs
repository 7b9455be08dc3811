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
//! What the filters above cannot want stays here, too, even where none of them can run here: they say what a packet must be
//! ([`filter::Kind::narrow`]), and what is something else for sure is not captured.

use crate::session::{Left, Rest};
use crate::shared::space::NAME as SHARED;
use capture::{ETHERNET, Share, Tap, Trouble, Wish, writer::TroubleKind};
use control::{Before, Offer, Space, StepError};
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::run::Instance;
use filter::{Devices, Kind, Lower, ParamError, Params, Spaces};
use program::narrow::Narrow;
use program::{Compile, ir};
use std::collections::BTreeMap;
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
    taps: BTreeMap<NodeId, Vec<(Vec<NodeId>, Tap)>>,
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
    Filter(Lower, Params),
}

impl LiveSpace {
    pub(crate) fn new(devices: Arc<dyn Devices>, compiler: Arc<dyn Compile>, push_down: bool) -> LiveSpace {
        LiveSpace { devices, compiler, push_down, nodes: BTreeMap::new(), edges: Vec::new(), taps: BTreeMap::new() }
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
    fn open(&self, path: &[NodeId]) -> Result<Tap, Trouble> {
        let gone = || Trouble::new(TroubleKind::System, "the plan has changed");
        let mut nodes = path.iter().map(|id| self.nodes.get(id).ok_or_else(gone));
        let Some(What::Device(wish, share, device)) = nodes.next().transpose()?.map(|node| &node.what) else {
            return Err(Trouble::new(TroubleKind::Cannot, "nothing comes from a device here"));
        };
        let mut wish = wish.clone();
        let link_type = self.devices.device(&wish.device)?.link_type;
        let mut counts = false;
        let cannot = |text: String| Trouble::new(TroubleKind::Cannot, text);
        let mut all: Option<ir::Program> = None;
        for node in nodes {
            let What::Filter(lower, params) = &node?.what else { return Err(gone()) };
            match lower {
                Lower::Counts => counts = true,
                Lower::Program(lower) => {
                    let code = lower(params, self.compiler.as_ref(), link_type).map_err(cannot)?;
                    let program = program::from_cbpf(&code).map_err(|error| cannot(error.to_string()))?;
                    all = Some(match all {
                        None => program,
                        Some(before) => before.and_then(&program).map_err(|error| cannot(error.to_string()))?,
                    });
                }
                // The first of each m of the first of each n is the first of each m * n.
                Lower::OneIn(one_in) => {
                    let sample = one_in(params).map_err(cannot)?.checked_mul(wish.sample);
                    wish.sample = sample.ok_or_else(|| cannot("so few packets are not counted there".into()))?;
                }
            }
        }
        let narrow = path.last().and_then(|last| self.narrow(*last));
        // What is left out before packets are counted would make others the first of so many.
        if let Some(narrow) = narrow.filter(|_| link_type == ETHERNET && wish.sample == 1 && !counts) {
            all = match &all {
                None => Some(narrow),
                // Asked second: what was written decides first. Where both are too much, that alone.
                Some(before) => before.and_then(&narrow).ok().or(all),
            };
        }
        wish.counts = counts.then(|| filters::ethernet::snap_len(device));
        wish.program = all.as_ref().map_or_else(Vec::new, program::to_cbpf);
        self.devices.open(&wish, *share)
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
            (Task::Filter { kind, .. }, What::Device(_, _, params)) => Some((kind, params.clone())),
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
        let taps = live.taps.remove(&id).unwrap_or_default();
        if matches!(&node.task, Task::Filter { kind, .. } if counts(kind)) && !taps.is_empty() {
            // One record, wherever its packets come from.
            let labels: Vec<String> = taps.iter().map(|(path, _)| live.label(path)).collect();
            let taps = taps.into_iter().map(|(_, tap)| tap).collect();
            push(labels.join(" + "), node.task.clone(), filters::count::source(taps));
            continue;
        }
        for (path, tap) in taps {
            let Some((kind, params)) = path.first().and_then(|first| live.device(plan, *first)) else { continue };
            let task = Task::Filter { kind, params: params.clone() };
            push(live.label(&path), task, filters::ethernet::source(tap, &params));
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

/// Does it give numbers of packets, and no packets?
fn counts(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Counts))
}

/// Does a device's program decide on every packet that comes from it? Else says which are chosen by the reader.
fn decides_on_all(before: &[Before<'_>]) -> Result<(), String> {
    for (_, params) in before.iter().filter(|(kind, _)| kind.is_source()) {
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
        self.push_down && !samples(before)
    }

    fn prepare(&mut self, id: NodeId, node: &Node) -> Result<(), StepError> {
        let Task::Filter { kind, params } = &node.task else {
            return Err(refused("selections run one space higher"));
        };
        let what = if kind.is_source() {
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
        let is_device = self.nodes.get(&id).is_some_and(|node| matches!(node.what, What::Device(..)));
        let mut taps = Vec::new();
        for path in self.paths(id) {
            match self.open(&path) {
                Ok(tap) => taps.push((path, tap)),
                // A selector that cannot run here may run one space higher; a device that is not there is not there.
                Err(trouble) if trouble.kind == TroubleKind::Cannot && !is_device => return Err(refused(trouble.text)),
                Err(trouble) => {
                    return Err(StepError { refused: false, error: filters::ethernet::refusal(trouble) });
                }
            }
        }
        self.taps.insert(id, taps);
        Ok(())
    }

    fn deactivate(&mut self, id: NodeId) {
        self.taps.remove(&id);
    }
}
