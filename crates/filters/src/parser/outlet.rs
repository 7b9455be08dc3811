//! The end of a prefix that several requests share: copies each block, behind its [header](filter::ring_header), into a ring
//! that the requests read.
//!
//! Without a ring or a reader, a batch costs only a check. Readers hold no part of the ring, so a reader cannot stop the
//! outlet.

use super::Continuity;
use super::told::Told;
use base::atomic::{AtomicU64, Ordering};
use buffer::keeper::client::NamedWriter;
use buffer::ring::writer::NotWritten;
use filter::prelude::*;
use filter::ring_header::HEADER_BYTES;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that an outlet shares with its owner.
#[derive(Debug, Default)]
pub struct Slot {
    ring: Mutex<Option<NamedWriter>>,
    blocks: AtomicU64,
    bytes: AtomicU64,
}

impl Slot {
    /// A slot without a ring.
    pub fn new() -> Arc<Slot> {
        Arc::default()
    }

    fn ring(&self) -> MutexGuard<'_, Option<NamedWriter>> {
        // A panic of another holder leaves a whole ring or none.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to write blocks into `ring`.
    pub fn open(&self, ring: NamedWriter) {
        *self.ring() = Some(ring);
    }

    /// Ends the ring, if there is one. Its readers still get the blocks in it.
    pub fn close(&self) {
        *self.ring() = None;
    }

    /// Blocks written to rings, and their bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.blocks.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// An outlet to the ring in `slot`.
pub fn outlet(slot: Arc<Slot>, continuity: Continuity) -> Instance {
    Instance::filter(Outlet { slot, told: Told::new(continuity) })
}

struct Outlet {
    slot: Arc<Slot>,
    told: Told,
}

impl Filter for Outlet {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut ring = self.slot.ring();
        let Some(writer) = ring.as_mut().map(NamedWriter::writer) else { return Ok(Status::Done) };
        if writer.readers() == 0 {
            // A reader that joins later begins in the middle anyway, so these blocks need not count.
            return Ok(Status::Done);
        }
        let (mut blocks, mut bytes_written, mut too_long, mut held) = (0u64, 0, 0, 0);
        for (_, block) in batch.iter() {
            let header = self.told.header(block, cx);
            let bytes = cx.rings.bytes(block);
            let len = HEADER_BYTES as u32 + bytes.len() as u32;
            match writer.fill(len) {
                Ok(filling) => {
                    filling.copy_in(0, header);
                    filling.copy_in(HEADER_BYTES as u32, bytes);
                    filling.place(*block, len);
                    blocks += 1;
                    bytes_written += bytes.len() as u64;
                }
                Err(NotWritten::TooLong) => too_long += 1,
                // The ring was removed: no reader gets further blocks.
                Err(NotWritten::Removed) => break,
                // Root may hold any ring for a moment. The outlet does not wait for that.
                Err(_) => held += 1,
            }
        }
        // Publish the whole batch at once: a sleeping reader then wakes once, and not for each block.
        if blocks > 0 {
            writer.publish_placed(blocks as u32);
        }
        drop(ring);
        self.slot.blocks.fetch_add(blocks, Ordering::Relaxed);
        self.slot.bytes.fetch_add(bytes_written, Ordering::Relaxed);
        if too_long > 0 {
            cx.drop(too_long, "longer than the ring that is shared");
        }
        if held > 0 {
            cx.drop(held, "a reader held the ring that is shared");
        }
        Ok(Status::Done)
    }

    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        if let Some(ring) = self.slot.ring().as_mut() {
            ring.writer().flush();
        }
        Ok(Status::Done)
    }
}
