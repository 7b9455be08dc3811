//! Opens tunnels: finds the packet that a frame carries, one tunnel at a time. Does not reassemble: it reports a
//! fragment, and the caller looks at the reassembled packet again. Keeps and copies nothing: an inner packet is
//! described by its place in the same bytes.
//!
//! - [`look`]: what a frame carries. Start reading there. [`is_plain`] sorts out nearly all frames before it.
//! - `tunnel/gre.rs`, `erspan.rs`, `vxlan.rs`, `geneve.rs`, `gtp.rs`, `teredo.rs`, `l2tp.rs`: one header each, from its
//!   first byte to the inner packet. IP in IP and MPLS have no header to read here.
//! - [`ports`]: the UDP ports of tunnels.
//! - [`stack`]: the tunnels around a packet, as bytes.
//!
//! Any program may use a tunnel's UDP port. So an invalid header (unknown version, no inner packet) there means that it
//! is no tunnel. Only if the outer packet leaves no doubt (an IP protocol) is the header reported as malformed.

pub mod ports;
pub mod stack;

mod erspan;
mod geneve;
mod gre;
mod gtp;
mod l2tp;
mod teredo;
mod vxlan;

#[cfg(test)]
mod tests;

use crate::bytes::u16_at;
use crate::encapsulation;
use crate::frame::{self, Frame, protocol};
use crate::layer::Layer as Next;
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::{ethernet, ppp};
use ports::{Ports, Udp};
use stack::Layer;

/// The kind of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// GRE (RFC 2784, RFC 2890, RFC 1701, NVGRE: RFC 7637), in IP or in UDP (RFC 8086).
    Gre = 1,
    /// A switch's mirrored frames, types I, II and III.
    Erspan,
    /// PPTP's version of GRE (RFC 2637).
    Pptp,
    /// IPv4 or IPv6 in either (RFC 2003, RFC 2473, RFC 4213: 6in4).
    Ip,
    /// Ethernet in IP (RFC 3378).
    EtherIp,
    /// MPLS: below IP, in IP or GRE (RFC 4023), or in UDP (RFC 7510).
    Mpls,
    /// PPPoE (RFC 2516).
    Pppoe,
    /// L2TP, version 2 (RFC 2661) or 3 (RFC 3931).
    L2tp,
    /// VXLAN (RFC 7348), with its generic extension.
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
    /// GTP-U (3GPP TS 29.281).
    Gtp,
    /// Teredo (RFC 4380).
    Teredo,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 12] = [
        Kind::Gre,
        Kind::Erspan,
        Kind::Pptp,
        Kind::Ip,
        Kind::EtherIp,
        Kind::Mpls,
        Kind::Pppoe,
        Kind::L2tp,
        Kind::Vxlan,
        Kind::Geneve,
        Kind::Gtp,
        Kind::Teredo,
    ];

    /// The name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Gre => "gre",
            Kind::Erspan => "erspan",
            Kind::Pptp => "pptp",
            Kind::Ip => "ip",
            Kind::EtherIp => "etherip",
            Kind::Mpls => "mpls",
            Kind::Pppoe => "pppoe",
            Kind::L2tp => "l2tp",
            Kind::Vxlan => "vxlan",
            Kind::Geneve => "geneve",
            Kind::Gtp => "gtp",
            Kind::Teredo => "teredo",
        }
    }

    /// Whether both directions have the same number. Otherwise each end chooses the number for packets to itself. GRE's key
    /// can be used either way. Switches that mirror frames use it for the direction.
    pub const fn has_one_id(self) -> bool {
        matches!(self, Kind::Erspan | Kind::Pppoe | Kind::Vxlan | Kind::Geneve)
    }
}

/// What follows a tunnel's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leads {
    pub kind: Kind,
    pub id: Option<u32>,
    /// The VLAN of the inner frame, if the header names one.
    pub vlan: Option<u16>,
    /// Length of the header.
    pub at: usize,
    /// Length of the payload, if the header says.
    pub len: Option<usize>,
    pub next: Next,
}

/// The result of a header parser. `None`: no tunnel, or no inner packet. Error: the header is broken.
pub(crate) type Opened = Result<Option<Leads>, Malformed>;

/// A packet inside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// The tunnel around it.
    pub layer: Layer,
    /// The link type of its first byte.
    pub link: LinkType,
    /// Its offset in the bytes of the outer packet.
    pub offset: u32,
    /// Captured bytes.
    pub len: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// No inner packet, or no known one. Also for unreadable frames.
    Nothing,
    /// An inner packet.
    Inner(Inner),
    /// A fragment: its content is unknown until the packet is reassembled.
    Fragment(Frame),
}

