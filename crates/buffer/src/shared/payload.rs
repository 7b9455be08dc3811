//! A ring's bytes, by absolute position.
//!
//! Another process may write the bytes while they are read, so safe code never gets a `&[u8]` into them. It copies in,
//! copies out, or takes a [`SharedBytes`], which knows the place and copies on demand. Afterwards the ring's protocol
//! says whether the copy is whole.
//!
//! On x86-64 the copies are inline assembly. To the compiler this is foreign memory, so a peer's write in the middle is
//! no data race of the language (Rust has no atomic memcpy yet, RFC 3301). Elsewhere, and under the model checker, they
//! use relaxed atomics, word by word or byte by byte.

use super::segment::{Access, Segment};
use std::io;
#[cfg(loom)]
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a ring whose size is a power of two.
#[derive(Clone, Debug)]
pub struct Payload {
    memory: memory::Memory,
    mask: u64,
}

impl Payload {
    /// Maps `bytes` bytes (a power of two, whole pages) at `offset` of a segment, twice in a row.
    pub fn map(segment: &Segment, offset: usize, bytes: usize, access: Access) -> io::Result<Payload> {
        if !bytes.is_power_of_two() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a ring's size is a power of two"));
        }
        Ok(Payload { memory: memory::Memory::map(segment, offset, bytes, access)?, mask: bytes as u64 - 1 })
    }

    /// The `bytes` bytes (a power of two) from `at` on of a segment that is mapped [with a
    /// ring](Segment::map_with_ring) there.
    #[cfg(not(loom))]
    pub fn of_ring(mapping: &Arc<super::segment::Mapping>, at: usize, bytes: usize) -> io::Result<Payload> {
        let end = bytes.checked_mul(2).and_then(|twice| twice.checked_add(at));
        if !bytes.is_power_of_two() || end.is_none_or(|end| end > mapping.bytes()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a ring's size is a power of two"));
        }
        Ok(Payload { memory: memory::Memory::of(Arc::clone(mapping), at), mask: bytes as u64 - 1 })
    }

    /// Bytes in the ring.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.mask + 1
    }

    /// Copies `from` to position `pos`; at most as many bytes as the ring has.
    #[inline]
    pub fn copy_in(&self, pos: u64, from: &[u8]) {
        let from = &from[..from.len().min(self.bytes() as usize)];
        #[cfg(feature = "kill-points")]
        let (from, pos) = {
            // A process that dies in the middle of a copy leaves a part of the bytes.
            let (first, rest) = from.split_at(from.len() / 2);
            base::atomic::kill_points::point();
            self.memory.copy_in((pos & self.mask) as usize, first);
            base::atomic::kill_points::point();
            (rest, pos.wrapping_add(first.len() as u64))
        };
        self.memory.copy_in((pos & self.mask) as usize, from);
    }

    /// Fills `to` with the bytes at position `pos`; at most as many as the ring has.
    #[inline]
    pub fn copy_out(&self, pos: u64, to: &mut [u8]) {
        let len = to.len().min(self.bytes() as usize);
        self.memory.copy_out((pos & self.mask) as usize, &mut to[..len]);
    }

    /// The `len` bytes at `pos`, at most the whole ring, for writing in place.
    ///
    /// # Safety
    ///
    /// No other slice of these bytes exists in this process.
    #[cfg(not(loom))]
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "memory that is shared with other processes is nobody's to lend by reference"
    )]
    pub unsafe fn slice_mut(&self, pos: u64, len: u32) -> &mut [u8] {
        let start = self.memory.address_for_writing((pos & self.mask) as usize);
        // SAFETY: inside the writable double map (len <= ring size, start < ring size); the rest is the caller's
        // promise.
        unsafe { std::slice::from_raw_parts_mut(start, (len as usize).min(self.bytes() as usize)) }
    }

    /// The `len` bytes at `pos`, at most the whole ring, without reading them.
    #[inline]
    pub fn at(&self, pos: u64, len: u64) -> SharedBytes<'_> {
        SharedBytes { payload: self, pos, len: len.min(self.bytes()) as usize }
    }
}

/// Bytes mapped once: a place is a plain offset.
#[derive(Clone, Debug)]
pub struct Span {
    memory: memory::Memory,
    bytes: usize,
}

