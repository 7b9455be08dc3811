//! Where the rest of a request begins whose first filters run elsewhere, once for several: a source that reads the ring
//! which an [`outlet`](super::outlet) writes.
//!
//! Blocks are copied out and come as they were: time, flags, gaps. Streams get numbers of this process's table, for there
//! may be others that make streams here. What is overwritten before it was read is lost, to the block, and what comes after
//! says so: a byte stream has a gap of the right length, a message that was under way ends truncated.
//!
//! Tiers: a block of a stream that is known, with nothing missing before it (nearly all), is copied, compared with what was
//! expected, and renumbered; the rest is for streams that begin, end, or have a hole.

use super::Continuity;
use super::header::{HEADER_BYTES, Header, Place};
use crate::parts::landing;
use base::limits::{BLOCK_BYTES, PULL_BLOCKS, STREAMS};
use buffer::pipe::PipeReader;
use buffer::{Interface, SegmentId, ViewId, WIRE_MAX};
use filter::prelude::*;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The ring's own count of what was lost is looked at this often at most while blocks come.
const LOOK_AT_BOOKS: Duration = Duration::from_millis(500);

/// The first and the longest nap between two looks; who has found nothing after that sleeps until it is woken.
const NAPS: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(8)];

/// A hole in a stream is said to be so long at most: more than a ring loses, and a bound for what a broken writer can ask for.
const GAP_BYTES: u64 = 1 << 36;

/// Who keeps the ring, as long as this reads it.
pub trait Keeper: Send {
    /// Why there is nothing more, as a whole sentence, where it said so before it went.
    fn last_word(&mut self) -> Option<String>;
}

/// A source of what others read, too. `what` names it for people.
pub fn inlet(mut ring: PipeReader, continuity: Continuity, what: String, keeper: Box<dyn Keeper>) -> Instance {
    ring.set_non_blocking(true);
    Instance::source(Inlet {
        ring,
        what,
        keeper,
        memory: None,
        streams: Streams { continuity, known: Vec::new() },
        lost: 0,
        looked: Instant::now(),
        nap: NAPS[0],
        stopped: None,
    })
}

struct Inlet {
    ring: PipeReader,
    what: String,
    keeper: Box<dyn Keeper>,
    memory: Option<(SegmentId, ViewId)>,
    streams: Streams,
    /// Blocks lost that were counted.
    lost: u64,
    looked: Instant,
    nap: Duration,
    /// Blocks it may still give, since the run is to end.
    stopped: Option<u64>,
}

/// What a look into the ring found.
enum Found {
    Block,
    Nothing,
    End,
}

/// What blocks that are taken become.
struct Taking<'a, 'c> {
    cx: &'a mut Context<'c>,
    streams: &'a mut Streams,
    /// Blocks that are none.
    damaged: u64,
}

impl Inlet {
    /// The view to append to; what was appended before the last call has gone all the way down, or is held.
    fn view(&mut self, cx: &mut Context<'_>) -> Result<ViewId, Box<Failure>> {
        if let Some((segment, view)) = self.memory {
            cx.rings.recycle(segment);
            return Ok(view);
        }
        let segment = cx.rings.add_append_ring();
        let view = cx.rings.add_view(segment, Interface::default());
        let view = view.ok_or_else(|| Box::new(Failure::System("there are more sources than views".into())))?;
        self.memory = Some((segment, view));
        Ok(view)
    }

    /// Copies out the blocks that are there, `most` at most, and gives them on; says how many it met.
    fn take(&mut self, most: usize, view: ViewId, cx: &mut Context<'_>) -> Result<usize, Box<Failure>> {
        let mut taking = Taking { cx, streams: &mut self.streams, damaged: 0 };
        let looks = self.ring.take_each(
            most,
            &mut taking,
            |taking, about, bytes| {
                let len = bytes.len().checked_sub(HEADER_BYTES).filter(|len| *len <= BLOCK_BYTES)?;
                let mut header = [0; HEADER_BYTES];
                bytes.copy_to(&mut header);
                let payload = bytes.part(HEADER_BYTES, len);
                let (mut copy, ()) = taking.cx.rings.append(view, len, |space| (payload.copy_to(space), ()))?;
                (copy.time, copy.class) = (about.time, about.class);
                // The length of an empty block that stands for nothing would be that of its header.
                let is_empty = len == 0 && !about.has(Flags::GAP_BEFORE);
                copy.set_wire(if is_empty { 0 } else { about.wire() });
                copy.set_flags(about.flags());
                Some((copy, header))
            },
            |taking, taken| match taken {
                Some((copy, header)) => taking.damaged += u64::from(!taking.streams.take(copy, &header, taking.cx)),
                None => taking.damaged += 1,
            },
        );
        if taking.damaged > 0 { self.damaged() } else { Ok(looks) }
    }

