//! Blocks over IPv6 against bytes written by hand from their RFCs.

use packet::ndp::{self, ALL_NODES};
use stack::{Discard, Marks, ProblemKind, SendError};

use crate::support::*;

/// [fd00::1]:4000 sends "hello" to [fd00::2]:53.
///
/// UDP: 0fa0 + 0035 + 000d + 6865 + 6c6c + 6f00 and the pseudo header's fd00 + 0001 + fd00 + 0002 + 000d + 0011 make
/// 4dd7 with the carries, whose complement is b228.
#[rustfmt::skip]
const HELLO: [u8; 67] = [
    0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x86, 0xdd,
    0x60, 0, 0, 0, 0, 13, 17, 64,
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
    0x0f, 0xa0, 0, 53, 0, 13, 0xb2, 0x28,
    b'h', b'e', b'l', b'l', b'o',
];

fn hello() -> Vec<u8> {
    to_station(HELLO.to_vec(), MACS[1])
}

fn over_ipv6(text: &str, host: usize) -> stack::Stack {
    build_with(text, &facts_v6(host))
}

#[test]
fn a_datagram_goes_out_as_the_rfcs_say() {
    let mut stack = over_ipv6("udp 4000", 0);
    assert_eq!(stack.header_bytes(), 62);
    for _ in 0..2 {
        assert_eq!(sent(&mut stack, Some("[fd00::2]:53"), b"hello").unwrap(), HELLO);
    }
    let mut stack = over_ipv6("udp 4000 | ipv6 hops=3 dscp=46", 0);
    let frame = sent(&mut stack, Some("[fd00::2]:53"), b"x").unwrap();
    assert_eq!((&frame[14..18], frame[21]), (&[0x6b, 0x80, 0, 0][..], 3));
    stack.set_marks(Marks { class: Some(0x21), hops: Some(9) });
    let frame = sent(&mut stack, Some("[fd00::2]:53"), b"x").unwrap();
    assert_eq!((&frame[14..18], frame[21]), (&[0x62, 0x10, 0, 0][..], 9));
}

#[test]
fn frames_that_are_delivered() {
    let check = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = hello();
        change(&mut frame);
        let got = received(&mut over_ipv6("udp 53", 1), &frame);
        assert_eq!(got, Ok(vec![(endpoint("[fd00::1]:4000"), b"hello".to_vec())]), "{what}");
    };
    check("as it is", &|_| {});
    check("padding of the frame", &|frame| frame.resize(80, 0xee));
    check("traffic class and flow label", &|frame| frame[14..18].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff]));
    check("another hop limit", &|frame| frame[21] = 1);
    check("bytes behind the datagram, inside of the packet", &|frame| {
        frame[19] += 3;
        frame.extend([9, 9, 9]);
    });
}

#[test]
fn frames_that_are_discarded_and_why() {
    let check = |expected: Discard, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = hello();
        change(&mut frame);
        let mut stack = over_ipv6("udp 53", 1);
        assert_eq!(received(&mut stack, &frame), Err(expected));
        assert_eq!(discards(&stack), [(expected.name(), 1)]);
    };
    check(Discard::OtherEtherType, &|frame| frame[12..14].copy_from_slice(&[8, 0]));
    check(Discard::SentToMany, &|frame| frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]));
    check(Discard::Ipv6Truncated, &|frame| frame.truncate(53));
    check(Discard::Ipv6Version, &|frame| frame[14] = 0x45);
    check(Discard::Ipv6Length, &|frame| frame.truncate(66));
    check(Discard::Ipv6Length, &|frame| frame[19] = 14);
    check(Discard::OtherAddress, &|frame| frame[53] = 9);
    for source in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
        let octets = source.parse::<std::net::Ipv6Addr>().unwrap().octets();
        check(Discard::SourceAddress, &|frame| frame[22..38].copy_from_slice(&octets));
    }
    check(Discard::Fragment, &|frame| frame[20] = 44);
    for header in [0, 43, 60] {
        check(Discard::Ipv6Extension, &|frame| frame[20] = header);
    }
    for protocol in [1, 6, 59] {
        check(Discard::OtherProtocol, &|frame| frame[20] = protocol);
    }
    check(Discard::UdpTruncated, &|frame| frame[19] = 7);
    check(Discard::UdpLength, &|frame| frame[59] = 14);
    check(Discard::OtherPort, &|frame| frame[57] = 54);
    check(Discard::UdpChecksum, &|frame| frame[66] ^= 1);
    // RFC 8200, section 8.1: the checksum is required.
    check(Discard::UdpNoChecksum, &|frame| frame[60..62].fill(0));
}

