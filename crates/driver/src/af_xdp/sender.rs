//! Sends through an AF_XDP socket: frames are copied into chunks, which the kernel gives back once it has sent them.

use super::Socket;
use super::lookout::Lookout;
use super::rings::{self, Descriptor, Ring};
use crate::contract::{Transmit, TransmitStatistics, Turn};
use crate::error::Error;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks for sent frames: the kernel does not report them.
const RETRY: Duration = Duration::from_micros(100);

/// Fewest frames that the kernel sends for one call.
const BUDGET: u32 = 32;

/// Bytes of a tag, which do not count towards a device's limit.
const TAG_BYTES: u32 = 4;

/// Sends through one queue of a device.
#[derive(Debug)]
pub struct Sender {
    transmit: Ring<Descriptor>,
    completion: Ring<u64>,
    /// Chunks without a frame under way.
    free: Vec<u64>,
    lookout: Lookout,
    statistics: TransmitStatistics,
    socket: Arc<Socket>,
}

impl Sender {
    pub(super) fn new(
        socket: Arc<Socket>,
        lookout: Lookout,
        completion: Ring<u64>,
        transmit: Ring<Descriptor>,
        first_chunk: u32,
    ) -> Sender {
        let chunk_bytes = u64::from(socket.memory.chunk_bytes());
        let chunks = u64::from(first_chunk)..u64::from(first_chunk) + u64::from(transmit.size());
        let free = chunks.map(|chunk| chunk * chunk_bytes).collect();
        Sender { transmit, completion, free, lookout, statistics: TransmitStatistics::default(), socket }
    }

    /// Takes back the chunks of sent frames.
    fn reclaim(&mut self) {
        let count = self.completion.filled();
        // Never more than there are, whatever the kernel says.
        let room = self.transmit.size() as usize - self.free.len();
        self.free.extend((0..count).map(|ahead| self.socket.memory.chunk(self.completion.look(ahead))).take(room));
        self.completion.consume(count);
        self.statistics.under_way = u64::from(self.transmit.size()) - self.free.len() as u64;
        self.statistics.sent = self.statistics.taken - self.statistics.refused_for_good() - self.statistics.under_way;
    }

    /// Makes the kernel send the frames in the ring, as far as it can.
    fn push(&mut self) -> Result<(), Error> {
        for _ in 0..=self.transmit.size() / BUDGET {
            if !self.transmit.wants_wakeup() || self.transmit.free() == self.transmit.size() {
                return Ok(());
            }
            match rings::wake_to_send(self.socket.as_fd()) {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    // There are more frames than it sends for one call.
                    Some(libc::EAGAIN) => self.reclaim(),
                    // No memory, or no room in the device: try later. Down or gone: the next call reports it.
                    Some(libc::ENOBUFS | libc::EBUSY | libc::ENOMEM | libc::EINTR) => return Ok(()),
                    Some(libc::ENETDOWN | libc::ENXIO) => return Ok(()),
                    _ => return Err(self.socket.failed("send on", error)),
                },
            }
        }
        Ok(())
    }
}

impl Transmit for Sender {
    fn transmit(&mut self, frames: &[&[u8]]) -> Result<Turn, Error> {
        let known = self.lookout.look().map_err(|error| self.socket.failed("look at", error))?;
        if !known.there {
            return Err(Error::Removed(self.socket.device.name.clone()));
        }
        if !known.up {
            return Ok(Turn::Down);
        }
        self.reclaim();
        let header_bytes = self.socket.device.header_bytes();
        let least = header_bytes as usize;
        let most = (known.mtu + header_bytes + TAG_BYTES).min(self.socket.memory.chunk_bytes()) as usize;
        let mut taken = 0;
        for frame in frames {
            if frame.len() > most {
                self.statistics.too_long += 1;
            } else if frame.len() < least.max(1) {
                self.statistics.malformed += 1;
            } else {
                let Some(chunk) = self.free.pop() else {
                    self.statistics.full += 1;
                    break;
                };
                // SAFETY: the chunk was free: the kernel gave it back, or never had it, and it is not a receiver's.
                let fits = unsafe { self.socket.memory.copy_in(chunk, frame) };
                let descriptor = Descriptor { address: chunk, len: frame.len() as u32, options: 0 };
                if !fits || self.transmit.produce([descriptor]) == 0 {
                    self.free.push(chunk);
                    self.statistics.full += 1;
                    break;
                }
                self.statistics.sent_bytes += frame.len() as u64;
            }
            self.statistics.taken += 1;
            taken += 1;
        }
        self.push()?;
        self.reclaim();
        Ok(if taken > 0 { Turn::Frames(taken) } else { Turn::Nothing })
    }

    fn wait_for_room(&mut self, wait: Duration) -> Result<bool, Error> {
        let end = Instant::now().checked_add(wait);
        loop {
            self.push()?;
            self.reclaim();
            if !self.free.is_empty() && self.transmit.free() > 0 {
                return Ok(true);
            }
            let known = self.lookout.look().map_err(|error| self.socket.failed("look at", error))?;
            let left = end.map_or(RETRY, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || !known.there || !known.up {
                return Ok(false);
            }
            let waited = sys::wait(self.lookout.as_fd(), libc::POLLIN, left.min(RETRY));
            waited.map_err(|error: io::Error| self.socket.failed("wait for room on", error))?;
        }
    }

    fn statistics(&mut self) -> Result<TransmitStatistics, Error> {
        self.reclaim();
        Ok(self.statistics)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
