//! Watching an edge: copies the blocks that go along it into a ring that no reader can hold. Not a filter: the path
//! does not know about it, and a watcher cannot disturb the path.
//!
//! A node without watchers costs one test of a word for each batch (`walk`). For a node with watchers, the worker
//! copies each block once, whatever their number. While all watchers are half a ring behind, the worker copies no
//! blocks, because most copies would be overwritten unread. So the worker copies no more than a watcher reads, and a
//! stopped watcher costs nothing. If the request's user wants every block ([`Watch::without_loss`]), the path waits for
//! readers as long as the ring lets them hold it.
//!
//! In: batches on their way, between two filters. Out: the ring's readers. The [`Header`] of each block tells a reader
//! how many blocks it has lost. A mark says so to a new reader, and at the end.

use base::limits::WATCHED_BLOCK_BYTES;
use buffer::keeper::client::NamedWriter;
use buffer::{BlockTable, Descriptor, Flags};
use filter::ring_header::{HEADER_BYTES, Header};
use filter::{Batch, StreamTable};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An edge, or all edges of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The node that gives, as the worker's plan counts them.
    pub from: usize,
    /// The index of that node's edge in the plan. `None`: all blocks that the node gives.
    pub edge: Option<usize>,
}

/// Copies of an edge's blocks, for all its watchers.
pub struct Watch {
    pub(crate) edges: Vec<Edges>,
    /// The copies of all threads that run the node.
    copies: Arc<Mutex<Copies>>,
}

pub(crate) struct Copies {
    writer: NamedWriter,
    /// The blocks are frames or packets. Else a block's view tells the link type that its bytes were once part of.
    frames: bool,
    /// For each copied batch that may be unread: units and bytes written up to its end.
    written: VecDeque<(u64, u64)>,
    /// Bytes written, and bytes taken by the reader that is furthest.
    bytes: (u64, u64),
    number: u64,
    /// Readers that were told how many blocks went along before they came.
    greeted: usize,
    /// Wait for room, as long as the ring lets its readers hold it.
    waits: bool,
}

impl Watch {
    /// A watch that copies the blocks along `edges`, at most one edge of each node, into the ring of `writer`. `frames`:
    /// the blocks are frames, else packets. The ring's keeper removes the ring when it has no readers.
    pub fn new(edges: Vec<Edges>, frames: bool, writer: NamedWriter) -> Watch {
        let copies =
            Copies { writer, frames, written: VecDeque::new(), bytes: (0, 0), number: 0, greeted: 0, waits: false };
        Watch { edges, copies: Arc::new(Mutex::new(copies)) }
    }

    /// Makes the watch wait for room: readers that hold the ring get every block, within the ring's limit.
    #[must_use]
    pub fn without_loss(self) -> Watch {
        self.copies().waits = true;
        self
    }

    pub(crate) fn edges(&self) -> &[Edges] {
        &self.edges
    }

    pub(crate) fn of_thread(&self, edges: Vec<Edges>) -> Watch {
        Watch { edges, copies: Arc::clone(&self.copies) }
    }

    pub(crate) fn copies(&self) -> MutexGuard<'_, Copies> {
        // A poisoned lock is safe to take: a panic under it does not leave the copies half made.
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copies {
    /// Copies a batch of a node's blocks. `false`: the ring was removed.
    pub(crate) fn show(
        &mut self,
        select: impl Fn(&Descriptor) -> bool,
        batch: &Batch<'_>,
        shared: (&BlockTable, &StreamTable),
    ) -> bool {
        if !self.greet() {
            return false;
        }
        let useful = self.waits || self.is_of_use();
        let writer = self.writer.writer();
        let (rings, streams) = shared;
        for (_, block) in batch.iter().filter(|(_, block)| select(block)) {
            let number = self.number;
            self.number += 1;
            if !useful {
                continue;
            }
            let link_type = if self.frames { rings.link_type(block) } else { None };
            let bytes = rings.bytes(block);
            let len = bytes.len().min(WATCHED_BLOCK_BYTES);
            let mut about = *block;
            if len < bytes.len() {
                if !self.frames {
                    // In a stream, the difference of both lengths is the number of bytes missing in front.
                    about.set_wire(block.wire().saturating_sub((bytes.len() - len) as u32));
                }
                about.add_flags(Flags::TRUNCATED);
            }
            let facts = if self.frames { None } else { streams.get(block.class).cloned() };
            let epoch = facts.as_ref().map_or(0, |_| streams.epoch(block.class));
            let mut header = Header { at: number, epoch, version: 0, facts }.to_bytes();
            Header::set_block(&mut header, number, &about, link_type);
            let room = (HEADER_BYTES + len) as u32;
            if self.waits {
                // The ring's hold limit bounds the wait, which also notices a reader that has gone.
                let _ = writer.wait_for_room(u64::from(room), None);
            }
            // A block without room is missing from the numbers that readers see.
            if let Ok(filling) = writer.fill(room) {
                filling.copy_in(0, &header);
                filling.copy_in(HEADER_BYTES as u32, &bytes[..len]);
                filling.publish(Descriptor { time: block.time, class: block.class, ..Descriptor::default() }, u32::MAX);
                self.bytes.0 += (HEADER_BYTES + len) as u64;
            }
        }
        if useful && !self.waits {
            self.written.push_back((self.writer.writer().head(), self.bytes.0));
        }
        true
    }

    /// Whether a reader is near enough to read a new copy. It depends on the reader's own word, and lying costs other readers
    /// nothing.
    fn is_of_use(&mut self) -> bool {
        let room = self.writer.geometry();
        let writer = self.writer.writer();
        let Some(taken) = writer.furthest() else { return false };
        let head = writer.head();
        while let Some((_, bytes)) = self.written.pop_front_if(|(unit, _)| *unit <= taken) {
            self.bytes.1 = bytes;
        }
        head - taken < room.slots / 2 && self.bytes.0 - self.bytes.1 < room.payload_bytes / 2
    }

    /// Tells new readers where they begin. `false`: the ring was removed.
    pub(crate) fn greet(&mut self) -> bool {
        let writer = self.writer.writer();
        if writer.is_removed() {
            return false;
        }
        let readers = writer.readers();
        if std::mem::replace(&mut self.greeted, readers) < readers {
            self.mark();
        }
        true
    }

    fn mark(&mut self) {
        // If there is no room, the next block says the same.
        let _ = self.writer.writer().try_write(Descriptor::default(), &Header::mark(self.number));
    }
}

impl Drop for Copies {
    /// Tells a reader that was too slow for the last blocks how many it lost.
    fn drop(&mut self) {
        self.mark();
    }
}
