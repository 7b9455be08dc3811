//! Experiment 4: streams of 40 and 45 Mb/s to two applications. The second gets slower after each 20,000 datagrams; the
//! first must lose none. The same with kernel sockets is shown beside.

use super::bed::{BOTH, Bed, PORTS, Whose};
use super::frames::{Kind, LONG};
use super::part::{count, failed, in_order};
use super::parts::WINDOW_MS;
use super::{beside, numbers, remembered};
use crate::case::{Case, CaseError, Numbers};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use chart::{Chart, Scale, Series};
use serde_json::Value;
use std::sync::OnceLock;
use std::time::Duration;

const STREAMS: [u64; 2] = [40_000_000, 45_000_000];
/// Further sleep of the second application for each datagram, in us, added after each [`EACH`] datagrams.
const SLOWER_US: u64 = 50;
const EACH: u64 = 20_000;

/// The rows.
pub static CASES: &[Case] = &[
    beside(
        "40 Mb/s beside an application that gets slower: datagrams lost",
        "kernel sockets",
        Goal::AtMost(0.0, 0.0),
        |setting| compared(setting, |run| run.first_lost),
    ),
    beside(
        "45 Mb/s to an application that gets slower: datagrams neither received nor counted as dropped",
        "kernel sockets",
        Goal::AtMost(0.0, 0.0),
        |setting| compared(setting, |run| run.second_unknown),
    ),
    beside("45 Mb/s to an application that gets slower: dropped", "kernel sockets", Goal::Reported, |setting| {
        compared(setting, |run| run.second_dropped)
    }),
];

#[derive(Clone, Debug)]
struct Run {
    first_lost: f64,
    /// Datagrams to the second application that were not counted, or counted twice.
    second_unknown: f64,
    second_dropped: f64,
    /// Datagrams that the first and the second received in each window.
    windows: [Vec<f64>; 2],
}

fn runs(setting: &Setting) -> Result<[Vec<Run>; 2], CaseError> {
    static RUNS: OnceLock<Result<[Vec<Run>; 2], CaseError>> = OnceLock::new();
    remembered(&RUNS, || {
        let bed = Bed::new(setting, None)?;
        let mut runs = [Vec::new(), Vec::new()];
        let rounds = if setting.effort == Effort::Quick { 1 } else { 3 };
        for _ in 0..rounds {
            for whose in BOTH {
                runs[whose as usize].push(run(setting, &bed, whose)?);
            }
        }
        draw(setting, &runs)?;
        Ok(runs)
    })
}

fn run(setting: &Setting, bed: &Bed, whose: Whose) -> Result<Run, CaseError> {
    // Each step takes two seconds or more.
    let (time_s, each) = if setting.effort == Effort::Quick { (3, EACH / 10) } else { (15, EACH) };
    let first = bed.receiver(whose, PORTS.0, "never")?;
    let second = bed.receiver(whose, PORTS.0 + 1, &format!("{each}:{SLOWER_US}"))?;
    let rates = STREAMS.map(|bits| bits / 8 / LONG as u64);
    let send = |at: usize| bed.send_frames(whose, Kind::Long, PORTS.0 + at as u16, rates[at] * time_s, rates[at]);
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| send(1));
        send(0)?;
        beside.join().map_err(|_| failed("a thread failed"))?
    })?;
    // The second application has a backlog.
    std::thread::sleep(Duration::from_millis(200));
    let said = [first.end()?, second.end()?];
    said.iter().try_for_each(in_order)?;
    let [first, second] = &said;
    let sent = rates.map(|rate| (rate * time_s) as f64);
    let number = |said: &Value, name: &str| count(said, name).map(|number| number as f64);
    let dropped = number(second, "dropped")?;
    let windows = |said: &Value| -> Vec<f64> {
        said["windows"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    Ok(Run {
        first_lost: sent[0] - number(first, "received")?,
        second_unknown: (sent[1] - number(second, "received")? - dropped).abs(),
        second_dropped: dropped,
        windows: [windows(first), windows(second)],
    })
}

fn draw(setting: &Setting, runs: &[Vec<Run>; 2]) -> Result<(), CaseError> {
    let megabits = LONG as f64 * 8.0 / WINDOW_MS as f64 / 1e3;
    let mut series = Vec::new();
    for (whose, runs) in ["ours", "kernel"].iter().zip(runs) {
        let Some(run) = runs.first() else { continue };
        for (name, windows) in ["40 Mb/s", "slower"].iter().zip(&run.windows) {
            let points = windows.iter().enumerate();
            let points = points.map(|(at, count)| ((at as f64 + 0.5) * WINDOW_MS as f64 / 1e3, count * megabits));
            series.push(Series { name: format!("{name}, {whose}"), points: points.collect() });
        }
    }
    let title = "received by an application, and by one that gets slower, windows of 100 ms";
    let chart = Chart { title, across: "s", scale: Scale::Count, up: "Mb/s", up_scale: Scale::Count, series };
    Ok(setting.draw("flows-slower.svg", &chart)?)
}

fn compared(setting: &Setting, of: fn(&Run) -> f64) -> Result<Numbers, CaseError> {
    let [ours, kernel] = runs(setting)?;
    Ok(numbers(ours.iter().map(of).collect(), Some(kernel.iter().map(of).collect()), "datagrams"))
}
