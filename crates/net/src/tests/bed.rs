//! Shared by the tests: handmade frames, an interface with its own clock, two interfaces with threads.

use crate::accept::OpeningListener;
use crate::announce::Announcements;
use crate::error::NetError;
use crate::interface::{Interface, Next};
use crate::limits::SECOND;
use crate::manager::Opening;
use crate::numbers::Numbers;
use crate::open::{self, Opened};
use crate::process::message::Owner;
use crate::process::{Surroundings, serve_device};
use crate::routes::{Hop, Routes};
use crate::share::ShareLimits;
use crate::sharing::keeper::PortKeeper;
use crate::users::Users;
use crate::{Client, Networks, Running, Starter};
use buffer::flow::{Bells, Driver, Geometry};
use driver::loopback::{self, Capacity, End, Receiver};
use driver::{Batch, Receive, Transmit, Turn};
use flow::{Flow, Host, Listener, OpenFlow, OpenInterface, OpenListener};
use packet::checksum::Sum;
use packet::{ndp, pseudo};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Hardware addresses of the two sides.
pub(super) const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// 10.0.0.`last`:`port`.
pub(super) const fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port))
}

/// [fd00::`last`]:`port`.
pub(super) const fn six(last: u8, port: u16) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last as u16), port, 0, 0))
}

/// Addresses of one family.
pub(super) type At = fn(u8, u16) -> SocketAddr;

/// Both families.
pub(super) const FAMILIES: [At; 2] = [at, six];

/// An interface with the addresses 10.0.0.`last` and fd00::`last`.
pub(super) fn interface(device: &str, last: u8) -> OpenInterface {
    OpenInterface {
        device: device.into(),
        how: None,
        addresses: vec![(at(last, 0).ip(), 24), (six(last, 0).ip(), 64)],
        gateways: vec![],
        rate: None,
        count_gaps: false,
        dhcp: false,
        share: false,
    }
}

/// A UDP flow on the only interface.
pub(super) fn udp(local: SocketAddr, remote: Option<SocketAddr>) -> OpenFlow {
    OpenFlow::new(None, 17, local, remote)
}

/// One end of a pair as a device.
pub(super) fn opened(end: End, mac: [u8; 6]) -> Opened {
    opened_by(Box::new(end.receiver), Box::new(end.sender), mac)
}

/// A device of these two halves.
pub(super) fn opened_by(receive: Box<dyn Receive>, transmit: Box<dyn Transmit>, mac: [u8; 6]) -> Opened {
    Opened {
        receive,
        transmit,
        mac,
        mtu: 1500,
        via: "pair",
        how: "a pair".into(),
        unfinished_checksums: false,
        share: None,
        handle: None,
    }
}

