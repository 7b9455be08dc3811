//! IEEE 802.11: from the first byte of a data frame to its LLC header, with the capture headers radiotap, Prism and
//! AVS. Skips management, control and encrypted frames, and the fields of the capture headers.
//!
//! A frame with part of a packet (a fragment) or several packets (an A-MSDU) is refused, each with its own reason.

use crate::bytes::u16_at;
use crate::layer::{Layer, Step};
use crate::malformed::Malformed;

const CUT: Malformed = Malformed::TruncatedLink;

// Frame control: version, type and subtype in the first byte, flags in the second.
const VERSION_AND_TYPE: u8 = 0x0f;
const DATA: u8 = 0x08;
const WITHOUT_DATA: u8 = 0x40;
const QOS: u8 = 0x80;
const TO_DS: u8 = 0x01;
const FROM_DS: u8 = 0x02;
const MORE_FRAGMENTS: u8 = 0x04;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;

/// Frame control, duration, three addresses, sequence control.
const HEADER_BYTES: usize = 24;

/// Low bits of the sequence control: the fragment number.
const FRAGMENT_NUMBER: u8 = 0x0f;

/// QoS control flag: the body is an A-MSDU.
const AGGREGATE: u8 = 0x80;

/// Padding between the 802.11 header and the LLC header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    None,
    /// Up to a multiple of four bytes, as some devices write frames.
    Words,
}

/// Reads the 802.11 frame at `start`.
pub(crate) fn next(bytes: &[u8], start: usize, padding: Padding) -> Step {
    let header = bytes.get(start..).and_then(<[u8]>::first_chunk::<HEADER_BYTES>);
    let &[control, flags, ..] = bytes.get(start..).and_then(<[u8]>::first_chunk::<2>).ok_or(CUT)?;
    if control & VERSION_AND_TYPE != DATA || control & WITHOUT_DATA != 0 || flags & PROTECTED != 0 {
        return Ok((start, Layer::Other));
    }
    let header = header.ok_or(CUT)?;
    if flags & MORE_FRAGMENTS != 0 || header[22] & FRAGMENT_NUMBER != 0 {
        return Err(Malformed::WlanFragment);
    }
    // Between two access points there is a fourth address.
    let mut length = HEADER_BYTES + if flags & (TO_DS | FROM_DS) == TO_DS | FROM_DS { 6 } else { 0 };
    if control & QOS != 0 {
        if bytes.get(start + length).ok_or(CUT)? & AGGREGATE != 0 {
            return Err(Malformed::WlanAggregate);
        }
        // A flag announces an HT control field.
        length += 2 + if flags & ORDER != 0 { 4 } else { 0 };
    }
    if padding == Padding::Words {
        length = length.next_multiple_of(4);
    }
    Ok((start + length, Layer::Llc))
}

/// Radiotap header (<https://www.radiotap.org>): version, padding, length, words of presence bits, then the fields.
pub(crate) fn next_radiotap(bytes: &[u8]) -> Step {
    const TIME_BIT: u32 = 1;
    const FLAGS_BIT: u32 = 2;
    const MORE_WORDS_BIT: u32 = 1 << 31;
    const PADDED: u8 = 0x20;
    /// Most words of presence bits; each antenna has one or a few.
    const WORD_LIMIT: usize = 32;
    let [_, _, low, high] = *bytes.first_chunk().ok_or(CUT)?;
    let length = usize::from(u16::from_le_bytes([low, high])).max(8);
    let words = bytes.get(4..length).ok_or(CUT)?.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let present = words.clone().next().unwrap_or(0);
    let count = words.take(WORD_LIMIT).take_while(|word| word & MORE_WORDS_BIT != 0).count() + 1;
    let mut at = 4 + 4 * count;
    if present & TIME_BIT != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let is_padded = present & FLAGS_BIT != 0
        && bytes.get(..length).and_then(|header| header.get(at)).is_some_and(|flags| flags & PADDED != 0);
    next(bytes, length, if is_padded { Padding::Words } else { Padding::None })
}

/// AVS header: a magic number and the length, in network byte order.
pub(crate) fn next_avs(bytes: &[u8]) -> Step {
    let [_, _, _, _, length @ ..] = *bytes.first_chunk::<8>().ok_or(CUT)?;
    next(bytes, (u32::from_be_bytes(length) as usize).clamp(8, bytes.len()), Padding::None)
}

/// Prism header of 144 bytes, or AVS header: this link type has either.
pub(crate) fn next_prism(bytes: &[u8]) -> Step {
    const PRISM_BYTES: usize = 144;
    match u16_at(bytes, 0).ok_or(CUT)? {
        0x8021 => next_avs(bytes),
        _ => next(bytes, PRISM_BYTES, Padding::None),
    }
}
