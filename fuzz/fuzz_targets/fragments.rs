//! Fragments of IPv4 and IPv6 packets in any order, with overlaps: `decap` puts them together or counts why not.
#![no_main]

#[path = "../traffic.rs"]
#[expect(dead_code, reason = "this target makes its fragments itself")]
mod traffic;

use libfuzzer_sys::fuzz_target;
use testkit::Chain;

const POLICIES: [&str; 6] = ["first", "last", "bsd", "linux", "solaris", "windows"];

fuzz_target!(|input: &[u8]| {
    let Some((how, mut input)) = input.split_first() else { return };
    let policy = POLICIES[usize::from(how & 7) % POLICIES.len()];
    let mut frames = Vec::new();
    // Head of a fragment: identification and address, place in units of 8 bytes with "more" in its highest bit, length,
    // milliseconds since the one before.
    let mut time = 0u64;
    while let Some((&[which, low, high, len, later], rest)) = input.split_first_chunk::<5>() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(len)));
        let place = u16::from_le_bytes([low, high]);
        let frame = if which & 1 == 0 { ipv4(which, place, payload) } else { ipv6(which, place, payload) };
        time += u64::from(later) * 1_000_000 * if which & 2 == 0 { 1 } else { 500 };
        frames.push((time, frame));
        input = rest;
    }
    let chain = Chain::frames(1, &frames).then(&filters::decap::KIND, &[("policy", policy)]);
    traffic::run(chain.then(&filters::udp::KIND, &[]));
});

fn ipv4(which: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, which >> 2 & 3]);
    let more = if place & 0x8000 == 0 { 0 } else { 0x2000 };
    frame.extend_from_slice(&(place & 0x1fff | more).to_be_bytes());
    frame.extend_from_slice(&[64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 + (which >> 4 & 1)]);
    frame.extend_from_slice(payload);
    frame
}

fn ipv6(which: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[44, 64]);
    for last in [1, 2 + (which >> 4 & 1)] {
        frame.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    let more = u16::from(place & 0x8000 != 0);
    let next = [17, 60, 0, 43][usize::from(which >> 5 & 3)];
    frame.extend_from_slice(&[next, 0]);
    frame.extend_from_slice(&(place << 3 | more).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, which >> 2 & 3]);
    frame.extend_from_slice(payload);
    frame
}
