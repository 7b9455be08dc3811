//! A connection: where messages begin on either side, and which response answers which request.
//!
//! Each side is read alone. From the other side it needs only whether a request was HEAD or CONNECT, and whether the
//! peer spoke HTTP at all. A side that does not begin like HTTP is rejected from its first byte. A side that did, or
//! that was joined midway, is searched for the next start line after missing or invalid bytes.
//!
//! Tiers: a head inside one block is parsed in place, a head that spans blocks is copied together; `body` reads
//! bodies.

use super::Fact;
use super::asked::{Asked, Method, Question};
use super::body::{self, Body, End, Source};
use super::facts::{Notes, tell};
use super::framing::Framing;
use super::head::{Head, host_name};
use super::reading::{Readings, undone};
use super::shared::Shared;
use super::side::{Half, Phase};
use super::socks::Socks;
use super::start::{EmptyLine, StartLine, is_interim, is_status_line, may_answer, may_begin, start_line};
use crate::app::App;
use crate::conversation::{Ear, Fed, How, Id, Side, Wants};
use crate::proxy::{Proxy, Read};
use base::limits::HTTP_HEAD_BYTES;
use memchr::memchr;

/// Stands for the head that a response of HTTP/0.9 lacks.
pub const NO_HEAD: &[u8] = b"HTTP/0.9";

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
/// Bytes of a side as they come, and what is known around them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// When they were captured.
    pub time: u64,
    /// Bytes missing before them.
    pub gap: u32,
    /// They are the first ones of their stream.
    pub is_first: bool,
    /// The stream ends with them.
    pub is_last: bool,
    /// The capture lacks the stream's end.
    pub is_truncated: bool,
    /// The next input of this side continues right behind this one.
    pub more_follows: bool,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Half; 2],
    asked: Asked,
    /// Memory charged for `asked`.
    asked_bytes: usize,
    /// Where the last call stopped, if before the end of its bytes.
    stopped: Option<Cursor>,
    /// The protocol that the connection turns into. `None`: its first bytes show it.
    turns_into: Option<App>,
}

const _: () = assert!(size_of::<Conversation>() <= 512, "there may be a million of them");

#[derive(Clone, Copy, Debug, Default)]
/// Where reading an input is, and what was found in it so far.
struct Cursor {
    offset: usize,
    /// What is known around the bytes was read.
    begun: bool,
    /// The direction was done before the bytes came.
    unwanted: bool,
    /// Part of the bytes belonged to a message.
    used: bool,
    /// The limit for which part of the bytes was skipped.
    cut: Option<&'static str>,
}

/// What the parts of a conversation need in a call.
struct Talk<'a, E> {
    shared: &'a mut Shared,
    ear: &'a mut E,
    wants: Wants,
    time: u64,
    more_follows: bool,
}

impl<'a, E: Ear<Fact>> Talk<'a, E> {
    fn new(input: &Input<'_>, shared: &'a mut Shared, ear: &'a mut E) -> Talk<'a, E> {
        let Input { time, more_follows, .. } = *input;
        Talk { shared, wants: ear.wants(), ear, time, more_follows }
    }

    fn is_full(&self) -> bool {
        body::is_full(self.shared, self.ear)
    }

    fn count(&mut self, what: &'static str, times: u64) {
        self.ear.count(what, times);
    }

    /// Counts an event that leaves part of a message unread.
    fn count_unseen(&mut self, what: &'static str) {
        self.ear.lost(NO_MESSAGE, what);
    }
}

/// For events that belong to no message.
const NO_MESSAGE: Id = Id { exchange: 0, side: Side::Client };

impl Conversation {
    /// Reads bytes of a side. After [`Fed::Full`] the caller calls again with the same input.
    pub fn feed(&mut self, side: Side, input: &Input<'_>, shared: &mut Shared, ear: &mut impl Ear<Fact>) -> Fed {
        let (side, mut cursor) = (side.index(), self.stopped.take().unwrap_or_default());
        let talk = &mut Talk::new(input, shared, ear);
        if talk.is_full() || !self.read(side, input, &mut cursor, talk) {
            self.stopped = Some(cursor);
            return Fed::Full { used: cursor.offset };
        }
        self.ends(side, input, &cursor, talk)
    }

    /// A side ends with the connection, at this time.
    pub fn end(&mut self, side: Side, time: u64, shared: &mut Shared, ear: &mut impl Ear<Fact>) {
        self.stream_ends(side.index(), false, &mut Talk::new(&Input { time, ..Input::default() }, shared, ear));
        self.asked = self.asked.emptied();
        shared.give_back(std::mem::take(&mut self.asked_bytes));
    }

