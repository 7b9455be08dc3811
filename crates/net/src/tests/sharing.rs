//! A device that the host keeps, 10.0.0.1: the host's sockets and flows side by side. The kernel's sockets of 10.0.0.2
//! are on the other side.

use super::bed::{
    Application, adds_up, at, await_that, datagram, icmp, interface, networks, networks_and_starter, no_limits,
    received, udp,
};
use super::veth::{give_address, in_namespace, kernel_at_the_far_end};
use crate::sharing::keeper::{PortKeeper, in_a_thread};
use crate::{NetError, NetErrorKind, Networks};
use driver::change::Change;
use flow::{Flow, OpenInterface};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks};

const LONG: Duration = Duration::from_secs(10);

/// A host whose device is shared, and its other side.
struct Bed {
    pair: Pair,
    networks: Arc<Networks>,
}

fn shared(device: &str) -> OpenInterface {
    OpenInterface { addresses: Vec::new(), share: true, ..interface(device, 1) }
}

impl Bed {
    fn new() -> Option<Bed> {
        let bed = Bed::before()?;
        let up = in_namespace(&bed.pair.near.namespace, || bed.networks.up(&shared(&bed.pair.near.name)));
        up.expect("root may open devices");
        Some(bed)
    }

    /// Before it is up.
    fn before() -> Option<Bed> {
        if !may_make_networks() {
            return None;
        }
        let pair = kernel_at_the_far_end()?;
        pair.near.change(&Change { arp: Some(true), ..Change::default() });
        if !give_address(&pair.near, "10.0.0.1/24") {
            return None;
        }
        let keeper: Arc<PortKeeper> = in_namespace(&pair.near.namespace, in_a_thread);
        Some(Bed { pair, networks: networks_and_starter(Some(keeper)).0 })
    }

    fn host(&self, address: SocketAddr) -> std::io::Result<UdpSocket> {
        bind(&self.pair.near, address)
    }

    fn far(&self, address: SocketAddr) -> UdpSocket {
        bind(&self.pair.far, address).expect("the port is free")
    }

    fn counter(&self, name: &str) -> u64 {
        let state = self.networks.state(None).remove(0);
        assert!(adds_up(&state.counters), "{:?}", state.counters);
        state.counters.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

fn bind(end: &End, address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = in_namespace(&end.namespace, || UdpSocket::bind(address))?;
    socket.set_read_timeout(Some(LONG))?;
    Ok(socket)
}

fn refused(application: &mut Application, local: SocketAddr, remote: Option<SocketAddr>) -> NetError {
    application.client.open(&udp(local, remote), &no_limits).map(drop).expect_err("it is refused")
}

fn send(flow: &mut Flow, to: SocketAddr, payload: &[u8]) {
    let frame = datagram([flow.granted.mac, [0; 6]], flow.granted.local, to, payload);
    flow.send(&[&frame]).expect("there is room");
}

/// The payload of the next datagram.
fn next(flow: &mut Flow) -> Vec<u8> {
    let mut seen = Vec::new();
    await_that("a datagram arrives", || {
        seen.extend(received(flow));
        !seen.is_empty()
    });
    assert_eq!(seen.len(), 1);
    seen[0][42..].to_vec()
}

/// Sends a datagram there and one back.
fn exchange(flow: &mut Flow, far: &UdpSocket, payload: &[u8]) {
    let to = far.local_addr().expect("it is bound").to_string().parse().expect("IPv4");
    send(flow, to, payload);
    let mut bytes = [0; 2000];
    let (len, from) = far.recv_from(&mut bytes).expect("it arrives");
    assert_eq!((&bytes[..len], from), (payload, flow.granted.local));
    far.send_to(&bytes[..len], from).expect("the kernel finds the way");
    assert_eq!(next(flow), payload);
}

/// The other side pings the host, and gets an answer.
fn ping(bed: &Bed) {
    let socket = in_namespace(&bed.pair.far.namespace, || {
        socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).expect("root may")
    });
    set_socket_timeout(&socket, Timeout::Recv, Some(LONG)).expect("a socket option");
    let asked = icmp(8, 0, b"\x12\x34\x00\x01are you there?");
    sendto(&socket, &asked, SendFlags::empty(), &at(1, 0)).expect("the kernel finds the way");
    let mut bytes = [0; 200];
    loop {
        let (len, _) = recv(&socket, &mut bytes, RecvFlags::empty()).expect("the host answers");
        // A raw socket also sees errors.
        if bytes[20] == 0 {
            assert_eq!(bytes[24..len], asked[4..]);
            return;
        }
    }
}

#[test]
fn flows_and_the_hosts_own_sockets_work_side_by_side() {
    let Some(bed) = Bed::new() else { return };
    let own = bed.host(at(1, 4000)).expect("the port is free");
    let mut application = Application::new(&bed.networks, 1000);
    let mut connected = application.open(&udp(at(1, 5000), Some(at(2, 4000))));
    let mut bound = application.open(&udp(at(1, 5001), None));
    let far = bed.far(at(2, 4000));
    let listener = in_namespace(&bed.pair.near.namespace, || TcpListener::bind("10.0.0.1:80")).expect("it is free");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the other side connects");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("it is said");
        stream.write_all(&bytes).expect("it is heard");
    });
    let mut stream = in_namespace(&bed.pair.far.namespace, || TcpStream::connect("10.0.0.1:80")).expect("it listens");
    let said = vec![7; 1 << 20];
    let (mut half, whole) = (stream.try_clone().expect("a handle"), said.clone());
    let saying = std::thread::spawn(move || {
        half.write_all(&whole).expect("it is heard");
        half.shutdown(std::net::Shutdown::Write).expect("it is connected");
    });
    for number in 0..50_u32 {
        exchange(&mut connected, &far, &number.to_be_bytes());
        // Before the flow without a peer sends there, it receives from the other side.
        far.send_to(&number.to_le_bytes(), "10.0.0.1:5001").expect("the kernel finds the way");
        assert_eq!(next(&mut bound), number.to_le_bytes());
        exchange(&mut bound, &far, b"and back");
        far.send_to(b"for the host", "10.0.0.1:4000").expect("the kernel finds the way");
        let mut bytes = [0; 100];
        let (len, from) = own.recv_from(&mut bytes).expect("it arrives");
        assert_eq!(&bytes[..len], b"for the host");
        own.send_to(b"from the host", from).expect("the kernel finds the way");
        let (len, _) = far.recv_from(&mut bytes).expect("it arrives");
        assert_eq!(&bytes[..len], b"from the host");
        ping(&bed);
    }
    saying.join().expect("no panic");
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).expect("it is said");
    server.join().expect("no panic");
    assert_eq!(heard, said);
    // There is no listener: the host says so.
    let other = bed.far(at(2, 0));
    other.connect("10.0.0.1:9999").expect("it is a neighbour");
    other.send(b"anybody?").expect("the kernel finds the way");
    let error = other.recv(&mut [0; 9]).expect_err("nobody answers");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!((bed.counter("xdp.taken.flow"), bed.counter("xdp.taken.local_port")), (50, 100));
    assert_eq!((bed.counter("ended.delivered"), bed.counter("received")), (150, 150), "nothing else came");
    assert!(bed.counter("xdp.left.no_flow") > 50 && bed.counter("xdp.left.icmp") >= 50);
    assert_eq!((bed.counter("sent.answers"), bed.counter("sent.arp_requests")), (0, 0), "the host answers");
    assert_eq!((bed.counter("sent"), bed.counter("xdp.dropped.no_socket")), (100, 0));
}

