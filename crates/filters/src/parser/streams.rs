//! The streams of a ring that another process writes, and their numbers here: whose each block is, and what is missing before
//! it.
//!
//! In: blocks copied out of the ring, each with its header. Out: the same blocks as of streams of this process, with gaps told.

use super::Continuity;
use base::limits::STREAMS;
use buffer::WIRE_MAX;
use filter::prelude::*;
use filter::ring_header::{HEADER_BYTES, Header, Place};

/// A hole in a stream is said to be so long at most: more than a ring loses, and a bound for what a broken writer can ask for.
const GAP_BYTES: u64 = 1 << 36;

/// Stands for no stream: no table has this number.
const OF_NO_STREAM: Class = Class(u32::MAX);

/// The streams of one ring, and their numbers here.
pub(crate) struct Streams {
    continuity: Continuity,
    /// By their numbers there. Grows with the highest met.
    known: Vec<Known>,
}

/// A stream.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Which stream of that number; 0 = none yet.
    epoch: u32,
    version: u32,
    /// Its number here.
    number: u32,
    /// Its facts are in the table here.
    is_open: bool,
    /// Its beginning was before this reader's.
    late: bool,
    sides: [Side; 2],
}

/// A direction of a stream.
#[derive(Clone, Copy, Default)]
struct Side {
    begun: bool,
    ended: bool,
    /// Where its next block is, and when its last one was seen.
    next: u64,
    time: u64,
    /// A message is under way.
    within: bool,
    /// A part of the message was lost, or its beginning was before this reader's.
    broken: bool,
}

impl Streams {
    /// Of which sort its blocks are.
    pub(crate) fn continuity(&self) -> Continuity {
        self.continuity
    }

    /// Of none as yet, of blocks of this sort.
    pub(crate) fn new(continuity: Continuity) -> Streams {
        Streams { continuity, known: Vec::new() }
    }

    /// Gives a block on, as one of a stream of this process. False where what stands before it is no header.
    pub(crate) fn take(&mut self, mut block: Descriptor, header: &[u8; HEADER_BYTES], cx: &mut Context<'_>) -> bool {
        cx.counters.blocks_in += 1;
        let (number, direction) = (block.class.connection() as usize, block.class.direction());
        let Place { at, epoch, version, .. } = Place::of(header);
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
    /// What is under way ends here, as it does where the filters before this one run in the same process.
    pub(crate) fn finish(&mut self, cx: &mut Context<'_>) {
        for known in &mut self.known {
            known.finish(self.continuity, cx);
        }
        self.known.clear();
    }
}

/// One block that came is one that goes.
fn give(block: Descriptor, cx: &mut Context<'_>) {
    cx.counters.blocks_taken += 1;
    cx.emit(block);
}

impl Known {
    /// Takes note of what is new about the stream; says whether its block can be given.
    #[cold]
    fn learn(&mut self, header: &Header, is_late: bool, cx: &mut Context<'_>) -> bool {
        let is_another = self.epoch != header.epoch;
        let Some(mut facts) = header.facts.clone() else {
            // It is over there. Who knows it has what was last known of it.
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

    /// A piece of a byte stream.
    #[inline]
    fn bytes(&mut self, mut block: Descriptor, at: u64, cx: &mut Context<'_>) {
        let side = &mut self.sides[usize::from(block.class.direction() & 1)];
        let accounted = u64::from(block.wire().max(block.len));
        let missing = at.saturating_sub(side.next);
        let is_first = !std::mem::replace(&mut side.begun, true);
        // What was before this reader is not missing. A stream that begins with a hole that is too long to tell begins later.
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

    /// The last block of a direction: when all that were heard have ended, the stream is over here as it is there, where its
    /// end was seen.
    #[cold]
    fn ends(&mut self, cx: &mut Context<'_>) {
        let is_over = self.sides.iter().all(|side| side.ended || !side.begun);
        let state = cx.streams.get(Class::of_stream(self.number, 0)).map(|facts| facts.state);
        let was_seen = matches!(state, Some(StreamState::Closed | StreamState::Reset | StreamState::Cut));
        if is_over && was_seen && std::mem::take(&mut self.is_open) {
            cx.streams.close(self.number);
        }
    }

    /// A piece of a message.
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
                cx.count("messages cut by what was lost", 1);
                cx.emit(end);
            }
        }
        (side.next, side.time) = (at.wrapping_add(1), block.time);
        if block.has(Flags::FIRST) {
            (side.within, side.broken) = (true, false);
        }
        if !side.within {
            // Before the first loss it is what began before this reader did.
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
        // Whatever takes this source's place has numbers of its own.
        if std::mem::take(&mut self.is_open) {
            cx.streams.close(self.number);
        }
    }
}

/// The stream is met in its middle, as one is whose beginning is not in a capture.
fn begins_before(facts: &mut StreamFacts) {
    if matches!(facts.state, StreamState::Opening | StreamState::Established) {
        facts.state = StreamState::Midstream;
    }
}

/// Says before a block that bytes are missing: with it, as far as it can tell, and by empty blocks before it.
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