impl Span {
    /// The whole map.
    #[cfg(not(loom))]
    pub fn new(mapping: Arc<super::segment::Mapping>) -> Span {
        Span { bytes: mapping.bytes(), memory: memory::Memory::of(mapping, 0) }
    }

    /// `bytes` bytes of a map from `at` on; `None` where they are not inside.
    #[cfg(not(loom))]
    pub fn part(mapping: &Arc<super::segment::Mapping>, at: usize, bytes: usize) -> Option<Span> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= mapping.bytes());
        inside.then(|| Span { memory: memory::Memory::of(Arc::clone(mapping), at), bytes })
    }

    /// A few bytes for a model.
    #[cfg(loom)]
    pub fn private(bytes: usize) -> Span {
        Span { memory: memory::Memory::private(bytes), bytes }
    }

    /// Copies `from` to `offset`, as far as it fits.
    #[inline]
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        let len = from.len().min(self.bytes.saturating_sub(offset));
        if len > 0 {
            self.memory.copy_in(offset, &from[..len]);
        }
    }

    /// Fills `to` with the bytes at `offset`; where those end, the rest of `to` stays as it is.
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        let len = to.len().min(self.bytes.saturating_sub(offset));
        if len > 0 {
            self.memory.copy_out(offset, &mut to[..len]);
        }
    }

    /// Asks the processor to fetch the line at `offset`; this saves time only.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(not(loom))]
        super::hints::will_read(self.memory.address(offset));
        #[cfg(loom)]
        let _ = offset;
    }
}

/// A run of bytes in shared memory that has not been copied.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    payload: &'a Payload,
    pos: u64,
    len: usize,
}

/// Bytes that [`SharedBytes::pieces`] copies at a time: they stay in the innermost cache.
const PIECE_BYTES: usize = 4096;

impl<'a> SharedBytes<'a> {
    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At most `len` of the bytes, from `from` on.
    #[inline]
    #[must_use]
    pub fn part(self, from: usize, len: usize) -> SharedBytes<'a> {
        let from = from.min(self.len);
        SharedBytes { payload: self.payload, pos: self.pos.wrapping_add(from as u64), len: len.min(self.len - from) }
    }

    /// Copies the first bytes into `to`, as many as both have; returns their number.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let len = self.len.min(to.len());
        self.payload.copy_out(self.pos, &mut to[..len]);
        len
    }

    /// Copies all the bytes.
    pub fn copy_to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        self.copy_to(&mut copy);
        copy
    }

    /// Calls `see` with one piece after the other, through a buffer that stays in the innermost cache.
    #[inline]
    pub fn pieces(&self, mut see: impl FnMut(&[u8])) {
        let mut scratch = [0; PIECE_BYTES];
        let mut done = 0;
        while done < self.len {
            let len = self.part(done, PIECE_BYTES).copy_to(&mut scratch);
            see(&scratch[..len]);
            done += len;
        }
    }

    /// Address of the first byte; the others follow it, also past the end of the ring.
    #[cfg(not(loom))]
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.payload.memory.address((self.pos & self.payload.mask) as usize)
    }

    /// The bytes in place.
    ///
    /// # Safety
    ///
    /// No process writes them while the slice lives: the reader holds the ring (its contract is Wait or DropNewest and
    /// it has not taken the block yet), and the writer is trusted to keep to the protocol.
    #[cfg(not(loom))]
    #[inline]
    pub unsafe fn as_slice(&self) -> &'a [u8] {
        // SAFETY: inside the double map (len <= ring size, start < ring size); the caller promises that there is no
        // writer.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

#[cfg(not(loom))]
mod memory {
    use super::*;
    use crate::shared::segment::Mapping;
    use std::ptr::NonNull;

    /// The bytes mapped twice in a row, or (between threads) as much memory of the process's own.
    #[derive(Clone, Debug)]
    pub struct Memory {
        mapping: Arc<Mapping>,
        first: NonNull<u8>,
    }

