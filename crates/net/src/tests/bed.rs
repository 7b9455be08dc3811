//! Shared by the tests: frames made by hand, an interface with a clock of its own, two interfaces with threads.

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
use crate::routes::Routes;
use crate::share::ShareLimits;
use crate::sharing::keeper::PortKeeper;
use crate::users::Users;
use crate::{Client, Networks, Running, Starter};
use buffer::flow::{Bells, Driver, Geometry};
use driver::loopback::{self, Capacity, End, Receiver};
use driver::{Batch, Receive, Transmit, Turn};
use flow::{Flow, Host, Listener, OpenFlow, OpenInterface, OpenListener};
use packet::checksum::Sum;
use packet::pseudo;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Hardware addresses of the two sides.
pub(super) const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// 10.0.0.`last`:`port`.
pub(super) const fn at(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

/// An interface with the address 10.0.0.`last`.
pub(super) fn interface(device: &str, last: u8) -> OpenInterface {
    OpenInterface {
        device: device.into(),
        how: None,
        addresses: vec![(*at(last, 0).ip(), 24)],
        gateway: None,
        rate: None,
        count_gaps: false,
        dhcp: false,
        share: false,
    }
}

/// A UDP flow on the only interface.
pub(super) fn udp(local: SocketAddrV4, remote: Option<SocketAddrV4>) -> OpenFlow {
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

/// An Ethernet frame with an IPv4 packet of this protocol around `payload`.
pub(super) fn ipv4(macs: [[u8; 6]; 2], from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&macs[1][..], &macs[0], &[8, 0, 0x45, 0], &((20 + payload.len()) as u16).to_be_bytes()].concat();
    frame.extend_from_slice(&[0, 7, 0, 0, 64, protocol, 0, 0]);
    frame.extend_from_slice(&from.octets());
    frame.extend_from_slice(&to.octets());
    seal(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

/// Writes the checksum of the IPv4 header.
pub(super) fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = Sum::of(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// A frame with a UDP datagram without checksum.
pub(super) fn datagram(macs: [[u8; 6]; 2], from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let words = [from.port(), to.port(), length, 0].map(u16::to_be_bytes).concat();
    ipv4(macs, *from.ip(), *to.ip(), 17, &[&words, payload].concat())
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
        [from, to]: [SocketAddrV4; 2],
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        let mut segment = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
        segment.extend(self.1.to_be_bytes());
        segment.extend(self.2.to_be_bytes());
        segment.extend([(20 + options.len() as u8) << 2, self.0, 3, 232, 0, 0, 0, 0]);
        segment.extend([options, payload].concat());
        let mut frame = ipv4(macs, *from.ip(), *to.ip(), 6, &segment);
        seal_tcp(&mut frame);
        frame
    }

    /// That of a frame, whose checksum must be right.
    pub(super) fn of(frame: &[u8]) -> Tcp {
        assert_eq!((frame[12], frame[14], frame[23]), (8, 0x45, 6), "{frame:02x?}");
        assert_eq!(tcp_sum(frame).folded(), 0xffff, "{frame:02x?}");
        let word = |at: usize| u32::from_be_bytes(*frame[at..].first_chunk().expect("a header"));
        Tcp(frame[47], word(38), word(42))
    }
}

fn tcp_sum(frame: &[u8]) -> Sum {
    let address = |at: usize| Ipv4Addr::from(*frame[at..].first_chunk::<4>().expect("a header"));
    pseudo::sum(address(26), address(30), 6, (frame.len() - 34) as u16).and(Sum::of(&frame[34..]))
}

/// Writes the checksum of a TCP segment behind an IPv4 header without options.
pub(super) fn seal_tcp(frame: &mut [u8]) {
    frame[50..52].fill(0);
    let checksum = tcp_sum(frame).checksum();
    frame[50..52].copy_from_slice(&checksum.to_be_bytes());
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
pub(super) fn connecting(local: SocketAddrV4, remote: SocketAddrV4) -> OpenFlow {
    OpenFlow::new(None, 6, local, Some(remote))
}

/// The frame that a flow of 10.0.0.1 sends; the driver fills in the rest.
pub(super) fn outgoing(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    datagram([NEAR, [0; 6]], from, to, payload)
}

/// An ICMP message with its checksum.
pub(super) fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0], rest].concat();
    let checksum = Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// An ARP frame.
pub(super) fn arp(operation: u16, mac: [u8; 6], own: u8, target: u8, to: [u8; 6]) -> Vec<u8> {
    let (own, target) = (at(own, 0).ip().octets(), at(target, 0).ip().octets());
    [&to[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4], &operation.to_be_bytes(), &mac, &own, &[0; 6], &target].concat()
}

/// Everything that a flow received by now.
pub(super) fn received(flow: &mut Flow) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    flow.receive(usize::MAX, &mut |packet| {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        all.push(bytes);
    });
    all
}

/// What a receiver has.
pub(super) fn frames(receiver: &mut Receiver) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let take = &mut |batch: Batch<'_>| seen.extend(batch.frames.iter().map(|frame| frame.parts().concat()));
    while receiver.receive(Duration::ZERO, take).is_ok_and(|turn| turn != Turn::Nothing) {}
    seen
}

/// Does what was counted add up?
pub(super) fn adds_up(counters: &[(String, u64)]) -> bool {
    let get = |name: &str| counters.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value);
    let ends: u64 = counters.iter().filter(|(name, _)| name.starts_with("ended.")).map(|(_, value)| value).sum();
    ends == get("received") + get("looped")
}

