//! A ring's segment: words, headers, payload, in this order, each on pages of its own.

use super::layout::{AnyLayout, Described, DescriptorSlot, Inline, RingKind, SlotHeader, Slots, Stream};
use super::map::RingMap;
use super::words::{ABI, MAGIC, RingWords};
use crate::shared::payload::Payload;
use crate::shared::segment::{Access, Mapping, PAGE_BYTES, Pages, Refused, Segment};
use crate::shared::words::{Shared, SharedArray};
use base::atomic::Ordering;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Size and kind of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Kind of ring.
    pub kind: RingKind,
    /// Bytes of payload: a power of two, whole pages.
    pub payload_bytes: u64,
    /// Slots or descriptors: a power of two; 0 for kinds without.
    pub slots: u64,
}

/// Smallest payload: a page.
pub const PAYLOAD_BYTES_MIN: u64 = PAGE_BYTES as u64;

/// Largest payload.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 38;

/// Most slots or descriptors.
pub const SLOTS_MAX: u64 = 1 << 28;

/// By default a d- or p-ring has one descriptor or slot for this number of payload bytes.
pub const BYTES_PER_SLOT: u64 = 512;

impl Geometry {
    /// A ring of this kind with at least `bytes` bytes of payload and, if the kind has slots, `slots` of them (0: one
    /// for each [`BYTES_PER_SLOT`]). Both are rounded up to a valid size and cut to the largest one.
    pub fn new(kind: RingKind, bytes: u64, slots: u64) -> Geometry {
        let payload_bytes = bytes.clamp(PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX).next_power_of_two();
        let slots = match kind {
            RingKind::C | RingKind::V => 0,
            RingKind::P | RingKind::D if slots == 0 => (payload_bytes / BYTES_PER_SLOT).max(1),
            RingKind::P | RingKind::D => slots.clamp(1, SLOTS_MAX).next_power_of_two(),
        };
        let slots = if kind == RingKind::P { slots.min(payload_bytes) } else { slots };
        Geometry { kind, payload_bytes, slots }
    }

    /// Whether [`new`](Geometry::new) could have given this. A geometry from another process may be anything.
    pub fn is_sound(&self) -> bool {
        *self == Geometry::new(self.kind, self.payload_bytes, self.slots.max(1))
            && (self.slots > 0 || matches!(self.kind, RingKind::C | RingKind::V))
    }

    fn slot_bytes(&self) -> usize {
        match self.kind {
            RingKind::C | RingKind::V => 0,
            RingKind::P => size_of::<SlotHeader>(),
            RingKind::D => size_of::<DescriptorSlot>(),
        }
    }

    /// Bytes of words and headers, and of the whole segment, for pages of this size.
    fn bytes(&self, page_bytes: usize) -> Option<(usize, usize)> {
        let words = size_of::<RingWords>().next_multiple_of(PAGE_BYTES);
        let headers = usize::try_from(self.slots).ok()?.checked_mul(self.slot_bytes())?;
        let payload_at = words.checked_add(headers)?.checked_next_multiple_of(page_bytes)?;
        let all = payload_at.checked_add(usize::try_from(self.payload_bytes).ok()?)?;
        Some((payload_at, all))
    }
}

fn not_its_ring() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the shared memory is not what its ring should be")
}

/// A ring's segment in this process.
#[derive(Debug)]
pub struct RingMemory {
    segment: Segment,
    geometry: Geometry,
}

