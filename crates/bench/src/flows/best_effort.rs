//! Experiment 3: two best-effort senders, each with more data than the wire takes, against two of the kernel. Measures
//! their rate together, and how even each one is in windows of 100 ms.

use super::bed::{BOTH, Bed, FULL, PORTS, Whose, tool};
use super::sink::{self, Sink};
use super::{numbers, remembered, row};
use crate::case::{Case, CaseError, Numbers};
use crate::machine::TC;
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use std::sync::OnceLock;
use std::time::Duration;

const RATE: u64 = 100_000_000;
const WARM: Duration = Duration::from_millis(300);
const LOST: &str = "void: the sink lost frames";

/// The rows.
pub static CASES: &[Case] = &[
    row("two best-effort senders, 100 Mb/s: rate", "HTB", Goal::AtLeast(1.0, 1.0), |setting| {
        compared(setting, Some(RATE), |run| run.rate, "Mb/s")
    }),
    row("two best-effort senders, 100 Mb/s: deviation of 100 ms windows", "HTB", Goal::AtMost(1.0, 0.5), |setting| {
        compared(setting, Some(RATE), |run| run.deviation, "%")
    }),
    row("two best-effort senders, no rate: rate", "pfifo_fast", Goal::AtLeast(1.0, 1.0), |setting| {
        compared(setting, None, |run| run.rate, "Mb/s")
    }),
    row(
        "two best-effort senders, no rate: deviation of 100 ms windows",
        "pfifo_fast",
        Goal::AtMost(1.0, 0.5),
        |setting| compared(setting, None, |run| run.deviation, "%"),
    ),
];

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Rate of both together, in Mb/s.
    rate: f64,
    /// Standard deviation of a sender's windows in % of its mean; the mean of both senders.
    deviation: f64,
    lost: u64,
}

fn runs(setting: &Setting, rate: Option<u64>) -> Result<[Vec<Run>; 2], CaseError> {
    static RUNS: [OnceLock<Result<[Vec<Run>; 2], CaseError>>; 2] = [OnceLock::new(), OnceLock::new()];
    remembered(&RUNS[usize::from(rate.is_some())], || {
        let bed = Bed::new(setting, rate)?;
        match rate {
            Some(rate) => bed.shape(rate, &[(rate, rate, None)])?,
            None => tool(bed.near(Whose::Kernel), TC, "qdisc replace dev near root pfifo_fast")?,
        }
        let mut runs = [Vec::new(), Vec::new()];
        let rounds = if setting.effort == Effort::Quick { 1 } else { 5 };
        for _ in 0..rounds {
            for whose in BOTH {
                runs[whose as usize].push(run(setting, &bed, whose)?);
            }
        }
        Ok(runs)
    })
}

fn run(setting: &Setting, bed: &Bed, whose: Whose) -> Result<Run, CaseError> {
    let time = Duration::from_secs(if setting.effort == Effort::Quick { 1 } else { 5 });
    let ports = [PORTS.0, PORTS.0 + 1];
    let senders = ports.map(|port| bed.sender(whose, port, FULL.0, "fair", 0));
    let mut senders = senders.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sink = Sink::listen(bed, whose)?;
    senders.iter_mut().try_for_each(|sender| sender.go())?;
    std::thread::sleep(WARM);
    let from = sink::now();
    std::thread::sleep(time);
    let until = sink::now();
    drop(senders);
    let arrivals = sink.end()?;
    let bytes: u64 = ports.iter().map(|port| arrivals.bytes(*port, from, until)).sum();
    let deviations = ports.map(|port| {
        let windows = arrivals.windows(port, from, until);
        let mean = windows.iter().sum::<f64>() / windows.len() as f64;
        let square = windows.iter().map(|bytes| (bytes - mean).powi(2)).sum::<f64>() / windows.len() as f64;
        square.sqrt() / mean * 100.0
    });
    Ok(Run {
        rate: bytes as f64 * 8e3 / (until - from) as f64,
        deviation: deviations.iter().sum::<f64>() / 2.0,
        lost: arrivals.lost,
    })
}

fn compared(
    setting: &Setting,
    rate: Option<u64>,
    of: fn(&Run) -> f64,
    unit: &'static str,
) -> Result<Numbers, CaseError> {
    let [ours, kernel] = runs(setting, rate)?;
    let void = ours.iter().chain(&kernel).any(|run| run.lost > 0).then_some(LOST);
    Ok(Numbers { void, ..numbers(ours.iter().map(of).collect(), Some(kernel.iter().map(of).collect()), unit) })
}
