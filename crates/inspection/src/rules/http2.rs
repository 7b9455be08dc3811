//! HTTP/2 for rules (RFC 9113): each stream is a transaction, and so is each frame of the connection itself. Header
//! fields fill the buffers of HTTP/1. A stream with DNS messages (RFC 8484) also fills the DNS buffers. `http2/head.rs`
//! adds the fields.

mod head;

use super::dns;
use super::transactions::Transactions;
use base::limits::{HTTP2_HEAD_BYTES, RULES_BODY_BYTES, RULES_TRANSACTIONS};
use head::{put_head, sizes};
use protocols::http::coded::Coded;
use protocols::http2::table::{FieldText, Table};
use protocols::http2::{Header, PREFACE, flag, kind};
use rules::Transaction;
use rules::names::{App, Buffer, HTTP2_ERRORS, Number};
use std::collections::BTreeMap;

/// Settings with a name in rules; the index is the setting's number minus 1.
const SETTINGS: [Number; 6] = [
    Number::HTTP2_SETTING_1,
    Number::HTTP2_SETTING_2,
    Number::HTTP2_SETTING_3,
    Number::HTTP2_SETTING_4,
    Number::HTTP2_SETTING_5,
    Number::HTTP2_SETTING_6,
];

/// Most numbers of one kind that frames of one stream and side note.
const NOTED: usize = 256;

/// Most bodies of one connection decoded at a time.
const CODED_BODIES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Connection {
    sides: [Side; 2],
    streams: BTreeMap<u32, Stream>,
    /// The highest stream that was forgotten because its transaction was evicted.
    forgotten: u32,
    field: FieldText,
    /// The connection carries DNS.
    pub is_dns: bool,
}

#[derive(Debug, Default)]
struct Side {
    /// The preface was read, or cannot come any more.
    begun: bool,
    /// Bytes of an incomplete frame.
    bytes: Vec<u8>,
    /// Frame bytes left to skip.
    skip: usize,
    /// The current DATA frame: header, bytes left, padding left.
    data: Option<(Header, usize, usize)>,
    /// The incomplete header block: its stream, and whether it ends the stream.
    fields: Option<(u32, bool)>,
    block: Vec<u8>,
    table: Table,
    lost: bool,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    sides: [Body; 2],
    /// By side: the file name of the body, until the body begins.
    names: [Option<Vec<u8>>; 2],
}

impl Stream {
    fn new(id: u64) -> Stream {
        Stream { id, sides: Default::default(), names: Default::default() }
    }

    fn coded_bodies(&self) -> usize {
        self.sides.iter().filter(|body| matches!(body, Body::Coded(_))).count()
    }
}

#[derive(Debug, Default)]
enum Body {
    /// The body has no coding, or its head is still to come.
    #[default]
    Plain,
    /// The body has this coding, and no byte yet.
    Fresh(Vec<u8>),
    Coded(Box<Coded>),
    /// The body has ended, or cannot be decoded further.
    Over,
}

