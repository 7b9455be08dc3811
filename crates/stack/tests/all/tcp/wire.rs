//! Two stacks in virtual time, on a link that loses, reorders and duplicates.

use std::collections::BTreeMap;

use stack::{Facts, Line, Stack, Stream, StreamState, TcpFacts};

use crate::support::*;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

pub const ISNS: [u32; 2] = [0xffff_fff0, 7];

/// The facts of a host. `is_accepted`: its connection is accepted by the driver.
pub fn tcp_facts(host: usize, is_accepted: bool) -> Facts {
    let tcp = TcpFacts { isn: ISNS[host], is_accepted, ..TcpFacts::default() };
    Facts { tcp, ..facts(host) }
}

/// The same for IPv6.
pub fn tcp_facts_v6(host: usize, is_accepted: bool) -> Facts {
    Facts { tcp: tcp_facts(host, is_accepted).tcp, ..facts_v6(host) }
}

pub const TEXTS: [&str; 2] = ["tcp 40000 to=10.0.0.2:80", "tcp 80 to=10.0.0.1:40000"];
pub const TEXTS_V6: [&str; 2] = ["tcp 40000 to=[fd00::2]:80", "tcp 80 to=[fd00::1]:40000"];

/// The ends of one connection: host 0 connects, host 1 accepts.
pub fn ends() -> [Stack; 2] {
    [0, 1].map(|host| build_with(TEXTS[host], &tcp_facts(host, host == 1)))
}

/// The same for IPv6.
pub fn ends_v6() -> [Stack; 2] {
    [0, 1].map(|host| build_with(TEXTS_V6[host], &tcp_facts_v6(host, host == 1)))
}

pub fn stream(stack: &mut Stack) -> &mut dyn Stream {
    stack.stream().unwrap()
}

/// Fate of frames, per thousand: lost, duplicated, delayed behind others.
#[derive(Clone, Copy, Default)]
pub struct Link {
    pub lost: u64,
    pub doubled: u64,
    pub delayed: u64,
    /// One-way delay in ns.
    pub delay: u64,
}

/// A line with room for this many frames, and the frames sent.
pub struct Room(pub usize, pub Vec<Vec<u8>>);

impl Line for Room {
    fn has_room(&self) -> bool {
        self.1.len() < self.0
    }

    fn emit(&mut self, header: &[u8], payload: &[u8]) {
        assert!(self.has_room(), "a block that knows of no room sends nothing");
        self.1.push([header, payload].concat());
    }
}

/// The frames that a stack sends in a turn, after the driver's part.
pub fn turn(stack: &mut Stack, now: u64, to: usize) -> Vec<Vec<u8>> {
    let mut room = Room(usize::MAX, Vec::new());
    stack.tend(now, &mut room, &mut |_| panic!("a stream delivers nothing"));
    room.1.into_iter().map(|frame| to_station(frame, MACS[to])).collect()
}

pub fn receive(stack: &mut Stack, now: u64, frame: &[u8]) {
    _ = stack.receive(now, frame, &mut |_| panic!("a stream delivers nothing"));
}

type Lose = dyn FnMut(usize, &[u8]) -> bool;

pub struct Pair {
    pub hosts: [Stack; 2],
    pub link: Link,
    pub now: u64,
    pub turn_count: usize,
    /// Every frame that was sent, lost ones too, with its sender.
    pub sent: Vec<(usize, Vec<u8>)>,
    /// Decides whether a frame of this host is lost.
    pub lose: Box<Lose>,
    /// Frames on their way, by time of arrival.
    on_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    number: u64,
    random: u64,
    /// The driver's part of an accepted connection: it answers the SYN, and frames of host 0 wait for that.
    answers: bool,
}

impl Pair {
    pub fn new(hosts: [Stack; 2], link: Link, seed: u64) -> Pair {
        Pair {
            hosts,
            link: Link { delay: link.delay.max(MS / 10), ..link },
            now: 5 * S,
            turn_count: 0,
            sent: Vec::new(),
            lose: Box::new(|_, _| false),
            on_way: BTreeMap::new(),
            number: 0,
            random: seed | 1,
            answers: false,
        }
    }

    /// An open connection; the driver of host 1 answered the SYN.
    pub fn open(link: Link, seed: u64) -> Pair {
        Pair::open_between(ends(), link, seed)
    }

    /// The same between these stacks.
    pub fn open_between(ends: [Stack; 2], link: Link, seed: u64) -> Pair {
        let mut pair = Pair::new(ends, link, seed);
        pair.answers = true;
        pair.run(600 * S, |pair| pair.states() == [StreamState::Open; 2]);
        pair.sent.clear();
        pair
    }

