//! Decides from the plan which filters the kernel runs, or the daemon where it copies. It decides before anything is
//! opened, both to explain a request and to run it.
//!
//! In:
//! - filters, one after the other from a device on ([`lowered`]);
//! - the filters behind the edges that leave the kernel ([`Behind`], [`wanted`]);
//! - a whole plan ([`Judge`]).
//!
//! Out: programs, and notes for people. Not opening: `space` opens what it makes of the same programs.
//!
//! The filters behind an edge decide by themselves; the kernel leaves out packets that they cannot want. Where packets
//! are *taken away* from the host, only filters written as a program count. A request with a filter like `tcp` does not
//! ask to leave all other packets with the host.

use super::ration::Rationed;
use super::selection::{Selection, is_typed};
use super::space::PreFiltering;
use crate::parser::space::NAME as PARSER;
use capture::budget::INSTRUCTIONS;
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::{By, CaptureError, CaptureErrorKind, Devices, Direction, ETHERNET, Mode};
use control::Verdict;
use engine::{Edge, Node, NodeId, Plan, Task};
use filter::device::{Choice, Exclusive, snap_len};
use filter::{DeviceAccess, Kind, Lower, Params};
use kernel::SocketFilter;
use kernel::capture_program::ProgramError;
use program::{Compile, Expression, Passes, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(crate) const KERNEL: &str = "kernel";
pub(crate) const DAEMON: &str = "daemon";

/// Most paths from devices to one node that are followed: a device has no more readers.
const WAYS: usize = buffer::live::EXPRESSIONS;

/// Does a request have this device to itself?
pub(crate) fn is_own(kind: &Kind) -> bool {
    matches!(kind.device, Some(DeviceAccess::Exclusive(_)))
}

/// Does this filter give numbers of packets, and no packets?
pub(crate) fn counts(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Counts))
}

/// The device by which a sink sends frames without their leaving the kernel. `None`: it is no such sink.
pub(crate) fn forwards_to(kind: &Kind, params: &Params) -> Option<String> {
    match kind.lower {
        Some(Lower::Forwards(target)) => target(params).ok(),
        _ => None,
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    /// A packet has to pass all of these.
    pub(crate) chosen: Vec<Expression>,
    /// Of the packets that pass, take the first of each `sample`.
    pub(crate) sample: u32,
    pub(crate) counts: bool,
}

impl Lowered {
    pub(crate) fn expression(&self) -> Expression {
        match &self.chosen[..] {
            [one] => one.clone(),
            all => Expression::All(all.to_vec()),
        }
    }
}

fn cannot(text: impl Into<String>) -> CaptureError {
    CaptureError::new(CaptureErrorKind::Cannot, text)
}

/// Combines filters that stand one after the other, over frames of a link type. The error says why the kernel cannot do
/// it.
pub(crate) fn lowered<'a>(
    filters: impl IntoIterator<Item = &'a Selection>,
    compiler: &dyn Compile,
    link_type: u16,
) -> Result<Lowered, CaptureError> {
    let mut all = Lowered { sample: 1, ..Lowered::default() };
    for filter in filters {
        match filter {
            Selection::Filter(Kind { lower: Some(Lower::Counts), .. }, _) => all.counts = true,
            Selection::Filter(Kind { lower: Some(Lower::Forwards(_)), .. }, _) => {}
            // The first of each m of the first of each n is the first of each m * n.
            Selection::Filter(Kind { lower: Some(Lower::OneIn(one_in)), .. }, params) => {
                let sample = one_in(params).map_err(cannot)?.checked_mul(all.sample);
                all.sample = sample.ok_or_else(|| cannot("so few packets are not counted there"))?;
            }
            // A typed filter behind `sample` is not lowered: the packets are counted before it, and the reader alone
            // asks it.
            Selection::Filter(kind, _) if is_typed(kind) && all.sample > 1 => {}
            _ => {
                let expression = filter.expression(compiler, link_type).map_err(cannot)?;
                if repeats(&expression) {
                    return Err(cannot(kernel::lower::Refusal::Repeats.to_string()));
                }
                all.chosen.push(expression);
            }
        }
    }
    if all.expression().program(Passes::Perhaps).is_none() {
        return Err(cannot("the expression is too long for a program"));
    }
    Ok(all)
}

