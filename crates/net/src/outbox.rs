//! Frames for the device, in reusable buffers. Frames that the device did not accept are sent first next time.

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
    /// The next frame to send.
    from: usize,
    used: usize,
}

impl Outbox {
    /// For frames of a device that accepts IP packets of `mtu` bytes.
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

    /// A buffer of `len` bytes for the next frame, with the content of an earlier frame. `None`: no room, or too long.
    pub(crate) fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(self.used)?;
        let bytes = slot.bytes.get_mut(..len)?;
        (slot.len, self.used) = (len, self.used + 1);
        Some(bytes)
    }

    /// Takes the last frame back.
    pub(crate) fn take_back(&mut self, into: &mut Vec<u8>) {
        if self.used > self.from {
            self.used -= 1;
            let slot = &self.slots[self.used];
            into.clear();
            into.extend_from_slice(&slot.bytes[..slot.len]);
        }
    }

    /// Passes all frames to `send`. Returns its result, and the number of accepted frames and bytes.
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

    /// Drops all frames.
    pub(crate) fn clear(&mut self) {
        (self.from, self.used) = (0, 0);
    }
}
