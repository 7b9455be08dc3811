//! Frames that the device is to take: buffers that are used again, in order, what was not taken first.

use crate::limits::{ANSWER_BYTES, SLOTS};
use driver::{Error, Turn};

#[derive(Debug)]
struct Slot {
    bytes: Box<[u8]>,
    len: usize,
}

/// The next batch.
#[derive(Debug)]
pub(crate) struct Outbox {
    slots: Vec<Slot>,
    /// Frames from here on are to be sent.
    from: usize,
    used: usize,
}

impl Outbox {
    /// For frames of a device that takes IP packets of `mtu` bytes.
    pub(crate) fn new(mtu: u32) -> Outbox {
        let bytes = (mtu as usize + 14).max(ANSWER_BYTES);
        let slot = || Slot { bytes: vec![0; bytes].into_boxed_slice(), len: 0 };
        Outbox { slots: (0..SLOTS).map(|_| slot()).collect(), from: 0, used: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.from == self.used
    }

    pub(crate) fn has_room(&self) -> bool {
        self.used < self.slots.len()
    }

    /// A buffer of `len` bytes for the next frame; it holds what an earlier frame left. None: there is no room, or it is too long.
    pub(crate) fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(self.used)?;
        let bytes = slot.bytes.get_mut(..len)?;
        (slot.len, self.used) = (len, self.used + 1);
        Some(bytes)
    }

    /// Takes the last frame out again.
    pub(crate) fn take_back(&mut self, into: &mut Vec<u8>) {
        if self.used > self.from {
            self.used -= 1;
            let slot = &self.slots[self.used];
            into.clear();
            into.extend_from_slice(&slot.bytes[..slot.len]);
        }
    }

    /// Gives all frames to `send`. Says how it ended, and how many frames of how many bytes were taken.
    pub(crate) fn send(
        &mut self,
        send: impl FnOnce(&[&[u8]]) -> Result<Turn, Error>,
    ) -> Result<(Turn, u64, u64), Error> {
        let mut frames = [&[][..]; SLOTS];
        let waiting = &self.slots[self.from..self.used];
        for (frame, slot) in frames.iter_mut().zip(waiting) {
            *frame = &slot.bytes[..slot.len];
        }
        let turn = send(&frames[..waiting.len()])?;
        let taken = match turn {
            Turn::Frames(taken) => taken.min(waiting.len()),
            Turn::Nothing | Turn::Down => 0,
        };
        let bytes = waiting[..taken].iter().map(|slot| slot.len as u64).sum();
        self.from += taken;
        if self.from == self.used {
            self.clear();
        }
        Ok((turn, taken as u64, bytes))
    }

    /// Forgets all frames.
    pub(crate) fn clear(&mut self) {
        (self.from, self.used) = (0, 0);
    }
}