#[test]
fn datagrams_in_fragments_and_errors_reach_their_flow() {
    let Some(bed) = Bed::before() else { return };
    for end in [&bed.pair.near, &bed.pair.far] {
        end.set_mtu(1000);
    }
    in_namespace(&bed.pair.near.namespace, || bed.networks.up(&shared(&bed.pair.near.name))).expect("as before");
    let mut application = Application::new(&bed.networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), None));
    let (far, own) = (bed.far(at(2, 4000)), bed.host(at(1, 4000)).expect("the port is free"));
    for number in 0..20 {
        let (sent, mut bytes) = (vec![number; 1900], [0; 2000]);
        far.send_to(&sent, "10.0.0.1:5000").expect("the kernel finds the way");
        far.send_to(&sent, "10.0.0.1:4000").expect("the kernel finds the way");
        assert_eq!(next(&mut flow), sent);
        assert_eq!(own.recv(&mut bytes).expect("it arrives"), 1900);
    }
    assert_eq!((bed.counter("xdp.taken.local_port"), bed.counter("xdp.taken.fragment")), (20, 20));
    assert_eq!((bed.counter("fragments.joined"), bed.counter("xdp.left.fragment_of_no_flow")), (20, 20));
    let mut closed = application.open(&udp(at(1, 5001), Some(at(2, 4444))));
    send(&mut closed, at(2, 4444), b"anybody?");
    let refused = (1, Errno::CONNREFUSED.raw_os_error(), 0);
    await_that("the kernel's ICMP error", || closed.channel.errors() == refused);
    assert_eq!(bed.counter("xdp.taken.icmp_error"), 1);
}

