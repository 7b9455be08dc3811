//! Blocks through filters as others do it: processes with pipes between, and processes that signal each other for every
//! block.

use crate::floors;
use crate::memory::Read;
use crate::piped::{self, BLOCK_BYTES};
use crate::process::{Cost, Program, run_pipeline};
use crate::rings::ours::{self, Plan};
use crate::rings::payload::sum;
use crate::setting::Setting;
use buffer::ring::{RingKind, Signalling};
use std::path::Path;

/// Processes with pipes of 1 MiB between them, a read and a write for each block.
pub fn pipes(setting: &Setting, filters: usize, read: Read, blocks: u64) -> Result<Cost, String> {
    let stage = |words: &[&str]| Program::new(&setting.bench).arg("stage").args(words);
    let filter = match read {
        Read::Byte => "touch",
        Read::All => "sum",
    };
    let mut programs = vec![stage(&["produce", &blocks.to_string()])];
    programs.extend((0..filters).map(|_| stage(&[filter])));
    programs.push(stage(&["end"]));
    let ran = run_pipeline(&programs)?;
    let (said, expected) = (String::from_utf8_lossy(&ran.stdout), piped::expected(blocks));
    if said == expected { Ok(ran.cost) } else { Err(format!("{expected} expected, not {said}")) }
}

/// Processes that read blocks in place, from a file that all of them map, and pass on the blocks' numbers. They signal
/// for every block, and the readers of empty rings sleep at once.
pub fn signalled(path: &Path, filters: usize, read: Read, blocks: u64) -> Result<Cost, String> {
    let file = floors::map(path)?;
    file.populate(0, file.len());
    let memory = file.bytes();
    let places = (memory.len() / BLOCK_BYTES) as u64;
    let look = |number: u64| {
        let start = (number % places) as usize * BLOCK_BYTES;
        let block = &memory[start..start + BLOCK_BYTES];
        match read {
            Read::Byte => u64::from(block[0]),
            Read::All => sum(block),
        }
    };
    // As many blocks under way as a pipe of 1 MiB holds.
    let plan = Plan { bytes: 64 << 10, slots: 1024, signalling: Signalling::Every, ..Plan::new(RingKind::P) };
    Ok(ours::relay(plan, filters, blocks, &look)?.cost())
}
