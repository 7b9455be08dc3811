//! Replaces a running request by another: decides what goes on, what is new, and which sources hand over to which.

use super::placing::Carried;
use super::{Error, Session};
use crate::app_space::{AppSpace, Taken};
use crate::isolate;
use crate::left::{Left, Opened};
use crate::live::{Reads, RunningSource, hands_over};
use crate::parser::client::Client;
use crate::parser::prefix;
use crate::parser::space::ParserSpace;
use crate::rest::Rest;
use crate::running::edges::EdgeNames;
use crate::space::PARSER;
use capture::CaptureRequest;
use control::difference::Difference;
use control::{Design, checked};
use engine::profile::tell;
use engine::{Edge, HandOver, NodeId, Part, Plan, stages_fit};
use filter::run::Instance;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Weak;

pub(crate) struct PreparedChange {
    pub(crate) running: RunningPlan,
    /// The connection to the parser process.
    pub(crate) joined: Weak<Client>,
    pub(crate) edges: EdgeNames,
    pub(crate) rest: Plan,
    pub(crate) parts: Vec<Part>,
    pub(crate) copies: Vec<Vec<Option<Instance>>>,
    pub(crate) hand_overs: Vec<HandOver>,
}

/// Everything about a running plan that replacing it takes.
#[derive(Clone, Debug)]
pub struct RunningPlan {
    /// The design, as it is carried out.
    pub design: Design,
    /// For each node of the worker: the node of the design whose blocks it gives.
    pub(crate) origins: Vec<NodeId>,
    /// Its sources that read devices.
    sources: Vec<RunningSource>,
    rest: Plan,
}

impl RunningPlan {
    /// Describes a plan from its worker's nodes (`left`).
    pub(super) fn new(design: Design, origins: Vec<NodeId>, left: &[Left], rest: Plan) -> RunningPlan {
        let source = |(node, left): (usize, &Left)| match left {
            Left::Source { reads, .. } => Some(RunningSource { node, reads: reads.clone() }),
            Left::Node(_) | Left::Given(..) => None,
        };
        let sources = left.iter().enumerate().filter_map(source).collect();
        RunningPlan { design, origins, sources, rest }
    }

    /// The shared prefixes that it reads and may go on reading: for each, the nodes of the worker that give it.
    fn inlets(&self, ended: &[usize]) -> BTreeMap<String, Vec<usize>> {
        let prefixes = prefix::prefixes(&self.design);
        let mut inlets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (node, origin) in self.origins.iter().enumerate() {
            let is_shared = self.design.plan.nodes[origin.index()].space == PARSER;
            if let Some(prefix) = prefixes[origin.index()].as_ref().filter(|_| is_shared && !ended.contains(&node)) {
                inlets.entry(prefix.text.clone()).or_default().push(node);
            }
        }
        inlets
    }

    fn prefixes_here(&self) -> BTreeSet<String> {
        let nodes = self.design.plan.nodes.iter().zip(prefix::prefixes(&self.design));
        nodes.filter(|(node, _)| node.space != PARSER).filter_map(|(_, prefix)| Some(prefix?.text)).collect()
    }
}

