//! Each block against bytes written by hand from its RFC.

use std::net::Ipv4Addr;

use stack::{ChecksumRule, Discard, Facts, Marks, ProblemKind, SendError, Stack};

use crate::support::*;

/// 10.0.0.1:4000 sends "hello" to 10.0.0.2:53.
///
/// IPv4: 4500 + 0021 + 4000 + 4011 + 0a00 + 0001 + 0a00 + 0002 = d935, whose complement is 26ca.
/// UDP: 0fa0 + 0035 + 000d + 6865 + 6c6c + 6f00 and the pseudo header's 0a00 + 0001 + 0a00 + 0002 + 0011 + 000d make
/// 67d5, whose complement is 982a.
#[rustfmt::skip]
const HELLO: [u8; 47] = [
    0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
    0x45, 0, 0, 0x21, 0, 0, 0x40, 0, 64, 17, 0x26, 0xca, 10, 0, 0, 1, 10, 0, 0, 2,
    0x0f, 0xa0, 0, 53, 0, 13, 0x98, 0x2a,
    b'h', b'e', b'l', b'l', b'o',
];

fn hello() -> Vec<u8> {
    to_station(HELLO.to_vec(), MACS[1])
}

#[test]
fn a_datagram_of_odd_length_goes_out_as_the_rfcs_say() {
    let mut stack = build("udp 4000", 0);
    assert_eq!(stack.header_bytes(), 42);
    assert_eq!(sent(&mut stack, Some("10.0.0.2:53"), b"hello").unwrap(), HELLO);
    // The next packet has the next identification, so its checksum is smaller by 1.
    let second = sent(&mut stack, Some("10.0.0.2:53"), b"hello").unwrap();
    assert_eq!((&second[18..20], &second[24..26]), (&[0, 1][..], &[0x26, 0xc9][..]));
    assert_eq!(second[26..], HELLO[26..]);
}

#[test]
fn the_payload_leaves_as_the_callers_slice() {
    let payload = vec![7; 1000];
    let mut seen = None;
    let mut stack = build("udp 4000 to=10.0.0.2:53 | dummy | ipv4", 0);
    stack.send(0, None, &payload, &mut |header, sent| seen = Some((header.len(), sent.as_ptr()))).unwrap();
    assert_eq!(seen, Some((42, payload.as_ptr())));
    // The delivery is a slice of the frame.
    let frame = hello();
    let mut at = None;
    build("udp 53", 1).receive(0, &frame, &mut |delivery| at = Some(delivery.payload.as_ptr())).unwrap();
    assert_eq!(at, Some(frame[42..].as_ptr()));
}

#[test]
fn parameters_of_ipv4() {
    let mut stack = build("udp 4000 to=10.0.0.2:53 | ipv4 ttl=3 dscp=46", 0);
    let frame = sent(&mut stack, None, b"x").unwrap();
    assert_eq!((frame[15], frame[22]), (46 << 2, 3));
    // An application marks its packets while the flow runs.
    stack.set_marks(Marks { class: Some(0x21), hops: Some(9) });
    let frame = sent(&mut stack, None, b"x").unwrap();
    assert_eq!((frame[15], frame[22]), (0x21, 9));
    stack.set_marks(Marks::default());
    assert_eq!(sent(&mut stack, None, b"x").unwrap()[15], 46 << 2);
}

#[test]
fn a_checksum_of_zero_is_sent_as_its_other_form() {
    // 0fa0 + 0035 + 000a and the pseudo header's 141e make 23fd; dc02 brings that to ffff.
    let frame = sent(&mut build("udp 4000", 0), Some("10.0.0.2:53"), &[0xdc, 0x02]).unwrap();
    assert_eq!(frame[40..42], [0xff, 0xff]);
    let got = received(&mut build("udp 53", 1), &to_station(frame, MACS[1])).unwrap();
    assert_eq!(got, [(endpoint("10.0.0.1:4000"), vec![0xdc, 0x02])]);
}

