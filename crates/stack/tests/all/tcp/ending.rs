//! How connections fail to open, and how they end.

use stack::{End, Stack, StreamState};
use std::time::Duration;

use super::wire::*;
use crate::support::*;

const REFUSED: i32 = 111;
const FINISHED: StreamState = StreamState::Closed(Some(End::Finished));

#[test]
fn a_connect_to_nobody_times_out() {
    for (timeout, seconds, syn_count) in [(None, 60, 6), (Some(Duration::from_secs(5)), 5, 3)] {
        let mut pair = Pair::new(ends(), Link::default(), 1);
        pair.lose = Box::new(|_, _| true);
        stream(&mut pair.hosts[0]).set_connect_timeout(timeout);
        let began = pair.now;
        pair.run(100 * S, |pair| pair.states()[0] != StreamState::Connecting);
        assert_eq!(pair.states()[0], StreamState::Closed(Some(End::TimedOut)));
        assert_eq!((pair.now - began, End::TimedOut.errno()), (seconds * S, 110));
        // SYNs at 0, 1, 3, 7, 15 and 31 s, and no reset.
        let syns: Vec<u8> = pair.sent.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| read(frame).2).collect();
        assert_eq!(syns, vec![2; syn_count]);
        assert!(pair.turn_count < 20);
        pair.pass(S);
        assert_eq!(pair.hosts[0].next(), None);
    }
}

#[test]
fn a_reset_of_a_syn_is_a_refusal() {
    let mut stack = build_with(TEXTS[0], &tcp_facts(0, false));
    turn(&mut stack, S, 1);
    // A reset with a wrong acknowledgement number is ignored.
    receive(&mut stack, S, &segment(1, 0, ISNS[0].wrapping_add(9), 0x14, 0, &[], &[]));
    turn(&mut stack, S, 1);
    assert_eq!(stream(&mut stack).state(), StreamState::Connecting);
    receive(&mut stack, S, &segment(1, 0, ISNS[0].wrapping_add(1), 0x14, 0, &[], &[]));
    turn(&mut stack, S, 1);
    let StreamState::Closed(Some(end)) = stream(&mut stack).state() else { panic!() };
    assert_eq!((end.errno(), stack.next()), (REFUSED, None));
}

#[test]
fn a_reset_of_an_accepted_handshake_ends_it() {
    let mut stack = build_with(TEXTS[1], &tcp_facts(1, true));
    receive(&mut stack, S, &segment(0, 5, 0, 2, 60_000, &[], &[]));
    receive(&mut stack, S, &segment(0, 6, 0, 4, 0, &[], &[]));
    turn(&mut stack, S, 0);
    assert_eq!(stream(&mut stack).state(), StreamState::Closed(Some(End::Reported(REFUSED))));
    assert_eq!(stack.next(), None);
}

#[test]
fn both_orders_of_finishing_and_both_at_once() {
    for (first, both) in [(0, false), (1, false), (0, true)] {
        let mut pair = Pair::open(Link::default(), 1);
        let now = pair.now;
        stream(&mut pair.hosts[first]).write(now, b"bye");
        stream(&mut pair.hosts[first]).finish(now);
        assert_eq!(pair.states()[first], StreamState::Ending);
        assert_eq!(stream(&mut pair.hosts[first]).write(now, b"more"), 0);
        if both {
            stream(&mut pair.hosts[1 - first]).finish(now);
        }
        let other = 1 - first;
        pair.run(S, |pair| {
            let mut to = [0; 9];
            let len = stream(&mut pair.hosts[other]).read(pair.now, &mut to);
            assert!(len == 0 || to[..len] == *b"bye");
            stream(&mut pair.hosts[other]).is_at_end()
        });
        if !both {
            // Half closed: the other direction still works.
            assert_eq!(pair.states()[other], StreamState::Open);
            stream(&mut pair.hosts[other]).write(pair.now, b"still here");
            pair.run(S, |pair| stream(&mut pair.hosts[first]).readable() == 10);
            stream(&mut pair.hosts[other]).finish(pair.now);
        }
        pair.pass(S);
        let expected = if both { [StreamState::TimeWait; 2] } else { [StreamState::TimeWait, FINISHED] };
        assert_eq!([pair.states()[first], pair.states()[other]], expected);
        // Unread bytes survive TIME-WAIT.
        pair.pass(5 * S);
        assert_eq!(pair.states(), [FINISHED; 2]);
        let mut to = [0; 20];
        let len = stream(&mut pair.hosts[first]).read(pair.now, &mut to);
        assert_eq!(&to[..len], if both { &b""[..] } else { b"still here" });
        assert!(stream(&mut pair.hosts[first]).is_at_end());
        assert_eq!(pair.hosts.each_ref().map(Stack::next), [None; 2]);
    }
}

