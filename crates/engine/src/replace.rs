//! Puts another plan in place of the running one, between two batches. Nodes of both plans go on with their state.
//! Nodes of the old plan alone are finished, and nodes of the new plan alone begin.
//!
//! This code cannot fail: the caller has prepared the whole replacement.
//! 1. The worker tells each source that ends where to end ([`Source::end_before`]).
//! 2. The old plan runs on until these sources have ended. They do so at once, because the rest of their packets is
//!    there already.
//! 3. Between two batches, the worker finishes the retired filters from the sources down, through the edges they had,
//!    and moves the nodes that stay.
//!
//! If one of both plans has several stages, `team/switch.rs` does the same for each of them.
//!
//! In: a [`Replacement`]. Out: the same worker with other nodes, and the [`Report`](crate::Report) of the old plan.

use crate::node::{Arrow, Node, Runner, add_recycles};
use crate::plan::Plan;
use crate::replacement::{Fate, HandOver, Part, Replacement};
use crate::shape::Shape;
use crate::source_clock::SourceClock;
use crate::stage::Stages;
use crate::worker::Worker;
use base::limits::REPLACED_REPORTS;
use filter::run::Instance;
use filter::{Counters, Source};

impl Worker {
    /// Replaces the running plan as soon as its ending sources have given their last packets. Call it between batches;
    /// it cancels an earlier replacement that still waits.
    ///
    /// # Panics
    /// When the parts do not fit the plan: the caller made both. See [`stages_fit`](crate::stages_fit).
    pub fn replace(&mut self, mut replacement: Replacement) {
        assert_eq!(replacement.plan.nodes.len(), replacement.parts.len(), "one part for each node");
        if self.team.is_some() || Stages::of(&replacement.plan).stages.len() > 1 {
            return self.replace_stages(replacement);
        }
        self.end_sources(&mut replacement);
        self.next = Some(replacement);
    }

