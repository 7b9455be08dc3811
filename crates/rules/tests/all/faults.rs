//! Regression tests, each named after its fault.

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

/// Returns the sids that alert on a packet, and the verdict.
fn on_packet(engine: &mut Engine, flow: &mut FlowState, packet: &Packet<'_>) -> (Vec<u32>, Verdict) {
    engine.begin();
    engine.packet(packet, Some(flow), None);
    let mut found = Vec::new();
    let verdict = engine.finish(packet, Some(flow), |rule, _| found.push(rule.sid));
    (found, verdict)
}

/// Returns the sids that alert on a stream whose first `seen` bytes are old.
fn on_stream(engine: &mut Engine, flow: &mut FlowState, bytes: &[u8], seen: usize) -> Vec<u32> {
    let packet = packet(b"");
    engine.begin();
    engine.stream(&packet, flow, Piece { bytes, start: 0, seen, grows: false });
    let mut found = Vec::new();
    engine.finish(&packet, Some(flow), |rule, _| found.push(rule.sid));
    found
}

/// Returns the sids that alert on a transaction.
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
    // In a full list of drops, another drop ends the inspection.
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

#[test]
fn bytes_were_no_work() {
    let body = [b'a'; 100 << 10];
    // Each would search the whole body from each of its bytes.
    for steps in [
        "content:\"a\"; fast_pattern; content:\"zzz\"; distance:0;",
        "content:\"a\"; pcre:\"/z(?=y)/R\";",
        "pcre:\"/a/\"; pcre:\"/z/R\";",
        "content:\"a\"; base64_decode:relative; base64_data; content:\"zzz\";",
    ] {
        let mut engine = engine(&format!("alert http any any -> any any (http.request_body; {steps} sid:1;)"));
        let mut flow = FlowState::new(0);
        flow.app = App::Http1;
        let mut one = Transaction::new(App::Http1, 0);
        one.put_copy(Buffer::HTTP_REQUEST_BODY, true, &body);
        let start = std::time::Instant::now();
        assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), []);
        assert_eq!(engine.take_bounds().steps, 1, "{steps}");
        // The fault took minutes; an unoptimized build now takes a second or two.
        assert!(start.elapsed().as_secs() < 60, "{steps}");
    }
    // A single search of the body fits the budget.
    let mut engine = engine("alert tcp any any -> any any (content:\"a\"; fast_pattern; content:\"zzz\"; sid:1;)");
    assert_eq!(on_packet(&mut engine, &mut FlowState::new(0), &packet(&body)).0, []);
    assert_eq!(engine.take_bounds().steps, 0);
}

#[test]
fn many_ways_among_bytes_that_were_seen_are_little_work() {
    let bytes = b"abc".repeat(2700);
    for options in [
        "content:\"a\"; content:\"b\"; distance:0; content:\"c\"; distance:0; content:\"a\"; distance:0;",
        "pcre:\"/.*b/s\";",
        "pcre:\"/.*b(?=c)/s\";",
    ] {
        // The rule waits, because its flow bit is not set.
        let mut engine = engine(&format!("alert tcp any any -> any any ({options} flowbits:isset,never; sid:1;)"));
        let mut flow = FlowState::new(0);
        assert_eq!(on_stream(&mut engine, &mut flow, &bytes[..bytes.len() - 1], 0), [], "{options}");
        assert_eq!(on_stream(&mut engine, &mut flow, &bytes, bytes.len() - 1), [], "{options}");
        assert_eq!(engine.take_bounds().steps, 0, "{options}");
    }
}

