//! An interface as its thread (`thread.rs`) sees it: the device, the flows on it, and one turn of work.
//!
//! The caller passes times in, ns since any beginning, so that a test can use its own clock.

use crate::announce::Announcements;
use crate::changes::{Away, DeviceWatch};
use crate::closing::Closing;
use crate::cookies::Secret;
use crate::counters::{Counters, Event};
use crate::dhcp::Dhcp;
use crate::flow_id::FlowId;
use crate::flows::Flows;
use crate::fragments::Fragments;
use crate::limits::{
    ANSWER_BURST, ANSWER_PART, ANSWERS, ARP_ANSWERS, ARP_FRESH, DOWN_LOOK, ECHO_ANSWERS, ICMP_ERRORS, NO_ROOM,
    RECEIVE_BATCHES, SECOND, SHARE_FRESH, TRANSMIT_BATCHES,
};
use crate::neighbours::Neighbours;
use crate::open::{LOOPBACK, Opened};
use crate::outbox::Outbox;
use crate::overload::Overload;
use crate::rate::{Limit, Wire};
use crate::routes::Routes;
use crate::sharing::Sharing;
use crate::super_frames::Knife;
use crate::trace::Traces;
use crate::work::{Origin, Work};
use buffer::flow::Bells;
use driver::{Frame, Receive, Transmit, Turn};
use qos::Scheduler;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The meaning of a client's channel number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Flow(FlowId),
    /// Its address and port.
    Listener(SocketAddr),
}

/// A client on this interface: its doorbells, and its flows and listeners by channel.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) bells: Bells,
    pub(crate) channels: Vec<Option<Holder>>,
    pub(crate) process: i32,
    pub(crate) user: u32,
}

pub(crate) struct Device {
    pub(crate) receive: Box<dyn Receive>,
    pub(crate) transmit: Box<dyn Transmit>,
}

/// Everything except the device, so that a batch of the device's frames can be sorted while the device is borrowed.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) name: String,
    pub(crate) how: String,
    pub(crate) mac: [u8; 6],
    /// Bytes of the longest packet: the smaller of the device's MTU and the DHCP server's.
    pub(crate) mtu: u32,
    pub(crate) device_mtu: u32,
    pub(crate) rate: Option<u64>,
    pub(crate) unfinished_checksums: bool,
    /// It has no device: packets go directly from one flow to another.
    pub(crate) is_loopback: bool,
    pub(crate) routes: Routes,
    pub(crate) away: Away,
    /// The daemon must be told.
    pub(crate) routes_changed: bool,
    /// Asks DHCP servers for an address. `None`: no DHCP.
    pub(crate) dhcp: Option<Dhcp>,
    /// The host also uses the device. `None`: only Streamline does.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) flows: Flows,
    pub(crate) closing: Closing,
    pub(crate) traces: Traces,
    pub(crate) clients: HashMap<u64, Client>,
    pub(crate) neighbours: Neighbours,
    pub(crate) announcements: Announcements,
    pub(crate) fragments: Fragments,
    pub(crate) counters: Counters,
    pub(crate) work: Work,
    pub(crate) overload: Overload,
    pub(crate) wire: Wire,
    pub(crate) arp_limit: Limit,
    pub(crate) echo_limit: Limit,
    pub(crate) error_limit: Limit,
    /// The share of a wire with a rate that answers to strangers may take.
    pub(crate) answer_time: Limit,
    /// For sequence numbers.
    pub(crate) secret: Secret,
    /// Decides which flow sends next. Its keys are the flows' places in the table.
    pub(crate) scheduler: Scheduler,
    /// Flows that have packets to send.
    pub(crate) ready: usize,
    /// No flow may send before this time. `None`: the scheduler has not said so since the last turn.
    pub(crate) slices_from: Option<u64>,
    /// Flows whose applications must be woken.
    pub(crate) rings: Vec<FlowId>,
    /// Numbers of ended flows and listeners, and of clients that have gone, for the daemon.
    pub(crate) ended: Vec<u64>,
    pub(crate) left: Vec<u64>,
    /// The interface's own frames: ARP and ICMP.
    pub(crate) answers: VecDeque<Vec<u8>>,
    /// Frames for the device.
    pub(crate) outbox: Outbox,
    /// Buffer for a frame from this host to itself.
    pub(crate) own_frame: Vec<u8>,
    pub(crate) knife: Knife,
    /// Of the next answer that is longer than a packet.
    pub(crate) fragment_id: u32,
    /// Why the device carries no frames now. `None`: it does.
    pub(crate) trouble: Option<String>,
    /// The device is gone for good.
    pub(crate) is_gone: bool,
    /// The device is not tried again before this.
    retry_receive: Option<u64>,
    retry_transmit: Option<u64>,
}

