//! The transmit round: packets from the channels of flows that rang, in the order that the scheduler says (crate `qos`).
//!
//! A header is copied once, checked against the flow's template, finished and sent from the copy. The bytes behind it are copied
//! from the channel and never read: an application that changes them meanwhile harms itself alone.

use crate::flow_id::FlowId;
use crate::flows::Held;
use crate::interface::Core;
use crate::limits::SLOTS;
use crate::neighbours::Known;
use crate::receive::BROADCAST;
use crate::routes::Hop;
use crate::template::{self, Header};
use crate::work::Origin;
use buffer::flow::{Drop, Outgoing};
use flow::Direction;
use qos::{Choice, How};
use rustix::io::Errno;
use std::time::Instant;

/// Bytes of a short packet, which a turn without one costs.
const SHORT: usize = 64;

/// How a flow's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// The flow has no packet to send now, waits for a neighbour, or ended.
    Out,
    /// The flow may have more.
    More,
}

/// What becomes of a packet.
enum Fate {
    Send([u8; 6]),
    Own,
    Wait,
    Drop(Drop),
}

impl Core {
    /// Fills the outbox: the interface's own frames first, then those of flows in turn.
    pub(crate) fn fill(&mut self, now: u64) {
        while self.outbox.has_room() && self.wire.departure(now).is_none() {
            let Some(answer) = self.answers.pop_front() else { break };
            if answer[..6] == self.mac {
                let begun = Instant::now();
                self.sort_own(&answer, now);
                self.settle(begun, Origin::Own);
                self.charge_own(answer.len(), now);
            } else if let Some(slot) = self.outbox.slot(answer.len()) {
                slot.copy_from_slice(&answer);
                self.wire.charge(answer.len(), now);
            }
        }
        self.slices_from = None;
        // The turns are bounded: packets that are dropped or sent to this host fill no slot.
        for _ in 0..2 * SLOTS {
            if !self.outbox.has_room() || self.wire.departure(now).is_some() {
                break;
            }
            match self.scheduler.next(now) {
                Choice::Send(key, how) => self.take_turn(key, how, now),
                Choice::Wait(until) => {
                    self.slices_from = Some(until);
                    break;
                }
                Choice::Nothing => break,
            }
        }
    }

    /// A flow sends one packet, and pays for it.
    fn take_turn(&mut self, key: u32, how: How, now: u64) {
        let Some(id) = self.flows.at(key as usize) else {
            // It went, and the scheduler was not told: it is not asked about it again.
            return self.scheduler.remove(key);
        };
        if let Some(flow) = self.flows.get_mut(id) {
            self.overload.touch(&mut flow.account);
        }
        let before = self.wire.used();
        let turned = self.send_from(id, now);
        let mut time = self.wire.used() - before;
        let was_fresh = self.flows.get_mut(id).is_some_and(|flow| std::mem::take(&mut flow.is_fresh));
        if time == 0 && turned == Turned::Out && was_fresh {
            // It rang for nothing, perhaps on purpose: a turn costs at least a short packet.
            time = self.wire.time_of(SHORT);
        }
        if time == 0 && turned == Turned::More {
            // A packet that was dropped or stayed in this host cost the driver work: it is paid for as one on the wire, so that no flow
            // keeps the others from their turns with packets that go nowhere.
            time = self.wire.time_of(self.mtu as usize);
        }
        // Not when the frame began, which may be before `now` where the thread overslept: the scheduler's clock goes forward only.
        self.scheduler.charge(key, time, how, now);
        if turned == Turned::Out {
            self.rest(id);
            if self.flows.get(id).is_some_and(|flow| flow.closing.is_some()) {
                self.end(id, now);
            }
        }
    }

    /// A flow has no packet to send now.
    pub(crate) fn rest(&mut self, id: FlowId) {
        self.scheduler.idle(id.key());
        if let Some(flow) = self.flows.get_mut(id)
            && std::mem::take(&mut flow.is_active)
        {
            self.ready -= 1;
        }
    }

    /// Sends the next packet of a flow, or drops it.
    pub(crate) fn send_from(&mut self, id: FlowId, now: u64) -> Turned {
        if !self.outbox.has_room() || self.wire.departure(now).is_some() {
            return Turned::More;
        }
        let Some(flow) = self.flows.get_mut(id) else { return Turned::Out };
        if self.away.holds(flow.name.local.ip()) {
            return Turned::Out;
        }
        let held = match flow.held.take() {
            Some(held) => held,
            None => match flow.take() {
                Ok(None) => return Turned::Out,
                Err(_) => {
                    self.fault(id, now);
                    return Turned::Out;
                }
                Ok(Some(outgoing)) => match self.check(id, outgoing) {
                    Ok(header) => Held { outgoing, header },
                    Err(why) => {
                        self.drop_packet(id, &outgoing, why);
                        return Turned::More;
                    }
                },
            },
        };
        match self.fate(&held.header, id.number, now) {
            Fate::Send(mac) => self.send(id, held, mac, now),
            Fate::Own => self.send_to_self(id, held, now),
            Fate::Drop(why) => self.drop_packet(id, &held.outgoing, why),
            Fate::Wait => {
                if let Some(flow) = self.flows.get_mut(id) {
                    flow.held = Some(held);
                }
                return Turned::Out;
            }
        }
        Turned::More
    }

