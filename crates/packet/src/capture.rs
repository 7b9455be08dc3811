//! Types that the readers of both capture formats share: a record, and the reasons to stop.
//!
//! Read next: `pcap_file.rs`, `pcapng.rs`, and `capture_file.rs` for a reader of either.

use crate::link::LinkType;
use crate::sniff::FileKind;
use std::fmt;

/// Most interfaces in one section of a pcapng file. Each takes memory until the section ends.
pub const INTERFACE_LIMIT: usize = 65_536;

/// The block types of pcapng.
pub(crate) mod block {
    pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub const INTERFACE_DESCRIPTION: u32 = 1;
    pub const OBSOLETE_PACKET: u32 = 2;
    pub const SIMPLE_PACKET: u32 = 3;
    pub const INTERFACE_STATISTICS: u32 = 5;
    pub const ENHANCED_PACKET: u32 = 6;
}

/// The name of a block type of pcapng.
const fn block_name(kind: u32) -> &'static str {
    match kind {
        block::SECTION_HEADER => "section header",
        block::INTERFACE_DESCRIPTION => "interface description",
        block::OBSOLETE_PACKET => "packet",
        block::SIMPLE_PACKET => "simple packet",
        block::INTERFACE_STATISTICS => "interface statistics",
        block::ENHANCED_PACKET => "enhanced packet",
        _ => "not known",
    }
}

/// Byte order of a file's own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    #[inline]
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }
}

/// One captured packet, as offsets into the window it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Capture time in nanoseconds since 1970-01-01 UTC; 0 if the file does not say.
    pub time_ns: u64,
    /// Offset of the captured bytes in the window.
    pub data_offset: usize,
    /// Number of captured bytes.
    pub captured_len: u32,
    /// Length of the packet on the wire.
    pub wire_len: u32,
    /// Number of the interface in the current section: see `interface` of the reader.
    pub interface: u32,
    /// Offset of the packet's options in the window; pcapng only.
    pub options_offset: usize,
    /// Length of the options in bytes.
    pub options_len: usize,
    /// Number of bytes of the window to skip to the next record.
    pub consumed: usize,
}

impl Record {
    /// The captured bytes. `window` is the one in which this record was found.
    #[inline]
    pub fn data<'a>(&self, window: &'a [u8]) -> &'a [u8] {
        let behind = window.get(self.data_offset..).unwrap_or_default();
        behind.get(..self.captured_len as usize).unwrap_or(behind)
    }

    /// The packet's options in `window`, for `pcapng::Options`.
    #[inline]
    pub fn options<'a>(&self, window: &'a [u8]) -> &'a [u8] {
        window.get(self.options_offset..).and_then(|behind| behind.get(..self.options_len)).unwrap_or_default()
    }
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The window is too short.
    More {
        /// Bytes to skip first.
        consumed: usize,
        /// Bytes that the window must hold after that, at least.
        need: usize,
    },
    /// The file cannot be read beyond this point.
    Damaged(Damage),
}

/// An error in a file, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file of the faulty record or block.
    pub offset: u64,
    /// The error.
    pub cause: Cause,
}

