//! TCP headers and options (RFC 9293, 3.1). Not streams: a filter puts segments in order.
//!
//! Options may be cut by the snap length: then ports, sequence number and flags are still read, and the payload is
//! empty but has its wire length.

use crate::malformed::Malformed;

/// Whether `a` is behind `b` in sequence space (RFC 9293 3.4).
pub fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// The flag bits of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);

    /// Whether any of `other`'s bits is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether SYN is set.
    #[inline]
    pub const fn syn(self) -> bool {
        self.intersects(Self::SYN)
    }

    /// Whether ACK is set.
    #[inline]
    pub const fn ack(self) -> bool {
        self.intersects(Self::ACK)
    }

    /// Whether FIN is set.
    #[inline]
    pub const fn fin(self) -> bool {
        self.intersects(Self::FIN)
    }

    /// Whether RST is set.
    #[inline]
    pub const fn rst(self) -> bool {
        self.intersects(Self::RST)
    }
}

/// A TCP segment with a complete fixed header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; Packet::HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
    payload_wire_len: u32,
}

impl<'a> Packet<'a> {
    /// Length of the header without options.
    pub const HEADER_BYTES: usize = 20;

    /// Checks the data offset. `captured` begins at the header; `wire_len` is the segment's length on the wire.
    #[inline]
    pub fn new_checked(captured: &'a [u8], wire_len: u32) -> Result<Self, Malformed> {
        let (header, rest) = captured.split_first_chunk::<20>().ok_or(Malformed::TruncatedTcp)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let payload_wire_len = wire_len.checked_sub(header_len as u32).ok_or(Malformed::TcpHeaderLength)?;
        let options_len = header_len.checked_sub(Self::HEADER_BYTES).ok_or(Malformed::TcpHeaderLength)?;
        let (options, payload) = rest.split_at_checked(options_len).unwrap_or((rest, &[]));
        Ok(Self { header, options, payload, payload_wire_len })
    }

    /// Source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    #[inline]
    pub fn target_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Sequence number of the first byte (with SYN: of the SYN).
    #[inline]
    pub fn sequence_number(&self) -> u32 {
        u32::from_be_bytes([self.header[4], self.header[5], self.header[6], self.header[7]])
    }

    /// Acknowledgement number; valid with ACK.
    #[inline]
    pub fn acknowledgment_number(&self) -> u32 {
        u32::from_be_bytes([self.header[8], self.header[9], self.header[10], self.header[11]])
    }

    /// Length of the header with options.
    #[inline]
    pub fn header_len(&self) -> u32 {
        u32::from(self.header[12] >> 4) * 4
    }

    /// Flag bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.header[13])
    }

    /// Receive window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.header[14], self.header[15]])
    }

    /// Urgent pointer; valid with URG.
    #[inline]
    pub fn urgent_pointer(&self) -> u16 {
        u16::from_be_bytes([self.header[18], self.header[19]])
    }

    /// The captured part of the options.
    #[inline]
    pub fn options(&self) -> Options<'a> {
        Options { rest: self.options }
    }

    /// The captured payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Length of the payload on the wire; more than captured if the capture was cut.
    #[inline]
    pub fn payload_wire_len(&self) -> u32 {
        self.payload_wire_len
    }
}

/// One option. Padding and the end mark are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Largest segment that the sender accepts (RFC 9293, 3.7.1).
    MaximumSegmentSize(u16),
    /// Window shift (RFC 7323, 2.2).
    WindowScale(u8),
    /// Selective acknowledgement is supported (RFC 2018, 2).
    SackPermitted,
    /// Blocks received out of order (RFC 2018, 3).
    Sack(SackBlocks<'a>),
    /// Timestamps (RFC 7323, 3.2).
    Timestamps {
        /// Timestamp of the sender.
        value: u32,
        /// Timestamp received last, sent back.
        echo: u32,
    },
    /// Any other option, or a known one of the wrong length.
    Other {
        /// Option number.
        kind: u8,
        /// Data behind kind and length.
        data: &'a [u8],
    },
}

