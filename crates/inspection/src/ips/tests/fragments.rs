//! Fragments that pass at once: what passed is not forgotten, nor replaced.

use super::around::through;
use super::*;
use base::limits::{BATCH_BLOCKS, DECAP_HELD_BYTES, DECAP_PIECES};
use std::net::Ipv4Addr;
use testkit::packets::{ipv4, udp};

const SECOND: u64 = 1_000_000_000;

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

/// The same in two fragments.
pub(super) fn halves(text: &[u8; 10]) -> [Vec<u8>; 2] {
    let text = datagram(text);
    [fragment(1, 7, 0, true, &text[..16]), fragment(1, 7, 16, false, &text[16..])]
}

/// Frames at one time. `passed`: number of frames; `ended`: number of frames by reason.
pub(super) fn check_frames(frames: &[Vec<u8>], passed: u64, ended: &[(&str, u64)]) -> Outcome {
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

/// The receiver has the first fragment, so it must not get the last one in any copy.
#[test]
fn a_stopped_datagram_stays_stopped() {
    let text = datagram(b"an attack!");
    let [first, last] = halves(b"an attack!");
    let ended = [("of a stopped packet", 3), ("stopped by a rule", 1)];
    let frames = [first.clone(), last.clone(), last.clone(), first.clone(), last.clone()];
    check_frames(&frames, 1, &ended);
    let frames = [last.clone(), first.clone(), first.clone(), first.clone(), last.clone()];
    check_frames(&frames, 1, &ended);
    // Of another packet, the same bytes begin anew; so they do after the timeout.
    check_frames(&[first.clone(), last.clone(), fragment(1, 8, 16, false, &text[16..])], 2, &ended[1..]);
    let mut frames = vec![(0, first), (0, last.clone())];
    frames.extend((0..65 * BATCH_BLOCKS as u64).map(|n| (n / BATCH_BLOCKS as u64 * SECOND, udp(CLIENT, SERVER, b""))));
    let passed = frames.len() as u64;
    frames.push((65 * SECOND, last));
    let outcome = through(&frames, DATAGRAM_RULES, &[]);
    let counters = outcome.counters("ips");
    assert_eq!((counters.blocks_rejected, counters.drops.total()), (passed, 1));
}

/// A fragment that contradicts completes nothing for the receiver, so neither does it for the rules.
#[test]
fn a_dropped_fragment_is_not_part_of_its_packet() {
    let text = datagram(b"an attack!");
    let frames = [
        fragment(1, 7, 0, true, &text[..16]),
        fragment(1, 7, 8, false, b"benign, or"),
        fragment(1, 7, 16, false, &text[16..]),
    ];
    check_frames(&frames, 1, &[("a fragment contradicts one that passed", 1), ("stopped by a rule", 1)]);
}

/// The first copy of a fragment may end before the receiver, which then has the second one.
#[test]
fn a_fragment_of_a_packet_that_passed_is_compared() {
    let [benign, attack] = [datagram(b"a benign!!"), datagram(b"an attack!")];
    let [first, other] = [&benign, &attack].map(|text| fragment(1, 7, 0, true, &text[..16]));
    let last = fragment(1, 7, 16, false, &benign[16..]);
    let ended = [("a fragment contradicts one that passed", 1)];
    check_frames(&[first.clone(), last.clone(), other.clone()], 2, &ended);
    check_frames(&[last.clone(), first.clone(), fragment(1, 7, 16, false, b"k!")], 2, &ended);
    check_frames(&[last.clone(), first.clone(), fragment(1, 7, 16, true, b"k!k!k!k!")], 2, &ended);
    // The same bytes again are no harm, and are judged once.
    let outcome = check_frames(&[first.clone(), last.clone(), first.clone(), last, other], 4, &ended);
    assert_eq!(outcome.counters("ips").events.get("fragments of whole packets again"), 2);
}

/// Packets that passed make room for others, which are then compared as well.
#[test]
fn packets_that_passed_make_room() {
    const HALF: usize = 32_000;
    let number = DECAP_HELD_BYTES as usize / (2 * HALF) + 10;
    let halves =
        |id: u16, byte: u8| [fragment(1, id, 0, true, &[byte; HALF]), fragment(1, id, HALF, false, &[byte; HALF])];
    let mut frames: Vec<_> = (0..number as u16).flat_map(|id| halves(id, b'a')).collect();
    let [_, other] = halves(number as u16 - 1, b'b');
    frames.push(other);
    let outcome = check_frames(&frames, 2 * number as u64, &[("a fragment contradicts one that passed", 1)]);
    let forgotten = outcome.counters("ips").events.get("whole packets forgotten to make room");
    assert!((10..12).contains(&forgotten), "{forgotten}");
}
