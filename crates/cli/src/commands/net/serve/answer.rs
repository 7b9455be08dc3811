//! One connection of `net serve`: requests in, answers out, until one side closes it. Each head leads to an answer or
//! to the end of the connection.

use super::super::http::range::{Part, part};
use super::super::http::target::{encoded, target};
use super::super::http::{BadFraming, Body, Framing, NoHead, Patience, Request, Wire, date};
use super::super::tcp::{Stream, is_timeout};
use super::folder::{self, Folder, Found, Refused};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a connection may be silent between requests, and how long a write may make no progress.
const IDLE: Duration = Duration::from_secs(60);

/// How long a head may take from its first byte on.
const HEAD: Duration = Duration::from_secs(10);

/// How long the end of a connection waits for the peer.
const END: Duration = Duration::from_secs(2);

/// The most bytes of a request's body that are read and ignored: requests for files need no body.
const BODY_BYTES: u64 = 64 << 10;

const PIECE: usize = 256 << 10;

pub(super) trait Around {
    fn goes_on(&self) -> bool;
    fn is_stopping(&self) -> bool;
    fn begin(&self);
    fn end(&self);
    fn log(&self, line: std::fmt::Arguments<'_>);
}

struct Answer {
    status: u16,
    /// Fields beyond those of every answer.
    fields: Vec<(&'static str, String)>,
    body: Payload,
}

enum Payload {
    Text(Vec<u8>),
    File {
        file: File,
        first: u64,
        len: u64,
    },
    /// 304: no body, and no length either.
    Nothing,
}

impl Answer {
    fn plain(status: u16) -> Answer {
        let text = format!("{status} {}\n", reason(status));
        let kind = ("Content-Type", "text/plain; charset=utf-8".to_string());
        Answer { status, fields: vec![kind], body: Payload::Text(text.into_bytes()) }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.fields.push((name, value.into()));
        self
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

pub(super) fn serve<S: Stream>(stream: S, folder: &Folder, around: &impl Around) {
    let mut wire = Wire::new(stream);
    let mut piece = Vec::new();
    // If these calls fail, the first write fails, too.
    let _ = wire.stream.set_nodelay(true);
    let _ = wire.stream.set_write_timeout(Some(IDLE));
    // The first request must come soon: a client opens a connection for a request.
    let (first, later) = (|| !around.is_stopping(), || around.goes_on());
    let mut patience = Patience { idle: HEAD, head: HEAD, goes_on: &first };
    loop {
        let head = wire.head(&patience);
        let began = Instant::now();
        let request = match head {
            Ok(head) => Request::parse(&head).map_err(|error| match error {
                httparse::Error::TooManyHeaders => 431,
                httparse::Error::Version => 505,
                _ => 400,
            }),
            Err(NoHead::Long) => Err(431),
            Err(NoHead::Slow) => Err(408),
            Err(NoHead::End) => break,
            Err(NoHead::Stream(_)) => return,
        };
        around.begin();
        let (answer, stays) = match &request {
            Ok(request) => {
                let rest = pass_over_body(request, &mut wire);
                let stays = request.keeps_alive() && rest == Rest::Read && around.goes_on();
                (answer(request, folder, rest), stays)
            }
            Err(status) => (Answer::plain(*status), false),
        };
        let is_head = matches!(&request, Ok(request) if request.method == "HEAD");
        let status = answer.status;
        let written = write(&mut wire.stream, answer, is_head, stays, &mut piece);
        let target = request.as_ref().map_or("-".into(), |request| format!("{} {}", request.method, request.target));
        let (bytes, error) = match &written {
            Ok(bytes) => (*bytes, String::new()),
            Err((bytes, error)) => (*bytes, format!(", {error}")),
        };
        around.log(format_args!("\"{target}\" {status} {bytes} bytes {} ms{error}", began.elapsed().as_millis()));
        if written.is_ok() && !stays {
            end(&mut wire);
        }
        around.end();
        if written.is_err() || !stays {
            return;
        }
        patience = Patience { idle: IDLE, head: HEAD, goes_on: &later };
    }
    let _ = wire.stream.finish();
}

/// Ends a connection that may hold unread bytes. Closing it at once would send a reset, and the peer might lose the
/// answer (RFC 9112 9.6).
fn end<S: Stream>(wire: &mut Wire<S>) {
    let began = Instant::now();
    let mut buffer = [0; 4096];
    if wire.stream.finish().is_err() || wire.stream.set_read_timeout(Some(END)).is_err() {
        return;
    }
    while began.elapsed() < END && matches!(wire.stream.read(&mut buffer), Ok(1..)) {}
}

/// What happened to a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It was read; the next request follows.
    Read,
    /// The body was not read: the peer waits for permission to send it, and the answer serves as such.
    Unread,
    /// The body was not read: it is longer than [`BODY_BYTES`], or did not come.
    TooLong,
    /// The end of the body cannot be known.
    Bad(u16),
}

fn pass_over_body<S: Stream>(request: &Request, wire: &mut Wire<S>) -> Rest {
    let framing = match request.fields.framing() {
        Ok(None) => return Rest::Read,
        // RFC 9112 6.1: HTTP/1.0 has no chunks.
        Ok(Some(Framing::Chunked)) if request.minor == 0 => return Rest::Bad(400),
        Ok(Some(framing)) => framing,
        Err(BadFraming::Damaged) => return Rest::Bad(400),
        Err(BadFraming::UnknownCoding) => return Rest::Bad(501),
    };
    match framing {
        Framing::Bytes(0) => return Rest::Read,
        Framing::Bytes(len) if len > BODY_BYTES => return Rest::TooLong,
        _ if request.fields.list("expect").iter().any(|one| one == "100-continue") => return Rest::Unread,
        _ => {}
    }
    if wire.stream.set_read_timeout(Some(HEAD)).is_err() {
        return Rest::Bad(400);
    }
    let (began, mut buffer, mut read) = (Instant::now(), [0; 4096], 0);
    let mut body = Body::new(wire, framing);
    while began.elapsed() < HEAD && read <= BODY_BYTES {
        match body.read(&mut buffer) {
            Ok(0) => return Rest::Read,
            Ok(len) => read += len as u64,
            Err(error) if is_timeout(&error) => return Rest::Bad(408),
            Err(_) => return Rest::Bad(400),
        }
    }
    if read > BODY_BYTES { Rest::TooLong } else { Rest::Bad(408) }
}

/// Methods of RFC 9110 that do not apply to files.
const OTHER_METHODS: [&str; 7] = ["POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

fn answer(request: &Request, folder: &Folder, rest: Rest) -> Answer {
    let hosts = request.fields.all("host").count();
    match rest {
        Rest::Bad(status) => return Answer::plain(status),
        Rest::TooLong => return Answer::plain(413),
        Rest::Read | Rest::Unread => {}
    }
    // RFC 9112 3.2.
    if hosts > 1 || (hosts == 0 && request.minor == 1) {
        return Answer::plain(400);
    }
    match request.method.as_str() {
        "GET" | "HEAD" => {}
        other if OTHER_METHODS.contains(&other) => return Answer::plain(405).with("Allow", "GET, HEAD"),
        _ => return Answer::plain(501),
    }
    let Some(mut at) = target(&request.target) else { return Answer::plain(400) };
    let refused = |why| match why {
        Refused::Absent => Answer::plain(404),
        Refused::Denied => Answer::plain(403),
        Refused::Failed => Answer::plain(500),
    };
    match folder.find(&at.names) {
        Ok(Found::File { .. }) if at.is_folder => Answer::plain(404),
        Ok(Found::File { file, len, modified }) => {
            let kind = at.names.last().map_or("", |name| folder::content_type(name));
            answer_file(request, file, len, modified, kind)
        }
        Ok(Found::Folder(_)) if !at.is_folder => {
            let way: String = at.names.iter().map(|name| format!("/{}", encoded(name.as_bytes()))).collect();
            Answer::plain(301).with("Location", format!("{way}/{}", at.query))
        }
        Ok(Found::Folder(listed)) => {
            at.names.push("index.html".into());
            let index = folder.find(&at.names);
            at.names.pop();
            match index {
                Ok(Found::File { file, len, modified }) => {
                    answer_file(request, file, len, modified, folder::content_type(&"index.html".into()))
                }
                Ok(Found::Folder(_)) | Err(Refused::Absent) => match folder::page(&listed, &at.names) {
                    Ok(page) => Answer {
                        status: 200,
                        fields: vec![("Content-Type", "text/html; charset=utf-8".into())],
                        body: Payload::Text(page.into_bytes()),
                    },
                    Err(why) => refused(why),
                },
                Err(why) => refused(why),
            }
        }
        Err(why) => refused(why),
    }
}

/// The answer for a file: conditions in the order of RFC 9110 13.2.2, then the range. Files have no entity tags, so no
/// condition on a tag matches.
fn answer_file(request: &Request, file: File, len: u64, modified: u64, kind: &str) -> Answer {
    let fields = &request.fields;
    let moment = |name| fields.one(name).and_then(date::seconds);
    let has = |name| fields.all(name).next().is_some();
    let any = |name| fields.list(name).iter().any(|one| one == "*");
    let last_modified = date::date(modified);
    let fails = match has("if-match") {
        true => !any("if-match"),
        false => moment("if-unmodified-since").is_some_and(|since| modified > since),
    };
    if fails {
        return Answer::plain(412);
    }
    let is_unchanged = match has("if-none-match") {
        true => any("if-none-match"),
        false => moment("if-modified-since").is_some_and(|since| modified <= since),
    };
    if is_unchanged {
        let answer = Answer { status: 304, fields: Vec::new(), body: Payload::Nothing };
        return answer.with("Last-Modified", last_modified);
    }
    let in_time = !has("if-range") || fields.one("if-range") == Some(&last_modified);
    let wanted = fields.one("range").filter(|_| in_time && request.method == "GET");
    let (status, first, part_len) = match wanted.map_or(Part::Whole, |range| part(range, len)) {
        Part::Whole => (200, 0, len),
        Part::Some { first, len } => (206, first, len),
        Part::None => return Answer::plain(416).with("Content-Range", format!("bytes */{len}")),
    };
    let answer = Answer { status, fields: Vec::new(), body: Payload::File { file, first, len: part_len } };
    let answer = answer.with("Content-Type", kind).with("Last-Modified", last_modified).with("Accept-Ranges", "bytes");
    match status {
        206 => answer.with("Content-Range", format!("bytes {first}-{}/{len}", first + part_len - 1)),
        _ => answer,
    }
}

/// Writes an answer. Returns the written bytes of the body, even with an error.
fn write(
    stream: &mut impl Write,
    answer: Answer,
    is_head: bool,
    stays: bool,
    piece: &mut Vec<u8>,
) -> Result<u64, (u64, io::Error)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut out = format!("HTTP/1.1 {} {}\r\nDate: {}\r\n", answer.status, reason(answer.status), date::date(now));
    for (name, value) in &answer.fields {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    match &answer.body {
        Payload::Text(text) => out.push_str(&format!("Content-Length: {}\r\n", text.len())),
        Payload::File { len, .. } => out.push_str(&format!("Content-Length: {len}\r\n")),
        Payload::Nothing => {}
    }
    // Browsers must not guess another type.
    out.push_str("X-Content-Type-Options: nosniff\r\n");
    out.push_str(if stays { "Connection: keep-alive\r\n\r\n" } else { "Connection: close\r\n\r\n" });
    let mut out = out.into_bytes();
    let mut written = 0;
    let mut send = |bytes: &[u8], body: usize| match stream.write_all(bytes) {
        Ok(()) => {
            written += body as u64;
            Ok(written)
        }
        Err(error) => Err((written, error)),
    };
    match answer.body {
        _ if is_head => send(&out, 0),
        Payload::Nothing => send(&out, 0),
        Payload::Text(text) => {
            out.extend(&text);
            send(&out, text.len())
        }
        Payload::File { file, first, len } => {
            piece.resize(PIECE, 0);
            // The head and the first piece go out in one write.
            piece[..out.len()].copy_from_slice(&out);
            let (mut filled, mut at, end) = (out.len(), first, first + len);
            let mut sent = 0;
            loop {
                let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE - filled);
                let read = match most {
                    0 => 0,
                    _ => read_at(&file, &mut piece[filled..filled + most], at).map_err(|error| (sent, error))?,
                };
                if read == 0 && most > 0 {
                    return Err((sent, io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter")));
                }
                sent = send(&piece[..filled + read], read)?;
                at += read as u64;
                filled = 0;
                if at == end {
                    return Ok(sent);
                }
            }
        }
    }
}

fn read_at(file: &File, to: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(to, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
