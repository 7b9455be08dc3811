//! The driver's half of a flow channel.
//!
//! A driver that takes the place of one that ended ([`Driver::restore`]) finds each step undone, done, or half done:
//!
//! | the ended driver had | the new driver |
//! |---|---|
//! | filled buffers, but not raised `received` | forgets that packet; the buffers are still the driver's |
//! | raised `received`, but not `settled` | clears the marks of entries `settled..received` |
//! | marked an empty buffer as its own, but not raised `given` | raises `given` |
//! | taken records, but not raised `done` | takes these records again |

use super::layout::{
    ApplicationWords, CONTINUES, DriverWords, Drop, Empty, Facts, Geometry, Owned, PAGE, PIECES, Packet, Record,
};
use super::parts::Parts;
#[cfg(not(loom))]
use super::parts::Side;
use crate::shared::payload::{Payload, Span};
#[cfg(not(loom))]
use crate::shared::segment::{Access, Pages, Refused, Segment};
use crate::shared::words::{Shared, SharedArray};
use base::atomic::Ordering;
#[cfg(not(loom))]
use std::{io, os::fd::OwnedFd, sync::Arc};

/// The application stored something that no correct application stores. The driver closes the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An index went back, or is further ahead than its FIFO is long.
    Index,
    /// A record has no pieces or too many, or a piece lies outside the bytes to send.
    Record,
    /// A buffer that does not exist, or that the driver already has.
    Buffer,
}

/// The fate of a packet for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It is in buffers; the caller rings the application.
    Yes,
    /// It was dropped and counted.
    Dropped(Drop),
}

/// A packet to send: its place, read once and checked. The application may change its bytes at any time.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pieces: [(u32, u32); PIECES],
    count: usize,
    len: usize,
}

impl Outgoing {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
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
    /// A copy of `owned` in the segment, for a driver that takes this one's place.
    said_owned: SharedArray<Owned>,
    send: Payload,
    receive: Span,
    #[cfg(not(loom))]
    segments: [Arc<OwnedFd>; 2],
    taken: u64,
    done: u64,
    /// Empty buffers taken from the FIFO.
    given: u64,
    /// Entries of received packets written, one for each buffer.
    received: u64,
    delivered: u64,
    free: Vec<u32>,
    owned: Vec<bool>,
}

impl Driver {
    /// Makes a channel, and the two segments for its application. All bytes are zero.
    #[cfg(not(loom))]
    pub fn create(geometry: Geometry) -> io::Result<(Driver, [OwnedFd; 2])> {
        geometry.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (application_bytes, driver_bytes) = geometry.bytes();
        let theirs = Segment::create("streamline-flow-out", application_bytes, Pages::Normal)?.paged_on_use();
        theirs.seal_for_writer()?;
        let ours = Segment::create("streamline-flow-in", driver_bytes, Pages::Normal)?.paged_on_use();
        ours.seal_for_successors()?;
        let fds = [theirs.fd().try_clone_to_owned()?, ours.read_only_fd()?];
        let mut half = Driver::on(geometry, theirs, ours)?;
        half.own_all();
        Ok((half, fds))
    }

