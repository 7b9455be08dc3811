//! PPP: HDLC-like framing bytes (RFC 1662) and the protocol number (RFC 1661, 2). Not the control protocols.

use crate::bytes::u16_at;
use crate::ethernet;
use crate::layer::Layer;
use crate::malformed::Malformed;

/// Reads the framing at `start` of a PPP link: address and control bytes, which the peers may have agreed to omit
/// (RFC 1662, 3.2), or Cisco HDLC on the same link.
pub(crate) fn framing(bytes: &[u8], start: usize) -> Result<(usize, Layer), Malformed> {
    match bytes.get(start..).ok_or(Malformed::TruncatedLink)? {
        [0xff, 0x03, ..] => Ok((start + 2, Layer::Ppp)),
        [0x0f | 0x8f, 0x00, high, low, ..] => Ok((start + 4, Layer::EtherType(u16::from_be_bytes([*high, *low])))),
        [_, ..] => Ok((start, Layer::Ppp)),
        [] => Err(Malformed::TruncatedLink),
    }
}

/// Reads the protocol number at `offset`: its length and the type of the next header.
pub(crate) fn protocol(bytes: &[u8], offset: usize) -> Result<(usize, Layer), Malformed> {
    let first = *bytes.get(offset).ok_or(Malformed::TruncatedEncapsulation)?;
    // The first byte is even, unless the number was compressed to one byte (RFC 1661, 6.5).
    let (number, length) = match first & 1 {
        1 => (u16::from(first), 1),
        _ => (u16_at(bytes, offset).ok_or(Malformed::TruncatedEncapsulation)?, 2),
    };
    match number {
        0x0021 => Ok((length, Layer::EtherType(ethernet::IPV4))),
        0x0057 => Ok((length, Layer::EtherType(ethernet::IPV6))),
        0x0281 | 0x0283 => Ok((length, Layer::Mpls)),
        _ => Ok((length, Layer::Other)),
    }
}
