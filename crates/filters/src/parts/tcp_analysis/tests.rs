//! Rows of segments by hand: (side, time in ms, sequence number, acknowledgement, flags, window, bytes).

use super::*;
use base::limits::TCP_ANALYSED_IN_FLIGHT;

const MS: u64 = 1_000_000;

type Given = (usize, u64, u32, u32, u8, u16, u32);

fn segments(given: &[Given]) -> Vec<(usize, Segment)> {
    let segment = |(index, given): (usize, &Given)| {
        let &(side, ms, sequence, acknowledgment, flags, window, length) = given;
        let (time, number) = (ms * MS, index as u64 + 1);
        let scale = (flags & SYN != 0).then_some(2);
        let segment =
            Segment { time, number, flags: Flags(flags), sequence, acknowledgment, window, length, scale, sacked: 0 };
        (side, segment)
    };
    given.iter().enumerate().map(segment).collect()
}

/// Both SYNs and the ACK: numbers go on at 101 and 301, windows are shifted by 2, a round trip takes 20 ms.
const HANDSHAKE: [Given; 3] =
    [(0, 0, 100, 0, SYN, 8000, 0), (1, 10, 300, 101, SYN | ACK, 9000, 0), (0, 20, 101, 301, ACK, 2000, 0)];

fn verdicts(given: &[Given]) -> Vec<Verdict> {
    let (mut room, mut connection) = (Room::default(), Connection::default());
    let all = segments(&[&HANDSHAKE[..], given].concat());
    let verdicts: Vec<_> = all.iter().map(|(side, segment)| connection.add(*side, segment, &mut room)).collect();
    verdicts[HANDSHAKE.len()..].to_vec()
}

/// Checks the events of each segment behind the handshake, by the ends of their names.
fn check(given: &[Given], expected: &[&[&str]]) {
    let name = |field: &'static str| field.rsplit('.').next().unwrap();
    let found: Vec<Vec<_>> = verdicts(given).iter().map(|verdict| verdict.events.names().map(name).collect()).collect();
    assert_eq!(found, expected, "{given:?}");
}

const DATA: u8 = ACK | PSH;

#[test]
fn a_handshake_tells_the_round_trip_and_where_numbers_begin() {
    let verdict = verdicts(&[(1, 50, 301, 101, DATA, 100, 10)])[0];
    assert_eq!(verdict.initial_round_trip, Some(20 * MS));
    assert_eq!((verdict.relative, verdict.window), ((1, Some(1)), 400));
}

#[test]
fn retransmissions() {
    let first = (0, 30, 101, 301, DATA, 2000, 10);
    let again = |ms| (0, ms, 101, 301, DATA, 2000, 10);
    let later = (0, 31, 111, 301, DATA, 2000, 10);
    // Behind a longer time than a round trip, or of a segment that is there.
    check(&[first, again(60)], &[&[], &["retransmission"]]);
    check(&[first, later, again(32)], &[&[], &[], &["retransmission"]]);
    let answer = (1, 40, 301, 121, ACK, 9000, 0);
    check(&[first, later, answer, again(45)], &[&[], &[], &[], &["retransmission", "spurious_retransmission"]]);
    assert_eq!(verdicts(&[first, again(60)])[1].timeout, Some(30 * MS));
    // A keep-alive is none.
    check(&[first, answer, (0, 50, 120, 301, ACK, 2000, 0)], &[&[], &["ack_lost_segment"], &["lost_segment"]]);
}

#[test]
fn a_segment_that_comes_late_is_lost_first_and_then_out_of_order() {
    let (later, late) = ((0, 30, 111, 301, DATA, 2000, 10), (0, 31, 101, 301, DATA, 2000, 10));
    check(&[later, late], &[&["lost_segment"], &["out_of_order"]]);
    let after_a_round_trip = (0, 51, 101, 301, DATA, 2000, 10);
    check(&[later, after_a_round_trip], &[&["lost_segment"], &["retransmission"]]);
    // Time that goes back is no short time.
    check(&[later, (0, 29, 101, 301, DATA, 2000, 10)], &[&["lost_segment"], &["retransmission"]]);
}

#[test]
fn two_duplicate_acknowledgements_make_a_fast_retransmission() {
    let sent =
        [(0, 30, 101, 301, DATA, 2000, 10), (0, 30, 121, 301, DATA, 2000, 10), (0, 30, 131, 301, DATA, 2000, 10)];
    let acknowledgment = |ms| (1, ms, 301, 111, ACK, 9000, 0);
    let rest = [acknowledgment(40), acknowledgment(41), acknowledgment(42), (0, 43, 111, 301, DATA, 2000, 10)];
    let given = [&sent[..], &rest].concat();
    let fast: &[&str] = &["retransmission", "fast_retransmission"];
    check(&given, &[&[], &["lost_segment"], &[], &[], &["duplicate_ack"], &["duplicate_ack"], fast]);
    let numbers: Vec<_> = verdicts(&given).iter().map(|verdict| verdict.duplicate_number).collect();
    assert_eq!(numbers, [0, 0, 0, 0, 1, 2, 0]);
}

