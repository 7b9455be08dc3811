//! What stands before the bytes of each block in a ring that is shared: its stream, and its place in it.
//!
//! Little-endian, [`HEADER_BYTES`] long. It is read from another process's memory: every field is checked.

use filter::StreamFacts;
use filter::facts;

/// Bytes of what changes with each block; the facts stand behind it.
const PLACE_BYTES: usize = 16;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 72;

/// What is said of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its place in its stream: bytes before it, those that are known to be missing included; of messages, blocks before it.
    pub at: u64,
    /// How many streams had the number before; 0 = the class is no stream's.
    pub epoch: u32,
    /// How often the facts have changed.
    pub version: u32,
    /// What is known of the stream; none where it is over and forgotten.
    pub facts: Option<StreamFacts>,
}

/// What of a header changes with each block, or tells that the rest has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// See [`Header::at`].
    pub at: u64,
    /// See [`Header::epoch`].
    pub epoch: u32,
    /// See [`Header::version`].
    pub version: u32,
}

impl Place {
    /// Of any bytes.
    #[inline]
    pub fn of(bytes: &[u8; HEADER_BYTES]) -> Place {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *bytes;
        Place {
            at: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            epoch: u32::from_le_bytes([i, j, k, l]),
            version: u32::from_le_bytes([m, n, o, p]),
        }
    }
}

impl Header {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.at.to_le_bytes());
        put(8, &self.epoch.to_le_bytes());
        put(12, &self.version.to_le_bytes());
        put(PLACE_BYTES, &facts::to_bytes(self.facts.as_ref()));
        bytes
    }

    /// The same bytes for a block at another place.
    pub fn set_at(bytes: &mut [u8; HEADER_BYTES], at: u64) {
        bytes[..8].copy_from_slice(&at.to_le_bytes());
    }

    /// From bytes; `None` where they say what cannot be.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let facts = facts::of_bytes(&facts::field(bytes, PLACE_BYTES)?)?;
        let Place { at, epoch, version } = Place::of(bytes);
        Some(Header { at, epoch, version, facts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::facts::STATES;
    use packet::flow::Flow;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    #[test]
    fn what_was_said_is_read() {
        let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last));
        for (source, target) in [(v4(1), v4(2)), (v6(1), v6(2))] {
            for state in STATES {
                for vlan in [None, Some(0), Some(4095)] {
                    let flow = Flow { source, target, source_port: 4000, target_port: 80, protocol: 6 };
                    let facts = Some(StreamFacts { flow, start: 7, reuse: 2, vlan, state });
                    let header = Header { at: u64::MAX, epoch: 3, version: 9, facts };
                    let mut bytes = header.to_bytes();
                    assert_eq!(Header::from_bytes(&bytes), Some(header));
                    Header::set_at(&mut bytes, 5);
                    assert_eq!(Header::from_bytes(&bytes), Some(Header { at: 5, ..header }));
                }
            }
        }
        let nothing = Header { at: 1, epoch: 0, version: 0, facts: None };
        assert_eq!(Header::from_bytes(&nothing.to_bytes()), Some(nothing));
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
