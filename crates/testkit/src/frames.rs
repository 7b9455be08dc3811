//! Frames: real ones from the bundled and the shared captures; the same cut, tagged and damaged; and random ones.

use crate::random::Random;
use std::path::{Path, PathBuf};

/// Most frames from one capture.
const FRAMES_OF_ONE: usize = 12;

/// The longest frame that the kernel takes for a test run of a program.
const LONGEST: usize = 3000;

/// Ethernet frames of classic captures in a folder.
fn below(folder: &Path, frames: &mut Vec<Vec<u8>>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            below(&path, frames);
            continue;
        }
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let word =
            |at: usize| bytes.get(at..at + 4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        if word(0) != Some(0xa1b2_c3d4) || word(20) != Some(1) {
            continue;
        }
        let mut at = 24;
        for _ in 0..FRAMES_OF_ONE {
            let Some(frame) = word(at + 8).and_then(|len| bytes.get(at + 16..at + 16 + len as usize)) else { break };
            at += 16 + frame.len();
            if (15..=LONGEST).contains(&frame.len()) {
                frames.push(frame.to_vec());
            }
        }
    }
}

/// About `about` real Ethernet frames from all captures there are, and a damaged copy of each.
pub fn real_and_damaged(about: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("STREAMLINE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let mut real = Vec::new();
    below(&root.join("captures"), &mut real);
    below(&shared.join("data/captures"), &mut real);
    let step = real.len().div_ceil(about).max(1);
    let mut frames: Vec<Vec<u8>> = real.into_iter().step_by(step).collect();
    for number in 0..frames.len() {
        let mut frame = frames[number].clone();
        match number % 4 {
            0 => frame.truncate(15 + random.below(frame.len())),
            1 => drop(frame.splice(12..12, [0x81, 0, 0, random.below(8) as u8])),
            2 => drop(frame.splice(12..12, [0x88, 0xa8, 0, 3, 0x81, 0, 0, random.below(8) as u8])),
            _ => (0..4).for_each(|_| {
                let at = random.below(frame.len());
                frame[at] = random.number() as u8;
            }),
        }
        frames.push(frame);
    }
    frames
}

/// A random frame.
#[derive(Clone, Debug)]
pub struct Shaped {
    /// The Ethernet frame.
    pub bytes: Vec<u8>,
    /// It is complete TCP or UDP, directly behind IPv4 (with or without options) or IPv6, with at most one tag.
    pub is_plain: bool,
}

/// A frame with ports, or with bytes that look like ports. One in four is plain; the rest are odd, mostly in one way.
pub fn shaped(random: &mut Random) -> Shaped {
    let is_plain = random.below(4) == 0;
    let mut odd = |one_in: usize| !is_plain && random.below(one_in) == 0;
    let (tags, chain, fragment, protocol) = (odd(6), odd(4), odd(6), odd(6));
    let (lengths, mutated, cut, header) = (odd(4), odd(3), odd(4), odd(10));
    let mut payload: Vec<u8> = (0..4 + random.below(40)).map(|_| random.number() as u8).collect();
    let mut next = if protocol { [132, 33, 136, 1, 58, 50, 51, 4][random.below(8)] } else { [6, 17][random.below(2)] };
    let is_four = random.below(2) == 0;
    let mut packet = if is_four {
        let words = if random.below(3) == 0 { 5 + random.below(11) } else { 5 };
        let mut packet = vec![0u8; words * 4];
        packet[0] = 0x40 | words as u8;
        packet[8..10].copy_from_slice(&[64, next]);
        packet[12..].iter_mut().for_each(|byte| *byte = random.number() as u8);
        packet[6] = [0, 0x40, 0x80][random.below(3)];
        if fragment {
            packet[6..8].copy_from_slice(&[[0x20, 0, 0x3f, 0x1f][random.below(4)], random.below(3) as u8]);
        }
        let len = (packet.len() + payload.len()) as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet
    } else {
        for _ in 0..if chain { 1 + random.below(3) } else { 0 } {
            let kind = [0, 43, 44, 60, 51, 59][random.below(6)];
            let extension = [next, 0, 0, if random.below(2) == 0 { 0 } else { random.number() as u8 }, 0, 0, 0, 0];
            payload.splice(0..0, extension);
            next = kind;
        }
        let mut packet = vec![0u8; 40];
        packet[0] = 0x60 | random.below(16) as u8;
        packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&[next, 64]);
        packet[8..].iter_mut().for_each(|byte| *byte = random.number() as u8);
        packet
    };
    if header {
        packet[0] = random.number() as u8;
    }
    if lengths {
        let (at, shortest) = if is_four { (2, usize::from(packet[0] & 0xf) * 4) } else { (4, 0) };
        let near = shortest + random.below(6);
        let len = [0, near, near, random.below(0x1_0000)][random.below(4)];
        packet[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    }
    let kind = if is_four { [8, 0] } else { [0x86, 0xdd] };
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for _ in 0..if tags { 2 + random.below(2) } else { random.below(2) } {
        bytes.extend([[0x81, 0], [0x88, 0xa8]][random.below(2)]);
        bytes.extend([random.number() as u8, random.number() as u8]);
    }
    if tags && random.below(2) == 0 {
        // Other headers before IP.
        let others: [&[u8]; 4] = [
            &[0x88, 0x47, 0, 1, 1, 64],
            &[0x88, 0x64, 0x11, 0, 0, 1, 0, 60, 0, 0x21],
            &[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
            &[0x91, 0, 0, 1, 8, 0],
        ];
        bytes.extend(others[random.below(4)]);
    } else {
        bytes.extend(kind);
    }
    bytes.extend(&packet);
    bytes.extend(&payload);
    // As long as Ethernet's padding, and longer.
    bytes.resize(bytes.len() + [0, 6, 30][random.below(3)], 0);
    if mutated {
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len().min(80));
            bytes[at] = random.number() as u8;
        }
    }
    if cut {
        bytes.truncate(15 + random.below(bytes.len() - 15));
    }
    Shaped { bytes, is_plain }
}
