//! The blocks that rings carry in measurements. Every word follows from the block's number, so that a consumer can tell
//! a lost, doubled, mixed or torn block: cheaply by the first word, and surely by the sum.

/// Spreads numbers, so that different blocks have different sums.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// One in this number of blocks is summed if a row is not about summing.
const SAMPLE: u64 = 64;

/// Writes the block with this number; lengths are multiples of 8.
#[inline]
pub fn fill(block: &mut [u8], number: u64) {
    let mut word = number.wrapping_mul(SPREAD);
    // A line at a time, so that it becomes wide stores. A reader that copies at once would have to wait for narrow
    // ones.
    let (lines, rest) = block.as_chunks_mut::<64>();
    for line in lines {
        let words: [u64; 8] = std::array::from_fn(|at| word.wrapping_add(at as u64).to_le());
        line.copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
        word = word.wrapping_add(8);
    }
    for place in rest.as_chunks_mut::<8>().0 {
        *place = word.to_le_bytes();
        word = word.wrapping_add(1);
    }
}

/// Sum of all words.
#[inline]
pub fn sum(block: &[u8]) -> u64 {
    block.as_chunks::<8>().0.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// The sum of the words of the block with this number.
#[inline]
pub fn expected_sum(number: u64, bytes: usize) -> u64 {
    let words = bytes as u64 / 8;
    number.wrapping_mul(SPREAD).wrapping_mul(words).wrapping_add(words * words.saturating_sub(1) / 2)
}

/// Whether this is the sum of the block with this number.
#[inline]
pub fn check_sum(sum: u64, number: u64, bytes: usize) -> Result<(), String> {
    if sum == expected_sum(number, bytes) { Ok(()) } else { Err(wrong(number)) }
}

/// Whether this is the block with this number. Checks the first word, and sums one block in 64.
#[inline]
pub fn check(block: &[u8], number: u64) -> Result<(), String> {
    check_head(block, number)?;
    if number.is_multiple_of(SAMPLE) { check_sum(sum(block), number, block.len()) } else { Ok(()) }
}

/// Whether this is the beginning of the block with this number.
#[inline]
pub fn check_head(head: &[u8], number: u64) -> Result<(), String> {
    match head.first_chunk::<8>() {
        Some(word) if u64::from_le_bytes(*word) == number.wrapping_mul(SPREAD) => Ok(()),
        _ => Err(wrong(number)),
    }
}

#[cold]
fn wrong(number: u64) -> String {
    format!("block {number} was lost, doubled, mixed up or torn")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_block_shows() {
        for bytes in [8, 64, 4096] {
            let mut block = vec![0; bytes];
            for number in [0, 1, 64, 1 << 40] {
                fill(&mut block, number);
                check(&block, number).unwrap();
                check_sum(sum(&block), number, bytes).unwrap();
                assert!(check(&block, number + 1).is_err());
                assert!(check_sum(sum(&block), number + 64, bytes).is_err());
                block[bytes - 1] ^= 1;
                assert!(check_sum(sum(&block), number, bytes).is_err());
            }
        }
        assert!(check_head(&[], 0).is_err());
    }
}
