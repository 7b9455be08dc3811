//! A live ring's three areas: words, slots, bytes. They are maps of the kernel's program, or memfds of a writing
//! process.
//!
//! Readers map them read-only and believe only what is checked here: the sizes come from the process that handed over
//! the file descriptors, and must match what the areas say.

use super::words::{ABI, CpuPage, Head, OVERHANG_BYTES, Slot};
use crate::shared::payload::Span;
use crate::shared::segment::{Access, Mapping, PAGE_BYTES, Pages, Segment};
use crate::shared::words::{Shared, SharedArray};
use base::atomic::Ordering;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Size of a live ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Most packets in the ring: a power of two.
    pub slots: u32,
    /// Bytes of packets in the ring: a power of two.
    pub ring_bytes: u64,
    /// Processors that may write: each counts in a page of its own.
    pub cpus: u32,
}

/// Smallest ring, in bytes: several of the largest packets.
pub const RING_BYTES_MIN: u64 = 1 << 18;

/// Largest ring, in bytes: half of the range in one map that the kernel's verifier permits.
pub const RING_BYTES_MAX: u64 = 1 << 28;

/// By default there is a slot for this number of packet bytes.
pub const BYTES_PER_SLOT: u64 = 256;

const CPUS_MAX: u32 = 4096;

crate::wire_struct!(Geometry { slots, ring_bytes, cpus } if Geometry::is_sound);

impl Geometry {
    /// A ring of about `bytes` bytes of packets, without its slots: rounded up to a valid size, at most the largest.
    pub fn new(bytes: u64, cpus: u32) -> Geometry {
        let ring_bytes = bytes.clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_power_of_two();
        Geometry { slots: (ring_bytes / BYTES_PER_SLOT) as u32, ring_bytes, cpus: cpus.clamp(1, CPUS_MAX) }
    }

    /// Whether this is a valid size. A geometry from another process may be anything.
    pub fn is_sound(&self) -> bool {
        (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&self.ring_bytes)
            && self.ring_bytes.is_power_of_two()
            && self.slots.is_power_of_two()
            && u64::from(self.slots) <= self.ring_bytes / super::words::GRAIN_BYTES
            && self.slots >= 64
            && (1..=CPUS_MAX).contains(&self.cpus)
    }

    /// Bytes of the words' area.
    pub fn words_bytes(&self) -> usize {
        PAGE_BYTES * (1 + self.cpus as usize)
    }

    /// Bytes of the slots' area.
    pub fn slots_bytes(&self) -> usize {
        (self.slots as usize * size_of::<Slot>()).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of the packets' area.
    pub fn data_bytes(&self) -> usize {
        (self.ring_bytes as usize + OVERHANG_BYTES).next_multiple_of(PAGE_BYTES)
    }
}

/// The file descriptors of the three areas.
#[derive(Clone, Copy, Debug)]
pub struct Areas<T> {
    /// Head and counts.
    pub words: T,
    /// Slots.
    pub slots: T,
    /// Bytes of packets.
    pub data: T,
}

impl Areas<Segment> {
    /// Makes memory for a ring that this process writes; its size is fixed.
    pub fn create(name: &str, geometry: Geometry) -> io::Result<Areas<Segment>> {
        let make = |bytes| Segment::create(name, bytes, Pages::Normal);
        Ok(Areas {
            words: make(geometry.words_bytes())?,
            slots: make(geometry.slots_bytes())?,
            data: make(geometry.data_bytes())?,
        })
    }

    /// Forbids further maps for writing. Call after the writer has mapped the areas.
    pub fn seal_for_readers(&self) -> io::Result<()> {
        [&self.words, &self.slots, &self.data].into_iter().try_for_each(Segment::seal_for_readers)
    }

    /// The file descriptors, for handing on or mapping.
    pub fn fds(&self) -> Areas<BorrowedFd<'_>> {
        Areas { words: self.words.fd(), slots: self.slots.fd(), data: self.data.fd() }
    }
}

/// A live ring, mapped. Clones share the maps; cloning allocates nothing.
#[derive(Clone, Debug)]
pub struct LiveMemory {
    pub(super) geometry: Geometry,
    pub(super) head: Shared<Head>,
    pub(super) cpus: Arc<[Shared<CpuPage>]>,
    pub(super) slots: SharedArray<Slot>,
    pub(super) data: Span,
}

