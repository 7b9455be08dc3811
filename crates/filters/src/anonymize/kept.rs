//! Finds how much of a frame stays: the link header, and all headers that the filter understands.
//!
//! Reads a frame and changes nothing. [`Kept`] says where its payload begins. [`Zeroed`] has the sums that mend checksums
//! after the payload became zeroes.

use crate::parts::edit;
use packet::checksum::Sum;
use packet::frame::{self, Frame, protocol};
use packet::link::LinkType;
use packet::{encapsulation, ethernet, ipv4, ipv6, tcp};

/// The part of a frame that stays, with other addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Bytes understood, counted from the first.
    pub(super) bytes: usize,
    /// Payload follows these bytes. `false`: a header follows that the filter does not understand.
    pub(super) has_payload: bool,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Ip(Frame),
    Arp(usize),
    Other,
}

impl Kept {
    /// Finds the kept part of a frame. `None`: the filter does not know the headers of this link type.
    pub(super) fn of(link: LinkType, bytes: &[u8], wire_len: u32) -> Option<Kept> {
        let (link_bytes, ether_type) = link_header(link, bytes)?;
        let nothing = Kept { bytes: link_bytes.min(bytes.len()), has_payload: false, what: What::Other };
        if edit::is_arp(ether_type) && bytes.len() >= link_bytes + edit::ARP_BYTES {
            let what = What::Arp(link_bytes);
            return Some(Kept { bytes: link_bytes + edit::ARP_BYTES, what, ..nothing });
        }
        let Ok(below) = encapsulation::parse(link, bytes) else { return Some(nothing) };
        let labels = 4 * usize::from(below.mpls_count);
        let session = if ether_type == ethernet::PPPOE_SESSION { 8 } else { 0 };
        let (Ok(read), true) =
            (frame::parse(link, bytes, wire_len), below.network_offset as usize == link_bytes + labels + session)
        else {
            return Some(nothing);
        };
        let Some(end) = headers_end(bytes, &read) else {
            // Some header behind the fixed one is unknown: keep only the link header.
            return Some(nothing);
        };
        Some(Kept { bytes: end, has_payload: true, what: What::Ip(read) })
    }
}

/// Bytes of a link header with its tags, and the ether type behind. `None`: the link type's addresses are unknown.
fn link_header(link: LinkType, bytes: &[u8]) -> Option<(usize, u16)> {
    let word = |at: usize| bytes.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
    match link.canonical() {
        LinkType::ETHERNET => {
            let mut at = 12;
            while edit::is_tag(word(at)) {
                at += 4;
            }
            Some((at + 2, word(at)))
        }
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => Some((0, 0)),
        LinkType::NULL | LinkType::LOOP => Some((4, 0)),
        LinkType::LINUX_SLL => Some((16, word(14))),
        LinkType::LINUX_SLL2 => Some((20, word(0))),
        _ => None,
    }
}

/// Where the last understood header ends, in captured bytes. `None`: a header before it is not understood.
fn headers_end(bytes: &[u8], read: &Frame) -> Option<usize> {
    let fixed = read.network_offset as usize;
    let first = if read.version == 4 { bytes[fixed + 9] } else { bytes[fixed + 6] };
    if first == ipv6::AUTHENTICATION || read.version == 6 && !has_plain_extensions(bytes, read) {
        return None;
    }
    let start = read.transport_offset as usize;
    if read.is_later_fragment() {
        return Some(start);
    }
    let transport = read.payload_of(bytes);
    Some(start + transport_header_bytes(read.protocol, transport).min(transport.len()))
}

/// Whether every extension header is a list of options or a fragment header. Routing and authentication headers are not.
fn has_plain_extensions(bytes: &[u8], read: &Frame) -> bool {
    extensions(bytes, read)
        .all(|(kind, _)| matches!(kind, ipv6::HOP_BY_HOP | ipv6::DESTINATION_OPTIONS | ipv6::FRAGMENT))
}

