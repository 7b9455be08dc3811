//! The interface's own functions: ARP, ICMP, routes, fragments, own addresses, the rate of the wire. Neighbour
//! Discovery is in `ndp.rs`, extension headers are in `ipv6.rs`.

use super::bed::{
    At, Bed, FAMILIES, FAR, NEAR, answer, arp, asks_for, at, datagram, ends, frames, headers, icmp_frame, interface,
    is_sealed, ndp_frame, outgoing, payload, received, seal, six, transport_sum, udp,
};
use crate::announce::Announcements;
use crate::limits::{ECHO_ANSWERS, FRAGMENT_TIME, SECOND};
use buffer::flow::Drop;
use driver::loopback::Capacity;
use packet::ndp;
use rustix::io::Errno;
use std::net::IpAddr;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

/// An ICMP message of the far side.
fn far_icmp(at: At, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    icmp_frame(WIRE, [at(2, 0).ip(), at(1, 0).ip()], kind, code, rest)
}

#[test]
fn arp_answers_for_own_addresses_only_and_learns_only_what_was_asked() {
    let mut bed = Bed::new();
    bed.give(&arp(1, FAR, 2, 1, [0xff; 6]));
    let mut reply = arp(2, NEAR, 1, 2, FAR);
    reply[32..38].copy_from_slice(&FAR);
    assert_eq!(bed.sent(), [reply]);
    bed.give(&arp(1, FAR, 2, 3, [0xff; 6]));
    bed.give(&arp(2, FAR, 2, 1, NEAR));
    bed.give(&arp(2, FAR, 1, 1, NEAR));
    let mut liar = arp(2, [2, 0, 0, 0, 0, 7], 2, 1, NEAR);
    liar[6..12].copy_from_slice(&FAR);
    bed.give(&liar);
    bed.give(&arp(2, FAR, 2, 1, NEAR)[..40]);
    assert!(bed.sent().is_empty() && bed.interface.core.neighbours.state(bed.now).is_empty());
    let expected = [("arp_malformed", 1), ("arp_answered", 1), ("arp_ignored", 3), ("arp_conflict", 1)];
    assert_eq!(bed.ends(), expected.map(|(name, count)| (name.to_string(), count)));
}

#[test]
fn arp_answers_are_limited() {
    let mut bed = Bed::new();
    for _ in 0..400 {
        bed.give(&arp(1, FAR, 2, 1, [0xff; 6]));
    }
    let sent = bed.sent().len();
    assert_eq!((sent, bed.counter("ended.arp_over_limit")), (100, 300));
}

#[test]
fn a_silent_neighbour_blocks_its_flow_alone_and_is_reported() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let (mut blocked, mut free) = (bed.open(5, &udp(at(1, 1024), None)), bed.open(5, &udp(at(1, 2000), None)));
        bed.introduce(&mut free);
        for _ in 0..3 {
            let frame = outgoing(at(1, 1024), at(9, 9), b"anybody?");
            blocked.send(&[&frame]).expect("there is room");
        }
        let mut asked = 0;
        for second in 0..3 {
            asked += bed.sent().iter().filter(|frame| asks_for(frame, at(9, 0).ip())).count();
            free.send(&[&outgoing(at(1, 2000), at(2, 9), b"others go on")]).expect("there is room");
            assert_eq!(bed.sent().len(), 1, "second {second}");
            assert_eq!(blocked.channel.errors(), (0, 0, 0));
            bed.now += SECOND;
        }
        assert_eq!(asked, 3);
        assert!(bed.sent().is_empty());
        assert_eq!(blocked.channel.errors(), (3, Errno::HOSTUNREACH.raw_os_error(), 0));
        assert_eq!((blocked.channel.dropped(Drop::Unreachable), blocked.channel.outstanding()), (3, 0));
        assert_eq!(bed.counter("neighbours.silent"), 1);
        // It is asked again later, and then answers.
        bed.now += 2 * SECOND;
        blocked.send(&[&outgoing(at(1, 1024), at(9, 9), b"now?")]).expect("there is room");
        assert_eq!(bed.sent().len(), 1);
        bed.give(&answer(at(9, 0).ip(), FAR));
        assert_eq!(payload(&bed.sent()[0]), *b"now?");
    }
}

