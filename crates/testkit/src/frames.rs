//! Frames of every sort: real ones out of the bundled captures and those beside the project, and the same cut, tagged and
//! damaged.

use crate::random::Random;
use std::path::{Path, PathBuf};

/// Frames of one capture.
const FRAMES_OF_ONE: usize = 12;

/// Longest frame the kernel takes for a test run of a program.
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

/// About so many real Ethernet frames out of all captures there are, and a damaged one for each.
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
