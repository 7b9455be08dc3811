//! A parsed frame: the positions of its headers, and its anomalies.

use super::decode;
use filters::parts::transport::Located;
use filters::tcp::segment::Segment;
use packet::encapsulation::Vlans;
use packet::frame::{self, protocol};
use packet::link::LinkType;
use packet::malformed::Malformed;
use packet::tcp::{self, TcpOption};
use packet::{Flow, icmp};
use rules::event::{IcmpHeader, Packet, TcpHeader};
use std::ops::Range;

/// A parsed frame without borrows, so that it can be kept while streams are reassembled.
#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    pub flow: Option<Flow>,
    pub version: u8,
    link_type: Option<LinkType>,
    pub vlans: Vlans,
    link: Range<usize>,
    network: Range<usize>,
    transport: Range<usize>,
    payload: Range<usize>,
    payload_len: u32,
    tcp: Option<TcpHeader>,
    /// The segment, or why it is none; `None`: the frame has another protocol. Its flow has no scope yet.
    pub segment: Option<Result<Segment, &'static str>>,
    icmp: Option<IcmpHeader>,
    /// IGMP version and type; version 0 is RGMP.
    pub igmp: Option<(u8, u8)>,
    pub fragment: bool,
    pub events: Vec<&'static str>,
    /// Why parsing failed. `None`: it succeeded, or the frame is not IP.
    pub refused: Option<&'static str>,
}

impl Parsed {
    /// Parses a frame. `asks`: rules use decoder events.
    pub fn read(&mut self, link: LinkType, bytes: &[u8], wire: u32, asks: bool) {
        let frame = self.read_headers(link, bytes, wire);
        if asks {
            let mut events = decode::Events(std::mem::take(&mut self.events));
            decode::events(link, bytes, frame.as_ref(), &mut events);
            self.events = events.0;
        }
    }

    /// Hides a fragment's payload: rules see only its IP header. The reassembled packet is shown by itself.
    pub fn hide_payload(&mut self) {
        (self.tcp, self.icmp) = (None, None);
        (self.transport.end, self.payload.end, self.payload_len) = (self.transport.start, self.payload.start, 0);
    }

