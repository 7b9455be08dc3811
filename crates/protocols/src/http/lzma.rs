//! LZMA as a content coding: the format of `.lzma` files, which some browsers undid. Only rules look into it.

use super::step::{Step, Then};
use base::limits::{LZMA_BYTES, LZMA_WINDOW_BYTES};
use lzma_rust2::{Action, LzmaStream, Status};

/// Properties, the size of the window and that of the data.
const HEAD_BYTES: usize = 13;

/// More properties than there are.
const PROPERTIES: u8 = 9 * 5 * 5;

pub struct Lzma {
    stream: LzmaStream,
    head: Vec<u8>,
    pub is_complete: bool,
}

impl Lzma {
    pub fn new() -> Lzma {
        let stream = LzmaStream::new_mem_limit((LZMA_BYTES >> 10) as u32, None);
        Lzma { stream, head: Vec::with_capacity(HEAD_BYTES), is_complete: false }
    }

    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let mut used = 0;
        if self.head.len() < HEAD_BYTES {
            used = input.len().min(HEAD_BYTES - self.head.len());
            self.head.extend_from_slice(&input[..used]);
            if self.head.len() < HEAD_BYTES {
                return Step { used, made: 0, then: Then::Input };
            }
            if self.begin().is_none() {
                return Step { used, made: 0, then: Then::Damaged };
            }
        }
        let Ok(result) = self.stream.process(&input[used..], output, Action::Run) else {
            return Step { used, made: 0, then: Then::Damaged };
        };
        used += result.bytes_consumed;
        let made = result.bytes_produced;
        self.is_complete = result.status == Status::StreamEnd;
        let then = match self.is_complete {
            true => Then::End,
            false if made == output.len() => Then::Room,
            false if used == input.len() => Then::Input,
            false if made > 0 || result.bytes_consumed > 0 => Then::Room,
            false => Then::Damaged,
        };
        Step { used, made, then }
    }

    /// Hands the head to the decoder, with a window as large as what rules see of a body: data behind that may refer
    /// farther back.
    fn begin(&mut self) -> Option<()> {
        let mut head: [u8; HEAD_BYTES] = self.head[..].try_into().ok()?;
        let window: [u8; 4] = head[1..5].try_into().ok()?;
        let window = u32::from_le_bytes(window).min(LZMA_WINDOW_BYTES as u32);
        head[1..5].copy_from_slice(&window.to_le_bytes());
        let taken = self.stream.process(&head, &mut [], Action::Run).ok()?;
        (head[0] < PROPERTIES && taken.bytes_consumed == HEAD_BYTES).then_some(())
    }
}
