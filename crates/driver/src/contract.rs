//! What receiving and sending have in common, whatever the device: the traits [`Receive`] and [`Transmit`].
//!
//! One suite holds every device to it: `tests/conformance`. What a device cannot do, it says when it is opened.

use crate::counters::{Counter, Meaning};
use crate::error::Error;
use crate::filter::Instruction;
use crate::frame::Batch;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How a call ended that was no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// So many frames were given, or taken; more may follow at once.
    Frames(usize),
    /// There was nothing, or no room, until the time was over or a signal came.
    Nothing,
    /// The device is down. It goes on by itself when that is over.
    Down,
}

/// Frames from a device.
pub trait Receive: Send {
    /// Gives the next frames, up to [`BATCH_BLOCKS`](base::limits::BATCH_BLOCKS), to `take` and has their memory back when
    /// that returns. Where there are none, waits for `wait` at most ([`Duration::MAX`] is for ever), less when a signal
    /// comes or the device is down. A frame that is there is given before a device that went away is an error.
    fn receive(&mut self, wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error>;

    /// Lets other frames in from now on. What is there already was let in by the filter before: frames whose number is
    /// lower than what this gives may have been, and are the caller's to filter again; those from there on were let in
    /// by the new one. Not every device can.
    fn set_filter(&mut self, program: &[Instruction]) -> Result<u64, Error>;

    /// Lets nothing further in. What was let in can be received still; after that, nothing comes.
    fn stop(&mut self) -> Result<(), Error>;

    /// What became of all frames so far.
    fn statistics(&mut self) -> Result<ReceiveStatistics, Error>;

    /// Everything that is counted of this device and the way from it, since the receiver was opened: [`statistics`] and
    /// whatever the kernel has, each by its name, so that a loss can be told where it was.
    ///
    /// [`statistics`]: Receive::statistics
    fn counters(&mut self) -> Result<Vec<Counter>, Error>;

    /// A file descriptor that can be read when there are frames, or something to say about the device. For `poll`: reading
    /// it is not for others.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// What became of the frames that a device had for a receiver. `seen = dropped + damaged + given + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveStatistics {
    /// Frames the device had for it: those the filter wanted, where there is one.
    pub seen: u64,
    /// Of these, lost because there was no room: the receiver was too slow.
    pub dropped: u64,
    /// Of these, lost because what the device said of them made no sense.
    pub damaged: u64,
    /// Of these, given to the receiver's caller.
    pub given: u64,
    /// Bytes of the given frames, as they were on the wire.
    pub given_bytes: u64,
    /// How often there was no room, where the device says so.
    pub stalls: u64,
}

impl ReceiveStatistics {
    /// Frames that are there and have not been given yet.
    pub fn waiting(&self) -> u64 {
        self.seen.saturating_sub(self.dropped).saturating_sub(self.damaged).saturating_sub(self.given)
    }

    /// Each with its name.
    pub fn all(&self) -> [Counter; 6] {
        let counter = |name, value, meaning| Counter { name, value, meaning };
        [
            counter("receiver.seen", self.seen, Meaning::Traffic),
            counter("receiver.dropped", self.dropped, Meaning::Lost),
            counter("receiver.damaged", self.damaged, Meaning::Lost),
            counter("receiver.given", self.given, Meaning::Traffic),
            counter("receiver.given_bytes", self.given_bytes, Meaning::Traffic),
            counter("receiver.stalls", self.stalls, Meaning::Traffic),
        ]
    }
}

/// Frames to a device.
pub trait Transmit: Send {
    /// Takes frames from the front of `frames`, as many as there is room for now; does not wait. A frame taken is sent, or
    /// refused for good and counted by its reason. `Turn::Nothing` is none: there is no room.
    fn transmit(&mut self, frames: &[&[u8]]) -> Result<Turn, Error>;

    /// Waits until there is room again, for `wait` at most. Says whether there is.
    fn wait_for_room(&mut self, wait: Duration) -> Result<bool, Error>;

    /// What became of all frames so far.
    fn statistics(&mut self) -> Result<TransmitStatistics, Error>;

    /// A file descriptor that can be written to when there is room. For `poll`.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// What became of the frames that a sender took. `taken = sent + too_long + malformed + refused + under_way`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitStatistics {
    /// Frames taken.
    pub taken: u64,
    /// Of these, handed to the device.
    pub sent: u64,
    /// Their bytes, and those of frames under way.
    pub sent_bytes: u64,
    /// Of the taken, longer than the device takes.
    pub too_long: u64,
    /// Of the taken, too short to be a frame of this device.
    pub malformed: u64,
    /// Of the taken, refused for another reason.
    pub refused: u64,
    /// Of the taken, lying in a ring still.
    pub under_way: u64,
    /// Times there was no room for a frame; it was not taken then.
    pub full: u64,
}

impl TransmitStatistics {
    /// Of the taken, those that were not sent and will not be.
    pub fn refused_for_good(&self) -> u64 {
        self.too_long + self.malformed + self.refused
    }
}
