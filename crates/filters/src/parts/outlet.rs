//! A filter's output while it reads a block: a [`Context`](filter::Context) that does not borrow the block's bytes.

use buffer::{BlockTable, ViewId};
use filter::prelude::*;
use filter::{Counters, Marks};

/// Where a filter puts records and counts.
pub(crate) struct Outlet<'a> {
    rings: &'a BlockTable,
    streams: &'a mut StreamTable,
    own: ViewId,
    out: &'a mut Vec<Descriptor>,
    counters: &'a mut Counters,
    marks: &'a mut Marks,
    /// Position in the batch of the block being read.
    pub(crate) place: usize,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(cx: &'a mut Context<'_>) -> Outlet<'a> {
        let Context { rings, streams, out, counters, marks, own, .. } = cx;
        Outlet { rings, streams, own: *own, out, counters, marks, place: 0 }
    }

    /// Gives each block of a batch to `read`, and rejects those of which it says `false`.
    pub(crate) fn each(
        batch: &Batch<'_>,
        cx: &'a mut Context<'_>,
        mut read: impl FnMut(&Descriptor, &mut Outlet<'a>) -> bool,
    ) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            if !read(block, &mut outlet) {
                outlet.reject_block();
            }
        }
        Ok(Status::Done)
    }

    pub(crate) fn bytes(&self, block: &Descriptor) -> &'a [u8] {
        self.rings.bytes(block)
    }

    /// The facts of the stream with this class.
    pub(crate) fn facts(&self, class: Class) -> Option<&StreamFacts> {
        self.streams.get(class)
    }

    /// A number for messages that interleave with others of this connection; `None`: all are in use.
    pub(crate) fn open_stream(&mut self, connection: Class) -> Option<u32> {
        let facts = self.streams.get(connection)?.clone();
        self.streams.open(facts)
    }

    /// Nothing more comes with this number.
    pub(crate) fn close_stream(&mut self, number: u32) {
        self.streams.close(number);
    }

    /// How many streams had this class before.
    pub(crate) fn epoch(&self, class: Class) -> u32 {
        self.streams.epoch(class)
    }

    pub(crate) fn push(&mut self, block: Descriptor) {
        self.out.push(block);
    }

    /// Copies `bytes` into the filter's own ring and returns the block, not pushed yet. `None`: longer than a block.
    pub(crate) fn copied(&self, bytes: &[u8], time: u64, class: Class) -> Option<Descriptor> {
        let block = self.rings.append_copy(self.own, &[bytes])?;
        Some(Descriptor { time, class, ..block })
    }

    /// An empty block of this class in the filter's own ring, for when no input block can serve.
    pub(crate) fn nothing(&self, time: u64, class: Class) -> Descriptor {
        Descriptor { time, class, ..self.own.block(0, 0) }
    }

    /// Pushes the row as a record that is the first block of a message.
    pub(crate) fn meta(&mut self, row: &RowWriter, time: u64, class: Class, flags: Flags) {
        let Some(mut block) = self.copied(row.row(), time, class) else { return self.count("records too long", 1) };
        block.set_flags(flags.with(Flags::META).with(Flags::FIRST));
        self.count("messages", 1);
        self.push(block);
    }

    /// Pushes the row as a record. A record longer than a block is dropped and counted.
    pub(crate) fn record(&mut self, row: &RowWriter, time: u64, class: Class) {
        match self.copied(row.row(), time, class) {
            Some(record) => self.push(record),
            None => self.count("records too long", 1),
        }
    }

    pub(crate) fn count(&mut self, event: &'static str, count: u64) {
        self.counters.events.add(event, count);
    }

    /// Counts the current block as dropped for `reason`.
    pub(crate) fn drop_block(&mut self, reason: &'static str) {
        self.counters.drops.add(reason, 1);
    }

    /// Marks the current block as not meant for this filter.
    pub(crate) fn reject_block(&mut self) {
        self.counters.reject(self.marks, self.place);
    }
}
