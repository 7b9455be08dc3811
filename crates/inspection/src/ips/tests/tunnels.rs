//! Streams and fragments that are in a tunnel in part, and packets in more tunnels than are opened.

use super::*;
use base::limits::DECAP_DEPTH;
use std::net::Ipv4Addr;
use testkit::packets::ipv4;

const SPLIT: &str = "data of one stream in and out of a tunnel";

/// The frame's packet in IP, this many times; `end`: the last number of the tunnels' source.
fn in_tunnels(frame: &[u8], count: usize, end: u8) -> Vec<u8> {
    let outer = |inner: Vec<u8>| ipv4(Ipv4Addr::new(172, 16, 0, end), Ipv4Addr::new(172, 16, 0, 2), 4, &inner[14..]);
    (0..count).fold(frame.to_vec(), |inner, _| outer(inner))
}

/// Puts the last frames of a conversation into tunnels, the last frame first: `tunnels` has a number of tunnels for each.
fn wrap(conversation: &mut Conversation, tunnels: &[(usize, u8)]) {
    for (frame, (count, end)) in conversation.frames.iter_mut().rev().zip(tunnels) {
        frame.1 = in_tunnels(&frame.1, *count, *end);
    }
}

#[test]
fn tunnels_that_are_not_opened_to_the_end_do_not_pass() {
    for (count, closed, open) in [
        (DECAP_DEPTH, &[("stopped by a rule", 1)][..], &[("stopped by a rule", 1)][..]),
        (DECAP_DEPTH + 1, &[("tunnels too deep", 1)], &[]),
    ] {
        let mut conversation = talk();
        conversation.send(0, b"attack");
        conversation.frames.drain(..3);
        wrap(&mut conversation, &[(count, 1)]);
        check(&conversation, &[], 0, closed);
        check(&conversation, &[("fail", "open")], 1 - open.len() as u64, open);
    }
}

#[test]
fn a_stream_does_not_hide_in_and_out_of_tunnels() {
    // The tunnels of the two halves.
    for halves in [[(1, 1), (0, 1)], [(0, 1), (1, 1)], [(2, 1), (1, 1)], [(1, 1), (1, 3)]] {
        let mut conversation = talk();
        conversation.send(0, b"att").send(0, b"ack");
        wrap(&mut conversation, &[halves[1], halves[0]]);
        // The handshake was outside.
        let inside = halves.iter().filter(|(count, _)| *count > 0).count() as u64;
        check(&conversation, &[], 5 - inside, &[(SPLIT, inside)]);
        check(&conversation, &[("fail", "open")], 5, &[]);
        check(&conversation, &[("tunnel", "ignore")], 4, &[("stopped by a rule", 1)]);
    }
    // Each way by one path alone: a server that answers past the tunnel.
    let mut conversation = talk();
    conversation.send(0, b"one").send(1, b"two").send(0, b"three");
    for at in [0, 2, 3, 5] {
        conversation.frames[at].1 = in_tunnels(&conversation.frames[at].1, 1, 1);
    }
    check(&conversation, &[], 6, &[]);
    // Two networks with the same addresses.
    let mut conversation = talk();
    conversation.send(0, b"one").send(1, b"two");
    let mut other = talk();
    other.send(0, b"one").send(1, b"two");
    wrap(&mut other, &[(1, 2), (1, 1), (1, 1), (1, 2), (1, 1)]);
    // The tunnels of the two ways are one.
    for (way, frame) in other.frames.iter_mut().enumerate().map(|(at, frame)| ([0, 1, 0, 0, 1][at], frame)) {
        if way == 1 {
            (frame.1[29], frame.1[33]) = (2, 1);
        }
    }
    conversation.frames.extend(other.frames);
    check(&conversation, &[], 10, &[]);
}

#[test]
fn a_packet_does_not_hide_in_fragments_in_and_out_of_tunnels() {
    let [first, last] = fragments::halves(b"an attack!");
    let ended = [("fragments of one packet in and out of a tunnel", 1)];
    for [one, other] in [[(0, 1), (1, 1)], [(1, 1), (0, 1)], [(1, 1), (1, 3)], [(1, 1), (2, 1)]] {
        let frames = [in_tunnels(&first, one.0, one.1), in_tunnels(&last, other.0, other.1)];
        fragments::check_frames(&frames, 1, &ended);
    }
    let frames = [in_tunnels(&first, 1, 1), in_tunnels(&last, 1, 1)];
    fragments::check_frames(&frames, 1, &[("stopped by a rule", 1)]);
}
