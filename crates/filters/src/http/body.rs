//! The body of a message: where it ends (RFC 9112 section 6), which bytes are data, and how they are coded.
//!
//! Three tiers:
//! * *plain data* is not touched: new descriptors describe it;
//! * *coded data* is decoded into the filter's own ring. Consecutive blocks of a batch are gathered by a copy first;
//! * data behind a place where decoding failed is skipped.

use super::exit::Exit;
use super::reading::Readings;
use base::limits::{DECODED_BLOCK_BYTES, HTTP_CODINGS};
use buffer::descriptor::WIRE_MAX;
use filter::prelude::*;
use protocols::http::chunks::{Chunks, Next};
use protocols::http::decode::{Decoder, Then};
use protocols::http::head::{Coding, Codings, Head};
use protocols::http::start::StartLine;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// No body.
    None,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked(Chunks),
    /// At the end of the stream.
    Close,
}

impl Framing {
    /// RFC 9112 section 6.3, rules 4 to 7, for messages that may have a body. Chunked wins over a length. An invalid
    /// length is ignored.
    pub(super) fn of(head: &Head<'_>, request: bool) -> Framing {
        if head.chunked { Framing::Chunked(Chunks::START) } else { Framing::unchunked(head, request) }
    }

    pub(super) fn unchunked(head: &Head<'_>, request: bool) -> Framing {
        match head.length {
            Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
            None if request => Framing::None,
            None => Framing::Close,
        }
    }
}

/// How data is passed on.
#[derive(Debug)]
enum Content {
    /// Unchanged.
    Plain,
    /// To be decoded, in the order in which the codings are undone. The decoder is made at the first byte.
    Coded([Option<Coding>; 2 * HTTP_CODINGS]),
    Decoding(Box<Decoder>),
    /// Data is skipped.
    Over,
    /// Data is skipped because a limit was met: the name of its drop counter.
    Cut(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// More bytes follow.
    Open,
    /// The body is complete.
    Whole,
    /// The boundary of the next message is unknown: the framing is damaged or missing.
    Broken,
}

#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    /// The framing to use if a response says chunked but its first byte is no chunk size.
    otherwise: Option<Framing>,
    content: Content,
    pub(super) end: End,
    /// The request was not seen. If it was HEAD, there is no body, and the first bytes may be the next response.
    pub(super) in_doubt: bool,
    /// In the first line of a response without a head. Behind it another response may begin.
    pub(super) first_line: bool,
    /// Bytes are missing at the end, or could not be decoded.
    truncated: bool,
    /// The block flagged LAST was given.
    last_given: bool,
    /// The decoder has more output.
    pending: bool,
    /// Bytes missing before the next block.
    gap: u32,
    decoded_bytes: u64,
    /// How other clients read it.
    readings: Option<Box<Readings>>,
    /// Its own framing is broken, and `readings` go on.
    is_outlived: bool,
}

impl Body {
    /// `framing` says where the body ends.
    pub(super) fn new(framing: Framing, head: &Head<'_>, exit: &mut Exit<'_>) -> Body {
        let response = matches!(head.start, StartLine::Response { .. });
        let mut body = Body {
            framing,
            otherwise: (head.chunked && response).then(|| Framing::unchunked(head, false)),
            content: Content::Plain,
            end: End::Open,
            in_doubt: false,
            first_line: false,
            truncated: false,
            last_given: false,
            pending: false,
            gap: 0,
            decoded_bytes: 0,
            readings: None,
            is_outlived: false,
        };
        if head.transfer.over || head.content.over {
            exit.count_unseen("bodies in more codings than are undone");
        }
        // Transfer codings were applied last.
        let content = if exit.decodes { head.content } else { Codings::default() };
        let outermost_first = head.transfer.list().iter().rev().chain(content.list().iter().rev()).flatten();
        let mut known = [None; 2 * HTTP_CODINGS];
        for (slot, coding) in known.iter_mut().zip(outermost_first) {
            if matches!(coding, Coding::Unknown | Coding::Lzma) {
                exit.count("bodies in a coding that is not known", 1);
                break;
            }
            *slot = Some(*coding);
        }
        if known[0].is_some() {
            body.content = Content::Coded(known);
        }
        body
    }

