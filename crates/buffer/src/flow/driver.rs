//! The driver's half of a flow channel.

use super::layout::{ApplicationWords, CONTINUES, DriverWords, Drop, Empty, Geometry, PIECES, Packet, Record};
use super::parts::Parts;
#[cfg(not(loom))]
use super::parts::Side;
use crate::shared::payload::{Payload, Span};
#[cfg(not(loom))]
use crate::shared::segment::{Pages, Segment};
use crate::shared::words::{Shared, SharedArray};
use base::atomic::Ordering;
#[cfg(not(loom))]
use std::{io, os::fd::OwnedFd};

/// The application wrote into its half what no application writes. The driver closes the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An index went back, or further ahead than its FIFO is long.
    Index,
    /// A record has no pieces or too many, or a piece lies outside the bytes to send.
    Record,
    /// A buffer that does not exist, or that the driver has already.
    Buffer,
}

/// What became of a packet for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It lies in buffers; the caller rings the application.
    Yes,
    /// It was dropped and counted.
    Dropped(Drop),
}

/// A packet that the application wants sent: where it lies, read once and checked. Its bytes may change at any time.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pieces: [(u32, u32); PIECES],
    count: usize,
    len: usize,
}

impl Outgoing {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is it of no bytes?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The driver's half.
#[derive(Debug)]
pub struct Driver {
    geometry: Geometry,
    words: Shared<DriverWords>,
    application: Shared<ApplicationWords>,
    records: SharedArray<Record>,
    empties: SharedArray<Empty>,
    packets: SharedArray<Packet>,
    send: Payload,
    receive: Span,
    /// Records taken, and records done.
    taken: u64,
    done: u64,
    /// Empty buffers taken from the FIFO.
    given: u64,
    /// Entries of received packets written, one for each buffer.
    received: u64,
    /// Packets in them.
    delivered: u64,
    /// Buffers that the driver may fill.
    free: Vec<u32>,
    /// By buffer: is it the driver's?
    owned: Vec<bool>,
}

impl Driver {
    /// The driver's half of a channel that nothing went through yet.
    pub(super) fn new(parts: Parts) -> Driver {
        let Parts { geometry, driver, application, records, empties, packets, send, receive } = parts;
        Driver {
            geometry,
            words: driver,
            application,
            records,
            empties,
            packets,
            send,
            receive,
            taken: 0,
            done: 0,
            given: 0,
            received: 0,
            delivered: 0,
            // All of them: packets can come before the application has its half.
            free: (0..geometry.receive_buffers).rev().collect(),
            owned: vec![true; geometry.receive_buffers as usize],
        }
    }

    /// A new channel, and the two segments for its application. All bytes are zero.
    #[cfg(not(loom))]
    pub fn create(geometry: Geometry) -> io::Result<(Driver, [OwnedFd; 2])> {
        geometry.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (application_bytes, driver_bytes) = geometry.bytes();
        let theirs = Segment::create("streamline-flow-out", application_bytes, Pages::Normal)?.paged_on_use();
        theirs.seal_for_writer()?;
        let ours = Segment::create("streamline-flow-in", driver_bytes, Pages::Normal)?.paged_on_use();
        let half = Driver::new(Parts::map(geometry, &theirs, &ours, Side::Driver)?);
        ours.seal_for_readers()?;
        let fds = [theirs.fd().try_clone_to_owned()?, ours.read_only_fd()?];
        Ok((half, fds))
    }

    /// The next packet to send; none where there is none. The caller says [`done`](Self::done) once for each, in order.
    pub fn take(&mut self) -> Result<Option<Outgoing>, Fault> {
        // Against `done`, not `taken`: an application may use a record again only once the driver is done with it.
        let ahead = self.application.sent.load(Ordering::Acquire).wrapping_sub(self.done);
        if ahead > u64::from(self.geometry.send_records) || ahead < self.taken - self.done {
            return Err(Fault::Index);
        }
        if ahead == self.taken - self.done {
            return Ok(None);
        }
        let record = self.records.at(self.taken);
        let count = record.count.load(Ordering::Relaxed);
        if !(1..=PIECES as u64).contains(&count) {
            return Err(Fault::Record);
        }
        let mut outgoing = Outgoing { pieces: [(0, 0); PIECES], count: count as usize, len: 0 };
        for at in 0..count as usize {
            let word = record.pieces[at].load(Ordering::Relaxed);
            let (offset, len) = (word as u32, (word >> 32) as u32);
            if offset >= self.geometry.send_bytes || len > self.geometry.send_bytes {
                return Err(Fault::Record);
            }
            outgoing.pieces[at] = (offset, len);
            outgoing.len += len as usize;
        }
        self.taken += 1;
        Ok(Some(outgoing))
    }