    pub fn states(&mut self) -> [StreamState; 2] {
        [0, 1].map(|host| stream(&mut self.hosts[host]).state())
    }

    fn per_mille(&mut self, rate: u64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % 1_000 < rate
    }

    pub fn put(&mut self, from: usize, frame: Vec<u8>) {
        let later = if self.per_mille(self.link.delayed) { 3 * self.link.delay } else { 0 };
        self.number += 1;
        self.on_way.insert((self.now + self.link.delay + later, self.number), (1 - from, frame));
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) {
        let flags = read(&frame).2;
        if self.answers && from == 0 && flags == 0x02 {
            // The driver of host 1 answers the SYN, and gives it to the connection first.
            receive(&mut self.hosts[1], self.now, &frame);
            return self.put(1, syn_ack(&frame));
        }
        self.sent.push((from, frame.clone()));
        if (self.lose)(from, &frame) || self.per_mille(self.link.lost) {
            return;
        }
        if self.per_mille(self.link.doubled) {
            self.put(from, frame.clone());
        }
        self.put(from, frame);
    }

    /// Lets time pass until `done`; panics after `limit` ns.
    pub fn run(&mut self, limit: u64, mut done: impl FnMut(&mut Pair) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "too late: {:?} {:?}", self.states(), self.hosts.each_ref().map(Stack::next));
            self.step(end);
        }
    }

    /// Lets exactly `time` ns pass.
    pub fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
    }

    /// Advances to the next event, or to `end`.
    fn step(&mut self, end: u64) {
        let next = self.hosts.iter().filter_map(Stack::next).chain(self.on_way.keys().next().map(|key| key.0)).min();
        self.now = next.unwrap_or(end).clamp(self.now, end);
        while let Some(entry) = self.on_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, frame) = entry.remove();
            receive(&mut self.hosts[to], self.now, &frame);
        }
        for host in [0, 1] {
            if self.hosts[host].next().is_some_and(|next| next <= self.now) {
                self.turn_count += 1;
                for frame in turn(&mut self.hosts[host], self.now, 1 - host) {
                    self.send(host, frame);
                }
            }
        }
    }
}

/// The driver's answer to a SYN: number, window and options of the accepted side.
pub fn syn_ack(syn: &[u8]) -> Vec<u8> {
    let sequence = read(syn).0;
    // The MSS leaves room for the headers (RFC 9293, section 3.7.1).
    let [high, low] = if headers(syn) == 34 { 1460_u16 } else { 1440 }.to_be_bytes();
    let options = [2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, stack::TCP_WINDOW_SHIFT];
    let mut answer = segment(1, ISNS[1], sequence.wrapping_add(1), 0x12, stack::TCP_WINDOW, &options, &[]);
    if headers(syn) == 54 {
        let mut head = [&answer[..12], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, (answer.len() - 34) as u8, 6, 64]].concat();
        head.extend([&syn[38..54], &syn[22..38]].concat());
        answer.splice(..34, head);
        mend_tcp(&mut answer);
    }
    answer
}

/// A frame with one segment from a host to the other.
pub fn segment(
    from: usize,
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    window: u16,
    options: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let ports = [40_000_u16, 80];
    let mut tcp = [ports[from].to_be_bytes(), ports[1 - from].to_be_bytes()].concat();
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(acknowledged.to_be_bytes());
    tcp.extend([(5 + options.len() as u8 / 4) << 4, flags]);
    tcp.extend(window.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(options);
    tcp.extend(data);
    let mut frame = [MACS[1 - from], MACS[from]].concat();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + tcp.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1 + from as u8, 10, 0, 0, 2 - from as u8]);
    frame.extend(tcp);
    mend_ipv4(&mut frame);
    mend_tcp(&mut frame);
    frame
}

/// Recomputes the checksum of the segment in a frame, if there is one.
pub fn mend_tcp(frame: &mut [u8]) {
    if frame.len() >= headers(frame) + 20 {
        mend_transport(frame, 16);
    }
}

/// Sequence number, acknowledgement number, flags, window, options and data of the segment in a frame.
pub fn read(frame: &[u8]) -> (u32, u32, u8, u16, &[u8], &[u8]) {
    let segment = &frame[headers(frame)..];
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    let options_end = usize::from(segment[12] >> 4) * 4;
    let window = u16::from_be_bytes([segment[14], segment[15]]);
    (number(4), number(8), segment[13], window, &segment[20..options_end], &segment[options_end..])
}
