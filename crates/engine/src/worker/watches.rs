//! The watches of a worker: which nodes have them, and their end.

use super::Worker;
use crate::watch::{Edges, Watch};
use base::limits::WATCHES;
use buffer::Descriptor;
use filter::Batch;
use filter::batch::places;

impl Worker {
    pub(crate) fn watch_stage(&mut self, watch: Watch) -> bool {
        let has = |edges: &Edges| {
            let node = self.nodes.get(edges.from);
            node.is_some_and(|node| edges.edge.is_none_or(|edge| node.arrows().any(|(arrow, _)| arrow.place == edge)))
        };
        if !watch.edges().iter().all(has) {
            return false;
        }
        let slot = match self.watches.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.watches.len() < WATCHES => {
                self.watches.push(None);
                self.watches.len() - 1
            }
            None => return false,
        };
        for edges in watch.edges() {
            self.nodes[edges.from].watches |= 1 << slot;
        }
        self.watches[slot] = Some(watch);
        true
    }

    /// Copies blocks that node `from` gives or rejects, for its watchers.
    #[cold]
    #[inline(never)]
    pub(crate) fn show(&mut self, from: usize, batch: &Batch<'_>, rejected: bool) {
        for slot in places(self.nodes[from].watches) {
            let Some(watch) = self.watches[slot].as_mut() else { continue };
            let edge = watch.edges().iter().find(|edges| edges.from == from).and_then(|edges| edges.edge);
            let arrow = edge.and_then(|edge| self.nodes[from].arrows().find(|(arrow, _)| arrow.place == edge));
            // A watch without an edge copies the blocks that the node does not reject.
            if arrow.is_some_and(|(_, rejected)| rejected) != rejected {
                continue;
            }
            let select = arrow.and_then(|(arrow, _)| arrow.select.as_ref());
            let shared = (&self.shared.rings, &self.shared.streams);
            let accepts = |block: &Descriptor| select.is_none_or(|select| select.accepts(block.class));
            if !watch.copies().show(accepts, batch, shared) {
                self.forget_watch(slot);
            }
        }
    }

    /// Drops watches whose rings were removed, and greets new readers while no batch comes.
    pub fn tend_watches(&mut self) {
        for slot in 0..self.watches.len() {
            if self.watches[slot].as_mut().is_some_and(|watch| !watch.copies().greet()) {
                self.forget_watch(slot);
            }
        }
    }

    /// Moves the watches to the nodes' new places. A watch goes on if its edges still exist; else it ends.
    pub(crate) fn move_watches(&mut self, nodes: &[Option<usize>], edges: &[Vec<Option<usize>>]) {
        self.nodes.iter_mut().for_each(|node| node.watches = 0);
        for slot in 0..self.watches.len() {
            let Some(watch) = &mut self.watches[slot] else { continue };
            let places = watch.edges().iter().filter_map(|place| {
                let edge = match place.edge {
                    None => None,
                    Some(edge) => Some(edges[place.from][edge]?),
                };
                Some(Edges { from: nodes[place.from]?, edge })
            });
            watch.edges = places.collect();
            if watch.edges.is_empty() {
                self.watches[slot] = None;
                continue;
            }
            for place in watch.edges() {
                self.nodes[place.from].watches |= 1 << slot;
            }
        }
    }

    pub(crate) fn end_watches(&mut self) {
        (0..self.watches.len()).for_each(|slot| self.forget_watch(slot));
    }

    fn forget_watch(&mut self, slot: usize) {
        self.watches[slot] = None;
        self.nodes.iter_mut().for_each(|node| node.watches &= !(1 << slot));
    }
}
