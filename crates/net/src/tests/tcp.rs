//! Listeners: handshakes by cookie, with segments made by hand.

use super::bed::{
    ACK, At, Bed, FAMILIES, FAR, FIN, NEAR, RST, SYN, Tcp, answer, asks_for, at, connecting, datagram, headers,
    icmp_frame, interface, listener, protocol, received, seal, seal_transport, udp,
};
use crate::NetErrorKind;
use crate::interface::Next;
use crate::limits::{ACCEPT_TIME, COOKIE_TIME, SECOND, USER_WAITING};
use buffer::flow::{Drop, Geometry};
use driver::loopback::Capacity;
use driver::{Transmit, Turn};
use flow::OpenListener;
use testkit::random::Random;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

/// Linux's options.
const OPTIONS: [u8; 12] = [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7];

/// The low byte of the longest segment in a packet of 1,500 bytes: 1,460, and 1,440 with an IPv6 header.
fn mss(at: At) -> u8 {
    if at(1, 0).is_ipv4() { 180 } else { 160 }
}

/// A listener for this port of 10.0.0.1 or fd00::1.
fn listener_at(at: At, port: u16, backlog: u32) -> OpenListener {
    OpenListener { local: at(1, port), ..listener(port, backlog) }
}

/// A segment from `port` of the far side to port 80.
fn segment(at: At, port: u16, tcp: Tcp, options: &[u8], payload: &[u8]) -> Vec<u8> {
    tcp.frame(WIRE, [at(2, port), at(1, 80)], options, payload)
}

impl Bed {
    /// Sends a SYN with the number 1000 from `port`, and returns the cookie of the answer.
    fn cookie(&mut self, at: At, port: u16) -> u32 {
        self.give(&segment(at, port, Tcp(SYN, 1000, 0), &OPTIONS, b""));
        let answers = self.sent();
        let Tcp(flags, cookie, acknowledgment) = Tcp::of(&answers[0]);
        assert_eq!((answers.len(), flags, acknowledgment), (1, SYN | ACK, 1001));
        cookie
    }

    /// A whole handshake.
    fn handshake(&mut self, at: At, port: u16) -> u32 {
        let cookie = self.cookie(at, port);
        self.give(&segment(at, port, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], b""));
        cookie
    }
}

