//! The context of all parts of `http` during a call: the output, and the state that connections share.

use super::row::SCHEMA;
use base::limits::{
    DECODED_TURN_BYTES, HTTP_RATIO_FREE_BYTES, HTTP_RATIO_FREE_TOTAL_BYTES, HTTP_SPARES, HTTP_TURN_BLOCKS,
};
use buffer::{BlockTable, ViewId};
use filter::prelude::*;
use filter::{Counters, Marks};
use protocols::http::decode::{Decoder, Spares, Spent};
use std::collections::VecDeque;

/// Bytes of another reading of a message (see `reading`).
#[derive(Debug)]
pub struct Other {
    /// Blocks that were given before it.
    pub behind: usize,
    /// Whether the client sent them.
    pub to_server: bool,
    /// The number of the reading in its message.
    pub number: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// State that all connections share.
#[derive(Debug)]
pub struct Shared {
    /// Undo content codings.
    pub(super) decode: bool,
    /// The first block of a message holds the bytes of its head instead of a record.
    pub raw_heads: bool,
    /// For each of these heads, the number of the request that it is or answers.
    pub requests: VecDeque<Option<u64>>,
    /// What other readings of messages have; for rules alone.
    pub others: Vec<Other>,
    /// Bytes came that may be part of a message and are in none, or a body is not decoded to its end.
    pub unseen: bool,
    /// Maximum decoded bytes of one message.
    pub(super) decoded_max: u64,
    /// Maximum decoded bytes for each coded byte, beyond the free ones.
    max_ratio: u64,
    /// The sum over all messages.
    pub(super) spent: Spent,
    /// Maximum bytes kept.
    memory: usize,
    /// The part of `memory` that is left for heads, requests and decoders of all connections.
    pub(super) memory_left: usize,
    pub(super) row: RowWriter,
    pub(super) inflaters: Spares,
    /// Buffers for heads that span blocks.
    heads: Vec<Vec<u8>>,
    /// A buffer for gathered coded bytes; empty between batches.
    pub(super) gather: Vec<u8>,
}

impl Shared {
    /// The state of a connection, with its limits on decoded bodies.
    pub fn new(decode: bool, decoded_max: u64, max_ratio: u64, memory: usize) -> Shared {
        Shared {
            decode,
            raw_heads: false,
            requests: VecDeque::new(),
            others: Vec::new(),
            unseen: false,
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

    /// Bytes that the codings of `message` may still make, with `at_hand` coded bytes waiting. Messages with a large
    /// ratio do not hold up one with a small ratio, because it adds more to the total than it uses.
    pub(super) fn decoding_budget(&self, message: &Spent, at_hand: usize) -> u64 {
        let total = self.spent.left(HTTP_RATIO_FREE_TOTAL_BYTES, self.max_ratio, at_hand);
        message.left(HTTP_RATIO_FREE_BYTES, self.max_ratio, at_hand).min(total)
    }

    /// Charges memory until it is [given back](Shared::give_back); `false` if there is too little.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        let left = self.memory_left.checked_sub(bytes);
        self.memory_left = left.unwrap_or(self.memory_left);
        left.is_some()
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.memory_left += bytes;
    }

    pub(super) fn is_even(&self) -> bool {
        self.memory_left == self.memory
    }

    pub(super) fn head_buffer(&mut self) -> Vec<u8> {
        self.heads.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next head and gives back its charge.
    pub(super) fn dismiss_head(&mut self, mut buffer: Vec<u8>) {
        self.give_back(buffer.len());
        buffer.clear();
        if buffer.capacity() > 0 && self.heads.len() < HTTP_SPARES {
            self.heads.push(buffer);
        }
    }

    /// Keeps the reusable parts of a decoder and gives back its charge.
    pub(super) fn dismiss_decoder(&mut self, decoder: Decoder) {
        self.give_back(decoder.bytes());
        decoder.dismantle(&mut self.inflaters);
    }
}

/// Output and counters of one call.
pub struct Exit<'a> {
    pub(super) rings: &'a BlockTable,
    pub(super) streams: &'a StreamTable,
    pub(super) own: ViewId,
    pub(super) shared: &'a mut Shared,
    pub(super) now: u64,
    /// Bodies are decoded: the request says so, and a filter reads them.
    pub(super) decodes: bool,
    /// The next block continues the stream right after this one.
    pub(super) goes_on: bool,
    out: &'a mut Vec<Descriptor>,
    counters: &'a mut Counters,
    marks: &'a mut Marks,
    /// The current block's place in its batch.
    pub(super) place: usize,
    /// Number of output blocks at which the call stops.
    out_enough: usize,
    decoded_bytes: usize,
}

impl<'a> Exit<'a> {
    /// An exit into the context `cx`.
    pub fn new(cx: &'a mut Context<'_>, shared: &'a mut Shared) -> Exit<'a> {
        Exit {
            rings: cx.rings,
            streams: cx.streams,
            own: cx.own,
            decodes: shared.decode && cx.bodies_are_read,
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

    /// Whether there is enough output for this call.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= self.out_enough || self.decoded_bytes >= DECODED_TURN_BYTES
    }

    pub(super) fn push(&mut self, block: Descriptor) {
        self.out.push(block);
    }

    /// Gives the written row as the first block of a message of this class.
    pub(super) fn push_row(&mut self, time: u64, class: Class, flags: Flags) {
        self.push_first(self.rings.append_copy(self.own, &[self.shared.row.row()]), time, class, flags);
    }

    /// Gives the bytes of a head as the first block of a message. `request`: the number of the request that the message
    /// is or answers.
    pub(super) fn push_head(&mut self, head: &[u8], request: Option<u64>, time: u64, class: Class, flags: Flags) {
        if self.push_first(self.rings.append_copy(self.own, &[head]), time, class, flags) {
            self.shared.requests.push_back(request);
        }
    }

    /// Gives a copy of bytes that another reading of the message of this direction has.
    pub(super) fn push_reading(&mut self, number: usize, to_server: bool, bytes: &[u8]) {
        if !bytes.is_empty() {
            let behind = self.out.len();
            self.shared.others.push(Other { behind, to_server, number, bytes: bytes.to_vec() });
        }
    }

    fn push_first(&mut self, block: Option<Descriptor>, time: u64, class: Class, flags: Flags) -> bool {
        let Some(mut block) = block else {
            // A head is far shorter than the maximum of a block.
            self.count("records too long", 1);
            return false;
        };
        self.count("messages", 1);
        (block.time, block.class) = (time, class);
        block.set_flags(flags.with(Flags::META).with(Flags::FIRST));
        self.push(block);
        true
    }

    /// Gives a block like `like` with at most `max` decoded bytes, which `fill` writes.
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

    /// Copies bytes to the filter's own ring, as a block like `like`. The block is not given yet.
    pub(super) fn copied(&self, like: &Descriptor, bytes: &[u8]) -> Option<Descriptor> {
        let mut block = self.rings.append_copy(self.own, &[bytes])?;
        (block.time, block.class) = (like.time, like.class);
        Some(block)
    }

    /// An empty block of this class in the filter's own ring, for when no other block exists.
    pub(super) fn nothing(&self, class: Class) -> Descriptor {
        Descriptor { time: self.now, class, ..self.own.block(0, 0) }
    }

    pub(super) fn count(&mut self, event: &'static str, count: u64) {
        self.counters.events.add(event, count);
    }

    /// Counts an event that leaves part of a message unread.
    pub(super) fn count_unseen(&mut self, event: &'static str) {
        self.count(event, 1);
        self.shared.unseen = true;
    }

    /// Counts the current block as dropped.
    pub(super) fn drop_block(&mut self, reason: &'static str) {
        self.counters.drops.add(reason, 1);
    }

    /// Rejects the current block: it is not for this filter.
    pub(super) fn reject_block(&mut self) {
        self.counters.reject(self.marks, self.place);
    }
}
