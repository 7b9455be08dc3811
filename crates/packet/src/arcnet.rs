//! ARCNET (RFC 1201, RFC 1051): its types, and the two headers that captures have. Not its fragments: Linux puts them
//! together before a capture sees them, and elsewhere they are left alone.

use crate::encapsulation::Layer;
use crate::ethernet;
use crate::link_layer::Step;
use crate::malformed::Malformed;

const CUT: Malformed = Malformed::TruncatedLink;

// Types: those of RFC 1201, and of RFC 1051, whose header ends with the type.
const IP: u8 = 212;
const ARP: u8 = 213;
const REVERSE_ARP: u8 = 214;
const IPV6: u8 = 196;
const OLD_IP: u8 = 240;
const OLD_ARP: u8 = 241;

/// Source, target, type; then of RFC 1201 a split flag and a sequence number, which an exception frame has twice.
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
    // The first fragment of several says so with an odd flag; the others have no header of what they carry.
    Ok((end, if flag == 0 || flag & 1 == 1 { layer(kind) } else { Layer::Other }))
}

/// Source, target, two bytes of offset, type; then of RFC 1201 a split flag and a sequence number.
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