#[test]
fn echo_requests_are_answered_within_a_limit() {
    for (at, request, reply, all) in [(at as At, 8, 0, "10.0.0.255"), (six, 128, 129, "ff02::1")] {
        let mut bed = Bed::new();
        let asked = far_icmp(at, request, 0, b"\0\x07\0\x01some bytes");
        bed.give(&asked);
        let sent = bed.sent();
        let ips = [at(1, 0).ip(), at(2, 0).ip()];
        let expected = icmp_frame([NEAR, FAR], ips, reply, 0, b"\0\x07\0\x01some bytes");
        assert_eq!((&sent[0][..14], ends(&sent[0])), (&expected[..14], ends(&expected)));
        assert_eq!((&sent[0][headers(&sent[0])..], is_sealed(&sent[0])), (&expected[headers(&expected)..], true));
        let mut broken = asked.clone();
        *broken.last_mut().expect("it has bytes") ^= 1;
        bed.give(&broken);
        let to_all = [at(2, 0).ip(), all.parse().expect("an address")];
        bed.give(&icmp_frame([FAR, [0xff; 6]], to_all, request, 0, b"\0\x07\0\x01some bytes"));
        assert!(bed.sent().is_empty());
        for _ in 0..2 * ECHO_ANSWERS.1 {
            bed.give(&asked);
        }
        assert_eq!(bed.sent().len() as u64, ECHO_ANSWERS.1 - 1);
        assert!(bed.ends().contains(&("icmp_malformed".into(), 1)));
    }
}

#[test]
fn an_echo_request_longer_than_a_packet_is_answered_in_fragments() {
    for (at, request, reply) in [(at as At, 8, 0), (six, 128, 129)] {
        let mut bed = Bed::new();
        let body: Vec<u8> = (0..4000_u32).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        let asked = far_icmp(at, request, 0, &body);
        let fragments = crate::fragmenting::fragments(&asked, 1500, 7);
        assert_eq!(fragments.len(), 3);
        fragments.iter().for_each(|fragment| bed.give(fragment));
        let sent = bed.sent();
        assert!(sent.len() == 3 && sent.iter().all(|frame| frame.len() <= 1514), "{}", sent.len());
        // Joined again by another interface, it is a message from the address that was asked.
        let expected = icmp_frame([NEAR, FAR], [at(1, 0).ip(), at(2, 0).ip()], reply, 0, &body);
        let is_ipv4 = at(1, 0).is_ipv4();
        let header = if is_ipv4 { 34 } else { 62 };
        let joined: Vec<u8> = sent.iter().flat_map(|frame| frame[header..].to_vec()).collect();
        assert_eq!(joined, expected[headers(&expected)..]);
        let word = |frame: &[u8]| match is_ipv4 {
            true => (u16::from_be_bytes([frame[20] & 0x1f, frame[21]]) * 8, frame[20] & 0x20 != 0),
            false => (u16::from_be_bytes([frame[56], frame[57] & 0xf8]), frame[57] & 1 != 0),
        };
        let step = sent[0].len() as u16 - header as u16;
        assert_eq!(
            sent.iter().map(|frame| word(frame)).collect::<Vec<_>>(),
            [(0, true), (step, true), (2 * step, false)]
        );
    }
}

#[test]
fn a_closed_port_is_unreachable_and_its_sender_learns_it() {
    for (at, kind, code, most) in [(at as At, 3, 3, 576), (six, 1, 4, 1280)] {
        let (mut near, mut far) = (Bed::new(), Bed::with(&interface("far", 2), Capacity::default()));
        // The second bed has the first one's hardware address. The test carries the frames.
        let mut client = near.open(5, &udp(at(1, 4001), Some(at(2, 4000))));
        near.introduce(&mut client);
        let mut frame = outgoing(at(1, 4001), at(2, 4000), b"anybody?");
        client.send(&[&frame]).expect("there is room");
        frame = near.sent().remove(0);
        frame[..6].copy_from_slice(&NEAR);
        frame[6..12].copy_from_slice(&FAR);
        far.give(&frame);
        let mut error = far.sent().remove(0);
        let headers = headers(&error);
        assert_eq!((&error[headers..headers + 2], transport_sum(&error).folded()), (&[kind, code][..], 0xffff));
        assert_eq!(error[headers + 8..], frame[14..]);
        error[..12].copy_from_slice(&[NEAR, FAR].concat());
        near.give(&error);
        assert_eq!(client.channel.errors(), (1, Errno::CONNREFUSED.raw_os_error(), 0));
        assert_eq!(near.counter("ended.icmp_error_reported"), 1);
        // An error quotes as much of a long packet as each path carries (RFC 4443 2.4 c, RFC 1812 4.3.2.3).
        far.give(&datagram([FAR, NEAR], at(1, 4001), at(2, 4000), &[7; 1400]));
        assert_eq!(far.sent().remove(0).len(), 14 + most);
        // Never about errors or broadcasts.
        far.give(&error);
        let all: IpAddr = if headers == 34 { "10.0.0.255" } else { "ff02::1" }.parse().expect("an address");
        let mac = if headers == 34 { [0xff; 6] } else { [0x33, 0x33, 0, 0, 0, 1] };
        far.give(&datagram([FAR, mac], at(1, 1), (all, 4000).into(), b"all"));
        far.give(&datagram([FAR, mac], at(1, 1), at(2, 4000), b"for one in a frame for all"));
        assert!(far.sent().is_empty(), "{:?}", far.ends());
        for _ in 0..200 {
            far.give(&frame);
        }
        assert_eq!(far.sent().len(), 48, "the limit's burst, less the first two");
        far.ends();
    }
}

