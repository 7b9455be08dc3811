//! Receive work: how long the thread worked for each flow. A batch is timed as a whole, and its time is split among its frames.

use crate::flows::{FlowId, Flows};
use base::limits::BATCH_BLOCKS;

/// The fixed cost of a frame, in bytes that could be copied instead.
const FRAME: u64 = 512;

/// The work of one batch.
#[derive(Debug)]
pub(crate) struct Work {
    shares: Vec<(Option<FlowId>, u64)>,
}

impl Default for Work {
    fn default() -> Work {
        Work { shares: Vec::with_capacity(BATCH_BLOCKS) }
    }
}

impl Work {
    /// A frame of `bytes` bytes is for this flow; none: for no flow.
    pub(crate) fn charge(&mut self, flow: Option<FlowId>, bytes: usize) {
        self.shares.push((flow, FRAME + bytes as u64));
    }

    /// Frames that were charged so far.
    pub(crate) fn charged(&self) -> usize {
        self.shares.len()
    }

    /// Splits the time of the batch. Gives back what belongs to no flow, ns.
    pub(crate) fn settle(&mut self, ns: u64, flows: &mut Flows) -> u64 {
        let total: u64 = self.shares.iter().map(|(_, weight)| weight).sum();
        let (mut before, mut given, mut unclaimed) = (0, 0, 0);
        for (flow, weight) in self.shares.drain(..) {
            // By running sums: what rounding takes from one frame the next one gets.
            before += weight;
            let until = (u128::from(ns) * u128::from(before) / u128::from(total.max(1))) as u64;
            let share = until - given;
            given = until;
            match flow.and_then(|id| flows.get_mut(id)) {
                Some(flow) => flow.receive_ns += share,
                None => unclaimed += share,
            }
        }
        unclaimed
    }
}
