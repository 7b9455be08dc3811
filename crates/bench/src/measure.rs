//! Compares two things that do the same: interleaved blocks A B B A, a ratio for each pair, the median of the ratios,
//! and a bootstrap interval around it. Never the best of many.
//!
//! A shared machine has no stable absolute time. The two blocks of a pair are close in time and share the same
//! disturbances.

use crate::process::Cost;
use crate::random::Random;

/// Shortest block worth timing, in seconds.
const BLOCK_S: f64 = 0.3;
/// A run longer than this is a block by itself, and few of them suffice.
const LONG_RUN_S: f64 = 1.0;
const LONG_PAIRS: usize = 5;
/// How well runs that warm up must agree.
const WARM: f64 = 0.05;
const WARM_TRIALS: usize = 12;
const RESAMPLES: usize = 4000;

/// One of two things compared.
pub struct Side<'a> {
    /// Does the work once and gives its cost; fails if the result is wrong.
    run: Box<dyn FnMut() -> Result<Cost, String> + 'a>,
    /// Number of items in one run; costs are given for each item.
    items: f64,
}

impl<'a> Side<'a> {
    /// A side that does its work by `run`.
    pub fn new(run: impl FnMut() -> Result<Cost, String> + 'a) -> Side<'a> {
        Side { run: Box::new(run), items: 1.0 }
    }

    /// Gives costs for each of the `items` items that one run handles.
    #[must_use]
    pub fn per_item(self, items: f64) -> Side<'a> {
        Side { items, ..self }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// 5 pairs: to see whether it works.
    Quick,
    /// 15 pairs.
    Usual,
    /// 31 pairs: for figures that are quoted.
    Quoted,
}

impl Effort {
    fn pairs(self, longest_run_s: f64) -> usize {
        match self {
            Effort::Quick => LONG_PAIRS,
            _ if longest_run_s > LONG_RUN_S => LONG_PAIRS,
            Effort::Usual => 15,
            Effort::Quoted => 31,
        }
    }
}

/// The time that a figure is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time on the wall.
    Wall,
    /// Time on the processors.
    Cpu,
}

/// How the costs of a pair become one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// Ours divided by the peer's: below 1 is better.
    Share,
    /// The peer's divided by ours: above 1 is better.
    TimesAsFast,
    /// The cost of ours beyond the peer's, in nanoseconds, divided by this.
    ExtraNs(f64),
}

impl Figure {
    /// The figure of one pair, from seconds for each item.
    fn of(self, ours_s: f64, peer_s: f64) -> f64 {
        match self {
            Figure::Share => ours_s / peer_s,
            Figure::TimesAsFast => peer_s / ours_s,
            Figure::ExtraNs(parts) => (ours_s - peer_s) * 1e9 / parts,
        }
    }
}

/// A number with the interval in which it lies in 95 of 100 repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub middle: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figure over all pairs.
    pub figure: Estimate,
    /// Median cost of one item of ours.
    pub ours: Cost,
    /// Median cost of one item of the peer.
    pub peer: Cost,
    /// Pairs of blocks.
    pub pairs: usize,
    /// Runs in a block of ours and of the peer.
    pub runs: [usize; 2],
    /// Both sides came to rest while warming up.
    pub steady: bool,
}

/// Measures both sides.
pub fn compare(
    ours: &mut Side<'_>,
    peer: &mut Side<'_>,
    clock: Clock,
    figure: Figure,
    effort: Effort,
) -> Result<Outcome, String> {
    let (ours_warm, peer_warm) = (warm_up(ours)?, warm_up(peer)?);
    let runs = [ours_warm, peer_warm].map(|warm| runs_per_block(warm.run_s));
    let pairs = effort.pairs(ours_warm.run_s.max(peer_warm.run_s));
    let (mut ours_costs, mut peer_costs) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // A B, then B A: a steady drift hits both alike.
        if pair % 2 == 0 {
            ours_costs.push(block(ours, runs[0])?);
            peer_costs.push(block(peer, runs[1])?);
        } else {
            peer_costs.push(block(peer, runs[1])?);
            ours_costs.push(block(ours, runs[0])?);
        }
    }
    let seconds = |cost: &Cost| match clock {
        Clock::Wall => cost.wall_s,
        Clock::Cpu => cost.cpu_s,
    };
    let figures: Vec<f64> =
        ours_costs.iter().zip(&peer_costs).map(|(ours, peer)| figure.of(seconds(ours), seconds(peer))).collect();
    let typical = |costs: &[Cost]| Cost {
        wall_s: median(&costs.iter().map(|cost| cost.wall_s).collect::<Vec<_>>()),
        cpu_s: median(&costs.iter().map(|cost| cost.cpu_s).collect::<Vec<_>>()),
    };
    Ok(Outcome {
        figure: estimate(&figures),
        ours: typical(&ours_costs),
        peer: typical(&peer_costs),
        pairs,
        runs,
        steady: ours_warm.steady && peer_warm.steady,
    })
}

