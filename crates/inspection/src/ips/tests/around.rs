//! Evasions: bytes that pass before inspection, and bytes that are forgotten after they passed.

use super::*;
use crate::rules::inspector::{Inspector, UNREAD};
use crate::rules::row;
use ::rules::RuleSet;
use ::rules::engine::Verdict;
use base::limits::{DECAP_PACKETS, RULES_FILES, RULES_FLOWS, TCP_HELD_BLOCKS_PER_DIRECTION};
use filter::batch::places;
use filter::prelude::*;
use filters::parts::origin::Origins;
use filters::tcp::settings::Settings;
use std::net::Ipv4Addr;
use std::sync::Arc;
use testkit::packets::{flag, ipv4, tcp, udp};

const BODY_RULES: &str = "drop http any any -> any any (msg:\"body\"; flow:to_client; file.data; content:\"EVIL\"; sid:1;)\n\
     drop http any any -> any any (msg:\"two\"; flow:to_client; file.data; content:\"EV\"; content:\"IS\"; sid:2;)\n\
     drop http any any -> any any (msg:\"late\"; flow:to_client; http.stat_code; content:\"200\"; file.data; pcre:\"/L+ATE/\"; sid:3;)\n\
     drop http any any -> any any (msg:\"not\"; flow:to_client; file.data; content:\"OPEN\"; content:!\"SHUT\"; sid:4;)\n\
     drop http any any -> any any (msg:\"up\"; flow:to_server; http.request_body; content:\"upload\"; sid:5;)\n";

/// Frames through `ips` with these rules.
pub(super) fn through(frames: &[(u64, Vec<u8>)], rules: &str, more: &[(&str, &str)]) -> Outcome {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(rules.as_bytes()).unwrap();
    let path = file.path().display().to_string();
    Chain::frames(ETHERNET, frames).then(&KIND, &[&[("rules", path.as_str())], more].concat()).run()
}

/// A body sent byte by byte behind `head`. `expected`: its bytes that pass; `is_stopped`: a rule stopped the next one.
fn check_body(head: &str, body: &[u8], expected: usize, is_stopped: bool) {
    let mut conversation = talk();
    conversation.send(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").send(1, head.as_bytes());
    for byte in body {
        conversation.send(1, &[*byte]);
    }
    let outcome = through(&conversation.frames, BODY_RULES, &[]);
    let counters = outcome.counters("ips");
    let text = String::from_utf8_lossy(body);
    assert_eq!(counters.blocks_rejected, 5 + expected as u64, "{head:?} {text}");
    assert_eq!(counters.drops.get("stopped by a rule"), u64::from(is_stopped), "{head:?} {text}");
}

#[test]
fn no_byte_of_a_body_passes_that_completes_a_match() {
    for (head, coded) in [
        ("HTTP/1.1 200 OK\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true),
    ] {
        for (body, passes) in
            [(&b"some EVIL bytes"[..], 8), (b"EV and IS", 8), (b"LLLATE", 5), (b"OPEN but not SHUT", 17)]
        {
            let coded = if coded { [b"ffff\r\n", body].concat() } else { body.to_vec() };
            let before = coded.len() - body.len();
            check_body(head, &coded, before + passes, passes < body.len());
        }
    }
    let mut conversation = talk();
    conversation.send(0, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n");
    for byte in b"an upload" {
        conversation.send(0, &[*byte]);
    }
    assert_eq!(through(&conversation.frames, BODY_RULES, &[]).counters("ips").blocks_rejected, 4 + 8);
}

/// The decoder gives its output after each piece.
#[test]
fn no_byte_of_a_coded_body_passes_that_completes_a_match() {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    coder.write_all(b"some EVIL bytes, and more").unwrap();
    let body = coder.finish().unwrap();
    let at = body.windows(4).position(|four| four == b"EVIL").unwrap();
    check_body("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", &body, at + 3, true);
}

/// A rule on a name stops a file with its first byte, not once the file has grown.
#[test]
fn no_byte_of_a_file_passes_that_its_name_stops() {
    let rules = "drop http any any -> any any (msg:\"down\"; flow:to_client; fileext:\"exe\"; sid:1;)\n\
                 drop http any any -> any any (msg:\"up\"; flow:to_server; fileext:\"php\"; sid:2;)\n";
    let mut conversation = talk();
    conversation.send(0, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    conversation
        .send(1, b"HTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename=a.exe\r\nContent-Length: 3900\r\n\r\n");
    for _ in 0..39 {
        conversation.send(1, &[b'z'; 100]);
    }
    let outcome = through(&conversation.frames, rules, &[]);
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.get("stopped by a rule")), (5, 1));
    let mut conversation = talk();
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n";
    conversation.send(0, head.as_bytes());
    conversation.send(0, b"--b\r\nContent-Disposition: form-data; name=f; filename=a.php\r\n\r\n");
    for _ in 0..10 {
        conversation.send(0, &[b'z'; 100]);
    }
    let outcome = through(&conversation.frames, rules, &[]);
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.get("stopped by a rule")), (5, 1));
}