#[test]
fn a_handshake_by_cookie_opens_a_connection_whose_data_wait_for_the_application() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let open = listener_at(at, 80, 8);
        assert_eq!(bed.listen(5, &open).expect_err("a port of root").kind, NetErrorKind::Denied);
        let held = bed.listen(0, &open).expect("nothing is in its way");
        assert!(held.listening.has_bells && held.fall_asleep());
        bed.give(&segment(at, 5000, Tcp(SYN, 1000, 0), &OPTIONS, b"too early"));
        let syn = bed.sent().remove(0);
        let Tcp(flags, cookie, acknowledgment) = Tcp::of(&syn);
        assert_eq!((flags, acknowledgment, &syn[..12]), (SYN | ACK, 1001, &[FAR, NEAR].concat()[..]));
        // The window and the shift of the listener; the segment of the device.
        assert_eq!(syn[headers(&syn) + 14..][..2], 50_000_u16.to_be_bytes());
        assert_eq!(syn[headers(&syn) + 20..], [2, 4, 5, mss(at), 1, 1, 4, 2, 1, 3, 3, 3]);
        assert_eq!((bed.interface.core.flows.ids().len(), bed.users.flows()), (0, 1));
        assert!(bed.accept(0, held.listening.channel, 16).is_empty());

        let ack = segment(at, 5000, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], b"GET /");
        bed.give(&ack);
        assert!(!held.fall_asleep(), "the bell rang");
        let more = segment(at, 5000, Tcp(ACK, 1006, cookie.wrapping_add(1)), &[], b" HTTP/1.0");
        bed.give(&more);
        let state = bed.interface.core.state(None, bed.now).listeners.remove(0);
        assert_eq!((state.waiting, state.accepted, state.backlog), (1, 0, 8));
        let mut flow = bed.accept(0, held.listening.channel, 16).remove(0);
        assert_eq!((flow.granted.isn, flow.granted.local, flow.granted.remote), (cookie, at(1, 80), Some(at(2, 5000))));
        let frames = received(&mut flow);
        assert_eq!((frames.len(), &frames[1], &frames[2]), (3, &ack, &more));
        assert_eq!((Tcp::of(&frames[0]), &frames[0][headers(&frames[0]) + 20..]), (Tcp(SYN, 1000, 0), &OPTIONS[..]));
        // 1000 << 7 is more than a SYN's window can hold.
        assert_eq!(frames[0][headers(&frames[0]) + 14..][..2], [0xff, 0xff]);
        assert_eq!(frames[0][..12], [NEAR, FAR].concat());

        // Data go both ways from now on, and its bell rings.
        flow.awake();
        bed.give(&more);
        assert!(!flow.fall_asleep());
        assert_eq!(received(&mut flow), [more]);
        let sends = Tcp(ACK, cookie.wrapping_add(1), 1015).frame([NEAR, [0; 6]], [at(1, 80), at(2, 5000)], &[], b"200");
        flow.send(&[&sends]).expect("there is room");
        assert!(asks_for(&bed.sent()[0], at(2, 0).ip()));
        bed.give(&answer(at(2, 0).ip(), FAR));
        let sent = bed.sent();
        assert_eq!(sent[0][headers(&sent[0]) + 20..], *b"200");
        assert_eq!(bed.interface.core.state(None, bed.now).listeners[0].accepted, 1);
        let ends: Vec<_> = bed.ends().into_iter().filter(|(name, _)| !name.ends_with("learnt")).collect();
        assert_eq!(
            ends,
            [("delivered".into(), 2), ("tcp_syn_answered".into(), 1), ("tcp_connection_opened".into(), 1)]
        );
    }
}

#[test]
fn answers_say_no_more_than_the_syn_did() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        bed.listen(0, &listener_at(at, 80, 8)).expect("nothing is in its way");
        for (options, expected) in [
            (&[][..], &[2, 4, 5, mss(at)][..]),
            (&[2, 4, 1, 0], &[2, 4, 5, mss(at)]),
            (&[1, 1, 4, 2], &[2, 4, 5, mss(at), 1, 1, 4, 2]),
            (&[1, 3, 3, 0], &[2, 4, 5, mss(at), 1, 3, 3, 3]),
            // Timestamps are not kept.
            (&[1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0], &[2, 4, 5, mss(at)]),
        ] {
            bed.give(&segment(at, 5000, Tcp(SYN, 7, 0), options, b""));
            let answer = bed.sent().remove(0);
            assert_eq!(answer[headers(&answer) + 20..], *expected, "{options:?}");
        }
    }
}

#[test]
fn what_is_no_cookie_is_reset_and_an_old_one_is_none() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held = bed.listen(0, &listener_at(at, 80, 8)).expect("nothing is in its way");
        bed.now = 100 * COOKIE_TIME;
        let cookie = bed.cookie(at, 5000);
        let wrong = cookie.wrapping_add(2);
        for (port, sequence, acknowledgment) in
            [(5000, 1001, wrong), (5000, 1002, cookie.wrapping_add(1)), (5001, 1001, cookie.wrapping_add(1))]
        {
            bed.give(&segment(at, port, Tcp(ACK, sequence, acknowledgment), &[], b"data"));
            assert_eq!(
                bed.sent().iter().map(|frame| Tcp::of(frame)).collect::<Vec<_>>(),
                [Tcp(RST, acknowledgment, 0)]
            );
        }
        // With a wrong checksum there is no answer.
        let mut broken = segment(at, 5000, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], b"data");
        *broken.last_mut().expect("it has data") ^= 1;
        bed.give(&broken);
        assert!(bed.sent().is_empty());
        bed.now += 2 * COOKIE_TIME;
        bed.give(&segment(at, 5000, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], b""));
        assert_eq!(Tcp::of(&bed.sent()[0]), Tcp(RST, cookie.wrapping_add(1), 0));
        assert!(bed.accept(0, held.listening.channel, 16).is_empty());
        let fresh = bed.cookie(at, 5000);
        bed.now += COOKIE_TIME;
        bed.give(&segment(at, 5000, Tcp(ACK, 1001, fresh.wrapping_add(1)), &[], b""));
        assert_eq!(bed.accept(0, held.listening.channel, 16).len(), 1);
        assert!(bed.ends().contains(&("tcp_checksum".into(), 1)));
    }
}

