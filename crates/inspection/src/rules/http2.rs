//! HTTP/2 for rules (RFC 9113): each stream is a transaction, and so is each frame of the connection itself. Header
//! fields fill the buffers of HTTP/1. A stream with DNS messages (RFC 8484) also fills the DNS buffers. `http2/head.rs`
//! adds the fields.

mod head;

use super::dns;
use super::transactions::Transactions;
use base::limits::RULES_TRANSACTIONS;
use head::put_head;
use protocols::conversation::{Body, Ear, Fed, How, Id, Run, Side, Wants};
use protocols::http::shared::Shared;
use protocols::http::{Fact, Method, Question};
use protocols::http2::{Conversation, Header, kind};
use rules::Transaction;
use rules::names::{App, Buffer, HTTP2_ERRORS, Number};
use std::collections::BTreeMap;

/// Most numbers of one kind that frames of one stream and side note.
const NOTED: usize = 256;

/// Most bytes that are decoded at once.
const ROOM_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Connection {
    conversation: Conversation,
    heard: Heard,
}

/// The part of the conversation that later messages need.
#[derive(Debug, Default)]
struct Heard {
    /// By exchange.
    streams: BTreeMap<u64, Stream>,
    /// The transaction of the last frame of the connection itself.
    control: u64,
    /// The highest stream that was forgotten because its transaction was evicted.
    forgotten: u64,
    /// The fields of a head so far.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The connection carries DNS.
    is_dns: bool,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    /// By side: the file name of the body, until the body begins.
    names: [Option<Vec<u8>>; 2],
}

impl Stream {
    fn new(id: u64) -> Stream {
        Stream { id, names: Default::default() }
    }
}

impl Connection {
    /// Creates a connection upgraded from HTTP/1. Its first stream answers `request`.
    pub fn upgraded(request: Option<&Transaction>, to: &mut Transactions) -> Connection {
        let mut connection = Connection::default();
        let Some(request) = request else { return connection };
        let mut fields = Vec::new();
        let [method, url, host] = [Buffer::HTTP_METHOD, Buffer::HTTP_URI_RAW, Buffer::HTTP_HOST_RAW]
            .map(|buffer| request.first(buffer, true));
        for (name, value) in [(&b":method"[..], method), (b":path", url), (b":authority", host)] {
            fields.extend(value.map(|value| (name.to_vec(), value.to_vec())));
        }
        let kind = method.map(Method::of).unwrap_or_default();
        if method.is_some() {
            let one = to.begin(App::Http2);
            put_head(one, true, &fields);
            connection.heard.streams.insert(1, Stream::new(one.id));
        }
        let mut ear = Listener { heard: &mut connection.heard, to, bytes: &[] };
        connection.conversation = Conversation::upgraded(Question { number: None, kind, method, host, url }, &mut ear);
        connection
    }

    /// Whether the connection carries DNS.
    pub fn is_dns(&self) -> bool {
        self.heard.is_dns
    }

    /// Reads the next bytes of a side, behind `gap` missing ones.
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, shared: &mut Shared, to: &mut Transactions) {
        let Connection { conversation, heard } = self;
        let mut ear = Listener { heard, to, bytes: run.bytes };
        if gap > 0 {
            conversation.gap(side, gap, shared, &mut ear);
        }
        let mut from = 0;
        loop {
            shared.begin_turn(true);
            match conversation.feed(side, run, from, shared, &mut ear) {
                Fed::Full { used } => from = used,
                _ => break,
            }
        }
        to.reader_bytes = self.kept_bytes();
    }

    /// The connection has ended.
    pub fn close(mut self, shared: &mut Shared) {
        let mut to = Transactions::default();
        self.conversation.end(shared, &mut Listener { heard: &mut self.heard, to: &mut to, bytes: &[] });
    }

    fn kept_bytes(&self) -> usize {
        let names = self.heard.streams.values().flat_map(|stream| stream.names.iter().flatten()).map(Vec::len);
        self.conversation.kept_bytes() + names.sum::<usize>()
    }
}

/// Fills the buffers of transactions.
struct Listener<'a> {
    heard: &'a mut Heard,
    to: &'a mut Transactions,
    /// The bytes being read.
    bytes: &'a [u8],
}

