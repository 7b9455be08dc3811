//! An application that controls its whole channel. One of its threads publishes valid and forged packets of every kind;
//! another one changes bytes and descriptors while the driver checks them. At the far end only packets arrive that
//! match the templates. The flow of another user sends and receives as if it were alone.
//!
//! The tests run it with few packets. With ten million: `STREAMLINE_FORGED=10000000 cargo test -p net --release --lib
//! forged_run -- --nocapture`.

use super::bed::{
    Application, At, FAMILIES, FAR, NEAR, answer, asks_for, await_that, datagram, headers, interface, is_sealed,
    no_limits, opened, outgoing, payload, protocol, udp, up_on,
};
use crate::Networks;
use buffer::flow::{Drop, Geometry, State};
use buffer::shared::payload::Span;
use buffer::shared::segment::{Access, Segment};
use driver::loopback::{self, Capacity, End};
use driver::{Batch, Receive, Transmit, Turn};
use flow::Flow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use testkit::random::Random;

/// Packets are at multiples of this in the bytes to send.
const PLACE: usize = 128;

/// Bytes of a record in the channel, and the offset of the records.
const RECORD: usize = 32;
const RECORDS: usize = 4096;

#[test]
fn forged_packets_of_an_application_that_owns_its_channel_stay_there() {
    let packets = std::env::var("STREAMLINE_FORGED").ok().map(|text| text.parse().expect("a number of packets"));
    for at in FAMILIES {
        attack(at, packets.unwrap_or(30_000));
    }
}

/// The attacker's actions.
#[derive(Debug, Default)]
struct Tried {
    packets: u64,
    /// Packets that the driver dropped as forged, and for their length.
    forged: u64,
    length: u64,
    /// Channels that the driver closed because of invalid words.
    faults: u64,
}

/// The attacker's channel as memory.
struct Channel {
    at: At,
    flow: Flow,
    ours: Span,
    theirs: Span,
    geometry: Geometry,
    sent: u64,
}

fn span(segment: OwnedFd, bytes: usize, access: Access) -> Span {
    let segment = Segment::receive_page(segment, bytes).expect("it is the channel's");
    Span::new(segment.map(0, bytes, access).expect("as above"))
}

impl Channel {
    fn open(at: At, application: &mut Application, flipper: &Sender<(OwnedFd, Geometry)>) -> Channel {
        let open = flow::OpenFlow { send_bytes: 1 << 16, send_records: 256, ..udp(at(1, 4000), Some(at(2, 4001))) };
        let (granted, fds) = application.client.open(&open, &no_limits).expect("the one before is closed");
        let geometry = open.geometry();
        let copy = |number: usize| fds[number].try_clone().expect("a file descriptor");
        flipper.send((copy(0), geometry)).expect("it runs");
        let (ours, theirs) =
            (span(copy(0), geometry.bytes().0, Access::Write), span(copy(1), geometry.bytes().1, Access::Read));
        let flow = application.host.adopt(granted, geometry, fds).expect("it is whole");
        Channel { at, flow, ours, theirs, geometry, sent: 0 }
    }

    fn data(&self) -> usize {
        self.geometry.bytes().0 - self.geometry.send_bytes as usize
    }

    /// Records that the driver has finished.
    fn done(&self) -> u64 {
        let mut word = [0; 8];
        self.theirs.copy_out(0, &mut word);
        u64::from_ne_bytes(word)
    }

    fn word(&self, at: usize, word: u64) {
        self.ours.copy_in(at, &word.to_ne_bytes());
    }

    /// Stores bytes at a place, and returns the piece that names them.
    fn put(&self, random: &mut Random, bytes: &[u8]) -> u64 {
        let offset = random.below(self.geometry.send_bytes as usize / PLACE - 1) * PLACE;
        self.ours.copy_in(self.data() + offset, bytes);
        offset as u64 | (bytes.len() as u64) << 32
    }

