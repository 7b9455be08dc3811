//! Following a live ring.
//!
//! Gives copies of packets, each verified after the copy, and the number of packets passed over because the writer was
//! faster. No other process relies on what a reader writes, so a reader disturbs none. This module does not sleep:
//! the kernel's program cannot wake a reader by itself (see crate `capture`).

use super::memory::LiveMemory;
use super::words::{Facts, PACKET_BYTES, Slot};
use base::atomic::{Ordering, fence};

/// Most packets that one call looks at, wanted or not, before it returns to the caller.
const LOOK_PACKETS: usize = 4096;

/// A reader's place in a live ring.
#[derive(Clone, Debug)]
pub struct LiveReader {
    memory: LiveMemory,
    next: u64,
    bits: u64,
    overtaken: u64,
}

/// A packet that was found. Its bytes are not copied yet, which may turn out too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number.
    pub number: u64,
    /// Absolute position of its first byte.
    pub pos: u64,
    /// The contents of its slot.
    pub facts: Facts,
}

/// Result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A packet that this reader follows.
    Packet(Packet),
    /// Only other packets so far; there are more.
    More,
    /// No more packets.
    Nothing,
}

impl LiveReader {
    /// A reader of the packets from now on.
    pub fn new(memory: LiveMemory, bits: u64) -> LiveReader {
        let next = memory.next();
        LiveReader { memory, next, bits, overtaken: 0 }
    }

    /// The ring.
    pub fn memory(&self) -> &LiveMemory {
        &self.memory
    }

    /// Number of the next packet to look at.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Packets passed over because the writer was faster, whichever expression wanted them.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// Bits of the expressions that this reader follows.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Follows other expressions from the next look on.
    pub fn set_bits(&mut self, bits: u64) {
        self.bits = bits;
    }

    /// Moves to packet `number`, or to the oldest packet if that is gone; never before `not_before`, never past the
    /// newest. Skipped packets do not count as overtaken.
    pub fn seek(&mut self, number: u64, not_before: u64) {
        let (oldest, head) = self.bounds();
        self.next = number.max(oldest).max(not_before).min(head);
    }

    /// The same for a reader that owns every packet from `number` on: those that are gone count as overtaken.
    pub fn begin_at(&mut self, number: u64) {
        self.seek(number, 0);
        self.overtaken = self.overtaken.saturating_add(self.next.saturating_sub(number));
    }

    /// Moves to the first packet seen at `time` (by the writer's clock) or later. Otherwise like [`seek`](Self::seek).
    pub fn seek_time(&mut self, time: u64, not_before: u64) {
        let (oldest, head) = self.bounds();
        // Several processors write, so times are out of order by microseconds. That is near enough.
        let at = partition(oldest, head, |number| self.slot(number).time.load(Ordering::Relaxed) < time);
        self.seek(at, not_before);
    }

    /// Time of the oldest packet in the ring, by the writer's clock; `None` while no packet was overwritten yet.
    pub fn oldest_time(&self) -> Option<u64> {
        let (oldest, head) = self.bounds();
        (oldest > 0 && oldest < head).then(|| self.slot(oldest).time.load(Ordering::Relaxed))
    }

    /// Number of the oldest packet whose slot and bytes are intact, and the number after the newest.
    fn bounds(&self) -> (u64, u64) {
        let head = self.memory.next();
        let lowest = head.saturating_sub(u64::from(self.memory.geometry.slots));
        let oldest = self.first_within(lowest, head, self.memory.geometry.ring_bytes);
        (oldest, head)
    }

