//! The ear of `http` and `http2`: facts become records, places of bodies become blocks. What rules hear of HTTP/1 goes the
//! same way.

use super::row::{SCHEMA, unfolded};
use crate::parts::eve::begin_row;
use base::limits::HTTP_TURN_BLOCKS;
use buffer::descriptor::WIRE_MAX;
use buffer::{BlockTable, ViewId};
use filter::prelude::*;
use filter::{Counters, Marks};
use protocols::conversation::{Body, Ear, Fact as _, How, Id};
use protocols::http::shared::Shared;
use protocols::http::{Fact, body};
use std::collections::VecDeque;

/// Bytes of another reading of a message (see [`reading`](protocols::http::reading)).
#[derive(Debug)]
pub struct Other {
    /// Blocks that were given before it.
    pub behind: usize,
    /// The client sent them.
    pub to_server: bool,
    /// The number of the reading in its message.
    pub number: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What rules ask for and get.
#[derive(Debug, Default)]
pub struct ForRules {
    /// The first block of a message holds the bytes of its head instead of a record.
    pub raw_heads: bool,
    /// For each of these heads, the number of the request that it is or answers.
    pub requests: VecDeque<Option<u64>>,
    /// What other readings of messages have.
    pub others: Vec<Other>,
    /// Bytes came that may be part of a message and are in none, or a body is not decoded to its end.
    pub unseen: bool,
}

/// State that all connections share.
#[derive(Debug)]
pub struct Common {
    /// Limits and memory.
    pub shared: Shared,
    row: RowWriter,
    /// What rules ask for and get.
    pub rules: ForRules,
}

impl Common {
    /// The state of a filter with these limits.
    pub fn new(shared: Shared) -> Common {
        Common { shared, row: RowWriter::new(&SCHEMA), rules: ForRules::default() }
    }
}

/// What parts of `http` need during a call.
pub struct Exit<'a> {
    /// Limits and memory.
    pub shared: &'a mut Shared,
    /// The ear.
    pub out: Output<'a>,
    /// The next block continues the stream right after this one.
    pub(crate) goes_on: bool,
}

/// Output and counters of one call.
pub struct Output<'a> {
    pub(crate) rings: &'a BlockTable,
    pub(crate) streams: &'a mut StreamTable,
    own: ViewId,
    now: u64,
    out: &'a mut Vec<Descriptor>,
    counters: &'a mut Counters,
    marks: &'a mut Marks,
    row: &'a mut RowWriter,
    pub(crate) rules: &'a mut ForRules,
    /// The block that is read, in the class of its message.
    pub(crate) block: Descriptor,
    /// Bytes missing before the next block.
    gap: u32,
    /// The current block's place in its batch.
    pub(crate) place: usize,
    /// Number of output blocks at which the call stops.
    out_enough: usize,
}

impl<'a> Exit<'a> {
    /// Begins a call.
    pub fn new(cx: &'a mut Context<'_>, common: &'a mut Common) -> Exit<'a> {
        let Common { shared, row, rules } = common;
        shared.begin_turn(cx.bodies_are_read);
        let out = Output {
            rings: cx.rings,
            streams: cx.streams,
            own: cx.own,
            now: cx.now,
            out_enough: cx.out.len() + HTTP_TURN_BLOCKS,
            out: cx.out,
            counters: cx.counters,
            marks: cx.marks,
            row,
            rules,
            block: cx.own.block(0, 0),
            gap: 0,
            place: 0,
        };
        Exit { shared, out, goes_on: false }
    }

    /// Whether there is enough output for this call.
    pub(crate) fn is_full(&self) -> bool {
        body::is_full(self.shared, &self.out)
    }

    pub(crate) fn count(&mut self, event: &'static str, count: u64) {
        self.out.counters.events.add(event, count);
    }

    /// Counts an event that leaves part of a message unread.
    pub(crate) fn count_unseen(&mut self, event: &'static str) {
        self.count(event, 1);
        self.out.rules.unseen = true;
    }
}

impl Output<'_> {
    /// Gives the written row as the first block of a message.
    pub(crate) fn push_row(&mut self, flags: Flags) {
        let block = self.rings.append_copy(self.own, &[self.row.row()]);
        self.push_first(block, flags);
    }

    /// Gives the bytes of a head as the first block of a message. `request`: the number of the request that the message
    /// is or answers.
    pub(crate) fn push_head(&mut self, head: &[u8], request: Option<u64>, flags: Flags) {
        if self.push_first(self.rings.append_copy(self.own, &[head]), flags) {
            self.rules.requests.push_back(request);
        }
    }

