//! Cuts a plan at the places where packets leave the kernel or the daemon: decides how they are read there, and which
//! packets are left out before. Pure: the same plan and the same knowledge give the same cut, to explain a request and to run it.
//!
//! In: a placed plan, and what is [`Known`]. Out: a [`Cut`]. `space` opens what it says. If a space cannot run a node
//! where it stands, the cut says so, and the plan is placed again.
//!
//! Costs of the expressions of all readers are summed in the order in which the readers are opened. A filter that does
//! not fit into the daemon's budget runs in the reader, and a pre-filter that does not fit is made cheaper or left out.
//! If a budget changes before the plan is carried out, the daemon refuses the excess: that is known then.

use super::behind::Behind;
use super::known::Known;
use super::leaving::{Leaving, PreFiltering, Why, nothing_comes};
use super::lowering::{self, WAYS, forwards_to, is_own};
use super::reads::Reads;
use super::selection::{Selection, selection};
use super::shape::Shape;
use super::way::Way;
use crate::space::{DAEMON, KERNEL, PARSER};
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::{Budget, CaptureError, CaptureErrorKind, CaptureRequest, ETHERNET, Mode};
use control::transaction::REFUSED;
use engine::{Edge, NodeId, Plan, Task};
use filter::{DeviceAccess, ParamError};
use program::{Expression, Passes, Program};
use std::collections::{BTreeMap, BTreeSet};

/// The work of the spaces below for a plan.
#[derive(Default)]
pub(crate) struct Cut {
    /// For each node at which packets leave for this process: its sources.
    pub(super) sources: BTreeMap<NodeId, Vec<Source>>,
    /// Nodes that will not run where they stand, and why. If there are some, the rest is not decided.
    pub(crate) refused: Vec<(NodeId, String)>,
    /// Notes for people, also about nodes that run elsewhere.
    pub(crate) notes: Vec<(NodeId, String)>,
    /// A node that makes the request wrong, and why.
    pub(crate) wrong: Option<(NodeId, ParamError)>,
    /// Programs that the kernel is asked about first.
    pub(super) tries: Vec<Try>,
}

/// A source to open.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) ways: Vec<Way>,
    /// Its reading. The error is one of the device, for people who run the request.
    pub(super) reads: Result<Reads, CaptureError>,
    /// The source of the running plan that reads the same, and goes on.
    pub(super) running: Option<usize>,
}

/// Programs that the kernel may refuse for a node.
pub(super) struct Try {
    pub(super) id: NodeId,
    pub(super) way: Way,
    pub(super) programs: Vec<Program>,
    pub(super) link_type: u16,
    /// The reading that is not possible without them. `None`: then the node cannot run here.
    pub(super) reads: Option<Reads>,
}

/// Cuts a plan.
pub(crate) fn cut(plan: &Plan, known: &Known) -> Cut {
    let above = plan.sources_of();
    let shapes = [KERNEL, DAEMON].map(|space| Shape::of(space, plan, &above));
    let mut cut = Cut { refused: shapes.iter().flat_map(|shape| shape.refused.clone()).collect(), ..Cut::default() };
    if !cut.refused.is_empty() {
        return cut;
    }
    let spaces: Vec<Below<'_>> = shapes.iter().map(|shape| Below::new(shape, plan, known, &mut cut)).collect();
    if !cut.refused.is_empty() {
        return cut;
    }
    let mut budgets = Budgets(known.budgets.clone());
    let mut pre_filtering = BTreeMap::new();
    // The parser process has readers of its own.
    for to_shared in [true, false] {
        let mut taken = BTreeSet::new();
        // Nodes are activated from the last to the first.
        for id in (0..plan.nodes.len()).rev().map(|index| NodeId(index as u32)) {
            let Some(space) = spaces.iter().find(|space| space.shape.is_here(id)) else { continue };
            for leaving in space.leaving(id, to_shared) {
                match narrowest(&leaving, known, &mut budgets, &mut taken) {
                    Ok((reads, running, this)) => {
                        let least = pre_filtering.entry((id, to_shared)).or_insert(this);
                        *least = this.max(*least);
                        cut.add(id, Source { ways: leaving.ways, reads: Ok(reads), running }, to_shared, known);
                    }
                    Err(Why::CaptureError(error)) if error.kind != CaptureErrorKind::Cannot => {
                        // A missing device is reported when it is opened.
                        let source = Source { ways: leaving.ways, reads: Err(error), running: None };
                        cut.add(id, source, to_shared, known);
                    }
                    Err(Why::CaptureError(error)) => {
                        cut.refused.push((id, format!("it runs in the reader: {}", error.text)));
                    }
                    Err(Why::Opened(error)) if leaving.ways.iter().all(Way::is_device) => {
                        // A missing device is an error in any space.
                        cut.wrong.get_or_insert((id, error.into()));
                    }
                    Err(Why::Opened(error)) => cut.refused.push((id, format!("{REFUSED}{}", error.text))),
                    Err(Why::Param(error)) => drop(cut.wrong.get_or_insert((id, error))),
                }
            }
        }
    }
    for space in &spaces {
        cut.notes.extend(space.notes(&pre_filtering));
    }
    cut
}

