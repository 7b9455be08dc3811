//! Addresses, routes and devices that change under flows.

use super::bed::{Bed, FAR, NEAR, SYN, Tcp, arp, at, connecting, datagram, listener, outgoing, received, six, udp};
use crate::limits::{ADDRESS_TIME, SECOND};
use buffer::flow::State;
use flow::{Change, Flow, RouteState};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// A host far behind routers.
const DISTANT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(20, 0, 0, 9)), 4001);

fn route(via: u8, bits: u8) -> RouteState {
    let to = if bits == 0 { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::new(20, 0, 0, 0) };
    RouteState { to: (to.into(), bits), via: Some(at(via, 0).ip()) }
}

impl Bed {
    fn change(&mut self, change: Change) {
        self.interface.core.change(&change, self.now).expect("it is sound");
        self.settle();
    }

    /// Makes a flow send a datagram to its peer. Returns the frames of the interface.
    fn sends(&mut self, flow: &mut Flow, payload: &[u8]) -> Vec<Vec<u8>> {
        let remote = flow.granted.remote.expect("it has a peer");
        flow.send(&[&outgoing(flow.granted.local, remote, payload)]).expect("there is room");
        self.sent()
    }
}

/// Whether it asks for this address.
fn asks(frame: &[u8], last: u8) -> bool {
    frame[12..14] == [8, 6] && frame[20..22] == [0, 1] && frame[38..42] == [10, 0, 0, last]
}

#[test]
fn a_route_that_changes_is_that_of_the_next_packet_and_of_those_that_wait() {
    let mut bed = Bed::new();
    bed.change(Change::AddRoute(route(2, 0)));
    let mut flow = bed.open(5, &udp(at(1, 4000), Some(DISTANT)));
    bed.introduce(&mut flow);
    assert_eq!(bed.sends(&mut flow, b"one")[0][..6], FAR);
    // A more specific route through a silent router: the packet waits, then takes the earlier route.
    bed.change(Change::AddRoute(route(3, 8)));
    let asked = bed.sends(&mut flow, b"two");
    assert!(asked.len() == 1 && asks(&asked[0], 3), "{asked:02x?}");
    bed.change(Change::RemoveRoute(route(3, 8)));
    let sent = bed.sent();
    assert!(sent.len() == 1 && sent[0][..6] == FAR && sent[0][42..] == *b"two", "{sent:02x?}");
    // A router that answers.
    bed.change(Change::AddRoute(route(4, 16)));
    assert!(asks(&bed.sends(&mut flow, b"three")[0], 4));
    bed.give(&arp(2, ROUTER, 4, 1, NEAR));
    let sent = bed.sent();
    assert!(sent.len() == 1 && sent[0][..6] == ROUTER && sent[0][42..] == *b"three", "{sent:02x?}");
    // Without a route the flow stays, and is told.
    bed.change(Change::RemoveRoute(route(4, 16)));
    bed.change(Change::RemoveRoute(RouteState { via: None, ..route(2, 0) }));
    assert!(bed.sends(&mut flow, b"four").is_empty());
    assert_eq!((flow.channel.state(), flow.channel.errors().1), (State::Open, Errno::HOSTUNREACH.raw_os_error()));
}

