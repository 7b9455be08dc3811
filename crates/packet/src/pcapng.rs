//! pcapng files: blocks in sections. Reads packets of all kinds (enhanced, simple, obsolete) and interface
//! descriptions, and skips other blocks. Writes sections, interfaces, enhanced packets and statistics. For classic pcap
//! see `pcap_file.rs`. Does no I/O; `capture_file.rs` explains the loop.
//!
//! As strict as libpcap 1.10 about block lengths: both lengths of a block must agree, be a multiple of four and be
//! plausible. Unlike libpcap, it reads files with several link types, snap lengths and byte orders.
//!
//! This file has the parts that reading and writing share. Read next: `pcapng/read.rs`, `pcapng/write.rs`.
//!
//! Format: draft-ietf-opsawg-pcapng.

mod read;
mod write;

use crate::capture::ByteOrder;
pub use read::Reader;
pub use write::{
    Description, PACKET_LIMIT, PacketBlock, Section, Statistics, write_interface, write_packet, write_section,
    write_statistics,
};

/// Longest block, as in libpcap: 16 MiB, or enough for the largest plausible packet of a described link.
pub const BLOCK_LIMIT: u32 = 16 * 1024 * 1024;

/// Longest section header, as in libpcap.
pub const SECTION_HEADER_LIMIT: u32 = 1024 * 1024;

/// Option codes.
pub mod option {
    /// Ends a list of options.
    pub const END: u16 = 0;
    /// A comment, in any block.
    pub const COMMENT: u16 = 1;
    /// Section: hardware.
    pub const SECTION_HARDWARE: u16 = 2;
    /// Section: operating system.
    pub const SECTION_SYSTEM: u16 = 3;
    /// Section: the program that wrote it.
    pub const SECTION_APPLICATION: u16 = 4;
    /// Interface: name.
    pub const INTERFACE_NAME: u16 = 2;
    /// Interface: description.
    pub const INTERFACE_DESCRIPTION: u16 = 3;
    /// Interface: unit of its timestamps.
    pub const INTERFACE_TIME_RESOLUTION: u16 = 9;
    /// Interface: capture filter.
    pub const INTERFACE_FILTER: u16 = 11;
    /// Interface: bytes of frame check sequence.
    pub const INTERFACE_FCS_LENGTH: u16 = 13;
    /// Interface: seconds to add to its timestamps.
    pub const INTERFACE_TIME_OFFSET: u16 = 14;
    /// Enhanced packet: direction and link-layer flags.
    pub const PACKET_FLAGS: u16 = 2;
    /// Enhanced packet: packets lost before this one.
    pub const PACKET_DROP_COUNT: u16 = 4;
    /// Statistics: packets received.
    pub const STATISTICS_RECEIVED: u16 = 4;
    /// Statistics: packets dropped by the interface.
    pub const STATISTICS_DROPPED: u16 = 5;
    /// Statistics: packets that passed the filter.
    pub const STATISTICS_ACCEPTED: u16 = 6;
    /// Statistics: packets dropped by the operating system.
    pub const STATISTICS_SYSTEM_DROPPED: u16 = 7;
    /// Statistics: packets that reached the user.
    pub const STATISTICS_DELIVERED: u16 = 8;
}

const BYTE_ORDER_MARK: u32 = 0x1a2b_3c4d;

/// Type and length at the start of a block, and the length again at its end.
const BLOCK_FRAME_BYTES: u32 = 12;

/// The options of a block in order: code and value. Ends at the end mark, at the end, or at an option that is cut.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
    order: ByteOrder,
    /// Code of an option that was cut.
    cut: Option<u16>,
}

impl<'a> Options<'a> {
    /// The options in `bytes`, for packets from [`crate::capture::Record::options`].
    pub const fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { rest: bytes, order, cut: None }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let Some((&[a, b, c, d], rest)) = self.rest.split_first_chunk() else {
            self.cut = (!self.rest.is_empty()).then_some(option::END);
            self.rest = &[];
            return None;
        };
        let (code, length) = (self.order.u16([a, b]), usize::from(self.order.u16([c, d])));
        if code == option::END {
            self.rest = &[];
            return None;
        }
        let (Some(value), Some(behind)) = (rest.get(..length), rest.get(length.next_multiple_of(4)..)) else {
            self.cut = Some(code);
            self.rest = &[];
            return None;
        };
        self.rest = behind;
        Some((code, value))
    }
}

/// The direction of a packet, from the flags option of an enhanced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the capturing host.
    Inbound,
    /// From the capturing host.
    Outbound,
}

/// The direction in a packet's options; `None`: they do not say.
pub fn direction(options: &[u8], order: ByteOrder) -> Option<Direction> {
    let (_, flags) = Options::new(options, order).find(|(code, _)| *code == option::PACKET_FLAGS)?;
    match order.u32(flags.try_into().ok()?) & 3 {
        1 => Some(Direction::Inbound),
        2 => Some(Direction::Outbound),
        _ => None,
    }
}
