//! Checks of every receiver.

use super::bed::{Ability, PATIENCE, Subject, Wanted, check, receive, receive_once, receive_rest};
use super::frames::{number, numbered, of_protocol, sizes, tagged};
use driver::filter::everything;
use driver::{Instruction, Turn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const JUMBO_BYTES: u32 = 9000;

pub fn every_size_arrives_whole(subject: &Subject) {
    let mut bed = subject.open();
    let sent: Vec<Vec<u8>> = (14..=1514).map(|len| numbered(len as u64, len)).collect();
    sent.iter().for_each(|frame| (bed.inject)(frame));
    check(&receive(&mut *bed.receiver, sent.len()), &sent);
}

pub fn the_largest_frames_arrive(subject: &Subject) {
    if !subject.can(Ability::LargestFrames) {
        return;
    }
    for mtu in [JUMBO_BYTES, subject.mtu_max] {
        let mut bed = subject.open_with(Wanted { mtu: Some(mtu), ..Wanted::default() });
        let most = mtu as usize + 14;
        let sent: Vec<Vec<u8>> = [most, most - 1, 60, most].map(|len| numbered(len as u64, len)).into();
        sent.iter().for_each(|frame| (bed.inject)(frame));
        check(&receive(&mut *bed.receiver, sent.len()), &sent);
    }
}

pub fn tags_are_where_they_were(subject: &Subject) {
    let mut bed = subject.open();
    let frame = || numbered(1, 80);
    let sent = [
        tagged(frame(), 0x8100, 7),
        // Priority alone; all bits set.
        tagged(frame(), 0x8100, 0xe000),
        tagged(frame(), 0x8100, 0xffff),
        tagged(frame(), 0x88a8, 100),
        tagged(tagged(frame(), 0x8100, 5), 0x88a8, 100),
        tagged(tagged(tagged(frame(), 0x8100, 6), 0x8100, 5), 0x8100, 4),
        // With fewer bytes after a tag the kernel drops the frame before any receiver sees it.
        tagged(numbered(1, 16), 0x8100, 1),
        frame(),
    ];
    sent.iter().for_each(|frame| (bed.inject)(frame));
    check(&receive(&mut *bed.receiver, sent.len()), &sent);
}

pub fn both_directions_are_seen(subject: &Subject) {
    if !subject.can(Ability::Outgoing) {
        return;
    }
    let mut bed = subject.open();
    let sent: Vec<Vec<u8>> = (0..40).map(|number| numbered(number, 60)).collect();
    for (at, frame) in sent.iter().enumerate() {
        if at % 2 == 0 {
            (bed.inject)(frame);
        } else {
            assert_eq!(bed.sender.transmit(&[frame]).expect("it is up"), Turn::Frames(1));
        }
        bed.await_seen(at as u64 + 1);
    }
    let seen = receive(&mut *bed.receiver, sent.len());
    check(&seen, &sent);
    assert!(seen.iter().enumerate().all(|(at, seen)| seen.outbound == (at % 2 == 1)));
}

pub fn everything_is_accounted_for(subject: &Subject) {
    const FRAMES: usize = 20_000;
    let mut bed = subject.open();
    let (mut sent, mut seen) = (Vec::new(), Vec::new());
    for (number, len) in (0..FRAMES).zip(sizes(60, 1514)) {
        let frame = numbered(number as u64, len);
        (bed.inject)(&frame);
        sent.push(frame);
        if number % 256 == 255 {
            // No faster than they are received, so that no frame is lost: a processor that is busy keeps 1,000 of a veth
            // device's frames (net.core.netdev_max_backlog) before it drops them.
            while seen.len() + 512 < sent.len() {
                receive_once(&mut *bed.receiver, PATIENCE, &mut seen).expect("the device is there");
            }
        }
    }
    seen.extend(receive_rest(&mut bed, FRAMES as u64));
    check(&seen, &sent);
    assert!(seen.iter().zip(0..).all(|(seen, number)| seen.number == number), "frames are numbered as they come");
    let counted = bed.receiver.statistics().expect("it is there");
    let bytes: usize = sent.iter().map(Vec::len).sum();
    assert_eq!((counted.seen, counted.given, counted.given_bytes), (FRAMES as u64, FRAMES as u64, bytes as u64));
    assert_eq!((counted.dropped, counted.damaged, counted.waiting()), (0, 0, 0));
    // Asking does not reset the counts.
    assert_eq!(bed.receiver.statistics().expect("as above"), counted);
    let named = bed.receiver.counters().expect("as above");
    assert!(named.iter().any(|counter| counter.name == "receiver.given" && counter.value == counted.given));
}

/// Passes frames of this protocol whole.
fn only(protocol: u16) -> Vec<Instruction> {
    let one = |code, jump_false, k| Instruction { code, jump_true: 0, jump_false, k };
    // ldh [12]; jeq protocol; ret all; ret none
    vec![one(0x28, 0, 12), one(0x15, 1, u32::from(protocol)), one(0x06, 0, u32::MAX), one(0x06, 0, 0)]
}

pub fn only_what_the_filter_wants_comes(subject: &Subject) {
    if !subject.can(Ability::Filter) {
        return;
    }
    const ONE: u16 = 0x88b5;
    const OTHER: u16 = 0x88b6;
    let mut bed = subject.open_with(Wanted { filter: Some(only(ONE)), ..Wanted::default() });
    let frame = |protocol, number| of_protocol(protocol, number, 60);
    for number in 0..200 {
        (bed.inject)(&frame(if number % 2 == 0 { ONE } else { OTHER }, number));
    }
    let seen = receive(&mut *bed.receiver, 100);
    assert!(seen.iter().all(|seen| number(&seen.bytes).is_multiple_of(2)));

    // Frames from before the filter changed: their numbers tell which of them the old filter may have passed.
    (0..50).for_each(|number| (bed.inject)(&frame(ONE, number)));
    bed.await_seen(150);
    let boundary = bed.receiver.set_filter(&only(OTHER)).expect("it has a filter");
    (50..100).for_each(|number| (bed.inject)(&frame(OTHER, number)));
    (50..100).for_each(|number| (bed.inject)(&frame(ONE, number)));
    let seen = receive_rest(&mut bed, 200);
    assert_eq!((boundary, seen.len()), (150, 100));
    for seen in seen {
        let wanted = of_protocol(if seen.number < boundary { ONE } else { OTHER }, number(&seen.bytes), 60);
        assert!(seen.bytes == wanted);
    }
    assert_eq!(bed.receiver.statistics().expect("it is there").seen, 200, "the others were never let in");
    assert!(bed.receiver.set_filter(&[]).is_err());
}

pub fn frames_are_cut_where_the_filter_says(subject: &Subject) {
    if !subject.can(Ability::Filter) {
        return;
    }
    let mut bed = subject.open_with(Wanted { filter: Some(everything(40)), ..Wanted::default() });
    (bed.inject)(&numbered(1, 1000));
    (bed.inject)(&numbered(2, 40));
    let seen = receive(&mut *bed.receiver, 2);
    assert_eq!((seen[0].wire, seen[0].truncated), (1000, true));
    assert!(seen[0].bytes == numbered(1, 1000)[..40]);
    assert_eq!((seen[1].wire, seen[1].truncated), (40, false));
}

pub fn a_slow_reader_loses_exactly_what_is_counted(subject: &Subject) {
    if !subject.can(Ability::Overload) {
        return;
    }
    const FRAMES: u64 = 10_000;
    let mut bed = subject.open_with(Wanted { small: true, ..Wanted::default() });
    for round in 0..3 {
        (0..FRAMES).for_each(|number| (bed.inject)(&numbered(round * FRAMES + number, 1000)));
        // Reading the counters in between does not change them.
        let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
        while bed.receiver.statistics().expect("it is there").seen < (round + 1) * FRAMES
            || bed.receiver.statistics().expect("as above").waiting() > 0
        {
            assert!(Instant::now() < end);
            receive_once(&mut *bed.receiver, Duration::from_millis(10), &mut seen).expect("as above");
        }
        assert!(!seen.is_empty() && seen.len() < FRAMES as usize);
        assert!(seen.is_sorted_by_key(|seen| number(&seen.bytes)), "what is left is in order");
        assert!(seen.iter().all(|seen| seen.bytes == numbered(number(&seen.bytes), 1000)));
    }
    let counted = bed.receiver.statistics().expect("as above");
    assert!(counted.dropped > 0);
    assert_eq!((counted.seen, counted.damaged), (3 * FRAMES, 0));
    assert_eq!(counted.seen, counted.given + counted.dropped);
}

pub fn after_stop_nothing_comes(subject: &Subject) {
    let mut bed = subject.open();
    (0..10).for_each(|number| (bed.inject)(&numbered(number, 60)));
    bed.await_seen(10);
    bed.receiver.stop().expect("anything can be stopped");
    (10..20).for_each(|number| (bed.inject)(&numbered(number, 60)));
    let seen = receive_rest(&mut bed, 10);
    assert_eq!(seen.iter().map(|seen| number(&seen.bytes)).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    let mut none = Vec::new();
    let turn = receive_once(&mut *bed.receiver, Duration::from_millis(20), &mut none).expect("it is there");
    assert_eq!((turn, none.len()), (Turn::Nothing, 0));
}

fn can_be_read(bed: &super::bed::Bed, wait: Duration) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(bed.receiver.fd(), rustix::event::PollFlags::IN)];
    let wait = rustix::event::Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    rustix::event::poll(&mut fds, Some(&wait)).expect("one file descriptor") > 0
}