/// Whether it is certain at a glance that a frame has no inner packet. True for Ethernet or no link header, at most one tag,
/// IPv4 without options or IPv6, followed by TCP, ICMP, or UDP on other ports.
#[inline(always)]
pub fn is_plain(link: LinkType, bytes: &[u8], ports: &Ports) -> bool {
    const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
    let (at, ether_type) = match link {
        LinkType::ETHERNET => match bytes.first_chunk::<18>() {
            Some(&[.., 0x81, 0x00, _, _, high, low]) => (18, u16::from_be_bytes([high, low])),
            Some(&[.., high, low, _, _, _, _]) => (14, u16::from_be_bytes([high, low])),
            None => return false,
        },
        LinkType::RAW => (0, ethernet::IPV4),
        _ => return false,
    };
    let Some(packet) = bytes.get(at..) else { return false };
    let (protocol, transport) = match (ether_type, packet.first()) {
        (ethernet::IPV4, Some(0x45)) => match packet.split_first_chunk::<20>() {
            Some((header, rest)) if u16::from_be_bytes([header[6], header[7]]) & MORE_FRAGMENTS_AND_OFFSET == 0 => {
                (header[9], rest)
            }
            _ => return false,
        },
        (ethernet::IPV6, _) => match packet.split_first_chunk::<40>() {
            Some((header, rest)) => (header[6], rest),
            None => return false,
        },
        _ => return false,
    };
    match protocol {
        protocol::TCP | protocol::ICMP | protocol::ICMPV6 => true,
        protocol::UDP => match *transport {
            [a, b, c, d, ..] => !ports.has(u16::from_be_bytes([a, b])) && !ports.has(u16::from_be_bytes([c, d])),
            _ => true,
        },
        _ => false,
    }
}

/// IP protocol numbers of tunnels.
pub const PROTOCOLS: [u8; 6] =
    [protocol::IPV4, protocol::IPV6, protocol::GRE, protocol::ETHER_IP, protocol::L2TP, protocol::MPLS];

/// Finds the inner packet of a frame. `bytes` are the captured bytes, `wire_len` is the length on the wire.
///
/// Error: the header of a tunnel is cut or broken; the frame itself may be valid.
pub fn look(link: LinkType, bytes: &[u8], wire_len: u32, ports: &Ports) -> Result<Carries, Malformed> {
    if let Ok(Some(below)) = encapsulation::below(link, bytes) {
        return Ok(below_ip(&below, bytes, wire_len).map_or(Carries::Nothing, Carries::Inner));
    }
    let Ok(frame) = frame::parse(link, bytes, wire_len) else { return Ok(Carries::Nothing) };
    if frame.fragment.is_some() {
        return Ok(Carries::Fragment(frame));
    }
    let payload = frame.payload_of(bytes);
    let whole = frame.payload_wire_len as usize;
    let by_header = |kind, next| Ok(Some(Leads { kind, id: None, vlan: None, at: 0, len: None, next }));
    let opened = match frame.protocol {
        protocol::UDP => return by_port(&frame, bytes, ports),
        protocol::GRE => gre::open(payload),
        protocol::IPV4 => by_header(Kind::Ip, Next::EtherType(ethernet::IPV4)),
        protocol::IPV6 => by_header(Kind::Ip, Next::EtherType(ethernet::IPV6)),
        protocol::ETHER_IP => ether_ip(payload),
        protocol::L2TP => l2tp::open_in_ip(payload),
        protocol::MPLS => by_header(Kind::Mpls, Next::Mpls),
        _ => return Ok(Carries::Nothing),
    };
    let start = frame.transport_offset;
    Ok(opened?
        .and_then(|leads| inner(&leads, &frame, (start, payload, whole)))
        .map_or(Carries::Nothing, Carries::Inner))
}

/// The inner packet of a UDP datagram. Any program may use a port, so a datagram of no tunnel is no error.
fn by_port(frame: &Frame, bytes: &[u8], ports: &Ports) -> Result<Carries, Malformed> {
    let Ok(udp) = frame.udp(bytes) else { return Ok(Carries::Nothing) };
    let known = [udp.target_port(), udp.source_port()].into_iter().find_map(|port| Some((ports.of(port)?, port)));
    let Some((tunnel, port)) = known else { return Ok(Carries::Nothing) };
    let (payload, whole) = (udp.payload(), udp.payload_wire_len() as usize);
    let opened = match tunnel {
        Udp::Vxlan => vxlan::open(payload, vxlan::PLAIN_PORTS.contains(&port)),
        Udp::Geneve => geneve::open(payload),
        Udp::Gtp => gtp::open(payload),
        Udp::Teredo => teredo::open(payload, whole),
        Udp::L2tp => l2tp::open(payload),
        Udp::Gre => gre::open(payload),
        Udp::Mpls => Ok(Some(Leads { kind: Kind::Mpls, id: None, vlan: None, at: 0, len: None, next: Next::Mpls })),
    };
    // The UDP header has eight bytes.
    let start = frame.transport_offset + 8;
    let inner = opened?.and_then(|leads| inner(&leads, frame, (start, payload, whole)));
    Ok(inner.map_or(Carries::Nothing, Carries::Inner))
}