    /// Whether the decoder can go on without another input byte.
    pub(super) fn is_pending(&self) -> bool {
        self.pending || self.end != End::Open && self.has_gathered()
    }

    /// The limit for which the rest of the data is skipped.
    pub(super) fn cut(&self) -> Option<&'static str> {
        if let Content::Cut(limit) = self.content { Some(limit) } else { None }
    }

    /// Whether coded data is waiting to be decoded.
    pub(super) fn has_gathered(&self) -> bool {
        matches!(&self.content, Content::Decoding(decoder) if !decoder.gathered.is_empty())
    }

    /// Reads a block's bytes from `offset` on. Returns where it stopped: at the end of the block or the body, or when
    /// the batch's output is full.
    pub(super) fn take(&mut self, block: &Descriptor, bytes: &[u8], offset: usize, exit: &mut Exit<'_>) -> usize {
        let end = self.take_own(block, bytes, offset, exit);
        if let Some(readings) = &mut self.readings {
            readings.take(&bytes[offset..end], block.class.direction() == 0, exit);
            if self.is_outlived && !readings.go_on() {
                self.end = End::Broken;
            }
        }
        end
    }

    /// How other clients read this body, for rules.
    pub(super) fn read_also(&mut self, readings: Readings) {
        self.readings = (!readings.is_empty()).then(|| Box::new(readings));
    }

    fn end_readings(&mut self, exit: &mut Exit<'_>) {
        if let Some(readings) = self.readings.take() {
            readings.end(exit);
        }
    }

    fn take_own(&mut self, block: &Descriptor, bytes: &[u8], mut offset: usize, exit: &mut Exit<'_>) -> usize {
        while self.end == End::Open && offset < bytes.len() && !self.pending && !exit.is_full() {
            let rest = &bytes[offset..];
            offset += match &mut self.framing {
                Framing::Length(left) => {
                    let len = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let last = len as u64 == *left;
                    let used = self.pass(block, offset, &rest[..len], last, exit);
                    self.passed(used as u64);
                    used
                }
                Framing::Close => self.pass(block, offset, rest, false, exit),
                // Browsers accept such responses, each in cases of its own.
                Framing::Chunked(_)
                    if let Some(otherwise) = self.otherwise.take()
                        && !Chunks::may_begin(rest[0]) =>
                {
                    exit.count("bodies that are not chunked as they say", 1);
                    self.framing = otherwise;
                    0
                }
                Framing::Chunked(chunks) => match chunks.next(rest) {
                    Next::Framing(used) => used,
                    Next::Data(0) => {
                        let len = rest.len().min(usize::try_from(chunks.data_left()).unwrap_or(usize::MAX));
                        let used = self.pass(block, offset, &rest[..len], false, exit);
                        self.passed(used as u64);
                        used
                    }
                    Next::Data(used) => used,
                    Next::End(used) => {
                        self.end = End::Whole;
                        used
                    }
                    Next::Broken(used) if self.readings.as_ref().is_some_and(|readings| readings.go_on()) => {
                        exit.count("chunk sizes that are none", 1);
                        (self.framing, self.truncated, self.is_outlived) = (Framing::Close, true, true);
                        self.stop_decoding(true, &[], exit);
                        self.content = Content::Over;
                        used
                    }
                    Next::Broken(used) => {
                        exit.count_unseen("chunk sizes that are none");
                        (self.end, self.truncated) = (End::Broken, true);
                        used
                    }
                },
                Framing::None => {
                    self.end = End::Whole;
                    0
                }
            };
        }
        offset
    }

    /// Advances the framing by `bytes` bytes of data.
    fn passed(&mut self, bytes: u64) {
        match &mut self.framing {
            Framing::Length(left) => {
                *left = left.saturating_sub(bytes);
                if *left == 0 {
                    self.end = End::Whole;
                }
            }
            Framing::Chunked(chunks) => chunks.took(bytes),
            Framing::None | Framing::Close => {}
        }
    }

    /// Passes data on; returns how many bytes were used.
    fn pass(&mut self, block: &Descriptor, offset: usize, data: &[u8], last: bool, exit: &mut Exit<'_>) -> usize {
        if let Content::Coded(codings) = self.content {
            self.begin_decoding(&codings, data, exit);
        }
        match &mut self.content {
            Content::Plain => {
                let part = block.part(offset as u32, data.len() as u32);
                self.give(part, if last { Flags::LAST } else { Flags::NONE }, exit);
                self.last_given = last;
                data.len()
            }
            Content::Decoding(decoder) => {
                if !exit.goes_on && decoder.gathered.is_empty() {
                    return self.decode(block, data, exit);
                }
                let fits = decoder.gather_copy(data, &mut exit.shared.gather);
                if !fits && decoder.gathered.is_empty() {
                    return self.decode(block, data, exit);
                }
                self.pending = !fits || !exit.goes_on;
                if fits { data.len() } else { 0 }
            }
            Content::Coded(_) | Content::Over | Content::Cut(_) => data.len(),
        }
    }

    fn begin_decoding(&mut self, codings: &[Option<Coding>], data: &[u8], exit: &mut Exit<'_>) {
        let Some(first) = data.first() else { return };
        let mut known = [Coding::Unknown; 2 * HTTP_CODINGS];
        let count = codings.iter().flatten().count();
        known.iter_mut().zip(codings.iter().flatten()).for_each(|(slot, coding)| *slot = *coding);
        let bytes = Decoder::memory_bytes(&known[..count], *first);
        if exit.shared.charge(bytes) {
            let decoder = Decoder::new(&known[..count], bytes, &mut exit.shared.inflaters);
            self.content = Content::Decoding(Box::new(decoder));
        } else {
            exit.count_unseen("bodies not decoded for want of memory");
            self.content = Content::Cut("body over memory");
        }
    }

    /// Gives the decoder's remaining output.
    pub(super) fn fetch(&mut self, block: &Descriptor, exit: &mut Exit<'_>) {
        self.pending = false;
        let Content::Decoding(decoder) = &mut self.content else { return };
        let mut gathered = std::mem::take(&mut decoder.gathered);
        let used = self.decode(block, &gathered, exit);
        match &mut self.content {
            Content::Decoding(decoder) if self.pending => {
                gathered.drain(..used);
                decoder.gathered = gathered;
            }
            _ => {
                gathered.clear();
                exit.shared.gather = gathered;
            }
        }
    }

    /// Decodes data; returns how many bytes were used.
    fn decode(&mut self, block: &Descriptor, data: &[u8], exit: &mut Exit<'_>) -> usize {
        let mut used = 0;
        while let Content::Decoding(decoder) = &mut self.content {
            if exit.is_full() {
                self.pending = true;
                return used;
            }
            let left = exit.shared.decoded_max.saturating_sub(self.decoded_bytes);
            let room = DECODED_BLOCK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
            if room == 0 {
                exit.count_unseen("bodies cut at decoded-max");
                return self.cut_off("body over decoded-max", data, exit);
            }
            let rest = &data[used..];
            let budget = exit.shared.decoding_budget(&decoder.spent, rest.len());
            let step = exit.push_filled(block, room, |space| {
                let (step, made) = decoder.run(rest, space, budget);
                (step.made, (step, made))
            });
            let Some((step, made)) = step else { return self.stop_decoding(true, data, exit) };
            exit.shared.spent.add(step.used, made);
            used += step.used;
            self.decoded_bytes += step.made as u64;
            match step.then {
                Then::Input => return data.len(),
                Then::Room => {}
                Then::End => return self.stop_decoding(false, data, exit),
                Then::Damaged => {
                    exit.count("bodies whose coding is damaged", 1);
                    return self.stop_decoding(true, data, exit);
                }
                Then::Budget => {
                    exit.count_unseen("bodies cut at max-ratio");
                    return self.cut_off("body over max-ratio", data, exit);
                }
            }
        }
        data.len()
    }

    /// Skips the rest of the body because `limit` was met.
    fn cut_off(&mut self, limit: &'static str, data: &[u8], exit: &mut Exit<'_>) -> usize {
        self.dismiss(exit);
        self.content = Content::Cut(limit);
        data.len()
    }

    /// Skips the rest of the body.
    fn stop_decoding(&mut self, truncated: bool, data: &[u8], exit: &mut Exit<'_>) -> usize {
        self.truncated |= truncated;
        self.dismiss(exit);
        data.len()
    }

    fn dismiss(&mut self, exit: &mut Exit<'_>) {
        if matches!(self.content, Content::Cut(_)) {
            return;
        }
        if let Content::Decoding(decoder) = std::mem::replace(&mut self.content, Content::Over) {
            exit.shared.dismiss_decoder(*decoder);
        }
    }

    /// `bytes` bytes are missing here; returns how many of them lie behind the body's end.
    pub(super) fn miss(&mut self, bytes: u32, block: &Descriptor, exit: &mut Exit<'_>) -> u32 {
        // What follows is at a place that they cannot know.
        self.end_readings(exit);
        let inside = match self.framing {
            Framing::None => 0,
            Framing::Length(left) => u32::try_from(left).unwrap_or(u32::MAX).min(bytes),
            Framing::Close => bytes,
            Framing::Chunked(chunks) if u64::from(bytes) <= chunks.data_left() => bytes,
            Framing::Chunked(chunks) => {
                // Damage in the trailer section loses no data.
                let whole = chunks.has_all_data();
                (self.end, self.truncated) = if whole { (End::Whole, false) } else { (End::Broken, true) };
                return bytes;
            }
        };
        self.passed(u64::from(inside));
        match self.content {
            Content::Plain => {
                if inside > WIRE_MAX - self.gap {
                    self.give(block.part(0, 0), Flags::NONE, exit);
                }
                self.gap += inside;
            }
            Content::Coded(_) | Content::Decoding(_) if inside > 0 => {
                exit.count("coded bodies with bytes missing", 1);
                self.truncated = true;
                self.dismiss(exit);
            }
            _ => {}
        }
        bytes - inside
    }

    /// Gives a block of this body, with the gap before it.
    fn give(&mut self, mut part: Descriptor, flags: Flags, exit: &mut Exit<'_>) {
        let gap = std::mem::take(&mut self.gap);
        if gap > 0 && gap > WIRE_MAX.saturating_sub(part.len) {
            let mut empty = part.part(0, 0);
            empty.set_wire(gap);
            empty.set_flags(Flags::GAP_BEFORE);
            exit.push(empty);
        } else if gap > 0 {
            part.set_wire(gap + part.len);
            part.add_flags(Flags::GAP_BEFORE);
        }
        part.add_flags(flags);
        exit.push(part);
    }

    /// The stream ends. `seen`: its end was in the capture.
    pub(super) fn stream_ends(&mut self, seen: bool) {
        self.end = End::Whole;
        self.truncated |= match self.framing {
            Framing::None => false,
            Framing::Length(left) => left > 0,
            Framing::Chunked(chunks) => !chunks.has_all_data(),
            Framing::Close => !seen,
        };
    }

    /// Gives the last block if it was not given: an empty one at `at`.
    pub(super) fn finish(&mut self, at: &Descriptor, exit: &mut Exit<'_>) {
        if let Content::Decoding(decoder) = &self.content
            && !decoder.is_complete()
        {
            self.truncated = true;
        }
        self.dismiss(exit);
        self.end_readings(exit);
        if !self.last_given {
            let mut flags = Flags::LAST;
            if self.truncated || self.cut().is_some() {
                flags = flags.with(Flags::TRUNCATED);
            }
            if self.cut().is_some() {
                flags = flags.with(Flags::LIMITED);
            }
            self.give(at.part(0, 0), flags, exit);
            self.last_given = true;
        }
    }
}
