//! A process's writer of a live ring: one thread, which copies packets that a device gives it in some other way.
//!
//! The kernel's program does the same in the same order (crate `kernel`). Read that program against this text.

use super::memory::LiveMemory;
use super::words::{EXPRESSIONS, Facts, GRAIN_BYTES, PACKET_BYTES, SlotFlags};
use base::atomic::{AtomicU64, Ordering};

/// The only writer of a live ring.
#[derive(Debug)]
pub struct LiveWriter {
    memory: LiveMemory,
    next: u64,
    reserved: u64,
}

fn add(word: &AtomicU64, more: u64) {
    // There is one writer: no store can come between.
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl LiveWriter {
    /// The writer of a ring that was mapped for writing and has no other writer.
    pub fn new(memory: LiveMemory) -> LiveWriter {
        let next = memory.next();
        let reserved = memory.head.reserved.load(Ordering::Relaxed);
        LiveWriter { memory, next, reserved }
    }

    /// The ring.
    pub fn memory(&self) -> &LiveMemory {
        &self.memory
    }

    /// Counts a packet for an expression that only counts; `kept` bytes of it would have been written.
    pub fn count(&mut self, expression: u8, wire: u32, kept: u32) {
        let counts = &self.memory.cpus[0];
        let at = usize::from(expression) % EXPRESSIONS;
        add(&counts.expressions[at].packets, 1);
        add(&counts.expressions[at].wire_bytes, wire.into());
        add(&counts.kept_bytes[at], kept.into());
    }

    /// Counts packets that were filtered out before they got here, because no expression wants them.
    pub fn kept_out(&mut self, packets: u64, wire_bytes: u64) {
        let counts = &self.memory.cpus[0];
        add(&counts.seen, packets);
        add(&counts.seen_bytes, wire_bytes);
    }

    /// Counts a packet, and writes it if any expression wants it. `parts` are its bytes, one after the other; bytes
    /// beyond [`PACKET_BYTES`] are cut off.
    pub fn publish(&mut self, facts: Facts, parts: &[&[u8]]) {
        let counts = &self.memory.cpus[0];
        let wire = u64::from(facts.wire);
        add(&counts.seen, 1);
        add(&counts.seen_bytes, wire);
        if facts.wanted == 0 {
            return;
        }
        add(&counts.wanted, 1);
        let mut left = facts.wanted;
        while left != 0 {
            let count = &counts.expressions[left.trailing_zeros() as usize];
            add(&count.packets, 1);
            add(&count.wire_bytes, wire);
            left &= left - 1;
        }
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let len = all.min(PACKET_BYTES);
        let (number, pos) = (self.next, self.reserved);
        self.next = number.wrapping_add(1);
        self.reserved = pos.wrapping_add((len as u64).next_multiple_of(GRAIN_BYTES));
        let slot = self.memory.slots.at(number);
        // The slot's stamp is cleared before `next` says that the slot is used, and bytes are reserved before they are
        // overwritten. A reader that has seen any later store sees these too.
        slot.stamp.store(0, Ordering::Relaxed);
        self.memory.head.reserved.store(self.reserved, Ordering::Relaxed);
        base::atomic::fence(Ordering::Release);
        self.memory.head.next.store(self.next, Ordering::Release);
        let mut at = (pos & (self.memory.geometry.ring_bytes - 1)) as usize;
        let mut room = len;
        for part in parts {
            let part = &part[..part.len().min(room)];
            self.memory.data.copy_in(at, part);
            (at, room) = (at + part.len(), room - part.len());
        }
        let mut facts = Facts { len: len as u32, ..facts };
        if len < all || (facts.len < facts.wire) {
            facts.flags = facts.flags.with(SlotFlags::TRUNCATED);
        }
        slot.store(pos, &facts);
        // Release: everything above.
        slot.stamp.store(number.wrapping_add(1), Ordering::Release);
    }
}
