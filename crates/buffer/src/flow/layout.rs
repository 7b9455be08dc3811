//! The shared words of a flow channel, and their places.
//!
//! | segment | writer | parts, each at a multiple of a page |
//! |---|---|---|
//! | application | application | `ApplicationWords`, send records, empty receive buffers, bytes to send |
//! | driver | driver | `DriverWords`, received packets, owner of each buffer, receive buffers |

use crate::shared::words::Words;
use base::atomic::AtomicU64;
use std::fmt;

/// Version of everything in this file.
pub const ABI: u32 = 4;

pub(super) const PAGE: usize = 4096;

/// Most pieces of one packet to send.
pub const PIECES: usize = 3;

/// The size of a channel. It limits what is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Most packets to send that the driver is not done with; a power of two.
    pub send_records: u32,
    /// Most bytes of these packets; a power of two, whole pages.
    pub send_bytes: u32,
    /// Receive buffers; a power of two.
    pub receive_buffers: u32,
    /// Bytes of a receive buffer; a power of two. A longer packet takes several.
    pub buffer_bytes: u32,
}

impl Default for Geometry {
    /// 256 packets each way, each of an Ethernet frame.
    fn default() -> Geometry {
        Geometry { send_records: 256, send_bytes: 512 << 10, receive_buffers: 256, buffer_bytes: 2048 }
    }
}

/// Why a geometry is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometryError(&'static str);

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// Checks a geometry from the other side.
    pub fn check(&self) -> Result<(), GeometryError> {
        let power = |value: u32, least: u32, most: u32| value.is_power_of_two() && (least..=most).contains(&value);
        let error = |text| Err(GeometryError(text));
        if !power(self.send_records, 1, 1 << 16) || !power(self.receive_buffers, 1, 1 << 16) {
            error("a channel has a power of two of records and of buffers, 65,536 at most")
        } else if !power(self.send_bytes, PAGE as u32, 64 << 20) {
            error("a channel's bytes to send are a power of two, 4 KiB to 64 MiB")
        } else if !power(self.buffer_bytes, 64, 64 << 10) {
            error("a receive buffer has a power of two of bytes, 64 to 65,536")
        } else if u64::from(self.receive_buffers) * u64::from(self.buffer_bytes) > 64 << 20 {
            error("a channel's receive buffers take 64 MiB at most")
        } else {
            Ok(())
        }
    }

    /// Bytes of both segments, the application's first.
    pub fn bytes(&self) -> (usize, usize) {
        (self.send_data() + self.send_bytes as usize, self.receive_data() + self.receive_data_bytes())
    }

    #[cfg(not(loom))]
    pub(super) fn records() -> usize {
        PAGE
    }

    pub(super) fn empties(&self) -> usize {
        PAGE + pages(self.send_records as usize * size_of::<Record>())
    }

    pub(super) fn send_data(&self) -> usize {
        self.empties() + pages(self.receive_buffers as usize * size_of::<Empty>())
    }

    #[cfg(not(loom))]
    pub(super) fn packets() -> usize {
        PAGE
    }

    pub(super) fn owned(&self) -> usize {
        PAGE + pages(self.receive_buffers as usize * size_of::<Packet>())
    }

    pub(super) fn owned_words(&self) -> usize {
        (self.receive_buffers as usize).div_ceil(64)
    }

    pub(super) fn receive_data(&self) -> usize {
        self.owned() + pages(self.owned_words() * size_of::<Owned>())
    }

    pub(super) fn receive_data_bytes(&self) -> usize {
        pages(self.receive_buffers as usize * self.buffer_bytes as usize)
    }
}

fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// Indices that the application writes. Each counts up for ever; the place in a FIFO is the index modulo its size.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ApplicationWords {
    pub(super) sent: AtomicU64,
    /// Not 0: the application closed the flow after these records.
    pub(super) closed: AtomicU64,
    pub(super) _sent: [AtomicU64; 14],
    pub(super) empties: AtomicU64,
    pub(super) _empties: [AtomicU64; 15],
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for ApplicationWords {}

