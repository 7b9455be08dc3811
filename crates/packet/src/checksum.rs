//! The Internet checksum (RFC 1071), and how it is mended where some words change (RFC 1624). Where the field lies, and
//! what it covers, the protocols know.

/// A sum of big-endian 16-bit words, not folded into one yet. Holds the words of 4 GiB before it can overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of these bytes; an odd last one is the high half of a word (RFC 1071, section 1).
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        let (quads, rest) = bytes.as_chunks::<4>();
        let quads: u64 = quads.iter().map(|quad| u64::from(u32::from_be_bytes(*quad))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Sum(quads + u64::from(u32::from_be_bytes(last)))
    }

    /// The sum of one number of up to four words.
    #[inline]
    pub const fn number(number: u32) -> Sum {
        Sum(number as u64)
    }

    /// Both together.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// As one word.
    #[inline]
    pub const fn folded(self) -> u16 {
        // Four rounds bring 64 bits into 16, whatever they are.
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        ((sum >> 16) + (sum & 0xffff)) as u16
    }

    /// What belongs into the checksum field, where the field counted as 0.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// A checksum field after words whose sum was `old` have become words whose sum is `new`: RFC 1624, equation 3. A
/// checksum that was wrong stays wrong by as much.
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

    /// RFC 1624, section 4: the example in which the equation before it gives 0xffff.
    #[test]
    fn the_example_of_mending() {
        assert_eq!(mended(0xdd2f, Sum::number(0x5555), Sum::number(0x3285)), 0x0000);
    }

    proptest! {
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
            // Both zeroes are one number; which of them it is tells nothing.
            prop_assert_eq!(Sum::number(after.into()).and(Sum::of(&bytes)).checksum(), 0);
        }
    }
}