    /// Copies bytes of a packet from its byte `from` on into `to`: as many as both have. Says how many.
    pub fn copy_out(&self, outgoing: &Outgoing, from: usize, to: &mut [u8]) -> usize {
        let (mut skip, mut copied) = (from, 0);
        for &(offset, len) in &outgoing.pieces[..outgoing.count] {
            let len = len as usize;
            if skip >= len {
                skip -= len;
                continue;
            }
            let part = (len - skip).min(to.len() - copied);
            self.send.copy_out(u64::from(offset) + skip as u64, &mut to[copied..copied + part]);
            (copied, skip) = (copied + part, 0);
        }
        copied
    }

    /// The driver has no more use for the bytes of `count` packets: the application may use their places again.
    pub fn done(&mut self, count: u64) {
        self.done = (self.done + count).min(self.taken);
        // ordering: see `Application::outstanding`.
        self.words.done.store(self.done, Ordering::Release);
    }

    /// Packets that wait to be taken, as the application says it; not more than a channel holds.
    pub fn waiting(&self) -> u64 {
        let ahead = self.application.sent.load(Ordering::Relaxed).wrapping_sub(self.taken);
        ahead.min(u64::from(self.geometry.send_records))
    }

    fn refill(&mut self) -> Result<(), Fault> {
        let ahead = self.application.empties.load(Ordering::Acquire).wrapping_sub(self.given);
        if ahead > u64::from(self.geometry.receive_buffers) {
            return Err(Fault::Index);
        }
        for _ in 0..ahead {
            let buffer = self.empties.at(self.given).0.load(Ordering::Relaxed);
            let owned = usize::try_from(buffer).ok().and_then(|buffer| self.owned.get_mut(buffer));
            match owned {
                Some(owned) if !*owned => *owned = true,
                _ => return Err(Fault::Buffer),
            }
            self.free.push(buffer as u32);
            self.given += 1;
        }
        Ok(())
    }

    /// Copies a received packet that lies in `pieces` into as many empty buffers as it fills, and publishes it. `time`: when the
    /// device received it, ns since 1970 UTC. Where there are too few buffers, the packet is dropped and counted, and takes none.
    pub fn deliver(&mut self, pieces: &[&[u8]], time: u64) -> Result<Delivered, Fault> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let buffer_bytes = self.geometry.buffer_bytes as usize;
        let count = len.div_ceil(buffer_bytes).max(1);
        if count > self.geometry.receive_buffers as usize {
            return Ok(Delivered::Dropped(self.drop_one(Drop::TooLong)));
        }
        if self.free.len() < count {
            self.refill()?;
        }
        if self.free.len() < count {
            return Ok(Delivered::Dropped(self.drop_one(Drop::NoBuffer)));
        }
        let (mut pieces, mut piece) = (pieces.iter(), &[][..]);
        for (at, buffer) in self.free.drain(self.free.len() - count..).enumerate() {
            let used = (len - at * buffer_bytes).min(buffer_bytes);
            let begin = buffer as usize * buffer_bytes;
            let mut filled = 0;
            while filled < used {
                if piece.is_empty() {
                    let Some(next) = pieces.next() else { break };
                    piece = next;
                }
                let (part, rest) = piece.split_at(piece.len().min(used - filled));
                self.receive.copy_in(begin + filled, part);
                filled += part.len();
                piece = rest;
            }
            self.owned[buffer as usize] = false;
            let continues = if at + 1 < count { CONTINUES } else { 0 };
            let packet = self.packets.at(self.received);
            packet.place.store(u64::from(buffer) | (used as u64) << 32 | continues, Ordering::Relaxed);
            packet.time.store(time, Ordering::Relaxed);
            self.received += 1;
        }
        self.delivered += 1;
        // All entries of a packet at once: the application never finds a part of one.
        self.words.received.store(self.received, Ordering::Release);
        Ok(Delivered::Yes)
    }

    /// Counts a packet as dropped for this reason; gives the reason back.
    pub fn drop_one(&mut self, why: Drop) -> Drop {
        let counter = &self.words.drops[why as usize];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        why
    }

    /// Packets dropped for this reason.
    pub fn dropped(&self, why: Drop) -> u64 {
        self.words.drops[why as usize].load(Ordering::Relaxed)
    }

    /// Packets delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Packets taken from the application.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Reports an error to the application, as an errno: what an ICMP error says, or a next hop that is silent. `detail`: where
    /// the errno is EMSGSIZE, bytes of the longest IP packet that the path takes; 0: unknown, or another errno.
    pub fn report(&mut self, errno: i32, detail: u32) {
        self.words.errno.store(u64::from(detail) << 32 | u64::from(errno as u32), Ordering::Relaxed);
        self.words.errors.store(self.words.errors.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Closes the flow; the application finds this errno. The caller rings it.
    pub fn close(&mut self, errno: i32) {
        self.words.state.store((errno as u32 as u64) << 32 | 1, Ordering::Release);
    }
}
