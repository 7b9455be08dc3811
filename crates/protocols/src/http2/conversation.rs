//! A connection of HTTP/2 (RFC 9113) with prior knowledge, or behind an upgrade: its frames, and their streams. An exchange is
//! a stream; 0 is the connection itself.
//!
//! [`table`](super::table) writes header fields as a head of HTTP/1, so that facts and bodies are those of
//! [`http`](crate::http). Streams interleave.
//!
//! Tiers: *data* stays where it is, untouched unless it is coded; frames with *header fields* and those that control the
//! connection are copied together; all other frames are skipped.

use super::table::{FieldText, HeadText, Table};
use super::{Header, PREFACE, flag, is_settings, kind};
use crate::conversation::{Ear, Fed, How, Id, Run, Side};
use crate::hpack::{self, Piece};
use crate::http::Fact;
use crate::http::asked::{Asked, Method, Question};
use crate::http::body::{self, Body, Source};
use crate::http::facts::{Notes, SETTINGS, tell};
use crate::http::framing::Framing;
use crate::http::head::{Head, host_name};
use crate::http::reading::Readings;
use crate::http::shared::Shared;
use crate::http::start::StartLine;
use base::limits::{HTTP2_HEAD_BYTES, HTTP2_STREAMS, RULES_BODY_BYTES};
use std::collections::BTreeMap;

/// Most bytes that are kept of a frame for an ear that wants frames.
const FRAME_BYTES: usize = RULES_BODY_BYTES;

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Half; 2],
    streams: BTreeMap<u32, Stream>,
    /// Memory charged for the connection.
    charged: usize,
    /// One side spoke HTTP/2.
    is_confirmed: bool,
}

/// Buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    head: HeadText,
    field: FieldText,
    text: Vec<u8>,
}

/// What one side sends.
#[derive(Debug, Default)]
struct Half {
    phase: Phase,
    /// Bytes copied together: a preface, a frame's header or its contents.
    part: Vec<u8>,
    /// An unfinished block of header fields: its stream, and whether the stream ends with it.
    fields: Option<(u32, bool)>,
    block: Vec<u8>,
    table: Table,
    /// The frame so far, for an ear that wants frames.
    frame: Vec<u8>,
}

/// The part of a frame that a side sends next.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// The side has sent nothing yet.
    #[default]
    Fresh,
    Header,
    /// The contents of a frame that is copied together.
    Contents(Header),
    /// The length of a frame's padding.
    Padding(Header),
    /// Data, and the padding of its frame.
    Data {
        header: Header,
        left: usize,
        padding: usize,
    },
    /// Contents that the conversation passes over, and their stream.
    Skip(usize, u32),
    /// The side speaks no HTTP/2, or lost its place among the frames.
    Gone,
}

#[derive(Debug, Default)]
struct Stream {
    sides: [Message; 2],
    asked: Asked,
}

#[derive(Debug, Default)]
enum Message {
    /// Its head has not come.
    #[default]
    Fresh,
    Body(Box<Body>),
    Over,
}

fn id(stream: u32, side: Side) -> Id {
    Id { exchange: stream.into(), side }
}

impl Conversation {
    /// A connection upgraded from HTTP/1. Its first stream answers this request (RFC 7540, 3.2), and so has it, if its method
    /// is known.
    pub fn upgraded(mut request: Question<'_>, ear: &mut impl Ear<Fact>) -> Conversation {
        if request.method.is_some() {
            let of = id(1, Side::Client);
            ear.begin(of);
            for (fact, value) in [
                (Fact::Direction, Some(&b"request"[..])),
                (Fact::Method, request.method),
                (Fact::Host, request.host),
                (Fact::Url, request.url),
                (Fact::Protocol, Some(b"HTTP/2")),
            ] {
                value.into_iter().for_each(|value| ear.fact(of, fact, value));
            }
            ear.bare(of, How::Complete);
        }
        let mut first = Stream { sides: [Message::Over, Message::Fresh], asked: Asked::default() };
        first.asked.push_copy(&mut request);
        Conversation { streams: BTreeMap::from([(1, first)]), ..Conversation::default() }
    }