#[test]
fn a_full_queue_drops_and_goes_on_when_there_is_room() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held = bed.listen(0, &listener_at(at, 80, 2)).expect("nothing is in its way");
        let cookies: Vec<_> = (0..4).map(|port| bed.handshake(at, 5000 + port)).collect();
        let state = |bed: &Bed| bed.interface.core.state(Some(0), bed.now).listeners.remove(0);
        assert_eq!((state(&bed).waiting, state(&bed).drops), (2, vec![("queue is full".to_string(), 2)]));
        assert!(bed.sent().is_empty(), "the other side sends again");
        let accepted = bed.accept(0, held.listening.channel, 1);
        assert_eq!((accepted.len(), accepted[0].granted.isn), (1, cookies[0]));
        bed.give(&segment(at, 5003, Tcp(ACK, 1001, cookies[3].wrapping_add(1)), &[], b"again"));
        let rest = bed.accept(0, held.listening.channel, 16);
        assert_eq!(rest.iter().map(|flow| flow.granted.isn).collect::<Vec<_>>(), [cookies[1], cookies[3]]);
        assert!(bed.ends().contains(&("dropped_by_listener".into(), 2)));
        // Other users do not see it.
        assert!(bed.interface.core.state(Some(7), bed.now).listeners.is_empty());
    }
}

#[test]
fn what_follows_a_dropped_beginning_is_not_reset() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held = bed.listen(0, &listener_at(at, 80, 1)).expect("nothing is in its way");
        bed.handshake(at, 5000);
        let cookie = bed.handshake(at, 5001);
        assert_eq!(bed.accept(0, held.listening.channel, 16).len(), 1);
        let second = segment(at, 5001, Tcp(ACK, 1101, cookie.wrapping_add(1)), &[], b"the second segment");
        bed.give(&second);
        bed.give(&segment(at, 5001, Tcp(FIN | ACK, 1201, cookie.wrapping_add(1)), &[], b""));
        assert!(bed.sent().is_empty(), "the other side sends the first one again");
        let state = bed.interface.core.state(None, bed.now).listeners.remove(0);
        assert_eq!(state.drops, [("queue is full".to_string(), 3)]);
        bed.give(&segment(at, 5001, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], b"the first one"));
        assert_eq!(bed.accept(0, held.listening.channel, 16).len(), 1);
        // A segment that was not repeated while a cookie is valid was not for a listener.
        let stray = segment(at, 5002, Tcp(ACK, 1101, cookie.wrapping_add(1)), &[], b"");
        bed.now += COOKIE_TIME - 1;
        bed.give(&stray);
        assert!(bed.sent().is_empty());
        bed.now += 1;
        bed.give(&stray);
        assert_eq!(Tcp::of(&bed.sent()[0]), Tcp(RST, cookie.wrapping_add(1), 0));
    }
}

#[test]
fn a_user_has_its_quotas() {
    let mut bed = Bed::new();
    let small = OpenListener { receive_buffers: 4, send_records: 4, send_bytes: 4096, ..listener(80, 1024) };
    let other = OpenListener { local: at(1, 81), ..small.clone() };
    bed.listen(0, &small).expect("nothing is in its way");
    bed.listen(0, &other).expect("nothing is in its way");
    for number in 0..USER_WAITING as u16 + 10 {
        let to = at(1, 80 + number % 2);
        bed.give(&Tcp(SYN, 1000, 0).frame(WIRE, [at(2, 5000 + number), to], &[], b""));
        let cookie = Tcp::of(&bed.sent()[0]).1;
        bed.give(&Tcp(ACK, 1001, cookie.wrapping_add(1)).frame(WIRE, [at(2, 5000 + number), to], &[], b""));
    }
    let waiting = |bed: &Bed| {
        let listeners = bed.interface.core.state(None, bed.now).listeners;
        listeners.iter().map(|listener| listener.waiting as usize).sum::<usize>()
    };
    assert_eq!((waiting(&bed), bed.counter("ended.dropped_by_listener")), (USER_WAITING, 10));
    assert_eq!(bed.users.flows(), USER_WAITING + 2);
    bed.interface.leave(0, bed.now);
    assert_eq!((bed.users.flows(), bed.interface.core.flows.ids().len()), (0, 0));
}