    fn read_headers(&mut self, link: LinkType, bytes: &[u8], wire: u32) -> Option<frame::Frame> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        *self = Parsed { events, link_type: Some(link), ..Parsed::default() };
        let frame = match frame::parse(link, bytes, wire) {
            Ok(frame) => frame,
            Err(why) => {
                let below = packet::encapsulation::parse(link, bytes).unwrap_or_default();
                self.events.extend(match why {
                    Malformed::IpVersion if below.ether_type == packet::ethernet::IPV6 => Some("ipv6.wrong_ip_version"),
                    why => event_of(why),
                });
                self.refused = (why != Malformed::NotIp).then(|| why.reason());
                let header = if below.network_offset > 0 { below.network_offset as usize } else { 14 };
                self.link = 0..bytes.len().min(header);
                return None;
            }
        };
        let (network, start, end) =
            (frame.network_offset as usize, frame.transport_offset as usize, frame.payload_end as usize);
        let start = start.min(end);
        self.link = 0..network.min(bytes.len());
        self.network = network.min(start)..start;
        self.vlans = frame.vlans();
        self.version = frame.version;
        self.fragment = frame.fragment.is_some();
        self.flow = Some(Flow::of(&frame, bytes));
        if frame.is_cut() && frame.payload_end as usize == bytes.len() && wire as usize <= bytes.len() {
            self.events.push(if frame.version == 4 { "ipv4.trunc_pkt" } else { "ipv6.trunc_pkt" });
        }
        (self.transport, self.payload, self.payload_len) = (start..start, start..end, frame.payload_wire_len);
        if frame.is_later_fragment() {
            return Some(frame);
        }
        let rest = bytes.get(start..end).unwrap_or_default();
        match frame.protocol {
            protocol::TCP => match frame.tcp(bytes) {
                Ok(packet) => {
                    let header = start + packet.header_len() as usize;
                    self.split(start, header.min(end), end, packet.payload_wire_len());
                    let (mut mss, mut scale) = (None, None);
                    for option in packet.options() {
                        match option {
                            TcpOption::MaximumSegmentSize(size) => mss = Some(size),
                            TcpOption::WindowScale(shift) => scale = Some(shift),
                            _ => {}
                        }
                    }
                    self.segment = Some(Ok(Segment::of(&Located::of(&frame), &packet, 0, bytes, wire)));
                    self.tcp = Some(TcpHeader {
                        sequence: packet.sequence_number(),
                        acknowledgment: packet.acknowledgment_number(),
                        flags: packet.flags().0,
                        window: packet.window(),
                        mss,
                        scale,
                    });
                }
                Err(why) => {
                    self.segment = Some(Err(why.reason()));
                    self.events.extend(event_of(why));
                }
            },
            protocol::UDP => match frame.udp(bytes) {
                Ok(packet) => {
                    self.split(start, start + 8, end, packet.payload_wire_len());
                    let said = rest.get(4..6).map_or(0, |two| u32::from(u16::from_be_bytes([two[0], two[1]])));
                    if said != frame.payload_wire_len && said != 0 {
                        self.events.push("udp.len_invalid");
                    }
                }
                Err(why) => {
                    self.events.extend(event_of(why));
                    self.refused = (why != Malformed::NotIp).then(|| why.reason());
                    self.events.extend(["udp.len_invalid", "udp.hlen_invalid"]);
                }
            },
            protocol::ICMP | protocol::ICMPV6 => match icmp::Packet::new_checked(rest) {
                Ok(packet) => {
                    let length = if frame.protocol == protocol::ICMP { icmp_header(rest) } else { 8 };
                    self.split(start, start + length, end, frame.payload_wire_len.saturating_sub(length as u32));
                    let echo = packet.echo(frame.version);
                    self.icmp = Some(IcmpHeader { kind: packet.kind(), code: packet.code(), echo });
                }
                Err(_) => {
                    self.events.push(if frame.version == 4 { "icmpv4.pkt_too_small" } else { "icmpv6.pkt_too_small" })
                }
            },
            protocol::SCTP if rest.len() < 12 => self.events.push("sctp.pkt_too_small"),
            protocol::SCTP => {
                self.split(start, start + 12, end, frame.payload_wire_len.saturating_sub(12));
                // Rules look for its chunks behind its header.
                self.transport.end = self.payload.end;
            }
            protocol::IGMP => {
                self.split(start, end, end, 0);
                self.igmp = igmp(rest);
            }
            _ => {}
        }
        Some(frame)
    }

    fn split(&mut self, start: usize, header: usize, end: usize, payload_len: u32) {
        let header = header.min(end);
        let payload_end = end.min(header.saturating_add(payload_len as usize));
        (self.transport, self.payload, self.payload_len) = (start..header, header..payload_end, payload_len);
    }

    pub fn tcp_flags(&self) -> Option<tcp::Flags> {
        self.tcp.map(|header| tcp::Flags(header.flags))
    }

    /// EVE's number and name of the link type, if it has these.
    pub fn link(&self) -> Option<(u64, &'static str)> {
        Some(match self.link_type? {
            LinkType::ETHERNET => (1, "EN10MB"),
            // Programs on Linux give it the number 12, and files 101.
            LinkType::RAW => (12, "RAW"),
            LinkType::IPV4 => (228, "IPV4"),
            LinkType::IPV6 => (229, "IPV6"),
            LinkType::C_HDLC => (104, "C_HDLC"),
            LinkType::LINUX_SLL => (113, "LINUX_SLL"),
            LinkType::LINUX_SLL2 => (276, "LINUX_SLL2"),
            LinkType::PPP => (9, "PPP"),
            LinkType::NULL => (0, "NULL"),
            _ => return None,
        })
    }

    pub fn packet<'a>(&'a self, bytes: &'a [u8], time: u64) -> Packet<'a> {
        let part = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
        Packet {
            flow: self.flow,
            version: self.version,
            time,
            link: part(&self.link),
            network: part(&self.network),
            transport: part(&self.transport),
            payload: part(&self.payload),
            payload_len: self.payload_len,
            tcp: self.tcp,
            icmp: self.icmp,
            to_server: true,
            established: false,
            in_stream: false,
            fragment: self.fragment,
            events: &self.events,
        }
    }

    pub fn icmp(&self) -> Option<IcmpHeader> {
        self.icmp
    }
}

/// Length of an ICMP header: that of a router advertisement has its addresses, too (RFC 1256, 3), as far as they are
/// there.
fn icmp_header(message: &[u8]) -> usize {
    const ROUTER_ADVERTISEMENT: u8 = 9;
    match *message {
        [ROUTER_ADVERTISEMENT, _, _, _, count, words, ..] => {
            (8 + usize::from(count) * usize::from(words) * 4).min(message.len())
        }
        _ => 8,
    }
}

/// IGMP version and type (RFC 1112, RFC 2236, RFC 9776); version 0 is RGMP (RFC 3488).
fn igmp(message: &[u8]) -> Option<(u8, u8)> {
    let &[kind, wait, ..] = message else { return None };
    let version = match kind {
        0xfc..=0xff => 0,
        // Query versions differ by length; version 1 has no response time.
        0x11 if message.len() >= 12 => 3,
        0x11 if wait == 0 => 1,
        0x12 => 1,
        0x22 => 3,
        _ => 2,
    };
    Some((version, kind))
}

/// The Suricata event for a parse error.
fn event_of(why: Malformed) -> Option<&'static str> {
    Some(match why {
        Malformed::IpVersion => "ipv4.wrong_ip_version",
        Malformed::TruncatedIpv4 => "ipv4.pkt_too_small",
        Malformed::Ipv4HeaderLength => "ipv4.hlen_too_small",
        Malformed::Ipv4TotalLength => "ipv4.iplen_smaller_than_hlen",
        Malformed::TruncatedIpv6 => "ipv6.pkt_too_small",
        Malformed::TruncatedIpv6Extension | Malformed::Ipv6ExtensionLength => "ipv6.trunc_exthdr",
        Malformed::TruncatedTcp => "tcp.pkt_too_small",
        Malformed::TcpHeaderLength => "tcp.hlen_too_small",
        Malformed::TruncatedUdp => "udp.pkt_too_small",
        Malformed::UdpLength => "udp.hlen_too_small",
        Malformed::TooManyEncapsulations | Malformed::TooManyIpv6Extensions => "too_many_layers",
        _ => return None,
    })
}