impl Cut {
    /// Adds a source of this process, and of the parser process only what the kernel is to be asked for it.
    fn add(&mut self, id: NodeId, source: Source, to_shared: bool, known: &Known) {
        if let ([way], Ok(reads @ Reads::Own { wanted: Some(programs), .. })) = (&source.ways[..], &source.reads) {
            let (way, programs, reads) = (way.clone(), programs.clone(), Some(reads.clone()));
            let link_type = way.link_type(known).unwrap_or(ETHERNET);
            self.tries.push(Try { id, way, programs, link_type, reads });
        }
        if !to_shared {
            self.sources.entry(id).or_default().push(source);
        }
    }
}

/// One of the spaces, with the ways to its nodes.
struct Below<'a> {
    shape: &'a Shape<'a>,
    plan: &'a Plan,
    known: &'a Known,
    /// For each node of the space: the ways to it from devices.
    ways: BTreeMap<NodeId, Vec<Way>>,
}

impl<'a> Below<'a> {
    /// Follows the ways to each node, and refuses nodes for which there is no program.
    fn new(shape: &'a Shape<'a>, plan: &'a Plan, known: &'a Known, cut: &mut Cut) -> Below<'a> {
        let mut below = Below { shape, plan, known, ways: BTreeMap::new() };
        for id in shape.ids() {
            let Some(ways) = shape.ways(id) else {
                cut.refused.push((id, format!("packets come to it by more than {WAYS} ways")));
                continue;
            };
            let ways: Vec<Way> = ways.iter().filter_map(|nodes| Way::of(plan, nodes)).collect();
            let tries: Result<Vec<Option<Try>>, String> = ways.iter().map(|way| below.to_try(id, way)).collect();
            match tries {
                Ok(tries) => cut.tries.extend(tries.into_iter().flatten()),
                Err(why) => cut.refused.push((id, why)),
            }
            below.ways.insert(id, ways);
        }
        below
    }

    /// The program of a way that the kernel is to be asked about. `None`: there is none. The error says why the node
    /// at the end of the way cannot run here.
    fn to_try(&self, id: NodeId, way: &Way) -> Result<Option<Try>, String> {
        if way.is_device() {
            return Ok(None);
        }
        let link_type = way.link_type(self.known).unwrap_or(ETHERNET);
        let lowered = way.lowered(self.known.compiler.as_ref(), link_type).map_err(|error| error.text)?;
        let program = Some(lowered).filter(|lowered| !lowered.chosen.is_empty());
        let Some(program) = program.and_then(|lowered| lowered.expression().program(Passes::Perhaps)) else {
            return Ok(None);
        };
        if let Some(DeviceAccess::Shared(shared)) = way.device.device {
            let (asked, _) = (shared.asked)(&way.params).map_err(|error| error.message)?;
            let length = program::to_cbpf(&program).len();
            if asked.mode == Mode::Tap && length > PROGRAM_INSTRUCTIONS {
                return Err(format!("the expression takes {length} instructions; at most {PROGRAM_INSTRUCTIONS}"));
            }
        }
        Ok(Some(Try { id, way: way.clone(), programs: vec![program], link_type, reads: None }))
    }

    /// The edges that leave the space at a node: to shared nodes, or to all others.
    fn edges(&self, id: NodeId, to_shared: bool) -> impl Iterator<Item = &'a Edge> + use<'_, 'a> {
        let leaving = self.plan.nodes[id.index()].edges.iter().filter(|edge| !self.shape.is_here(edge.to));
        leaving.filter(move |edge| (self.plan.nodes[edge.to.index()].space == PARSER) == to_shared)
    }

    /// What leaves this space at a node: an entry for each source.
    fn leaving(&self, id: NodeId, to_shared: bool) -> Vec<Leaving> {
        let forwards = matches!(&self.plan.nodes[id.index()].task, Task::Filter { kind, params } if forwards_to(kind, params).is_some());
        if self.edges(id, to_shared).next().is_none() && (to_shared || !forwards) {
            return Vec::new();
        }
        let behind = || self.edges(id, to_shared).map(|edge| Behind::of(self.plan, edge)).collect();
        let behind: Option<Vec<Behind>> = self.known.push_down.then(behind);
        let ways = self.ways.get(&id).cloned().unwrap_or_default();
        // Where packets are counted, one source counts the packets of all ways.
        if ways.iter().any(|way| way.counter().is_some()) {
            return vec![Leaving { ways, behind }];
        }
        ways.into_iter().map(|way| Leaving { ways: vec![way], behind: behind.clone() }).collect()
    }

    /// What people are told about the nodes here, and about those right above that get fewer packets.
    fn notes(&self, pre_filtering: &BTreeMap<(NodeId, bool), PreFiltering>) -> Vec<(NodeId, String)> {
        let mut notes = self.shape.notes.clone();
        for id in self.shape.ids() {
            if self.is_decided_above(id) {
                let note = "the reader decides about packets that the program cannot tell about";
                notes.push((id, note.into()));
            }
            for to_shared in [true, false] {
                let this = pre_filtering.get(&(id, to_shared)).copied().unwrap_or(PreFiltering::Wanted);
                let Some(where_to) = self.left_out(id, to_shared, this) else { continue };
                let edges: Vec<&Edge> = self.edges(id, to_shared).collect();
                let what =
                    if edges.len() > 1 { "packets that no branch can use" } else { "packets it certainly cannot use" };
                let note = match this {
                    PreFiltering::Wanted => format!("{what} {where_to}"),
                    PreFiltering::Roughly => format!("some {what} {where_to}: its budget has no room for more"),
                    PreFiltering::None => "it gets all packets: the kernel's budget has no room for more".into(),
                };
                notes.extend(edges.iter().map(|edge| (edge.to, note.clone())));
            }
        }
        notes
    }

    /// Whether there is something about this node that only its reader can tell.
    fn is_decided_above(&self, id: NodeId) -> bool {
        let is_exact = |expression: Expression| expression.is_exact();
        let selection = selection(self.plan, id).filter(Selection::is_typed);
        selection.is_some_and(|one| !one.expression(self.known.compiler.as_ref(), ETHERNET).is_ok_and(is_exact))
    }

    /// What happens to packets that no filter behind the edges that leave here can want. `None`: they come up.
    fn left_out(&self, id: NodeId, to_shared: bool, this: PreFiltering) -> Option<String> {
        let behind: Vec<Behind> = self.edges(id, to_shared).map(|edge| Behind::of(self.plan, edge)).collect();
        if behind.is_empty() || !self.known.push_down {
            return None;
        }
        let mut said = None;
        let leaving = Leaving { ways: Vec::new(), behind: Some(behind) };
        for way in &self.ways[&id] {
            let link_type = way.link_type(self.known).unwrap_or(ETHERNET);
            let lowered = way.lowered(self.known.compiler.as_ref(), link_type).ok()?;
            let is_taken = way.device.takes_away(&way.params);
            if lowered.sample > 1 || lowered.counts {
                return None;
            }
            let wanted = leaving.wanted(is_taken, self.known, way, link_type)?;
            if is_own(way.device) {
                // Without all of its programs its socket has none.
                lowering::programs(&lowered.expression(), Some(&wanted)).filter(|_| this == PreFiltering::Wanted)?;
            } else {
                lowering::program(&lowered.expression(), Some(&wanted), Passes::Perhaps)?;
            }
            said = Some(match is_taken {
                true => "are left to the host".into(),
                false => format!("are filtered in the {}", self.shape.space()),
            });
        }
        said
    }
}