#[test]
fn finishing_before_the_handshake_is_over_finishes_behind_it() {
    let [mut connecting, _] = ends();
    stream(&mut connecting).finish(S);
    let syn = turn(&mut connecting, S, 1).remove(0);
    assert_eq!(stream(&mut connecting).state(), StreamState::Connecting);
    receive(&mut connecting, S, &syn_ack(&syn));
    let frames = turn(&mut connecting, S, 1);
    assert_eq!(frames.last().map(|frame| read(frame).2), Some(0x11));
    assert_eq!(stream(&mut connecting).state(), StreamState::Ending);
}

#[test]
fn an_abort_resets_the_other_side_which_can_read_what_came() {
    let mut pair = Pair::open(Link::default(), 1);
    stream(&mut pair.hosts[0]).write(pair.now, b"last words");
    pair.pass(S);
    stream(&mut pair.hosts[0]).abort(pair.now);
    assert!(pair.hosts[0].next().is_some_and(|next| next <= pair.now));
    pair.pass(S);
    assert_eq!(pair.states(), [End::Aborted, End::Reset].map(|end| StreamState::Closed(Some(end))));
    assert_eq!((End::Aborted.errno(), End::Reset.errno()), (103, 104));
    let mut to = [0; 20];
    assert_eq!(stream(&mut pair.hosts[1]).read(pair.now, &mut to), 10);
    assert!(!stream(&mut pair.hosts[1]).is_at_end(), "the other side did not finish");
    assert_eq!(pair.hosts.each_ref().map(Stack::next), [None; 2]);
    // A closed connection answers a segment with a reset.
    receive(&mut pair.hosts[0], pair.now, &segment(1, 9, 9, 0x10, 0, &[], b"late"));
    assert_eq!(turn(&mut pair.hosts[0], pair.now, 1).iter().map(|frame| read(frame).2).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_silent_other_side_times_out_after_a_quarter_of_an_hour() {
    for finishes in [false, true] {
        let mut pair = Pair::open(Link::default(), 1);
        pair.pass(1_000 * S);
        pair.lose = Box::new(|_, _| true);
        let began = pair.now;
        if finishes {
            stream(&mut pair.hosts[0]).finish(began);
        } else {
            stream(&mut pair.hosts[0]).write(began, b"anybody?");
        }
        pair.run(2_000 * S, |pair| matches!(pair.states()[0], StreamState::Closed(_)));
        assert_eq!(pair.states()[0], StreamState::Closed(Some(End::TimedOut)));
        assert_eq!(pair.now - began, 900 * S);
        assert!(pair.turn_count < 100, "{}", pair.turn_count);
    }
}

#[test]
fn a_peer_that_acknowledges_the_end_with_a_window_of_zero_is_not_flooded() {
    let mut pair = Pair::open(Link::default(), 1);
    let isn = ISNS[0].wrapping_add(1);
    let answer = |count: u32| segment(1, ISNS[1] + 1, isn.wrapping_add(count), 0x10, 0, &[], &[]);
    receive(&mut pair.hosts[0], pair.now, &answer(0));
    turn(&mut pair.hosts[0], pair.now, 1);
    stream(&mut pair.hosts[0]).write(pair.now, b"x");
    stream(&mut pair.hosts[0]).finish(pair.now);
    pair.lose = Box::new(|_, _| true);
    pair.pass(5 * S);
    receive(&mut pair.hosts[0], pair.now, &answer(2));
    pair.sent.clear();
    pair.turn_count = 0;
    pair.pass(100 * S);
    assert!(pair.sent.len() < 600 && pair.turn_count < 1_200, "{} {}", pair.sent.len(), pair.turn_count);
}

#[test]
fn a_lost_end_is_sent_again_though_duplicate_acknowledgements_stopped_the_timer() {
    let mut pair = Pair::open(Link::default(), 1);
    let isn = ISNS[0].wrapping_add(1);
    let duplicate = segment(1, ISNS[1] + 1, isn, 0x10, 1_000, &[], &[]);
    receive(&mut pair.hosts[0], pair.now, &duplicate);
    pair.lose = Box::new(|_, _| true);
    stream(&mut pair.hosts[0]).finish(pair.now);
    pair.pass(MS);
    for _ in 0..3 {
        receive(&mut pair.hosts[0], pair.now, &duplicate);
    }
    pair.pass(MS);
    pair.lose = Box::new(|_, _| false);
    pair.run(15 * S, |pair| stream(&mut pair.hosts[1]).is_at_end());
}