/// Rows: options, stream, bytes seen before, whether the rule matches.
#[test]
fn the_first_occurrence_hid_later_ones() {
    let rows: &[(&str, &[u8], usize, bool)] = &[
        ("content:\"evil\";", b"evil", 0, true),
        ("content:\"evil\";", b"evil evil", 4, true),
        ("content:\"evil\";", b"evil good", 4, false),
        ("content:\"evil\"; content:\"ok\";", b"ok evil evil", 7, true),
        ("content:\"ok\"; content:\"evil\";", b"ok evil", 5, true),
        ("content:\"a\"; content:\"b\"; content:\"c\"; within:1;", b"abcb-a", 5, true),
        ("content:\"a\"; content:\"b\"; within:1;", b"ab-ab", 2, true),
        ("content:\"a\"; content:\"b\"; within:1;", b"ab-ax", 2, false),
        ("pcre:\"/ev.l/\";", b"evil evol", 4, true),
        ("pcre:\"/ev.l/\";", b"evil eval", 9, false),
        ("pcre:\"/e(?=v)v.l/\";", b"evil evol", 4, true),
    ];
    for (options, bytes, seen, expected) in rows {
        let mut engine = engine(&format!("alert tcp any any -> any any ({options} sid:1;)"));
        // Show the seen bytes first, for rules that wait.
        on_stream(&mut engine, &mut FlowState::new(0), &bytes[..*seen], 0);
        let found = on_stream(&mut engine, &mut FlowState::new(0), bytes, *seen);
        assert_eq!(found == [1], *expected, "{options} on {bytes:?} behind {seen}");
    }
}

#[test]
fn steps_that_are_no_content_reached_nothing() {
    for options in [
        "content:\"USER \"; isdataat:10,relative;",
        "content:\"USER \"; byte_test:1,=,0x39,9,relative;",
        "content:\"USER \"; byte_jump:1,0,relative,string,dec,post_offset 8;",
        "content:\"USER \"; byte_extract:1,9,n,relative; isdataat:0;",
        "content:\"USER \"; base64_decode:offset 0, relative; base64_data; content:\"|d3 5d b7 e3 9e bb|\";",
    ] {
        let mut engine = engine(&format!("alert tcp any any -> any any ({options} sid:1;)"));
        let mut flow = FlowState::new(0);
        assert_eq!(on_stream(&mut engine, &mut flow, b"USER ", 0), [], "{options}");
        assert_eq!(on_stream(&mut engine, &mut flow, b"USER 0123456789", 5), [1], "{options}");
        assert_eq!(on_stream(&mut engine, &mut flow, b"USER 0123456789 ", 15), [], "{options}");
    }
}

#[test]
fn a_rule_that_waited_kept_its_first_place() {
    let mut engine = engine("alert tcp any any -> any any (content:\"abc\"; content:\"def\"; distance:0; sid:1;)");
    let mut flow = FlowState::new(0);
    assert_eq!(on_stream(&mut engine, &mut flow, b"abc", 0), []);
    assert_eq!(on_stream(&mut engine, &mut flow, b"abc......abc", 3), []);
    // The piece no longer contains the first match, but contains the second.
    engine.begin();
    engine.stream(&packet(b""), &mut flow, Piece { bytes: b"abcdef", start: 9, seen: 3, grows: false });
    assert!(engine.has_found());
}

#[test]
fn a_drop_did_not_wait_behind_many_alerts() {
    let alerts: String = (1..=64)
        .map(|sid| {
            format!("alert tcp any any -> any any (content:\"abc\"; content:\"n{sid:02}\"; distance:0; sid:{sid};)\n")
        })
        .collect();
    let drops = |count: u32| -> String {
        let one = |sid| {
            format!(
                "drop tcp any any -> any any (content:\"abc\"; fast_pattern; content:\"x{sid}\"; distance:0; sid:{sid};)\n"
            )
        };
        (100..100 + count).map(one).collect()
    };
    // Rules on other ports do not wait.
    let others = alerts.replace("any any (", "any 25 (").replace("sid:", "gid:2; sid:");
    let mut engine = engine(&format!("{others}{alerts}{}", drops(1)));
    let mut flow = FlowState::new(0);
    assert_eq!(on_stream(&mut engine, &mut flow, b"abc", 0), []);
    let bounds = engine.take_bounds();
    assert_eq!((bounds.state, bounds.steps), (1, 0));
    assert_eq!(on_stream(&mut engine, &mut flow, b"abc x100", 3), [100]);
    let mut engine = self::engine(&drops(65));
    assert_eq!(on_stream(&mut engine, &mut FlowState::new(0), b"abc", 0), []);
    let bounds = engine.take_bounds();
    assert_eq!((bounds.state, bounds.steps), (1, 1));
}