/// How a source reads that leaves out as much as it can. Gives the running source that reads the same, and how much
/// is left out.
fn narrowest(
    leaving: &Leaving,
    known: &Known,
    budgets: &mut Budgets,
    taken: &mut BTreeSet<usize>,
) -> Result<(Reads, Option<usize>, PreFiltering), Why> {
    let mut refused: Option<(Reads, Why)> = None;
    for pre_filtering in [PreFiltering::Wanted, PreFiltering::Roughly, PreFiltering::None] {
        let reads = leaving.reads(known, pre_filtering)?;
        if refused.as_ref().is_some_and(|(before, _)| *before == reads) {
            continue;
        }
        let mut running = known.running.iter().filter(|source| source.reads == reads);
        if let Some(source) = running.find(|source| !taken.contains(&source.node)) {
            taken.insert(source.node);
            return Ok((reads, Some(source.node), pre_filtering));
        }
        let why = match known.why_not(&reads) {
            Some(why) => Why::Opened(why.clone()),
            None => match budgets.take(&reads) {
                Ok(()) => return Ok((reads, None, pre_filtering)),
                Err(error) if error.kind != CaptureErrorKind::Cannot => return Err(error.into()),
                Err(error) => error.into(),
            },
        };
        refused = Some((reads, why));
    }
    Err(refused.map_or_else(|| nothing_comes().into(), |(_, why)| why))
}

