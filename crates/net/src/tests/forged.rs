//! No frame leaves with a header that is not its flow's, whatever an application writes and whenever.

use super::bed::{
    ACK, Application, Bed, FAR, NEAR, Tcp, at, await_that, connecting, interface, no_limits, opened, outgoing, udp,
    up_on,
};
use buffer::flow::{Drop, Geometry};
use buffer::shared::payload::Span;
use buffer::shared::segment::{Access, Segment};
use driver::loopback::{self, Capacity};
use driver::{Batch, Receive, Transmit, Turn};
use flow::OpenFlow;
use packet::checksum::Sum;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn each_flipped_bit_of_a_covered_header_is_dropped_and_nothing_reaches_the_other_side() {
    let names = [at(1, 4000), at(2, 4001)];
    // The driver writes the hardware addresses and the header's checksum; the application may choose these fields.
    let ip = |bit: usize| {
        let is_free = matches!(bit / 8, 0..12 | 15 | 18 | 19 | 22 | 24 | 25) || bit == 20 * 8 + 1;
        // 64 without its only bit is no time to live.
        is_free && bit != 22 * 8 + 1
    };
    let datagram = outgoing(names[0], names[1], b"payload");
    flip_each(&udp(names[0], Some(names[1])), &datagram, 42, &|bit| ip(bit) || matches!(bit / 8, 40 | 41));
    let segment = Tcp(ACK, 1, 1).frame([NEAR, [0; 6]], names, &[1; 4], b"payload of 20 bytes.");
    // A header of 24 bytes becomes one of 56, 8, 16 and 28: 44 are there.
    flip_each(&connecting(names[0], names[1]), &segment, 54, &|bit| {
        ip(bit) || bit >= 38 * 8 && !matches!(bit, 368..=370)
    });
}

/// Flips each bit of the first `covered` bytes of this frame of this flow.
fn flip_each(open: &OpenFlow, sound: &[u8], covered: usize, is_free: &dyn Fn(usize) -> bool) {
    let mut bed = Bed::new();
    let mut flow = bed.open(5, open);
    flow.send(&[sound]).expect("there is room");
    bed.sent();
    bed.give(&super::bed::arp(2, FAR, 2, 1, NEAR));
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
            assert_eq!((&frame[..12], Sum::of(&frame[14..34]).folded()), (&[FAR, NEAR].concat()[..], 0xffff));
        }
    }
    assert_eq!((flow.channel.dropped(Drop::Forged), passed), (forged, covered * 8 - forged as usize));
    assert!(forged > 150, "{forged}");
}

#[test]
fn lengths_that_are_none_are_dropped() {
    let mut bed = Bed::new();
    let mut flow = bed.open(5, &udp(at(1, 4000), Some(at(2, 4001))));
    bed.introduce(&mut flow);
    let longest = outgoing(at(1, 4000), at(2, 4001), &[0; 1500 - 28]);
    let too_long = outgoing(at(1, 4000), at(2, 4001), &[0; 1500 - 27]);
    for frame in [&longest[..41], &longest[..1], &[], &too_long] {
        flow.send(&[frame]).expect("there is room");
    }
    assert!(bed.sent().is_empty());
    assert_eq!(flow.channel.dropped(Drop::Length), 4);
    // The pieces of a packet are one packet, wherever they are cut.
    for cut in [1, 14, 41, 42, 43] {
        flow.send(&[&longest[..cut], &longest[cut..]]).expect("there is room");
        assert_eq!(bed.sent()[0][26..], longest[26..]);
    }
}

/// A thread rewrites the bytes to send while the driver sends them: what arrives conforms to the template all the same.
#[test]
fn a_header_that_changes_meanwhile_arrives_as_it_was_checked() {
    let (near, far) = loopback::pair(Capacity::default()).expect("a few file descriptors");
    let networks = up_on(&interface("near", 1), opened(near, NEAR));
    let mut application = Application::new(&networks, 1000);
    // The smallest channel: the thread is often where the driver is.
    let open = flow::OpenFlow { send_bytes: 4096, send_records: 64, ..udp(at(1, 4000), Some(at(2, 4001))) };
    let (granted, fds) = application.client.open(&open, &no_limits).expect("nothing is in its way");
    let segment = fds[0].try_clone().expect("a file descriptor");
    let mut flow = application.host.adopt(granted, open.geometry(), fds).expect("as above");
    let stop = Arc::new(AtomicBool::new(false));
    let flipper = {
        let (stop, geometry) = (Arc::clone(&stop), open.geometry());
        std::thread::spawn(move || flip(segment, geometry, &stop))
    };
    let (mut receiver, mut sender) = (far.receiver, far.sender);
    let frame = outgoing(at(1, 4000), at(2, 4001), &[0xaa; 60]);
    let (mut seen, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_millis(700) || seen == 0 {
        while flow.send(&[&frame]).is_ok() {}
        flow.ring();
        let mut asked = false;
        let take = &mut |batch: Batch<'_>| {
            for frame in batch.frames {
                let bytes = frame.bytes_without_tag();
                if bytes[12..14] == [8, 6] {
                    asked = true;
                    continue;
                }
                seen += 1;
                let fixed = (&bytes[..15], &bytes[16..18], bytes[20] & 0xbf, bytes[21], bytes[23], &bytes[26..40]);
                let expected = outgoing(at(1, 4000), at(2, 4001), &[0xaa; 60]);
                let head = [&FAR[..], &NEAR, &[8, 0, 0x45]].concat();
                assert_eq!(fixed, (&head[..], &expected[16..18], 0, 0, 17, &expected[26..40]));
                assert_eq!((bytes.len(), Sum::of(&bytes[14..34]).folded()), (102, 0xffff));
                assert!(bytes[22] > 0);
            }
        };
        let _ = receiver.receive(Duration::from_micros(100), take).expect("it is there");
        if asked {
            let answer = super::bed::arp(2, FAR, 2, 1, NEAR);
            assert_eq!(sender.transmit(&[&answer]).expect("it is there"), Turn::Frames(1));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let flips = flipper.join().expect("it does not panic");
    await_that("the driver is done", || flow.channel.outstanding() == 0);
    let forged = flow.channel.dropped(Drop::Forged);
    assert!(flips > 1000 && seen > 100 && forged > 0, "{flips} flips, {seen} seen, {forged} dropped");
}

/// Writes into the bytes to send until it is told to stop; says how often.
fn flip(segment: OwnedFd, geometry: Geometry, stop: &AtomicBool) -> u64 {
    let (bytes, send) = (geometry.bytes().0, geometry.send_bytes as usize);
    let segment = Segment::receive(segment, bytes, Access::Write).expect("it is the channel's");
    let span = Span::new(segment.map(bytes - send, send, Access::Write).expect("as above"));
    let (mut flips, mut byte) = (0_u64, [0]);
    while !stop.load(Ordering::Relaxed) {
        // Every byte is changed and changed back, one after the other.
        let at = (flips / 2 * 13) as usize % send;
        span.copy_out(at, &mut byte);
        byte[0] ^= 1 << (flips / 2 % 8);
        span.copy_in(at, &byte);
        flips += 1;
    }
    flips
}
