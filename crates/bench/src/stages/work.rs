//! The work that a request has time for with each frame of a gigabit link, in one stage and in two; frames come from
//! memory. `streamline bench pipeline` searches for it. The order of frames is checked with a million numbered ones.

use crate::case::{Case, CaseError, How, Numbers};
use crate::measure::Effort;
use crate::process::Program;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use chart::{Chart, Scale, Series};
use serde_json::Value;

/// Bytes of frames in the curve, check sequence included.
const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
const FRAMES: u64 = 1_000_000;
/// Bytes on a wire besides those of a frame: preamble and gap.
const WIRE_BYTES: u64 = 20;
const GIGABIT: u64 = 1_000_000_000;
/// Work of a stage for each frame in the rows about order, in ns. A frame of 64 bytes has 672 ns.
const WORK_NS: u64 = 200;

/// Requests in stages; the word `WORK` stands for the work of one stage.
const STAGES: [&str; 3] = ["WORK | drop", "WORK || WORK | drop", "WORK || WORK || WORK | drop"];

const fn row(about: &'static str, against: &'static str, numbers: fn(&Setting) -> Result<Numbers, CaseError>) -> Case {
    Case { about, against, goal: Goal::Reported, touched: Touched::None, how: How::Numbers(numbers) }
}

const fn order(about: &'static str, numbers: fn(&Setting) -> Result<Numbers, CaseError>) -> Case {
    Case { about, against: "-", goal: Goal::AtMost(0.0, 0.0), touched: Touched::None, how: How::Numbers(numbers) }
}

/// The rows.
pub static CASES: &[Case] = &[
    row("work time a 64-byte frame, 1.488 Mfps, two stages", "one stage", |setting| two_or_one(setting, 64)),
    row("work time a 1,518-byte frame, 81 kfps, two stages", "one stage", |setting| two_or_one(setting, 1518)),
    row("work time a frame, 64 to 1,518 B, two stages: curves", "one stage, median over the curve", curves),
    row("work time a frame, three stages or two pairs", "one stage", |_| needs(4)),
    order("frames of 1,000,000 lost or not in order, one stage, 64 B", |setting| out_of_order(setting, 1)),
    order("frames of 1,000,000 lost or not in order, two stages, 64 B", |setting| out_of_order(setting, 2)),
    order("frames of 1,000,000 lost or not in order, three stages, asleep, 64 B", |setting| out_of_order(setting, 3)),
];

/// The result of rows whose stages spin, so that each needs a processor of its own.
fn needs(processors: usize) -> Result<Numbers, CaseError> {
    Err(CaseError::Missing(format!("needs {processors} processors")))
}

/// Work time of all stages together, in ns, for each of these sizes.
fn work_times(setting: &Setting, stages: usize, sizes: &[u32]) -> Result<Vec<f64>, CaseError> {
    let wait = if stages > 1 { "set wait=busy; " } else { "" };
    let sizes_text = sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let program =
        Program::new(&setting.streamline).args(["bench", "pipeline", &format!("{wait}{}", STAGES[stages - 1])]);
    let ran = program.args(["--json", "--trial", "200ms", "--resolution", "2%", "--sizes", &sizes_text]).run()?;
    let said: Value = serde_json::from_slice(&ran.stdout).map_err(|error| format!("`bench pipeline`: {error}"))?;
    let rows = said["rows"].as_array().ok_or_else(|| "`bench pipeline` has no rows".to_owned())?;
    // There is no work time if the request alone cannot keep to the rate.
    let times: Vec<f64> = rows.iter().map(|row| row["work_ns"].as_f64().unwrap_or(0.0) * stages as f64).collect();
    if times.len() == sizes.len() { Ok(times) } else { Err(CaseError::Failed(format!("{} rows", times.len()))) }
}

fn two_or_one(setting: &Setting, size: u32) -> Result<Numbers, CaseError> {
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "ns", void: None };
    let rounds = if setting.effort == Effort::Quick { 1 } else { 5 };
    for _ in 0..rounds {
        numbers.ours.extend(work_times(setting, 2, &[size])?);
        numbers.peer.get_or_insert_default().extend(work_times(setting, 1, &[size])?);
    }
    Ok(numbers)
}

fn curves(setting: &Setting) -> Result<Numbers, CaseError> {
    let sizes = if setting.effort == Effort::Quick { &SIZES[..3] } else { &SIZES };
    let (one, two) = (work_times(setting, 1, sizes)?, work_times(setting, 2, sizes)?);
    let budgets: Vec<f64> = sizes.iter().map(|size| 1e9 / frames_a_second(*size) as f64).collect();
    let series = |name: &str, times: &[f64]| {
        let points = sizes.iter().zip(times).filter(|(_, time)| **time > 0.0);
        Series { name: name.to_owned(), points: points.map(|(size, time)| (f64::from(*size), *time)).collect() }
    };
    let series = vec![series("all of a frame's time", &budgets), series("one stage", &one), series("two stages", &two)];
    let title = "work time a frame at a gigabit a second, frames from memory";
    let chart =
        Chart { title, across: "bytes of a frame", scale: Scale::Bytes, up: "ns", up_scale: Scale::Powers, series };
    setting.draw("stages-work.svg", &chart)?;
    Ok(Numbers { ours: two, peer: Some(one), unit: "ns", void: None })
}

fn frames_a_second(size: u32) -> u64 {
    GIGABIT / 8 / (u64::from(size) + WIRE_BYTES)
}

/// Counts lost, doubled and late frames of a million, with work in each stage. The stages sleep while they wait.
fn out_of_order(setting: &Setting, stages: usize) -> Result<Numbers, CaseError> {
    // With more stages than processors the rate is not kept. That loses no frames, since the source waits.
    let work = format!("work {WORK_NS}ns");
    let chain = STAGES[stages - 1].replace("WORK", &work).replace("| drop", "| sequence");
    let request = format!("generate size=60 count={FRAMES} rate={} | {chain}", frames_a_second(64));
    let program = setting.ours(&request);
    let wrong = |_| -> Result<f64, String> {
        let ran = program.run()?;
        let said: Value = serde_json::from_slice(&ran.stdout).map_err(|error| format!("`sequence`: {error}"))?;
        let number = |name: &str| said[name].as_u64().unwrap_or(u64::MAX);
        Ok(FRAMES.abs_diff(number("frames")) as f64 + number("repeated") as f64 + number("late") as f64)
    };
    let ours = (0..setting.rounds()).map(wrong).collect::<Result<Vec<f64>, _>>()?;
    Ok(Numbers { ours, peer: None, unit: "frames", void: None })
}
