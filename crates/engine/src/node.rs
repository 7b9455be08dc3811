//! A node of a running plan: its filter, its edges with their counters, and what is known of it from the whole plan.

use crate::plan::{Choice, Edge, Select, Task};
use crate::session::Sessions;
use crate::shape::Shape;
use crate::shared::Shared;
use crate::witness::Witness;
use buffer::{BlockTable, Descriptor, Interface, SegmentId, ViewId};
use filter::run::{AnySessionFilter, Instance};
use filter::{Batch, Counters, Filter, Gives, Marks, Parts, Source, Types, Wanted};
use std::sync::Arc;

pub(crate) struct Node {
    pub(crate) label: String,
    pub(crate) space: String,
    pub(crate) runner: Runner,
    /// Works on the batch itself; else it gives new blocks or is a sink.
    pub(crate) in_place: bool,
    /// A node below, or the filter itself, still wants blocks.
    pub(crate) wanted: bool,
    /// It is wanted, and no node wants its rejects.
    pub(crate) simple: bool,
    pub(crate) finished: bool,
    pub(crate) ended: bool,
    pub(crate) closed: bool,
    pub(crate) operand: bool,
    pub(crate) exclusive: bool,
    /// The fields and bodies that the filters behind it read.
    pub(crate) read_behind: Wanted,
    /// The same and everything else.
    pub(crate) read_watched: Wanted,
    /// Each block that it passes goes along one of its edges.
    pub(crate) splits: bool,
    pub(crate) writes: Parts,
    pub(crate) input: Types,
    pub(crate) writes_to: Option<String>,
    pub(crate) edges: Vec<Arrow>,
    pub(crate) rejects: Vec<Arrow>,
    /// The watches of its edges, one bit for each index in the worker's list.
    pub(crate) watches: u64,
    pub(crate) counters: Counters,
    pub(crate) marks: Marks,
    pub(crate) out: Vec<Descriptor>,
    /// For a partition: the runs of its input from which `out` came, with each run's end in it. See [`Source::runs`].
    pub(crate) runs: Vec<(usize, u64)>,
    pub(crate) own: ViewId,
    /// Rings whose memory is free when this node's blocks have gone through all nodes below: its own, and those of
    /// filters in place below it.
    pub(crate) recycles: Vec<SegmentId>,
    pub(crate) wake: u64,
}

pub(crate) enum Runner {
    Source(Box<dyn Source>),
    Filter(Box<dyn Filter>),
    Session(Box<dyn AnySessionFilter>, Sessions),
    Choice(Arc<Choice>),
}

#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) to: usize,
    /// Its index among its node's edges in the plan.
    pub(crate) place: usize,
    pub(crate) select: Option<Select>,
    pub(crate) blocks: u64,
    pub(crate) refused: u64,
    /// Blocks that its filter had given, or rejected, before this edge existed.
    pub(crate) before: u64,
}

impl Arrow {
    /// The edge `edge` with index `place`, of a filter that has given, or rejected, `before` blocks already.
    pub(crate) fn new(edge: &Edge, place: usize, before: u64) -> Arrow {
        Arrow { to: edge.to.index(), place, select: edge.select.clone(), blocks: 0, refused: 0, before }
    }

    /// Keeps the blocks that this edge takes, and counts.
    #[inline]
    pub(crate) fn admit(&mut self, batch: &mut Batch<'_>) {
        let before = batch.count();
        if let Some(select) = &self.select {
            batch.keep_if(|block| select.accepts(block.class));
        }
        self.blocks += u64::from(batch.count());
        self.refused += u64::from(before - batch.count());
    }
}

