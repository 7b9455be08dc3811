//! Zstandard as a content coding (RFC 8878), with windows of 8 MiB at most (RFC 9659).
//!
//! The library gives what it decoded once more than a window is there, or at the end of the frame. A receiver has each
//! block at once. So the first blocks of a frame are decoded once more with an end put behind them: that costs a bounded
//! amount, and a body that ends early is given as far as it goes.

use super::step::{Step, Then};
use base::limits::{ZSTD_EARLY_BYTES, ZSTD_EARLY_WORK_BYTES, ZSTD_WINDOW_BYTES};
use ruzstd::decoding::FrameDecoder;
use std::io::Read;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Most bytes that a block becomes (RFC 8878, section 3.1.1.2).
const BLOCK_BYTES: usize = 128 << 10;

/// An empty last block.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

pub struct Zstd {
    decoder: FrameDecoder,
    at: At,
    /// The bytes so far of the part that comes next.
    part: Vec<u8>,
    /// The frame so far, to decode it early; empty: not any more.
    frame: Vec<u8>,
    /// Bytes decoded early.
    early: Vec<u8>,
    /// How many of them were given.
    given: usize,
    /// Bytes of the decoder's output that were given early.
    skip: usize,
    /// Bytes decoded early, all together.
    work: usize,
    /// A checksum stands behind the last block of the frame.
    has_checksum: bool,
    /// A frame ended.
    is_complete: bool,
}

/// The part that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The header of a frame, or what follows the last one.
    Header,
    Block,
    /// The checksum behind the last block.
    Checksum,
    /// The contents of a skippable frame (RFC 8878, section 3.1.2).
    Skip(usize),
    /// The data is not coded.
    Plain,
    End,
}