/// An Ethernet frame with an IP packet of this protocol around `payload`, between addresses of one family.
pub(super) fn packet(macs: [[u8; 6]; 2], from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [macs[1], macs[0]].concat();
    let len = payload.len() as u16;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([&[8, 0, 0x45, 0][..], &(20 + len).to_be_bytes(), &[0, 7, 0, 0, 64, protocol, 0, 0]].concat());
            frame.extend([from.octets(), to.octets()].concat());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([&[0x86, 0xdd, 0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol, 64]].concat());
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("{from} and {to} are of two families"),
    }
    seal(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// Bytes of a frame before its transport header, without options.
pub(super) fn headers(frame: &[u8]) -> usize {
    if frame[12..14] == [8, 0] { 34 } else { 54 }
}

/// The protocol behind them.
pub(super) fn protocol(frame: &[u8]) -> u8 {
    match frame[12..14] {
        [8, 0] => frame[23],
        [0x86, 0xdd] => frame[20],
        _ => 0,
    }
}

/// The payload behind them and 8 bytes of UDP.
pub(super) fn payload(frame: &[u8]) -> &[u8] {
    &frame[headers(frame) + 8..]
}

/// The two addresses of a packet, as one run of bytes.
pub(super) fn ends(frame: &[u8]) -> &[u8] {
    let headers = headers(frame);
    &frame[if headers == 34 { 26 } else { 22 }..headers]
}

/// Whether the header checksum of a packet is correct.
pub(super) fn is_sealed(frame: &[u8]) -> bool {
    headers(frame) == 54 || Sum::of(&frame[14..34]).folded() == 0xffff
}

/// Writes the checksum of an IPv4 header.
pub(super) fn seal(frame: &mut [u8]) {
    if headers(frame) == 34 {
        frame[24..26].fill(0);
        let checksum = Sum::of(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// A frame with a UDP datagram without checksum.
pub(super) fn datagram(macs: [[u8; 6]; 2], from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let words = [from.port(), to.port(), length, 0].map(u16::to_be_bytes).concat();
    packet(macs, from.ip(), to.ip(), 17, &[&words, payload].concat())
}

/// The same with a checksum, as IPv6 receivers require it (RFC 8200 8.1).
pub(super) fn summed(macs: [[u8; 6]; 2], from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut frame = datagram(macs, from, to, payload);
    seal_transport(&mut frame);
    frame
}

/// Flags of TCP.
pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// A TCP segment: flags, sequence number and acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tcp(pub(super) u8, pub(super) u32, pub(super) u32);

impl Tcp {
    /// A frame with this segment, its window 1000, these options and this payload.
    pub(super) fn frame(
        self,
        macs: [[u8; 6]; 2],
        [from, to]: [SocketAddr; 2],
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        let mut segment = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        segment.extend(self.1.to_be_bytes());
        segment.extend(self.2.to_be_bytes());
        segment.extend([(20 + options.len() as u8) << 2, self.0, 3, 232, 0, 0, 0, 0]);
        segment.extend([options, payload].concat());
        let mut frame = packet(macs, from.ip(), to.ip(), 6, &segment);
        seal_transport(&mut frame);
        frame
    }

    /// The segment of a frame, whose checksum must be right.
    pub(super) fn of(frame: &[u8]) -> Tcp {
        assert_eq!(protocol(frame), 6, "{frame:02x?}");
        assert_eq!(transport_sum(frame).folded(), 0xffff, "{frame:02x?}");
        let segment = &frame[headers(frame)..];
        let word = |at: usize| u32::from_be_bytes(*segment[at..].first_chunk().expect("a header"));
        Tcp(segment[13], word(4), word(8))
    }
}

/// The sum over the bytes behind the IP header, with the pseudo header if the protocol has one.
pub(super) fn transport_sum(frame: &[u8]) -> Sum {
    let (protocol, segment) = (protocol(frame), &frame[headers(frame)..]);
    let pseudo = match protocol {
        1 => Sum::default(),
        _ => {
            let ends = ends(frame);
            let address = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
                Ok(four) => IpAddr::from(four),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes).expect("an address")),
            };
            let (from, to) = ends.split_at(ends.len() / 2);
            pseudo::sum(address(from), address(to), protocol, segment.len() as u16)
        }
    };
    pseudo.and(Sum::of(segment))
}

/// Writes the checksum of a segment, a datagram or an ICMP message behind an IP header without options.
pub(super) fn seal_transport(frame: &mut [u8]) {
    let place = match protocol(frame) {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    let at = headers(frame) + place;
    frame[at..at + 2].fill(0);
    let checksum = transport_sum(frame).checksum();
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A listener for this port of 10.0.0.1.
pub(super) fn listener(port: u16, backlog: u32) -> OpenListener {
    let Geometry { send_records, send_bytes, receive_buffers, buffer_bytes } = Geometry::default();
    OpenListener {
        device: None,
        local: at(1, port),
        backlog,
        window: 50_000,
        window_shift: 3,
        share: None,
        send_records,
        send_bytes,
        receive_buffers,
        buffer_bytes,
    }
}

/// A TCP flow that connects.
pub(super) fn connecting(local: SocketAddr, remote: SocketAddr) -> OpenFlow {
    OpenFlow::new(None, 6, local, Some(remote))
}

/// A frame that a flow of 10.0.0.1 sends. The driver fills in the rest.
pub(super) fn outgoing(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    datagram([NEAR, [0; 6]], from, to, payload)
}

/// An ICMP message with its checksum.
pub(super) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0], rest].concat();
    let checksum = Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A frame with an ICMP message, of the family of its addresses.
pub(super) fn icmp_frame(macs: [[u8; 6]; 2], [from, to]: [IpAddr; 2], kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let message = [&[kind, code, 0, 0], rest].concat();
    let mut frame = packet(macs, from, to, if from.is_ipv4() { 1 } else { 58 }, &message);
    seal_transport(&mut frame);
    frame
}

/// A frame with a Neighbour Discovery message, without checksum.
pub(super) fn ndp_frame(macs: [[u8; 6]; 2], from: &str, to: &str, message: &[u8]) -> Vec<u8> {
    let ip = |text: &str| text.parse().expect("an address");
    let mut frame = packet(macs, ip(from), ip(to), 58, message);
    frame[21] = 255;
    seal_transport(&mut frame);
    frame
}

/// A neighbour's frame to 10.0.0.1 or fd00::1 with this address and hardware address.
pub(super) fn answer(address: IpAddr, mac: [u8; 6]) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp(2, mac, address.octets()[3], 1, NEAR),
        IpAddr::V6(address) => {
            let message = ndp::advertisement(ndp::SOLICITED | ndp::OVERRIDE, address, mac);
            ndp_frame([mac, NEAR], &address.to_string(), "fd00::1", &message)
        }
    }
}

