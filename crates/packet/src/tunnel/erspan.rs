//! ERSPAN: a mirrored frame from a switch, inside GRE (draft-foschiano-erspan-03). Type I has no header.

use super::{Kind, Leads, Opened};
use crate::bytes::chunk_at;
use crate::layer::Layer as Next;
use crate::malformed::Malformed;

/// GRE protocol of types I and II. Type I has no sequence number.
pub(super) const TYPE_I_OR_II: u16 = 0x88be;

/// GRE protocol of type III.
pub(super) const TYPE_III: u16 = 0x22eb;

/// Version, VLAN, class; the session is the low ten of 32 bits. Then an index, or in type III a timestamp and more.
pub(super) fn open(payload: &[u8], protocol: u16) -> Opened {
    const CUT: Malformed = Malformed::TruncatedTunnel;
    let [first, vlan, high, low] = *chunk_at(payload, 0).ok_or(CUT)?;
    let session = u32::from(u16::from_be_bytes([high, low]) & 0x03ff);
    // 3 (in type II): the tag is still in the frame.
    let is_in_frame = first >> 4 == 1 && high >> 3 & 3 == 3;
    let vlan = Some(u16::from_be_bytes([first & 0x0f, vlan])).filter(|vlan| *vlan != 0 && !is_in_frame);
    let leads = |at, next| Some(Leads { kind: Kind::Erspan, id: Some(session), vlan, at, len: None, next });
    match (protocol, first >> 4) {
        (TYPE_I_OR_II, 1) => Ok(leads(8, Next::Ethernet)),
        (TYPE_III, 2) => {
            // Bits 10 to 6 are the type of frame; the last bit announces eight bytes about the platform.
            let [high, low] = *chunk_at(payload, 10).ok_or(CUT)?;
            let at = 12 + if low & 1 == 1 { 8 } else { 0 };
            let sort = u16::from_be_bytes([high, low]) >> 10 & 0x1f;
            Ok(match sort {
                0 => leads(at, Next::Ethernet),
                2 => leads(at, Next::Ip),
                _ => None,
            })
        }
        _ => Err(Malformed::TunnelHeader),
    }
}
