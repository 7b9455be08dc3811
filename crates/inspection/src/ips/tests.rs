//! Frames that pass, frames that end, and the reasons, without a network.

mod around;
mod fragments;
mod messages;
mod tunnels;
mod urgent;

use super::KIND;
use std::io::Write;
use testkit::chain::{Chain, Outcome};
use testkit::packets::{CLIENT, Conversation, SERVER};

const ETHERNET: u16 = 1;
const PSH_ACK: u8 = 0x18;

const RULES: &str = "drop tcp any any -> any any (msg:\"attack\"; flow:to_server; content:\"attack\"; sid:1;)\n\
                     alert tcp any any -> any any (msg:\"seen\"; flow:to_server; content:\"seen\"; sid:2;)\n";

/// Runs a conversation through `ips` with these parameters.
fn run(conversation: &Conversation, more: &[(&str, &str)]) -> Outcome {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(RULES.as_bytes()).unwrap();
    let path = file.path().display().to_string();
    let params = [&[("rules", path.as_str())], more].concat();
    Chain::frames(ETHERNET, &conversation.frames).then(&KIND, &params).run()
}

/// `passed`: number of frames; `ended`: number of frames by reason.
fn check(conversation: &Conversation, more: &[(&str, &str)], passed: u64, ended: &[(&str, u64)]) {
    let outcome = run(conversation, more);
    let counters = outcome.counters("ips");
    let mut drops: Vec<(&str, u64)> = counters.drops.iter().collect();
    drops.sort_unstable();
    assert_eq!((counters.blocks_rejected, &drops[..]), (passed, ended), "{more:?}");
}

fn talk() -> Conversation {
    Conversation::open(CLIENT, SERVER, 1000)
}

#[test]
fn what_completes_an_attack_ends_and_its_flow_with_it() {
    let mut conversation = talk();
    conversation.send(0, b"att").send(0, b"ack").send(0, b"more").send(1, b"answer");
    check(&conversation, &[], 4, &[("of a stopped flow", 2), ("stopped by a rule", 1)]);
    let mut conversation = talk();
    let [first, second] = [conversation.segment(0, 0, PSH_ACK, b"att"), conversation.segment(0, 3, PSH_ACK, b"ack")];
    conversation.push(second).push(first);
    check(&conversation, &[], 4, &[("stopped by a rule", 1)]);
    let mut conversation = talk();
    conversation.send(0, b"seen").send(1, b"attack");
    check(&conversation, &[], 5, &[]);
    assert_eq!(run(&conversation, &[]).blocks.len(), 1, "one alert");
    conversation.send(0, b"attack").send(0, b"more");
    let outcome = run(&conversation, &[]);
    assert_eq!(outcome.blocks.len(), 3, "two alerts, and the record of one drop");
}

#[test]
fn other_bytes_for_a_place_that_passed_end() {
    for first in [0, 2] {
        let mut conversation = talk();
        let [one, other] = [b"harmless", b"harmful!"].map(|bytes| conversation.segment(0, first, PSH_ACK, bytes));
        conversation.push(one.clone()).push(other).push(one);
        check(&conversation, &[], 5, &[("contradicts one that passed", 1)]);
    }
}

#[test]
fn what_a_receiver_refuses_passes_where_that_was_chosen() {
    let mut conversation = talk();
    conversation.send(0, b"right");
    let strange = conversation.segment(0, 0, 0x08, b"no ack");
    conversation.push(strange);
    check(&conversation, &[], 4, &[("data without ack", 1)]);
    check(&conversation, &[("fail", "open")], 5, &[]);
}

/// A receiver takes a priority tag off and reads on (IEEE 802.1Q, 9.6).
#[test]
fn a_priority_tag_does_not_hide_half_of_an_attack() {
    let tagged = |id: u8, frame: &[u8]| [&frame[..12], &[0x81, 0, 0xe0, id], &frame[12..]].concat();
    let ended = [("stopped by a rule", 1)];
    for (one, other) in [(&[0][..], &[][..]), (&[], &[0]), (&[0, 0], &[0]), (&[5], &[5, 0]), (&[0, 5], &[5, 0, 0])] {
        let mut conversation = talk();
        conversation.send(0, b"att").send(0, b"ack");
        for (frame, ids) in conversation.frames.iter_mut().rev().zip([one, other]) {
            frame.1 = ids.iter().rev().fold(frame.1.clone(), |frame, id| tagged(*id, &frame));
        }
        // Where the halves are in a VLAN, so is the handshake.
        if one.iter().chain(other).any(|id| *id > 0) {
            conversation.frames[..3].iter_mut().for_each(|frame| frame.1 = tagged(5, &frame.1));
        }
        check(&conversation, &[], 4, &ended);
    }
    let [first, last] = fragments::halves(b"an attack!");
    let frames = [first, tagged(0, &last)];
    fragments::check_frames(&frames, 1, &ended);
}