#[test]
fn what_is_not_accepted_in_time_is_reset_and_so_is_all_when_the_listener_closes() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held = bed.listen(0, &listener_at(at, 80, 8)).expect("nothing is in its way");
        let first = bed.handshake(at, 5000);
        bed.now += SECOND / 2;
        let second = bed.handshake(at, 5001);
        bed.now += ACCEPT_TIME - SECOND;
        assert!(bed.sent().is_empty());
        bed.now += SECOND / 10 * 6;
        assert_eq!(Tcp::of(&bed.sent()[0]), Tcp(RST | ACK, first.wrapping_add(1), 1001));
        bed.now += SECOND;
        assert_eq!(Tcp::of(&bed.sent()[0]), Tcp(RST | ACK, second.wrapping_add(1), 1001));
        assert_eq!(bed.settle(), None, "nothing is pending");
        let third = bed.handshake(at, 5002);
        bed.interface.close_channel(0, held.listening.channel, bed.now).expect("it is there");
        assert_eq!(Tcp::of(&bed.sent()[0]), Tcp(RST | ACK, third.wrapping_add(1), 1001));
        assert!(bed.interface.core.accept(0, held.listening.channel, 1).is_err());
        assert_eq!((bed.users.flows(), bed.counter("sent.tcp_resets_of_flows")), (0, 3));
        bed.listen(6, &listener_at(at, 8080, 8)).expect("another user, another port");
        bed.listen(0, &listener_at(at, 80, 8)).expect("the port is free");
        bed.ends();
    }
}

#[test]
fn listeners_and_flows_share_ports_of_one_user_only() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let open = listener_at(at, 8000, 8);
        bed.listen(5, &open).expect("nothing is in its way");
        assert_eq!(bed.listen(5, &open).expect_err("it has one").kind, NetErrorKind::InUse);
        assert_eq!(bed.listen(6, &open).expect_err("another user").kind, NetErrorKind::InUse);
        bed.open(5, &connecting(at(1, 8000), at(2, 80)));
        assert!(bed.try_open(5, &connecting(at(1, 8000), at(2, 80))).is_err());
        assert!(bed.try_open(6, &connecting(at(1, 8000), at(2, 81))).is_err());
        bed.open(6, &udp(at(1, 8000), None));
        let (any, group) = if at(1, 0).is_ipv4() {
            ("0.0.0.0:0", at(255, 80))
        } else {
            ("[::]:0", "[ff02::1]:80".parse().expect("an address"))
        };
        let any = any.parse().expect("an address");
        let any = bed.listen(6, &OpenListener { local: any, ..open }).expect("any");
        assert!(any.listening.local.port() >= 49152 && any.listening.local.ip() == at(1, 0).ip());
        for wrong in [
            connecting(at(9, 0), at(2, 80)),
            connecting(at(1, 0), group),
            connecting(at(1, 0), at(2, 0)),
            flow::OpenFlow { remote: None, ..connecting(at(1, 0), at(2, 80)) },
            flow::OpenFlow { protocol: 132, ..connecting(at(1, 0), at(2, 80)) },
        ] {
            assert_eq!(
                bed.try_open(5, &wrong).expect_err("it makes no sense").kind,
                NetErrorKind::Request,
                "{wrong:?}"
            );
        }
    }
}

