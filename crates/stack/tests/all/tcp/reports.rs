//! ICMP errors about connections.

use stack::{Discard, End, Facts, ProblemKind, Stack, StreamState};

use super::wire::*;
use crate::support::*;

const EMSGSIZE: i32 = 90;
const HOST_UNREACHABLE: i32 = 113;

/// An ICMP error from host 1 about a frame of host 0.
fn icmp(kind: u8, code: u8, mtu: u16, about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(&about[14..42]);
    let checksum = packet::checksum::Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = segment(1, 0, 0, 0, 0, &[], &[])[..34].to_vec();
    (frame[17], frame[23]) = (20 + message.len() as u8, 1);
    mend_ipv4(&mut frame);
    frame.extend(message);
    frame
}

fn take(stack: &mut Stack, frame: &[u8]) -> Result<(), Discard> {
    stack.receive(S, frame, &mut |_| panic!("no delivery"))
}

#[test]
fn an_error_ends_a_handshake_at_once() {
    for (kind, code, errno) in
        [(3, 0, 101), (3, 1, HOST_UNREACHABLE), (3, 3, 111), (3, 2, 92), (11, 0, HOST_UNREACHABLE)]
    {
        let mut stack = build_with(TEXTS[0], &tcp_facts(0, false));
        let syn = turn(&mut stack, S, 1).remove(0);
        let mut other = syn.clone();
        other[38] ^= 1;
        assert_eq!(take(&mut stack, &icmp(kind, code, 0, &other)), Err(Discard::OtherFlow), "the number is wrong");
        assert_eq!(stream(&mut stack).state(), StreamState::Connecting);
        assert_eq!(take(&mut stack, &icmp(kind, code, 0, &syn)), Ok(()));
        assert_eq!(stream(&mut stack).state(), StreamState::Closed(Some(End::Reported(errno))));
        assert!(stack.take_problem().is_some());
        assert!(turn(&mut stack, S, 1).is_empty());
        assert_eq!(stack.next(), None);
        // A report by the driver has the same effect.
        let mut stack = build_with(TEXTS[0], &tcp_facts(0, false));
        turn(&mut stack, S, 1);
        stream(&mut stack).report(S, errno, 0);
        assert_eq!(stream(&mut stack).state(), StreamState::Closed(Some(End::Reported(errno))));
    }
}

#[test]
fn an_error_about_an_open_connection_is_told_only_if_it_times_out() {
    let mut pair = Pair::open(Link::default(), 1);
    stream(&mut pair.hosts[0]).report(pair.now, 101, 0);
    stream(&mut pair.hosts[0]).write(pair.now, b"x");
    pair.pass(S);
    assert_eq!(pair.states(), [StreamState::Open; 2]);
    // Progress makes the connection forget the error.
    pair.lose = Box::new(|_, _| true);
    stream(&mut pair.hosts[0]).write(pair.now, b"y");
    stream(&mut pair.hosts[0]).report(pair.now, HOST_UNREACHABLE, 0);
    pair.run(1_000 * S, |pair| pair.states()[0] != StreamState::Open);
    assert_eq!(pair.states()[0], StreamState::Closed(Some(End::Reported(HOST_UNREACHABLE))));
}

#[test]
fn a_smaller_path_mtu_makes_segments_smaller_and_nothing_makes_them_larger() {
    let mut pair = Pair::open(Link::default(), 1);
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at >> 4) as u8).collect();
    stream(&mut pair.hosts[0]).write(pair.now, &bytes);
    // A router with an MTU of 1,000 drops larger packets and reports them.
    pair.lose = Box::new(|_, frame| frame.len() > 1_014);
    let mut told = 0;
    let mut received = Vec::new();
    pair.run(60 * S, |pair| {
        let large = pair.sent.iter().find(|(from, frame)| *from == 0 && frame.len() > 1_014).cloned();
        pair.sent.clear();
        if let Some((_, large)) = large {
            told += 1;
            pair.put(1, icmp(3, 4, 1_000, &large));
        }
        let mut to = [0; 9_000];
        let len = stream(&mut pair.hosts[1]).read(pair.now, &mut to);
        received.extend_from_slice(&to[..len]);
        received.len() == bytes.len()
    });
    assert!(received == bytes);
    assert!((1..4).contains(&told), "{told}");
    assert_eq!(pair.hosts[0].take_problem().map(|problem| problem.kind), Some(ProblemKind::TooBig(1_000)));

    let longest = |pair: &mut Pair, mtu: u16| {
        pair.lose = Box::new(|_, _| false);
        stream(&mut pair.hosts[0]).report(pair.now, EMSGSIZE, mtu);
        pair.sent.clear();
        stream(&mut pair.hosts[0]).write(pair.now, &bytes[..20_000]);
        pair.pass(S);
        pair.sent.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame.len() - 14).max()
    };
    assert_eq!(longest(&mut pair, 1_400), Some(1_000), "never larger");
    assert_eq!(longest(&mut pair, 600), Some(600));
    assert_eq!(longest(&mut pair, 68), Some(552));
}

#[test]
fn segments_fit_the_device_as_it_changes_and_the_path_as_it_is_known() {
    let mut pair = Pair::open(Link::default(), 1);
    let longest = |pair: &mut Pair, mtu: u16| {
        pair.hosts[0].facts_changed(pair.now, &Facts { mtu, ..facts(0) });
        pair.sent.clear();
        stream(&mut pair.hosts[0]).write(pair.now, &[7; 20_000]);
        pair.pass(S);
        let mut to = [0; 30_000];
        assert_eq!(stream(&mut pair.hosts[1]).read(pair.now, &mut to), 20_000);
        pair.sent.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame.len() - 14).max()
    };
    for (mtu, expected) in [(1_400, 1_400), (1_200, 1_200), (9_000, 1_500), (1_500, 1_500)] {
        assert_eq!(longest(&mut pair, mtu), Some(expected), "the other side takes 1,500");
    }
    stream(&mut pair.hosts[0]).report(pair.now, EMSGSIZE, 1_000);
    assert_eq!(longest(&mut pair, 1_500), Some(1_000), "the path is as it was");
    assert_eq!(longest(&mut pair, 1_400), Some(1_400), "perhaps another path");
}

#[test]
fn a_path_mtu_before_the_handshake_keeps_the_number() {
    for accepted in [false, true] {
        let host = usize::from(accepted);
        let mut stack = build_with(TEXTS[host], &tcp_facts(host, accepted));
        stream(&mut stack).report(S, EMSGSIZE, 700);
        if accepted {
            receive(&mut stack, S, &segment(0, 5, 0, 2, 60_000, &[], &[]));
            turn(&mut stack, S, 0);
            receive(&mut stack, S, &segment(0, 6, ISNS[1] + 1, 0x10, 60_000, &[], &[]));
            turn(&mut stack, S, 0);
            assert_eq!(stream(&mut stack).state(), StreamState::Open);
        } else {
            let syn = turn(&mut stack, S, 1).remove(0);
            assert_eq!((read(&syn).0, &read(&syn).4[2..4]), (ISNS[0], &660_u16.to_be_bytes()[..]));
        }
    }
}
