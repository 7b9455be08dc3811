//! A connection: where messages begin on either side, and which response answers which request.
//!
//! Each side is read alone. From the other side it needs only whether a request was HEAD or CONNECT, and whether the
//! peer spoke HTTP at all. A side that does not begin like HTTP is rejected from its first byte. A side that did, or
//! that was joined midway, is searched for the next start line after missing or invalid bytes.
//!
//! Tiers: a head inside one block is parsed in place, a head that spans blocks is copied together; `body` reads
//! bodies.

use super::exit::Exit;
use super::side::{Phase, Side};
use base::limits::HTTP_HEAD_BYTES;
use filter::prelude::*;
use memchr::memchr;
use protocols::conversation::{Ear, Id, Side as Sender};
use protocols::http::asked::{Asked, Method, Question};
use protocols::http::body::{Body, End, Framing, Source};
use protocols::http::facts::{Notes, tell};
use protocols::http::head::{Head, host_name};
use protocols::http::reading::{Readings, undone};
use protocols::http::socks::Socks;
use protocols::http::start::{EmptyLine, StartLine, is_interim, is_status_line, may_answer, may_begin, start_line};
use protocols::proxy::{Proxy, Read};

/// Stands for the head that a response of HTTP/0.9 lacks.
const NO_HEAD: &[u8] = b"HTTP/0.9";

/// Whether the bytes of `next` directly follow those of `block`.
fn goes_on(block: &Descriptor, next: &Descriptor) -> bool {
    next.class == block.class && next.gap() == 0 && !next.has(Flags::FIRST) && !block.has(Flags::LAST)
}

/// Whether these bytes begin with all of a first line, which is no rest of the line that begins with `held`.
fn begins_anew(held: &[u8], bytes: &[u8]) -> bool {
    let Some(end) = memchr(b'\n', bytes) else { return false };
    let joined = [held, &bytes[..end]].concat();
    match (start_line(&joined), start_line(&bytes[..end])) {
        // `held` may be text of a body that looks like a method; methods are in capital letters.
        (Some(StartLine::Request { method, .. }), _) if method.iter().all(|byte| !byte.is_ascii_lowercase()) => false,
        // The rest of a request line looks like a response without a status.
        (_, None | Some(StartLine::Response { status: None, .. })) => false,
        _ => true,
    }
}

/// Both directions of a connection.
#[derive(Debug, Default)]
pub struct Session {
    sides: [Side; 2],
    asked: Asked,
    /// Memory charged for `asked`.
    asked_bytes: usize,
    /// Where the last call stopped, if before the end of its batch.
    stopped: Option<Place>,
    /// Offset in the last block at which the connection became a tunnel.
    tunnel_at: Option<u32>,
}

const _: () = assert!(size_of::<Session>() <= 512, "there may be a million of them");

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    block: usize,
    offset: usize,
    /// The block's flags were read.
    begun: bool,
    /// The direction was done before the block came.
    unwanted: bool,
    /// Part of the block belonged to a message.
    used: bool,
    /// The limit for which part of the block was skipped.
    cut: Option<&'static str>,
}

impl Session {
    /// Reads blocks of both directions, in order.
    pub fn run(&mut self, batch: &Batch<'_>, exit: &mut Exit<'_>) -> Status {
        let from = self.stopped.take();
        let mut blocks = batch.iter().peekable();
        while let Some((index, block)) = blocks.next() {
            let mut place = match from {
                Some(from) if index < from.block => continue,
                Some(from) if index == from.block => from,
                _ => Place { block: index, ..Place::default() },
            };
            exit.out.place = index;
            exit.goes_on = blocks.peek().is_some_and(|(_, next)| goes_on(block, next));
            if exit.is_full() || !self.block(block, &mut place, exit) {
                self.stopped = Some(place);
                return Status::More;
            }
        }
        Status::Done
    }

    /// The offset in the last block from which the connection is a tunnel; `None` if it is not.
    pub fn take_tunnel(&mut self) -> Option<u32> {
        self.tunnel_at.take()
    }

