//! What of a plan the kernel does, or the daemon where it copies: decided from the plan, before anything is opened, and asked
//! by who explains a request and by who runs it.
//!
//! In: filters, one after the other from a device on ([`lowered`]); what stands behind the edges that leave the kernel
//! ([`Behind`], [`wanted`]); a whole plan ([`Judge`]). Out: programs, and what people should know. Not opening: that is
//! `space`, which makes of the same programs what it opens.
//!
//! What stands behind an edge decides by itself; the kernel leaves out what it cannot want. Where that is *taken away* from
//! the host, only what is written as a program counts: what a filter like `tcp` does not want nobody said to leave to the host.

use crate::shared::space::NAME as SHARED;
use capture::wish::PROGRAM_INSTRUCTIONS;
use capture::{ETHERNET, Trouble, writer::TroubleKind};
use control::Verdict;
use engine::{Choice, Edge, Node, NodeId, Plan, Task};
use filter::kind::ToProgram;
use filter::{Devices, Kind, Lower, Params};
use kernel::Sieve;
use kernel::tap::TapError;
use program::narrow::Narrow;
use program::{Compile, Program};
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
    [filters::af_xdp::KIND.name, filters::af_packet::KIND.name].contains(&kind.name)
}

/// Does the host not see what this source gives?
pub(crate) fn takes_away(kind: &Kind, params: &Params) -> bool {
    kind.name == filters::af_xdp::KIND.name
        || kind.name == filters::ethernet::KIND.name && params.text("mode") == Some("consume")
}

/// Does it give numbers of packets, and no packets?
pub(crate) fn counts(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Counts))
}

/// Is it a selector by ports, whose class its reader gives?
pub(crate) fn is_by_ports(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Ports(_)))
}

/// What filters are together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    /// What they choose; none chooses all.
    pub(crate) program: Option<Program>,
    /// And of that one in so many.
    pub(crate) sample: u32,
    /// It is only counted.
    pub(crate) counts: bool,
    /// What a selector by ports, which is not all of it, cannot want.
    pub(crate) narrow: Option<Narrow>,
}

fn cannot(text: impl Into<String>) -> Trouble {
    Trouble::new(TroubleKind::Cannot, text)
}

/// What filters are together, one after the other, over frames of a link type; else why the kernel cannot do it.
pub(crate) fn lowered<'a>(
    filters: impl IntoIterator<Item = (&'static Kind, &'a Params)>,
    compiler: &dyn Compile,
    link_type: u16,
) -> Result<Lowered, Trouble> {
    let mut all = Lowered { sample: 1, ..Lowered::default() };
    for (kind, params) in filters {
        let no_program = || cannot(format!("there is no program for `{}`", kind.name));
        match kind.lower.ok_or_else(no_program)? {
            Lower::Counts => all.counts = true,
            Lower::Ports(_) => all.narrow = kind.narrow.and_then(|narrow| narrow(params)),
            Lower::Program(lower) => {
                let program = compiled(lower, params, compiler, link_type).map_err(cannot)?;
                if program.repeats() {
                    return Err(cannot(kernel::lower::Refusal::Repeats.to_string()));
                }
                all.program = Some(match all.program {
                    None => program,
                    Some(before) => before.and_then(&program).map_err(|error| cannot(error.to_string()))?,
                });
            }
            // The first of each m of the first of each n is the first of each m * n.
            Lower::OneIn(one_in) => {
                let sample = one_in(params).map_err(cannot)?.checked_mul(all.sample);
                all.sample = sample.ok_or_else(|| cannot("so few packets are not counted there"))?;
            }
        }
    }
    Ok(all)
}

fn compiled(lower: ToProgram, params: &Params, compiler: &dyn Compile, link_type: u16) -> Result<Program, String> {
    program::from_cbpf(&lower(params, compiler, link_type)?).map_err(|error| error.to_string())
}

/// What stands behind an edge that leaves the kernel, as far as it says what it can want.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// Selectors that are programs: what is wanted passes all of them.
    written: Vec<(ToProgram, Params)>,
    /// What packets must be otherwise.
    narrow: Option<Narrow>,
}

impl Behind {
    /// Of an edge of a plan.
    pub(crate) fn of(plan: &Plan, edge: &Edge) -> Behind {
        let mut behind = Behind { written: Vec::new(), narrow: None };
        let mut at = &plan.nodes[edge.to.index()];
        // Plans lead nowhere back: this ends.
        loop {
            match &at.task {
                Task::Filter { kind, params } if behind.add(kind, params) => {}
                Task::Filter { .. } => break,
                Task::Choose(choice) => {
                    behind.add_choice(plan, choice);
                    break;
                }
            }
            let [Edge { to, select: None, .. }] = &at.edges[..] else { break };
            at = &plan.nodes[to.index()];
        }
        behind
    }

    /// Adds what has to pass; is that a program, so that what comes behind it can be added, too?
    fn add(&mut self, kind: &Kind, params: &Params) -> bool {
        if let Some(Lower::Program(lower)) = kind.lower {
            self.written.push((lower, params.clone()));
            return true;
        }
        self.narrow = self.narrow.take().or_else(|| kind.narrow.and_then(|narrow| narrow(params)));
        false
    }

