//! A capture that is read in chunks into an append ring, where its frames are named in place. A record cut by the end
//! of a chunk is copied in front of the next chunk.
//!
//! Reading the next chunk reuses memory: by then all filters are done with the frames given before. Blocks that a
//! filter holds are kept.

use super::input::{Counted, Input};
use super::open::{Refusal, refuse};
use super::scan::{Next, Scanner};
use super::{Ending, Step, unpack};
use crate::parts::system::reason;
use base::limits::BLOCK_BYTES;
use buffer::{Descriptor, Interface, SegmentId, ViewId};
use filter::Context;
use packet::capture::Stop;
use packet::pcap_file::Header;
use packet::sniff::{SNIFF_BYTES, sniff};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes per chunk.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) struct Streamed {
    /// The name for messages.
    name: String,
    segment: SegmentId,
    /// The view that chunks are appended through. Frames have views of their own.
    chunks: ViewId,
    stage: Stage,
    /// Bytes read from the input, before decompression.
    read: Arc<AtomicU64>,
    compressed: bool,
    /// How the capture in a compressed input ended before its input. The rest is read for its checksums: they tell
    /// whether the compressed data is damaged, too.
    early: Option<Ending>,
    /// `None` until the header has been read.
    scanner: Option<Scanner>,
    /// The chunk being scanned, and the position in it.
    chunk: Descriptor,
    at: u32,
    /// The beginning of a record that continues in the next chunk.
    carry: Vec<u8>,
    /// Bytes that the scan needs to continue.
    need: usize,
    /// This chunk is the last.
    ended: bool,
    /// The error that ended the input; `None`: the regular end.
    error: Option<io::Error>,
}

/// How far the input is identified.
enum Stage {
    /// Gathering its first bytes, to see whether it is compressed.
    First(Vec<u8>, Counted),
    /// Identified: its bytes, decompressed.
    Known(Box<dyn Read + Send>),
}

impl Streamed {
    /// Opens an input. `None`: no views are left.
    pub(super) fn open(name: String, input: Input, cx: &mut Context<'_>) -> Option<Streamed> {
        let segment = cx.rings.add_append_ring();
        let Some(chunks) = cx.rings.add_view(segment, Interface::default()) else {
            cx.rings.retire(segment);
            cx.rings.recycle(segment);
            return None;
        };
        let input = Counted::new(input);
        Some(Streamed {
            name,
            segment,
            chunks,
            read: Arc::clone(&input.bytes),
            stage: Stage::First(Vec::new(), input),
            compressed: false,
            early: None,
            scanner: None,
            chunk: chunks.block(0, 0),
            at: 0,
            carry: Vec::new(),
            need: 1,
            ended: false,
            error: None,
        })
    }