    // SAFETY: `first` points into the map, which is `Send` and `Sync` itself.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub fn map(segment: &Segment, offset: usize, bytes: usize, access: Access) -> io::Result<Memory> {
            Ok(Memory::of(segment.map_twice(offset, bytes, access)?, 0))
        }

        /// The bytes from `at` on; `at` lies inside the map.
        pub fn of(mapping: Arc<Mapping>, at: usize) -> Memory {
            // SAFETY: inside the map, as the caller promises.
            let first = unsafe { mapping.first().add(at) };
            Memory { mapping, first }
        }

        #[inline]
        pub fn address(&self, offset: usize) -> *const u8 {
            self.first.as_ptr().wrapping_add(offset)
        }

        #[inline]
        pub fn address_for_writing(&self, offset: usize) -> *mut u8 {
            assert!(self.mapping.is_writable(), "the writer's map is writable");
            self.first.as_ptr().wrapping_add(offset)
        }

        #[inline]
        pub fn copy_in(&self, offset: usize, from: &[u8]) {
            assert!(self.mapping.is_writable(), "the writer's map is writable");
            // SAFETY: the range lies in the map, which is writable. From `Payload`: offset < ring size, from.len() <=
            // ring size, and the map has two ring sizes from `first` on. From `Span`: `from` is not empty, and offset +
            // from.len() is at most the bytes of its part of the map.
            unsafe { copy(from.as_ptr(), self.first.as_ptr().add(offset), from.len()) }
        }

        #[inline]
        pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
            // SAFETY: as in `copy_in`; `to` is this caller's alone.
            unsafe { copy(self.first.as_ptr().add(offset), to.as_mut_ptr(), to.len()) }
        }
    }

    /// Copies `len` bytes; another process may write one side meanwhile.
    ///
    /// # Safety
    ///
    /// Both ranges are mapped, `to` for writing, and they do not overlap.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise; each branch touches exactly the `len` bytes of both ranges.
        unsafe {
            match len {
                // Processors with fast short `rep movsb` still take some 30 cycles to start it.
                0..=15 => small(from, to, len),
                16..=256 => vectors(from, to, len),
                _ => std::arch::asm!(
                    "rep movsb",
                    inout("rcx") len => _,
                    inout("rsi") from => _,
                    inout("rdi") to => _,
                    options(nostack, preserves_flags)
                ),
            }
        }
    }

    /// At most 15 bytes, in at most two moves of 8, 4, 2 or 1 bytes that may overlap.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    unsafe fn small(from: *const u8, to: *mut u8, len: usize) {
        macro_rules! ends {
            ($size:literal, $register:ident, $modifier:literal) => {
                // SAFETY: len >= $size, so both moves lie inside both ranges.
                unsafe {
                    std::arch::asm!(
                        concat!("mov {a", $modifier, "}, [{from}]"),
                        concat!("mov {b", $modifier, "}, [{from} + {last}]"),
                        concat!("mov [{to}], {a", $modifier, "}"),
                        concat!("mov [{to} + {last}], {b", $modifier, "}"),
                        a = out($register) _,
                        b = out($register) _,
                        from = in(reg) from,
                        to = in(reg) to,
                        last = in(reg) len - $size,
                        options(nostack, preserves_flags)
                    )
                }
            };
        }
        match len {
            8.. => ends!(8, reg, ":r"),
            4.. => ends!(4, reg, ":e"),
            2.. => ends!(2, reg, ":x"),
            1 => ends!(1, reg_byte, ""),
            _ => {}
        }
    }

    /// 16 bytes or more, in moves of 16; the last one may overlap the one before.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    unsafe fn vectors(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the loop's moves end at or before `len`, the last one ends at it; len >= 16.
        unsafe {
            std::arch::asm!(
                "2:",
                "movdqu {v}, [{from} + {at}]",
                "movdqu [{to} + {at}], {v}",
                "add {at}, 16",
                "cmp {at}, {last}",
                "jb 2b",
                "movdqu {v}, [{from} + {last}]",
                "movdqu [{to} + {last}], {v}",
                v = out(xmm_reg) _,
                from = in(reg) from,
                to = in(reg) to,
                at = inout(reg) 0usize => _,
                last = in(reg) len - 16,
                options(nostack)
            )
        }
    }

    /// Copies byte by byte, relaxed, on processors without the assembly above.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        use std::sync::atomic::{AtomicU8, Ordering};
        for at in 0..len {
            // SAFETY: the caller's promise; an `AtomicU8` may lie at any address.
            unsafe {
                let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
                AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(loom)]
mod memory {
    use super::*;
    use base::atomic::{AtomicU64, Ordering};

    /// Bytes of a word in a ring with room for headers: moved at once, as by a processor, for fewer cases.
    const WORD_BYTES: usize = 8;

    /// The bytes as the model checker's atomics: one word for each byte of a small ring, else one for each eight.
    #[derive(Clone, Debug)]
    pub struct Memory {
        words: Arc<[AtomicU64]>,
        word_bytes: usize,
    }

    impl Memory {
        pub fn map(_segment: &Segment, _offset: usize, bytes: usize, _access: Access) -> io::Result<Memory> {
            Ok(Memory::private(bytes))
        }

        pub fn private(bytes: usize) -> Memory {
            let word_bytes = if bytes < 2 * WORD_BYTES { 1 } else { WORD_BYTES };
            Memory { words: (0..bytes.div_ceil(word_bytes)).map(|_| AtomicU64::new(0)).collect(), word_bytes }
        }

        /// The words that hold `len` bytes from `offset` on: each with its range of the word, and its range of the
        /// `len` bytes.
        fn parts(&self, offset: usize, len: usize) -> impl Iterator<Item = (&AtomicU64, Range<usize>, Range<usize>)> {
            let mut at = 0;
            std::iter::from_fn(move || {
                let (word, within) = ((offset + at) / self.word_bytes, (offset + at) % self.word_bytes);
                let count = (self.word_bytes - within).min(len - at);
                let part = (&self.words[word % self.words.len()], within..within + count, at..at + count);
                at += count;
                (count > 0).then_some(part)
            })
        }

        pub fn copy_in(&self, offset: usize, from: &[u8]) {
            for (word, within, of_bytes) in self.parts(offset, from.len()) {
                // There is only one writer, so it reads back what it wrote.
                let whole = within.len() == self.word_bytes;
                let before = if whole { 0 } else { word.load(Ordering::Relaxed) };
                let mut bytes = before.to_ne_bytes();
                bytes[within].copy_from_slice(&from[of_bytes]);
                word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            }
        }

        pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
            for (word, within, of_bytes) in self.parts(offset, to.len()) {
                to[of_bytes].copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[within]);
            }
        }
    }
}

