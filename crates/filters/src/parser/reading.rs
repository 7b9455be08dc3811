//! Reads a ring that another process writes: copies its blocks out, with their times, flags and gaps.
//!
//! Tiers: nearly every block belongs to a known stream and misses nothing before it. Such a block is copied, compared with
//! the expected position, and renumbered. All other code serves streams that begin, end, or have a hole.

use super::Continuity;
use super::streams::Streams;
use base::limits::{BLOCK_BYTES, PULL_BLOCKS};
use buffer::pipe::{End, PipeReader};
use buffer::ring::RingKind;
use buffer::{Interface, SegmentId, ViewId};
use filter::Moment;
use filter::prelude::*;
use filter::ring_header::{BlockHeader, HEADER_BYTES};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Shortest time between two looks at the ring's count of lost blocks, while blocks come.
const LOOK_AT_BOOKS: Duration = Duration::from_millis(500);

/// The first nap between two looks. Each further nap is twice as long.
const FIRST_NAP: Duration = Duration::from_micros(500);

/// The longest nap if the request states no latency. A reader that finds nothing after it sleeps until the writer wakes it.
const LONGEST_NAP: Duration = Duration::from_millis(8);

/// Limit of different link types in one ring.
const LINK_TYPES: usize = 64;

/// A ring, and how far it was read.
pub(crate) struct Reading {
    ring: PipeReader,
    what: String,
    memory: Memory,
    streams: Streams,
    /// Number of the ring's current writer. The next writer's streams have nothing in common with this one's.
    generation: u32,
    /// The only stream of a ring without headers.
    plain: Option<Plain>,
    /// The writer's time, if the last pull met a mark.
    marked: Option<u64>,
    /// Lost blocks and dead writers that were counted already.
    lost: u64,
    writers_died: u64,
    looked: Instant,
    nap: Duration,
    longest_nap: Duration,
    /// Blocks that may still be given after the stop. `None`: not stopped.
    stopped: Option<u64>,
}

/// The result of a pull.
pub(crate) enum Found {
    /// There may be blocks: go on.
    Blocks,
    /// No blocks now. Look again after this long.
    Nothing(Duration),
    /// The end of the ring, with its reason. `None`: the session stopped the reading.
    End(Option<End>),
}

/// The only stream of a ring without headers, which `pipe write` or another program writes.
struct Plain {
    class: Class,
    time: u64,
    begun: bool,
    /// Lost units that gaps of the stream have reported already.
    lost: u64,
}

/// Where blocks are copied to: one view for each link type that came.
#[derive(Default)]
struct Memory {
    name: String,
    segment: Option<SegmentId>,
    views: Vec<(Option<u16>, ViewId)>,
}

impl Memory {
    /// Frees memory of earlier pulls: their blocks have gone all the way down, or are held.
    fn recycle(&mut self, cx: &mut Context<'_>) {
        match self.segment {
            Some(segment) => cx.rings.recycle(segment),
            None => self.segment = Some(cx.rings.add_append_ring()),
        }
    }

    /// The view for blocks of this link type. `None`: there are too many link types.
    fn view(&mut self, link_type: Option<u16>, cx: &mut Context<'_>) -> Option<ViewId> {
        if let Some((_, view)) = self.views.iter().find(|(known, _)| *known == link_type) {
            return Some(*view);
        }
        let segment = self.segment.filter(|_| self.views.len() < LINK_TYPES)?;
        let name = link_type.map(|_| self.name.clone());
        let view = cx.rings.add_view(segment, Interface { link_type, name, ..Interface::default() })?;
        self.views.push((link_type, view));
        Some(view)
    }
}

/// Where copied blocks go.
struct Taking<'a, 'c> {
    cx: &'a mut Context<'c>,
    streams: &'a mut Streams,
    memory: &'a mut Memory,
    /// Number of blocks whose header makes no sense.
    damaged: u64,
    marked: &'a mut Option<u64>,
}

impl Reading {
    /// A ring with blocks of this continuity. `what` names it in messages. `latency`: how late a block may be found at most
    /// (`None`: [`LONGEST_NAP`]).
    pub(crate) fn new(
        mut ring: PipeReader,
        continuity: Continuity,
        what: String,
        latency: Option<Duration>,
    ) -> Reading {
        let longest_nap = latency.unwrap_or(LONGEST_NAP);
        ring.set_non_blocking(true);
        let generation = ring.stat().generation;
        Reading {
            ring,
            memory: Memory { name: what.clone(), ..Memory::default() },
            what,
            streams: Streams::new(continuity),
            generation,
            plain: None,
            marked: None,
            lost: 0,
            writers_died: 0,
            looked: Instant::now(),
            nap: FIRST_NAP.min(longest_nap),
            longest_nap,
            stopped: None,
        }
    }