/// Whether a frame asks for the owner of this address.
pub(super) fn asks_for(frame: &[u8], address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => frame[12..14] == [8, 6] && frame[38..42] == address.octets(),
        IpAddr::V6(address) => protocol(frame) == 58 && frame[54] == 135 && frame[62..78] == address.octets(),
    }
}

/// An ARP frame.
pub(super) fn arp(operation: u16, mac: [u8; 6], own: u8, target: u8, to: [u8; 6]) -> Vec<u8> {
    let (own, target) = ([10, 0, 0, own], [10, 0, 0, target]);
    [&to[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4], &operation.to_be_bytes(), &mac, &own, &[0; 6], &target].concat()
}

/// All packets that a flow has received by now.
pub(super) fn received(flow: &mut Flow) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    flow.receive(usize::MAX, &mut |packet| {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        all.push(bytes);
    });
    all
}

pub(super) fn frames(receiver: &mut Receiver) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let take = &mut |batch: Batch<'_>| seen.extend(batch.frames.iter().map(|frame| frame.parts().concat()));
    while receiver.receive(Duration::ZERO, take).is_ok_and(|turn| turn != Turn::Nothing) {}
    seen
}

pub(super) fn adds_up(counters: &[(String, u64)]) -> bool {
    let get = |name: &str| counters.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value);
    let ends: u64 = counters.iter().filter(|(name, _)| name.starts_with("ended.")).map(|(_, value)| value).sum();
    ends == get("received") + get("looped")
}

/// An interface with 10.0.0.1 and fd00::1, in test time, and the device's other end with 10.0.0.2 and fd00::2.
pub(super) struct Bed {
    pub(super) interface: Interface,
    pub(super) far: End,
    pub(super) now: u64,
    pub(super) users: Users,
    /// The limits of users that open something now.
    pub(super) limits: ShareLimits,
    hosts: HashMap<u64, Host>,
    pub(super) numbers: Arc<Numbers>,
}

impl Bed {
    pub(super) fn new() -> Bed {
        Bed::with(&interface("near", 1), Capacity::default())
    }

    pub(super) fn with(open: &OpenInterface, capacity: Capacity) -> Bed {
        let (near, far) = loopback::pair(capacity).expect("a few file descriptors");
        let routes = Routes::new(open).expect("it is sound").on_device(NEAR);
        let mut interface = Interface::new(open, routes, opened(near, NEAR), None);
        // Tests count frames; announcements have a test of their own.
        interface.core.announcements = Announcements::default();
        let limits = ShareLimits::NONE;
        Bed {
            interface,
            far,
            now: SECOND,
            users: Users::default(),
            limits,
            hosts: HashMap::new(),
            numbers: Arc::default(),
        }
    }