    /// The connection ended.
    pub fn close(mut self, class: Class, exit: &mut Exit<'_>) {
        for direction in [0, 1] {
            let class = Class::of_stream(class.connection(), direction);
            self.stream_ends(class, &exit.out.nothing(class), false, exit);
        }
        self.asked.forget();
        exit.shared.give_back(self.asked_bytes);
    }

    /// Reads one block; `false` if part of it is left.
    fn block(&mut self, block: &Descriptor, place: &mut Place, exit: &mut Exit<'_>) -> bool {
        let class = block.class;
        let side = usize::from(class.direction());
        exit.out.block = *block;
        if !place.begun {
            place.begun = true;
            self.begin_block(block, place, exit);
            exit.out.block = *block;
        }
        let rings = exit.out.rings;
        let bytes = rings.bytes(block);
        loop {
            let offset = place.offset;
            if let Phase::Body(body) = &mut self.sides[side].phase
                && body.end != End::Open
                && !body.is_pending()
            {
                self.finish_body(side, exit);
                continue;
            }
            let this = &mut self.sides[side];
            match &mut this.phase {
                Phase::Gone => {
                    self.tunnel_at = this.tunnel.then_some(offset as u32);
                    break;
                }
                _ if exit.is_full() => return false,
                Phase::Body(body)
                    if body.is_pending() || offset >= bytes.len() && !exit.goes_on && body.has_gathered() =>
                {
                    body.fetch(exit.shared, &mut exit.out);
                    place.cut = place.cut.or(body.cut());
                }
                Phase::Body(body) if !body.in_doubt && !this.head.is_empty() => self.give_held(side, exit),
                _ if offset >= bytes.len() => break,
                Phase::Body(body) if body.in_doubt => {
                    place.offset += self.begin_doubtful_body(block, &bytes[offset..], exit);
                    place.used = true;
                }
                Phase::Fresh => place.offset += self.begin(side, &bytes[offset..]),
                Phase::Socks(socks) => match socks.read(&bytes[offset..]) {
                    Read::More => place.offset = bytes.len(),
                    Read::Done(used) => {
                        place.offset += used;
                        this.phase = Phase::Start;
                    }
                    Read::No => this.gone(exit),
                },
                Phase::Proxy(proxy) => match proxy.read(&bytes[offset..]) {
                    Read::More => place.offset = bytes.len(),
                    Read::Done(used) => {
                        place.offset += used;
                        this.phase = Phase::Fresh;
                    }
                    Read::No => this.gone(exit),
                },
                Phase::Body(body) => {
                    let end = if body.first_line { memchr(b'\n', &bytes[offset..]) } else { None };
                    let most = end.map_or(bytes.len(), |end| offset + end + 1);
                    place.offset = body.take(
                        Source { bytes: &bytes[..most], kept: None, more_follows: exit.goes_on },
                        offset,
                        exit.shared,
                        &mut exit.out,
                    );
                    if end.is_some() && place.offset == most {
                        (body.first_line, body.in_doubt) = (false, true);
                    }
                    place.used = true;
                    place.cut = place.cut.or(body.cut());
                }
                Phase::Skip => {
                    let end = memchr(b'\n', &bytes[offset..]);
                    let len = end.map_or(bytes.len() - offset, |end| end + 1);
                    if end.is_some() {
                        this.phase = Phase::Start;
                    }
                    place.offset += len;
                    this.seek(len, exit);
                }
                Phase::Start => {
                    let before = self.sides[side].confirmed;
                    place.offset += self.start(block, &bytes[offset..], exit);
                    let this = &self.sides[side];
                    place.used |= !this.head.is_empty() || this.confirmed && (!before || place.offset > offset);
                }
            }
        }
        self.end_block(block, place, exit);
        true
    }

    fn begin_block(&mut self, block: &Descriptor, place: &mut Place, exit: &mut Exit<'_>) {
        let side = usize::from(block.class.direction());
        if block.has(Flags::FIRST) && self.sides[side].begun {
            self.stream_ends(block.class, &block.part(0, 0), false, exit);
            self.sides[side] = Side::default();
        }
        let this = &mut self.sides[side];
        // The session was closed for silence, so the stream continues in the middle of something.
        if !this.begun && !block.has(Flags::FIRST) {
            (this.lost, this.phase) = (true, Phase::Start);
        }
        this.begun = true;
        place.unwanted = matches!(self.sides[side].phase, Phase::Gone);
        if block.gap() > 0 {
            place.used |= self.miss(block, block.gap(), exit);
        }
        if self.sides[side].lost {
            self.seek_anew(block, exit);
        }
    }