    /// Reads the bytes; `false` if part of it is left.
    fn read(
        &mut self,
        side: usize,
        input: &Input<'_>,
        cursor: &mut Cursor,
        exit: &mut Talk<'_, impl Ear<Fact>>,
    ) -> bool {
        if !cursor.begun {
            cursor.begun = true;
            self.begin_input(side, input, cursor, exit);
        }
        let bytes = input.bytes;
        loop {
            let offset = cursor.offset;
            if let Phase::Body(body) = &mut self.sides[side].phase
                && body.end != End::Open
                && !body.is_pending()
            {
                self.finish_body(side, exit);
                continue;
            }
            let this = &mut self.sides[side];
            match &mut this.phase {
                Phase::Gone => break,
                _ if exit.is_full() => return false,
                Phase::Body(body)
                    if body.is_pending() || offset >= bytes.len() && !exit.more_follows && body.has_gathered() =>
                {
                    body.fetch(exit.shared, exit.ear);
                    cursor.cut = cursor.cut.or(body.cut());
                }
                Phase::Body(body) if !body.in_doubt && !this.head.is_empty() => self.give_held(side, exit),
                _ if offset >= bytes.len() => break,
                Phase::Body(body) if body.in_doubt => {
                    cursor.offset += self.begin_doubtful_body(side, &bytes[offset..], exit);
                    cursor.used = true;
                }
                Phase::Fresh => cursor.offset += self.begin(side, &bytes[offset..]),
                Phase::Socks(socks) => match socks.read(&bytes[offset..]) {
                    Read::More => cursor.offset = bytes.len(),
                    Read::Done(used) => {
                        cursor.offset += used;
                        this.phase = Phase::Start;
                    }
                    Read::No => this.gone(exit.shared),
                },
                Phase::Proxy(proxy) => match proxy.read(&bytes[offset..]) {
                    Read::More => cursor.offset = bytes.len(),
                    Read::Done(used) => {
                        cursor.offset += used;
                        this.phase = Phase::Fresh;
                    }
                    Read::No => this.gone(exit.shared),
                },
                Phase::Body(body) => {
                    let end = if body.first_line { memchr(b'\n', &bytes[offset..]) } else { None };
                    let most = end.map_or(bytes.len(), |end| offset + end + 1);
                    cursor.offset = body.take(
                        Source { bytes: &bytes[..most], kept: None, more_follows: exit.more_follows },
                        offset,
                        exit.shared,
                        exit.ear,
                    );
                    if end.is_some() && cursor.offset == most {
                        (body.first_line, body.in_doubt) = (false, true);
                    }
                    cursor.used = true;
                    cursor.cut = cursor.cut.or(body.cut());
                }
                Phase::Skip => {
                    let end = memchr(b'\n', &bytes[offset..]);
                    let len = end.map_or(bytes.len() - offset, |end| end + 1);
                    if end.is_some() {
                        this.phase = Phase::Start;
                    }
                    cursor.offset += len;
                    this.seek(len, exit.shared, exit.ear);
                }
                Phase::Start => {
                    let before = self.sides[side].confirmed;
                    cursor.offset += self.start(side, &bytes[offset..], exit);
                    let this = &self.sides[side];
                    cursor.used |= !this.head.is_empty() || this.confirmed && (!before || cursor.offset > offset);
                }
            }
        }
        true
    }

    fn begin_input(
        &mut self,
        side: usize,
        input: &Input<'_>,
        cursor: &mut Cursor,
        exit: &mut Talk<'_, impl Ear<Fact>>,
    ) {
        if input.is_first && self.sides[side].begun {
            self.stream_ends(side, false, exit);
            self.sides[side] = Half::default();
        }
        let this = &mut self.sides[side];
        // The session was closed for silence, so the stream continues in the middle of something.
        if !this.begun && !input.is_first {
            (this.lost, this.phase) = (true, Phase::Start);
        }
        this.begun = true;
        cursor.unwanted = matches!(self.sides[side].phase, Phase::Gone);
        if input.gap > 0 {
            cursor.used |= self.miss(side, input.gap, exit);
        }
        if self.sides[side].lost {
            self.seek_anew(side, input.bytes, exit);
        }
    }

