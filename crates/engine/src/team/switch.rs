//! Replaces a plan that runs in stages, or by one that will: all stages stop at one block.
//!
//! 1. *stop*: the sources of the plan rest, and each stage sends a mark along its channels, behind its last block. A
//!    stage stops when it has the marks of all its channels. Then no channel has a block, and all stages are in the
//!    caller's thread.
//! 2. *retire*: the channels of the next plan are made; where that fails, the running plan goes on. The stages run once
//!    more. Ending sources give their last blocks, retired nodes are finished from the
//!    sources down, and all stages stop again.
//! 3. *assemble*: `team` makes the stages of the next plan. A stage goes on in the thread that had its nodes before,
//!    with rings, streams and clock. So nodes that go on must be divided into stages as before ([`stages_fit`]). A sink
//!    that restarts may move.
//!
//! If a stage ends meanwhile, the replacement is cancelled, and the other stages go on.

use super::{Before, Channels, Instances, Layout, Line, Team, needs_numbers};
use crate::gauge::Gauges;
use crate::node::Runner;
use crate::plan::{Choice, NodeId, Plan};
use crate::replacement::{Fate, Part, Replacement, Step, Switching};
use crate::stage::{Channel, Stage, Stages};
use crate::worker::Worker;
use base::atomic::StopFlag;
use filter::run::Instance;
use std::ops::Range;
use std::sync::Arc;

/// Checks that a plan can replace another one, as far as their stages go. The error says which filters they divide
/// differently.
pub fn stages_fit(old: &Plan, new: &Plan, parts: &[Part]) -> Result<(), String> {
    let (before, now) = (Stages::of(old), Stages::of(new));
    for (stage, from) in pair(&before, &now, new, parts)?.into_iter().enumerate() {
        let numbered = |from| needs_numbers(old, &before, from);
        // A channel that goes on has already given numbers to streams.
        if from.is_some_and(|from| !numbered(from)) && needs_numbers(new, &now, stage) {
            let mut nodes = now.stages[stage].nodes.iter().map(|id| id.index());
            let node = nodes.find(|node| matches!(parts[*node], Part::Kept(_))).unwrap_or_default();
            let label = &new.nodes[node].label;
            return Err(format!(
                "`{label}` goes on, and its thread cannot get streams from another place while it runs"
            ));
        }
    }
    Ok(())
}

fn pair(old: &Stages, new: &Stages, plan: &Plan, parts: &[Part]) -> Result<Vec<Option<usize>>, String> {
    // The old stage, and a node that goes on from it.
    let mut pairs: Vec<Option<(usize, usize)>> = vec![None; new.stages.len()];
    let label = |node: usize| plan.nodes[node].label.as_str();
    for (index, part) in parts.iter().enumerate() {
        let (Part::Kept(node) | Part::Goes(node, _)) = part else { continue };
        let (from, to) = (old.of_node(NodeId(*node as u32)), new.of_node(NodeId(index as u32)));
        let (before, now) = (&old.stages[from], &new.stages[to]);
        if before.threads != now.threads {
            let (label, before, now) = (label(index), before.threads, now.threads);
            return Err(format!("`{label}` goes on, and cannot move from {before} threads to {now} while it runs"));
        }
        if before.threads > 1 && before.division != now.division {
            let label = label(index);
            return Err(format!("`{label}` goes on, and its blocks cannot be divided otherwise while it runs"));
        }
        let other = pairs.iter().enumerate().find_map(|(stage, pair)| {
            let (known, at) = (*pair)?;
            ((known == from) != (stage == to)).then_some(at)
        });
        match other {
            Some(other) => {
                let (one, other) = (label(other), label(index));
                return Err(format!("`{one}` and `{other}` go on, and cannot be cut otherwise while they run"));
            }
            None => pairs[to] = Some((from, index)),
        }
    }
    Ok(pairs.into_iter().map(|pair| pair.map(|(stage, _)| stage)).collect())
}

impl Part {
    /// The instance of a node that begins.
    ///
    /// # Panics
    /// When the node goes on: then its stage does, too.
    pub(super) fn into_new(self) -> Option<Instance> {
        match self {
            Part::New(instance) => instance,
            Part::Kept(_) | Part::Restarts(_) | Part::Goes(..) => panic!("a node goes on in a stage that does"),
        }
    }
}