#[cfg(loom)]
impl Payload {
    /// A ring of a few bytes for a model.
    pub fn private(bytes: usize) -> Payload {
        assert!(bytes.is_power_of_two());
        Payload { memory: memory::Memory::private(bytes), mask: bytes as u64 - 1 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shared::segment::Pages;

    #[test]
    fn every_length_at_every_place_comes_back() {
        let segment = Segment::create("payload-test", 4096, Pages::Normal).unwrap();
        let payload = Payload::map(&segment, 0, 4096, Access::Write).unwrap();
        let bytes: Vec<u8> = (0..4096u32).map(|n| (n * 31 + n / 256) as u8).collect();
        for len in (0..600).chain([1024, 4095, 4096]) {
            for pos in [0, 1, 4090, 4095, (1 << 40) + 4000] {
                payload.copy_in(pos, &bytes[..len]);
                let mut copy = vec![0xee; len + 1];
                payload.copy_out(pos, &mut copy[..len]);
                assert!(copy[..len] == bytes[..len] && copy[len] == 0xee, "{len} bytes at {pos}");
                let seen = payload.at(pos, len as u64);
                let mut pieces = Vec::new();
                seen.pieces(|piece| pieces.extend_from_slice(piece));
                assert!(pieces == bytes[..len] && seen.copy_to_vec() == pieces, "{len} bytes at {pos}");
                let part = seen.part(3, 7).copy_to_vec();
                assert_eq!(part, bytes[..len].iter().skip(3).take(7).copied().collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn more_than_the_ring_is_cut() {
        let segment = Segment::create("payload-test", 4096, Pages::Normal).unwrap();
        let payload = Payload::map(&segment, 0, 4096, Access::Write).unwrap();
        payload.copy_in(5, &vec![7; 10_000]);
        let mut copy = vec![0; 5000];
        payload.copy_out(5, &mut copy);
        assert!(copy[..4096].iter().all(|byte| *byte == 7) && copy[4096..].iter().all(|byte| *byte == 0));
        assert_eq!(payload.at(5, u64::MAX).len(), 4096);
    }
}
