//! The ears of `http`, `http2` and `websocket`: facts become records, places of bodies become blocks.

use super::fields;
use crate::parts::eve::begin_row;
use base::limits::HTTP_TURN_BLOCKS;
use buffer::descriptor::WIRE_MAX;
use buffer::{BlockTable, ViewId};
use filter::prelude::*;
use filter::{Counters, Marks};
use protocols::conversation::{Body, Ear, Fact, How, Id, Kind, Side};
use protocols::http::Input;
use protocols::http::shared::Shared;
use protocols::http::upgrade::{Turn, Upgrade};
use std::collections::BTreeMap;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Common {
    /// Limits and memory.
    pub(crate) shared: Shared,
    row: RowWriter,
    /// The records have the fields of heads even if no filter names them.
    pub(crate) gives_fields: bool,
}

impl Common {
    /// The state of a filter with these limits and records.
    pub(crate) fn new(shared: Shared, schema: &'static Schema) -> Common {
        Common { shared, row: RowWriter::new(schema), gives_fields: false }
    }
}

/// Output and counters of one call.
pub(crate) struct Output<'a> {
    pub(crate) rings: &'a BlockTable,
    pub(crate) streams: &'a mut StreamTable,
    own: ViewId,
    now: u64,
    out: &'a mut Vec<Descriptor>,
    counters: &'a mut Counters,
    marks: &'a mut Marks,
    row: &'a mut RowWriter,
    /// Records have the fields of heads.
    fields_are_wanted: bool,
    /// The block that is read, in the class of its message.
    pub(crate) block: Descriptor,
    /// When the next message began, if before the block.
    since: Option<u64>,
    /// When the current message began.
    time: u64,
    /// Bytes missing before the next block.
    gap: u32,
    /// The current block's place in its batch.
    pub(crate) place: usize,
    /// Number of output blocks at which the call stops.
    out_enough: usize,
}

impl<'a> Output<'a> {
    /// Begins a call.
    pub(crate) fn new(cx: &'a mut Context<'_>, common: &'a mut Common) -> (Output<'a>, &'a mut Shared) {
        let Common { shared, row, gives_fields } = common;
        shared.begin_turn(cx.wanted.bodies());
        row.want(cx.wanted);
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
            fields_are_wanted: *gives_fields || fields::are_named(cx.wanted),
            block: cx.own.block(0, 0),
            since: None,
            time: 0,
            gap: 0,
            place: 0,
        };
        (out, shared)
    }
}

impl Output<'_> {
    /// Whether the connection of this class was joined midway.
    fn is_midstream(&self, class: Class) -> bool {
        self.streams.get(class).is_some_and(|facts| facts.state == StreamState::Midstream)
    }

    /// Gives the written row as the first block of a message.
    pub(crate) fn push_row(&mut self, flags: Flags) {
        let Some(mut block) = self.rings.append_copy(self.own, &[self.row.row()]) else {
            // A head is far shorter than the maximum of a block.
            return self.counters.events.add("records too long", 1);
        };
        self.counters.events.add("messages", 1);
        (block.time, block.class) = (self.time, self.block.class);
        block.set_flags(flags.with(Flags::META).with(Flags::FIRST));
        self.out.push(block);
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

impl<F: Fact> Ear<F> for Output<'_> {
    fn since(&mut self, _id: Id, time: u64) {
        self.since = Some(time);
    }

    fn begin(&mut self, _id: Id) {
        self.time = self.since.take().unwrap_or(self.block.time);
        begin_row(self.row, self.time, self.block.class, self.streams.get(self.block.class));
    }

    fn fact(&mut self, id: Id, fact: F, value: &[u8]) {
        self.row.text(fact.about().field[id.side.index()], fields::unfold(value));
    }

    fn head(&mut self, _id: Id, bytes: &[u8]) {
        if self.fields_are_wanted {
            fields::write(bytes, self.row, self.counters);
        }
    }

    fn number(&mut self, id: Id, fact: F, value: u64) {
        let about = fact.about();
        match about.field[id.side.index()] {
            "" => {}
            field if matches!(about.kind, Kind::Word(_)) => _ = self.row.text(field, about.kind.word(value)),
            field => _ = self.row.number(field, value),
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

    fn is_midstream(&self) -> bool {
        Output::is_midstream(self, self.block.class)
    }

    fn is_full(&self) -> bool {
        self.out.len() >= self.out_enough
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.counters.events.add(what, 1);
    }

    fn count(&mut self, what: &'static str, times: u64) {
        self.counters.events.add(what, times);
    }

    fn end(&mut self, _id: Id, how: How) {
        self.give(self.block.part(0, 0), last(how));
    }
}

/// Gives the messages of each exchange of a connection in a class of their own.
pub(crate) struct Apart<'a, 'b> {
    pub(crate) out: &'a mut Output<'b>,
    /// The stream numbers of the exchanges in the output.
    pub(crate) numbers: &'a mut BTreeMap<u64, u32>,
    /// The class of the connection.
    pub(crate) class: Class,
    /// Counts exchanges that are left out because all numbers are in use.
    pub(crate) unnumbered: &'static str,
}

impl<'b> Apart<'_, 'b> {
    /// The output in the class of this message. `None`: it has none.
    fn of(&mut self, id: Id) -> Option<&mut Output<'b>> {
        let number = *self.numbers.get(&id.exchange)?;
        self.out.block.class = Class::of_stream(number, id.side.index() as u8);
        Some(self.out)
    }
}