#[test]
fn icmp_errors_reach_the_flow_they_are_about_and_no_other() {
    let of_ipv4 = [
        (3, 3, Errno::CONNREFUSED),
        (3, 4, Errno::MSGSIZE),
        (3, 1, Errno::HOSTUNREACH),
        (3, 0, Errno::NETUNREACH),
        (11, 0, Errno::HOSTUNREACH),
        (12, 0, Errno::PROTO),
    ];
    let of_ipv6 = [
        (1, 4, Errno::CONNREFUSED),
        (1, 0, Errno::NETUNREACH),
        (1, 1, Errno::ACCESS),
        (1, 3, Errno::HOSTUNREACH),
        (3, 0, Errno::HOSTUNREACH),
        (4, 1, Errno::PROTO),
    ];
    for (at, rows, redirect) in [(at as At, of_ipv4, 5), (six, of_ipv6, 200)] {
        let mut bed = Bed::new();
        let (flow, bound) = (bed.open(5, &udp(at(1, 4001), Some(at(2, 4000)))), bed.open(5, &udp(at(1, 4002), None)));
        let quote = |from, to| datagram([NEAR, FAR], from, to, b"")[14..].to_vec();
        let about = |kind, code, quote: Vec<u8>| far_icmp(at, kind, code, &[&[0; 4][..], &quote].concat());
        for (kind, code, errno) in rows {
            let before = flow.channel.errors().0;
            bed.give(&about(kind, code, quote(at(1, 4001), at(2, 4000))));
            assert_eq!(flow.channel.errors(), (before + 1, errno.raw_os_error(), 0), "{kind} {code}");
        }
        let seen = flow.channel.errors().0;
        let unreachable = rows[0].0;
        bed.give(&about(unreachable, rows[0].1, quote(at(1, 4001), at(2, 4009))));
        bed.give(&about(unreachable, rows[0].1, quote(at(1, 4002), at(2, 4000))));
        let cut = quote(at(1, 4001), at(2, 4000));
        bed.give(&about(unreachable, rows[0].1, cut[..cut.len() - 6].to_vec()));
        bed.give(&about(redirect, 0, quote(at(1, 4001), at(2, 4000))));
        assert_eq!((flow.channel.errors().0, bound.channel.errors().0), (seen, 0));
        let ends = bed.ends();
        let expected = [("icmp_error_of_no_flow".into(), 3), ("icmp_other".into(), 1)];
        assert!(expected.iter().all(|end| ends.contains(end)), "{ends:?}");
    }
}

/// RFC 8201 4: no path of IPv6 carries less than 1,280 bytes.
#[test]
fn packet_too_big_names_an_mtu_that_a_path_of_ipv6_can_have() {
    let mut bed = Bed::new();
    let flow = bed.open(5, &udp(six(1, 4001), Some(six(2, 4000))));
    let quoted = datagram([NEAR, FAR], six(1, 4001), six(2, 4000), b"")[14..].to_vec();
    for (mtu, seen) in [(1400_u32, Some(1400)), (1279, None), (0, None), (1280, Some(1280)), (70_000, Some(70_000))] {
        let before = flow.channel.errors().0;
        bed.give(&far_icmp(six, 2, 0, &[&mtu.to_be_bytes()[..], &quoted].concat()));
        let (errors, errno, said) = flow.channel.errors();
        assert_eq!(errors - before, u64::from(seen.is_some()), "{mtu}");
        assert!(seen.is_none_or(|seen| (errno, said) == (Errno::MSGSIZE.raw_os_error(), seen)), "{mtu}");
    }
}

