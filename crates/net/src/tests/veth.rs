//! An interface on a real device: the kernel's UDP sockets are on the other side.

use super::bed::{
    Application, At, FAMILIES, at, await_that, datagram, interface, networks, payload, received, six, summed, udp,
};
use crate::NetErrorKind;
use buffer::flow::Drop;
use driver::change::Change;
use driver::namespace::Namespace;
use flow::{OpenFlow, OpenInterface};
use rustix::io::Errno;
use rustix::net;
use std::net::{SocketAddrV6, UdpSocket};
use std::process::Command;
use testkit::network::{End, Pair, may_make_networks};

/// A pair whose far end is the kernel's, 10.0.0.2 and fd00::2. `None`: `ip` is missing.
pub(super) fn kernel_at_the_far_end() -> Option<Pair> {
    let pair = Pair::new();
    let done = give_address(&pair.far, "10.0.0.2/24") && give_address(&pair.far, "fd00::2/64");
    pair.far.change(&Change { arp: Some(true), ..Change::default() });
    done.then_some(pair)
}

/// Gives the kernel an address on a device. An IPv6 address is usable at once: no other host has it.
pub(super) fn give_address(end: &End, address: &str) -> bool {
    let is_six = address.contains(':');
    if is_six {
        speak_ipv6(end);
    }
    let args = ["address", "add", address, "dev", &end.name, "nodad"];
    let run = || Command::new("ip").args(&args[..if is_six { 6 } else { 5 }]).status();
    let done = end.namespace.enter(run).expect("its namespace is there").is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped (tools): there is no `ip`");
    }
    done
}

/// Enables IPv6 on a device, which is off in the tests' namespaces.
fn speak_ipv6(end: &End) {
    for (setting, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
        let path = format!("/proc/sys/net/ipv6/conf/{}/{setting}", end.name);
        in_namespace(&end.namespace, || std::fs::write(path, value)).expect("root may change settings");
    }
}

pub(super) fn in_namespace<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    namespace.enter(work).expect("its namespace is there")
}

fn exchange(how: &str, at: At) {
    let Some(pair) = kernel_at_the_far_end() else { return };
    let networks = networks();
    let open = OpenInterface { how: Some(how.into()), ..interface(&pair.near.name, 1) };
    in_namespace(&pair.near.namespace, || networks.up(&open)).expect("root may open devices");
    let socket = in_namespace(&pair.far.namespace, || UdpSocket::bind(at(2, 4000))).expect("the port is free");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a socket option");
    let mut application = Application::new(&networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), Some(at(2, 4000))));
    for number in 0..100_u32 {
        let frame = summed([flow.granted.mac, [0; 6]], at(1, 5000), at(2, 4000), &number.to_be_bytes());
        flow.send(&[&frame]).expect("there is room");
        let mut bytes = [0; 100];
        let (len, from) = socket.recv_from(&mut bytes).expect("it arrives");
        assert_eq!((&bytes[..len], from), (&number.to_be_bytes()[..], at(1, 5000)));
        socket.send_to(&bytes[..len], from).expect("the kernel finds the way");
        let mut seen = Vec::new();
        await_that("the answer arrives", || {
            seen.extend(received(&mut flow));
            !seen.is_empty()
        });
        assert_eq!(*payload(&seen[0]), number.to_be_bytes());
    }
    // The kernel reports that there is no listener.
    let mut closed = application.open(&udp(at(1, 5001), Some(at(2, 4444))));
    let frame = summed([flow.granted.mac, [0; 6]], at(1, 5001), at(2, 4444), b"anybody?");
    closed.send(&[&frame]).expect("there is room");
    let refused = (1, Errno::CONNREFUSED.raw_os_error(), 0);
    await_that("the kernel's ICMP error", || closed.channel.errors() == refused);
    // The far side learns that there is no listener here.
    let other = in_namespace(&pair.far.namespace, || UdpSocket::bind(at(2, 0))).expect("the port is free");
    other.connect(at(1, 9999)).expect("it is a neighbour");
    other.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a socket option");
    other.send(b"anybody?").expect("the kernel finds the way");
    let error = other.recv(&mut [0; 9]).expect_err("nobody answers");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let state = networks.state(None).remove(0);
    assert!(super::bed::adds_up(&state.counters), "{:?}", state.counters);
    assert_eq!((state.flows[0].received, state.flows[0].sent, state.trouble), (100, 100, None));
    // Down and up again: it continues by itself.
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
        FAMILIES.into_iter().for_each(|at| exchange("af_packet", at));
    }
}

#[test]
fn the_kernel_and_an_application_talk_by_an_xdp_socket() {
    if may_make_networks() {
        FAMILIES.into_iter().for_each(|at| exchange("af_xdp", at));
    }
}

