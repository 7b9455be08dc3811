//! The writing end of a pipe.

use super::local::Local;
use super::origin::Origin;
use super::room::RoomPoller;
use super::sink::{SharedSink, Sink, locked};
use super::watch::writing::{Wanted, sleep_for_readers};
use crate::descriptor::{Descriptor, WIRE_MAX};
use crate::keeper::client::NamedWriter;
use crate::keeper::server::FOREIGN_RINGS;
use crate::ring::layout::Layout;
use crate::ring::{ActiveWindow, NotWritten, RingKind, Writer, WriterCounters};
use crate::shared::lifeline;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Counts of a writer, and facts about its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterStat {
    /// Kind of the ring.
    pub kind: RingKind,
    /// Longest block in bytes; for a stream, bytes of the ring.
    pub block_bytes: u64,
    /// Number of readers now.
    pub readers: usize,
    /// The ring's own counters.
    pub ring: WriterCounters,
    /// Blocks forwarded to this ring by descriptor alone.
    pub forwarded: u64,
    /// Forwarded blocks that were copied: the ring has no descriptors, or cannot name their ring.
    pub copied: u64,
    /// Bytes of payload in use by a ring of descriptors; 0 for other kinds, which use all.
    pub window: u64,
}

/// The writing end of a pipe. Dropping it ends the ring in order.
#[derive(Debug)]
pub struct PipeWriter {
    sink: SharedSink,
    kind: RingKind,
    blocking: bool,
    needs_readers: bool,
    was_read: bool,
    poller: Option<RoomPoller>,
    /// The block length for which the poller reports room.
    room: u64,
    looked: Option<Instant>,
    /// Numbers of other rings; 0 for a ring that got no number. The latest question is last, as in the keeper.
    numbers: VecDeque<(Origin, u16)>,
    forwarded_to: u64,
    forwarded: u64,
    copied: u64,
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EPIPE)
}

fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}

impl PipeWriter {
    pub(super) fn of_named(writer: NamedWriter, blocking: bool, needs_readers: bool) -> PipeWriter {
        let kind = writer.geometry().kind;
        PipeWriter::of(Sink::Named(Box::new(writer)), kind, blocking, needs_readers)
    }

    pub(super) fn of_local(writer: Writer, local: Local) -> PipeWriter {
        let kind = writer.layout().kind();
        PipeWriter::of(Sink::Local(Box::new(writer), local), kind, true, true)
    }

    fn of(sink: Sink, kind: RingKind, blocking: bool, needs_readers: bool) -> PipeWriter {
        PipeWriter {
            sink: Arc::new(Mutex::new(sink)),
            kind,
            blocking,
            needs_readers,
            was_read: false,
            poller: None,
            room: 1,
            looked: None,
            numbers: VecDeque::new(),
            forwarded_to: 0,
            forwarded: 0,
            copied: 0,
        }
    }

    /// Makes calls that would wait fail with [`io::ErrorKind::WouldBlock`] from now on, or wait.
    pub fn set_non_blocking(&mut self, non_blocking: bool) {
        self.blocking = !non_blocking;
    }

    /// Whether the ring's keeper is still there. Without it the ring goes on, but no readers can join.
    pub fn is_kept(&self) -> bool {
        locked(&self.sink).is_kept()
    }

