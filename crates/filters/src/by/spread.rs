//! A distribution of numbers by bucket, from which percentiles are read. A bucket is 1/64 as wide as the power of two that
//! it lies in, so a percentile is at most 1.6 % too large.

use std::collections::BTreeMap;

/// Low bits of a bucket's index: its place within its power of two.
const BITS: u32 = 6;

#[derive(Debug, Default)]
pub(super) struct Spread {
    buckets: BTreeMap<u16, u64>,
    count: u64,
    most: u64,
}

impl Spread {
    pub(super) fn add(&mut self, number: u64) {
        *self.buckets.entry(bucket(number)).or_default() += 1;
        self.count += 1;
        self.most = self.most.max(number);
    }

    /// A number that `percent` % of the numbers do not exceed. `None`: there are no numbers.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let wanted = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen += u128::from(*count);
            (seen >= wanted).then(|| last(*bucket).min(self.most))
        })
    }
}

/// The bucket of a number. Numbers below 128 have a bucket each.
fn bucket(number: u64) -> u16 {
    let shift = (u64::BITS - number.leading_zeros()).saturating_sub(BITS + 1);
    ((u64::from(shift) << BITS) + (number >> shift)) as u16
}

/// The largest number of a bucket: the reverse of [`bucket`].
fn last(bucket: u16) -> u64 {
    let shift = u32::from(bucket >> BITS).saturating_sub(1);
    let first = u64::from(bucket) - (u64::from(shift) << BITS);
    (first << shift) | ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_less_than_a_64th_above_its_numbers() {
        for power in 0..64 {
            for number in [1_u64 << power, (1 << power) | (1 << power >> 1), (1 << power) - 1, u64::MAX >> power] {
                let last = last(bucket(number));
                assert!(last >= number && last - number <= number / 64, "{number}: {last}");
            }
        }
        assert!((0..128).all(|number| last(bucket(number)) == number));
    }

    #[test]
    fn percentiles() {
        let mut spread = Spread::default();
        assert_eq!(spread.percentile(99), None);
        (1..=100).for_each(|number| spread.add(number));
        assert_eq!([1, 50, 99, 100].map(|percent| spread.percentile(percent)), [1, 50, 99, 100].map(Some));
        spread.add(u64::MAX);
        assert_eq!(spread.percentile(100), Some(u64::MAX));
        let mut spread = Spread::default();
        spread.add(1434);
        assert_eq!(spread.percentile(50), Some(1434), "not more than the largest");
    }
}
