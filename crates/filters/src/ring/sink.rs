//! A named ring as a sink.
//!
//! The sink waits in the middle of a batch, [`TURN`] at a time, until the request is stopped or the last reader has
//! left. It publishes the blocks of a batch together, but always before it waits.

use super::link::{self, Link, TURN};
use super::{content_of, continuity_of, name, open, size_note};
use crate::parser::told::Told;
use base::atomic::StopFlag;
use base::limits::SECOND_NS;
use buffer::keeper::client::NamedWriter;
use buffer::keeper::message::WantedWriter;
use buffer::ring::contract::BATCH;
use buffer::ring::layout::Layout;
use buffer::ring::writer::NotWritten;
use buffer::ring::{RingKind, Signalling};
use filter::prelude::*;
use filter::ring_header::{HEADER_BYTES, Header};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A writer without blocks for this long (by the blocks' clock) writes a time mark, so that the reader's timers run.
const MARK_NS: u64 = SECOND_NS / 10;

/// A stream is not cut into smaller pieces than this, unless the ring's blocks are smaller.
const PIECE_BYTES: u64 = 1024;

/// Drop reasons.
const FULL: &str = "the ring was full";
const LEFT: &str = "the ring has no reader any more";
const STOPPED: &str = "stopped before the ring had room";
const TOO_LONG: &str = "longer than a block of the ring";
const FOR_OTHERS: &str = "a reader with on-full=drop-newest was behind";

pub(super) fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    // The type check has left exactly one type.
    let one = env.input.iter().next().ok_or_else(|| ParamError::new("ring", "nothing comes"))?;
    let waits = match params.text("on-full") {
        Some("drop-newest") => false,
        Some("overwrite" | "shared") => {
            let text = "a writer overtakes the readers that say so themselves";
            return Err(ParamError::new("on-full", text).with_help("a writer has on-full=wait or on-full=drop-newest"));
        }
        _ => true,
    };
    let writer = open(params, env, |named| {
        let geometry = named.state().ok().map(|state| state.geometry);
        let kind = geometry.as_ref().map_or(RingKind::D, |geometry| geometry.kind);
        // A stream ring has no slots for blocks.
        let slots = geometry.filter(|_| kind != RingKind::C).map_or(u64::MAX, |geometry| geometry.slots);
        if kind == RingKind::C && one != Type::Bytes {
            let text = format!("it is a stream of bytes (kind c), and cannot carry {}", one.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let header_bytes = if kind == RingKind::C { 0 } else { HEADER_BYTES as u32 };
        named.open_writer_of(
            WantedWriter { content: Some(content_of(one)), header_bytes },
            signalling(slots, env.latency),
        )
    })?;
    let is_stream = writer.geometry().kind == RingKind::C;
    let what = format!("ring {}", name(params));
    let ring = Ring { waits, is_stream, note: size_note(params), ..Ring::new(writer, one, what) };
    Ok(Instance::filter(ring))
}

/// Writes the ring of a process. `link` gives the next ring when the process has died.
pub(super) fn of_process(writer: NamedWriter, one: Type, what: String, link: Arc<Link>) -> Instance {
    Instance::filter(Ring { link: Some(link), left: link::GONE, ..Ring::new(writer, one, what) })
}

/// When the writer of a ring of `slots` blocks wakes readers. If the request wants no latency, after each block.
/// Else after at most half a ring of blocks, so that a reader is awake before the writer has to wait.
pub(super) fn signalling(slots: u64, latency: Option<Duration>) -> Signalling {
    match latency {
        Some(Duration::ZERO) => Signalling::Every,
        _ => Signalling::Batched(BATCH.min(u32::try_from(slots / 2).unwrap_or(u32::MAX)).max(1)),
    }
}

struct Ring {
    /// `None` when writing is over.
    writer: Option<NamedWriter>,
    told: Told,
    what: String,
    /// Wait for room. False: drop blocks that find no room.
    waits: bool,
    /// Blocks may be cut into pieces.
    cuts: bool,
    /// The ring carries bytes, not blocks.
    is_stream: bool,
    was_read: bool,
    /// Blocks written to the ring but not published yet.
    placed: u32,
    /// A notice still to be given.
    note: Option<String>,
    /// Drop reason after the last reader has left.
    left: &'static str,
    /// Gives the ring of the next process after a death. `None`: another request or a program reads.
    link: Option<Arc<Link>>,
    /// Units that the reading process had taken at the last look.
    taken: u64,
    /// Blocks written for the current process.
    sent: u64,
    /// Positions of the time marks that the process has not taken yet.
    marks: VecDeque<u64>,
}

enum Wrote {
    All,
    Not(&'static str),
    /// No more blocks can be written.
    Over(&'static str),
}

impl Filter for Ring {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let before = cx.counters.drops.total();
        let made = self.write_all(batch, cx);
        // Blocks of earlier batches may be dropped now, also where writing failed in the end.
        let dropped = cx.counters.drops.total() - before;
        cx.untake(dropped.saturating_sub(batch.count().into()));
        made
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        self.look_at_reader();
        if let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) {
            // Without room the readers have blocks anyway, and need no mark.
            let at = writer.head();
            let mark = writer.try_write(Descriptor { time: cx.now, ..Descriptor::default() }, &Header::mark(0));
            if mark.is_ok() && self.link.is_some() {
                self.marks.push_back(at);
            }
            cx.wake_at(cx.now.saturating_add(MARK_NS));
        }
        Ok(Status::Done)
    }

    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        if let Some(writer) = &mut self.writer {
            writer.writer().flush();
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.wait_until_taken(cx);
        if let Some(link) = &self.link {
            link.finish();
        }
        let Some(mut writer) = self.writer.take() else { return Ok(Status::Done) };
        let demoted = writer.writer().counters().demoted;
        if demoted > 0 {
            cx.notice(format!(
                "{}: {demoted} readers held the full ring for longer than its hold-limit, and were overtaken",
                self.what
            ));
        }
        Ok(Status::Done)
    }
}

impl Ring {
    /// Makes a sink that waits for its readers.
    fn new(writer: NamedWriter, one: Type, what: String) -> Ring {
        Ring {
            writer: Some(writer),
            told: Told::new(continuity_of(one)),
            what,
            waits: true,
            cuts: matches!(one, Type::Bytes | Type::Message),
            is_stream: false,
            was_read: false,
            placed: 0,
            note: None,
            left: LEFT,
            link: None,
            taken: 0,
            sent: 0,
            marks: VecDeque::new(),
        }
    }

    /// Writes the blocks of a batch, and publishes them.
    fn write_all(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if let Some(note) = self.note.take() {
            cx.notice(note);
        }
        let mut left = u64::from(batch.count());
        let mut over = self.wait_or_go_on(cx)?;
        for (_, block) in batch.iter() {
            if over.is_some() {
                break;
            }
            match self.write_on(block, cx)? {
                Wrote::All => {}
                Wrote::Not(why) => cx.drop(1, why),
                Wrote::Over(why) => {
                    over = Some(why);
                    continue;
                }
            }
            left -= 1;
        }
        self.publish();
        self.look_at_reader();
        if !self.is_stream {
            cx.wake_at(cx.now.saturating_add(MARK_NS));
        }
        if let Some(why) = over {
            cx.drop_rest(left, why);
            self.writer = None;
        }
        Ok(if over.is_some() { Status::Finished } else { Status::Done })
    }

    /// Notes how much the reading process has taken.
    fn look_at_reader(&mut self) {
        if self.link.is_none() {
            return;
        }
        let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) else { return };
        let taken = writer.passed();
        // Without a reader the writer counts all blocks as passed.
        if writer.readers() > 0 {
            self.taken = taken;
            while self.marks.front().is_some_and(|at| *at < taken) {
                self.marks.pop_front();
            }
        }
    }

    /// The reading process has died: continues with the next one. False: there is none.
    #[cold]
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(link) = &self.link else { return false };
        let next = link.next(cx.stop);
        let Some(mut before) = self.writer.take() else { return false };
        let units = before.writer().head().saturating_sub(std::mem::take(&mut self.taken));
        // Marks are not blocks, and one block may take several units.
        let lost = units.saturating_sub(self.marks.len() as u64).min(std::mem::take(&mut self.sent));
        self.marks.clear();
        (self.placed, self.was_read) = (0, false);
        cx.drop(lost, if next.is_some() { link::IN_FLIGHT } else { self.left });
        self.writer = next;
        self.writer.is_some()
    }

    /// Waits for the first reader, also of the next process after a death. `Some(why)`: the writer ends.
    fn wait_or_go_on(&mut self, cx: &mut Context<'_>) -> Result<Option<&'static str>, Box<Failure>> {
        loop {
            match self.wait_for_readers(cx.stop)? {
                Some(why) if why == self.left && self.go_on(cx) => {}
                over => return Ok(over),
            }
        }
    }

    /// Writes a block; after a death, to the next process.
    fn write_on(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Result<Wrote, Box<Failure>> {
        loop {
            match self.write(block, cx)? {
                Wrote::Over(why) if why == self.left && self.go_on(cx) => {
                    if let Some(why) = self.wait_or_go_on(cx)? {
                        return Ok(Wrote::Over(why));
                    }
                }
                wrote => {
                    self.sent += u64::from(matches!(wrote, Wrote::All));
                    return Ok(wrote);
                }
            }
        }
    }

    /// At the end: waits until a process that can be restarted has taken everything.
    fn wait_until_taken(&mut self, cx: &mut Context<'_>) {
        if !self.link.as_ref().is_some_and(|link| link.restarts()) {
            return;
        }
        self.publish();
        if let Some(writer) = &mut self.writer {
            writer.writer().flush();
        }
        while !cx.stop.is_set() {
            self.look_at_reader();
            let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) else { return };
            if self.taken >= writer.head() {
                return;
            }
            if writer.readers() == 0 {
                let before = cx.counters.drops.total();
                // What was in flight is lost, whether another process follows or not.
                self.go_on(cx);
                cx.untake(cx.counters.drops.total() - before);
                return;
            }
            std::thread::sleep(TURN / 10);
            writer.look_after_readers();
        }
    }

    /// Waits for the first reader, as a pipe does. Returns why the sink must write no more; `None`: it goes on.
    fn wait_for_readers(&mut self, stop: &StopFlag) -> Result<Option<&'static str>, Box<Failure>> {
        let Some(writer) = &mut self.writer else { return Ok(Some(self.left)) };
        if !self.waits {
            return Ok(None);
        }
        if writer.writer().readers() > 0 {
            self.was_read = true;
            return Ok(None);
        }
        if self.was_read {
            return Ok(Some(self.left));
        }
        while !stop.is_set() {
            if self.link.as_ref().is_some_and(|link| link.is_left()) {
                return Ok(Some(self.left));
            }
            match writer.wait_for_reader(Some(Instant::now() + TURN)) {
                Ok(true) => {
                    self.was_read = true;
                    return Ok(None);
                }
                Ok(false) if writer.writer().is_removed() => return Ok(Some(self.left)),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The ring of a process that has died goes with it.
                Err(_) if self.link.is_some() => return Ok(Some(self.left)),
                Err(error) => return Err(Box::new(Failure::System(format!("{}: {error}", self.what)))),
            }
        }
        Ok(Some(STOPPED))
    }

    fn publish(&mut self) {
        let placed = std::mem::take(&mut self.placed);
        if let Some(writer) = self.writer.as_mut().filter(|_| placed > 0) {
            writer.writer().publish_placed(placed);
        }
    }

    /// Writes a block, cut into pieces if it is too long.
    fn write(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Result<Wrote, Box<Failure>> {
        if self.is_stream {
            return self.write_bytes(block, cx);
        }
        let most = self.piece_bytes();
        if !self.cuts || block.has(Flags::META) || block.len <= most {
            return self.write_piece(block, cx);
        }
        let mut offset = 0;
        while offset < block.len {
            let piece = piece(block, offset, most);
            offset += piece.len;
            match self.write_piece(&piece, cx)? {
                Wrote::All => {}
                other => return Ok(other),
            }
        }
        Ok(Wrote::All)
    }

    /// Longest piece of a cut block. Several fit into the ring, so the reader works while the writer fills it.
    fn piece_bytes(&mut self) -> u32 {
        let Some(writer) = &mut self.writer else { return u32::MAX };
        let kind = writer.geometry().kind;
        let longest = writer.writer().layout().block_bytes();
        let most = if kind == RingKind::P { longest } else { (longest / 4).max(PIECE_BYTES).min(longest) };
        u32::try_from(most.saturating_sub(HEADER_BYTES as u64)).unwrap_or(u32::MAX).max(1)
    }

    fn write_piece(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Result<Wrote, Box<Failure>> {
        let header = *self.told.header(block, cx);
        let bytes = cx.rings.bytes(block);
        let len = (HEADER_BYTES + bytes.len()) as u32;
        loop {
            let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) else { return Ok(Wrote::Over(self.left)) };
            match writer.fill(len) {
                Ok(filling) => {
                    filling.copy_in(0, &header);
                    filling.copy_in(HEADER_BYTES as u32, bytes);
                    filling.place(*block, len);
                    self.placed += 1;
                    return Ok(Wrote::All);
                }
                Err(NotWritten::WouldBlock) => {
                    if let Some(ended) = self.wait_for_room(u64::from(len), cx.stop) {
                        return Ok(ended);
                    }
                }
                Err(refused) => return Ok(ended(&refused, self.left)),
            }
        }
    }

    /// Writes the bytes of a block to a stream ring.
    fn write_bytes(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Result<Wrote, Box<Failure>> {
        let mut bytes = cx.rings.bytes(block);
        while !bytes.is_empty() {
            let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) else { return Ok(Wrote::Over(self.left)) };
            match writer.try_write_some(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(NotWritten::WouldBlock) => {
                    if let Some(ended) = self.wait_for_room(1, cx.stop) {
                        return Ok(ended);
                    }
                }
                Err(refused) => return Ok(ended(&refused, self.left)),
            }
        }
        Ok(Wrote::All)
    }

    /// Waits one turn for room. `Some`: the outcome of the block; do not try again.
    #[cold]
    fn wait_for_room(&mut self, room: u64, stop: &StopFlag) -> Option<Wrote> {
        self.publish();
        let writer = self.writer.as_mut()?.writer();
        if !self.waits {
            writer.flush();
            return Some(Wrote::Not(FULL));
        }
        if stop.is_set() {
            return Some(Wrote::Over(STOPPED));
        }
        if writer.wait_for_room(room, Some(Instant::now() + TURN)) == Err(NotWritten::WouldBlock) {
            // The writer checks its readers itself: if the keeper is gone, no other process reports that a reader left.
            writer.look_after_readers();
        }
        let is_left = writer.readers() == 0;
        self.look_at_reader();
        is_left.then_some(Wrote::Over(self.left))
    }
}

/// The outcome of a block that waiting cannot help.
fn ended(refused: &NotWritten, left: &'static str) -> Wrote {
    match refused {
        NotWritten::TooLong => Wrote::Not(TOO_LONG),
        NotWritten::Dropped => Wrote::Not(FOR_OTHERS),
        _ => Wrote::Over(left),
    }
}

/// A piece of a block of a stream or message. The first piece carries the gap before the block, the last one its end.
fn piece(block: &Descriptor, offset: u32, most: u32) -> Descriptor {
    let mut piece = block.part(offset, most);
    let at_first = Flags::FIRST.with(Flags::GAP_BEFORE);
    let mut flags = Flags::NONE;
    for flag in [Flags::FIRST, Flags::GAP_BEFORE, Flags::LAST, Flags::TRUNCATED, Flags::OUTBOUND, Flags::LIMITED] {
        let belongs = if at_first.has(flag) { offset == 0 } else { offset + piece.len == block.len };
        if block.has(flag) && belongs {
            flags = flags.with(flag);
        }
    }
    if offset == 0 {
        piece.set_wire(piece.len + block.gap());
    }
    piece.add_flags(flags);
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_say_together_what_the_block_said() {
        let mut block = Descriptor { len: 10, ..Descriptor::default() };
        block.set_wire(17);
        block.set_flags(Flags::FIRST.with(Flags::GAP_BEFORE).with(Flags::LAST).with(Flags::TRUNCATED));
        let pieces = [0, 4, 8].map(|offset| piece(&block, offset, 4));
        assert_eq!(pieces.map(|piece| (piece.len, piece.gap())), [(4, 7), (4, 0), (2, 0)]);
        assert!(pieces[0].has(Flags::FIRST) && !pieces[0].has(Flags::LAST));
        assert_eq!(pieces[1].flags(), Flags::NONE);
        assert!(pieces[2].has(Flags::LAST.with(Flags::TRUNCATED)) && !pieces[2].has(Flags::FIRST));
    }
}