impl<F: Fact> Ear<F> for Apart<'_, '_> {
    fn begin(&mut self, id: Id) {
        if !self.numbers.contains_key(&id.exchange) {
            let facts = self.out.streams.get(self.class).cloned();
            match facts.and_then(|facts| self.out.streams.open(facts)) {
                Some(number) => _ = self.numbers.insert(id.exchange, number),
                None => Ear::<F>::count(self.out, self.unnumbered, 1),
            }
        }
        if let Some(out) = self.of(id) {
            Ear::<F>::begin(out, id);
        }
    }

    fn fact(&mut self, id: Id, fact: F, value: &[u8]) {
        self.out.fact(id, fact, value);
    }

    fn head(&mut self, id: Id, bytes: &[u8]) {
        Ear::<F>::head(self.out, id, bytes);
    }

    fn number(&mut self, id: Id, fact: F, value: u64) {
        self.out.number(id, fact, value);
    }

    fn head_done(&mut self, id: Id) {
        if let Some(out) = self.of(id) {
            Ear::<F>::head_done(out, id);
        }
    }

    fn bare(&mut self, id: Id, how: How) {
        if let Some(out) = self.of(id) {
            Ear::<F>::bare(out, id, how);
        }
    }

    fn body(&mut self, id: Id, piece: Body<'_>) {
        if let Some(out) = self.of(id) {
            Ear::<F>::body(out, id, piece);
        }
    }

    fn room(&mut self, id: Id, max: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) {
        if let Some(out) = self.of(id) {
            Ear::<F>::room(out, id, max, fill);
        }
    }

    fn is_full(&self) -> bool {
        Ear::<F>::is_full(self.out)
    }

    fn lost(&mut self, id: Id, what: &'static str) {
        Ear::<F>::lost(self.out, id, what);
    }

    fn count(&mut self, what: &'static str, times: u64) {
        Ear::<F>::count(self.out, what, times);
    }

    fn end(&mut self, id: Id, how: How) {
        if let Some(out) = self.of(id) {
            Ear::<F>::end(out, id, how);
        }
    }

    fn over(&mut self, exchange: u64) {
        if let Some(number) = self.numbers.remove(&exchange) {
            self.out.streams.close(number);
        }
    }
}

/// A block as HTTP/1 reads it.
pub(crate) fn input<'a>(block: &Descriptor, bytes: &'a [u8], more_follows: bool) -> Input<'a> {
    Input {
        bytes,
        time: block.time,
        gap: block.gap(),
        is_first: block.has(Flags::FIRST),
        is_last: block.has(Flags::LAST),
        is_truncated: block.has(Flags::TRUNCATED),
        more_follows,
    }
}

/// HTTP/1 in front of a filter's protocol; `None`: the connection has turned, or began with the protocol.
pub(crate) struct Before(Option<Upgrade>);

impl Default for Before {
    fn default() -> Before {
        Before(Some(Upgrade::default()))
    }
}

impl Before {
    /// Reads a block; tells where in it the connection turns.
    pub(crate) fn turn(&mut self, block: &Descriptor, out: &Output<'_>, shared: &mut Shared) -> Option<Turn> {
        let (side, input) = (block.class.direction(), input(block, out.rings.bytes(block), false));
        let is_midstream = out.is_midstream(block.class);
        let turn = self.0.as_mut()?.feed(Side::to_server(side == 0), &input, is_midstream, shared)?;
        self.end(shared);
        // What goes through a tunnel may be HTTP/1 again.
        self.0 = turn.to.is_none().then(Upgrade::default);
        Some(turn)
    }

    /// Reads no more.
    pub(crate) fn end(&mut self, shared: &mut Shared) {
        if let Some(upgrade) = self.0.take() {
            upgrade.end(shared);
        }
    }
}
