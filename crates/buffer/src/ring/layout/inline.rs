//! The v-ring: each block follows a header of 16 bytes with its length, number and time. Units are bytes; blocks begin
//! at multiples of 8. An overtaken reader cannot find the start of a block by itself: the writer publishes one
//! (`mark`).

use super::{Claim, Damaged, Layout, RingKind, Seen, TooLong, begin_units, lies_in, overwritten_to};
use crate::descriptor::{Descriptor, WIRE_MAX};
use crate::ring::words::RingWords;
use crate::shared::payload::Payload;
use base::atomic::Ordering;

/// Bytes of a header: length, number (4 each), time (8).
const HEADER_BYTES: u64 = 16;

/// A ring of blocks behind their headers.
#[derive(Clone, Copy, Debug)]
pub struct Inline {
    bytes: u64,
    /// Blocks written, modulo 2^32 (writer only).
    number: u32,
}

impl Inline {
    /// For a payload of `bytes` bytes.
    pub fn new(bytes: u64) -> Inline {
        Inline { bytes, number: 0 }
    }
}

#[inline]
fn taken(len: u64) -> u64 {
    len.next_multiple_of(8) + HEADER_BYTES
}

impl Layout for Inline {
    fn kind(&self) -> RingKind {
        RingKind::V
    }

    #[inline]
    fn units(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn block_bytes(&self) -> u64 {
        self.bytes - HEADER_BYTES
    }

    #[inline]
    fn claim(&self, head: u64, _bytes: u64, len: u64) -> Result<Claim, TooLong> {
        if len > self.block_bytes() {
            return Err(TooLong);
        }
        let head_after = head.checked_add(taken(len)).ok_or(TooLong)?;
        Ok(Claim { head_after, pos: head + HEADER_BYTES, bytes_after: head_after })
    }

    #[inline]
    fn shorten(&self, claim: &Claim, len: u64) -> Claim {
        let head_after = claim.pos - HEADER_BYTES + taken(len);
        Claim { head_after, bytes_after: head_after, ..*claim }
    }

    #[inline]
    fn fits(&self, claim: &Claim, holder: u64, _head: u64) -> bool {
        claim.head_after - holder <= self.bytes
    }

    #[inline]
    fn begin(&self, claim: &Claim, words: &RingWords) {
        begin_units(claim.head_after, &words.writer.0.intent);
    }

    #[inline]
    fn finish(&mut self, claim: &Claim, head: u64, block: &Descriptor, payload: &Payload) {
        let mut header = [0; HEADER_BYTES as usize];
        header[..4].copy_from_slice(&block.len.to_le_bytes());
        header[4..8].copy_from_slice(&self.number.to_le_bytes());
        header[8..].copy_from_slice(&block.time.to_le_bytes());
        payload.copy_in(head, &header);
        self.number = self.number.wrapping_add(1);
        debug_assert_eq!(claim.pos, head + HEADER_BYTES);
    }

    #[inline]
    fn look(&self, position: u64, head: u64, payload: &Payload) -> Result<Seen, Damaged> {
        let mut header = [0; HEADER_BYTES as usize];
        payload.copy_out(position, &mut header);
        let len = u32::from_le_bytes(header[..4].try_into().expect("4 bytes"));
        let time = u64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
        let units = taken(u64::from(len));
        if head.checked_sub(position).is_none_or(|there| units > there) || units > self.bytes {
            return Err(Damaged);
        }
        let block = Descriptor {
            pos: position + HEADER_BYTES,
            len,
            time,
            wire_and_flags: len.min(WIRE_MAX),
            ..Descriptor::default()
        };
        let number = u32::from_le_bytes(header[4..8].try_into().expect("4 bytes"));
        Ok(Seen { position, units, block, elsewhere: false, number })
    }

    #[inline]
    fn intact(&self, seen: &Seen, words: &RingWords) -> bool {
        overwritten_to(words.writer.0.intent.load(Ordering::Relaxed), self.bytes) <= seen.position
    }

    #[inline]
    fn payload_intact(&self, pos: u64, len: u64, words: &RingWords) -> bool {
        lies_in(pos, len, words.writer.0.intent.load(Ordering::Relaxed), self.bytes)
    }

    #[inline]
    fn numbered(&self) -> bool {
        true
    }

    /// Only the writer knows where blocks begin; it tells two places: its mark and the head.
    fn boundary(&self, _wanted: u64, head: u64, words: &RingWords) -> u64 {
        // Relaxed: the Acquire of the head also covers the header at a mark before it; a later mark is not used.
        let mark = words.writer.0.mark.load(Ordering::Relaxed);
        let overwritten = overwritten_to(words.writer.0.intent.load(Ordering::Relaxed), self.bytes);
        if mark >= overwritten { mark.min(head) } else { head }
    }
}
