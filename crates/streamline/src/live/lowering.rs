//! What of a plan the kernel does, or the daemon where it copies: decided from the plan, before anything is opened, and asked
//! by who explains a request and by who runs it.
//!
//! In: filters, one after the other from a device on ([`lowered`]); what stands behind the edges that leave the kernel
//! ([`Behind`], [`wanted`]); a whole plan ([`Judge`]). Out: programs, and what people should know. Not opening: that is
//! `space`, which makes of the same programs what it opens.
//!
//! What stands behind an edge decides by itself; the kernel leaves out what it cannot want. Where that is *taken away* from
//! the host, only what is written as a program counts: what a filter like `tcp` does not want nobody said to leave to the host.

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

/// The names of the spaces where there are only programs.
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const DAEMON: &str = "daemon";

/// More ways from devices to one node are not followed: a device has no more readers.
const WAYS: usize = buffer::live::EXPRESSIONS;

/// Is it a device that a request has for itself?
pub(crate) fn is_own(kind: &Kind) -> bool {
    matches!(kind.device, Some(DeviceAccess::Exclusive(_)))
}

/// Does it give numbers of packets, and no packets?
pub(crate) fn counts(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Counts))
}

/// The device that a sink has frames go out by without their leaving the kernel, where it is one.
pub(crate) fn forwards_to(kind: &Kind, params: &Params) -> Option<String> {
    match kind.lower {
        Some(Lower::Forwards(target)) => target(params).ok(),
        _ => None,
    }
}

/// What filters are together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    /// A packet passes all of these.
    pub(crate) chosen: Vec<Expression>,
    /// And of those one in so many.
    pub(crate) sample: u32,
    /// They are only counted.
    pub(crate) counts: bool,
}

impl Lowered {
    /// What they choose.
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

/// What filters are together, one after the other, over frames of a link type; else why the kernel cannot do it.
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
            // Those are counted before it: it is the reader alone that asks it.
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

/// What stands behind an edge that leaves the kernel, as far as it says what it can want.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// Selectors: what is wanted passes all of them.
    written: Vec<Selection>,
    /// What packets must be otherwise.
    pre_filter: Option<Expression>,
    /// A filter behind those that turns packets into others.
    opened: Option<Opened>,
}

/// What is wanted behind a filter that turns packets into others: those that it does, and those that are wanted as they are.
#[derive(Clone, Debug)]
struct Opened {
    others: Vec<Expression>,
    behind: Vec<Behind>,
}

impl Behind {
    /// Of an edge of a plan.
    pub(crate) fn of(plan: &Plan, edge: &Edge) -> Behind {
        Behind::find(plan, edge, true)
    }

    /// `may_open`: it may look behind a filter that turns packets into others. Not behind two of them: a plan has many ways.
    fn find(plan: &Plan, edge: &Edge, may_open: bool) -> Behind {
        let mut behind = Behind { written: Vec::new(), pre_filter: None, opened: None };
        let mut at = edge.to;
        // Plans lead nowhere back: this ends.
        while behind.add(plan, at, may_open) {
            let [Edge { to, select: None, .. }] = &plan.nodes[at.index()].edges[..] else { break };
            at = *to;
        }
        behind
    }

