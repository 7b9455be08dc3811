//! TCP segments (RFC 9293): for a flow; a listener, which answers SYNs; a recently ended connection; or a closed port.
//! TCP runs in the application: the driver never ends the connection of one that is there.
//!
//! A SYN leaves no state: the answer's number is a cookie (`cookies.rs`), and the ACK that returns it opens the connection.

use crate::answer::{Segment, TCP, headers, ip_header};
use crate::connection::Connection;
use crate::cookies::SynOptions;
use crate::counters::{End, Event, ListenerDrop};
use crate::flows::{Name, NewFlow};
use crate::interface::Core;
use crate::limits::{CHANNEL_WORK, RESETS, SYN_ANSWERS, SYN_WORK};
use crate::quarantine::Ended;
use crate::routes::Hop;
use crate::whole::Whole;
use crate::work::Origin;
use buffer::flow::Driver;
use packet::pseudo;
use packet::tcp::{Flags, Packet};
use std::net::SocketAddr;

/// A waiting connection has no channel number yet: doorbells have no bit for this number.
pub(crate) const NO_CHANNEL: u32 = u32::MAX;

/// Bytes of TCP in the longest answer to a SYN.
const SYN_ANSWER: usize = 20 + 12;

/// A segment without a flow.
#[derive(Clone, Copy)]
struct Stray<'a> {
    packet: Whole<'a>,
    segment: Packet<'a>,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Stray<'_> {
    /// The numbers that it uses in sequence space.
    fn len(&self) -> u32 {
        let flags = self.segment.flags();
        self.segment.payload_wire_len() + u32::from(flags.syn()) + u32::from(flags.fin())
    }

    /// The reset in answer to it (RFC 9293 3.10.7.1).
    fn reset(&self) -> Vec<u8> {
        let (sequence, acknowledgment) = match self.segment.flags().ack() {
            true => (self.segment.acknowledgment_number(), None),
            false => (0, Some(self.segment.sequence_number().wrapping_add(self.len()))),
        };
        self.answer(sequence, acknowledgment, Flags::RST.0)
    }

    fn answer(&self, sequence: u32, acknowledgment: Option<u32>, flags: u8) -> Vec<u8> {
        let (from, to) = (self.local, self.remote);
        Segment { from, to, sequence, acknowledgment, flags, window: 0, options: &[] }.frame(self.packet.sender())
    }
}

impl Core {
    /// Handles a TCP segment (RFC 9293). The application's stack checks a flow's checksums, since it reads the bytes anyway.
    pub(crate) fn tcp(&mut self, packet: Whole<'_>, now: u64) -> End {
        let bytes = &packet.frame[packet.header..];
        let Ok(segment) = Packet::new_checked(bytes, bytes.len() as u32) else { return End::TcpMalformed };
        if segment.source_port() == 0 || segment.target_port() == 0 {
            return End::TcpMalformed;
        }
        // A connection has one host on each side (RFC 9293 3.9.2.3).
        if packet.is_to_many {
            return End::TcpClosedSilent;
        }
        let local = SocketAddr::new(packet.target, segment.target_port());
        let remote = SocketAddr::new(packet.source, segment.source_port());
        let Some(id) = self.flows.find_exact(TCP, local, remote) else {
            return self.stray_segment(Stray { packet, segment, local, remote }, now);
        };
        let end = self.deliver(id, packet, now);
        if end == End::Delivered
            && let Some(connection) = self.flows.get_mut(id).and_then(|flow| flow.connection.as_mut())
        {
            connection.received(&segment);
        }
        end
    }

    fn stray_segment(&mut self, stray: Stray<'_>, now: u64) -> End {
        let Stray { packet, segment, local, remote } = stray;
        let bytes = &packet.frame[packet.header..];
        let listens = if let Some(listener) = self.flows.listeners.get_mut(local) {
            if packet.origin == Origin::Device && self.overload.is_over(&listener.account) {
                listener.drop_one(ListenerDrop::Overload, now);
                self.work.charge_listener(local, 0);
                return End::ListenerDropped;
            }
            self.work.charge_listener(local, packet.frame.len());
            true
        } else {
            false
        };
        let pseudo = pseudo::sum(packet.source, packet.target, TCP, bytes.len() as u16);
        let field = u16::from_be_bytes([bytes[16], bytes[17]]);
        if !pseudo::holds(pseudo, field, bytes, self.unfinished_checksums) {
            return End::TcpChecksum;
        }
        // A segment repeated after the end may bring a cookie that is still valid: it opens no connection.
        let is_late = !segment.flags().syn() && self.flows.quarantine.get([local, remote], now).is_some();
        if listens
            && !is_late
            && let Some(end) = self.listen(stray, now)
        {
            return end;
        }
        if self.sharing.is_some() {
            return End::NoFlow;
        }
        if segment.flags().rst() {
            return End::TcpClosedSilent;
        }
        if !segment.flags().syn()
            && let Some(ended) = self.flows.quarantine.get([local, remote], now)
        {
            return self.after_end(stray, ended, now);
        }
        if !segment.flags().syn()
            && segment.flags().ack()
            && let Some(listener) = self.flows.listeners.get_mut(local)
            && listener.drop_later(now)
        {
            return End::ListenerDropped;
        }
        if !self.error_limit.take(now) {
            return End::TcpClosedSilent;
        }
        self.answer(stray.reset());
        End::TcpClosedAnswered
    }