/// An interface, 10.0.0.1, whose time goes on when the test says so, and the other end of its device, 10.0.0.2.
pub(super) struct Bed {
    pub(super) interface: Interface,
    pub(super) far: End,
    pub(super) now: u64,
    pub(super) users: Users,
    hosts: HashMap<u64, Host>,
    pub(super) numbers: Arc<Numbers>,
}

impl Bed {
    pub(super) fn new() -> Bed {
        Bed::with(&interface("near", 1), Capacity::default())
    }

    pub(super) fn with(open: &OpenInterface, capacity: Capacity) -> Bed {
        let (near, far) = loopback::pair(capacity).expect("a few file descriptors");
        let routes = Routes::new(open).expect("it is sound");
        let mut interface = Interface::new(open, routes, opened(near, NEAR), None);
        // Tests count frames: announcements have a test of their own.
        interface.core.announcements = Announcements::default();
        Bed { interface, far, now: SECOND, users: Users::default(), hosts: HashMap::new(), numbers: Arc::default() }
    }

    /// Opens a flow of this client, whose user has the same number.
    pub(super) fn open(&mut self, client: u64, open: &OpenFlow) -> Flow {
        self.try_open(client, open).expect("nothing is in its way")
    }

    /// As [`open`](Self::open), where something may be in its way.
    pub(super) fn try_open(&mut self, client: u64, open: &OpenFlow) -> Result<Flow, NetError> {
        let (driver, segments) = Driver::create(open.geometry()).expect("a little memory");
        let (bells, handles) = self.bells(client);
        let fds = segments.into_iter().chain(handles).collect();
        let user = client as u32;
        let place = self.users.take(user, 0).expect("there is room");
        let number = self.numbers.take();
        let opening = Opening { open: open.clone(), owner: owner(client), number, driver, bells, place };
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
            owner: owner(client),
            number: self.numbers.take(),
            bells,
            place: self.users.take(client as u32, 0)?,
            users: self.users.clone(),
            numbers: Arc::clone(&self.numbers),
        };
        let listening = self.interface.core.listen_at(opening)?;
        Ok(self.hosts.entry(client).or_default().adopt_listener(listening, fds).expect("it is sound"))
    }

    /// A client is gone.
    pub(super) fn leave(&mut self, client: u64) {
        self.interface.leave(client, self.now);
        self.hosts.remove(&client);
    }

    /// Accepts what waits at a listener of this client, with channels of the usual size.
    pub(super) fn accept(&mut self, client: u64, channel: u32, most: u32) -> Vec<Flow> {
        let accepted = self.interface.core.accept(client, channel, most).expect("it is there");
        let (granted, segments): (_, Vec<_>) = accepted.into_iter().unzip();
        let fds = segments.into_iter().flatten().collect();
        let host = self.hosts.get_mut(&client).expect("it has a listener");
        host.adopt_accepted(granted, Geometry::default(), fds).expect("it is sound")
    }

    /// Turns until there is nothing to do now; gives when there is.
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

    /// Has the interface receive a frame.
    pub(super) fn give(&mut self, frame: &[u8]) {
        assert_eq!(self.far.sender.transmit(&[frame]).expect("it is there"), Turn::Frames(1));
        self.settle();
    }

    /// The frames that the interface sent.
    pub(super) fn sent(&mut self) -> Vec<Vec<u8>> {
        self.settle();
        frames(&mut self.far.receiver)
    }

    /// Answers the question for 10.0.0.2.
    pub(super) fn introduce(&mut self, flow: &mut Flow) {
        let (local, remote) = (flow.granted.local, at(2, 9));
        let first = outgoing(local, flow.granted.remote.unwrap_or(remote), b"first");
        flow.send(&[&first]).expect("there is room");
        let asked = self.sent();
        assert_eq!(asked.len(), 1, "{asked:02x?}");
        assert_eq!(asked[0][12..14], [8, 6]);
        self.give(&arp(2, FAR, 2, 1, NEAR));
        assert_eq!(self.sent().len(), 1);
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let counters = self.interface.core.counters.all();
        counters.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// All ends that are not 0, without their first word.
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

/// Interface processes that are threads of this one, in the network namespace of the caller. They give up nothing.
#[derive(Default)]
pub(super) struct Threads {
    /// Of the next one; none: it opens its device.
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

/// No interfaces as yet, and what starts them.
pub(super) fn networks_and_starter(keeper: Option<Arc<PortKeeper>>) -> (Arc<Networks>, Arc<Threads>) {
    let threads = Arc::new(Threads::default());
    (Arc::new(Networks::with(Arc::clone(&threads) as _, keeper, Path::new(""))), threads)
}

/// No interfaces as yet.
pub(super) fn networks() -> Arc<Networks> {
    networks_and_starter(None).0
}

/// An interface on a device that is open, and its daemon.
pub(super) fn up_on(open: &OpenInterface, device: Opened) -> Arc<Networks> {
    let (networks, threads) = networks_and_starter(None);
    threads.give(device);
    networks.up(open).expect("it is sound");
    networks
}

impl Threads {
    /// The next process has this device.
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

/// Two networks with threads, joined: 10.0.0.1 on `near`, 10.0.0.2 on `far`.
pub(super) fn joined() -> [Arc<Networks>; 2] {
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let up = |end, mac, device: &str, last| up_on(&interface(device, last), opened(end, mac));
    [up(near, NEAR, "near", 1), up(far, FAR, "far", 2)]
}

/// Waits until `is_so`, ten seconds at most.
pub(super) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
