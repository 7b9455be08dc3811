//! Tests of flows, through the engine.

use super::*;
use testkit::packets::{CLIENT, SERVER, flag, ipv4, tcp, udp};
use testkit::{Chain, Outcome};

const SECOND: u64 = 1_000_000_000;

fn run(frames: &[(u64, Vec<u8>)], given: &[(&str, &str)]) -> Outcome {
    let frames: Vec<_> = frames.iter().map(|(second, frame)| (second * SECOND, frame.clone())).collect();
    Chain::frames(1, &frames).then(&KIND, given).run()
}

/// Of each record, sorted: packets and payload of both directions, state, reason, history.
fn lines(outcome: &Outcome) -> Vec<String> {
    let line = |bytes: &[u8]| {
        let row = Row::new(&row::SCHEMA, bytes).unwrap();
        let number = |name: &str| row.number(&format!("flow.{name}")).unwrap();
        let text = |name: &str| String::from_utf8_lossy(row.text(&format!("flow.{name}")).unwrap()).into_owned();
        let counts = ["pkts_toserver", "pkts_toclient", "payload_toserver", "payload_toclient"].map(number);
        format!("{counts:?} {} {} {}", text("state"), text("reason"), text("history"))
    };
    let mut lines: Vec<String> = outcome.blocks.iter().map(|block| line(&block.bytes)).collect();
    lines.sort();
    lines
}

/// A connection from its first SYN to its last FIN.
fn connection() -> Vec<(u64, Vec<u8>)> {
    vec![
        (1, tcp(CLIENT, SERVER, 99, 0, flag::SYN, b"")),
        (1, tcp(SERVER, CLIENT, 499, 100, flag::SYN | flag::ACK, b"")),
        (1, tcp(CLIENT, SERVER, 100, 500, flag::ACK, b"")),
        (2, tcp(CLIENT, SERVER, 100, 500, flag::ACK, b"question")),
        (3, tcp(SERVER, CLIENT, 500, 108, flag::ACK, b"answer")),
        (4, tcp(SERVER, CLIENT, 506, 108, flag::ACK | flag::FIN, b"")),
        (4, tcp(CLIENT, SERVER, 108, 507, flag::ACK | flag::FIN, b"")),
        (4, tcp(SERVER, CLIENT, 507, 109, flag::ACK, b"")),
    ]
}

#[test]
fn a_connection_has_one_record() {
    let outcome = run(&connection(), &[]);
    assert_eq!(lines(&outcome), ["[4, 4, 8, 6] closed closed ShADdfFa"]);
    let row = Row::new(&row::SCHEMA, &outcome.blocks[0].bytes).unwrap();
    assert_eq!((row.number("flow.start"), row.number("flow.end")), (Some(SECOND), Some(4 * SECOND)));
    assert_eq!((row.number("flow.age"), row.number("src_port")), (Some(3), Some(40_000)));
    assert_eq!((row.number("flow.missed_toserver"), row.number("flow.missed_toclient")), (Some(0), Some(0)));
    assert_eq!(row.text("tcp.flags_toserver"), Some(&b"SYN,FIN,ACK"[..]));
    assert_eq!(row.number("flow.bytes_toserver"), Some(4 * 54 + 8));
    assert_eq!(row.number("flow.ip_bytes_toserver"), Some(4 * 40 + 8));
}

#[test]
fn a_record_comes_when_its_flow_ended() {
    let later = |second: u64| (second, udp(CLIENT, (SERVER.0, 9), b""));
    // Closed: 5 s. No answer, or not TCP: 60 s. Answered: 5 minutes.
    let closed = [connection(), vec![later(10), later(11)]].concat();
    assert_eq!(lines(&run(&closed, &[]))[1], "[4, 4, 8, 6] closed closed ShADdfFa");
    let silent = [vec![(1, tcp(CLIENT, SERVER, 9, 0, flag::SYN, b""))], vec![later(60), later(62)]].concat();
    assert_eq!(lines(&run(&silent, &[]))[0], "[1, 0, 0, 0] new timeout S");
    let open = [connection()[..5].to_vec(), vec![later(303), later(304)]].concat();
    assert_eq!(lines(&run(&open, &[])), ["[2, 0, 0, 0] new end ", "[3, 2, 8, 6] established timeout ShADd"]);
    assert_eq!(lines(&run(&open, &[("established", "302s")]))[1], "[3, 2, 8, 6] established end ShADd");
}

#[test]
fn other_protocols_and_both_directions() {
    let frames = [
        (1, udp(CLIENT, SERVER, b"one")),
        (2, udp(SERVER, CLIENT, b"four")),
        (3, ipv4(CLIENT.0, SERVER.0, 1, &[8, 0, 0, 0, 0, 1, 0, 1])),
        (4, ipv4(SERVER.0, CLIENT.0, 1, &[0, 0, 0, 0, 0, 1, 0, 1])),
        (5, [&[2; 12][..], &[8, 6], &[0; 28]].concat()),
    ];
    let outcome = run(&frames, &[]);
    assert_eq!(lines(&outcome), ["[1, 1, 3, 4] established end Dd", "[1, 1, 8, 8] established end Dd"]);
    assert_eq!(outcome.counters("flows").blocks_rejected, 1);
    let row = Row::new(&row::SCHEMA, &outcome.blocks[1].bytes).unwrap();
    assert_eq!((row.number("icmp_type"), row.number("src_port")), (Some(8), None));
}

