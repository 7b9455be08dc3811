//! The space `app`: filters run by function call in this process.
//!
//! In: steps of a transaction. Out: a [`Worker`] with everything that was prepared, connected and activated.

use crate::left::{Left, Opened};
use crate::space::{APP, Space};
use control::transaction::Step;
use control::{Offer, StepError};
use engine::profile::Meter;
use engine::{NodeId, Plan, Stages, Task, Worker};
use filter::run::Instance;
use filter::{Env, ParamError};
use std::collections::BTreeMap;

/// Its offer for every kind, since each has an implementation here: a function call, a few nanoseconds a block.
pub(crate) const OFFER: Offer = Offer { cost: 5 };

pub(crate) enum Taken {
    /// A newly prepared instance. `None`: the node is a choice, and choices have no instance.
    New(Option<Instance>),
    /// The node runs already: this is its id in the running plan.
    Running(NodeId),
}

pub(crate) struct AppSpace {
    env: Env,
    prepared: BTreeMap<NodeId, Option<Instance>>,
    /// Nodes that run already, by new id; the value is the id in the running plan.
    kept: BTreeMap<NodeId, NodeId>,
    edges: usize,
    active: usize,
}

impl AppSpace {
    pub(crate) fn new(env: Env) -> AppSpace {
        AppSpace { env, prepared: BTreeMap::new(), kept: BTreeMap::new(), edges: 0, active: 0 }
    }

    pub(crate) fn replace(&mut self, id: NodeId, instance: Instance) {
        self.prepared.insert(id, Some(instance));
    }

    /// Drops what was prepared for nodes that turned out to run elsewhere.
    pub(crate) fn give_away(&mut self, nodes: &[NodeId], plan: &Plan) {
        nodes.iter().for_each(|id| drop(self.prepared.remove(id)));
        self.active -= nodes.len();
        let edges = plan.nodes.iter().flat_map(|node| &node.edges);
        self.edges = self.edges.saturating_sub(edges.filter(|edge| nodes.contains(&edge.to)).count());
    }

    /// Makes the worker for the rest of a plan. Everything else of the plan runs elsewhere; its blocks come in through
    /// sources.
    ///
    /// `meters` is empty, or has one meter for each node and measures each instance.
    ///
    /// # Panics
    /// When a part of the rest was not carried out here.
    pub(crate) fn into_worker(mut self, rest: &Plan, left: Vec<Left>, meters: &[Meter]) -> Result<Worker, String> {
        let mine = left.iter().filter(|left| matches!(left, Left::Node(_))).count();
        let edges: usize = rest.nodes.iter().map(|node| node.edges.len()).sum();
        assert_eq!((self.active, self.edges <= edges), (mine, true), "everything is connected and active");
        let copies = self.copies(rest, &|_| true).map_err(|error| error.message)?;
        let instances = left.into_iter().map(|left| match left {
            Left::Node(id) => self.prepared.remove(&id).expect("every node was prepared"),
            Left::Given(_, source) | Left::Source { source, .. } => match source {
                Opened::New(instance) => Some(instance),
                Opened::Running(_) => panic!("nothing runs yet"),
            },
        });
        let cover = |instances: Vec<Option<Instance>>| -> Vec<Option<Instance>> {
            let covered = |(at, instance): (usize, Instance)| match meters.get(at) {
                Some(meter) => meter.cover(instance),
                None => instance,
            };
            instances.into_iter().enumerate().map(|(at, instance)| Some(covered((at, instance?)))).collect()
        };
        let copies = copies.into_iter().map(cover).collect();
        Worker::with_copies(rest, cover(instances.collect()), copies).map_err(|failure| failure.to_string())
    }

    /// Makes further instances of the nodes that begin, one set for each partition of the flows except the first.
    pub(crate) fn copies(
        &self,
        rest: &Plan,
        begins: &dyn Fn(NodeId) -> bool,
    ) -> Result<Vec<Vec<Option<Instance>>>, ParamError> {
        let stages = Stages::of(rest);
        let partitions = stages.stages.iter().map(|stage| stage.threads).max().unwrap_or(1);
        let copy = |_| {
            let mut copies: Vec<Option<Instance>> = rest.nodes.iter().map(|_| None).collect();
            for id in stages.stages.iter().filter(|stage| stage.threads > 1).flat_map(|stage| &stage.nodes) {
                let node = &rest.nodes[id.index()];
                if let Task::Filter { kind, params } = &node.task
                    && begins(*id)
                {
                    copies[id.index()] = Some((kind.make)(params, &Env { input: node.input, ..self.env.clone() })?);
                }
            }
            Ok(copies)
        };
        (1..partitions).map(copy).collect()
    }

    /// Takes what was prepared for this node of a plan, or says which node of the running plan it is.
    ///
    /// # Panics
    /// When a part of the plan was not carried out here.
    pub(crate) fn take(&mut self, id: NodeId) -> Taken {
        match self.kept.get(&id) {
            Some(running) => Taken::Running(*running),
            None => Taken::New(self.prepared.remove(&id).expect("every node that does not run was prepared")),
        }
    }
}

impl Space for AppSpace {
    fn name(&self) -> &'static str {
        APP
    }

    fn keep(&mut self, id: NodeId, running: NodeId) -> bool {
        self.kept.insert(id, running);
        true
    }

    fn carry(&mut self, step: &Step, plan: &Plan) -> Result<(), StepError> {
        match step {
            Step::Prepare(id) => {
                let node = &plan.nodes[id.index()];
                let made = match &node.task {
                    Task::Filter { kind, params } => {
                        Some((kind.make)(params, &Env { input: node.input, ..self.env.clone() }))
                    }
                    Task::Choose(_) => None,
                };
                let instance = made.transpose().map_err(|error| StepError { refused: false, error })?;
                self.prepared.insert(*id, instance);
            }
            Step::Connect(..) => self.edges += 1,
            Step::Activate(_) => self.active += 1,
        }
        Ok(())
    }

    fn undo(&mut self, step: &Step) {
        match step {
            Step::Prepare(id) => {
                self.prepared.remove(id);
                self.kept.remove(id);
            }
            Step::Connect(..) => self.edges -= 1,
            Step::Activate(_) => self.active -= 1,
        }
    }
}