#[test]
fn windows() {
    // 8000 bytes are the window of the client's ACK: 2000, shifted by 2.
    let full = (1, 30, 301, 101, DATA, 9000, 8000);
    let zero = (0, 31, 101, 8301, ACK, 0, 0);
    let probe = (1, 300, 8301, 101, ACK, 9000, 1);
    let (kept, update) = ((0, 301, 101, 8301, ACK, 0, 0), (0, 400, 101, 8301, ACK, 2000, 0));
    let expected: [&[&str]; 5] = [
        &["window_full"],
        &["zero_window"],
        &["zero_window_probe"],
        &["zero_window", "zero_window_probe_ack"],
        &["window_update"],
    ];
    check(&[full, zero, probe, kept, update], &expected);
}

#[test]
fn keep_alives() {
    let data = (0, 30, 101, 301, DATA, 2000, 10);
    let answer = (1, 40, 301, 111, ACK, 9000, 0);
    let (keep, kept) = ((0, 5000, 110, 301, ACK, 2000, 0), (1, 5010, 301, 111, ACK, 9000, 0));
    check(&[data, answer, keep, kept], &[&[], &[], &["keep_alive"], &["keep_alive_ack"]]);
}

#[test]
fn bytes_that_are_acknowledged_and_never_came_are_told_once() {
    let beyond = |ms, to| (1, ms, 301, to, ACK, 9000, 0);
    check(&[beyond(30, 201), beyond(31, 301)], &[&["ack_lost_segment"], &[]]);
    let more = (0, 40, 301, 301, DATA, 2000, 10);
    check(
        &[beyond(30, 201), more, beyond(41, 311)],
        &[&["ack_lost_segment"], &["lost_segment"], &["ack_lost_segment"]],
    );
}

#[test]
fn round_trips_and_bytes_in_flight() {
    let given = [
        (0, 30, 101, 301, ACK, 2000, 10),
        (0, 31, 111, 301, DATA, 2000, 10),
        (1, 45, 301, 111, ACK, 9000, 0),
        (0, 46, 121, 301, DATA, 2000, 5),
        (1, 60, 301, 126, ACK, 9000, 0),
    ];
    let found = verdicts(&given);
    let flights: Vec<_> = found.iter().map(|verdict| (verdict.in_flight, verdict.pushed)).collect();
    assert_eq!(flights, [(Some(10), Some(10)), (Some(20), Some(20)), (None, None), (Some(15), Some(5)), (None, None)]);
    let acknowledged: Vec<_> = found.iter().map(|verdict| verdict.acknowledges).collect();
    assert_eq!(acknowledged, [None, None, Some((4, 15 * MS)), None, Some((7, 14 * MS))]);
}

#[test]
fn numbers_wrap() {
    let (mut room, mut connection) = (Room::default(), Connection::default());
    let given =
        [(0, 0, u32::MAX - 4, 7, DATA, 100, 10), (0, 1, 5, 7, DATA, 100, 10), (0, 90, u32::MAX - 4, 7, DATA, 100, 10)];
    let all = segments(&given);
    let found: Vec<_> = all.iter().map(|(side, segment)| connection.add(*side, segment, &mut room)).collect();
    assert_eq!(found[1].relative, (11, Some(1)));
    assert_eq!(found[1].in_flight, Some(20));
    let events: Vec<_> = found.iter().map(|verdict| verdict.events.names().count()).collect();
    assert_eq!(events, [0, 0, 1]);
}

/// Whatever comes, the segments that are kept have a limit, and a connection that ends gives its room back.
#[test]
fn segments_that_are_kept_are_bounded_and_counted() {
    let mut room = Room::default();
    let mut connection = room.begin().unwrap();
    let count = TCP_ANALYSED_IN_FLIGHT as u32 + 100;
    let given: Vec<Given> = (0..count).map(|number| (0, 0, number * 10, 1, DATA, 100, 10)).collect();
    for (side, segment) in segments(&given) {
        connection.add(side, &segment, &mut room);
    }
    assert_eq!((room.segments, room.take_left_out()), (TCP_ANALYSED_IN_FLIGHT, 100));
    room.end(&connection);
    assert_eq!((room.segments, room.connections), (0, 0));
}