impl Session {
    /// Prepares a request to replace the running one. It opens all it needs besides, or leaves all closed; the running
    /// request is unchanged either way. `ended` are sources of its worker that have ended and cannot go on.
    pub(crate) fn prepare_change(
        &self,
        source: &str,
        variables: &BTreeMap<String, String>,
        running: &RunningPlan,
        ended: &[usize],
    ) -> Result<PreparedChange, Error> {
        let (text, _) = self.parse_and_begin(source, variables)?;
        let sources: Vec<RunningSource> =
            running.sources.iter().filter(|source| !ended.contains(&source.node)).cloned().collect();
        let graph = checked(&text, &self.registry)?;
        if running.design.plan.nodes.iter().any(|node| node.how.isolate) {
            return Err(Error::Input("a request with `isolate=yes` cannot be replaced".into()));
        }
        let wants_to_share = self.wants_to_share(&graph);
        let mut joiner = self.joiner(&self.purpose(source));
        if wants_to_share {
            joiner = joiner.over(self.joined().upgrade());
        }
        let shared = wants_to_share
            .then(|| ParserSpace::new(Some(&mut joiner), self.nobody_to_share_with()).beside(running.inlets(ended)));
        let mut here = self.here(&graph, shared, &sources);
        // A request that shared nothing so far may begin to share now, with all its prefixes.
        if self.wants_to_share(&running.design.graph) {
            here.stay = running.prefixes_here();
        }
        let carried = here.carry_out(graph, Some(&running.design), &mut |design| {
            isolate::refuse(design, "a request that takes another's place starts no processes")?;
            // The running plan was divided into stages by the same costs.
            tell(&self.costs, &mut design.plan);
            Ok(())
        })?;
        let Carried { design, difference: Difference { kept, restarts }, mut app, rest } = carried;
        let Rest { plan: rest, left } = rest;
        let origins: Vec<_> = left.iter().map(Left::origin).collect();
        let edges = EdgeNames::new(&design, &rest, &origins);
        let plan = RunningPlan::new(design, origins, &left, rest.clone());
        let stays = stays(&left);
        let succession =
            Succession { old: running, sources: &sources, new: &plan, kept: &kept, restarts: &restarts, stays };
        let (parts, hand_overs) = succession.of(left, &mut app);
        succession.keeps_whole_prefixes(&rest, &parts)?;
        stages_fit(&running.rest, &rest, &parts).map_err(Error::System)?;
        let begins = |id: NodeId| matches!(parts[id.index()], Part::New(_));
        let copies = app.copies(&rest, &begins).map_err(|error| Error::System(error.message))?;
        Ok(PreparedChange { running: plan, joined: joiner.connection(), edges, rest, parts, copies, hand_overs })
    }

    /// Notes that the prepared request has replaced the running one.
    pub(crate) fn changed(&self, source: &str, joined: Weak<Client>) {
        if joined.strong_count() > 0 {
            *self.joined() = joined;
        }
        self.set_purpose(&self.purpose(source));
    }
}

/// Sources of the running worker that go on unchanged.
fn stays(left: &[Left]) -> HashSet<usize> {
    let running = |left: &Left| match left {
        Left::Source { source: Opened::Running(node), .. } | Left::Given(_, Opened::Running(node)) => Some(*node),
        _ => None,
    };
    left.iter().filter_map(running).collect()
}

/// Decides which nodes of a running worker become which nodes of another plan.
struct Succession<'a> {
    old: &'a RunningPlan,
    /// Sources of the old plan that read devices and may go on.
    sources: &'a [RunningSource],
    new: &'a RunningPlan,
    /// For each node of the new design: the same node of the old design, if there was one.
    kept: &'a [Option<NodeId>],
    /// For each node of the new design: it goes on, but other filters lead to it now.
    restarts: &'a [bool],
    /// Nodes of the old worker that go on as sources.
    stays: HashSet<usize>,
}