    /// A descriptor that is readable when a reader joined or left, or the keeper is gone;
    /// [`readers`](PipeWriter::readers) takes note of that. A ring of this process has none.
    pub fn news_fd(&self) -> io::Result<OwnedFd> {
        match &*locked(&self.sink) {
            Sink::Named(named) => named.news_fd(),
            Sink::Local(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Number of readers now, as the keeper says.
    pub fn readers(&mut self) -> usize {
        let mut sink = locked(&self.sink);
        sink.writer().meet_now();
        sink.writer().readers()
    }

    /// Kind of the ring.
    pub fn kind(&self) -> RingKind {
        self.kind
    }

    /// The counts so far.
    pub fn stat(&mut self) -> WriterStat {
        let mut sink = locked(&self.sink);
        let writer = sink.writer();
        WriterStat {
            kind: self.kind,
            block_bytes: writer.layout().block_bytes(),
            readers: writer.readers(),
            ring: writer.counters(),
            forwarded: self.forwarded,
            copied: self.copied,
            window: writer.layout().window().map_or(0, |(window, _)| window),
        }
    }

    /// Sets how much of the payload is in use; a ring of another size keeps the setting. Fails with EINVAL for other
    /// kinds than rings of descriptors: they always use all of it.
    pub fn set_window(&mut self, window: ActiveWindow) -> io::Result<()> {
        if locked(&self.sink).writer().set_window(window) {
            return Ok(());
        }
        let text = "only a ring of descriptors (kind d) can be used in part";
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// Writes one block with the facts in `about`; to a stream, as many bytes as there is room for (all, if it waits).
    ///
    /// - EPIPE: all readers have left, or the ring was removed.
    /// - EAGAIN: it would have to wait for room or for a first reader, but may not.
    /// - EMSGSIZE: the ring can never hold a block of this length.
    ///
    /// A block dropped by the contract DropNewest counts as written here.
    pub fn write_block(&mut self, about: Descriptor, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > u64::from(u32::MAX) && self.kind != RingKind::C {
            return Err(too_long());
        }
        let mut about = about;
        if about.wire() == 0 {
            about.set_wire(u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(WIRE_MAX));
        }
        let mut done = 0;
        let room = if self.kind == RingKind::C { 1 } else { bytes.len() as u64 };
        self.until_written(room, |kind, writer| {
            if kind != RingKind::C {
                return writer.try_write(about, bytes).map(|()| Some(bytes.len()));
            }
            done += writer.try_write_some(&bytes[done..])?;
            Ok((done == bytes.len()).then_some(done))
        })
        .map(|written| written.unwrap_or(bytes.len()))
        .or_else(|error| if done > 0 { Ok(done) } else { Err(error) })
    }

    /// Writes blocks with the same facts one after the other, as many as have room; all, if it waits. Returns how many
    /// were written (or dropped by a contract) before one had to wait or failed; the next call reports why. This costs
    /// less per block than [`write_block`](PipeWriter::write_block). Not for streams, which have no blocks.
    pub fn write_blocks(&mut self, about: Descriptor, blocks: &[&[u8]]) -> io::Result<usize> {
        let mut written = 0;
        let longest = |rest: &[&[u8]]| rest.first().map_or(0, |block| block.len() as u64);
        while written < blocks.len() {
            let room = longest(&blocks[written..]);
            let outcome = self.until_written(room, |kind, writer| {
                if kind == RingKind::C {
                    return Err(NotWritten::TooLong);
                }
                let before = written;
                while let Some(block) = blocks.get(written) {
                    let mut about = about;
                    about.set_wire(u32::try_from(block.len()).unwrap_or(u32::MAX).min(WIRE_MAX));
                    match writer.try_write(about, block) {
                        Ok(()) | Err(NotWritten::Dropped) => written += 1,
                        Err(_) if written > before => break,
                        Err(refused) => return Err(refused),
                    }
                }
                Ok(Some(()))
            });
            match outcome {
                Ok(_) => {}
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Tries until `attempt` succeeds or would have to wait but may not; `None` if a contract dropped the block.
    fn until_written<T>(
        &mut self,
        room: u64,
        attempt: impl FnMut(RingKind, &mut Writer) -> Result<Option<T>, NotWritten>,
    ) -> io::Result<Option<T>> {
        let outcome = self.until_written_unsettled(room, attempt);
        self.settle();
        outcome
    }

    fn until_written_unsettled<T>(
        &mut self,
        room: u64,
        mut attempt: impl FnMut(RingKind, &mut Writer) -> Result<Option<T>, NotWritten>,
    ) -> io::Result<Option<T>> {
        let mut sink = locked(&self.sink);
        loop {
            if sink.writer().readers() > 0 {
                self.was_read = true;
            } else if self.needs_readers {
                if self.was_read || sink.writer().is_removed() {
                    return Err(broken());
                }
                match &mut *sink {
                    Sink::Named(named) if self.blocking => drop(named.wait_for_reader(None)?),
                    sink if sink.is_kept() => return Err(would_block()),
                    _ => return Err(io::Error::new(io::ErrorKind::NotConnected, "the ring's keeper died")),
                }
                continue;
            }
            let writer = sink.writer();
            match attempt(self.kind, writer) {
                Ok(Some(done)) => return Ok(Some(done)),
                Err(NotWritten::Dropped) => return Ok(None),
                Err(NotWritten::TooLong) => return Err(too_long()),
                Err(NotWritten::Removed) => return Err(broken()),
                Err(refused @ NotWritten::CannotName) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
                }
                Ok(None) | Err(NotWritten::WouldBlock) if !self.blocking => {
                    if self.looked.is_none_or(|looked| looked.elapsed() >= lifeline::LOOK) {
                        writer.look_after_readers();
                        self.looked = Some(Instant::now());
                    }
                    return Err(would_block());
                }
                Ok(None) | Err(NotWritten::WouldBlock) => {
                    // Ignores the result: the next attempt tells the same.
                    if writer.wait_for_room(room, Some(Instant::now())) == Err(NotWritten::WouldBlock) {
                        drop(sink);
                        sleep_for_readers(&self.sink, |writer| writer.sleep_needs(room));
                        sink = locked(&self.sink);
                    }
                }
            }
        }
    }

    /// Writes a descriptor of another ring's block; returns its unit, or `None` where it was dropped.
    pub(super) fn forward(&mut self, block: &Descriptor) -> io::Result<Option<u64>> {
        let unit = self.until_written(0, |_, writer| {
            let unit = writer.head();
            writer.try_forward(block).map(|()| Some(unit))
        })?;
        self.forwarded += u64::from(unit.is_some());
        self.forwarded_to = unit.map_or(self.forwarded_to, |unit| unit + 1);
        Ok(unit)
    }

    pub(super) fn forward_copied(&mut self, about: Descriptor, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write_block(about, bytes)?;
        self.copied += 1;
        Ok(written)
    }

    /// The number by which this ring's descriptors may name that ring, if they can. Asks once for each ring.
    pub(super) fn number_of(&mut self, origin: &Origin) -> Option<u16> {
        if self.kind != RingKind::D {
            return None;
        }
        let known = self.numbers.iter().rev().find(|(known, _)| known == origin);
        let number = match known {
            Some((_, number)) => *number,
            None => {
                let number = locked(&self.sink).register(origin).unwrap_or(0);
                if self.numbers.len() >= FOREIGN_RINGS {
                    self.numbers.pop_front();
                }
                self.numbers.push_back((origin.clone(), number));
                number
            }
        };
        Some(number).filter(|number| *number != 0)
    }

    pub(super) fn sink(&self) -> &SharedSink {
        &self.sink
    }

    /// A file descriptor that is writable (POLLOUT), like a pipe's, when a block of `room` bytes (in a stream: as many
    /// bytes) can be written without waiting or its write fails at once. Its being readable means nothing.
    ///
    /// It belongs to this writer. A thread feeds it and sleeps as long as nothing happens. A call with another `room`
    /// gives the same descriptor. It never waits for Overwrite, Shared and DropNewest readers.
    pub fn poll_fd(&mut self, room: usize) -> io::Result<BorrowedFd<'_>> {
        self.room = room as u64;
        if self.poller.is_none() {
            self.poller = Some(RoomPoller::new(Arc::clone(&self.sink))?);
        }
        self.settle();
        match &self.poller {
            Some(poller) => Ok(poller.fd()),
            None => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Waits until a block of `room` bytes can be written without waiting, or a write fails at once, at most for
    /// `timeout`; says whether that is so. It does not wait for a first reader: see [`news_fd`](PipeWriter::news_fd).
    pub fn wait_for_room(&mut self, room: usize, timeout: Duration) -> bool {
        // A deadline beyond the clock's range is no limit.
        let deadline = Instant::now().checked_add(timeout);
        locked(&self.sink).writer().wait_for_room(room as u64, deadline) != Err(NotWritten::WouldBlock)
    }

    /// Closes the descriptor and saves its cost at each call.
    pub fn close_poll_fd(&mut self) {
        self.poller = None;
    }

    fn settle(&mut self) {
        if let Some(poller) = &mut self.poller {
            // A ring that had readers and has none now needs no waiting: a write fails.
            poller.set(Wanted { room: self.room, reader: self.needs_readers && !self.was_read });
        }
    }

    /// Wakes readers that sleep through a batch.
    pub fn flush_signals(&mut self) {
        locked(&self.sink).writer().flush();
    }

    /// Goes on in a ring of another size; readers follow by themselves. Waits until forwarded blocks are read.
    pub fn resize(&mut self, bytes: u64, slots: u64) -> io::Result<()> {
        let mut sink = locked(&self.sink);
        let Sink::Named(named) = &mut *sink else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only a named ring can change its size"));
        };
        named.writer().flush();
        if let Some(last) = self.forwarded_to.checked_sub(1) {
            while sink.writer().needed_by(last).is_some() {
                if !self.blocking {
                    return Err(would_block());
                }
                drop(sink);
                sleep_for_readers(&self.sink, |writer| writer.needed_by(last));
                sink = locked(&self.sink);
            }
        }
        let Sink::Named(named) = &mut *sink else { return Err(io::ErrorKind::Unsupported.into()) };
        let outcome = named.resize(bytes, slots);
        drop(sink);
        if outcome.is_ok() {
            self.forwarded_to = 0;
        }
        self.settle();
        outcome
    }

    /// Ends the ring in order, as dropping it does.
    pub fn close(self) {}
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        // Forwarding readers keep the writer's view of its readers, but write nothing.
        locked(&self.sink).writer().finish_writing();
    }
}

impl io::Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.write_block(Descriptor::default(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_signals();
        Ok(())
    }
}