    /// Bytes read from the input, before decompression.
    pub(super) fn position(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The memory that the frames lie in.
    pub(super) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Gives up to a batch of frames. `follow`: the input may still grow.
    pub(super) fn pull(&mut self, follow: bool, cx: &mut Context<'_>) -> Step {
        if self.early.is_some() {
            return self.read_rest();
        }
        match self.scan(follow, cx) {
            Step::End(ending @ (Ending::Damaged(_) | Ending::Another(_) | Ending::Failed(_))) if self.compressed => {
                self.early = Some(ending);
                Step::Given
            }
            step => step,
        }
    }

    /// Reads a piece of the bytes behind the end of the capture, for damage in the compressed data.
    fn read_rest(&mut self) -> Step {
        if let (false, Stage::Known(input)) = (self.ended, &mut self.stage) {
            match input.read(&mut vec![0; CHUNK_BYTES]) {
                Ok(1..) => {}
                Err(error) if is_pause(&error) => return Step::Waiting,
                Ok(0) => self.ended = true,
                Err(error) => (self.ended, self.error) = (true, Some(error)),
            }
            return Step::Given;
        }
        let early = self.early.take().unwrap_or(Ending::Whole);
        Step::End(self.error.take().filter(unpack::is_damage).map_or(early, |error| Ending::Cut(reason(&error))))
    }

    fn scan(&mut self, follow: bool, cx: &mut Context<'_>) -> Step {
        loop {
            let window = cx.rings.bytes(&self.chunk).get(self.at as usize..).unwrap_or_default();
            if window.len() < self.need {
                if !cx.out.is_empty() {
                    // Give the frames first: the next chunk takes the place of this one.
                    return Step::Given;
                }
                if self.ended {
                    let rest = window.to_vec();
                    return Step::End(self.ending(&rest));
                }
                return self.next_chunk(follow, cx);
            }
            let Some(scanner) = &mut self.scanner else {
                match Scanner::open(window) {
                    Ok((scanner, consumed)) => {
                        self.scanner = Some(scanner);
                        self.at += consumed as u32;
                        self.need = 1;
                    }
                    Err(Stop::More { need, .. }) => self.need = need,
                    Err(stop) => {
                        let first = &window[..window.len().min(Header::BYTES)];
                        return Step::End(Ending::Refused(refuse(&self.name, first, stop)));
                    }
                }
                continue;
            };
            let base = self.chunk.pos + u64::from(self.at);
            let scanned = scanner.scan(window, base, cx.out, cx.counters);
            (self.at, self.need) = (self.at + scanned.consumed as u32, 1);
            match scanned.next {
                Next::Enough => return Step::Given,
                Next::Unnamed(block, interface) => match scanner.name(block, interface, self.segment, cx.rings) {
                    Some(block) => cx.out.push(block),
                    None => return Step::End(Ending::Failed(scanner.too_many_interfaces())),
                },
                Next::More(need) => self.need = need,
                Next::Damaged(damage) => return Step::End(Ending::Damaged(damage)),
                Next::Another(offset) => return Step::End(Ending::Another(offset)),
            }
        }
    }

    /// Reads the next chunk. A record that needs many reads is gathered first, so its bytes are copied at most twice,
    /// however slowly they come.
    fn next_chunk(&mut self, follow: bool, cx: &mut Context<'_>) -> Step {
        if self.need > BLOCK_BYTES {
            let text =
                format!("a record of {} bytes is too long to be read as it comes; map a file instead", self.need);
            return Step::End(Ending::Failed(text));
        }
        if let Some(step) = self.identify(follow) {
            return step;
        }
        let Stage::Known(input) = &mut self.stage else { return Step::Waiting };
        // Compressed data has its own end.
        let follow = follow && !self.compressed;
        self.carry.extend_from_slice(cx.rings.bytes(&self.chunk).get(self.at as usize..).unwrap_or_default());
        (self.chunk.len, self.at) = (0, 0);
        if !self.ended {
            match gather(self.need, &mut self.carry, input) {
                Gathered::Enough => {}
                Gathered::Pause => return Step::Waiting,
                Gathered::End if follow => return Step::Waiting,
                Gathered::End => self.ended = true,
                Gathered::Failed(error) => (self.ended, self.error) = (true, Some(error)),
            }
        }
        // The filters are done with all frames named in earlier chunks.
        cx.rings.recycle(self.segment);
        let (ended, carry) = (self.ended, &self.carry);
        let room = (carry.len() + CHUNK_BYTES).min(BLOCK_BYTES);
        let appended = cx.rings.append(self.chunks, room, |space| {
            let (front, space) = space.split_at_mut(carry.len());
            front.copy_from_slice(carry);
            let read = if ended { Ok(0) } else { input.read(space) };
            (carry.len() + read.as_ref().map_or(0, |bytes| *bytes), read)
        });
        let Some((chunk, read)) = appended else { return Step::End(Ending::Failed("it has no ring".into())) };
        self.chunk = chunk;
        self.carry.clear();
        match read {
            // No data: a file that is followed may get more later. Any other end is seen again by the next call.
            Ok(_) => {}
            Err(error) if is_pause(&error) => {}
            Err(error) => (self.ended, self.error) = (true, Some(error)),
        }
        Step::Given
    }

    /// Gathers the first bytes and chooses the decoder by them.
    fn identify(&mut self, follow: bool) -> Option<Step> {
        let Stage::First(first, input) = &mut self.stage else { return None };
        match gather(SNIFF_BYTES, first, input) {
            Gathered::Pause => return Some(Step::Waiting),
            Gathered::End if follow => return Some(Step::Waiting),
            Gathered::Enough | Gathered::End => {}
            Gathered::Failed(error) => (self.ended, self.error) = (true, Some(error)),
        }
        let kind = sniff(first).filter(|kind| kind.is_compressed());
        self.compressed = kind.is_some();
        match input.take().unpack(std::mem::take(first), kind) {
            Ok(input) => self.stage = Stage::Known(input),
            Err(error) => return Some(Step::End(Ending::Failed(reason(&error)))),
        }
        None
    }

    /// How the capture ends, with `rest` left over.
    fn ending(&mut self, rest: &[u8]) -> Ending {
        match (self.error.take(), &self.scanner) {
            (Some(error), Some(_)) if unpack::is_damage(&error) => Ending::Cut(reason(&error)),
            (Some(error), None) if unpack::is_damage(&error) => {
                Ending::Refused(Refusal::new(format!("{}: {}", self.name, reason(&error))))
            }
            (Some(error), _) => Ending::Failed(reason(&error)),
            (None, Some(scanner)) => scanner.finish(rest).map_or_else(Ending::Damaged, |()| Ending::Whole),
            (None, None) => Ending::Refused(refuse(&self.name, rest, Stop::More { consumed: 0, need: Header::BYTES })),
        }
    }
}

enum Gathered {
    Enough,
    /// No data for now.
    Pause,
    End,
    Failed(io::Error),
}

/// Reads until `into` holds exactly `need` bytes.
fn gather(need: usize, into: &mut Vec<u8>, from: &mut impl Read) -> Gathered {
    let missing = need.saturating_sub(into.len());
    match from.take(missing as u64).read_to_end(into) {
        Ok(_) if into.len() >= need => Gathered::Enough,
        Ok(_) => Gathered::End,
        Err(error) if is_pause(&error) => Gathered::Pause,
        Err(error) => Gathered::Failed(error),
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
