//! HTTP/1 for rules: a transaction for each request, with its response. The conversation is in `protocols::http`.

use super::http_events;
use super::mime::{self, Mime};
use super::transactions::Transactions;
use base::limits::{RULES_MEMORY_BYTES, RULES_TRANSACTIONS};
use protocols::conversation::{Body, Ear, Fed, How, Id, Side, Wants};
use protocols::http::shared::Shared;
use protocols::http::{
    Conversation, Fact, Input, NO_HEAD, StartLine, cut_line, is_interim, start_line, trim, uri, without_end,
};
use rules::Transaction;
use rules::names::{App, Buffer};
use std::collections::VecDeque;

/// Marks a transaction that had a 100 (Continue) response (RFC 9110, 15.2.1). It is kept among the events; no rule has
/// this name.
const CONTINUED: &str = "100";

/// Most bytes that are decoded at once.
const ROOM_BYTES: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Http {
    conversation: Conversation,
    heard: Heard,
}

/// The part of the conversation that later messages need.
#[derive(Default)]
struct Heard {
    /// The newest requests without a response: the exchange, and the transaction.
    asked: VecDeque<(u64, u64)>,
    /// By side: the transaction of the current message.
    current: [Option<u64>; 2],
    /// By side: the transaction of the newest message.
    newest: [Option<u64>; 2],
    /// By side: the file name of the current body, until the body begins.
    names: [Option<Vec<u8>>; 2],
    /// The transaction of the switch to another protocol.
    upgraded: Option<u64>,
    /// Parser of the form in the current request.
    form: Option<Box<Mime>>,
    /// The response answers no known request.
    is_unasked: bool,
}

/// State shared by all connections.
pub(super) struct HttpShared {
    /// Rules use application events.
    pub asks: bool,
    /// Limits and memory.
    pub shared: Shared,
}

impl HttpShared {
    pub fn new() -> HttpShared {
        HttpShared { asks: false, shared: Shared::new(true, 1 << 30, 100, RULES_MEMORY_BYTES) }
    }
}

impl Http {
    /// Takes a stream block. If the connection changes protocol, returns the offset of the first other byte, and the
    /// other protocol; `None`: it is to be detected.
    pub fn feed(
        &mut self,
        side: Side,
        input: &Input<'_>,
        is_midstream: bool,
        shared: &mut HttpShared,
        to: &mut Transactions,
    ) -> Option<(u32, Option<App>)> {
        let HttpShared { asks, shared } = shared;
        let Http { conversation, heard } = self;
        let mut ear = Listener { heard, to, bytes: input.bytes, asks: *asks, is_midstream };
        let fed = loop {
            shared.begin_turn(true);
            match conversation.feed(side, input, shared, &mut ear) {
                Fed::Full { .. } => {}
                fed => break fed,
            }
        };
        if input.is_last
            && let Some(id) = ear.heard.current[side.index()].take()
        {
            ear.to.complete(id, side.is_client());
        }
        match fed {
            Fed::HandsOn { used, to } => Some((used as u32, to)),
            _ => None,
        }
    }

    /// The transaction after which the protocol changed.
    pub fn upgraded(&self) -> Option<u64> {
        self.heard.upgraded
    }

    /// Memory of this connection, without what a shared limit covers.
    pub fn kept_bytes(&self) -> usize {
        self.heard.form.as_ref().map_or(0, |form| form.kept_bytes())
    }

    pub fn close(mut self, shared: &mut Shared) {
        let mut to = Transactions::default();
        let mut ear = Listener { heard: &mut self.heard, to: &mut to, bytes: &[], asks: false, is_midstream: false };
        for side in [Side::Client, Side::Server] {
            self.conversation.end(side, 0, shared, &mut ear);
        }
    }
}

/// Fills the buffers of transactions.
struct Listener<'a> {
    heard: &'a mut Heard,
    to: &'a mut Transactions,
    /// The bytes being read.
    bytes: &'a [u8],
    asks: bool,
    /// The connection was joined midway.
    is_midstream: bool,
}

impl Listener<'_> {
    fn append(&mut self, side: Side, bytes: &[u8]) {
        let Listener { heard, to, .. } = self;
        let to_server = side.is_client();
        let Some(id) = heard.current[side.index()] else { return };
        if let Some(name) = heard.names[side.index()].take()
            && let Some(one) = to.get(id)
        {
            one.put_copy(Buffer::FILE_NAME, to_server, &name);
        }
        let buffer = if to_server { Buffer::HTTP_REQUEST_BODY } else { Buffer::HTTP_RESPONSE_BODY };
        match &mut heard.form {
            // Add files first: a file that rules have seen makes room for the next one, unless this block added
            // more to it.
            Some(form) if to_server => {
                form.feed(bytes, &mut |found| mime::put(&found, id, to));
                to.append_body(id, buffer, to_server, bytes);
            }
            _ => to.append_file(id, buffer, to_server, bytes),
        }
    }
}