/// Indices, state and counters that the driver writes.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct DriverWords {
    /// Send records that the driver is done with.
    pub(super) done: AtomicU64,
    pub(super) _done: [AtomicU64; 15],
    pub(super) received: AtomicU64,
    pub(super) _received: [AtomicU64; 15],
    /// [`State`] of the flow in the low 32 bits, an errno above.
    pub(super) state: AtomicU64,
    /// Counts up with each error that the driver reports by `errno`.
    pub(super) errors: AtomicU64,
    /// Errno of the last reported error in the low 32 bits, its detail above.
    pub(super) errno: AtomicU64,
    /// Counts up with each change of the two words below, which are [`Facts`].
    pub(super) changes: AtomicU64,
    /// Hardware address in the low 48 bits, length of the prefix in the next 8, [`HAS_ADDRESS`], [`UNFINISHED`].
    pub(super) link: AtomicU64,
    /// Bytes of the longest IP packet.
    pub(super) mtu: AtomicU64,
    pub(super) _state: [AtomicU64; 10],
    /// Numbers of empty buffers taken. Like `settled`, only for a driver that takes this one's place.
    pub(super) given: AtomicU64,
    /// Entries of received packets whose buffers are marked as the application's.
    pub(super) settled: AtomicU64,
    pub(super) _given: [AtomicU64; 14],
    pub(super) drops: [AtomicU64; Drop::ALL.len()],
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for DriverWords {}

/// Receive buffers that the driver has, a bit each.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Owned(pub(super) AtomicU64);

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for Owned {}

/// A packet to send: up to [`PIECES`] runs of bytes, one after the other.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Record {
    pub(super) count: AtomicU64,
    /// Offset from the beginning of the bytes to send in the low 32 bits, length above.
    pub(super) pieces: [AtomicU64; PIECES],
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for Record {}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Empty(pub(super) AtomicU64);

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for Empty {}

/// A received packet, or a part of one: the entries after it have the other parts.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Packet {
    /// Number of its buffer in the low 32 bits, bytes in that buffer in the next 31, [`CONTINUES`].
    pub(super) place: AtomicU64,
    /// When the device received it, ns since 1970 UTC.
    pub(super) time: AtomicU64,
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for Packet {}

/// The packet goes on in the buffer of the next entry.
pub(super) const CONTINUES: u64 = 1 << 63;

/// Whether a flow is open or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Packets may travel.
    Open,
    /// The driver closed it, for the reason of this errno. The application can still take packets that came before.
    Closed(i32),
}

/// The conditions of a flow. They may change while the flow is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Hardware address of the interface.
    pub mac: [u8; 6],
    /// Length of the prefix of the flow's address, in bits.
    pub prefix: u8,
    /// Bytes of the longest IP packet that the device takes.
    pub mtu: u32,
    /// Whether the interface has the flow's address. If not, no packet travels until the address is back.
    pub has_address: bool,
    /// Whether transport checksums of received packets may be unfinished.
    pub unfinished_checksums: bool,
}

const HAS_ADDRESS: u64 = 1 << 56;
const UNFINISHED: u64 = 1 << 57;

impl Facts {
    pub(super) fn words(&self) -> [u64; 2] {
        let [a, b, c, d, e, f] = self.mac.map(u64::from);
        let mac = a << 40 | b << 32 | c << 24 | d << 16 | e << 8 | f;
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(self.has_address, HAS_ADDRESS) | flag(self.unfinished_checksums, UNFINISHED);
        [mac | u64::from(self.prefix) << 48 | flags, self.mtu.into()]
    }

    pub(super) fn from_words([link, mtu]: [u64; 2]) -> Facts {
        let [_, prefix, mac @ ..] = link.to_be_bytes();
        Facts {
            mac,
            prefix,
            // The application trusts the driver here; a number that does not fit is no device's MTU.
            mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
            has_address: link & HAS_ADDRESS != 0,
            unfinished_checksums: link & UNFINISHED != 0,
        }
    }
}

/// Why the driver dropped a packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Received: the application gave too few empty buffers.
    NoBuffer,
    /// Received: longer than all buffers together.
    TooLong,
    /// Received: the flow used more than its share of receive work while other flows waited.
    Overload,
    /// To send: its header is not the flow's.
    Forged,
    /// To send: longer than the device takes, or shorter than its headers.
    Length,
    /// To send: no next hop answers.
    Unreachable,
    /// To send: the device refused it.
    Refused,
}

impl Drop {
    /// All reasons, in the order of their counters.
    pub const ALL: [Drop; 7] =
        [Drop::NoBuffer, Drop::TooLong, Drop::Overload, Drop::Forged, Drop::Length, Drop::Unreachable, Drop::Refused];

    /// Whether the packet was received, rather than to send.
    pub const fn was_received(self) -> bool {
        matches!(self, Drop::NoBuffer | Drop::TooLong | Drop::Overload)
    }

    /// Name for users and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Drop::NoBuffer => "no empty buffer",
            Drop::TooLong => "longer than all receive buffers",
            Drop::Overload => "more than its share of receive work",
            Drop::Forged => "header is not the flow's",
            Drop::Length => "length does not suit the device",
            Drop::Unreachable => "no next hop answers",
            Drop::Refused => "refused by the device",
        }
    }
}