impl Node {
    /// Makes a node of a plan. The properties that follow from the whole plan are filled in later.
    ///
    /// # Panics
    /// When a filter has no instance.
    pub(crate) fn new(planned: &crate::plan::Node, instance: Option<Instance>, rings: &mut BlockTable) -> Node {
        let (runner, in_place, writes) = match (&planned.task, instance) {
            // Its operands state for themselves what they change.
            (Task::Choose(choice), _) => (Runner::Choice(Arc::new(choice.clone())), true, Parts::METADATA),
            (Task::Filter { kind, .. }, Some(instance)) => {
                let in_place = kind.gives == Gives::Same && !instance.gives_anew();
                (Runner::new(instance), in_place, kind.writes)
            }
            (Task::Filter { kind, .. }, None) => panic!("no instance of {}", kind.name),
        };
        let own_segment = rings.add_append_ring();
        let own = rings.add_view(own_segment, Interface::default()).expect("a plan has fewer nodes than rings");
        let mut node = Node {
            label: planned.label.clone(),
            space: planned.space.clone(),
            runner,
            in_place,
            wanted: true,
            simple: true,
            finished: false,
            ended: false,
            closed: false,
            operand: false,
            exclusive: true,
            read_behind: Wanted::none(),
            read_watched: Wanted::none(),
            splits: planned.task.splits(),
            writes,
            input: planned.input,
            writes_to: planned.writes_to().map(String::from),
            edges: Vec::new(),
            rejects: Vec::new(),
            watches: 0,
            counters: Counters::default(),
            marks: Marks::default(),
            out: Vec::new(),
            runs: Vec::new(),
            own,
            recycles: vec![own_segment],
            wake: u64::MAX,
        };
        for (place, edge) in planned.edges.iter().enumerate() {
            node.lay(edge.rejected, Arrow::new(edge, place, 0));
        }
        node
    }

    /// Sets the properties that follow from the whole plan, in which it is the node at `index`.
    pub(crate) fn shape(&mut self, shape: &mut Shape, index: usize) {
        (self.operand, self.exclusive) = (shape.operands[index], shape.exclusive[index]);
        self.read_behind = std::mem::replace(&mut shape.read_behind[index], Wanted::none());
        self.read_watched = Wanted::none();
        [&self.read_behind, Wanted::ALL].into_iter().for_each(|read| self.read_watched.add(read));
    }

    /// Adds an edge for the blocks that the node gives or, with `rejected`, for those that it rejects.
    pub(crate) fn lay(&mut self, rejected: bool, arrow: Arrow) {
        if rejected { &mut self.rejects } else { &mut self.edges }.push(arrow);
    }

    /// All edges; `true`: it carries the rejected blocks.
    pub(crate) fn arrows(&self) -> impl Iterator<Item = (&Arrow, bool)> {
        self.edges.iter().map(|arrow| (arrow, false)).chain(self.rejects.iter().map(|arrow| (arrow, true)))
    }

    /// In debug builds: checks that its filter changed only what its kind says.
    #[inline]
    pub(crate) fn check(&self, before: Option<Witness>, batch: &Batch<'_>, shared: &Shared) {
        if let Some(before) = before {
            before.check(batch, shared, self.writes, &self.label);
        }
    }

    /// Blocks that came in and were rejected or dropped.
    pub(crate) fn ended_otherwise(&self) -> u64 {
        self.counters.blocks_rejected + self.counters.drops.total()
    }

    /// Makes this node stand for node `planned` of another plan. Only names and the indexes of operands differ.
    pub(crate) fn rename(&mut self, planned: &crate::plan::Node) {
        self.label.clone_from(&planned.label);
        self.space.clone_from(&planned.space);
        if let Task::Choose(choice) = &planned.task {
            self.runner = Runner::Choice(Arc::new(choice.clone()));
        }
    }
}

impl Runner {
    pub(crate) fn new(instance: Instance) -> Runner {
        match instance {
            Instance::Source(source) => Runner::Source(source),
            Instance::Filter(filter) => Runner::Filter(filter),
            Instance::Session(key, filter) | Instance::SessionAnew(key, filter) => {
                Runner::Session(filter, Sessions::new(key))
            }
        }
    }
}

/// Lists for each node that gives blocks its own ring first. Then come the rings of the filters in place that its blocks
/// pass before another filter makes new blocks of them.
pub(crate) fn add_recycles(nodes: &mut [Node]) {
    nodes.iter_mut().for_each(|node| node.recycles.truncate(1));
    for index in 0..nodes.len() {
        if nodes[index].in_place {
            continue;
        }
        let mut seen = vec![false; nodes.len()];
        let mut next: Vec<usize> = nodes[index].edges.iter().map(|edge| edge.to).collect();
        while let Some(at) = next.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            // Its rejects are still blocks of the same node.
            next.extend(nodes[at].rejects.iter().map(|edge| edge.to));
            if nodes[at].in_place {
                next.extend(nodes[at].edges.iter().map(|edge| edge.to));
                let own = nodes[at].recycles.clone();
                nodes[index].recycles.extend(own);
            }
        }
    }
}
