//! Teredo (RFC 4380, 5.1.1): IPv6 in UDP, behind an optional authentication and an optional origin. No field identifies
//! Teredo, so the lengths must agree.

use super::{Kind, Leads, Opened};
use crate::bytes::{chunk_at, u16_at};
use crate::layer::Layer as Next;
use crate::{ethernet, ipv6};

/// `whole` is the datagram's length on the wire.
pub(super) fn open(payload: &[u8], whole: usize) -> Opened {
    let mut at = 0;
    if let Some(&[0, 1, id, value]) = chunk_at(payload, at) {
        // Lengths of identifier and value, then both, a nonce and a confirmation byte.
        at += 4 + usize::from(id) + usize::from(value) + 9;
    }
    if u16_at(payload, at) == Some(0) {
        // A port and an address, both inverted.
        at += 8;
    }
    let Some(packet) = payload.get(at..).filter(|packet| packet.len() >= ipv6::Packet::HEADER_BYTES) else {
        return Ok(None);
    };
    let inner = ipv6::Packet::HEADER_BYTES + u16_at(packet, 4).map_or(0, usize::from);
    if packet.first().is_none_or(|first| first >> 4 != 6) || whole != at + inner {
        return Ok(None);
    }
    Ok(Some(Leads {
        kind: Kind::Teredo,
        id: None,
        vlan: None,
        at,
        len: Some(inner),
        next: Next::EtherType(ethernet::IPV6),
    }))
}
