//! What stands in front of a block's bytes where they are copied for somebody who watches an edge: what its descriptor
//! cannot say in another process, for views and the stream table stay behind.
//!
//! Not a file format: both sides are of one version, which they have told each other before. Written by the engine, read
//! by the facade; what is read comes from shared memory and may be anything.

use crate::stream::{StreamFacts, StreamState};
use base::id::Class;
use packet::flow::Flow;
use std::net::IpAddr;

/// Bytes of a caption.
pub const CAPTION_BYTES: usize = 72;

/// What is known of a copied block beside time, class and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caption {
    /// How many blocks went along the edge before it since somebody watches: what is missing was lost.
    pub number: u64,
    /// There is no block: it only says how many there were.
    pub mark: bool,
    /// Length on the wire and flags, as in its descriptor.
    pub wire_and_flags: u32,
    /// LINKTYPE number of its view, where that holds frames.
    pub link_type: Option<u16>,
    /// Facts of its stream, where it is of one, and how many streams had its number.
    pub stream: Option<(StreamFacts, u32)>,
}

/// Stands for no link type, and for no VLAN.
const NONE: u16 = u16::MAX;

const STATES: [StreamState; 6] = [
    StreamState::Midstream,
    StreamState::Opening,
    StreamState::Established,
    StreamState::Closed,
    StreamState::Reset,
    StreamState::Cut,
];

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn address(family: u8, octets: [u8; 16]) -> Option<IpAddr> {
    match family {
        4 => octets.first_chunk::<4>().map(|four| IpAddr::from(*four)),
        6 => Some(IpAddr::from(octets)),
        _ => None,
    }
}

impl Caption {
    /// As bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; CAPTION_BYTES] {
        let mut bytes = [0; CAPTION_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.number.to_le_bytes());
        put(24, &self.wire_and_flags.to_le_bytes());
        put(28, &self.link_type.unwrap_or(NONE).to_le_bytes());
        put(39, &[u8::from(self.mark)]);
        if let Some((facts, epoch)) = &self.stream {
            let StreamFacts { flow, start, reuse, vlan, state } = facts;
            put(8, &start.to_le_bytes());
            put(16, &reuse.to_le_bytes());
            put(20, &epoch.to_le_bytes());
            put(30, &vlan.unwrap_or(NONE).to_le_bytes());
            put(32, &flow.source_port.to_le_bytes());
            put(34, &flow.target_port.to_le_bytes());
            let state = STATES.iter().position(|known| known == state).unwrap_or(0);
            put(36, &[flow.protocol, if flow.source.is_ipv4() { 4 } else { 6 }, state as u8]);
            put(40, &octets(flow.source));
            put(56, &octets(flow.target));
        }
        bytes
    }

    /// From what a block begins with; `None` where that is no caption.
    pub fn of(bytes: &[u8]) -> Option<Caption> {
        let bytes: &[u8; CAPTION_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from(word(at)) | u32::from(word(at + 2)) << 16;
        let longer = |at: usize| u64::from(long(at)) | u64::from(long(at + 4)) << 32;
        let octets = |at: usize| -> [u8; 16] { std::array::from_fn(|index| bytes[at + index]) };
        let some = |number: u16| (number != NONE).then_some(number);
        let family = bytes[37];
        let stream = match family {
            0 => None,
            _ => {
                let flow = Flow {
                    source: address(family, octets(40))?,
                    target: address(family, octets(56))?,
                    source_port: word(32),
                    target_port: word(34),
                    protocol: bytes[36],
                };
                let state = *STATES.get(usize::from(bytes[38]))?;
                Some((StreamFacts { flow, start: longer(8), reuse: long(16), vlan: some(word(30)), state }, long(20)))
            }
        };
        let mark = bytes[39] != 0;
        Some(Caption { number: longer(0), mark, wire_and_flags: long(24), link_type: some(word(28)), stream })
    }

    /// What a table of streams knows of a block's class, for its caption.
    #[inline]
    pub fn stream(streams: &crate::StreamTable, class: Class) -> Option<(StreamFacts, u32)> {
        streams.get(class).map(|facts| (*facts, streams.epoch(class)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(source: &str, target: &str) -> StreamFacts {
        let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
        let flow = Flow { source, target, source_port: 40_000, target_port: 443, protocol: 6 };
        StreamFacts { flow, start: u64::MAX - 1, reuse: 7, vlan: Some(100), state: StreamState::Reset }
    }

    #[test]
    fn what_is_written_is_read() {
        let plain =
            Caption { number: 1 << 40, mark: false, wire_and_flags: 0x0112_3456, link_type: Some(1), stream: None };
        for caption in [
            plain,
            Caption { link_type: None, ..plain },
            Caption { mark: true, ..plain },
            Caption { stream: Some((facts("10.0.0.1", "10.0.0.2"), 9)), ..plain },
            Caption { stream: Some((facts("fe80::1", "::"), u32::MAX)), ..plain },
        ] {
            assert_eq!(Caption::of(&caption.to_bytes()), Some(caption));
        }
        assert_eq!(Caption::of(&plain.to_bytes()[1..]), None);
    }

    proptest! {
        /// It comes from another process.
        #[test]
        fn any_bytes_are_a_caption_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(caption) = Caption::of(&bytes) {
                prop_assert_eq!(Caption::of(&caption.to_bytes()), Some(caption));
            }
        }
    }
}