pub fn waiting_ends(subject: &Subject) {
    let mut bed = subject.open();
    let mut none = Vec::new();
    assert!(!can_be_read(&bed, Duration::ZERO));
    let begin = Instant::now();
    assert_eq!(receive_once(&mut *bed.receiver, Duration::ZERO, &mut none).expect("it is there"), Turn::Nothing);
    let turn = receive_once(&mut *bed.receiver, Duration::from_millis(30), &mut none).expect("it is there");
    assert_eq!((turn, none.len()), (Turn::Nothing, 0));
    assert!((Duration::from_millis(30)..PATIENCE).contains(&begin.elapsed()));
    (bed.inject)(&numbered(1, 60));
    assert!(can_be_read(&bed, PATIENCE));
    // If frames are there, a call gives them without waiting.
    assert_eq!(receive_once(&mut *bed.receiver, Duration::ZERO, &mut none).expect("as above"), Turn::Frames(1));
    assert!(!can_be_read(&bed, Duration::ZERO));
}

pub fn times_go_forward(subject: &Subject) {
    if !subject.can(Ability::Times) {
        return;
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as u64;
    let mut bed = subject.open();
    let begin = now();
    (0..100).for_each(|number| (bed.inject)(&numbered(number, 60)));
    let seen = receive(&mut *bed.receiver, 100);
    // The kernel's clock for these times ticks in steps.
    let around = begin.saturating_sub(10_000_000)..=now();
    assert!(seen.iter().all(|seen| around.contains(&seen.time)));
    assert!(seen.is_sorted_by_key(|seen| seen.time));
}
