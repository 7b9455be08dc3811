//! Receive work: how long the thread worked for each flow. A batch is timed as a whole, and its time is split among its frames.

use crate::flow_id::FlowId;
use crate::flows::Flows;
use crate::overload::Overload;
use base::limits::BATCH_BLOCKS;
use std::net::SocketAddr;
use std::time::Instant;

/// The fixed cost of a frame, in bytes that could be copied instead.
const FRAME: u64 = 512;

/// Where a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The device received it.
    Device,
    /// This host sent it to itself.
    Own,
}

/// What a frame is charged to.
#[derive(Clone, Copy, Debug)]
enum Payer {
    Nobody,
    Flow(FlowId),
    Listener(SocketAddr),
}

/// The work of one batch.
#[derive(Debug)]
pub(crate) struct Work {
    charges: Vec<(Payer, u64)>,
    /// A test's own time: ns for each byte of cost, and the sum so far; none: the time that passes.
    #[cfg(test)]
    pub(crate) simulated: Option<(u64, u64)>,
}

impl Default for Work {
    fn default() -> Work {
        Work {
            charges: Vec::with_capacity(BATCH_BLOCKS),
            #[cfg(test)]
            simulated: None,
        }
    }
}

impl Work {
    /// A frame is for this flow (none: for no flow), and `bytes` bytes of it were looked at or copied.
    pub(crate) fn charge(&mut self, flow: Option<FlowId>, bytes: usize) {
        self.charges.push((flow.map_or(Payer::Nobody, Payer::Flow), FRAME + bytes as u64));
    }

    /// A frame is for the listener of this address and port, and so is work for it that cost as much as to copy `bytes` bytes.
    pub(crate) fn charge_listener(&mut self, local: SocketAddr, bytes: usize) {
        self.charges.push((Payer::Listener(local), FRAME + bytes as u64));
    }

    /// Frames that were charged so far.
    pub(crate) fn charged(&self) -> usize {
        self.charges.len()
    }

    /// Time since `begun`, ns.
    pub(crate) fn since(&self, begun: Instant) -> u64 {
        #[cfg(test)]
        if let Some((ns, _)) = self.simulated {
            return ns * self.weight();
        }
        u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The cost of all frames that were charged so far, in bytes.
    fn weight(&self) -> u64 {
        self.charges.iter().map(|(_, weight)| weight).sum()
    }

    /// Splits the time since `begun` among the frames, and tells the limit of receive work. None: the frames are outside of this limit.
    /// Gives back the time of frames for no flow, ns.
    pub(crate) fn settle(&mut self, begun: Instant, flows: &mut Flows, mut overload: Option<&mut Overload>) -> u64 {
        let (total, ns) = (self.weight(), self.since(begun));
        #[cfg(test)]
        if let Some((_, sum)) = &mut self.simulated {
            *sum += ns;
        }
        let (mut before, mut given, mut unclaimed) = (0, 0, 0);
        for (payer, weight) in self.charges.drain(..) {
            // By running sums: what rounding takes from one frame the next one gets.
            before += weight;
            let until = (u128::from(ns) * u128::from(before) / u128::from(total.max(1))) as u64;
            let part = until - given;
            given = until;
            let paid = match payer {
                Payer::Nobody => None,
                Payer::Flow(id) => flows.get_mut(id).map(|flow| (&mut flow.receive_ns, &mut flow.account)),
                Payer::Listener(local) => {
                    let listener = flows.listeners.get_mut(local);
                    listener.map(|listener| (&mut listener.receive_ns, &mut listener.account))
                }
            };
            match paid {
                Some((receive_ns, account)) => {
                    *receive_ns += part;
                    if let Some(overload) = &mut overload {
                        overload.charge(account, part);
                    }
                }
                None => unclaimed += part,
            }
        }
        unclaimed
    }
}
