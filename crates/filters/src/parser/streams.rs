//! Maps the streams of a ring that another process writes to streams of this process.
//!
//! In: blocks copied out of the ring, each with its header. Out: the same blocks as blocks of this process's streams, with
//! gaps marked.

use super::Continuity;
use base::limits::STREAMS;
use buffer::WIRE_MAX;
use filter::prelude::*;
use filter::ring_header::{BlockHeader, HEADER_BYTES, Header};

/// The longest gap that is given on: more than a ring loses, and a bound on what a broken writer can cause.
const GAP_BYTES: u64 = 1 << 36;

/// A class that no stream table has: the class of records without a stream.
const OF_NO_STREAM: Class = Class(u32::MAX);

/// The streams of one ring.
pub(crate) struct Streams {
    continuity: Continuity,
    /// By the writer's stream numbers. Grows with the highest number met.
    known: Vec<Known>,
}

/// One of the writer's streams.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The writer's epoch of this number. 0: no stream has had the number.
    epoch: u32,
    version: u32,
    /// The stream's number in this process.
    number: u32,
    /// The stream is in this process's table.
    is_open: bool,
    /// The stream began before this reader joined.
    late: bool,
    sides: [Side; 2],
}

/// One direction of a stream.
#[derive(Clone, Copy, Default)]
struct Side {
    begun: bool,
    ended: bool,
    /// Position of the next block, and time of the last.
    next: u64,
    time: u64,
    /// A message has begun and not ended.
    within: bool,
    /// Blocks were lost after the last message began.
    broken: bool,
}

impl Streams {
    pub(crate) fn continuity(&self) -> Continuity {
        self.continuity
    }

    pub(crate) fn new(continuity: Continuity) -> Streams {
        Streams { continuity, known: Vec::new() }
    }

    /// Gives a block on as a block of this process's stream. `false`: the bytes in front of it are no header.
    pub(crate) fn take(&mut self, mut block: Descriptor, header: &[u8; HEADER_BYTES], cx: &mut Context<'_>) -> bool {
        cx.counters.blocks_in += 1;
        let (number, direction) = (block.class.connection() as usize, block.class.direction());
        let BlockHeader { at, epoch, version, .. } = BlockHeader::of(header);
        if self.continuity == Continuity::Frames {
            give(block, cx);
            return true;
        }
        if number >= STREAMS || epoch == 0 {
            if self.continuity == Continuity::Records {
                block.class = OF_NO_STREAM;
                give(block, cx);
            } else {
                cx.drop(1, "no stream class");
            }
            return true;
        }
        if self.known.len() <= number {
            self.known.resize((number + 1).next_power_of_two(), Known::default());
        }
        let known = &mut self.known[number];
        if (known.epoch, known.version) != (epoch, version) {
            let is_late = self.continuity == Continuity::Bytes && !block.has(Flags::FIRST);
            let Some(header) = Header::from_bytes(header) else { return false };
            if !known.learn(&header, is_late, cx) {
                return true;
            }
        }
        block.class = Class::of_stream(known.number, direction);
        match self.continuity {
            Continuity::Bytes => known.bytes(block, at, cx),
            Continuity::Messages => known.message(block, at, cx),
            Continuity::Records | Continuity::Frames => give(block, cx),
        }
        true
    }
}

impl Streams {
    /// Ends everything under way, as filters in this process would at the end of a run.
    pub(crate) fn finish(&mut self, cx: &mut Context<'_>) {
        for known in &mut self.known {
            known.finish(self.continuity, cx);
        }
        self.known.clear();
    }
}

/// Gives a block on, and counts it.
fn give(block: Descriptor, cx: &mut Context<'_>) {
    cx.counters.blocks_taken += 1;
    cx.emit(block);
}

impl Known {
    /// Records new facts of a stream. `true`: its block can be given on.
    #[cold]
    fn learn(&mut self, header: &Header, is_late: bool, cx: &mut Context<'_>) -> bool {
        let is_another = self.epoch != header.epoch;
        let Some(mut facts) = header.facts.clone() else {
            // The writer has closed the stream. A reader that knows the stream keeps its last facts.
            if is_another {
                cx.counters.blocks_rejected += 1;
            } else {
                self.version = header.version;
            }
            return !is_another;
        };
        if is_another {
            if std::mem::take(&mut self.is_open) {
                cx.streams.close(self.number);
            }
            if is_late {
                begins_before(&mut facts);
            }
            let Some(number) = cx.streams.open(facts) else {
                *self = Known::default();
                cx.drop(1, "more streams than there are numbers");
                return false;
            };
            *self = Known { epoch: header.epoch, number, is_open: true, late: is_late, ..Known::default() };
        } else if let Some(there) = cx.streams.get_mut(Class::of_stream(self.number, 0)).filter(|_| self.is_open) {
            if self.late {
                begins_before(&mut facts);
            }
            *there = facts;
        }
        self.version = header.version;
        true
    }