#[test]
fn flags_that_must_not_be_there_were_compared_with_all() {
    for (options, flags, expected) in [
        ("flags:!A;", 0x18, false),
        ("flags:!A;", 0x10, false),
        ("flags:!A;", 0x08, true),
        ("flags:!SA;", 0x10, true),
        ("flags:!SA;", 0x1a, false),
    ] {
        let mut engine = engine(&format!("alert tcp any any -> any any ({options} sid:1;)"));
        let packet = Packet { tcp: Some(TcpHeader { flags, ..TcpHeader::default() }), ..packet(b"") };
        assert_eq!(on_packet(&mut engine, &mut FlowState::new(0), &packet).0 == [1], expected, "{options} {flags}");
    }
}

#[test]
fn one_bit_that_is_set_hid_those_that_are_not() {
    let mut engine = engine(
        "alert tcp any any -> any any (content:\"1\"; flowbits:set,a; sid:1;)\n\
         alert tcp any any -> any any (content:\"2\"; flowbits:set,b; sid:2;)\n\
         alert tcp any any -> any any (content:\"?\"; flowbits:isnotset,a|b; sid:3;)",
    );
    let mut flow = FlowState::new(0);
    for (payload, expected) in [(b"?", 3), (b"1", 1), (b"?", 3), (b"2", 2)] {
        assert_eq!(on_packet(&mut engine, &mut flow, &packet(payload)).0, [expected]);
    }
    assert_eq!(on_packet(&mut engine, &mut flow, &packet(b"?")).0, []);
}

/// Rows: options, payload, whether the rule matches.
#[test]
fn a_step_between_hid_the_relative_one() {
    let rows: &[(&str, &[u8], bool)] = &[
        ("content:\"a\"; isdataat:2; content:\"b\"; within:1;", b"axab", true),
        ("content:\"a\"; content:!\"z\"; content:\"b\"; within:1;", b"axab", true),
        ("content:\"a\"; byte_test:1,=,0x61,0; content:\"b\"; within:1;", b"axab", true),
        ("pcre:\"/a/\"; isdataat:2; content:\"b\"; within:1;", b"axab", true),
        // `^` means the start of the buffer, not of each try.
        ("pcre:\"/^a/\"; content:\"b\"; within:1;", b"aab", false),
        ("pcre:\"/^a(?=.)/\"; content:\"b\"; within:1;", b"aab", false),
        ("pcre:\"/a(?=.)/\"; content:\"b\"; within:1;", b"\xe9aab", true),
        ("content:\"x\"; pcre:\"/^\\xe9a(?=.)/R\"; content:\"b\"; within:1;", b"\xe9x\xe9ab", true),
    ];
    for (options, payload, expected) in rows {
        let mut engine = engine(&format!("alert tcp any any -> any any ({options} sid:1;)"));
        let found = on_packet(&mut engine, &mut FlowState::new(0), &packet(payload)).0;
        assert_eq!(found == [1], *expected, "{options} on {payload:?}");
    }
}

#[test]
fn pcrexform_gave_the_whole_match() {
    let rules = |form: &str, content: &str| {
        format!("alert http any any -> any any (http.uri; pcrexform:\"{form}\"; content:{content}; bsize:1; sid:1;)")
    };
    let found = |form: &str, content: &str| {
        let mut engine = engine(&rules(form, content));
        let mut flow = FlowState::new(0);
        flow.app = App::Http1;
        let mut one = Transaction::new(App::Http1, 0);
        one.put_copy(Buffer::HTTP_URI, true, b"/a?data=}");
        on_transaction(&mut engine, &mut flow, &mut one)
    };
    assert_eq!(found("a\\?data=(.)", "\"}\""), [1]);
    assert_eq!(found("b\\?data=(.)", "!\"x\""), [], "no match, nothing to look at");
    for form in ["data=.", "(d)ata=(.)"] {
        assert!(RuleSet::read(&rules(form, "\"}\""), &Options::default()).is_err(), "{form}");
    }
}