    /// Handles a segment for a listener (RFC 9293 3.10.7.2). `None`: no listener has it.
    fn listen(&mut self, stray: Stray<'_>, now: u64) -> Option<End> {
        let Stray { segment, local, remote, .. } = stray;
        let flags = segment.flags();
        match (flags.rst(), flags.ack(), flags.syn()) {
            (true, ..) | (_, true, true) => None,
            (_, true, false) => {
                let cookie = segment.acknowledgment_number().wrapping_sub(1);
                let first = segment.sequence_number().wrapping_sub(1);
                let options = self.secret.open([local, remote], first, cookie, now)?;
                Some(self.open_connection(stray, cookie, first, options, now))
            }
            (_, false, true) if !flags.fin() => Some(self.answer_syn(stray, now)),
            (_, false, _) => Some(End::TcpClosedSilent),
        }
    }

    /// Answers a SYN. If it carries data, the peer sends them again (RFC 9293 3.4).
    fn answer_syn(&mut self, stray: Stray<'_>, now: u64) -> End {
        let Stray { segment, local, remote, .. } = stray;
        if self.answers.len() >= SYN_ANSWERS || !self.may_answer(headers(local.ip()) + SYN_ANSWER, now) {
            return End::TcpSynLimited;
        }
        let Some(listener) = self.flows.listeners.get_mut(local) else { return End::TcpSynLimited };
        let said = SynOptions::read(segment.options());
        let own = SynOptions {
            segment: u16::try_from((self.mtu as usize).saturating_sub(ip_header(local.ip()) + 20)).unwrap_or(u16::MAX),
            shift: said.shift.map(|_| listener.shift),
            ..said
        };
        let first = segment.sequence_number();
        let answer = Segment {
            from: local,
            to: remote,
            sequence: self.secret.cookie([local, remote], first, said, now),
            acknowledgment: Some(first.wrapping_add(1)),
            flags: Flags::SYN.0,
            window: listener.window,
            options: &own.bytes(),
        };
        self.work.charge_listener(local, SYN_WORK);
        // The peer starts a new connection.
        self.flows.quarantine.take([local, remote]);
        self.queue(answer.frame(stray.packet.sender()));
        End::TcpSynAnswered
    }

    /// The peer returned a cookie: makes the flow, and delivers the SYN that the cookie encodes, then this segment.
    fn open_connection(&mut self, stray: Stray<'_>, cookie: u32, first: u32, options: SynOptions, now: u64) -> End {
        let Stray { packet, segment, local, remote } = stray;
        let made = self.make_connection(local, remote, Connection::accepted(cookie, first, stray.packet.sender()), now);
        let id = match made {
            Ok(id) => id,
            Err(why) => {
                if let Some(listener) = self.flows.listeners.get_mut(local) {
                    listener.drop_one(why, now);
                }
                return End::ListenerDropped;
            }
        };
        // A SYN's window is never shifted, this segment's is (RFC 7323 2.2).
        let window = u32::from(segment.window()) << options.shift.unwrap_or(0);
        let syn = Segment {
            from: remote,
            to: local,
            sequence: first,
            acknowledgment: None,
            flags: Flags::SYN.0,
            window: u16::try_from(window).unwrap_or(u16::MAX),
            options: &options.bytes(),
        };
        let mut syn = syn.frame(self.mac);
        syn[6..12].copy_from_slice(&stray.packet.sender());
        let mut end = End::TcpOpened;
        for frame in [syn.as_slice(), packet.frame] {
            let Some(flow) = self.flows.get_mut(id) else { return End::Faulted };
            match flow.driver.deliver(&[frame], packet.time) {
                Ok(buffer::flow::Delivered::Yes) => flow.received_bytes += frame.len() as u64,
                // The peer sends its data again.
                Ok(buffer::flow::Delivered::Dropped(_)) => end = End::FlowDropped,
                // A channel that no application has seen yet is valid.
                Err(_) => {
                    self.fault(id, now);
                    return End::Faulted;
                }
            }
        }
        if let Some(connection) = self.flows.get_mut(id).and_then(|flow| flow.connection.as_mut()) {
            connection.received(&segment);
        }
        self.counters.event(Event::FlowsOpened);
        self.work.charge_listener(local, CHANNEL_WORK);
        if let Some(listener) = self.flows.listeners.get_mut(local)
            && let Some(client) = self.clients.get(&listener.client)
        {
            client.bells.ring(listener.channel as usize);
        }
        end
    }

