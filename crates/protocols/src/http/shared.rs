//! State that all connections of one reader of HTTP share: limits, memory, and buffers that are used again.

use super::decode::{Decoder, Spares, Spent};
use crate::http2::Scratch;
use base::limits::{DECODED_TURN_BYTES, HTTP_RATIO_FREE_BYTES, HTTP_RATIO_FREE_TOTAL_BYTES, HTTP_SPARES};

/// The state that connections share.
#[derive(Debug)]
pub struct Shared {
    /// Undo content codings.
    decode: bool,
    /// The bodies that this call reads are decoded.
    decodes: bool,
    /// Maximum decoded bytes of one message.
    pub(crate) decoded_max: u64,
    /// Maximum decoded bytes for each coded byte, beyond the free ones.
    max_ratio: u64,
    /// The sum over all messages.
    pub(crate) spent: Spent,
    /// Maximum bytes kept.
    memory: usize,
    /// The part of `memory` that is left for heads, requests and decoders of all connections.
    memory_left: usize,
    pub(crate) inflaters: Spares,
    /// Buffers for heads that span blocks.
    heads: Vec<Vec<u8>>,
    /// A buffer for gathered coded bytes; empty between batches.
    pub(crate) gather: Vec<u8>,
    /// Bytes that may still be decoded in this call.
    turn: usize,
    /// Buffers of HTTP/2.
    pub(crate) scratch: Scratch,
}

impl Shared {
    /// `decoded_max`: maximum decoded bytes of one message. `max_ratio`: maximum decoded bytes for each coded byte. `memory`:
    /// maximum bytes kept, over all connections.
    pub fn new(decode: bool, decoded_max: u64, max_ratio: u64, memory: usize) -> Shared {
        Shared {
            decode,
            decodes: decode,
            decoded_max,
            max_ratio,
            spent: Spent::default(),
            memory,
            memory_left: memory,
            inflaters: Spares::default(),
            heads: Vec::new(),
            gather: Vec::new(),
            turn: DECODED_TURN_BYTES,
            scratch: Scratch::default(),
        }
    }

    /// Begins a call of the reader, which may decode so much again. `bodies_are_read`: a filter looks at bodies.
    pub fn begin_turn(&mut self, bodies_are_read: bool) {
        (self.turn, self.decodes) = (DECODED_TURN_BYTES, self.decode && bodies_are_read);
    }

    /// Whether bodies are decoded.
    pub(crate) fn decodes(&self) -> bool {
        self.decodes
    }

    /// Whether enough was decoded in this call.
    pub fn is_turn_over(&self) -> bool {
        self.turn == 0
    }

    /// Bytes were decoded.
    pub(crate) fn made(&mut self, bytes: usize) {
        self.turn = self.turn.saturating_sub(bytes);
    }

    /// Bytes that the codings of `message` may still make, with `at_hand` coded bytes waiting. Messages with a large
    /// ratio do not hold up one with a small ratio, because it adds more to the total than it uses.
    pub(crate) fn decoding_budget(&self, message: &Spent, at_hand: usize) -> u64 {
        let total = self.spent.left(HTTP_RATIO_FREE_TOTAL_BYTES, self.max_ratio, at_hand);
        message.left(HTTP_RATIO_FREE_BYTES, self.max_ratio, at_hand).min(total)
    }

    /// Charges memory until it is [given back](Shared::give_back); `false` if there is too little.
    #[must_use]
    pub fn charge(&mut self, bytes: usize) -> bool {
        let left = self.memory_left.checked_sub(bytes);
        self.memory_left = left.unwrap_or(self.memory_left);
        left.is_some()
    }

    /// Gives back what was charged.
    pub fn give_back(&mut self, bytes: usize) {
        self.memory_left += bytes;
    }

    /// Whether all that was charged was given back.
    pub fn is_even(&self) -> bool {
        self.memory_left == self.memory
    }

    /// A buffer for a head.
    pub fn head_buffer(&mut self) -> Vec<u8> {
        self.heads.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next head and gives back its charge.
    pub fn dismiss_head(&mut self, mut buffer: Vec<u8>) {
        self.give_back(buffer.len());
        buffer.clear();
        if buffer.capacity() > 0 && self.heads.len() < HTTP_SPARES {
            self.heads.push(buffer);
        }
    }

    /// Keeps the reusable parts of a decoder and gives back its charge.
    pub(crate) fn dismiss_decoder(&mut self, decoder: Decoder) {
        self.give_back(decoder.bytes());
        decoder.dismantle(&mut self.inflaters);
    }
}
