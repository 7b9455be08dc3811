//! The ends of TCP connections, and the answers to strangers that send segments without a connection.

use super::bed::{
    ACK, At, Bed, FAMILIES, FAR, FIN, NEAR, RST, SYN, Tcp, answer, connecting, headers, icmp_frame, listener, packet,
    protocol, received, udp,
};
use crate::NetErrorKind;
use crate::limits::{QUARANTINE_TIME, SECOND};
use flow::{Flow, OpenListener};
use rustix::io::Errno;
use std::net::SocketAddr;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

/// Both ends of a connection: port 4000 of the near side, port 80 of the far side.
fn names(at: At) -> [SocketAddr; 2] {
    [at(1, 4000), at(2, 80)]
}

/// From the far end to the near one.
fn far(at: At, tcp: Tcp, payload: &[u8]) -> Vec<u8> {
    tcp.frame(WIRE, [at(2, 80), at(1, 4000)], &[], payload)
}

impl Bed {
    /// A flow of this client sends a segment.
    fn send(&mut self, flow: &mut Flow, tcp: Tcp, payload: &[u8]) {
        let names = [flow.granted.local, flow.granted.remote.expect("it is connected")];
        flow.send(&[&tcp.frame([NEAR, [0; 6]], names, &[], payload)]).expect("there is room");
        let sent = self.sent();
        assert_eq!(
            sent.iter().filter(|frame| protocol(frame) == 6).map(|frame| Tcp::of(frame)).collect::<Vec<_>>(),
            [tcp]
        );
    }

    /// A connection of this client: it sent 100 bytes, 50 of them acknowledged, and received 10.
    fn connected(&mut self, client: u64, at: At) -> Flow {
        let names = names(at);
        let mut flow = self.open(client, &connecting(names[0], names[1]));
        let isn = flow.granted.isn;
        let syn = Tcp(SYN, isn, 0);
        flow.send(&[&syn.frame([NEAR, [0; 6]], names, &[], b"")]).expect("there is room");
        if self.sent().iter().all(|frame| protocol(frame) != 6) {
            self.give(&answer(names[1].ip(), FAR));
            self.sent();
        }
        self.give(&far(at, Tcp(SYN | ACK, 7000, isn.wrapping_add(1)), b""));
        self.send(&mut flow, Tcp(ACK, isn.wrapping_add(1), 7001), &[1; 100]);
        self.give(&far(at, Tcp(ACK, 7001, isn.wrapping_add(51)), &[2; 10]));
        self.send(&mut flow, Tcp(ACK, isn.wrapping_add(101), 7011), b"");
        assert_eq!(received(&mut flow).len(), 2);
        flow
    }

    fn answers(&mut self) -> Vec<Tcp> {
        self.sent().iter().map(|frame| Tcp::of(frame)).collect()
    }

    /// Both sides finish.
    fn finish(&mut self, flow: &mut Flow) {
        let (isn, at) = (flow.granted.isn, if flow.granted.local.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] });
        self.send(flow, Tcp(FIN | ACK, isn.wrapping_add(101), 7011), b"");
        self.give(&far(at, Tcp(ACK, 7011, isn.wrapping_add(102)), b""));
        self.give(&far(at, Tcp(FIN | ACK, 7011, isn.wrapping_add(102)), b""));
        self.send(flow, Tcp(ACK, isn.wrapping_add(102), 7012), b"");
    }
}

