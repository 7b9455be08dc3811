//! The traits [`Receive`] and [`Transmit`], which all devices implement.
//!
//! One suite checks every device: `tests/all/conformance`. A device that cannot do something says so when it is opened.

use crate::counters::{Counter, Meaning};
use crate::error::Error;
use crate::filter::Instruction;
use crate::frame::Batch;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The outcome of a call that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This number of frames was given or taken; more may follow at once.
    Frames(usize),
    /// There was no frame, or no room, until time was up or a signal came.
    Nothing,
    /// The device is down. It goes on by itself once it is up again.
    Down,
}

/// Frames from a device.
pub trait Receive: Send {
    /// Gives the next frames, up to [`BATCH_BLOCKS`](base::limits::BATCH_BLOCKS), to `take`; takes their memory back
    /// when that returns. If there are none, waits for at most `wait` ([`Duration::MAX`]: for ever), or until a signal
    /// comes or the device goes down. Frames that are there come before the error of a device that went away.
    fn receive(&mut self, wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error>;

    /// Replaces the filter. Not every device can do this. The result is a frame number: frames with lower numbers may
    /// have passed the earlier filter, and the caller must filter them again; later ones passed the new filter.
    fn set_filter(&mut self, program: &[Instruction]) -> Result<u64, Error>;

    /// Lets no further frames in. Those that are in can still be received; then the receiver gets no more.
    fn stop(&mut self) -> Result<(), Error>;

    /// The statistics so far.
    fn statistics(&mut self) -> Result<ReceiveStatistics, Error>;

    /// All counts of this device and of the way from it, since the receiver was opened: [`statistics`] and everything
    /// the kernel counts, each with its name, so that a loss can be located.
    ///
    /// [`statistics`]: Receive::statistics
    fn counters(&mut self) -> Result<Vec<Counter>, Error>;

    /// A file descriptor that is readable when there are frames, or news about the device. For `poll` only, not for
    /// reading.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// What became of the frames for a receiver. `seen = dropped + damaged + given + waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveStatistics {
    /// Frames that the device had for it; with a filter, those that it passed.
    pub seen: u64,
    /// Of these, lost for want of room: the receiver was too slow.
    pub dropped: u64,
    /// Of these, lost because the device described them wrongly.
    pub damaged: u64,
    /// Of these, given to the receiver's caller.
    pub given: u64,
    /// Bytes of the given frames, as they were on the wire.
    pub given_bytes: u64,
    /// How often there was no room, if the device says so.
    pub stalls: u64,
}

impl ReceiveStatistics {
    /// Frames that are there but were not given yet.
    pub fn waiting(&self) -> u64 {
        self.seen.saturating_sub(self.dropped).saturating_sub(self.damaged).saturating_sub(self.given)
    }

    /// All counts with their names.
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
    /// Takes frames from the front of `frames`, as many as there is room for now; does not wait. A taken frame is sent,
    /// or refused for good and counted by its reason. `Turn::Nothing`: there is no room for any.
    fn transmit(&mut self, frames: &[&[u8]]) -> Result<Turn, Error>;

    /// Waits until there is room again, at most for `wait`. Says whether there is.
    fn wait_for_room(&mut self, wait: Duration) -> Result<bool, Error>;

    /// The statistics so far.
    fn statistics(&mut self) -> Result<TransmitStatistics, Error>;

    /// A file descriptor that is writable when there is room. For `poll`.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// What became of the frames that a sender took. `taken = sent + too_long + malformed + refused + under_way`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitStatistics {
    /// Frames taken.
    pub taken: u64,
    /// Of these, handed to the device.
    pub sent: u64,
    /// Bytes of the frames sent and under way.
    pub sent_bytes: u64,
    /// Of the taken, longer than the device allows.
    pub too_long: u64,
    /// Of the taken, too short to be a frame of this device.
    pub malformed: u64,
    /// Of the taken, refused for another reason.
    pub refused: u64,
    /// Of the taken, still in a ring.
    pub under_way: u64,
    /// How often there was no room for a frame; then it was not taken.
    pub full: u64,
}

impl TransmitStatistics {
    /// Of the taken, those that will never be sent.
    pub fn refused_for_good(&self) -> u64 {
        self.too_long + self.malformed + self.refused
    }
}
