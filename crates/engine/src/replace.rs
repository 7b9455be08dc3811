//! Another plan in place of the one that runs, between two batches: what both have in common goes on with its state, what
//! only the old one has is finished, what only the new one has begins.
//!
//! Nothing here can fail: whoever hands a replacement over has prepared all of it. First the sources that end are told where
//! ([`Source::end_before`]); the old plan runs on until they have come to it, which is at
//! once, for what they are still to give is there already. Then, between two batches, retired filters are finished from
//! the sources down, through the edges they had, and the nodes that stay move over.
//!
//! In: a [`Replacement`]. Out: the same worker with other nodes, and the [`Report`](crate::Report) of the plan that was.

use crate::plan::Plan;
use crate::walk::Arrow;
use crate::worker::{Node, Runner, Shape, SourceClock, Worker, add_recycles};
use base::limits::REPLACED_REPORTS;
use filter::run::Instance;
use filter::{Counters, Source};
use std::sync::mpsc::SyncSender;

/// Where a node of the new plan comes from.
pub enum Part {
    /// It begins; choices have no instance.
    New(Option<Instance>),
    /// It is this node of the running plan, and goes on.
    Kept(usize),
    /// It is this sink of the running plan, and goes on; its blocks come from other filters from now on.
    Restarts(usize),
    /// It is this source of the running plan, and its blocks come from another instance from now on.
    Goes(usize, Instance),
}

impl Part {
    /// The node of the running plan that it is.
    fn of(&self) -> Option<usize> {
        match self {
            Part::New(_) => None,
            Part::Kept(node) | Part::Restarts(node) | Part::Goes(node, _) => Some(*node),
        }
    }
}

/// Sources of one device, some of the running plan and some of the new one, that take turns at one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// Sources of the running plan: they give what is before that packet.
    pub from: Vec<usize>,
    /// Nodes of the new plan: they give what comes from there on.
    pub to: Vec<usize>,
    /// The first packet from which on none of these misses any that it wants.
    pub first: u64,
}

/// A plan that takes the running one's place.
pub struct Replacement {
    /// The plan.
    pub plan: Plan,
    /// By node of it. Nodes that are kept have the same nodes above them, which are kept as well.
    pub parts: Vec<Part>,
    /// Sources that take over from others of the same device.
    pub hand_overs: Vec<HandOver>,
    /// Told once it has taken the other's place; dropped where the run ends before.
    pub done: SyncSender<()>,
}

impl Worker {
    /// Has this plan take the place of the running one as soon as the sources that end have given what is theirs. To be
    /// called between batches; one that waits already is given up.
    ///
    /// # Panics
    /// When the parts do not fit the plan: the caller made both. When one of both plans has several stages.
    pub fn replace(&mut self, mut replacement: Replacement) {
        assert!(self.team.is_none(), "only a plan of one stage is replaced");
        assert_eq!(replacement.plan.nodes.len(), replacement.parts.len(), "one part for each node");
        let goes_on = |at: usize| replacement.parts.iter().any(|part| matches!(part, Part::Kept(node) if *node == at));
        let mut ending: Vec<usize> = self.sources.iter().copied().filter(|at| !goes_on(*at)).collect();
        for HandOver { from, to, first } in &replacement.hand_overs {
            // What was given already is not given again, and what was not, is.
            let given = from.iter().filter_map(|at| self.source(*at)?.position()).max();
            let number = given.map_or(*first, |given| given.max(*first));
            for at in from {
                ending.retain(|other| other != at);
                let goes_on = self.source(*at).is_some_and(|source| source.end_before(number));
                self.nodes[*at].ended |= !goes_on;
            }
            for at in to {
                if let Part::New(Some(Instance::Source(source))) | Part::Goes(_, Instance::Source(source)) =
                    &mut replacement.parts[*at]
                {
                    source.begin_at(number);
                }
            }
        }
        for at in ending {
            let goes_on = self.source(at).is_some_and(|source| source.stop());
            self.nodes[at].ended |= !goes_on;
        }
        self.next = Some(replacement);
    }

    fn source(&mut self, at: usize) -> Option<&mut Box<dyn Source>> {
        match &mut self.nodes.get_mut(at)?.runner {
            Runner::Source(source) => Some(source),
            _ => None,
        }
    }

    /// How many plans took the place of another so far.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Sources that will give nothing any more, by node.
    pub fn ended(&self) -> Vec<usize> {
        self.sources.iter().copied().filter(|at| self.nodes[*at].ended).collect()
    }

    /// Takes the reports of plans that were replaced since the last call, [`REPLACED_REPORTS`] at most.
    pub fn take_replaced_reports(&mut self) -> Vec<crate::Report> {
        std::mem::take(&mut self.past)
    }

