//! Segments that no peer should send: each is taken, or discarded and counted. None panics.

use stack::{Stack, StreamState};

use super::wire::*;
use crate::support::*;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn discarded(stack: &Stack) -> u64 {
    stack.discards().map(|(_, count)| count).sum()
}

/// Gives a frame to a stack, then a turn. Returns whether the stack accounts for the frame.
fn take(stack: &mut Stack, now: u64, frame: &[u8]) -> bool {
    let before = discarded(stack);
    let outcome = stack.receive(now, frame, &mut |_| panic!("a stream delivers nothing"));
    assert_eq!(discarded(stack) - before, u64::from(outcome.is_err()), "{frame:02x?}");
    let mut frame_count = 0;
    stack.tend(now, &mut |_: &[u8], _: &[u8]| frame_count += 1, &mut |_| panic!("a stream delivers nothing"));
    assert!(frame_count < 500, "{frame_count}");
    outcome.is_ok()
}

/// Stacks in several states, each with a valid frame from the other side.
fn stacks() -> Vec<(Stack, u64, Vec<u8>, usize)> {
    let mut all = Vec::new();
    let [mut connecting, accepted] = ends();
    let syn = turn(&mut connecting, 5 * S, 1).remove(0);
    all.push((connecting, 5 * S, syn_ack(&syn), 0));
    all.push((accepted, 5 * S, syn, 1));
    for state in 0..5 {
        let mut pair = Pair::open(Link::default(), 1);
        stream(&mut pair.hosts[0]).write(pair.now, b"from host 0");
        pair.pass(S);
        let now = pair.now;
        match state {
            1 => stream(&mut pair.hosts[0]).finish(now),
            2 => stream(&mut pair.hosts[1]).finish(now),
            3 => [0, 1].into_iter().for_each(|host| stream(&mut pair.hosts[host]).finish(now)),
            4 => stream(&mut pair.hosts[0]).abort(now),
            _ => {}
        }
        pair.pass(S);
        let acknowledged = ISNS[0].wrapping_add(12 + u32::from(state == 1 || state == 3));
        let frame = segment(1, ISNS[1] + 1, acknowledged, 0x18, 1_000, &[], b"from host 1");
        let [host, _] = pair.hosts;
        all.push((host, pair.now, frame, 0));
    }
    all
}

#[test]
fn every_truncation_and_every_changed_bit_is_a_discard() {
    for (mut stack, now, frame, _) in stacks() {
        for length in 0..frame.len() {
            assert!(!take(&mut stack, now, &frame[..length]), "{length}");
        }
        for at in 14..frame.len() {
            for bit in 0..8 {
                let mut changed = frame.clone();
                changed[at] ^= 1 << bit;
                assert!(!take(&mut stack, now, &changed), "{at} {bit}");
            }
        }
        assert!(take(&mut stack, now, &frame));
    }
}

#[test]
fn mutations_with_right_checksums_are_accounted_for() {
    for (mut stack, now, frame, _) in stacks() {
        for at in 34..frame.len() {
            for value in (0..=255).step_by(5).chain([1, 2, 4, 8, 16, 127, 128, 254]) {
                let mut changed = frame.clone();
                changed[at] = value;
                mend_tcp(&mut changed);
                take(&mut stack, now, &changed);
            }
        }
    }
    // Every value of the flags and offset bytes, each on a fresh stack.
    for index in 0..stacks().len() {
        for value in 0..=255 {
            for at in [46, 47] {
                let (mut stack, now, mut changed, _) = stacks().remove(index);
                changed[at] = value;
                mend_tcp(&mut changed);
                take(&mut stack, now, &changed);
                take(&mut stack, now + 9 * S, &changed);
            }
            if value > 40 && index > 1 {
                break;
            }
        }
    }
}

#[test]
fn ten_thousand_segments_of_random_bytes() {
    let mut random = Random(0x1234_5678);
    for (mut stack, mut now, frame, host) in stacks() {
        let mut taken = 0;
        for _ in 0..10_000 {
            now += random.below(50 * MS);
            let mut segment: Vec<u8> = frame[34..38].to_vec();
            segment.extend((0..16 + random.below(200)).map(|_| random.next() as u8));
            // Plausible numbers, offsets and flags, more often than pure chance would give.
            if random.below(4) > 0 {
                segment[4..8]
                    .copy_from_slice(&(ISNS[1 - host].wrapping_add(random.below(600_000) as u32)).to_be_bytes());
                segment[8..12].copy_from_slice(&(ISNS[host].wrapping_add(random.below(30) as u32)).to_be_bytes());
            }
            if random.below(4) > 0 {
                segment[12] = 0x50 + (random.below(3) as u8 * 16);
                segment[13] = [0x10, 0x18, 0x02, 0x12, 0x11, 0x00, 0x01][random.below(7) as usize];
            }
            let mut changed = frame[..34].to_vec();
            changed.extend(segment);
            let total = changed.len() as u16 - 14;
            changed[16..18].copy_from_slice(&total.to_be_bytes());
            mend_ipv4(&mut changed);
            if random.below(20) > 0 {
                mend_tcp(&mut changed);
            }
            taken += usize::from(take(&mut stack, now, &changed));
            match random.below(40) {
                0 => _ = stream(&mut stack).read(now, &mut [0; 300]),
                1 => _ = stream(&mut stack).write(now, &[5; 3_000]),
                2 if random.below(50) == 0 => stream(&mut stack).finish(now),
                _ => {}
            }
        }
        assert!(taken > 2_000, "{taken}");
    }
}

