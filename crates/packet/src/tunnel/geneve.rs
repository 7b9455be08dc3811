//! Geneve (RFC 8926, 3.4): eight bytes, options, and a payload of the given protocol.

use super::{Kind, Leads, Opened};
use crate::bytes::chunk_at;
use crate::layer::Layer as Next;

pub(super) fn open(payload: &[u8]) -> Opened {
    let Some(&[first, _, high, low, a, b, c, _]) = chunk_at(payload, 0) else { return Ok(None) };
    // The version, and the length of the options in words.
    if first >> 6 != 0 {
        return Ok(None);
    }
    let at = 8 + usize::from(first & 0x3f) * 4;
    let (id, protocol) = (u32::from_be_bytes([0, a, b, c]), u16::from_be_bytes([high, low]));
    Ok(Some(Leads { kind: Kind::Geneve, id: Some(id), vlan: None, at, len: None, next: Next::EtherType(protocol) }))
}