    /// The start of a segment is a place where a message may begin, whatever was read before it.
    fn seek_anew(&mut self, block: &Descriptor, exit: &mut Exit<'_>) {
        let this = &mut self.sides[usize::from(block.class.direction())];
        match this.phase {
            Phase::Skip if block.len > 0 => this.phase = Phase::Start,
            Phase::Start if !this.line_whole && begins_anew(&this.head, exit.out.rings.bytes(block)) => {
                let len = this.head.len();
                this.drop_head(exit);
                this.seek(len, exit);
            }
            _ => {}
        }
    }

    fn end_block(&mut self, block: &Descriptor, place: &Place, exit: &mut Exit<'_>) {
        let side = &self.sides[usize::from(block.class.direction())];
        let gone = matches!(side.phase, Phase::Gone);
        if place.unwanted || gone && !place.used {
            exit.out.reject_block();
        } else if let Some(limit) = place.cut {
            exit.out.drop_block(limit);
        } else if block.len > 0 && !place.used {
            if side.confirmed { exit.out.drop_block("no start line found") } else { exit.out.reject_block() }
        }
        if block.has(Flags::LAST) {
            self.stream_ends(block.class, &block.part(block.len, 0), !block.has(Flags::TRUNCATED), exit);
        }
    }

    /// A direction ended. `seen`: its end was in the capture. `at` is an empty block of the direction.
    fn stream_ends(&mut self, class: Class, at: &Descriptor, seen: bool, exit: &mut Exit<'_>) {
        let side = usize::from(class.direction());
        exit.out.block = *at;
        self.end_first_line(side, at, exit);
        self.end_doubt(side, exit);
        if let Phase::Body(body) = &mut self.sides[side].phase {
            body.stream_ends(seen);
            body.finish(exit.shared, &mut exit.out);
        }
        self.cut_head(class, exit);
        self.sides[side].gone(exit);
    }

    /// Bytes are missing; returns whether they belong to a body for certain.
    fn miss(&mut self, block: &Descriptor, bytes: u32, exit: &mut Exit<'_>) -> bool {
        let side = usize::from(block.class.direction());
        self.end_first_line(side, &block.part(0, 0), exit);
        self.end_doubt(side, exit);
        let in_body = match &mut self.sides[side].phase {
            Phase::Gone => return false,
            Phase::Body(body) => {
                let behind = body.miss(bytes, exit.shared, &mut exit.out);
                if behind == 0 {
                    return true;
                }
                self.finish_body(side, exit);
                true
            }
            Phase::Fresh | Phase::Socks(_) | Phase::Proxy(_) | Phase::Start | Phase::Skip => false,
        };
        if self.sides[side].confirmed {
            exit.count("gaps outside of bodies", 1);
        }
        // Open requests from before missing ones were answered, or their answers are missing, too.
        if side == 0 {
            self.asked.forget();
        }
        self.cut_head(block.class, exit);
        self.settle(exit);
        let this = &mut self.sides[side];
        // The next byte may begin a message, like the first byte of any line.
        (this.lost, this.phase) = (true, Phase::Start);
        in_body
    }

    fn finish_body(&mut self, side: usize, exit: &mut Exit<'_>) {
        let this = &mut self.sides[side];
        let Phase::Body(mut body) = std::mem::replace(&mut this.phase, Phase::Start) else { return };
        if body.end == End::Broken {
            (this.lost, this.phase) = (true, Phase::Skip);
        }
        body.finish(exit.shared, &mut exit.out);
        if this.tunnel {
            this.gone(exit);
        }
    }