    /// Whether a side began like HTTP/2.
    pub const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Whether the rest of a side is not read.
    pub fn is_gone(&self, side: Side) -> bool {
        matches!(self.sides[side.index()].phase, Phase::Gone)
    }

    /// Bytes kept of this connection, without decoders.
    pub const fn kept_bytes(&self) -> usize {
        self.charged
    }

    /// Reads the next bytes of a side, from `offset` on.
    pub fn feed(
        &mut self,
        side: Side,
        run: Run<'_>,
        mut offset: usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) -> Fed {
        while !self.is_read(side, offset, run.bytes.len()) {
            offset += self.step(side, run.bytes, offset, shared, ear);
            if body::is_full(shared, ear) {
                return Fed::Full { used: offset };
            }
        }
        if self.is_gone(side) { Fed::NotMine } else { Fed::Mine }
    }

    /// Bytes of a side are missing. If they are data of a body, the side goes on. Otherwise it is given up, because the next
    /// frame cannot be found.
    pub fn gap(&mut self, side: Side, missing: u32, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        let half = &mut self.sides[side.index()];
        half.frame.clear();
        match half.phase {
            Phase::Gone => {}
            Phase::Skip(left, stream) if left >= missing as usize => {
                half.phase = Phase::Skip(left - missing as usize, stream);
            }
            Phase::Data { header, left, padding } if left >= missing as usize => {
                half.phase = Phase::Data { header, left: left - missing as usize, padding };
                if let Some(body) = self.body(side, header.stream) {
                    body.miss(missing, shared, ear);
                }
            }
            _ => {
                ear.count("http2 directions lost to a gap", 1);
                self.lose(side, shared, ear);
            }
        }
    }

    /// The connection has ended.
    pub fn end(&mut self, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        while let Some((number, stream)) = self.streams.pop_first() {
            end_stream(number, stream, shared, ear);
        }
        shared.give_back(std::mem::take(&mut self.charged));
        self.sides = Default::default();
    }

    /// Whether nothing of these bytes is left.
    fn is_read(&self, side: Side, offset: usize, len: usize) -> bool {
        match self.sides[side.index()].phase {
            Phase::Gone => true,
            // The decoder may have output left, and an empty frame needs no byte.
            Phase::Data { header, left, .. } => left > 0 && offset >= len && !self.is_pending(side, header.stream),
            Phase::Contents(header) => header.length > 0 && offset >= len,
            _ => offset >= len,
        }
    }

    /// Reads some of the bytes; returns how many.
    fn step(
        &mut self,
        side: Side,
        bytes: &[u8],
        offset: usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) -> usize {
        let rest = bytes.get(offset..).unwrap_or_default();
        let half = &mut self.sides[side.index()];
        match half.phase {
            Phase::Gone => rest.len(),
            Phase::Fresh => self.first(side, rest, shared, ear),
            Phase::Header => {
                let (used, is_whole) = self.gather(side, rest, Header::BYTES, shared, ear);
                if is_whole {
                    self.header(side, shared, ear);
                }
                used
            }
            Phase::Contents(header) => {
                let (used, is_whole) = self.gather(side, rest, header.length, shared, ear);
                if is_whole {
                    let half = &mut self.sides[side.index()];
                    let contents = std::mem::take(&mut half.part);
                    half.phase = Phase::Header;
                    half.keep_frame(&contents, ear);
                    half.end_frame(id(header.stream, side), ear);
                    self.contents(side, header, &contents, shared, ear);
                    self.settle(shared, ear);
                }
                used
            }
            Phase::Padding(header) => {
                let padding = usize::from(rest[0]);
                half.keep_frame(&rest[..1], ear);
                half.phase = match (header.length - 1).checked_sub(padding) {
                    Some(left) => Phase::Data { header, left, padding },
                    None => Phase::Skip(header.length - 1, header.stream),
                };
                1
            }
            Phase::Data { header, left, padding } => {
                let used =
                    self.data(side, header.stream, &bytes[..bytes.len().min(offset + left)], offset, shared, ear);
                let left = left - used;
                let is_open = left > 0 || self.is_pending(side, header.stream);
                let half = &mut self.sides[side.index()];
                half.keep_frame(&rest[..used], ear);
                if is_open {
                    half.phase = Phase::Data { header, left, padding };
                    return used;
                }
                half.phase = if padding > 0 { Phase::Skip(padding, header.stream) } else { Phase::Header };
                if padding == 0 {
                    half.end_frame(id(header.stream, side), ear);
                }
                if header.has(flag::END_STREAM) {
                    self.end_message(side, header.stream, true, shared, ear);
                }
                used
            }
            Phase::Skip(left, stream) => {
                let used = rest.len().min(left);
                half.keep_frame(&rest[..used], ear);
                half.phase = Phase::Skip(left - used, stream);
                if used == left {
                    half.phase = Phase::Header;
                    half.end_frame(id(stream, side), ear);
                }
                used
            }
        }
    }

