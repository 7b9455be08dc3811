//! No frame leaves with another header than its flow's, whatever an application writes, and at any time.

use super::bed::{
    ACK, Application, At, Bed, FAMILIES, FAR, NEAR, Tcp, answer, asks_for, at, await_that, connecting, headers,
    interface, is_sealed, no_limits, opened, outgoing, protocol, six, udp, up_on,
};
use buffer::flow::{Drop, Geometry};
use buffer::shared::payload::Span;
use buffer::shared::segment::{Access, Segment};
use driver::loopback::{self, Capacity};
use driver::{Batch, Receive, Transmit, Turn};
use flow::OpenFlow;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn each_flipped_bit_of_a_covered_header_is_dropped_and_nothing_reaches_the_other_side() {
    // The driver writes the hardware addresses and the header checksum. The application may choose these fields.
    let four = |bit: usize| {
        let is_free = matches!(bit / 8, 0..12 | 15 | 18 | 19 | 22 | 24 | 25) || bit == 20 * 8 + 1;
        // 64 without its only bit would be a time to live of 0.
        is_free && bit != 22 * 8 + 1
    };
    // Traffic class, flow label, hop limit.
    let six_bits =
        |bit: usize| matches!(bit / 8, 0..12 | 15..18) || bit / 4 == 29 || bit / 8 == 21 && bit != 21 * 8 + 1;
    for (at, ip, transport) in [(at as At, &four as &dyn Fn(usize) -> bool, 34), (six, &six_bits, 54)] {
        let names = [at(1, 4000), at(2, 4001)];
        let datagram = outgoing(names[0], names[1], b"payload");
        let is_checksum = |bit: usize| matches!(bit / 8 - transport, 6 | 7);
        let udp = udp(names[0], Some(names[1]));
        flip_each(&udp, &datagram, transport + 8, &|bit| ip(bit) || bit / 8 >= transport && is_checksum(bit));
        let segment = Tcp(ACK, 1, 1).frame([NEAR, [0; 6]], names, &[1; 4], b"payload of 20 bytes.");
        // A header of 24 bytes becomes one of 56, 8, 16 or 28: 44 are there.
        let offset = (transport + 12) * 8;
        flip_each(&connecting(names[0], names[1]), &segment, transport + 20, &|bit| {
            ip(bit) || bit >= (transport + 4) * 8 && !(offset..offset + 3).contains(&bit)
        });
    }
}

/// Packets that a trusting driver would send: inserted headers, fragments, a foreign source (RFC 8200 4).
#[test]
fn packets_of_ipv6_with_other_headers_than_the_flows_are_dropped() {
    let mut bed = Bed::new();
    let mut flow = bed.open(5, &udp(six(1, 4000), None));
    bed.introduce(&mut flow);
    let sound = outgoing(six(1, 4000), six(2, 4001), b"payload");
    let with = |protocol: u8, header: &[u8]| {
        let mut frame = sound.clone();
        frame.splice(54..54, header.iter().copied());
        frame[18..20].copy_from_slice(&(15 + header.len() as u16).to_be_bytes());
        frame[20] = protocol;
        frame
    };
    let mut other = sound.clone();
    other[22..38].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    let forged = [
        with(0, &[17, 0, 1, 4, 0, 0, 0, 0]),
        with(60, &[17, 0, 1, 4, 0, 0, 0, 0]),
        with(43, &[17, 0, 0, 1, 0, 0, 0, 0]),
        with(44, &[17, 0, 0, 0, 0, 0, 0, 7]),
        with(44, &[17, 0, 0, 1, 0, 0, 0, 7]),
        other,
        // Of the other family, and ICMPv6.
        outgoing(at(1, 4000), at(2, 4001), b"payload of 20 bytes."),
        super::bed::packet([NEAR, [0; 6]], six(1, 0).ip(), six(2, 0).ip(), 58, &[0; 24]),
    ];
    for frame in &forged {
        flow.send(&[frame]).expect("there is room");
        assert!(bed.sent().is_empty(), "{frame:02x?}");
    }
    assert_eq!(flow.channel.dropped(Drop::Forged), forged.len() as u64);
    flow.send(&[&sound]).expect("there is room");
    assert_eq!(bed.sent()[0][14..], sound[14..]);
}

/// Flips each bit of the first `covered` bytes of this frame of this flow.
fn flip_each(open: &OpenFlow, sound: &[u8], covered: usize, is_free: &dyn Fn(usize) -> bool) {
    let mut bed = Bed::new();
    let mut flow = bed.open(5, open);
    flow.send(&[sound]).expect("there is room");
    bed.sent();
    bed.give(&answer(open.remote.expect("it has a peer").ip(), FAR));
    assert_eq!(bed.sent().len(), 1);
    let (mut forged, mut passed) = (0, 0);
    for bit in 0..covered * 8 {
        let mut frame = sound.to_vec();
        frame[bit / 8] ^= 0x80 >> (bit % 8);
        flow.send(&[&frame]).expect("there is room");
        let sent = bed.sent();
        let is_free = is_free(bit);
        assert_eq!(sent.len(), usize::from(is_free), "bit {bit}");
        forged += u64::from(!is_free);
        passed += sent.len();
        for frame in sent {
            assert_eq!((&frame[..12], is_sealed(&frame)), (&[FAR, NEAR].concat()[..], true));
        }
    }
    assert_eq!((flow.channel.dropped(Drop::Forged), passed), (forged, covered * 8 - forged as usize));
    assert!(forged > 150, "{forged}");
}

