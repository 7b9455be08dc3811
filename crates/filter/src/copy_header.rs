//! What stands in front of a block's bytes where they are copied for somebody who watches an edge: what its descriptor
//! cannot say in another process, for views and the stream table stay behind.
//!
//! Not a file format: both sides are of one version, which they have told each other before. Written by the engine, read
//! by the facade; what is read comes from shared memory and may be anything.

use crate::facts::{self, field};
use crate::stream::StreamFacts;
use base::id::Class;

/// Bytes of a copy header.
pub const COPY_HEADER_BYTES: usize = 19 + facts::FACTS_BYTES;

/// What is known of a copied block beside time, class and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHeader {
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

/// Stands for no link type.
const NONE: u16 = u16::MAX;

impl CopyHeader {
    /// As bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; COPY_HEADER_BYTES] {
        let mut bytes = [0; COPY_HEADER_BYTES];
        let (facts, epoch) = self.stream.as_ref().map_or((None, 0), |(facts, epoch)| (Some(facts), *epoch));
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.number.to_le_bytes());
        put(8, &epoch.to_le_bytes());
        put(12, &self.wire_and_flags.to_le_bytes());
        put(16, &self.link_type.unwrap_or(NONE).to_le_bytes());
        put(18, &[u8::from(self.mark)]);
        put(19, &facts::to_bytes(facts));
        bytes
    }

    /// From what a block begins with; `None` where that is no copy header.
    pub fn of(bytes: &[u8]) -> Option<CopyHeader> {
        let bytes: &[u8; COPY_HEADER_BYTES] = bytes.first_chunk()?;
        let epoch = u32::from_le_bytes(field(bytes, 8)?);
        let link_type = u16::from_le_bytes(field(bytes, 16)?);
        Some(CopyHeader {
            number: u64::from_le_bytes(field(bytes, 0)?),
            mark: bytes[18] != 0,
            wire_and_flags: u32::from_le_bytes(field(bytes, 12)?),
            link_type: (link_type != NONE).then_some(link_type),
            stream: facts::of_bytes(&field(bytes, 19)?)?.map(|facts| (facts, epoch)),
        })
    }

    /// What a table of streams knows of a block's class, for its copy header.
    #[inline]
    pub fn stream(streams: &crate::StreamTable, class: Class) -> Option<(StreamFacts, u32)> {
        streams.get(class).map(|facts| (*facts, streams.epoch(class)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::StreamState;
    use packet::flow::Flow;
    use proptest::prelude::*;

    fn facts(source: &str, target: &str) -> StreamFacts {
        let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
        let flow = Flow { source, target, source_port: 40_000, target_port: 443, protocol: 6 };
        StreamFacts { flow, start: u64::MAX - 1, reuse: 7, vlan: Some(100), state: StreamState::Reset }
    }

    #[test]
    fn what_is_written_is_read() {
        let plain =
            CopyHeader { number: 1 << 40, mark: false, wire_and_flags: 0x0112_3456, link_type: Some(1), stream: None };
        for copy_header in [
            plain,
            CopyHeader { link_type: None, ..plain },
            CopyHeader { mark: true, ..plain },
            CopyHeader { stream: Some((facts("10.0.0.1", "10.0.0.2"), 9)), ..plain },
            CopyHeader { stream: Some((facts("fe80::1", "::"), u32::MAX)), ..plain },
        ] {
            assert_eq!(CopyHeader::of(&copy_header.to_bytes()), Some(copy_header));
        }
        assert_eq!(CopyHeader::of(&plain.to_bytes()[1..]), None);
    }

    proptest! {
        /// It comes from another process.
        #[test]
        fn any_bytes_are_a_copy_header_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(copy_header) = CopyHeader::of(&bytes) {
                prop_assert_eq!(CopyHeader::of(&copy_header.to_bytes()), Some(copy_header));
            }
        }
    }
}
