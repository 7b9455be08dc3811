//! L2TP. Version 2 carries PPP (RFC 2661, 3.1). A packet of version 3 (RFC 3931, 4.1) contains only its session; the
//! type of the payload and its offset are known to the ends alone. So this looks for Ethernet, the usual payload, at
//! each place where a cookie and a sublayer may end. Ignores control messages.

use super::{Kind, Leads, Opened};
use crate::bytes::{u16_at, u32_at};
use crate::ethernet;
use crate::layer::Layer as Next;

const CONTROL: u16 = 0x8000;
const LENGTH: u16 = 0x4000;
const SEQUENCE: u16 = 0x0800;
const OFFSET: u16 = 0x0200;
const VERSION: u16 = 0x000f;

/// Possible lengths of cookie and sublayer between session and payload.
const BETWEEN: [usize; 5] = [0, 4, 8, 12, 16];

/// Opens L2TP in UDP.
pub(super) fn open(payload: &[u8]) -> Opened {
    let Some(flags) = u16_at(payload, 0).filter(|flags| flags & CONTROL == 0) else { return Ok(None) };
    match flags & VERSION {
        2 => Ok(version_2(payload, flags)),
        // Skip reserved bits and the session.
        3 => Ok(u32_at(payload, 4).and_then(|session| version_3(payload, session, 8))),
        _ => Ok(None),
    }
}

/// Opens L2TP in IP: a session, or 0 and a control message.
pub(super) fn open_in_ip(payload: &[u8]) -> Opened {
    Ok(u32_at(payload, 0).filter(|session| *session != 0).and_then(|session| version_3(payload, session, 4)))
}

fn version_2(payload: &[u8], flags: u16) -> Option<Leads> {
    let mut at = 2;
    let mut whole = None;
    if flags & LENGTH != 0 {
        whole = Some(usize::from(u16_at(payload, at)?));
        at += 2;
    }
    // Tunnel and session.
    let id = u32_at(payload, at)?;
    at += 4 + if flags & SEQUENCE != 0 { 4 } else { 0 };
    if flags & OFFSET != 0 {
        at += 2 + usize::from(u16_at(payload, at)?);
    }
    let len = match whole {
        Some(whole) => Some(whole.checked_sub(at)?),
        None => None,
    };
    Some(Leads { kind: Kind::L2tp, id: Some(id), vlan: None, at, len, next: Next::Ppp })
}

fn version_3(payload: &[u8], session: u32, start: usize) -> Option<Leads> {
    let at = BETWEEN
        .into_iter()
        .map(|bytes| start + bytes)
        .find(|at| is_ethernet(payload.get(*at..).unwrap_or_default()))?;
    Some(Leads { kind: Kind::L2tp, id: Some(session), vlan: None, at, len: None, next: Next::Ethernet })
}

/// Whether it looks like an Ethernet frame: with IP of the right version, ARP, or a VLAN tag.
fn is_ethernet(bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk::<14>() else { return false };
    let version = rest.first().map_or(0, |first| first >> 4);
    match u16::from_be_bytes([header[12], header[13]]) {
        ethernet::IPV4 => version == 4,
        ethernet::IPV6 => version == 6,
        ethernet::ARP => rest.starts_with(&[0, 1, 8, 0]),
        ethernet::VLAN => matches!(u16_at(rest, 2), Some(ethernet::IPV4 | ethernet::IPV6 | ethernet::ARP)),
        _ => false,
    }
}
