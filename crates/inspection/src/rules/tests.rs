//! Rules over frames, through the whole filter.

mod readings;

use super::*;
use testkit::frames::real_and_damaged;
use testkit::packets::{CLIENT, SERVER, flag, tcp, udp};
use testkit::random::Random;
use testkit::{Chain, Outcome};

fn run(rules: &str, frames: &[Vec<u8>]) -> Outcome {
    run_with(rules, frames, &[])
}

fn run_with(rules: &str, frames: &[Vec<u8>], given: &[(&str, &str)]) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.rules");
    std::fs::write(&file, rules).unwrap();
    let frames: Vec<_> = (0..).map(|at| at * 1_000_000).zip(frames.iter().cloned()).collect();
    Chain::frames(1, &frames).then(&KIND, &[&[("file", file.to_str().unwrap())], given].concat()).run()
}

/// Returns the sids that alerted, in order.
fn alerts(outcome: &Outcome) -> Vec<u64> {
    let sid = |bytes: &[u8]| Row::new(&row::SCHEMA, bytes).unwrap().number("alert.signature_id").unwrap();
    outcome.blocks.iter().map(|block| sid(&block.bytes)).collect()
}

/// The frames of a client that sends these pieces.
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
    // An early segment is inspected in its turn.
    let mut frames = connection(&[b"evil ", b"twin"]);
    frames.swap(3, 4);
    assert_eq!(alerts(&run(rule, &frames)), [1]);
}

#[test]
fn contents_with_a_place_are_looked_for_in_each_segment_and_at_the_start_of_the_stream() {
    let check = |rule: &str, pieces: &[&[u8]], count: usize| {
        let rule = format!("alert {rule} sid:1;)");
        assert_eq!(alerts(&run(&rule, &connection(pieces))).len(), count, "{rule} {pieces:?}");
    };
    let records: [&[u8]; 4] = [b"    HELLO", b"    BAD one", b"    ok", b"    BAD two"];
    check("tcp any any -> any any (content:\"BAD\"; depth:8;", &records, 2);
    check("tcp any any -> any any (content:\"BAD\"; offset:4; depth:3;", &records, 2);
    check(
        "tcp any any -> any any (flow:established,to_server; content:\"    \"; startswith; content:\"BAD\";",
        &records,
        2,
    );
    check("ip any any -> any any (content:\"BAD\"; depth:8; content:\"two\"; distance:1; within:3;", &records, 1);
    check("tcp any any -> any any (content:!\"B\"; offset:4; depth:1; pcre:\"/^ +[a-z]/\";", &records, 1);
    // In the stream, also where it is cut; and once for one packet.
    check("tcp any any -> any any (content:\"BAD\"; depth:3;", &[b"B", b"A", b"D"], 1);
    check("tcp any any -> any any (content:\"BAD\"; depth:3;", &[b"BAD"], 1);
    // A place behind the start of the stream is not the place in a segment.
    check("tcp any any -> any any (content:\"BAD\"; offset:20; depth:10;", &records, 0);
    check("tcp-stream any any -> any any (content:\"BAD\"; depth:8;", &records, 0);
    check("tcp any any -> any any (flow:only_stream; content:\"BAD\"; depth:8;", &records, 0);
}

#[test]
fn each_layer_of_nested_tunnels_is_a_packet() {
    let end = |last: u8| std::net::Ipv4Addr::new(10, last, 0, 2);
    let around = |inner: &[u8], last: u8| testkit::packets::ipv4(CLIENT.0, end(last), 4, &inner[14..]);
    let inner = udp(CLIENT, (end(7), 9), b"some text");
    let frame = around(&around(&around(&inner, 8), 9), 10);
    let rules = "alert ip any any -> 10.7.0.2 any (sid:7;)\nalert ip any any -> 10.8.0.2 any (sid:8;)\n\
                 alert ip any any -> 10.9.0.2 any (sid:9;)\nalert ip any any -> 10.10.0.2 any (sid:10;)\n\
                 alert pkthdr any any -> any any (decode-event:too_many_layers; sid:11;)";
    assert_eq!(alerts(&run(rules, std::slice::from_ref(&frame))), [10, 9, 8, 7]);
    // A frame of IPv6 with more extension headers than are read.
    let mut headers = vec![0x60, 0, 0, 0, 1, 64, 60, 64];
    headers.extend([2; 32]);
    headers.extend([60, 0, 1, 4, 0, 0, 0, 0].repeat(40));
    let outcome = run(rules, &[[&[2; 12][..], &[0x86, 0xdd], &headers].concat()]);
    let unread = outcome.counters("rules").events.get("too many ipv6 extension headers");
    assert_eq!((alerts(&outcome), unread), (vec![11], 1));
    let deep = (0..7).fold(frame, |inner, _| around(&inner, 11));
    let outcome = run(rules, &[deep]);
    assert_eq!((alerts(&outcome), outcome.counters("rules").events.get("tunnels too deep")), (vec![10, 9, 11], 1));
}