/// The options of a segment in order. Ends at the end mark or at an option that is cut.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        loop {
            match *self.rest {
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] => {
                    // The length includes kind and length. Below 2 the option is broken, and the rest cannot be read.
                    let (option, rest) = self.rest.split_at_checked(usize::from(length)).unwrap_or((&[], &[]));
                    self.rest = rest;
                    return Some(read_option(kind, option.get(2..)?));
                }
                [_] => return None,
            }
        }
    }
}

fn read_option(kind: u8, data: &[u8]) -> TcpOption<'_> {
    match (kind, data) {
        (2, &[high, low]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([high, low])),
        (3, &[shift]) => TcpOption::WindowScale(shift),
        (4, []) => TcpOption::SackPermitted,
        (5, blocks) if blocks.len().is_multiple_of(8) => TcpOption::Sack(SackBlocks { rest: blocks }),
        (8, &[a, b, c, d, e, f, g, h]) => {
            TcpOption::Timestamps { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
        }
        (kind, data) => TcpOption::Other { kind, data },
    }
}

/// Blocks of sequence space: left edge, and right edge (one past the last byte).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a> {
    rest: &'a [u8],
}

impl Iterator for SackBlocks<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let (&[a, b, c, d, e, f, g, h], rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with this data offset (in words), followed by `rest`.
    fn segment(words: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, words << 4, 0x12, 0xff, 0xff, 0, 0, 0, 9];
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn fields() {
        let bytes = segment(5, b"data");
        let packet = Packet::new_checked(&bytes, 24).unwrap();
        assert_eq!((packet.source_port(), packet.target_port()), (8080, 80));
        assert_eq!((packet.sequence_number(), packet.acknowledgment_number()), (1, 2));
        assert_eq!((packet.window(), packet.urgent_pointer(), packet.header_len()), (65_535, 9, 20));
        let flags = packet.flags();
        assert!(flags.syn() && flags.ack() && !flags.fin() && !flags.rst());
        assert_eq!((packet.payload(), packet.payload_wire_len()), (&b"data"[..], 4));
    }

    #[test]
    fn lengths() {
        let check = |words: u8, captured: usize, wire: u32, expected: Result<(usize, u32), Malformed>| {
            let bytes = segment(words, &[1; 60]);
            let read = Packet::new_checked(&bytes[..captured], wire);
            assert_eq!(read.map(|packet| (packet.payload().len(), packet.payload_wire_len())), expected);
        };
        check(5, 20, 20, Ok((0, 0)));
        check(5, 30, 1480, Ok((10, 1460)));
        check(8, 40, 40, Ok((8, 8)));
        // Options cut by the snap length.
        check(8, 24, 132, Ok((0, 100)));
        check(5, 19, 40, Err(Malformed::TruncatedTcp));
        check(4, 40, 40, Err(Malformed::TcpHeaderLength));
        check(15, 40, 40, Err(Malformed::TcpHeaderLength));
    }

    #[test]
    fn options() {
        let check = |options: &[u8], expected: &[TcpOption<'_>]| {
            assert_eq!(Options { rest: options }.collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(
            &[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7],
            &[
                TcpOption::MaximumSegmentSize(1460),
                TcpOption::SackPermitted,
                TcpOption::Timestamps { value: 1, echo: 2 },
                TcpOption::WindowScale(7),
            ],
        );
        check(&[0, 2, 4, 5, 0xb4], &[]);
        check(&[34, 3, 9], &[TcpOption::Other { kind: 34, data: &[9] }]);
        check(&[3, 4, 7, 7], &[TcpOption::Other { kind: 3, data: &[7, 7] }]);
        // Lengths below 2 and beyond the end.
        check(&[3, 0, 7, 3, 3, 7], &[]);
        check(&[3, 1, 7, 3, 3, 7], &[]);
        check(&[3, 9, 7], &[]);
        check(&[3], &[]);
    }

    #[test]
    fn sack_blocks() {
        let options = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
        match (Options { rest: &options }).next() {
            Some(TcpOption::Sack(blocks)) => assert_eq!(blocks.collect::<Vec<_>>(), [(1, 2), (3, 4)]),
            other => panic!("{other:?}"),
        }
    }
}
