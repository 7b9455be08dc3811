//! The c-ring: a stream of bytes. Units are bytes; a block is any run of bytes that is read together.

use super::{Claim, Damaged, Layout, RingKind, Seen, TooLong, begin_units, lies_in, overwritten_to};
use crate::descriptor::{Descriptor, WIRE_MAX};
use crate::ring::words::RingWords;
use crate::shared::payload::Payload;
use base::atomic::Ordering;

/// A ring of bytes without blocks.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    bytes: u64,
}

impl Stream {
    /// For a payload of `bytes` bytes.
    pub fn new(bytes: u64) -> Stream {
        Stream { bytes }
    }
}

impl Layout for Stream {
    fn kind(&self) -> RingKind {
        RingKind::C
    }

    #[inline]
    fn units(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn block_bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn claim(&self, head: u64, _bytes: u64, len: u64) -> Result<Claim, TooLong> {
        let head_after = head.checked_add(len).filter(|_| len <= self.bytes).ok_or(TooLong)?;
        Ok(Claim { head_after, pos: head, bytes_after: head_after })
    }

    #[inline]
    fn shorten(&self, claim: &Claim, len: u64) -> Claim {
        Claim { head_after: claim.pos + len, bytes_after: claim.pos + len, ..*claim }
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
    fn finish(&mut self, _claim: &Claim, _head: u64, _block: &Descriptor, _payload: &Payload) {}

    #[inline]
    fn look(&self, position: u64, head: u64, _payload: &Payload) -> Result<Seen, Damaged> {
        let units = head.checked_sub(position).filter(|&units| units <= self.bytes).ok_or(Damaged)?;
        let len = units.min(u64::from(u32::MAX)) as u32;
        let wire_and_flags = len.min(WIRE_MAX);
        let block = Descriptor { pos: position, len, wire_and_flags, ..Descriptor::default() };
        Ok(Seen { position, units: u64::from(len), block, elsewhere: false, number: 0 })
    }

    #[inline]
    fn intact(&self, seen: &Seen, words: &RingWords) -> bool {
        overwritten_to(words.writer.0.intent.load(Ordering::Relaxed), self.bytes) <= seen.position
    }

    #[inline]
    fn payload_intact(&self, pos: u64, len: u64, words: &RingWords) -> bool {
        lies_in(pos, len, words.writer.0.intent.load(Ordering::Relaxed), self.bytes)
    }
}
