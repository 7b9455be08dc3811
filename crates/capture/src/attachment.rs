//! The answer to a capture request: everything a reader needs to read on its own, as data and file descriptors.

use buffer::live::{Areas, Geometry, LiveMemory};
use buffer::shared::segment::Access;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// LINKTYPE number of Ethernet.
pub const ETHERNET: u16 = 1;

/// LINKTYPE number of IP packets without a link-layer header.
pub const RAW_IP: u16 = 101;

/// A device, with the facts that a reader needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// LINKTYPE number of its frames.
    pub link_type: u16,
    /// Largest packet without its link-layer header.
    pub mtu: u32,
    /// How packets get into the ring, for users.
    pub how: String,
    /// Whether a thread copies its packets into the ring. `false` for a device that is not open yet may turn out wrong: the
    /// kernel may refuse the program.
    pub copied: bool,
}

/// How far back a ring reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Age of the oldest packet in the ring, in nanoseconds.
    pub reaches_ns: u64,
    /// Whether all packets are there that this reader may see. Otherwise only those that some reader wanted.
    pub whole: bool,
}

/// A reader's place on a ring: the facts about it, without the file descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The owner's number for this reader.
    pub id: u64,
    /// The device.
    pub device: Device,
    /// Size of the ring.
    pub geometry: Geometry,
    /// The bit of packets for this reader.
    pub bit: u8,
    /// Packets that had this bit before, and their bytes.
    pub matched_before: (u64, u64),
    /// Bytes that had been counted as kept with this bit before.
    pub kept_before: u64,
    /// Packets that the device's writer had seen before.
    pub seen_before: u64,
    /// The first packet that this reader may look at.
    pub first: u64,
    /// The first packet on which its expression decided; the reader's own program decides on earlier ones.
    pub decided: u64,
    /// The past that the ring holds.
    pub past: Past,
    /// A note for the reader's user; empty if there is none.
    pub note: String,
}

/// The file descriptors of a reader.
#[derive(Debug)]
pub struct Fds {
    /// The ring's areas, for mapping read-only.
    pub areas: Areas<OwnedFd>,
    /// Brings its wake-ups, and shows the owner that it is still there.
    pub line: OwnedFd,
    /// The page on which the reader publishes how far it is.
    pub progress: OwnedFd,
}

impl Fds {
    /// All of them, in the order in which they travel.
    pub fn all(&self) -> [BorrowedFd<'_>; 5] {
        let Areas { words, slots, data } = &self.areas;
        [words.as_fd(), slots.as_fd(), data.as_fd(), self.line.as_fd(), self.progress.as_fd()]
    }

    /// Those that came with a message; `None` unless there are five.
    pub fn of(all: Vec<OwnedFd>) -> Option<Fds> {
        let [words, slots, data, line, progress] = <[OwnedFd; 5]>::try_from(all).ok()?;
        Some(Fds { areas: Areas { words, slots, data }, line, progress })
    }
}

/// A reader's place on a ring.
#[derive(Debug)]
pub struct Attachment {
    /// The facts about it.
    pub granted: Granted,
    /// Its file descriptors.
    pub fds: Fds,
}

impl Attachment {
    /// Maps the ring.
    pub fn map(&self) -> io::Result<LiveMemory> {
        let Areas { words, slots, data } = &self.fds.areas;
        let fds = Areas { words: words.as_fd(), slots: slots.as_fd(), data: data.as_fd() };
        LiveMemory::map(fds, self.granted.geometry, Access::Read)
    }
}

/// A new expression for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The reader's bit from now on.
    pub bit: u8,
    /// Packets that had this bit before, and their bytes.
    pub matched_before: (u64, u64),
    /// The first packet on which the new expression alone decided; earlier ones may have only the old bit.
    pub first: u64,
}