impl Listener<'_> {
    /// The transaction of a stream. Each frame of stream 0 gets its own, and so does a frame that opens no stream.
    fn begin_frame(&mut self, stream: u64, of: u8) -> u64 {
        let Listener { heard, to, .. } = self;
        let known = heard.streams.get(&stream).map(|known| known.id);
        if let Some(known) = known.filter(|id| to.find(*id).is_some()) {
            return known;
        }
        let opens = stream > 0 && !matches!(of, kind::PRIORITY | kind::WINDOW_UPDATE | kind::RST_STREAM);
        if opens {
            // Rules do not see these bytes together with those that were evicted.
            to.unseen |= known.is_some() || stream <= heard.forgotten;
        }
        let one = to.begin(if heard.is_dns { App::Doh2 } else { App::Http2 });
        let id = one.id;
        if !opens {
            one.complete = [true; 2];
            heard.control = id;
            return id;
        }
        if heard.streams.len() >= RULES_TRANSACTIONS {
            let forgotten = &mut heard.forgotten;
            heard.streams.retain(|number, stream| {
                let stays = to.find(stream.id).is_some();
                *forgotten = (*forgotten).max(if stays { 0 } else { *number });
                stays
            });
        }
        heard.streams.insert(stream, Stream::new(id));
        id
    }

    /// The transaction that the current frame of a stream belongs to.
    fn current(&self, stream: u64) -> u64 {
        self.heard.streams.get(&stream).map_or(self.heard.control, |stream| stream.id)
    }

    fn append(&mut self, id: Id, bytes: &[u8]) {
        let to_server = id.side.is_client();
        let Some(stream) = self.heard.streams.get_mut(&id.exchange) else { return };
        if !bytes.is_empty()
            && let Some(name) = stream.names[id.side.index()].take()
            && let Some(one) = self.to.get(stream.id)
        {
            one.put_copy(Buffer::FILE_NAME, to_server, &name);
            self.to.change(stream.id, to_server);
        }
        let buffer = if to_server { Buffer::HTTP_REQUEST_BODY } else { Buffer::HTTP_RESPONSE_BODY };
        self.to.append_file(stream.id, buffer, to_server, bytes);
    }
}

/// The number of a frame or a setting in rules, and whether frames of one stream may repeat it.
fn number_of(fact: Fact) -> Option<(Number, bool)> {
    Some(match fact {
        Fact::FrameType => (Number::HTTP2_FRAMETYPE, true),
        Fact::Priority => (Number::HTTP2_PRIORITY, true),
        Fact::Window => (Number::HTTP2_WINDOW, true),
        Fact::SizeUpdate => (Number::HTTP2_SIZE_UPDATE, false),
        Fact::ErrorCode => (Number::HTTP2_ERRORCODE, false),
        Fact::Setting1 => (Number::HTTP2_SETTING_1, false),
        Fact::Setting2 => (Number::HTTP2_SETTING_2, false),
        Fact::Setting3 => (Number::HTTP2_SETTING_3, false),
        Fact::Setting4 => (Number::HTTP2_SETTING_4, false),
        Fact::Setting5 => (Number::HTTP2_SETTING_5, false),
        Fact::Setting6 => (Number::HTTP2_SETTING_6, false),
        _ => return None,
    })
}