#[test]
fn the_side_that_connects_is_the_source_and_a_reset_ends() {
    let frames = [
        (1, tcp(SERVER, CLIENT, 499, 100, flag::SYN | flag::ACK, b"")),
        (1, tcp(CLIENT, SERVER, 100, 500, flag::RST, b"")),
    ];
    let outcome = run(&frames, &[]);
    assert_eq!(lines(&outcome), ["[1, 1, 0, 0] closed closed ^hR"]);
    let row = Row::new(&row::SCHEMA, &outcome.blocks[0].bytes).unwrap();
    assert_eq!(row.number("dest_port"), Some(80));
}

#[test]
fn ports_that_are_used_again_make_another_flow() {
    let again = (5, tcp(CLIENT, SERVER, 7000, 0, flag::SYN, b""));
    let outcome = run(&[connection(), vec![again]].concat(), &[]);
    assert_eq!(lines(&outcome), ["[1, 0, 0, 0] new end S", "[4, 4, 8, 6] closed reuse ShADdfFa"]);
}

#[test]
fn missing_bytes_and_such_as_come_again() {
    let mut frames = connection();
    frames[3].1 = tcp(CLIENT, SERVER, 104, 500, flag::ACK, b"tion");
    frames.insert(5, (3, tcp(SERVER, CLIENT, 500, 108, flag::ACK, b"answer")));
    let outcome = run(&frames, &[]);
    let row = Row::new(&row::SCHEMA, &outcome.blocks[0].bytes).unwrap();
    assert_eq!((row.number("flow.missed_toserver"), row.number("flow.missed_toclient")), (Some(4), Some(0)));
    assert_eq!(row.text("flow.history"), Some(&b"ShADGdtfFa"[..]));
}

#[test]
fn beyond_the_limit_unanswered_flows_go_first() {
    let from = |port: u16, flags: u8| tcp((CLIENT.0, port), SERVER, 9, 0, flags, b"");
    let mut frames = connection()[..5].to_vec();
    frames.extend((1..=4).map(|port| (6, from(port, flag::SYN))));
    let outcome = run(&frames, &[("limit", "3")]);
    let lines = lines(&outcome);
    assert_eq!(lines.iter().filter(|line| *line == "[1, 0, 0, 0] new evicted S").count(), 2);
    assert_eq!(lines.last().unwrap(), "[3, 2, 8, 6] established end ShADd");
    assert_eq!(outcome.counters("flows").events.get("flows evicted"), 2);
    let refusal = Chain::frames(1, &[]).then(&KIND, &[("limit", "0")]).refusal().unwrap();
    assert!(refusal.message.contains("1 to"), "{}", refusal.message);
}

/// Flows that end together are given in parts: at the end of the run, and when they are silent for too long.
#[test]
fn many_flows_that_end_together_all_have_a_record() {
    let mut frames: Vec<_> = (1..=1000).map(|port| (1, udp((CLIENT.0, port), SERVER, b"x"))).collect();
    assert_eq!(run(&frames, &[]).blocks.len(), 1000);
    frames.extend((2..100).map(|second| (second, udp((CLIENT.0, 2000), SERVER, b"x"))));
    let outcome = run(&frames, &[("timeout", "1s")]);
    let ended = lines(&outcome).iter().filter(|line| *line == "[1, 0, 1, 0] new timeout D").count();
    assert_eq!((ended, outcome.blocks.len()), (1000, 1001));
}

/// Ten million flows and their lookup table fit into 4 GiB. Tunnels come on top, for flows that have any.
#[test]
fn a_flow_takes_little() {
    let each = FlowTable::<State, LISTS>::BYTES_EACH;
    assert!(FLOWS * each <= 4 << 30, "{each} bytes for a flow, {} of them its state", size_of::<State>());
}

#[test]
fn a_flow_without_a_syn_has_the_known_or_lower_port_as_server() {
    let check = |source: u16, target: u16, expected: (u64, &str)| {
        let frames = [(1, tcp((CLIENT.0, source), (SERVER.0, target), 100, 500, flag::ACK, b"data"))];
        let outcome = run(&frames, &[]);
        let row = Row::new(&row::SCHEMA, &outcome.blocks[0].bytes).unwrap();
        let history = String::from_utf8_lossy(row.text("flow.history").unwrap()).into_owned();
        assert_eq!((row.number("src_port").unwrap(), &history[..]), expected);
    };
    check(80, 40_000, (40_000, "^d"));
    check(40_000, 80, (40_000, "D"));
    check(2049, 1000, (1000, "^d"));
    check(7000, 40_000, (40_000, "^d"));
    check(7000, 7000, (7000, "D"));
}

#[test]
fn the_analysis_of_tcp_and_the_protocol_inside() {
    let to = |seq, ack, flags, bytes: &[u8]| tcp(CLIENT, SERVER, seq, ack, flags, bytes);
    let back = |seq, ack, flags, bytes: &[u8]| tcp(SERVER, CLIENT, seq, ack, flags, bytes);
    let request = || to(101, 501, flag::ACK, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let frames = [
        (1, to(100, 0, flag::SYN, b"")),
        (2, back(500, 101, flag::SYN | flag::ACK, b"")),
        (3, to(101, 501, flag::ACK, b"")),
        (4, request()),
        (9, request()),
        (10, back(501, 101, flag::ACK, b"")),
    ];
    let outcome = run(&frames, &[]);
    let row = Row::new(&row::SCHEMA, &outcome.blocks[0].bytes).unwrap();
    let numbers = ["flow.rtt_us", "flow.age_us", "flow.retransmissions_toserver", "flow.retransmissions_toclient"];
    assert_eq!(numbers.map(|name| row.number(name)), [Some(2_000_000), Some(9_000_000), Some(1), Some(0)]);
    assert_eq!(row.text("flow.app_proto"), Some(&b"http"[..]));
}
