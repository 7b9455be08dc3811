//! The end of a flow that its application closed. The packets in its channel take their turns as before, with the
//! flow's share of the wire, for at most [`CLOSE_TIME`]. Meanwhile the flow receives nothing, counts for its user's
//! quota, and keeps its port from other users.
//!
//! A flow whose next packet must wait for its neighbour ends at once, and leaves a few packets behind for that neighbour.

use crate::counters::Event;
use crate::flow_id::FlowId;
use crate::interface::Core;
use crate::limits::{CLOSE_TIME, PARKED};
use crate::routes::Hop;
use crate::template;
use std::collections::VecDeque;

/// Flows that are closing, and the latest end of each, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Closing(VecDeque<(u64, FlowId)>);

impl Closing {
    /// When the next flow ends at the latest. `None`: no flow is closing.
    pub(crate) fn next(&self) -> Option<u64> {
        self.0.front().map(|(until, _)| *until)
    }
}

impl Core {
    /// The application closed this flow: sends its last packets, then ends it.
    pub(crate) fn finish(&mut self, id: FlowId, now: u64) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let waiting = flow.driver.waiting();
        flow.closing = Some(waiting);
        flow.driver.close(0);
        self.ended.push(id.number);
        if let Some(sharing) = &self.sharing {
            sharing.remove(&flow.name);
        }
        if flow.held.is_some() || waiting == 0 {
            return self.end(id, now);
        }
        self.unhook(id);
        self.flows.unbind(id);
        self.closing.0.push_back((now + CLOSE_TIME, id));
        self.activate_number(id.number, now);
    }

    /// Ends the flows whose time is over.
    pub(crate) fn end_closing(&mut self, now: u64) {
        while self.closing.next().is_some_and(|until| until <= now) {
            if let Some((_, id)) = self.closing.0.pop_front() {
                self.end(id, now);
            }
        }
    }

    /// Ends a closing flow. A few of its packets still wait for their neighbour; the rest are dropped and counted.
    pub(crate) fn end(&mut self, id: FlowId, now: u64) {
        for _ in 0..PARKED {
            if !self.park(id) {
                break;
            }
            // This finds the neighbour of the next packet.
            self.send_from(id, now);
        }
        let Some(flow) = self.flows.get(id) else { return };
        let dropped = flow.closing.unwrap_or(0) + u64::from(flow.held.is_some());
        self.counters.events(Event::LastDropped, dropped);
        self.close(id, 0, now);
    }

    /// Keeps a packet for its neighbour. `false`: the flow has none, or there is no room.
    fn park(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let Some(held) = &flow.held else { return false };
        let Hop::Neighbour(next_hop) = self.routes.hop(template::destination(&held.header)) else { return false };
        let mut header = held.header;
        template::finish(&mut header, [0; 6], self.mac);
        let len = held.outgoing.len();
        let mut frame = vec![0; len];
        let (front, payload) = frame.split_at_mut(header.len());
        front.copy_from_slice(header.bytes());
        flow.driver.copy_out(&held.outgoing, header.len(), payload);
        if !self.neighbours.park(next_hop, frame) {
            return false;
        }
        flow.note_sent(&header, len);
        flow.held = None;
        flow.driver.done(1);
        true
    }
}
