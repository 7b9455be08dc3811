//! The receive side: what becomes of each frame. It ends in exactly one [`End`].

use crate::answer::TCP;
use crate::counters::{End, Event};
use crate::flows::FlowId;
use crate::fragments::Added;
use crate::icmp::{self, ICMP, Message, Report};
use crate::interface::Core;
use crate::limits::{ANSWERS, PATH_MTU};
use crate::neighbours::Woken;
use crate::routes::is_host;
use crate::template::UDP;
use crate::work::Origin;
use buffer::flow::{Delivered, Drop};
use driver::Frame;
use flow::Direction;
use packet::checksum::Sum;
use packet::{arp, ethernet, ipv4, udp};
use rustix::io::Errno;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{SystemTime, UNIX_EPOCH};

/// The hardware address of all.
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

const ETHERNET: usize = ethernet::Packet::HEADER_BYTES;

/// Does this hardware address stand for a group?
fn is_group(mac: [u8; 6]) -> bool {
    mac[0] & 1 != 0
}

/// A packet whose IPv4 header was checked, from its Ethernet header to its last byte.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) frame: &'a [u8],
    /// Bytes before the transport header.
    pub(crate) header: usize,
    protocol: u8,
    pub(crate) source: Ipv4Addr,
    pub(crate) target: Ipv4Addr,
    /// Was it for all?
    pub(crate) is_broadcast: bool,
    /// When the device received it.
    pub(crate) time: u64,
    pub(crate) origin: Origin,
}

impl Core {
    /// Finds out what becomes of a frame that the device received.
    pub(crate) fn sort(&mut self, frame: &Frame<'_>, now: u64) -> End {
        let charged = self.work_charged();
        let end = self.sort_wire(frame, now);
        // A frame for a flow was charged to it where the flow was found.
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
        if !to_all && is_group(destination) {
            return End::Multicast;
        }
        if !to_all && destination != self.mac {
            return End::Elsewhere;
        }
        if is_group(source) || source == self.mac {
            return End::BadSender;
        }
        match ethernet.ether_type() {
            _ if frame.tag().is_some() => End::Vlan,
            ethernet::VLAN | ethernet::SERVICE_VLAN | ethernet::OLD_VLAN => End::Vlan,
            // The host's program lets nothing but IPv4 through; the host answers.
            ethernet::ARP if self.sharing.is_some() => End::NoFlow,
            ethernet::ARP => self.arp(bytes, source, now),
            ethernet::IPV4 => self.ipv4(bytes, frame.time, to_all, Origin::Device, now),
            _ => End::OtherProtocol,
        }
    }

