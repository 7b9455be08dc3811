//! NFLOG: packets logged by the kernel's packet filter, in netlink attributes. Reads only the packet's attribute.
//!
//! <https://www.tcpdump.org/linktypes/LINKTYPE_NFLOG.html>

use crate::bytes::chunk_at;
use crate::layer::{Layer, Step};
use crate::malformed::Malformed;

/// Length of the header: family, version, group.
const HEADER_BYTES: usize = 4;

/// Most attributes before the packet; the kernel has fewer than twenty types.
const ATTRIBUTE_LIMIT: u32 = 64;

/// The attribute that holds the packet (`NFULA_PAYLOAD`).
const PAYLOAD: u16 = 9;

/// Finds the packet. Attributes are in the byte order of the capturing host, which the header does not name: it is
/// guessed from the first attribute.
pub(crate) fn next(bytes: &[u8]) -> Step {
    const CUT: Malformed = Malformed::TruncatedLink;
    let [family, version, ..] = *bytes.first_chunk::<HEADER_BYTES>().ok_or(CUT)?;
    if version != 0 {
        return Ok((HEADER_BYTES, Layer::Other));
    }
    let numbers = |at: usize| chunk_at::<4>(bytes, at).map(|&[a, b, c, d]| ([a, b], [c, d]));
    let (first_length, first_kind) = numbers(HEADER_BYTES).ok_or(CUT)?;
    // Attribute types are small numbers, and a length is at least 4.
    let is_little = u16::from_le_bytes(first_kind) <= 0xff && u16::from_le_bytes(first_length) >= 4;
    let number = |pair: [u8; 2]| if is_little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) };
    let mut at = HEADER_BYTES;
    for _ in 0..ATTRIBUTE_LIMIT {
        let (length, kind) = numbers(at).ok_or(CUT)?;
        let (length, kind) = (usize::from(number(length)), number(kind));
        if kind == PAYLOAD {
            // IPv4, bridge and IPv6: a bridge's packets too are logged from their network header on.
            return Ok((at + 4, if matches!(family, 2 | 7 | 10) { Layer::Ip } else { Layer::Other }));
        }
        if length < 4 {
            return Err(CUT);
        }
        at += length.next_multiple_of(4);
    }
    Err(Malformed::TooManyEncapsulations)
}