#[test]
fn data_beyond_the_window_of_a_syn_is_a_discard() {
    let mut stack = build_with(TEXTS[1], &tcp_facts(1, true));
    receive(&mut stack, S, &segment(0, 5, 0, 2, 60_000, &[2, 4, 5, 180, 1, 3, 3, 7], &[]));
    turn(&mut stack, S, 0);
    for distance in [300_000, 65_535, 500_000] {
        receive(&mut stack, S, &segment(0, 6 + distance, ISNS[1] + 1, 0x10, 60_000, &[], &[1; 1_000]));
        turn(&mut stack, S, 0);
    }
    assert_eq!(discards(&stack), [("beyond the tcp window", 3)]);
    receive(&mut stack, S, &segment(0, 6, ISNS[1] + 1, 0x10, 60_000, &[], &[1; 1_000]));
    turn(&mut stack, S, 0);
    assert_eq!((stream(&mut stack).state(), stream(&mut stack).readable()), (StreamState::Open, 1_000));
}

#[test]
fn more_segments_than_the_queue_keeps_are_discarded_and_sent_again() {
    let mut pair = Pair::open(Link::default(), 1);
    let frame = segment(0, ISNS[0].wrapping_add(1), ISNS[1] + 1, 0x10, 1_000, &[], &[1; 1_400]);
    for _ in 0..500 {
        receive(&mut pair.hosts[1], pair.now, &frame);
    }
    let counts = discards(&pair.hosts[1]);
    assert!(matches!(counts[..], [("tcp queue full", 100..200)]), "{counts:?}");
    pair.pass(S);
    assert_eq!(stream(&mut pair.hosts[1]).readable(), 1_400);
}

/// A window is announced in multiples of 1 << [`stack::TCP_WINDOW_SHIFT`], rounded down. A nearly full buffer says 0,
/// although the other side may still send a few bytes. Acknowledgements with or behind those bytes count.
#[test]
fn a_shut_window_keeps_out_bytes_and_no_acknowledgements() {
    let mut pair = Pair::open(Link::default(), 1);
    let now = pair.now;
    let written = stream(&mut pair.hosts[0]).write(now, &vec![1; 20_000]);
    turn(&mut pair.hosts[0], now, 1);
    let [mut host, _] = pair.hosts;
    let acknowledged = |count: u32| ISNS[0].wrapping_add(1 + count);
    // Bytes of the receive buffer.
    let (mut sent, full) = (0, 256 << 10);
    while full - sent > 3 {
        let len = (full - sent - 3).min(1_000);
        receive(
            &mut host,
            now,
            &segment(1, ISNS[1] + 1 + sent as u32, acknowledged(0), 0x10, 60_000, &[], &vec![2; len]),
        );
        turn(&mut host, now, 1);
        sent += len;
    }
    // The delayed acknowledgement has gone out.
    let now = now + S / 2;
    let last = turn(&mut host, now, 1).pop().unwrap();
    assert_eq!((read(&last).3, stream(&mut host).unacknowledged()), (0, written));
    // With three bytes, as many as fit.
    let three = segment(1, ISNS[1] + 1 + sent as u32, acknowledged(1_460), 0x10, 60_000, &[], &[3; 3]);
    receive(&mut host, now, &three);
    turn(&mut host, now, 1);
    assert_eq!(stream(&mut host).unacknowledged(), written - 1_460);
    // Behind the three bytes.
    receive(&mut host, now, &segment(1, ISNS[1] + 4 + sent as u32, acknowledged(2_920), 0x10, 60_000, &[], &[]));
    turn(&mut host, now, 1);
    assert_eq!((stream(&mut host).unacknowledged(), stream(&mut host).readable()), (written - 2_920, sent));
    // Far from the window: a blind attacker's guess.
    receive(&mut host, now, &segment(1, ISNS[1] + 90_000 + sent as u32, acknowledged(4_380), 0x10, 60_000, &[], &[]));
    turn(&mut host, now, 1);
    assert_eq!(stream(&mut host).unacknowledged(), written - 2_920);
}

/// The same rounding with the last bytes of all: the FIN behind bytes that were cut off must not end the stream.
#[test]
fn a_fin_counts_once_all_bytes_before_it_came() {
    let mut pair = Pair::open(Link::default(), 1);
    turn(&mut pair.hosts[0], pair.now, 1);
    let ([mut host, _], now) = (pair.hosts, pair.now);
    let data = |at: usize, len: usize, flags: u8| {
        let bytes: Vec<u8> = (at..at + len).map(|at| at as u8).collect();
        segment(1, ISNS[1] + 1 + at as u32, ISNS[0].wrapping_add(1), flags, 60_000, &[], &bytes)
    };
    let (mut sent, full) = (0, 256 << 10);
    while full - sent > 1_003 {
        let len = (full - sent - 1_003).min(1_000);
        receive(&mut host, now, &data(sent, len, 0x10));
        turn(&mut host, now, 1);
        sent += len;
    }
    let now = now + S / 2;
    let last = turn(&mut host, now, 1).pop().unwrap();
    assert_eq!(read(&last).3 << stack::TCP_WINDOW_SHIFT, 992);
    let mut got = vec![0; full];
    let mut count = 0;
    // All bytes that fit, with the FIN; again from within, and again without any byte that is new.
    for (at, flags) in [(sent, 0x11), (full - 10, 0x10), (full - 2, 0x11)] {
        receive(&mut host, now, &data(at, full - at, flags));
        turn(&mut host, now, 1);
        count += stream(&mut host).read(now, &mut got[count..]);
        turn(&mut host, now, 1);
        assert!(!stream(&mut host).is_at_end() || count == full, "{count} of {full}");
    }
    assert!(stream(&mut host).is_at_end());
    assert!(got.iter().enumerate().all(|(at, byte)| *byte == at as u8));
}
