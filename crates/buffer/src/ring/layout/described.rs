//! The d-ring: bytes in one ring, descriptors in another. Units are descriptors. Reading the descriptors touches no
//! payload. A descriptor may name a block of another ring: then only its 32 bytes are written.

use super::{Claim, Damaged, Layout, RingKind, Seen, TooLong, begin_units, lies_in, overwritten_to};
use crate::descriptor::Descriptor;
use crate::ring::words::RingWords;
use crate::shared::payload::Payload;
use crate::shared::words::{SharedArray, Words};
use base::atomic::{AtomicU64, Ordering};
use base::id::{Class, Generation, RingId};

/// A [`Descriptor`] in shared memory, in the same layout.
#[derive(Debug, Default)]
#[repr(C)]
pub struct DescriptorSlot {
    pos: AtomicU64,
    time: AtomicU64,
    len_and_wire: AtomicU64,
    class_and_ring: AtomicU64,
}

const _: () = assert!(cfg!(loom) || size_of::<DescriptorSlot>() == size_of::<Descriptor>());

// SAFETY: repr(C), atomics only, all zero is a value.
unsafe impl Words for DescriptorSlot {}

impl DescriptorSlot {
    #[inline]
    fn store(&self, block: &Descriptor) {
        self.pos.store(block.pos, Ordering::Relaxed);
        self.time.store(block.time, Ordering::Relaxed);
        self.len_and_wire.store(u64::from(block.len) | u64::from(block.wire_and_flags) << 32, Ordering::Relaxed);
        let ring = u64::from(block.ring.0) << 32 | u64::from(block.generation.0) << 48;
        self.class_and_ring.store(u64::from(block.class.0) | ring, Ordering::Relaxed);
    }

    #[inline]
    fn load(&self) -> Descriptor {
        let len_and_wire = self.len_and_wire.load(Ordering::Relaxed);
        let class_and_ring = self.class_and_ring.load(Ordering::Relaxed);
        Descriptor {
            pos: self.pos.load(Ordering::Relaxed),
            time: self.time.load(Ordering::Relaxed),
            len: len_and_wire as u32,
            wire_and_flags: (len_and_wire >> 32) as u32,
            class: Class(class_and_ring as u32),
            ring: RingId((class_and_ring >> 32) as u16),
            generation: Generation((class_and_ring >> 48) as u16),
        }
    }
}

/// A ring of descriptors and a ring of bytes.
#[derive(Debug)]
pub struct Described {
    descriptors: SharedArray<DescriptorSlot>,
    bytes: u64,
    /// Bytes in use: a smaller active window keeps a fast writer within the cache. Power of two, at most `bytes`.
    window: u64,
    /// Payload position at which each descriptor was written (writer only).
    begins: Vec<u64>,
}

impl Described {
    /// For these descriptor slots and `bytes` bytes of payload. Blocks of this ring carry ring id 0.
    pub fn new(descriptors: SharedArray<DescriptorSlot>, bytes: u64) -> Described {
        Described { descriptors, bytes, window: bytes, begins: Vec::new() }
    }

    /// The writer's layout, which keeps begins as well.
    pub fn for_writer(mut self) -> Described {
        self.begins = vec![0; self.descriptors.count() as usize];
        self
    }

    #[inline]
    fn begin_of(&self, unit: u64) -> u64 {
        self.begins[(unit & (self.begins.len() as u64 - 1)) as usize]
    }
}

impl Layout for Described {
    fn kind(&self) -> RingKind {
        RingKind::D
    }

    fn window(&self) -> Option<(u64, u64)> {
        Some((self.window, self.bytes))
    }

    fn cut_window(&mut self, bytes: u64) {
        // Clamped first, because a number near 2^64 has no next power of two.
        self.window = bytes.clamp(1, self.bytes).next_power_of_two();
    }

    #[inline]
    fn units(&self) -> u64 {
        self.descriptors.count()
    }

    #[inline]
    fn block_bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn claim(&self, head: u64, bytes: u64, len: u64) -> Result<Claim, TooLong> {
        if len > self.bytes {
            return Err(TooLong);
        }
        // A block that does not fit below the window's edge begins at the ring's next lap.
        let over = (bytes & (self.bytes - 1)) + len > self.window && self.window < self.bytes;
        let pos = if over { (bytes | (self.bytes - 1)).checked_add(1).ok_or(TooLong)? } else { bytes };
        Ok(Claim { head_after: head + 1, pos, bytes_after: pos.checked_add(len).ok_or(TooLong)? })
    }

    #[inline]
    fn shorten(&self, claim: &Claim, len: u64) -> Claim {
        Claim { bytes_after: claim.pos + len, ..*claim }
    }

    #[inline]
    fn fits(&self, claim: &Claim, holder: u64, head: u64) -> bool {
        claim.head_after - holder <= self.descriptors.count()
            && (holder == head || claim.bytes_after - self.begin_of(holder) <= self.bytes)
    }

    #[inline]
    fn begin(&self, claim: &Claim, words: &RingWords) {
        begin_units(claim.head_after, &words.writer.0.intent);
        begin_units(claim.bytes_after, &words.writer.0.intent_bytes);
    }

    #[inline]
    fn finish(&mut self, claim: &Claim, head: u64, block: &Descriptor, _payload: &Payload) {
        let index = (head & (self.begins.len() as u64 - 1)) as usize;
        self.begins[index] = claim.pos;
        self.descriptors.at(head).store(block);
    }

    #[inline]
    fn look(&self, position: u64, _head: u64, _payload: &Payload) -> Result<Seen, Damaged> {
        let block = self.descriptors.at(position).load();
        let elsewhere = block.ring != RingId(0);
        if !elsewhere && u64::from(block.len) > self.bytes {
            return Err(Damaged);
        }
        Ok(Seen { position, units: 1, block, elsewhere, number: 0 })
    }

    #[inline]
    fn intact(&self, seen: &Seen, words: &RingWords) -> bool {
        let writer = &words.writer.0;
        overwritten_to(writer.intent.load(Ordering::Relaxed), self.descriptors.count()) <= seen.position
            && (seen.elsewhere
                || seen.block.len == 0
                || overwritten_to(writer.intent_bytes.load(Ordering::Relaxed), self.bytes) <= seen.block.pos)
    }

    /// Bytes may run out long before descriptors do. Blocks of this ring lie in order, so a binary search finds the
    /// first one with its bytes left: a bounded number of looks, whatever the descriptors say.
    fn boundary(&self, wanted: u64, head: u64, words: &RingWords) -> u64 {
        let writer = &words.writer.0;
        let units = overwritten_to(writer.intent.load(Ordering::Relaxed), self.descriptors.count());
        let bytes = overwritten_to(writer.intent_bytes.load(Ordering::Relaxed), self.bytes);
        let (mut from, mut to) = (wanted.max(units).min(head), head);
        while from < to {
            let middle = from + (to - from) / 2;
            let block = self.descriptors.at(middle).load();
            if block.ring == RingId(0) && block.pos < bytes {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    #[inline]
    fn payload_intact(&self, pos: u64, len: u64, words: &RingWords) -> bool {
        lies_in(pos, len, words.writer.0.intent_bytes.load(Ordering::Relaxed), self.bytes)
    }
}