impl Succession<'_> {
    /// Gives the part for each node of the new worker, and which sources take over from which.
    fn of(&self, left: Vec<Left>, app: &mut AppSpace) -> (Vec<Part>, Vec<HandOver>) {
        let mut hand_overs: Vec<(usize, HandOver)> = Vec::new();
        let part = |(at, left)| match left {
            Left::Node(id) => match app.take(id) {
                Taken::New(instance) => Part::New(instance),
                Taken::Running(old) => {
                    let node = self.old.origins.iter().position(|origin| *origin == old);
                    let node = node.expect("what runs in this process is in the worker");
                    if self.restarts[id.index()] { Part::Restarts(node) } else { Part::Kept(node) }
                }
            },
            Left::Given(_, Opened::Running(node)) | Left::Source { source: Opened::Running(node), .. } => {
                Part::Kept(node)
            }
            Left::Given(origin, Opened::New(instance)) => self.part_of_new(origin, instance),
            Left::Source { origin, source: Opened::New(instance), reads, first } => {
                if let (Some(first), Reads::Packets(asked, ..)) = (first, &reads) {
                    self.hand_over(&mut hand_overs, at, first, asked);
                }
                self.part_of_new(origin, instance)
            }
        };
        let parts = left.into_iter().enumerate().map(part).collect();
        (parts, hand_overs.into_iter().map(|(_, hand_over)| hand_over).collect())
    }

    /// The part for a new source. If a node of the old worker gave the same blocks, the source takes its place.
    fn part_of_new(&self, origin: NodeId, instance: Instance) -> Part {
        let is_alone = self.new.origins.iter().filter(|one| **one == origin).count() == 1;
        match self.kept[origin.index()].and_then(|old| self.only(old)).filter(|_| is_alone) {
            Some(node) => Part::Goes(node, instance),
            None => Part::New(Some(instance)),
        }
    }

    /// The old worker's only node for this node of its design. `None`: there are several, or it goes on elsewhere.
    fn only(&self, id: NodeId) -> Option<usize> {
        let nodes = self.old.origins.iter().enumerate();
        let mut free = nodes.filter(|(node, origin)| **origin == id && !self.stays.contains(node));
        free.next().filter(|_| free.next().is_none()).map(|(node, _)| node)
    }

    /// Notes that node `to` of the new plan takes over from the ending sources of its device.
    fn hand_over(&self, all: &mut Vec<(usize, HandOver)>, to: usize, first: u64, asked: &CaptureRequest) {
        let of_device = || self.sources.iter().filter(|source| hands_over(&source.reads, asked));
        // The first source of a device stands for the device.
        let Some(device) = of_device().next().map(|source| source.node) else { return };
        let at = match all.iter().position(|(known, _)| *known == device) {
            Some(at) => at,
            None => {
                let from = of_device().map(|source| source.node).filter(|node| !self.stays.contains(node)).collect();
                all.push((device, HandOver { from, ..HandOver::default() }));
                all.len() - 1
            }
        };
        let (_, hand_over) = &mut all[at];
        hand_over.to.push(to);
        hand_over.first = hand_over.first.max(first);
    }

    /// Checks that a filter goes on only if all nodes before it go on. If a device's packets reach it by several paths,
    /// and one of them changes, its state cannot be split by path.
    fn keeps_whole_prefixes(&self, rest: &Plan, parts: &[Part]) -> Result<(), Error> {
        for (at, node) in rest.nodes.iter().enumerate() {
            let goes_on = match &parts[at] {
                Part::New(_) | Part::Restarts(_) => false,
                Part::Kept(old) | Part::Goes(old, _) => {
                    self.kept[self.new.origins[at].index()] == Some(self.old.origins[*old])
                }
            };
            let begins = |edge: &Edge| matches!(parts[edge.to.index()], Part::New(_) | Part::Restarts(_));
            if !goes_on && !node.edges.iter().all(begins) {
                let text = "the ways by which packets reach a filter that both requests have are different: this cannot be \
                            changed while it runs";
                return Err(Error::System(text.into()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::profile::Costs;
    use filter::Output;

    #[test]
    fn what_runs_goes_on_in_a_pipeline_that_was_cut_by_what_filters_cost() {
        let cost = |ns| engine::Cost { ns, gives: 1000, is_measured: true };
        let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/brotli.pcap");
        let text = format!("set workers=pipeline; pcap {capture} | tcp | http | match x | count | json");
        for dear in ["tcp", "http", "match x"] {
            let costs: Costs = [(dear.to_string(), cost(100_000))].into();
            let session = Session::with_output(Output::new(Box::new(std::io::sink()), false)).costs(costs);
            let job = session.prepare(&text, &BTreeMap::new()).unwrap();
            let change = session.prepare_change(&text, &BTreeMap::new(), &job.running, &[]).unwrap();
            let kept = change.parts.iter().filter(|part| matches!(part, Part::Kept(_))).count();
            assert_eq!(kept, change.parts.len(), "`{dear}` is dear");
        }
    }
}