    fn make_connection(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        connection: Connection,
        now: u64,
    ) -> Result<crate::flow_id::FlowId, ListenerDrop> {
        let listener = self.flows.listeners.get_mut(local).ok_or(ListenerDrop::QueueFull)?;
        let (user, geometry, class, limits) = (listener.user, listener.geometry, listener.class, listener.limits);
        if listener.waiting.len() >= listener.backlog {
            return Err(ListenerDrop::QueueFull);
        }
        let (into, out) = geometry.bytes();
        let permit = listener.users.take(user, into + out).map_err(|_| ListenerDrop::Quota)?;
        let number = listener.numbers.take();
        let (process, client) = (listener.process, listener.client);
        if !self.flows.listeners.may_wait(user) {
            return Err(ListenerDrop::Quota);
        }
        self.permits(class, limits, user, None).map_err(|_| ListenerDrop::NoShare)?;
        let (driver, segments) = Driver::create(geometry).map_err(|_| ListenerDrop::NoChannel)?;
        let name = Name { protocol: TCP, local, remote: Some(remote) };
        let name = self.flows.name(name, user, now).map_err(|_| ListenerDrop::InUse)?;
        let connection = Some(connection);
        let channel = NO_CHANNEL;
        let user_weight = limits.user_weight;
        let new = NewFlow { number, name, process, user, user_weight, client, channel, driver, connection, permit };
        let id = self.insert(new, class, now).map_err(|_| ListenerDrop::NoShare)?;
        self.flows.listeners.wait(local, id, segments, now);
        Ok(id)
    }

    /// A segment of a recently ended connection. Data have no reader: they are answered with a reset. So is an
    /// acknowledgement of less than was sent, which says that a reset did not fit (RFC 5961 3.2). A repeated FIN after
    /// an orderly end is acknowledged again (RFC 9293 3.10.7.4).
    fn after_end(&mut self, stray: Stray<'_>, ended: Ended, now: u64) -> End {
        let (flags, acknowledgment) = (stray.segment.flags(), stray.segment.acknowledgment_number());
        let answer = match (ended.in_order, flags.fin(), stray.len() > 0) {
            (true, true, _) => stray.answer(ended.sequence, ended.acknowledged, 0),
            (false, _, true) => stray.reset(),
            (false, _, false) if flags.ack() && acknowledgment != ended.sequence => stray.reset(),
            _ => return End::TcpEndedSilent,
        };
        if !self.error_limit.take(now) {
            return End::TcpEndedSilent;
        }
        self.answer(answer);
        End::TcpEndedAnswered
    }

    /// Ends a TCP flow: resets its connection if it is unfinished, and keeps its name from other users for a time.
    pub(crate) fn end_connection(&mut self, name: Name, user: u32, connection: &Connection, now: u64) {
        let Some(remote) = name.remote.filter(|_| !connection.is_unheard()) else { return };
        let (sequence, acknowledged) = connection.numbers();
        let in_order = connection.ended_in_order();
        self.flows.quarantine.put([name.local, remote], Ended { user, sequence, acknowledged, in_order }, now);
        if connection.is_finished() || self.is_gone || !self.routes.is_own(name.local.ip()) {
            return;
        }
        let next_hop = match self.routes.hop(remote.ip()) {
            Hop::Neighbour(neighbour) => Some(neighbour),
            Hop::Own => None,
            Hop::Broadcast | Hop::None | Hop::Refused => return,
        };
        let mac = match next_hop {
            Some(neighbour) => self.neighbours.known(neighbour).or(connection.mac),
            None => Some(self.mac),
        };
        let reset = Segment {
            from: name.local,
            to: remote,
            sequence,
            acknowledgment: acknowledged,
            flags: Flags::RST.0,
            window: 0,
            options: &[],
        };
        let mut frame = reset.frame(mac.unwrap_or_default());
        frame[6..12].copy_from_slice(&self.mac);
        let is_sent = match (mac, next_hop) {
            // A client that dies again and again must not use up the time of a guarantee.
            (Some(_), _) if self.answers.len() < RESETS && self.may_answer(frame.len(), now) => {
                self.answers.push_back(frame);
                true
            }
            // An earlier process knew it.
            (None, Some(neighbour)) => {
                let mut asks = false;
                self.neighbours.find(neighbour, 0, now, &mut || asks = true);
                if asks {
                    self.ask(neighbour, now);
                }
                self.neighbours.park(neighbour, frame)
            }
            _ => false,
        };
        self.counters.event(if is_sent { Event::ResetsSent } else { Event::ResetsDropped });
    }
}
