//! What every part of `http` reaches while it runs: where blocks and records go, and what all connections share.

use super::decode::{Decoder, Spares, Spent};
use super::row::SCHEMA;
use base::limits::{
    DECODED_TURN_BYTES, HTTP_RATIO_FREE_BYTES, HTTP_RATIO_FREE_TOTAL_BYTES, HTTP_SPARES, HTTP_TURN_BLOCKS,
};
use buffer::{BlockTable, ViewId};
use filter::prelude::*;
use filter::{Counters, Marks};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Undo content codings.
    pub(super) decode: bool,
    /// The first block of a message has the bytes of its head, not a record.
    pub(crate) raw_heads: bool,
    /// Decoded bytes of one message at most.
    pub(super) decoded_max: u64,
    /// Decoded bytes for each coded byte at most, beyond what is free.
    max_ratio: u64,
    /// What all messages together came to.
    pub(super) spent: Spent,
    /// Bytes that may be kept at most.
    memory: usize,
    /// Bytes left of it for heads, requests and decoders of all connections.
    pub(super) memory_left: usize,
    pub(super) row: RowWriter,
    pub(super) inflaters: Spares,
    /// Buffers for heads that span blocks.
    heads: Vec<Vec<u8>>,
    /// Empty, for the coded bytes of the body under way: nothing is kept in it from one batch to the next.
    pub(super) gather: Vec<u8>,
}

impl Shared {
    pub(crate) fn new(decode: bool, decoded_max: u64, max_ratio: u64, memory: usize) -> Shared {
        Shared {
            decode,
            raw_heads: false,
            decoded_max,
            max_ratio,
            spent: Spent::default(),
            memory,
            memory_left: memory,
            row: RowWriter::new(&SCHEMA),
            inflaters: Spares::default(),
            heads: Vec::new(),
            gather: Vec::new(),
        }
    }

    /// Bytes that the codings of a message may still make, of which `at_hand` coded bytes are there. A message with a small
    /// ratio is not held up by those with a large one: it brings more than it takes.
    pub(super) fn decoding_budget(&self, message: &Spent, at_hand: usize) -> u64 {
        let total = self.spent.left(HTTP_RATIO_FREE_TOTAL_BYTES, self.max_ratio, at_hand);
        message.left(HTTP_RATIO_FREE_BYTES, self.max_ratio, at_hand).min(total)
    }

    /// Takes memory for as long as it is not [given back](Shared::give_back); says whether there was enough.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        let left = self.memory_left.checked_sub(bytes);
        self.memory_left = left.unwrap_or(self.memory_left);
        left.is_some()
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.memory_left += bytes;
    }

    /// Was everything given back?
    pub(super) fn is_even(&self) -> bool {
        self.memory_left == self.memory
    }

    /// An empty buffer for a head.
    pub(super) fn head_buffer(&mut self) -> Vec<u8> {
        self.heads.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next head; gives back what its bytes were charged with.
    pub(super) fn dismiss_head(&mut self, mut buffer: Vec<u8>) {
        self.give_back(buffer.len());
        buffer.clear();
        if buffer.capacity() > 0 && self.heads.len() < HTTP_SPARES {
            self.heads.push(buffer);
        }
    }

    /// Keeps what another message can use of a decoder; gives back what it was charged with.
    pub(super) fn dismiss_decoder(&mut self, decoder: Decoder) {
        self.give_back(decoder.bytes());
        decoder.dismantle(&mut self.inflaters);
    }
}

/// Where blocks and numbers go, for one call.
pub(crate) struct Exit<'a> {
    pub(super) rings: &'a BlockTable,
    pub(super) streams: &'a StreamTable,
    pub(super) own: ViewId,
    pub(super) shared: &'a mut Shared,
    pub(super) now: u64,
    /// The block behind the one under way goes on where this one ends.
    pub(super) goes_on: bool,
    out: &'a mut Vec<Descriptor>,
    counters: &'a mut Counters,
    marks: &'a mut Marks,
    /// Where in its batch the block under way is.
    pub(super) place: usize,
    /// Blocks there are when it is time to send them on.
    out_enough: usize,
    decoded_bytes: usize,
}

impl<'a> Exit<'a> {
    pub(crate) fn new(cx: &'a mut Context<'_>, shared: &'a mut Shared) -> Exit<'a> {
        Exit {
            rings: cx.rings,
            streams: cx.streams,
            own: cx.own,
            shared,
            now: cx.now,
            goes_on: false,
            out_enough: cx.out.len() + HTTP_TURN_BLOCKS,
            out: cx.out,
            counters: cx.counters,
            marks: cx.marks,
            place: 0,
            decoded_bytes: 0,
        }
    }

    /// Is it time to send on what was given?
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= self.out_enough || self.decoded_bytes >= DECODED_TURN_BYTES
    }

    /// Gives a block.
    pub(super) fn push(&mut self, block: Descriptor) {
        self.out.push(block);
    }

    /// Gives the row that was written, as the first block of a message of this class.
    pub(super) fn push_row(&mut self, time: u64, class: Class, flags: Flags) {
        self.push_first(self.rings.append_copy(self.own, &[self.shared.row.row()]), time, class, flags);
    }

    /// Gives the bytes of a head in the same place.
    pub(super) fn push_head(&mut self, head: &[u8], time: u64, class: Class, flags: Flags) {
        self.push_first(self.rings.append_copy(self.own, &[head]), time, class, flags);
    }

    fn push_first(&mut self, block: Option<Descriptor>, time: u64, class: Class, flags: Flags) {
        let Some(mut block) = block else {
            // A head is far shorter than a block may be.
            return self.count("records too long", 1);
        };
        self.count("messages", 1);
        (block.time, block.class) = (time, class);
        block.set_flags(flags.with(Flags::META).with(Flags::FIRST));
        self.push(block);
    }

    /// Lets `fill` write decoded bytes, at most `max`, and gives them as a block like `like`.
    pub(super) fn push_filled<R>(
        &mut self,
        like: &Descriptor,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        let (mut block, result) = self.rings.append(self.own, max, fill)?;
        if block.len > 0 {
            (block.time, block.class) = (like.time, like.class);
            self.decoded_bytes += block.len as usize;
            self.push(block);
        }
        Some(result)
    }

    /// These bytes as a block like `like`, copied to the filter's own ring, and not given yet.
    pub(super) fn copied(&self, like: &Descriptor, bytes: &[u8]) -> Option<Descriptor> {
        let mut block = self.rings.append_copy(self.own, &[bytes])?;
        (block.time, block.class) = (like.time, like.class);
        Some(block)
    }

    /// An empty block of this class in the filter's own ring, where there is no other to make it of.
    pub(super) fn nothing(&self, class: Class) -> Descriptor {
        Descriptor { time: self.now, class, ..self.own.block(0, 0) }
    }

    pub(super) fn count(&mut self, event: &'static str, count: u64) {
        self.counters.events.add(event, count);
    }

    /// The block under way ends here as it should not.
    pub(super) fn drop_block(&mut self, reason: &'static str) {
        self.counters.drops.add(reason, 1);
    }

    /// The block under way was not for this filter.
    pub(super) fn reject_block(&mut self) {
        self.counters.reject(self.marks, self.place);
    }
}