    /// Writes one record: a valid packet, a forged one, or arbitrary bytes.
    fn publish(&self, number: u64, random: &mut Random) {
        let at = self.at;
        let sound = outgoing(at(1, 4000), at(2, 4001), &[0xee; 40]);
        let len = sound.len() as u64;
        let mut pieces = [0; 3];
        let mut count = 1;
        match random.below(10) {
            0..4 => pieces[0] = self.put(random, &sound),
            // Whatever is there: the other thread writes here, too.
            4 => pieces[0] = (random.below(500) * PLACE) as u64 | len << 32,
            5 => {
                let mut forged = sound.clone();
                forged[random.below(sound.len() - 40)] ^= 1 << random.below(8);
                pieces[0] = self.put(random, &forged);
            }
            // In the other flow's name, in the name of no flow, or to other addresses.
            6 => {
                let names =
                    [(1, 4001, 2, 4001), (1, 4002, 2, 4001), (7, 4000, 2, 4001), (1, 4000, 2, 53), (1, 4000, 9, 4001)];
                let (from, port, to, remote) = names[random.below(5)];
                let forged = outgoing(at(from, port), at(to, remote), &[0xee; 40]);
                pieces[0] = self.put(random, &forged);
            }
            7 => {
                count = 1 + random.below(3) as u64;
                pieces.fill_with(|| random.below(1 << 16) as u64 | (random.below(700) as u64) << 32);
            }
            // The header in two pieces, split where the driver's copy could be.
            8 => {
                let cut = 1 + random.below(60);
                count = 2;
                (pieces[0], pieces[1]) = (self.put(random, &sound[..cut]), self.put(random, &sound[cut..]));
            }
            // The same record once more.
            _ => {
                let mut before = [0; RECORD];
                let place = |number: u64| RECORDS + (number % u64::from(self.geometry.send_records)) as usize * RECORD;
                self.ours.copy_out(place(number.wrapping_sub(1)), &mut before);
                return self.ours.copy_in(place(number), &before);
            }
        }
        let record = RECORDS + (number % u64::from(self.geometry.send_records)) as usize * RECORD;
        self.word(record, count);
        pieces.iter().enumerate().for_each(|(number, piece)| self.word(record + 8 + 8 * number, *piece));
    }

    /// Writes invalid words: the driver will close the channel.
    fn lie(&self, random: &mut Random) {
        let record = RECORDS + (self.sent % u64::from(self.geometry.send_records)) as usize * RECORD;
        let empties = RECORDS + self.geometry.send_records as usize * RECORD;
        match random.below(6) {
            0 => self.word(0, self.sent.wrapping_sub(1 + random.below(1000) as u64)),
            1 => self.word(0, self.sent + 257 + random.below(1000) as u64),
            2 => self.word(0, random.number()),
            // More pieces than a record has, and one beyond the end.
            3 => (self.word(record, 4), self.word(0, self.sent + 1)).0,
            4 => {
                self.word(record, 1);
                self.word(record + 8, 1 << 16 | 82 << 32);
                self.word(0, self.sent + 1);
            }
            // Invalid empty buffers, and repeated ones.
            _ => {
                (0..256).for_each(|at| self.word(empties + 8 * at, random.below(300) as u64));
                self.word(128, 256 + random.below(256) as u64);
            }
        }
    }
}

