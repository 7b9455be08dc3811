//! The receive side: sorts each frame, which ends in exactly one [`End`].

use crate::answer::TCP;
use crate::counters::{End, Event};
use crate::flow_id::FlowId;
use crate::fragmenting::fragments;
use crate::icmp::{self, ICMP, ICMP6, Message, Report};
use crate::interface::Core;
use crate::limits::{ANSWERS, PATH_MTU, PATH_MTU_V6};
use crate::template::UDP;
use crate::whole::{ETHERNET, Whole};
use crate::work::Origin;
use buffer::flow::{Delivered, Drop};
use driver::Frame;
use flow::Direction;
use packet::{ethernet, udp};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

/// The broadcast hardware address.
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// Whether this hardware address is a group address.
pub(crate) fn is_group(mac: [u8; 6]) -> bool {
    mac[0] & 1 != 0
}

impl Core {
    /// Sorts a received frame.
    pub(crate) fn sort(&mut self, frame: &Frame<'_>, now: u64) -> End {
        let charged = self.work_charged();
        let end = self.sort_wire(frame, now);
        // The frame was charged to its flow when the flow was found.
        if self.work_charged() == charged {
            self.work.charge(None, frame.len());
        }
        end
    }

    fn work_charged(&self) -> usize {
        self.work.charged()
    }

    fn sort_wire(&mut self, frame: &Frame<'_>, now: u64) -> End {
        if frame.is_outbound() {
            return End::Outgoing;
        }
        let bytes = frame.bytes_without_tag();
        let Ok(ethernet) = ethernet::Packet::new_checked(bytes) else { return End::Short };
        let (destination, source) = (ethernet.destination(), ethernet.source());
        let to_all = destination == BROADCAST;
        let to_many = is_group(destination);
        if to_many && !to_all && (ethernet.ether_type() != ethernet::IPV6 || !self.routes.has_ipv6()) {
            return End::Multicast;
        }
        if !to_many && destination != self.mac {
            return End::Elsewhere;
        }
        if is_group(source) || source == self.mac {
            return End::BadSender;
        }
        match ethernet.ether_type() {
            _ if frame.tag().is_some() => End::Vlan,
            ethernet::VLAN | ethernet::SERVICE_VLAN | ethernet::OLD_VLAN => End::Vlan,
            // The host's program lets only IPv4 through. The host answers the rest.
            ethernet::ARP if self.sharing.is_some() => End::NoFlow,
            ethernet::ARP => self.arp(bytes, source, now),
            ethernet::IPV4 => self.ipv4(bytes, frame.time, to_many, Origin::Device, now),
            ethernet::IPV6 if self.routes.has_ipv6() => self.ipv6(bytes, frame.time, to_many, Origin::Device, now),
            _ => End::OtherProtocol,
        }
    }