#[test]
fn byte_test_without_a_count_was_refused() {
    let found = |text: &[u8], grows: bool| {
        let mut engine =
            engine("alert tcp any any -> any any (content:\"n=\"; byte_test:0,=,12,0,relative,string,dec; sid:1;)");
        let (packet, mut flow) = (packet(b""), FlowState::new(0));
        engine.begin();
        engine.stream(&packet, &mut flow, Piece { bytes: text, start: 0, seen: 0, grows });
        let mut count = 0;
        engine.finish(&packet, Some(&mut flow), |_, _| count += 1);
        count == 1
    };
    assert!(found(b"n=12", false) && found(b"n=12;3", true) && !found(b"n=123", false));
    assert!(!found(b"n=12", true), "more digits may come");
    assert!(!found(b"n=", false));
    let binary = "alert tcp any any -> any any (byte_test:0,=,12,0; sid:1;)";
    assert!(RuleSet::read(binary, &Options::default()).is_err(), "a binary number has a length");
}

#[test]
fn a_subslice_past_the_end_is_empty_and_looked_at() {
    let mut engine = engine("alert http any any -> any any (http.uri; subslice:9; content:!\"x\"; bsize:0; sid:1;)");
    let mut flow = FlowState::new(0);
    flow.app = App::Http1;
    let mut one = Transaction::new(App::Http1, 0);
    one.put_copy(Buffer::HTTP_URI, true, b"/abc");
    assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), [1]);
}

#[test]
fn a_quote_within_a_value_ended_it() {
    let set = set("alert tcp any any -> any any (msg:\"a \"b c\"; pcre:\"/a\"b/\"; content:\"a|22|b;\"; sid:1;)");
    assert_eq!(set.rule(0).map(|rule| &*rule.message), Some("a \"b c"));
    let mut engine = Engine::new(Arc::new(set));
    assert_eq!(on_packet(&mut engine, &mut FlowState::new(0), &packet(b"xa\"b;")).0, [1]);
    for wrong in ["msg:\"x; content:\"a\"; sid:1;", "content:\"a\"b\"; sid:1;", "content:\"a\"b; sid:1;"] {
        let rule = format!("alert tcp any any -> any any ({wrong})");
        assert!(RuleSet::read(&rule, &Options::default()).is_err(), "{wrong}");
    }
}

#[test]
fn keywords_of_tls_with_a_value_were_refused() {
    let rules = "alert tls any any -> any any (tls.version:1.2; sid:1;)\n\
                 alert tls any any -> any any (tls.version:\"1.3\"; sid:2;)\n\
                 alert tls any any -> any any (tls.fingerprint:\"0a:0b\"; sid:3;)\n\
                 alert tls any any -> any any (tls.fingerprint:!\"0a:0b:0c\"; sid:4;)\n\
                 alert tls any any -> any any (tls.fingerprint:\"0a\"; sid:5;)\n\
                 alert tls any any -> any any (tls.subject:\"CN=a\"; sid:6;)\n\
                 alert tls any any -> any any (tls.issuerdn:!\"CN=b\"; sid:7;)";
    let mut engine = engine(rules);
    let mut flow = FlowState::new(0);
    flow.app = App::Tls;
    let mut one = Transaction::new(App::Tls, 0);
    one.put_copy(Buffer::TLS_VERSION, true, b"1.2");
    one.put_copy(Buffer::TLS_CERT_FINGERPRINT, true, b"0a:0b");
    one.put_copy(Buffer::TLS_CERT_SUBJECT, true, b"C=x, CN=a, O=y");
    one.put_copy(Buffer::TLS_CERT_ISSUER, true, b"CN=b");
    assert_eq!(on_transaction(&mut engine, &mut flow, &mut one), [1, 3, 4, 6]);
}

#[test]
fn ssl_version_was_refused() {
    let found = |list: &str, version: &[u8]| {
        let mut engine = engine(&format!("alert tls any any -> any any (ssl_version:{list}; sid:1;)"));
        let mut flow = FlowState::new(0);
        flow.app = App::Tls;
        let mut one = Transaction::new(App::Tls, 0);
        one.put_copy(Buffer::TLS_VERSION, true, version);
        on_transaction(&mut engine, &mut flow, &mut one).len()
    };
    let list = "SSLv3,tls1.0, !tls1.2";
    assert_eq!([&b"SSLv3"[..], b"1.0", b"1.1", b"1.2"].map(|version| found(list, version)), [1, 1, 0, 0]);
    assert_eq!((found("tls1.2", b"1.2"), found("tls1.2", b"1.20")), (1, 0));
    for wrong in ["2.5", "!tls1.2", "sslv2", "tls1.4", ""] {
        let rule = format!("alert tls any any -> any any (ssl_version:{wrong}; sid:1;)");
        assert!(RuleSet::read(&rule, &Options::default()).is_err(), "{wrong}");
    }
}