/// 1 MiB in single bytes, with rules that wait for more.
#[test]
fn single_bytes_are_cheap() {
    let rules = "drop http any any -> any any (msg:\"a\"; file.data; content:\"xx\"; fast_pattern; content:\"never\"; sid:1;)\n\
                 drop http any any -> any any (msg:\"b\"; file.data; content:\"there\"; content:\"xx\"; pcre:\"/y/\"; sid:2;)\n";
    let mut conversation = talk();
    conversation.send(0, b"GET / HTTP/1.1\r\n\r\n").send(1, b"HTTP/1.1 200 OK\r\n\r\n");
    for _ in 0..1 << 18 {
        conversation.send(1, b"x");
    }
    let outcome = through(&conversation.frames, rules, &[]);
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.total()), (5 + (1 << 18), 0));
    assert_eq!(counters.events.get("packets whose rules were cut short"), 0);
}

#[test]
fn segments_ahead_of_a_hole_do_not_hide_what_passed() {
    let mut conversation = talk();
    let early = conversation.segment(0, 3, PSH_ACK, b"ack");
    conversation.push(early);
    let most = TCP_HELD_BLOCKS_PER_DIRECTION as i64;
    for number in 0..most {
        let segment = conversation.segment(0, 8 + 2 * number, PSH_ACK, b"x");
        conversation.push(segment);
    }
    conversation.send(0, b"att").send(0, b"ack");
    let ended = [("no room ahead of a hole", 1), ("of a stopped flow", 1), ("stopped by a rule", 1)];
    check(&conversation, &[], 3 + most as u64, &ended);
}

/// A segment over many holes takes a piece for each.
#[test]
fn a_segment_over_many_holes_does_not_hide_what_passed() {
    let mut conversation = talk();
    let far = 4 + 2 * TCP_HELD_BLOCKS_PER_DIRECTION as i64;
    let [last, other] = [b"attack", b"benign"].map(|bytes| conversation.segment(0, far, PSH_ACK, bytes));
    conversation.push(last);
    for number in 0..TCP_HELD_BLOCKS_PER_DIRECTION as i64 - 2 {
        let segment = conversation.segment(0, 4 + 2 * number, PSH_ACK, b"x");
        conversation.push(segment);
    }
    let over = conversation.segment(0, 4, PSH_ACK, &[b'x'; 1400]);
    conversation.push(over).push(other);
    let passed = 3 + TCP_HELD_BLOCKS_PER_DIRECTION as u64 - 1;
    check(&conversation, &[], passed, &[("contradicts one that passed", 1), ("no room ahead of a hole", 1)]);
    // What begins at the next byte is given at once, so it needs no room.
    let rest = conversation.segment(0, 0, PSH_ACK, &[b'x'; 1400]);
    conversation.push(rest);
    check(&conversation, &[], passed + 1, &[("contradicts one that passed", 1), ("no room ahead of a hole", 1)]);
}