    /// Opens a flow of this client, whose user has the same number.
    pub(super) fn open(&mut self, client: u64, open: &OpenFlow) -> Flow {
        self.try_open(client, open).expect("nothing is in its way")
    }

    /// Like [`open`](Self::open), but it may fail.
    pub(super) fn try_open(&mut self, client: u64, open: &OpenFlow) -> Result<Flow, NetError> {
        let (driver, segments) = Driver::create(open.geometry()).expect("a little memory");
        let (bells, handles) = self.bells(client);
        let fds = segments.into_iter().chain(handles).collect();
        let user = client as u32;
        let permit = self.users.take(user, 0).expect("there is room");
        let number = self.numbers.take();
        let owner = Owner { limits: self.limits, ..owner(client) };
        let opening = Opening { open: open.clone(), owner, number, driver, bells, permit };
        let granted = self.interface.core.open(opening, self.now)?;
        Ok(self.hosts.entry(client).or_default().adopt(granted, open.geometry(), fds).expect("it is sound"))
    }

    fn bells(&self, client: u64) -> (Option<Bells>, Vec<OwnedFd>) {
        if self.hosts.contains_key(&client) {
            return (None, Vec::new());
        }
        let (bells, handles) = Bells::create().expect("a little memory");
        (Some(bells), Vec::from(handles))
    }

    /// Opens a listener of this client, whose user has the same number.
    pub(super) fn listen(&mut self, client: u64, open: &OpenListener) -> Result<Listener, NetError> {
        let (bells, fds) = self.bells(client);
        let opening = OpeningListener {
            open: open.clone(),
            owner: Owner { limits: self.limits, ..owner(client) },
            number: self.numbers.take(),
            bells,
            permit: self.users.take(client as u32, 0)?,
            users: self.users.clone(),
            numbers: Arc::clone(&self.numbers),
        };
        let listening = self.interface.core.listen_at(opening)?;
        Ok(self.hosts.entry(client).or_default().adopt_listener(listening, fds).expect("it is sound"))
    }

    /// A client goes.
    pub(super) fn leave(&mut self, client: u64) {
        self.interface.leave(client, self.now);
        self.hosts.remove(&client);
    }

    /// Accepts waiting connections at a listener of this client, with channels of the usual size.
    pub(super) fn accept(&mut self, client: u64, channel: u32, most: u32) -> Vec<Flow> {
        let accepted = self.interface.core.accept(client, channel, most).expect("it is there");
        let (granted, segments): (_, Vec<_>) = accepted.into_iter().unzip();
        let fds = segments.into_iter().flatten().collect();
        let host = self.hosts.get_mut(&client).expect("it has a listener");
        host.adopt_accepted(granted, Geometry::default(), fds).expect("it is sound")
    }

    /// Takes turns until all work is done. Returns when the next work is due.
    pub(super) fn settle(&mut self) -> Option<u64> {
        for _ in 0..10_000 {
            match self.interface.turn(self.now) {
                Next::Sleep(Some(due)) if due <= self.now => (),
                Next::Sleep(due) => return due,
                Next::Again => (),
            }
        }
        panic!("it does not come to rest");
    }

    /// Makes the interface receive a frame.
    pub(super) fn give(&mut self, frame: &[u8]) {
        assert_eq!(self.far.sender.transmit(&[frame]).expect("it is there"), Turn::Frames(1));
        self.settle();
    }

    /// The frames that the interface sent.
    pub(super) fn sent(&mut self) -> Vec<Vec<u8>> {
        self.settle();
        frames(&mut self.far.receiver)
    }