#[test]
fn lengths_that_are_none_are_dropped() {
    for at in FAMILIES {
        let mut bed = Bed::new();
        let mut flow = bed.open(5, &udp(at(1, 4000), Some(at(2, 4001))));
        bed.introduce(&mut flow);
        let transport = headers(&outgoing(at(1, 4000), at(2, 4001), b""));
        let longest = outgoing(at(1, 4000), at(2, 4001), &vec![0; 1500 + 14 - transport - 8]);
        let too_long = outgoing(at(1, 4000), at(2, 4001), &vec![0; 1500 + 14 - transport - 7]);
        for frame in [&longest[..transport + 7], &longest[..1], &[], &too_long] {
            flow.send(&[frame]).expect("there is room");
        }
        assert!(bed.sent().is_empty());
        assert_eq!(flow.channel.dropped(Drop::Length), 4);
        // The parts of a packet are one packet, at whatever place they are split.
        for cut in [1, 14, transport + 7, transport + 8, transport + 9] {
            flow.send(&[&longest[..cut], &longest[cut..]]).expect("there is room");
            assert_eq!(bed.sent()[0][26..], longest[26..]);
        }
    }
}

/// A thread rewrites the bytes to send while the driver sends them. The received packets still match the template.
#[test]
fn a_header_that_changes_meanwhile_arrives_as_it_was_checked() {
    for at in FAMILIES {
        change_meanwhile(at(1, 4000), at(2, 4001));
    }
}

fn change_meanwhile(local: SocketAddr, remote: SocketAddr) {
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let networks = up_on(&interface("near", 1), opened(near, NEAR));
    let mut application = Application::new(&networks, 1000);
    // The smallest channel: the thread often writes where the driver reads.
    let open = flow::OpenFlow { send_bytes: 4096, send_records: 64, ..udp(local, Some(remote)) };
    let (granted, fds) = application.client.open(&open, &no_limits).expect("nothing is in its way");
    let segment = fds[0].try_clone().expect("a file descriptor");
    let mut flow = application.host.adopt(granted, open.geometry(), fds).expect("as above");
    let stop = Arc::new(AtomicBool::new(false));
    let flipper = {
        let (stop, geometry) = (Arc::clone(&stop), open.geometry());
        std::thread::spawn(move || flip(segment, geometry, &stop))
    };
    let (mut receiver, mut sender) = (far.receiver, far.sender);
    let frame = outgoing(local, remote, &[0xaa; 60]);
    // The fields that the application may choose, here and on the wire.
    let fixed = |frame: &[u8]| {
        let mut fixed = frame[12..headers(frame) + 6].to_vec();
        if headers(frame) == 34 {
            [3, 6, 7, 10, 12, 13].iter().for_each(|at: &usize| fixed[*at] = 0);
            fixed[8] &= 0xbf;
        } else {
            [3, 4, 5, 9].iter().for_each(|at: &usize| fixed[*at] = 0);
            fixed[2] &= 0xf0;
        }
        fixed
    };
    let (mut seen, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_millis(500) || seen < 100 {
        while flow.send(&[&frame]).is_ok() {}
        flow.ring();
        let mut asked = false;
        let take = &mut |batch: Batch<'_>| {
            for sent in batch.frames {
                let bytes = sent.bytes_without_tag();
                if protocol(bytes) != 17 {
                    asked |= asks_for(bytes, remote.ip());
                    continue;
                }
                seen += 1;
                assert_eq!((&bytes[..12], fixed(bytes)), (&[FAR, NEAR].concat()[..], fixed(&frame)));
                assert_eq!((bytes.len(), is_sealed(bytes)), (frame.len(), true));
                assert!(bytes[if headers(bytes) == 34 { 22 } else { 21 }] > 0);
            }
        };
        let _ = receiver.receive(Duration::from_micros(100), take).expect("it is there");
        if asked {
            assert_eq!(sender.transmit(&[&answer(remote.ip(), FAR)]).expect("it is there"), Turn::Frames(1));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let flips = flipper.join().expect("it does not panic");
    await_that("the driver is done", || flow.channel.outstanding() == 0);
    let forged = flow.channel.dropped(Drop::Forged);
    assert!(flips > 1000 && forged > 0, "{flips} flips, {seen} seen, {forged} dropped");
}

/// Writes into the bytes to send until it is stopped. Returns how often.
fn flip(segment: OwnedFd, geometry: Geometry, stop: &AtomicBool) -> u64 {
    let (bytes, send) = (geometry.bytes().0, geometry.send_bytes as usize);
    let segment = Segment::receive(segment, bytes, Access::Write).expect("it is the channel's");
    let span = Span::new(segment.map(bytes - send, send, Access::Write).expect("as above"));
    let (mut flips, mut byte) = (0_u64, [0]);
    while !stop.load(Ordering::Relaxed) {
        // Each byte in turn is changed and restored.
        let at = (flips / 2 * 13) as usize % send;
        span.copy_out(at, &mut byte);
        byte[0] ^= 1 << (flips / 2 % 8);
        span.copy_in(at, &byte);
        flips += 1;
    }
    flips
}
