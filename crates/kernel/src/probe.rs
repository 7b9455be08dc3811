//! Frames for trying a program before it is attached. They are of every common kind, and contain numbers that the
//! program tests for, so that some pass most of its tests.

use program::Program;
use program::ir::{Block, End, Operand, Step, Value};

/// The most numbers of a program that are tried.
const NUMBERS: usize = 64;

/// The frames are Ethernet frames. For other links they are just bytes.
pub(crate) fn frames(program: &Program) -> Vec<Vec<u8>> {
    let plain = sorts();
    let mut frames = plain.clone();
    for (offset, bytes) in program.blocks().iter().filter_map(asked).take(NUMBERS) {
        for frame in &plain {
            let mut frame = frame.clone();
            if let Some(there) = frame.get_mut(offset..).and_then(|behind| behind.get_mut(..bytes.len())) {
                there.copy_from_slice(&bytes);
                frames.push(frame);
            }
        }
    }
    frames
}

/// The offset at which a block looks, and the bytes that it looks for. Behind a header of variable length, the usual
/// length is assumed.
fn asked(block: &Block) -> Option<(usize, Vec<u8>)> {
    let End::Branch { operand: Operand::Constant(number), .. } = block.end else { return None };
    let (size, offset) = block.steps.iter().rev().find_map(|step| match *step {
        Step::LoadA(Value::Packet { size, offset }) => Some((size, offset as usize)),
        Step::LoadA(Value::Indexed { size, offset }) => Some((size, offset as usize + 20)),
        _ => None,
    })?;
    let bytes = number.to_be_bytes();
    Some((offset, bytes[4 - size.bytes() as usize..].to_vec()))
}

fn sorts() -> Vec<Vec<u8>> {
    let ethernet = |kind: u16| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind.to_be_bytes()[..]].concat();
    let v4 = |protocol: u8, fragment: u8, words: u8| {
        let mut header = vec![0u8; usize::from(words) * 4];
        header[0] = 0x40 | words;
        header[6..10].copy_from_slice(&[0, fragment, 64, protocol]);
        header[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
        header
    };
    let v6 = |protocol: u8| {
        let mut header = vec![0u8; 40];
        header[0] = 0x60;
        header[6] = protocol;
        header[8..12].copy_from_slice(&[0xfe, 0x80, 0, 0]);
        header
    };
    let transport = [&[0x1f, 0x90, 0, 80][..], &[0x50; 60]].concat();
    let whole = |parts: &[&[u8]], len: usize| {
        let mut frame = parts.concat();
        frame.resize(len.max(frame.len()), 0);
        frame
    };
    let mut frames = Vec::new();
    for protocol in [1, 6, 17, 132] {
        frames.push(whole(&[&ethernet(0x800), &v4(protocol, 0, 5), &transport], 60));
        frames.push(whole(&[&ethernet(0x86dd), &v6(protocol), &transport], 60));
    }
    frames.push(whole(&[&ethernet(0x800), &v4(6, 0, 8), &transport], 1514));
    frames.push(whole(&[&ethernet(0x800), &v4(17, 9, 5), &transport], 60));
    frames.push(whole(&[&ethernet(0x8100), &[0, 7, 8, 0], &v4(6, 0, 5), &transport], 64));
    frames.push(whole(&[&ethernet(0x88a8), &[0, 3, 0x81, 0, 0, 7, 8, 0], &v4(17, 0, 5), &transport], 68));
    frames.push(whole(&[&ethernet(0x806), &[0, 1, 8, 0, 6, 4, 0, 1]], 60));
    frames.push(whole(&[&ethernet(0x8847), &[0, 1, 1, 64]], 60));
    frames.push(ethernet(0x88b5));
    frames
}