/// One byte in each segment ahead of a hole; then one segment over all of them has other bytes at its end.
#[test]
fn a_segment_is_compared_with_all_that_passed() {
    let talk_of = |given: bool| {
        let mut conversation = talk();
        let first = if given { 0 } else { 4 };
        for place in 0..300 {
            let segment = conversation.segment(0, first + place, PSH_ACK, b".");
            conversation.push(segment);
        }
        if given {
            // The server has the first hundred.
            let acknowledgement = conversation.segment(0, 100, PSH_ACK, b"");
            let number = acknowledgement[38..42].to_vec();
            let mut answer = conversation.segment(1, 0, 0x10, b"");
            answer[42..46].copy_from_slice(&number);
            conversation.push(answer);
        }
        let text = [&[b'.'; 260][..], b"an attack", &[b'.'; 31]].concat();
        let over = conversation.segment(0, first, PSH_ACK, &text);
        conversation.push(over).send(0, b"....");
        conversation
    };
    check(&talk_of(false), &[], 3 + 300 + 1, &[("contradicts one that passed", 1)]);
    check(&talk_of(true), &[], 3 + 300 + 1 + 1, &[("contradicts one that passed", 1)]);
}

#[test]
fn fragments_do_not_hide_what_passed() {
    let from = |last: u8| Ipv4Addr::new(10, 0, 3, last);
    let fragment = |source: Ipv4Addr, identification: u16, offset: u16, more: bool, payload: &[u8]| {
        let mut frame = ipv4(source, SERVER.0, 17, payload);
        let flags = (offset / 8) | if more { 0x2000 } else { 0 };
        frame[18..20].copy_from_slice(&identification.to_be_bytes());
        frame[20..22].copy_from_slice(&flags.to_be_bytes());
        frame
    };
    let datagram = [&[0, 9, 0, 9, 0, 18, 0, 0][..], b"an attack!"].concat();
    let mut frames = vec![fragment(from(1), 7, 0, true, &datagram[..16])];
    for number in 0..DECAP_PACKETS as u32 {
        frames.push(fragment(from(2 + (number >> 16) as u8), number as u16, 0, true, &datagram[..8]));
    }
    frames.push(fragment(from(1), 7, 16, false, &datagram[16..]));
    let frames: Vec<_> = frames.into_iter().map(|frame| (1_000, frame)).collect();
    let rules = "drop udp any any -> any any (msg:\"datagram\"; content:\"attack!\"; sid:1;)\n";
    let outcome = through(&frames, rules, &[]);
    let counters = outcome.counters("ips");
    let drops: Vec<_> = counters.drops.iter().collect();
    assert_eq!(counters.blocks_rejected, DECAP_PACKETS as u64, "{drops:?}");
    assert_eq!((counters.drops.get("no room for fragments"), counters.drops.get("stopped by a rule")), (1, 1));
}

#[test]
fn what_was_forgotten_does_not_come_again() {
    let mut conversation = talk();
    let again = conversation.segment(0, 0, PSH_ACK, b"at");
    conversation.send(0, b"xx");
    let filler = [b'.'; 1000];
    for _ in 0..20 {
        conversation.send(0, &filler);
    }
    conversation.push(again.clone());
    // The server has all of it already and ignores the repeated bytes.
    conversation.send(1, b"").push(again);
    check(&conversation, &[("recall", "1")], 3 + 21 + 2, &[("sent again when it was forgotten", 1)]);
    assert_eq!(run(&conversation, &[("recall", "1M")]).counters("ips").drops.get("contradicts one that passed"), 2);
}

const HTTP2_RULES: &str = "drop http any any -> any any (msg:\"uri\"; http.uri; content:\"/evil\"; sid:1;)\n\
     drop http any any -> any any (msg:\"up\"; http.method; content:\"POST\"; http.request_body; content:\"evil\"; sid:2;)\n\
     drop http any any -> any any (msg:\"name\"; flow:to_client; fileext:\"exe\"; sid:3;)\n";

fn http2_frame(kind: u8, flags: u8, stream: u8, contents: &[u8]) -> Vec<u8> {
    [&(contents.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], contents].concat()
}

fn http2_head(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// A head that is longer than what is read: the rest of the client's bytes is not inspected.
#[test]
fn a_head_of_http2_that_is_too_long_does_not_pass() {
    let front = http2_head(&[(":method", "GET"), (":path", "/ok")]);
    let mut conversation = talk();
    let first = [protocols::http2::PREFACE, &http2_frame(1, 1, 1, &front)].concat();
    conversation.send(0, &first);
    for _ in 0..9 {
        conversation.send(0, &http2_frame(9, 0, 1, &[0; 16_000]));
    }
    conversation.send(0, &http2_frame(1, 5, 3, &http2_head(&[(":method", "GET"), (":path", "/evil")])));
    let outcome = through(&conversation.frames, HTTP2_RULES, &[]);
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.get(UNREAD)), (3 + 9, 1));
    assert_eq!(counters.events.get("messages of rules given up"), 1);
}

