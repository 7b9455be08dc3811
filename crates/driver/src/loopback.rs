//! A pair of devices inside a process: each end receives what the other sends. For tests, and between pipelines.
//!
//! Not the host's loopback device, and not a fast queue: it copies each frame, and takes a lock for each batch. A full
//! end takes no more frames, so that no frame is lost.

use crate::contract::{Receive, ReceiveStatistics, Transmit, TransmitStatistics, Turn};
use crate::counters::Counter;
use crate::error::Error;
use crate::filter::Instruction;
use crate::frame::{Batch, Frame, FrameArray};
use crate::sys;
use base::limits::BATCH_BLOCKS;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FRAME_BYTES: usize = 1 << 18;

const SPARE_BUFFERS: usize = 256;

/// Most frames and bytes of one end that the other has not received.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Frames.
    pub frames: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { frames: 4096, bytes: 8 << 20 }
    }
}

/// One end of a pair.
#[derive(Debug)]
pub struct End {
    /// Frames the other end sends.
    pub receiver: Receiver,
    /// Frames the other end receives.
    pub sender: Sender,
}

/// Makes a pair. An end whose other end is gone says that it was removed.
pub fn pair(capacity: Capacity) -> io::Result<(End, End)> {
    let lines = [Arc::new(Line::new(capacity)?), Arc::new(Line::new(capacity)?)];
    let end = |here: usize, there: usize| End {
        receiver: Receiver {
            line: Arc::clone(&lines[here]),
            batch: Vec::new(),
            statistics: ReceiveStatistics::default(),
        },
        sender: Sender { line: Arc::clone(&lines[there]), statistics: TransmitStatistics::default() },
    };
    Ok((end(0, 1), end(1, 0)))
}

/// An end without another one. It counts frames that it sends as refused, and receives none.
pub fn alone() -> io::Result<End> {
    let [here, there] = [Line::new(Capacity::default())?, Line::new(Capacity::default())?];
    there.lock().stopped = true;
    Ok(End {
        receiver: Receiver { line: Arc::new(here), batch: Vec::new(), statistics: ReceiveStatistics::default() },
        sender: Sender { line: Arc::new(there), statistics: TransmitStatistics::default() },
    })
}

#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    capacity: Capacity,
    /// Readable while there are frames, or once there is no sender any more.
    filled: Event,
    /// Readable while there is room, or once there is no receiver any more.
    free: Event,
}

#[derive(Debug)]
struct State {
    frames: VecDeque<Kept>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    /// No further frames are let in.
    stopped: bool,
    receiver_gone: bool,
    sender_gone: bool,
}

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    time: u64,
}

impl Line {
    fn new(capacity: Capacity) -> io::Result<Line> {
        let capacity = Capacity { frames: capacity.frames.max(1), bytes: capacity.bytes.max(FRAME_BYTES) };
        let state = State {
            frames: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            stopped: false,
            receiver_gone: false,
            sender_gone: false,
        };
        let line = Line { state: Mutex::new(state), capacity, filled: Event::new()?, free: Event::new()? };
        line.tell(&line.lock());
        Ok(line)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, state: &State, bytes: usize) -> bool {
        state.frames.len() < self.capacity.frames && state.bytes + bytes <= self.capacity.bytes
    }

    fn tell(&self, state: &State) {
        self.filled.set(!state.frames.is_empty() || state.sender_gone);
        self.free.set(self.has_room(state, FRAME_BYTES.min(self.capacity.bytes / 2)) || state.receiver_gone);
    }
}

#[derive(Debug)]
struct Event {
    fd: OwnedFd,
}

