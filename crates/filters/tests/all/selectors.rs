//! Tests the selectors on one set of frames (link types, both IP versions, tags, labels, fragments, cut frames), on
//! streams, on random bytes, and on the shared captures, where tcpdump's counts are known.

use filter::prelude::*;
use filters::{destport, ether, host, icmp, ip, ip6, net, port, proto, sourceport, vlan};
use packet::capture::Stop;
use packet::capture_file::Reader;
use packet::flow::Flow;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use testkit::packets::{CLIENT, SERVER, ipv4, tcp, udp};
use testkit::{Chain, shared};

const ETHERNET: u16 = 1;
const RAW: u16 = 101;
const PPP_ETHER: u16 = 51;

/// A frame: link type, bytes, length on the wire.
type Row = (u16, Vec<u8>, u32);

fn whole(link: u16, bytes: Vec<u8>) -> Row {
    let wire = bytes.len() as u32;
    (link, bytes, wire)
}

fn cut(row: &Row, to: usize) -> Row {
    (row.0, row.1[..to].to_vec(), row.2)
}

/// The IP packet of an Ethernet frame, with other headers in front.
fn behind(link: u16, headers: &[&[u8]], frame: &[u8]) -> Row {
    whole(link, [&headers.concat(), &frame[14..]].concat())
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[next_header, 64]);
    for last in [1, 2] {
        frame.extend_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend_from_slice(payload);
    frame
}