#[test]
fn a_port_is_the_hosts_or_a_flows() {
    let Some(bed) = Bed::new() else { return };
    let mut application = Application::new(&bed.networks, 1000);
    for address in [at(1, 4000), "0.0.0.0:4001".parse().expect("an address")] {
        let own = bed.host(address).expect("the port is free");
        let error = refused(&mut application, at(1, address.port()), None);
        assert_eq!(error.kind, NetErrorKind::InUse);
        assert!(error.text.contains(&format!("the host has UDP port {}", address.port())), "{error}");
        drop(own);
        application.open(&udp(at(1, address.port()), None));
        // It is open while its client lives.
        assert_eq!(bed.host(address).expect_err("the flow has it").kind(), std::io::ErrorKind::AddrInUse);
    }
    let chosen = application.open(&udp(at(1, 0), Some(at(2, 4000)))).granted.local;
    assert!(chosen.port() != 0 && bed.host(chosen).is_err());
    // A second flow on the port has another peer. Then the first one goes.
    let mut other = Application::new(&bed.networks, 1000);
    other.open(&udp(chosen, Some(at(2, 4001))));
    let foreign = refused(&mut Application::new(&bed.networks, 1001), chosen, Some(at(2, 4002)));
    assert!(foreign.kind == NetErrorKind::InUse && foreign.text.contains("another user"), "{foreign}");
    drop(application);
    await_that("its ports are free", || bed.host(at(1, 4000)).is_ok());
    assert!(bed.host(chosen).is_err());
    drop(other);
    await_that("the last flow of the port went", || bed.host(chosen).is_ok());
    // Errors about the host are reported before any port is held.
    let mut application = Application::new(&bed.networks, 1000);
    for (local, remote, kind, text) in [
        (at(1, 80), None, NetErrorKind::Denied, "port 80 is for root"),
        (at(7, 0), None, NetErrorKind::Absent, "no interface has the address 10.0.0.7"),
        (at(1, 0), Some("192.0.2.1:1".parse().expect("an address")), NetErrorKind::Absent, "the host does not reach"),
        (at(1, 0), Some("224.0.0.1:1".parse().expect("an address")), NetErrorKind::Request, "no address that a flow"),
    ] {
        let error = refused(&mut application, local, remote);
        assert!(error.kind == kind && error.text.contains(text), "{:?} {error}", error.kind);
    }
    // Down: the host gets everything back.
    application.open(&udp(at(1, 4000), None));
    bed.networks.down(&bed.pair.near.name).expect("it is up");
    let own = bed.host(at(1, 4000)).expect("its flow ended");
    bed.far(at(2, 0)).send_to(b"again the host's", "10.0.0.1:4000").expect("the kernel finds the way");
    assert_eq!(own.recv(&mut [0; 100]).expect("it arrives"), 16);
    assert_eq!(bed.pair.near.link().xdp, None);
}

#[test]
fn next_hops_are_the_hosts_and_silent_ones_are_reported() {
    let Some(bed) = Bed::new() else { return };
    let run = |end: &End, words: &str| {
        let run = || std::process::Command::new("ip").args(words.split(' ')).status();
        assert!(in_namespace(&end.namespace, run).is_ok_and(|status| status.success()), "{words}");
    };
    run(&bed.pair.near, "route add 192.0.2.0/24 via 10.0.0.2");
    run(&bed.pair.far, "address add 192.0.2.1/32 dev far");
    let far = bed.far("192.0.2.1:4000".parse().expect("an address"));
    let mut application = Application::new(&bed.networks, 1000);
    let mut flow = application.open(&udp(at(1, 5000), None));
    exchange(&mut flow, &far, b"by the host's router");
    // The host's verdict comes after three questions, a second apart.
    let begun = Instant::now();
    send(&mut flow, at(9, 4000), b"anybody?");
    let unreachable = (1, Errno::HOSTUNREACH.raw_os_error(), 0);
    await_that("it is reported", || flow.channel.errors() == unreachable);
    assert!(begun.elapsed() > Duration::from_secs(1), "the host was asked");
    exchange(&mut flow, &far, b"others go on");
    // A route that vanished is noticed within the life of an answer.
    run(&bed.pair.near, "route del 192.0.2.0/24");
    await_that("it is reported again", || {
        send(&mut flow, "192.0.2.1:4000".parse().expect("an address"), b"gone?");
        std::thread::sleep(Duration::from_millis(50));
        flow.channel.errors().0 > 1
    });
}

#[test]
fn what_cannot_be_shared_is_refused_with_a_reason() {
    let Some(bed) = Bed::before() else { return };
    let (near, name) = (&bed.pair.near, bed.pair.near.name.as_str());
    let check = |networks: &Networks, open: OpenInterface, kind, text: &str| {
        let error = in_namespace(&near.namespace, || networks.up(&open)).expect_err("it is refused");
        assert!(error.kind == kind && error.text.contains(text), "{:?}: {error}", error.kind);
    };
    let by = |how: &str| OpenInterface { how: Some(how.into()), ..shared(name) };
    check(&bed.networks, by("af_packet"), NetErrorKind::Request, "takes XDP");
    check(&bed.networks, by("tuntap"), NetErrorKind::Request, "takes XDP");
    let addresses = OpenInterface { share: true, ..interface(name, 1) };
    check(&bed.networks, addresses, NetErrorKind::Request, "leave out addresses");
    check(&bed.networks, shared("lo"), NetErrorKind::Request, "no Ethernet device");
    check(&networks(), shared(name), NetErrorKind::System, "no process that holds ports");
    near.set_up(false);
    check(&bed.networks, shared(name), NetErrorKind::Request, "is down");
    assert_eq!(near.link().xdp, None);
}