#[test]
fn frames_that_are_delivered() {
    let check = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = hello();
        change(&mut frame);
        let got = received(&mut build("udp 53", 1), &frame);
        assert_eq!(got, Ok(vec![(endpoint("10.0.0.1:4000"), b"hello".to_vec())]), "{what}");
    };
    check("as it is", &|_| {});
    check("padding of the frame", &|frame| frame.resize(60, 0xee));
    check("no checksum", &|frame| frame[40..42].fill(0));
    check("options", &|frame| {
        frame[14] = 0x46;
        frame[17] = 0x25;
        frame.splice(34..34, [1, 1, 1, 0]);
        mend_ipv4(frame);
    });
    check("bytes behind the datagram, inside of the packet", &|frame| {
        frame[17] += 3;
        frame.extend([9, 9, 9]);
        mend_ipv4(frame);
    });
    check("fragments allowed", &|frame| {
        frame[20] = 0;
        mend_ipv4(frame);
    });
    check("another identification and TTL", &|frame| {
        frame[18..20].fill(0xab);
        frame[22] = 1;
        mend_ipv4(frame);
    });
}

#[test]
fn frames_that_are_discarded_and_why() {
    let check = |expected: Discard, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = hello();
        change(&mut frame);
        let mut stack = build("udp 53", 1);
        assert_eq!(received(&mut stack, &frame), Err(expected));
        assert_eq!(discards(&stack), [(expected.name(), 1)]);
    };
    let mended = |expected: Discard, change: &dyn Fn(&mut Vec<u8>)| {
        check(expected, &|frame| {
            change(frame);
            mend_ipv4(frame);
        });
    };
    check(Discard::EthernetTruncated, &|frame| frame.truncate(13));
    check(Discard::OtherStation, &|frame| frame[5] = 3);
    check(Discard::OtherEtherType, &|frame| frame[13] = 6);
    check(Discard::SentToMany, &|frame| frame[..6].fill(0xff));
    check(Discard::Ipv4Truncated, &|frame| frame.truncate(33));
    check(Discard::Ipv4Version, &|frame| frame[14] = 0x65);
    check(Discard::Ipv4HeaderLength, &|frame| frame[14] = 0x44);
    check(Discard::Ipv4Checksum, &|frame| frame[25] ^= 1);
    check(Discard::Ipv4TotalLength, &|frame| frame.truncate(46));
    mended(Discard::Ipv4TotalLength, &|frame| frame[17] = 19);
    mended(Discard::Ipv4TotalLength, &|frame| frame[17] = 0);
    mended(Discard::Fragment, &|frame| frame[20] = 0x20);
    mended(Discard::Fragment, &|frame| frame[21] = 1);
    mended(Discard::OtherAddress, &|frame| frame[33] = 9);
    mended(Discard::OtherAddress, &|frame| frame[30..34].fill(255));
    for source in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255], [10, 0, 0, 255]] {
        mended(Discard::SourceAddress, &|frame| frame[26..30].copy_from_slice(&source));
    }
    mended(Discard::OtherProtocol, &|frame| frame[23] = 6);
    mended(Discard::UdpTruncated, &|frame| frame[17] = 27);
    check(Discard::UdpLength, &|frame| frame[39] = 14);
    check(Discard::UdpLength, &|frame| frame[39] = 7);
    check(Discard::UdpLength, &|frame| frame[39] = 0);
    check(Discard::OtherPort, &|frame| frame[37] = 54);
    check(Discard::UdpChecksum, &|frame| frame[46] ^= 1);
    check(Discard::UdpChecksum, &|frame| frame[41] ^= 1);
    // The checksum covers the addresses.
    mended(Discard::UdpChecksum, &|frame| frame[29] = 7);
}

#[test]
fn a_flow_with_a_peer_talks_to_the_peer_alone() {
    let mut stack = build("udp 53 to=10.0.0.1:4000", 1);
    assert_eq!(received(&mut stack, &hello()).unwrap().len(), 1);
    let mut other = hello();
    other[35] = 0xa1;
    assert_eq!(received(&mut stack, &other), Err(Discard::OtherPeer));
    assert_eq!(sent(&mut stack, Some("10.0.0.1:4001"), b""), Err(SendError::OtherPeer));
    assert_eq!(sent(&mut stack, None, b""), sent(&mut build("udp 53", 1), Some("10.0.0.1:4000"), b""));
}