    /// Adds what has to pass a node; is all of that known, so that what comes behind it can be added, too?
    fn add(&mut self, plan: &Plan, at: NodeId, may_open: bool) -> bool {
        if plan.nodes[at.index()].edges.iter().any(|edge| edge.rejected) {
            // What it rejects is wanted as well.
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

    /// Those that may pass all that it can want; `None` where that may be everything. Packets are cut to `snap_len` bytes, 0
    /// for none, before it sees them.
    fn expression(
        &self,
        only_written: bool,
        compiler: &dyn Compile,
        link_type: u16,
        snap_len: u32,
    ) -> Option<Expression> {
        let written = self.written.iter().filter(|one| snap_len == 0 || one.is_of_cut_packets());
        // A selector that has no expression says itself what is wrong with it.
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

/// What stands at a node of a plan, as far as it may run below.
fn selection(plan: &Plan, at: NodeId) -> Option<Selection> {
    match &plan.nodes[at.index()].task {
        Task::Filter { kind, params } => Some(Selection::Filter(kind, params.clone())),
        Task::Choose(choice) => Selection::of(choice, &|id| match &plan.nodes[id.index()].task {
            Task::Filter { kind, params } => Some((*kind, params.clone())),
            Task::Choose(_) => None,
        }),
    }
}

/// What is wanted behind edges that leave the kernel at one place: what any of these passes. None where that may be
/// everything. `only_written` leaves out what filters can want that are no selectors.
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

/// What an expression costs whose reader may have it as a rough one of a dearer one: as much as each of a device's readers has
/// on average, where the daemon's policy does not say otherwise.
const ROUGH: u32 = INSTRUCTIONS / WAYS as u32;

/// Pass all that these pass, by as much of their programs as costs little. `None` where one of them would pass everything.
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

/// The program of what was chosen, and of that of what is wanted behind it; no longer than one may be. `None` where that is
/// everything.
pub(crate) fn program(chosen: &Expression, wanted: Option<&[Expression]>, passes: Passes) -> Option<Program> {
    let both = wanted.map(|wanted| Expression::All(vec![chosen.clone(), Expression::Any(wanted.to_vec())]));
    // Where both are too much, what was chosen alone.
    let mut programs = both.iter().chain([chosen]).filter_map(|expression| expression.program(passes));
    let program = programs.find(|program| program::to_cbpf(program).len() <= PROGRAM_INSTRUCTIONS)?;
    program.always().is_none_or(|length| length == 0).then_some(program)
}

/// The same as several programs: what passes any of them.
pub(crate) fn programs(chosen: &Expression, wanted: Option<&[Expression]>) -> Option<Vec<Program>> {
    let each = |wanted: &Expression| program(chosen, Some(std::slice::from_ref(wanted)), Passes::Perhaps);
    match wanted {
        None => program(chosen, None, Passes::Perhaps).map(|program| vec![program]),
        Some(wanted) => wanted.iter().map(each).collect(),
    }
}

/// The filter of a packet socket that these are to come by, and what counts what it keeps out.
pub(crate) fn socket_filter(
    wanted: &[Program],
    (incoming, outgoing): (bool, bool),
    link_type: u16,
) -> Result<(OwnedFd, SocketFilter), ProgramError> {
    // Whose bit it is nobody asks.
    let expression = |(at, program): (usize, &Program)| kernel::Expression {
        incoming,
        outgoing,
        ..kernel::Expression::new((at % WAYS) as u8, Some(Arc::new(program.clone())))
    };
    let expressions: Vec<kernel::Expression> = wanted.iter().enumerate().map(expression).collect();
    let socket_filter = SocketFilter::new(link_type == ETHERNET)?;
    Ok((socket_filter.program(&expressions)?, socket_filter))
}

/// Judges a plan.
pub(crate) struct Judge<'a> {
    /// For the space of this name.
    space: &'static str,
    plan: &'a Plan,
    devices: &'a dyn Devices,
    compiler: &'a dyn Compile,
    /// By node: those that give to it.
    above: Vec<Vec<NodeId>>,
    /// By device: LINKTYPE of its frames.
    link_types: BTreeMap<NodeId, u16>,
    verdict: Verdict,
}

impl<'a> Judge<'a> {
    /// Of a plan.
    pub(crate) fn new(
        space: &'static str,
        plan: &'a Plan,
        devices: &'a dyn Devices,
        compiler: &'a dyn Compile,
    ) -> Judge<'a> {
        let above = plan.sources_of();
        Judge { space, plan, devices, compiler, above, link_types: BTreeMap::new(), verdict: Verdict::default() }
    }

    /// Which of its nodes the space will not run where they stand; else what it does for those above it. `ration` says what a
    /// plan that is not refused otherwise is given.
    pub(super) fn judge(mut self, ration: &dyn Fn() -> Rationed) -> Verdict {
        let here: Vec<NodeId> = self.ids().filter(|id| self.is_here(*id)).collect();
        self.refuse_by_operand(&here);
        self.refuse_from_elsewhere(&here);
        self.refuse_by_class(&here);
        self.refuse_by_rejects(&here);
        self.refuse_behind_forks(&here);
        self.refuse_forwards(&here);
        if !self.verdict.refused.is_empty() {
            // The others are judged where they stand then.
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

    /// Choices by class stay above: no program knows it.
    fn refuse_by_operand(&mut self, here: &[NodeId]) {
        for id in here.iter().copied().filter(|id| selection(self.plan, *id).is_none()).collect::<Vec<_>>() {
            self.refuse(id, "it does not know the class");
        }
    }

    /// Is there something about it that only its reader can tell?
    fn is_decided_above(&self, id: NodeId) -> bool {
        let is_exact = |expression: Expression| expression.is_exact();
        let selection = selection(self.plan, id).filter(Selection::is_typed);
        selection.is_some_and(|one| !one.expression(self.compiler, ETHERNET).is_ok_and(is_exact))
    }

    /// Only what gets all its packets from here goes on here: nobody carries any from one of these spaces to the other.
    fn refuse_from_elsewhere(&mut self, here: &[NodeId]) {
        let gets_others = |id: &NodeId| self.above[id.index()].iter().any(|from| !self.is_here(*from));
        for id in here.iter().copied().filter(gets_others).collect::<Vec<_>>() {
            self.refuse(id, "some of its packets come from a device that is not in this space");
        }
    }

    /// Edges that ask for a class lead out of it: whoever reads looks at that.
    fn refuse_by_class(&mut self, here: &[NodeId]) {
        let edges = here.iter().flat_map(|id| &self.plan.nodes[id.index()].edges);
        let asking = edges.filter(|edge| edge.select.is_some() && self.is_here(edge.to)).map(|edge| edge.to);
        for id in asking.collect::<Vec<_>>() {
            self.refuse(id, "it does not know the class");
        }
    }

    /// What a selector rejects down there nobody sees any more.
    fn refuse_by_rejects(&mut self, here: &[NodeId]) {
        let rejects = |id: &NodeId| self.node(*id).edges.iter().any(|edge| edge.rejected);
        for id in here.iter().copied().filter(rejects).collect::<Vec<_>>() {
            self.refuse(id, "what it rejects is wanted, too");
        }
    }

    /// What a device of one's own gives is chosen once, by all that stands on every packet's way. Whatever stands behind a
    /// fork decides above, about what any of its branches wants.
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
                self.refuse(id, "what the device gives is chosen once, for all branches");
            }
        }
    }

    /// A frame that goes out by another device is nobody else's.
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

    /// The ways to a node from the devices before it, each with what stands on it; none where they are too many.
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

    /// What stands on a way behind its device.
    fn lowered(&self, way: &[NodeId], link_type: u16) -> Result<Lowered, CaptureError> {
        let selections: Vec<Selection> = way[1..].iter().filter_map(|id| selection(self.plan, *id)).collect();
        lowered(&selections, self.compiler, link_type)
    }

    /// Of a device that need not be there, and that another process may know: Ethernet, where nobody can tell.
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

    /// Is it something that cannot be done there, on one of its ways?
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

    /// Does the kernel take these programs, as far as that can be tried? Of what is taken away from the host they choose, or
    /// nothing is taken.
    fn keeps_out(&self, device: NodeId, wanted: &[Program], link_type: u16) -> Result<(), String> {
        let asked = match self.filter(device).and_then(|(kind, params)| Some((kind.device?, params))) {
            Some((DeviceAccess::Exclusive(Exclusive { choice: Choice::SocketFilter { ways, .. }, .. }), params)) => {
                // Whoever may not load programs may still have a packet socket, without any.
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
            // The thread that copies asks what its socket's filter cannot.
            return Ok(());
        }
        match socket_filter(wanted, (asked.direction != Direction::Out, asked.direction != Direction::In), link_type) {
            // Who may not load any has a daemon, which may.
            Ok(_) | Err(ProgramError::System(..)) => Ok(()),
            Err(ProgramError::Load(error))
                if error.error.kind() == ErrorKind::PermissionDenied && error.reason.is_empty() =>
            {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Says of a node what its reader does, and of those right above it what is left out before them.
    fn note(&mut self, id: NodeId, ways: &[Vec<NodeId>], rationed: &Rationed) {
        if self.is_decided_above(id) {
            let note = "the reader decides about packets that the program cannot tell about";
            self.verdict.notes.push((id, note.into()));
        }
        let leaving = self.node(id).edges.iter().filter(|edge| !self.is_here(edge.to));
        // Who shares takes his packets from a reader of his own.
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

    /// What becomes of what nobody behind these edges can want, where it does not come up.
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