    /// Why there is no block: whether there will be any.
    fn look(&mut self) -> Result<Found, Box<Failure>> {
        match self.ring.peek() {
            Ok(Some(block)) if block.is_elsewhere() => self.damaged(),
            Ok(Some(_)) => Ok(Found::Block),
            Ok(None) => Ok(Found::End),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Found::Nothing),
            // Its keeper and its writer are one process: gone together.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(Found::End),
            Err(error) => Err(Box::new(Failure::System(format!("{}: {error}", self.what)))),
        }
    }

    fn damaged<T>(&self) -> Result<T, Box<Failure>> {
        Err(Box::new(Failure::System(format!("{}: what comes makes no sense", self.what))))
    }

    /// Brings what the ring counts into the counters.
    fn book(&mut self, cx: &mut Context<'_>) {
        self.looked = Instant::now();
        let lost = self.ring.stat().ring.lost;
        let more = lost.saturating_sub(std::mem::replace(&mut self.lost, lost));
        if more > 0 {
            cx.counters.blocks_in += more;
            cx.counters.drops.add("overwritten before they were read", more);
        }
    }
}

impl Source for Inlet {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let view = self.view(cx)?;
        if self.looked.elapsed() > LOOK_AT_BOOKS {
            self.book(cx);
        }
        let most = self.stopped.map_or(PULL_BLOCKS as u64, |left| left.min(PULL_BLOCKS as u64));
        let looks = self.take(most as usize, view, cx)?;
        if let Some(left) = &mut self.stopped {
            *left -= looks as u64;
            let is_all = *left == 0 || looks == 0 && !matches!(self.look()?, Found::Block);
            return Ok(if is_all { Pull::End } else { Pull::Ready });
        }
        if looks > 0 {
            self.nap = NAPS[0];
            self.ring.close_poll_fd();
            return Ok(Pull::Ready);
        }
        let found = self.look()?;
        if let Found::Block = found {
            return Ok(Pull::Ready);
        }
        if let Found::End = found {
            let gone = || format!("`{}` has ended: the process that runs it for several requests is gone", self.what);
            return Err(Box::new(Failure::System(self.keeper.last_word().unwrap_or_else(gone))));
        }
        let nap = self.nap;
        self.nap = (nap * 2).min(NAPS[1]);
        Ok(Pull::Idle(nap))
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        // It takes a thread: worth it for a sleep, not for a nap.
        if self.nap < NAPS[1] { None } else { self.ring.poll_fd().ok() }
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.ring.close_poll_fd();
        // All that the ring can hold was there when these were given.
        self.stopped = Some(self.ring.stat().units);
        true
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        self.book(cx);
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.book(cx);
        self.streams.finish(cx);
        if let Some((segment, _)) = self.memory.take() {
            cx.rings.retire(segment);
        }
    }
}

/// The streams of one ring, and their numbers here.
struct Streams {
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
    /// Gives a block on, as one of a stream of this process. False where what stands before it is no header.
    fn take(&mut self, mut block: Descriptor, header: &[u8; HEADER_BYTES], cx: &mut Context<'_>) -> bool {
        cx.counters.blocks_in += 1;
        let (number, direction) = (block.class.connection() as usize, block.class.direction());
        let Place { at, epoch, version } = Place::of(header);
        if number >= STREAMS || epoch == 0 {
            cx.drop(1, "no stream class");
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
            Continuity::Records => give(block, cx),
        }
        true
    }
}

impl Streams {
    /// What is under way ends here, as it does where the filters before this one run in the same process.
    fn finish(&mut self, cx: &mut Context<'_>) {
        for known in &mut self.known {
            known.finish(self.continuity, cx);
        }
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
        let Some(mut facts) = header.facts else {
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
                Continuity::Records => false,
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
fn miss(block: &mut Descriptor, missing: u64, cx: &mut Context<'_>) {
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
