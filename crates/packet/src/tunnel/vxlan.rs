//! VXLAN (RFC 7348, 5): eight bytes, with a flag for the network identifier. The generic extension
//! (draft-ietf-nvo3-vxlan-gpe) names the payload's protocol; without it the payload is Ethernet. All other bits are
//! reserved and ignored. At the ports of plain VXLAN, that of the extension is one of them.

use super::{Kind, Leads, Opened};
use crate::bytes::chunk_at;
use crate::ethernet;
use crate::layer::Layer as Next;

const HAS_NETWORK: u8 = 0x08;
const NAMES_NEXT: u8 = 0x04;

/// Version bits of the extension; only version 0 exists.
const VERSION: u8 = 0x30;

/// The ports of plain VXLAN: IANA's and Linux's.
pub(super) const PLAIN_PORTS: [u16; 2] = [4789, 8472];

/// `is_plain`: the header has no extension.
pub(super) fn open(payload: &[u8], is_plain: bool) -> Opened {
    let Some(&[flags, _, _, next, a, b, c, _]) = chunk_at(payload, 0) else { return Ok(None) };
    if flags & HAS_NETWORK == 0 {
        return Ok(None);
    }
    let next = match (flags & NAMES_NEXT, flags & VERSION, next) {
        _ if is_plain => Next::Ethernet,
        (0, ..) => Next::Ethernet,
        (_, 0, 1) => Next::EtherType(ethernet::IPV4),
        (_, 0, 2) => Next::EtherType(ethernet::IPV6),
        (_, 0, 3) => Next::Ethernet,
        (_, 0, 5) => Next::Mpls,
        _ => return Ok(None),
    };
    let id = Some(u32::from_be_bytes([0, a, b, c]));
    Ok(Some(Leads { kind: Kind::Vxlan, id, vlan: None, at: 8, len: None, next }))
}
