//! HTTP for rules: turns the output of the filter `http` into buffers of transactions.

use super::http_events;
use super::mime::{self, Mime};
use super::transactions::Transactions;
use base::limits::{RULES_MEMORY_BYTES, RULES_TRANSACTIONS};
use filter::prelude::*;
use filter::{Counters, Marks};
use filters::http::exit::{Common, Exit, Other};
use filters::http::session::Session;
use protocols::http::shared::Shared;
use protocols::http::start::{StartLine, is_interim, start_line, trim};
use protocols::http::uri;
use rules::Transaction;
use rules::names::{App, Buffer};
use std::collections::VecDeque;

/// Marks a transaction that had a 100 (Continue) response (RFC 9110, 15.2.1). It is kept among the events; no rule has
/// this name.
const CONTINUED: &str = "100";

#[derive(Default)]
pub(super) struct Http {
    session: Session,
    /// The newest requests without a response: the number that the session gave, and the transaction.
    asked: VecDeque<(u64, u64)>,
    /// By side: the transaction of the current message.
    current: [Option<u64>; 2],
    /// By side: the transaction of the newest message.
    newest: [Option<u64>; 2],
    /// By side: the file name of the current body, until the body begins.
    names: [Option<Vec<u8>>; 2],
    /// The protocol that the server switches to.
    upgrade: Upgrade,
    /// The transaction of the switch.
    upgraded: Option<u64>,
    /// Parser of the form in the current request.
    form: Option<Box<Mime>>,
}

/// What an HTTP connection turns into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// To be detected: the tunnel of a CONNECT.
    #[default]
    Unknown,
    WebSocket,
    Http2,
    /// A protocol without a parser.
    Other,
}

/// State shared by all connections.
pub(super) struct HttpShared {
    /// Rules use application events.
    pub asks: bool,
    common: Common,
    out: Vec<Descriptor>,
    counters: Counters,
    marks: Marks,
}

impl HttpShared {
    pub fn new() -> HttpShared {
        let mut common = Common::new(Shared::new(true, 1 << 30, 100, RULES_MEMORY_BYTES));
        common.rules.raw_heads = true;
        HttpShared { asks: false, common, out: Vec::new(), counters: Counters::default(), marks: Marks::default() }
    }

    /// Limits and memory.
    pub fn shared(&mut self) -> &mut Shared {
        &mut self.common.shared
    }

    /// Runs `call` with a context that has our own output, counters and marks.
    fn within<R>(&mut self, cx: &mut Context<'_>, call: impl FnOnce(&mut Exit<'_>) -> R) -> R {
        let HttpShared { common, out, counters, marks, .. } = self;
        let mut inner = Context {
            rings: cx.rings,
            streams: cx.streams,
            out,
            counters,
            marks,
            own: cx.own,
            now: cx.now,
            exclusive: false,
            bodies_are_read: true,
            wake: cx.wake,
            notices: cx.notices,
            order: cx.order,
            stop: cx.stop,
        };
        call(&mut Exit::new(&mut inner, common))
    }
}

impl Http {
    /// Takes a stream block. If the connection changes protocol, returns the offset of the first other byte.
    pub fn feed(
        &mut self,
        block: &Descriptor,
        shared: &mut HttpShared,
        cx: &mut Context<'_>,
        to: &mut Transactions,
    ) -> Option<(u32, Upgrade)> {
        let mut blocks = [*block];
        loop {
            let status = {
                let batch = Batch::new(&mut blocks);
                shared.within(cx, |exit| self.session.run(&batch, exit))
            };
            to.unseen |= std::mem::take(&mut shared.common.rules.unseen);
            self.messages(shared, cx, to);
            if status != Status::More {
                break;
            }
        }
        if block.has(Flags::LAST) {
            let to_server = block.class.direction() == 0;
            if let Some(id) = self.current[usize::from(!to_server)].take() {
                to.complete(id, to_server);
            }
        }
        self.session.take_tunnel().map(|offset| (offset, self.upgrade))
    }

    /// The transaction after which the protocol changed.
    pub fn upgraded(&self) -> Option<u64> {
        self.upgraded
    }

    /// Memory of this connection, without what a shared limit covers.
    pub fn kept_bytes(&self) -> usize {
        self.form.as_ref().map_or(0, |form| form.kept_bytes())
    }

    pub fn close(self, class: Class, shared: &mut HttpShared, cx: &mut Context<'_>) {
        shared.within(cx, |exit| self.session.close(class, exit));
        shared.out.clear();
        shared.common.rules.requests.clear();
        shared.common.rules.others.clear();
        shared.common.rules.unseen = false;
    }

