//! Shared by the tests: frames made by hand, an interface with a clock of its own, two interfaces with threads.

use crate::interface::{Interface, Next};
use crate::limits::SECOND;
use crate::manager::Opening;
use crate::networks::{Client, Networks};
use crate::open::Opened;
use crate::routes::Routes;
use crate::users::Users;
use buffer::flow::{Bells, Driver};
use driver::loopback::{self, Capacity, End, Receiver};
use driver::{Batch, Receive, Transmit, Turn};
use flow::{Flow, Host, OpenFlow, OpenInterface};
use packet::checksum::Sum;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Hardware addresses of the two sides.
pub(super) const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// 10.0.0.`last`:`port`.
pub(super) fn at(last: u8, port: u16) -> SocketAddrV4 {
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
    }
}

/// A UDP flow on the only interface.
pub(super) fn udp(local: SocketAddrV4, remote: Option<SocketAddrV4>) -> OpenFlow {
    OpenFlow::new(None, 17, local, remote)
}

/// One end of a pair as a device.
pub(super) fn opened(end: End, mac: [u8; 6]) -> Opened {
    Opened {
        receive: Box::new(end.receiver),
        transmit: Box::new(end.sender),
        mac,
        mtu: 1500,
        how: "a pair".into(),
        unfinished_checksums: false,
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
    numbers: u64,
}

impl Bed {
    pub(super) fn new() -> Bed {
        Bed::with(&interface("near", 1), Capacity::default())
    }

    pub(super) fn with(open: &OpenInterface, capacity: Capacity) -> Bed {
        let (near, far) = loopback::pair(capacity).expect("a few file descriptors");
        let routes = Routes::new(open).expect("it is sound");
        let interface = Interface::new(open, routes, opened(near, NEAR));
        Bed { interface, far, now: SECOND, users: Users::default(), hosts: HashMap::new(), numbers: 0 }
    }

    /// Opens a flow of this client, whose user has the same number.
    pub(super) fn open(&mut self, client: u64, open: &OpenFlow) -> Flow {
        let (driver, segments) = Driver::create(open.geometry()).expect("a little memory");
        let (mut fds, mut bells) = (Vec::from(segments), None);
        if !self.hosts.contains_key(&client) {
            let (made, handles) = Bells::create().expect("as above");
            fds.extend(handles);
            bells = Some(made);
        }
        self.numbers += 1;
        let user = client as u32;
        let place = self.users.take(user, 0).expect("there is room");
        let opening =
            Opening { open: open.clone(), client, process: 1, user, number: self.numbers, driver, bells, place };
        let granted = self.interface.core.open(opening, self.now).expect("nothing is in its way");
        self.hosts.entry(client).or_default().adopt(granted, open.geometry(), fds).expect("as above")
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
        let (granted, fds) = self.client.open(open).expect("nothing is in its way");
        self.host.adopt(granted, open.geometry(), fds).expect("as above")
    }
}

/// Two networks with threads, joined: 10.0.0.1 on `near`, 10.0.0.2 on `far`.
pub(super) fn joined() -> [Arc<Networks>; 2] {
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let up = |end, mac, device: &str, last| {
        let networks = Arc::new(Networks::new());
        networks.up_on(&interface(device, last), opened(end, mac)).expect("it is sound");
        networks
    };
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
