//! Fragments that pass at once: what passed is not forgotten, nor replaced.

use super::around::through;
use super::*;
use base::limits::DECAP_PIECES;
use std::net::Ipv4Addr;
use testkit::packets::{ipv4, udp};

const DATAGRAM_RULES: &str = "drop udp any any -> any any (msg:\"datagram\"; content:\"attack!\"; sid:1;)\n";

/// One fragment of a UDP packet to the server; `offset` is in bytes.
fn fragment(from: u8, identification: u16, offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = ipv4(Ipv4Addr::new(10, 0, 3, from), SERVER.0, 17, payload);
    let flags = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
    frame[18..20].copy_from_slice(&identification.to_be_bytes());
    frame[20..22].copy_from_slice(&flags.to_be_bytes());
    frame
}

/// A datagram of 18 bytes with this text of ten.
fn datagram(text: &[u8; 10]) -> Vec<u8> {
    [&[0, 9, 0, 9, 0, 18, 0, 0][..], text].concat()
}

/// Frames at one time. `passed`: number of frames; `ended`: number of frames by reason.
fn check_frames(frames: &[Vec<u8>], passed: u64, ended: &[(&str, u64)]) -> Outcome {
    let frames: Vec<_> = frames.iter().map(|frame| (1_000, frame.clone())).collect();
    let outcome = through(&frames, DATAGRAM_RULES, &[]);
    let counters = outcome.counters("ips");
    let mut drops: Vec<(&str, u64)> = counters.drops.iter().collect();
    drops.sort_unstable();
    assert_eq!((counters.blocks_rejected, &drops[..]), (passed, ended));
    outcome
}

#[test]
fn a_contradiction_is_of_its_frame_alone() {
    let tunnel = |number: u8| {
        let inner = udp(CLIENT, SERVER, &[number]);
        let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0], &inner[..]].concat();
        udp((Ipv4Addr::new(10, 9, 0, 1), 5000), (Ipv4Addr::new(10, 9, 0, 2), 4789), &vxlan)
    };
    let [one, other] = [b'A', b'B'].map(|byte| fragment(1, 8, 0, true, &[byte; 16]));
    let frames = [tunnel(0), one, other, tunnel(1), tunnel(2), tunnel(3)];
    check_frames(&frames, 5, &[("a fragment contradicts one that passed", 1)]);
}

/// A fragment over many holes takes a piece for each.
#[test]
fn a_fragment_over_many_holes_does_not_hide_what_passed() {
    let text = datagram(b"an attack!");
    let mut frames = vec![fragment(1, 7, 0, true, &text[..16])];
    // 4,095 pieces with holes between them in each packet, and all but two pieces of what there is room for.
    for number in 0..DECAP_PIECES - 3 {
        let (packet, place) = (number / 4_095, number % 4_095);
        frames.push(fragment(2, packet as u16, 8 + 16 * place, true, b"zzzzzzzz"));
    }
    let passed = frames.len() as u64;
    frames.push(fragment(2, 0, 0, true, &[b'z'; 1400]));
    frames.push(fragment(1, 7, 16, false, &text[16..]));
    let outcome = check_frames(&frames, passed, &[("no room for fragments", 1), ("stopped by a rule", 1)]);
    assert_eq!(outcome.counters("ips").events.get("fragmented packets given up to make room"), 0);
}
