//! What a reader gets: everything it needs to read on its own, as data and file descriptors.

use buffer::live::{Areas, Geometry, LiveMemory};
use buffer::shared::segment::Access;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// LINKTYPE number of Ethernet.
pub const ETHERNET: u16 = 1;

/// LINKTYPE number of IP packets without a header in front.
pub const RAW_IP: u16 = 101;

/// A device, as a reader needs to know it.
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
    /// How packets get into the ring, for people.
    pub how: String,
    /// A thread copies its packets into the ring. Where this is false of a device that is not open yet, it may still turn out
    /// to be so: the kernel may not take the program.
    pub copied: bool,
}

/// How far back a ring reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Packets of so many nanoseconds are there, at most.
    pub reaches_ns: u64,
    /// All of them are that this reader may see; else those that somebody else wanted.
    pub whole: bool,
}

/// What a reader gets.
#[derive(Debug)]
pub struct Attachment {
    /// Number by which the owner knows this reader.
    pub id: u64,
    /// The device.
    pub device: Device,
    /// Size of the ring.
    pub geometry: Geometry,
    /// A page to say in how far the reader is.
    pub progress: OwnedFd,
    /// The ring's areas, to be mapped for reading.
    pub areas: Areas<OwnedFd>,
    /// The bit that says that a packet is for this reader.
    pub bit: u8,
    /// Packets that bit had been set on before, and their bytes.
    pub matched_before: (u64, u64),
    /// Bytes that had been counted as kept on it.
    pub kept_before: u64,
    /// Packets the device's writer had been shown before.
    pub seen_before: u64,
    /// The first packet this reader may look at.
    pub first: u64,
    /// The first packet that its expression decided on; of earlier ones the reader's own program says whether it wants them.
    pub decided: u64,
    /// What the ring holds of the past.
    pub past: Past,
    /// What its user should know; empty if nothing.
    pub note: String,
    /// Where its wake-ups come from, and what tells the owner that it is still there.
    pub line: OwnedFd,
}

impl Attachment {
    /// Maps the ring.
    pub fn map(&self) -> io::Result<LiveMemory> {
        let Areas { words, slots, data } = &self.areas;
        let fds = Areas { words: words.as_fd(), slots: slots.as_fd(), data: data.as_fd() };
        LiveMemory::map(fds, self.geometry, Access::Read)
    }
}

/// Another expression for a reader there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The bit from now on.
    pub bit: u8,
    /// Packets that bit had been set on before, and their bytes.
    pub matched_before: (u64, u64),
    /// The first packet that the new expression alone decided on; earlier ones may carry the old bit only.
    pub first: u64,
}