    fn messages(&mut self, shared: &mut HttpShared, cx: &mut Context<'_>, to: &mut Transactions) {
        let mut out = std::mem::take(&mut shared.out);
        let others = std::mem::take(&mut shared.common.rules.others);
        let mut others = others.into_iter().peekable();
        for (at, block) in out.drain(..).enumerate() {
            while let Some(other) = others.next_if(|other| other.behind <= at) {
                self.other(&other, to);
            }
            let to_server = block.class.direction() == 0;
            let side = usize::from(!to_server);
            let bytes = cx.rings.bytes(&block);
            if block.has(Flags::META) {
                let request = shared.common.rules.requests.pop_front().flatten();
                self.newest[side] = None;
                self.current[side] = self.head(bytes, request, to_server, shared.asks, to);
                self.newest[side] = self.current[side].or(self.newest[side]);
            } else if let Some(id) = self.current[side] {
                if let Some(name) = self.names[side].take()
                    && let Some(one) = to.get(id)
                {
                    one.put_copy(Buffer::FILE_NAME, to_server, &name);
                }
                let buffer = if to_server { Buffer::HTTP_REQUEST_BODY } else { Buffer::HTTP_RESPONSE_BODY };
                match &mut self.form {
                    // Add files first: a file that rules have seen makes room for the next one, unless this block added
                    // more to it.
                    Some(form) if to_server => {
                        form.feed(bytes, &mut |found| mime::put(&found, id, to));
                        to.append_body(id, buffer, to_server, bytes);
                    }
                    _ => to.append_file(id, buffer, to_server, bytes),
                }
            }
            if !block.has(Flags::LAST) {
                continue;
            }
            if let Some(id) = self.current[side].take() {
                if let Some(mut form) = self.form.take_if(|_| to_server) {
                    form.end(&mut |found| mime::put(&found, id, to));
                }
                to.complete(id, to_server);
            } else if let Some(id) = self.newest[side] {
                // The body of an interim response is whole.
                to.change(id, to_server);
            }
        }
        others.for_each(|other| self.other(&other, to));
        shared.out = out;
    }

    /// Adds bytes of another reading of a message.
    fn other(&self, other: &Other, to: &mut Transactions) {
        if let Some(id) = self.newest[usize::from(!other.to_server)] {
            to.append_reading(id, other.number, other.to_server, &other.bytes);
        }
    }

    fn head(
        &mut self,
        bytes: &[u8],
        request: Option<u64>,
        to_server: bool,
        asks: bool,
        to: &mut Transactions,
    ) -> Option<u64> {
        let line_end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1);
        let (line, fields) = bytes.split_at(line_end);
        let id = match start_line(line)? {
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
                status_line(to.get(id)?, line, protocol);
                id
            }
            // Ignore a message from the wrong side.
            _ => return None,
        };
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
            (self.upgrade, self.upgraded) = (upgrade(fields), Some(id));
            // Without a request to switch, what follows is anything.
            no_upgrade = !asks_to_upgrade(one);
        }
        if asks {
            http_events::head(one, to_server, line, fields);
        }
        to.change(id, to_server);
        to.unseen |= no_upgrade;
        Some(id)
    }
}

/// Whether the request of the transaction asks for another protocol (RFC 9110, 7.8).
fn asks_to_upgrade(one: &Transaction) -> bool {
    let is_upgrade = |field: &[u8]| field.get(..8).is_some_and(|name| name.eq_ignore_ascii_case(b"upgrade:"));
    one.all(Buffer::HTTP_REQUEST_HEADER, true).any(is_upgrade)
}

/// Reads from a response head what the connection turns into.
fn upgrade(head: &[u8]) -> Upgrade {
    let upgrade = fields(head).into_iter().find(|(name, _)| name.eq_ignore_ascii_case(b"upgrade"));
    match upgrade.map(|(_, value)| value.to_ascii_lowercase()).as_deref() {
        Some(b"websocket") => Upgrade::WebSocket,
        Some(b"h2c") => Upgrade::Http2,
        _ => Upgrade::Other,
    }
}

pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn request_line(one: &mut Transaction, line: &[u8], method: &[u8], target: &[u8], protocol: &[u8]) {
    one.put_copy(Buffer::HTTP_REQUEST_LINE, true, without_end(line));
    one.put_copy(Buffer::HTTP_METHOD, true, method);
    one.put_copy(Buffer::HTTP_URI_RAW, true, target);
    one.put_copy(Buffer::HTTP_URI, true, &uri::normal(target));
    one.put_copy(Buffer::HTTP_PROTOCOL, true, protocol);
}

fn status_line(one: &mut Transaction, line: &[u8], protocol: &[u8]) {
    let line = without_end(line);
    one.put_copy(Buffer::HTTP_RESPONSE_LINE, false, line);
    one.put_copy(Buffer::HTTP_PROTOCOL, false, protocol);
    let rest = line.iter().position(|byte| *byte == b' ').map_or(&[][..], |at| trim(&line[at..]));
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
        let (mut http, mut to) = (Http::default(), Transactions::default());
        let id = http.head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Some(0), true, false, &mut to).unwrap();
        for _ in 0..100 {
            assert_eq!(http.head(b"HTTP/1.1 100 Continue\r\n\r\n", Some(0), false, false, &mut to), None);
        }
        let events = [(CONTINUED, false), ("http.100_continue_already_seen", false)];
        assert_eq!(to.find(id).unwrap().events, events);
    }
}