impl Ear<Fact> for Listener<'_> {
    fn wants(&self) -> Wants {
        Wants { at_once: true, readings: true, ..Wants::default() }
    }

    fn head(&mut self, of: Id, bytes: &[u8]) {
        let side = of.side.index();
        self.heard.newest[side] = None;
        self.heard.current[side] = self.heard.head(bytes, of, self.asks, self.to);
        self.heard.newest[side] = self.heard.current[side].or(self.heard.newest[side]);
    }

    fn fact(&mut self, _id: Id, _fact: Fact, _value: &[u8]) {}

    fn body(&mut self, id: Id, piece: Body<'_>) {
        match piece {
            Body::Range(range) => self.append(id.side, &self.bytes[range]),
            Body::Kept(bytes, _) => self.append(id.side, bytes),
            Body::Missing(_) => {}
        }
    }

    fn room(&mut self, id: Id, max: usize, fill: &mut dyn FnMut(&mut [u8]) -> usize) {
        let mut room = [0; ROOM_BYTES];
        let made = fill(&mut room[..max.min(ROOM_BYTES)]);
        if made > 0 {
            self.append(id.side, &room[..made]);
        }
    }

    fn reading(&mut self, id: Id, number: usize, bytes: &[u8]) {
        if let Some(one) = self.heard.newest[id.side.index()]
            && !bytes.is_empty()
        {
            self.to.append_reading(one, number, id.side.is_client(), bytes);
        }
    }

    fn is_midstream(&self) -> bool {
        self.is_midstream
    }

    fn odd(&mut self, _id: Id, event: &'static str) {
        self.heard.is_unasked = event == "http.unable_to_match_response_to_request";
    }

    fn lost(&mut self, _id: Id, _what: &'static str) {
        self.to.unseen = true;
    }

    fn end(&mut self, of: Id, _how: How) {
        let Listener { heard, to, .. } = self;
        let (side, to_server) = (of.side.index(), of.side.is_client());
        if let Some(id) = heard.current[side].take() {
            if let Some(mut form) = heard.form.take_if(|_| to_server) {
                form.end(&mut |found| mime::put(&found, id, to));
            }
            to.complete(id, to_server);
        } else if let Some(id) = heard.newest[side] {
            // The body of an interim response is whole.
            to.change(id, to_server);
        }
    }
}

impl Heard {
    /// Begins a message; returns its transaction.
    fn head(&mut self, bytes: &[u8], of: Id, asks: bool, to: &mut Transactions) -> Option<u64> {
        let (to_server, is_unasked) = (of.side.is_client(), std::mem::take(&mut self.is_unasked));
        let request = (!is_unasked).then_some(of.exchange);
        let line_end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
        let (line, fields) = bytes.split_at(line_end);
        // The end of the line is missing.
        let is_cut = !line.ends_with(b"\n") && line != NO_HEAD;
        let start = if is_cut { cut_line(line)?.0 } else { start_line(line)? };
        let id = match start {
            StartLine::Request { method, target, protocol } if to_server => {
                let one = to.begin(App::Http1);
                request_line(one, line, method, target, protocol);
                self.asked.extend(request.map(|number| (number, one.id)));
                if self.asked.len() > RULES_TRANSACTIONS {
                    // Its transaction was evicted.
                    self.asked.pop_front();
                }
                one.id
            }
            StartLine::Response { protocol, status } if !to_server => {
                let interim = status.is_some_and(is_interim);
                // The session pairs.
                let asked = request.and_then(|number| {
                    self.asked.retain(|(of, _)| *of >= number);
                    self.asked.front().filter(|(of, _)| *of == number).map(|(_, id)| *id)
                });
                if interim {
                    // Its body is one to some clients; it is not the end of the exchange.
                    self.newest[1] = asked;
                    if status == Some(100)
                        && let Some(id) = asked
                        && let Some(one) = to.get(id)
                    {
                        let again = one.events.contains(&(CONTINUED, false));
                        let event = (if again { "http.100_continue_already_seen" } else { CONTINUED }, false);
                        // A server may repeat it without end.
                        if !one.events.contains(&event) {
                            one.events.push(event);
                            to.change(id, false);
                        }
                    }
                    return None;
                }
                if asked.is_some() {
                    self.asked.pop_front();
                }
                // A response without a known request gets its own transaction.
                let id = asked.filter(|id| to.find(*id).is_some()).unwrap_or_else(|| {
                    let one = to.begin(App::Http1);
                    one.complete[0] = true;
                    if request.is_none() {
                        one.events.push(("http.unable_to_match_response_to_request", false));
                    }
                    one.id
                });
                status_line(to.get(id)?, line, protocol, status.is_some() || !is_cut);
                id
            }
            // Ignore a message from the wrong side.
            _ => return None,
        };
        to.change(id, to_server);
        if is_cut {
            return Some(id);
        }
        let mut no_upgrade = false;
        let one = to.get(id)?;
        let name = put_fields(one, to_server, line, fields);
        if to_server {
            let kind = one.first(Buffer::HTTP_CONTENT_TYPE, true).unwrap_or_default();
            let is_form = kind.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/"));
            let boundary = mime::parameter(kind, b"boundary").filter(|boundary| is_form && !boundary.is_empty());
            let is_plain = kind.get(10..19).is_some_and(|kind| kind.eq_ignore_ascii_case(b"form-data"));
            let parser = if is_plain { Mime::form } else { Mime::parts };
            self.form = boundary.map(|boundary| Box::new(parser(boundary)));
        }
        // In a form each part has its own name.
        self.names[usize::from(!to_server)] = name.filter(|_| !to_server || self.form.is_none());
        if one.first(Buffer::HTTP_STAT_CODE, false) == Some(b"101") && !to_server {
            self.upgraded = Some(id);
            // Without a request to switch, what follows is anything.
            no_upgrade = !asks_to_upgrade(one);
        }
        if asks {
            http_events::head(one, to_server, line, fields);
        }
        to.unseen |= no_upgrade;
        Some(id)
    }
}