#[test]
fn a_flood_of_syns_takes_nothing_from_another_flow_and_no_memory() {
    let mut bed = Bed::new();
    bed.interface.core.work.simulated = Some((3, 0));
    let held = bed.listen(5, &listener(8080, 1024)).expect("nothing is in its way");
    let mut steady = bed.open(6, &udp(at(1, 4001), None));
    let mut random = Random(0x5a5a);
    let (mut floods, mut packets, mut seen) = (0, 0, 0);
    while floods < 100_000 {
        // A full turn: one of eight packets is for the steady flow.
        let before = bed.interface.core.work.simulated.expect("it is set").1;
        for number in 0..crate::limits::RECEIVE_BATCHES * base::limits::BATCH_BLOCKS {
            let from = at(2 + random.below(200) as u8, 1 + random.below(65_000) as u16);
            let frame = match number % 8 {
                3 => datagram(WIRE, at(2, 7), at(1, 4001), &[7; 100]),
                _ => Tcp(SYN, random.number() as u32, 0).frame(WIRE, [from, at(1, 8080)], &OPTIONS, b""),
            };
            (floods, packets) = (floods + u64::from(number % 8 != 3), packets + u64::from(number % 8 == 3));
            assert_eq!(bed.far.sender.transmit(&[&frame]).expect("it is there"), Turn::Frames(1));
        }
        assert_eq!(bed.interface.turn(bed.now), Next::Again);
        bed.now += bed.interface.core.work.simulated.expect("it is set").1 - before;
        super::bed::frames(&mut bed.far.receiver);
        seen += received(&mut steady).len() as u64;
    }
    assert_eq!(seen, packets, "{:?}", bed.ends());
    let core = &bed.interface.core;
    assert!(core.answers.len() <= crate::limits::SYN_ANSWERS && core.flows.ids().len() == 1);
    let state = core.state(None, bed.now).listeners.remove(0);
    let overload = state.drops.iter().find(|(why, _)| why.contains("share of receive work")).map_or(0, |(_, n)| *n);
    assert!(overload > 0 && overload < floods, "{:?}", bed.ends());
    assert_eq!(bed.users.flows(), 2);
    assert!(bed.accept(5, held.listening.channel, 16).is_empty());
    let ends = bed.ends();
    assert!(ends.iter().any(|(name, count)| name == "tcp_syn_answered" && *count > 1000), "{ends:?}");
}

#[test]
fn answers_to_a_flood_take_no_guaranteed_time_of_a_paced_wire() {
    let open = flow::OpenInterface { rate: Some(10_000_000), ..interface("near", 1) };
    let mut bed = Bed::with(&open, Capacity::default());
    bed.listen(5, &listener(8080, 8)).expect("nothing is in its way");
    let begun = bed.now;
    for number in 0..20_000 {
        bed.give(&Tcp(SYN, number, 0).frame(WIRE, [at(2, 5000), at(1, 8080)], &OPTIONS, b""));
        bed.now += 50_000;
    }
    let second = bed.now - begun;
    let bytes: usize = bed.sent().iter().map(Vec::len).sum();
    let time = bytes as u64 * 8 * 100;
    assert!(time <= second / 25 + crate::limits::ANSWER_BURST + SECOND / 1000, "{time} ns of {second}");
    assert!(time > second / 50 && bed.counter("ended.tcp_syn_not_answered") > 10_000, "{:?}", bed.ends());
}