/// The extension headers of an IPv6 packet: number and byte range of each.
pub(super) fn extensions(bytes: &[u8], read: &Frame) -> impl Iterator<Item = (u8, std::ops::Range<usize>)> {
    let header = read.network_offset as usize;
    let (mut next, mut at, end) =
        (bytes[header + 6], header + ipv6::Packet::HEADER_BYTES, read.transport_offset as usize);
    std::iter::from_fn(move || {
        let head = bytes.get(at..end).and_then(<[u8]>::first_chunk::<2>)?;
        let bytes = match next {
            ipv6::FRAGMENT => 8,
            ipv6::AUTHENTICATION => (usize::from(head[1]) + 2) * 4,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        let this = (next, at..(at + bytes).min(end));
        (next, at) = (head[0], at + bytes);
        Some(this)
    })
}

/// Bytes of a transport header. 0: the filter does not understand the protocol.
fn transport_header_bytes(protocol: u8, transport: &[u8]) -> usize {
    let words = |at: usize| transport.get(at).copied().unwrap_or(0);
    match protocol {
        protocol::TCP => (usize::from(words(12) >> 4) * 4).max(tcp::Packet::HEADER_BYTES),
        protocol::UDP | protocol::UDP_LITE => 8,
        // RFC 4340, section 5.1: the sequence number is short or long. Options may hold anything, so they do not stay.
        protocol::DCCP => {
            if words(8) & 1 == 1 {
                16
            } else {
                12
            }
        }
        protocol::IGMP => 4,
        protocol::ICMP | protocol::ICMPV6 => {
            let inside = edit::inside_icmp(protocol, words(0));
            match inside.packet.and_then(|at| inner_headers_end(transport, at)) {
                Some(end) => end,
                None => inside.header_bytes,
            }
        }
        _ => 0,
    }
}

/// Where the headers of the packet inside an ICMP error end. `None`: that packet has options or extension headers.
fn inner_headers_end(message: &[u8], at: usize) -> Option<usize> {
    let read = frame::parse_ip(message, at as u32, message.len() as u32).ok()?;
    let fixed = if read.version == 4 { ipv4::Packet::HEADER_BYTES } else { ipv6::Packet::HEADER_BYTES };
    let start = read.transport_offset as usize;
    let known = match read.protocol {
        _ if read.is_later_fragment() => 0,
        protocol::TCP => tcp::Packet::HEADER_BYTES,
        protocol::UDP | protocol::ICMP | protocol::ICMPV6 => 8,
        _ => 0,
    };
    (start == at + fixed).then(|| start + known)
}

/// Sums of the payload before it becomes zeroes. For an ICMP error also the inner packet, and the sum of its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zeroed {
    payload: Sum,
    inner: Option<(Frame, Sum)>,
}

impl Zeroed {
    /// Sums the payload behind the first `kept` bytes of a frame. `None`: no checksum covers it (later fragments).
    pub(super) fn of(bytes: &[u8], read: &Frame, kept: usize) -> Option<Zeroed> {
        if read.is_later_fragment() {
            return None;
        }
        let message = read.payload_of(bytes);
        let is_icmp = matches!(read.protocol, protocol::ICMP | protocol::ICMPV6);
        let inside = message.first().filter(|_| is_icmp).map(|kind| edit::inside_icmp(read.protocol, *kind));
        let inner = inside.and_then(|inside| inside.packet).and_then(|at| {
            let inner = frame::parse_ip(message, at as u32, message.len() as u32).ok()?;
            let is_whole = inner.fragment.is_none() && !inner.is_cut();
            let covered = covered_payload(message, &inner, inner_headers_end(message, at)?.min(message.len()));
            is_whole.then(|| (inner, Sum::of(&message[covered])))
        });
        Some(Zeroed { payload: Sum::of(&bytes[covered_payload(bytes, read, kept)]), inner })
    }

    /// Mends the checksums of a packet after its payload became zeroes.
    pub(super) fn mend(&self, bytes: &mut [u8], read: &Frame) {
        let mut payload = self.payload;
        let mut now = Sum::default();
        if let Some((inner, old)) = &self.inner {
            let message = &mut bytes[read.transport_offset as usize..];
            let header = inner.transport_offset as usize..message.len();
            payload = payload.and(Sum::of(&message[header.clone()]));
            edit::mend_payload(message, inner, *old, Sum::default());
            now = Sum::of(&message[header]);
        }
        edit::mend_payload(bytes, read, payload, now);
    }
}

/// The part of a packet's captured payload, from `kept` on, that its transport checksum covers.
fn covered_payload(bytes: &[u8], read: &Frame, kept: usize) -> std::ops::Range<usize> {
    let end = (read.payload_end as usize).max(kept);
    let start = read.transport_offset as usize;
    let stated = bytes.get(start + 4..start + 6).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    match read.protocol {
        protocol::UDP | protocol::UDP_LITE if stated >= 8 => kept..(start + stated).clamp(kept, end),
        // RFC 4340, section 9.2: 0 covers the whole packet, 1 the header only, n the header and n - 1 words behind it.
        protocol::DCCP => match bytes.get(start + 9).map_or(0, |coverage| usize::from(coverage & 0xf)) {
            0 => kept..end,
            words => kept..(kept + (words - 1) * 4).min(end),
        },
        _ => kept..end,
    }
}