fn repeats(expression: &Expression) -> bool {
    match expression {
        Expression::Program(program) => program.repeats(),
        Expression::Packet(_) => false,
        Expression::All(parts) | Expression::Any(parts) => parts.iter().any(repeats),
        Expression::Not(part) => repeats(part),
    }
}

/// The packets that filters behind an edge can want, as far as the filters tell.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// Selectors; a wanted packet passes all of them.
    written: Vec<Selection>,
    /// What a wanted packet must be besides.
    pre_filter: Option<Expression>,
    /// A filter behind the selectors that turns packets into others.
    opened: Option<Opened>,
}

/// Wanted packets at a filter that turns packets into others: those that it turns (`others`), and those that the
/// filters behind it want as they are (`behind`).
#[derive(Clone, Debug)]
struct Opened {
    others: Vec<Expression>,
    behind: Vec<Behind>,
}

impl Behind {
    pub(crate) fn of(plan: &Plan, edge: &Edge) -> Behind {
        Behind::find(plan, edge, true)
    }

    /// `may_open`: look behind a filter that turns packets into others. Not behind two of them, since a plan has many
    /// paths.
    fn find(plan: &Plan, edge: &Edge, may_open: bool) -> Behind {
        let mut behind = Behind { written: Vec::new(), pre_filter: None, opened: None };
        let mut at = edge.to;
        // Plans have no cycles, so this ends.
        while behind.add(plan, at, may_open) {
            let [Edge { to, select: None, .. }] = &plan.nodes[at.index()].edges[..] else { break };
            at = *to;
        }
        behind
    }

    /// Adds what a packet has to pass at a node. Gives whether that is known completely, so that the next node can be
    /// added.
    fn add(&mut self, plan: &Plan, at: NodeId, may_open: bool) -> bool {
        if plan.nodes[at.index()].edges.iter().any(|edge| edge.rejected) {
            // The rejected packets are wanted as well.
            return false;
        }
        if let Some(selection) = selection(plan, at) {
            match &selection {
                Selection::Filter(Kind { lower: Some(Lower::Program(_) | Lower::Selects(_)), .. }, _) => {}
                Selection::Filter(kind @ Kind { opens: Some(opens), .. }, params) => {
                    if may_open && let Some(others) = opens(params) {
                        let others = others.into_iter().map(Expression::Packet).collect();
                        let edges = &plan.nodes[at.index()].edges;
                        let behind = edges.iter().map(|edge| Behind::find(plan, edge, false)).collect();
                        self.opened = Some(Opened { others, behind });
                    }
                    debug_assert!(kind.pre_filter.is_none(), "what it opens it wants");
                    return false;
                }
                Selection::Filter(kind, params) => {
                    self.pre_filter = kind.pre_filter.and_then(|pre_filter| pre_filter(params)).map(Expression::Packet);
                    return false;
                }
                _ => {}
            }
            self.written.push(selection);
            return true;
        }
        false
    }

    /// An expression that passes at least what the filters can want. `None`: that may be everything. Packets are cut to
    /// `snap_len` bytes before the filters see them (0 = not cut).
    fn expression(
        &self,
        only_written: bool,
        compiler: &dyn Compile,
        link_type: u16,
        snap_len: u32,
    ) -> Option<Expression> {
        let written = self.written.iter().filter(|one| snap_len == 0 || one.is_of_cut_packets());
        // A selector without an expression reports its error itself.
        let written = written.filter_map(|one| one.expression(compiler, link_type).ok());
        let pre_filter = self.pre_filter.clone().filter(|_| !only_written && link_type == ETHERNET);
        let opened = self.opened.as_ref().filter(|_| link_type == ETHERNET).and_then(|opened| {
            let behind =
                opened.behind.iter().map(|behind| behind.expression(only_written, compiler, link_type, snap_len));
            let behind = behind.collect::<Option<Vec<_>>>()?;
            Some(Expression::Any(behind.into_iter().chain(opened.others.iter().cloned()).collect()))
        });
        let all: Vec<Expression> =
            written.chain(pre_filter).chain(opened).filter(|one| one.program(Passes::Perhaps).is_some()).collect();
        let all = Expression::All(all);
        let program = all.program(Passes::Perhaps)?;
        program.always().is_none_or(|length| length == 0).then_some(all)
    }
}