pub(crate) struct Interface {
    pub(crate) device: Device,
    pub(crate) core: Core,
    /// The device's counters, and when the thread read them. `None`: not yet.
    pub(crate) looked: Option<(u64, Vec<(String, u64)>)>,
    /// Reports events of the device. `None`: it is no device of the kernel.
    pub(crate) watch: Option<DeviceWatch>,
}

/// The thread's step after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Take the next turn: there is more to do.
    Again,
    /// Sleep until an event, or until this time. `None`: no time limit.
    Sleep(Option<u64>),
}

impl Interface {
    pub(crate) fn new(
        open: &flow::OpenInterface,
        routes: Routes,
        device: Opened,
        sharing: Option<Sharing>,
    ) -> Interface {
        let Opened { receive, transmit, mac, mtu, how, unfinished_checksums, .. } = device;
        let is_loopback = open.how.as_deref() == Some(LOOPBACK);
        let life = if sharing.is_some() { SHARE_FRESH } else { ARP_FRESH };
        let core = Core {
            name: open.device.clone(),
            how,
            mac,
            mtu,
            device_mtu: mtu,
            rate: open.rate,
            unfinished_checksums,
            is_loopback,
            routes,
            away: Away::default(),
            routes_changed: false,
            dhcp: open.dhcp.then(|| Dhcp::new(mac)),
            sharing,
            flows: Flows::default(),
            closing: Closing::default(),
            traces: Traces::default(),
            clients: HashMap::new(),
            neighbours: Neighbours::believed_for(life),
            announcements: if open.share || is_loopback { Announcements::default() } else { Announcements::new() },
            fragments: Fragments::default(),
            counters: Counters::default(),
            work: Work::default(),
            overload: Overload::default(),
            wire: Wire::new(open.rate, open.count_gaps),
            arp_limit: Limit::new(ARP_ANSWERS),
            echo_limit: Limit::new(ECHO_ANSWERS),
            error_limit: Limit::new(ICMP_ERRORS),
            answer_time: Limit::of_time(ANSWER_PART, ANSWER_BURST),
            secret: Secret::default(),
            scheduler: Scheduler::new(qos::Options::default()),
            ready: 0,
            slices_from: None,
            rings: Vec::new(),
            ended: Vec::new(),
            left: Vec::new(),
            answers: VecDeque::with_capacity(ANSWERS),
            outbox: Outbox::new(mtu),
            own_frame: Vec::new(),
            knife: Knife::default(),
            fragment_id: RandomState::new().hash_one(&open.device) as u32,
            trouble: None,
            is_gone: false,
            retry_receive: None,
            retry_transmit: None,
        };
        Interface { device: Device { receive, transmit }, core, looked: None, watch: None }
    }

    /// One turn: receives and sends some frames, and does what is due. Its work is bounded, whatever applications do.
    pub(crate) fn turn(&mut self, now: u64) -> Next {
        self.core.counters.event(Event::Turns);
        self.core.overload.turn(now);
        let mut busy = false;
        self.look_at_watch(now);
        if !self.core.is_gone {
            busy |= self.receive(now);
            self.core.tick(now);
            self.core.collect_news(now);
            let begun = Instant::now();
            busy |= self.transmit(now);
            self.core.overload.sent_for(self.core.work.since(begun));
        }
        self.core.ring();
        if busy {
            return Next::Again;
        }
        self.core.overload.rest();
        Next::Sleep(self.core.due(now))
    }

    /// Ends all flows and resets their connections. Returns when there is more to send; `None`: all was sent.
    pub(crate) fn end(&mut self, now: u64) -> Option<u64> {
        self.core.close_all(Errno::NETDOWN, now);
        self.core.release_dhcp(now);
        while self.transmit(now) {}
        let is_all = self.core.answers.is_empty() && self.core.outbox.is_empty();
        if is_all { None } else { self.core.due(now) }
    }