impl LiveMemory {
    /// Maps the three areas.
    pub fn map(fds: Areas<BorrowedFd<'_>>, geometry: Geometry, access: Access) -> io::Result<LiveMemory> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if !geometry.is_sound() {
            return Err(invalid("a live ring cannot be of this size"));
        }
        let not_there = || invalid("the shared memory is smaller than the live ring it should hold");
        let words: Arc<Mapping> = Mapping::of(fds.words, geometry.words_bytes(), access)?;
        let head = Shared::<Head>::in_mapping(&words, 0).ok_or_else(not_there)?;
        let page = |cpu: u32| Shared::in_mapping(&words, PAGE_BYTES * (1 + cpu as usize)).ok_or_else(not_there);
        let cpus = (0..geometry.cpus).map(page).collect::<io::Result<Arc<[_]>>>()?;
        let slots: Arc<Mapping> = Mapping::of(fds.slots, geometry.slots_bytes(), access)?;
        let slots = SharedArray::in_mapping(&slots, 0, geometry.slots as usize).ok_or_else(not_there)?;
        let data = Span::new(Mapping::of(fds.data, geometry.data_bytes(), access)?);
        if access == Access::Write {
            head.slots.store(geometry.slots, Ordering::Relaxed);
            head.ring_bytes.store(geometry.ring_bytes, Ordering::Relaxed);
            head.abi.store(ABI, Ordering::Release);
        }
        let known = head.abi.load(Ordering::Acquire) == ABI
            && head.slots.load(Ordering::Relaxed) == geometry.slots
            && head.ring_bytes.load(Ordering::Relaxed) == geometry.ring_bytes;
        if !known {
            return Err(invalid("the shared memory is no live ring of this version and size"));
        }
        Ok(LiveMemory { geometry, head, cpus, slots, data })
    }

    /// The ring's size.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of the next packet.
    #[inline]
    pub fn next(&self) -> u64 {
        self.head.next.load(Ordering::Acquire)
    }

    /// Packets that the writer saw, and their bytes on the wire.
    pub fn seen(&self) -> Count {
        self.sum(|page| (&page.seen, &page.seen_bytes))
    }

    /// Packets that any expression wanted, and the number of those whose bytes could not be copied.
    pub fn wanted_and_lost(&self) -> (u64, u64) {
        let Count { packets, wire_bytes } = self.sum(|page| (&page.wanted, &page.lost));
        (packets, wire_bytes)
    }

    /// Packets that this expression wanted since the ring was made, and their bytes on the wire.
    ///
    /// # Panics
    ///
    /// If `expression` is not below [`EXPRESSIONS`](super::words::EXPRESSIONS).
    pub fn matched(&self, expression: usize) -> Count {
        self.sum(|page| {
            let count = &page.expressions[expression];
            (&count.packets, &count.wire_bytes)
        })
    }

    /// For an expression that only counts: bytes of its packets that would have been written, since the ring was made.
    ///
    /// # Panics
    ///
    /// If `expression` is not below [`EXPRESSIONS`](super::words::EXPRESSIONS).
    pub fn kept_bytes(&self, expression: usize) -> u64 {
        self.sum(|page| (&page.seen, &page.kept_bytes[expression])).wire_bytes
    }

    fn sum(&self, pick: impl Fn(&CpuPage) -> (&base::atomic::AtomicU64, &base::atomic::AtomicU64)) -> Count {
        self.cpus.iter().fold(Count::default(), |sum, page| {
            let (packets, wire_bytes) = pick(page);
            Count {
                packets: sum.packets.wrapping_add(packets.load(Ordering::Relaxed)),
                wire_bytes: sum.wire_bytes.wrapping_add(wire_bytes.load(Ordering::Relaxed)),
            }
        })
    }
}

/// A number of packets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub wire_bytes: u64,
}

impl Count {
    /// The difference from an earlier count.
    #[must_use]
    pub fn since(self, earlier: Count) -> Count {
        Count {
            packets: self.packets.wrapping_sub(earlier.packets),
            wire_bytes: self.wire_bytes.wrapping_sub(earlier.wire_bytes),
        }
    }
}