    /// Is there a plan that can take the running one's place now?
    pub(crate) fn can_switch(&self) -> bool {
        let Some(next) = &self.next else { return false };
        let goes_on = |at: usize| next.parts.iter().any(|part| matches!(part, Part::Kept(node) if *node == at));
        let has_ended = |at: usize| self.nodes[at].ended || !self.nodes[at].wanted;
        self.sources.iter().all(|at| has_ended(*at) || goes_on(*at))
    }

    /// Lets the next plan take the running one's place.
    pub(crate) fn switch(&mut self) {
        let Some(Replacement { plan, parts, done, .. }) = self.next.take() else { return };
        // By node of the running plan: where it goes on.
        let mut moved: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut goes = vec![false; self.nodes.len()];
        let mut restarts = vec![false; self.nodes.len()];
        for (new, part) in parts.iter().enumerate() {
            if let Some(old) = part.of() {
                moved[old] = Some(new);
                goes[old] = matches!(part, Part::Goes(..));
                restarts[old] = matches!(part, Part::Restarts(_));
            }
        }
        for old in 0..self.nodes.len() {
            // A source that goes on otherwise closes its books, and no more.
            if moved[old].is_none() || goes[old] {
                self.finish_node(old);
            } else if restarts[old] {
                self.restart_node(old);
            } else {
                self.account_for(old);
            }
        }
        self.shared.streams.sweep();
        let report = self.report();
        debug_assert_eq!(report.check(), Ok(()));
        if self.past.len() < REPLACED_REPORTS {
            self.past.push(report);
        }

        let shape = Shape::of(&plan);
        let mut running: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        let mut clocks = vec![SourceClock::default(); parts.len()];
        let edges_before: Vec<Vec<(bool, Arrow)>> = running.iter_mut().map(|node| edges_of(node.as_mut())).collect();
        // By node of the running plan and edge there: which edge it has become.
        let mut edges_moved: Vec<Vec<Option<usize>>> =
            edges_before.iter().map(|edges| vec![None; edges.len()]).collect();
        for (new, (planned, part)) in plan.nodes.iter().zip(parts).enumerate() {
            let old = part.of();
            let mut node = match part {
                Part::New(instance) => Node::new(planned, instance, &mut self.shared.rings),
                Part::Kept(old) => running[old].take().expect("a node goes on in one place"),
                Part::Restarts(old) => {
                    // It counts from here on, as the edges do that lead to it.
                    let mut node = running[old].take().expect("a node goes on in one place");
                    node.counters = Counters::default();
                    node
                }
                Part::Goes(old, instance) => {
                    let mut node = running[old].take().expect("a node goes on in one place");
                    (node.runner, node.ended) = (Runner::new(instance), false);
                    node
                }
            };
            (node.operand, node.exclusive) = (shape.operands[new], shape.exclusive[new]);
            if let Some(old) = old {
                clocks[new] = self.clocks[old];
                node.rename(planned);
                (node.edges, node.rejects) = (Vec::new(), Vec::new());
                for (place, edge) in planned.edges.iter().enumerate() {
                    let is_same = |(rejected, arrow): &&(bool, Arrow)| {
                        let goes_there = moved[arrow.to] == Some(edge.to.index());
                        goes_there && !restarts[arrow.to] && arrow.select == edge.select && *rejected == edge.rejected
                    };
                    let given = if edge.rejected { node.counters.blocks_rejected } else { node.counters.blocks_out() };
                    let mut arrow = Arrow::new(edge, place, given);
                    if let Some((_, before)) = edges_before[old].iter().find(is_same) {
                        (arrow.blocks, arrow.refused, arrow.before) = (before.blocks, before.refused, before.before);
                        edges_moved[old][before.place] = Some(place);
                    }
                    node.lay(edge.rejected, arrow);
                }
            }
            self.nodes.push(node);
        }
        add_recycles(&mut self.nodes);
        // What is left is retired: its blocks are through, but for those that somebody holds.
        for node in running.into_iter().flatten() {
            self.shared.rings.retire(node.recycles[0]);
        }
        self.shared.rings.recycle_held();
        self.clocks = clocks;
        self.sources = self.source_nodes();
        self.wait = plan.wait;
        self.reckon_wanted();
        self.next_wake = self.nodes.iter().map(|node| node.wake).min().unwrap_or(u64::MAX);
        self.move_watches(&moved, &edges_moved);
        self.replaced += 1;
        // Whoever asked may have gone.
        let _ = done.send(());
    }
}

/// A node's edges, and whether what it rejects goes along them.
fn edges_of(node: Option<&mut Node>) -> Vec<(bool, Arrow)> {
    let Some(node) = node else { return Vec::new() };
    let (edges, rejects) = (std::mem::take(&mut node.edges), std::mem::take(&mut node.rejects));
    edges.into_iter().map(|arrow| (false, arrow)).chain(rejects.into_iter().map(|arrow| (true, arrow))).collect()
}
