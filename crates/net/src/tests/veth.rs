//! An interface on a real device: the kernel's UDP sockets are on the other side.

use super::bed::{Application, at, await_that, datagram, interface, networks, received, udp};
use crate::NetErrorKind;
use buffer::flow::Drop;
use driver::change::Change;
use driver::namespace::Namespace;
use flow::{OpenFlow, OpenInterface};
use rustix::io::Errno;
use std::net::UdpSocket;
use std::process::Command;
use testkit::network::{End, Pair, may_make_networks};

/// A pair whose far end is the kernel's, 10.0.0.2; none where `ip` is missing.
pub(super) fn kernel_at_the_far_end() -> Option<Pair> {
    let pair = Pair::new();
    let done = give_address(&pair.far, "10.0.0.2/24");
    pair.far.change(&Change { arp: Some(true), ..Change::default() });
    done.then_some(pair)
}

pub(super) fn give_address(end: &End, address: &str) -> bool {
    let run = || Command::new("ip").args(["address", "add", address, "dev", &end.name]).status();
    let done = end.namespace.enter(run).expect("its namespace is there").is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped (tools): there is no `ip`");
    }
    done
}

pub(super) fn in_namespace<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    namespace.enter(work).expect("its namespace is there")
}

fn exchange(how: &str) {
    let Some(pair) = kernel_at_the_far_end() else { return };
    let networks = networks();
    let open = OpenInterface { how: Some(how.into()), ..interface(&pair.near.name, 1) };
    in_namespace(&pair.near.namespace, || networks.up(&open)).expect("root may open devices");
    let socket = in_namespace(&pair.far.namespace, || UdpSocket::bind("10.0.0.2:4000")).expect("the port is free");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a socket option");
    let mut application = Application::new(&networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), Some(at(2, 4000))));
    for number in 0..100_u32 {
        let frame = datagram([flow.granted.mac, [0; 6]], at(1, 5000), at(2, 4000), &number.to_be_bytes());
        flow.send(&[&frame]).expect("there is room");
        let mut bytes = [0; 100];
        let (len, from) = socket.recv_from(&mut bytes).expect("it arrives");
        assert_eq!((&bytes[..len], from.to_string().as_str()), (&number.to_be_bytes()[..], "10.0.0.1:5000"));
        socket.send_to(&bytes[..len], from).expect("the kernel finds the way");
        let mut seen = Vec::new();
        await_that("the answer arrives", || {
            seen.extend(received(&mut flow));
            !seen.is_empty()
        });
        assert_eq!(seen[0][42..], number.to_be_bytes());
    }
    // The kernel says that nobody listens.
    let mut closed = application.open(&udp(at(1, 5001), Some(at(2, 4444))));
    let frame = datagram([flow.granted.mac, [0; 6]], at(1, 5001), at(2, 4444), b"anybody?");
    closed.send(&[&frame]).expect("there is room");
    let refused = (1, Errno::CONNREFUSED.raw_os_error(), 0);
    await_that("the kernel's ICMP error", || closed.channel.errors() == refused);
    // And learns that nobody listens here.
    let other = in_namespace(&pair.far.namespace, || UdpSocket::bind("10.0.0.2:0")).expect("the port is free");
    other.connect("10.0.0.1:9999").expect("it is a neighbour");
    other.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a socket option");
    other.send(b"anybody?").expect("the kernel finds the way");
    let error = other.recv(&mut [0; 9]).expect_err("nobody answers");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let state = networks.state(None).remove(0);
    assert!(super::bed::adds_up(&state.counters), "{:?}", state.counters);
    assert_eq!((state.flows[0].received, state.flows[0].sent, state.trouble), (100, 100, None));
    // Down and up again: it goes on by itself.
    pair.near.set_up(false);
    await_that("trouble is said", || networks.state(None)[0].trouble.is_some());
    pair.near.set_up(true);
    pair.near.await_carrier();
    await_that("it goes on", || networks.state(None)[0].trouble.is_none());
    // Removed: its flows end.
    pair.near.remove();
    let gone = buffer::flow::State::Closed(Errno::NETDOWN.raw_os_error());
    await_that("the flows end", || flow.channel.state() == gone);
}

#[test]
fn the_kernel_and_an_application_talk_by_a_packet_socket() {
    if may_make_networks() {
        exchange("af_packet");
    }
}

#[test]
fn the_kernel_and_an_application_talk_by_an_xdp_socket() {
    if may_make_networks() {
        exchange("af_xdp");
    }
}

