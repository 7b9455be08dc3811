//! Where a filter puts what it gives while it reads the bytes of a block: a context without its hold on the bytes.

use buffer::{BlockTable, ViewId};
use filter::prelude::*;
use filter::{Counters, Marks};

/// Where records and numbers go.
pub(crate) struct Outlet<'a> {
    rings: &'a BlockTable,
    streams: &'a StreamTable,
    own: ViewId,
    out: &'a mut Vec<Descriptor>,
    counters: &'a mut Counters,
    marks: &'a mut Marks,
    /// Where in its batch the block under way is.
    pub(crate) place: usize,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(cx: &'a mut Context<'_>) -> Outlet<'a> {
        let Context { rings, streams, out, counters, marks, own, .. } = cx;
        Outlet { rings, streams, own: *own, out, counters, marks, place: 0 }
    }

    /// The bytes of a block.
    pub(crate) fn bytes(&self, block: &Descriptor) -> &'a [u8] {
        self.rings.bytes(block)
    }

    /// The facts of a stream.
    pub(crate) fn facts(&self, class: Class) -> Option<&'a StreamFacts> {
        self.streams.get(class)
    }

    /// How many streams had this number before.
    pub(crate) fn epoch(&self, class: Class) -> u32 {
        self.streams.epoch(class)
    }

    /// Gives a block.
    pub(crate) fn push(&mut self, block: Descriptor) {
        self.out.push(block);
    }

    /// A copy of these bytes in the filter's own ring, as a block that is not given yet.
    pub(crate) fn copied(&self, bytes: &[u8], time: u64, class: Class) -> Option<Descriptor> {
        let block = self.rings.append_copy(self.own, &[bytes])?;
        Some(Descriptor { time, class, ..block })
    }

    /// An empty block of this class in the filter's own ring, where there is no other to make it of.
    pub(crate) fn nothing(&self, time: u64, class: Class) -> Descriptor {
        Descriptor { time, class, ..self.own.block(0, 0) }
    }

    /// Gives the record in this row, as the first block of a message.
    pub(crate) fn meta(&mut self, row: &RowWriter, time: u64, class: Class, flags: Flags) {
        let Some(mut block) = self.copied(row.row(), time, class) else { return self.count("records too long", 1) };
        block.set_flags(flags.with(Flags::META).with(Flags::FIRST));
        self.count("messages", 1);
        self.push(block);
    }

    /// Gives the record in this row. One that is longer than a block may be is counted.
    pub(crate) fn record(&mut self, row: &RowWriter, time: u64, class: Class) {
        match self.copied(row.row(), time, class) {
            Some(record) => self.push(record),
            None => self.count("records too long", 1),
        }
    }

    pub(crate) fn count(&mut self, event: &'static str, count: u64) {
        self.counters.events.add(event, count);
    }

    /// The block under way ends here as it should not.
    pub(crate) fn drop_block(&mut self, reason: &'static str) {
        self.counters.drops.add(reason, 1);
    }

    /// The block under way is not for this filter.
    pub(crate) fn reject_block(&mut self) {
        self.counters.reject(self.marks, self.place);
    }
}