    fn push_first(&mut self, block: Option<Descriptor>, flags: Flags) -> bool {
        let Some(mut block) = block else {
            // A head is far shorter than the maximum of a block.
            self.count("records too long", 1);
            return false;
        };
        self.count("messages", 1);
        (block.time, block.class) = (self.block.time, self.block.class);
        block.set_flags(flags.with(Flags::META).with(Flags::FIRST));
        self.out.push(block);
        true
    }

    /// Gives a block of a body, with the gap before it.
    fn give(&mut self, mut part: Descriptor, flags: Flags) {
        let gap = std::mem::take(&mut self.gap);
        if gap > 0 && gap > WIRE_MAX.saturating_sub(part.len) {
            self.give_gap(gap);
        } else if gap > 0 {
            part.set_wire(gap + part.len);
            part.add_flags(Flags::GAP_BEFORE);
        }
        part.add_flags(flags);
        self.out.push(part);
    }

    fn give_gap(&mut self, gap: u32) {
        let mut empty = self.block.part(0, 0);
        empty.set_wire(gap);
        empty.set_flags(Flags::GAP_BEFORE);
        self.out.push(empty);
    }

    fn piece(&mut self, piece: Body<'_>, flags: Flags) {
        let block = match piece {
            Body::Range(range) => Some(self.block.part(range.start as u32, range.len() as u32)),
            Body::Kept(bytes, time) => self.rings.append_copy(self.own, &[bytes]).map(|mut block| {
                (block.time, block.class) = (time, self.block.class);
                block
            }),
            Body::Missing(mut missing) => {
                // More than one block can say.
                while missing > WIRE_MAX - self.gap {
                    missing -= WIRE_MAX - std::mem::take(&mut self.gap);
                    self.give_gap(WIRE_MAX);
                }
                self.gap += missing;
                None
            }
        };
        if let Some(block) = block {
            self.give(block, flags);
        }
    }

    /// An empty block of this class in the filter's own ring, for when no other block exists.
    pub(crate) fn nothing(&self, class: Class) -> Descriptor {
        Descriptor { time: self.now, class, ..self.own.block(0, 0) }
    }

    /// Counts the current block as dropped.
    pub(crate) fn drop_block(&mut self, reason: &'static str) {
        self.counters.drops.add(reason, 1);
    }

    /// Rejects the current block: it is not for this filter.
    pub(crate) fn reject_block(&mut self) {
        self.counters.reject(self.marks, self.place);
    }
}

/// What the flags of the last block say of how a message ended.
fn last(how: How) -> Flags {
    match how {
        How::Complete | How::Interim => Flags::LAST,
        How::Gap | How::Cut => Flags::LAST.with(Flags::TRUNCATED),
        How::Limit => Flags::LAST.with(Flags::TRUNCATED).with(Flags::LIMITED),
    }
}

impl Ear<Fact> for Output<'_> {
    fn begin(&mut self, _id: Id) {
        begin_row(self.row, self.block.time, self.block.class, self.streams.get(self.block.class));
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        unfolded(self.row, Fact::ALL[fact.number()].field[id.side.index()], value);
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        let field = Fact::ALL[fact.number()].field[id.side.index()];
        if !field.is_empty() {
            self.row.number(field, value);
        }
    }

    fn head_done(&mut self, _id: Id) {
        self.push_row(Flags::NONE);
    }

    fn bare(&mut self, _id: Id, how: How) {
        self.push_row(last(how));
    }

    fn body(&mut self, _id: Id, piece: Body<'_>) {
        self.piece(piece, Flags::NONE);
    }

    fn last(&mut self, _id: Id, piece: Body<'_>) {
        self.piece(piece, Flags::LAST);
    }

    fn room(&mut self, _id: Id, max: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) {
        if let Some((mut block, ())) = self.rings.append(self.own, max, |space| (fill(space), ()))
            && block.len > 0
        {
            (block.time, block.class) = (self.block.time, self.block.class);
            self.out.push(block);
        }
    }

    fn reading(&mut self, id: Id, number: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            let (behind, to_server) = (self.out.len(), id.side.is_client());
            self.rules.others.push(Other { behind, to_server, number, bytes: bytes.to_vec() });
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() >= self.out_enough
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.count(what, 1);
        self.rules.unseen = true;
    }

    fn count(&mut self, what: &'static str, times: u64) {
        self.counters.events.add(what, times);
    }

    fn end(&mut self, _id: Id, how: How) {
        self.give(self.block.part(0, 0), last(how));
    }
}
