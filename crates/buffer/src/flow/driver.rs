//! The driver's half of a flow channel.

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
    /// What `owned` says, for a driver that follows this one.
    said_owned: SharedArray<Owned>,
    send: Payload,
    receive: Span,
    /// Both segments, the application's first.
    #[cfg(not(loom))]
    segments: [Arc<OwnedFd>; 2],
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
    /// A new channel, and the two segments for its application. All bytes are zero.
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

    /// Takes the place of a driver that ended, with the [segments](Self::segments) of its channel. A step that the ended driver had begun is
    /// either done already or done again here.
    ///
    /// # Errors
    ///
    /// They are no segments of such a channel.
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
        // No channel carries so many packets: sums with these have room.
        let is_far = [half.done, half.received, half.given].iter().any(|index| index >> 62 != 0);
        if is_far || half.received.wrapping_sub(settled) > u64::from(geometry.receive_buffers) {
            return Err(invalid("the driver's own words make no sense"));
        }
        // Published, and not marked yet.
        for entry in settled..half.received {
            half.mark(half.packets.at(entry).place.load(Ordering::Relaxed) as u32, false);
        }
        // ordering: for a driver that follows this one, as in `deliver`; models have one driver.
        half.words.settled.store(half.received, Ordering::Release);
        for buffer in (0..geometry.receive_buffers).rev() {
            if half.said_owned.at(u64::from(buffer / 64)).0.load(Ordering::Relaxed) & 1 << (buffer % 64) != 0 {
                half.own(buffer);
            }
        }
        // Marked, and not counted yet.
        let next = half.empties.at(half.given).0.load(Ordering::Relaxed);
        let is_marked = usize::try_from(next).is_ok_and(|next| half.owned.get(next) == Some(&true));
        // ordering: with the Release of the count of empty buffers, as in `refill`; models have one driver.
        if is_marked && half.application.empties.load(Ordering::Acquire) != half.given {
            half.given += 1;
            // ordering: for a driver that follows this one; models have one driver.
            half.words.given.store(half.given, Ordering::Release);
        }
        Ok(half)
    }

    /// The driver's half of these segments, without a buffer.
    #[cfg(not(loom))]
    fn on(geometry: Geometry, theirs: Segment, ours: Segment) -> io::Result<Driver> {
        let parts = Parts::map(geometry, &theirs, &ours, Side::Driver)?;
        Ok(Driver::new(parts, [theirs, ours].map(|segment| Arc::new(segment.into_fd()))))
    }

    /// The driver's half of these parts, without a buffer.
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

    /// All buffers are the driver's: packets can come before the application has its half.
    pub(super) fn own_all(&mut self) {
        (0..self.geometry.receive_buffers).rev().for_each(|buffer| self.own(buffer));
    }

    /// Both segments of the channel, the application's first: for a driver that follows this one.
    #[cfg(not(loom))]
    pub fn segments(&self) -> &[Arc<OwnedFd>; 2] {
        &self.segments
    }

    /// How large the channel is.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// A buffer is the driver's from now on.
    fn own(&mut self, buffer: u32) {
        self.owned[buffer as usize] = true;
        self.mark(buffer, true);
        self.free.push(buffer);
    }

    /// Says whose a buffer is. One that does not exist is nobody's.
    fn mark(&self, buffer: u32, is_owned: bool) {
        if buffer >= self.geometry.receive_buffers {
            return;
        }
        let (word, bit) = (&self.said_owned.at(u64::from(buffer / 64)).0, 1 << (buffer % 64));
        let said = word.load(Ordering::Relaxed);
        // ordering: a driver that follows finds everything that was stored before.
        word.store(if is_owned { said | bit } else { said & !bit }, Ordering::Release);
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
        let outgoing = self.record(self.taken)?;
        self.taken += 1;
        Ok(Some(outgoing))
    }

    /// The last packet that the driver was done with, as the application has it now: it may have used the place again. None: there was
    /// none, or what is there makes no sense.
    pub fn last_done(&self) -> Option<Outgoing> {
        self.done.checked_sub(1).and_then(|last| self.record(last).ok())
    }

    /// Reads a record once, and checks it.
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
        // ordering: with the Acquire in `outstanding`, which says why the model checker cannot show it.
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
            if usize::try_from(buffer).ok().and_then(|buffer| self.owned.get(buffer)) != Some(&false) {
                return Err(Fault::Buffer);
            }
            self.own(buffer as u32);
            self.given += 1;
            // ordering: a driver that follows finds the mark of `own` before the count; models have one driver.
            self.words.given.store(self.given, Ordering::Release);
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
        // After that: a driver that follows marks what was published, and cannot know what was about to be.
        for entry in self.received - count as u64..self.received {
            self.mark(self.packets.at(entry).place.load(Ordering::Relaxed) as u32, false);
        }
        // ordering: a driver that follows finds the marks before the count; models have one driver.
        self.words.settled.store(self.received, Ordering::Release);
        Ok(Delivered::Yes)
    }

    /// Counts a packet as dropped for this reason; gives the reason back.
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

    /// Reports an error to the application, as an errno: what an ICMP error says, or a next hop that is silent. `detail`: where
    /// the errno is EMSGSIZE, bytes of the longest IP packet that the path takes; 0: unknown, or another errno.
    pub fn report(&mut self, errno: i32, detail: u32) {
        self.words.errno.store(u64::from(detail) << 32 | u64::from(errno as u32), Ordering::Relaxed);
        self.words.errors.store(self.words.errors.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Tells the application what its flow runs on from now on: before the first packet that it matters to. The caller rings it.
    pub fn tell(&mut self, facts: &Facts) {
        let [link, mtu] = facts.words();
        self.words.link.store(link, Ordering::Relaxed);
        self.words.mtu.store(mtu, Ordering::Relaxed);
        self.words.changes.store(self.words.changes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Did the application close the flow? It does not take that back; one that does all the same closed it.
    pub fn is_closed(&self) -> bool {
        self.application.closed.load(Ordering::Acquire) != 0
    }

    /// Closes the flow; the application finds this errno. The caller rings it.
    pub fn close(&mut self, errno: i32) {
        self.words.state.store(closed(errno), Ordering::Release);
    }
}

/// Closes the channel of a driver that ended, and that no other follows: the application finds this errno. `segment` is the driver's. The
/// caller rings the application.
///
/// # Errors
///
/// It is no such segment.
#[cfg(not(loom))]
pub fn close_abandoned(segment: OwnedFd, errno: i32) -> Result<(), Refused> {
    let segment = Segment::receive_page(segment, PAGE)?;
    let front = segment.map(0, PAGE, Access::Write).map_err(Refused::Io)?;
    let words: Shared<DriverWords> = Shared::in_mapping(&front, 0).ok_or(Refused::Unsealed)?;
    // ordering: what the dead driver stored is seen before; models have no processes that die.
    words.state.store(closed(errno), Ordering::Release);
    Ok(())
}

/// The word of a closed flow.
fn closed(errno: i32) -> u64 {
    (errno as u32 as u64) << 32 | 1
}
