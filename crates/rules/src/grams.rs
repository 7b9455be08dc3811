//! Searches for many long patterns at once, ignoring case. The search looks up the four bytes at every fourth offset of
//! the text in a table of all patterns, and compares a pattern only on a hit. Short patterns need another searcher.

/// Bytes per lookup.
const GRAM: usize = 4;
/// Offsets between lookups.
const STRIDE: usize = 4;
/// The shortest pattern that always covers a whole lookup.
pub(crate) const SHORTEST: usize = GRAM + STRIDE - 1;
const HASHES: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Grams {
    /// Bit `h` is set if a pattern has a gram with hash `h`.
    bits: Vec<u64>,
    /// The index of each hash's first entry.
    starts: Vec<u32>,
    /// Pattern, and the offset of the gram in it.
    entries: Vec<(u32, u8)>,
    patterns: Vec<Vec<u8>>,
}

fn hash(bytes: &[u8; GRAM]) -> usize {
    // Setting this bit ignores case. Other bytes that it makes equal are told apart by the comparison.
    let folded = u32::from_le_bytes(*bytes) | 0x2020_2020;
    (folded.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

impl Grams {
    /// Builds the table. No pattern may be shorter than [`SHORTEST`].
    pub fn new(patterns: Vec<Vec<u8>>) -> Grams {
        let mut all: Vec<(usize, u32, u8)> = Vec::new();
        for (number, pattern) in (0u32..).zip(&patterns) {
            for offset in 0..STRIDE {
                if let Some(gram) = pattern.get(offset..).and_then(<[u8]>::first_chunk) {
                    all.push((hash(gram), number, offset as u8));
                }
            }
        }
        all.sort_unstable();
        let mut bits = vec![0u64; HASHES / 64];
        let mut starts = vec![0u32; HASHES + 1];
        for (hash, ..) in &all {
            bits[hash / 64] |= 1 << (hash % 64);
            starts[hash + 1] += 1;
        }
        for at in 0..HASHES {
            starts[at + 1] += starts[at];
        }
        Grams { bits, starts, entries: all.into_iter().map(|(_, number, offset)| (number, offset)).collect(), patterns }
    }

    /// Calls `found` with pattern and offset of each match. Returns the number of comparisons.
    pub fn each(&self, bytes: &[u8], mut found: impl FnMut(usize, usize)) -> usize {
        let (mut at, mut compared) = (0, 0);
        while let Some(gram) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let hash = hash(gram);
            if self.bits[hash / 64] & 1 << (hash % 64) != 0 {
                compared += self.compare(bytes, at, hash, &mut found);
            }
            at += STRIDE;
        }
        compared
    }

    #[inline(never)]
    fn compare(&self, bytes: &[u8], at: usize, hash: usize, found: &mut impl FnMut(usize, usize)) -> usize {
        let (from, to) = (self.starts[hash] as usize, self.starts[hash + 1] as usize);
        for (number, offset) in &self.entries[from..to] {
            let pattern = &self.patterns[*number as usize];
            let start = at.checked_sub(usize::from(*offset));
            if let Some(start) = start
                && let Some(there) = bytes.get(start..start + pattern.len())
                && there.eq_ignore_ascii_case(pattern)
            {
                found(*number as usize, start);
            }
        }
        to - from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_wherever_they_begin() {
        let patterns = [&b"abcdefg"[..], b"GET /index", b"\x00\x01\x02\x03\x04\x05\x06\x07"];
        let grams = Grams::new(patterns.iter().map(|pattern| pattern.to_vec()).collect());
        for (number, pattern) in patterns.iter().enumerate() {
            for before in 0..9 {
                let text = [&vec![b'x'; before][..], &pattern.to_ascii_uppercase(), b"y"].concat();
                let mut all = Vec::new();
                grams.each(&text, |number, _| all.push(number));
                assert_eq!(all, [number], "{before} before {pattern:?}");
                all.clear();
                grams.each(&text[..before + pattern.len() - 1], |number, _| all.push(number));
                assert!(all.is_empty());
            }
        }
    }
}