    /// Reads the first bytes of a body that may be the next response. Its line is copied until that is clear. Returns
    /// the bytes read.
    fn begin_doubtful_body(&mut self, block: &Descriptor, bytes: &[u8], exit: &mut Exit<'_>) -> usize {
        let this = &mut self.sides[usize::from(block.class.direction())];
        let Phase::Body(body) = &mut this.phase else { return 0 };
        match is_status_line(this.head.len(), bytes) {
            Some(is_response) => {
                body.in_doubt = false;
                if is_response {
                    body.end = End::Whole;
                }
                0
            }
            None if exit.shared.charge(bytes.len()) => {
                if this.head.is_empty() {
                    (this.head, this.head_time) = (exit.shared.head_buffer(), block.time);
                }
                this.head.extend_from_slice(bytes);
                bytes.len()
            }
            None => {
                body.in_doubt = false;
                0
            }
        }
    }

    /// Gives copied bytes that turned out to be body.
    fn give_held(&mut self, side: usize, exit: &mut Exit<'_>) {
        let this = &mut self.sides[side];
        let Phase::Body(body) = &mut this.phase else { return };
        let held = Source { bytes: &this.head, kept: Some(exit.out.block.time), more_follows: exit.goes_on };
        let used = body.take(held, 0, exit.shared, &mut exit.out);
        this.head.drain(..used);
        exit.shared.give_back(used);
    }

    /// No more bytes can show whether the current body is the next response: treat it as a body.
    fn end_doubt(&mut self, side: usize, exit: &mut Exit<'_>) {
        if let Phase::Body(body) = &mut self.sides[side].phase
            && std::mem::take(&mut body.in_doubt)
            && !self.sides[side].head.is_empty()
        {
            self.give_held(side, exit);
            self.sides[side].drop_head(exit);
        }
    }

    /// Looks at the first bytes of a side; returns how many were used.
    fn begin(&mut self, side: usize, bytes: &[u8]) -> usize {
        let peer = self.sides[1 - side].socks;
        let this = &mut self.sides[side];
        if let Some(proxy) = Proxy::begin(bytes).filter(|_| side == 0) {
            this.phase = Phase::Proxy(proxy);
            return 0;
        }
        let socks = Socks::begin(bytes[0], side == 1, peer);
        this.socks = socks.is_some();
        this.phase = socks.map_or(Phase::Start, Phase::Socks);
        usize::from(this.socks)
    }

    /// Reads a head or the beginning of one; returns how many bytes were used.
    fn start(&mut self, block: &Descriptor, bytes: &[u8], exit: &mut Exit<'_>) -> usize {
        let side = usize::from(block.class.direction());
        if !self.sides[side].head.is_empty() {
            return self.continue_head_copy(block, bytes, exit);
        }
        // RFC 9112 section 2.2 for line breaks; other white space only in a connection known to be HTTP.
        let known = self.sides.iter().any(|side| side.confirmed);
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n') || known && **byte <= b' ').count();
        if blank > 0 {
            return blank;
        }
        let bytes = &bytes[..bytes.len().min(HTTP_HEAD_BYTES)];
        // Rules know which side answers.
        let fits = if exit.out.rules.raw_heads && side == 1 { may_answer(bytes) } else { may_begin(bytes) };
        let line = memchr(b'\n', bytes);
        if self.may_lack_head(side) && !may_answer(bytes) {
            if exit.out.rules.raw_heads {
                self.message(NO_HEAD, block.time, block.class, true, exit);
                return 0;
            }
            self.sides[side].head_time = block.time;
            return self.hold_first_line(block, bytes, exit);
        }
        if !fits {
            self.no_start(block.class, exit);
            return 0;
        }
        if line.map_or(bytes.len() == HTTP_HEAD_BYTES, |end| start_line(&bytes[..end]).is_none()) {
            self.no_start(block.class, exit);
            return 0;
        }
        let this = &mut self.sides[side];
        this.empty_line = EmptyLine::START;
        if line.is_some()
            && let Some(end) = this.empty_line.find(bytes)
        {
            self.message(&bytes[..end], block.time, block.class, true, exit);
            return end;
        }
        (this.line_whole, this.head_time) = (line.is_some(), block.time);
        if self.append_head_copy(block.class, bytes, exit) {
            self.bound_head(block.class, exit);
        }
        bytes.len()
    }

