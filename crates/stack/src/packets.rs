//! A packet between two blocks, down or up, and what blocks tell each other about it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packet::checksum::Sum;

use crate::outcome::SendError;

/// What blocks tell each other about a packet. All fields start unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The other end: the destination on the way down, the source on the way up. `None` if unknown.
    pub remote: Option<SocketAddr>,
    /// The protocol that the next header carries, as numbered by IPv4 and IPv6. 0 if unknown.
    pub protocol: u8,
    /// The protocol that the next header carries, as an ether type. 0 if unknown.
    pub ether_type: u16,
    /// The link address of the other end. All zero on the way down unless a block knows it: the driver writes it.
    pub station: [u8; 6],
    /// On the way up: the frame was sent to several stations.
    pub to_many: bool,
    /// On the way up: an ICMP error about an earlier packet of this flow.
    pub problem: Option<Problem>,
}

/// A packet on its way to the driver. Headers grow toward the front of their room; the payload stays in place.
#[derive(Debug)]
pub struct Outgoing<'a> {
    room: &'a mut [u8],
    start: usize,
    payload: &'a [u8],
    /// What blocks tell each other.
    pub meta: Meta,
}

impl<'a> Outgoing<'a> {
    /// A packet without headers. `room` holds all headers.
    pub fn new(room: &'a mut [u8], payload: &'a [u8], meta: Meta) -> Outgoing<'a> {
        Outgoing { start: room.len(), room, payload, meta }
    }

    /// Puts `N` bytes in front of the packet and returns them; the caller must write all of them.
    pub fn push<const N: usize>(&mut self) -> Result<&mut [u8; N], SendError> {
        let start = self.start.checked_sub(N).ok_or(SendError::HeaderRoom)?;
        self.start = start;
        self.room[start..].first_chunk_mut().ok_or(SendError::HeaderRoom)
    }

    /// Puts a complete header in front.
    pub fn push_bytes(&mut self, header: &[u8]) -> Result<(), SendError> {
        let start = self.start.checked_sub(header.len()).ok_or(SendError::HeaderRoom)?;
        let room = self.room.get_mut(start..self.start).ok_or(SendError::HeaderRoom)?;
        room.copy_from_slice(header);
        self.start = start;
        Ok(())
    }

    /// The headers so far, the last one pushed first.
    pub fn header(&self) -> &[u8] {
        self.room.get(self.start..).unwrap_or(&[])
    }

    /// The payload, from the application or from the block that sends.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Bytes of headers and payload so far.
    pub fn byte_count(&self) -> usize {
        self.header().len() + self.payload.len()
    }

    /// The sum of headers and payload so far, as one run of bytes (RFC 1071).
    pub fn sum(&self) -> Sum {
        let payload = Sum::of(self.payload);
        // After an odd number of bytes, each payload byte is the other half of its word (RFC 1071, 2B).
        let payload = match self.header().len() % 2 {
            0 => payload,
            _ => Sum::number(payload.folded().swap_bytes().into()),
        };
        Sum::of(self.header()).and(payload)
    }
}

/// A packet on its way to the application: a slice that each block shrinks.
#[derive(Clone, Debug)]
pub struct Incoming<'a> {
    bytes: &'a [u8],
    /// What blocks tell each other.
    pub meta: Meta,
}

impl<'a> Incoming<'a> {
    /// A packet from the driver or from a block.
    pub fn new(bytes: &'a [u8], meta: Meta) -> Incoming<'a> {
        Incoming { bytes, meta }
    }

    /// The bytes that are left.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Keeps the bytes `start..end`, as far as they exist.
    pub fn crop(&mut self, start: usize, end: usize) {
        let end = end.min(self.bytes.len());
        self.bytes = self.bytes.get(start..end).unwrap_or(&[]);
    }

    /// The address of the other end; 0.0.0.0 if unknown.
    pub fn remote_address(&self) -> IpAddr {
        self.meta.remote.map_or(Ipv4Addr::UNSPECIFIED.into(), |remote| remote.ip())
    }
}

/// A report about a packet of this flow. It is no proof: a station that knows the flow can forge one (RFC 5927).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What happened.
    pub kind: ProblemKind,
    /// Destination of the packet. For an echo request the port is its sequence number.
    pub to: SocketAddr,
    /// The station that sent the report.
    pub reporter: IpAddr,
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// Undeliverable. The code is RFC 792's, also over IPv6: 1 host, 3 port, 13 prohibited (RFC 1812).
    Unreachable(u8),
    /// Too big for a link on the way, whose MTU in bytes this is; 0 if the router does not say.
    TooBig(u16),
    /// The time to live, or the time for reassembly, ran out.
    TimeExceeded,
    /// A field of a header is wrong.
    Parameter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_grow_to_the_front_and_no_further_than_their_room() {
        let mut room = [0; 5];
        let mut packet = Outgoing::new(&mut room, b"xyz", Meta::default());
        packet.push::<2>().unwrap().copy_from_slice(b"cd");
        packet.push::<2>().unwrap().copy_from_slice(b"ab");
        assert_eq!((packet.header(), packet.byte_count()), (&b"abcd"[..], 7));
        assert_eq!(packet.push::<2>().map(|_| ()), Err(SendError::HeaderRoom));
        assert_eq!(packet.push_bytes(b"__"), Err(SendError::HeaderRoom));
        assert_eq!(packet.header(), b"abcd");
        packet.push_bytes(b"_").unwrap();
        assert_eq!(packet.header(), b"_abcd");
    }

    #[test]
    fn the_sum_is_that_of_one_run_of_bytes() {
        let bytes: Vec<u8> = (200..=255).chain(0..47).collect();
        for cut in 0..bytes.len().min(6) {
            for length in cut..bytes.len() {
                let mut room = [0; 6];
                let mut packet = Outgoing::new(&mut room, &bytes[cut..length], Meta::default());
                for at in (0..cut).rev() {
                    packet.push::<1>().unwrap()[0] = bytes[at];
                }
                assert_eq!(packet.sum().checksum(), Sum::of(&bytes[..length]).checksum(), "{cut} {length}");
            }
        }
    }

    #[test]
    fn cropping_stays_inside() {
        let mut packet = Incoming::new(b"abcdef", Meta::default());
        packet.crop(1, 5);
        assert_eq!(packet.bytes(), b"bcde");
        packet.crop(2, 99);
        assert_eq!(packet.bytes(), b"de");
        packet.crop(3, 99);
        assert_eq!(packet.bytes(), b"");
    }
}
