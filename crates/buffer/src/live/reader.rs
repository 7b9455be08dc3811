//! Following a live ring.
//!
//! In: the mapped areas. Out: packets, copied, each verified after the copy; where the writer was faster, how many were
//! passed over. A reader writes nothing that others go by, so nothing it does or leaves undone can disturb them.
//! Sleeping until there is something is not here: the kernel's program can wake nobody by itself (crate `capture`).

use super::memory::LiveMemory;
use super::words::{Facts, PACKET_BYTES, Slot};
use base::atomic::{Ordering, fence};

/// Packets looked at in one call, wanted or not, before the caller gets the word again.
const LOOK_PACKETS: usize = 4096;

/// A reader's place in a live ring.
#[derive(Clone, Debug)]
pub struct LiveReader {
    memory: LiveMemory,
    /// Number of the packet looked at next.
    next: u64,
    /// Only packets that one of these expressions wants are of interest.
    bits: u64,
    /// Packets passed over, of interest or not.
    overtaken: u64,
}

/// A packet that was found; its bytes are to be copied, which may be too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number.
    pub number: u64,
    /// Where its bytes begin, absolute.
    pub pos: u64,
    /// What its slot says.
    pub facts: Facts,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A packet of interest.
    Packet(Packet),
    /// Packets were passed over without one of interest; there are more.
    More,
    /// Everything there is was looked at.
    Nothing,
}

impl LiveReader {
    /// A reader of what comes from now on.
    pub fn new(memory: LiveMemory, bits: u64) -> LiveReader {
        let next = memory.next();
        LiveReader { memory, next, bits, overtaken: 0 }
    }

    /// The ring.
    pub fn memory(&self) -> &LiveMemory {
        &self.memory
    }

    /// Number of the packet looked at next.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Packets passed over because the writer was faster, of interest or not.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// The expressions this reader follows.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Follows other expressions from the next look on.
    pub fn set_bits(&mut self, bits: u64) {
        self.bits = bits;
    }

    /// Begins at packet `number` instead, or where the ring begins if that is gone; never before `not_before`, never
    /// behind what there is. Not counted as overtaken.
    pub fn seek(&mut self, number: u64, not_before: u64) {
        let (oldest, head) = self.bounds();
        self.next = number.max(oldest).max(not_before).min(head);
    }

    /// The same for a reader that owns all from packet `number` on: what is gone of that counts as overtaken.
    pub fn begin_at(&mut self, number: u64) {
        self.seek(number, 0);
        self.overtaken = self.overtaken.saturating_add(self.next.saturating_sub(number));
    }

    /// Begins at the first packet that was seen at `time` (by the clock the writer uses) or later. As [`seek`](Self::seek).
    pub fn seek_time(&mut self, time: u64, not_before: u64) {
        let (oldest, head) = self.bounds();
        // Several processors write: times are in order but for microseconds, which is near enough.
        let at = partition(oldest, head, |number| self.slot(number).time.load(Ordering::Relaxed) < time);
        self.seek(at, not_before);
    }

    /// When the oldest packet that is still there was seen, by the clock the writer uses; none where none has gone yet.
    pub fn oldest_time(&self) -> Option<u64> {
        let (oldest, head) = self.bounds();
        (oldest > 0 && oldest < head).then(|| self.slot(oldest).time.load(Ordering::Relaxed))
    }

    /// The oldest packet whose slot and bytes are still there, and the number behind the newest.
    fn bounds(&self) -> (u64, u64) {
        let head = self.memory.next();
        let lowest = head.saturating_sub(u64::from(self.memory.geometry.slots));
        let oldest = self.first_within(lowest, head, self.memory.geometry.ring_bytes);
        (oldest, head)
    }

    /// The first packet from `low` on whose bytes are at most `bytes` behind what is reserved. One that is still being
    /// written is not gone.
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

    /// Finds the next packet of interest and steps past those before it. The packet itself stays next until
    /// [`advance`](Self::advance).
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
            // Acquire: the words and bytes stored before it.
            if slot.stamp.load(Ordering::Acquire) != stamp {
                return self.unfinished();
            }
            let wanted = slot.wanted.load(Ordering::Relaxed);
            if wanted & self.bits == 0 {
                // Should the slot have been overwritten just now, this may be said of another packet: then the writer is a
                // whole ring ahead, and what is missed is the first of what will be counted as lost.
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

    /// The slot is not stamped with the packet's number: its processor is still at it, or it has been used again.
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

    /// Copies the packet's bytes into `to`, as many as fit; `None` where they have been overwritten meanwhile, wholly or
    /// in part: then the reader has been overtaken and goes on further ahead.
    #[inline]
    pub fn copy_out(&mut self, packet: &Packet, to: &mut [u8]) -> Option<usize> {
        let len = (packet.facts.len as usize).min(to.len()).min(PACKET_BYTES);
        let ring_bytes = self.memory.geometry.ring_bytes;
        self.memory.data.copy_out((packet.pos & (ring_bytes - 1)) as usize, &mut to[..len]);
        // Acquire: nothing that was copied is read after this.
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

    /// The share of the ring, in 256ths, that the writer has filled since this reader's place: 256 and it is overtaken.
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

    /// The writer was faster: goes on where half of the ring is still ahead of it, so that it is not overtaken again at
    /// once.
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

/// The first number from `low` on of which `is_before` is not true, where it is of all before and of none after.
fn partition(mut low: u64, mut high: u64, is_before: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
