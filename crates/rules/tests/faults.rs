//! Faults that were found once: each test is named after its fault.

use packet::Flow;
use rules::engine::{Piece, Verdict};
use rules::event::TcpHeader;
use rules::names::{App, Buffer};
use rules::{Engine, FlowState, Options, Packet, RuleSet, Transaction};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

fn set(text: &str) -> RuleSet {
    RuleSet::read(text, &Options::default()).unwrap_or_else(|mistakes| panic!("{text}: {mistakes:?}"))
}

fn engine(text: &str) -> Engine {
    Engine::new(Arc::new(set(text)))
}

fn packet(payload: &[u8]) -> Packet<'_> {
    let [source, target] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    Packet {
        flow: Some(Flow { source, target, source_port: 4000, target_port: 80, protocol: 6 }),
        version: 4,
        time: 1,
        link: &[],
        network: &[],
        transport: &[],
        payload,
        payload_len: payload.len() as u32,
        tcp: Some(TcpHeader { flags: 0x18, ..TcpHeader::default() }),
        icmp: None,
        to_server: true,
        established: true,
        in_stream: false,
        fragment: false,
        events: &[],
    }
}

/// The numbers of the rules that alert on a packet, and the verdict.
fn on_packet(engine: &mut Engine, flow: &mut FlowState, packet: &Packet<'_>) -> (Vec<u32>, Verdict) {
    engine.begin();
    engine.packet(packet, Some(flow), None);
    let mut found = Vec::new();
    let verdict = engine.finish(packet, Some(flow), |rule, _| found.push(rule.sid));
    (found, verdict)
}

/// The numbers of the rules that alert on a stream of which rules have seen a part.
fn on_stream(engine: &mut Engine, flow: &mut FlowState, bytes: &[u8], seen: usize) -> Vec<u32> {
    let packet = packet(b"");
    engine.begin();
    engine.stream(&packet, flow, Piece { bytes, start: 0, seen, grows: false });
    let mut found = Vec::new();
    engine.finish(&packet, Some(flow), |rule, _| found.push(rule.sid));
    found
}

/// The numbers of the rules that alert on a transaction.
fn on_transaction(engine: &mut Engine, flow: &mut FlowState, one: &mut Transaction) -> Vec<u32> {
    let packet = packet(b"");
    engine.begin();
    engine.transaction(&packet, Some(flow), one, true, None);
    let mut found = Vec::new();
    engine.finish(&packet, Some(flow), |rule, _| found.push(rule.sid));
    found
}

#[test]
fn a_first_content_that_moved_to_a_buffer_stopped_the_reader() {
    let mut engine = engine(
        "alert http any any -> any any (content:\"abcdefghij\"; fast_pattern:4,6; http_uri; content:\"x\"; http_header; sid:1;)",
    );
    let mut flow = FlowState::new(0);
    flow.app = App::Http1;
    let mut one = Transaction::new(App::Http1, 0);
    one.put_copy(Buffer::HTTP_URI, true, b"/abcdefghij");
    one.put_copy(Buffer::HTTP_HEADER, true, b"x: y\r\n");
    assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), [1]);
}

#[test]
fn a_backoff_without_multiplier_never_ended() {
    let rule = |rest: &str| {
        let text =
            format!("alert tcp any any -> any any (threshold:type backoff, track by_src, count 1, {rest}; sid:1;)");
        RuleSet::read(&text, &Options::default())
    };
    let mistakes = rule("seconds 60").expect_err("a multiplier is missing");
    assert!(mistakes[0].reason.contains("multiplier"), "{}", mistakes[0].reason);
    let mut engine = Engine::new(Arc::new(rule("multiplier 2").unwrap()));
    let told = (0..8).filter(|_| !on_packet(&mut engine, &mut FlowState::new(0), &packet(b"")).0.is_empty());
    assert_eq!(told.count(), 4, "the packets 1, 2, 4 and 8");
}