impl Connection {
    /// Creates a connection upgraded from HTTP/1. Its first stream answers `request`.
    pub fn upgraded(request: Option<&Transaction>, to: &mut Transactions) -> Connection {
        let mut connection = Connection::default();
        let Some(request) = request else { return connection };
        let mut fields = Vec::new();
        for (name, buffer) in [
            (&b":method"[..], Buffer::HTTP_METHOD),
            (b":path", Buffer::HTTP_URI_RAW),
            (b":authority", Buffer::HTTP_HOST_RAW),
        ] {
            fields.extend(request.first(buffer, true).map(|value| (name.to_vec(), value.to_vec())));
        }
        let one = to.begin(App::Http2);
        let id = one.id;
        put_head(one, true, &fields);
        to.complete(id, true);
        connection.streams.insert(1, Stream::new(id));
        connection
    }

    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let at = usize::from(!to_server);
        if gap && !self.sides[at].lost {
            self.lose(at, to, false);
        }
        if self.sides[at].lost {
            return;
        }
        let mut waiting = std::mem::take(&mut self.sides[at].bytes);
        waiting.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(taken) = self.step(&waiting[used..], to_server, to) {
            used += taken;
        }
        waiting.drain(..used);
        if !self.sides[at].lost {
            self.sides[at].bytes = waiting;
        }
        to.reader_bytes = self.kept_bytes();
    }

    fn kept_bytes(&self) -> usize {
        let side = |side: &Side| side.bytes.capacity() + side.block.capacity() + side.table.bytes();
        let body = |body: &Body| if let Body::Coded(coded) = body { coded.bytes() } else { 0 };
        let bodies = self.streams.values().flat_map(|stream| &stream.sides).map(body).sum::<usize>();
        let names = self.streams.values().flat_map(|stream| stream.names.iter().flatten()).map(Vec::len).sum::<usize>();
        self.sides.iter().map(side).sum::<usize>() + bodies + names
    }

    /// Gives up a side: frame boundaries are lost. `unseen`: though all its bytes came.
    fn lose(&mut self, at: usize, to: &mut Transactions, unseen: bool) {
        to.given_up += 1;
        to.unseen |= unseen;
        self.sides[at] = Side { lost: true, ..Side::default() };
    }

    /// Handles the front of `bytes` and returns its length; `None`: more bytes are needed.
    fn step(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) -> Option<usize> {
        let at = usize::from(!to_server);
        let side = &mut self.sides[at];
        if side.lost || bytes.is_empty() {
            return None;
        }
        if !side.begun {
            let same = bytes.len().min(PREFACE.len());
            if to_server && bytes[..same] == PREFACE[..same] {
                if same < PREFACE.len() {
                    return None;
                }
                side.begun = true;
                return Some(PREFACE.len());
            }
            side.begun = true;
        }
        if side.skip > 0 {
            let used = bytes.len().min(side.skip);
            side.skip -= used;
            return Some(used);
        }
        if let Some((header, left, padding)) = side.data {
            let used = bytes.len().min(left);
            let left = left - used;
            side.data = (left > 0).then_some((header, left, padding));
            if left == 0 {
                side.skip = padding;
            }
            self.body(header, &bytes[..used], to_server, to);
            if left == 0 && header.has(flag::END_STREAM) {
                self.end(header.stream, to_server, to);
            }
            return Some(used);
        }
        let header = Header::parse(bytes.first_chunk()?);
        let contents = &bytes[Header::BYTES..];
        let is_data = header.kind == kind::DATA;
        if header.length > HTTP2_HEAD_BYTES && !is_data {
            if matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION) {
                self.lose(at, to, true);
                return None;
            }
            side.skip = header.length;
            return Some(Header::BYTES);
        }
        // DATA is handled as it arrives, unless rules inspect frames.
        let wait = !is_data || to.frames && header.length <= RULES_BODY_BYTES;
        if wait && contents.len() < header.length || header.has(flag::PADDED) && contents.is_empty() {
            return None;
        }
        let contents = &contents[..contents.len().min(header.length)];
        let id = self.transaction(header.stream, header.kind, to);
        // Rules need no new look at each frame of a body.
        if note(id, Number::HTTP2_FRAMETYPE, to_server, header.kind.into(), to) || to.frames {
            to.change(id, to_server);
        }
        if to.frames
            && let Some(one) = to.get(id)
        {
            one.put_copy(Buffer::FRAME_HTTP2_HDR, to_server, &bytes[..Header::BYTES]);
            one.put_copy(Buffer::FRAME_HTTP2_DATA, to_server, contents);
            one.put_copy(Buffer::FRAME_HTTP2_PDU, to_server, &bytes[..Header::BYTES + contents.len()]);
        }
        if is_data {
            let padding = if header.has(flag::PADDED) { contents.first().copied().map_or(0, usize::from) } else { 0 };
            let front = usize::from(header.has(flag::PADDED) && header.length > 0);
            let side = &mut self.sides[at];
            match header.length.checked_sub(front + padding) {
                Some(0) => {
                    side.skip = padding;
                    if header.has(flag::END_STREAM) {
                        self.end(header.stream, to_server, to);
                    }
                }
                Some(left) => side.data = Some((header, left, padding)),
                None => side.skip = header.length - front,
            }
            return Some(Header::BYTES + front);
        }
        self.contents(header, contents, id, to_server, to);
        Some(Header::BYTES + header.length)
    }

    /// The transaction of a stream. Each frame of stream 0 gets its own, and so does a frame that opens no stream.
    fn transaction(&mut self, stream: u32, of: u8, to: &mut Transactions) -> u64 {
        let known = self.streams.get(&stream).map(|known| known.id);
        if let Some(known) = known.filter(|id| to.find(*id).is_some()) {
            return known;
        }
        let opens = stream > 0 && !matches!(of, kind::PRIORITY | kind::WINDOW_UPDATE | kind::RST_STREAM);
        if opens {
            // Rules do not see these bytes together with those that were evicted.
            to.unseen |= known.is_some() || stream <= self.forgotten;
        }
        let one = to.begin(if self.is_dns { App::Doh2 } else { App::Http2 });
        let id = one.id;
        if !opens {
            one.complete = [true; 2];
            return id;
        }
        if self.streams.len() >= RULES_TRANSACTIONS {
            self.streams.retain(|number, stream| {
                let stays = to.find(stream.id).is_some();
                self.forgotten = self.forgotten.max(if stays { 0 } else { *number });
                stays
            });
        }
        self.streams.insert(stream, Stream::new(id));
        id
    }

    fn contents(&mut self, header: Header, contents: &[u8], id: u64, to_server: bool, to: &mut Transactions) {
        let at = usize::from(!to_server);
        let number = |from: usize| contents.get(from..).and_then(|rest| rest.first_chunk()).copied();
        let number = |from: usize| number(from).map(|four| u64::from(u32::from_be_bytes(four)));
        let mut put = |name: Number, value: Option<u64>| {
            if let Some((one, value)) = to.get(id).zip(value) {
                one.put_number(name, to_server, value);
            }
        };
        match header.kind {
            kind::RST_STREAM | kind::GOAWAY => {
                let code = number(if header.kind == kind::GOAWAY { 4 } else { 0 });
                put(Number::HTTP2_ERRORCODE, code);
                if let Some((one, code)) = to.get(id).zip(code) {
                    let name = HTTP2_ERRORS.iter().find(|known| known.1 == code).map_or("", |known| known.0);
                    one.put_copy(Buffer::HTTP2_ERROR_NAME, to_server, name.replace('_', "").as_bytes());
                }
                if header.kind == kind::RST_STREAM {
                    self.streams.remove(&header.stream);
                    to.complete(id, true);
                    to.complete(id, false);
                }
            }
            kind::PRIORITY | kind::WINDOW_UPDATE => {
                let (name, value) = match header.kind {
                    kind::PRIORITY => (Number::HTTP2_PRIORITY, contents.get(4).map(|weight| u64::from(*weight))),
                    _ => (Number::HTTP2_WINDOW, number(0).map(|window| window & 0x7fff_ffff)),
                };
                if value.is_some_and(|value| note(id, name, to_server, value, to)) {
                    to.change(id, to_server);
                }
            }
            kind::SETTINGS => {
                for &[high, low, ref value @ ..] in contents.as_chunks::<6>().0 {
                    let setting = usize::from(u16::from_be_bytes([high, low]));
                    if let Some(name) = setting.checked_sub(1).and_then(|place| SETTINGS.get(place)) {
                        put(*name, Some(u64::from(u32::from_be_bytes(*value))));
                    }
                }
            }
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                let Some((fields, promised)) = header.fields(contents) else { return self.lose(at, to, true) };
                if header.kind == kind::HEADERS && header.has(flag::PRIORITY) {
                    let weight = contents.get(4 + usize::from(header.has(flag::PADDED)));
                    put(Number::HTTP2_PRIORITY, weight.map(|weight| u64::from(*weight)));
                }
                let side = &mut self.sides[at];
                match (header.kind, side.fields) {
                    (kind::CONTINUATION, Some((stream, _))) if stream == header.stream => {}
                    (kind::CONTINUATION, _) | (_, Some(_)) => return self.lose(at, to, true),
                    (kind::PUSH_PROMISE, None) => side.fields = Some((promised, false)),
                    _ => side.fields = Some((header.stream, header.has(flag::END_STREAM))),
                }
                if side.block.len() + fields.len() > HTTP2_HEAD_BYTES {
                    return self.lose(at, to, true);
                }
                side.block.extend_from_slice(fields);
                if header.has(flag::END_HEADERS) {
                    self.head(to_server, to);
                }
            }
            _ => {}
        }
    }

    /// Handles the complete header fields of a stream.
    fn head(&mut self, to_server: bool, to: &mut Transactions) {
        let at = usize::from(!to_server);
        let side = &mut self.sides[at];
        let Some((stream, ends)) = side.fields.take() else { return };
        let block = std::mem::take(&mut side.block);
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut add = |field: &mut FieldText| fields.push((field.name.clone(), field.value.clone()));
        let is_whole = side.table.each_field(&block, &mut self.field, &mut add).is_some();
        let id = self.transaction(stream, kind::HEADERS, to);
        if let Some(one) = to.get(id) {
            for size in sizes(&block) {
                one.put_number(Number::HTTP2_SIZE_UPDATE, to_server, size);
            }
            let name = put_head(one, to_server, &fields);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.names[at] = name;
            }
            if one.app == App::Doh2 {
                self.is_dns = true;
            }
        }
        let value = |wanted: &[u8]| fields.iter().find(|field| field.0 == wanted).map(|field| &field.1);
        if let Some(stream) = self.streams.get_mut(&stream)
            && let Some(encoding) = value(b"content-encoding")
        {
            stream.sides[at] = Body::Fresh(encoding.clone());
        }
        to.change(id, to_server);
        if !is_whole {
            return self.lose(at, to, true);
        }
        if ends {
            self.end(stream, to_server, to);
        }
    }

    /// Handles bytes of a body.
    fn body(&mut self, header: Header, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        let at = usize::from(!to_server);
        let is_fresh = |stream: &Stream| matches!(stream.sides[at], Body::Fresh(_));
        // Coded bodies are counted once a body, at its first bytes.
        let coded: usize = match self.streams.get(&header.stream).is_some_and(is_fresh) {
            true => self.streams.values().map(Stream::coded_bodies).sum(),
            false => 0,
        };
        let Some(stream) = self.streams.get_mut(&header.stream) else { return };
        let buffer = if to_server { Buffer::HTTP_REQUEST_BODY } else { Buffer::HTTP_RESPONSE_BODY };
        if !bytes.is_empty()
            && let Some(name) = stream.names[at].take()
            && let Some(one) = to.get(stream.id)
        {
            one.put_copy(Buffer::FILE_NAME, to_server, &name);
            to.change(stream.id, to_server);
        }
        let body = &mut stream.sides[at];
        if let Body::Fresh(encoding) = body
            && let Some(first) = bytes.first()
        {
            *body = match Coded::new(encoding, *first, RULES_BODY_BYTES) {
                Some(_) if coded >= CODED_BODIES => {
                    to.given_up += 1;
                    to.unseen = true;
                    Body::Plain
                }
                Some(coded) => Body::Coded(Box::new(coded)),
                None => Body::Plain,
            };
        }
        let id = stream.id;
        match body {
            Body::Coded(coded) => {
                if !coded.take(bytes, |bytes| to.append_file(id, buffer, to_server, bytes)) {
                    *body = Body::Over;
                }
            }
            Body::Plain => to.append_file(id, buffer, to_server, bytes),
            Body::Fresh(_) | Body::Over => {}
        }
    }

    /// Ends one side of a stream.
    fn end(&mut self, stream: u32, to_server: bool, to: &mut Transactions) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        known.sides[usize::from(!to_server)] = Body::Over;
        let id = known.id;
        if let Some(one) = to.get(id)
            && one.app == App::Doh2
        {
            let body = one.first(Buffer::FILE_DATA, to_server).map(<[u8]>::to_vec);
            if let Some(message) = body {
                dns::within(one, &message, to_server);
            }
        }
        to.complete(id, to_server);
        if to.find(id).is_none_or(|one| one.complete == [true; 2]) {
            self.streams.remove(&stream);
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
    use base64::Engine as _;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
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
        bytes.chunks(size).for_each(|piece| connection.feed(piece, to_server, false, to));
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
        let (mut connection, mut to) = (Connection::default(), Transactions::default());
        for number in 0..=CODED_BODIES as u8 {
            assert!(!to.unseen, "{number}");
            let stream = 2 * number + 1;
            let head = frame(kind::HEADERS, flag::END_HEADERS, stream, &response);
            say(&mut connection, &[head, frame(kind::DATA, 0, stream, &[0x1f, 0x8b, 8])].concat(), false, 99, &mut to);
        }
        assert_eq!((to.given_up, to.unseen), (1, true));
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
        assert!(connection.is_dns);
    }

    proptest! {
        #[test]
        fn any_bytes(said in proptest::collection::vec(
            (0u8..12, any::<u8>(), 0u8..4, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..20),
            size in 1usize..40) {
            let (mut connection, mut to) = (Connection::default(), Transactions::default());
            for (kind, flags, stream, to_server, contents) in said {
                say(&mut connection, &frame(kind, flags, stream, &contents), to_server, size, &mut to);
                say(&mut connection, &contents, to_server, size, &mut to);
                to.changed.clear();
                to.sweep();
            }
        }
    }
}