    /// Finds out what becomes of a frame that this host sends to itself. Its header was checked or made here.
    pub(crate) fn sort_own(&mut self, bytes: &[u8], now: u64) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let charged = self.work_charged();
        let end = self.ipv4(bytes, time, false, Origin::Own, now);
        if self.work_charged() == charged {
            self.work.charge(None, bytes.len());
        }
        self.counters.looped += 1;
        self.counters.end(end);
    }

    /// ARP (RFC 826): answers for own addresses, learns of neighbours that were asked for.
    fn arp(&mut self, bytes: &[u8], from: [u8; 6], now: u64) -> End {
        let Ok(packet) = arp::Packet::new_checked(&bytes[ETHERNET..]) else { return End::ArpMalformed };
        let ((mac, sender), (_, target)) = (packet.sender(), packet.target());
        self.hear_dhcp_conflict(&packet, now);
        if self.routes.is_own(sender) {
            return End::ArpConflict;
        }
        // A neighbour speaks for itself, or a bridge repeats it word for word.
        let is_honest = mac == from && !is_group(mac) && mac != [0; 6];
        let mut woken = Woken::default();
        let learnt = is_honest
            && self.routes.is_on_link(sender)
            && matches!(packet.operation(), arp::REQUEST | arp::REPLY)
            && self.neighbours.learn(sender, mac, now, &mut woken);
        for number in woken.flows {
            self.activate_number(number, now);
        }
        for mut frame in woken.frames {
            frame[..6].copy_from_slice(&mac);
            self.answer(frame);
        }
        if packet.operation() == arp::REQUEST && self.routes.is_own(target) && is_honest {
            // Address probes (RFC 5227) come from 0.0.0.0 and are answered, too.
            if !self.arp_limit.take(now) {
                return End::ArpLimited;
            }
            self.answer(arp_frame(arp::REPLY, self.mac, target, mac, sender, mac));
            return End::ArpAnswered;
        }
        if learnt { End::ArpLearnt } else { End::ArpIgnored }
    }

    /// May the interface answer a stranger with a frame of so many bytes now?
    pub(crate) fn may_answer(&mut self, bytes: usize, now: u64) -> bool {
        let time = self.wire.time_of(bytes);
        !self.wire.is_paced() || self.answer_time.take_time(time, now)
    }

    /// Asks who has this address.
    pub(crate) fn ask(&mut self, address: Ipv4Addr, now: u64) {
        if self.sharing.is_some() {
            self.counters.event(Event::HostAsked);
            return self.ask_host(address, now);
        }
        let own = self.routes.source(Some(address)).0;
        self.counters.event(Event::ArpAsked);
        self.answer(arp_frame(arp::REQUEST, self.mac, own, [0; 6], address, BROADCAST));
    }

    /// Has a frame of the interface's own sent, which has none on a shared device: the host answers there.
    pub(crate) fn answer(&mut self, frame: Vec<u8>) {
        match self.sharing {
            Some(_) => self.counters.event(Event::AnswersDropped),
            None => self.queue(frame),
        }
    }

    /// Has a frame sent before those of flows.
    pub(crate) fn queue(&mut self, mut frame: Vec<u8>) {
        if self.answers.len() >= ANSWERS || frame.len() > self.mtu as usize + ETHERNET {
            self.counters.event(Event::AnswersDropped);
            return;
        }
        frame[6..12].copy_from_slice(&self.mac);
        self.answers.push_back(frame);
        self.counters.event(Event::Answers);
    }

    /// IPv4 (RFC 791, RFC 1122 3.2.1).
    fn ipv4(&mut self, bytes: &[u8], time: u64, to_all: bool, origin: Origin, now: u64) -> End {
        let Ok(packet) = ipv4::Packet::new_checked(&bytes[ETHERNET..]) else { return End::Malformed };
        let (header, total) = (usize::from(packet.header_len()), usize::from(packet.total_len()));
        if total < header || total > bytes.len() - ETHERNET {
            return End::Malformed;
        }
        if Sum::of(&bytes[ETHERNET..ETHERNET + header]).folded() != 0xffff {
            return End::Checksum;
        }
        let (source, target) = (packet.source(), packet.target());
        if !is_host(source) || self.routes.is_broadcast(source) || self.routes.is_network(source) {
            return End::BadSource;
        }
        if origin == Origin::Device && self.routes.is_own(source) {
            return End::Land;
        }
        // A server may send to the address that it gives, before the interface has it.
        if origin == Origin::Device
            && let Some(end) = self.hear_dhcp(&bytes[ETHERNET..], bytes[6..12].try_into().unwrap_or_default(), now)
        {
            return end;
        }
        let is_broadcast = self.routes.is_broadcast(target);
        if !is_broadcast && !self.routes.is_own(target) {
            return End::NotOurs;
        }
        if to_all && !is_broadcast {
            return End::FalseBroadcast;
        }
        let frame = &bytes[..ETHERNET + total];
        let protocol = packet.protocol();
        let whole = Whole { frame, header: ETHERNET + header, protocol, source, target, is_broadcast, time, origin };
        if !packet.more_fragments() && packet.fragment_offset() == 0 {
            return self.transport(whole, now);
        }
        match self.fragments.add(frame, &packet, now) {
            Added::Ended(end) => end,
            Added::Whole(joined) => {
                self.counters.event(Event::FragmentsJoined);
                // Its header is that of its first piece, which may have another length.
                let header = ETHERNET + usize::from(joined[ETHERNET] & 0x0f) * 4;
                self.transport(Whole { frame: &joined, header, ..whole }, now)
            }
        }
    }

    fn transport(&mut self, packet: Whole<'_>, now: u64) -> End {
        match packet.protocol {
            UDP => self.udp(packet, now),
            TCP => self.tcp(packet, now),
            ICMP => self.icmp(packet, now),
            _ => End::OtherTransport,
        }
    }

    /// UDP (RFC 768). The checksum is for the application's stack, which reads the bytes anyway.
    fn udp(&mut self, packet: Whole<'_>, now: u64) -> End {
        let bytes = &packet.frame[packet.header..];
        let Ok(datagram) = udp::Packet::new_checked(bytes, bytes.len() as u32) else { return End::UdpMalformed };
        let said = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if said < 8 || said > bytes.len() {
            return End::UdpMalformed;
        }
        let remote = SocketAddrV4::new(packet.source, datagram.source_port());
        let found = match packet.is_broadcast {
            false => self.flows.find(UDP, SocketAddrV4::new(packet.target, datagram.target_port()), remote),
            // For all: the first address whose port is bound has it.
            true => self
                .routes
                .addresses()
                .iter()
                .find_map(|(own, _)| self.flows.find(UDP, SocketAddrV4::new(*own, datagram.target_port()), remote)),
        };
        match found {
            Some(id) => self.deliver(id, packet, now),
            None if self.sharing.is_some() => End::NoFlow,
            None if packet.is_broadcast || !self.error_limit.take(now) => End::ClosedSilent,
            None => match icmp::port_unreachable(packet.frame, packet.target) {
                Some(error) => {
                    self.answer(error);
                    End::ClosedAnswered
                }
                None => End::ClosedSilent,
            },
        }
    }

    /// Copies a packet into a flow's channel, unless the flow has had its share of receive work.
    pub(crate) fn deliver(&mut self, id: FlowId, packet: Whole<'_>, now: u64) -> End {
        let Some(flow) = self.flows.get_mut(id) else { return End::FlowDropped };
        let bytes = packet.frame.len();
        if flow.is_traced {
            self.traces.record(id.number, Direction::Received, packet.frame, Some(packet.time));
        }
        if packet.origin == Origin::Device && self.overload.is_over(&flow.account) {
            flow.driver.drop_one(Drop::Overload);
            // To find the flow was work, too.
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

    /// A flow's application broke its channel: the flow ends, and no other notices.
    pub(crate) fn fault(&mut self, id: FlowId, now: u64) {
        self.counters.event(Event::FlowFaults);
        self.close(id, Errno::PROTO.raw_os_error(), now);
    }

    fn icmp(&mut self, packet: Whole<'_>, now: u64) -> End {
        let message = &packet.frame[packet.header..];
        match icmp::read(message) {
            Message::Malformed => End::IcmpMalformed,
            Message::Other => End::IcmpOther,
            Message::StrayError => End::IcmpStray,
            Message::EchoRequest if self.sharing.is_some() => End::NoFlow,
            // To all: a reply from each would be a flood (RFC 1122 3.2.2.6).
            Message::EchoRequest
                if packet.is_broadcast || !self.may_answer(packet.frame.len(), now) || !self.echo_limit.take(now) =>
            {
                End::EchoLimited
            }
            Message::EchoRequest => match icmp::echo_reply(packet.frame, message, packet.target) {
                Some(reply) => {
                    self.answer(reply);
                    End::EchoAnswered
                }
                None => End::EchoLimited,
            },
            Message::Error(report) if report.local.ip() == &packet.target => self.report(&report, packet.frame.len()),
            Message::Error(_) => End::IcmpStray,
        }
    }

    /// An ICMP error about a packet of a flow. Only a flow that names its other side hears of it: anybody could say something about the
    /// others. Of TCP, the error must be about a segment that can be under way, and name an MTU that a path can have (RFC 5927 4.1).
    fn report(&mut self, report: &Report, bytes: usize) -> End {
        let Report { protocol, local, remote, errno, sequence, mtu } = *report;
        let Some(id) = self.flows.find_exact(protocol, local, remote) else { return End::IcmpStray };
        let Some(flow) = self.flows.get_mut(id) else { return End::IcmpStray };
        let is_short = errno == Errno::MSGSIZE.raw_os_error() && mtu < PATH_MTU;
        if flow.connection.is_some_and(|connection| is_short || !connection.is_under_way(sequence)) {
            return End::IcmpStray;
        }
        flow.driver.report(errno, if is_short { 0 } else { mtu });
        self.work.charge(Some(id), bytes);
        self.ring_later(id);
        End::IcmpReported
    }
}

/// An ARP packet in a frame to `to`.
pub(crate) fn arp_frame(
    operation: u16,
    mac: [u8; 6],
    own: Ipv4Addr,
    target_mac: [u8; 6],
    target: Ipv4Addr,
    to: [u8; 6],
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + arp::Packet::BYTES);
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&ethernet::ARP.to_be_bytes());
    frame.extend_from_slice(&[0, 1, 8, 0, 6, 4]);
    frame.extend_from_slice(&operation.to_be_bytes());
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&own.octets());
    frame.extend_from_slice(&target_mac);
    frame.extend_from_slice(&target.octets());
    frame
}