    /// Takes some batches from the device. Returns whether there may be more.
    fn receive(&mut self, now: u64) -> bool {
        if self.core.retry_receive.is_some_and(|retry| retry > now) {
            return false;
        }
        self.core.retry_receive = None;
        for _ in 0..RECEIVE_BATCHES {
            match self.take_batch(now) {
                Ok(Turn::Frames(_)) => self.core.is_up(now),
                Ok(Turn::Nothing) => {
                    if self.core.retry_transmit.is_none() {
                        self.core.is_up(now);
                    }
                    return false;
                }
                Ok(Turn::Down) => {
                    self.core.is_down();
                    self.core.retry_receive = Some(now + DOWN_LOOK);
                    return false;
                }
                Err(error) => {
                    self.core.failed(&error, now);
                    self.core.retry_receive = Some(now + SECOND);
                    return false;
                }
            }
        }
        true
    }

    /// Takes a batch from the device, if there is one.
    pub(crate) fn take_batch(&mut self, now: u64) -> Result<Turn, driver::Error> {
        let core = &mut self.core;
        self.device.receive.receive(Duration::ZERO, &mut |batch| {
            let begun = Instant::now();
            for frame in batch.frames {
                core.take_cut(frame, now);
            }
            core.settle(begun, Origin::Device);
            core.ring();
        })
    }

    /// Receives and sends what is possible now, before another process takes over.
    pub(crate) fn hand_over(&mut self, now: u64) {
        for _ in 0..4 * RECEIVE_BATCHES {
            if !matches!(self.take_batch(now), Ok(Turn::Frames(_))) {
                break;
            }
        }
        // Frames without room are lost, as when a process is killed.
        let _ = self.core.outbox.send(|frames| self.device.transmit.transmit(frames));
    }

    /// Sends frames of flows and of the interface itself. Returns whether more can go now.
    pub(crate) fn transmit(&mut self, now: u64) -> bool {
        if self.core.retry_transmit.is_some_and(|retry| retry > now) {
            return false;
        }
        self.core.retry_transmit = None;
        for _ in 0..TRANSMIT_BATCHES {
            self.core.fill(now);
            if self.core.outbox.is_empty() {
                return self.core.has_more(now);
            }
            let (core, device) = (&mut self.core, &mut self.device.transmit);
            match core.outbox.send(|frames| device.transmit(frames)) {
                Ok((Turn::Frames(_), frames, bytes)) => {
                    core.counters.sent += frames;
                    core.counters.sent_bytes += bytes;
                }
                Ok((Turn::Nothing, ..)) => {
                    core.counters.event(Event::NoRoom);
                    core.retry_transmit = Some(now + NO_ROOM);
                    return false;
                }
                Ok((Turn::Down, ..)) => {
                    core.is_down();
                    core.retry_transmit = Some(now + DOWN_LOOK);
                    return false;
                }
                Err(error) => {
                    core.failed(&error, now);
                    core.retry_transmit = Some(now + SECOND);
                    return false;
                }
            }
        }
        self.core.has_more(now) || !self.core.outbox.is_empty()
    }
}

impl Core {
    /// Takes a frame from the device, and counts it.
    pub(crate) fn take(&mut self, frame: &Frame<'_>, now: u64) {
        let end = self.sort(frame, now);
        self.counters.received += 1;
        self.counters.received_bytes += frame.len() as u64;
        self.counters.end(end);
    }

    /// Divides the time since `begun` among the frames charged since then.
    pub(crate) fn settle(&mut self, begun: Instant, origin: Origin) {
        let overload = match origin {
            Origin::Device => Some(&mut self.overload),
            Origin::Own => None,
        };
        self.counters.unclaimed_ns += self.work.settle(begun, &mut self.flows, overload);
    }

    fn is_up(&mut self, now: u64) {
        if self.trouble.take().is_some() {
            self.announcements.restart();
            self.restart_dhcp(now);
        }
    }

    fn is_down(&mut self) {
        if self.trouble.is_none() {
            self.trouble = Some(format!("`{}` is down; it goes on when the device is up again", self.name));
        }
    }

    fn failed(&mut self, error: &driver::Error, now: u64) {
        self.trouble = Some(error.to_string());
        if matches!(error, driver::Error::Removed(_)) {
            self.is_gone = true;
            self.outbox.clear();
            self.answers.clear();
            self.close_all(Errno::NETDOWN, now);
        }
    }