#[test]
fn mutated_segments_never_panic_and_each_ends_once() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held = bed
            .listen(0, &OpenListener { receive_buffers: 4, ..listener_at(at, 80, 1024) })
            .expect("nothing is in its way");
        let mut connected = bed.open(5, &connecting(at(1, 4001), at(2, 7)));
        let syn = Tcp(SYN, 1, 0).frame([NEAR, [0; 6]], [at(1, 4001), at(2, 7)], &[], b"");
        connected.send(&[&syn]).expect("there is room");
        bed.sent();
        let cookie = bed.handshake(at, 5000);
        let quoted = Tcp(ACK, 1, 0).frame([NEAR, FAR], [at(1, 4001), at(2, 7)], &[], b"");
        let headers = headers(&quoted);
        let about = [&[0, 0, 5, 0][..], &quoted[14..headers + 8]].concat();
        let ips = [at(2, 0).ip(), at(1, 0).ip()];
        let seeds = [
            segment(at, 5000, Tcp(SYN, 1000, 0), &OPTIONS, b""),
            segment(at, 5000, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], b"data"),
            segment(at, 5001, Tcp(ACK, 1001, 77), &[], b"data"),
            Tcp(SYN | ACK, 7, 2).frame(WIRE, [at(2, 7), at(1, 4001)], &OPTIONS, b""),
            Tcp(FIN | ACK, 8, 2).frame(WIRE, [at(2, 7), at(1, 4001)], &[], &[1; 100]),
            Tcp(RST, 8, 0).frame(WIRE, [at(2, 7), at(1, 4002)], &[], b""),
            if headers == 34 { icmp_frame(WIRE, ips, 3, 4, &about) } else { icmp_frame(WIRE, ips, 2, 0, &about) },
        ];
        let mut random = Random(0x7c9);
        let before = bed.counter("received");
        let count = 40_000;
        for _ in 0..count {
            let mut frame = seeds[random.below(seeds.len())].clone();
            for _ in 0..random.below(5) {
                // Behind the Ethernet header, mostly in the TCP header.
                let place = match random.below(4) {
                    0 => 14 + random.below(headers - 14),
                    _ => headers + random.below(frame.len() - headers),
                };
                frame[place] = random.number() as u8;
            }
            if random.below(8) == 0 {
                frame.truncate(random.below(frame.len() + 1));
                if frame.len() > headers + 20 {
                    let (place, length) =
                        if headers == 34 { (16, frame.len() - 14) } else { (18, frame.len() - headers) };
                    frame[place..place + 2].copy_from_slice(&(length as u16).to_be_bytes());
                }
            }
            if frame.len() >= headers + 20 && random.below(8) > 0 {
                seal(&mut frame);
                if protocol(&frame) == 6 {
                    seal_transport(&mut frame);
                }
            }
            bed.interface.core.take(&driver::Frame::new(&frame), bed.now);
            bed.now += 100_000;
            match random.below(64) {
                0 => drop(bed.sent()),
                1 => drop(received(&mut connected)),
                _ => (),
            }
        }
        bed.sent();
        let ends = bed.ends();
        assert_eq!(bed.counter("received"), before + count);
        for name in ["tcp_malformed", "tcp_checksum", "tcp_syn_answered", "tcp_closed_port_answered", "tcp_closed_port"]
        {
            assert!(ends.iter().any(|(end, _)| end == name), "{name}: {ends:?}");
        }
        assert!(ends.len() > 12 && bed.counter("flows.faults") == 0, "{ends:?}");
        // One of 2^23 guesses is right: only connections with a cookie were opened.
        assert!(bed.interface.core.accept(0, held.listening.channel, 16).expect("it is there").len() <= 2);
    }
}

#[test]
fn data_that_a_channel_has_no_room_for_come_again() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let open = OpenListener { receive_buffers: 2, buffer_bytes: 256, ..listener_at(at, 80, 8) };
        let held = bed.listen(0, &open).expect("nothing is in its way");
        let cookie = bed.cookie(at, 5000);
        bed.give(&segment(at, 5000, Tcp(ACK, 1001, cookie.wrapping_add(1)), &[], &[1; 500]));
        assert!(bed.ends().contains(&("dropped_by_flow".into(), 1)));
        let (granted, segments) =
            bed.interface.core.accept(0, held.listening.channel, 1).expect("it is there").remove(0);
        let (mut host, (_, handles)) = (flow::Host::default(), buffer::flow::Bells::create().expect("a little memory"));
        let geometry = Geometry { receive_buffers: 2, buffer_bytes: 256, ..Geometry::default() };
        let fds = segments.into_iter().chain(handles).collect();
        let mut flow = host.adopt(flow::Granted { has_bells: true, ..granted }, geometry, fds).expect("it is sound");
        assert_eq!((received(&mut flow).len(), flow.channel.dropped(Drop::TooLong)), (1, 1));
    }
}
