//! The p-ring: slots of one size, like a driver's frames. Units are slots. Headers are in an array of their own, so
//! that a slot is all payload and aligned.

use super::{Claim, Damaged, Layout, RingKind, Seen, TooLong, begin_units, overwritten_to};
use crate::descriptor::Descriptor;
use crate::ring::words::RingWords;
use crate::shared::payload::Payload;
use crate::shared::words::{SharedArray, Words};
use base::atomic::{AtomicU64, Ordering};
use base::id::Class;

/// The header of a slot's block: length and class, wire length and flags, time.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SlotHeader {
    len_and_class: AtomicU64,
    wire_and_flags: AtomicU64,
    time: AtomicU64,
    unused: AtomicU64,
}

// SAFETY: repr(C), atomics only, all zero is a value.
unsafe impl Words for SlotHeader {}

/// A ring of slots, and their headers.
#[derive(Debug)]
pub struct Slots {
    headers: SharedArray<SlotHeader>,
    slot_bytes: u64,
}

impl Slots {
    /// For as many slots as there are headers; together they have `bytes` bytes of payload.
    pub fn new(headers: SharedArray<SlotHeader>, bytes: u64) -> Slots {
        let slot_bytes = bytes / headers.count();
        Slots { headers, slot_bytes }
    }
}

impl Layout for Slots {
    fn kind(&self) -> RingKind {
        RingKind::P
    }

    #[inline]
    fn units(&self) -> u64 {
        self.headers.count()
    }

    #[inline]
    fn block_bytes(&self) -> u64 {
        self.slot_bytes
    }

    #[inline]
    fn claim(&self, head: u64, _bytes: u64, len: u64) -> Result<Claim, TooLong> {
        let pos = head.checked_mul(self.slot_bytes).filter(|_| len <= self.slot_bytes).ok_or(TooLong)?;
        Ok(Claim { head_after: head + 1, pos, bytes_after: pos + len })
    }

    #[inline]
    fn shorten(&self, claim: &Claim, len: u64) -> Claim {
        Claim { bytes_after: claim.pos + len, ..*claim }
    }

    #[inline]
    fn fits(&self, claim: &Claim, holder: u64, _head: u64) -> bool {
        claim.head_after - holder <= self.headers.count()
    }

    #[inline]
    fn begin(&self, claim: &Claim, words: &RingWords) {
        begin_units(claim.head_after, &words.writer.0.intent);
    }

    #[inline]
    fn finish(&mut self, _claim: &Claim, head: u64, block: &Descriptor, _payload: &Payload) {
        let header = self.headers.at(head);
        header.len_and_class.store(u64::from(block.class.0) << 32 | u64::from(block.len), Ordering::Relaxed);
        header.wire_and_flags.store(u64::from(block.wire_and_flags), Ordering::Relaxed);
        header.time.store(block.time, Ordering::Relaxed);
    }

    #[inline]
    fn look(&self, position: u64, _head: u64, _payload: &Payload) -> Result<Seen, Damaged> {
        let header = self.headers.at(position);
        let len_and_class = header.len_and_class.load(Ordering::Relaxed);
        let block = Descriptor {
            pos: position.checked_mul(self.slot_bytes).ok_or(Damaged)?,
            len: len_and_class as u32,
            class: Class((len_and_class >> 32) as u32),
            wire_and_flags: header.wire_and_flags.load(Ordering::Relaxed) as u32,
            time: header.time.load(Ordering::Relaxed),
            ..Descriptor::default()
        };
        if u64::from(block.len) > self.slot_bytes {
            return Err(Damaged);
        }
        Ok(Seen { position, units: 1, block, elsewhere: false, number: 0 })
    }

    #[inline]
    fn intact(&self, seen: &Seen, words: &RingWords) -> bool {
        overwritten_to(words.writer.0.intent.load(Ordering::Relaxed), self.headers.count()) <= seen.position
    }

    #[inline]
    fn payload_intact(&self, pos: u64, len: u64, words: &RingWords) -> bool {
        let (first, within) = (pos / self.slot_bytes, pos % self.slot_bytes);
        let begun = words.writer.0.intent.load(Ordering::Relaxed);
        first < begun
            && overwritten_to(begun, self.headers.count()) <= first
            && len.checked_add(within).is_some_and(|end| end <= self.slot_bytes)
    }
}
