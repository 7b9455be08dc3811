//! A named ring as a sink.
//!
//! It waits in the middle of a batch, in turns of [`TURN`], and gives up when the request is stopped or nobody reads any more.
//! Blocks of a batch are published together, but never later than before a wait.

use super::{content_of, continuity_of, name, open};
use crate::parser::header::HEADER_BYTES;
use crate::parser::told::Told;
use base::atomic::StopFlag;
use buffer::keeper::client::NamedWriter;
use buffer::keeper::message::WantedWriter;
use buffer::ring::layout::Layout;
use buffer::ring::writer::NotWritten;
use buffer::ring::{RingKind, Signalling};
use filter::prelude::*;
use std::io;
use std::time::{Duration, Instant};

/// How long it waits at a time.
const TURN: Duration = Duration::from_millis(20);

/// Bytes that a piece of a stream is not cut below, but where a block of the ring has no more.
const PIECE_BYTES: u64 = 1024;

/// Why blocks are not in the ring.
const FULL: &str = "the ring was full";
const LEFT: &str = "nobody reads the ring any more";
const STOPPED: &str = "stopped before the ring had room";
const TOO_LONG: &str = "longer than a block of the ring";
const FOR_OTHERS: &str = "a reader with on-full=drop-newest was behind";

pub(super) fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let mut types = env.input.iter();
    let (Some(one), None) = (types.next(), types.next()) else {
        let text = format!("a ring carries one type, and {} may come", env.input);
        return Err(ParamError::new("ring", text).with_help("give each type a ring of its own"));
    };
    if let Some(stated) = params.text("type").filter(|stated| *stated != one.name()) {
        return Err(ParamError::new("type", format!("{} comes, not {stated}", one.name())));
    }
    let waits = match params.text("on-full") {
        Some("drop-newest") => false,
        Some("overwrite" | "shared") => {
            let text = "a writer overtakes the readers that say so themselves";
            return Err(ParamError::new("on-full", text).with_help("a writer has on-full=wait or on-full=drop-newest"));
        }
        _ => true,
    };
    let writer = open(params, env, |named| {
        let kind = named.state().map_or(RingKind::D, |state| state.geometry.kind);
        if kind == RingKind::C && one != Type::Bytes {
            let text = format!("it is a stream of bytes (kind c), and cannot carry {}", one.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let header_bytes = if kind == RingKind::C { 0 } else { HEADER_BYTES as u32 };
        named.open_writer_of(WantedWriter { content: Some(content_of(one)), header_bytes }, Signalling::default())
    })?;
    let is_stream = writer.geometry().kind == RingKind::C;
    let told = Told::new(continuity_of(one));
    let what = format!("ring {}", name(params));
    let cuts = matches!(one, Type::Bytes | Type::Message);
    let ring = Ring { writer: Some(writer), told, what, waits, cuts, is_stream, was_read: false, placed: 0 };
    Ok(Instance::filter(ring))
}

/// A writer.
struct Ring {
    /// None when it is over.
    writer: Option<NamedWriter>,
    told: Told,
    what: String,
    /// Waits for readers; else drops what finds no room.
    waits: bool,
    /// Its blocks may be cut into pieces.
    cuts: bool,
    /// The ring has no blocks.
    is_stream: bool,
    /// Somebody has read it.
    was_read: bool,
    /// Blocks that are in the ring, and not published.
    placed: u32,
}

/// What became of a block.
enum Wrote {
    All,
    Not(&'static str),
    /// Nothing more will be written.
    Over(&'static str),
}

impl Filter for Ring {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut left = u64::from(batch.count());
        let mut over = self.wait_for_readers(cx.stop)?;
        for (_, block) in batch.iter() {
            if over.is_some() {
                break;
            }
            match self.write(block, cx)? {
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
        let Some(why) = over else { return Ok(Status::Done) };
        cx.drop(left, why);
        self.writer = None;
        Ok(Status::Finished)
    }

    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        if let Some(writer) = &mut self.writer {
            writer.writer().flush();
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
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
    /// Waits for the first reader, as a pipe does; says why there is nothing to write any more.
    fn wait_for_readers(&mut self, stop: &StopFlag) -> Result<Option<&'static str>, Box<Failure>> {
        let Some(writer) = &mut self.writer else { return Ok(Some(LEFT)) };
        if !self.waits {
            return Ok(None);
        }
        if writer.writer().readers() > 0 {
            self.was_read = true;
            return Ok(None);
        }
        if self.was_read {
            return Ok(Some(LEFT));
        }
        while !stop.is_set() {
            match writer.wait_for_reader(Some(Instant::now() + TURN)) {
                Ok(true) => {
                    self.was_read = true;
                    return Ok(None);
                }
                Ok(false) if writer.writer().is_removed() => return Ok(Some(LEFT)),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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

    /// Writes a block, in pieces where it is too long for one.
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

    /// Longest piece of a block that is cut: with a few of them in the ring, its reader has something to do meanwhile.
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
            let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) else { return Ok(Wrote::Over(LEFT)) };
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
                Err(refused) => return Ok(ended(&refused)),
            }
        }
    }

    /// The same in a ring without blocks.
    fn write_bytes(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Result<Wrote, Box<Failure>> {
        let mut bytes = cx.rings.bytes(block);
        while !bytes.is_empty() {
            let Some(writer) = self.writer.as_mut().map(NamedWriter::writer) else { return Ok(Wrote::Over(LEFT)) };
            match writer.try_write_some(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(NotWritten::WouldBlock) => {
                    if let Some(ended) = self.wait_for_room(1, cx.stop) {
                        return Ok(ended);
                    }
                }
                Err(refused) => return Ok(ended(&refused)),
            }
        }
        Ok(Wrote::All)
    }

    /// Waits for a turn until there is room; says what becomes of the block where it is not to be tried again.
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
            // Also where the keeper is gone and nobody else would say so.
            writer.look_after_readers();
        }
        (writer.readers() == 0).then_some(Wrote::Over(LEFT))
    }
}

/// What a block becomes that no wait helps.
fn ended(refused: &NotWritten) -> Wrote {
    match refused {
        NotWritten::TooLong => Wrote::Not(TOO_LONG),
        NotWritten::Dropped => Wrote::Not(FOR_OTHERS),
        _ => Wrote::Over(LEFT),
    }
}

/// A piece of a block of a stream or message: what is missing is missing before the first, and the last one ends it.
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