    /// The same of a choice, as far as all of it has to pass.
    fn add_choice(&mut self, plan: &Plan, choice: &Choice) {
        match choice {
            Choice::Filter(id) => {
                if let Task::Filter { kind, params } = &plan.nodes[id.index()].task {
                    self.add(kind, params);
                }
            }
            Choice::All(parts) => parts.iter().for_each(|part| self.add_choice(plan, part)),
            Choice::KeepClass(part) => self.add_choice(plan, part),
            Choice::Class(_) | Choice::Any(_) | Choice::Not(_) => {}
        }
    }

    /// What passes all that it can want; none where that may be everything.
    fn program(&self, compiler: &dyn Compile, link_type: u16) -> Option<Program> {
        let mut all: Option<Program> = None;
        for (lower, params) in &self.written {
            // It says itself what is wrong with it.
            let Ok(program) = compiled(*lower, params, compiler, link_type) else { break };
            let program = program.without_repeats();
            all = match all {
                None => Some(program),
                Some(before) => Some(before.and_then(&program).unwrap_or(before)),
            };
        }
        all
    }
}

/// What is wanted behind edges that leave the kernel at one place: what any of these passes. None where that may be
/// everything. `only_written` leaves out what filters can want that are no programs.
pub(crate) fn wanted(
    behind: &[&Behind],
    only_written: bool,
    compiler: &dyn Compile,
    link_type: u16,
) -> Option<Vec<Program>> {
    let mut all: Vec<Program> = Vec::new();
    let mut narrows: Vec<Narrow> = Vec::new();
    for behind in behind {
        match (behind.program(compiler, link_type), &behind.narrow) {
            (Some(program), _) if all.contains(&program) => {}
            (Some(program), _) => all.push(program),
            (None, Some(narrow)) if !only_written && link_type == ETHERNET => narrows.push(narrow.clone()),
            (None, _) => return None,
        }
    }
    if !narrows.is_empty() {
        all.push(program::narrow::program(&narrows)?);
    }
    (!all.is_empty() && all.iter().all(|program| program.always().is_none_or(|length| length == 0))).then_some(all)
}

/// Those of what was chosen that are wanted behind.
pub(crate) fn both(chosen: Option<&Program>, wanted: Option<Vec<Program>>) -> Option<Vec<Program>> {
    match (chosen, wanted) {
        (None, wanted) => wanted,
        (Some(chosen), None) => Some(vec![chosen.clone()]),
        // Asked second: what was chosen decides first. Where both are too much, that alone.
        (Some(chosen), Some(wanted)) => {
            let both: Result<Vec<Program>, _> = wanted.iter().map(|program| chosen.and_then(program)).collect();
            Some(both.unwrap_or_else(|_| vec![chosen.clone()]))
        }
    }
}

/// One program of several, for who takes but one, and no longer one than he takes.
pub(crate) fn one(mut wanted: Vec<Program>) -> Option<Program> {
    let one = match wanted.len() {
        1 => wanted.pop(),
        _ => program::any_of(&wanted.iter().collect::<Vec<_>>()),
    };
    one.filter(|one| program::to_cbpf(one).len() <= PROGRAM_INSTRUCTIONS)
}