/// The selection at a node of a plan. `None`: no program can know it.
fn selection(plan: &Plan, at: NodeId) -> Option<Selection> {
    match &plan.nodes[at.index()].task {
        Task::Filter { kind, params } => Some(Selection::Filter(kind, params.clone())),
        Task::Choose(choice) => Selection::of(choice, &|id| match &plan.nodes[id.index()].task {
            Task::Filter { kind, params } => Some((*kind, params.clone())),
            Task::Choose(_) => None,
        }),
    }
}

/// Which packets the filters behind these edges want; the edges leave the kernel at one place. A packet has to pass any
/// of the expressions. `None`: all packets may be wanted. `only_written`: count only selectors, not what other filters
/// can want.
pub(crate) fn wanted(
    behind: &[&Behind],
    only_written: bool,
    compiler: &dyn Compile,
    link_type: u16,
    snap_len: u32,
) -> Option<Vec<Expression>> {
    let mut all: Vec<Expression> = Vec::new();
    for behind in behind {
        let one = behind.expression(only_written, compiler, link_type, snap_len)?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Above this cost, a reader's expression may be replaced by a cheap, rough one. It is the average share of each of a
/// device's readers, unless the daemon's policy says otherwise.
const ROUGH: u32 = INSTRUCTIONS / WAYS as u32;

/// Replaces costly expressions by the beginnings of their programs, which are cheap and pass at least the same packets.
/// `None`: one of them would pass everything.
pub(crate) fn roughly(wanted: Vec<Expression>) -> Option<Vec<Expression>> {
    let is_cheap = |program: &Program| kernel::cost(Some(program), 1) <= ROUGH;
    let rough = |expression: Expression| {
        let program = expression.program(Passes::Perhaps)?;
        if is_cheap(&program) {
            return Some(expression);
        }
        let beginnings = (1..=program.blocks().len()).map(|blocks| program.beginning(blocks));
        let program = beginnings.take_while(is_cheap).last()?;
        program.always().is_none_or(|length| length == 0).then_some(Expression::Program(program))
    };
    wanted.into_iter().map(rough).collect()
}

/// The program for packets that `chosen` and any of `wanted` pass, no longer than a program may be. `None`: everything
/// passes.
pub(crate) fn program(chosen: &Expression, wanted: Option<&[Expression]>, passes: Passes) -> Option<Program> {
    let both = wanted.map(|wanted| Expression::All(vec![chosen.clone(), Expression::Any(wanted.to_vec())]));
    // Where both together are too long, use `chosen` alone.
    let mut programs = both.iter().chain([chosen]).filter_map(|expression| expression.program(passes));
    let program = programs.find(|program| program::to_cbpf(program).len() <= PROGRAM_INSTRUCTIONS)?;
    program.always().is_none_or(|length| length == 0).then_some(program)
}

/// Like [`program()`], but with one program for each of `wanted`; a packet has to pass any of them.
pub(crate) fn programs(chosen: &Expression, wanted: Option<&[Expression]>) -> Option<Vec<Program>> {
    let each = |wanted: &Expression| program(chosen, Some(std::slice::from_ref(wanted)), Passes::Perhaps);
    match wanted {
        None => program(chosen, None, Passes::Perhaps).map(|program| vec![program]),
        Some(wanted) => wanted.iter().map(each).collect(),
    }
}

/// Makes the filter of a packet socket for these programs, which also counts what it keeps out.
pub(crate) fn socket_filter(
    wanted: &[Program],
    (incoming, outgoing): (bool, bool),
    link_type: u16,
) -> Result<(OwnedFd, SocketFilter), ProgramError> {
    let expression = |(at, program): (usize, &Program)| kernel::Expression {
        incoming,
        outgoing,
        ..kernel::Expression::new((at % WAYS) as u8, Some(Arc::new(program.clone())))
    };
    let expressions: Vec<kernel::Expression> = wanted.iter().enumerate().map(expression).collect();
    let socket_filter = SocketFilter::new(link_type == ETHERNET)?;
    Ok((socket_filter.program(&expressions)?, socket_filter))
}

pub(crate) struct Judge<'a> {
    space: &'static str,
    plan: &'a Plan,
    devices: &'a dyn Devices,
    compiler: &'a dyn Compile,
    above: Vec<Vec<NodeId>>,
    /// For each device: the LINKTYPE of its frames.
    link_types: BTreeMap<NodeId, u16>,
    verdict: Verdict,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(
        space: &'static str,
        plan: &'a Plan,
        devices: &'a dyn Devices,
        compiler: &'a dyn Compile,
    ) -> Judge<'a> {
        let above = plan.sources_of();
        Judge { space, plan, devices, compiler, above, link_types: BTreeMap::new(), verdict: Verdict::default() }
    }

    /// Gives the nodes that the space refuses to run where they stand; if there are none, what it does for the nodes
    /// above. `ration` fits a plan into the budgets; it is asked last.
    pub(super) fn judge(mut self, ration: &dyn Fn() -> Rationed) -> Verdict {
        let here: Vec<NodeId> = self.ids().filter(|id| self.is_here(*id)).collect();
        self.refuse_by_operand(&here);
        self.refuse_from_elsewhere(&here);
        self.refuse_by_class(&here);
        self.refuse_by_rejects(&here);
        self.refuse_behind_forks(&here);
        self.refuse_forwards(&here);
        if !self.verdict.refused.is_empty() {
            // The plan is placed again, and judged then.
            return self.verdict;
        }
        let mut all_ways = Vec::new();
        for id in here {
            match self.ways(id) {
                Some(ways) if self.refuse_ways(id, &ways) => {}
                Some(ways) => all_ways.push((id, ways)),
                None => self.refuse(id, format!("packets come to it by more than {WAYS} ways")),
            }
        }
        if self.verdict.refused.is_empty() {
            let rationed = ration();
            all_ways.iter().for_each(|(id, ways)| self.note(*id, ways, &rationed));
            self.verdict.refused = rationed.refused;
        }
        self.verdict
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.plan.nodes.len()).map(|index| NodeId(index as u32))
    }

    fn node(&self, id: NodeId) -> &'a Node {
        &self.plan.nodes[id.index()]
    }

    fn is_here(&self, id: NodeId) -> bool {
        self.node(id).space == self.space
    }

    fn refuse(&mut self, id: NodeId, why: impl Into<String>) {
        self.verdict.refused.push((id, why.into()));
    }

    fn filter(&self, id: NodeId) -> Option<(&'static Kind, &'a Params)> {
        match &self.node(id).task {
            Task::Filter { kind, params } => Some((kind, params)),
            Task::Choose(_) => None,
        }
    }

    /// Refuses choices by class: no program knows the class.
    fn refuse_by_operand(&mut self, here: &[NodeId]) {
        for id in here.iter().copied().filter(|id| selection(self.plan, *id).is_none()).collect::<Vec<_>>() {
            self.refuse(id, "it does not know the class");
        }
    }

    /// Is there something about this node that only its reader can tell?
    fn is_decided_above(&self, id: NodeId) -> bool {
        let is_exact = |expression: Expression| expression.is_exact();
        let selection = selection(self.plan, id).filter(Selection::is_typed);
        selection.is_some_and(|one| !one.expression(self.compiler, ETHERNET).is_ok_and(is_exact))
    }

    /// Refuses nodes that get packets from elsewhere: no path carries packets from one of these spaces to the other.
    fn refuse_from_elsewhere(&mut self, here: &[NodeId]) {
        let gets_others = |id: &NodeId| self.above[id.index()].iter().any(|from| !self.is_here(*from));
        for id in here.iter().copied().filter(gets_others).collect::<Vec<_>>() {
            self.refuse(id, "some of its packets come from a device that is not in this space");
        }
    }

    /// Refuses nodes behind edges for one class: only the reader can check the class.
    fn refuse_by_class(&mut self, here: &[NodeId]) {
        let edges = here.iter().flat_map(|id| &self.plan.nodes[id.index()].edges);
        let asking = edges.filter(|edge| edge.select.is_some() && self.is_here(edge.to)).map(|edge| edge.to);
        for id in asking.collect::<Vec<_>>() {
            self.refuse(id, "it does not know the class");
        }
    }

    /// Refuses selectors whose rejected packets are wanted: packets rejected down there do not come up.
    fn refuse_by_rejects(&mut self, here: &[NodeId]) {
        let rejects = |id: &NodeId| self.node(*id).edges.iter().any(|edge| edge.rejected);
        for id in here.iter().copied().filter(rejects).collect::<Vec<_>>() {
            self.refuse(id, "another filter takes its rejected blocks");
        }
    }

    /// Refuses nodes behind forks of a device that the request has to itself. Such a device chooses its packets once,
    /// by the filters on every packet's path. Filters behind a fork run above, on what any of the branches wants.
    fn refuse_behind_forks(&mut self, here: &[NodeId]) {
        for device in here.iter().copied() {
            if !self.filter(device).is_some_and(|(kind, _)| is_own(kind)) {
                continue;
            }
            let (mut behind, mut at) = (BTreeSet::new(), device);
            while let [Edge { to, .. }] = &self.node(at).edges[..] {
                if !self.is_here(*to) {
                    break;
                }
                at = *to;
            }
            let mut next: Vec<NodeId> = self.node(at).edges.iter().map(|edge| edge.to).collect();
            while let Some(id) = next.pop() {
                if self.is_here(id) && behind.insert(id) {
                    next.extend(self.node(id).edges.iter().map(|edge| edge.to));
                }
            }
            for id in behind {
                self.refuse(id, "the device's packets are chosen once, for all branches");
            }
        }
    }

    /// Refuses a forwarding sink whose frames have another reader: a forwarded frame is gone.
    fn refuse_forwards(&mut self, here: &[NodeId]) {
        for id in here.iter().copied() {
            if self.filter(id).is_none_or(|(kind, params)| forwards_to(kind, params).is_none()) {
                continue;
            }
            let ways = self.ways(id).unwrap_or_default();
            let has_program =
                |at: &NodeId| matches!(self.filter(*at), Some((Kind { lower: Some(Lower::Program(_)), .. }, _)));
            match &ways.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
                [[_, between @ .., _]] if !between.iter().all(has_program) => {
                    self.refuse(id, "between two devices it runs `bpf` alone");
                }
                [way] if way[..way.len() - 1].iter().all(|at| self.node(*at).edges.len() == 1) => {
                    self.verdict.notes.push((id, "frames do not leave the kernel".into()));
                }
                [_] => self.refuse(id, "another branch wants the same frames"),
                _ => self.refuse(id, "frames come to it by several ways"),
            }
        }
    }

    /// The paths to a node from the devices before it, each with the nodes on it. `None`: there are too many.
    fn ways(&self, to: NodeId) -> Option<Vec<Vec<NodeId>>> {
        let above: Vec<NodeId> = self.above[to.index()].iter().copied().filter(|id| self.is_here(*id)).collect();
        if above.is_empty() {
            return Some(vec![vec![to]]);
        }
        let mut ways = Vec::new();
        for from in above {
            ways.extend(self.ways(from)?);
            if ways.len() > WAYS {
                return None;
            }
        }
        ways.iter_mut().for_each(|way| way.push(to));
        Some(ways)
    }

    /// Combines the filters on a path behind its device.
    fn lowered(&self, way: &[NodeId], link_type: u16) -> Result<Lowered, CaptureError> {
        let selections: Vec<Selection> = way[1..].iter().filter_map(|id| selection(self.plan, *id)).collect();
        lowered(&selections, self.compiler, link_type)
    }

    /// The link type of a device, which may be absent or known to another process only. Ethernet if unknown.
    fn link_type(&mut self, device: NodeId) -> u16 {
        if let Some(known) = self.link_types.get(&device) {
            return *known;
        }
        let known = match self.filter(device).and_then(|(kind, params)| Some((kind.device?, params))) {
            Some((DeviceAccess::Exclusive(exclusive), params)) => (exclusive.link_type)(params).ok(),
            Some((DeviceAccess::Shared(shared), params)) => (shared.asked)(params)
                .ok()
                .and_then(|(asked, _)| self.devices.device(&asked.device).ok())
                .map(|device| device.link_type),
            _ => None,
        };
        *self.link_types.entry(device).or_insert(known.unwrap_or(ETHERNET))
    }

    /// Refuses a node when something on one of its paths cannot be done in this space.
    fn refuse_ways(&mut self, id: NodeId, ways: &[Vec<NodeId>]) -> bool {
        for way in ways {
            let [device, _, ..] = way[..] else { continue };
            let link_type = self.link_type(device);
            let refused = match self.lowered(way, link_type) {
                Err(error) => Some(error.text),
                Ok(Lowered { chosen, .. }) if chosen.is_empty() => None,
                Ok(lowered) => {
                    let program = lowered.expression().program(Passes::Perhaps);
                    program.and_then(|program| self.keeps_out(device, &[program], link_type).err())
                }
            };
            if let Some(why) = refused {
                self.refuse(id, why);
                return true;
            }
        }
        false
    }

    /// Checks that the kernel takes these programs, as far as that can be tried. Programs that take packets away from
    /// the host are not tried: without them the device takes no packets.
    fn keeps_out(&self, device: NodeId, wanted: &[Program], link_type: u16) -> Result<(), String> {
        let asked = match self.filter(device).and_then(|(kind, params)| Some((kind.device?, params))) {
            Some((DeviceAccess::Exclusive(Exclusive { choice: Choice::SocketFilter { ways, .. }, .. }), params)) => {
                // Without the right to load programs there may still be a packet socket, with no program.
                return socket_filter(wanted, ways(params), link_type).map(drop).map_err(|error| error.to_string());
            }
            Some((DeviceAccess::Shared(shared), params)) => (shared.asked)(params).map_err(|error| error.message)?.0,
            _ => return Ok(()),
        };
        if asked.mode == Mode::Consume {
            return Ok(());
        }
        for program in wanted {
            let length = program::to_cbpf(program).len();
            if length > PROGRAM_INSTRUCTIONS {
                return Err(format!("the expression takes {length} instructions; at most {PROGRAM_INSTRUCTIONS}"));
            }
        }
        if asked.by == By::PacketSocket {
            // The copying thread asks what its socket's filter cannot.
            return Ok(());
        }
        match socket_filter(wanted, (asked.direction != Direction::Out, asked.direction != Direction::In), link_type) {
            // This process may not load programs; the daemon may.
            Ok(_) | Err(ProgramError::System(..)) => Ok(()),
            Err(ProgramError::Load(error))
                if error.error.kind() == ErrorKind::PermissionDenied && error.reason.is_empty() =>
            {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Notes what a node's reader does, and for the nodes right above what is left out before them.
    fn note(&mut self, id: NodeId, ways: &[Vec<NodeId>], rationed: &Rationed) {
        if self.is_decided_above(id) {
            let note = "the reader decides about packets that the program cannot tell about";
            self.verdict.notes.push((id, note.into()));
        }
        let leaving = self.node(id).edges.iter().filter(|edge| !self.is_here(edge.to));
        // The parser process has a reader of its own, so its edges are noted apart.
        let (shared, own): (Vec<&Edge>, Vec<&Edge>) = leaving.partition(|edge| self.node(edge.to).space == PARSER);
        for (edges, to_shared) in [(shared, true), (own, false)].into_iter().filter(|(edges, _)| !edges.is_empty()) {
            let Some(where_to) = self.left_out(&edges, ways) else { continue };
            let what =
                if edges.len() > 1 { "packets that no branch can use" } else { "packets it certainly cannot use" };
            let note = match rationed.pre_filtering.get(&(id, to_shared)) {
                Some(PreFiltering::Roughly) => {
                    format!("some {what} {where_to}: its budget has no room for more")
                }
                Some(PreFiltering::None) => "it gets all packets: the kernel's budget has no room for more".into(),
                Some(PreFiltering::Wanted) | None => format!("{what} {where_to}"),
            };
            self.verdict.notes.extend(edges.iter().map(|edge| (edge.to, note.clone())));
        }
    }

    /// What happens to packets that no filter behind these edges can want. `None`: they come up.
    fn left_out(&mut self, edges: &[&Edge], ways: &[Vec<NodeId>]) -> Option<String> {
        let behind: Vec<Behind> = edges.iter().map(|edge| Behind::of(self.plan, edge)).collect();
        let behind: Vec<&Behind> = behind.iter().collect();
        let mut said = None;
        for way in ways {
            let device = way[0];
            let (kind, params) = self.filter(device).filter(|(kind, _)| kind.is_source())?;
            let link_type = self.link_type(device);
            let lowered = self.lowered(way, link_type).ok()?;
            let is_taken = kind.takes_away(params);
            if lowered.sample > 1 || lowered.counts {
                return None;
            }
            let wanted = wanted(&behind, is_taken, self.compiler, link_type, snap_len(params))?;
            let chosen = lowered.expression();
            if is_own(kind) {
                self.keeps_out(device, &programs(&chosen, Some(&wanted))?, link_type).ok()?;
            } else {
                program(&chosen, Some(&wanted), Passes::Perhaps)?;
            }
            said = Some(if is_taken {
                "are left to the host".into()
            } else {
                format!("are filtered in the {}", self.space)
            });
        }
        said
    }
}