/// Whether the request of the transaction asks for another protocol (RFC 9110, 7.8).
fn asks_to_upgrade(one: &Transaction) -> bool {
    let is_upgrade = |field: &[u8]| field.get(..8).is_some_and(|name| name.eq_ignore_ascii_case(b"upgrade:"));
    one.all(Buffer::HTTP_REQUEST_HEADER, true).any(is_upgrade)
}

fn request_line(one: &mut Transaction, line: &[u8], method: &[u8], target: &[u8], protocol: &[u8]) {
    one.put_copy(Buffer::HTTP_REQUEST_LINE, true, without_end(line));
    one.put_copy(Buffer::HTTP_METHOD, true, method);
    // A cut line lacks them.
    if !target.is_empty() {
        one.put_copy(Buffer::HTTP_URI_RAW, true, target);
        one.put_copy(Buffer::HTTP_URI, true, &uri::normal(target));
    }
    if !protocol.is_empty() {
        one.put_copy(Buffer::HTTP_PROTOCOL, true, protocol);
    }
}

/// Adds the first line of a response. `has_status`: its status is whole.
fn status_line(one: &mut Transaction, line: &[u8], protocol: &[u8], has_status: bool) {
    let line = without_end(line);
    one.put_copy(Buffer::HTTP_RESPONSE_LINE, false, line);
    one.put_copy(Buffer::HTTP_PROTOCOL, false, protocol);
    if !has_status {
        return;
    }
    let version = memchr::memmem::find(line, protocol).map_or(0, |at| at + protocol.len());
    let rest = trim(&line[version..]);
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    one.put_copy(Buffer::HTTP_STAT_CODE, false, &rest[..end]);
    one.put_copy(Buffer::HTTP_STAT_MSG, false, trim(&rest[end..]));
}

/// Fields with their own buffer.
const FIELDS: &[(&[u8], Buffer)] = &[
    (b"user-agent", Buffer::HTTP_USER_AGENT),
    (b"referer", Buffer::HTTP_REFERER),
    (b"accept", Buffer::HTTP_ACCEPT),
    (b"accept-language", Buffer::HTTP_ACCEPT_LANG),
    (b"accept-encoding", Buffer::HTTP_ACCEPT_ENC),
    (b"cookie", Buffer::HTTP_COOKIE),
    (b"set-cookie", Buffer::HTTP_COOKIE),
    (b"content-type", Buffer::HTTP_CONTENT_TYPE),
    (b"content-length", Buffer::HTTP_CONTENT_LEN),
    (b"connection", Buffer::HTTP_CONNECTION),
    (b"server", Buffer::HTTP_SERVER),
    (b"location", Buffer::HTTP_LOCATION),
];

