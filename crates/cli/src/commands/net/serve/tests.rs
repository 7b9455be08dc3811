//! The server over the host's TCP on loopback: answers to all kinds of heads, and to curl.

use super::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;

struct Running {
    server: Arc<Server>,
    local: SocketAddr,
    folder: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.stop.stop();
        // Wakes the thread that accepts, which then sees the stop.
        let _ = TcpStream::connect(self.local);
    }
}

/// Serves a folder with `a.txt` (0123456789), `big` (1,000,003 bytes), `sub/index.html` and `list/x`.
fn running(connections: usize) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.txt"), "0123456789").unwrap();
    std::fs::write(path("big"), big()).unwrap();
    std::fs::create_dir(path("sub")).unwrap();
    std::fs::write(path("sub/index.html"), "<p>index").unwrap();
    std::fs::create_dir(path("list")).unwrap();
    std::fs::write(path("list/x"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path("out")).unwrap();
    let moment = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777);
    std::fs::File::open(path("a.txt")).unwrap().set_modified(moment).unwrap();
    let server = Server::new(Folder::open(folder.path()).unwrap(), connections, false, StopFlag::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let accepting = Arc::clone(&server);
    std::thread::spawn(move || accepting.accept(&listener));
    Running { server, local, folder }
}

fn big() -> Vec<u8> {
    (0..1_000_003u32).map(|at| ((at * 7) >> 3) as u8).collect()
}

