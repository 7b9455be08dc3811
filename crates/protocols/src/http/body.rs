//! The body of a message: where it ends (RFC 9112 section 6), which bytes are data, and how they are coded.
//!
//! Three tiers:
//! * *plain data* is not touched: the ear hears its place;
//! * *coded data* is decoded into room that the ear gives. Consecutive runs are gathered by a copy first;
//! * data behind a place where decoding failed is skipped.

use super::Fact;
use super::chunks::{Chunks, Next};
use super::decode::Decoder;
use super::framing::Framing;
use super::head::{Coding, Codings, Head};
use super::reading::Readings;
use super::shared::Shared;
use super::start::StartLine;
use super::step::Then;
use crate::conversation::{Body as Piece, Ear, How, Id};
use base::limits::{DECODED_BLOCK_BYTES, HTTP_CODINGS};
use std::ops::Range;

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
pub enum End {
    /// More bytes follow.
    Open,
    /// The body is complete.
    Whole,
    /// The boundary of the next message is unknown: the framing is damaged or missing.
    Broken,
}

/// Bytes of a message that are read now.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// They were kept, and came at this time. `None`: they are those of the current run.
    pub kept: Option<u64>,
    /// The next run continues right behind this one.
    pub more_follows: bool,
}

impl<'a> Source<'a> {
    fn piece(&self, place: Range<usize>) -> Piece<'a> {
        match self.kept {
            Some(time) => Piece::Kept(&self.bytes[place], time),
            None => Piece::Range(place),
        }
    }
}

/// A body that is being read.
#[derive(Debug)]
pub struct Body {
    /// The message that it is of.
    id: Id,
    framing: Framing,
    /// The framing to use if a response says chunked but its first byte is no chunk size.
    otherwise: Option<Framing>,
    content: Content,
    pub end: End,
    /// The request was not seen. If it was HEAD, there is no body, and the first bytes may be the next response.
    pub in_doubt: bool,
    /// In the first line of a response without a head. Behind it another response may begin.
    pub first_line: bool,
    /// Bytes are missing at the end, or could not be decoded.
    truncated: bool,
    /// Its last bytes were told as such.
    is_last_told: bool,
    /// The decoder has more output.
    pending: bool,
    /// Bytes missing before the next ones.
    gap: u32,
    decoded_bytes: u64,
    /// How other clients read it.
    readings: Option<Box<Readings>>,
    /// Its own framing is broken, and `readings` go on.
    is_outlived: bool,
}