/// Adds the header fields; returns the file name of the body.
fn put_fields(one: &mut Transaction, to_server: bool, line: &[u8], block: &[u8]) -> Option<Vec<u8>> {
    let (file, host) = put_pairs(one, to_server, fields(block));
    one.put_copy(Buffer::HTTP_HEADER_RAW, to_server, block);
    let mut start = line.to_vec();
    start.extend_from_slice(block);
    one.put_copy(Buffer::HTTP_START, to_server, &start);
    if to_server {
        let target = one.first(Buffer::HTTP_URI_RAW, true).unwrap_or_default().to_vec();
        let name = uri::host(&target).map(<[u8]>::to_vec).or(host);
        if let Some(name) = name {
            put_host(one, &name);
        }
    }
    file
}

pub(super) fn put_host(one: &mut Transaction, name: &[u8]) {
    one.put_copy(Buffer::HTTP_HOST_RAW, true, name);
    one.put_copy(Buffer::HTTP_HOST, true, &uri::without_port(name).to_ascii_lowercase());
}

/// Adds fields by name and value; returns the file name of the body, and the host.
pub(super) fn put_pairs<'a>(
    one: &mut Transaction,
    to_server: bool,
    fields: impl IntoIterator<Item = (&'a [u8], Vec<u8>)>,
) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut all, mut names) = (Vec::new(), b"\r\n".to_vec());
    let each = if to_server { Buffer::HTTP_REQUEST_HEADER } else { Buffer::HTTP_RESPONSE_HEADER };
    let (mut host, mut disposition) = (None, None);
    let mut values: Vec<(Buffer, Vec<u8>)> = Vec::new();
    for (name, value) in fields {
        names.extend_from_slice(name);
        names.extend_from_slice(b"\r\n");
        let mut whole = name.to_vec();
        whole.extend_from_slice(b": ");
        whole.extend_from_slice(&value);
        one.put_copy(each, to_server, &whole);
        let is_cookie = name.eq_ignore_ascii_case(b"cookie") || name.eq_ignore_ascii_case(b"set-cookie");
        if !is_cookie {
            all.extend_from_slice(&whole);
            all.extend_from_slice(b"\r\n");
        }
        if name.eq_ignore_ascii_case(b"host") && host.is_none() {
            host = Some(value.clone());
        }
        if name.eq_ignore_ascii_case(b"content-disposition") {
            disposition = mime::parameter(&value, b"filename");
        }
        let known = FIELDS.iter().find(|field| name.eq_ignore_ascii_case(field.0)).map(|field| field.1);
        if let Some(buffer) =
            known.filter(|buffer| is_cookie || buffer.about().way != rules::names::Way::Response || !to_server)
        {
            // Values of a repeated field are joined as a list (RFC 9110, 5.3).
            match values.iter_mut().find(|(of, _)| *of == buffer) {
                Some((_, list)) => {
                    list.extend_from_slice(b", ");
                    list.extend_from_slice(&value);
                }
                None => values.push((buffer, value)),
            }
        }
    }
    values.iter().for_each(|(buffer, value)| one.put_copy(*buffer, to_server, value));
    names.extend_from_slice(b"\r\n");
    one.put_copy(Buffer::HTTP_HEADER_NAMES, to_server, &names);
    one.put_copy(Buffer::HTTP_HEADER, to_server, &all);
    (disposition.or_else(|| path_of(one)), host)
}

/// The fallback name of a body: the path of its request, without the query.
fn path_of(one: &Transaction) -> Option<Vec<u8>> {
    let path = one.first(Buffer::HTTP_URI, true)?;
    let path = path.split(|byte| *byte == b'?').next()?;
    (!path.is_empty()).then(|| path.to_vec())
}

/// Splits a head into names and values, with folded lines joined.
fn fields(block: &[u8]) -> Vec<(&[u8], Vec<u8>)> {
    let mut all: Vec<(&[u8], Vec<u8>)> = Vec::new();
    for line in block.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            if let Some((_, value)) = all.last_mut() {
                value.push(b' ');
                value.extend_from_slice(trim(line));
            }
            continue;
        }
        if let Some(colon) = memchr::memchr(b':', line) {
            all.push((trim(&line[..colon]), trim(&line[colon + 1..]).to_vec()));
        } else if !line.is_empty() {
            all.push((&line[..0], line.to_vec()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server may repeat an interim response without end.
    #[test]
    fn a_response_that_is_repeated_is_noted_once() {
        let (mut heard, mut to) = (Heard::default(), Transactions::default());
        let of = |side| Id { exchange: 0, side };
        let id = heard.head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", of(Side::Client), false, &mut to).unwrap();
        for _ in 0..100 {
            assert_eq!(heard.head(b"HTTP/1.1 100 Continue\r\n\r\n", of(Side::Server), false, &mut to), None);
        }
        let events = [(CONTINUED, false), ("http.100_continue_already_seen", false)];
        assert_eq!(to.find(id).unwrap().events, events);
    }
}