#[test]
fn packets_wait_for_an_address_that_is_away_and_leave_when_it_is_back() {
    let mut bed = Bed::new();
    bed.change(Change::AddAddress(at(9, 0).ip(), 24));
    let mut flow = bed.open(5, &udp(at(1, 4000), Some(at(2, 4001))));
    bed.introduce(&mut flow);
    let mut other = bed.open(6, &udp(at(9, 4000), Some(at(2, 4001))));
    bed.change(Change::RemoveAddress(at(1, 0).ip(), 24));
    let (told, facts) = flow.channel.facts();
    assert_eq!((told, facts.has_address, facts.mtu, other.channel.facts().0), (1, false, 1500, 0));
    for payload in [b"one", b"two"] {
        assert!(bed.sends(&mut flow, payload).is_empty());
    }
    assert_eq!(bed.sends(&mut other, b"other").len(), 1, "others go on");
    bed.give(&datagram([FAR, NEAR], at(2, 4001), at(1, 4000), b"for nobody"));
    assert_eq!((received(&mut flow).len(), bed.counter("ended.ipv4_other_address")), (0, 1));
    let error = bed.try_open(7, &udp(at(1, 4002), None)).expect_err("it is no own address");
    assert!(error.text.contains("is no address of `near`"), "{error}");

    bed.now += ADDRESS_TIME - SECOND;
    bed.settle();
    bed.change(Change::AddAddress(at(1, 0).ip(), 25));
    let sent = bed.sent();
    let payloads: Vec<_> =
        sent.iter().filter(|frame| frame[12] == 8 && frame[13] == 0).map(|frame| &frame[42..]).collect();
    assert_eq!(payloads, [b"one", b"two"]);
    let (told, facts) = flow.channel.facts();
    assert_eq!((told, facts.has_address, facts.prefix), (2, true, 25));
    bed.now += ADDRESS_TIME;
    bed.give(&datagram([FAR, NEAR], at(2, 4001), at(1, 4000), b"an answer"));
    assert_eq!((received(&mut flow).len(), flow.channel.state()), (1, State::Open), "its time is not over any more");
}

#[test]
fn flows_of_an_address_that_stays_away_end_with_a_reason_and_reset_nothing() {
    let mut bed = Bed::new();
    bed.change(Change::AddAddress(at(9, 0).ip(), 24));
    let mut stays = bed.open(4, &udp(at(9, 4000), Some(at(2, 4001))));
    let mut flow = bed.open(5, &connecting(at(1, 4000), at(2, 80)));
    let listening = bed.listen(6, &listener(7000, 8)).expect("nothing is in its way");
    let syn = Tcp(SYN, 1, 0).frame([NEAR, [0; 6]], [at(1, 4000), at(2, 80)], &[], &[]);
    flow.send(&[&syn]).expect("there is room");
    bed.sent();
    bed.give(&arp(2, FAR, 2, 1, NEAR));
    assert_eq!(bed.sent().len(), 1, "the other side heard of the connection");

    bed.change(Change::RemoveAddress(at(1, 0).ip(), 24));
    bed.now += ADDRESS_TIME - 1;
    bed.settle();
    assert_eq!(flow.channel.state(), State::Open);
    bed.now += 1;
    assert!(bed.sent().is_empty(), "no reset from an address that is not here");
    assert_eq!(flow.channel.state(), State::Closed(Errno::ADDRNOTAVAIL.raw_os_error()));
    assert_eq!((bed.counter("flows.ended_without_address"), bed.counter("listeners.closed")), (1, 1));
    assert!(bed.interface.core.accept(6, listening.listening.channel, 1).is_err());
    // After this time the neighbour is asked again.
    let sent = bed.sends(&mut stays, b"on");
    assert!(stays.channel.state() == State::Open && sent.iter().any(|frame| frame.ends_with(b"on")), "{sent:02x?}");
    // Without any address there are no flows, and no ARP from 0.0.0.0.
    bed.change(Change::RemoveAddress(at(9, 0).ip(), 24));
    bed.change(Change::RemoveAddress(six(1, 0).ip(), 64));
    let error =
        bed.try_open(7, &udp(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), None)).expect_err("there is none");
    assert!(error.text.contains("`near` has no address of IPv4 now"), "{error}");
    assert!(bed.sent().is_empty());
}

#[test]
fn addresses_that_come_and_go_leave_nothing_behind() {
    let mut bed = Bed::new();
    for last in 10..200 {
        bed.change(Change::AddAddress(at(last, 0).ip(), 24));
        bed.open(u64::from(last), &udp(at(last, 4000), None));
        bed.change(Change::RemoveAddress(at(last, 0).ip(), 24));
    }
    // If there are too many, the oldest do not wait.
    assert_eq!(bed.counter("flows.ended_without_address"), 190 - crate::limits::ADDRESSES as u64);
    bed.now += ADDRESS_TIME;
    bed.settle();
    assert_eq!((bed.counter("flows.ended_without_address"), bed.counter("flows.closed")), (190, 190));
}