    fn body(&mut self, side: Side, stream: u32) -> Option<&mut Body> {
        match &mut self.streams.get_mut(&stream)?.sides[side.index()] {
            Message::Body(body) => Some(body),
            Message::Fresh | Message::Over => None,
        }
    }

    fn is_pending(&self, side: Side, stream: u32) -> bool {
        match self.streams.get(&stream).map(|stream| &stream.sides[side.index()]) {
            Some(Message::Body(body)) => body.is_pending() || body.has_gathered(),
            _ => false,
        }
    }

    /// Copies bytes until there are `wanted`; returns how many were used, and whether that is all.
    fn gather(
        &mut self,
        side: Side,
        bytes: &[u8],
        wanted: usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) -> (usize, bool) {
        let part = &mut self.sides[side.index()].part;
        let used = bytes.len().min(wanted - part.len());
        part.extend_from_slice(&bytes[..used]);
        let is_whole = part.len() == wanted;
        // A copy is charged only if it outlives this call.
        if !is_whole && !self.settle(shared, ear) {
            return (used, false);
        }
        (used, is_whole)
    }

    /// Reads the first bytes of a side: the client's preface, the server's settings (RFC 9113, 3.4).
    fn first(&mut self, side: Side, bytes: &[u8], shared: &mut Shared, ear: &mut impl Ear<Fact>) -> usize {
        let wanted = if side.is_client() { PREFACE.len() } else { Header::BYTES };
        let (used, is_whole) = self.gather(side, bytes, wanted, shared, ear);
        let half = &mut self.sides[side.index()];
        let fits = match side {
            Side::Client => PREFACE.starts_with(&half.part),
            Side::Server if !is_whole => true,
            Side::Server if self.is_confirmed => half.part.get(3) == Some(&kind::SETTINGS),
            Side::Server => is_settings(&half.part),
        };
        if !fits {
            self.lose(side, shared, ear);
        } else if is_whole {
            self.is_confirmed = true;
            match side {
                Side::Client => {
                    half.part.clear();
                    half.phase = Phase::Header;
                }
                Side::Server => self.header(side, shared, ear),
            }
        }
        used
    }