/// Publishes packets until it has tried `goal`.
fn publish(at: At, networks: &Arc<Networks>, goal: u64, flipper: &Sender<(OwnedFd, Geometry)>) -> Tried {
    let mut application = Application::new(networks, 1000);
    let (mut random, mut tried) = (Random(0xbad_f00d), Tried::default());
    while tried.packets < goal {
        let mut channel = Channel::open(at, &mut application, flipper);
        while channel.flow.channel.state() == State::Open && tried.packets < goal {
            let free =
                u64::from(channel.geometry.send_records).saturating_sub(channel.sent.wrapping_sub(channel.done()));
            let count = free.min(64);
            for number in 0..count {
                channel.publish(channel.sent + number, &mut random);
            }
            channel.sent += count;
            channel.word(0, channel.sent);
            tried.packets += count;
            if random.below(100) == 0 {
                channel.lie(&mut random);
            }
            channel.flow.ring();
            if count == 0 {
                std::thread::yield_now();
            }
        }
        if channel.flow.channel.state() == State::Open {
            // The packet that is still in it is the last one.
            await_that("the driver has seen all", || {
                channel.flow.ring();
                channel.flow.channel.state() != State::Open || channel.done() >= channel.sent
            });
        }
        tried.forged += channel.flow.channel.dropped(Drop::Forged);
        tried.length += channel.flow.channel.dropped(Drop::Length);
        tried.faults += u64::from(channel.flow.channel.state() != State::Open);
    }
    tried
}

/// Changes bits of the channel that the other thread is using. Returns how many.
fn flip(channels: &Receiver<(OwnedFd, Geometry)>, stop: &AtomicBool) -> u64 {
    let (mut random, mut flips, mut current) = (Random(0xf11b), 0, None);
    while !stop.load(Ordering::Relaxed) {
        if let Some((segment, geometry)) = channels.try_iter().last() {
            let bytes = geometry.bytes().0;
            current = Some((span(segment, bytes, Access::Write), geometry));
        }
        let Some((span, geometry)) = &current else {
            std::thread::yield_now();
            continue;
        };
        for _ in 0..64 {
            let data = geometry.bytes().0 - geometry.send_bytes as usize;
            let at = match random.below(2000) {
                // The low byte of a descriptor's offset or length: it stays inside.
                0 => RECORDS + random.below(geometry.send_records as usize) * RECORD + [8, 12][random.below(2)],
                _ => data + random.below(500) * PLACE + random.below(50),
            };
            let mut byte = [0];
            span.copy_out(at, &mut byte);
            byte[0] ^= 1 << random.below(8);
            span.copy_in(at, &byte);
            flips += 1;
        }
    }
    flips
}

/// The far end of the device, which checks everything.
struct Far {
    at: At,
    end: End,
    of_attacker: u64,
    of_honest: u64,
    given: u64,
}

impl Far {
    /// Takes the received frames, and answers questions.
    fn take(&mut self) {
        let (at, mut of_attacker, mut of_honest, mut asked) = (self.at, 0, self.of_honest, false);
        let take = &mut |batch: Batch<'_>| {
            for frame in batch.frames {
                let bytes = frame.bytes_without_tag();
                if asks_for(bytes, at(2, 0).ip()) {
                    asked = true;
                } else if bytes[0] & 1 == 0 {
                    // Announcements go to all hosts.
                    check(at, bytes, &mut of_attacker, &mut of_honest);
                }
            }
        };
        let _ = self.end.receiver.receive(Duration::from_micros(200), take).expect("it is there");
        (self.of_attacker, self.of_honest) = (self.of_attacker + of_attacker, of_honest);
        if asked {
            let answer = answer(at(2, 0).ip(), FAR);
            assert_eq!(self.end.sender.transmit(&[&answer]).expect("it is there"), Turn::Frames(1));
        }
    }

    /// Sends a packet to each of the two flows.
    fn give(&mut self) {
        let at = self.at;
        let to_honest = datagram([FAR, NEAR], at(2, 4001), at(1, 4001), &self.given.to_be_bytes());
        let to_attacker = datagram([FAR, NEAR], at(2, 4001), at(1, 4000), b"for the attacker");
        if self.end.sender.transmit(&[&to_honest]).expect("it is there") == Turn::Frames(1) {
            self.given += 1;
        }
        let _ = self.end.sender.transmit(&[&to_attacker]).expect("it is there");
    }
}