/// RFC 9293 3.10.7.1, and segments that are never answered.
#[test]
fn segments_for_nobody_are_reset_by_the_rules() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut check = |tcp: Tcp, payload: &[u8], expected: Option<Tcp>| {
            bed.give(&far(at, tcp, payload));
            assert_eq!(bed.answers(), expected.into_iter().collect::<Vec<_>>(), "{tcp:?}");
        };
        check(Tcp(SYN, 1000, 0), b"", Some(Tcp(RST | ACK, 0, 1001)));
        check(Tcp(SYN, u32::MAX, 0), b"abc", Some(Tcp(RST | ACK, 0, 3)));
        check(Tcp(FIN, 1000, 0), b"abc", Some(Tcp(RST | ACK, 0, 1004)));
        check(Tcp(0, 1000, 55), b"abc", Some(Tcp(RST | ACK, 0, 1003)));
        check(Tcp(ACK, 1000, 55), b"abc", Some(Tcp(RST, 55, 0)));
        check(Tcp(SYN | ACK, 1000, 55), b"", Some(Tcp(RST, 55, 0)));
        check(Tcp(RST, 1000, 0), b"", None);
        check(Tcp(RST | ACK, 1000, 55), b"", None);
        let silent = |bed: &mut Bed, frame: &[u8], end: &str| {
            let before = bed.counter(end);
            bed.give(frame);
            assert_eq!((bed.answers(), bed.counter(end)), (vec![], before + 1));
        };
        let syn = Tcp(SYN, 1, 0);
        let (all, version) = if at(1, 0).is_ipv4() { ("10.0.0.255:80", 4) } else { ("[ff02::1]:80", 6) };
        let all = all.parse().expect("an address");
        let of_version = |name: &str| format!("ended.ipv{version}_{name}");
        silent(&mut bed, &syn.frame([FAR, [0xff; 6]], [at(2, 80), all], &[], b""), "ended.tcp_closed_port");
        silent(&mut bed, &syn.frame(WIRE, [all, at(1, 80)], &[], b""), &of_version("bad_source"));
        silent(&mut bed, &syn.frame(WIRE, [at(1, 80), at(1, 80)], &[], b""), &of_version("own_source"));
        silent(&mut bed, &syn.frame(WIRE, [at(2, 0), at(1, 80)], &[], b""), "ended.tcp_malformed");
        silent(&mut bed, &syn.frame(WIRE, [at(2, 80), at(1, 0)], &[], b""), "ended.tcp_malformed");
        let mut wrong = far(at, syn, b"data");
        *wrong.last_mut().expect("it has data") ^= 1;
        silent(&mut bed, &wrong, "ended.tcp_checksum");
        for offset in [0x40, 0xf0] {
            let mut wrong = far(at, syn, b"data");
            let header = headers(&wrong);
            wrong[header + 12] = offset;
            super::bed::seal_transport(&mut wrong);
            silent(&mut bed, &wrong, "ended.tcp_malformed");
        }
        let short = far(at, syn, b"");
        let short = packet(WIRE, at(2, 0).ip(), at(1, 0).ip(), 6, &short[headers(&short)..][..19]);
        silent(&mut bed, &short, "ended.tcp_malformed");
        // A listener does not answer segments that open no connection.
        bed.listen(5, &OpenListener { local: at(1, 4000), ..listener(4000, 8) }).expect("nothing is in its way");
        for flags in [0, FIN, FIN | SYN, RST, RST | SYN] {
            silent(&mut bed, &far(at, Tcp(flags, 1, 0), b""), "ended.tcp_closed_port");
        }
        for _ in 0..200 {
            bed.give(&far(at, Tcp(ACK, 1, 1), b""));
        }
        let resets = bed.answers().len();
        assert!((1..=50).contains(&resets), "{resets}");
        bed.ends();
    }
}

#[test]
fn an_application_that_is_gone_has_its_connections_reset_with_the_right_numbers() {
    for at in FAMILIES {
        // It dies, closes, breaks its channel, or the interface goes down.
        for end in 0..4 {
            let mut bed = Bed::new();
            let mut flow = bed.connected(5, at);
            let isn = flow.granted.isn;
            match end {
                0 => bed.leave(5),
                1 => bed.interface.close_channel(5, flow.granted.channel, bed.now).expect("it is there"),
                2 => {
                    let id = bed.interface.core.flows.ids()[0];
                    bed.interface.core.fault(id, bed.now);
                }
                _ => assert_eq!(bed.interface.end(bed.now), None),
            }
            assert_eq!(bed.answers(), [Tcp(RST | ACK, isn.wrapping_add(101), 7011)], "{end}");
            assert_eq!((received(&mut flow).len(), bed.counter("sent.tcp_resets_of_flows")), (0, 1));
        }
    }
}

#[test]
fn packets_in_the_channel_leave_before_the_reset_and_count() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut flow = bed.connected(5, at);
        let isn = flow.granted.isn;
        let last = Tcp(ACK, isn.wrapping_add(101), 7011);
        flow.send(&[&last.frame([NEAR, [0; 6]], names(at), &[], &[3; 40])]).expect("there is room");
        bed.leave(5);
        assert_eq!(bed.answers(), [last, Tcp(RST | ACK, isn.wrapping_add(141), 7011)]);
    }
}

#[test]
fn a_connection_that_is_finished_is_not_reset() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut flow = bed.connected(5, at);
        bed.finish(&mut flow);
        bed.leave(5);
        assert!(bed.answers().is_empty());
        // The peer reset it.
        let flow = bed.connected(5, at);
        bed.give(&far(at, Tcp(RST, 7011, 0), b""));
        bed.interface.close_channel(5, flow.granted.channel, bed.now).expect("it is there");
        assert!(bed.answers().is_empty());
        // It sent no segment.
        bed.open(6, &connecting(at(1, 4001), at(2, 80)));
        bed.leave(6);
        assert!(bed.answers().is_empty());
        // It sent a SYN, and got no answer.
        let mut flow = bed.open(5, &connecting(names(at)[0], names(at)[1]));
        let isn = flow.granted.isn;
        bed.send(&mut flow, Tcp(SYN, isn, 0), b"");
        bed.leave(5);
        assert_eq!(bed.answers(), [Tcp(RST, isn.wrapping_add(1), 0)]);
        assert_eq!(bed.counter("sent.tcp_resets_of_flows"), 1);
    }
}

