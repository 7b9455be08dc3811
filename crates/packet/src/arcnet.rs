//! ARCNET (RFC 1201, RFC 1051): its types, and the two header formats in captures. Does not reassemble fragments: Linux
//! does that before it captures, and other fragments are left alone.

use crate::ethernet;
use crate::layer::{Layer, Step};
use crate::malformed::Malformed;

const CUT: Malformed = Malformed::TruncatedLink;

// The types of RFC 1201, and those of RFC 1051, whose header ends with the type.
const IP: u8 = 212;
const ARP: u8 = 213;
const REVERSE_ARP: u8 = 214;
const IPV6: u8 = 196;
const OLD_IP: u8 = 240;
const OLD_ARP: u8 = 241;

/// Source, target, type. RFC 1201 adds a split flag and a sequence number; an exception frame has both twice.
pub(crate) fn next(bytes: &[u8]) -> Step {
    let [_, _, kind] = *bytes.first_chunk().ok_or(CUT)?;
    if let OLD_IP | OLD_ARP = kind {
        return Ok((3, layer(kind)));
    }
    let (flag, end) = match *bytes.get(3..).ok_or(CUT)? {
        [0xff, _, _, _, flag, ..] => (flag, 10),
        [flag, ..] => (flag, 6),
        [] => return Err(CUT),
    };
    // An odd flag marks the first of several fragments. Later ones lack the header of their payload.
    Ok((end, if flag == 0 || flag & 1 == 1 { layer(kind) } else { Layer::Other }))
}

/// Source, target, two bytes of offset, type. RFC 1201 adds a split flag and a sequence number.
pub(crate) fn next_linux(bytes: &[u8]) -> Step {
    let [_, _, _, _, kind] = *bytes.first_chunk().ok_or(CUT)?;
    Ok((if matches!(kind, OLD_IP | OLD_ARP) { 5 } else { 8 }, layer(kind)))
}

fn layer(kind: u8) -> Layer {
    match kind {
        IP | OLD_IP => Layer::EtherType(ethernet::IPV4),
        IPV6 => Layer::EtherType(ethernet::IPV6),
        ARP | OLD_ARP => Layer::EtherType(ethernet::ARP),
        REVERSE_ARP => Layer::EtherType(ethernet::REVERSE_ARP),
        _ => Layer::Other,
    }
}