/// A frame with more headers than are read could hide a segment that its receiver accepts.
#[test]
fn headers_that_are_not_read_to_the_end_do_not_pass() {
    let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    let options = 60u16;
    frame.extend((options * 8 + 26).to_be_bytes());
    frame.extend([60, 64]);
    frame.extend([0x20; 32]);
    for number in 0..options {
        let next = if number + 1 == options { 6 } else { 60 };
        frame.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    frame.extend([0, 80, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    frame.extend(b"attack");
    let mut conversation = talk();
    conversation.push(frame);
    check(&conversation, &[], 3, &[("too many ipv6 extension headers", 1)]);
    check(&conversation, &[("fail", "open")], 4, &[]);
}

/// An attack in front of too many requests in one segment is still an attack.
#[test]
fn more_transactions_than_are_kept_hide_none() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"drop http any any -> any any (msg:\"evil\"; http.uri; content:\"/evil\"; sid:1;)\n").unwrap();
    let mut conversation = talk();
    let text = format!("GET /evil HTTP/1.1\r\n\r\n{}", "GET / HTTP/1.1\r\n\r\n".repeat(70));
    let segment = conversation.segment(0, 0, PSH_ACK, text.as_bytes());
    // A retransmission is dropped too.
    conversation.push(segment.clone()).push(segment);
    let path = file.path().display().to_string();
    let outcome = Chain::frames(ETHERNET, &conversation.frames).then(&KIND, &[("rules", &path)]).run();
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.iter().map(|(_, count)| count).sum::<u64>()), (3, 2));
}

/// A server ignores a SYN, and challenges a reset that is not the next byte: neither ends the flow for the rules.
#[test]
fn what_a_server_ignores_begins_no_other_connection() {
    let syn = |conversation: &Conversation| conversation.segment(0, -66_000, 0x02, b"x");
    let mut conversation = talk();
    conversation.send(0, b"att");
    let forged = syn(&conversation);
    conversation.push(forged).send(0, b"ack");
    check(&conversation, &[], 5, &[("stopped by a rule", 1)]);
    let mut conversation = talk();
    conversation.send(0, b"at");
    let early = conversation.segment(0, 1, PSH_ACK, b"ack");
    let reset = conversation.segment(0, 3, 0x04, b"");
    let plain = conversation.segment(0, 500_000, 0x02, b"");
    conversation.push(early).push(reset).push(plain).send(0, b"t");
    check(&conversation, &[], 7, &[("stopped by a rule", 1)]);
    // The server answers the SYN, so another connection begins; its bytes do not continue the first one.
    let mut conversation = talk();
    conversation.send(0, b"att");
    let mut next = Conversation::open(CLIENT, SERVER, 90_000_000);
    next.send(0, b"ack");
    for (_, frame) in next.frames {
        conversation.push(frame);
    }
    check(&conversation, &[], 8, &[]);
}

/// A packet in a tunnel is also stopped by rules for the tunnel's ends.
#[test]
fn rules_see_both_ends_of_a_tunnel() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"drop ip any any -> 198.51.100.6 any (msg:\"outer\"; sid:1;)\n").unwrap();
    let path = file.path().display().to_string();
    let ipv4 = |protocol: u8, target: [u8; 4], payload: &[u8]| {
        let mut packet = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1];
        packet.extend(target);
        let sum: u32 = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    };
    let inner = ipv4(17, [203, 0, 113, 9], &[0, 7, 0, 7, 0, 10, 0, 0, b'h', b'i']);
    for (target, stopped) in [([198, 51, 100, 6], 1), ([198, 51, 100, 7], 0)] {
        let frame = [&[2; 12][..], &[8, 0], &ipv4(4, target, &inner)].concat();
        let outcome = Chain::frames(ETHERNET, &[(0, frame)]).then(&KIND, &[("rules", &path)]).run();
        let counters = outcome.counters("ips");
        assert_eq!(counters.blocks_rejected, 1 - stopped, "{target:?}");
        assert_eq!(counters.drops.iter().map(|(_, count)| count).sum::<u64>(), stopped);
    }
}
