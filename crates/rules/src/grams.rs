//! Searches for many patterns at once, ignoring case. The search looks up the four bytes at each offset that is a multiple
//! of the stride in a table of all patterns, and compares a pattern only where they are equal.

/// Bytes per lookup. A pattern of `GRAM + stride - 1` bytes covers a whole lookup wherever it lies.
pub(crate) const GRAM: usize = 4;

/// Hashes for each gram of a pattern, which keep lookups of other bytes rare; the fewest and the most hashes.
const HASHES_PER_GRAM: usize = 32;
const HASHES: (usize, usize) = (1 << 12, 1 << 18);

#[derive(Debug)]
pub(crate) struct Grams {
    stride: usize,
    /// Bits of a product that are not part of the hash.
    shift: u32,
    /// Bit `h` is set if a pattern has a gram with hash `h`.
    bits: Vec<u64>,
    /// The index of each hash's first entry.
    starts: Vec<u32>,
    entries: Vec<Entry>,
    patterns: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    gram: u32,
    pattern: u32,
    /// Offset of the gram in the pattern.
    offset: u32,
}

/// The gram of these bytes. Setting this bit ignores case. The comparison tells other bytes apart that it makes equal.
fn gram(bytes: &[u8; GRAM]) -> u32 {
    u32::from_le_bytes(*bytes) | 0x2020_2020
}

impl Grams {
    /// Builds the table. No pattern may be shorter than `GRAM + stride - 1`.
    pub fn new(patterns: Vec<Vec<u8>>, stride: usize) -> Grams {
        let hashes = (patterns.len() * stride * HASHES_PER_GRAM).next_power_of_two().clamp(HASHES.0, HASHES.1);
        let mut grams = Grams {
            stride,
            shift: u32::BITS - hashes.ilog2(),
            bits: vec![0; hashes / 64],
            starts: vec![0; hashes + 1],
            entries: Vec::new(),
            patterns,
        };
        for (pattern, bytes) in (0u32..).zip(&grams.patterns) {
            let all = (0u32..).zip(bytes.windows(GRAM).filter_map(<[u8]>::first_chunk)).take(stride);
            grams.entries.extend(all.map(|(offset, bytes)| Entry { gram: gram(bytes), pattern, offset }));
        }
        let shift = grams.shift;
        grams.entries.sort_by_key(|entry| hash(entry.gram, shift));
        for entry in &grams.entries {
            let hash = hash(entry.gram, shift);
            grams.bits[hash / 64] |= 1 << (hash % 64);
            grams.starts[hash + 1] += 1;
        }
        for at in 0..hashes {
            grams.starts[at + 1] += grams.starts[at];
        }
        grams
    }

    /// Calls `found` with pattern and offset of each match. Returns the number of comparisons.
    pub fn each(&self, bytes: &[u8], mut found: impl FnMut(usize, usize)) -> usize {
        let (mut at, mut compared) = (0, 0);
        while let Some(here) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let gram = gram(here);
            let hash = hash(gram, self.shift);
            if self.bits[hash / 64] & 1 << (hash % 64) != 0 {
                compared += self.compare(bytes, at, gram, hash, &mut found);
            }
            at += self.stride;
        }
        compared
    }

    #[inline(never)]
    fn compare(&self, bytes: &[u8], at: usize, gram: u32, hash: usize, found: &mut impl FnMut(usize, usize)) -> usize {
        let entries = &self.entries[self.starts[hash] as usize..self.starts[hash + 1] as usize];
        for entry in entries.iter().filter(|entry| entry.gram == gram) {
            let pattern = &self.patterns[entry.pattern as usize];
            if let Some(start) = at.checked_sub(entry.offset as usize)
                && let Some(there) = bytes.get(start..start + pattern.len())
                && there.eq_ignore_ascii_case(pattern)
            {
                found(entry.pattern as usize, start);
            }
        }
        entries.len()
    }
}

fn hash(gram: u32, shift: u32) -> usize {
    (gram.wrapping_mul(0x9e37_79b1) >> shift) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_wherever_they_begin() {
        let patterns = [&b"abcdefg"[..], b"GET /index", b"\x00\x01\x02\x03\x04\x05\x06\x07"];
        let grams = Grams::new(patterns.iter().map(|pattern| pattern.to_vec()).collect(), 4);
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
