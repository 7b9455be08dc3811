//! Received IPv6 packets (RFC 8200): skips extension headers, and reassembles fragments. `ipv4.rs` does the same for IPv4.
//!
//! Packets for flows have the IPv6 header directly followed by the transport header: stacks need not know extension headers.

use crate::answer::TCP;
use crate::counters::{End, Event};
use crate::fragments::{Added, Key, Piece};
use crate::icmp::ICMP6;
use crate::interface::Core;
use crate::limits::{EXTENSION_BYTES, EXTENSION_HEADERS};
use crate::routes::is_host;
use crate::whole::{ETHERNET, Whole};
use crate::work::Origin;
use packet::ipv6::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, Packet, ROUTING};
use packet::ndp;
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of Ethernet and IPv6 header.
const HEADERS: usize = ETHERNET + Packet::HEADER_BYTES;

/// Offsets of the length, the next header and the hop limit, including the Ethernet header.
const LENGTH: usize = 18;
const NEXT_HEADER: usize = 20;
pub(crate) const HOPS: usize = 21;

/// Bytes of a fragment header.
const FRAGMENT_HEADER: usize = 8;

/// A header behind extension headers: its protocol, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NextHeader {
    protocol: u8,
    at: usize,
}

/// The header behind the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// The header of a transport protocol.
    Transport(NextHeader),
    /// A fragment, whose bytes begin with this header.
    Piece { next: NextHeader, identification: u32, offset: usize, more: bool },
}

/// Walks over extension headers, starting at `next` in a frame.
fn walk(frame: &[u8], mut next: NextHeader) -> Result<Behind, End> {
    let begin = next.at;
    for _ in 0..=EXTENSION_HEADERS {
        let header = frame.get(next.at..).unwrap_or_default();
        match next.protocol {
            // Only directly behind the IPv6 header (RFC 8200 4.1).
            HOP_BY_HOP if next.at > HEADERS => return Err(End::Ipv6Extension),
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                let [protocol, units, ..] = *header else { return Err(End::Ipv6Extension) };
                let len = 8 + usize::from(units) * 8;
                options(header.get(2..len).ok_or(End::Ipv6Extension)?)?;
                next = NextHeader { protocol, at: next.at + len };
            }
            // An old way to reflect packets (RFC 5095). The newer types are for routers.
            ROUTING => return Err(End::Ipv6Routing),
            FRAGMENT => {
                let [protocol, _, high, low, id @ ..] =
                    *header.first_chunk::<FRAGMENT_HEADER>().ok_or(End::Ipv6Extension)?;
                let field = u16::from_be_bytes([high, low]);
                return Ok(Behind::Piece {
                    next: NextHeader { protocol, at: next.at + FRAGMENT_HEADER },
                    identification: u32::from_be_bytes(id),
                    offset: usize::from(field & 0xfff8),
                    more: field & 1 != 0,
                });
            }
            _ => return Ok(Behind::Transport(next)),
        }
        if next.at - begin > EXTENSION_BYTES {
            break;
        }
    }
    Err(End::Ipv6Extension)
}

/// Checks options. An unknown one is skipped if its code permits that (RFC 8200 4.2); else the packet is dropped.
fn options(mut options: &[u8]) -> Result<(), End> {
    while let [kind, rest @ ..] = options {
        // Pad1 is the only option without a length.
        if *kind == 0 {
            options = rest;
            continue;
        }
        if kind & 0xc0 != 0 {
            return Err(End::Ipv6Option);
        }
        let [len, rest @ ..] = rest else { return Err(End::Ipv6Extension) };
        options = rest.get(usize::from(*len)..).ok_or(End::Ipv6Extension)?;
    }
    Ok(())
}

/// The headers of a packet whose payload begins with this protocol.
fn head(frame: &[u8], protocol: u8) -> Vec<u8> {
    let mut head = frame[..HEADERS].to_vec();
    head[NEXT_HEADER] = protocol;
    head
}

/// The same packet, without everything between the IPv6 header and this one.
fn bare(frame: &[u8], next: NextHeader) -> Vec<u8> {
    let payload = &frame[next.at..];
    let mut bare = head(frame, next.protocol);
    // It is shorter than before.
    bare[LENGTH..LENGTH + 2].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    bare.extend_from_slice(payload);
    bare
}

/// Whether the first fragment has all headers (RFC 7112 5). Without the transport header, a filter has no ports to check.
fn has_headers(frame: &[u8], next: NextHeader) -> Result<bool, End> {
    match walk(frame, next) {
        Ok(Behind::Transport(next)) => Ok(frame.len() >= next.at + if next.protocol == TCP { 20 } else { 8 }),
        Ok(Behind::Piece { .. }) => Err(End::FragmentMalformed),
        // It is truncated.
        Err(End::Ipv6Extension) => Ok(false),
        Err(end) => Err(end),
    }
}

