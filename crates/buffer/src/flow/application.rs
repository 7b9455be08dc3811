//! The application's half of a flow channel.

use super::layout::{ApplicationWords, CONTINUES, DriverWords, Drop, Empty, Facts, Geometry, Packet, Record, State};
use super::parts::Parts;
#[cfg(not(loom))]
use super::parts::Side;
use crate::shared::payload::{Payload, Span};
#[cfg(not(loom))]
use crate::shared::segment::{Access, Refused, Segment};
use crate::shared::words::{Shared, SharedArray};
use base::atomic::Ordering;
use std::collections::VecDeque;
#[cfg(not(loom))]
use std::{io, os::fd::OwnedFd};

/// The channel has no room: the driver is not done with earlier packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A received packet. The driver does not write to its buffers until they are given back.
#[derive(Debug)]
pub struct Received<'a> {
    /// When the device received it, ns since 1970 UTC.
    pub time: u64,
    span: &'a Span,
    pieces: &'a [(usize, usize)],
    len: usize,
}

impl Received<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies its first bytes into `to`, as many as both have; returns their number.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let mut copied = 0;
        for &(offset, len) in self.pieces {
            let part = len.min(to.len() - copied);
            self.span.copy_out(offset, &mut to[copied..copied + part]);
            copied += part;
        }
        copied
    }
}

/// The application's half: sends and receives packets.
#[derive(Debug)]
pub struct Application {
    geometry: Geometry,
    words: Shared<ApplicationWords>,
    driver: Shared<DriverWords>,
    records: SharedArray<Record>,
    empties: SharedArray<Empty>,
    packets: SharedArray<Packet>,
    send: Payload,
    receive: Span,
    sent: u64,
    /// Records that the driver was done with at the last look.
    done: u64,
    ends: VecDeque<u64>,
    /// Bytes that the driver is done with, and bytes written, by absolute position.
    free_from: u64,
    written: u64,
    /// Entries of received packets taken.
    received: u64,
    given: u64,
    pieces: Vec<(usize, usize)>,
}

impl Application {
    /// The application's half of a fresh channel. The driver has all receive buffers at first.
    pub(super) fn new(parts: Parts) -> Application {
        let Parts { geometry, driver, application, records, empties, packets, send, receive, .. } = parts;
        Application {
            geometry,
            words: application,
            driver,
            records,
            empties,
            packets,
            send,
            receive,
            sent: 0,
            done: 0,
            ends: VecDeque::new(),
            free_from: 0,
            written: 0,
            received: 0,
            given: 0,
            pieces: Vec::new(),
        }
    }

    /// Attaches to a channel with the two segments from the driver.
    #[cfg(not(loom))]
    pub fn attach(geometry: Geometry, [ours, theirs]: [OwnedFd; 2]) -> Result<Application, Refused> {
        let invalid = |text: String| Refused::Io(io::Error::new(io::ErrorKind::InvalidData, text));
        geometry.check().map_err(|error| invalid(error.to_string()))?;
        let (our_bytes, their_bytes) = geometry.bytes();
        let ours = Segment::receive(ours, our_bytes, Access::Write)?.paged_on_use();
        let theirs = Segment::receive_page(theirs, their_bytes)?.paged_on_use();
        let parts = Parts::map(geometry, &ours, &theirs, Side::Application).map_err(Refused::Io)?;
        Ok(Application::new(parts))
    }

    fn give(&mut self, buffer: u64) {
        self.empties.at(self.given).0.store(buffer, Ordering::Relaxed);
        self.given += 1;
    }