fn limited(rules: &str, limits: &str) -> Result<Engine, Vec<rules::Mistake>> {
    let mut set = set(rules);
    set.limit(limits, &Options::default())?;
    Ok(Engine::new(Arc::new(set)))
}

#[test]
fn limits_beside_the_rules_were_not_read() {
    let rule = "drop tcp any any -> any any (content:\"a\"; sid:7;)";
    let check = |limits: &str, expected: &[(usize, Verdict)]| {
        let mut engine = limited(rule, limits).unwrap_or_else(|mistakes| panic!("{limits}: {mistakes:?}"));
        for (told, verdict) in expected {
            let (found, met) = on_packet(&mut engine, &mut FlowState::new(0), &packet(b"a"));
            assert_eq!((found.len(), met), (*told, *verdict), "{limits}");
        }
    };
    let (told, silent, passed) = ((1, Verdict::Drop), (0, Verdict::Drop), (0, Verdict::Pass));
    check("# none\n", &[told, told]);
    check("suppress gen_id 1, sig_id 7", &[silent]);
    check("suppress gen_id 1, sig_id 8", &[told]);
    check("suppress gen_id 1, sig_id 7, track by_src, ip [10.0.0.0/24,!10.0.0.1]", &[told]);
    check("suppress gen_id 1, sig_id 0, track by_either, \\\n ip $HOME_NET", &[silent]);
    check("threshold gen_id 1, sig_id 7, type limit, track by_src, count 1, seconds 60", &[told, silent]);
    check("event_filter gen_id 0, sig_id 0, type limit, track by_src, count 1, seconds 60", &[told, silent]);
    let rate = |action: &str| {
        format!("rate_filter gen_id 1, sig_id 7, track by_rule, count 1, seconds 60, new_action {action}, timeout 9")
    };
    check(&rate("alert"), &[told, (1, Verdict::Pass), (1, Verdict::Pass)]);
    check(&rate("pass"), &[told, passed]);
    check(&rate("reject"), &[told, (1, Verdict::Reject { source: true, target: false })]);
    for wrong in [
        "suppress gen_id 1",
        "suppress gen_id 0, sig_id 7",
        "suppress gen_id 1, sig_id 7, track by_src",
        "suppress gen_id 1, sig_id 7, track by_rule, ip any",
        "threshold gen_id 1, sig_id 7, type limit, track by_src, count 1",
        "rate_filter gen_id 1, sig_id 7, track by_src, count 1, seconds 1, new_action none, timeout 1",
        "rate_filter gen_id 1, sig_id 7, track by_src, count 1, seconds 1, new_action drop",
        "limit gen_id 1, sig_id 7",
    ] {
        assert!(limited(rule, wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_order_of_actions_was_fixed() {
    use rules::Order;
    let rules = "pass tcp any any -> any any (content:\"a\"; sid:1;)\n\
                 drop tcp any any -> any any (content:\"a\"; sid:2;)\n\
                 reject tcp any any -> any any (content:\"a\"; sid:3;)\n\
                 alert tcp any any -> any any (content:\"a\"; sid:4;)";
    let check = |order: &str, expected: &[u32]| {
        let order = Order::of_names(order.split(',')).unwrap();
        let set = RuleSet::read(rules, &Options { order, ..Options::default() }).unwrap();
        let (found, _) = on_packet(&mut Engine::new(Arc::new(set)), &mut FlowState::new(0), &packet(b"a"));
        assert_eq!(found, expected, "{order:?}");
    };
    check("pass,drop,reject,alert", &[]);
    check("drop,pass,reject,alert", &[2]);
    check("alert,reject,pass,drop", &[4, 3]);
    check("alert,drop,reject,pass", &[4, 2, 3]);
    for wrong in
        ["pass,drop,reject", "pass,drop,reject,reject", "pass,drop,reject,accept", "pass,drop,reject,alert,alert"]
    {
        assert_eq!(Order::of_names(wrong.split(',')), None, "{wrong}");
    }
}