impl Body {
    /// `framing` says where the body ends.
    pub fn new(id: Id, framing: Framing, head: &Head<'_>, shared: &Shared, ear: &mut impl Ear<Fact>) -> Body {
        let response = matches!(head.start, StartLine::Response { .. });
        let mut body = Body {
            id,
            framing,
            otherwise: (head.chunked && response).then(|| Framing::unchunked(head, false)),
            content: Content::Plain,
            end: End::Open,
            in_doubt: false,
            first_line: false,
            truncated: false,
            is_last_told: false,
            pending: false,
            gap: 0,
            decoded_bytes: 0,
            readings: None,
            is_outlived: false,
        };
        if head.transfer.over || head.content.over {
            ear.lost(id, "bodies in more codings than are undone");
        }
        // Transfer codings were applied last.
        let content = if shared.decodes() { head.content } else { Codings::default() };
        let outermost_first = head.transfer.list().iter().rev().chain(content.list().iter().rev()).flatten();
        let mut known = [None; 2 * HTTP_CODINGS];
        for (slot, coding) in known.iter_mut().zip(outermost_first) {
            if matches!(coding, Coding::Unknown | Coding::Lzma) {
                ear.count("bodies in a coding that is not known", 1);
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
    pub fn is_pending(&self) -> bool {
        self.pending || self.end != End::Open && self.has_gathered()
    }

    /// The limit for which the rest of the data is skipped.
    pub fn cut(&self) -> Option<&'static str> {
        if let Content::Cut(limit) = self.content { Some(limit) } else { None }
    }

    /// Whether coded data is waiting to be decoded.
    pub fn has_gathered(&self) -> bool {
        matches!(&self.content, Content::Decoding(decoder) if !decoder.gathered.is_empty())
    }

    /// Reads bytes from `offset` on. Returns where it stopped: at the end of the bytes or the body, or when this call has
    /// read enough.
    pub fn take(&mut self, from: Source<'_>, offset: usize, shared: &mut Shared, ear: &mut impl Ear<Fact>) -> usize {
        let end = self.take_own(from, offset, shared, ear);
        if let Some(readings) = &mut self.readings {
            readings.take(&from.bytes[offset..end], self.id, shared, ear);
            if self.is_outlived && !readings.go_on() {
                self.end = End::Broken;
            }
        }
        end
    }

    /// How other clients read this body, for rules.
    pub fn read_also(&mut self, readings: Readings) {
        self.readings = (!readings.is_empty()).then(|| Box::new(readings));
    }

    fn end_readings(&mut self, shared: &mut Shared) {
        if let Some(readings) = self.readings.take() {
            readings.end(shared);
        }
    }

    fn take_own(
        &mut self,
        from: Source<'_>,
        mut offset: usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) -> usize {
        let bytes = from.bytes;
        while self.end == End::Open && offset < bytes.len() && !self.pending && !is_full(shared, ear) {
            let rest = &bytes[offset..];
            offset += match &mut self.framing {
                Framing::Length(left) => {
                    let len = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let last = len as u64 == *left;
                    let used = self.pass(from, offset..offset + len, last, shared, ear);
                    self.passed(used as u64);
                    used
                }
                Framing::Close => self.pass(from, offset..bytes.len(), false, shared, ear),
                // Browsers accept such responses, each in cases of its own.
                Framing::Chunked(_)
                    if let Some(otherwise) = self.otherwise.take()
                        && !Chunks::may_begin(rest[0]) =>
                {
                    ear.count("bodies that are not chunked as they say", 1);
                    self.framing = otherwise;
                    0
                }
                Framing::Chunked(chunks) => match chunks.next(rest) {
                    Next::Framing(used) => used,
                    Next::Data(0) => {
                        let len = rest.len().min(usize::try_from(chunks.data_left()).unwrap_or(usize::MAX));
                        let used = self.pass(from, offset..offset + len, false, shared, ear);
                        self.passed(used as u64);
                        used
                    }
                    Next::Data(used) => used,
                    Next::End(used) => {
                        self.end = End::Whole;
                        used
                    }
                    Next::Broken(used) if self.readings.as_ref().is_some_and(|readings| readings.go_on()) => {
                        ear.count("chunk sizes that are none", 1);
                        (self.framing, self.truncated, self.is_outlived) = (Framing::Close, true, true);
                        self.stop_decoding(true, &[], shared);
                        self.content = Content::Over;
                        used
                    }
                    Next::Broken(used) => {
                        ear.lost(self.id, "chunk sizes that are none");
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
    fn pass(
        &mut self,
        from: Source<'_>,
        place: Range<usize>,
        is_last: bool,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) -> usize {
        let data = &from.bytes[place.clone()];
        if let Content::Coded(codings) = self.content {
            self.begin_decoding(&codings, data, shared, ear);
        }
        match &mut self.content {
            Content::Plain => {
                self.tell_gap(ear);
                let piece = from.piece(place);
                if is_last {
                    ear.last(self.id, piece)
                } else {
                    ear.body(self.id, piece)
                }
                self.is_last_told = is_last;
                data.len()
            }
            Content::Decoding(decoder) => {
                if !from.more_follows && decoder.gathered.is_empty() {
                    return self.decode(data, shared, ear);
                }
                let fits = decoder.gather_copy(data, &mut shared.gather);
                if !fits && decoder.gathered.is_empty() {
                    return self.decode(data, shared, ear);
                }
                self.pending = !fits || !from.more_follows;
                if fits { data.len() } else { 0 }
            }
            Content::Coded(_) | Content::Over | Content::Cut(_) => data.len(),
        }
    }

    /// Tells of the bytes that are missing in front of the next ones.
    fn tell_gap(&mut self, ear: &mut impl Ear<Fact>) {
        let gap = std::mem::take(&mut self.gap);
        if gap > 0 {
            ear.body(self.id, Piece::Missing(gap));
        }
    }

    fn begin_decoding(
        &mut self,
        codings: &[Option<Coding>],
        data: &[u8],
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) {
        let Some(first) = data.first() else { return };
        let mut known = [Coding::Unknown; 2 * HTTP_CODINGS];
        let count = codings.iter().flatten().count();
        known.iter_mut().zip(codings.iter().flatten()).for_each(|(slot, coding)| *slot = *coding);
        let bytes = Decoder::memory_bytes(&known[..count], *first);
        if shared.charge(bytes) {
            let decoder = Decoder::new(&known[..count], bytes, &mut shared.inflaters);
            self.content = Content::Decoding(Box::new(decoder));
        } else {
            ear.lost(self.id, "bodies not decoded for want of memory");
            self.content = Content::Cut("body over memory");
        }
    }

    /// Gives the decoder's remaining output.
    pub fn fetch(&mut self, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        self.pending = false;
        let Content::Decoding(decoder) = &mut self.content else { return };
        let mut gathered = std::mem::take(&mut decoder.gathered);
        let used = self.decode(&gathered, shared, ear);
        match &mut self.content {
            Content::Decoding(decoder) if self.pending => {
                gathered.drain(..used);
                decoder.gathered = gathered;
            }
            _ => {
                gathered.clear();
                shared.gather = gathered;
            }
        }
    }

    /// Decodes data; returns how many bytes were used.
    fn decode(&mut self, data: &[u8], shared: &mut Shared, ear: &mut impl Ear<Fact>) -> usize {
        let mut used = 0;
        while let Content::Decoding(decoder) = &mut self.content {
            if is_full(shared, ear) {
                self.pending = true;
                return used;
            }
            let left = shared.decoded_max.saturating_sub(self.decoded_bytes);
            let room = DECODED_BLOCK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
            if room == 0 {
                ear.lost(self.id, "bodies cut at decoded-max");
                return self.cut_off("body over decoded-max", data, shared);
            }
            let rest = &data[used..];
            let budget = shared.decoding_budget(&decoder.spent, rest.len());
            let mut done = None;
            ear.room(self.id, room, &mut |space| {
                let (step, made) = decoder.run(rest, space, budget);
                done = Some((step, made));
                step.made
            });
            let Some((step, made)) = done else { return self.stop_decoding(true, data, shared) };
            shared.made(step.made);
            shared.spent.add(step.used, made);
            used += step.used;
            self.decoded_bytes += step.made as u64;
            match step.then {
                Then::Input => return data.len(),
                Then::Room => {}
                Then::End => return self.stop_decoding(false, data, shared),
                Then::Damaged => {
                    ear.count("bodies whose coding is damaged", 1);
                    return self.stop_decoding(true, data, shared);
                }
                Then::Budget => {
                    ear.lost(self.id, "bodies cut at max-ratio");
                    return self.cut_off("body over max-ratio", data, shared);
                }
            }
        }
        data.len()
    }

    /// Skips the rest of the body because `limit` was met.
    fn cut_off(&mut self, limit: &'static str, data: &[u8], shared: &mut Shared) -> usize {
        self.dismiss(shared);
        self.content = Content::Cut(limit);
        data.len()
    }

    /// Skips the rest of the body.
    fn stop_decoding(&mut self, truncated: bool, data: &[u8], shared: &mut Shared) -> usize {
        self.truncated |= truncated;
        self.dismiss(shared);
        data.len()
    }

    fn dismiss(&mut self, shared: &mut Shared) {
        if matches!(self.content, Content::Cut(_)) {
            return;
        }
        if let Content::Decoding(decoder) = std::mem::replace(&mut self.content, Content::Over) {
            shared.dismiss_decoder(*decoder);
        }
    }

    /// `bytes` bytes are missing here; returns how many of them lie behind the body's end.
    pub fn miss(&mut self, bytes: u32, shared: &mut Shared, ear: &mut impl Ear<Fact>) -> u32 {
        // What follows is at a place that they cannot know.
        self.end_readings(shared);
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
                if inside > u32::MAX - self.gap {
                    self.tell_gap(ear);
                }
                self.gap += inside;
            }
            Content::Coded(_) | Content::Decoding(_) if inside > 0 => {
                ear.count("coded bodies with bytes missing", 1);
                self.truncated = true;
                self.dismiss(shared);
            }
            _ => {}
        }
        bytes - inside
    }

    /// The stream ends. `seen`: its end was in the capture.
    pub fn stream_ends(&mut self, seen: bool) {
        self.end = End::Whole;
        self.truncated |= match self.framing {
            Framing::None => false,
            Framing::Length(left) => left > 0,
            Framing::Chunked(chunks) => !chunks.has_all_data(),
            Framing::Close => !seen,
        };
    }

    /// Ends the message.
    pub fn finish(&mut self, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        if let Content::Decoding(decoder) = &self.content
            && !decoder.is_complete()
        {
            self.truncated = true;
        }
        self.dismiss(shared);
        self.end_readings(shared);
        if self.is_last_told {
            return;
        }
        self.tell_gap(ear);
        let how = match self.cut() {
            Some(_) => How::Limit,
            None if self.truncated => How::Cut,
            None => How::Complete,
        };
        ear.end(self.id, how);
    }
}

/// Whether a call has read enough.
pub fn is_full(shared: &Shared, ear: &impl Ear<Fact>) -> bool {
    shared.is_turn_over() || ear.is_full()
}
