//! Receives through an AF_XDP socket: the kernel puts frames into chunks that it was given, and tells which.
//!
//! A call that finds frames makes no system call. Chunks go back to the kernel at the end of the call or, with
//! [`Receiver::receive_keeping`], when the caller gives them back.

use super::Socket;
use super::lookout::{Lookout, any_of};
use super::redirect::Redirect;
use super::rings::{self, Descriptor, Ring};
use crate::contract::{Receive, ReceiveStatistics, Turn};
use crate::counters::{Counter, LinkCounters, Meaning};
use crate::error::Error;
use crate::filter::Instruction;
use crate::frame::{Batch, Frame, FrameArray};
use crate::link::{self, XdpMode};
use crate::sys;
use base::limits::BATCH_BLOCKS;
use buffer::shared::segment::Segment;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Receives through one queue of a device.
///
/// Frames get their time when they are received here.
#[derive(Debug)]
pub struct Receiver {
    receive: Ring<Descriptor>,
    fill: Ring<u64>,
    /// For each chunk: whether it was kept.
    kept: Vec<bool>,
    lookout: Lookout,
    events: OwnedFd,
    redirect: Arc<Redirect>,
    statistics: ReceiveStatistics,
    before: LinkCounters,
    socket: Arc<Socket>,
}

impl Receiver {
    pub(super) fn start(
        socket: Arc<Socket>,
        redirect: Arc<Redirect>,
        lookout: Lookout,
        mut fill: Ring<u64>,
        receive: Ring<Descriptor>,
    ) -> Result<Receiver, Error> {
        let chunk_bytes = u64::from(socket.memory.chunk_bytes());
        fill.produce((0..u64::from(fill.size())).map(|chunk| chunk * chunk_bytes));
        let started = any_of(&[socket.as_fd(), lookout.as_fd()]);
        let started = started.and_then(|events| redirect.insert(socket.queue, socket.as_fd()).map(|()| events));
        let events = started.map_err(|error| socket.failed("receive from", error))?;
        let (kept, before) = (vec![false; fill.size() as usize], socket.device.counters);
        let statistics = ReceiveStatistics::default();
        Ok(Receiver { receive, fill, kept, lookout, events, redirect, statistics, before, socket })
    }

    /// Where its program runs.
    pub fn mode(&self) -> XdpMode {
        self.redirect.mode()
    }

    /// The memory of its frames. It is sealed, so that other processes can map it only for reading.
    pub fn segment(&self) -> &Segment {
        self.socket.memory.segment()
    }

    /// Like [`receive`](Receive::receive), but `take` also gets each frame's position in the
    /// [`segment`](Receiver::segment), and returns a bit for each frame that it keeps. A kept frame's bytes stay until
    /// [`give_back`](Receiver::give_back). A caller that keeps every frame will receive no more.
    pub fn receive_keeping(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Batch<'_>, &[u64]) -> u64,
    ) -> Result<Turn, Error> {
        if let Some(given) = self.give(take) {
            return Ok(Turn::Frames(given));
        }
        if self.fill.wants_wakeup() {
            rings::wake_to_receive(self.socket.as_fd());
        }
        sys::wait(self.events.as_fd(), libc::POLLIN, wait).map_err(|error| self.socket.failed("wait for", error))?;
        if let Some(given) = self.give(take) {
            return Ok(Turn::Frames(given));
        }
        let known = self.lookout.look().map_err(|error| self.socket.failed("look at", error))?;
        match (known.there, known.up) {
            (false, _) => Err(Error::Removed(self.socket.device.name.clone())),
            (true, false) => Ok(Turn::Down),
            (true, true) => Ok(Turn::Nothing),
        }
    }

    /// Gives back the chunk of a kept frame, by any position in it; says whether it was kept.
    pub fn give_back(&mut self, position: u64) -> bool {
        let chunk = self.socket.memory.chunk(position);
        let number = usize::try_from(chunk / u64::from(self.socket.memory.chunk_bytes())).unwrap_or(usize::MAX);
        let was_kept = self.kept.get_mut(number).is_some_and(std::mem::take);
        if was_kept {
            self.fill.produce([chunk]);
        }
        was_kept
    }