impl Before {
    /// The channel of the old plan that goes on as `channel`. A channel whose receiver has left does not: it may still
    /// hold blocks, and marks of this replacement.
    pub(super) fn line_of(&self, channel: &Channel, parts: &[Part]) -> Option<&Line> {
        let (Part::Kept(from) | Part::Goes(from, _)) = &parts[channel.from.1.index()] else { return None };
        let between = (self.pairs[channel.from.0]?, self.pairs[channel.to]?);
        let is_it =
            |line: &&Line| line.from.index() == *from && line.rejected == channel.rejected && line.between == between;
        let has_left = |line: &&Line| line.channels.iter().any(|(_, _, shared)| shared.has_left());
        self.layout.lines.iter().find(is_it).filter(|line| !has_left(line))
    }

    /// Whether this stage of the new plan goes on from one that numbers its streams itself.
    pub(super) fn numbers(&self, stage: usize) -> bool {
        let old = self.pairs[stage];
        self.layout.lines.iter().any(|line| Some(line.between.1) == old && line.renumber)
    }

    pub(super) fn parts_of(&mut self, part: Part, stage: &Range<usize>, goes_on: &[Option<usize>]) -> Vec<Part> {
        match part {
            Part::New(instance) => vec![Part::New(instance)],
            Part::Kept(old) => self.layout.places[old].iter().map(|(_, node)| Part::Kept(*node)).collect(),
            Part::Goes(old, instance) => vec![Part::Goes(self.layout.places[old][0].1, instance)],
            Part::Restarts(old) => {
                let (thread, node) = self.layout.places[old][0];
                if goes_on[stage.start] == Some(thread) {
                    return vec![Part::Restarts(node)];
                }
                let node = self.workers[thread].as_mut().map(|worker| &mut worker.nodes[node]);
                let node = node.expect("a stage goes on once its sinks have moved");
                // The node that stays behind is retired.
                let nothing = Runner::Choice(Arc::new(Choice::All(Vec::new())));
                match std::mem::replace(&mut node.runner, nothing) {
                    Runner::Filter(filter) => vec![Part::New(Some(Instance::Filter(filter)))],
                    _ => panic!("only a filter restarts"),
                }
            }
        }
    }
}

impl Team {
    fn alone(worker: &Worker) -> Team {
        let nodes = worker.nodes.len();
        let stages = vec![(Stage::single((0..nodes).map(|node| NodeId(node as u32)).collect()), 0..1)];
        let edges = worker.nodes.iter().enumerate().map(|(node, one)| {
            let count = one.arrows().count();
            (0..count).map(|edge| Instances { at: vec![(0, node, edge)], sends: Vec::new() }).collect()
        });
        let layout = Layout {
            stages,
            places: (0..nodes).map(|node| vec![(0, node)]).collect(),
            edges: edges.collect(),
            lines: Vec::new(),
            lasts: vec![Arc::default()],
        };
        Team {
            others: Vec::new(),
            running: Vec::new(),
            ends: vec![None],
            boards: Vec::new(),
            layout,
            halt: StopFlag::new(),
            switching: Arc::default(),
            gauges: Arc::new(Gauges::new(vec![(Vec::new(), 1)], Vec::new())),
            next: None,
        }
    }

    /// The first place of a node of the plan: thread, and index there.
    pub(crate) fn place(&self, node: usize) -> Option<(usize, usize)> {
        self.layout.places.get(node)?.first().copied()
    }

    pub(crate) fn other(&mut self, index: usize) -> Option<&mut Worker> {
        self.others.get_mut(index)?.as_mut()
    }

    fn worker<'a>(&'a self, first: &'a Worker, thread: usize) -> Option<&'a Worker> {
        match thread.checked_sub(1) {
            None => Some(first),
            Some(other) => self.others.get(other)?.as_ref(),
        }
    }

    /// Sources of the plan in stages that are here.
    pub(crate) fn plan_sources(&self, first: &Worker) -> Vec<usize> {
        let is_source = |node: &usize| {
            let (thread, at) = self.layout.places[*node][0];
            let worker = self.worker(first, thread);
            worker.is_some_and(|worker| matches!(worker.nodes[at].runner, Runner::Source(_)))
        };
        (0..self.layout.places.len()).filter(is_source).collect()
    }

    /// Those of them that have ended.
    pub(crate) fn ended(&self, first: &Worker) -> Vec<usize> {
        let has_ended = |node: &usize| {
            let (thread, at) = self.layout.places[*node][0];
            self.worker(first, thread).is_some_and(|worker| worker.nodes[at].ended)
        };
        self.plan_sources(first).into_iter().filter(has_ended).collect()
    }