    /// Whether a frame can be sent now.
    fn has_more(&self, now: u64) -> bool {
        self.next_departure(now).is_some_and(|next| next <= now)
    }

    /// When the next frame of the interface or of a flow may leave. `None`: there is none.
    fn next_departure(&self, now: u64) -> Option<u64> {
        let wire = self.wire.departure(now).unwrap_or(now);
        let flows = (self.ready > 0).then_some(self.slices_from.unwrap_or(now));
        let own = (!self.answers.is_empty()).then_some(now);
        [flows, own].into_iter().flatten().min().map(|next| next.max(wire))
    }

    /// When the next turn is due, unless an event comes first. `None`: no time limit.
    fn due(&mut self, now: u64) -> Option<u64> {
        if self.is_gone {
            return None;
        }
        let next = if self.outbox.is_empty() { self.next_departure(now) } else { Some(now) };
        let send = match self.retry_transmit {
            Some(retry) if next.is_some() || self.trouble.is_some() => Some(retry.max(next.unwrap_or(retry))),
            _ => next,
        };
        let others = [
            self.neighbours.next(),
            self.announcements.next(),
            self.fragments.next(),
            self.closing.next(),
            self.flows.listeners.next(),
            self.away.next(),
            self.dhcp_due(),
        ];
        [send, self.retry_receive].into_iter().chain(others).flatten().min()
    }

    /// Whether the device should be watched now.
    pub(crate) fn listens(&self, now: u64) -> bool {
        !self.is_gone && self.retry_receive.is_none_or(|retry| retry <= now)
    }

    /// Does everything that is due by time.
    fn tick(&mut self, now: u64) {
        self.announce(now);
        self.end_closing(now);
        self.end_away(now);
        self.tend_dhcp(now);
        let due = self.neighbours.tick(now);
        for address in due.ask {
            self.ask(address, now);
        }
        for number in due.wake {
            self.activate_number(number, now);
        }
        for _ in 0..due.silent {
            self.counters.event(Event::NeighboursSilent);
        }
        for id in self.flows.listeners.tick(now) {
            self.close(id, 0, now);
        }
        for _ in 0..self.fragments.tick(now) {
            self.counters.event(Event::FragmentsExpired);
        }
        for _ in 0..std::mem::take(&mut self.fragments.dropped) {
            self.counters.event(Event::FragmentsDropped);
        }
    }

    /// Wakes the flow's application at the end of this batch.
    pub(crate) fn ring_later(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id)
            && !flow.ring
        {
            flow.ring = true;
            self.rings.push(id);
        }
    }

    /// Wakes applications that have news, once per channel.
    pub(crate) fn ring(&mut self) {
        self.traces.ring();
        for id in self.rings.drain(..) {
            let Some(flow) = self.flows.get_mut(id) else { continue };
            flow.ring = false;
            // The channel's number may already belong to another flow.
            if flow.closing.is_none()
                && let Some(client) = self.clients.get(&flow.client)
            {
                client.bells.ring(flow.channel as usize);
            }
        }
    }

    /// Finds flows whose applications rang: they have packets to send, or are closed.
    pub(crate) fn collect_news(&mut self, now: u64) {
        let (flows, scheduler, ready) = (&mut self.flows, &mut self.scheduler, &mut self.ready);
        let mut closed = Vec::new();
        for client in self.clients.values() {
            client.bells.news(|channel| {
                let Some(Some(Holder::Flow(id))) = client.channels.get(channel) else { return };
                let Some(flow) = flows.get_mut(*id) else { return };
                if flow.driver.is_closed() {
                    closed.push(*id);
                } else if flow.held.is_none() && !flow.is_active && flow.driver.waiting() > 0 {
                    (flow.is_active, flow.is_fresh) = (true, true);
                    scheduler.ready(id.key(), now);
                    *ready += 1;
                }
            });
        }
        for id in closed {
            self.finish(id, now);
        }
    }

    /// A waiting flow may continue.
    pub(crate) fn activate_number(&mut self, number: u64, now: u64) {
        let Some(id) = self.flows.numbered(number) else { return };
        if let Some(flow) = self.flows.get_mut(id)
            && !flow.is_active
        {
            flow.is_active = true;
            self.scheduler.ready(id.key(), now);
            self.ready += 1;
        }
    }
}
