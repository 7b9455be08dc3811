//! One of the spaces `kernel` and `daemon`.
//!
//! Which of the two a device is in, and all that follows it there, is who writes its packets: the kernel's program, or a
//! thread of the daemon's that copies them from a packet socket, because that was asked for or because the program would see
//! them otherwise. (Without a daemon this process's own thread copies, and the kernel decides in front of it as far as it can:
//! that stands as `kernel`.)
//!
//! In: steps of a transaction. Out: a source for every place where packets leave this space.
//!
//! Nothing is opened before everything is connected: which selectors stand between a device and an edge that leaves is
//! known only then. Whatever a selector cannot do here is refused, and placed one space higher.
//!
//! Where packets are only counted (`count`), none is copied: its record is all that leaves.
//!
//! A device that a request has for itself (`af_xdp`, `af_packet`) is here, too: the expressions behind it choose what it
//! takes away from the host, or what its socket lets in.
//!
//! What the filters above cannot want stays here, too, even where none of them can run here: they say what a packet must be
//! ([`filter::Kind::narrow`], or an expression), and what is something else for sure is not captured.
//!
//! What can be done here is decided in [`lowering`](super::lowering), before anything is opened; here it is opened.

use super::lowering::{self, Behind, DAEMON, Judge, Lowered, counts, is_by_ports, is_own};
use crate::session::{Left, Opened};
use crate::shared::space::NAME as SHARED;
use capture::{By, ETHERNET, Mode, Share, Tap, Trouble, Wish, writer::TroubleKind};
use control::{Before, Offer, Space, StepError, Verdict};
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::run::Instance;
use filter::{ByPorts, Devices, Kind, Lower, ParamError, Params, Spaces};
use kernel::{Steer, Wanted};
use program::{Compile, Program};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The space `kernel`, or the space `daemon`.
pub(crate) struct LiveSpace {
    name: &'static str,
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
    /// How much later than it came a packet may be found, where that was said.
    latency: Option<Duration>,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Packets of a device.
    Packets(Wish, Option<Share>, Given),
    /// Numbers of packets, of so many readers.
    Counts(Vec<(Wish, Option<Share>)>),
    /// A device that nobody shares, as people know it with what chooses of it.
    Own {
        /// Its name, and what stands behind it.
        label: String,
        /// It gives what any of these passes; without them, all.
        wanted: Option<Vec<Program>>,
    },
}

/// What a source gives of the packets it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Bytes of each at most, 0 for all.
    snap_len: u32,
    /// What this selector by ports wants.
    by_ports: Option<String>,
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

/// A node that was prepared.
struct Prepared {
    label: String,
    what: What,
}

impl Prepared {
    /// What it makes of packets, where it is a selector by ports.
    fn by_ports(&self) -> Option<Box<dyn ByPorts>> {
        match self.what {
            What::Filter(Kind { lower: Some(Lower::Ports(make)), .. }, ref params) => make(params).ok(),
            _ => None,
        }
    }
}

/// An edge.
struct Laid {
    from: NodeId,
    to: NodeId,
    /// What stands behind it can want so much; none if that is not asked.
    behind: Option<Behind>,
}