/// The errors of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first bytes are those of another kind of file (`Some`), or unknown (`None`).
    NotACapture(Option<FileKind>),
    /// A pcap version before 2.
    ArchaicVersion,
    /// An undefined version.
    UnsupportedVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The input ends in the middle of the file header.
    EndsInHeader,
    /// The input ends in the middle of a record or block.
    EndsInRecord {
        /// Number of bytes present.
        present: u64,
        /// Length of the record or block, as far as known.
        expected: u64,
    },
    /// A packet longer than is plausible for its link type.
    CapturedLength {
        /// Length in the record.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// A block shorter than its fields, longer than is plausible, or not a multiple of four.
    BlockLength {
        /// Type of the block.
        kind: u32,
        /// Length in the block, in bytes.
        length: u32,
        /// The shortest possible length for this type.
        least: u32,
        /// The longest plausible length.
        most: u32,
    },
    /// The length at the end of a block differs from the one at its start.
    BlockTrailer {
        /// At the start.
        start: u32,
        /// At the end.
        end: u32,
    },
    /// A section whose byte order mark is valid in neither byte order.
    ByteOrderMark(u32),
    /// An interface option is cut, has the wrong length, or has an undefined value.
    InterfaceOption(u16),
    /// More interfaces in a section than [`INTERFACE_LIMIT`].
    TooManyInterfaces,
    /// A packet of an interface that was not described before it.
    UnknownInterface {
        /// Number of the interface.
        interface: u32,
        /// Number of interfaces described in the section so far.
        described: u32,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "byte {}: {}", self.offset, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotACapture(Some(kind)) => write!(out, "a {} file, not pcap or pcapng", kind.name()),
            Self::NotACapture(None) => write!(out, "not a pcap or pcapng file"),
            Self::ArchaicVersion => write!(out, "archaic pcap format, before version 2"),
            Self::UnsupportedVersion { major, minor } => write!(out, "unsupported version {major}.{minor}"),
            Self::EndsInHeader => write!(out, "the file ends inside its header"),
            Self::EndsInRecord { present, expected } => {
                write!(out, "the file ends inside a record, after {present} of {expected} bytes")
            }
            Self::CapturedLength { length, limit } => {
                write!(out, "a packet says that {length} bytes of it were captured, and {limit} are possible at most")
            }
            Self::BlockLength { kind, length, least, most } => write!(
                out,
                "a block of type {kind:#x} ({}) says that it is {length} bytes long, and {}",
                block_name(kind),
                BlockBounds { length, least, most }
            ),
            Self::BlockTrailer { start, end } => {
                write!(out, "a block says at its start that it is {start} bytes long, and at its end {end}")
            }
            Self::ByteOrderMark(mark) => {
                write!(out, "a section begins with {mark:#010x} where its byte order mark should be")
            }
            Self::InterfaceOption(code) => {
                write!(out, "option {code} of an interface description is cut or has an impossible value")
            }
            Self::TooManyInterfaces => {
                write!(out, "a section describes more than {} interfaces", INTERFACE_LIMIT)
            }
            Self::UnknownInterface { interface, described } => {
                write!(out, "a packet is of interface {interface}, and its section describes {described} (from 0 on)")
            }
        }
    }
}

impl Cause {
    /// A suggestion for the user; `None` if it is obvious or there is none.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::BlockLength { .. }
            | Self::BlockTrailer { .. }
            | Self::ByteOrderMark(_)
            | Self::CapturedLength { .. }
            | Self::InterfaceOption(_)
            | Self::UnknownInterface { .. } => Some(
                "the file is damaged there: copy it again from where it came, or mend it, for instance with pcapfix",
            ),
            Self::TooManyInterfaces => {
                Some("write it without them: `editcap -F pcap old.pcapng new.pcap` does, where all have one link type")
            }
            _ => None,
        }
    }
}

/// Formats the error in the length of a block.
struct BlockBounds {
    length: u32,
    least: u32,
    most: u32,
}

impl fmt::Display for BlockBounds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, least, most } = self;
        match length {
            _ if length < least => write!(out, "{least} is the least that it can be"),
            _ if length > most => write!(out, "{most} is the most that it can be"),
            _ => write!(out, "a length is a multiple of 4"),
        }
    }
}

impl std::error::Error for Damage {}

/// An interface that captured packets. A classic pcap file has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link type of its packets.
    pub link: LinkType,
    /// Bytes kept of each packet; 0 = whole.
    pub snap_len: u32,
    /// Bytes of frame check sequence at the end of each frame, if the file says.
    pub fcs_bytes: Option<u8>,
    /// Its name, if the file says.
    pub name: Option<String>,
    /// Its description, if the file says.
    pub description: Option<String>,
    /// Times are finer than microseconds.
    pub nanoseconds: bool,
}
