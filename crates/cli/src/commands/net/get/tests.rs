//! The client over the host's TCP on loopback, against servers with scripted answers.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

/// Runs a server that gives these answers, one per connection. Returns the requests and the command's result.
fn exchange(answers: &[&str], url: &str, range: Option<Range>, file: &Path) -> (Vec<String>, Outcome) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let answers: Vec<String> = answers.iter().map(|answer| answer.to_string()).collect();
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                request.push(byte[0]);
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).unwrap();
        }
        requests
    });
    let mut connect = |_: &Url| TcpStream::connect(local).map_err(CommandError::from);
    let outcome = get(&mut connect, Url::parse(url).unwrap(), range, Some(file), &StopFlag::new());
    // Ends the accepts for connections that the client did not make.
    let mut ends = 0;
    while !server.is_finished() && ends < 20 {
        drop(TcpStream::connect(local));
        std::thread::sleep(Duration::from_millis(5));
        ends += 1;
    }
    (server.join().unwrap(), outcome)
}

#[test]
fn bodies_come_whole_or_as_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (answer, expected)) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", Ok("abc")),
        ("HTTP/1.1 200 OK\r\n\r\nabc", Ok("abc")),
        ("HTTP/1.0 200 OK\r\n\r\n", Ok("")),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", Ok("a")),
        ("HTTP/1.1 204 No Content\r\n\r\n", Ok("")),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
            Ok("ab0123456789"),
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", Err("ended within the body")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", Err("longer than it said")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", Err("no length")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Err("does not say where it ends")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", Err("--range 3-")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc", Err("does not say where it ends")),
        ("HTTP/1.1 404 Not Found\r\n\r\nabc", Err("answers 404 Not Found")),
        ("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/3\r\n\r\nabc", Err("a part")),
        ("HTTP/1.1 302 Found\r\n\r\n", Err("answers 302 Found")),
        ("HTTP/1.1 302 Found\r\nLocation: https://h/\r\n\r\n", Err("https needs TLS")),
        ("HTTP/1.1 200 OK\r\n", Err("end of file")),
        ("SSH-2.0-x\r\n\r\n", Err("no HTTP/1.1")),
        ("", Err("closed the connection")),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(at.to_string());
        let (_, outcome) = exchange(&[answer], "http://h/a", None, &path);
        match (outcome, expected) {
            (Ok(()), Ok(text)) => assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{answer}"),
            (Err(CommandError::Failed(told)), Err(expected)) => {
                assert!(told.contains(expected), "{answer}: {told}");
                assert!(!path.exists(), "{answer}");
            }
            (outcome, expected) => panic!("{answer}: {outcome:?}, not {expected:?}"),
        }
    }
}

#[test]
fn redirects_are_followed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let there = "HTTP/1.1 301 Moved\r\nLocation: ../b?c\r\nContent-Length: 0\r\n\r\n";
    let (requests, outcome) =
        exchange(&[there, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"], "http://h:81/d/a", None, &path);
    assert_eq!(outcome, Ok(()));
    assert!(requests[0].starts_with("GET /d/a HTTP/1.1\r\nHost: h:81\r\n"), "{requests:?}");
    assert!(requests[1].starts_with("GET /b?c HTTP/1.1\r\nHost: h:81\r\n"), "{requests:?}");
    let (requests, outcome) = exchange(&["HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n"; 11], "http://h/", None, &path);
    assert_eq!(requests.len(), 11);
    assert!(matches!(outcome, Err(CommandError::Failed(text)) if text.contains("more than 10 redirects")));
}

#[test]
fn a_cut_file_is_completed_by_its_range() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc";
    assert!(exchange(&[cut], "http://h/", None, &path).1.is_err());
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef";
    let other = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-5/6\r\nContent-Length: 6\r\n\r\nabcdef";
    for wrong in [whole, other] {
        assert!(exchange(&[wrong], "http://h/", Some((Some(3), None)), &path).1.is_err());
    }
    let rest = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 3-5/6\r\nContent-Length: 3\r\n\r\ndef";
    let (requests, outcome) = exchange(&[rest], "http://h/", Some((Some(3), None)), &path);
    assert_eq!(outcome, Ok(()));
    assert!(requests[0].contains("\r\nRange: bytes=3-\r\n"), "{requests:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
}