#[test]
fn the_header_of_a_router_advertisement_has_its_addresses() {
    let rules = "alert icmp any any -> any any (icmpv4.hdr; content:\"|c0 00 02 01|\"; offset:8; depth:4; sid:1;)\n\
                 alert icmp any any -> any any (content:\"behind\"; depth:6; sid:2;)\n\
                 alert icmp any any -> any any (icmpv4.hdr; content:\"behind\"; sid:3;)";
    let check = |count: u8, expected: &[u64]| {
        let message = [&[9, 0, 0, 0, count, 2, 0, 9, 192, 0, 2, 1, 0, 0, 0, 0][..], b"behind"].concat();
        let frame = testkit::packets::ipv4(CLIENT.0, SERVER.0, 1, &message);
        assert_eq!(alerts(&run(rules, &[frame])), expected, "{count} addresses");
    };
    check(1, &[1, 2]);
    check(0, &[]);
    check(200, &[1, 3]);
}

#[test]
fn connections_joined_midway_are_read_or_not() {
    let rules = "alert tcp any any -> any any (content:\"evil\"; sid:1;)\n\
                 alert tcp any any -> any any (flow:established; content:\"evil\"; sid:2;)\n\
                 alert tcp any any -> any any (content:\"split\"; sid:3;)\n\
                 alert tcp-pkt any any -> any any (content:\"evil\"; sid:4;)";
    let mut frames = connection(&[b"evil", b"spl", b"it", b"evil"]);
    frames.drain(..3);
    // The next connection between the same ports is seen from its start. Its bytes were read before, at those places.
    let next = connection(&[b"evil"]);
    for (midstream, expected, both) in
        [("yes", &[1, 2, 4, 3, 1, 2, 4][..], 8), ("no", &[4, 4], 5), ("pass", &[], 3), ("drop", &[], 3)]
    {
        let given = [("midstream", midstream)];
        assert_eq!(alerts(&run_with(rules, &frames, &given)), expected, "{midstream}");
        let all = [&frames[..], &next].concat();
        let outcome = run_with(rules, &all, &given);
        assert_eq!(alerts(&outcome).len(), both, "{midstream}");
        let joined = outcome.counters("rules").events.get("connections joined midway");
        assert_eq!(joined, u64::from(midstream != "yes"));
    }
}