    /// Reads the header of a frame.
    fn header(&mut self, side: Side, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        let half = &mut self.sides[side.index()];
        let Some(header) = half.part.first_chunk().map(Header::parse) else { return };
        half.frame.clear();
        let part = std::mem::take(&mut half.part);
        half.keep_frame(&part, ear);
        half.part = part;
        half.part.clear();
        ear.number(id(header.stream, side), Fact::FrameType, header.kind.into());
        let is_fields = matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION);
        let is_control = matches!(header.kind, kind::PRIORITY | kind::SETTINGS | kind::GOAWAY | kind::WINDOW_UPDATE)
            && header.length <= HTTP2_HEAD_BYTES;
        half.phase = match header.kind {
            kind::DATA if header.has(flag::PADDED) && header.length > 0 => Phase::Padding(header),
            kind::DATA => Phase::Data { header, left: header.length, padding: 0 },
            _ if is_fields && header.length + half.block.len() > HTTP2_HEAD_BYTES => {
                ear.lost(id(header.stream, side), "http2 heads too long");
                return self.lose(side, shared, ear);
            }
            kind::RST_STREAM if header.length == 4 => Phase::Contents(header),
            _ if is_fields || is_control => Phase::Contents(header),
            _ if header.length == 0 => {
                half.end_frame(id(header.stream, side), ear);
                Phase::Header
            }
            _ => Phase::Skip(header.length, header.stream),
        };
    }

    /// Reads the contents of a frame that was copied together.
    fn contents(&mut self, side: Side, header: Header, contents: &[u8], shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        let of = id(header.stream, side);
        let number = |from: usize| {
            let four = contents.get(from..).and_then(|rest| rest.first_chunk()).copied();
            four.map(|four| u64::from(u32::from_be_bytes(four)))
        };
        let mut say = |fact: Fact, value: Option<u64>| {
            if let Some(value) = value {
                ear.number(of, fact, value);
            }
        };
        let weight = |at: usize| contents.get(at).map(|weight| u64::from(*weight));
        match header.kind {
            kind::RST_STREAM => {
                say(Fact::ErrorCode, number(0));
                match self.streams.remove(&header.stream) {
                    Some(stream) => end_stream(header.stream, stream, shared, ear),
                    None => ear.over(header.stream.into()),
                }
                return;
            }
            kind::GOAWAY => return say(Fact::ErrorCode, number(4)),
            kind::PRIORITY => return say(Fact::Priority, weight(4)),
            kind::WINDOW_UPDATE => return say(Fact::Window, number(0).map(|window| window & 0x7fff_ffff)),
            kind::SETTINGS => {
                for &[high, low, ref value @ ..] in contents.as_chunks::<6>().0 {
                    let setting = usize::from(u16::from_be_bytes([high, low]));
                    if let Some(fact) = setting.checked_sub(1).and_then(|place| SETTINGS.get(place)) {
                        say(*fact, Some(u32::from_be_bytes(*value).into()));
                    }
                }
                return;
            }
            kind::HEADERS if header.has(flag::PRIORITY) => {
                say(Fact::Priority, weight(4 + usize::from(header.has(flag::PADDED))));
            }
            _ => {}
        }
        let Some((fields, promised)) = header.fields(contents) else {
            ear.lost(of, "http2 frames whose lengths contradict each other");
            return self.lose(side, shared, ear);
        };
        let half = &mut self.sides[side.index()];
        match (header.kind, half.fields) {
            (kind::CONTINUATION, Some((stream, _))) if stream == header.stream => {}
            (kind::CONTINUATION, _) | (_, Some(_)) => {
                ear.lost(of, "http2 heads that another frame cuts");
                return self.lose(side, shared, ear);
            }
            (kind::PUSH_PROMISE, None) => half.fields = Some((promised, false)),
            _ => half.fields = Some((header.stream, header.has(flag::END_STREAM))),
        }
        half.block.extend_from_slice(fields);
        if header.has(flag::END_HEADERS) {
            let mut scratch = std::mem::take(&mut shared.scratch);
            self.fields(side, header.kind == kind::PUSH_PROMISE, &mut scratch, shared, ear);
            shared.scratch = scratch;
        }
    }

    /// Reads a whole block of header fields.
    fn fields(
        &mut self,
        side: Side,
        is_promise: bool,
        Scratch { head, field, text }: &mut Scratch,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) {
        let half = &mut self.sides[side.index()];
        let Some((stream, is_end)) = half.fields.take() else { return };
        let (of, coded) = (id(stream, side), std::mem::take(&mut half.block));
        let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        head.clear();
        let wants_fields = ear.wants().fields;
        let decoded = half.table.each_field(&coded, field, |field| {
            if wants_fields {
                list.push((field.name.clone(), field.value.clone()));
            }
            head.add_field(field);
        });
        if decoded.is_none() {
            // Its receiver ends the connection (RFC 9113, 4.3).
            ear.lost(of, "http2 heads that are damaged or too long");
            return self.lose(side, shared, ear);
        }
        for size in sizes(&coded) {
            ear.number(of, Fact::SizeUpdate, size);
        }
        list.iter().for_each(|(name, value)| ear.field(of, name, value));
        ear.fields_done(of);
        // The server makes up the promised request, so only the response to it is a message.
        if is_promise {
            return;
        }
        if head.write(text) {
            self.message(side, stream, is_end, text, shared, ear);
        } else if is_end {
            // Trailer fields end the body.
            self.end_message(side, stream, true, shared, ear);
        }
    }

    /// The stream with this number, made if it is new.
    fn stream(&mut self, number: u32, shared: &mut Shared, ear: &mut impl Ear<Fact>) -> &mut Stream {
        if !self.streams.contains_key(&number)
            && self.streams.len() >= HTTP2_STREAMS
            && let Some((oldest, stream)) = self.streams.pop_first()
        {
            ear.lost(id(oldest, Side::Client), "http2 streams evicted");
            end_stream(oldest, stream, shared, ear);
        }
        self.streams.entry(number).or_default()
    }

    /// Tells a head, and begins its body.
    fn message(
        &mut self,
        side: Side,
        number: u32,
        is_end: bool,
        text: &[u8],
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) {
        let Some(mut head) = Head::parse(text) else { return ear.count("http2 heads without a first line", 1) };
        let (StartLine::Request { protocol, .. } | StartLine::Response { protocol, .. }) = &mut head.start;
        *protocol = b"HTTP/2";
        let stream = self.stream(number, shared, ear);
        if !matches!(stream.sides[side.index()], Message::Fresh) {
            return ear.count("http2 heads out of place", 1);
        }
        let of = id(number, side);
        ear.begin(of);
        ear.head(of, text);
        let (question, is_interim) = match head.start {
            StartLine::Request { method, target, .. } => {
                let host = host_name(target, head.host);
                let kind = Method::of(method);
                let mut question = Question { number: None, kind, method: Some(method), host, url: Some(target) };
                if !stream.asked.push_copy(&mut question) {
                    ear.count("requests not kept for their response", 1);
                }
                (question, false)
            }
            StartLine::Response { status, .. } => {
                (stream.asked.front().unwrap_or_default(), matches!(status, Some(100..=199)) && !is_end)
            }
        };
        tell(of, &head, Notes::default(), question, ear);
        stream.sides[side.index()] = match () {
            () if is_interim => {
                ear.bare(of, How::Interim);
                Message::Fresh
            }
            () if is_end => {
                ear.bare(of, How::Complete);
                Message::Over
            }
            () => {
                ear.head_done(of);
                let mut body = Body::new(of, Framing::Close, &head, shared, ear);
                if ear.wants().readings {
                    body.read_also(Readings::of_codings(&head, Framing::Close));
                }
                Message::Body(Box::new(body))
            }
        };
        self.forget(number, ear);
    }

    /// Reads data of a stream; returns how many bytes were used.
    fn data(
        &mut self,
        side: Side,
        stream: u32,
        bytes: &[u8],
        offset: usize,
        shared: &mut Shared,
        ear: &mut impl Ear<Fact>,
    ) -> usize {
        let left = bytes.len().saturating_sub(offset);
        let Some(body) = self.body(side, stream) else { return left };
        if body.is_pending() || body.has_gathered() {
            body.fetch(shared, ear);
            return 0;
        }
        let before = body.cut();
        let end = body.take(Source { bytes, kept: None, more_follows: false }, offset, shared, ear);
        if let (None, Some(limit)) = (before, body.cut()) {
            ear.count(limit, 1);
        }
        end - offset
    }

    /// One side of a stream ended.
    fn end_message(&mut self, side: Side, number: u32, is_seen: bool, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.end(id(number, side), is_seen, shared, ear);
        self.forget(number, ear);
    }

    /// Forgets a stream whose sides both ended.
    fn forget(&mut self, number: u32, ear: &mut impl Ear<Fact>) {
        let is_over = |stream: &Stream| stream.sides.iter().all(|message| matches!(message, Message::Over));
        if self.streams.get(&number).is_some_and(is_over) {
            self.streams.remove(&number);
            ear.over(number.into());
        }
    }

    /// Stops reading a side.
    fn lose(&mut self, side: Side, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        let numbers: Vec<u32> = self.streams.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end_message(side, number, false, shared, ear));
        self.sides[side.index()] = Half { phase: Phase::Gone, ..Half::default() };
        self.settle(shared, ear);
    }

    /// Charges the memory of the connection. Without memory it gives up and returns `false`.
    fn settle(&mut self, shared: &mut Shared, ear: &mut impl Ear<Fact>) -> bool {
        let half = |half: &Half| half.part.len() + half.block.len() + half.table.bytes() + half.frame.len();
        let streams = self.streams.values().map(|stream| size_of::<Stream>() + stream.asked.bytes());
        let bytes = self.sides.iter().map(half).sum::<usize>() + streams.sum::<usize>();
        if bytes <= self.charged {
            shared.give_back(self.charged - bytes);
        } else if !shared.charge(bytes - self.charged) {
            ear.lost(id(0, Side::Client), "http2 connections given up for want of memory");
            self.end(shared, ear);
            self.sides = [Phase::Gone; 2].map(|phase| Half { phase, ..Half::default() });
            return false;
        }
        self.charged = bytes;
        true
    }
}