#[test]
fn what_cannot_be_sent() {
    let mut stack = build("udp 4000", 0);
    for to in [None, Some("10.0.0.2:0"), Some("0.0.0.0:53")] {
        assert_eq!(sent(&mut stack, to, b"x"), Err(SendError::NoDestination), "{to:?}");
    }
    let to = Some("10.0.0.2:53");
    assert_eq!(sent(&mut stack, to, &[0; 1472]).unwrap().len(), 1514);
    for length in [1473, 65_507, 65_508, 100_000] {
        assert_eq!(sent(&mut stack, to, &vec![0; length]), Err(SendError::MessageTooLong), "{length}");
    }
    // The errors do not disturb the next packet.
    assert_eq!(sent(&mut stack, to, b"hello").unwrap()[26..], HELLO[26..]);
    let mut small = facts(0);
    small.mtu = 27;
    assert_eq!(sent(&mut build_with("udp 4000", &small), to, b""), Err(SendError::MessageTooLong));
    let mut large = facts(0);
    large.mtu = u16::MAX;
    let mut stack = build_with("udp 4000", &large);
    assert_eq!(sent(&mut stack, to, &[1; 65_507]).unwrap().len(), 65_549);
    assert_eq!(sent(&mut stack, to, &[1; 65_508]), Err(SendError::MessageTooLong));
    let mut stack = build_with("icmp", &large);
    assert_eq!(sent(&mut stack, to, &[1; 65_508]), Err(SendError::MessageTooLong));
    assert_eq!(sent(&mut stack, None, b""), Err(SendError::NoDestination));
}

#[test]
fn a_checksum_left_to_the_device_is_right_where_the_rule_is_auto() {
    // 0a00 + 0001 + 0a00 + 0002 + 0011 + 000d
    let mut frame = hello();
    frame[40..42].copy_from_slice(&[0x14, 0x21]);
    let mut auto = facts(1);
    auto.checksum = ChecksumRule::Auto;
    assert_eq!(received(&mut build("udp 53", 1), &frame), Err(Discard::UdpChecksum));
    assert_eq!(received(&mut build_with("udp 53", &auto), &frame).unwrap()[0].1, b"hello");
    assert_eq!(received(&mut build_with("udp 53", &auto), &hello()).unwrap()[0].1, b"hello");
    frame[41] ^= 1;
    assert_eq!(received(&mut build_with("udp 53", &auto), &frame), Err(Discard::UdpChecksum));
}

/// 10.0.0.1 sends the echo request 7.0 with the payload "ab": 0800 + 0007 + 6162 = 6969.
const ECHO: [u8; 10] = [8, 0, 0x96, 0x96, 0, 7, 0, 0, b'a', b'b'];

/// A packet from 10.0.0.2 to 10.0.0.1 that carries `message`.
fn from_two(protocol: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 20 + message.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    mend_ipv4(&mut frame);
    frame.extend(message);
    frame
}

#[test]
fn an_echo_and_its_reply() {
    let mut stack = build("icmp id=7", 0);
    let frame = sent(&mut stack, Some("10.0.0.2:0"), b"ab").unwrap();
    assert_eq!((frame[23], &frame[34..]), (1, &ECHO[..]));
    let second = sent(&mut stack, Some("10.0.0.2:0"), b"ab").unwrap();
    assert_eq!(second[36..42], [0x96, 0x95, 0, 7, 0, 1]);
    // Type 0 in place of 8: the checksum grows by 0800.
    let reply = |id: u8, checksum: u8| [0, 0, checksum, 0x96, 0, id, 0, 0, b'a', b'b'];
    let got = received(&mut stack, &from_two(1, &reply(7, 0x9e))).unwrap();
    assert_eq!(got, [(endpoint("10.0.0.2:0"), b"ab".to_vec())]);
    assert_eq!(received(&mut stack, &from_two(1, &reply(7, 0x9d))), Err(Discard::IcmpChecksum));
    assert_eq!(received(&mut stack, &from_two(1, &reply(7, 0x9e)[..7])), Err(Discard::IcmpTruncated));
    assert_eq!(received(&mut stack, &from_two(1, &[0, 0, 0xff])), Err(Discard::IcmpTruncated));
    let other = [0, 0, 0x9e, 0x95, 0, 8, 0, 0, b'a', b'b'];
    assert_eq!(received(&mut stack, &from_two(1, &other)), Err(Discard::IcmpIdentifier));
    assert_eq!(received(&mut stack, &from_two(1, &ECHO)), Err(Discard::IcmpKind));
    assert_eq!(received(&mut stack, &from_two(17, &ECHO)), Err(Discard::OtherProtocol));
}

