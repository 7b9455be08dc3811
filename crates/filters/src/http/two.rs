//! A connection of HTTP/2 (RFC 9113) with prior knowledge: its frames, and their streams.
//!
//! `table` writes header fields as a head of HTTP/1, so that records and bodies are those of `http`. Streams
//! interleave, so each gets its own stream number, with the facts of its connection.
//!
//! Tiers: *data* stays in the capture, untouched unless it is coded; frames with *header fields* are copied together
//! and decoded; all other frames are skipped.

use super::body::{Body, Framing};
use super::exit::{Exit, Shared};
use super::row::{Notes, give_row};
use base::limits::{HTTP_TURN_BLOCKS, HTTP2_HEAD_BYTES, HTTP2_STREAMS};
use filter::prelude::*;
use protocols::http::asked::{Asked, Method, Question};
use protocols::http::head::{Head, host_name};
use protocols::http::start::StartLine;
use protocols::http2::table::{HeadText, Table};
use protocols::http2::{Header, PREFACE, flag, kind};
use std::collections::BTreeMap;

/// State that connections of `http2` share.
pub(crate) struct Http2 {
    shared: Shared,
    head: HeadText,
    text: Vec<u8>,
}

/// An instance, with the parameters of `http`.
pub(crate) fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let http2 = Http2 { shared: super::shared(params), head: HeadText::default(), text: Vec::new() };
    Ok(Instance::session(SessionKey::Connection, http2))
}

#[derive(Default)]
pub(crate) struct Session {
    sides: [Side; 2],
    streams: BTreeMap<u32, Stream>,
    /// A number for the next stream.
    spare: Option<u32>,
    /// Numbers of ended streams.
    ended: Vec<u32>,
    /// Memory charged for the session.
    charged: usize,
    /// Where the last call stopped, if before the end of its batch: block and offset.
    stopped: Option<(usize, usize)>,
    /// The client spoke HTTP/2.
    is_confirmed: bool,
}

#[derive(Default)]
struct Side {
    phase: Phase,
    /// Bytes copied together: a preface, a frame's header or its contents.
    part: Vec<u8>,
    /// An unfinished block of header fields: its stream, and whether the stream ends with it.
    fields: Option<(u32, bool)>,
    block: Vec<u8>,
    table: Table,
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
    /// Contents that the session passes over.
    Skip(usize),
    /// The side speaks no HTTP/2, or lost its place among the frames.
    Gone,
}

struct Stream {
    /// The stream number that the output uses.
    number: u32,
    sides: [Half; 2],
    asked: Asked,
}

enum Half {
    /// Its head has not come.
    Fresh,
    Body(Box<Body>),
    Over,
}

impl SessionFilter for Http2 {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let from = session.stopped.take();
        let enough = cx.out.len() + HTTP_TURN_BLOCKS;
        for (place, block) in batch.iter() {
            let mut offset = match from {
                Some((stopped, _)) if place < stopped => continue,
                Some((stopped, offset)) if place == stopped => offset,
                _ => 0,
            };
            let is_begun = from.is_some_and(|(stopped, _)| stopped == place);
            if !is_begun && block.gap() > 0 {
                session.gap(block, &mut Exit::new(cx, &mut self.shared));
            }
            let side = usize::from(block.class.direction());
            loop {
                if session.spare.is_none()
                    && session.is_confirmed
                    && let Some(facts) = cx.streams.get(block.class).cloned()
                {
                    session.spare = cx.streams.open(facts);
                }
                let mut exit = Exit::new(cx, &mut self.shared);
                exit.place = place;
                let rings = exit.rings;
                let bytes = rings.bytes(block);
                let is_over = session.is_over(side, offset, bytes.len());
                if !is_over {
                    offset += session.step(block, bytes, offset, &mut self.head, &mut self.text, &mut exit);
                }
                let is_full = exit.is_full();
                session.ended.drain(..).for_each(|number| cx.streams.close(number));
                if is_over {
                    break;
                }
                if is_full || cx.out.len() >= enough {
                    session.stopped = Some((place, offset));
                    return Ok(Status::More);
                }
            }
            if let Phase::Gone = session.sides[side].phase {
                cx.reject(place);
            }
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        mut session: Session,
        _class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let mut exit = Exit::new(cx, &mut self.shared);
        while let Some((_, stream)) = session.streams.pop_first() {
            session.end_stream(stream, &mut exit);
        }
        exit.shared.give_back(session.charged);
        let numbers = session.ended.into_iter().chain(session.spare);
        numbers.for_each(|number| cx.streams.close(number));
        Ok(())
    }

    fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
        debug_assert!(self.shared.is_even(), "a closed connection keeps no memory");
        Ok(Status::Done)
    }
}