impl Core {
    /// Handles an IPv6 packet. `to_many`: the frame went to several stations.
    pub(crate) fn ipv6(&mut self, bytes: &[u8], time: u64, to_many: bool, origin: Origin, now: u64) -> End {
        let Ok(packet) = Packet::new_checked(&bytes[ETHERNET..]) else { return End::Ipv6Malformed };
        let Some(frame) = bytes.get(..HEADERS + usize::from(packet.payload_len())) else { return End::Ipv6Malformed };
        let (source, target) = (packet.source(), packet.target());
        let is_to_many = target.is_multicast();
        // A neighbour without an address asks whether it may have one.
        let is_probe = source.is_unspecified() && is_to_many && packet.next_header() == ICMP6;
        if !is_host(source.into()) && !is_probe {
            return End::Ipv6BadSource;
        }
        if origin == Origin::Device && self.routes.is_own(source.into()) {
            // A neighbour that sends from our address also has it.
            let asks = [ndp::NEIGHBOUR_SOLICITATION, ndp::NEIGHBOUR_ADVERTISEMENT];
            let is_neighbour = packet.next_header() == ICMP6 && frame[HOPS] == ndp::HOP_LIMIT;
            let is_conflict = is_neighbour && frame.get(HEADERS).is_some_and(|kind| asks.contains(kind));
            return if is_conflict { End::NdpConflict } else { End::Ipv6Land };
        }
        if is_to_many && !self.is_member(target) {
            return End::Multicast;
        }
        if !is_to_many && !self.routes.is_own(target.into()) {
            return End::Ipv6NotOurs;
        }
        if to_many && !is_to_many {
            return End::Ipv6FalseMulticast;
        }
        let (source, target, protocol) = (source.into(), target.into(), packet.next_header());
        let (header, is_fragmented) = (HEADERS, false);
        let whole = Whole { frame, header, protocol, source, target, is_to_many, is_fragmented, time, origin };
        self.behind_options(whole, now)
    }

    /// Whether the interface is a member of this group: of all nodes, or of the nodes whose addresses end like one of its own.
    fn is_member(&self, group: Ipv6Addr) -> bool {
        let is_of = |own: &IpAddr| matches!(own, IpAddr::V6(own) if ndp::solicited_node(*own) == group);
        group == ndp::ALL_NODES || self.routes.addresses().iter().any(|(own, _)| is_of(own))
    }

    fn behind_options(&mut self, whole: Whole<'_>, now: u64) -> End {
        let frame = whole.frame;
        let behind = match walk(frame, NextHeader { protocol: whole.protocol, at: HEADERS }) {
            Ok(behind) => behind,
            Err(end) => return end,
        };
        let (next, identification, offset, more) = match behind {
            Behind::Transport(next) if next.at == HEADERS => return self.transport(whole, now),
            Behind::Transport(next) => {
                let bare = bare(frame, next);
                return self.transport(Whole { frame: &bare, protocol: next.protocol, ..whole }, now);
            }
            // A packet is fragmented only once.
            Behind::Piece { .. } if whole.is_fragmented => return End::FragmentMalformed,
            Behind::Piece { next, identification, offset, more } => (next, identification, offset, more),
        };
        if next.protocol == HOP_BY_HOP {
            return End::Ipv6Extension;
        }
        if offset == 0 && !more {
            // A lone fragment is a whole packet (RFC 6946 4).
            let bare = bare(frame, next);
            let whole = Whole { frame: &bare, protocol: next.protocol, is_fragmented: true, ..whole };
            return self.behind_options(whole, now);
        }
        if offset == 0 {
            match has_headers(frame, next) {
                Ok(true) => (),
                Ok(false) => return End::FragmentTiny,
                Err(end) => return end,
            }
        }
        let key = Key { source: whole.source, target: whole.target, identification, protocol: 0 };
        let piece = Piece { key, head: &head(frame, next.protocol), payload: &frame[next.at..], offset, more };
        match self.fragments.add(&piece, now) {
            Added::Ended(end) => end,
            Added::Whole(joined) => {
                self.counters.event(Event::FragmentsJoined);
                let Some(protocol) = joined.get(NEXT_HEADER).copied() else { return End::FragmentMalformed };
                self.behind_options(Whole { frame: &joined, protocol, is_fragmented: true, ..whole }, now)
            }
        }
    }
}