    /// Whether a response of HTTP/0.9 may begin here, which is a body alone, as libhtp and browsers take it.
    fn may_lack_head(&self, side: usize) -> bool {
        let this = &self.sides[side];
        side == 1 && !this.confirmed && !this.lost && !this.line_whole && self.asked.front().is_some()
    }

    /// Copies a line that no response begins with, and the bytes behind it that show whether a response begins there.
    /// Returns the bytes read. Rules do not wait, because what they wait for has passed.
    fn hold_first_line(&mut self, block: &Descriptor, bytes: &[u8], exit: &mut Exit<'_>) -> usize {
        let side = usize::from(block.class.direction());
        let this = &self.sides[side];
        let room = HTTP_HEAD_BYTES - this.head.len();
        let bytes = match memchr(b'\n', &this.head) {
            Some(_) => &bytes[..1],
            None => &bytes[..memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1).min(room)],
        };
        if !self.append_head_copy(block.class, bytes, exit) {
            return bytes.len();
        }
        let head = &mut self.sides[side].head;
        let behind = memchr(b'\n', head).map(|end| end + 1);
        match behind.map(|at| is_status_line(0, &head[at..])) {
            Some(Some(true)) => {
                let line = behind.unwrap_or_default();
                head.drain(..line);
                exit.shared.give_back(line);
                exit.count("places where a start line should be", 1);
            }
            Some(Some(false)) => self.begin_without_head(block.class, exit),
            Some(None) | None if head.len() >= HTTP_HEAD_BYTES => self.begin_without_head(block.class, exit),
            Some(None) | None => {}
        }
        bytes.len()
    }

    /// No more bytes can show whether a response begins: those at hand are one of HTTP/0.9.
    fn end_first_line(&mut self, side: usize, at: &Descriptor, exit: &mut Exit<'_>) {
        let this = &self.sides[side];
        let begins = !this.head.is_empty() && matches!(this.phase, Phase::Start) && start_line(&this.head).is_none();
        if begins && self.may_lack_head(side) {
            self.begin_without_head(at.class, exit);
            self.give_held(side, exit);
            self.sides[side].drop_head(exit);
        }
    }

    /// Begins a response of HTTP/0.9 whose first bytes are in `head`.
    fn begin_without_head(&mut self, class: Class, exit: &mut Exit<'_>) {
        let this = &mut self.sides[usize::from(class.direction())];
        let (held, time) = (std::mem::take(&mut this.head), this.head_time);
        self.message(NO_HEAD, time, class, true, exit);
        self.sides[usize::from(class.direction())].head = held;
    }

    /// Adds bytes to the head in `head`; returns how many were used.
    fn continue_head_copy(&mut self, block: &Descriptor, bytes: &[u8], exit: &mut Exit<'_>) -> usize {
        let side = usize::from(block.class.direction());
        if self.may_lack_head(side) && !may_answer(&self.sides[side].head) {
            return self.hold_first_line(block, bytes, exit);
        }
        let this = &mut self.sides[side];
        let bytes = &bytes[..bytes.len().min(HTTP_HEAD_BYTES - this.head.len())];
        let end = if this.line_whole { this.empty_line.find(bytes) } else { memchr(b'\n', bytes).map(|end| end + 1) };
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        if !self.append_head_copy(block.class, bytes, exit) {
            return bytes.len();
        }
        if self.may_lack_head(side) && !may_answer(&self.sides[side].head) {
            if exit.out.rules.raw_heads {
                self.begin_without_head(block.class, exit);
            }
            return bytes.len();
        }
        let this = &mut self.sides[side];
        let fits = if end.is_some() { start_line(&this.head).is_some() } else { may_begin(&this.head) };
        if !this.line_whole && !fits {
            let len = this.head.len();
            this.drop_head(exit);
            self.no_start(block.class, exit);
            let this = &mut self.sides[side];
            if end.is_some() && matches!(this.phase, Phase::Skip) {
                this.phase = Phase::Start;
                this.seek(len, exit);
            }
        } else if this.line_whole && end.is_some() {
            let (head, time) = (std::mem::take(&mut this.head), this.head_time);
            this.line_whole = false;
            self.message(&head, time, block.class, true, exit);
            exit.shared.dismiss_head(head);
        } else {
            if end.is_some() {
                (this.line_whole, this.empty_line) = (true, EmptyLine::START);
            }
            self.bound_head(block.class, exit);
        }
        bytes.len()
    }

    /// Appends a copy of `bytes` to `head`; `false` if memory is short.
    fn append_head_copy(&mut self, class: Class, bytes: &[u8], exit: &mut Exit<'_>) -> bool {
        if !exit.shared.charge(bytes.len()) {
            exit.count_unseen("heads not read for want of memory");
            self.give_up_head(class, exit);
            return false;
        }
        let head = &mut self.sides[usize::from(class.direction())].head;
        if head.is_empty() {
            *head = exit.shared.head_buffer();
        }
        head.extend_from_slice(bytes);
        true
    }

    fn bound_head(&mut self, class: Class, exit: &mut Exit<'_>) {
        let this = &mut self.sides[usize::from(class.direction())];
        if this.head.len() < HTTP_HEAD_BYTES {
            return;
        }
        if this.line_whole {
            exit.count_unseen("heads too long");
            self.give_up_head(class, exit);
        } else {
            // It may be a start line, and is not read.
            exit.out.rules.unseen = true;
            this.drop_head(exit);
            self.no_start(class, exit);
        }
    }

    /// Skips the rest of a head.
    fn give_up_head(&mut self, class: Class, exit: &mut Exit<'_>) {
        self.cut_head(class, exit);
        let this = &mut self.sides[usize::from(class.direction())];
        (this.confirmed, this.lost, this.phase) = (true, true, Phase::Skip);
    }

    /// Gives what is known of a message whose head is incomplete.
    fn cut_head(&mut self, class: Class, exit: &mut Exit<'_>) {
        let this = &mut self.sides[usize::from(class.direction())];
        if this.head.is_empty() {
            return;
        }
        let (head, time) = (std::mem::take(&mut this.head), this.head_time);
        // Rules have no buffer for part of a first line.
        let is_read = std::mem::take(&mut this.line_whole) || !exit.out.rules.raw_heads;
        if is_read && self.message(&head, time, class, false, exit) {
            exit.count("heads cut", 1);
        }
        exit.shared.dismiss_head(head);
    }

    /// The next bytes are not a start line. Decides whether to search for one.
    fn no_start(&mut self, class: Class, exit: &mut Exit<'_>) {
        let side = usize::from(class.direction());
        let [this, peer] = match &mut self.sides {
            [client, server] if side == 0 => [client, server],
            [client, server] => [server, client],
        };
        let midstream = || exit.out.streams.get(class).is_some_and(|facts| facts.state == StreamState::Midstream);
        if this.after_connect {
            // The response was not seen, but these bytes show that it opened a tunnel.
            this.gone(exit);
        } else if this.confirmed || this.lost || peer.confirmed || midstream() {
            if this.confirmed && !this.lost {
                exit.count_unseen("places where a start line should be");
            }
            (this.lost, this.phase) = (true, Phase::Skip);
        } else {
            this.gone(exit);
        }
    }

    /// Gives the record of a head, whole or incomplete, and begins its body. `false`: it is none.
    fn message(&mut self, bytes: &[u8], time: u64, class: Class, whole: bool, exit: &mut Exit<'_>) -> bool {
        let read = if whole || exit.out.rules.raw_heads {
            Head::parse(bytes).map(|head| (head, None))
        } else {
            Head::parse_cut(bytes).map(|(head, cut)| (head, Some(cut)))
        };
        let Some((head, cut)) = read else { return false };
        let side = usize::from(class.direction());
        if head.bad_lengths > 0 {
            exit.count("lengths that contradict each other or are none", u64::from(head.bad_lengths));
        }
        let is_response = matches!(head.start, StartLine::Response { .. });
        if is_response && self.sides[side].lost {
            self.asked.forget_but_newest();
        }
        let (mut doubted, mut has_odd_body) = (false, false);
        let unseen = is_response && self.asked.front().is_none();
        let (framing, question, tunnel) = match head.start {
            StartLine::Request { method, target, .. } => {
                let host = host_name(target, head.host);
                let kind = Method::of(method);
                let mut question = Question {
                    number: None,
                    kind,
                    method: Some(method),
                    host,
                    url: Some(target).filter(|_| cut != Some("url")),
                };
                if !self.asked.push_copy(&mut question) {
                    exit.count("requests not kept for their response", 1);
                }
                (Framing::of(&head, true), question, false)
            }
            StartLine::Response { status, .. } => {
                let question = self.asked.front().unwrap_or_default();
                let success = matches!(status, Some(200..=299));
                let tunnel = status == Some(101) || question.kind == Method::Connect && success;
                // RFC 9112 section 6.3, rules 1 and 2.
                let bodyless = status.is_some_and(|status| is_interim(status) || matches!(status, 204 | 304));
                // Some clients take the bytes behind it for a body; rules look at them, unless they are the next response. The
                // length in a 304 is that of the body which the server did not send (RFC 9110, 15.4.5).
                has_odd_body = bodyless && (status != Some(304) || head.chunked);
                doubted = bodyless && exit.out.rules.raw_heads && (head.chunked || head.length.is_some());
                let none = tunnel || question.kind == Method::Head || bodyless && !doubted;
                (if none { Framing::None } else { Framing::of(&head, false) }, question, tunnel)
            }
        };
        let flags = match framing {
            _ if !whole => Flags::LAST.with(Flags::TRUNCATED),
            Framing::None => Flags::LAST,
            _ => Flags::NONE,
        };
        let id = Id { exchange: question.number.unwrap_or_default(), side: Sender::to_server(side == 0) };
        let now = std::mem::replace(&mut exit.out.block.time, time);
        if exit.out.rules.raw_heads {
            exit.out.push_head(bytes, question.number, flags);
        } else {
            let notes = Notes { ambiguous: &head.ambiguous(has_odd_body), cut };
            exit.out.begin(id);
            tell(id, &head, notes, question, &mut exit.out);
            exit.out.push_row(flags);
        }
        exit.out.block.time = now;
        // A whole head ends in a line end, and so is never equal to this.
        let is_old = whole && bytes == NO_HEAD;
        let is_interim = matches!(head.start, StartLine::Response { status: Some(status), .. } if is_interim(status));
        let is_connect = question.kind == Method::Connect;
        // Only for rules.
        let mut readings = (exit.out.rules.raw_heads && whole).then(|| Readings::of(&head, bytes, framing));
        if let Some(readings) = &mut readings {
            readings.take_head(bytes, id, exit.shared, &mut exit.out);
        }
        let phase = match framing {
            _ if !whole => Phase::Start,
            Framing::None => {
                readings.into_iter().for_each(|readings| readings.end(exit.shared));
                Phase::Start
            }
            framing => {
                let mut body = Body::new(id, framing, &head, exit.shared, &mut exit.out);
                body.in_doubt = unseen || doubted;
                body.first_line = is_old && exit.out.rules.raw_heads;
                if let Some(mut readings) = readings {
                    if is_interim {
                        readings.add(framing, &undone(&head.transfer, &head.content));
                    }
                    body.read_also(readings);
                }
                Phase::Body(body)
            }
        };
        // Bytes without a head may stand before the response.
        if is_response && !is_interim && !is_old {
            self.asked.pop();
        }
        self.settle(exit);
        let this = &mut self.sides[side];
        (this.confirmed, this.lost, this.phase) = (true, false, phase);
        this.after_connect = is_connect && matches!(head.start, StartLine::Request { .. });
        if tunnel {
            exit.count("connections that became tunnels", 1);
            self.sides.iter_mut().for_each(|side| side.becomes_tunnel(exit));
            self.asked.forget();
            self.settle(exit);
        }
        true
    }

    /// Charges or gives back what the queue of requests grew or shrank by.
    fn settle(&mut self, exit: &mut Exit<'_>) {
        let bytes = self.asked.bytes();
        if bytes <= self.asked_bytes {
            exit.shared.give_back(self.asked_bytes - bytes);
        } else if !exit.shared.charge(bytes - self.asked_bytes) {
            exit.count("requests not kept for want of memory", 1);
            exit.shared.give_back(self.asked_bytes);
            self.asked = self.asked.emptied();
            self.asked_bytes = 0;
            return;
        }
        self.asked_bytes = bytes;
    }
}