#[test]
fn the_name_of_an_ended_connection_is_kept_from_others_for_a_minute() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        bed.connected(5, at);
        bed.leave(5);
        bed.sent();
        let error = bed.try_open(6, &connecting(names(at)[0], names(at)[1])).expect_err("it ended just now");
        assert!(error.kind == NetErrorKind::InUse && error.text.contains("ended less than a minute ago"), "{error}");
        // Other ports of either side are free, and so is the port for another use.
        bed.open(6, &connecting(names(at)[0], at(2, 81)));
        bed.open(6, &udp(names(at)[0], Some(names(at)[1])));
        bed.leave(6);
        bed.now += QUARANTINE_TIME - SECOND;
        assert!(bed.try_open(6, &connecting(names(at)[0], names(at)[1])).is_err());
        bed.now += SECOND;
        assert!(bed.try_open(6, &connecting(names(at)[0], names(at)[1])).is_ok());
        bed.leave(6);
        // Its own user may reuse it at once.
        let mut bed = Bed::new();
        let flow = bed.connected(5, at);
        bed.interface.close_channel(5, flow.granted.channel, bed.now).expect("it is there");
        bed.now += SECOND;
        let again = bed.open(5, &connecting(names(at)[0], names(at)[1]));
        assert_eq!(again.granted.isn.wrapping_sub(flow.granted.isn), 250_000, "RFC 6528: it goes forward");
    }
}

#[test]
fn the_driver_answers_for_a_connection_that_ended() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let flow = bed.connected(5, at);
        let next = flow.granted.isn.wrapping_add(101);
        bed.leave(5);
        bed.sent();
        let mut check = |tcp: Tcp, payload: &[u8], expected: Option<Tcp>| {
            bed.give(&far(at, tcp, payload));
            assert_eq!(bed.answers(), expected.into_iter().collect::<Vec<_>>(), "{tcp:?}");
        };
        check(Tcp(ACK, 7011, next), b"data", Some(Tcp(RST, next, 0)));
        check(Tcp(FIN | ACK, 7011, next), b"", Some(Tcp(RST, next, 0)));
        check(Tcp(ACK, 7011, next), b"", None);
        // The peer says that the reset had an unexpected number (RFC 5961 3.2).
        check(Tcp(ACK, 7011, next.wrapping_sub(50)), b"", Some(Tcp(RST, next.wrapping_sub(50), 0)));
        check(Tcp(RST, 7011, 0), b"", None);
        // A new connection from there finds a closed port.
        check(Tcp(SYN, 9000, 0), b"", Some(Tcp(RST | ACK, 0, 9001)));
        assert!(bed.counter("ended.tcp_after_end_answered") == 3 && bed.counter("ended.tcp_after_end") == 1);

        let mut bed = Bed::new();
        let mut flow = bed.connected(5, at);
        bed.finish(&mut flow);
        bed.leave(5);
        let next = flow.granted.isn.wrapping_add(102);
        let mut check = |tcp: Tcp, payload: &[u8], expected: Option<Tcp>| {
            bed.give(&far(at, tcp, payload));
            assert_eq!(bed.answers(), expected.into_iter().collect::<Vec<_>>(), "{tcp:?}");
        };
        check(Tcp(FIN | ACK, 7011, next), b"", Some(Tcp(ACK, next, 7012)));
        check(Tcp(ACK, 7012, next), b"", None);
        check(Tcp(ACK, 7001, next), b"old data", None);
        for _ in 0..200 {
            bed.give(&far(at, Tcp(FIN | ACK, 7011, next), b""));
        }
        assert!(bed.answers().len() <= 50);
        bed.ends();
    }
}

#[test]
fn a_client_that_comes_again_to_a_listener_is_served() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held =
            bed.listen(5, &OpenListener { local: at(1, 4000), ..listener(4000, 8) }).expect("nothing is in its way");
        for round in 0..3 {
            bed.give(&far(at, Tcp(SYN, 1000 * round, 0), b""));
            let Tcp(flags, cookie, _) = bed.answers()[0];
            assert_eq!(flags, SYN | ACK);
            bed.give(&far(at, Tcp(ACK, 1000 * round + 1, cookie.wrapping_add(1)), b""));
            let flow = bed.accept(5, held.listening.channel, 1).remove(0);
            bed.interface.close_channel(5, flow.granted.channel, bed.now).expect("it is there");
            // The hardware address comes from the handshake: the interface asked no neighbour.
            assert_eq!(bed.answers(), [Tcp(RST | ACK, cookie.wrapping_add(1), 1000 * round + 1)]);
        }
    }
}

