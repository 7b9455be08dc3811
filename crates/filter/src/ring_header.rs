//! The header before each block that is copied into a ring for another process: its stream, its offset there, its link
//! type.
//!
//! All such rings have this format: the filter `ring`, the outlets of the parser process, the copies of a watched edge.
//! Not a file format: writer and reader are of one version. Little-endian, [`HEADER_BYTES`] long. A reader finds it in
//! another process's memory, so it checks every field.

use crate::facts;
use crate::stream::StreamFacts;
use base::id::Class;
use buffer::Descriptor;

/// Bytes of `at`, `epoch` and `version`, which come before the facts.
const FACTS_START: usize = 16;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 128;

/// End of the facts; link type, mark, class, wire length and flags follow.
const FACTS_END: usize = FACTS_START + facts::FACTS_BYTES;

const NO_LINK_TYPE: u16 = u16::MAX;

/// The header of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its offset in its stream: bytes before it, including known missing ones; for messages, blocks before it. For a
    /// watched edge: blocks that went along the edge before it.
    pub at: u64,
    /// How many streams have had this number; 0 = the class is not that of a stream.
    pub epoch: u32,
    /// How often the facts have changed. 0: read `facts` with each block.
    pub version: u32,
    /// Facts about the stream. `None`: it is over and forgotten, or the class is not that of a stream.
    pub facts: Option<StreamFacts>,
}

/// The fields of a header that change with each block, or that show a change of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// See [`Header::at`].
    pub at: u64,
    /// See [`Header::epoch`].
    pub epoch: u32,
    /// See [`Header::version`].
    pub version: u32,
    /// No block follows: the header only gives the writer's offset and the time.
    pub is_mark: bool,
    /// Its class in the writer's process.
    pub class: Class,
    /// Its length on the wire and its flags, as in a descriptor.
    pub wire_and_flags: u32,
    /// The LINKTYPE number of its view, if that holds frames.
    pub link_type: Option<u16>,
}

impl BlockHeader {
    /// Reads the fields from any bytes.
    #[inline]
    pub fn of(bytes: &[u8; HEADER_BYTES]) -> BlockHeader {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *bytes;
        let [.., q, r, mark, s, t, u, v, w, x, y, z] = *bytes;
        let link_type = u16::from_le_bytes([q, r]);
        BlockHeader {
            at: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            epoch: u32::from_le_bytes([i, j, k, l]),
            version: u32::from_le_bytes([m, n, o, p]),
            is_mark: mark != 0,
            class: Class(u32::from_le_bytes([s, t, u, v])),
            wire_and_flags: u32::from_le_bytes([w, x, y, z]),
            link_type: (link_type != NO_LINK_TYPE).then_some(link_type),
        }
    }
}

impl Header {
    /// Writes the header as bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.at.to_le_bytes());
        put(8, &self.epoch.to_le_bytes());
        put(12, &self.version.to_le_bytes());
        put(FACTS_START, &facts::to_bytes(self.facts.as_ref()));
        bytes
    }

    /// Changes a written header to that of another block of the same stream.
    #[inline]
    pub fn set_block(bytes: &mut [u8; HEADER_BYTES], at: u64, block: &Descriptor, link_type: Option<u16>) {
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        bytes[FACTS_END..FACTS_END + 2].copy_from_slice(&link_type.unwrap_or(NO_LINK_TYPE).to_le_bytes());
        bytes[HEADER_BYTES - 8..HEADER_BYTES - 4].copy_from_slice(&block.class.0.to_le_bytes());
        bytes[HEADER_BYTES - 4..].copy_from_slice(&block.wire_and_flags.to_le_bytes());
    }

    /// A header without a block: the writer is at `at`.
    pub fn mark(at: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = Header { at, epoch: 0, version: 0, facts: None }.to_bytes();
        Header::set_block(&mut bytes, at, &Descriptor::default(), None);
        bytes[FACTS_END + 2] = 1;
        bytes
    }

    /// Reads a header. `None`: its bytes are invalid.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let facts = facts::of_bytes(&facts::field(bytes, FACTS_START)?)?;
        let BlockHeader { at, epoch, version, .. } = BlockHeader::of(bytes);
        Some(Header { at, epoch, version, facts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::STATES;
    use packet::encapsulation::Vlans;
    use packet::flow::Flow;
    use packet::tunnel::Kind;
    use packet::tunnel::stack::{Layer, Tunnels};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Three tunnels, for which there is just room.
    fn tunnels() -> Option<Tunnels> {
        let mut stack = Vec::new();
        for last in 1..4 {
            let addresses = Some((IpAddr::V4(Ipv4Addr::new(10, 1, 0, last)), IpAddr::V4(Ipv4Addr::LOCALHOST)));
            let vlans = Vlans::default();
            Layer { kind: Kind::Gre, vlans, addresses, id: Some(last.into()) }.append_to(&mut stack);
        }
        Tunnels::new(stack.into())
    }

    #[test]
    fn what_was_said_is_read() {
        let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last));
        for (source, target) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            for state in STATES {
                for (vlans, tunnels) in
                    [(Vlans::default(), None), (Vlans::new(1, [0; 2]), None), (Vlans::new(2, [4095, 7]), tunnels())]
                {
                    let flow = Flow { source, target, source_port: 4000, target_port: 80, protocol: 6 };
                    let facts = Some(StreamFacts { flow, start: 7, reuse: 2, vlans, tunnels, state });
                    let header = Header { at: u64::MAX, epoch: 3, version: 9, facts: facts.clone() };
                    let mut bytes = header.to_bytes();
                    assert_eq!(Header::from_bytes(&bytes), Some(header.clone()));
                    let block = Descriptor { class: Class(7), wire_and_flags: 8 << 24 | 9, ..Descriptor::default() };
                    Header::set_block(&mut bytes, 5, &block, Some(1));
                    assert_eq!(Header::from_bytes(&bytes), Some(Header { at: 5, ..header }));
                    let fields = BlockHeader::of(&bytes);
                    assert_eq!((fields.class, fields.wire_and_flags), (block.class, block.wire_and_flags));
                    assert_eq!((fields.link_type, fields.is_mark), (Some(1), false));
                }
            }
        }
        let nothing = Header { at: 1, epoch: 0, version: 0, facts: None };
        assert_eq!(Header::from_bytes(&nothing.to_bytes()), Some(nothing.clone()));
        let mark = BlockHeader::of(&Header::mark(7));
        assert_eq!((mark.at, mark.is_mark, mark.link_type), (7, true, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(bytes in proptest::collection::vec(any::<u8>(), HEADER_BYTES), family in 0u8..7) {
            let mut bytes: [u8; HEADER_BYTES] = bytes.try_into().unwrap();
            bytes[16] = family;
            bytes[17] %= 8;
            if let Some(header) = Header::from_bytes(&bytes) {
                prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
            }
        }
    }
}
