//! From a request's output to packets of a live ring: reads the capture that `save -` writes, as it is written.
//!
//! The ring has one reader, who says how far it is: this side waits for it half a ring before it would overwrite what
//! was not read. Expressions are looked at under a lock, which is never held while waiting.

use crate::request::Shared;
use buffer::live::words::{GRAIN_BYTES, PACKET_BYTES};
use buffer::live::{Facts, LiveMemory, SlotFlags};
use capture::copying::Copying;
use packet::capture::{Record, Stop};
use packet::pcapng::{Direction, Reader, direction};
use std::io::{self, Write};
use std::sync::Arc;

/// Frames that are published at a time.
const BATCH: usize = 64;

/// The writing side of a request's ring.
pub struct Frames {
    copying: Copying,
    memory: LiveMemory,
    shared: Arc<Shared>,
    reader: Reader,
    /// Of the frames before.
    link_type: Option<u16>,
    /// What was written and not understood yet: less than a block of the capture.
    rest: Vec<u8>,
    /// Packets and bytes published since the last time it was asked how far the reader is.
    window: (u64, u64),
    /// Number behind the last packet before that.
    before: u64,
}

impl Frames {
    /// For a ring that nobody has written to.
    pub fn new(copying: Copying, memory: LiveMemory, shared: Arc<Shared>) -> Frames {
        let (reader, rest) = (Reader::new(), Vec::new());
        Frames { copying, memory, shared, reader, link_type: None, rest, window: (0, 0), before: 0 }
    }

    /// Publishes the frames that are whole; how many bytes that were.
    fn publish(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        let mut batch: Vec<(Record, usize)> = Vec::with_capacity(BATCH);
        loop {
            let more = match self.reader.next(&bytes[at..]) {
                Ok(record) => {
                    let link = self.reader.interface(record.interface).map_or(0, |interface| interface.link.0);
                    if self.link_type != Some(link) {
                        if !self.shared.admit(link) {
                            self.publish_batch(&batch, bytes)?;
                            return Err(io::ErrorKind::BrokenPipe.into());
                        }
                        self.link_type = Some(link);
                    }
                    batch.push((record, at));
                    at += record.consumed;
                    true
                }
                Err(Stop::More { consumed, .. }) => {
                    at = (at + consumed).min(bytes.len());
                    false
                }
                Err(Stop::Damaged(damage)) => return Err(io::Error::new(io::ErrorKind::InvalidData, damage)),
            };
            if batch.len() == BATCH || !more {
                self.publish_batch(&batch, bytes)?;
                batch.clear();
            }
            if !more {
                return Ok(at);
            }
        }
    }

    /// Publishes frames, of which each says where in `bytes` its block begins.
    fn publish_batch(&mut self, batch: &[(Record, usize)], bytes: &[u8]) -> io::Result<()> {
        let geometry = self.memory.geometry();
        let taken = |(record, _): &(Record, usize)| {
            (u64::from(record.captured_len).min(PACKET_BYTES as u64) + GRAIN_BYTES).next_multiple_of(GRAIN_BYTES)
        };
        let order = self.reader.order();
        let mut rest = batch;
        while !rest.is_empty() {
            // As many as go into a quarter of the ring together with what was published since it was last asked.
            let (mut count, mut window) = (0, self.window);
            while let Some(frame) = rest.get(count) {
                let with = (window.0 + 1, window.1 + taken(frame));
                if count > 0 && is_full(with, geometry.slots, geometry.ring_bytes) {
                    break;
                }
                (count, window) = (count + 1, with);
            }
            let (now, later) = rest.split_at(count);
            self.window = window;
            self.copying.batch(|publisher| {
                for (record, at) in now {
                    let block = &bytes[*at..];
                    let outbound = direction(record.options(block), order) == Some(Direction::Outbound);
                    let flags = if outbound { SlotFlags::OUTBOUND } else { SlotFlags::default() };
                    let facts = Facts { time: record.time_ns, wire: record.wire_len, flags, ..Facts::default() };
                    let data = record.data(block);
                    publisher.publish(facts, &data[..data.len().min(PACKET_BYTES)]);
                }
            });
            if is_full(self.window, geometry.slots, geometry.ring_bytes) || !later.is_empty() {
                // Two quarters are under way then: this one and the one before.
                if !self.shared.await_reader(self.before) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                self.before = self.memory.next();
                self.window = (0, 0);
            }
            rest = later;
        }
        Ok(())
    }
}

/// Is it time to ask how far the reader is?
fn is_full((packets, bytes): (u64, u64), slots: u32, ring_bytes: u64) -> bool {
    packets >= u64::from(slots) / 4 || bytes >= ring_bytes / 4
}

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut window = std::mem::take(&mut self.rest);
        window.extend_from_slice(bytes);
        let done = self.publish(&window)?;
        window.drain(..done);
        self.rest = window;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