#[test]
fn icmp_errors_are_about_segments_under_way_and_name_a_path_mtu() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let flow = bed.connected(5, at);
        let isn = flow.granted.isn;
        // Host unreachable, port unreachable, too big.
        let (is_four, ips) = (at(1, 0).is_ipv4(), [at(2, 0).ip(), at(1, 0).ip()]);
        let (unreachable, closed) = if is_four { ((3, 1), (3, 3)) } else { ((1, 3), (1, 4)) };
        let too_big = if is_four { (3, 4) } else { (2, 0) };
        let about = |(kind, code): (u8, u8), mtu: u32, sequence: u32| {
            let quoted = Tcp(ACK, sequence, 0).frame([NEAR, FAR], names(at), &[], b"");
            let quoted = &quoted[14..headers(&quoted) + 8];
            icmp_frame(WIRE, ips, kind, code, &[&mtu.to_be_bytes()[..], quoted].concat())
        };
        let errors = |flow: &Flow| flow.channel.errors();
        // 50 to 101 after the SYN are in flight.
        for (sequence, counts) in [(0, false), (50, false), (51, true), (100, true), (101, true), (102, false)] {
            let before = errors(&flow).0;
            bed.give(&about(unreachable, 0, isn.wrapping_add(sequence)));
            assert_eq!(errors(&flow).0 - before, u64::from(counts), "{sequence}");
        }
        assert_eq!(errors(&flow), (3, Errno::HOSTUNREACH.raw_os_error(), 0));
        bed.give(&about(too_big, 1400, isn.wrapping_add(51)));
        assert_eq!(errors(&flow), (4, Errno::MSGSIZE.raw_os_error(), 1400));
        let least = if is_four { 68 } else { 1280 };
        for mtu in [0, least - 1] {
            bed.give(&about(too_big, mtu, isn.wrapping_add(51)));
        }
        bed.give(&about(too_big, least, isn.wrapping_add(51)));
        assert_eq!(errors(&flow), (5, Errno::MSGSIZE.raw_os_error(), least));
        // The flow has not sent yet, so no segment can be in flight.
        let fresh = bed.open(6, &connecting(at(1, 4001), at(2, 80)));
        let quoted = Tcp(SYN, fresh.granted.isn, 0).frame([NEAR, FAR], [at(1, 4001), at(2, 80)], &[], b"");
        let rest = [&[0; 4][..], &quoted[14..headers(&quoted) + 8]].concat();
        bed.give(&icmp_frame(WIRE, ips, closed.0, closed.1, &rest));
        assert_eq!(errors(&fresh).0, 0);
        assert!(bed.ends().contains(&("icmp_error_of_no_flow".into(), 6)), "{:?}", bed.ends());
    }
}

#[test]
fn a_connection_inside_this_host_needs_no_wire() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let held =
            bed.listen(6, &OpenListener { local: at(1, 8080), ..listener(8080, 8) }).expect("nothing is in its way");
        let names = [at(1, 4000), at(1, 8080)];
        let mut flow = bed.open(5, &connecting(names[0], names[1]));
        let isn = flow.granted.isn;
        flow.send(&[&Tcp(SYN, isn, 0).frame([NEAR, [0; 6]], names, &[], b"")]).expect("there is room");
        assert!(bed.sent().is_empty());
        let Tcp(flags, cookie, acknowledgment) = Tcp::of(&received(&mut flow)[0]);
        assert_eq!((flags, acknowledgment), (SYN | ACK, isn.wrapping_add(1)));
        let ack = Tcp(ACK, isn.wrapping_add(1), cookie.wrapping_add(1));
        flow.send(&[&ack.frame([NEAR, [0; 6]], names, &[], b"hello")]).expect("there is room");
        assert!(bed.sent().is_empty());
        let mut other = bed.accept(6, held.listening.channel, 1).remove(0);
        let first = received(&mut other).remove(1);
        assert_eq!(first[headers(&first) + 20..], *b"hello");
        bed.leave(6);
        assert!(bed.sent().is_empty());
        assert_eq!(Tcp::of(&received(&mut flow)[0]), Tcp(RST | ACK, cookie.wrapping_add(1), isn.wrapping_add(1)));
        // A closed port resets, too.
        let mut refused = bed.open(5, &connecting(at(1, 4001), at(1, 9)));
        let syn = Tcp(SYN, 5, 0).frame([NEAR, [0; 6]], [at(1, 4001), at(1, 9)], &[], b"");
        refused.send(&[&syn]).expect("there is room");
        assert!(bed.sent().is_empty());
        assert_eq!(Tcp::of(&received(&mut refused)[0]), Tcp(RST | ACK, 0, 6));
        bed.ends();
    }
}
