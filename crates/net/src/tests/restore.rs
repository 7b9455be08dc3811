//! A process that follows another: flows, listeners and traces go on from the records and the channels.

use super::bed::{
    ACK, Bed, FAR, FIN, NEAR, RST, SYN, Tcp, at, connecting, datagram, listener, opened, opened_by, outgoing, received,
    udp,
};
use crate::interface::Interface;
use crate::numbers::Numbers;
use crate::process::letters::{self, Letter};
use crate::process::message::{Kept, Record};
use buffer::flow::State;
use flow::{Flow, OpenFlow};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const WIRE: [[u8; 6]; 2] = [FAR, NEAR];

/// The records that the daemon would have kept.
fn kept(bed: &Bed) -> Vec<(Record, Vec<OwnedFd>)> {
    let (letters, said) = letters::queue();
    bed.interface.core.tell_everything(&letters);
    drop(letters);
    let mut all = Vec::new();
    for letter in said {
        let Letter::Say(said, fds) = letter else { panic!("no daemon comes") };
        let mut fds = fds.iter().map(|fd| fd.try_clone().expect("a file descriptor"));
        for record in said.records {
            let fds: Vec<OwnedFd> = fds.by_ref().take(record.fds()).collect();
            all.push((record, fds));
        }
    }
    all
}

/// Kills the process. Another one gets the device and the records. Returns what could not be restored.
fn follow(bed: &mut Bed, kept: Vec<(Record, Vec<OwnedFd>)>) -> Vec<String> {
    let open = super::bed::interface("near", 1);
    let routes = bed.interface.core.routes.clone();
    let secret = bed.interface.core.secret;
    let (dead, _) = driver::loopback::pair(Default::default()).expect("a few file descriptors");
    let dead = Interface::new(&open, routes.clone(), opened(dead, NEAR), None);
    // The earlier process closes nothing: its memory is gone.
    let Interface { device: old, core, .. } = std::mem::replace(&mut bed.interface, dead);
    drop(core);
    bed.interface = Interface::new(&open, routes, opened_by(old.receive, old.transmit, NEAR), None);
    bed.interface.core.announcements = Default::default();
    bed.interface.core.secret = secret;
    bed.users = Default::default();
    bed.numbers = Arc::new(Numbers::of(1));
    let (users, numbers, now) = (bed.users.clone(), Arc::clone(&bed.numbers), bed.now);
    let restore = |(record, fds)| bed.interface.core.restore(record, fds, &users, &numbers, now).err();
    kept.into_iter().filter_map(restore).map(|error| error.text).collect()
}

/// Kills the process. The next one continues with everything.
fn restart(bed: &mut Bed) {
    let mut all = kept(bed);
    // In the daemon's order.
    all.sort_by_key(|(record, _)| match record.what {
        Kept::Bells => 0,
        Kept::Flow(..) => 1,
        Kept::Listener(..) => 2,
        Kept::Trace(..) => 3,
    });
    assert_eq!(follow(bed, all), [""; 0]);
}

#[test]
fn datagrams_go_on_both_ways_and_none_waits_for_ever() {
    let mut bed = Bed::new();
    let mut flow = bed.open(7, &udp(at(1, 4000), Some(at(2, 9))));
    let mut bound = bed.open(7, &udp(at(1, 4001), None));
    bed.introduce(&mut flow);
    let frame = |number: u8| outgoing(at(1, 4000), at(2, 9), &[number; 20]);
    for round in 0..20 {
        // Rung for, and not looked at.
        flow.send(&[&frame(round)]).expect("there is room");
        bed.interface.core.collect_news(bed.now);
        bed.give(&datagram(WIRE, at(2, 9), at(1, 4000), &[round; 30]));
        restart(&mut bed);
        let sent = bed.sent();
        if sent.first().is_some_and(|frame| frame[12..14] == [8, 6]) {
            // It does not know a neighbour yet.
            bed.give(&super::bed::arp(2, FAR, 2, 1, NEAR));
            assert_eq!(bed.sent().len(), 1);
        }
        bed.give(&datagram(WIRE, at(2, 9), at(1, 4000), &[round; 31]));
        bed.give(&datagram(WIRE, at(2, 77), at(1, 4001), &[round; 32]));
        assert_eq!(received(&mut flow).iter().map(Vec::len).collect::<Vec<_>>(), [72, 73], "round {round}");
        assert_eq!(received(&mut bound).iter().map(Vec::len).collect::<Vec<_>>(), [74]);
    }
    let state = bed.interface.core.state(None, bed.now);
    assert_eq!(
        state.flows.iter().map(|flow| (flow.flow, flow.local)).collect::<Vec<_>>(),
        [(1, at(1, 4000)), (2, at(1, 4001))]
    );
    // Names and places are still reserved.
    let error = bed.try_open(8, &udp(at(1, 4001), None)).expect_err("it is another user's");
    assert!(error.text.contains("another user"), "{error}");
    let next = bed.open(7, &udp(at(1, 4002), None));
    assert_eq!((next.granted.channel, next.granted.flow > 1_000_000), (2, true));
    bed.leave(7);
    assert_eq!((flow.channel.state(), bed.interface.core.flows.ids().len()), (State::Closed(0), 0));
}

/// A connection whose peer's numbers begin at 100, and its own at `isn`.
fn connect(bed: &mut Bed, flow: &mut Flow, isn: u32) {
    let names = [at(1, 4000), at(2, 80)];
    let macs = [NEAR, [0; 6]];
    flow.send(&[&Tcp(SYN, isn, 0).frame(macs, names, &[], b"")]).expect("there is room");
    bed.settle();
    bed.give(&super::bed::arp(2, FAR, 2, 1, NEAR));
    bed.give(&Tcp(SYN | ACK, 100, isn + 1).frame(WIRE, [names[1], names[0]], &[], b""));
    flow.send(&[&Tcp(ACK, isn + 1, 101).frame(macs, names, &[], b"hello")]).expect("there is room");
    bed.sent();
    received(flow);
}