fn block(side: &mut Side<'_>, runs: usize) -> Result<Cost, String> {
    let mut sum = Cost::default();
    for _ in 0..runs {
        sum += (side.run)()?;
    }
    let items = runs as f64 * side.items;
    Ok(Cost { wall_s: sum.wall_s / items, cpu_s: sum.cpu_s / items })
}

#[derive(Clone, Copy, Debug)]
struct Warm {
    run_s: f64,
    steady: bool,
}

/// Runs and throws away results until two trials agree. A trial is a third of a block, so that a run of a millisecond
/// is not judged by one sample.
fn warm_up(side: &mut Side<'_>) -> Result<Warm, String> {
    let mut last = block(side, 1)?.wall_s * side.items;
    for _ in 0..WARM_TRIALS {
        let now = block(side, runs_per_block(last).div_ceil(3))?.wall_s * side.items;
        if (now - last).abs() <= WARM * last {
            return Ok(Warm { run_s: now, steady: true });
        }
        last = now;
    }
    Ok(Warm { run_s: last, steady: false })
}

fn runs_per_block(run_s: f64) -> usize {
    ((BLOCK_S / run_s.max(1e-6)).ceil() as usize).max(1)
}

/// The median; NaN for an empty list.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The median with its interval: percentiles 2.5 and 97.5 of the medians of resamples.
pub fn estimate(numbers: &[f64]) -> Estimate {
    let mut random = Random::new(0x5eed);
    let mut resample = vec![0.0; numbers.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.iter_mut().for_each(|slot| *slot = numbers[random.below(numbers.len())]);
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[(share * (RESAMPLES - 1) as f64).round() as usize];
    Estimate { middle: median(numbers), low: at(0.025), high: at(0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn medians() {
        for (numbers, expected) in [(&[3.0][..], 3.0), (&[1.0, 2.0], 1.5), (&[9.0, 1.0, 2.0], 2.0)] {
            assert_eq!(median(numbers), expected);
        }
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_interval_holds_the_median_and_ignores_one_outlier() {
        let mut numbers: Vec<f64> = (0..15).map(|number| 1.0 + f64::from(number) / 100.0).collect();
        numbers[7] = 50.0;
        let found = estimate(&numbers);
        assert!(found.low <= found.middle && found.middle <= found.high, "{found:?}");
        assert!((1.0..1.15).contains(&found.low) && found.high < 1.15, "{found:?}");
        assert_eq!(estimate(&[2.0; 5]), Estimate { middle: 2.0, low: 2.0, high: 2.0 });
    }

    /// Sides that cost what they are told, and note the order of the runs.
    fn check(ours_s: f64, peer_s: f64, figure: Figure, expected: f64) {
        let order = RefCell::new(Vec::new());
        let side = |name: char, wall_s: f64| {
            let order = &order;
            Side::new(move || {
                order.borrow_mut().push(name);
                Ok(Cost { wall_s, cpu_s: wall_s / 2.0 })
            })
        };
        let outcome =
            compare(&mut side('a', ours_s), &mut side('b', peer_s), Clock::Wall, figure, Effort::Usual).unwrap();
        assert!((outcome.figure.middle - expected).abs() < 1e-9 * expected, "{outcome:?}");
        assert!(outcome.steady);
        let mut blocks = order.into_inner();
        blocks.dedup();
        assert!(blocks.len() > outcome.pairs, "the sides take turns: {blocks:?}");
    }

    #[test]
    fn figures() {
        check(0.5, 1.0, Figure::Share, 0.5);
        check(0.5, 1.0, Figure::TimesAsFast, 2.0);
        check(0.5, 0.25, Figure::ExtraNs(1e6), 250.0);
        check(3.0, 1.0, Figure::Share, 3.0);
    }

    #[test]
    fn a_failure_ends_it() {
        let mut broken = Side::new(|| Err("lost a frame".to_owned()));
        let mut fine = Side::new(|| Ok(Cost { wall_s: 1.0, cpu_s: 1.0 }));
        let outcome = compare(&mut fine, &mut broken, Clock::Wall, Figure::Share, Effort::Quick);
        assert_eq!(outcome.unwrap_err(), "lost a frame");
    }
}