/// A client that evicts its own request does not get its body past the rules.
#[test]
fn other_streams_do_not_hide_what_passed() {
    let post = http2_head(&[(":method", "POST"), (":path", "/up")]);
    for (kind, reason) in [(1, UNREAD), (2, "stopped by a rule"), (8, "stopped by a rule")] {
        for number in [70u8, 100] {
            let mut conversation = talk();
            conversation.send(0, &[protocols::http2::PREFACE, &http2_frame(1, 4, 1, &post)].concat());
            for stream in 0..number {
                let contents = match kind {
                    1 => &post[..],
                    2 => &[0, 0, 0, 0, 16],
                    _ => &[0, 0, 0, 16],
                };
                conversation.send(0, &http2_frame(kind, 4, 3 + 2 * stream, contents));
            }
            conversation.send(0, &http2_frame(0, 1, 1, b"an evil body"));
            let outcome = through(&conversation.frames, HTTP2_RULES, &[]);
            let counters = outcome.counters("ips");
            let passed = 3 + 1 + u64::from(number);
            assert_eq!((counters.blocks_rejected, counters.drops.get(reason)), (passed, 1), "{kind} {number}");
        }
    }
}

/// As for HTTP/1, the name of a file belongs to a body.
#[test]
fn a_head_of_http2_without_body_has_no_file() {
    let request = http2_head(&[(":method", "GET"), (":path", "/x.exe")]);
    let [unmodified, whole] = ["304", "200"].map(|status| http2_head(&[(":status", status)]));
    let mut conversation = talk();
    let first = [protocols::http2::PREFACE, &http2_frame(1, 5, 1, &request), &http2_frame(1, 5, 3, &request)].concat();
    conversation.send(0, &first).send(1, &http2_frame(4, 0, 0, b"")).send(1, &http2_frame(1, 5, 1, &unmodified));
    conversation.send(1, &http2_frame(1, 4, 3, &whole)).send(1, &http2_frame(0, 0, 3, b"MZ"));
    let outcome = through(&conversation.frames, HTTP2_RULES, &[]);
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.get("stopped by a rule")), (3 + 4, 1));
}

