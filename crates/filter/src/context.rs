//! Everything that a running filter may reach. The fields are separate so that a filter can read bytes borrowed from
//! `rings` while it gives blocks to `out` and counts in `counters`.

use crate::batch::Batch;
use crate::counter::Counters;
use crate::marks::Marks;
use crate::stream::StreamTable;
use crate::wanted::Wanted;
use base::atomic::StopFlag;
use base::limits::BATCH_BLOCKS;
use buffer::{BlockTable, Descriptor, EditError, Room, ViewId};

impl Default for Marks {
    fn default() -> Marks {
        Marks { rejected: 0, ended: 0, branches: [0; BATCH_BLOCKS] }
    }
}

/// The order of blocks among partitions: copies of the same filters, each with its own flows. A plan without partitions does
/// not use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The number of the present run of blocks, counted over all partitions.
    pub sequence: u64,
    /// The node whose timer or end is running; 0 while blocks come.
    pub node: u32,
    /// Order among flows that one node ends at one moment. A filter sets it before it gives the blocks of a flow.
    pub ends: u64,
    /// There are other partitions: a filter that ends flows then gives one flow at a time
    /// ([`Status::More`](crate::Status)).
    pub is_partition: bool,
}

/// Given to each call of a filter; the engine makes a new one for each call, cheaply.
#[derive(Debug)]
pub struct Context<'a> {
    /// The bytes of blocks: `cx.rings.bytes(&block)`; for a batch: [`Batch::read`].
    pub rings: &'a mut BlockTable,
    /// Facts about connections and flows.
    pub streams: &'a mut StreamTable,
    /// New blocks of a filter that makes some. Kept between calls, so that pushing rarely allocates.
    pub out: &'a mut Vec<Descriptor>,
    /// This filter's counters.
    pub counters: &'a mut Counters,
    /// How the blocks of the batch ended.
    pub marks: &'a mut Marks,
    /// The append ring of this filter: `cx.rings.append_copy(cx.own, &[...])`.
    pub own: ViewId,
    /// The clock, in ns. It begins at the first block's time and follows the blocks' times. It never goes back, and
    /// leaps at most [`CLOCK_STEP_NS`](base::limits::CLOCK_STEP_NS) in a batch. Use it for timers and silence; the time
    /// of an event is in its block.
    pub now: u64,
    /// No other filter will see these blocks; see [`Context::edit`].
    pub exclusive: bool,
    /// The fields and bodies that the filters behind this one read. All of them while its edges are watched.
    pub wanted: &'a Wanted,
    /// When to call [`Filter::timer`](crate::Filter::timer); `u64::MAX` = never.
    pub wake: &'a mut u64,
    /// Lines for people.
    pub notices: &'a mut Vec<String>,
    /// The order of this filter's blocks among those of other partitions.
    pub order: &'a mut Order,
    /// Set when the request is asked to stop: a filter that waits gives up then.
    pub stop: &'a StopFlag,
}

impl Context<'_> {
    /// Gives a new block.
    #[inline]
    pub fn emit(&mut self, block: Descriptor) {
        self.out.push(block);
    }

    /// Drops blocks, for a filter that gives new ones: they should not have ended here. Counts them under `reason`.
    #[inline]
    pub fn drop(&mut self, blocks: u64, reason: &'static str) {
        self.counters.drops.add(reason, blocks);
    }

    /// Drops the live blocks of a batch whose bits are set in `which`.
    pub fn drop_of(&mut self, batch: &mut Batch<'_>, which: u64, reason: &'static str) {
        let which = which & batch.live();
        batch.keep(!which);
        self.marks.ended |= which;
        self.counters.drops.add(reason, u64::from(which.count_ones()));
    }

    /// Takes a live block out of a batch, for a filter in place that holds it: the block ends here as it should.
    #[inline]
    pub fn take_of(&mut self, batch: &mut Batch<'_>, place: usize) {
        batch.keep(!(1 << place));
        self.marks.ended |= 1 << place;
        self.counters.blocks_taken += 1;
    }

    /// Drops these blocks, and under the same reason all blocks that come after the filter has finished. For a filter
    /// that has lost the place it writes to.
    #[cold]
    pub fn drop_rest(&mut self, blocks: u64, reason: &'static str) {
        self.drop(blocks, reason);
        self.counters.loses = Some(reason);
    }

    /// Takes blocks back that were counted as taken when they came: they end otherwise, for example as drops.
    pub fn untake(&mut self, blocks: u64) {
        self.counters.blocks_taken = self.counters.blocks_taken.saturating_sub(blocks);
    }

    /// Rejects the block at this place of the batch, for a filter that gives new ones: it was not for this filter,
    /// which is no loss.
    #[inline]
    pub fn reject(&mut self, place: usize) {
        self.counters.reject(self.marks, place);
    }

    /// Like [`reject`](Context::reject), for a block that could not be read, with the reason.
    #[inline]
    pub fn reject_unread(&mut self, place: usize, reason: &'static str) {
        self.reject(place);
        self.counters.unread.add(reason, 1);
    }

    /// Counts an event that is not the end of a block.
    #[inline]
    pub fn count(&mut self, event: &'static str, count: u64) {
        self.counters.events.add(event, count);
    }

    /// Asks for [`Filter::timer`](crate::Filter::timer) at `time`; the earliest such time counts. The timer goes off
    /// once, and asks again if it is needed later.
    #[inline]
    pub fn wake_at(&mut self, time: u64) {
        *self.wake = time.min(*self.wake);
    }

    /// Adds a line for people. Allocates; for the cold path only.
    #[cold]
    pub fn notice(&mut self, text: String) {
        self.notices.push(text);
    }

    /// Notes an input that could not be read, or not to its end: a line for people, which the report keeps. Allocates.
    #[cold]
    pub fn leave_out(&mut self, line: String) {
        self.counters.left_out.add(&line);
        self.notice(line);
    }

    /// Makes a block writable, with `room` around its bytes, and gives the bytes. Extends in place or copies, whichever
    /// is cheapest and allowed, and rewrites the descriptor if the bytes had to move. See [`BlockTable::edit`].
    pub fn edit(&mut self, block: &mut Descriptor, room: Room) -> Result<&mut [u8], EditError> {
        self.rings.edit(block, room, self.exclusive, self.own)
    }
}
