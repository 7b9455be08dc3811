//! The application's half of a flow channel.

use super::layout::{ApplicationWords, DriverWords, Drop, Empty, Geometry, Packet, Record, State};
use crate::shared::payload::{Payload, Span};
use crate::shared::segment::{Access, Refused, Segment};
use crate::shared::words::{Shared, SharedArray};
use base::atomic::Ordering;
use std::io;
use std::os::fd::OwnedFd;

/// There is no room in the channel: the driver is not done with earlier packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A received packet, in a buffer that the driver does not write until it is given back.
#[derive(Debug)]
pub struct Received<'a> {
    /// When the device received it, ns since 1970 UTC.
    pub time: u64,
    span: &'a Span,
    offset: usize,
    len: usize,
}

impl Received<'_> {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is it of no bytes?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies its first bytes into `to`, as many as both have; says how many.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let len = self.len.min(to.len());
        self.span.copy_out(self.offset, &mut to[..len]);
        len
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
    /// Records written.
    sent: u64,
    /// Records that the driver was done with when this last looked.
    done: u64,
    /// Where the bytes of each outstanding record end, by absolute position.
    ends: std::collections::VecDeque<u64>,
    /// Bytes that the driver is done with, and bytes written, by absolute position.
    free_from: u64,
    written: u64,
    received: u64,
    given: u64,
}

impl Application {
    /// Takes the two segments of a channel from the driver, and gives it all buffers.
    pub fn attach(geometry: Geometry, [ours, theirs]: [OwnedFd; 2]) -> Result<Application, Refused> {
        let invalid = |text: String| Refused::Io(io::Error::new(io::ErrorKind::InvalidData, text));
        geometry.check().map_err(|error| invalid(error.to_string()))?;
        let (ours_bytes, theirs_bytes) = geometry.bytes();
        let ours = Segment::receive(ours, ours_bytes, Access::Write)?;
        let theirs = Segment::receive(theirs, theirs_bytes, Access::Read)?;
        let front = ours.map(0, geometry.send_data(), Access::Write).map_err(Refused::Io)?;
        let their_front = theirs.map(0, geometry.receive_data(), Access::Read).map_err(Refused::Io)?;
        let receive = theirs.map(geometry.receive_data(), geometry.receive_data_bytes(), Access::Read);
        let send = Payload::map(&ours, geometry.send_data(), geometry.send_bytes as usize, Access::Write);
        let misfit = || invalid("a flow channel's words do not fit".into());
        let mut half = Application {
            geometry,
            words: Shared::in_mapping(&front, 0).ok_or_else(misfit)?,
            driver: Shared::in_mapping(&their_front, 0).ok_or_else(misfit)?,
            records: SharedArray::in_mapping(&front, Geometry::records(), geometry.send_records as usize)
                .ok_or_else(misfit)?,
            empties: SharedArray::in_mapping(&front, geometry.empties(), geometry.receive_buffers as usize)
                .ok_or_else(misfit)?,
            packets: SharedArray::in_mapping(&their_front, Geometry::packets(), geometry.receive_buffers as usize)
                .ok_or_else(misfit)?,
            send: send.map_err(Refused::Io)?,
            receive: Span::new(receive.map_err(Refused::Io)?),
            sent: 0,
            done: 0,
            ends: std::collections::VecDeque::new(),
            free_from: 0,
            written: 0,
            received: 0,
            given: 0,
        };
        for buffer in 0..u64::from(geometry.receive_buffers) {
            half.give(buffer);
        }
        half.words.empties.store(half.given, Ordering::Release);
        Ok(half)
    }

    fn give(&mut self, buffer: u64) {
        self.empties.at(self.given).0.store(buffer, Ordering::Relaxed);
        self.given += 1;
    }

    /// Copies a packet that lies in `pieces` into the channel and publishes it; the caller rings the driver.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room now; also for a packet that is longer than the channel.
    pub fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Full> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.outstanding() >= u64::from(self.geometry.send_records) {
            return Err(Full);
        }
        if self.written + len as u64 - self.free_from > u64::from(self.geometry.send_bytes) {
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

    /// Packets sent that the driver is not done with.
    pub fn outstanding(&mut self) -> u64 {
        let done = self.driver.done.load(Ordering::Acquire).min(self.sent);
        while self.done < done {
            self.done += 1;
            self.free_from = self.ends.pop_front().unwrap_or(self.free_from);
        }
        self.sent - self.done
    }

    /// Gives the packets that are there to `take`, at most `most`, and their buffers back to the driver after each. Says how many
    /// there were. A packet whose place makes no sense ends the turn: the driver is broken.
    pub fn receive(&mut self, most: usize, take: &mut dyn FnMut(&Received<'_>)) -> usize {
        let there = self.driver.received.load(Ordering::Acquire).wrapping_sub(self.received);
        let count = there.min(u64::from(self.geometry.receive_buffers)).min(most as u64);
        for at in 0..count {
            let packet = self.packets.at(self.received);
            let place = packet.place.load(Ordering::Relaxed);
            let (buffer, len) = (place & 0xffff_ffff, (place >> 32) as usize);
            if buffer >= u64::from(self.geometry.receive_buffers) || len > self.geometry.buffer_bytes as usize {
                return at as usize;
            }
            let offset = buffer as usize * self.geometry.buffer_bytes as usize;
            let time = packet.time.load(Ordering::Relaxed);
            take(&Received { time, span: &self.receive, offset, len });
            self.received += 1;
            self.give(buffer);
            self.words.empties.store(self.given, Ordering::Release);
        }
        count as usize
    }

    /// Are there packets to receive?
    pub fn has_received(&self) -> bool {
        self.driver.received.load(Ordering::Acquire) != self.received
    }

    /// Whether the flow is alive.
    pub fn state(&self) -> State {
        match self.driver.state.load(Ordering::Acquire) {
            0 => State::Open,
            word => State::Closed((word >> 32) as i32),
        }
    }

    /// How many errors the driver has reported so far, and the errno of the last one: an ICMP error, a next hop that is silent.
    pub fn errors(&self) -> (u64, i32) {
        let count = self.driver.errors.load(Ordering::Acquire);
        (count, self.driver.errno.load(Ordering::Relaxed) as i32)
    }

    /// Packets of this flow that the driver dropped for this reason.
    pub fn dropped(&self, why: Drop) -> u64 {
        self.driver.drops[why as usize].load(Ordering::Relaxed)
    }
}