    /// Sorts a frame that this host sends to itself. Its header was checked or made here.
    pub(crate) fn sort_own(&mut self, bytes: &[u8], now: u64) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let charged = self.work_charged();
        let end = match bytes[12..ETHERNET] {
            [8, 0] => self.ipv4(bytes, time, false, Origin::Own, now),
            _ => self.ipv6(bytes, time, false, Origin::Own, now),
        };
        if self.work_charged() == charged {
            self.work.charge(None, bytes.len());
        }
        self.counters.looped += 1;
        self.counters.end(end);
    }

    /// Whether the interface may now answer a stranger with a frame of `bytes`.
    pub(crate) fn may_answer(&mut self, bytes: usize, now: u64) -> bool {
        let time = self.wire.time_of(bytes);
        !self.wire.is_paced() || self.answer_time.take_time(time, now)
    }

    /// Sends a frame of the interface's own. On a shared device there is none: the host answers.
    pub(crate) fn answer(&mut self, frame: Vec<u8>) {
        match self.sharing {
            Some(_) => self.counters.event(Event::AnswersDropped),
            None => self.queue(frame),
        }
    }

    /// Sends an answer, in fragments if it is longer than a packet: all of them, or none.
    fn answer_in_pieces(&mut self, frame: Vec<u8>) {
        let mtu = self.mtu as usize;
        if frame.len() <= mtu + ETHERNET {
            return self.answer(frame);
        }
        self.fragment_id = self.fragment_id.wrapping_add(1);
        let pieces = fragments(&frame, mtu, self.fragment_id);
        if pieces.is_empty() || self.answers.len() + pieces.len() > ANSWERS {
            return self.counters.event(Event::AnswersDropped);
        }
        pieces.into_iter().for_each(|piece| self.answer(piece));
    }

    /// Sends a frame before those of flows.
    pub(crate) fn queue(&mut self, mut frame: Vec<u8>) {
        if self.answers.len() >= ANSWERS || frame.len() > self.mtu as usize + ETHERNET {
            self.counters.event(Event::AnswersDropped);
            return;
        }
        frame[6..12].copy_from_slice(&self.mac);
        self.answers.push_back(frame);
        self.counters.event(Event::Answers);
    }

    /// Passes a whole packet to its protocol.
    pub(crate) fn transport(&mut self, packet: Whole<'_>, now: u64) -> End {
        match packet.protocol {
            UDP => self.udp(packet, now),
            TCP => self.tcp(packet, now),
            ICMP if packet.source.is_ipv4() => self.icmp(packet, now),
            ICMP6 if packet.source.is_ipv6() => self.icmp(packet, now),
            _ => End::OtherTransport,
        }
    }

    /// Handles UDP (RFC 768). The application's stack checks the checksum, since it reads the bytes anyway.
    fn udp(&mut self, packet: Whole<'_>, now: u64) -> End {
        let bytes = &packet.frame[packet.header..];
        let Ok(datagram) = udp::Packet::new_checked(bytes, bytes.len() as u32) else { return End::UdpMalformed };
        let said = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if said < 8 || said > bytes.len() {
            return End::UdpMalformed;
        }
        let remote = SocketAddr::new(packet.source, datagram.source_port());
        let find = |own: IpAddr| self.flows.find(UDP, SocketAddr::new(own, datagram.target_port()), remote);
        let found = match (packet.is_to_many, packet.target) {
            (false, target) => find(target),
            // A broadcast: goes to the first address on which the port is bound. Flows cannot join IPv6 groups.
            (true, IpAddr::V4(_)) => self.routes.addresses().iter().find_map(|(own, _)| find(*own)),
            (true, IpAddr::V6(_)) => None,
        };
        match found {
            Some(id) => self.deliver(id, packet, now),
            None if self.sharing.is_some() => End::NoFlow,
            None if packet.is_to_many || !self.error_limit.take(now) => End::ClosedSilent,
            None => match icmp::port_unreachable(&packet) {
                Some(error) => {
                    self.answer(error);
                    End::ClosedAnswered
                }
                None => End::ClosedSilent,
            },
        }
    }

    /// Copies a packet into a flow's channel, unless the flow has used its allowance of receive work.
    pub(crate) fn deliver(&mut self, id: FlowId, packet: Whole<'_>, now: u64) -> End {
        let Some(flow) = self.flows.get_mut(id) else { return End::FlowDropped };
        let bytes = packet.frame.len();
        if flow.is_traced {
            self.traces.record(id.number, Direction::Received, packet.frame, Some(packet.time));
        }
        if packet.origin == Origin::Device && self.overload.is_over(&flow.account) {
            flow.driver.drop_one(Drop::Overload);
            // Finding the flow was work, too.
            self.work.charge(Some(id), 0);
            return End::FlowDropped;
        }
        match flow.driver.deliver(&[packet.frame], packet.time) {
            Ok(Delivered::Yes) => {
                flow.received_bytes += bytes as u64;
                self.work.charge(Some(id), bytes);
                self.ring_later(id);
                End::Delivered
            }
            Ok(Delivered::Dropped(_)) => {
                self.work.charge(Some(id), 0);
                End::FlowDropped
            }
            Err(_) => {
                self.fault(id, now);
                End::Faulted
            }
        }
    }

    /// An application broke its flow's channel: the flow ends, and no other flow notices.
    pub(crate) fn fault(&mut self, id: FlowId, now: u64) {
        self.counters.event(Event::FlowFaults);
        self.close(id, Errno::PROTO.raw_os_error(), now);
    }

    fn icmp(&mut self, packet: Whole<'_>, now: u64) -> End {
        match icmp::read(&packet.frame[packet.header..], packet.source, packet.target) {
            Message::Malformed => End::IcmpMalformed,
            Message::Other => End::IcmpOther,
            Message::StrayError => End::IcmpStray,
            Message::Discovery => self.ndp(packet, now),
            Message::EchoRequest if self.sharing.is_some() => End::NoFlow,
            // No reply to a broadcast: replies of all hosts would be a flood (RFC 1122 3.2.2.6).
            Message::EchoRequest
                if packet.is_to_many || !self.may_answer(packet.frame.len(), now) || !self.echo_limit.take(now) =>
            {
                End::EchoLimited
            }
            Message::EchoRequest => match icmp::echo_reply(&packet) {
                Some(reply) => {
                    self.answer_in_pieces(reply);
                    End::EchoAnswered
                }
                None => End::EchoLimited,
            },
            Message::Error(report) if report.local.ip() == packet.target => self.report(&report, packet.frame.len()),
            Message::Error(_) => End::IcmpStray,
        }
    }

    /// Handles an ICMP error about a packet of a flow with a fixed peer; for other flows, any host could forge errors.
    /// For TCP, the error's segment must possibly be in flight, and its MTU possible for a path (RFC 5927 4.1).
    fn report(&mut self, report: &Report, bytes: usize) -> End {
        let Report { protocol, local, remote, errno, sequence, mtu } = *report;
        let is_short = errno == Errno::MSGSIZE.raw_os_error() && mtu < PATH_MTU;
        // No IPv6 path has a smaller MTU (RFC 8201 4).
        if local.is_ipv6() && errno == Errno::MSGSIZE.raw_os_error() && mtu < PATH_MTU_V6 {
            return End::IcmpStray;
        }
        let Some(id) = self.flows.find_exact(protocol, local, remote) else { return End::IcmpStray };
        let Some(flow) = self.flows.get_mut(id) else { return End::IcmpStray };
        if flow.connection.is_some_and(|connection| is_short || !connection.is_under_way(sequence)) {
            return End::IcmpStray;
        }
        flow.driver.report(errno, if is_short { 0 } else { mtu });
        self.work.charge(Some(id), bytes);
        self.ring_later(id);
        End::IcmpReported
    }
}
