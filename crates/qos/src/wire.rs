//! The exact time of a frame on the wire: the next frame takes over the part that does not fill a nanosecond.

use std::num::NonZeroU64;

/// A wire of one speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    bits_per_second: NonZeroU64,
    overhead_bytes: u32,
    smallest_bytes: u32,
    /// Bit-nanoseconds a second that no frame paid for yet; less than `bits_per_second`.
    remainder: u64,
}

impl Wire {
    /// A wire where each frame takes `overhead_bytes` more than its own bytes. 0 means none.
    pub fn new(bits_per_second: NonZeroU64, overhead_bytes: u32) -> Wire {
        Wire { bits_per_second, overhead_bytes, smallest_bytes: 0, remainder: 0 }
    }

    /// An Ethernet (IEEE 802.3, 3.1 and 4.2.3.2.2): preamble, checksum and gap are 24 bytes more; a frame without checksum
    /// is padded to 60 bytes.
    pub fn ethernet(bits_per_second: NonZeroU64) -> Wire {
        Wire { smallest_bytes: 60, ..Wire::new(bits_per_second, 24) }
    }

    /// Time of a frame of `frame_bytes` in ns, at most `u64::MAX`. The sum over many frames is exact, rounded down
    /// once.
    pub fn time_ns(&mut self, frame_bytes: usize) -> u64 {
        let bytes = (frame_bytes as u64).max(self.smallest_bytes.into());
        let bits = 8 * (u128::from(bytes) + u128::from(self.overhead_bytes));
        let work = bits * 1_000_000_000 + u128::from(self.remainder);
        let speed = u128::from(self.bits_per_second.get());
        // A remainder is less than the speed, which has 64 bits.
        self.remainder = (work % speed) as u64;
        u64::try_from(work / speed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(bits: u64) -> NonZeroU64 {
        NonZeroU64::new(bits).unwrap()
    }

    #[test]
    fn frames_take_their_time() {
        let rows = [
            (100_000_000, 1514, 123_040),
            (1_000_000_000, 1514, 12_304),
            (1_000_000_000, 64, 704),
            (1_000_000_000, 1, 672),
            (1, usize::MAX, u64::MAX),
            (u64::MAX, 1514, 0),
        ];
        for (bits, bytes, expected) in rows {
            assert_eq!(Wire::ethernet(speed(bits)).time_ns(bytes), expected, "{bytes} at {bits}");
        }
        assert_eq!(Wire::new(speed(8_000_000_000), 2).time_ns(10), 12);
    }

    #[test]
    fn remainders_are_carried() {
        for bits in [3, 7_000_001, 9_999_999_999, 400_000_000_000] {
            let mut wire = Wire::new(speed(bits), 0);
            let sum: u128 = (0..10_000).map(|_| u128::from(wire.time_ns(77))).sum();
            assert_eq!(sum, 10_000 * 77 * 8 * 1_000_000_000 / u128::from(bits), "{bits}");
        }
    }
}
