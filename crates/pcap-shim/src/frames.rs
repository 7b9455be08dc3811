//! Turns a request's output into packets of a live ring: parses the capture that `save -` writes, while it is written.
//!
//! The ring has one reader, which reports its position. The writer waits for it half a ring before it would overwrite
//! unread packets. Expressions are read under a lock, which is never held during that wait.

use crate::cooked::{self, Form, Origin};
use crate::shared::Shared;
use buffer::live::words::{GRAIN_BYTES, PACKET_BYTES};
use buffer::live::{Facts, LiveMemory, SlotFlags};
use capture::copying::Copying;
use packet::LinkType;
use packet::capture::{Record, Stop};
use packet::pcapng::{Direction, Reader, direction};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

const BATCH: usize = 64;

/// The writing side of a request's ring.
pub struct Frames {
    copying: Copying,
    memory: LiveMemory,
    shared: Arc<Shared>,
    reader: Reader,
    link_type: Option<u16>,
    form: Form,
    /// The devices of cooked frames, by the interface's number in the capture.
    origins: HashMap<u32, Origin>,
    /// A frame in its cooked form.
    cooked: Vec<u8>,
    /// Written bytes that are not parsed yet: less than a block of the capture.
    rest: Vec<u8>,
    /// Packets and bytes published since the last wait for the reader.
    window: (u64, u64),
    /// The number after the last packet that was published before that wait.
    before: u64,
}

impl Frames {
    /// For a ring that was never written.
    pub fn new(copying: Copying, memory: LiveMemory, form: Form, shared: Arc<Shared>) -> Frames {
        let (reader, rest) = (Reader::new(), Vec::new());
        let (origins, cooked) = (HashMap::new(), Vec::new());
        let (link_type, window, before) = (None, (0, 0), 0);
        Frames { copying, memory, shared, reader, link_type, form, origins, cooked, rest, window, before }
    }

    /// Publishes all complete frames. Returns the number of bytes parsed.
    fn publish(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        let mut batch: Vec<(Record, usize)> = Vec::with_capacity(BATCH);
        loop {
            let more = match self.reader.next(&bytes[at..]) {
                Ok(record) => {
                    let interface = self.reader.interface(record.interface);
                    let link = interface.map_or(LinkType(0), |interface| interface.link);
                    if self.form == Form::Cooked {
                        let name = interface.and_then(|interface| interface.name.as_deref());
                        self.origins.entry(record.interface).or_insert_with(|| Origin::new(name, link));
                    }
                    let link = self.form.link_type().unwrap_or(link.0);
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

    /// Publishes frames. Each comes with the offset of its block in `bytes`.
    fn publish_batch(&mut self, batch: &[(Record, usize)], bytes: &[u8]) -> io::Result<()> {
        let geometry = self.memory.geometry();
        let taken = |(record, _): &(Record, usize)| {
            let len = u64::from(record.captured_len) + cooked::LONGER_MAX;
            (len.min(PACKET_BYTES as u64) + GRAIN_BYTES).next_multiple_of(GRAIN_BYTES)
        };
        let order = self.reader.order();
        let mut rest = batch;
        while !rest.is_empty() {
            // As many frames as fit into a quarter of the ring, together with those published since the last wait.
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
            let (origins, cooked) = (&self.origins, &mut self.cooked);
            self.copying.batch(|publisher| {
                for (record, at) in now {
                    let block = &bytes[*at..];
                    let outbound = direction(record.options(block), order) == Some(Direction::Outbound);
                    let flags = if outbound { SlotFlags::OUTBOUND } else { SlotFlags::default() };
                    let data = record.data(block);
                    let (data, longer) = match origins.get(&record.interface) {
                        Some(origin) => {
                            let longer = origin.cook(data, outbound, cooked);
                            (&cooked[..], longer)
                        }
                        None => (data, 0),
                    };
                    let wire = record.wire_len.saturating_add_signed(longer);
                    let facts = Facts { time: record.time_ns, wire, flags, ..Facts::default() };
                    publisher.publish(facts, &data[..data.len().min(PACKET_BYTES)]);
                }
            });
            if is_full(self.window, geometry.slots, geometry.ring_bytes) || !later.is_empty() {
                // Now two quarters are in flight: this one, and the one before, for which the writer waits.
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

/// Whether a quarter of the ring is published, so that the writer must wait for the reader.
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
