//! The known contents of registers, and loads of packet bytes.

use crate::ir::Size;

/// The known content of a register, in terms of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    Unknown,
    Constant(u32),
    /// Bytes of the packet under a mask, at `offset` from its start or from the end of an IPv4 header.
    Field {
        behind: Option<u32>,
        size: Size,
        offset: u32,
        mask: u32,
    },
    /// [`HeaderLength`](crate::ir::Index::HeaderLength).
    HeaderLength(u32),
    WireLength,
}

impl Symbol {
    /// The register's value. `None`: the load fails.
    pub(crate) fn value(self, packet: &[u8], wire_len: u32) -> Option<u32> {
        match self {
            Symbol::Unknown => Some(0),
            Symbol::Constant(value) => Some(value),
            Symbol::Field { behind, size, offset, mask } => {
                let base = behind.map_or(Some(0), |header| header_length(packet, header))?;
                Some(load(packet, base, size, offset)? & mask)
            }
            Symbol::HeaderLength(offset) => header_length(packet, offset),
            Symbol::WireLength => Some(wire_len),
        }
    }
}

/// Packet bytes at `base + offset`, most significant first.
#[inline]
pub(crate) fn load(packet: &[u8], base: u32, size: Size, offset: u32) -> Option<u32> {
    let rest = packet.get(usize::try_from(u64::from(base) + u64::from(offset)).ok()?..)?;
    Some(match size {
        Size::Byte => u32::from(*rest.first()?),
        Size::Half => u32::from(u16::from_be_bytes(*rest.first_chunk()?)),
        Size::Word => u32::from_be_bytes(*rest.first_chunk()?),
    })
}

/// [`HeaderLength`](crate::ir::Index::HeaderLength).
#[inline]
pub(crate) fn header_length(packet: &[u8], offset: u32) -> Option<u32> {
    packet.get(usize::try_from(offset).ok()?).map(|first| 4 * u32::from(first & 0x0f))
}