    /// Answers the question for 10.0.0.2 or fd00::2.
    pub(super) fn introduce(&mut self, flow: &mut Flow) {
        let local = flow.granted.local;
        let remote = flow.granted.remote.unwrap_or(if local.is_ipv4() { at(2, 9) } else { six(2, 9) });
        let Hop::Neighbour(next) = self.interface.core.routes.hop(remote.ip()) else { panic!("no way to {remote}") };
        flow.send(&[&outgoing(local, remote, b"first")]).expect("there is room");
        let asked = self.sent();
        assert!(asked.len() == 1 && asks_for(&asked[0], next), "{asked:02x?}");
        self.give(&answer(next, FAR));
        assert_eq!(self.sent().len(), 1);
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let counters = self.interface.core.counters.all();
        counters.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// All nonzero ends, without their common prefix.
    pub(super) fn ends(&self) -> Vec<(String, u64)> {
        let counters = self.interface.core.counters.all();
        assert!(adds_up(&counters), "{counters:?}");
        let ends = counters.into_iter().filter(|(_, value)| *value > 0);
        ends.filter_map(|(name, value)| Some((name.strip_prefix("ended.")?.to_string(), value))).collect()
    }
}

/// A client whose user has the same number.
pub(super) fn owner(client: u64) -> Owner {
    let (limits, is_first, has_port) = (ShareLimits::NONE, false, false);
    Owner { client, process: 1, user: client as u32, limits, is_first, has_port }
}

/// Interface processes that are threads, in the caller's network namespace. They keep all rights.
#[derive(Default)]
pub(super) struct Threads {
    /// The device of the next one. `None`: it opens its device itself.
    device: Mutex<Option<Opened>>,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("threads")
    }
}

struct Unconfined;

impl Surroundings for Unconfined {
    fn confine(&self, _uses_maps: bool) -> io::Result<()> {
        Ok(())
    }

    fn find_daemon(&self, _control: &Path) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Starter for Threads {
    fn start(&self, _device: &str) -> io::Result<Running> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let device = Mutex::new(self.device.lock().expect("no panic").take());
        std::thread::spawn(move || {
            serve_device(theirs, &Unconfined, &|open, left| match device.lock().expect("no panic").take() {
                Some(device) => Ok(device),
                None => open::open(open, left),
            })
        });
        Ok(Running { socket, process: None })
    }

    fn kill(&self, _process: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// No interfaces yet, and the starter.
pub(super) fn networks_and_starter(keeper: Option<Arc<PortKeeper>>) -> (Arc<Networks>, Arc<Threads>) {
    let threads = Arc::new(Threads::default());
    (Arc::new(Networks::with(Arc::clone(&threads) as _, keeper, Path::new(""))), threads)
}

/// No interfaces yet.
pub(super) fn networks() -> Arc<Networks> {
    networks_and_starter(None).0
}

/// An interface on an open device, and its daemon.
pub(super) fn up_on(open: &OpenInterface, device: Opened) -> Arc<Networks> {
    let (networks, threads) = networks_and_starter(None);
    threads.give(device);
    networks.up(open).expect("it is sound");
    networks
}

impl Threads {
    /// The next process gets this device.
    pub(super) fn give(&self, device: Opened) {
        *self.device.lock().expect("no panic") = Some(device);
    }
}

/// Permits everything.
pub(super) fn no_limits(_: &str) -> Result<ShareLimits, NetError> {
    Ok(ShareLimits::NONE)
}

/// A client with its application's side.
pub(super) struct Application {
    pub(super) client: Client,
    pub(super) host: Host,
}

impl Application {
    pub(super) fn new(networks: &Arc<Networks>, user: u32) -> Application {
        Application { client: networks.client(1, user), host: Host::default() }
    }

    pub(super) fn open(&mut self, open: &OpenFlow) -> Flow {
        let (granted, fds) = self.client.open(open, &no_limits).expect("nothing is in its way");
        self.host.adopt(granted, open.geometry(), fds).expect("as above")
    }
}

/// Two networks with threads, joined: 10.0.0.1 and fd00::1 on `near`, 10.0.0.2 and fd00::2 on `far`.
pub(super) fn joined() -> [Arc<Networks>; 2] {
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let up = |end, mac, device: &str, last| up_on(&interface(device, last), opened(end, mac));
    [up(near, NEAR, "near", 1), up(far, FAR, "far", 2)]
}

/// Waits until `is_so`, at most ten seconds.
pub(super) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