/// Pieces with their sides, how many of them pass, and why the next one does not.
type Case<'a> = (&'a [(usize, &'a [u8])], u64, &'static str);

/// A request stays a request behind empty lines, or behind a longer one that shows no known method.
#[test]
fn what_comes_before_the_application_is_known_hides_no_request() {
    let rules = "drop http any any -> any any (msg:\"uri\"; http.uri; content:\"/evil\"; sid:1;)\n";
    let evil = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = b"HTTP/1.1 405 No\r\nContent-Length: 2\r\n\r\nok";
    let (stopped, unseen) = ("stopped by a rule", UNREAD);
    let ends = b"\r\n".repeat(130);
    let unknown = |bytes: usize| {
        let head = format!("FOO /x HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; bytes]].concat()
    };
    let [short, long] = [300, 40_000].map(unknown);
    let early = [&short[..], evil].concat();
    let cases: [Case; 5] = [
        (&[(0, &[&ends[..], evil].concat())], 0, stopped),
        (&[(0, &ends), (0, &ends), (0, evil)], 2, stopped),
        (&[(0, &short), (1, answer), (0, evil)], 2, stopped),
        // The request has passed before the answer shows the application.
        (&[(0, &early), (1, answer)], 1, stopped),
        (&[(0, &long), (0, evil), (1, answer)], 2, unseen),
    ];
    for (number, (pieces, passed, reason)) in cases.into_iter().enumerate() {
        let mut conversation = talk();
        for (side, bytes) in pieces {
            conversation.send(*side, bytes);
        }
        let outcome = through(&conversation.frames, rules, &[]);
        let counters = outcome.counters("ips");
        assert_eq!((counters.blocks_rejected, counters.drops.get(reason)), (3 + passed, 1), "{number}");
        let missed = counters.events.get("bytes of rules before their application was known");
        assert_eq!(missed > 0, reason == unseen, "{number}");
    }
}

/// A server answers more requests than are remembered: its answers to forgotten requests are inspected too.
#[test]
fn answers_to_forgotten_requests_are_looked_at() {
    for (answers, number) in [(0, 0), (5, 5), (69, 69)] {
        let mut conversation = talk();
        for _ in 0..70 {
            conversation.send(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for _ in 0..answers {
            conversation.send(1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        conversation.send(1, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL");
        let outcome = through(&conversation.frames, BODY_RULES, &[]);
        let counters = outcome.counters("ips");
        assert_eq!((counters.blocks_rejected, counters.drops.get("stopped by a rule")), (3 + 70 + number, 1));
    }
}

/// The engine inspects bodies last, but a variable from a body must be there for the lists behind it.
#[test]
fn a_variable_of_a_body_is_there_for_the_next_buffer() {
    let rules = "drop http any any -> any any (msg:\"x\"; flow:to_server; http.request_body; content:\"k\"; \
                 byte_extract:1,1,n; http.method; content:\"T\"; offset:n; sid:1;)\n";
    // The method POST has its T at offset 3.
    for (body, is_stopped) in [(b"k\x03", true), (b"k\x04", false)] {
        for size in [1, 2] {
            let mut conversation = talk();
            conversation.send(0, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
            for piece in body.chunks(size) {
                conversation.send(0, piece);
            }
            let outcome = through(&conversation.frames, rules, &[]);
            let stopped = outcome.counters("ips").drops.get("stopped by a rule");
            assert_eq!(stopped, u64::from(is_stopped), "{body:?} in pieces of {size}");
        }
    }
}

/// Sends SYNs from one host through a rule with this limit. `passes`: by SYN, whether it passes.
fn check_limit(limit: &str, passes: &[bool]) {
    let rule = format!("drop tcp any any -> any any (msg:\"many\"; flags:S; {limit}; sid:1;)\n");
    for count in 1..=passes.len() {
        let syn = |at: usize| tcp((CLIENT.0, 1000 + at as u16), SERVER, 1, 0, flag::SYN, b"");
        let frames: Vec<_> = (0..count).map(|at| (at as u64 * 1_000_000, syn(at))).collect();
        let expected = passes[..count].iter().filter(|passes| **passes).count() as u64;
        let outcome = through(&frames, &rule, &[]);
        assert_eq!(outcome.counters("ips").blocks_rejected, expected, "{limit}: {count}");
    }
}

/// Suricata's manual, "Thresholding Keywords": below the count, neither the action nor the alert applies.
#[test]
fn a_threshold_dropped_before_its_count() {
    let (yes, no) = (true, false);
    for (kind, passes) in [
        ("both, track by_src, count 3, seconds 60", [yes, yes, no, no, no, no]),
        ("threshold, track by_src, count 3, seconds 60", [yes, yes, no, yes, yes, no]),
        ("limit, track by_src, count 3, seconds 60", [no; 6]),
        ("backoff, track by_src, count 3, multiplier 2", [yes, no, no, no, no, no]),
    ] {
        check_limit(&format!("threshold:type {kind}"), &passes);
    }
}

/// A form with more files in a segment than rules inspect by themselves. Either way the loss is counted.
#[test]
fn files_that_run_together_are_counted() {
    let part = "--b\r\nContent-Disposition: form-data; name=f; filename=a\r\n\r\nx\r\n";
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n";
    let counters = |files: usize, fail: &str| {
        let mut conversation = talk();
        conversation.send(0, head.as_bytes()).send(0, part.repeat(files).as_bytes());
        let outcome = through(&conversation.frames, BODY_RULES, &[("fail", fail)]);
        let counters = outcome.counters("ips");
        let stopped = counters.drops.get(UNREAD);
        (stopped, counters.events.get("frames with messages that rules did not see"))
    };
    assert_eq!(counters(RULES_FILES, "closed"), (0, 0));
    assert_eq!(counters(RULES_FILES + 2, "closed"), (1, 1));
    assert_eq!(counters(RULES_FILES + 2, "open"), (0, 1));
}

/// Rules over frames that are replaced at the sixth frame.
static CHANGING: Kind = Kind::new("changing", "has other rules from the sixth frame on", |params, _| {
    let rules = [
        "pass tcp any any -> any any (flow:to_server; content:\"trust me\"; sid:1;)\n",
        "drop tcp any any -> any any (flow:to_server; content:\"attack\"; sid:2;)\n",
    ];
    let [first, second] = [rules.concat(), rules[1].to_string()].map(|text| {
        Arc::new(RuleSet::read(&text, &Default::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}")))
    });
    let settings = Settings { doubts: false, ..Settings::default() };
    let inspector = Inspector::with(first, Origins::new(params), settings);
    Ok(Instance::filter(Changing { inspector, second, seen: 0 }))
})
.takes(&[Type::Frame])
.gives_records(&row::SCHEMA)
.mode(Mode::Serial)
.touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS);

struct Changing {
    inspector: Inspector,
    second: Arc<RuleSet>,
    seen: u32,
}

impl Filter for Changing {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.inspector.begin_batch();
        for place in places(batch.live()) {
            self.seen += 1;
            if self.seen == 6 {
                self.inspector.replace(Arc::clone(&self.second));
            }
            if self.inspector.frame(batch.block(place), cx) != Verdict::Pass {
                cx.count("stopped", 1);
            }
        }
        Ok(Status::Done)
    }
}

/// Stops the flow of each frame, and counts the memory of flows before and after that.
static STOPPING: Kind = Kind::new("stopping", "stops all flows", |params, _| {
    let set = RuleSet::read(BODY_RULES, &Default::default()).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let settings = Settings { doubts: false, ..Settings::default() };
    Ok(Instance::filter(Stopping(Inspector::with(Arc::new(set), Origins::new(params), settings))))
})
.takes(&[Type::Frame])
.gives_records(&row::SCHEMA)
.mode(Mode::Serial)
.touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS);

struct Stopping(Inspector);

impl Filter for Stopping {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.0.begin_batch();
        for place in places(batch.live()) {
            self.0.frame(batch.block(place), cx);
            if batch.block(place).len > 500 {
                cx.count("before", self.0.kept_bytes() as u64);
                self.0.stop_last(cx);
                cx.count("after", self.0.kept_bytes() as u64);
            }
        }
        Ok(Status::Done)
    }
}

/// Stopped flows are the last to be evicted: their memory would push out all others.
#[test]
fn a_stopped_flow_keeps_no_memory() {
    let mut conversation = talk();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n";
    conversation.send(0, &[&head[..], &[b'x'; 1000]].concat());
    let outcome = Chain::frames(ETHERNET, &conversation.frames).then(&STOPPING, &[]).run();
    let events = &outcome.counters("stopping").events;
    assert!(events.get("before") > 1000);
    assert_eq!(events.get("after"), 0);
}

#[test]
fn a_flow_passes_no_longer_than_the_rule_that_passed_it_is_there() {
    let stopped = |conversation: &Conversation| {
        let outcome = Chain::frames(ETHERNET, &conversation.frames).then(&CHANGING, &[]).run();
        outcome.counters("changing").events.get("stopped")
    };
    let mut conversation = talk();
    conversation.send(0, b"trust me").send(0, b"an attack").send(0, b"an attack");
    assert_eq!(stopped(&conversation), 1);
    // Bytes that passed under a pass rule are not remembered.
    let mut conversation = talk();
    conversation.send(0, b"trust me, at").send(0, b"t").send(0, b"ack").send(0, b"attack");
    assert_eq!(stopped(&conversation), 1);
}

/// A flood of one-datagram flows beyond the limit does not make the rules forget a two-way flow.
#[test]
fn a_flood_of_flows_does_not_hide_what_passed() {
    let mut conversation = talk();
    conversation.send(0, b"att");
    for number in 0..=RULES_FLOWS as u32 {
        let source = (Ipv4Addr::new(10, 7, 0, (number >> 16) as u8), number as u16);
        conversation.push(udp(source, SERVER, b""));
    }
    conversation.send(0, b"ack");
    let outcome = through(&conversation.frames, RULES, &[]);
    let counters = outcome.counters("ips");
    assert_eq!(counters.drops.get("stopped by a rule"), 1);
    assert!(counters.events.get("flows of rules evicted") > 0);
}
