//! Signals in batches of 1 to 2,048 blocks, through a ring of 16 MiB. Its consumer sleeps, at most 1 ms while blocks
//! wait (figure 5.2 of the dissertation).

use crate::case::{Case, CaseError, How, Numbers};
use crate::measure::median;
use crate::rings::ours::{self, Plan};
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use buffer::ring::{Patience, RingKind, Signalling};
use chart::{Chart, Scale, Series};
use std::time::Duration;

const RING_BYTES: u64 = 16 << 20;
const LATENCY: Duration = Duration::from_millis(1);
/// Bytes of a block, and blocks in a run: the ring wraps sixteen times.
const BLOCK_BYTES: usize = 64;
const BLOCKS: u64 = 4 << 20;
/// The batch of the row, and the largest one.
const USUAL: u32 = 32;
const LARGEST: u32 = 2048;

/// The rows.
pub static CASES: &[Case] = &[
    Case {
        about: "64-byte blocks, a signal every 32, 16 MiB, 1 ms",
        against: "the best of 1 to 2,048",
        goal: Goal::AtLeast(0.9, 0.9),
        touched: Touched::Copy,
        how: How::Numbers(usual_or_best),
    },
    Case {
        about: "64-byte blocks, a signal every 32, 16 MiB, 1 ms",
        against: "a signal with each (2.36 in the paper)",
        goal: Goal::Reported,
        touched: Touched::Copy,
        how: How::Numbers(usual_or_each),
    },
];

fn rate(batch: u32) -> Result<f64, String> {
    let signalling = if batch == 1 { Signalling::Every } else { Signalling::Batched(batch) };
    let patience = Patience { latency: LATENCY, ..Patience::NONE };
    let plan = Plan { bytes: RING_BYTES, signalling, patience, ..Plan::new(RingKind::C) };
    let cost = ours::copied::<BLOCK_BYTES>(plan, BLOCKS)?.cost();
    Ok(BLOCKS as f64 / cost.wall_s / 1e6)
}

fn usual_or_best(setting: &Setting) -> Result<Numbers, CaseError> {
    let batches: Vec<u32> =
        std::iter::successors(Some(1), |batch| Some(batch * 2)).take_while(|batch| *batch <= LARGEST).collect();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); batches.len()];
    // The first run uses fresh memory, so its rate does not count.
    rate(USUAL)?;
    for _ in 0..setting.rounds() {
        for (batch, rates) in batches.iter().zip(&mut rates) {
            rates.push(rate(*batch)?);
        }
    }
    let usual = batches.iter().position(|batch| *batch == USUAL).unwrap_or(0);
    // Choose the best point of the curve from all rounds: the best of a single round would be the luckiest.
    let medians: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
    let best = (0..medians.len()).max_by(|one, other| medians[*one].total_cmp(&medians[*other])).unwrap_or(0);
    let points = batches.iter().zip(&medians).map(|(batch, rate)| (f64::from(*batch), *rate)).collect();
    let series = vec![Series { name: "64-byte blocks".to_owned(), points }];
    let title = "signals in batches: 64-byte blocks through a ring of 16 MiB, 1 ms";
    let chart = Chart {
        title,
        across: "blocks a signal",
        scale: Scale::Powers,
        up: "M blocks/s",
        up_scale: Scale::Powers,
        series,
    };
    setting.draw("stages-signals.svg", &chart)?;
    Ok(Numbers { ours: rates[usual].clone(), peer: Some(rates[best].clone()), unit: "M/s", void: None })
}

fn usual_or_each(setting: &Setting) -> Result<Numbers, CaseError> {
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "M/s", void: None };
    for _ in 0..setting.rounds() {
        numbers.ours.push(rate(USUAL)?);
        numbers.peer.get_or_insert_default().push(rate(1)?);
    }
    Ok(numbers)
}