impl Ear<Fact> for Listener<'_> {
    fn wants(&self) -> Wants {
        Wants { frames: self.to.frames, at_once: true, readings: true, fields: true, ..Wants::default() }
    }

    fn fact(&mut self, _id: Id, _fact: Fact, _value: &[u8]) {}

    fn number(&mut self, of: Id, fact: Fact, value: u64) {
        let Some((name, repeats)) = number_of(fact) else { return };
        let to_server = of.side.is_client();
        let id = match fact {
            Fact::FrameType => self.begin_frame(of.exchange, value as u8),
            _ => self.current(of.exchange),
        };
        if repeats {
            // Rules need no new look at each frame of a body.
            if note(id, name, to_server, value, self.to) || fact == Fact::FrameType && self.to.frames {
                self.to.change(id, to_server);
            }
        } else if let Some(one) = self.to.get(id) {
            one.put_number(name, to_server, value);
            if fact == Fact::ErrorCode {
                let name = HTTP2_ERRORS.iter().find(|known| known.1 == value).map_or("", |known| known.0);
                one.put_copy(Buffer::HTTP2_ERROR_NAME, to_server, name.replace('_', "").as_bytes());
            }
        }
    }

    fn frame(&mut self, of: Id, bytes: &[u8]) {
        let (id, to_server) = (self.current(of.exchange), of.side.is_client());
        let (header, contents) = bytes.split_at(bytes.len().min(Header::BYTES));
        if let Some(one) = self.to.get(id) {
            one.put_copy(Buffer::FRAME_HTTP2_HDR, to_server, header);
            one.put_copy(Buffer::FRAME_HTTP2_DATA, to_server, contents);
            one.put_copy(Buffer::FRAME_HTTP2_PDU, to_server, bytes);
        }
        self.to.change(id, to_server);
    }

    fn field(&mut self, _id: Id, name: &[u8], value: &[u8]) {
        self.heard.fields.push((name.to_vec(), value.to_vec()));
    }

    fn fields_done(&mut self, of: Id) {
        let to_server = of.side.is_client();
        let id = self.begin_frame(of.exchange, kind::HEADERS);
        let Listener { heard, to, .. } = self;
        let fields = std::mem::take(&mut heard.fields);
        if let Some(one) = to.get(id) {
            let name = put_head(one, to_server, &fields);
            heard.is_dns |= one.app == App::Doh2;
            if let Some(stream) = heard.streams.get_mut(&of.exchange) {
                stream.names[of.side.index()] = name;
            }
        }
        to.change(id, to_server);
    }

    fn body(&mut self, id: Id, piece: Body<'_>) {
        match piece {
            Body::Range(range) => self.append(id, &self.bytes[range]),
            Body::Kept(bytes, _) => self.append(id, bytes),
            Body::Missing(_) => {}
        }
    }

    fn room(&mut self, id: Id, max: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) {
        let mut room = [0; ROOM_BYTES];
        let made = fill(&mut room[..max.min(ROOM_BYTES)]);
        self.append(id, &room[..made]);
    }

    fn reading(&mut self, id: Id, number: usize, bytes: &[u8]) {
        let transaction = self.current(id.exchange);
        self.to.append_reading(transaction, number, id.side.is_client(), bytes);
    }

    fn lost(&mut self, _id: Id, _what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen = true;
    }

    fn count(&mut self, _what: &'static str, times: u64) {
        self.to.given_up += times;
    }

    fn end(&mut self, of: Id, how: How) {
        let to_server = of.side.is_client();
        let Some(stream) = self.heard.streams.get(&of.exchange).filter(|_| how != How::Interim) else { return };
        let id = stream.id;
        if let Some(one) = self.to.get(id)
            && one.app == App::Doh2
        {
            let body = one.first(Buffer::FILE_DATA, to_server).map(<[u8]>::to_vec);
            if let Some(message) = body {
                dns::within(one, &message, to_server);
            }
        }
        self.to.complete(id, to_server);
        if self.to.find(id).is_none_or(|one| one.complete == [true; 2]) {
            self.heard.streams.remove(&of.exchange);
        }
    }

    fn over(&mut self, exchange: u64) {
        if let Some(stream) = self.heard.streams.remove(&exchange) {
            self.to.complete(stream.id, true);
            self.to.complete(stream.id, false);
        }
    }
}