    fn pair(&self, next: &Replacement) -> Vec<Option<usize>> {
        let stages = self.layout.stages.iter().map(|(stage, _)| stage.clone());
        let old = Stages { stages: stages.collect(), ..Stages::default() };
        let pairs = pair(&old, &Stages::of(&next.plan), &next.plan, &next.parts);
        pairs.unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Worker {
    /// Replaces the running plan, if one of both has several stages.
    pub(crate) fn replace_stages(&mut self, replacement: Replacement) {
        if self.team.is_none() {
            let team = Team::alone(self);
            self.switching = Some(Arc::clone(&team.switching));
            self.team = Some(Box::new(team));
        }
        let switching: &Switching = self.team.as_ref().map(|team| &team.switching).expect("it is there by now");
        // In the step *retire* it is too late for another one: `done` is dropped, which tells the asker.
        if switching.step() != Step::Retire {
            switching.set(Step::Stop);
            self.next = Some(replacement);
        }
    }

    /// All stages have stopped: lets them run on until retired nodes have given their last blocks.
    /// Where the channels of the next plan cannot be made, the running one goes on as it was.
    pub(super) fn retire_stages(&mut self, mut next: Replacement) {
        let Some(team) = &mut self.team else { return };
        let stages = Stages::of(&next.plan);
        let pairs = team.pair(&next);
        let before = Before { layout: std::mem::take(&mut team.layout), workers: Vec::new(), pairs };
        let made = Channels::new(&next.plan, &stages, Some(&before));
        let Before { layout, pairs, .. } = before;
        team.layout = layout;
        match made {
            Ok(channels) => team.next = Some(channels),
            Err(failure) => {
                team.switching.set(Step::Run);
                let _ = next.done.send(Err(failure.to_string()));
                return;
            }
        }
        self.end_sources(&mut next);
        let Some(team) = &mut self.team else { return };
        let mut workers: Vec<&mut Worker> = team.others.iter_mut().flatten().collect();
        for worker in &mut workers {
            worker.fates = vec![Fate::Retires; worker.nodes.len()];
        }
        self.fates = vec![Fate::Retires; self.nodes.len()];
        let mut set = |&(thread, node): &(usize, usize), fate: Fate| match thread.checked_sub(1) {
            None => self.fates[node] = fate,
            Some(other) => workers[other].fates[node] = fate,
        };
        for part in &next.parts {
            match part {
                Part::Kept(old) => team.layout.places[*old].iter().for_each(|place| set(place, Fate::GoesOn)),
                Part::Restarts(old) => team.layout.places[*old].iter().for_each(|place| set(place, Fate::Restarts)),
                Part::New(_) | Part::Goes(..) => {}
            }
        }
        let layout = std::mem::take(&mut team.layout);
        let before = Before { layout, workers: Vec::new(), pairs };
        for channel in &stages.channels {
            if let Some(line) = before.line_of(channel, &next.parts) {
                line.senders.iter().chain(&line.receivers).for_each(|place| set(place, Fate::GoesOn));
            }
        }
        team.layout = before.layout;
        team.switching.set(Step::Retire);
        self.next = Some(next);
    }

    /// All stages have stopped, and retired nodes are through: makes the team for the next plan.
    pub(super) fn switch_stages(&mut self, next: Replacement) {
        self.keep_report();
        let Some(mut team) = self.team.take() else { return };
        let channels = team.next.take().expect("retiring the stages made them");
        let pairs = team.pair(&next);
        let (past, replaced) = (std::mem::take(&mut self.past), self.replaced + 1);
        let mut notices = self.take_notices();
        notices.extend(team.take_notices());
        let empty = Worker::of_stage(&Plan::default(), Vec::new());
        let mut workers = vec![Some(std::mem::replace(self, empty))];
        workers.append(&mut team.others);
        let mut failures = Vec::new();
        for worker in workers.iter_mut().flatten() {
            failures.push((worker.failure.take(), worker.source_failure.take()));
        }
        let before = Before { layout: std::mem::take(&mut team.layout), workers, pairs };
        let Replacement { plan, parts, copies, done, .. } = next;
        *self = Team::assemble_beside(&plan, &Stages::of(&plan), parts, copies, channels, Some(before));
        (self.past, self.replaced, self.shared.notices) = (past, replaced, notices);
        for (failure, source) in failures {
            self.failure = self.failure.take().or(failure);
            self.source_failure = self.source_failure.take().or(source);
        }
        let _ = done.send(Ok(self.gauges()));
    }
}