/// Two bytes, version 3 in the first four bits, and an Ethernet frame (RFC 3378, 3).
fn ether_ip(payload: &[u8]) -> Opened {
    match u16_at(payload, 0).ok_or(Malformed::TruncatedTunnel)? {
        0x3000 => Ok(Some(Leads { kind: Kind::EtherIp, id: None, vlan: None, at: 2, len: None, next: Next::Ethernet })),
        _ => Err(Malformed::TunnelHeader),
    }
}

/// The packet behind a tunnel's header. `carried`: the offset of that header, the captured bytes from there on, and
/// their length on the wire.
fn inner(leads: &Leads, frame: &Frame, carried: (u32, &[u8], usize)) -> Option<Inner> {
    let (start, payload, whole) = carried;
    let rest = payload.get(leads.at..)?;
    let whole = whole.saturating_sub(leads.at).min(leads.len.unwrap_or(usize::MAX));
    let rest = rest.get(..whole).unwrap_or(rest);
    let (link, skipped) = link_of(leads.next, rest)?;
    Some(Inner {
        layer: Layer {
            kind: leads.kind,
            vlans: leads.vlan.map_or(frame.vlans(), |vlan| frame.vlans().and(vlan)),
            addresses: Some((frame.source, frame.target)),
            id: leads.id,
        },
        link,
        offset: start + (leads.at + skipped) as u32,
        len: (rest.len() - skipped) as u32,
        wire_len: whole.saturating_sub(skipped) as u32,
    })
}

/// The packet in PPPoE or MPLS below IP.
fn below_ip(below: &encapsulation::Below, bytes: &[u8], wire_len: u32) -> Option<Inner> {
    let end = below.limit.unwrap_or(u32::MAX) as usize;
    let rest = bytes.get(..end).unwrap_or(bytes).get(below.offset..)?;
    let (link, skipped) = link_of(below.next, rest)?;
    let (kind, id) = match below.session {
        Some(session) => (Kind::Pppoe, session.into()),
        None => (Kind::Mpls, below.label),
    };
    let offset = below.offset + skipped;
    let len = (rest.len() - skipped) as u32;
    Some(Inner {
        layer: Layer { kind, vlans: below.vlans, addresses: None, id: Some(id) },
        link,
        offset: offset as u32,
        len,
        wire_len: wire_len.min(below.limit.unwrap_or(u32::MAX)).saturating_sub(offset as u32).max(len),
    })
}

/// The link type of the inner packet, and the offset of its first byte. `None`: the packet is not recognised.
fn link_of(next: Next, bytes: &[u8]) -> Option<(LinkType, usize)> {
    let version = bytes.first()? >> 4;
    match next {
        Next::EtherType(ethernet::IPV4) => (version == 4).then_some((LinkType::RAW, 0)),
        Next::EtherType(ethernet::IPV6) => (version == 6).then_some((LinkType::RAW, 0)),
        Next::Ip => matches!(version, 4 | 6).then_some((LinkType::RAW, 0)),
        Next::Ethernet | Next::EtherType(ethernet::TRANSPARENT_BRIDGING) => {
            (bytes.len() >= ethernet::Packet::HEADER_BYTES).then_some((LinkType::ETHERNET, 0))
        }
        Next::Mpls | Next::EtherType(ethernet::MPLS | ethernet::MPLS_UPSTREAM) => Some((LinkType::MPLS, 0)),
        Next::Ppp | Next::EtherType(ethernet::PPP) => {
            // The HDLC bytes, which the peers may have agreed to omit (RFC 1662, 3.2).
            let framed = if bytes.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
            let (step, next) = ppp::protocol(bytes, framed).ok()?;
            match next {
                Next::EtherType(_) | Next::Mpls => {
                    let at = framed + step;
                    link_of(next, bytes.get(at..)?).map(|(link, further)| (link, at + further))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The tunnel of a packet that was not opened, by protocol or ports; `None`: no tunnel.
pub fn not_opened(frame: &Frame, bytes: &[u8]) -> Option<Malformed> {
    if frame.protocol != protocol::UDP {
        return not_opened_of(frame.protocol);
    }
    Some(match ports::usual(frame.udp(bytes).ok()?.target_port())? {
        Udp::Vxlan => Malformed::VxlanTunnel,
        Udp::Geneve => Malformed::GeneveTunnel,
        Udp::Gtp => Malformed::GtpTunnel,
        Udp::Teredo => Malformed::TeredoTunnel,
        Udp::L2tp => Malformed::L2tpTunnel,
        Udp::Gre => Malformed::GreTunnel,
        Udp::Mpls => Malformed::IpTunnel,
    })
}

/// Like [`not_opened`], by the IP protocol number alone.
pub fn not_opened_of(number: u8) -> Option<Malformed> {
    Some(match number {
        protocol::GRE => Malformed::GreTunnel,
        protocol::IPV4 | protocol::IPV6 | protocol::ETHER_IP | protocol::MPLS => Malformed::IpTunnel,
        protocol::L2TP => Malformed::L2tpTunnel,
        _ => return None,
    })
}
