//! Rules over frames, through the engine.

use super::*;
use testkit::frames::real_and_damaged;
use testkit::packets::{CLIENT, SERVER, flag, tcp, udp};
use testkit::random::Random;
use testkit::{Chain, Outcome};

fn run(rules: &str, frames: &[Vec<u8>]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.rules");
    std::fs::write(&file, rules).unwrap();
    let frames: Vec<_> = (0..).map(|at| at * 1_000_000).zip(frames.iter().cloned()).collect();
    Chain::frames(1, &frames).then(&KIND, &[("file", file.to_str().unwrap())]).run()
}

/// Numbers of the rules that alerted, in order.
fn alerts(outcome: &Outcome) -> Vec<u64> {
    let sid = |bytes: &[u8]| Row::new(&row::SCHEMA, bytes).unwrap().number("alert.signature_id").unwrap();
    outcome.blocks.iter().map(|block| sid(&block.bytes)).collect()
}

/// A connection whose client says these pieces.
fn connection(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut frames = vec![
        tcp(CLIENT, SERVER, 99, 0, flag::SYN, b""),
        tcp(SERVER, CLIENT, 499, 100, flag::SYN | flag::ACK, b""),
        tcp(CLIENT, SERVER, 100, 500, flag::ACK, b""),
    ];
    let mut at = 100;
    for piece in pieces {
        frames.push(tcp(CLIENT, SERVER, at, 500, flag::ACK, piece));
        at += piece.len() as u32;
    }
    frames
}

#[test]
fn contents_lie_across_segments() {
    let rule = "alert tcp any any -> any any (flow:to_server,established; content:\"evil\"; content:\"twin\"; distance:1; sid:1;)";
    assert_eq!(alerts(&run(rule, &connection(&[b"ev", b"il", b" tw", b"in"]))), [1]);
    assert_eq!(alerts(&run(rule, &connection(&[b"evil twin evil"]))), [1]);
    assert!(alerts(&run(rule, &connection(&[b"evil", b"twin"]))).is_empty());
    // A segment that comes early is looked at in its turn.
    let mut frames = connection(&[b"evil ", b"twin"]);
    frames.swap(3, 4);
    assert_eq!(alerts(&run(rule, &frames)), [1]);
}

#[test]
fn a_request_alerts_once_however_it_is_cut() {
    let rules = "alert http any any -> any any (http.method; content:\"POST\"; http.uri; content:\"/a b\"; endswith; http.host; \
                 content:\"example.org\"; http.request_body; content:\"secret\"; sid:1;)\n\
                 alert http any any -> any any (http.header_names; content:\"|0d 0a|Host|0d 0a|\"; startswith; sid:2;)\n\
                 alert http any any -> any any (file.data; content:!\"public\"; sid:3;)\n\
                 alert http any any -> any any (http.request_body; content:\"public\"; sid:4;)";
    let request = b"POST /x/../a%20b HTTP/1.1\r\nHost: Example.org:80\r\nContent-Length: 10\r\n\r\nxxsecretxx";
    for size in [1, 7, 60, 200] {
        let pieces: Vec<&[u8]> = request.chunks(size).collect();
        let mut found = alerts(&run(rules, &connection(&pieces)));
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3], "in pieces of {size}");
    }
}

#[test]
fn what_is_dropped_alerts_no_more() {
    let rules = "drop tcp any any -> any any (content:\"bad\"; sid:1;)\nalert tcp any any -> any any (content:\"more\"; sid:2;)";
    assert_eq!(alerts(&run(rules, &connection(&[b"a bad word", b"more", b"more"]))), [1]);
    assert_eq!(alerts(&run(rules, &connection(&[b"more", b"a bad word", b"more"]))), [2, 1]);
}

#[test]
fn datagrams() {
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend_from_slice(b"\x03www\x07example\x03org\x00\x00\x01\x00\x01");
    let rules = "alert dns any any -> any any (dns.query; content:\"EXAMPLE.org\"; nocase; endswith; dns.opcode:0; sid:1;)\n\
                 alert udp any any -> any 53 (content:\"|03|www\"; offset:12; depth:4; sid:2;)\n\
                 alert dns any any -> any any (dns.query; content:\"example.net\"; sid:3;)";
    let mut found = alerts(&run(rules, &[udp(CLIENT, (SERVER.0, 53), &query)]));
    found.sort_unstable();
    assert_eq!(found, [1, 2]);
}

#[test]
fn whatever_comes_is_survived() {
    let rules = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/example.rules")).unwrap();
    let each = "alert ip any any -> any any (pcre:\"/a.*b/s\"; sid:100;)\nalert pkthdr any any -> any any (decode-event:ipv4.trunc_pkt; sid:101;)\n\
                alert tcp any any -> any any (tcpv4-csum:invalid; sid:102;)\nalert http any any -> any any (http.start; content:\"a\"; sid:103;)";
    let frames = real_and_damaged(2000, &mut Random(5));
    let outcome = run(&format!("{rules}\n{each}"), &frames);
    assert_eq!(outcome.counters("rules").blocks_in, frames.len() as u64);
}

#[test]
fn a_body_is_one_though_the_other_side_speaks_between() {
    let rule = "alert http any any -> any any (flow:to_server; http.request_body; content:\"sec\"; content:\"ret\"; distance:0; \
                within:3; sid:1;)";
    let mut frames = connection(&[b"\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nsec"]);
    let at = 100 + frames.last().map_or(0, |frame| frame.len() as u32 - 54);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    frames.push(tcp(SERVER, CLIENT, 500, at, flag::ACK, answer));
    frames.push(tcp(CLIENT, SERVER, at, 500 + answer.len() as u32, flag::ACK, b"ret"));
    assert_eq!(alerts(&run(rule, &frames)), [1]);
}

/// A greeting that is longer than what is looked at hides no protocol, and neither does one of many lines.
#[test]
fn a_long_greeting_hides_no_protocol() {
    let rule = "alert ftp any any -> any any (flow:to_server; content:\"secret\"; sid:1;)";
    let greeting = [b"220 ".to_vec(), vec![b'x'; 400], b"\r\n".to_vec()].concat();
    let mut frames = connection(&[]);
    frames.push(tcp(SERVER, CLIENT, 500, 100, flag::ACK, &greeting));
    let next = 500 + greeting.len() as u32;
    frames.push(tcp(CLIENT, SERVER, 100, next, flag::ACK, b"USER secret\r\n"));
    assert_eq!(alerts(&run(rule, &frames)), [1]);
}

/// A byte that is no UTF-8 would become three others, which no packet has.
#[test]
fn a_byte_that_is_no_text_is_refused_with_its_line() {
    assert_eq!(text_of(b"# caf\xe9\nalert\n").as_deref(), Ok("# caf\u{fffd}\nalert\n"));
    assert_eq!(text_of(b"alert\n\nalert \xe9\n"), Err(3));
}

/// Nothing is stopped here, whatever a rule asks for.
#[test]
fn what_a_rule_would_drop_was_allowed() {
    let rules = "drop tcp any any -> any any (content:\"evil\"; sid:1;)\nreject tcp any any -> any any (content:\"bad\"; sid:2;)\n";
    for said in [b"evil", &b"bad"[..]] {
        let outcome = run(rules, &connection(&[said, b"evil and bad"]));
        let [block] = &outcome.blocks[..] else { panic!("{} alerts", outcome.blocks.len()) };
        let row = Row::new(&row::SCHEMA, &block.bytes).unwrap();
        assert_eq!(row.text("alert.action"), Some(&b"allowed"[..]));
    }
}
