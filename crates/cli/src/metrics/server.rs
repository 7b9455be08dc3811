//! A server of one page by HTTP/1 (RFC 9112): a thread that accepts, and one more for each of a few connections. A
//! connection carries one request. What a peer sends is limited in length and time, and what it gets in time.

use super::address::{Connection, Listener};
use super::text::MEDIA_TYPE;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at once. A further one is closed.
const CONNECTIONS: usize = 8;

/// The longest head of a request.
const HEAD_BYTES: usize = 8 << 10;

/// Fields of a head, at most.
const FIELDS: usize = 64;

/// How long a peer may take for its request, and for each piece of the answer.
const TIME: Duration = Duration::from_secs(5);

/// Makes the page. `None`: it could not be made in time.
pub(super) type Make = dyn Fn() -> Option<String> + Send + Sync;

/// A server. It ends when it is dropped.
pub(crate) struct Server {
    /// Hangs up to end the thread.
    ending: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(listener: Listener, make: Arc<Make>) -> io::Result<Server> {
        let (end, ending) = io::pipe()?;
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(move || {
            accept(&listener, &make, &end);
        })?;
        Ok(Server { ending: Some(ending), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.ending.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &Listener, make: &Arc<Make>, end: &io::PipeReader) {
    let open = Arc::new(AtomicUsize::new(0));
    let is_loopback = listener.is_loopback();
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        match listener.accept() {
            // Relaxed: only a limit, which orders no other memory. Only this thread adds.
            Ok(connection) if open.load(Ordering::Relaxed) < CONNECTIONS => {
                open.fetch_add(1, Ordering::Relaxed);
                let (make, theirs) = (Arc::clone(make), Arc::clone(&open));
                let answering = std::thread::Builder::new().name("scraped".into()).spawn(move || {
                    // A peer that goes, or is too slow, gets no answer.
                    let _ = answer(connection, is_loopback, &*make);
                    theirs.fetch_sub(1, Ordering::Relaxed);
                });
                if answering.is_err() {
                    open.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Ok(_) => {}
            // Out of files or memory for a moment.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(mut connection: Connection, is_loopback: bool, make: &Make) -> io::Result<()> {
    let head = read_head(&mut connection)?;
    let (status, page) =
        match head.as_deref().map_or(Err("431 Request Header Fields Too Large"), |head| check(head, is_loopback)) {
            Ok(is_whole) => match make() {
                Some(page) => ("200 OK", Some((page, is_whole))),
                None => ("503 Service Unavailable", None),
            },
            Err(status) => (status, None),
        };
    let (body, media_type, is_whole) = match page {
        Some((page, is_whole)) => (page, MEDIA_TYPE, is_whole),
        None => (format!("{status}\n"), "text/plain", true),
    };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    text.push_str(if is_whole { &body } else { "" });
    connection.set_timeout(TIME)?;
    connection.write_all(text.as_bytes())
}

/// Reads a head, with what may follow it. `None`: it is too long.
fn read_head(connection: &mut Connection) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + TIME;
    let mut head = Vec::new();
    while head.len() <= HEAD_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_timeout(left)?;
        let mut piece = [0; 2048];
        match connection.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => head.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        if !matches!(httparse::Request::new(&mut fields).parse(&head), Ok(httparse::Status::Partial)) {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Gives whether the page itself is wanted, and not only its head. The error is a status.
fn check(head: &[u8], is_loopback: bool) -> Result<bool, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    request.parse(head).map_err(|error| match error {
        httparse::Error::TooManyHeaders => "431 Request Header Fields Too Large",
        httparse::Error::Version => "505 HTTP Version Not Supported",
        _ => "400 Bad Request",
    })?;
    // A page of another site may have a browser ask here, under a name of that site.
    let host = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
    if is_loopback && host.is_some_and(|field| !names_this_host(field.value)) {
        return Err("403 Forbidden");
    }
    let path = request.path.unwrap_or_default();
    match (request.method, path.split_once('?').map_or(path, |(path, _)| path)) {
        (Some("GET"), "/metrics") => Ok(true),
        (Some("HEAD"), "/metrics") => Ok(false),
        (Some("GET" | "HEAD"), _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

/// Whether a Host field names this host: `localhost` or an address of it, perhaps with a port.
fn names_this_host(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    let host = match text.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => &text,
    };
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|known| host.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::address::Address;
    use std::net::{SocketAddr, TcpStream};

    fn server(make: Arc<Make>) -> (Server, SocketAddr) {
        let listener = "127.0.0.1:0".parse::<Address>().unwrap().listen(false).unwrap();
        let Listener::Network(socket) = &listener else { unreachable!("it is one") };
        let at = socket.local_addr().unwrap();
        (Server::start(listener, make).unwrap(), at)
    }

    fn ask(at: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn one_page() {
        let (_server, at) = server(Arc::new(|| Some("# EOF\n".into())));
        let check = |head: &str, status: &str| {
            let text = ask(at, head);
            assert!(text.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}: {text}");
            text
        };
        let text = check("GET /metrics HTTP/1.1\r\nHost: localhost:9177\r\n\r\n", "200 OK");
        assert!(text.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
        assert!(text.contains("Content-Length: 6\r\n") && text.ends_with("\r\n\r\n# EOF\n"));
        assert!(check("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK").ends_with("\r\n\r\n"));
        check("GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", "404 Not Found");
        check("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "405 Method Not Allowed");
        check("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.example.org\r\n\r\n", "403 Forbidden");
        check("GET /metrics HTTP/1.1\r\nHost: example.org:80\r\n\r\n", "403 Forbidden");
        check("nonsense\r\n\r\n", "400 Bad Request");
        check(
            &format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65)),
            "431 Request Header Fields Too Large",
        );
        check(
            &format!("GET /metrics HTTP/1.1\r\na: {}", "b".repeat(HEAD_BYTES)),
            "431 Request Header Fields Too Large",
        );
    }

    #[test]
    fn no_page_in_time() {
        let (_server, at) = server(Arc::new(|| None));
        assert!(ask(at, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    }

    /// Peers that say nothing take the few places there are, and no more.
    #[test]
    fn connections_are_bounded() {
        let (_server, at) = server(Arc::new(|| Some("# EOF\n".into())));
        let silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(at).unwrap()).collect();
        assert_eq!(ask(at, "GET /metrics HTTP/1.1\r\n\r\n"), "", "closed without an answer");
        drop(silent);
        // The places are free again as soon as the threads see the end.
        assert!((0..1000).any(|_| ask(at, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 ")));
    }
}