    fn give(&mut self, take: &mut dyn FnMut(Batch<'_>, &[u64]) -> u64) -> Option<usize> {
        let count = self.receive.filled().min(BATCH_BLOCKS as u32);
        if count == 0 {
            return None;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let (mut frames, mut places, mut bytes) = (FrameArray::new(), [0; BATCH_BLOCKS], 0);
        for ahead in 0..count {
            let Descriptor { address, len, .. } = self.receive.look(ahead);
            // SAFETY: the kernel says that the frame is there, and gets its chunk back only below.
            let Some(found) = (unsafe { self.socket.memory.frame(address, len) }) else { continue };
            let mut frame = Frame::new(found);
            (frame.time, frame.interface) = (time, self.socket.device.index);
            places[frames.as_slice().len()] = address;
            frames.push(frame);
            bytes += u64::from(len);
        }
        let given = frames.as_slice().len();
        let first_number = self.statistics.given;
        let keep =
            if given > 0 { take(Batch { first_number, frames: frames.as_slice() }, &places[..given]) } else { 0 };
        for (at, &place) in places[..given].iter().enumerate() {
            let chunk = self.socket.memory.chunk(place);
            if keep & 1 << at == 0 {
                self.fill.produce([chunk]);
            } else if let Some(kept) = self.kept.get_mut((chunk / u64::from(self.socket.memory.chunk_bytes())) as usize)
            {
                *kept = true;
            }
        }
        self.receive.consume(count);
        self.statistics.given += given as u64;
        self.statistics.given_bytes += bytes;
        self.statistics.damaged += u64::from(count) - given as u64;
        if self.fill.wants_wakeup() {
            rings::wake_to_receive(self.socket.as_fd());
        }
        (given > 0).then_some(given)
    }

    fn kernels(&self) -> io::Result<libc::xdp_statistics> {
        sys::option(self.socket.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, take: &mut dyn FnMut(Batch<'_>)) -> Result<Turn, Error> {
        self.receive_keeping(wait, &mut |batch, _| {
            take(batch);
            0
        })
    }

    fn set_filter(&mut self, _program: &[Instruction]) -> Result<u64, Error> {
        let name = &self.socket.device.name;
        Err(Error::Unsupported(format!("filter an AF_XDP socket of `{name}`; its program is where to filter")))
    }

    fn stop(&mut self) -> Result<(), Error> {
        let stopped = self.redirect.remove(self.socket.queue).and_then(|()| sys::grace_period());
        stopped.map_err(|error| self.socket.failed("stop receiving from", error))
    }

    fn statistics(&mut self) -> Result<ReceiveStatistics, Error> {
        let waiting = u64::from(self.receive.filled());
        let counted = self.kernels().map_err(|error| self.socket.failed("read the counters of", error))?;
        let statistics = &mut self.statistics;
        statistics.dropped = counted.rx_dropped + counted.rx_ring_full;
        statistics.stalls = counted.rx_fill_ring_empty_descs;
        statistics.seen = statistics.given + statistics.damaged + statistics.dropped + waiting;
        Ok(*statistics)
    }

    fn counters(&mut self) -> Result<Vec<Counter>, Error> {
        let mut counters = self.statistics()?.all().to_vec();
        let counted = self.kernels().map_err(|error| self.socket.failed("read the counters of", error))?;
        let counter = |name, value, meaning| Counter { name, value, meaning };
        counters.extend([
            counter("xdp.rx_dropped", counted.rx_dropped, Meaning::Lost),
            counter("xdp.rx_ring_full", counted.rx_ring_full, Meaning::Lost),
            counter("xdp.rx_invalid_descs", counted.rx_invalid_descs, Meaning::Traffic),
            counter("xdp.rx_fill_ring_empty_descs", counted.rx_fill_ring_empty_descs, Meaning::PerhapsLost),
            counter("xdp.tx_invalid_descs", counted.tx_invalid_descs, Meaning::Lost),
            counter("xdp.tx_ring_empty_descs", counted.tx_ring_empty_descs, Meaning::Traffic),
        ]);
        // A process that gave up its rights may not ask: then these counters are missing.
        let links = self.socket.namespace.enter(link::list).and_then(|links| links).unwrap_or_default();
        if let Some(now) = links.into_iter().find(|link| link.index == self.socket.device.index) {
            counters.extend(now.counters.since(&self.before).all());
        }
        Ok(counters)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The map may outlive this queue; if the device is gone, so are the map's entries for it.
        let _ = self.redirect.remove(self.socket.queue);
    }
}