    /// Tells each source of the running plan that does not go on where to end, and each source that takes over where to
    /// begin.
    pub(crate) fn end_sources(&mut self, replacement: &mut Replacement) {
        let goes_on = |at: usize| replacement.parts.iter().any(|part| matches!(part, Part::Kept(node) if *node == at));
        let mut ending: Vec<usize> = self.plan_sources().into_iter().filter(|at| !goes_on(*at)).collect();
        for HandOver { from, to, first } in &replacement.hand_overs {
            // Each packet is given once: the old sources give the packets before `number`, the new ones the rest.
            let given = from.iter().filter_map(|at| self.plan_source(*at)?.0.position()).max();
            let number = given.map_or(*first, |given| given.max(*first));
            for at in from {
                ending.retain(|other| other != at);
                if let Some((source, ended)) = self.plan_source(*at) {
                    *ended |= !source.end_before(number);
                }
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
            if let Some((source, ended)) = self.plan_source(at) {
                *ended |= !source.stop();
            }
        }
    }

    /// Sources of the plan, as its node indexes. Sources that read from other stages do not count.
    fn plan_sources(&self) -> Vec<usize> {
        self.team.as_ref().map_or_else(|| self.sources.clone(), |team| team.plan_sources(self))
    }

    /// A source of the plan, and its flag for having ended.
    fn plan_source(&mut self, at: usize) -> Option<(&mut Box<dyn Source>, &mut bool)> {
        let (thread, at) = self.team.as_ref().map_or(Some((0, at)), |team| team.place(at))?;
        let nodes = match thread.checked_sub(1) {
            None => &mut self.nodes,
            Some(other) => &mut self.team.as_mut()?.other(other)?.nodes,
        };
        let node = nodes.get_mut(at)?;
        match &mut node.runner {
            Runner::Source(source) => Some((source, &mut node.ended)),
            _ => None,
        }
    }

    pub(crate) fn source(&mut self, at: usize) -> Option<&mut Box<dyn Source>> {
        match &mut self.nodes.get_mut(at)?.runner {
            Runner::Source(source) => Some(source),
            _ => None,
        }
    }

    /// How many replacements there were so far.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Sources that have ended, as node indexes.
    pub fn ended(&self) -> Vec<usize> {
        if let Some(team) = &self.team {
            return team.ended(self);
        }
        self.sources.iter().copied().filter(|at| self.nodes[*at].ended).collect()
    }

    /// Takes the reports of plans that were replaced since the last call, at most [`REPLACED_REPORTS`].
    pub fn take_replaced_reports(&mut self) -> Vec<crate::Report> {
        std::mem::take(&mut self.past)
    }

    /// Whether there is a plan that can replace the running one now.
    pub(crate) fn can_switch(&self) -> bool {
        let Some(next) = self.next.as_ref().filter(|_| self.team.is_none()) else { return false };
        let goes_on = |at: usize| next.parts.iter().any(|part| matches!(part, Part::Kept(node) if *node == at));
        let has_ended = |at: usize| self.nodes[at].ended || !self.nodes[at].wanted;
        self.sources.iter().all(|at| has_ended(*at) || goes_on(*at))
    }

    /// Replaces the running plan by the next one.
    pub(crate) fn switch(&mut self) {
        let Some(Replacement { plan, parts, done, .. }) = self.next.take() else { return };
        self.fates = vec![Fate::Retires; self.nodes.len()];
        for part in &parts {
            match part {
                Part::Kept(old) => self.fates[*old] = Fate::GoesOn,
                Part::Restarts(old) => self.fates[*old] = Fate::Restarts,
                // `retire` finishes the old node.
                Part::Goes(..) | Part::New(_) => {}
            }
        }
        self.retire();
        self.keep_report();
        self.adopt(&plan, parts);
        self.replaced += 1;
        // The asker may have gone.
        let _ = done.send(Ok(None));
    }

    /// Finishes the retired nodes, which give their last blocks.
    pub(crate) fn retire(&mut self) {
        let order = self.shared.order;
        self.shared.order.sequence = u64::MAX;
        for old in 0..self.nodes.len() {
            (self.shared.order.node, self.shared.order.ends) = (old as u32, 0);
            match self.fates[old] {
                Fate::GoesOn => self.account_for(old),
                Fate::Restarts => self.restart_node(old),
                // The ends of channels go when their plan has gone.
                Fate::Retires if self.ends.contains(&old) => {}
                Fate::Retires => self.finish_node(old),
            }
        }
        self.shared.order = order;
        self.shared.streams.sweep();
    }

    /// Keeps the report of the running plan until the caller takes it.
    pub(crate) fn keep_report(&mut self) {
        let report = self.report();
        debug_assert_eq!(report.check(), Ok(()));
        if self.past.len() < REPLACED_REPORTS {
            self.past.push(report);
        }
    }

    /// Makes the worker run this plan. All nodes that do not go on have been retired.
    pub(crate) fn adopt(&mut self, plan: &Plan, parts: Vec<Part>) {
        // For each node of the running plan: its new index.
        let mut moved: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut restarts = vec![false; self.nodes.len()];
        for (new, part) in parts.iter().enumerate() {
            if let Some(old) = part.of() {
                moved[old] = Some(new);
                restarts[old] = matches!(part, Part::Restarts(_));
            }
        }
        let mut shape = Shape::of(plan);
        let mut running: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        let mut clocks = vec![SourceClock::default(); parts.len()];
        let edges_before: Vec<Vec<(bool, Arrow)>> = running.iter_mut().map(|node| edges_of(node.as_mut())).collect();
        // For each node of the running plan and each edge there: its new index.
        let mut edges_moved: Vec<Vec<Option<usize>>> =
            edges_before.iter().map(|edges| vec![None; edges.len()]).collect();
        for (new, (planned, part)) in plan.nodes.iter().zip(parts).enumerate() {
            let old = part.of();
            let mut node = match part {
                Part::New(instance) => Node::new(planned, instance, &mut self.shared.rings),
                Part::Kept(old) => running[old].take().expect("a node goes on in one place"),
                Part::Restarts(old) => {
                    // Counting starts at 0 here, as it does for the edges that lead to the node.
                    let mut node = running[old].take().expect("a node goes on in one place");
                    node.counters = Counters::default();
                    node
                }
                Part::Goes(old, instance) => {
                    let mut node = running[old].take().expect("a node goes on in one place");
                    (node.runner, node.ended, node.closed) = (Runner::new(instance), false, false);
                    node
                }
            };
            node.shape(&mut shape, new);
            if let Some(old) = old {
                clocks[new] = self.clocks[old];
                node.rename(planned);
                (node.edges, node.rejects) = (Vec::new(), Vec::new());
                for (place, edge) in planned.edges.iter().enumerate() {
                    let is_same = |(rejected, arrow): &&(bool, Arrow)| {
                        let goes_there = moved[arrow.to] == Some(edge.to.index());
                        goes_there && !restarts[arrow.to] && arrow.select == edge.select && *rejected == edge.rejected
                    };
                    let before = edges_before[old].iter().find(|(rejected, _)| *rejected == edge.rejected);
                    // A partition gives its blocks along one edge after the other, and counts them each time: an edge does not.
                    let given = match before {
                        Some((_, arrow)) => arrow.before + arrow.blocks + arrow.refused,
                        None if edge.rejected => node.counters.blocks_rejected,
                        None => node.counters.blocks_out(),
                    };
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
        // The nodes left over are retired. Their blocks are through, except held blocks.
        for mut node in running.into_iter().flatten() {
            if let Runner::Source(source) = &mut node.runner {
                source.forget(&mut self.shared.rings);
            }
            self.shared.rings.retire(node.recycles[0]);
        }
        self.shared.rings.recycle_held();
        self.clocks = clocks;
        self.sources = self.source_nodes();
        self.wait = plan.wait;
        self.reckon_wanted();
        self.next_wake = self.nodes.iter().map(|node| node.wake).min().unwrap_or(u64::MAX);
        self.move_watches(&moved, &edges_moved);
    }
}

/// A node's edges; `true`: it carries the rejected blocks.
fn edges_of(node: Option<&mut Node>) -> Vec<(bool, Arrow)> {
    let Some(node) = node else { return Vec::new() };
    let (edges, rejects) = (std::mem::take(&mut node.edges), std::mem::take(&mut node.rejects));
    edges.into_iter().map(|arrow| (false, arrow)).chain(rejects.into_iter().map(|arrow| (true, arrow))).collect()
}