#[test]
fn the_server_of_a_connection_joined_midway_has_the_known_port_or_is_told_by_its_bytes() {
    let rules = "alert tcp any any -> any any (flow:to_server; content:\"EVIL\"; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"evil\"; sid:2;)\n\
                 alert tcp any any -> any any (flow:to_client; content:\"200\"; sid:3;)";
    let check = |ports: [u16; 2], client: &[u8], server: &[u8], expected: &[u64]| {
        let (from, to) = ((CLIENT.0, ports[0]), (SERVER.0, ports[1]));
        let flags = flag::ACK | flag::PSH;
        let frames = [tcp(to, from, 50, 10, flags, server), tcp(from, to, 10, 50 + server.len() as u32, flags, client)];
        assert_eq!(alerts(&run(rules, &frames)), expected, "{ports:?}");
    };
    check([40_000, 445], b"EVIL", b"hello", &[1]);
    check([1000, 2049], b"EVIL", b"hello", &[1]);
    check([40_000, 445], b"hello", b"EVIL", &[]);
    // HTTP tells who serves it, although the ports say otherwise.
    check([30_000, 40_000], b"GET /evil HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &[3, 2]);
    check([30_000, 40_000], b"GET /evil HTTP/1.1\r\n\r\n", b"", &[2]);
}

#[test]
fn a_stream_or_packet_in_and_out_of_a_tunnel_is_an_event() {
    let around = |inner: &[u8]| testkit::packets::ipv4(CLIENT.0, SERVER.0, 4, &inner[14..]);
    let rules = "alert tcp any any -> any any (stream-event:split_by_tunnel; sid:1;)\n\
                 alert pkthdr any any -> any any (decode-event:ipv4.frag_split_by_tunnel; sid:2;)";
    let mut frames = connection(&[b"one", b"two"]);
    frames[4] = around(&frames[4]);
    assert_eq!(alerts(&run(rules, &frames)), [1]);
    let fragment = |flags: u16| {
        let mut frame = udp(CLIENT, SERVER, &[7; 16]);
        frame[20..22].copy_from_slice(&flags.to_be_bytes());
        frame
    };
    let outcome = run(rules, &[fragment(0x2000), around(&fragment(3))]);
    assert_eq!(alerts(&outcome), [2]);
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
fn llmnr_over_tcp_had_no_parser() {
    let mut query = vec![0, 29, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend_from_slice(b"\x03www\x07example\x00\x00\x01\x00\x01");
    query[1] = (query.len() - 2) as u8;
    let rule = "alert llmnr any any -> any any (llmnr.queries.rrname; content:\"www.example\"; sid:1;)";
    let server = (SERVER.0, 5355);
    let frames = [
        tcp(CLIENT, server, 99, 0, flag::SYN, b""),
        tcp(server, CLIENT, 499, 100, flag::SYN | flag::ACK, b""),
        tcp(CLIENT, server, 100, 500, flag::ACK, &query[..9]),
        tcp(CLIENT, server, 109, 500, flag::ACK, &query[9..]),
    ];
    assert_eq!(alerts(&run(rule, &frames)), [1]);
}

#[test]
fn whatever_comes_is_survived() {
    let rules = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures/example.rules")).unwrap();
    let each = "alert ip any any -> any any (pcre:\"/a.*b/s\"; sid:100;)\nalert pkthdr any any -> any any (decode-event:ipv4.trunc_pkt; sid:101;)\n\
                alert tcp any any -> any any (tcpv4-csum:invalid; sid:102;)\n\
                alert tcp any any -> any any (stream-event:pkt_retransmission; sid:104;)\n\
                alert sctp any any -> any any (sctp.chunk_cnt:>1; sid:105;)\nalert http any any -> any any (http.start; content:\"a\"; sid:103;)";
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

/// Each partition would count for itself, and fragments have no ports to find the partition of their flow.
#[test]
fn one_instance_counts_over_all_flows_for_any_number_of_workers() {
    use filter::partition::Partitioning;
    assert_eq!([&KIND, &crate::ips::KIND].map(Partitioning::of), [Partitioning::Single; 2]);
    assert_eq!(Partitioning::of(&filters::udp::KIND), Partitioning::Begins);
    // A segment in two fragments belongs to its connection; the threshold counts other flows of the client.
    let rules = "alert tcp any any -> any any (content:\"an attack\"; sid:1;)\n\
                 alert udp any any -> any any (content:\"x\"; threshold:type both, track by_src, count 9, seconds 60; sid:2;)";
    let mut frames = connection(&[b"an att"]);
    let segment = tcp(CLIENT, SERVER, 106, 500, flag::ACK, b"ack it is, and more");
    for (offset, flags, payload) in [(0u16, 0x2000, &segment[34..58]), (3, 0, &segment[58..])] {
        let mut frame = testkit::packets::ipv4(CLIENT.0, SERVER.0, 6, payload);
        frame[20..22].copy_from_slice(&(offset | flags).to_be_bytes());
        frames.push(frame);
    }
    frames.extend((0..9).map(|port| udp((CLIENT.0, 4000 + port), (SERVER.0, 9), b"x")));
    assert_eq!(alerts(&run(rules, &frames)), [1, 2]);
}

/// A greeting that is longer than the detector keeps, or has many lines, must not hide the protocol.
#[test]
fn the_header_of_a_proxy_hides_no_protocol() {
    let rule = "alert http any any -> any any (http.uri; content:\"/a\"; bsize:2; sid:1;)";
    let request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    for header in [&b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 80\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let all = [header, request].concat();
        assert_eq!(alerts(&run(rule, &connection(&[&all]))), [1], "{}", all.escape_ascii());
        for split in header.len() - 2..header.len() + 9 {
            let (first, second) = all.split_at(split);
            assert_eq!(alerts(&run(rule, &connection(&[first, second]))), [1], "{split} of {}", all.escape_ascii());
        }
    }
}

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

/// Builds an IPv4 fragment in Ethernet. `at`: offset in units of 8 bytes; `more`: more fragments follow.
fn fragment(at: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = testkit::packets::ipv4(CLIENT.0, SERVER.0, 17, payload);
    let start = frame.len() - payload.len() - 20;
    let field = at | u16::from(more) << 13;
    frame[start + 4..start + 8].copy_from_slice(&[0, 7, (field >> 8) as u8, field as u8]);
    frame
}

#[test]
fn fragments_are_seen_as_they_came_and_whole() {
    let rules = "alert ip any any -> any any (fragbits:M; sid:1;)\n\
                 alert udp any any -> any 53 (content:\"evil twin\"; sid:2;)\n\
                 alert pkthdr any any -> any any (decode-event:ipv4.frag_overlap; sid:3;)\n\
                 alert pkthdr any any -> any any (decode-event:ipv4.frag_pkt_too_large; sid:4;)";
    let datagram = [&[0x0f, 0xa0, 0, 53, 0, 24, 0, 0][..], b"evil twinxxxxxxx"].concat();
    let (head, tail) = datagram.split_at(16);
    let check = |frames: &[Vec<u8>], expected: &[u64]| {
        let mut found = alerts(&run(rules, frames));
        found.sort_unstable();
        assert_eq!(found, expected);
    };
    check(&[fragment(0, true, head), fragment(2, false, tail)], &[1, 2]);
    check(&[fragment(0, true, head), fragment(0, true, head), fragment(2, false, tail)], &[1, 1, 2, 3]);
    check(&[fragment(0x1fff, false, &[1; 64])], &[4]);
}

#[test]
fn a_connection_of_ftp_carries_the_file_that_was_asked_for() {
    let rules = "alert ftp-data any any -> any any (ftpdata_command:retr; file.data; content:\"root\"; sid:1;)\n\
                 alert ftp-data any any -> any any (ftpdata_command:stor; sid:2;)\n\
                 alert tcp any any -> any any (ftpbounce; sid:3;)";
    let client = CLIENT.0.octets().map(|octet| octet.to_string()).join(",");
    let port = format!("PORT {client},4,1\r\n");
    let mut frames = connection(&[b"USER a\r\n", port.as_bytes(), b"RETR file\r\n"]);
    let data = (CLIENT.0, 4 * 256 + 1);
    frames.extend([
        tcp((SERVER.0, 20), data, 9, 0, flag::SYN, b""),
        tcp(data, (SERVER.0, 20), 49, 10, flag::SYN | flag::ACK, b""),
        tcp((SERVER.0, 20), data, 10, 50, flag::ACK, b"root:x"),
    ]);
    assert_eq!(alerts(&run(rules, &frames)), [1]);
    assert_eq!(alerts(&run(rules, &connection(&[b"USER a\r\n", b"PORT 9,9,9,9,4,1\r\n"]))), [3]);
}

#[test]
fn ip_of_another_version_than_the_link_says() {
    let rules = "alert pkthdr any any -> any any (decode-event:ipv4.wrong_ip_version; sid:4;)\n\
                 alert pkthdr any any -> any any (decode-event:ipv6.wrong_ip_version; sid:6;)";
    let frame = |kind: [u8; 2], first: u8| {
        let mut frame = udp(CLIENT, SERVER, b"data");
        (frame[12], frame[13], frame[14]) = (kind[0], kind[1], first);
        frame.resize(80, 0);
        frame
    };
    assert_eq!(alerts(&run(rules, &[frame([8, 0], 0x65), frame([0x86, 0xdd], 0x45)])), [4, 6]);
}

#[test]
fn sides_that_do_not_speak_the_same() {
    let rules = "alert tcp any any -> any any (app-layer-event:applayer_mismatch_protocol_both_directions; sid:1;)\n\
                 alert tcp any any -> any any (app-layer-event:applayer_detect_protocol_only_one_direction; sid:2;)\n\
                 alert tcp any any -> any any (app-layer-event:applayer_wrong_direction_first_data; sid:3;)\n\
                 alert tcp any any -> any any (app-layer-event:applayer_no_tls_after_starttls; sid:4;)\n\
                 alert http any any -> any any (app-layer-event:http.missing_host_header; sid:5;)";
    let exchange = |first: &[u8], second: &[u8]| {
        let mut frames = connection(&[first]);
        frames.push(tcp(SERVER, CLIENT, 500, 100 + first.len() as u32, flag::ACK, second));
        alerts(&run(rules, &frames))
    };
    let request = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(exchange(request, b"HTTP/1.0 200 OK\r\n\r\n"), [0; 0]);
    assert_eq!(exchange(request, b"SSH-2.0-x\r\n"), [1]);
    assert_eq!(exchange(request, b"nothing that is known"), [2]);
    assert_eq!(exchange(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"), [5]);
    let mut frames = connection(&[]);
    frames.push(tcp(SERVER, CLIENT, 500, 100, flag::ACK, b"HTTP/1.0 200 OK\r\n\r\n"));
    assert_eq!(alerts(&run(rules, &frames)), [3]);
    let mut frames = connection(&[b"EHLO a\r\nSTARTTLS\r\n"]);
    frames.push(tcp(SERVER, CLIENT, 500, 118, flag::ACK, b"220 a\r\n250 a\r\n220 go\r\n"));
    frames.push(tcp(CLIENT, SERVER, 118, 522, flag::ACK, b"MAIL FROM:<a>\r\n"));
    assert_eq!(alerts(&run(rules, &frames)), [4]);
}

/// Concatenates the source files of this folder without their tests.
fn sources(folder: &std::path::Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            all += &sources(&entry);
        } else if entry.file_name().is_some_and(|name| name != "tests.rs") {
            let text = std::fs::read_to_string(entry).unwrap();
            all += text.split("#[cfg(test)]").next().unwrap_or_default();
        }
    }
    all
}

/// A rule on an event that is never raised could never match. An event that rules may not name is raised in vain.
#[test]
fn events_that_rules_may_ask_for_are_raised() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crates.join("src/rules");
    let source = sources(&folder) + &sources(&crates.join("../protocols/src"));
    let names: Vec<&str> = ::rules::names::EVENTS.iter().flat_map(|(_, names)| *names).copied().collect();
    let silent: Vec<&&str> =
        names.iter().filter(|name| **name != "wrong_thread" && !source.contains(&format!("\"{name}\""))).collect();
    assert!(silent.is_empty(), "{silent:?}");
    let own = [
        "decode.rs",
        "decode/link.rs",
        "decode/transport.rs",
        "tcp_events.rs",
        "http_events.rs",
        "../../../protocols/src/tls/odd.rs",
    ];
    for file in own {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_name = |text: &&str| {
            text.contains('_')
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._".contains(&byte))
        };
        for name in code.split('"').skip(1).step_by(2).filter(is_name) {
            assert!(names.contains(&name), "{file} raises {name}");
        }
    }
}

/// All events at once, over real and damaged frames.
#[test]
fn all_events_over_whatever_comes() {
    let mut rules = String::new();
    let mut number = 0;
    for (keyword, names) in ::rules::names::EVENTS {
        for name in *names {
            number += 1;
            rules += &format!("alert pkthdr any any -> any any ({keyword}:{name}; sid:{number};)\n");
        }
    }
    let frames = real_and_damaged(3000, &mut Random(7));
    let outcome = run(&rules, &frames);
    assert_eq!(outcome.counters("rules").blocks_in, frames.len() as u64);
    let mut found = alerts(&outcome);
    found.sort_unstable();
    found.dedup();
    assert!(found.len() >= 15, "{found:?}");
}

/// Lossy decoding would turn one byte into three that no packet contains.
#[test]
fn a_byte_that_is_no_text_is_refused_with_its_line() {
    assert_eq!(text_of(b"# caf\xe9\nalert\n").as_deref(), Ok("# caf\u{fffd}\nalert\n"));
    assert_eq!(text_of(b"alert\n\nalert \xe9\n"), Err(3));
}

/// The frames of a dialogue; `true`: the client sends.
fn conversation(said: &[(bool, &[u8])]) -> Vec<Vec<u8>> {
    let mut frames = connection(&[]);
    let (mut client, mut server) = (100, 500);
    for (to_server, bytes) in said {
        if *to_server {
            frames.push(tcp(CLIENT, SERVER, client, server, flag::ACK, bytes));
            client += bytes.len() as u32;
        } else {
            frames.push(tcp(SERVER, CLIENT, server, client, flag::ACK, bytes));
            server += bytes.len() as u32;
        }
    }
    frames
}

fn sorted(rules: &str, said: &[(bool, &[u8])]) -> Vec<u64> {
    let mut found = alerts(&run(rules, &conversation(said)));
    found.sort_unstable();
    found
}

#[test]
fn http_becomes_a_websocket() {
    let rules = "alert websocket any any -> any any (websocket.payload; content:\"hello\"; sid:1;)\n\
        alert websocket any any -> any any (flow:to_client; websocket.opcode:text; websocket.flags:fin,!comp; sid:2;)\n\
        alert websocket any any -> any any (websocket.mask:1; frame:websocket.header; content:\"|81 85|\"; startswith; sid:3;)\n\
        alert http any any -> any any (http.stat_code; content:\"101\"; sid:4;)\n\
        alert tcp any any -> any any (app-layer-protocol:websocket; sid:5;)\n\
        alert websocket any any -> any any (websocket.flags:&0xc0=0xc0; sid:6;)";
    let request = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let answer = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n\x81\x02ok";
    let masked = b"\x81\x85\0\0\0\x01helmo";
    let expected = [1, 2, 3, 4, 5];
    assert_eq!(sorted(rules, &[(true, request), (false, answer), (true, masked)]), expected);
    // The first frame begins in the segment that ends the response.
    let (front, back) = answer.split_at(30);
    assert_eq!(sorted(rules, &[(true, request), (false, front), (false, back), (true, masked)]), expected);
}

#[test]
fn what_is_behind_connect_shows_itself() {
    let rules = "alert http any any -> any any (http.uri; content:\"/inner\"; sid:1;)\n\
                 alert ssh any any -> any any (ssh.software; content:\"inside\"; sid:2;)";
    let connect = b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(
        sorted(rules, &[(true, connect), (false, answer), (true, b"GET /inner HTTP/1.1\r\nHost: b\r\n\r\n")]),
        [1]
    );
    assert_eq!(sorted(rules, &[(true, connect), (false, b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0-inside\r\n")]), [2]);
}

/// A rule that is tried again with the body must not find its own value.
#[test]
fn a_set_takes_the_value_of_a_rule_that_matches() {
    let rule = "alert http any any -> any any (http.host; dataset:set,seen,type string; http.uri; content:\"/u\"; \
                fast_pattern; http.request_body; content:\"evil\"; sid:1;)\n\
                alert http any any -> any any (http.host; dataset:isset,seen; http.method; content:\"PUT\"; sid:2;)";
    let request = |method: &str, body: &str| {
        let length = body.len();
        format!("{method} /u HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    };
    let (good, evil, put) = (request("POST", "good"), request("POST", "evil"), request("PUT", "none"));
    for size in [1, evil.len() - 4, evil.len()] {
        let alerted = |requests: &[&[u8]]| -> Vec<u64> {
            let pieces: Vec<&[u8]> = requests.iter().flat_map(|request| request.chunks(size)).collect();
            alerts(&run(rule, &connection(&pieces)))
        };
        assert_eq!(alerted(&[&evil, &evil, &put]), [1, 2], "in pieces of {size}");
        assert!(alerted(&[&good, &put]).is_empty(), "in pieces of {size}");
    }
}

#[test]
fn http2_is_http() {
    let rules = "alert http any any -> any any (http.uri; content:\"/a\"; sid:1;)\n\
        alert http1 any any -> any any (http.uri; content:\"/a\"; sid:2;)\n\
        alert http2 any any -> any any (http.method; content:\"GET\"; sid:3;)\n\
        alert http2 any any -> any any (http2.frametype:HEADERS; http2.header_name; content:\":path\"; sid:4;)\n\
        alert http2 any any -> any any (http2.settings:SETTINGS_INITIAL_WINDOW_SIZE>4000; sid:5;)\n\
        alert http2 any any -> any any (http2.settings:SETTINGS_ENABLE_PUSH; sid:6;)\n\
        alert http2 any any -> any any (http2.errorcode:CANCEL; sid:7;)\n\
        alert http2 any any -> any any (http2.window:>5; sid:8;)\n\
        alert tcp any any -> any any (app-layer-protocol:http; sid:9;)\n\
        alert tcp any any -> any any (http2.header; content:\":path: /a\"; sid:10;)";
    let settings = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\x10\0";
    let head = b"\0\0\x0e\x01\x05\0\0\0\x01\x82\0\x05:path\x02/a\x87\x86\x86";
    let reset = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08\0\0\x04\x08\0\0\0\0\0\0\0\0\x09";
    let client = [protocols::http2::PREFACE, settings, head].concat();
    assert_eq!(sorted(rules, &[(true, &client), (false, settings), (true, reset)]), [1, 3, 4, 5, 5, 7, 8, 9, 10]);
    // The same after an upgrade, whose request is the first stream.
    let request = b"GET /b HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let answer = [&b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n"[..], settings].concat();
    let rules = "alert http2 any any -> any any (http.uri; content:\"/b\"; sid:1;)\n\
                 alert http1 any any -> any any (http.uri; content:\"/b\"; sid:2;)";
    assert_eq!(sorted(rules, &[(true, request), (false, &answer)]), [1, 2]);
}

#[test]
fn calls_of_dcerpc() {
    let rules = "alert tcp any any -> any any (flow:to_server; dce_iface:01010101-0101-0101-0101-010101010101,>2; dce_opnum:15; \
            dce_stub_data; content:\"ab\"; byte_test:2,=,0x0201,0,relative,dce; sid:1;)\n\
        alert tcp any any -> any any (flow:to_server; dcerpc.iface:01010101-0101-0101-0101-010101010101,<3; sid:2;)\n\
        alert dcerpc any any -> any any (flow:to_client; dcerpc.stub_data; content:\"cd\"; sid:3;)\n\
        alert dcerpc any any -> any any (flow:to_server; dce_opnum:3,12-15; sid:5;)\n\
        alert dcerpc any any -> any any (flow:to_server; dce_opnum:3,16-20; sid:6;)\n\
        alert dcerpc any any -> any any (frame:dcerpc.hdr; content:\"|05 00 0b|\"; startswith; bsize:16; sid:4;)";
    let message = |kind: u8, body: &[u8]| {
        [&[5, 0, kind, 3, 0x10, 0, 0, 0, 16 + body.len() as u8, 0, 0, 0, 7, 0, 0, 0][..], body].concat()
    };
    let context = [&[1, 0, 1, 0][..], &[1; 16], &[3, 0, 0, 0], &[0; 20]].concat();
    let bind = message(11, &[&[0; 8][..], &[1, 0, 0, 0], &context].concat());
    let bound = message(12, &[&[0; 8][..], &[0; 4], &[1, 0, 0, 0], &[0; 24]].concat());
    let request = message(0, &[&[0, 0, 0, 0, 1, 0, 15, 0][..], b"ab\x01\x02"].concat());
    let response = message(2, &[&[0; 8][..], b"cd"].concat());
    assert_eq!(sorted(rules, &[(true, &bind), (false, &bound), (true, &request), (false, &response)]), [1, 3, 4, 5]);
}

#[test]
fn files_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("md5"), "# abc\n900150983cd24fb0d6963f7d28e17f72\n").unwrap();
    std::fs::write(folder.path().join("agents"), "Y3VybA==\n").unwrap();
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    std::fs::write(folder.path().join("sha256"), digest).unwrap();
    std::fs::write(folder.path().join("sha1"), "a9993e364706816aba3e25717850c26c9cd0d89d").unwrap();
    let rules = "alert http any any -> any any (filemd5:md5; sid:1;)\n\
        alert http any any -> any any (filesha1:sha1; filesha256:sha256; filesize:<1KB; sid:2;)\n\
        alert http any any -> any any (filemd5:!md5; sid:3;)\n\
        alert http any any -> any any (http.user_agent; dataset:isset,agents,type string,load agents; sid:4;)\n\
        alert http any any -> any any (http.user_agent; dataset:isnotset,agents; sid:5;)\n\
        alert http any any -> any any (file.data; to_sha256; dataset:isset,bodies,type sha256,load sha256; sid:6;)\n\
        alert http any any -> any any (http.host; dataset:set,hosts,type string; sid:7;)\n\
        alert http any any -> any any (filesize:>3; sid:8;)";
    let file = folder.path().join("a.rules");
    std::fs::write(&file, rules).unwrap();
    let request = b"POST / HTTP/1.1\r\nHost: h\r\nUser-Agent: curl\r\nContent-Length: 3\r\n\r\nabc";
    let frames: Vec<_> = (0..).zip(conversation(&[(true, request), (true, request)])).collect();
    let outcome = Chain::frames(1, &frames).then(&KIND, &[("file", file.to_str().unwrap())]).run();
    let mut found = alerts(&outcome);
    found.sort_unstable();
    assert_eq!(found, [1, 1, 2, 2, 4, 4, 6, 6, 7]);
    std::fs::remove_file(folder.path().join("sha1")).unwrap();
    let options = Options { folder: Some(folder.path().into()), ..Options::default() };
    let mistakes = RuleSet::read(rules, &options).unwrap_err();
    assert_eq!((mistakes.len(), mistakes[0].line), (1, 2));
    assert!(mistakes[0].reason.starts_with("cannot read sha1: "), "{}", mistakes[0].reason);
}

/// The client requests a NetBIOS session, then a share.
#[test]
fn smb_behind_a_name() {
    let rules = "alert smb any any -> any any (smb.version:2; smb.share; content:\"ab\"; sid:1;)";
    let message = |is_response: bool, body: &[u8]| {
        let mut header = [&b"\0\0\0\0\xfeSMB"[..], &[0; 60]].concat();
        (header[3], header[16], header[20]) = (64 + body.len() as u8, 3, u8::from(is_response));
        [&header[..], body].concat()
    };
    let name = [&[0x81, 0, 0, 68][..], &[b'A'; 68]].concat();
    let tree = message(false, &[9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, b'b', 0]);
    let said = [(true, &name[..]), (false, &[0x82, 0, 0, 0]), (true, &tree), (false, &message(true, &[16, 0, 1, 0]))];
    let mut frames = conversation(&said);
    // Use the NetBIOS port.
    for frame in &mut frames {
        let (at, port) = if frame[34..36] == SERVER.1.to_be_bytes() { (34, 139u16) } else { (36, 139) };
        frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    assert_eq!(alerts(&run(rules, &frames)), [1]);
}

#[test]
fn ike() {
    let rules = "alert ike any any -> any any (ike.init_spi; content:\"0101010101010101\"; ike.exchtype:2; sid:1;)\n\
                 alert ike any any -> any any (ike.vendor; content:\"6162\"; ike.nonce_payload; content:\"n\"; bsize:1; sid:2;)\n\
                 alert ike any any -> any any (ike.key_exchange_payload_length:2; ike.nonce_payload_length:1; sid:3;)\n\
                 alert ike any any -> any any (ike.resp_spi; content:\"02\"; sid:4;)\n\
                 alert ike any any -> any any (ike.notify_type:24578; sid:5;)";
    let payloads = b"\x0a\0\0\x06ke\x0d\0\0\x05n\x0b\0\0\x06ab\0\0\0\x0c\0\0\0\x01\x01\0\x60\x02";
    let bytes = [&[1; 8][..], &[2; 8], &[4, 0x10, 2, 0, 0, 0, 0, 0, 0, 0, 0, 28 + 29], payloads].concat();
    let mut found = alerts(&run(rules, &[udp(CLIENT, (SERVER.0, 500), &bytes)]));
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3, 5]);
}

/// A packet that is longer than the parser keeps must not hide the packets behind it.
#[test]
fn packets_of_mqtt_behind_a_long_one() {
    let rules = "alert mqtt any any -> any any (mqtt.publish.message; content:\"attack\"; sid:1;)\n\
                 alert mqtt any any -> any any (mqtt.publish.topic; content:\"long\"; sid:2;)";
    let connect = b"\x10\x0c\0\x04MQTT\x04\0\0\0\0\0";
    // A PUBLISH of 300,000 bytes, whose message has the start of a packet in it.
    let long = [&b"\x30\xe0\xa7\x12\0\x04long"[..], &b"\x30\xff".repeat(149_997)].concat();
    let mut said = vec![(true, &connect[..]), (false, &b"\x20\x02\0\0"[..])];
    said.extend(long.chunks(1400).map(|piece| (true, piece)));
    said.push((true, b"\x30\x09\0\x01tattack"));
    assert_eq!(sorted(rules, &said), [1, 2]);
}

/// A server may send lines without end to one command; none of them hides a later one.
#[test]
fn replies_of_ftp_without_end() {
    let rules = "alert ftp any any -> any any (ftp.reply; content:\"attack\"; sid:1;)";
    let lines = [b'\n'; 1400];
    let mut said = vec![(true, &b"USER a\r\n"[..])];
    said.extend([(false, &lines[..]); 20]);
    said.push((false, b"230 an attack\r\n"));
    assert_eq!(sorted(rules, &said), [1]);
}

#[test]
fn records_of_ssh() {
    let rules = "alert ssh any any -> any any (frame:ssh.record.hdr; content:\"|15|\"; endswith; bsize:6; sid:1;)\n\
                 alert ssh any any -> any any (frame:ssh.record.data; content:\"ab\"; startswith; sid:2;)\n\
                 alert ssh any any -> any any (frame:ssh.record.pdu; content:\"secret\"; sid:3;)";
    let records = b"SSH-2.0-a\r\n\0\0\0\x04\x01\x1eab\0\0\0\x02\0\x15\0\0\0\x09\0\x15secret";
    assert_eq!(sorted(rules, &[(true, records)]), [1, 2]);
    let (front, back) = records.split_at(15);
    assert_eq!(sorted(rules, &[(true, front), (true, back)]), [1, 2]);
}

/// Without blocking, drop and reject rules only alert.
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

/// Only the number of rules left out was said.
#[test]
fn rules_left_out_had_no_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (file, refused) = (path("a.rules"), path("refused"));
    let rules = "alert ip any any -> any any (lua:x; sid:7;)\nalert tcp $HOME_NET any -> any any (sid:8;)";
    std::fs::write(&file, rules).unwrap();
    let frames: Vec<_> = connection(&[b"a"]).into_iter().map(|frame| (0, frame)).collect();
    let (home, order) = (("home-net", "10.0.0.0/8,192.0.2.0/24"), ("order", "drop,pass,reject,alert"));
    let params = [("file", &*file), ("partial", "yes"), ("refused", &*refused), home, order];
    let outcome = Chain::frames(1, &frames).then(&KIND, &params).run();
    let reason = "sid 7, line 1, column 30: the keyword lua is not supported";
    assert!(outcome.notices.iter().any(|said| said.ends_with(&format!("1 rules are left out: {reason}"))));
    assert_eq!(std::fs::read_to_string(&refused).unwrap(), format!("{file}: {reason}\n"));
}

#[test]
fn a_packet_without_ports_had_the_number_of_its_protocol() {
    let rule = "alert ip any any -> any any (ip_proto:4; sid:1;)";
    let inner = udp((SERVER.0, 9), (CLIENT.0, 9), b"x");
    let outcome = run(rule, &[testkit::packets::ipv4(CLIENT.0, SERVER.0, 4, &inner[14..])]);
    let row = Row::new(&row::SCHEMA, &outcome.blocks[0].bytes).unwrap();
    let link = (row.number("packet_info.linktype"), row.text("packet_info.linktype_name"));
    assert_eq!((row.text("proto"), link), (Some(&b"IP-in-IP"[..]), (Some(1), Some(&b"EN10MB"[..]))));
}