    /// Gives a piece of a byte stream.
    #[inline]
    fn bytes(&mut self, mut block: Descriptor, at: u64, cx: &mut Context<'_>) {
        let side = &mut self.sides[usize::from(block.class.direction() & 1)];
        let accounted = u64::from(block.wire().max(block.len));
        let missing = at.saturating_sub(side.next);
        let is_first = !std::mem::replace(&mut side.begun, true);
        // Bytes before this reader joined are not missing. A first hole that is too long for a descriptor moves the
        // beginning.
        let is_before = is_first && (self.late || block.has(Flags::FIRST) || missing > u64::from(WIRE_MAX / 2));
        if missing > 0 && !is_before {
            miss(&mut block, missing, cx);
        }
        if is_first {
            block.add_flags(Flags::FIRST);
        }
        (side.next, side.time) = (at.wrapping_add(accounted), block.time);
        if block.has(Flags::LAST) {
            side.ended = true;
            self.ends(cx);
        }
        give(block, cx);
    }

    /// Ends a direction. The stream closes here once all begun directions have ended and the writer saw its end.
    #[cold]
    fn ends(&mut self, cx: &mut Context<'_>) {
        let is_over = self.sides.iter().all(|side| side.ended || !side.begun);
        let state = cx.streams.get(Class::of_stream(self.number, 0)).map(|facts| facts.state);
        let was_seen = matches!(state, Some(StreamState::Closed | StreamState::Reset | StreamState::Cut));
        if is_over && was_seen && std::mem::take(&mut self.is_open) {
            cx.streams.close(self.number);
        }
    }

    /// Gives a piece of a message.
    #[inline]
    fn message(&mut self, block: Descriptor, at: u64, cx: &mut Context<'_>) {
        let side = &mut self.sides[usize::from(block.class.direction() & 1)];
        let is_next = !std::mem::replace(&mut side.begun, true) || at == side.next;
        if !is_next {
            side.broken = true;
            cx.count("blocks of messages missing", at.saturating_sub(side.next));
            if std::mem::take(&mut side.within) {
                let mut end = block.part(0, 0);
                end.set_flags(Flags::LAST.with(Flags::TRUNCATED));
                cx.count("messages cut by loss", 1);
                cx.emit(end);
            }
        }
        (side.next, side.time) = (at.wrapping_add(1), block.time);
        if block.has(Flags::FIRST) {
            (side.within, side.broken) = (true, false);
        }
        if !side.within {
            // Not broken: the message began before this reader joined.
            match side.broken {
                true => cx.drop(1, "of a message of which a part was lost"),
                false => cx.counters.blocks_rejected += 1,
            }
            return;
        }
        side.within = !block.has(Flags::LAST);
        give(block, cx);
    }
}

impl Known {
    fn finish(&mut self, continuity: Continuity, cx: &mut Context<'_>) {
        for direction in 0..2u8 {
            let side = &mut self.sides[usize::from(direction)];
            let is_open = match continuity {
                Continuity::Bytes => side.begun && !side.ended,
                Continuity::Messages => side.within,
                Continuity::Records | Continuity::Frames => false,
            };
            if !is_open {
                continue;
            }
            (side.ended, side.within) = (true, false);
            let class = Class::of_stream(self.number, direction);
            if let Some(facts) = cx.streams.get_mut(class).filter(|_| self.is_open && continuity == Continuity::Bytes) {
                facts.state = StreamState::Cut;
            }
            let mut end = Descriptor { time: side.time, class, ..Descriptor::default() };
            end.set_flags(Flags::LAST.with(Flags::TRUNCATED));
            cx.emit(end);
        }
        // The source that replaces this one opens its own streams.
        if std::mem::take(&mut self.is_open) {
            cx.streams.close(self.number);
        }
    }
}

/// Marks a stream as met in its middle, like a stream that began before its capture.
fn begins_before(facts: &mut StreamFacts) {
    if matches!(facts.state, StreamState::Opening | StreamState::Established) {
        facts.state = StreamState::Midstream;
    }
}

/// Marks `missing` bytes before a block: with the block, as far as its length field can tell, the rest with empty blocks
/// before it.
#[cold]
pub(crate) fn miss(block: &mut Descriptor, missing: u64, cx: &mut Context<'_>) {
    let mut missing = missing.min(GAP_BYTES);
    cx.count("bytes of streams lost", missing);
    let room = u64::from(WIRE_MAX - block.wire().max(block.len).min(WIRE_MAX));
    while missing > room {
        let now = missing.min(u64::from(WIRE_MAX));
        let mut empty = block.part(0, 0);
        empty.set_wire(now as u32);
        empty.set_flags(Flags::GAP_BEFORE);
        cx.emit(empty);
        missing -= now;
    }
    if missing > 0 {
        block.set_wire(block.wire().max(block.len) + missing as u32);
        block.add_flags(Flags::GAP_BEFORE);
    }
}