    /// The ring's name in messages.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Gives the blocks in the ring, at most as many as one pull may.
    pub(crate) fn pull(&mut self, cx: &mut Context<'_>) -> Result<Found, Box<Failure>> {
        self.memory.recycle(cx);
        self.marked = None;
        let generation = self.ring.stat().generation;
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.end_streams(cx);
        }
        if self.looked.elapsed() > LOOK_AT_BOOKS {
            self.book(cx);
        }
        let most = self.stopped.map_or(PULL_BLOCKS as u64, |left| left.min(PULL_BLOCKS as u64)) as usize;
        let looks = if self.is_plain() { self.take_plain(most, cx)? } else { self.take(most, cx)? };
        if let Some(left) = &mut self.stopped {
            *left = left.saturating_sub(looks as u64);
            let is_all = *left == 0 || looks == 0 && !matches!(self.look()?, Found::Blocks);
            return Ok(if is_all { Found::End(None) } else { Found::Blocks });
        }
        if looks > 0 {
            self.nap = FIRST_NAP.min(self.longest_nap);
            self.ring.close_poll_fd();
            return Ok(Found::Blocks);
        }
        let found = self.look()?;
        if let Found::Nothing(_) = found {
            let nap = self.nap;
            self.nap = (nap * 2).min(self.longest_nap);
            return Ok(Found::Nothing(nap));
        }
        Ok(found)
    }

    /// The writer's time, if the last pull met a mark: for [`Source::follows`].
    pub(crate) fn moment(&self) -> Option<Moment> {
        self.marked.map(|now| Moment { now, ..Moment::default() })
    }

    /// Whether the ring is without headers.
    fn is_plain(&self) -> bool {
        self.streams.continuity() == Continuity::Bytes && self.ring.written().header_bytes == 0
    }

    /// Copies out at most `most` blocks and gives them on. Returns how many it met.
    fn take(&mut self, most: usize, cx: &mut Context<'_>) -> Result<usize, Box<Failure>> {
        let mut taking =
            Taking { cx, streams: &mut self.streams, memory: &mut self.memory, damaged: 0, marked: &mut self.marked };
        let looks = self.ring.take_each(
            most,
            &mut taking,
            |taking, about, bytes| {
                let len = bytes.len().checked_sub(HEADER_BYTES).filter(|len| *len <= BLOCK_BYTES)?;
                let mut header = [0; HEADER_BYTES];
                bytes.copy_to(&mut header);
                let payload = bytes.part(HEADER_BYTES, len);
                let BlockHeader { class, wire_and_flags, link_type, is_mark, .. } = BlockHeader::of(&header);
                if is_mark {
                    let mark = Descriptor { time: about.time, ..Descriptor::default() };
                    return Some((mark, header));
                }
                let view = taking.memory.view(link_type, taking.cx)?;
                let (mut copy, ()) = taking.cx.rings.append(view, len, |space| (payload.copy_to(space), ()))?;
                (copy.time, copy.class, copy.wire_and_flags) = (about.time, class, wire_and_flags);
                Some((copy, header))
            },
            |taking, taken| match taken {
                Some((mark, header)) if BlockHeader::of(&header).is_mark => *taking.marked = Some(mark.time),
                Some((copy, header)) => taking.damaged += u64::from(!taking.streams.take(copy, &header, taking.cx)),
                None => taking.damaged += 1,
            },
        );
        if taking.damaged > 0 { self.damaged() } else { Ok(looks) }
    }

    /// Does the same with a ring without headers: all its bytes are one stream.
    fn take_plain(&mut self, most: usize, cx: &mut Context<'_>) -> Result<usize, Box<Failure>> {
        let Some(view) = self.memory.view(None, cx) else { return self.damaged() };
        if self.plain.is_none() {
            let Some(number) = cx.streams.open(facts_of_plain()) else { return self.damaged() };
            self.plain = Some(Plain { class: Class::of_stream(number, 0), time: 0, begun: false, lost: self.lost });
        }
        let mut looks = 0;
        while looks < most {
            let Ok(Some(block)) = self.ring.peek() else { break };
            let block = block.first(BLOCK_BYTES);
            looks += 1;
            let (known, len, stat) = (block.descriptor(), block.len(), self.ring.stat());
            let copied = match self.ring.look_at(&block) {
                Ok(bytes) => cx.rings.append(view, len, |space| (bytes.copy_to(space), ())),
                Err(_) => {
                    let what = &self.what;
                    self.ring.skip(&block).map_err(|error| Failure::System(format!("{what}: {error}")))?;
                    cx.counters.blocks_in += 1;
                    cx.drop(1, "in another ring, which is gone or not for this user");
                    continue;
                }
            };
            // The writer overwrote the block during the copy. The ring counts it as lost.
            if self.ring.release(&block).is_err() {
                continue;
            }
            let (Some((mut copy, ())), Some(plain)) = (copied, &mut self.plain) else { return self.damaged() };
            copy.time = if known.time > 0 { known.time } else { capture::clock::real() };
            (copy.class, plain.time) = (plain.class, copy.time);
            if !std::mem::replace(&mut plain.begun, true) {
                copy.add_flags(Flags::FIRST);
                if let Some(facts) = cx.streams.get_mut(plain.class) {
                    facts.start = copy.time;
                }
            }
            let lost = stat.ring.lost.saturating_sub(std::mem::replace(&mut plain.lost, stat.ring.lost));
            if lost > 0 {
                // Only a stream ring counts lost bytes. Other rings count blocks, whose bytes are unknown: report 1.
                super::streams::miss(&mut copy, if stat.kind == RingKind::C { lost } else { 1 }, cx);
            }
            cx.counters.blocks_in += 1;
            cx.counters.blocks_taken += 1;
            cx.emit(copy);
        }
        if looks > 0 {
            self.ring.tell();
        }
        Ok(looks)
    }

    /// Why there is no block, and whether more may come.
    fn look(&mut self) -> Result<Found, Box<Failure>> {
        match self.ring.peek() {
            Ok(Some(block)) if block.is_elsewhere() && !self.is_plain() => self.damaged(),
            Ok(Some(_)) => Ok(Found::Blocks),
            Ok(None) => Ok(Found::End(self.ring.end())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Found::Nothing(self.nap)),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(Found::End(Some(End::Unkept))),
            Err(error) => Err(Box::new(Failure::System(format!("{}: {error}", self.what)))),
        }
    }

    fn damaged<T>(&self) -> Result<T, Box<Failure>> {
        Err(Box::new(Failure::System(format!("{}: its answer is malformed", self.what))))
    }

    /// Adds the ring's counts to the counters.
    pub(crate) fn book(&mut self, cx: &mut Context<'_>) {
        self.looked = Instant::now();
        let stat = self.ring.stat();
        let died = stat.writers_died;
        cx.count("writers that died", died.saturating_sub(std::mem::replace(&mut self.writers_died, died)));
        let lost = stat.ring.lost;
        let more = lost.saturating_sub(std::mem::replace(&mut self.lost, lost));
        if more > 0 {
            cx.counters.blocks_in += more;
            cx.counters.drops.add("overwritten before they were read", more);
        }
    }

    /// The descriptor to sleep on instead of looking again. It needs a thread, which a sleep is worth and a nap is not.
    pub(crate) fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        if self.nap < self.longest_nap { None } else { self.ring.poll_fd().ok() }
    }

    /// From now on gives only the blocks that are in the ring, and then ends.
    pub(crate) fn stop(&mut self) {
        self.ring.close_poll_fd();
        // All blocks in the ring are among the next `units`: it holds no more.
        self.stopped = Some(self.ring.stat().units);
    }

    /// Ends everything under way.
    fn end_streams(&mut self, cx: &mut Context<'_>) {
        self.streams.finish(cx);
        let Some(Plain { class, time, begun, .. }) = self.plain.take() else { return };
        if begun {
            let mut end = Descriptor { time, class, ..Descriptor::default() };
            end.set_flags(if self.ring.end() == Some(End::Closed) {
                Flags::LAST
            } else {
                Flags::LAST.with(Flags::TRUNCATED)
            });
            cx.emit(end);
        }
        cx.streams.close(class.connection());
    }

    /// Ends the reading.
    pub(crate) fn finish(&mut self, cx: &mut Context<'_>) {
        self.book(cx);
        self.end_streams(cx);
        if let Some(segment) = self.memory.segment.take() {
            cx.rings.retire(segment);
        }
    }
}

/// The facts of bytes from a program: no addresses, no ports.
fn facts_of_plain() -> StreamFacts {
    let nowhere = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    let flow = packet::flow::Flow { source: nowhere, target: nowhere, source_port: 0, target_port: 0, protocol: 0 };
    StreamFacts::new(flow, 0, StreamState::Established)
}