impl Event {
    fn new() -> io::Result<Event> {
        // SAFETY: takes no pointers.
        let fd = sys::check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: just made, without another owner.
        Ok(Event { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    fn set(&self, is_so: bool) {
        let mut one = 1_u64;
        let (fd, bytes) = (self.fd.as_raw_fd(), size_of::<u64>());
        // Adding to it cannot fail short of 2^64 times; reading it fails if it is 0 already.
        // SAFETY: eight bytes, there and back.
        let _ = unsafe {
            libc::read(fd, std::ptr::from_mut(&mut one).cast(), bytes);
            one = 1;
            if is_so { libc::write(fd, std::ptr::from_ref(&one).cast(), bytes) } else { 0 }
        };
    }
}

/// Frames the other end sends.
#[derive(Debug)]
pub struct Receiver {
    line: Arc<Line>,
    batch: Vec<Kept>,
    statistics: ReceiveStatistics,
}

impl Receiver {
    fn give(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Option<usize> {
        let mut state = self.line.lock();
        let count = state.frames.len().min(BATCH_BLOCKS);
        self.batch.extend(state.frames.drain(..count));
        let bytes: usize = self.batch.iter().map(|kept| kept.bytes.len()).sum();
        state.bytes -= bytes;
        self.line.tell(&state);
        drop(state);
        if count == 0 {
            return None;
        }
        let mut frames = FrameArray::new();
        for kept in &self.batch {
            let mut frame = Frame::new(&kept.bytes);
            frame.time = kept.time;
            frames.push(frame);
        }
        take(Batch { first_number: self.statistics.given, frames: frames.as_slice() });
        self.statistics.given += count as u64;
        self.statistics.given_bytes += bytes as u64;
        let mut state = self.line.lock();
        state.spare.extend(self.batch.drain(..).map(|kept| kept.bytes));
        state.spare.truncate(SPARE_BUFFERS);
        Some(count)
    }
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error> {
        if let Some(given) = self.give(take) {
            return Ok(Turn::Frames(given));
        }
        sys::wait(self.line.filled.fd.as_fd(), libc::POLLIN, wait).map_err(Error::doing("wait for the other end"))?;
        match self.give(take) {
            Some(given) => Ok(Turn::Frames(given)),
            None if self.line.lock().sender_gone => Err(Error::Removed(NAME.into())),
            None => Ok(Turn::Nothing),
        }
    }

    fn set_filter(&mut self, _program: &[Instruction]) -> Result<u64, Error> {
        Err(Error::Unsupported("filter what comes from the other end of a pair in this process".into()))
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.line.lock().stopped = true;
        Ok(())
    }

    fn statistics(&mut self) -> Result<ReceiveStatistics, Error> {
        self.statistics.seen = self.statistics.given + self.line.lock().frames.len() as u64;
        Ok(self.statistics)
    }

    fn counters(&mut self) -> Result<Vec<Counter>, Error> {
        Ok(self.statistics()?.all().to_vec())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.line.filled.fd.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.receiver_gone = true;
        self.line.tell(&state);
    }
}

const NAME: &str = "loopback";

/// Frames the other end receives.
#[derive(Debug)]
pub struct Sender {
    line: Arc<Line>,
    statistics: TransmitStatistics,
}

impl Transmit for Sender {
    fn transmit(&mut self, frames: &[&[u8]]) -> Result<Turn, Error> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let (mut taken, statistics) = (0, &mut self.statistics);
        let mut state = self.line.lock();
        if state.receiver_gone {
            return Err(Error::Removed(NAME.into()));
        }
        for frame in frames {
            if frame.len() > FRAME_BYTES {
                statistics.too_long += 1;
            } else if state.stopped {
                // As on a line without a listener at its end.
                statistics.refused += 1;
            } else if self.line.has_room(&state, frame.len()) {
                let mut bytes = state.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(frame);
                state.frames.push_back(Kept { bytes, time });
                state.bytes += frame.len();
                statistics.sent += 1;
                statistics.sent_bytes += frame.len() as u64;
            } else {
                statistics.full += 1;
                break;
            }
            taken += 1;
        }
        statistics.taken += taken as u64;
        self.line.tell(&state);
        Ok(if taken > 0 { Turn::Frames(taken) } else { Turn::Nothing })
    }

    fn wait_for_room(&mut self, wait: Duration) -> Result<bool, Error> {
        let seen = sys::wait(self.line.free.fd.as_fd(), libc::POLLIN, wait);
        Ok(seen.map_err(Error::doing("wait for room at the other end"))? != 0)
    }

    fn statistics(&mut self) -> Result<TransmitStatistics, Error> {
        Ok(self.statistics)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.line.free.fd.as_fd()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        state.sender_gone = true;
        self.line.tell(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(receiver: &mut Receiver) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        let take = &mut |batch: Batch<'_>| seen.extend(batch.frames.iter().map(|frame| frame.parts().concat()));
        while receiver.receive(Duration::ZERO, take).is_ok_and(|turn| turn != Turn::Nothing) {}
        seen
    }

    #[test]
    fn a_full_end_takes_no_more_and_says_when_there_is_room() {
        let (mut near, mut far) = pair(Capacity { frames: 3, bytes: 0 }).expect("a few file descriptors");
        let frames = [&[1_u8][..], &[2], &[3], &[4], &[5]];
        assert_eq!(near.sender.transmit(&frames).expect("it is there"), Turn::Frames(3));
        assert_eq!(near.sender.transmit(&frames[3..]).expect("as above"), Turn::Nothing);
        assert!(!near.sender.wait_for_room(Duration::ZERO).expect("as above"));
        assert_eq!(all(&mut far.receiver), frames[..3]);
        assert!(near.sender.wait_for_room(Duration::ZERO).expect("as above"));
        assert_eq!(near.sender.transmit(&frames[3..]).expect("as above"), Turn::Frames(2));
        assert_eq!(all(&mut far.receiver), frames[3..]);
        let counted = near.sender.statistics().expect("as above");
        assert_eq!((counted.taken, counted.sent, counted.full), (5, 5, 2));
        assert_eq!(all(&mut near.receiver).len(), 0, "the two ways are two");
    }

    #[test]
    fn bytes_are_limited_too() {
        let (mut near, mut far) = pair(Capacity { frames: 100, bytes: FRAME_BYTES }).expect("as above");
        let big = vec![7; FRAME_BYTES / 2 + 1];
        assert_eq!(near.sender.transmit(&[&big, &big]).expect("it is there"), Turn::Frames(1));
        assert!(!near.sender.wait_for_room(Duration::ZERO).expect("as above"));
        assert_eq!(near.sender.transmit(&[&vec![0; FRAME_BYTES + 1]]).expect("as above"), Turn::Frames(1));
        assert_eq!(near.sender.statistics().expect("as above").too_long, 1);
        assert_eq!(all(&mut far.receiver).len(), 1);
    }

    #[test]
    fn an_end_that_is_alone_takes_every_frame_and_receives_none() {
        let mut end = alone().expect("as above");
        for _ in 0..3 {
            assert_eq!(end.sender.transmit(&[&[1][..]; 2000]).expect("it never goes"), Turn::Frames(2000));
        }
        let counted = end.sender.statistics().expect("as above");
        assert_eq!((counted.taken, counted.refused, counted.sent), (6000, 6000, 0));
        assert_eq!(end.receiver.receive(Duration::ZERO, &mut |_| {}).expect("as above"), Turn::Nothing);
    }

    #[test]
    fn an_end_that_is_gone_is_told() {
        let (mut near, far) = pair(Capacity::default()).expect("as above");
        let End { receiver, mut sender } = far;
        assert_eq!(sender.transmit(&[&[1], &[2]]).expect("it is there"), Turn::Frames(2));
        drop((receiver, sender));
        assert!(matches!(near.sender.transmit(&[&[3]]), Err(Error::Removed(_))));
        assert!(near.sender.wait_for_room(Duration::MAX).expect("it says so at once"));
        // Frames sent before come first.
        assert_eq!(all(&mut near.receiver).len(), 2);
        assert!(matches!(near.receiver.receive(Duration::MAX, &mut |_| {}), Err(Error::Removed(_))));
    }
}