impl RingMemory {
    /// Makes a segment for a ring of this geometry and writes the keeper's words. It is not sealed against writing yet.
    pub fn create(name: &str, geometry: Geometry, pages: Pages, generation: u32) -> io::Result<RingMemory> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "a ring of this size does not fit in memory");
        let huge = match pages {
            // A smaller ring would be mostly slack.
            Pages::HugeIfThere if geometry.payload_bytes >= 16 << 20 => Pages::HugeIfThere,
            _ => Pages::Normal,
        };
        let page_bytes = if huge == Pages::HugeIfThere { crate::shared::segment::HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let (_, bytes) = geometry.bytes(page_bytes).ok_or_else(too_large)?;
        let segment = Segment::create(name, bytes, huge)?;
        let memory = RingMemory { segment, geometry };
        let words = memory.words(Access::Write)?;
        let keeper = &words.keeper.0;
        keeper.abi.store(ABI, Ordering::Relaxed);
        keeper.layout.store(geometry.kind.code(), Ordering::Relaxed);
        keeper.payload_bytes.store(geometry.payload_bytes, Ordering::Relaxed);
        keeper.slots.store(geometry.slots, Ordering::Relaxed);
        keeper.generation.store(generation, Ordering::Relaxed);
        // Relaxed, all of it: the segment is handed out afterwards.
        keeper.magic.store(MAGIC, Ordering::Relaxed);
        Ok(memory)
    }

    /// Accepts a segment from a keeper, which named its geometry. Everything is checked before it is mapped.
    pub fn receive(fd: OwnedFd, geometry: Geometry, access: Access) -> Result<RingMemory, Refused> {
        let wants = geometry.is_sound().then(|| geometry.bytes(PAGE_BYTES)).flatten();
        let (_, bytes) = wants
            .ok_or_else(|| Refused::Io(io::Error::new(io::ErrorKind::InvalidData, "a ring cannot have this size")))?;
        let segment = Segment::receive(fd, bytes, access)?;
        let (_, bytes) = geometry.bytes(segment.page_bytes()).unwrap_or((0, usize::MAX));
        if segment.bytes() < bytes {
            return Err(Refused::TooShort { has: segment.bytes() as u64, wants: bytes as u64 });
        }
        Ok(RingMemory { segment, geometry })
    }

    /// The segment, for handing on or sealing.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Size and kind.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Maps only the words; the rest takes no memory.
    pub fn words(&self, access: Access) -> io::Result<Shared<RingWords>> {
        let bytes = size_of::<RingWords>().next_multiple_of(self.segment.page_bytes());
        let mapping = self.segment.map(0, bytes, access)?;
        Shared::in_mapping(&mapping, 0).ok_or_else(not_its_ring)
    }

    /// Maps the whole segment.
    pub fn map(&self, access: Access) -> io::Result<RingMap> {
        let Geometry { kind, payload_bytes, slots } = self.geometry;
        let (payload_at, _) = self.geometry.bytes(self.segment.page_bytes()).ok_or_else(not_its_ring)?;
        let control: Arc<Mapping> = self.segment.map(0, payload_at, access)?;
        let words = Shared::<RingWords>::in_mapping(&control, 0).ok_or_else(not_its_ring)?;
        let payload = Payload::map(&self.segment, payload_at, payload_bytes as usize, access)?;
        let headers_at = size_of::<RingWords>().next_multiple_of(PAGE_BYTES);
        let layout = match kind {
            RingKind::C => AnyLayout::Stream(Stream::new(payload_bytes)),
            RingKind::V => AnyLayout::Inline(Inline::new(payload_bytes)),
            RingKind::P => {
                let headers = SharedArray::in_mapping(&control, headers_at, slots as usize).ok_or_else(not_its_ring)?;
                AnyLayout::Slots(Slots::new(headers, payload_bytes))
            }
            RingKind::D => {
                let slots = SharedArray::in_mapping(&control, headers_at, slots as usize).ok_or_else(not_its_ring)?;
                let described = Described::new(slots, payload_bytes);
                AnyLayout::Described(if access == Access::Write { described.for_writer() } else { described })
            }
        };
        Ok(RingMap { words, payload, layout })
    }

    /// Whether the segment has the ABI of this program, and the geometry that its keeper named.
    pub fn is_known(&self, words: &RingWords) -> bool {
        let keeper = &words.keeper.0;
        let Geometry { kind, payload_bytes, slots } = self.geometry;
        keeper.magic.load(Ordering::Relaxed) == MAGIC
            && keeper.abi.load(Ordering::Relaxed) == ABI
            && keeper.layout.load(Ordering::Relaxed) == kind.code()
            && keeper.payload_bytes.load(Ordering::Relaxed) == payload_bytes
            && keeper.slots.load(Ordering::Relaxed) == slots
    }
}
