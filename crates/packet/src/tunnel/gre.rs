//! GRE: flags, a protocol, and fields that the flags announce (RFC 2784, RFC 2890; routing as in RFC 1701). PPTP's
//! version 1 (RFC 2637, 4.1) has another key and carries PPP. `erspan.rs` reads ERSPAN's header behind GRE.

use super::{Kind, Leads, Opened, erspan};
use crate::bytes::{chunk_at, u16_at, u32_at};
use crate::ethernet;
use crate::layer::Layer as Next;
use crate::malformed::Malformed;

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const ACKNOWLEDGMENT: u16 = 0x0080;
const VERSION: u16 = 0x0007;

/// Most source route entries. A longer list is an error.
const ROUTE_LIMIT: u32 = 16;

/// Cisco's redirection to web caches.
const WCCP: u16 = 0x883e;

pub(crate) fn open(payload: &[u8]) -> Opened {
    const CUT: Malformed = Malformed::TruncatedTunnel;
    let [a, b, c, d] = *chunk_at(payload, 0).ok_or(CUT)?;
    let (flags, protocol) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    match flags & VERSION {
        0 => {}
        1 if protocol == ethernet::PPP && flags & KEY != 0 => return version_1(payload, flags),
        _ => return Err(Malformed::TunnelHeader),
    }
    let mut at = 4;
    // Checksum and offset are present together, if either flag is set.
    at += if flags & (CHECKSUM | ROUTING) != 0 { 4 } else { 0 };
    let mut key = None;
    if flags & KEY != 0 {
        key = Some(u32_at(payload, at).ok_or(CUT)?);
        at += 4;
    }
    at += if flags & SEQUENCE != 0 { 4 } else { 0 };
    if flags & ROUTING != 0 {
        at = behind_routes(payload, at)?;
    }
    let rest = payload.get(at..).ok_or(CUT)?;
    let leads = Leads { kind: Kind::Gre, id: key, vlan: None, at, len: None, next: Next::EtherType(protocol) };
    Ok(match protocol {
        erspan::TYPE_I_OR_II if flags & SEQUENCE == 0 => {
            Some(Leads { kind: Kind::Erspan, next: Next::Ethernet, ..leads })
        }
        erspan::TYPE_I_OR_II | erspan::TYPE_III => {
            erspan::open(rest, protocol)?.map(|inner| Leads { at: at + inner.at, ..inner })
        }
        // There may be a four-byte header in front of IP.
        WCCP if rest.first().is_some_and(|first| first >> 4 == 4) => {
            Some(Leads { next: Next::EtherType(ethernet::IPV4), ..leads })
        }
        WCCP => Some(Leads { at: at + 4, next: Next::EtherType(ethernet::IPV4), ..leads }),
        _ => Some(leads),
    })
}

/// Source route entries (RFC 1701): family, offset, length and `length` bytes. The last entry is empty.
fn behind_routes(payload: &[u8], mut at: usize) -> Result<usize, Malformed> {
    for _ in 0..ROUTE_LIMIT {
        let [high, low, _, length] = *chunk_at(payload, at).ok_or(Malformed::TruncatedTunnel)?;
        at += 4 + usize::from(length);
        if [high, low, length] == [0; 3] {
            return Ok(at);
        }
    }
    Err(Malformed::TunnelHeader)
}

/// The key holds the payload's length and the number of the call. A packet without a sequence number has no payload: it
/// only acknowledges.
fn version_1(payload: &[u8], flags: u16) -> Opened {
    const CUT: Malformed = Malformed::TruncatedTunnel;
    let (len, call) = (u16_at(payload, 4).ok_or(CUT)?, u16_at(payload, 6).ok_or(CUT)?);
    if flags & SEQUENCE == 0 {
        return Ok(None);
    }
    let at = 12 + if flags & ACKNOWLEDGMENT != 0 { 4 } else { 0 };
    let (id, len) = (Some(u32::from(call)), Some(usize::from(len)));
    Ok(Some(Leads { kind: Kind::Pptp, id, vlan: None, at, len, next: Next::Ppp }))
}
