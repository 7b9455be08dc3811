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

#[test]
fn a_drop_behind_the_last_alert_of_a_packet_was_lost() {
    let many: String =
        (1..=257).map(|sid| format!("alert tcp any any -> any any (content:\"a\"; sid:{sid};)\n")).collect();
    let drops: String =
        (301..=600).map(|sid| format!("drop tcp any any -> any any (content:\"b\"; sid:{sid};)\n")).collect();
    let mut engine =
        engine(&format!("{many}drop tcp any any -> any any (http.uri; content:\"/x\"; sid:300;)\n{drops}"));
    let mut flow = FlowState::new(0);
    flow.app = App::Http1;
    let mut one = Transaction::new(App::Http1, 0);
    one.put_copy(Buffer::HTTP_URI, true, b"/x");
    let packet = packet(b"a");
    engine.begin();
    engine.packet(&packet, Some(&mut flow), None);
    engine.transaction(&packet, Some(&mut flow), &mut one, true, None);
    let mut told = Vec::new();
    let verdict = engine.finish(&packet, Some(&mut flow), |rule, _| told.push(rule.sid));
    assert_eq!((verdict, flow.dropped, told.len()), (Verdict::Drop, true, 256));
    assert!(told.contains(&300));
    let bounds = engine.take_bounds();
    assert_eq!((bounds.alerts, bounds.steps), (2, 0));
    // Where all that has room decides, work ends there.
    assert_eq!(on_packet(&mut engine, &mut FlowState::new(0), &self::packet(b"b")).1, Verdict::Drop);
    let bounds = engine.take_bounds();
    assert_eq!((bounds.alerts, bounds.steps), (1, 1));
}

#[test]
fn any_swallowed_its_exceptions() {
    let mut of_ports = engine("alert tcp any any -> any [any,!80] (sid:1;)");
    let mut of_addresses = engine("alert tcp [any,!10.0.0.1] any -> any any (dsize:1; sid:1;)");
    let one = packet(b"a");
    let reversed = Packet { flow: one.flow.map(|flow| flow.reversed()), to_server: false, ..one };
    for engine in [&mut of_ports, &mut of_addresses] {
        assert_eq!(on_packet(engine, &mut FlowState::new(0), &one).0, []);
        assert_eq!(on_packet(engine, &mut FlowState::new(0), &reversed).0, [1]);
    }
}

#[test]
fn a_flow_kept_places_of_rules_of_the_set_before() {
    let mut engine = engine(
        "alert ip 10.0.0.1 any -> any any (sid:1;)\n\
         alert http any any -> any any (http.uri; content:\"/x\"; sid:2;)\n\
         alert tcp any any -> any any (content:\"abc\"; content:\"def\"; distance:0; sid:3;)",
    );
    let mut flow = FlowState::new(0);
    flow.app = App::Http1;
    let mut one = Transaction::new(App::Http1, 0);
    one.put_copy(Buffer::HTTP_URI, true, b"/x");
    assert_eq!(on_packet(&mut engine, &mut flow, &packet(b"")).0, [1]);
    assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), [2]);
    assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), []);
    assert_eq!(on_stream(&mut engine, &mut flow, b"abc", 0), []);
    engine.replace(Arc::new(set("alert ip 10.0.0.1 any -> any any (sid:11;)\n\
         alert http any any -> any any (http.uri; content:\"x\"; sid:12;)\n\
         alert tcp any any -> any any (content:\"abc\"; content:\"ghi\"; distance:0; sid:13;)")));
    flow.passed = true;
    assert_eq!(on_packet(&mut engine, &mut flow, &packet(b"")).0, [11]);
    assert!(!flow.passed, "a rule of the set before passed it");
    assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), [12]);
    assert_eq!(on_packet(&mut engine, &mut flow, &packet(b"")).0, []);
}

#[test]
fn a_bit_of_a_flow_without_room_was_not_counted() {
    let rules: String = (1..=65)
        .map(|sid| format!("alert tcp any any -> any any (content:\"a\"; flowbits:set,b{sid}; sid:{sid};)\n"))
        .collect();
    let mut engine = engine(&rules);
    assert_eq!(on_packet(&mut engine, &mut FlowState::new(0), &packet(b"a")).0.len(), 65);
    assert_eq!(engine.take_bounds().state, 1);
}
