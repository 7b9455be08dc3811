//! Experiment 2: one best-effort sender may use all time that others leave. Every 5 s one more sender joins with a
//! slice: 6, 7, 8, 9 ms of 100 ms.

use super::bed::{Bed, FULL, PORTS, Whose};
use super::sink::{self, Sink, WINDOW};
use super::{numbers, remembered, row};
use crate::case::{Case, CaseError};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use chart::{Chart, Scale, Series};
use std::sync::OnceLock;
use std::time::Duration;

const RATE: u64 = 100_000_000;
/// Slices of the joining senders, in ms of 100 ms.
const SLICES: [u64; 4] = [6, 7, 8, 9];
/// Time after a sender has joined that does not count: two periods.
const SETTLING: Duration = Duration::from_millis(200);

/// The rows.
pub static CASES: &[Case] = &[
    row(
        "slices join a best-effort sender, 100 Mb/s: what the worst slice lacks",
        "-",
        Goal::AtMost(1.0, 0.5),
        |setting| {
            let runs = runs(setting)?;
            Ok(numbers(runs.iter().map(|run| run.lacking).collect(), None, "%"))
        },
    ),
    row(
        "slices join a best-effort sender, 100 Mb/s: its part of what they leave over, worst phase",
        "-",
        Goal::AtLeast(90.0, 97.0),
        |setting| {
            let runs = runs(setting)?;
            Ok(numbers(runs.iter().map(|run| run.rest).collect(), None, "%"))
        },
    ),
];

#[derive(Clone, Copy, Debug)]
struct Run {
    /// How much the worst slice lacks, in %.
    lacking: f64,
    /// Best effort's part of the rest, in the phase where it gets least, in %.
    rest: f64,
}

fn runs(setting: &Setting) -> Result<Vec<Run>, CaseError> {
    static RUNS: OnceLock<Result<Vec<Run>, CaseError>> = OnceLock::new();
    remembered(&RUNS, || {
        let bed = Bed::new(setting, Some(RATE))?;
        let rounds = if setting.effort == Effort::Quick { 1 } else { 3 };
        (0..rounds).map(|round| run(setting, &bed, round == 0)).collect()
    })
}

fn run(setting: &Setting, bed: &Bed, draws: bool) -> Result<Run, CaseError> {
    let phase = Duration::from_secs(if setting.effort == Effort::Quick { 1 } else { 5 });
    let shares = std::iter::once("fair".to_owned()).chain(SLICES.iter().map(|slice| format!("{slice}ms/100ms")));
    let sink = Sink::listen(bed, Whose::Ours)?;
    let (mut senders, mut joined) = (Vec::new(), Vec::new());
    for (port, share) in (PORTS.0..).zip(shares) {
        // An unused slice belongs to best effort, so opening one takes nothing away.
        let mut sender = bed.sender(Whose::Ours, port, FULL.0, &share, 0)?;
        joined.push(sink::now());
        sender.go()?;
        senders.push(sender);
        std::thread::sleep(phase);
    }
    let end = sink::now();
    drop(senders);
    let arrivals = sink.end()?;
    if arrivals.lost > 0 {
        return Err(CaseError::Failed(format!("the sink lost {} frames: the run is void", arrivals.lost)));
    }
    let settling = SETTLING.as_nanos() as u64;
    let wire = |from: u64, until: u64| RATE as f64 / 8.0 * (until - from) as f64 * 1e-9;
    let mut lacking = 0.0_f64;
    for ((port, slice), joined) in (PORTS.0 + 1..).zip(SLICES).zip(&joined[1..]) {
        let from = joined + settling;
        // Whole periods only: a slice may be used at the beginning or at the end of a period.
        let until = from + (end - from) / WINDOW * WINDOW;
        let part = arrivals.bytes(port, from, until) as f64 / wire(from, until) / (slice as f64 / 100.0);
        lacking = lacking.max((1.0 - part) * 100.0);
    }
    let mut rest = f64::INFINITY;
    for (at, from) in joined.iter().enumerate() {
        let (from, until) = (from + settling, joined.get(at + 1).copied().unwrap_or(end));
        let guaranteed = SLICES[..at].iter().sum::<u64>() as f64 / 100.0;
        let part = arrivals.bytes(PORTS.0, from, until) as f64 / wire(from, until) / (1.0 - guaranteed);
        rest = rest.min(part * 100.0);
    }
    if draws {
        let names =
            std::iter::once("best effort".to_owned()).chain(SLICES.iter().map(|slice| format!("{slice} ms of 100")));
        let began = joined[0];
        let series = (PORTS.0..).zip(names).zip(&joined).map(|((port, name), joined)| {
            let windows = arrivals.windows(port, began, end);
            let first = ((joined - began) / WINDOW) as usize;
            let points = windows.iter().enumerate().skip(first).map(|(at, bytes)| {
                let time = (at as f64 + 0.5) * WINDOW as f64 * 1e-9;
                (time, bytes / wire(0, WINDOW) * 100.0)
            });
            Series { name, points: points.collect() }
        });
        let title = "slices join a best-effort sender, 100 Mb/s, windows of 100 ms";
        let (across, up, series) = ("s", "% of the wire", series.collect());
        let chart = Chart { title, across, scale: Scale::Count, up, up_scale: Scale::Count, series };
        setting.draw("flows-joining.svg", &chart)?;
    }
    Ok(Run { lacking, rest })
}