enum What {
    Device(Wish, Option<Share>, Params),
    /// A device that nobody shares.
    Own(&'static Kind, Params),
    Filter(&'static Kind, Params),
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

    /// See [`LiveSpaces::latency`](super::LiveSpaces::latency).
    pub(super) fn set_latency(&mut self, latency: Option<Duration>) {
        self.latency = latency;
    }

    /// See [`LiveSpaces::beside`](super::LiveSpaces::beside).
    pub(super) fn set_beside(&mut self, running: &[RunningSource]) {
        self.running = running.to_vec();
    }

    /// What leaves this space at a node, for the worker: each source's label, its task, and itself.
    pub(super) fn take_sources(&mut self, id: NodeId, plan: &Plan) -> Vec<(String, Task, Left)> {
        let node = &plan.nodes[id.index()];
        let is_count = matches!(&node.task, Task::Filter { kind, .. } if counts(kind));
        let readings = self.opened.remove(&id).unwrap_or_default();
        let source = |Reading { paths, reads, how }: Reading| {
            let first = paths.first()?;
            let (kind, params) = self.device(plan, *first.first()?)?;
            // One record, wherever its packets come from.
            let task = if is_count { node.task.clone() } else { Task::Filter { kind, params: params.clone() } };
            let labels: Vec<String> = paths.iter().map(|path| self.label(path)).collect();
            let by_ports = || self.by_ports(first).and_then(Prepared::by_ports);
            let (source, first) = match how {
                How::Running(node) => (Opened::Running(node), None),
                How::Own(source) => (Opened::New(source), None),
                How::Sure(tap, first) => {
                    (Opened::New(filters::ethernet::source(*tap, &params, by_ports())), Some(first))
                }
                How::Taps(taps) if is_count => (Opened::New(filters::count::source(taps)), None),
                How::Taps(taps) => {
                    let tap = taps.into_iter().next()?;
                    (Opened::New(filters::ethernet::source(tap, &params, by_ports())), None)
                }
            };
            Some((labels.join(" + "), task, Left::Source { origin: id, source, reads, first }))
        };
        readings.into_iter().filter_map(source).collect()
    }

    /// Why the packets that are wished for are copied by a thread of the daemon's; none where they are not, as far as that
    /// is known before the device is open.
    fn copied_in_daemon(&self, wish: &Wish) -> Option<String> {
        // What is taken away from the host the kernel's program chooses, whoever copies it then.
        if wish.mode == Mode::Consume || wish.by == By::Kernel || !self.devices.is_elsewhere() {
            return None;
        }
        if wish.by == By::PacketSocket {
            return Some("its packets are copied from a packet socket, as was asked for".into());
        }
        // A device that is not there is not there: who opens it says so.
        self.devices.device(&wish.device).ok().filter(|device| device.copied).map(|device| device.how)
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
        let reads = self.reads(&paths, true)?;
        match self.open_reading(paths.clone(), reads.clone()) {
            Err(Why::Trouble(trouble)) if trouble.kind == TroubleKind::Cannot => {
                // More may come up than is wanted above.
                let all = self.reads(&paths, false)?;
                if all == reads { Err(trouble.into()) } else { self.open_reading(paths, all) }
            }
            opened => opened,
        }
    }

    fn open_reading(&self, paths: Vec<Vec<NodeId>>, reads: Reads) -> Result<Reading, Why> {
        if let Some(node) = self.goes_on(&reads) {
            return Ok(Reading { paths, reads, how: How::Running(node) });
        }
        let mut how = match &reads {
            Reads::Packets(wish, share, _) if self.running.iter().any(|source| hands_over(&source.reads, wish)) => {
                // What had come before was the other's.
                let (tap, first) = self.devices.open_sure(&Wish { last_ns: 0, ..wish.clone() }, *share)?;
                How::Sure(Box::new(tap), first)
            }
            Reads::Packets(wish, share, _) => How::Taps(vec![self.devices.open(wish, *share)?]),
            Reads::Counts(wishes) => {
                let taps = wishes.iter().map(|(wish, share)| self.devices.open(wish, *share));
                How::Taps(taps.collect::<Result<_, _>>()?)
            }
            Reads::Own { wanted, .. } => match self.first(paths.first().map_or(&[], Vec::as_slice)) {
                Some(What::Own(kind, params)) if kind.name == filters::af_packet::KIND.name => {
                    How::Own(open_packet_socket(params, wanted.as_deref())?)
                }
                Some(What::Own(_, params)) => How::Own(open_own(params, wanted.as_deref())?),
                _ => return Err(nothing_comes().into()),
            },
        };
        if let Some(latency) = self.latency {
            match &mut how {
                How::Taps(taps) => taps.iter_mut().for_each(|tap| tap.set_latency(latency)),
                How::Sure(tap, _) => tap.set_latency(latency),
                How::Own(_) | How::Running(_) => {}
            }
        }
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

    /// What comes out at the end of these paths, before anything is opened. `narrowed` leaves out what nobody above can want;
    /// of what is taken away from the host that is left out always.
    fn reads(&self, paths: &[Vec<NodeId>], narrowed: bool) -> Result<Reads, Trouble> {
        let wish = |path: &Vec<NodeId>| match self.first(path) {
            Some(What::Device(wish, share, params)) => Ok((self.wish(wish.clone(), params, path, narrowed)?, *share)),
            Some(What::Own(..) | What::Filter(..)) | None => Err(nothing_comes()),
        };
        match paths {
            [path] => match self.first(path) {
                Some(What::Own(kind, params)) => {
                    Ok(Reads::Own { label: self.label(path), wanted: self.of_own(kind, params, path, narrowed)? })
                }
                _ => {
                    let (wish, share) = wish(path)?;
                    if wish.counts.is_some() {
                        return Ok(Reads::Counts(vec![(wish, share)]));
                    }
                    Ok(Reads::Packets(wish, share, self.given(path)))
                }
            },
            paths => Ok(Reads::Counts(paths.iter().map(wish).collect::<Result<_, _>>()?)),
        }
    }

    fn given(&self, path: &[NodeId]) -> Given {
        let snap_len = match self.first(path) {
            Some(What::Device(_, _, params)) => filters::ethernet::snap_len(params),
            _ => 0,
        };
        Given { snap_len, by_ports: self.by_ports(path).map(|node| node.label.clone()) }
    }

    /// The selector by ports on a path: there is one at most.
    fn by_ports(&self, path: &[NodeId]) -> Option<&Prepared> {
        let mut nodes = path.iter().filter_map(|id| self.nodes.get(id));
        nodes.find(|node| matches!(node.what, What::Filter(kind, _) if is_by_ports(kind)))
    }

    /// What a path begins with.
    fn first(&self, path: &[NodeId]) -> Option<&What> {
        path.first().and_then(|first| self.nodes.get(first)).map(|node| &node.what)
    }

    /// What the filters of a path are together, over frames of a link type.
    fn lowered(&self, path: &[NodeId], link_type: u16) -> Result<Lowered, Trouble> {
        let filters = path[1..].iter().map(|id| match self.nodes.get(id).map(|node| &node.what) {
            Some(What::Filter(kind, params)) => Ok((*kind, params)),
            _ => Err(Trouble::new(TroubleKind::Cannot, "devices stand before everything else")),
        });
        lowering::lowered(filters.collect::<Result<Vec<_>, _>>()?, self.compiler.as_ref(), link_type)
    }

    /// What is wanted of what leaves this space at a node; none where that may be everything.
    fn wanted(&self, node: NodeId, only_written: bool, link_type: u16) -> Option<Vec<Program>> {
        let leaving = self.edges.iter().filter(|edge| edge.from == node && !self.nodes.contains_key(&edge.to));
        let behind: Option<Vec<&Behind>> = leaving.map(|edge| edge.behind.as_ref()).collect();
        lowering::wanted(&behind?, only_written, self.compiler.as_ref(), link_type)
    }

    /// What filters behind a device make of a wish for it.
    fn wish(&self, mut wish: Wish, device: &Params, path: &[NodeId], narrowed: bool) -> Result<Wish, Trouble> {
        let link_type = self.devices.device(&wish.device)?.link_type;
        let Lowered { program, sample, counts, narrow } = self.lowered(path, link_type)?;
        wish.sample = sample;
        wish.counts = counts.then(|| filters::ethernet::snap_len(device));
        // What is left out before packets are counted would make others the first of so many.
        let is_taken = wish.mode == Mode::Consume;
        let is_narrowed = narrowed && !is_taken && link_type == ETHERNET && sample == 1;
        let narrow = narrow.filter(|_| is_narrowed).and_then(|narrow| program::narrow::program(&[narrow]));
        let chosen =
            lowering::both(program.as_ref(), narrow.map(|narrow| vec![narrow])).and_then(lowering::one).or(program);
        let last = path.last().filter(|_| (narrowed || is_taken) && sample == 1 && !counts);
        let wanted = last.and_then(|last| self.wanted(*last, is_taken, link_type));
        let all = lowering::both(chosen.as_ref(), wanted).and_then(lowering::one).or(chosen);
        wish.program = all.as_ref().map_or_else(Vec::new, program::to_cbpf);
        Ok(wish)
    }

    /// What is wanted of a device that nobody shares: what any of these passes; none for all.
    fn of_own(
        &self,
        kind: &Kind,
        params: &Params,
        path: &[NodeId],
        narrowed: bool,
    ) -> Result<Option<Vec<Program>>, Trouble> {
        // A device that is not there is not there: who opens it says so.
        let link_type = filters::af_packet::link_type(params).unwrap_or(ETHERNET);
        let chosen = self.lowered(path, link_type)?.program;
        let is_taken = lowering::takes_away(kind, params);
        let last = path.last().filter(|_| narrowed || is_taken);
        let wanted = last.and_then(|last| self.wanted(*last, is_taken, link_type));
        Ok(lowering::both(chosen.as_ref(), wanted))
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

/// A device that nobody shares, taken away from the host: what any of these programs passes, or all.
fn open_own(params: &Params, wanted: Option<&[Program]>) -> Result<Instance, Why> {
    let Some(wanted) = wanted else { return filters::af_xdp::open(params, None).map_err(Why::Param) };
    let (queues, _) = filters::af_xdp::look_up(params).map_err(Why::Param)?;
    let steer = Steer::new(queues, Wanted::Any(&wanted.iter().collect::<Vec<_>>()));
    let steer = steer.map_err(crate::devices::cannot_choose)?;
    let own = |fd: BorrowedFd<'_>| capture::writer::own(fd);
    let chooses = driver::af_xdp::Program { program: own(steer.program())?, sockets: own(steer.sockets())? };
    let counting = steer.counting();
    let left = Box::new(move || counting.counted().left);
    filters::af_xdp::open(params, Some((chooses, ("left to the host", left)))).map_err(Why::Param)
}

/// A packet socket of this process's own: what any of these programs passes, as its filter, or all.
fn open_packet_socket(params: &Params, wanted: Option<&[Program]>) -> Result<Instance, Why> {
    let Some(wanted) = wanted else { return filters::af_packet::open(params, None).map_err(Why::Param) };
    let link_type = filters::af_packet::link_type(params).map_err(Why::Param)?;
    // Whoever may not load programs may still have the socket: the expressions are asked above then.
    let sieve = lowering::sieve(wanted, params, link_type);
    let (filter, sieve) = sieve.map_err(|error| Trouble::new(TroubleKind::Cannot, error.to_string()))?;
    let kept_out = Box::new(move || sieve.kept_out().packets);
    filters::af_packet::open(params, Some((filter, ("kept out of the socket", kept_out)))).map_err(Why::Param)
}

/// Is any of these one that takes one packet in so many?
fn samples(filters: &[Before<'_>]) -> bool {
    filters.iter().any(|(kind, _)| matches!(kind.lower, Some(Lower::OneIn(_))))
}

fn nothing_comes() -> Trouble {
    Trouble::new(TroubleKind::Cannot, "nothing comes from a device here")
}

/// Are the packets of a source that reads this numbered as those are that are wished for, so that a reader of these can take
/// over? Rings are of a device and of who writes them.
pub(crate) fn hands_over(reads: &Reads, wish: &Wish) -> bool {
    let is_same = |other: &Wish| (&other.device, other.by) == (&wish.device, wish.by) && other.mode == wish.mode;
    matches!(reads, Reads::Packets(other, ..) if is_same(other))
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

/// What it offers whatever it offers: nothing is cheaper.
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
        // Only what begins there goes on there.
        if self.name == DAEMON && !kind.is_source() && !before.iter().any(|(kind, _)| kind.is_source()) {
            return Ok(None);
        }
        if is_own(kind) {
            return if self.push_down { Ok(OFFER) } else { Err("it was asked to stay out of the kernel".into()) };
        }
        if kind.is_source() {
            let (wish, _) = filters::ethernet::wish(params).map_err(|error| error.message)?;
            return match (self.copied_in_daemon(&wish), self.name == DAEMON) {
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
            Some(Lower::Program(_)) if samples(before) => {
                Err("it asks before it takes one in so many, not after".into())
            }
            Some(Lower::Program(_)) => Ok(OFFER),
            Some(_) if before.iter().any(|(kind, _)| is_own(kind)) => {
                Err("of a device that is not shared it only chooses what is taken".into())
            }
            Some(Lower::Ports(_)) if before.iter().any(|(kind, _)| is_by_ports(kind)) => {
                Err("it knows the class of one selector".into())
            }
            Some(Lower::Ports(_)) if before.iter().any(|(_, params)| filters::ethernet::snap_len(params) > 0) => {
                Err("of packets that are cut it decides by what is left".into())
            }
            Some(Lower::Ports(make)) => make(params).map(|_| OFFER).map_err(|error| error.message),
            Some(Lower::OneIn(_) | Lower::Counts) if before.iter().any(|(kind, _)| is_by_ports(kind)) => {
                Err("the reader decides about packets whose ports are not known for sure".into())
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
        match self.push_down {
            true => Judge::new(self.name, plan, self.devices.as_ref(), self.compiler.as_ref()).judge(),
            false => Verdict::default(),
        }
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
            if let Some(Lower::Ports(make)) = kind.lower {
                // From here on it is known to be made.
                make(params).map_err(|error| StepError { refused: false, error })?;
            }
            What::Filter(kind, params.clone())
        };
        self.nodes.insert(id, Prepared { label: node.label.clone(), what });
        Ok(())
    }

    fn discard(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    fn connect(&mut self, from: NodeId, edge: &Edge, plan: &Plan) -> Result<(), StepError> {
        if plan.nodes[edge.to.index()].space == SHARED {
            // Whoever runs it takes its packets from the kernel, too.
            return Ok(());
        }
        let behind = self.push_down.then(|| Behind::of(plan, edge));
        self.edges.push(Laid { from, to: edge.to, behind });
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
        let is_count = matches!(node, Some(What::Filter(kind, _)) if counts(kind));
        let paths = self.paths(id);
        let paths = if is_count { vec![paths] } else { paths.into_iter().map(|path| vec![path]).collect() };
        for paths in paths {
            let opened = self.open(paths).map_err(|why| match why {
                // A selector that cannot run here may run one space higher; a device that is not there is not there.
                Why::Trouble(trouble) if trouble.kind == TroubleKind::Cannot && !is_device => refused(trouble.text),
                Why::Trouble(trouble) => StepError { refused: false, error: filters::ethernet::refusal(trouble) },
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