    /// The start of a segment is a place where a message may begin, whatever was read before it.
    fn seek_anew(&mut self, side: usize, bytes: &[u8], exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &mut self.sides[side];
        match this.phase {
            Phase::Skip if !bytes.is_empty() => this.phase = Phase::Start,
            Phase::Start if !this.line_whole && begins_anew(&this.head, bytes) => {
                let len = this.head.len();
                this.drop_head(exit.shared);
                this.seek(len, exit.shared, exit.ear);
            }
            _ => {}
        }
    }

    /// Says whose the bytes were.
    fn ends(&mut self, side: usize, input: &Input<'_>, cursor: &Cursor, exit: &mut Talk<'_, impl Ear<Fact>>) -> Fed {
        let this = &self.sides[side];
        let is_gone = matches!(this.phase, Phase::Gone);
        let fed = match cursor.cut {
            _ if is_gone && this.tunnel => Fed::HandsOn { used: cursor.offset, to: self.turns_into },
            _ if cursor.unwanted || is_gone && !cursor.used => Fed::NotMine,
            Some(why) => Fed::LeftOut { why },
            None if input.bytes.is_empty() || cursor.used => Fed::Mine,
            None if this.confirmed => Fed::LeftOut { why: "no start line found" },
            None => Fed::NotMine,
        };
        if input.is_last {
            self.stream_ends(side, !input.is_truncated, exit);
        }
        fed
    }

    /// A direction ended. `seen`: its end was in the capture.
    fn stream_ends(&mut self, side: usize, seen: bool, exit: &mut Talk<'_, impl Ear<Fact>>) {
        self.end_first_line(side, exit);
        self.end_doubt(side, exit);
        if let Phase::Body(body) = &mut self.sides[side].phase {
            body.stream_ends(seen);
            body.finish(exit.shared, exit.ear);
        }
        self.cut_head(side, exit);
        self.sides[side].gone(exit.shared);
    }