/// An ICMP error about the IP packet `about`. `rest`: the four bytes behind the checksum.
fn error(kind: u8, code: u8, rest: [u8; 4], about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    message.extend(about);
    let checksum = packet::checksum::Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    from_two(1, &message)
}

#[test]
fn errors_about_packets_of_the_flow() {
    let mut udp = build("udp 4000", 0);
    let mut echo = build("icmp id=7", 0);
    let mut stacks = [
        (sent(&mut udp, Some("10.0.0.9:53"), b"hello").unwrap(), udp, "10.0.0.9:53"),
        (sent(&mut echo, Some("10.0.0.9:0"), b"hello").unwrap(), echo, "10.0.0.9:0"),
    ];
    for (sent, stack, to) in &mut stacks {
        let about = &sent[14..42];
        let rows = [
            (3, 1, [0; 4], ProblemKind::Unreachable(1)),
            (3, 3, [0; 4], ProblemKind::Unreachable(3)),
            (3, 4, [0, 0, 5, 0xb4], ProblemKind::TooBig(1460)),
            (11, 0, [0; 4], ProblemKind::TimeExceeded),
            (12, 0, [0; 4], ProblemKind::Parameter),
        ];
        for (kind, code, rest, expected) in rows {
            assert_eq!(received(stack, &error(kind, code, rest, about)), Ok(vec![]));
            let problem = stack.take_problem().unwrap();
            assert_eq!((problem.kind, problem.to, problem.reporter), (expected, endpoint(to), [10, 0, 0, 2].into()));
            assert_eq!(stack.take_problem(), None);
        }
        let mut check = |frame: &[u8], expected: Discard| {
            assert_eq!(received(stack, frame), Err(expected), "{to}");
            assert_eq!(stack.take_problem(), None);
        };
        // A redirect, truncated errors, and errors about packets of other flows.
        check(&error(5, 1, [0; 4], about), Discard::IcmpKind);
        check(&error(3, 1, [0; 4], &about[..27]), Discard::IcmpTruncated);
        check(&error(3, 1, [0; 4], &about[..19]), Discard::IcmpTruncated);
        // The fragment offset, the protocol, and the source address.
        for at in [7, 9, 15] {
            let mut other = about.to_vec();
            other[at] ^= 4;
            check(&error(3, 1, [0; 4], &other), Discard::OtherFlow);
        }
        let mut other = about.to_vec();
        // The source port, and the identifier.
        other[if to.ends_with(":53") { 21 } else { 25 }] ^= 1;
        check(&error(3, 1, [0; 4], &other), Discard::OtherFlow);
        let mut wrong = error(3, 1, [0; 4], about);
        wrong[36] ^= 1;
        check(&wrong, Discard::IcmpChecksum);
    }
}

