//! The mean and the deviation of numbers, in one pass and constant memory (Welford, "Note on a Method for Calculating
//! Corrected Sums of Squares and Products", 1962).

#[derive(Debug, Default)]
pub(super) struct Deviation {
    /// Numbers are counted from the first one: a time in ns has more digits than an f64.
    first: u64,
    count: u64,
    mean: f64,
    /// The sum of the squares of the distances from the mean.
    squares: f64,
}

impl Deviation {
    pub(super) fn add(&mut self, number: u64) {
        if self.count == 0 {
            self.first = number;
        }
        self.count += 1;
        let number = (i128::from(number) - i128::from(self.first)) as f64;
        let distance = number - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (number - self.mean);
    }

    /// Rounded. `None`: there are no numbers.
    pub(super) fn mean(&self) -> Option<u64> {
        (self.count > 0).then(|| (i128::from(self.first) + self.mean.round() as i128) as u64)
    }

    /// The standard deviation of a sample, rounded, as databases compute `stddev`. `None`: there are not two numbers.
    pub(super) fn deviation(&self) -> Option<u64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt().round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected`: mean and deviation.
    fn check(numbers: &[u64], expected: (Option<u64>, Option<u64>)) {
        let mut all = Deviation::default();
        numbers.iter().for_each(|number| all.add(*number));
        assert_eq!((all.mean(), all.deviation()), expected, "{numbers:?}");
    }

    #[test]
    fn means_and_deviations() {
        check(&[], (None, None));
        check(&[7], (Some(7), None));
        check(&[2, 4, 4, 4, 5, 5, 7, 9], (Some(5), Some(2)));
        check(&[30, 10], (Some(20), Some(14)));
        // Times of 2026 in ns, 2 ns apart: without the first one as the base all would be the same f64.
        check(&[1_767_323_045_000_000_001, 1_767_323_045_000_000_005], (Some(1_767_323_045_000_000_003), Some(3)));
        check(&[0, u64::MAX], (Some(1 << 63), Some(13_043_817_825_332_783_104)));
    }
}