const DATAGRAM: [u8; 12] = [0x30, 0x39, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
const MACS: &[u8] = &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// The class that a selector gives a frame; `None`: it does not pass.
fn class_of(kind: &'static Kind, given: &[(&str, &str)], (link, bytes, wire): &Row) -> Option<u32> {
    let mut block = Descriptor { class: Class(777), ..Descriptor::default() };
    block.set_wire(*wire);
    let outcome = Chain::pieces(Type::Frame, Some(*link), vec![(block, bytes.clone())]).then(kind, given).run();
    assert!(
        outcome.blocks.iter().all(|block| block.bytes == *bytes && block.from_source),
        "a selector changes nothing"
    );
    outcome.blocks.first().map(|block| block.descriptor.class.0)
}

/// The frames that the tests refer to by name.
fn frames() -> Vec<(&'static str, Row)> {
    let tcp_frame = tcp(CLIENT, SERVER, 1, 0, 2, b"");
    let udp_frame = udp((Ipv4Addr::new(192, 0, 2, 7), 53), CLIENT, b"answer");
    let mut later = udp_frame.clone();
    later[20] = 0x20;
    later[21] = 5;
    let six = ipv6(17, &DATAGRAM);
    let arp = [MACS, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2][..]];
    let mut protected = ipv4(CLIENT.0, SERVER.0, 51, &[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
    protected.extend_from_slice(&tcp_frame[34..]);
    let total = (protected.len() - 14) as u16;
    protected[16..18].copy_from_slice(&total.to_be_bytes());
    vec![
        ("tcp", whole(ETHERNET, tcp_frame.clone())),
        ("udp", whole(ETHERNET, udp_frame)),
        ("later fragment", whole(ETHERNET, later)),
        ("tcp in vlan", behind(ETHERNET, &[MACS, &[0x81, 0, 0xe0, 6, 8, 0]], &tcp_frame)),
        ("tcp in vlans", behind(ETHERNET, &[MACS, &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 10, 8, 0]], &tcp_frame)),
        ("tcp in mpls", behind(ETHERNET, &[MACS, &[0x88, 0x47, 0, 1, 1, 64]], &tcp_frame)),
        ("tcp in pppoe", behind(ETHERNET, &[MACS, &[0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21]], &tcp_frame)),
        ("tcp in pppoe alone", behind(PPP_ETHER, &[&[0x11, 0, 0, 1, 0, 42, 0, 0x21]], &tcp_frame)),
        ("tcp raw", behind(RAW, &[], &tcp_frame)),
        ("tcp behind ah", whole(ETHERNET, protected)),
        ("udp 6", whole(ETHERNET, six.clone())),
        ("udp 6 raw", behind(RAW, &[], &six)),
        ("udp 6 behind options", whole(ETHERNET, ipv6(60, &[&[17, 0, 1, 4, 0, 0, 0, 0], &DATAGRAM[..]].concat()))),
        ("echo", whole(ETHERNET, ipv4(CLIENT.0, SERVER.0, 1, &[8, 0, 0, 0, 0, 7, 0, 1]))),
        ("echo 6", whole(ETHERNET, ipv6(58, &[128, 0, 0, 0, 0, 7, 0, 1]))),
        ("arp", whole(ETHERNET, arp.concat())),
        ("spanning tree", whole(ETHERNET, [MACS, &[0, 4, 0x42, 0x42, 3, 0][..]].concat())),
        ("tcp, ports cut", cut(&whole(ETHERNET, tcp_frame.clone()), 36)),
        ("tcp, ip cut", cut(&whole(ETHERNET, tcp_frame.clone()), 30)),
        ("tcp, all but ports cut", cut(&whole(ETHERNET, tcp_frame), 38)),
        ("nothing", whole(ETHERNET, Vec::new())),
        ("unknown link", whole(147, vec![0x45; 60])),
    ]
}

/// Checks that exactly these frames pass, with these classes.
fn check(kind: &'static Kind, given: &str, expected: &[(&str, u32)]) {
    let main = kind.main_param().map_or("", |param| param.key);
    let given = [(main, given)];
    let given = if given[0].1.is_empty() { &[][..] } else { &given[..] };
    let passed: Vec<(&str, u32)> =
        frames().iter().filter_map(|(name, row)| Some((*name, class_of(kind, given, row)?))).collect();
    assert_eq!(passed, expected, "{} {given:?}", kind.name);
}

const TCP_PORTS: u32 = 40_000 << 16 | 80;
const DNS_PORTS: u32 = 12_345 << 16 | 53;

/// All frames that contain CLIENT's SYN to SERVER with its ports.
fn tcps(class: u32) -> Vec<(&'static str, u32)> {
    let names = ["tcp", "tcp in vlan", "tcp in vlans", "tcp in mpls", "tcp in pppoe", "tcp in pppoe alone", "tcp raw"];
    names.into_iter().chain(["tcp behind ah", "tcp, all but ports cut"]).map(|name| (name, class)).collect()
}

fn sixes(class: u32) -> Vec<(&'static str, u32)> {
    ["udp 6", "udp 6 raw", "udp 6 behind options"].into_iter().map(|name| (name, class)).collect()
}

/// The rows in the order of `frames`.
fn sorted(mut rows: Vec<(&'static str, u32)>) -> Vec<(&'static str, u32)> {
    let order: Vec<_> = frames().into_iter().map(|(name, _)| name).collect();
    rows.sort_by_key(|(name, _)| order.iter().position(|known| known == name));
    rows
}

#[test]
fn ports() {
    let udp = ("udp", 53 << 16 | 40_000);
    check(&port::KIND, "", &sorted([tcps(TCP_PORTS), sixes(DNS_PORTS), vec![udp]].concat()));
    check(&port::KIND, "80", &tcps(TCP_PORTS));
    check(&port::KIND, "39999:40000", &sorted([tcps(TCP_PORTS), vec![udp]].concat()));
    check(&port::KIND, "12345,80", &sorted([tcps(TCP_PORTS), sixes(DNS_PORTS)].concat()));
    check(&port::KIND, "81", &[]);
    check(&sourceport::KIND, "", &sorted([tcps(40_000), sixes(12_345), vec![("udp", 53)]].concat()));
    check(&sourceport::KIND, "53", &[("udp", 53)]);
    check(&destport::KIND, "53", &sixes(53));
    check(&destport::KIND, "40000", &[("udp", 40_000)]);
}

#[test]
fn versions_and_protocols() {
    let four = |class| {
        let cut = [("tcp, ports cut", 6)];
        let others = [("udp", 17), ("later fragment", 17), ("echo", 1)];
        sorted([tcps(class), cut.to_vec(), others.to_vec()].concat())
    };
    let six = || sorted([sixes(17), vec![("echo 6", 58)]].concat());
    check(&ip::KIND, "", &four(6));
    check(&ip6::KIND, "", &six());
    check(&proto::KIND, "", &sorted([four(6), six()].concat()));
    check(&proto::KIND, "tcp", &sorted([tcps(6), vec![("tcp, ports cut", 6)]].concat()));
    check(&proto::KIND, "1,ICMP6", &[("echo", 1), ("echo 6", 58)]);
    check(&proto::KIND, "ah", &[("tcp behind ah", 6)]);
    check(&proto::KIND, "60", &[("udp 6 behind options", 17)]);
    check(&icmp::KIND, "", &[("echo", 8), ("echo 6", 128)]);
    check(&icmp::KIND, "128", &[("echo 6", 128)]);
}

#[test]
fn links() {
    check(&vlan::KIND, "", &[("tcp in vlan", 6), ("tcp in vlans", 1)]);
    check(&vlan::KIND, "2:9", &[("tcp in vlan", 6)]);
    check(&ether::KIND, "arp", &[("arp", 0x806)]);
    check(&ether::KIND, "vlan", &[("tcp in vlan", 0x800)]);
    check(&ether::KIND, "0x88a8", &[("tcp in vlans", 0x800)]);
    check(&ether::KIND, "ip6", &sorted([sixes(0x86dd), vec![("echo 6", 0x86dd)]].concat()));
    let on_ethernet: Vec<_> = frames()
        .iter()
        .filter(|(_, row)| row.0 == ETHERNET && row.1.len() >= 14)
        .map(|(name, row)| (*name, class_of(&ether::KIND, &[], row).unwrap_or(0)))
        .collect();
    check(&ether::KIND, "2:0:0:0:0:1", &on_ethernet);
    check(&ether::KIND, "02-00-00-00-00-02", &on_ethernet);
    check(&ether::KIND, "02:00:00:00:00:03", &[]);
}

#[test]
fn addresses() {
    let mut expected = tcps(777);
    expected.extend([("udp", 777), ("later fragment", 777), ("echo", 777), ("arp", 777), ("tcp, ports cut", 777)]);
    let expected = sorted(expected);
    check(&host::KIND, "10.0.0.1", &expected);
    check(&net::KIND, "10.0.0.0/8", &expected);
    check(&host::KIND, "192.0.2.7", &[("udp", 777), ("later fragment", 777)]);
    check(&net::KIND, "2001:db8::/32,192.0.2.0/24", &{
        let six = [sixes(777), vec![("echo 6", 777), ("udp", 777), ("later fragment", 777)]];
        sorted(six.concat())
    });
    check(&net::KIND, "10.0.0.2/31,10.0.0.4/31", &{
        let mut without = expected.clone();
        without.retain(|(name, _)| !matches!(*name, "udp" | "later fragment"));
        without
    });
}

#[test]
fn what_cannot_be_read_is_counted() {
    let counts = |kind: &'static Kind, name: &str| {
        let (link, bytes, wire) = frames().into_iter().find(|(known, _)| *known == name).unwrap().1;
        let mut block = Descriptor::default();
        block.set_wire(wire);
        let outcome = Chain::pieces(Type::Frame, Some(link), vec![(block, bytes)]).then(kind, &[]).run();
        let counters = outcome.counters(kind.name);
        assert_eq!((counters.blocks_rejected, counters.drops.total()), (1, 0));
        counters.unread.iter().collect::<Vec<_>>()
    };
    assert_eq!(counts(&port::KIND, "tcp, ports cut"), [("truncated tcp header", 1)]);
    assert_eq!(counts(&port::KIND, "tcp, ip cut"), [("truncated ipv4 header", 1)]);
    assert_eq!(counts(&ip::KIND, "nothing"), [("truncated link header", 1)]);
    assert_eq!(counts(&vlan::KIND, "unknown link"), [("unsupported link type", 1)]);
    assert_eq!(counts(&ip::KIND, "arp"), []);
    assert_eq!(counts(&port::KIND, "later fragment"), [("not the first fragment", 1)]);
}

#[test]
fn streams_pass_by_their_facts_and_keep_their_class() {
    let facts = |protocol: u8, server: [u8; 4], server_port: u16| {
        let (source, target) = (IpAddr::V4(CLIENT.0), IpAddr::V4(server.into()));
        let flow = Flow { source, target, source_port: CLIENT.1, target_port: server_port, protocol };
        StreamFacts::new(flow, 0, StreamState::Established)
    };
    let check = |kind: &'static Kind, value: &str, expected: &[u32]| {
        let piece = |class: u32| (Descriptor { class: Class(class), ..Descriptor::default() }, b"piece".to_vec());
        let main = kind.main_param().unwrap().key;
        let given = [(main, value)];
        for of in [Type::Bytes, Type::Message] {
            let outcome = Chain::pieces(of, Some(ETHERNET), (0..6).map(piece).collect())
                .streams(&[facts(6, [10, 0, 0, 2], 80), facts(17, [192, 0, 2, 7], 53)])
                .then(kind, if value.is_empty() { &[] } else { &given })
                .run();
            let classes: Vec<_> = outcome.blocks.iter().map(|block| block.descriptor.class.0).collect();
            assert_eq!(classes, expected, "{} {value}", kind.name);
            assert_eq!(outcome.counters(kind.name).events.get("no facts of the stream"), 2, "4 and 5 are no streams");
        }
    };
    check(&port::KIND, "", &[0, 1, 2, 3]);
    check(&port::KIND, "80", &[0, 1]);
    check(&sourceport::KIND, "80", &[1]);
    check(&destport::KIND, "53", &[2]);
    check(&proto::KIND, "udp", &[2, 3]);
    check(&proto::KIND, "", &[0, 1, 2, 3]);
    check(&host::KIND, "192.0.2.7", &[2, 3]);
    check(&net::KIND, "10.0.0.0/30", &[0, 1, 2, 3]);
}