#[test]
fn arp_packets() {
    let (one, two) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    #[rustfmt::skip]
    let request = [
        0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];
    #[rustfmt::skip]
    let reply = [
        0, 1, 8, 0, 6, 4, 0, 2,
        2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
    ];
    assert_eq!(stack::blocks::arp::request((MACS[0], one), two), request);
    assert_eq!(stack::blocks::arp::reply((MACS[1], two), (MACS[0], one)), reply);

    let (mut asks, mut answers) = (build("arp", 0), build("arp", 1));
    let frame = sent(&mut asks, Some("10.0.0.2:0"), b"").unwrap();
    assert_eq!(frame[..14], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6]);
    assert_eq!(frame[14..], request);
    assert_eq!(answers.next(), None);
    assert_eq!(received(&mut answers, &frame), Ok(vec![]));
    assert_eq!(answers.next(), Some(0));
    let mut frames = Vec::new();
    answers.tend(0, &mut |header: &[u8], payload: &[u8]| frames.push([header, payload].concat()), &mut |_| {
        panic!("no delivery")
    });
    assert_eq!((frames.len(), answers.next()), (1, None));
    assert_eq!(frames[0][..14], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6]);
    assert_eq!(frames[0][14..], reply);
    let got = received(&mut asks, &frames[0]).unwrap();
    assert_eq!(got, [(endpoint("10.0.0.2:0"), MACS[1].to_vec())]);

    let mut check = |at: usize, value: u8, expected: Discard| {
        let mut frame = frames[0].clone();
        frame[at] = value;
        assert_eq!(received(&mut asks, &frame), Err(expected));
    };
    check(13, 0, Discard::OtherEtherType);
    check(18, 8, Discard::ArpMalformed);
    check(21, 3, Discard::ArpOperation);
    check(22, 3, Discard::ArpMalformed);
    check(41, 9, Discard::ArpOther);
    assert_eq!(received(&mut asks, &frames[0][..41]), Err(Discard::ArpMalformed));
    assert_eq!(sent(&mut asks, Some("10.0.0.2:0"), b"x"), Err(SendError::MessageTooLong));
    assert_eq!(sent(&mut asks, None, b""), Err(SendError::NoDestination));
}

#[test]
fn questions_are_answered_up_to_a_number_at_once() {
    let (mut asks, mut answers) = (build("arp", 0), build("arp", 1));
    let frame = sent(&mut asks, Some("10.0.0.2:0"), b"").unwrap();
    for _ in 0..100 {
        received(&mut answers, &frame).unwrap();
    }
    let mut frame_count = 0;
    answers.tend(0, &mut |_: &[u8], _: &[u8]| frame_count += 1, &mut |_| {});
    assert_eq!(frame_count, 16);
}

#[test]
fn facts_that_change_are_those_of_the_next_packet() {
    let moved = Facts { mac: [2, 0, 0, 0, 0, 9], prefix: 30, mtu: 1_000, checksum: ChecksumRule::Auto, ..facts(0) };
    let (mut here, mut there) = (build("udp 4000", 0), build("udp 4000", 1));
    let frame = |there: &mut Stack, mac| to_station(sent(there, Some("10.0.0.1:4000"), b"hello").unwrap(), mac);
    let before = frame(&mut there, MACS[0]);
    here.facts_changed(0, &moved);
    assert_eq!(sent(&mut here, Some("10.0.0.2:9"), b"hello").unwrap()[6..12], moved.mac);
    assert_eq!(sent(&mut here, Some("10.0.0.2:9"), &[0; 980]), Err(SendError::MessageTooLong));
    // A frame already on its way, one for the new address, one for a third.
    let after = frame(&mut there, moved.mac);
    let strange = frame(&mut there, [2, 0, 0, 0, 0, 8]);
    assert_eq!([&before, &after].map(|frame| received(&mut here, frame).is_ok()), [true; 2]);
    assert_eq!(received(&mut here, &strange), Err(Discard::OtherStation));
    // The sender left the checksum to a device: it is the sum of the pseudo header alone.
    let mut unfinished = after;
    unfinished[40..42].copy_from_slice(
        &packet::pseudo::sum([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 17, 13).folded().to_be_bytes(),
    );
    assert!(received(&mut here, &unfinished).is_ok());
    // After a second change the first address no longer works.
    here.facts_changed(0, &Facts { mac: [2, 0, 0, 0, 0, 7], ..moved.clone() });
    assert_eq!(received(&mut here, &before), Err(Discard::OtherStation));
    // The same address with other facts does not forget the old address.
    here.facts_changed(0, &Facts { mac: [2, 0, 0, 0, 0, 7], mtu: 1_200, ..moved });
    assert!(received(&mut here, &unfinished).is_ok());
}