/// The filter of a packet socket that these are to come by, and what counts what it keeps out.
pub(crate) fn sieve(wanted: &[Program], params: &Params, link_type: u16) -> Result<(OwnedFd, Sieve), TapError> {
    let (incoming, outgoing) = filters::af_packet::ways(params);
    // Whose bit it is nobody asks.
    let expression = |(at, program): (usize, &Program)| kernel::Expression {
        incoming,
        outgoing,
        ..kernel::Expression::new((at % WAYS) as u8, Some(Arc::new(program.clone())))
    };
    let expressions: Vec<kernel::Expression> = wanted.iter().enumerate().map(expression).collect();
    let sieve = Sieve::new(link_type == ETHERNET)?;
    Ok((sieve.program(&expressions)?, sieve))
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

    /// Which of its nodes the space will not run where they stand; else what it does for those above it.
    pub(crate) fn judge(mut self) -> Verdict {
        let here: Vec<NodeId> = self.ids().filter(|id| self.is_here(*id)).collect();
        self.refuse_choices(&here);
        self.refuse_from_elsewhere(&here);
        self.refuse_by_class(&here);
        self.refuse_behind_forks(&here);
        if !self.verdict.refused.is_empty() {
            // The others are judged where they stand then.
            return self.verdict;
        }
        for id in here {
            match self.ways(id) {
                Some(ways) if self.refuse_ways(id, &ways) => {}
                Some(ways) => {
                    self.note(id, &ways);
                    if self.filter(id).is_some_and(|(kind, _)| is_by_ports(kind)) {
                        let note = "the reader decides about packets whose ports are not known there for sure";
                        self.verdict.notes.push((id, note.into()));
                    }
                }
                None => self.refuse(id, format!("packets come to it by more than {WAYS} ways")),
            }
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

    fn refuse_choices(&mut self, here: &[NodeId]) {
        let choices: Vec<NodeId> = here.iter().copied().filter(|id| self.filter(*id).is_none()).collect();
        for id in choices {
            self.refuse(id, "it has no choices between selectors");
        }
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
    fn lowers<'w>(&self, way: &'w [NodeId]) -> impl Iterator<Item = (&'static Kind, &'a Params)> + use<'a, 'w> {
        let plan = self.plan;
        way[1..].iter().filter_map(move |id| match &plan.nodes[id.index()].task {
            Task::Filter { kind, params } => Some((*kind, params)),
            Task::Choose(_) => None,
        })
    }

    /// Of a device that need not be there, and that another process may know: Ethernet, where nobody can tell.
    fn link_type(&mut self, device: NodeId) -> u16 {
        if let Some(known) = self.link_types.get(&device) {
            return *known;
        }
        let known = match self.filter(device) {
            Some((kind, params)) if is_own(kind) => filters::af_packet::link_type(params).ok(),
            Some((_, params)) => filters::ethernet::wish(params)
                .ok()
                .and_then(|(wish, _)| self.devices.device(&wish.device).ok())
                .map(|device| device.link_type),
            None => None,
        };
        *self.link_types.entry(device).or_insert(known.unwrap_or(ETHERNET))
    }

    /// Is it something that cannot be done there, on one of its ways?
    fn refuse_ways(&mut self, id: NodeId, ways: &[Vec<NodeId>]) -> bool {
        for way in ways {
            let [device, _, ..] = way[..] else { continue };
            let link_type = self.link_type(device);
            let refused = match lowered(self.lowers(way), self.compiler, link_type) {
                Err(trouble) => Some(trouble.text),
                Ok(Lowered { program: Some(program), .. }) => self.keeps_out(device, &[program], link_type).err(),
                Ok(_) => None,
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
        let Some((kind, params)) = self.filter(device).filter(|(kind, params)| !takes_away(kind, params)) else {
            return Ok(());
        };
        if is_own(kind) {
            // Whoever may not load programs may still have a packet socket, without any.
            return sieve(wanted, params, link_type).map(drop).map_err(|error| error.to_string());
        }
        for program in wanted {
            let length = program::to_cbpf(program).len();
            if length > PROGRAM_INSTRUCTIONS {
                return Err(format!("the expression takes {length} instructions; at most {PROGRAM_INSTRUCTIONS}"));
            }
        }
        if params.text("by") == Some("socket") {
            // The thread that copies asks what its socket's filter cannot.
            return Ok(());
        }
        match sieve(wanted, params, link_type) {
            // Who may not load any has a daemon, which may.
            Ok(_) | Err(TapError::System(..)) => Ok(()),
            Err(TapError::Load(error))
                if error.error.kind() == ErrorKind::PermissionDenied && error.reason.is_empty() =>
            {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Says of those right above a node what is left out before them.
    fn note(&mut self, id: NodeId, ways: &[Vec<NodeId>]) {
        let leaving = self.node(id).edges.iter().filter(|edge| !self.is_here(edge.to));
        // Who shares takes his packets from a reader of his own.
        let (shared, own): (Vec<&Edge>, Vec<&Edge>) = leaving.partition(|edge| self.node(edge.to).space == SHARED);
        for edges in [shared, own].into_iter().filter(|edges| !edges.is_empty()) {
            let Some(where_to) = self.left_out(&edges, ways) else { continue };
            let what =
                if edges.len() > 1 { "what no branch can want for sure" } else { "what it cannot want for sure" };
            let note = format!("{what} {where_to}");
            self.verdict.notes.extend(edges.iter().map(|edge| (edge.to, note.clone())));
        }
    }

    /// What becomes of what nobody behind these edges can want, where it does not come up.
    fn left_out(&mut self, edges: &[&Edge], ways: &[Vec<NodeId>]) -> Option<String> {
        let behind: Vec<Behind> = edges.iter().map(|edge| Behind::of(self.plan, edge)).collect();
        let behind: Vec<&Behind> = behind.iter().collect();
        if behind.iter().any(|behind| behind.written.is_empty() && behind.narrow.is_none()) {
            return None;
        }
        let mut said = None;
        for way in ways {
            let device = way[0];
            let (kind, params) = self.filter(device).filter(|(kind, _)| kind.is_source())?;
            let link_type = self.link_type(device);
            let lowered = lowered(self.lowers(way), self.compiler, link_type).ok()?;
            let is_taken = takes_away(kind, params);
            if lowered.sample > 1 || lowered.counts {
                return None;
            }
            let wanted = wanted(&behind, is_taken, self.compiler, link_type)?;
            let wanted = both(lowered.program.as_ref(), Some(wanted))?;
            if !is_own(kind) {
                one(wanted)?;
            } else {
                self.keeps_out(device, &wanted, link_type).ok()?;
            }
            said = Some(if is_taken { "is left to the host".into() } else { format!("stays in the {}", self.space) });
        }
        said
    }
}
