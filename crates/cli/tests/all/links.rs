//! `bpf` passes the packets that tcpdump passes, on every link type for which libpcap compiles expressions.

use std::process::{Command, Stdio};
use testkit::random::Random;

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// Link types are numbers below this (libpcap 1.10 knows 289).
const LINK_TYPES: u32 = 300;
const FRAMES: usize = 60;

/// Typical lengths of link-layer headers.
const HEADERS: [usize; 20] = [0, 2, 4, 8, 10, 12, 14, 16, 18, 20, 21, 22, 24, 26, 28, 32, 40, 48, 64, 144];

/// A TCP packet from 10.0.0.1 port 1234 to 10.0.0.2 port 80.
const PACKET: [u8; 40] = [
    0x45, 0, 0, 40, 0, 0, 0x40, 0, 0x40, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0,
    0x50, 2, 0, 100, 0, 0, 0, 0,
];

/// A frame with a header of one of [`HEADERS`]: random bytes, zeros, or the EtherType of IPv4 at its end. A fifth of
/// the frames are truncated.
fn frame(random: &mut Random) -> Vec<u8> {
    let len = HEADERS[random.below(HEADERS.len())];
    let is_zero = random.below(3) == 0;
    let mut frame: Vec<u8> = (0..len).map(|_| if is_zero { 0 } else { random.below(256) as u8 }).collect();
    if len >= 2 && random.below(3) < 2 {
        frame[len - 2..].copy_from_slice(&[8, 0]);
    }
    if len == 4 && random.below(2) == 0 {
        frame.copy_from_slice(&[2, 0, 0, 0]);
    }
    frame.extend(PACKET);
    frame.extend(vec![b'x'; random.below(40)]);
    if random.below(5) == 0 {
        frame.truncate(random.below(frame.len()));
    }
    frame
}

fn capture(link_type: u32, random: &mut Random) -> Vec<u8> {
    let mut capture = Vec::new();
    let words = |capture: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| capture.extend(word.to_le_bytes()));
    words(&mut capture, &[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, link_type]);
    for _ in 0..FRAMES {
        let frame = frame(random);
        words(&mut capture, &[1, 2, frame.len() as u32, frame.len() as u32]);
        capture.extend(frame);
    }
    capture
}

fn output_of(command: &mut Command) -> Option<Vec<u8>> {
    let output = command.stderr(Stdio::null()).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// The number of frames in a capture with microseconds.
fn frames_in(capture: &[u8]) -> usize {
    let (mut at, mut frames) = (24, 0);
    while let Some(len) = capture.get(at + 8..at + 12) {
        at += 16 + u32::from_le_bytes(len.try_into().unwrap()) as usize;
        frames += 1;
    }
    frames
}

#[test]
fn bpf_passes_what_tcpdump_passes() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        return eprintln!("skipped: no tcpdump here");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut compared, mut passed) = (0, 0);
    for link_type in 0..LINK_TYPES {
        std::fs::write(&path, capture(link_type, &mut random)).unwrap();
        for expression in ["tcp port 80", "host 10.0.0.1", "not ip and len > 60"] {
            let mut tcpdump = Command::new("tcpdump");
            let theirs = output_of(tcpdump.arg("-r").arg(&path).args(["-w", "-", expression]));
            // If libpcap compiles nothing, or knows that no packet passes, tcpdump ends with an error.
            let Some(theirs) = theirs.map(|capture| frames_in(&capture)) else { continue };
            let request = format!("pcap \"{}\" | bpf \"{expression}\" | count", path.display());
            let ours = output_of(Command::new(PROGRAM).args(["run", "--local", "--quiet", &request]));
            let ours = String::from_utf8(ours.unwrap_or_default()).unwrap();
            assert!(
                ours.starts_with(&format!("{{\"blocks\":{theirs},")),
                "{link_type}, {expression}: {theirs}, {ours}"
            );
            (compared, passed) = (compared + 1, passed + theirs);
        }
    }
    assert!(compared > 150 && passed > 2000, "{compared} compared, {passed} frames passed");
}