/// Adds a number if the transaction does not have it yet. Returns whether it was added.
fn note(id: u64, name: Number, to_server: bool, value: u64, to: &mut Transactions) -> bool {
    let Some(one) = to.get(id) else { return false };
    if one.numbers(name, to_server).any(|known| known == value) {
        return false;
    }
    let fits = one.numbers(name, to_server).count() < NOTED;
    if fits {
        one.put_number(name, to_server, value);
    } else {
        to.given_up += 1;
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::head::URL_SAFE;
    use super::*;
    use base::limits::{INFLATE_BYTES, RULES_BODY_BYTES};
    use base64::Engine as _;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use protocols::http2::{PREFACE, flag};
    use std::io::Write;

    fn frame(kind: u8, flags: u8, stream: u8, contents: &[u8]) -> Vec<u8> {
        let length = contents.len() as u32;
        [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], contents].concat()
    }

    fn head(fields: &[(&str, &str)]) -> Vec<u8> {
        let field = |(name, value): &(&str, &str)| {
            [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
        };
        fields.iter().flat_map(field).collect()
    }

    fn say(connection: &mut Connection, bytes: &[u8], to_server: bool, size: usize, to: &mut Transactions) {
        say_within(&mut Shared::new(true, u64::MAX, 100, 1 << 30), connection, bytes, to_server, size, to);
    }

    fn say_within(
        shared: &mut Shared,
        connection: &mut Connection,
        bytes: &[u8],
        to_server: bool,
        size: usize,
        to: &mut Transactions,
    ) {
        let side = Side::to_server(to_server);
        bytes.chunks(size).for_each(|bytes| connection.feed(side, Run { bytes, time: 0 }, 0, shared, to));
    }

    #[test]
    fn a_request_and_its_response() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"a body of words").unwrap();
        let gzip = gzip.finish().unwrap();
        let request = head(&[(":method", "GET"), (":path", "/a"), (":authority", "A.example:80"), ("host", "b")]);
        let (front, back) = request.split_at(20);
        let client = [
            PREFACE.to_vec(),
            frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0x10, 0]),
            frame(kind::HEADERS, flag::END_STREAM | flag::PRIORITY, 1, &[&[0, 0, 0, 0, 200][..], front].concat()),
            frame(kind::CONTINUATION, flag::END_HEADERS, 1, back),
        ]
        .concat();
        let response = head(&[(":status", "200"), ("content-encoding", "gzip"), ("server", "s")]);
        let server = [
            frame(kind::SETTINGS, 1, 0, &[]),
            frame(kind::HEADERS, flag::END_HEADERS, 1, &response),
            frame(kind::DATA, flag::PADDED, 1, &[&[3][..], &gzip[..9], &[0; 3]].concat()),
            frame(kind::DATA, flag::END_STREAM, 1, &gzip[9..]),
            frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]),
        ]
        .concat();
        for (size, frames) in [(1, false), (7, true), (1000, true)] {
            let (mut connection, mut to) = (Connection::default(), Transactions::default());
            to.frames = frames;
            say(&mut connection, &client, true, size, &mut to);
            say(&mut connection, &server, false, size, &mut to);
            // SETTINGS, the stream, SETTINGS, GOAWAY.
            let [settings, stream, _, goaway] = [0, 1, 2, 3].map(|id| to.find(id).unwrap());
            assert_eq!(settings.numbers(Number::HTTP2_SETTING_4, true).collect::<Vec<_>>(), [4096]);
            for (buffer, to_server, expected) in [
                (Buffer::HTTP_METHOD, true, "GET"),
                (Buffer::HTTP_URI, true, "/a"),
                (Buffer::HTTP_HOST, true, "a.example"),
                (Buffer::HTTP_REQUEST_LINE, true, "GET /a HTTP/2\r\n"),
                (Buffer::HTTP_STAT_CODE, false, "200"),
                (Buffer::HTTP_SERVER, false, "s"),
                (Buffer::FILE_DATA, false, "a body of words"),
            ] {
                let found = stream.first(buffer, to_server).map(String::from_utf8_lossy);
                assert_eq!(found.as_deref(), Some(expected), "{}", buffer.about().name);
            }
            assert_eq!(stream.numbers(Number::HTTP2_PRIORITY, true).collect::<Vec<_>>(), [200]);
            assert_eq!(stream.events, [("http2.authority_host_mismatch", true)]);
            assert_eq!(stream.complete, [true; 2]);
            assert_eq!(goaway.numbers(Number::HTTP2_ERRORCODE, false).collect::<Vec<_>>(), [2]);
            assert_eq!(goaway.first(Buffer::HTTP2_ERROR_NAME, false), Some(&b"INTERNALERROR"[..]));
            assert_eq!(stream.first(Buffer::FRAME_HTTP2_HDR, false).is_some(), frames);
            assert_eq!(to.given_up, 0);
        }
    }

    /// Rules look at a body as it grows, but not at all of it for each frame.
    #[test]
    fn frames_that_bring_nothing_new_are_cheap() {
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        let response = frame(kind::HEADERS, flag::END_HEADERS, 1, &head(&[(":status", "200")]));
        say(&mut connection, &frame(kind::SETTINGS, 0, 0, &[]), false, 99, &mut to);
        to.changed.clear();
        say(&mut connection, &response, false, 99, &mut to);
        say(&mut connection, &frame(kind::DATA, 0, 1, &vec![b'x'; RULES_BODY_BYTES]), false, 1 << 17, &mut to);
        let id = to.last().unwrap().id;
        assert_eq!(std::mem::take(&mut to.changed), [(id, false)]);
        for _ in 0..50 {
            say(&mut connection, &frame(kind::DATA, 0, 1, b"x"), false, 99, &mut to);
        }
        assert!(to.changed.is_empty());
        for number in 0..50 + NOTED as u32 {
            let window = frame(kind::WINDOW_UPDATE, 0, 1, &number.to_be_bytes());
            for is_new in [number < NOTED as u32, false] {
                to.changed.clear();
                say(&mut connection, &window, false, 99, &mut to);
                assert_eq!(!to.changed.is_empty(), is_new, "{number}");
            }
        }
        let one = to.last().unwrap();
        let kinds = [kind::HEADERS, kind::DATA, kind::WINDOW_UPDATE].map(u64::from);
        assert_eq!(one.numbers(Number::HTTP2_FRAMETYPE, false).collect::<Vec<_>>(), kinds);
        assert_eq!(one.numbers(Number::HTTP2_WINDOW, false).count(), NOTED);
        assert_eq!(to.given_up, 100);
    }

    /// Rules do not see the decoded bytes of one body too many.
    #[test]
    fn a_coded_body_too_many_is_unseen() {
        let response = head(&[(":status", "200"), ("content-encoding", "gzip")]);
        let mut shared = Shared::new(true, u64::MAX, 100, 10 * INFLATE_BYTES);
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        say_within(&mut shared, &mut connection, &frame(kind::SETTINGS, 0, 0, &[]), false, 99, &mut to);
        for number in 0..10 {
            assert!(!to.unseen, "{number}");
            let stream = 2 * number + 1;
            let head = frame(kind::HEADERS, flag::END_HEADERS, stream, &response);
            let bytes = [head, frame(kind::DATA, 0, stream, &[0x1f, 0x8b, 8])].concat();
            say_within(&mut shared, &mut connection, &bytes, false, 99, &mut to);
        }
        assert!(to.given_up > 0 && to.unseen);
        connection.close(&mut shared);
        assert!(shared.is_even());
    }

    /// A query in a path, and a response in a body.
    #[test]
    fn dns() {
        let question = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\x03org\0\0\x01\0\x01";
        let path = format!("/q?x=1&dns={}", URL_SAFE.encode(question).trim_end_matches('='));
        let request = head(&[(":method", "GET"), (":path", &path), ("accept", "application/dns-message")]);
        let bytes = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &request);
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        say(&mut connection, &[PREFACE, &bytes].concat(), true, 50, &mut to);
        let one = to.last().unwrap();
        assert_eq!((one.app, one.first(Buffer::DNS_QUERY, true)), (App::Doh2, Some(&b"a.org"[..])));
        assert!(connection.is_dns());
    }

    proptest! {
        #[test]
        fn any_bytes(said in proptest::collection::vec(
            (0u8..12, any::<u8>(), 0u8..4, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..20),
            size in 1usize..40) {
            let (mut connection, mut to) = (Connection::default(), Transactions::default());
            say(&mut connection, PREFACE, true, size, &mut to);
            say(&mut connection, &frame(kind::SETTINGS, 0, 0, &[]), false, size, &mut to);
            for (kind, flags, stream, to_server, contents) in said {
                say(&mut connection, &frame(kind, flags, stream, &contents), to_server, size, &mut to);
                say(&mut connection, &contents, to_server, size, &mut to);
                to.changed.clear();
                to.sweep();
            }
        }
    }
}