    /// Takes the place of a driver that ended, with the [segments](Self::segments) of its channel. A step that the
    /// ended driver had begun is already done, or done again here.
    ///
    /// # Errors
    ///
    /// If they are not segments of such a channel.
    #[cfg(not(loom))]
    pub fn restore(geometry: Geometry, [theirs, ours]: [OwnedFd; 2]) -> Result<Driver, Refused> {
        let invalid = |text: &str| Refused::Io(io::Error::new(io::ErrorKind::InvalidData, text));
        geometry.check().map_err(|error| invalid(&error.to_string()))?;
        let (application_bytes, driver_bytes) = geometry.bytes();
        let theirs = Segment::receive_page(theirs, application_bytes)?.paged_on_use();
        let ours = Segment::receive_page(ours, driver_bytes)?.paged_on_use();
        let mut half = Driver::on(geometry, theirs, ours).map_err(Refused::Io)?;
        let words = &half.words;
        half.done = words.done.load(Ordering::Relaxed);
        half.taken = half.done;
        half.received = words.received.load(Ordering::Relaxed);
        half.given = words.given.load(Ordering::Relaxed);
        let settled = words.settled.load(Ordering::Relaxed);
        // No real count is that high; the limit rules out overflow in sums with these.
        let is_far = [half.done, half.received, half.given].iter().any(|index| index >> 62 != 0);
        if is_far || half.received.wrapping_sub(settled) > u64::from(geometry.receive_buffers) {
            return Err(invalid("the driver's own words make no sense"));
        }
        // Published, but not marked yet.
        for entry in settled..half.received {
            half.mark(half.packets.at(entry).place.load(Ordering::Relaxed) as u32, false);
        }
        // ordering: for a driver that takes this one's place, as in `deliver`; models have one driver.
        half.words.settled.store(half.received, Ordering::Release);
        for buffer in (0..geometry.receive_buffers).rev() {
            if half.said_owned.at(u64::from(buffer / 64)).0.load(Ordering::Relaxed) & 1 << (buffer % 64) != 0 {
                half.own(buffer);
            }
        }
        // Marked, but not counted yet.
        let next = half.empties.at(half.given).0.load(Ordering::Relaxed);
        let is_marked = usize::try_from(next).is_ok_and(|next| half.owned.get(next) == Some(&true));
        // ordering: pairs with the Release of the count of empty buffers, as in `refill`; models have one driver.
        if is_marked && half.application.empties.load(Ordering::Acquire) != half.given {
            half.given += 1;
            // ordering: for a driver that takes this one's place; models have one driver.
            half.words.given.store(half.given, Ordering::Release);
        }
        Ok(half)
    }

    #[cfg(not(loom))]
    fn on(geometry: Geometry, theirs: Segment, ours: Segment) -> io::Result<Driver> {
        let parts = Parts::map(geometry, &theirs, &ours, Side::Driver)?;
        Ok(Driver::new(parts, [theirs, ours].map(|segment| Arc::new(segment.into_fd()))))
    }

    pub(super) fn new(parts: Parts, #[cfg(not(loom))] segments: [Arc<OwnedFd>; 2]) -> Driver {
        let Parts { geometry, driver, application, records, empties, packets, said_owned, send, receive } = parts;
        Driver {
            geometry,
            words: driver,
            application,
            records,
            empties,
            packets,
            said_owned,
            send,
            receive,
            #[cfg(not(loom))]
            segments,
            taken: 0,
            done: 0,
            given: 0,
            received: 0,
            delivered: 0,
            free: Vec::with_capacity(geometry.receive_buffers as usize),
            owned: vec![false; geometry.receive_buffers as usize],
        }
    }

    /// Gives the driver all buffers, so that packets can come before the application has its half.
    pub(super) fn own_all(&mut self) {
        (0..self.geometry.receive_buffers).rev().for_each(|buffer| self.own(buffer));
    }

    /// Both segments of the channel, the application's first, for a driver that takes this one's place.
    #[cfg(not(loom))]
    pub fn segments(&self) -> &[Arc<OwnedFd>; 2] {
        &self.segments
    }