    /// Copies the header of a packet and checks it.
    fn check(&self, id: FlowId, outgoing: Outgoing) -> Result<Header, Drop> {
        let len = outgoing.len();
        let flow = self.flows.get(id).ok_or(Drop::Refused)?;
        let mut header = flow.template.header();
        if len < header.len() || len > self.mtu as usize + 14 {
            return Err(Drop::Length);
        }
        flow.driver.copy_out(&outgoing, 0, header.bytes_mut());
        if flow.template.fits(&header, len) { Ok(header) } else { Err(Drop::Forged) }
    }

    /// Where a packet goes.
    fn fate(&mut self, header: &Header, number: u64, now: u64) -> Fate {
        let neighbour = match self.routes.hop(template::destination(header)) {
            Hop::Own => return Fate::Own,
            Hop::Broadcast => return Fate::Send(BROADCAST),
            Hop::Refused => return Fate::Drop(Drop::Forged),
            Hop::None => return Fate::Drop(Drop::Unreachable),
            Hop::Neighbour(neighbour) => neighbour,
        };
        let mut ask = false;
        let known = self.neighbours.find(neighbour, number, now, &mut || ask = true);
        if ask {
            self.ask(neighbour, now);
        }
        match known {
            Known::Mac(mac) => Fate::Send(mac),
            Known::Asked => Fate::Wait,
            Known::Silent => Fate::Drop(Drop::Unreachable),
        }
    }

    /// Makes the frame in the outbox.
    fn make(&mut self, id: FlowId, mut held: Held, next_hop: [u8; 6]) -> Option<usize> {
        let len = held.outgoing.len();
        template::finish(&mut held.header, next_hop, self.mac);
        let flow = self.flows.get_mut(id)?;
        let slot = self.outbox.slot(len)?;
        let (header, payload) = slot.split_at_mut(held.header.len());
        header.copy_from_slice(held.header.bytes());
        flow.driver.copy_out(&held.outgoing, header.len(), payload);
        if flow.is_traced {
            self.traces.record(id.number, Direction::Sent, slot, None);
        }
        flow.note_sent(&held.header, len);
        flow.sent += 1;
        flow.sent_bytes += len as u64;
        self.done(id, len);
        Some(len)
    }

    fn send(&mut self, id: FlowId, held: Held, next_hop: [u8; 6], now: u64) {
        if let Some(len) = self.make(id, held, next_hop) {
            self.wire.charge(len, now);
        }
    }

    /// A packet to an own address never reaches a device.
    fn send_to_self(&mut self, id: FlowId, held: Held, now: u64) {
        if self.make(id, held, self.mac).is_some() {
            let mut frame = std::mem::take(&mut self.own_frame);
            self.outbox.take_back(&mut frame);
            let begun = Instant::now();
            // Both sides pay: the receiver where it is found, the sender here.
            self.work.charge(Some(id), 0);
            self.sort_own(&frame, now);
            self.settle(begun, Origin::Own);
            self.charge_own(frame.len(), now);
            self.own_frame = frame;
        }
    }

    /// A frame of `len` bytes stayed in this host. It took time of the wire only where there is no other one.
    fn charge_own(&mut self, len: usize, now: u64) {
        if self.is_loopback {
            self.wire.charge(len, now);
        }
    }

    fn drop_packet(&mut self, id: FlowId, outgoing: &Outgoing, why: Drop) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.driver.drop_one(why);
        if why == Drop::Unreachable {
            flow.driver.report(Errno::HOSTUNREACH.raw_os_error(), 0);
            self.ring_later(id);
        }
        self.done(id, outgoing.len());
    }

    /// The driver has no more use for a packet's place. An application that waits for room is rung after a quarter of the channel,
    /// or as soon as there is room for the longest packet: not for each packet, for it may wait for something else.
    fn done(&mut self, id: FlowId, len: usize) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.driver.done(1);
        let (records, bytes) = (flow.done.0 + 1, flow.done.1 + len as u64);
        let rings = records >= flow.ring_after.0 || bytes >= flow.ring_after.1;
        flow.done = if rings { (0, 0) } else { (records, bytes) };
        if rings {
            self.ring_later(id);
        }
    }
}