#[test]
fn refusals_name_the_parameter() {
    let check = |kind: &'static Kind, value: &str, message: &str| {
        let key = kind.main_param().unwrap().key;
        let error = Chain::frames(ETHERNET, &[]).then(kind, &[(key, value)]).refusal().unwrap();
        assert_eq!((error.key, error.message.as_str(), error.system), (Some(key), message, false));
        assert!(error.help.is_some(), "{message}");
    };
    check(&port::KIND, "http", "`http` is not a port");
    check(&sourceport::KIND, "70000", "`70000` is not a port");
    check(&destport::KIND, "90:80", "`90:80` ends before it begins");
    check(&vlan::KIND, "4096", "`4096` is not a VLAN id");
    check(&icmp::KIND, "echo", "`echo` is not an ICMP type");
    check(&proto::KIND, "tpc", "`tpc` is not a protocol");
    check(&ether::KIND, "02:00:00:00:00", "`02:00:00:00:00` is not an Ethernet address");
    check(&ether::KIND, "apr", "`apr` is not an ether type or an Ethernet address");
    check(&host::KIND, "999.1.1.1", "`999.1.1.1` is not an address");
    check(&net::KIND, "10.0.0.1/8", "`10.0.0.1/8` has bits set behind its prefix");
}

proptest! {
    /// On any bytes and link: no panic, and a frame that passes `port 80` has port 80 and passes `port`.
    #[test]
    fn any_bytes(
        link in prop_oneof![0u16..300, Just(1), Just(101), Just(113)],
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        start in prop_oneof![
            Just(vec![]),
            Just([MACS, &[8, 0, 0x45]].concat()),
            Just([MACS, &[0x86, 0xdd, 0x60]].concat()),
        ],
        extra in 0u32..2000,
    ) {
        let bytes = [start, bytes].concat();
        let row = (link, bytes.clone(), bytes.len() as u32 + extra);
        let all = class_of(&port::KIND, &[], &row);
        let low = class_of(&port::KIND, &[("port", "0:32767")], &row);
        prop_assert_eq!(low, all.filter(|class| class >> 16 < 32_768 || class & 0xffff < 32_768));
        for kind in [&ether::KIND, &vlan::KIND, &ip::KIND, &ip6::KIND, &icmp::KIND, &proto::KIND, &destport::KIND] {
            class_of(kind, &[], &row);
        }
        class_of(&host::KIND, &[("address", "10.0.0.1")], &row);
    }
}