#[test]
fn the_exact_name_comes_before_the_bound_port() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut bound = bed.open(5, &udp(at(1, 4000), None));
        let mut exact = bed.open(5, &udp(at(1, 4000), Some(at(2, 7))));
        bed.give(&datagram(WIRE, at(2, 7), at(1, 4000), b"exact"));
        bed.give(&datagram(WIRE, at(2, 8), at(1, 4000), b"bound"));
        let payloads =
            |flow: &mut flow::Flow| received(flow).iter().map(|frame| payload(frame).to_vec()).collect::<Vec<_>>();
        assert_eq!(payloads(&mut exact), [b"exact"]);
        assert_eq!(payloads(&mut bound), [b"bound"]);
        // Padding behind the packet does not belong to it.
        bed.give(&[&datagram(WIRE, at(2, 7), at(1, 4000), b"x")[..], &[0; 17]].concat());
        assert_eq!(payloads(&mut exact), [b"x"]);
        // The same port of the other family is independent.
        let other = if at(1, 0).is_ipv4() { six } else { super::bed::at };
        bed.give(&datagram(WIRE, other(2, 7), other(1, 4000), b"elsewhere"));
        assert!(payloads(&mut exact).is_empty() && payloads(&mut bound).is_empty());
    }
    let mut bed = Bed::new();
    let mut bound = bed.open(5, &udp(at(1, 4000), None));
    bed.give(&datagram([FAR, [0xff; 6]], at(2, 8), at(255, 4000), b"all"));
    assert_eq!(payload(&received(&mut bound)[0]), b"all");
}

#[test]
fn a_flow_reaches_another_one_of_this_host_without_the_wire() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut one = bed.open(5, &udp(at(1, 4000), Some(at(1, 4001))));
        let mut other = bed.open(6, &udp(at(1, 4001), None));
        one.send(&[&outgoing(at(1, 4000), at(1, 4001), b"to myself")]).expect("there is room");
        assert!(bed.sent().is_empty());
        assert_eq!(payload(&received(&mut other)[0]), *b"to myself");
        let state = bed.interface.core.state(None, bed.now);
        assert!(state.flows.iter().all(|flow| flow.receive_ns > 0), "both pay");
        assert!(bed.interface.core.state(Some(6), bed.now).flows.len() == 1);
        // The closed port is reported to the flow without using the wire.
        bed.interface.leave(6, bed.now);
        one.send(&[&outgoing(at(1, 4000), at(1, 4001), b"still there?")]).expect("there is room");
        assert!(bed.sent().is_empty());
        assert_eq!(one.channel.errors(), (1, Errno::CONNREFUSED.raw_os_error(), 0));
        assert_eq!((bed.counter("looped"), bed.counter("sent")), (3, 0));
        bed.ends();
    }
}

#[test]
fn a_gateway_is_the_next_hop_for_all_that_no_prefix_holds() {
    let refused_four = ["224.0.0.1", "127.0.0.1", "0.0.0.0", "240.0.0.1"];
    let refused_six = ["ff02::1", "::1", "::", "::ffff:10.0.0.2"];
    for (at, far_away, refused) in [(at as At, "192.0.2.1:53", refused_four), (six, "[2001:db8::1]:53", refused_six)] {
        let gateways = vec![at(2, 0).ip()];
        let open = flow::OpenInterface { gateways, ..interface("near", 1) };
        let mut bed = Bed::with(&open, Capacity::default());
        let mut flow = bed.open(5, &udp(at(1, 4000), None));
        bed.introduce(&mut flow);
        flow.send(&[&outgoing(at(1, 4000), far_away.parse().expect("an address"), b"query")]).expect("there is room");
        assert_eq!(bed.sent()[0][..6], FAR);
        if at(1, 0).is_ipv4() {
            flow.send(&[&outgoing(at(1, 4000), at(255, 9), b"all")]).expect("there is room");
            assert_eq!(bed.sent()[0][..6], [0xff; 6]);
        }
        for refused in refused {
            let to = (refused.parse::<IpAddr>().expect("an address"), 9).into();
            flow.send(&[&outgoing(at(1, 4000), to, b"no")]).expect("there is room");
        }
        assert!(bed.sent().is_empty());
        assert_eq!(flow.channel.dropped(Drop::Forged), 4);
    }
}