/// Checks that this is a complete packet of one of the two flows, in its own name.
fn check(at: At, bytes: &[u8], of_attacker: &mut u64, of_honest: &mut u64) {
    let expected = outgoing(at(1, 0), at(2, 0), b"");
    let transport = headers(&expected);
    assert_eq!((&bytes[..12], &bytes[12..14]), (&[FAR, NEAR].concat()[..], &expected[12..14]), "{bytes:02x?}");
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let (version, total, addresses, hops) = match transport {
        34 => (bytes[14], word(16) + 14, 26..34, bytes[22]),
        _ => (bytes[14] & 0xf0, word(18) + 54, 22..54, bytes[21]),
    };
    assert_eq!((version, total), (expected[14], bytes.len()), "the length of the packet");
    assert!(is_sealed(bytes) && hops > 0, "the checksum of the header");
    assert_eq!(bytes[addresses.clone()][..addresses.len()], expected[addresses], "addresses");
    if matches!(protocol(bytes), 1 | 58) {
        // The interface reports that the attacker's port is closed at the moment.
        let (unreachable, quoted) = if transport == 34 { ([3, 3], 28) } else { ([1, 4], 48) };
        let port = transport + quoted + 2;
        assert_eq!((&bytes[transport..transport + 2], word(port)), (&unreachable[..], 4000), "{bytes:02x?}");
        return;
    }
    if transport == 34 {
        assert_eq!((bytes[20] & 0xbf, bytes[21]), (0, 0), "{bytes:02x?}");
    }
    assert_eq!((protocol(bytes), word(transport + 4) + transport), (17, bytes.len()), "{bytes:02x?}");
    match (word(transport), word(transport + 2)) {
        (4000, 4001) => *of_attacker += 1,
        (4001, 4001) => {
            assert_eq!(payload(bytes), of_honest.to_be_bytes(), "the other flow's packets, in their order");
            *of_honest += 1;
        }
        ports => panic!("a packet of no flow: {ports:?}"),
    }
}

fn attack(at: At, goal: u64) {
    let (near, end) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let networks = up_on(&interface("near", 1), opened(near, NEAR));
    let mut other = Application::new(&networks, 1001);
    let mut honest = other.open(&udp(at(1, 4001), Some(at(2, 4001))));
    let (channels, flipped) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let flipper = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || flip(&flipped, &stop)
    });
    let attacker = std::thread::spawn({
        let networks = Arc::clone(&networks);
        move || publish(at, &networks, goal, &channels)
    });
    let mut far = Far { at, end, of_attacker: 0, of_honest: 0, given: 0 };
    let (mut sent, mut received) = (0_u64, 0_u64);
    let mut hear = |honest: &mut Flow| {
        let drops = Drop::ALL.map(|why| (why.name(), honest.channel.dropped(why)));
        honest.receive(usize::MAX, &mut |packet| {
            let mut bytes = [0; 70];
            let len = packet.copy_to(&mut bytes);
            assert_eq!(*payload(&bytes[..len]), received.to_be_bytes(), "deliveries, in their order; {drops:?}");
            received += 1;
        });
        received
    };
    while !attacker.is_finished() {
        far.take();
        far.give();
        if honest.send(&[&outgoing(at(1, 4001), at(2, 4001), &sent.to_be_bytes())]).is_ok() {
            sent += 1;
        }
        hear(&mut honest);
    }
    let tried = attacker.join().expect("it does not panic");
    stop.store(true, Ordering::Relaxed);
    let flips = flipper.join().expect("it does not panic");
    await_that("the other flow's packets are through", || {
        far.take();
        hear(&mut honest) == far.given && far.of_honest == sent
    });
    let dropped: u64 = Drop::ALL.iter().map(|why| honest.channel.dropped(*why)).sum();
    assert_eq!((dropped, honest.channel.state()), (0, State::Open));
    let Far { of_attacker, given, .. } = far;
    println!(
        "{tried:?}, {flips} flips, {of_attacker} sound ones arrived; the other flow sent {sent} and received {given}"
    );
    assert!(
        tried.forged > goal / 100 && tried.faults > 0 && of_attacker > goal / 100 && flips > goal / 10,
        "{tried:?}"
    );
    assert!(sent > 10 && given > 10);
}