    /// The first packet from `low` on whose bytes are at most `bytes` behind the reserved end. A packet that is still
    /// being written counts as there.
    fn first_within(&self, low: u64, head: u64, bytes: u64) -> u64 {
        let reserved = self.memory.head.reserved.load(Ordering::Acquire);
        partition(low, head, |number| {
            let slot = self.slot(number);
            let stamp = slot.stamp.load(Ordering::Acquire);
            let pos = slot.pos.load(Ordering::Relaxed);
            let whole = number.wrapping_add(1);
            stamp > whole || stamp == whole && reserved.wrapping_sub(pos) > bytes
        })
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot {
        self.memory.slots.at(number)
    }

    /// Finds the next packet that this reader follows and steps past those before it. The packet itself stays next
    /// until [`advance`](Self::advance).
    #[inline]
    pub fn look(&mut self) -> Look {
        let head = self.memory.next();
        for _ in 0..LOOK_PACKETS {
            let behind = head.wrapping_sub(self.next);
            if behind == 0 || behind > u64::MAX / 2 {
                return Look::Nothing;
            }
            if behind > u64::from(self.memory.geometry.slots) {
                self.resume();
                return Look::More;
            }
            let slot = self.slot(self.next);
            let stamp = self.next.wrapping_add(1);
            // Acquire: sees the words and bytes stored before the stamp.
            if slot.stamp.load(Ordering::Acquire) != stamp {
                return self.unfinished();
            }
            let wanted = slot.wanted.load(Ordering::Relaxed);
            if wanted & self.bits == 0 {
                // The slot may have been overwritten just now, so that `wanted` is another packet's. Then the writer is
                // a whole ring ahead, and the missed packet is the first of those that will be counted as lost.
                fence(Ordering::Acquire);
                if slot.stamp.load(Ordering::Relaxed) != stamp {
                    return self.unfinished();
                }
                self.next = stamp;
                continue;
            }
            let (pos, facts) = slot.load();
            fence(Ordering::Acquire);
            if slot.stamp.load(Ordering::Relaxed) != stamp {
                return self.unfinished();
            }
            return Look::Packet(Packet { number: self.next, pos, facts });
        }
        Look::More
    }

    /// The slot does not have the packet's stamp: a processor is still writing it, or it was used again.
    #[cold]
    fn unfinished(&mut self) -> Look {
        let behind = self.memory.next().wrapping_sub(self.next);
        if behind > u64::from(self.memory.geometry.slots) {
            self.resume();
            return Look::More;
        }
        Look::Nothing
    }

    /// Steps past the packet that was found.
    #[inline]
    pub fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Copies the packet's bytes into `to`, as many as fit. `None` where any of them have been overwritten meanwhile:
    /// the reader was overtaken and goes on further ahead.
    #[inline]
    pub fn copy_out(&mut self, packet: &Packet, to: &mut [u8]) -> Option<usize> {
        let len = (packet.facts.len as usize).min(to.len()).min(PACKET_BYTES);
        let ring_bytes = self.memory.geometry.ring_bytes;
        self.memory.data.copy_out((packet.pos & (ring_bytes - 1)) as usize, &mut to[..len]);
        // Acquire: keeps the copy's reads before the check below.
        fence(Ordering::Acquire);
        let reserved = self.memory.head.reserved.load(Ordering::Relaxed);
        if reserved.wrapping_sub(packet.pos) <= ring_bytes {
            return Some(len);
        }
        self.resume();
        None
    }

    /// Asks the processor to fetch the packet's first bytes.
    #[inline]
    pub fn prefetch(&self, packet: &Packet) {
        self.memory.data.prefetch((packet.pos & (self.memory.geometry.ring_bytes - 1)) as usize);
    }

    /// The share of the ring, in 256ths, that was written since this reader's place; at 256 it is overtaken.
    pub fn lag(&self) -> u32 {
        let geometry = &self.memory.geometry;
        let behind = self.memory.next().wrapping_sub(self.next);
        let by_slots = behind.min(u64::from(geometry.slots)) * 256 / u64::from(geometry.slots);
        if behind == 0 || behind >= u64::from(geometry.slots) {
            return by_slots as u32;
        }
        let pos = self.slot(self.next).pos.load(Ordering::Relaxed);
        let bytes = self.memory.head.reserved.load(Ordering::Relaxed).wrapping_sub(pos);
        by_slots.max(bytes.min(geometry.ring_bytes) * 256 / geometry.ring_bytes) as u32
    }

    /// Goes on after the writer was faster: at most half a ring behind it, so as not to be overtaken again at once.
    #[cold]
    fn resume(&mut self) {
        let head = self.memory.next();
        let geometry = &self.memory.geometry;
        let low = head.saturating_sub(u64::from(geometry.slots / 2)).max(self.next.wrapping_add(1)).min(head);
        let to = self.first_within(low, head, geometry.ring_bytes / 2);
        self.overtaken = self.overtaken.saturating_add(to.saturating_sub(self.next));
        self.next = to;
    }
}

/// The first number from `low` on for which `is_before` is false; all lower ones must be true, all higher ones false.
fn partition(mut low: u64, mut high: u64, is_before: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
