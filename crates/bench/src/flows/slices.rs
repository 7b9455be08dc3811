//! Experiment 1: six senders with slices of 4, 8 ... 24 ms of each 100 ms, without slack; each has more data than it
//! may send. Shares are measured where frames arrive, beside six kernel senders that HTB shapes to the same shares.

use super::bed::{BOTH, Bed, FULL, PORTS, Whose};
use super::sink::{self, Sink, WINDOW};
use super::{beside, numbers, remembered, row};
use crate::case::{Case, CaseError, Numbers};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use chart::{Chart, Scale, Series};
use std::sync::OnceLock;
use std::time::Duration;

/// Slices of the senders, in ms of 100 ms.
const SLICES: [u64; 6] = [4, 8, 12, 16, 20, 24];
const SLOW: u64 = 100_000_000;
const FAST: u64 = 1_000_000_000;
const PINGS: u16 = 100;
/// How long senders send before counting starts: this covers the first period of each slice, and HTB's first burst.
const WARM: Duration = Duration::from_millis(500);

/// The rows.
pub static CASES: &[Case] = &[
    row("six slices of 100 Mb/s: share error over 10 s, worst flow", "HTB", Goal::AtMost(2.0, 1.0), |setting| {
        compared(setting, SLOW, |run| run.whole, "%")
    }),
    row(
        "six slices of 100 Mb/s: the same as a part of what is permitted, 1 % or a frame a window",
        "-",
        Goal::AtMost(1.0, 1.0),
        |setting| ours(setting, SLOW, |run| run.permitted),
    ),
    row("six slices of 100 Mb/s: error of 100 ms windows, p99", "HTB", Goal::Reported, |setting| {
        compared(setting, SLOW, |run| run.windows, "%")
    }),
    row("six slices of 1 Gb/s: share error over 10 s, worst flow", "HTB", Goal::AtMost(2.0, 1.0), |setting| {
        compared(setting, FAST, |run| run.whole, "%")
    }),
    row(
        "six slices of 1 Gb/s: the same as a part of what is permitted, 1 % or a frame a window",
        "-",
        Goal::AtMost(1.0, 1.0),
        |setting| ours(setting, FAST, |run| run.permitted),
    ),
    row("six slices of 1 Gb/s: error of 100 ms windows, p99", "HTB", Goal::Reported, |setting| {
        compared(setting, FAST, |run| run.windows, "%")
    }),
    beside(
        "six slices of 100 Mb/s: ARP and ping answered, slowest of 100",
        "the kernel behind HTB",
        Goal::AtMost(10.0, 10.0),
        |setting| compared(setting, SLOW, |run| run.answer_ms, "ms"),
    ),
];

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Error of the worst flow, in % of its share.
    whole: f64,
    /// That error as a part of the permitted error.
    permitted: f64,
    /// Error of windows: the 99th percentile of all flows, in %.
    windows: f64,
    /// Time of the slowest answer, in ms.
    answer_ms: f64,
}

fn runs(setting: &Setting, rate: u64) -> Result<[Vec<Run>; 2], CaseError> {
    static RUNS: [OnceLock<Result<[Vec<Run>; 2], CaseError>>; 2] = [OnceLock::new(), OnceLock::new()];
    remembered(&RUNS[usize::from(rate == FAST)], || {
        let bed = Bed::new(setting, Some(rate))?;
        let share = |slice: u64| rate * slice / 100;
        let classes: Vec<(u64, u64, Option<u16>)> =
            (0..).zip(SLICES).map(|(at, slice)| (share(slice), share(slice), Some(PORTS.0 + at))).collect();
        bed.shape(rate, &classes)?;
        let mut runs = [Vec::new(), Vec::new()];
        let rounds = if setting.effort == Effort::Quick { 1 } else { 5 };
        for round in 0..rounds {
            for whose in BOTH {
                runs[whose as usize].push(run(setting, &bed, rate, whose, round == 0)?);
            }
        }
        Ok(runs)
    })
}

fn run(setting: &Setting, bed: &Bed, rate: u64, whose: Whose, draws: bool) -> Result<Run, CaseError> {
    let time = Duration::from_secs(if setting.effort == Effort::Quick { 2 } else { 10 });
    let mut senders = Vec::new();
    for (port, slice) in (PORTS.0..).zip(SLICES) {
        senders.push(bed.sender(whose, port, FULL.0, &format!("{slice}ms/100ms"), 0)?);
    }
    let sink = Sink::listen(bed, whose)?;
    senders.iter_mut().try_for_each(|sender| sender.go())?;
    std::thread::sleep(WARM);
    let from = sink::now();
    let until = from + time.as_nanos() as u64;
    let asked = sink::ask(bed, whose, PINGS, time)?;
    std::thread::sleep(Duration::from_millis(100));
    drop(senders);
    let arrivals = sink.end()?;
    if arrivals.lost > 0 {
        return Err(CaseError::Failed(format!("the sink lost {} frames: the run is void", arrivals.lost)));
    }
    let (mut whole, mut permitted, mut windows, mut series) = (0.0_f64, 0.0_f64, Vec::new(), Vec::new());
    for (port, slice) in (PORTS.0..).zip(SLICES) {
        let wire = rate as f64 / 8.0 * WINDOW as f64 * 1e-9;
        let due = wire * slice as f64 / 100.0;
        let error = |bytes: f64, due: f64| (bytes - due).abs() / due;
        let each = arrivals.windows(port, from, until);
        let all = error(arrivals.bytes(port, from, until) as f64, due * each.len() as f64);
        whole = whole.max(all * 100.0);
        permitted = permitted.max(all / f64::max(0.01, FULL.1 as f64 / due));
        windows.extend(each.iter().map(|bytes| error(*bytes, due) * 100.0));
        let points = each.iter().enumerate().map(|(at, bytes)| ((at as f64 + 0.5) / 10.0, bytes / wire * 100.0));
        series.push(Series { name: format!("{slice} ms of 100"), points: points.collect() });
    }
    if draws && whose == Whose::Ours && rate == SLOW {
        let (title, across, up) =
            ("six flows with slices and no slack, 100 Mb/s, windows of 100 ms", "s", "% of the wire");
        let chart = Chart { title, across, scale: Scale::Count, up, up_scale: Scale::Count, series };
        setting.draw("flows-slices.svg", &chart)?;
    }
    windows.sort_by(f64::total_cmp);
    let p99 = windows.get((windows.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(f64::NAN);
    Ok(Run { whole, permitted, windows: p99, answer_ms: arrivals.slowest_answer(&asked) })
}

fn compared(setting: &Setting, rate: u64, of: fn(&Run) -> f64, unit: &'static str) -> Result<Numbers, CaseError> {
    let [ours, kernel] = runs(setting, rate)?;
    Ok(numbers(ours.iter().map(of).collect(), Some(kernel.iter().map(of).collect()), unit))
}

fn ours(setting: &Setting, rate: u64, of: fn(&Run) -> f64) -> Result<Numbers, CaseError> {
    let [ours, _] = runs(setting, rate)?;
    Ok(numbers(ours.iter().map(of).collect(), None, "of it"))
}