#[test]
fn what_cannot_be_sent() {
    let mut stack = over_ipv6("udp 4000", 0);
    for to in [None, Some("[fd00::2]:0"), Some("[::]:53")] {
        assert_eq!(sent(&mut stack, to, b"x"), Err(SendError::NoDestination), "{to:?}");
    }
    assert_eq!(sent(&mut stack, Some("10.0.0.2:53"), b"x"), Err(SendError::OtherFamily));
    assert_eq!(sent(&mut build("udp 4000", 0), Some("[fd00::2]:53"), b"x"), Err(SendError::OtherFamily));
    let to = Some("[fd00::2]:53");
    assert_eq!(sent(&mut stack, to, &[0; 1452]).unwrap().len(), 1514);
    for length in [1453, 65_507, 65_528, 100_000] {
        assert_eq!(sent(&mut stack, to, &vec![0; length]), Err(SendError::MessageTooLong), "{length}");
    }
}

/// A packet from fd00::2 to fd00::1 that carries `message`; ICMPv6 gets its checksum.
fn from_two(protocol: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend([0, message.len() as u8, protocol, 255]);
    for last in [2, 1] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(message);
    mend_transport(&mut frame, 2);
    frame
}

#[test]
fn an_echo_and_its_reply() {
    let mut stack = over_ipv6("icmp id=7", 0);
    let frame = sent(&mut stack, Some("[fd00::2]:0"), b"ab").unwrap();
    // 8000 + 0007 + 6162 and the pseudo header's fd00 + 0001 + fd00 + 0002 + 000a + 003a make dbb2 with the carries.
    assert_eq!((frame[20], &frame[54..]), (58, &[128, 0, 0x24, 0x4d, 0, 7, 0, 0, b'a', b'b'][..]));
    let reply = from_two(58, &[129, 0, 0, 0, 0, 7, 0, 0, b'a', b'b']);
    assert_eq!(received(&mut stack, &reply).unwrap(), [(endpoint("[fd00::2]:0"), b"ab".to_vec())]);
    let mut wrong = reply.clone();
    wrong[63] ^= 1;
    assert_eq!(received(&mut stack, &wrong), Err(Discard::IcmpChecksum));
    let other = from_two(58, &[129, 0, 0, 0, 0, 8, 0, 0, b'a', b'b']);
    assert_eq!(received(&mut stack, &other), Err(Discard::IcmpIdentifier));
    // ICMPv6 flows ignore a reply of IPv4's ICMP.
    assert_eq!(received(&mut stack, &from_two(1, &reply[54..])), Err(Discard::OtherProtocol));
    assert_eq!(sent(&mut stack, Some("[fd00::2]:0"), &[1; 65_528]), Err(SendError::MessageTooLong));
}

#[test]
fn errors_about_packets_of_the_flow() {
    let mut udp = over_ipv6("udp 4000", 0);
    let mut echo = over_ipv6("icmp id=7", 0);
    let mut stacks = [
        (sent(&mut udp, Some("[fd00::9]:53"), b"hello").unwrap(), udp, "[fd00::9]:53"),
        (sent(&mut echo, Some("[fd00::9]:0"), b"hello").unwrap(), echo, "[fd00::9]:0"),
    ];
    let error = |kind: u8, code: u8, rest: u32, about: &[u8]| {
        from_two(58, &[&[kind, code, 0, 0][..], &rest.to_be_bytes(), about].concat())
    };
    for (sent, stack, to) in &mut stacks {
        let about = &sent[14..62];
        let rows = [
            (1, 0, 0, ProblemKind::Unreachable(0)),
            (1, 1, 0, ProblemKind::Unreachable(13)),
            (1, 3, 0, ProblemKind::Unreachable(1)),
            (1, 4, 0, ProblemKind::Unreachable(3)),
            (2, 0, 1400, ProblemKind::TooBig(1400)),
            (2, 0, 70_000, ProblemKind::TooBig(u16::MAX)),
            (3, 0, 0, ProblemKind::TimeExceeded),
            (4, 1, 6, ProblemKind::Parameter),
        ];
        for (kind, code, rest, expected) in rows {
            assert_eq!(received(stack, &error(kind, code, rest, about)), Ok(vec![]));
            let problem = stack.take_problem().unwrap();
            assert_eq!((problem.kind, problem.to), (expected, endpoint(to)));
            assert_eq!(problem.reporter.to_string(), "fd00::2");
        }
        let mut check = |frame: &[u8], expected: Discard| {
            assert_eq!(received(stack, frame), Err(expected), "{to}");
            assert_eq!(stack.take_problem(), None);
        };
        check(&error(137, 0, 0, about), Discard::IcmpKind);
        check(&error(1, 4, 0, &about[..47]), Discard::IcmpTruncated);
        check(&error(1, 4, 0, &about[..39]), Discard::IcmpTruncated);
        // Next header, source address, and source port or identifier.
        for at in [6, 23, if to.ends_with(":53") { 41 } else { 45 }] {
            let mut other = about.to_vec();
            other[at] ^= 4;
            check(&error(1, 4, 0, &other), Discard::OtherFlow);
        }
        let mut wrong = error(1, 4, 0, about);
        wrong[57] ^= 1;
        check(&wrong, Discard::IcmpChecksum);
    }
}