/// Datagrams of the kernel's socket that no receive buffer holds alone; one that finds too few is dropped and counted.
fn receive_long_datagrams(how: &str) {
    let Some(pair) = kernel_at_the_far_end() else { return };
    let networks = networks();
    let open = OpenInterface { how: Some(how.into()), ..interface(&pair.near.name, 1) };
    in_namespace(&pair.near.namespace, || networks.up(&open)).expect("root may open devices");
    let socket = in_namespace(&pair.far.namespace, || UdpSocket::bind("10.0.0.2:4000")).expect("the port is free");
    let mut application = Application::new(&networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), None));
    let few = OpenFlow { receive_buffers: 4, ..udp(at(1, 5001), None) };
    let mut slow = application.open(&few);
    for len in [9_000, 60_000, 65_507] {
        let payload: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        socket.send_to(&payload, "10.0.0.1:5000").expect("the kernel cuts it");
        let mut seen = Vec::new();
        await_that("the datagram arrives", || {
            seen.extend(received(&mut flow));
            !seen.is_empty()
        });
        assert!(seen.len() == 1 && seen[0][42..] == payload, "{len} bytes: {:?}", seen.iter().map(Vec::len));
    }
    // Four buffers of 2,048 bytes: the second of 4,000 bytes fits, the third does not; 9,000 bytes never do.
    for len in [4_000, 4_000, 4_000, 9_000] {
        socket.send_to(&vec![1; len], "10.0.0.1:5001").expect("the kernel cuts it");
    }
    let dropped = |slow: &flow::Flow| (slow.channel.dropped(Drop::NoBuffer), slow.channel.dropped(Drop::TooLong));
    await_that("the drops are counted", || dropped(&slow) == (1, 1));
    assert_eq!(received(&mut slow).iter().map(Vec::len).collect::<Vec<_>>(), [4_042, 4_042]);
    let state = networks.state(None).remove(0);
    assert_eq!((state.flows[0].received, state.flows[1].received), (3, 2));
}

#[test]
fn long_datagrams_arrive_whole() {
    if may_make_networks() {
        receive_long_datagrams("af_packet");
        receive_long_datagrams("af_xdp");
    }
}

#[test]
fn devices_that_the_kernel_uses_are_refused() {
    if !may_make_networks() {
        return;
    }
    let Some(pair) = kernel_at_the_far_end() else { return };
    let networks = networks();
    let check = |device: &str, how: Option<&str>, kind, text: &str| {
        let open = OpenInterface { how: how.map(String::from), ..interface(device, 1) };
        let error = in_namespace(&pair.far.namespace, || networks.up(&open)).expect_err("it is refused");
        assert!(error.kind == kind && error.text.contains(text), "{:?}: {error}", error.kind);
    };
    check(&pair.far.name, None, NetErrorKind::InUse, "has the address 10.0.0.2/24 in the kernel");
    check("none", None, NetErrorKind::Absent, "there is no device `none`");
    check("lo", None, NetErrorKind::Request, "no Ethernet device");
    check("lo", Some("loopback"), NetErrorKind::InUse, "choose another name");
    check(&pair.far.name, Some("magic"), NetErrorKind::Request, "there are af_xdp, af_packet, tuntap and loopback");
}

#[test]
fn the_kernel_and_an_application_talk_by_a_tap_device() {
    if !may_make_networks() {
        return;
    }
    let namespace = testkit::network::quiet_namespace();
    let networks = networks();
    let open = OpenInterface { how: Some("tuntap".into()), ..interface("tap7", 1) };
    if let Err(error) = in_namespace(&namespace, || networks.up(&open)) {
        // No door to tap devices here.
        eprintln!("skipped (kernel): {error}");
        return;
    }
    let tap = End::find(&namespace, "tap7").expect("it was made");
    if !give_address(&tap, "10.0.0.2/24") {
        return;
    }
    let socket = in_namespace(&namespace, || UdpSocket::bind("10.0.0.2:4000")).expect("the port is free");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a socket option");
    let mut application = Application::new(&networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), Some(at(2, 4000))));
    let frame = datagram([flow.granted.mac, [0; 6]], at(1, 5000), at(2, 4000), b"through the tap");
    flow.send(&[&frame]).expect("there is room");
    let mut bytes = [0; 100];
    let (len, from) = socket.recv_from(&mut bytes).expect("it arrives");
    assert_eq!(&bytes[..len], b"through the tap");
    socket.send_to(b"and back", from).expect("the kernel finds the way");
    await_that("the answer arrives", || received(&mut flow).iter().any(|frame| frame[42..] == *b"and back"));
}