    /// Copies the packet in `pieces` into the channel and publishes it; the caller rings the driver.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room now, or the packet is longer than the channel.
    pub fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Full> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.outstanding();
        if !self.has_room(len) {
            return Err(Full);
        }
        let start = self.written;
        for piece in pieces {
            self.send.copy_in(self.written, piece);
            self.written += piece.len() as u64;
        }
        let record = self.records.at(self.sent);
        let offset = start & u64::from(self.geometry.send_bytes - 1);
        record.count.store(1, Ordering::Relaxed);
        record.pieces[0].store(offset | (len as u64) << 32, Ordering::Relaxed);
        self.sent += 1;
        self.ends.push_back(self.written);
        self.words.sent.store(self.sent, Ordering::Release);
        Ok(())
    }

    /// Whether there is room now for a packet of `len` bytes. The room stays until the next [`send`](Self::send).
    pub fn has_room(&self, len: usize) -> bool {
        // A hint: `send` looks again.
        let done = self.driver.done.load(Ordering::Relaxed).min(self.sent).max(self.done);
        // The records that the driver finished since `outstanding` last looked.
        let newly = (done - self.done) as usize;
        let free_from = newly.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(self.free_from);
        self.sent - done < u64::from(self.geometry.send_records)
            && self.written + len as u64 - free_from <= u64::from(self.geometry.send_bytes)
    }

    /// Packets sent that the driver is not done with.
    pub fn outstanding(&mut self) -> u64 {
        // ordering: pairs with the driver's Release: the driver has read the bytes that are overwritten from now on.
        // The model checker lets no load see a later store, and so cannot show that.
        let done = self.driver.done.load(Ordering::Acquire).min(self.sent);
        while self.done < done {
            self.done += 1;
            self.free_from = self.ends.pop_front().unwrap_or(self.free_from);
        }
        self.sent - self.done
    }

    /// Calls `take` for each packet, at most `most` times, and gives its buffers back to the driver afterwards. Returns
    /// the number of packets. A packet with an impossible place ends the call: the driver is broken.
    pub fn receive(&mut self, most: usize, take: &mut dyn FnMut(&Received<'_>)) -> usize {
        let mut there = self.receivable() as u64;
        let mut count = 0;
        while count < most && there > 0 {
            let Some((time, len)) = self.find(there) else { break };
            take(&Received { time, span: &self.receive, pieces: &self.pieces, len });
            for at in 0..self.pieces.len() {
                self.give((self.pieces[at].0 / self.geometry.buffer_bytes as usize) as u64);
            }
            self.received += self.pieces.len() as u64;
            there -= self.pieces.len() as u64;
            self.words.empties.store(self.given, Ordering::Release);
            count += 1;
        }
        count
    }

    /// Finds the pieces of the next packet in up to `there` entries: its time and length. `None`: a place is invalid.
    fn find(&mut self, there: u64) -> Option<(u64, usize)> {
        self.pieces.clear();
        let (mut time, mut total) = (0, 0);
        for at in 0..there {
            let packet = self.packets.at(self.received + at);
            let place = packet.place.load(Ordering::Relaxed);
            let (buffer, len) = (place & 0xffff_ffff, ((place & !CONTINUES) >> 32) as usize);
            if buffer >= u64::from(self.geometry.receive_buffers) || len > self.geometry.buffer_bytes as usize {
                return None;
            }
            self.pieces.push((buffer as usize * self.geometry.buffer_bytes as usize, len));
            total += len;
            if at == 0 {
                time = packet.time.load(Ordering::Relaxed);
            }
            if place & CONTINUES == 0 {
                return Some((time, total));
            }
        }
        None
    }

    /// Whether there are packets to receive.
    pub fn has_received(&self) -> bool {
        // A hint: `receive` looks again.
        self.driver.received.load(Ordering::Relaxed) != self.received
    }

    /// Most packets that can be received now. It also makes visible [facts](Self::facts) told before these packets.
    pub fn receivable(&self) -> usize {
        let there = self.driver.received.load(Ordering::Acquire).wrapping_sub(self.received);
        there.min(u64::from(self.geometry.receive_buffers)) as usize
    }

    /// How often the driver has told new facts, and the latest. If the number is 0, the grant's facts hold, not these.
    pub fn facts(&self) -> (u64, Facts) {
        let count = self.driver.changes.load(Ordering::Acquire);
        let words = [&self.driver.link, &self.driver.mtu].map(|word| word.load(Ordering::Relaxed));
        // A change meanwhile may mix two facts. Then the count changes too, and the caller looks again.
        (count, Facts::from_words(words))
    }

    /// Whether the flow is open.
    pub fn state(&self) -> State {
        match self.driver.state.load(Ordering::Acquire) {
            0 => State::Open,
            word => State::Closed((word >> 32) as i32),
        }
    }

    /// The number of errors the driver has reported, and the errno of the last one (an ICMP error, a silent next hop).
    /// Third, if the errno is EMSGSIZE: bytes of the longest IP packet on the path. 0: unknown, or another errno.
    pub fn errors(&self) -> (u64, i32, u32) {
        let count = self.driver.errors.load(Ordering::Acquire);
        let last = self.driver.errno.load(Ordering::Relaxed);
        (count, last as i32, (last >> 32) as u32)
    }

    /// Closes the flow. The driver still sends the packets in the channel; the caller rings it.
    pub fn close(&mut self) {
        self.words.closed.store(1, Ordering::Release);
    }

    /// Packets of this flow that the driver dropped for this reason.
    pub fn dropped(&self, why: Drop) -> u64 {
        self.driver.drops[why as usize].load(Ordering::Relaxed)
    }
}