    /// The size of the channel.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn own(&mut self, buffer: u32) {
        self.owned[buffer as usize] = true;
        self.mark(buffer, true);
        self.free.push(buffer);
    }

    /// Stores which side has a buffer. Ignores a number that does not exist.
    fn mark(&self, buffer: u32, is_owned: bool) {
        if buffer >= self.geometry.receive_buffers {
            return;
        }
        let (word, bit) = (&self.said_owned.at(u64::from(buffer / 64)).0, 1 << (buffer % 64));
        let said = word.load(Ordering::Relaxed);
        // ordering: a driver that takes this one's place sees everything that was stored before.
        word.store(if is_owned { said | bit } else { said & !bit }, Ordering::Release);
    }

    /// The next packet to send; `None` where there is none. The caller calls [`done`](Self::done) for each, in order.
    pub fn take(&mut self) -> Result<Option<Outgoing>, Fault> {
        // Relative to `done`, not `taken`: an application may reuse a record only once the driver is done with it.
        let ahead = self.application.sent.load(Ordering::Acquire).wrapping_sub(self.done);
        if ahead > u64::from(self.geometry.send_records) || ahead < self.taken - self.done {
            return Err(Fault::Index);
        }
        if ahead == self.taken - self.done {
            return Ok(None);
        }
        let outgoing = self.record(self.taken)?;
        self.taken += 1;
        Ok(Some(outgoing))
    }

    /// The last packet that was done, as its record is now: the application may have reused it. `None`: there was none,
    /// or the record is impossible.
    pub fn last_done(&self) -> Option<Outgoing> {
        self.done.checked_sub(1).and_then(|last| self.record(last).ok())
    }

    fn record(&self, index: u64) -> Result<Outgoing, Fault> {
        let record = self.records.at(index);
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
        Ok(outgoing)
    }

    /// Copies bytes of a packet, beginning with its byte `from`, into `to`: as many as both have. Returns their number.
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

    /// Says that the driver is done with `count` packets: the application may reuse their places.
    pub fn done(&mut self, count: u64) {
        self.done = (self.done + count).min(self.taken);
        // ordering: pairs with the Acquire in `outstanding`; a comment there says why the model checker cannot show it.
        self.words.done.store(self.done, Ordering::Release);
    }

    /// Packets that wait to be taken, as the application says; at most as many as a channel holds.
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
            if usize::try_from(buffer).ok().and_then(|buffer| self.owned.get(buffer)) != Some(&false) {
                return Err(Fault::Buffer);
            }
            self.own(buffer as u32);
            self.given += 1;
            // ordering: a driver that takes this one's place sees the mark before the count; models have one driver.
            self.words.given.store(self.given, Ordering::Release);
        }
        Ok(())
    }

    /// Copies the received packet in `pieces` into as many empty buffers as it needs, and publishes it. `time`: when
    /// the device received it, ns since 1970 UTC. Without enough buffers the packet is dropped and counted.
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
        // All entries of a packet at once, so that the application never finds a part of a packet.
        self.words.received.store(self.received, Ordering::Release);
        // After publishing: a driver that takes this one's place clears the marks of published entries only.
        for entry in self.received - count as u64..self.received {
            self.mark(self.packets.at(entry).place.load(Ordering::Relaxed) as u32, false);
        }
        // ordering: a driver that takes this one's place sees the marks before the count; models have one driver.
        self.words.settled.store(self.received, Ordering::Release);
        Ok(Delivered::Yes)
    }

    /// Counts a packet as dropped for this reason; returns the reason.
    pub fn drop_one(&mut self, why: Drop) -> Drop {
        let counter = &self.words.drops[why as usize];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
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

    /// Reports an error to the application as an errno: from an ICMP error, or for a silent next hop. `detail` belongs
    /// to EMSGSIZE: bytes of the longest IP packet on the path. 0: unknown, or another errno.
    pub fn report(&mut self, errno: i32, detail: u32) {
        self.words.errno.store(u64::from(detail) << 32 | u64::from(errno as u32), Ordering::Relaxed);
        self.words.errors.store(self.words.errors.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Tells the application new facts about its flow, before the first packet they apply to. The caller rings it.
    pub fn tell(&mut self, facts: &Facts) {
        let [link, mtu] = facts.words();
        self.words.link.store(link, Ordering::Relaxed);
        self.words.mtu.store(mtu, Ordering::Relaxed);
        self.words.changes.store(self.words.changes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Whether the application closed the flow. That is final: the driver does not look whether it takes the word back.
    pub fn is_closed(&self) -> bool {
        self.application.closed.load(Ordering::Acquire) != 0
    }

    /// Closes the flow; the application finds this errno. The caller rings it.
    pub fn close(&mut self, errno: i32) {
        self.words.state.store(closed(errno), Ordering::Release);
    }
}

/// Closes the channel of a driver that ended without a successor: the application finds this errno. `segment` is the
/// driver's. The caller rings the application.
///
/// # Errors
///
/// If it is not such a segment.
#[cfg(not(loom))]
pub fn close_abandoned(segment: OwnedFd, errno: i32) -> Result<(), Refused> {
    let segment = Segment::receive_page(segment, PAGE)?;
    let front = segment.map(0, PAGE, Access::Write).map_err(Refused::Io)?;
    let words: Shared<DriverWords> = Shared::in_mapping(&front, 0).ok_or(Refused::Unsealed)?;
    // ordering: orders the dead driver's stores before this one; models have no processes that die.
    words.state.store(closed(errno), Ordering::Release);
    Ok(())
}

fn closed(errno: i32) -> u64 {
    (errno as u32 as u64) << 32 | 1
}