/// The kernel pings an interface, at its own and at its link-local address.
#[test]
fn the_kernel_pings_an_interface_over_ipv6() {
    if !may_make_networks() {
        return;
    }
    let Some(pair) = kernel_at_the_far_end() else { return };
    let networks = networks();
    let open = interface(&pair.near.name, 1);
    in_namespace(&pair.near.namespace, || networks.up(&open)).expect("root may open devices");
    let ping = || {
        let socket = net::socket(net::AddressFamily::INET6, net::SocketType::RAW, Some(net::ipproto::ICMPV6));
        socket.expect("root may open raw sockets")
    };
    let socket = in_namespace(&pair.far.namespace, ping);
    let limit = Some(std::time::Duration::from_secs(10));
    net::sockopt::set_socket_timeout(&socket, net::sockopt::Timeout::Recv, limit).expect("a socket option");
    let state = networks.state(None).remove(0);
    assert_eq!(state.addresses.len(), 3, "{:?}", state.addresses);
    for (number, (address, _)) in state.addresses.iter().skip(1).enumerate() {
        let std::net::IpAddr::V6(address) = *address else { panic!("{address} is one of IPv4") };
        let to = SocketAddrV6::new(address, 0, 0, pair.far.index);
        // The kernel fills in the checksum (RFC 3542 3.1).
        let request = [&[128, 0, 0, 0, 0, 7, 0, number as u8][..], b"are you there?"].concat();
        net::sendto(&socket, &request, net::SendFlags::empty(), &to).expect("the kernel finds the way");
        let mut bytes = [0; 100];
        // Other packets come, too, such as answers of neighbours.
        let answer = loop {
            let (_, len) = net::recv(&socket, &mut bytes[..], net::RecvFlags::empty()).expect("it is answered");
            if bytes[0] == 129 {
                break &bytes[..len];
            }
        };
        assert_eq!(answer[4..], request[4..], "{address}");
    }
}

/// Datagrams of the kernel's socket that need several receive buffers. One that finds too few is dropped and counted.
fn receive_long_datagrams(how: &str, at: At, longest: usize) {
    let Some(pair) = kernel_at_the_far_end() else { return };
    let networks = networks();
    let open = OpenInterface { how: Some(how.into()), ..interface(&pair.near.name, 1) };
    in_namespace(&pair.near.namespace, || networks.up(&open)).expect("root may open devices");
    let socket = in_namespace(&pair.far.namespace, || UdpSocket::bind(at(2, 4000))).expect("the port is free");
    let mut application = Application::new(&networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), None));
    let few = OpenFlow { receive_buffers: 4, ..udp(at(1, 5001), None) };
    let mut slow = application.open(&few);
    for len in [9_000, 60_000, longest] {
        let payload: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        socket.send_to(&payload, at(1, 5000)).expect("the kernel cuts it");
        let mut seen = Vec::new();
        await_that("the datagram arrives", || {
            seen.extend(received(&mut flow));
            !seen.is_empty()
        });
        assert!(seen.len() == 1 && *self::payload(&seen[0]) == payload, "{len} bytes: {:?}", seen.iter().map(Vec::len));
    }
    // Four buffers of 2,048 bytes: the second of 4,000 bytes fits, the third does not; 9,000 bytes never do.
    for len in [4_000, 4_000, 4_000, 9_000] {
        socket.send_to(&vec![1; len], at(1, 5001)).expect("the kernel cuts it");
    }
    let dropped = |slow: &flow::Flow| (slow.channel.dropped(Drop::NoBuffer), slow.channel.dropped(Drop::TooLong));
    await_that("the drops are counted", || dropped(&slow) == (1, 1));
    assert_eq!(received(&mut slow).iter().map(|frame| self::payload(frame).len()).collect::<Vec<_>>(), [4_000, 4_000]);
    let state = networks.state(None).remove(0);
    assert_eq!((state.flows[0].received, state.flows[1].received), (3, 2));
}

#[test]
fn long_datagrams_arrive_whole() {
    if may_make_networks() {
        for how in ["af_packet", "af_xdp"] {
            receive_long_datagrams(how, at, 65_507);
            receive_long_datagrams(how, six, 65_527);
        }
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
    let ip = |verb: &str| {
        let run = || Command::new("ip").args(["address", verb, "10.0.0.2/24", "dev", &pair.far.name]).status();
        in_namespace(&pair.far.namespace, run).expect("there is `ip`");
    };
    ip("del");
    check(&pair.far.name, None, NetErrorKind::InUse, "has the address fd00::2/64 in the kernel");
    ip("add");
    check("none", None, NetErrorKind::Absent, "there is no device `none`");
    check("lo", None, NetErrorKind::Request, "no Ethernet device");
    check("lo", Some("loopback"), NetErrorKind::InUse, "choose another name");
    check(&pair.far.name, Some("magic"), NetErrorKind::Request, "there are af_xdp, af_packet, tuntap and loopback");
}

/// With a packet socket both stacks would see all packets; with XDP the kernel sees none.
#[test]
fn a_device_on_which_the_kernel_speaks_ipv6_needs_xdp() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    speak_ipv6(&pair.near);
    let networks = networks();
    let up = |how: &str, addresses: usize| {
        let mut open = OpenInterface { how: Some(how.into()), ..interface(&pair.near.name, 1) };
        open.addresses.truncate(addresses);
        in_namespace(&pair.near.namespace, || networks.up(&open))
    };
    let error = up("af_packet", 2).expect_err("it is refused");
    let advice = format!("sysctl -w net.ipv6.conf.{}.disable_ipv6=1", pair.near.name);
    assert!(error.kind == NetErrorKind::InUse && error.text.contains(&advice), "{error}");
    up("af_packet", 1).expect("of IPv4 alone");
    networks.down(&pair.near.name).expect("it is up");
    up("af_xdp", 2).expect("the kernel's link-local address is no trouble");
}

#[test]
fn a_device_whose_packets_are_too_short_for_ipv6_is_refused() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    pair.near.set_mtu(1279);
    let networks = networks();
    let mut open = interface(&pair.near.name, 1);
    let error = in_namespace(&pair.near.namespace, || networks.up(&open)).expect_err("it is refused");
    assert!(error.kind == NetErrorKind::Request && error.text.contains("1280"), "{error}");
    open.addresses.truncate(1);
    in_namespace(&pair.near.namespace, || networks.up(&open)).expect("of IPv4 alone");
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
        // There is no access to tap devices here.
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
