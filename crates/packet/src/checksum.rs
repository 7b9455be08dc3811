//! The Internet checksum (RFC 1071), and its update when some words change (RFC 1624). The protocols' own modules know
//! the place of the field and the bytes it covers.

/// A sum of big-endian 16-bit words, not folded yet. It cannot overflow for up to 4 GiB of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of `bytes`; an odd last byte is the high half of a word (RFC 1071, section 1).
    ///
    /// Tiers: 64 bytes a turn, as eight 64-bit words in one chain of carries; then the rest in 32-bit words. Both add
    /// in the processor's byte order and swap the sum, which is equivalent (RFC 1071, section 2B).
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        let (turns, rest) = bytes.as_chunks::<64>();
        let (mut sum, mut carries) = (0u64, 0u64);
        for turn in turns {
            let mut carry = false;
            for word in turn.as_chunks::<8>().0 {
                (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
            }
            carries += u64::from(carry);
        }
        let (quads, rest) = rest.as_chunks::<4>();
        let last = match *rest {
            [a, b, c] => u32::from_ne_bytes([a, b, c, 0]),
            [a, b] => u32::from_ne_bytes([a, b, 0, 0]),
            [a] => u32::from_ne_bytes([a, 0, 0, 0]),
            _ => 0,
        };
        let quads: u64 = quads.iter().map(|quad| u64::from(u32::from_ne_bytes(*quad))).sum();
        let sum = (sum >> 32) + (sum & 0xffff_ffff) + carries + quads + u64::from(last);
        Sum(u64::from(Sum(sum).folded().to_be()))
    }

    /// The sum of a number of up to four words.
    #[inline]
    pub const fn number(number: u32) -> Sum {
        Sum(number as u64)
    }

    /// The sum of both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// The sum folded into one word.
    #[inline]
    pub const fn folded(self) -> u16 {
        // Four rounds fold any 64 bits into 16.
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        ((sum >> 16) + (sum & 0xffff)) as u16
    }

    /// The value for the checksum field, if the field counted as 0.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// Updates the checksum `field` when words with the sum `old` become words with the sum `new`: RFC 1624, equation 3. A
/// wrong checksum stays wrong by the same amount.
#[inline]
pub const fn mended(field: u16, old: Sum, new: Sum) -> u16 {
    Sum::number(!field as u32).and(Sum::number(!old.folded() as u32)).and(new).checksum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071, section 3: its example's bytes and sum.
    #[test]
    fn the_example_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).folded(), 0xddf2);
        assert_eq!(Sum::of(&bytes).checksum(), 0x220d);
        assert_eq!(Sum::of(&bytes[..7]).folded(), 0xdcfb);
        assert_eq!(Sum::default().checksum(), 0xffff);
    }

    /// RFC 1624, section 4: the example for which the older equation gives 0xffff.
    #[test]
    fn the_example_of_mending() {
        assert_eq!(mended(0xdd2f, Sum::number(0x5555), Sum::number(0x3285)), 0x0000);
    }

    /// Word by word, as in the RFC.
    fn by_words(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
        words.fold(0, |sum, word| (sum + word) % 0x1_0000 + (sum + word) / 0x1_0000) as u16
    }

    /// All lengths around 64 bytes, and words that carry each time.
    #[test]
    fn every_length_is_summed_as_the_rfc_says() {
        let bytes: Vec<u8> = (0..400_u32).map(|byte| (byte * 167 + byte / 7) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(Sum::of(&bytes[..len]).folded(), by_words(&bytes[..len]), "{len}");
            assert_eq!(Sum::of(&vec![0xff; len]).folded(), by_words(&vec![0xff; len]), "{len}");
            assert_eq!(Sum::of(&vec![0; len]).folded(), 0, "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_summed_as_the_rfc_says(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(Sum::of(&bytes).folded(), by_words(&bytes));
        }

        #[test]
        fn mending_is_summing_anew(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..60),
            at in any::<prop::sample::Index>(),
            new in any::<[u8; 2]>(),
        ) {
            let at = at.index(bytes.len() - 1) & !1;
            let before = Sum::of(&bytes).checksum();
            let old = [bytes[at], bytes[at + 1]];
            bytes[at..at + 2].copy_from_slice(&new);
            let after = mended(before, Sum::of(&old), Sum::of(&new));
            // Both zeros are the same number; either one may appear.
            prop_assert_eq!(Sum::number(after.into()).and(Sum::of(&bytes)).checksum(), 0);
        }
    }
}