/// The room that is left for the user's expressions on each device. `None`: no limit.
struct Budgets(BTreeMap<String, Option<Budget>>);

impl Budgets {
    /// Takes the costs of all readers of a source, or nothing when they do not fit.
    fn take(&mut self, reads: &Reads) -> Result<(), CaptureError> {
        let mut left = self.0.clone();
        // The kernel must choose the packets that are taken from the host, so the reader cannot. Opening reports an
        // expression that does not fit.
        for asked in reads.all_asked().into_iter().filter(|asked| asked.mode == Mode::Tap) {
            if let Some(Some(budget)) = left.get_mut(&asked.device) {
                budget.take(&asked.device, cost(asked)?)?;
            }
        }
        self.0 = left;
        Ok(())
    }
}

fn cost(asked: &CaptureRequest) -> Result<u32, CaptureError> {
    let program = match asked.program.as_slice() {
        [] => None,
        program => {
            let lowered = program::from_cbpf(program);
            Some(lowered.map_err(|error| CaptureError::new(CaptureErrorKind::Request, error.to_string()))?)
        }
    };
    Ok(kernel::cost(program.as_ref(), asked.sample))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;
    use crate::devices::Place;
    use std::sync::Arc;

    fn plan(request: &str) -> Plan {
        let session = Session::new().devices_at(Place::Here);
        session.design(request, &BTreeMap::new()).unwrap_or_else(|error| panic!("{request}: {error}")).plan
    }

    fn known() -> Known {
        Known::new(Arc::new(testkit::Compiler::new()), true, &[])
    }

    fn reads(plan: &Plan, known: &Known) -> Result<Reads, ParamError> {
        let cut = cut(plan, known);
        assert_eq!((cut.refused, cut.sources.len()), (Vec::new(), usize::from(cut.wrong.is_none())));
        match cut.wrong {
            Some((_, error)) => Err(error),
            None => Ok(cut.sources[&NodeId(0)][0].reads.clone().unwrap()),
        }
    }

    fn program_len(reads: &Reads) -> usize {
        reads.all_asked().iter().map(|asked| asked.program.len()).sum()
    }

    #[test]
    fn what_cannot_be_opened_is_read_otherwise_and_at_last_not_at_all() {
        let (plan, mut known) = (plan("ethernet lo | http | inspect"), known());
        let mut lens = Vec::new();
        let error = loop {
            match reads(&plan, &known) {
                Ok(reads) => {
                    lens.push(program_len(&reads));
                    assert!(known.cannot_read(reads, lowering::cannot("there is no room")));
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.message, "there is no room");
        assert!((2..=3).contains(&lens.len()) && lens.is_sorted_by(|a, b| a > b) && lens.ends_with(&[0]), "{lens:?}");
    }

    #[test]
    fn a_budget_that_is_known_leaves_out_less() {
        let (plan, mut known) = (plan("ethernet lo | http | inspect"), known());
        let all = program_len(&reads(&plan, &known).unwrap());
        known.budgets.insert("lo".into(), Some(Budget::new(1, 0)));
        assert_eq!((all > 0, program_len(&reads(&plan, &known).unwrap())), (true, 0));
    }
}