impl Zstd {
    pub fn new() -> Zstd {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES as u64);
        Zstd {
            decoder,
            at: At::Header,
            part: Vec::new(),
            frame: Vec::new(),
            early: Vec::new(),
            given: 0,
            skip: 0,
            work: 0,
            has_checksum: false,
            is_complete: false,
        }
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.at, At::Plain | At::End) || self.is_complete && self.at == At::Header && self.part.is_empty()
    }

    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let mut used = 0;
        loop {
            let made = self.give(output);
            if made > 0 {
                return Step { used, made, then: Then::Room };
            }
            let rest = &input[used..];
            match self.at {
                At::End => return Step { used, made: 0, then: Then::End },
                At::Plain => {
                    let len = rest.len().min(output.len());
                    output[..len].copy_from_slice(&rest[..len]);
                    let then = if len < rest.len() { Then::Room } else { Then::Input };
                    return Step { used: used + len, made: len, then };
                }
                At::Skip(0) => self.at = At::Header,
                At::Skip(left) => {
                    let len = rest.len().min(left);
                    if len == 0 {
                        return Step { used, made: 0, then: Then::Input };
                    }
                    (self.at, used) = (At::Skip(left - len), used + len);
                }
                At::Header | At::Block | At::Checksum => {
                    // What a part needs shows as it comes.
                    let Some(wanted) = self.wanted() else { return Step { used, made: 0, then: Then::Damaged } };
                    let len = rest.len().min(wanted - self.part.len());
                    self.part.extend_from_slice(&rest[..len]);
                    used += len;
                    if self.part.len() < wanted {
                        if self.at == At::Header && !begins_frame(&self.part) {
                            self.end_frames();
                            continue;
                        }
                        return Step { used, made: 0, then: Then::Input };
                    }
                    if self.wanted() == Some(self.part.len()) && !self.take_part() {
                        return Step { used, made: 0, then: Then::Damaged };
                    }
                }
            }
        }
    }

    /// Gives decoded bytes that wait; returns how many.
    fn give(&mut self, output: &mut [u8]) -> usize {
        let early = &self.early[self.given..];
        let len = early.len().min(output.len());
        if len > 0 {
            output[..len].copy_from_slice(&early[..len]);
            self.given += len;
            return len;
        }
        // The bytes decoded early are in the decoder, too.
        while self.frame.is_empty() && self.decoder.can_collect() > 0 && !output.is_empty() {
            let Ok(made) = self.decoder.read(output) else { return 0 };
            let skipped = made.min(self.skip);
            self.skip -= skipped;
            output.copy_within(skipped..made, 0);
            if made > skipped {
                return made - skipped;
            }
        }
        0
    }

    /// The length of the part that comes next, as far as it shows; `None`: there is no such part.
    fn wanted(&self) -> Option<usize> {
        let part = &self.part;
        match self.at {
            At::Block => {
                let Some([low, middle, high]) = part.first_chunk() else { return Some(3) };
                let size = (u32::from_le_bytes([*low, *middle, *high, 0]) >> 3) as usize;
                match (low >> 1) & 3 {
                    1 if size <= BLOCK_BYTES => Some(4),
                    0 | 2 if size <= BLOCK_BYTES => Some(3 + size),
                    _ => None,
                }
            }
            At::Header if is_skippable(part) => Some(8),
            At::Header if part.len() > MAGIC.len() => {
                let flags = part[4];
                let is_single = flags & 0x20 != 0;
                let size = match flags >> 6 {
                    0 => usize::from(is_single),
                    more => 1 << more,
                };
                Some(5 + usize::from(!is_single) + [0, 1, 2, 4][usize::from(flags & 3)] + size)
            }
            At::Header => Some(part.len().max(MAGIC.len()) + usize::from(part.len() >= MAGIC.len())),
            _ => Some(4),
        }
    }

    /// No frame begins here: the data is not coded, or what follows is not part of it.
    fn end_frames(&mut self) {
        if self.is_complete {
            self.at = At::End;
        } else {
            (self.early, self.given, self.at) = (std::mem::take(&mut self.part), 0, At::Plain);
        }
    }

    /// Reads a whole part; `false`: it is damaged.
    fn take_part(&mut self) -> bool {
        let mut part = std::mem::take(&mut self.part);
        match self.at {
            At::Header if is_skippable(&part) => {
                let size = u32::from_le_bytes([part[4], part[5], part[6], part[7]]);
                self.at = At::Skip(size as usize);
                self.is_complete = true;
            }
            At::Header if !begins_frame(&part) => {
                self.part = part;
                self.end_frames();
            }
            At::Header => {
                // Checksums are not verified; without the flag the decoder is done with the last block.
                self.has_checksum = part[4] & 4 != 0;
                part[4] &= !4;
                (self.skip, self.given, self.is_complete) = (0, 0, false);
                self.early.clear();
                self.frame.clone_from(&part);
                self.at = At::Block;
                return self.decoder.reset(&part[..]).is_ok();
            }
            At::Block => {
                if self.decoder.decode_from_to(&part, &mut []).is_err() {
                    return false;
                }
                if part[0] & 1 != 0 {
                    self.at = if self.has_checksum { At::Checksum } else { At::Header };
                    self.is_complete = true;
                    self.end_early();
                } else {
                    self.decode_early(&part);
                }
            }
            _ => self.at = At::Header,
        }
        true
    }

    /// The decoder gives what follows.
    fn end_early(&mut self) {
        if !self.frame.is_empty() {
            self.frame = Vec::new();
            self.skip = self.early.len();
        }
    }

    /// Decodes the frame so far with an end behind `block`, while that costs little.
    fn decode_early(&mut self, block: &[u8]) {
        if self.frame.is_empty() {
            return;
        }
        self.frame.extend_from_slice(block);
        self.work += self.early.len() + self.frame.len();
        let is_long = self.early.len() > ZSTD_EARLY_BYTES || self.frame.len() > ZSTD_EARLY_BYTES + BLOCK_BYTES;
        if is_long || self.work > ZSTD_EARLY_WORK_BYTES {
            return self.end_early();
        }
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES as u64);
        let whole = [&self.frame[..], &LAST_BLOCK].concat();
        let mut rest = &whole[..];
        self.early.clear();
        if decoder.init(&mut rest).is_ok() && decoder.decode_from_to(rest, &mut []).is_ok() {
            // A vector takes all bytes.
            let _ = decoder.read_to_end(&mut self.early);
        }
    }
}

/// Whether these bytes begin a frame, as far as they go.
fn begins_frame(bytes: &[u8]) -> bool {
    let len = bytes.len().min(MAGIC.len());
    bytes[..len] == MAGIC[..len] || is_skippable(bytes) || len < MAGIC.len() && could_skip(bytes)
}

fn is_skippable(bytes: &[u8]) -> bool {
    bytes.len() >= MAGIC.len() && could_skip(bytes)
}

fn could_skip(bytes: &[u8]) -> bool {
    let like = [0x50, 0x2a, 0x4d, 0x18];
    let mask = [0xf0, 0xff, 0xff, 0xff];
    bytes.iter().zip(like).zip(mask).all(|((byte, like), mask)| byte & mask == like)
}
