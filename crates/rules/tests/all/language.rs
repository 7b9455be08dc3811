//! The rule language: mistakes with their positions, and what matches a payload.

use packet::Flow;
use rules::engine::Verdict;
use rules::event::TcpHeader;
use rules::names::{App, Buffer, Number};
use rules::{Engine, FlowState, Options, Packet, RuleSet, Transaction};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

fn set(text: &str) -> Result<RuleSet, Vec<rules::Mistake>> {
    RuleSet::read(text, &Options::default())
}

/// Rows: options behind a valid header, column of the mistake from the first option, part of the reason.
#[test]
fn mistakes_in_options() {
    const BEFORE: &str = "alert tcp any any -> any any (";
    let rows: &[(&str, u32, &str)] = &[
        ("content:\"a\";", 13, "sid is missing"),
        ("sid:0;", 7, "sid is missing"),
        ("sid:x;", 5, "is no number"),
        ("sid:1", 1, "a semicolon is missing"),
        ("msg:\"x; sid:1;", 5, "the closing quote is missing"),
        ("msg:x; sid:1;", 5, "a text in quotes is missing"),
        ("content:; sid:1;", 1, "content needs a value"),
        ("content:\"\"; sid:1;", 10, "the content is empty"),
        ("content:\"|4|\"; sid:1;", 12, "pairs of hexadecimal digits"),
        ("content:\"a\"; depth:x; sid:1;", 20, "no earlier byte_extract"),
        ("content:\"abc\"; depth:2; sid:1;", 16, "longer than its depth"),
        ("content:\"a\"; offset:1; distance:1; sid:1;", 24, "contradicts"),
        ("nocase; sid:1;", 1, "needs a content before it"),
        ("content:\"a\"; nocase:1; sid:1;", 21, "takes no value"),
        ("content:\"a\"; fast_pattern:1,1; sid:1;", 27, "not a part of the content"),
        ("content:\"a\"; fast_pattern; content:\"b\"; fast_pattern; sid:1;", 41, "looked for first"),
        ("pcre:\"/(/\"; sid:1;", 7, "not supported"),
        ("pcre:\"/a/q\"; sid:1;", 10, "the flag q"),
        ("byte_test:1,?,1,0; sid:1;", 13, "is no comparison"),
        ("byte_jump:1; sid:1;", 11, "needs 2 values"),
        ("byte_math:bytes 1, offset 0, oper /, rvalue 0, result x; sid:1;", 11, "divide by 0"),
        ("flow:to_server,to_client; sid:1;", 16, "contradicts"),
        ("flow:sideways; sid:1;", 6, "does not know"),
        ("flowbits:set; sid:1;", 10, "needs one name"),
        ("flowbits:set,a|b; sid:1;", 14, "only isset"),
        ("flowint:a,+; sid:1;", 11, "needs a value"),
        ("xbits:set,a; sid:1;", 7, "needs track"),
        ("threshold:type limit, track by_src, count 1; sid:1;", 11, "none of them 0"),
        ("dsize:70000; sid:1;", 7, "16 bits"),
        ("ttl:9-3; sid:1;", 5, "no number lies between"),
        ("bsize:3; sid:1;", 1, "needs a buffer"),
        ("to_md5; sid:1;", 1, "needs a buffer"),
        ("http.uri; content:\"a\"; tls.sni; sid:1;", 24, "is not of http"),
        ("http.uri; content:\"a\"; http.stat_code; content:\"2\"; sid:1;", 59, "both directions"),
        ("decode-event:no.such; sid:1;", 14, "the event no.such"),
        ("app-layer-protocol:nfs; sid:1;", 20, "not supported"),
        ("http.host; dataset:isset,a; sid:1;", 26, "needs a type"),
        ("http.host; dataset:isset,a,type string,load b; sid:1;", 45, "in the folder of the rules"),
        ("http.host; dataset:set,a,type string,save b; sid:1;", 38, "write no files"),
        ("dataset:set,a,type string; sid:1;", 1, "needs a buffer"),
        ("filemd5:list; sid:1;", 9, "in the folder of the rules"),
        ("filesize:>1 apple; sid:1;", 10, "is no size"),
        ("dce_iface:1234; sid:1;", 11, "is no UUID"),
        ("dce_iface:01010101-0101-0101-0101-010101010101,1; sid:1;", 48, "a version stands behind"),
        ("dce_opnum:1,x; sid:1;", 13, "is no number"),
        ("dce_opnum:1,9-2; sid:1;", 13, "no number lies between"),
        ("http2.settings:NONE; sid:1;", 16, "the setting NONE"),
        ("websocket.flags:fin,none; sid:1;", 21, "no flag none"),
        ("frame:none.pdu; sid:1;", 7, "the frame none.pdu"),
        ("http.uri; content:\"a\"; ssh.proto; sid:1;", 24, "is not of http"),
        ("classtype:none; sid:1;", 11, "is not known"),
        ("lua:a.lua; sid:1;", 1, "the keyword lua"),
        ("nonsense; sid:1;", 1, "the keyword nonsense"),
    ];
    let mut wrong = Vec::new();
    for (options, column, reason) in rows {
        let mistakes = set(&format!("{BEFORE}{options})")).expect_err(options);
        let found: Vec<(u32, &str)> = mistakes.iter().map(|it| (it.column, &*it.reason)).collect();
        let [(at, said)] = found[..] else { panic!("{options}: {found:?}") };
        if !said.contains(reason) || at != BEFORE.len() as u32 + column {
            wrong.push(format!("{options}: column {}: {said}", at - BEFORE.len() as u32));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mistakes_in_headers() {
    let rows: &[(&str, u32, &str)] = &[
        ("warn tcp any any -> any any (sid:1;)", 1, "is no action"),
        ("accept:hook tcp:all any any -> any any (sid:1;)", 1, "firewall"),
        ("alert nfs any any -> any any (sid:1;)", 7, "the protocol nfs"),
        ("alert udp any any -> any any (quic.sni; content:\"a\"; sid:1;)", 1, "the feature quic"),
        ("alert tcp any any <- any any (sid:1;)", 19, "no direction"),
        ("alert tcp any -> any any (sid:1;)", 26, "a rule begins with"),
        ("alert tcp 1.2.3 any -> any any (sid:1;)", 11, "is no address"),
        ("alert tcp $NONE any -> any any (sid:1;)", 11, "is not set"),
        ("alert tcp any 99999 -> any any (sid:1;)", 15, "is no port"),
        ("alert tcp any any -> any any (decode-event:ipv4.odd; sid:1;)", 44, "the event ipv4.odd is not supported"),
        ("alert tcp any any -> any any (stream-event:odd; sid:1;)", 44, "the event odd is not supported"),
        ("alert http any any -> any any (app-layer-event:http.odd; sid:1;)", 48, "the event http.odd is not supported"),
        ("alert dns any any -> any any (dns.rrtype:1,x; sid:1;)", 44, "is no number"),
        ("alert dns any any -> any any (dns.rrtype:1,0,2; sid:1;)", 46, "takes a comparison and a place"),
        ("alert http any any -> any any (file.data; entropy:value >9; sid:1;)", 57, "is no number from 0 to 8"),
        ("alert http any any -> any any (file.data; entropy:offset 1; sid:1;)", 51, "entropy needs a value"),
        ("alert http any any -> any any (http.uri; gunzip:max-size 0; sid:1;)", 58, "max-size is from 1"),
        ("alert http any any -> any any (http.uri; gunzip:8; sid:1;)", 49, "max-size and a number are needed"),
        ("alert tcp any any -> any any (ftpbounce:1; sid:1;)", 41, "takes no value"),
        ("alert sctp any any -> any any (sctp.chunk_type:odd; sid:1;)", 48, "is no number"),
        ("alert ip any any -> any any (requires:feature ja3, feature odd; sid:1;)", 52, "a feature"),
        ("alert ip any any -> any any (ipopts:odd; sid:1;)", 37, "is no option of IP"),
        ("alert tcp any any -> any any (pcre:\"/(a)/,x\"; sid:1;)", 43, "a capture is named by"),
        (
            "alert tcp any any -> any any (detection_filter:track by_src, count 1, seconds 1, unique_on ttl; sid:1;)",
            92,
            "unique_on takes",
        ),
        ("alert tcp any any -> any any sid:1;", 36, "a bracket"),
        ("alert tcp any any -> any any (sid:1;", 37, "the closing bracket"),
    ];
    for (rule, column, reason) in rows {
        let mistakes = set(rule).expect_err(rule);
        assert!(mistakes[0].reason.contains(reason), "{rule}: {}", mistakes[0].reason);
        assert_eq!(mistakes[0].column, *column, "{rule}: {}", mistakes[0].reason);
    }
}

#[test]
fn places_in_a_file() {
    let file = "# comment\nalert tcp any any -> any any ( \\\n   content:\"a\"; \\\n   lua:x; sid:1;)\n\nalert tcp any any -> any any (sid:2;)\n\
                alert tcp any any -> any any (sid:2;)\n";
    let mistakes = set(file).unwrap_err();
    let found: Vec<(u32, u32)> = mistakes.iter().map(|it| (it.line, it.column)).collect();
    assert_eq!(found, [(4, 4), (7, 1)], "{mistakes:?}");
    let partial = RuleSet::read(file, &Options { partial: true, ..Options::default() }).unwrap();
    assert_eq!((partial.len(), partial.left_out().len()), (1, 2));
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

/// Returns the sids that alert, and the verdict.
fn alerts(engine: &mut Engine, flow: &mut FlowState, payload: &[u8]) -> (Vec<u32>, Verdict) {
    let packet = packet(payload);
    engine.begin();
    engine.packet(&packet, Some(flow), None);
    let mut found = Vec::new();
    let verdict = engine.finish(&packet, Some(flow), |rule, _| found.push(rule.sid));
    (found, verdict)
}

fn engine(rules: &str) -> Engine {
    Engine::new(Arc::new(set(rules).unwrap_or_else(|mistakes| panic!("{rules}: {mistakes:?}"))))
}

/// Rows: options, payload, whether the rule matches.
#[test]
fn contents_and_numbers() {
    let rows: &[(&str, &[u8], bool)] = &[
        ("content:\"b\";", b"abc", true),
        ("content:\"B\";", b"abc", false),
        ("content:\"B\"; nocase;", b"abc", true),
        ("content:!\"b\";", b"abc", false),
        ("content:!\"x\";", b"abc", true),
        ("content:\"a\"; startswith;", b"abc", true),
        ("content:\"b\"; startswith;", b"abc", false),
        ("content:\"c\"; endswith;", b"abc", true),
        ("content:\"b\"; endswith;", b"abc", false),
        ("content:!\"b\"; endswith;", b"abc", true),
        ("content:\"b\"; offset:1;", b"abc", true),
        ("content:\"b\"; offset:2;", b"abc", false),
        ("content:\"b\"; depth:1;", b"abc", false),
        ("content:\"b\"; offset:1; depth:1;", b"abc", true),
        ("content:\"a\"; content:\"c\"; distance:1;", b"abc", true),
        ("content:\"a\"; content:\"c\"; distance:2;", b"abc", false),
        ("content:\"a\"; content:\"c\"; within:1;", b"abc", false),
        ("content:\"a\"; content:\"c\"; distance:1; within:1;", b"abc", true),
        ("content:\"c\"; content:\"a\"; distance:-3;", b"abc", true),
        // The first match fails, the second succeeds.
        ("content:\"a\"; content:\"b\"; distance:0; within:1;", b"axab", true),
        ("content:\"a\"; content:!\"b\"; within:1;", b"ab", false),
        ("content:\"a\"; content:!\"b\"; within:1;", b"axb", true),
        ("content:\"a\"; pcre:\"/^b/R\";", b"aab", true),
        ("content:\"a\"; isdataat:1,relative;", b"ab", true),
        ("content:\"b\"; isdataat:1,relative;", b"ab", false),
        ("content:\"b\"; isdataat:!1,relative;", b"ab", true),
        ("byte_extract:1,0,n; content:\"x\"; offset:n; depth:1;", b"\x03..x", true),
        ("byte_extract:1,0,n; content:\"x\"; offset:n; depth:1;", b"\x02..x", false),
        ("content:\"a\"; byte_test:1,>,4,0,relative;", b"a\x05", true),
        ("content:\"a\"; byte_jump:1,0,relative; content:\"z\"; distance:0; within:1;", b"a\x02..z", true),
        ("content:\"a\"; byte_jump:1,0,relative; content:\"z\"; distance:0; within:1;", b"a\x01..z", false),
        ("byte_math:bytes 1, offset 0, oper +, rvalue 1, result n; byte_test:1,=,n,1;", b"\x01\x02", true),
        ("content:\"=\"; base64_decode:relative; base64_data; content:\"hello\";", b"x=aGVsbG8", true),
        ("dsize:3;", b"abc", true),
        ("dsize:>3;", b"abc", false),
        ("flags:PA;", b"", true),
        ("flags:S;", b"", false),
        ("flags:P+;", b"", true),
        ("flow:to_server,established;", b"a", true),
        ("flow:to_client;", b"a", false),
    ];
    for (options, payload, expected) in rows {
        let mut engine = engine(&format!("alert tcp any any -> any 80 ({options} sid:7;)"));
        let (found, verdict) = alerts(&mut engine, &mut FlowState::new(0), payload);
        assert_eq!((found == [7], verdict), (*expected, Verdict::Pass), "{options} on {payload:?}");
    }
}

#[test]
fn bits_numbers_and_actions() {
    let mut one = engine(
        "alert tcp any any -> any any (content:\"a\"; flowbits:set,seen; flowint:n,+,1; sid:1;)\n\
         alert tcp any any -> any any (content:\"b\"; flowbits:isset,seen; sid:2;)\n\
         alert tcp any any -> any any (content:\"c\"; flowint:n,>=,2; sid:3;)\n\
         alert tcp any any -> any any (content:\"d\"; flowbits:unset,seen; sid:4;)\n\
         alert tcp any any -> any any (content:\"q\"; noalert; sid:5;)\n\
         drop tcp any any -> any any (content:\"x\"; sid:6;)\n\
         pass tcp any any -> any any (content:\"p\"; sid:8;)\n\
         alert tcp any any -> any any (content:\"p\"; sid:9;)\n",
    );
    let mut flow = FlowState::new(0);
    let mut check = |payload: &[u8], expected: &[u32], verdict: Verdict| {
        assert_eq!(alerts(&mut one, &mut flow, payload), (expected.to_vec(), verdict), "{payload:?}");
    };
    check(b"b", &[], Verdict::Pass);
    check(b"ab", &[1, 2], Verdict::Pass);
    check(b"c", &[], Verdict::Pass);
    check(b"a", &[1], Verdict::Pass);
    check(b"c", &[3], Verdict::Pass);
    check(b"d", &[4], Verdict::Pass);
    check(b"b", &[], Verdict::Pass);
    check(b"q", &[], Verdict::Pass);
    check(b"x", &[6], Verdict::Drop);
    check(b"p", &[], Verdict::Pass);
}

#[test]
fn work_of_a_packet_is_bounded() {
    let mut engine = engine(
        "alert tcp any any -> any any (content:\"a\"; content:\"a\"; distance:0; content:\"a\"; distance:0; content:\"a\"; distance:0; \
         content:\"a\"; distance:0; content:\"b\"; distance:0; sid:1;)",
    );
    let payload = [b'a'; 1400];
    assert_eq!(alerts(&mut engine, &mut FlowState::new(0), &payload).0, []);
    assert_eq!(engine.take_bounds().steps, 1);
}

#[test]
fn transactions() {
    let mut engine = engine(
        "alert http any any -> any any (http.method; content:\"GET\"; http.uri; content:\"/x\"; startswith; sid:1;)\n\
         alert http any any -> any any (http.uri; to_md5; content:|22|; sid:2;)\n"
            .replace("|22|", "\"|9d d4 e4 61 26 8c 80 34 f5 c8 56 4e 15 5c 67 a6|\"")
            .as_str(),
    );
    let mut flow = FlowState::new(0);
    flow.app = App::Http1;
    let mut one = Transaction::new(App::Http1, 0);
    let packet = packet(b"");
    let mut show = |one: &mut Transaction| {
        engine.begin();
        engine.transaction(&packet, Some(&mut flow), one, true, None);
        let mut found = Vec::new();
        engine.finish(&packet, Some(&mut flow), |rule, _| found.push(rule.sid));
        found
    };
    one.put_copy(Buffer::HTTP_METHOD, true, b"GET");
    assert_eq!(show(&mut one), []);
    one.put_copy(Buffer::HTTP_URI, true, b"x");
    assert_eq!(show(&mut one), [2], "the digest of x");
    let mut other = Transaction::new(App::Http1, 1);
    other.put_copy(Buffer::HTTP_METHOD, true, b"GET");
    other.put_copy(Buffer::HTTP_URI, true, b"/x/y");
    assert_eq!(show(&mut other), [1]);
    assert_eq!(show(&mut other), [], "once for each transaction");
}

#[test]
fn headers_of_packets() {
    // An SCTP packet: INIT ACK with a cookie, and data.
    let header = [0x0f, 0xa0, 0, 80, 0xd4, 0x29, 0x7e, 0x12, 0, 0, 0, 0];
    let chunks = [&[2, 0, 0, 5, 9, 0, 0, 0][..], &[0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], b"data"].concat();
    let mut network = [0u8; 20];
    (network[0], network[9]) = (0x45, 132);
    network[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sctp = Packet { network: &network, transport: &header, payload: &chunks, tcp: None, ..packet(b"") };
    let sctp = Packet { flow: sctp.flow.map(|flow| Flow { protocol: 132, ..flow }), ..sctp };
    let arp =
        Packet { flow: None, version: 0, link: &[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 6], tcp: None, ..packet(b"") };
    let rows: &[(&str, &Packet<'_>, bool)] = &[
        ("sctp any any -> any any (sctp.chunk_type:init_ack;", &sctp, true),
        ("sctp any any -> any any (sctp.chunk_type:abort;", &sctp, false),
        ("sctp any any -> any any (sctp.chunk_cnt:2;", &sctp, true),
        ("sctp any any -> any any (sctp.vtag:3559489042;", &sctp, true),
        ("sctp any any -> any any (sctp.chunk_data; content:\"data\"; startswith; endswith;", &sctp, true),
        ("ip any any -> any any (ip.src; content:\"|0a 00 00 01|\"; startswith; endswith;", &sctp, true),
        ("ip any any -> any any (ip.dst; content:\"|0a 00 00 01|\";", &sctp, false),
        ("arp any any -> any any (", &arp, true),
        ("arp any any -> any any (", &sctp, false),
        // A variable set from one buffer is usable in the next.
        ("ip any any -> any any (ip.src; byte_extract:1,0,n; ip.dst; byte_test:1,=,n,0;", &sctp, true),
        ("ip any any -> any any (ip.src; byte_extract:1,3,n; ip.dst; byte_test:1,=,n,0;", &sctp, false),
    ];
    for (rule, packet, expected) in rows {
        let mut engine = engine(&format!("alert {rule} sid:7;)"));
        engine.begin();
        engine.packet(packet, None, None);
        let mut found = Vec::new();
        engine.finish(packet, None, |rule, _| found.push(rule.sid));
        assert_eq!(found == [7], *expected, "{rule}");
    }
}

#[test]
fn events_and_verdicts() {
    let mut engine = engine(
        "alert tcp any any -> any any (decode-event:ipv4.opt_invalid; sid:1;)\n\
         drop tcp any any -> any any (stream-event:stream.est_synack_resend_with_diff_ack; sid:2;)\n",
    );
    assert!(engine.asks_for_decode_events() && engine.asks_for_stream_events());
    let events = ["ipv4.opt_invalid", "est_synack_resend_with_different_ack"];
    let odd = Packet { events: &events, ..packet(b"") };
    engine.begin();
    engine.packet(&odd, None, None);
    let mut found = Vec::new();
    engine.finish(&odd, None, |rule, found_one| found.push((rule.sid, found_one.verdict)));
    assert_eq!(found, [(2, Verdict::Drop), (1, Verdict::Drop)]);
}

/// Both sides are compared together, and match once.
#[test]
fn numbers_of_an_exchange() {
    let rule = "alert mqtt any any -> any any (mqtt.type:CONNECT,0; mqtt.type:CONNACK,1; sid:1;)";
    let mut engine = engine(rule);
    let mut flow = FlowState::new(0);
    flow.app = App::Mqtt;
    let mut one = Transaction::new(App::Mqtt, 0);
    one.is_one = true;
    let packet = packet(b"");
    let mut show = |one: &mut Transaction, to_server: bool| {
        engine.begin();
        engine.transaction(&packet, Some(&mut flow), one, to_server, None);
        let mut count = 0;
        engine.finish(&packet, Some(&mut flow), |_, _| count += 1);
        count
    };
    one.put_number(Number::MQTT_TYPE, true, 1);
    assert_eq!(show(&mut one, true), 0);
    one.put_number(Number::MQTT_TYPE, false, 2);
    assert_eq!((show(&mut one, false), show(&mut one, true)), (1, 0));
}