/// One of the three fragments of a UDP datagram of 1,208 bytes for port 4000.
fn piece(at: At, number: usize) -> Vec<u8> {
    let whole = datagram(WIRE, at(2, 7), at(1, 4000), &[7; 1200]);
    let start = headers(&whole);
    let range = [0..400, 400..800, 800..1208][number].clone();
    let (offset, more) = (range.start as u16, number < 2);
    let bytes = &whole[start..][range];
    if start == 34 {
        let mut frame = [&whole[..34], bytes].concat();
        frame[16..18].copy_from_slice(&((20 + bytes.len()) as u16).to_be_bytes());
        frame[20..22].copy_from_slice(&((offset / 8) | if more { 0x2000 } else { 0 }).to_be_bytes());
        seal(&mut frame);
        return frame;
    }
    let field = offset | u16::from(more);
    let header = [&[17, 0][..], &field.to_be_bytes(), &[0, 0, 0, 7]].concat();
    let mut frame = [&whole[..54], &header, bytes].concat();
    frame[18..20].copy_from_slice(&((8 + bytes.len()) as u16).to_be_bytes());
    frame[20] = 44;
    frame
}

#[test]
fn a_datagram_in_pieces_is_delivered_whole_or_times_out() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut flow = bed.open(5, &udp(at(1, 4000), None));
        for number in [2, 0, 1] {
            bed.give(&piece(at, number));
        }
        assert_eq!(received(&mut flow), [datagram(WIRE, at(2, 7), at(1, 4000), &[7; 1200])]);
        bed.give(&piece(at, 0));
        bed.give(&piece(at, 2));
        assert_eq!(bed.settle(), Some(bed.now + FRAGMENT_TIME));
        bed.now += FRAGMENT_TIME;
        assert_eq!(bed.settle(), None);
        bed.give(&piece(at, 1));
        assert!(received(&mut flow).is_empty());
        let counted =
            ["fragments.joined", "fragments.expired_datagrams", "ended.fragment_kept"].map(|name| bed.counter(name));
        assert_eq!(counted, [1, 1, 5]);
        bed.ends();
    }
}

#[test]
fn the_wire_keeps_its_rate_and_the_rest_waits_in_the_channel() {
    let open = flow::OpenInterface { rate: Some(10_000_000), count_gaps: true, ..interface("near", 1) };
    let mut bed = Bed::with(&open, Capacity::default());
    let mut flow = bed.open(5, &udp(at(1, 4000), Some(at(2, 4000))));
    bed.introduce(&mut flow);
    bed.now += SECOND;
    let (begun, frame, mut bytes) = (bed.now, outgoing(at(1, 4000), at(2, 4000), &[0; 1000]), 0);
    while bed.now < begun + SECOND {
        while flow.send(&[&frame]).is_ok() {}
        let due = bed.settle().expect("the wire is busy");
        bytes += frames(&mut bed.far.receiver).iter().map(|frame| frame.len() as u64 + 24).sum::<u64>();
        assert!(due > bed.now && due < bed.now + SECOND / 100, "it sleeps until the next departure");
        // The thread wakes late, as threads do.
        bed.now = due + 70_000;
    }
    assert!(bytes.abs_diff(1_250_000) * 100 <= 2 * 1_250_000, "{bytes} bytes in a second");
    assert_eq!(flow.channel.dropped(Drop::Refused), 0);
}

#[test]
fn a_device_without_room_loses_nothing() {
    let mut bed = Bed::with(&interface("near", 1), Capacity { frames: 5, bytes: 0 });
    let mut flow = bed.open(5, &udp(at(1, 4000), Some(at(2, 4000))));
    bed.introduce(&mut flow);
    for number in 0..100_u8 {
        flow.send(&[&outgoing(at(1, 4000), at(2, 4000), &[number])]).expect("there is room");
    }
    let mut seen = Vec::new();
    while seen.len() < 100 {
        let due = bed.settle();
        seen.extend(frames(&mut bed.far.receiver).into_iter().map(|frame| frame[42]));
        bed.now = due.unwrap_or(bed.now);
    }
    assert_eq!(seen, (0..100).collect::<Vec<u8>>());
    assert_eq!(bed.settle(), None);
    assert!(bed.counter("device.no_room") > 0);
}