type Pieces = Vec<(Descriptor, Vec<u8>)>;

/// The frames of a capture and their link type. `None`: it has several, or cannot be read to its end.
fn read_capture(file: &[u8]) -> Option<(u16, Pieces)> {
    let (mut reader, mut at) = Reader::open(file).ok()?;
    let (mut link, mut frames) = (None, Vec::new());
    loop {
        let window = &file[at..];
        match reader.next(window) {
            Ok(record) => {
                let this = reader.interface(record.interface)?.link.0;
                if *link.get_or_insert(this) != this {
                    return None;
                }
                let mut block = Descriptor::default();
                block.set_wire(record.wire_len);
                frames.push((block, record.data(window).to_vec()));
                at += record.consumed;
            }
            Err(Stop::More { consumed, .. }) => {
                reader.finish(&window[consumed..]).ok()?;
                return Some((link?, frames));
            }
            Err(Stop::Damaged(_)) => return None,
        }
    }
}

/// The chain of selectors that is equivalent to a tcpdump expression, if there is one.
fn as_selectors(expression: &str) -> Option<Vec<(&'static Kind, Option<&str>)>> {
    let words: Vec<&str> = expression.split(' ').collect();
    Some(match words[..] {
        ["ip"] => vec![(&ip::KIND, None)],
        ["ip6"] => vec![(&ip6::KIND, None)],
        ["arp"] => vec![(&ether::KIND, Some("arp"))],
        ["vlan"] => vec![(&vlan::KIND, None)],
        ["tcp" | "udp"] => vec![(&proto::KIND, Some(words[0]))],
        ["ip", "proto", "47"] => vec![(&ip::KIND, None), (&proto::KIND, Some("47"))],
        ["icmp"] => vec![(&ip::KIND, None), (&icmp::KIND, None)],
        ["icmp6"] => vec![(&icmp::KIND, None), (&ip6::KIND, None)],
        ["proto", number] => vec![(&proto::KIND, Some(number))],
        ["port", port] => vec![(&port::KIND, Some(port))],
        ["portrange", "1-1023"] => vec![(&port::KIND, Some("1:1023"))],
        ["src", "port", port] => vec![(&sourceport::KIND, Some(port))],
        ["udp", "port", port] => vec![(&proto::KIND, Some("udp")), (&port::KIND, Some(port))],
        ["tcp", "port", port] => vec![(&port::KIND, Some(port)), (&proto::KIND, Some("tcp"))],
        ["tcp", "dst", "port", port] => vec![(&proto::KIND, Some("tcp")), (&destport::KIND, Some(port))],
        ["host", address] => vec![(&host::KIND, Some(address))],
        ["net", network] => vec![(&net::KIND, Some(network))],
        ["host", one, "and", "host", other] => vec![(&host::KIND, Some(one)), (&host::KIND, Some(other))],
        _ => return None,
    })
}