/// The frames that a Neighbour Discovery stack sends in its turn.
fn answers(stack: &mut stack::Stack) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    stack.tend(0, &mut |header: &[u8], payload: &[u8]| frames.push([header, payload].concat()), &mut |_| {
        panic!("no delivery")
    });
    frames
}

#[test]
fn neighbours_are_asked_and_answer() {
    let (mut asks, mut has) = (over_ipv6("ndp", 0), over_ipv6("ndp", 1));
    let frame = sent(&mut asks, Some("[fd00::2]:0"), b"").unwrap();
    assert_eq!(frame[..14], [0x33, 0x33, 0xff, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
    // 32 bytes of ICMPv6, hop limit 255, to the solicited-node group of fd00::2: 02:00:00:00:00:01 asks.
    assert_eq!(frame[18..22], [0, 32, 58, 255]);
    assert_eq!(frame[38..54], ndp::solicited_node("fd00::2".parse().unwrap()).octets());
    assert_eq!((frame[54], &frame[78..]), (135, &[1, 1, 2, 0, 0, 0, 0, 1][..]));
    let mut mended = frame.clone();
    mend_transport(&mut mended, 2);
    assert_eq!(mended, frame);
    assert_eq!(received(&mut has, &frame), Ok(vec![]));
    assert_eq!(has.next(), Some(0));
    let frames = answers(&mut has);
    assert_eq!((frames.len(), has.next(), frames[0].len()), (1, None, 86));
    assert_eq!(frames[0][..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    assert_eq!((frames[0][54], frames[0][58], &frames[0][78..]), (136, 0x60, &[2, 1, 2, 0, 0, 0, 0, 2][..]));
    let got = received(&mut asks, &frames[0]).unwrap();
    assert_eq!(got, [(endpoint("[fd00::2]:0"), MACS[1].to_vec())]);
    assert_eq!(sent(&mut asks, Some("[fd00::2]:0"), b"x"), Err(SendError::MessageTooLong));
    assert_eq!(sent(&mut asks, Some("10.0.0.2:0"), b""), Err(SendError::NoDestination));

    // A station that probes for the address is answered on the all-nodes group (RFC 4861, section 7.2.4).
    let mut probe = frame.clone();
    probe[22..38].fill(0);
    probe[19] = 24;
    probe.truncate(78);
    mend_transport(&mut probe, 2);
    assert_eq!(received(&mut has, &probe), Ok(vec![]));
    let frames = answers(&mut has);
    assert_eq!((&frames[0][..6], &frames[0][38..54]), (&ndp::group_mac(ALL_NODES)[..], &ALL_NODES.octets()[..]));
    assert_eq!(frames[0][58], 0x20);

    let mut check = |at: usize, value: u8, expected: Discard| {
        let mut frame = frame.clone();
        frame[at] = value;
        if expected != Discard::IcmpChecksum {
            mend_transport(&mut frame, 2);
        }
        assert_eq!(received(&mut has, &frame), Err(expected), "{at}");
    };
    check(13, 6, Discard::OtherEtherType);
    check(21, 254, Discard::NdpMalformed);
    check(54, 133, Discard::NdpMalformed);
    check(55, 1, Discard::NdpMalformed);
    check(56, 0, Discard::IcmpChecksum);
    check(77, 9, Discard::NdpOther);
    check(79, 0, Discard::NdpMalformed);
    check(79, 2, Discard::NdpMalformed);
    check(80, 3, Discard::NdpMalformed);
}