#[test]
fn a_connection_whose_application_dies_after_a_restart_is_reset_with_the_right_numbers() {
    let mut bed = Bed::new();
    let mut flow = bed.open(7, &connecting(at(1, 4000), at(2, 80)));
    let isn = flow.granted.isn;
    connect(&mut bed, &mut flow, isn);
    restart(&mut bed);
    bed.leave(7);
    bed.settle();
    // The reset waits for the neighbour, or goes to the hardware address of the handshake.
    bed.give(&super::bed::arp(2, FAR, 2, 1, NEAR));
    let resets: Vec<_> =
        bed.sent().into_iter().filter(|frame| frame[12..14] == [8, 0]).map(|frame| Tcp::of(&frame)).collect();
    assert_eq!(bed.counter("sent.tcp_resets_of_flows"), 1);
    assert_eq!(resets, [Tcp(RST | ACK, isn + 6, 101)]);
}

#[test]
fn listeners_accept_and_cookies_of_before_are_good() {
    let mut bed = Bed::new();
    let held = bed.listen(7, &listener(8080, 16)).expect("nothing is in its way");
    let names = [at(2, 5000), at(1, 8080)];
    let syn = |bed: &mut Bed, number| {
        bed.give(&Tcp(SYN, number, 0).frame(WIRE, names, &[], b""));
        let Tcp(_, cookie, _) = Tcp::of(&bed.sent()[0]);
        cookie
    };
    let first = syn(&mut bed, 500);
    restart(&mut bed);
    bed.give(&Tcp(ACK, 501, first.wrapping_add(1)).frame(WIRE, names, &[], b"early"));
    // A waiting connection is not kept. Its first segment is repeated, and opens it again.
    restart(&mut bed);
    assert!(bed.accept(7, held.listening.channel, 16).is_empty());
    bed.give(&Tcp(ACK, 501, first.wrapping_add(1)).frame(WIRE, names, &[], b"early"));
    assert!(!held.fall_asleep(), "it was rung for");
    let mut accepted = bed.accept(7, held.listening.channel, 16);
    assert_eq!((accepted.len(), accepted[0].granted.isn), (1, first));
    assert_eq!(received(&mut accepted[0])[1][54..], *b"early");
    // An accepted connection continues.
    restart(&mut bed);
    bed.give(&Tcp(ACK, 506, first.wrapping_add(1)).frame(WIRE, names, &[], b"later"));
    assert_eq!(received(&mut accepted[0])[0][54..], *b"later");
    bed.give(&Tcp(FIN | ACK, 511, first.wrapping_add(1)).frame(WIRE, names, &[], b""));
    assert_eq!(received(&mut accepted[0]).len(), 1);
}

#[test]
fn a_users_weight_among_users_of_the_wire_stays() {
    let mut bed = Bed::new();
    bed.limits.user_weight = 3;
    let _flow = bed.open(7, &udp(at(1, 4000), Some(at(2, 9))));
    restart(&mut bed);
    let core = &bed.interface.core;
    let weights: Vec<_> = core.flows.ids().into_iter().map(|id| core.scheduler.user(id.key())).collect();
    assert_eq!(weights, [Some(qos::User { number: 7, weight: 3 })]);
}

#[test]
fn what_makes_no_sense_ends_for_its_application_and_harms_no_other() {
    let mut bed = Bed::new();
    let lost = bed.open(7, &udp(at(1, 4000), None));
    let mut other = bed.open(8, &udp(at(1, 4001), None));
    let mut all = kept(&bed);
    // The doorbells of one client did not come, and neither did a descriptor of a flow that does not exist.
    all.retain(|(record, _)| (record.client, &record.what) != (7, &Kept::Bells));
    let copy = |fds: &[OwnedFd]| fds.iter().map(|fd| fd.try_clone().expect("a file descriptor")).collect::<Vec<_>>();
    let (record, fds) = all.iter().find(|(record, _)| record.client == 8 && record.number > 0).expect("it is kept");
    let number = |number: u64| Record { number, ..record.clone() };
    let short = (number(90), copy(&fds[..1]));
    let far_channel = (Record { channel: 5000, ..number(91) }, copy(fds));
    let Kept::Flow(open, _) = &record.what else { panic!("a flow") };
    let larger = OpenFlow { receive_buffers: 1024, local: at(1, 4005), ..open.clone() };
    let other_size = (Record { what: Kept::Flow(larger, 1), ..number(92) }, copy(fds));
    all.extend([short, far_channel]);
    all.sort_by_key(|(record, _)| record.number);
    let lost_ones = follow(&mut bed, all);
    assert_eq!(lost_ones.len(), 3, "{lost_ones:?}");
    assert!(lost_ones.iter().any(|text| text.contains("no doorbells")), "{lost_ones:?}");
    assert_eq!(lost.channel.state(), State::Closed(Errno::NETDOWN.raw_os_error()));
    let (users, numbers, now) = (bed.users.clone(), Arc::clone(&bed.numbers), bed.now);
    let error = bed.interface.core.restore(other_size.0, other_size.1, &users, &numbers, now).expect_err("too short");
    assert!(error.text.contains("bytes where"), "{error}");
    // The last one was the other flow's own segment, and closed it. That only concerns these two.
    bed.give(&datagram(WIRE, at(2, 9), at(1, 4001), b"goes on"));
    assert_eq!(received(&mut other).len(), 1);
}