#[test]
fn the_only_packet_of_an_application_that_ends_at_once_waits_for_its_neighbour() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut flow = bed.open(5, &udp(at(1, 4000), None));
        for number in 0..5 {
            flow.send(&[&outgoing(at(1, 4000), at(2, 4001), &[number; 9])]).expect("there is room");
        }
        bed.sent();
        bed.interface.leave(5, bed.now);
        assert!(bed.sent().is_empty() && bed.users.flows() == 0);
        bed.give(&answer(at(2, 0).ip(), FAR));
        let sent = bed.sent();
        assert_eq!(sent.iter().map(|frame| payload(frame)[0]).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(sent.iter().all(|frame| frame[..12] == [FAR, NEAR].concat() && is_sealed(frame)));
    }
}

#[test]
fn flows_take_turns_on_a_wire_that_is_full() {
    let open = flow::OpenInterface { rate: Some(10_000_000), ..interface("near", 1) };
    let mut bed = Bed::with(&open, Capacity::default());
    let mut flows = [1, 2, 3].map(|port| bed.open(5, &udp(at(1, 5000 + port), Some(at(2, port)))));
    bed.introduce(&mut flows[0]);
    for flow in &mut flows {
        while flow.send(&[&outgoing(flow.granted.local, at(2, 9), b"forged")]).is_ok() {}
    }
    bed.settle();
    assert!(flows.iter().all(|flow| flow.channel.dropped(Drop::Forged) >= 200));
    let begun = bed.now;
    while bed.now < begun + SECOND {
        for (number, flow) in flows.iter_mut().enumerate() {
            let frame = outgoing(flow.granted.local, at(2, 1 + number as u16), &[0; 500]);
            while flow.send(&[&frame]).is_ok() {}
        }
        bed.now = bed.settle().expect("the wire is busy");
        frames(&mut bed.far.receiver);
    }
    let sent: Vec<_> = bed.interface.core.state(None, bed.now).flows.iter().map(|flow| flow.sent).collect();
    let total: u64 = sent.iter().sum();
    assert!(total > 2000 && sent.iter().all(|sent| sent.abs_diff(total / 3) <= 20), "{sent:?}");
}

/// RFC 5227 2.3: two announcements of each address, two seconds apart, and again after the device was down.
#[test]
fn an_interface_announces_its_addresses_when_it_comes_up() {
    let mut bed = Bed::new();
    bed.interface.core.announcements = Announcements::new();
    let mut announcement = arp(1, NEAR, 1, 1, [0xff; 6]);
    announcement[32..38].fill(0);
    // IPv6: a question for the owner (RFC 4862 5.4.2), an announcement (RFC 4861 7.2.6); the last one is link-local.
    let probes = ["fd00::1", "fe80::ff:fe00:1"].map(|own| {
        let own: std::net::Ipv6Addr = own.parse().expect("an address");
        let group = ndp::solicited_node(own);
        ndp_frame([NEAR, ndp::group_mac(group)], "::", &group.to_string(), &ndp::probe(own))
    });
    let advertisements = ["fd00::1", "fe80::ff:fe00:1"].map(|own| {
        let message = ndp::advertisement(ndp::OVERRIDE, own.parse().expect("an address"), NEAR);
        ndp_frame([NEAR, [0x33, 0x33, 0, 0, 0, 1]], own, "ff02::1", &message)
    });
    let all = |six: &[Vec<u8>; 2]| [&[announcement.clone()][..], six].concat();
    let begun = bed.now;
    assert_eq!(bed.sent(), all(&probes));
    assert_eq!(bed.settle(), Some(begun + 2 * SECOND));
    bed.now = begun + 2 * SECOND;
    assert_eq!(bed.sent(), all(&advertisements));
    assert_eq!((bed.settle(), bed.counter("sent.arp_announcements")), (None, 2));
    assert_eq!(bed.counter("sent.neighbour_announcements"), 4);
    bed.interface.core.trouble = Some("it was down".into());
    assert_eq!(bed.sent(), all(&probes));
    bed.give(&arp(2, FAR, 1, 1, NEAR));
    bed.give(&answer(six(1, 0).ip(), FAR));
    assert_eq!((bed.counter("ended.arp_conflict"), bed.counter("ended.ndp_conflict")), (1, 1));
    // The host announces its own addresses.
    bed.interface.core.announcements = Announcements::default();
    bed.interface.core.trouble = Some("it was down".into());
    bed.now += 10 * SECOND;
    assert!(bed.sent().is_empty());
}
