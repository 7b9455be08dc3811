//! GTP-U, version 1 (3GPP TS 29.281, 5.1): user packets, and control messages between the ends, without an inner
//! packet. The header does not say whether a user packet is IPv4 or IPv6; its first bits do.

use super::{Kind, Leads, Opened};
use crate::bytes::chunk_at;
use crate::layer::Layer as Next;

// First byte: version and protocol type, then flags for extension, sequence number and N-PDU number.
const VERSION_AND_TYPE: u8 = 0xf0;
const VERSION_1: u8 = 0x30;
const OPTIONAL: u8 = 0x07;
const EXTENSION: u8 = 0x04;

/// The message type of a user packet.
const G_PDU: u8 = 0xff;

/// Most extension headers.
const EXTENSION_LIMIT: u32 = 8;

pub(super) fn open(payload: &[u8]) -> Opened {
    let Some(&[flags, message, high, low, a, b, c, d]) = chunk_at(payload, 0) else { return Ok(None) };
    if flags & VERSION_AND_TYPE != VERSION_1 || message != G_PDU {
        return Ok(None);
    }
    let mut at = 8;
    if flags & OPTIONAL != 0 {
        let Some(&[_, _, _, mut next]) = chunk_at(payload, at) else { return Ok(None) };
        at += 4;
        let mut left = if flags & EXTENSION != 0 { EXTENSION_LIMIT } else { 0 };
        while next != 0 && left > 0 {
            // The first byte is the length in words, the last one the type of the next extension.
            let Some(&length) = payload.get(at) else { return Ok(None) };
            at += usize::from(length) * 4;
            match payload.get(at - 1) {
                Some(&following) if length > 0 => next = following,
                _ => return Ok(None),
            }
            left -= 1;
        }
        if flags & EXTENSION != 0 && next != 0 {
            return Ok(None);
        }
    }
    // The length counts from behind the first eight bytes.
    let Some(len) = usize::from(u16::from_be_bytes([high, low])).checked_sub(at - 8) else { return Ok(None) };
    let id = Some(u32::from_be_bytes([a, b, c, d]));
    Ok(Some(Leads { kind: Kind::Gtp, id, vlan: None, at, len: Some(len), next: Next::Ip }))
}
