//! What stands before the bytes of each block in a ring that is shared: its stream, and its place in it.
//!
//! Little-endian, [`HEADER_BYTES`] long. It is read from another process's memory: every field is checked.

use filter::{StreamFacts, StreamState};
use packet::flow::Flow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// States in the order of their numbers.
const STATES: [StreamState; 6] = [
    StreamState::Midstream,
    StreamState::Opening,
    StreamState::Established,
    StreamState::Closed,
    StreamState::Reset,
    StreamState::Cut,
];

/// The number that says that there is no VLAN: VLAN ids have 12 bits.
const NO_VLAN: u16 = u16::MAX;

impl Header {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.at.to_le_bytes());
        put(8, &self.epoch.to_le_bytes());
        put(12, &self.version.to_le_bytes());
        let Some(facts) = &self.facts else { return bytes };
        let state = STATES.iter().position(|state| *state == facts.state).unwrap_or(0) as u8;
        let is_v6 = facts.flow.source.is_ipv6() || facts.flow.target.is_ipv6();
        put(16, &[1, state, facts.flow.protocol, u8::from(is_v6)]);
        put(20, &facts.vlan.unwrap_or(NO_VLAN).to_le_bytes());
        put(24, &facts.start.to_le_bytes());
        put(32, &facts.reuse.to_le_bytes());
        put(36, &facts.flow.source_port.to_le_bytes());
        put(38, &facts.flow.target_port.to_le_bytes());
        put(40, &address_bytes(facts.flow.source, is_v6));
        put(56, &address_bytes(facts.flow.target, is_v6));
        bytes
    }

    /// The same bytes for a block at another place.
    pub fn set_at(bytes: &mut [u8; HEADER_BYTES], at: u64) {
        bytes[..8].copy_from_slice(&at.to_le_bytes());
    }

    /// From bytes; `None` where they say what cannot be.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let facts = match bytes[16] {
            0 => None,
            1 => {
                let is_v6 = match bytes[19] {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let vlan = u16::from_le_bytes(field(bytes, 20)?);
                Some(StreamFacts {
                    flow: Flow {
                        source: address(field(bytes, 40)?, is_v6),
                        target: address(field(bytes, 56)?, is_v6),
                        source_port: u16::from_le_bytes(field(bytes, 36)?),
                        target_port: u16::from_le_bytes(field(bytes, 38)?),
                        protocol: bytes[18],
                    },
                    start: u64::from_le_bytes(field(bytes, 24)?),
                    reuse: u32::from_le_bytes(field(bytes, 32)?),
                    vlan: (vlan != NO_VLAN).then_some(vlan),
                    state: *STATES.get(usize::from(bytes[17]))?,
                })
            }
            _ => return None,
        };
        let Place { at, epoch, version } = Place::of(bytes);
        Some(Header { at, epoch, version, facts })
    }
}

fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Where one of both is an IPv6 address, the other is written as one, too.
fn address_bytes(address: IpAddr, is_v6: bool) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) if is_v6 => address.to_ipv6_mapped().octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

fn address(bytes: [u8; 16], is_v6: bool) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    if is_v6 { IpAddr::V6(Ipv6Addr::from(bytes)) } else { IpAddr::V4(Ipv4Addr::new(a, b, c, d)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        fn any_bytes_are_a_header_or_none(bytes in proptest::collection::vec(any::<u8>(), HEADER_BYTES), kind in 0u8..3) {
            let mut bytes: [u8; HEADER_BYTES] = bytes.try_into().unwrap();
            bytes[16] = kind;
            bytes[17] %= 8;
            bytes[19] %= 3;
            if let Some(header) = Header::from_bytes(&bytes) {
                prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Some(header));
            }
        }
    }
}