/// Features that selectors and tcpdump treat differently by design. tcpdump's expressions stop at tags, labels, PPPoE,
/// LLC/SNAP, IPv6 extension headers and the authentication header, and guess at links that `packet` does not read.
const SEEN_OTHERWISE: [&str; 12] =
    ["vlan1", "vlan2", "mpls", "mpls_pw", "pppoe", "cmd", "vntag", "llc", "ip6_ext", "frag6", "ah", "other_link"];

#[test]
fn tcpdump_counts_as_many() {
    let data = shared::data();
    let mut compared = 0;
    for entry in std::fs::read_dir(data.join("expected")).unwrap() {
        let path = entry.unwrap().path();
        let expected: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let features = &expected["packet_features"];
        let name = path.file_stem().unwrap();
        let otherwise = SEEN_OTHERWISE.iter().any(|feature| features.get(feature).is_some());
        let file = std::fs::read(data.join("captures").join(name)).unwrap();
        let Some((link, frames)) = read_capture(&file) else { continue };
        if expected["packets"]["tcpdump"] != frames.len() {
            continue;
        }
        for (expression, count) in expected["bpf"].as_object().unwrap() {
            let (Some(selectors), Some(count)) = (as_selectors(expression), count.as_u64()) else { continue };
            // tcpdump does see VLAN tags, unless they are behind another header.
            if otherwise && (expression != "vlan" || features.get("vntag").is_some()) {
                continue;
            }
            let chain = Chain::pieces(Type::Frame, Some(link), frames.clone());
            let chain = selectors.iter().fold(chain, |chain, (kind, value)| {
                let given = value.map(|value| (kind.main_param().unwrap().key, value));
                chain.then(kind, given.as_slice())
            });
            let passed = chain.run().blocks.len() as u64;
            assert_eq!(passed, count, "{}: {expression} {features}", name.display());
            compared += 1;
        }
    }
    assert!(compared > shared::part(2000), "only {compared} comparisons");
}