impl Session {
    /// The capture lacks bytes of a side. If they are data of a body, the session goes on. Otherwise it gives the side
    /// up, because it cannot find the next frame.
    fn gap(&mut self, block: &Descriptor, exit: &mut Exit<'_>) {
        let side = usize::from(block.class.direction());
        let missing = block.gap();
        match self.sides[side].phase {
            Phase::Gone => {}
            Phase::Skip(left) if left >= missing as usize => {
                self.sides[side].phase = Phase::Skip(left - missing as usize)
            }
            Phase::Data { header, left, padding } if left >= missing as usize => {
                let left = left - missing as usize;
                self.sides[side].phase = Phase::Data { header, left, padding };
                if let Some(stream) = self.streams.get_mut(&header.stream)
                    && let Half::Body(body) = &mut stream.sides[side]
                {
                    let at = Descriptor { class: Class::of_stream(stream.number, side as u8), ..block.part(0, 0) };
                    body.miss(missing, &at, exit);
                }
            }
            _ => {
                exit.count("http2 directions lost to a gap", 1);
                self.lose(side, exit);
            }
        }
    }

    /// Whether the rest of this block is empty.
    fn is_over(&self, side: usize, offset: usize, len: usize) -> bool {
        match self.sides[side].phase {
            Phase::Gone => true,
            // The decoder may have output left, and an empty frame needs no byte.
            Phase::Data { header, left, .. } => left > 0 && offset >= len && !self.is_pending(side, header.stream),
            Phase::Contents(header) => header.length > 0 && offset >= len,
            _ => offset >= len,
        }
    }

    /// Reads some bytes of a block; returns how many.
    fn step(
        &mut self,
        block: &Descriptor,
        bytes: &[u8],
        offset: usize,
        head: &mut HeadText,
        text: &mut Vec<u8>,
        exit: &mut Exit<'_>,
    ) -> usize {
        let side = usize::from(block.class.direction());
        let rest = bytes.get(offset..).unwrap_or_default();
        match self.sides[side].phase {
            Phase::Gone => rest.len(),
            Phase::Fresh => self.first(side, rest, exit),
            Phase::Header => {
                let (used, is_whole) = self.gather(side, rest, Header::BYTES, exit);
                if is_whole && let Some(header) = self.sides[side].part.first_chunk().map(Header::parse) {
                    self.sides[side].part.clear();
                    self.frame(side, header, exit);
                }
                used
            }
            Phase::Contents(header) => {
                let (used, is_whole) = self.gather(side, rest, header.length, exit);
                if is_whole {
                    let contents = std::mem::take(&mut self.sides[side].part);
                    self.sides[side].phase = Phase::Header;
                    self.contents(block, header, &contents, head, text, exit);
                    self.settle(exit);
                }
                used
            }
            Phase::Padding(header) => {
                let padding = usize::from(rest[0]);
                self.sides[side].phase = match (header.length - 1).checked_sub(padding) {
                    Some(left) => Phase::Data { header, left, padding },
                    None => Phase::Skip(header.length - 1),
                };
                1
            }
            Phase::Data { header, left, padding } => {
                let used = self.data(block, header, &bytes[..bytes.len().min(offset + left)], offset, exit);
                let left = left - used;
                let is_open = left > 0 || self.is_pending(side, header.stream);
                if is_open {
                    self.sides[side].phase = Phase::Data { header, left, padding };
                } else {
                    self.sides[side].phase = if padding > 0 { Phase::Skip(padding) } else { Phase::Header };
                    if header.has(flag::END_STREAM) {
                        self.end_half(side, header.stream, &block.part((offset + used) as u32, 0), true, exit);
                    }
                }
                used
            }
            Phase::Skip(left) => {
                let used = rest.len().min(left);
                self.sides[side].phase = if used == left { Phase::Header } else { Phase::Skip(left - used) };
                used
            }
        }
    }

    fn is_pending(&self, side: usize, stream: u32) -> bool {
        match self.streams.get(&stream).map(|stream| &stream.sides[side]) {
            Some(Half::Body(body)) => body.is_pending() || body.has_gathered(),
            _ => false,
        }
    }

    /// Copies bytes until there are `wanted`; returns how many were used, and whether that is all.
    fn gather(&mut self, side: usize, bytes: &[u8], wanted: usize, exit: &mut Exit<'_>) -> (usize, bool) {
        let part = &mut self.sides[side].part;
        let used = bytes.len().min(wanted - part.len());
        part.extend_from_slice(&bytes[..used]);
        let is_whole = part.len() == wanted;
        // The session charges a copy only if it outlives this call.
        if !is_whole && !self.settle(exit) {
            return (used, false);
        }
        (used, is_whole)
    }

