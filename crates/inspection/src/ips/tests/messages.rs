//! HTTP that rules see in part.

use super::around::through;
use super::talk;
use crate::rules::inspector::UNREAD;
use base::limits::{HTTP_CODINGS, HTTP_HEAD_BYTES};

const RULES: &str = "drop http any any -> any any (msg:\"evil\"; file.data; content:\"EVIL\"; sid:1;)\n";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A conversation of these pieces passes whole, or all but the last frame with fail=closed.
fn check(pieces: &[(usize, &[u8])], is_judged: bool) {
    let mut conversation = talk();
    for (side, bytes) in pieces {
        for part in bytes.chunks(60_000) {
            conversation.send(*side, part);
        }
    }
    let frames = conversation.frames.len() as u64;
    for (fail, dropped) in [("closed", u64::from(!is_judged)), ("open", 0)] {
        let outcome = through(&conversation.frames, RULES, &[("fail", fail)]);
        let counters = outcome.counters("ips");
        let name = pieces.last().map(|(_, bytes)| bytes[..bytes.len().min(60)].escape_ascii().to_string());
        assert_eq!(
            (counters.blocks_rejected, counters.drops.get(UNREAD)),
            (frames - dropped, dropped),
            "{name:?} {fail}"
        );
    }
}

#[test]
fn bytes_behind_a_finished_response_do_not_pass() {
    check(&[(0, GET), (1, EMPTY)], true);
    check(&[(0, GET), (1, EMPTY), (1, b"\r\n")], true);
    check(&[(0, GET), (1, EMPTY), (0, GET), (1, EMPTY)], true);
    check(&[(0, GET), (1, &[EMPTY, b"and more"].concat())], false);
    check(&[(0, GET), (1, EMPTY), (1, b"\x01 and more")], false);
    check(&[(0, GET), (1, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naZ\r\n")], false);
}

#[test]
fn a_head_over_the_cap_does_not_pass() {
    let head = |length: usize| [b"HTTP/1.1 200 OK\r\nX: ", &vec![b'x'; length][..]].concat();
    check(&[(0, GET), (1, &[&head(HTTP_HEAD_BYTES - 100)[..], b"\r\nContent-Length: 0\r\n\r\n"].concat())], true);
    check(&[(0, GET), (1, &head(HTTP_HEAD_BYTES))], false);
    check(&[(0, &[b"GET /", &vec![b'x'; HTTP_HEAD_BYTES][..]].concat())], false);
}

#[test]
fn more_codings_than_are_undone_do_not_pass() {
    let head = |codings: usize| {
        let list = vec!["gzip"; codings].join(", ");
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: {list}\r\nContent-Length: 2\r\n\r\n").into_bytes()
    };
    check(&[(0, GET), (1, &head(HTTP_CODINGS))], true);
    check(&[(0, GET), (1, &head(HTTP_CODINGS + 1))], false);
}

#[test]
fn a_switch_that_no_request_asked_for_does_not_pass() {
    let asked = b"GET / HTTP/1.1\r\nHost: a\r\nupgrade : chat\r\n\r\n";
    let switch = b"HTTP/1.1 101 Now\r\nUpgrade: chat\r\n\r\n";
    check(&[(0, asked), (1, switch), (1, b"anything")], true);
    check(&[(0, GET), (1, switch)], false);
}

/// The byte that completes a match in any reading does not pass, though those before it did.
#[test]
fn no_reading_of_a_body_passes() {
    let rows: [(&str, &[u8]); 6] = [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n", b"2\r\nEVIL"),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2\r\nEV\r\n2\r\nIL"),
        ("HTTP/1.1 100 Continue\r\nContent-Length: 9\r\n\r\n", b"EVIL"),
        ("HTTP/1.1 204 None\r\nContent-Length: 9\r\n\r\n", b"EVIL"),
        ("HTTP/1.1 200 OK\nX: y\n \n", b"Transfer-Encoding: chunked\n\n2\nEV\n2\nIL"),
        ("<html>\r\n", b"EVIL"),
    ];
    for (head, body) in rows {
        let mut conversation = talk();
        conversation.send(0, GET).send(1, head.as_bytes());
        body.iter().for_each(|byte| _ = conversation.send(1, &[*byte]));
        conversation.send(1, b"more");
        let outcome = through(&conversation.frames, RULES, &[]);
        let counters = outcome.counters("ips");
        let passed = conversation.frames.len() as u64 - 2;
        assert_eq!((counters.blocks_rejected, counters.drops.get("stopped by a rule")), (passed, 1), "{head:?}");
    }
}
