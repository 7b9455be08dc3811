//! NTP time messages (RFC 5905): version, mode and clock source. Timestamps and control messages are not read.

use packet::malformed::Malformed;

/// A message with all its fixed fields.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    fields: &'a [u8; Packet::HEADER_BYTES],
}

impl<'a> Packet<'a> {
    /// Length of the fields up to the last timestamp.
    pub const HEADER_BYTES: usize = 48;

    /// Checks the length, and that version and mode are those of a time message.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let packet = Self { fields: bytes.first_chunk().ok_or(Malformed::OtherProtocol)? };
        let is_time = (1..=4).contains(&packet.version()) && (1..=5).contains(&packet.mode());
        if is_time { Ok(packet) } else { Err(Malformed::OtherProtocol) }
    }

    /// Version of the protocol.
    pub fn version(&self) -> u8 {
        self.fields[0] >> 3 & 7
    }

    /// The sender's role: 3 is a client, 4 a server, 5 a broadcasting server.
    pub fn mode(&self) -> u8 {
        self.fields[0] & 7
    }

    /// Number of servers between the sender and a clock; 0 if it does not know the time.
    pub fn stratum(&self) -> u8 {
        self.fields[1]
    }

    /// The sender's own source of time: an address, or letters.
    pub fn reference(&self) -> [u8; 4] {
        [self.fields[12], self.fields[13], self.fields[14], self.fields[15]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let mut bytes = [0; 48];
        bytes[..2].copy_from_slice(&[0x24, 2]);
        bytes[12..16].copy_from_slice(b"GPS\0");
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!((packet.version(), packet.mode(), packet.stratum(), &packet.reference()), (4, 4, 2, b"GPS\0"));
        for (first, len) in [(0x24, 47), (0x26, 48), (0x2c, 48), (0x04, 48)] {
            bytes[0] = first;
            assert!(Packet::new_checked(&bytes[..len]).is_err(), "{first} {len}");
        }
    }
}
