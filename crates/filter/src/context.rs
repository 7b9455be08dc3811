//! What a running filter may reach. Its fields are separate on purpose: bytes borrowed from `rings` can be looked at
//! while blocks are given to `out` and numbers go to `counters`.

use crate::batch::Batch;
use crate::counter::Counters;
use crate::stream::StreamTable;
use base::atomic::StopFlag;
use base::limits::BATCH_BLOCKS;
use buffer::{BlockTable, Descriptor, EditError, Room, ViewId};

/// Which blocks of a batch did not go on, and why: a bit for each place. For whoever wants what a filter rejects; where nobody
/// does, bits of earlier batches stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// They were rejected by a filter that gives new blocks. (One in place rejects what it neither keeps nor drops.)
    pub rejected: u64,
    /// They ended in a filter in place: it dropped them, or kept them.
    pub ended: u64,
    /// Of a filter whose kind [splits](crate::Kind::splits), by place: along which of the edges behind it each goes, modulo
    /// how many there are; or [`LEAST_LOADED`].
    pub branches: [u16; BATCH_BLOCKS],
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { rejected: 0, ended: 0, branches: [0; BATCH_BLOCKS] }
    }
}

/// A filter that splits numbers branches from 0 to below this. It is a multiple of 1 to 12, so that edges get equal parts.
pub const BRANCHES: u16 = 27_720;

/// Along the edge that has the least to do.
pub const LEAST_LOADED: u16 = u16::MAX;

/// Where what is given now stands among what other shares of the same filters give, each for its own flows. A plan without
/// shares leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Which run of blocks is under way, of all shares' runs.
    pub sequence: u64,
    /// The node whose timer, or end, it is; 0 while blocks come.
    pub node: u32,
    /// Among what one node ends at one moment: set by a filter before it gives what belongs to one flow.
    pub ends: u64,
    /// There are other shares: a filter that ends flows gives those of one flow at a time ([`Status::More`](crate::Status)).
    pub is_shared: bool,
}

/// Handed to every call of a filter; made anew for each, and cheap to make.
#[derive(Debug)]
pub struct Context<'a> {
    /// Bytes of blocks: `cx.rings.bytes(&block)`; of a batch's: [`Batch::read`].
    pub rings: &'a mut BlockTable,
    /// Facts about connections and flows.
    pub streams: &'a mut StreamTable,
    /// New blocks, for filters that make some. Kept from call to call, so that it does not allocate in the long run.
    pub out: &'a mut Vec<Descriptor>,
    /// What this filter counted.
    pub counters: &'a mut Counters,
    /// What became of the blocks of the batch.
    pub marks: &'a mut Marks,
    /// The append ring of this filter: `cx.rings.append_copy(cx.own, &[...])`.
    pub own: ViewId,
    /// The clock, in ns: begins at the first block's time and follows the blocks' times, but never goes back and never
    /// leaps ([`CLOCK_STEP_NS`](base::limits::CLOCK_STEP_NS) a batch at most). For timers and silence; when something
    /// happened stands in its block.
    pub now: u64,
    /// No other filter sees the blocks that this filter gets, or all others have returned; see [`Context::edit`].
    pub exclusive: bool,
    /// When [`Filter::timer`](crate::Filter::timer) is wanted; `u64::MAX` = never.
    pub wake: &'a mut u64,
    /// Lines for people.
    pub notices: &'a mut Vec<String>,
    /// Where this stands among what other shares give.
    pub order: &'a mut Order,
    /// Set when the request is asked to stop: a filter that waits for others gives up then.
    pub stop: &'a StopFlag,
}

impl Context<'_> {
    /// Gives a new block.
    #[inline]
    pub fn emit(&mut self, block: Descriptor) {
        self.out.push(block);
    }

    /// Drops blocks of a filter that gives new ones: they end here for this reason, as they should not.
    #[inline]
    pub fn drop(&mut self, blocks: u64, reason: &'static str) {
        self.counters.drops.add(reason, blocks);
    }

    /// Drops those live blocks of a batch whose bits are set in `which`.
    pub fn drop_of(&mut self, batch: &mut Batch<'_>, which: u64, reason: &'static str) {
        let which = which & batch.live();
        batch.keep(!which);
        self.marks.ended |= which;
        self.counters.drops.add(reason, u64::from(which.count_ones()));
    }

    /// Takes a live block out of a batch: it ends here as it should, for a filter in place keeps what it says.
    #[inline]
    pub fn take_of(&mut self, batch: &mut Batch<'_>, place: usize) {
        batch.keep(!(1 << place));
        self.marks.ended |= 1 << place;
        self.counters.blocks_taken += 1;
    }

    /// Drops these blocks, and for the same reason whatever comes after the filter has finished. For a filter that has lost
    /// the place it writes to.
    #[cold]
    pub fn drop_rest(&mut self, blocks: u64, reason: &'static str) {
        self.drop(blocks, reason);
        self.counters.loses = Some(reason);
    }

    /// Says that the block at this place of the batch was not for this filter, where it gives new ones: no loss.
    #[inline]
    pub fn reject(&mut self, place: usize) {
        self.counters.reject(self.marks, place);
    }

    /// The same of a block that was not for this filter for want of being read, for this reason.
    #[inline]
    pub fn reject_unread(&mut self, place: usize, reason: &'static str) {
        self.reject(place);
        self.counters.unread.add(reason, 1);
    }

    /// Counts something worth a number that is not a block's end.
    #[inline]
    pub fn count(&mut self, event: &'static str, count: u64) {
        self.counters.events.add(event, count);
    }

    /// Asks for [`Filter::timer`](crate::Filter::timer) at this time, or earlier if an earlier time was asked for: the
    /// timer goes off once, and asks again for what is still to come.
    #[inline]
    pub fn wake_at(&mut self, time: u64) {
        *self.wake = time.min(*self.wake);
    }

    /// Tells people something. Allocates; for the cold side only.
    #[cold]
    pub fn notice(&mut self, text: String) {
        self.notices.push(text);
    }

    /// The gateway for writing to a block: gives its bytes, with `room` around them, and rewrites the descriptor where
    /// they had to move. In place, longer in place or copied, whichever is cheapest and allowed: see
    /// [`BlockTable::edit`].
    pub fn edit(&mut self, block: &mut Descriptor, room: Room) -> Result<&mut [u8], EditError> {
        self.rings.edit(block, room, self.exclusive, self.own)
    }
}