    /// Bytes are missing; returns whether they belong to a body for certain.
    fn miss(&mut self, side: usize, bytes: u32, exit: &mut Talk<'_, impl Ear<Fact>>) -> bool {
        self.end_first_line(side, exit);
        self.end_doubt(side, exit);
        let in_body = match &mut self.sides[side].phase {
            Phase::Gone => return false,
            Phase::Body(body) => {
                let behind = body.miss(bytes, exit.shared, exit.ear);
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
        self.cut_head(side, exit);
        self.settle(exit);
        let this = &mut self.sides[side];
        // The next byte may begin a message, like the first byte of any line.
        (this.lost, this.phase) = (true, Phase::Start);
        in_body
    }

    fn finish_body(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &mut self.sides[side];
        let Phase::Body(mut body) = std::mem::replace(&mut this.phase, Phase::Start) else { return };
        if body.end == End::Broken {
            (this.lost, this.phase) = (true, Phase::Skip);
        }
        body.finish(exit.shared, exit.ear);
        if this.tunnel {
            this.gone(exit.shared);
        }
    }

    /// Reads the first bytes of a body that may be the next response. Its line is copied until that is clear. Returns
    /// the bytes read.
    fn begin_doubtful_body(&mut self, side: usize, bytes: &[u8], exit: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        let this = &mut self.sides[side];
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
                    (this.head, this.head_time) = (exit.shared.head_buffer(), exit.time);
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
    fn give_held(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &mut self.sides[side];
        let Phase::Body(body) = &mut this.phase else { return };
        let held = Source { bytes: &this.head, kept: Some(exit.time), more_follows: exit.more_follows };
        let used = body.take(held, 0, exit.shared, exit.ear);
        this.head.drain(..used);
        exit.shared.give_back(used);
    }

    /// No more bytes can show whether the current body is the next response: treat it as a body.
    fn end_doubt(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        if let Phase::Body(body) = &mut self.sides[side].phase
            && std::mem::take(&mut body.in_doubt)
            && !self.sides[side].head.is_empty()
        {
            self.give_held(side, exit);
            self.sides[side].drop_head(exit.shared);
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
    fn start(&mut self, side: usize, bytes: &[u8], exit: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        if !self.sides[side].head.is_empty() {
            return self.continue_head_copy(side, bytes, exit);
        }
        // RFC 9112 section 2.2 for line breaks; other white space only in a connection known to be HTTP.
        let known = self.sides.iter().any(|side| side.confirmed);
        let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n') || known && **byte <= b' ').count();
        if blank > 0 {
            return blank;
        }
        let bytes = &bytes[..bytes.len().min(HTTP_HEAD_BYTES)];
        // Rules know which side answers.
        let fits = if exit.wants.at_once && side == 1 { may_answer(bytes) } else { may_begin(bytes) };
        let line = memchr(b'\n', bytes);
        if self.may_lack_head(side) && !may_answer(bytes) {
            if exit.wants.at_once {
                self.message(NO_HEAD, exit.time, side, true, exit);
                return 0;
            }
            self.sides[side].head_time = exit.time;
            return self.hold_first_line(side, bytes, exit);
        }
        if !fits {
            self.no_start(side, exit);
            return 0;
        }
        if line.map_or(bytes.len() == HTTP_HEAD_BYTES, |end| start_line(&bytes[..end]).is_none()) {
            self.no_start(side, exit);
            return 0;
        }
        let this = &mut self.sides[side];
        this.empty_line = EmptyLine::START;
        if line.is_some()
            && let Some(end) = this.empty_line.find(bytes)
        {
            self.message(&bytes[..end], exit.time, side, true, exit);
            return end;
        }
        (this.line_whole, this.head_time) = (line.is_some(), exit.time);
        if self.append_head_copy(side, bytes, exit) {
            self.bound_head(side, exit);
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
    fn hold_first_line(&mut self, side: usize, bytes: &[u8], exit: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        let this = &self.sides[side];
        let room = HTTP_HEAD_BYTES - this.head.len();
        let bytes = match memchr(b'\n', &this.head) {
            Some(_) => &bytes[..1],
            None => &bytes[..memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1).min(room)],
        };
        if !self.append_head_copy(side, bytes, exit) {
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
            Some(Some(false)) => self.begin_without_head(side, exit),
            Some(None) | None if head.len() >= HTTP_HEAD_BYTES => self.begin_without_head(side, exit),
            Some(None) | None => {}
        }
        bytes.len()
    }

    /// No more bytes can show whether a response begins: those at hand are one of HTTP/0.9.
    fn end_first_line(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &self.sides[side];
        let begins = !this.head.is_empty() && matches!(this.phase, Phase::Start) && start_line(&this.head).is_none();
        if begins && self.may_lack_head(side) {
            self.begin_without_head(side, exit);
            self.give_held(side, exit);
            self.sides[side].drop_head(exit.shared);
        }
    }

    /// Begins a response of HTTP/0.9 whose first bytes are in `head`.
    fn begin_without_head(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &mut self.sides[side];
        let (held, time) = (std::mem::take(&mut this.head), this.head_time);
        self.message(NO_HEAD, time, side, true, exit);
        self.sides[side].head = held;
    }

    /// Adds bytes to the head in `head`; returns how many were used.
    fn continue_head_copy(&mut self, side: usize, bytes: &[u8], exit: &mut Talk<'_, impl Ear<Fact>>) -> usize {
        if self.may_lack_head(side) && !may_answer(&self.sides[side].head) {
            return self.hold_first_line(side, bytes, exit);
        }
        let this = &mut self.sides[side];
        let bytes = &bytes[..bytes.len().min(HTTP_HEAD_BYTES - this.head.len())];
        let end = if this.line_whole { this.empty_line.find(bytes) } else { memchr(b'\n', bytes).map(|end| end + 1) };
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        if !self.append_head_copy(side, bytes, exit) {
            return bytes.len();
        }
        if self.may_lack_head(side) && !may_answer(&self.sides[side].head) {
            if exit.wants.at_once {
                self.begin_without_head(side, exit);
            }
            return bytes.len();
        }
        let this = &mut self.sides[side];
        let fits = if end.is_some() { start_line(&this.head).is_some() } else { may_begin(&this.head) };
        if !this.line_whole && !fits {
            let len = this.head.len();
            this.drop_head(exit.shared);
            self.no_start(side, exit);
            let this = &mut self.sides[side];
            if end.is_some() && matches!(this.phase, Phase::Skip) {
                this.phase = Phase::Start;
                this.seek(len, exit.shared, exit.ear);
            }
        } else if this.line_whole && end.is_some() {
            let (head, time) = (std::mem::take(&mut this.head), this.head_time);
            this.line_whole = false;
            self.message(&head, time, side, true, exit);
            exit.shared.dismiss_head(head);
        } else {
            if end.is_some() {
                (this.line_whole, this.empty_line) = (true, EmptyLine::START);
            }
            self.bound_head(side, exit);
        }
        bytes.len()
    }

    /// Appends a copy of `bytes` to `head`; `false` if memory is short.
    fn append_head_copy(&mut self, side: usize, bytes: &[u8], exit: &mut Talk<'_, impl Ear<Fact>>) -> bool {
        if !exit.shared.charge(bytes.len()) {
            exit.count_unseen("heads not read for want of memory");
            self.give_up_head(side, exit);
            return false;
        }
        let head = &mut self.sides[side].head;
        if head.is_empty() {
            *head = exit.shared.head_buffer();
        }
        head.extend_from_slice(bytes);
        true
    }

    fn bound_head(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &mut self.sides[side];
        if this.head.len() < HTTP_HEAD_BYTES {
            return;
        }
        if this.line_whole {
            exit.count_unseen("heads too long");
            self.give_up_head(side, exit);
        } else {
            // It may be a start line, and is not read.
            exit.ear.lost(NO_MESSAGE, "first lines too long");
            this.drop_head(exit.shared);
            self.no_start(side, exit);
        }
    }

    /// Skips the rest of a head.
    fn give_up_head(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        self.cut_head(side, exit);
        let this = &mut self.sides[side];
        (this.confirmed, this.lost, this.phase) = (true, true, Phase::Skip);
    }

    /// Gives what is known of a message whose head is incomplete.
    fn cut_head(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let this = &mut self.sides[side];
        if this.head.is_empty() {
            return;
        }
        let (head, time) = (std::mem::take(&mut this.head), this.head_time);
        this.line_whole = false;
        if self.message(&head, time, side, false, exit) {
            exit.count("heads cut", 1);
        }
        exit.shared.dismiss_head(head);
    }

    /// The next bytes are not a start line. Decides whether to search for one.
    fn no_start(&mut self, side: usize, exit: &mut Talk<'_, impl Ear<Fact>>) {
        let [this, peer] = match &mut self.sides {
            [client, server] if side == 0 => [client, server],
            [client, server] => [server, client],
        };
        if this.after_connect {
            // The response was not seen, but these bytes show that it opened a tunnel.
            this.gone(exit.shared);
        } else if this.confirmed || this.lost || peer.confirmed || exit.ear.is_midstream() {
            if this.confirmed && !this.lost {
                exit.count_unseen("places where a start line should be");
            }
            (this.lost, this.phase) = (true, Phase::Skip);
        } else {
            this.gone(exit.shared);
        }
    }

    /// Gives the record of a head, whole or incomplete, and begins its body. `false`: it is none.
    fn message(
        &mut self,
        bytes: &[u8],
        time: u64,
        side: usize,
        whole: bool,
        exit: &mut Talk<'_, impl Ear<Fact>>,
    ) -> bool {
        let read = if whole {
            Head::parse(bytes).map(|head| (head, None))
        } else {
            Head::parse_cut(bytes).map(|(head, cut)| (head, Some(cut)))
        };
        let Some((head, cut)) = read else { return false };
        if head.bad_lengths > 0 {
            exit.count("lengths that contradict each other or are none", u64::from(head.bad_lengths));
        }
        let is_response = matches!(head.start, StartLine::Response { .. });
        if is_response && self.sides[side].lost {
            self.asked.forget_but_newest();
        }
        let (mut doubted, mut has_odd_body) = (false, false);
        let turns_into = turns_into(&head);
        let unseen = is_response && self.asked.front().is_none();
        let unasked = if unseen { self.asked.skip() } else { 0 };
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
                doubted = bodyless && exit.wants.readings && (head.chunked || head.length.is_some());
                let none = tunnel || question.kind == Method::Head || bodyless && !doubted;
                (if none { Framing::None } else { Framing::of(&head, false) }, question, tunnel)
            }
        };
        let id = Id { exchange: question.number.unwrap_or(unasked), side: Side::to_server(side == 0) };
        if question.number.is_none() {
            exit.ear.odd(id, "http.unable_to_match_response_to_request");
        }
        exit.ear.since(id, time);
        exit.ear.begin(id);
        exit.ear.head(id, bytes);
        tell(id, &head, Notes { ambiguous: &head.ambiguous(has_odd_body), cut }, question, exit.ear);
        match framing {
            _ if !whole => exit.ear.bare(id, How::Cut),
            Framing::None => exit.ear.bare(id, How::Complete),
            _ => exit.ear.head_done(id),
        }
        // A whole head ends in a line end, and so is never equal to this.
        let is_old = whole && bytes == NO_HEAD;
        let is_interim = matches!(head.start, StartLine::Response { status: Some(status), .. } if is_interim(status));
        let is_connect = question.kind == Method::Connect;
        // Only for rules.
        let mut readings = (exit.wants.readings && whole).then(|| Readings::of(&head, bytes, framing));
        if let Some(readings) = &mut readings {
            readings.take_head(bytes, id, exit.shared, exit.ear);
        }
        let phase = match framing {
            _ if !whole => Phase::Start,
            Framing::None => {
                readings.into_iter().for_each(|readings| readings.end(exit.shared));
                Phase::Start
            }
            framing => {
                let mut body = Body::new(id, framing, &head, exit.shared, exit.ear);
                body.in_doubt = unseen || doubted;
                body.first_line = is_old && exit.wants.at_once;
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
            self.turns_into = turns_into;
            self.sides.iter_mut().for_each(|side| side.becomes_tunnel(exit.shared));
            self.asked.forget();
            self.settle(exit);
        }
        true
    }

    /// Charges or gives back what the queue of requests grew or shrank by.
    fn settle(&mut self, exit: &mut Talk<'_, impl Ear<Fact>>) {
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

/// The protocol of the connection behind this head (RFC 9110, 7.8). The tunnel of a CONNECT shows it by its first bytes.
fn turns_into(head: &Head<'_>) -> Option<App> {
    let StartLine::Response { status: Some(101), .. } = head.start else { return None };
    let is = |word: &[u8]| head.upgrade.is_some_and(|value| value.eq_ignore_ascii_case(word));
    Some(match () {
        () if is(b"websocket") => App::WebSocket,
        () if is(b"h2c") => App::Http2,
        () => App::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;

    fn talk(turns: &[(Side, u32, &str)]) -> (Vec<String>, Vec<Fed>) {
        let (mut shared, mut ear) = (Shared::new(true, u64::MAX, 100, 1 << 20), Heard::default());
        let (mut conversation, mut fed, mut has_begun) = (Conversation::default(), Vec::new(), [false; 2]);
        for (side, gap, text) in turns {
            let is_first = !std::mem::replace(&mut has_begun[side.index()], true);
            let input = Input { bytes: text.as_bytes(), gap: *gap, is_first, ..Input::default() };
            fed.push(conversation.feed(*side, &input, &mut shared, &mut ear));
        }
        for side in [Side::Client, Side::Server] {
            conversation.end(side, 0, &mut shared, &mut ear);
        }
        assert!(shared.is_even());
        (ear.said, fed)
    }

    const UPGRADE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";

    /// See docs/decisions/protocols.md.
    #[test]
    fn where_record_and_alert_disagreed() {
        let check = |turns: &[(Side, u32, &str)], expected: &[&str]| {
            let said = talk(turns).0;
            let facts = ["Method=", "Url=", "Status=", "Cut="];
            let said: Vec<_> = said.iter().filter(|said| facts.iter().any(|fact| said.starts_with(fact))).collect();
            assert_eq!(said, expected, "{turns:?}");
        };
        // Half a first line.
        check(&[(Side::Client, 0, "GET /a")], &["Method=GET", "Cut=url"]);
        check(&[(Side::Client, 0, "GET /a HTT")], &["Method=GET", "Url=/a", "Cut=protocol"]);
        check(&[(Side::Client, 0, "GE")], &[]);
        // A control character behind the version.
        check(&[(Side::Server, 0, "HTTP/1.1\x10200 OK\r\nContent-Length: 0\r\n\r\n")], &["Status=200"]);
        check(&[(Side::Server, 0, UPGRADE)], &["Status=101"]);
    }

    #[test]
    fn what_a_connection_turns_into() {
        let check = |turns: &[(Side, u32, &str)], expected: Option<App>| {
            let last = talk(turns).1.pop();
            assert_eq!(
                last,
                Some(Fed::HandsOn { used: turns[turns.len() - 1].2.len() - 1, to: expected }),
                "{turns:?}"
            );
        };
        let request = (Side::Client, 0, "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n");
        let behind = |upgrade: &str| format!("HTTP/1.1 101 x\r\nUpgrade: {upgrade}\r\n\r\nx");
        check(&[request, (Side::Server, 0, &behind("h2c"))], Some(App::Http2));
        check(&[request, (Side::Server, 0, &behind("WebSocket"))], Some(App::WebSocket));
        check(&[request, (Side::Server, 0, &behind("x"))], Some(App::Unknown));
        // The request was not seen.
        check(&[(Side::Server, 0, &behind("h2c"))], Some(App::Http2));
        let connect = (Side::Client, 0, "CONNECT a:1 HTTP/1.1\r\n\r\n");
        check(&[connect, (Side::Server, 0, "HTTP/1.1 200 OK\r\n\r\nx")], None);
    }
}