impl Half {
    /// Keeps bytes of the frame, if the ear wants them.
    fn keep_frame(&mut self, bytes: &[u8], ear: &impl Ear<Fact>) {
        if ear.wants().frames {
            let room = (Header::BYTES + FRAME_BYTES).saturating_sub(self.frame.len());
            self.frame.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn end_frame(&mut self, of: Id, ear: &mut impl Ear<Fact>) {
        if !self.frame.is_empty() {
            ear.frame(of, &self.frame);
            self.frame.clear();
        }
    }
}

impl Stream {
    fn end(&mut self, of: Id, is_seen: bool, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        if let Message::Body(mut body) = std::mem::replace(&mut self.sides[of.side.index()], Message::Over) {
            body.stream_ends(is_seen);
            body.finish(shared, ear);
        }
    }
}

/// Ends a stream early.
fn end_stream(number: u32, mut stream: Stream, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
    for side in [Side::Client, Side::Server] {
        stream.end(id(number, side), false, shared, ear);
    }
    ear.over(number.into());
}

/// Updates of the table size in a block of header fields.
fn sizes(mut block: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || match hpack::next(&mut block) {
        Some(Piece::TableSize(size)) => Some(size as u64),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;

    fn frame(kind: u8, flags: u8, stream: u8, contents: &[u8]) -> Vec<u8> {
        [&(contents.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], contents].concat()
    }

    /// GET / of the host `a`.
    const REQUEST: &[u8] = &[0x82, 0x84, 0x41, 1, b'a'];
    /// Status 200.
    const RESPONSE: &[u8] = &[0x88];
    const BOTH_ENDS: u8 = flag::END_HEADERS | flag::END_STREAM;

    fn settings() -> Vec<u8> {
        frame(kind::SETTINGS, 0, 0, &[])
    }

    fn talk(runs: &[(Side, u32, Vec<u8>)]) -> Vec<String> {
        let (mut shared, mut ear) = (Shared::new(true, u64::MAX, 100, 1 << 20), Heard::default());
        let mut conversation = Conversation::default();
        for (side, gap, bytes) in runs {
            if *gap > 0 {
                conversation.gap(*side, *gap, &mut shared, &mut ear);
            }
            let mut from = 0;
            while let Fed::Full { used } = conversation.feed(*side, Run { bytes, time: 0 }, from, &mut shared, &mut ear)
            {
                from = used;
                shared.begin_turn(true);
            }
        }
        conversation.end(&mut shared, &mut ear);
        assert!(shared.is_even());
        ear.said
    }

    fn statuses(runs: &[(Side, u32, Vec<u8>)]) -> Vec<String> {
        talk(runs).into_iter().filter(|said| said.starts_with("Status") || said.starts_with("Method")).collect()
    }

    /// See docs/decisions/protocols.md.
    #[test]
    fn where_record_and_alert_disagreed() {
        let request = [PREFACE.to_vec(), settings(), frame(kind::HEADERS, BOTH_ENDS, 1, REQUEST)].concat();
        let response = [settings(), frame(kind::HEADERS, BOTH_ENDS, 1, RESPONSE)].concat();
        let check = |runs: &[(Side, u32, Vec<u8>)], expected: &[&str]| assert_eq!(statuses(runs), expected, "{runs:?}");
        check(
            &[(Side::Client, 0, request.clone()), (Side::Server, 0, response.clone())],
            &["Method=GET", "Method=GET", "Status=200"],
        );
        // The server's settings are enough; the client's side needs the preface.
        check(&[(Side::Server, 0, response.clone())], &["Status=200"]);
        let without = request[PREFACE.len()..].to_vec();
        check(&[(Side::Client, 0, without), (Side::Server, 0, response.clone())], &["Status=200"]);
        // Settings are the server's first frame.
        check(&[(Side::Client, 0, request.clone()), (Side::Server, 0, response[9..].to_vec())], &["Method=GET"]);
        // A gap in front of a frame.
        check(&[(Side::Server, 0, settings()), (Side::Server, 5, response[9..].to_vec())], &[]);
        // Damaged fields end the connection, and what was read of them is no message.
        let damaged = [settings(), frame(kind::HEADERS, BOTH_ENDS, 1, &[0x88, 0x40])].concat();
        check(&[(Side::Server, 0, damaged)], &[]);
    }

    /// A gap within the data of a body.
    #[test]
    fn a_gap_in_a_body() {
        let head = [settings(), frame(kind::HEADERS, flag::END_HEADERS, 1, RESPONSE)].concat();
        let data = frame(kind::DATA, flag::END_STREAM, 1, b"abcdef");
        let said =
            talk(&[(Side::Server, 0, [&head[..], &data[..11]].concat()), (Side::Server, 2, data[13..].to_vec())]);
        let from = said.iter().position(|said| said == "head").unwrap();
        assert_eq!(said[from..], ["head", "FrameType=0", "bytes 28..30", "missing 2", "bytes 0..2", "Complete"]);
    }

    /// What frames of the connection say.
    #[test]
    fn frames_of_the_connection() {
        let bytes = [
            frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0x10, 0]),
            frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]),
            frame(kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 9]),
            frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 7]),
        ];
        let expected =
            ["FrameType=4", "Setting4=4096", "FrameType=7", "ErrorCode=2", "FrameType=8", "Window=9", "FrameType=2"];
        let whole = talk(&[(Side::Server, 0, bytes.concat())]);
        assert_eq!(whole[..7], expected);
        let pieces: Vec<_> = bytes.concat().chunks(1).map(|byte| (Side::Server, 0, byte.to_vec())).collect();
        assert_eq!(talk(&pieces), whole);
    }

    /// The first stream behind an upgrade answers the request of HTTP/1.
    #[test]
    fn behind_an_upgrade() {
        let (mut shared, mut ear) = (Shared::new(true, u64::MAX, 100, 1 << 20), Heard::default());
        let question = Question { method: Some(b"GET"), url: Some(b"/x"), ..Question::default() };
        let mut conversation = Conversation::upgraded(question, &mut ear);
        let expected = ["Direction=request", "Method=GET", "Url=/x", "Protocol=HTTP/2", "head", "Complete"];
        assert_eq!(std::mem::take(&mut ear.said), expected);
        let bytes = [settings(), frame(kind::HEADERS, BOTH_ENDS, 1, RESPONSE)].concat();
        conversation.feed(Side::Server, Run { bytes: &bytes, time: 0 }, 0, &mut shared, &mut ear);
        assert!(ear.said.contains(&"Url=/x".to_string()), "{:?}", ear.said);
    }
}