    /// Reads the first bytes of a side: the client's preface, the server's settings.
    fn first(&mut self, side: usize, bytes: &[u8], exit: &mut Exit<'_>) -> usize {
        let wanted = if self.is_confirmed { Header::BYTES } else { PREFACE.len() };
        let (used, is_whole) = self.gather(side, bytes, wanted, exit);
        let this = &mut self.sides[side];
        let fits = if wanted == PREFACE.len() {
            PREFACE.starts_with(&this.part)
        } else {
            !is_whole || this.part.first_chunk().map(Header::parse).is_some_and(|header| header.kind == kind::SETTINGS)
        };
        if !fits {
            self.lose(side, exit);
        } else if is_whole && wanted == PREFACE.len() {
            this.part.clear();
            this.phase = Phase::Header;
            self.is_confirmed = true;
        } else if is_whole && let Some(header) = this.part.first_chunk().map(Header::parse) {
            this.part.clear();
            self.frame(side, header, exit);
        }
        used
    }

    fn frame(&mut self, side: usize, header: Header, exit: &mut Exit<'_>) {
        let this = &mut self.sides[side];
        let is_fields = matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION);
        this.phase = match header.kind {
            kind::DATA if header.has(flag::PADDED) && header.length > 0 => Phase::Padding(header),
            kind::DATA => Phase::Data { header, left: header.length, padding: 0 },
            _ if is_fields && header.length + this.block.len() > HTTP2_HEAD_BYTES => {
                exit.count("http2 heads too long", 1);
                return self.lose(side, exit);
            }
            _ if is_fields || header.kind == kind::RST_STREAM && header.length == 4 => Phase::Contents(header),
            _ if header.length == 0 => Phase::Header,
            _ => Phase::Skip(header.length),
        };
    }

    /// Reads the contents of a frame that was copied together.
    fn contents(
        &mut self,
        block: &Descriptor,
        header: Header,
        contents: &[u8],
        head: &mut HeadText,
        text: &mut Vec<u8>,
        exit: &mut Exit<'_>,
    ) {
        let side = usize::from(block.class.direction());
        if header.kind == kind::RST_STREAM {
            if let Some(stream) = self.streams.remove(&header.stream) {
                self.end_stream(stream, exit);
            }
            return;
        }
        let Some((fields, promised)) = header.fields(contents) else {
            exit.count("http2 frames whose lengths contradict each other", 1);
            return self.lose(side, exit);
        };
        let this = &mut self.sides[side];
        match (header.kind, this.fields) {
            (kind::CONTINUATION, Some((stream, _))) if stream == header.stream => {}
            (kind::CONTINUATION, _) | (_, Some(_)) => {
                exit.count("http2 heads that another frame cuts", 1);
                return self.lose(side, exit);
            }
            // The server makes up the promised request, so only the response to it is given.
            (kind::PUSH_PROMISE, None) => this.fields = Some((promised, false)),
            _ => this.fields = Some((header.stream, header.has(flag::END_STREAM))),
        }
        this.block.extend_from_slice(fields);
        if !header.has(flag::END_HEADERS) {
            return;
        }
        let (fields, is_promise) = (this.fields.take(), header.kind == kind::PUSH_PROMISE);
        let coded = std::mem::take(&mut this.block);
        if this.table.decode(&coded, head).is_none() {
            exit.count("http2 heads that are damaged or too long", 1);
            return self.lose(side, exit);
        }
        if let Some((stream, is_end)) = fields {
            if is_promise {
                return;
            }
            if head.write(text) {
                self.message(block, stream, is_end, text, exit);
            } else if is_end {
                // Trailer fields end the body.
                self.end_half(side, stream, &block.part(block.len, 0), true, exit);
            }
        }
    }

    /// The stream with this HTTP/2 number, made if it is new; `None` if no stream number is free.
    fn stream(&mut self, id: u32, exit: &mut Exit<'_>) -> Option<&mut Stream> {
        if !self.streams.contains_key(&id) {
            let Some(number) = self.spare.take() else {
                exit.count("http2 streams without a number", 1);
                return None;
            };
            if self.streams.len() >= HTTP2_STREAMS
                && let Some((_, oldest)) = self.streams.pop_first()
            {
                exit.count("http2 streams evicted", 1);
                self.end_stream(oldest, exit);
            }
            let sides = [Half::Fresh, Half::Fresh];
            self.streams.insert(id, Stream { number, sides, asked: Asked::default() });
        }
        self.streams.get_mut(&id)
    }

    /// Gives the record of a head and begins its body.
    fn message(&mut self, block: &Descriptor, id: u32, is_end: bool, text: &[u8], exit: &mut Exit<'_>) {
        let side = usize::from(block.class.direction());
        let Some(mut head) = Head::parse(text) else { return exit.count("http2 heads without a first line", 1) };
        let (StartLine::Request { protocol, .. } | StartLine::Response { protocol, .. }) = &mut head.start;
        *protocol = b"HTTP/2";
        let Some(stream) = self.stream(id, exit) else { return };
        if !matches!(stream.sides[side], Half::Fresh) {
            return exit.count("http2 heads out of place", 1);
        }
        let class = Class::of_stream(stream.number, side as u8);
        let (question, is_interim) = match head.start {
            StartLine::Request { method, target, .. } => {
                let host = host_name(target, head.host);
                let kind = Method::of(method);
                let mut question = Question { number: None, kind, method: Some(method), host, url: Some(target) };
                if !stream.asked.push_copy(&mut question) {
                    exit.count("requests not kept for their response", 1);
                }
                (question, false)
            }
            StartLine::Response { status, .. } => {
                (stream.asked.front().unwrap_or_default(), matches!(status, Some(100..=199)) && !is_end)
            }
        };
        let is_whole = is_end || is_interim;
        give_row(
            &head,
            Notes::default(),
            question,
            block.time,
            class,
            if is_whole { Flags::LAST } else { Flags::NONE },
            exit,
        );
        stream.sides[side] = match () {
            () if is_interim => Half::Fresh,
            () if is_end => Half::Over,
            () => Half::Body(Box::new(Body::new(Framing::Close, &head, exit))),
        };
        self.forget(id);
    }

    /// Reads data of a stream; returns how many bytes were used.
    fn data(&mut self, block: &Descriptor, header: Header, bytes: &[u8], offset: usize, exit: &mut Exit<'_>) -> usize {
        let side = usize::from(block.class.direction());
        let left = bytes.len().saturating_sub(offset);
        let Some(stream) = self.streams.get_mut(&header.stream) else { return left };
        let Half::Body(body) = &mut stream.sides[side] else { return left };
        let like = Descriptor { class: Class::of_stream(stream.number, side as u8), ..*block };
        if body.is_pending() || body.has_gathered() {
            body.fetch(&like, exit);
            return 0;
        }
        let before = body.cut();
        let end = body.take(&like, bytes, offset, exit);
        if let (None, Some(limit)) = (before, body.cut()) {
            exit.count(limit, 1);
        }
        end - offset
    }

    /// One direction of a stream ended.
    fn end_half(&mut self, side: usize, id: u32, at: &Descriptor, is_seen: bool, exit: &mut Exit<'_>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let at = Descriptor { class: Class::of_stream(stream.number, side as u8), ..*at };
        if let Half::Body(mut body) = std::mem::replace(&mut stream.sides[side], Half::Over) {
            body.stream_ends(is_seen);
            body.finish(&at, exit);
        }
        self.forget(id);
    }

    /// Forgets a stream whose directions both ended.
    fn forget(&mut self, id: u32) {
        let is_over = |stream: &Stream| stream.sides.iter().all(|half| matches!(half, Half::Over));
        if self.streams.get(&id).is_some_and(is_over)
            && let Some(stream) = self.streams.remove(&id)
        {
            self.ended.push(stream.number);
        }
    }

    /// Ends a stream early.
    fn end_stream(&mut self, mut stream: Stream, exit: &mut Exit<'_>) {
        for (side, half) in (0u8..).zip(&mut stream.sides) {
            if let Half::Body(body) = half {
                let at = exit.nothing(Class::of_stream(stream.number, side));
                body.stream_ends(false);
                body.finish(&at, exit);
            }
        }
        self.ended.push(stream.number);
    }

    /// Stops reading a direction.
    fn lose(&mut self, side: usize, exit: &mut Exit<'_>) {
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            if let Some(number) = self.streams.get(&id).map(|stream| stream.number) {
                let at = exit.nothing(Class::of_stream(number, side as u8));
                self.end_half(side, id, &at, false, exit);
            }
        }
        self.sides[side] = Side { phase: Phase::Gone, ..Side::default() };
        self.settle(exit);
    }

    /// Charges the memory of the connection. Without memory it gives up and returns `false`.
    fn settle(&mut self, exit: &mut Exit<'_>) -> bool {
        let sides = self.sides.iter().map(|side| side.part.len() + side.block.len() + side.table.bytes());
        let streams = self.streams.values().map(|stream| size_of::<Stream>() + stream.asked.bytes());
        let bytes = sides.sum::<usize>() + streams.sum::<usize>();
        if bytes <= self.charged {
            exit.shared.give_back(self.charged - bytes);
        } else if !exit.shared.charge(bytes - self.charged) {
            exit.count("http2 connections given up for want of memory", 1);
            for side in [0, 1] {
                self.sides[side] = Side { phase: Phase::Gone, ..Side::default() };
            }
            while let Some((_, stream)) = self.streams.pop_first() {
                self.end_stream(stream, exit);
            }
            exit.shared.give_back(self.charged);
            self.charged = 0;
            return false;
        }
        self.charged = bytes;
        true
    }
}
