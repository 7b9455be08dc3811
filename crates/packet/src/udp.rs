//! UDP headers (RFC 768). Not the payload.

use crate::malformed::Malformed;

/// A UDP datagram with a complete header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; Packet::HEADER_BYTES],
    payload: &'a [u8],
    payload_wire_len: u32,
}

impl<'a> Packet<'a> {
    /// Length of the header: ports, length, checksum.
    pub const HEADER_BYTES: usize = 8;

    /// Checks the length. `captured` begins at the header; `wire_len` is the rest of the IP packet on the wire.
    ///
    /// A length of 0 means up to the end of the IP packet (RFC 2675, 4). A first fragment has a length beyond that end;
    /// its payload then ends with the packet.
    #[inline]
    pub fn new_checked(captured: &'a [u8], wire_len: u32) -> Result<Self, Malformed> {
        let (header, rest) = captured.split_first_chunk::<8>().ok_or(Malformed::TruncatedUdp)?;
        let available = wire_len.checked_sub(8).ok_or(Malformed::TruncatedUdp)?;
        let payload_wire_len = match u16::from_be_bytes([header[4], header[5]]) {
            0 => available,
            length => u32::from(length.checked_sub(8).ok_or(Malformed::UdpLength)?).min(available),
        };
        let payload = rest.get(..payload_wire_len as usize).unwrap_or(rest);
        Ok(Self { header, payload, payload_wire_len })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let check = |length: u16, captured: usize, wire: u32, expected: Result<(usize, u32), Malformed>| {
            let mut bytes = vec![0, 53, 0x12, 0x34, 0, 0, 0, 0];
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes.resize(100, 7);
            let read = Packet::new_checked(&bytes[..captured], wire);
            assert_eq!(read.map(|packet| (packet.payload().len(), packet.payload_wire_len())), expected);
        };
        check(28, 28, 28, Ok((20, 20)));
        check(8, 8, 8, Ok((0, 0)));
        // Bytes behind the datagram, inside the IP packet.
        check(28, 40, 40, Ok((20, 20)));
        check(1000, 40, 1000, Ok((32, 992)));
        check(4000, 40, 40, Ok((32, 32)));
        check(0, 40, 40, Ok((32, 32)));
        check(28, 7, 28, Err(Malformed::TruncatedUdp));
        check(28, 28, 7, Err(Malformed::TruncatedUdp));
        check(7, 28, 28, Err(Malformed::UdpLength));
    }

    #[test]
    fn ports() {
        let packet = Packet::new_checked(&[0, 53, 0x12, 0x34, 0, 8, 0, 0], 8).unwrap();
        assert_eq!((packet.source_port(), packet.target_port()), (53, 0x1234));
    }
}