impl Running {
    /// Sends these bytes and closes the sending side. Returns the whole answer.
    fn exchange(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.local).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may refuse the head and close before all of it is written.
        let _ = stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn statuses(answer: &str) -> Vec<u16> {
    let lines = answer.split("HTTP/1.1 ").skip(1);
    lines.map(|line| line.get(..3).and_then(|status| status.parse().ok()).unwrap_or(0)).collect()
}

#[test]
fn each_head_has_its_answer() {
    let server = running(8);
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200));
    let get = |rest: &str| format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{rest}\r\n");
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (request, expected) in [
        (get(""), &[200][..]),
        (get("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), &[304]),
        (get("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n"), &[200]),
        (get("If-Modified-Since: yesterday\r\n"), &[200]),
        (get(&format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n")), &[200]),
        (get("If-None-Match: *\r\n"), &[304]),
        (get("If-Match: \"x\"\r\n"), &[412]),
        (get("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n"), &[412]),
        (get("Range: bytes=2-3\r\n"), &[206]),
        (get("Range: bytes=10-\r\n"), &[416]),
        (get("Range: bytes=0-1,3-4\r\n"), &[200]),
        (get(&format!("Range: bytes=2-3\r\nIf-Range: {date}\r\n")), &[206]),
        (get("Range: bytes=2-3\r\nIf-Range: \"x\"\r\n"), &[200]),
        (get("Content-Length: 3\r\n") + "abc" + &get(""), &[200, 200]),
        (get("Content-Length: 1000000\r\n"), &[413]),
        (get("Content-Length: 3\r\nContent-Length: 4\r\n"), &[400]),
        (get("Content-Length: +3\r\n"), &[400]),
        (get("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), &[400]),
        (get("Transfer-Encoding: gzip\r\n"), &[501]),
        (get("Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n0\r\n\r\n" + &get(""), &[200, 200]),
        (get("Transfer-Encoding: chunked\r\n") + "zz\r\n", &[400]),
        (get("Expect: 100-continue\r\nContent-Length: 3\r\n"), &[200]),
        (get("Connection: close\r\n") + &get(""), &[200]),
        ("\r\n\r\n".to_string() + &get(""), &[200]),
        ("GET /a.txt HTTP/1.1\nHost: h\n\n".into(), &[200]),
        ("GET /a.txt HTTP/1.0\r\n\r\n".to_string() + &get(""), &[200]),
        ("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_string() + &get(""), &[200, 200]),
        ("GET /a.txt HTTP/1.1\r\n\r\n".into(), &[400]),
        ("GET /a.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), &[400]),
        ("GET /a.txt HTTP/2.0\r\n\r\n".into(), &[505]),
        ("GET /a.txt\r\n\r\n".into(), &[400]),
        ("GET /a.txt HTTP/1.1\r\nHost : h\r\n\r\n".into(), &[400]),
        ("GET /a.txt HTTP/1.1\r\nHost: h\r\n folded: x\r\n\r\n".into(), &[400]),
        ("\0\0\0\r\n\r\n".into(), &[400]),
        ("\u{16}\u{3}\u{1}\n\n".into(), &[400]),
        ("POST /a.txt HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[405]),
        ("BREW /a.txt HTTP/1.1\r\nHost: h\r\n\r\n".into(), &[501]),
        (long, &[431]),
        (many, &[431]),
        ("GET / HTTP/1.1\r\n".into(), &[]),
        (String::new(), &[]),
    ] {
        assert_eq!(statuses(&server.exchange(request.as_bytes())), expected, "{request:.200}");
    }
}

#[test]
fn each_path_has_its_answer() {
    let server = running(8);
    for (path, expected) in [
        ("/a.txt", 200),
        ("/%61.txt?x", 200),
        ("http://elsewhere/a.txt", 200),
        ("/sub/../a.txt", 200),
        ("/", 200),
        ("/list/", 200),
        ("/sub/", 200),
        ("/sub", 301),
        ("/a.txt/", 404),
        ("/a.txt/b", 404),
        ("/absent", 404),
        ("/out", 404),
        ("/..", 400),
        ("/../etc/passwd", 400),
        ("/%2e%2e/etc/passwd", 400),
        ("/..%2fetc/passwd", 400),
        ("/%00", 400),
        ("/a.txt%00", 400),
        ("//etc/passwd", 404),
        ("etc/passwd", 400),
        ("*", 400),
    ] {
        let answer = server.exchange(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(statuses(&answer), [expected], "{path}");
    }
    let moved = server.exchange(b"GET //sub?q HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(moved.contains("\r\nLocation: /sub/?q\r\n"), "{moved}");
    assert!(server.exchange(b"GET /sub/ HTTP/1.1\r\nHost: h\r\n\r\n").ends_with("\r\n\r\n<p>index"));
    assert!(server.exchange(b"GET /list/ HTTP/1.1\r\nHost: h\r\n\r\n").contains("<a href=\"./x\">x</a>"));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = running(8);
    let requests = b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\nHEAD /a.txt HTTP/1.1\r\nHost: h\r\n\r\n\
        GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=-2\r\nConnection: close\r\n\r\n";
    let answer = server.exchange(requests);
    assert_eq!(statuses(&answer), [200, 200, 206]);
    let bodies: Vec<&str> =
        answer.split("HTTP/1.1 ").skip(1).map(|one| one.split_once("\r\n\r\n").unwrap().1).collect();
    assert_eq!(bodies, ["0123456789", "", "89"]);
    assert_eq!(answer.matches("Content-Length: 10\r\n").count(), 2, "{answer}");
    assert_eq!(answer.matches("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n").count(), 3);
    assert_eq!(answer.matches("Content-Range: bytes 8-9/10\r\n").count(), 1);
    assert!(answer.contains("Content-Type: text/plain; charset=utf-8\r\n"));
}

/// Sends every prefix of a head, and the head with each byte replaced. Each gets an answer or a close, and the server
/// still serves.
#[test]
fn damaged_heads_end_in_an_answer_or_a_close() {
    let server = running(8);
    let head = b"GET /a.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n";
    for at in 0..head.len() {
        for byte in [0, b'\n', b'%', b' ', 0xff] {
            let mut damaged = head.to_vec();
            damaged[at] = byte;
            let answer = server.exchange(&damaged);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{at} {byte}: {answer}");
        }
        assert_eq!(server.exchange(&head[..at]), "", "{at}");
    }
    assert_eq!(statuses(&server.exchange(head)), [206]);
    assert_eq!(server.server.state().requests, 0);
}

#[test]
fn a_slow_head_is_told_so() {
    let server = running(8);
    let mut stream = TcpStream::connect(server.local).unwrap();
    let began = Instant::now();
    stream.write_all(b"GET /a.txt HT").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(statuses(&answer), [408]);
    assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
}

#[test]
fn idle_connections_make_place_for_others() {
    let server = running(2);
    let idle: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(server.local).unwrap();
            stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    for _ in 0..4 {
        assert_eq!(statuses(&server.exchange(b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n")), [200]);
    }
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    drop(idle);
}

#[test]
fn the_end_waits_for_answers_under_way() {
    let server = running(8);
    std::fs::write(server.folder.path().join("big"), vec![7; 64 << 20]).unwrap();
    let mut stream = TcpStream::connect(server.local).unwrap();
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut answer = vec![0; 1000];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(server.server.finish(Duration::from_millis(50)), 1, "64 MiB are under way");
    let reader = std::thread::spawn(move || stream.read_to_end(&mut answer).map(|_| answer.len()));
    assert_eq!(server.server.finish(Duration::from_secs(20)), 0);
    assert!(reader.join().unwrap().unwrap() > 64 << 20);
}

#[test]
fn curl_gets_files() {
    let server = running(8);
    let curl = |arguments: &[&str], path: &str| {
        let url = format!("http://{}{path}", server.local);
        let output = Command::new("curl").args(["-s", "--max-time", "20"]).args(arguments).arg(url).output();
        output.map(|output| output.stdout)
    };
    match curl(&[], "/big") {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped, curl is not installed");
            return;
        }
        got => assert!(got.unwrap() == big(), "the whole file"),
    }
    assert!(curl(&["-r", "300000-700000"], "/big").unwrap() == big()[300_000..=700_000]);
    let path = server.folder.path().join("resumed");
    std::fs::write(&path, &big()[..500_000]).unwrap();
    curl(&["-C", "-", "-o", path.to_str().unwrap()], "/big").unwrap();
    assert!(std::fs::read(&path).unwrap() == big());
    assert_eq!(curl(&["-L"], "/sub").unwrap(), b"<p>index");
    assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_code}", "--path-as-is"], "/../x").unwrap(), b"400");
    assert_eq!(curl(&["-z", "Sun, 06 Nov 1994 08:49:37 GMT", "-w", "%{http_code}"], "/a.txt").unwrap(), b"304");
    assert_eq!(curl(&["-d", "x=y", "-w", "%{http_code}", "-o", "/dev/null"], "/a.txt").unwrap(), b"405");
}
