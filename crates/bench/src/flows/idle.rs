//! Flows without traffic: the rate of one flow beside 9,570 of them, and the processor time of a hundred.

use super::bed::{Bed, PORTS, USERS, Whose};
use super::frames::Kind;
use super::part::{Part, failed, in_order};
use super::{numbers, row};
use crate::case::{Case, CaseError, Numbers};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use std::time::{Duration, Instant};

/// Connections of each user, and flows of each connection: 9,570 in all. The daemon holds two files for each, within a
/// limit of 20,000.
const CONNECTIONS: usize = 11;
const FLOWS: usize = 290;
/// The flows of the row about time, and how long they are idle.
const FEW: usize = 100;
const IDLE: Duration = Duration::from_secs(10);
/// How long the daemon and the interface process get to settle after these flows were opened.
const SETTLED: Duration = Duration::from_secs(2);
const WARM: Duration = Duration::from_millis(300);

/// The rows.
pub static CASES: &[Case] = &[
    row("one flow receives all it can, 9,570 others idle", "no others", Goal::AtLeast(0.9, 0.97), beside_many),
    row("100 idle flows for 10 s: processor time", "-", Goal::AtMost(10.0, 10.0), idle_time),
];

/// The rate of a flooded flow, in thousands of datagrams a second.
fn flooded(setting: &Setting, bed: &Bed) -> Result<f64, CaseError> {
    let window = Duration::from_millis(if setting.effort == Effort::Quick { 500 } else { 1000 });
    let mut receiver = bed.receiver(Whose::Ours, PORTS.0, "never")?;
    let flood = bed.keep_sending_frames(Whose::Ours, Kind::Short, PORTS.0, 0)?;
    std::thread::sleep(WARM);
    let (before, began) = (receiver.received()?, Instant::now());
    std::thread::sleep(window);
    let (after, took) = (receiver.received()?, began.elapsed());
    drop(flood);
    in_order(&receiver.end()?)?;
    Ok((after - before) as f64 / took.as_secs_f64() / 1e3)
}

fn beside_many(setting: &Setting) -> Result<Numbers, CaseError> {
    let bed = Bed::new(setting, None)?;
    let (mut many, mut one) = (Vec::new(), Vec::new());
    for _ in 0..setting.rounds() {
        one.push(flooded(setting, &bed)?);
        let open = |user: &u32| bed.idle(*user, CONNECTIONS, FLOWS);
        let idle: Vec<Part> = USERS.iter().map(open).collect::<Result<_, _>>()?;
        // The work after opening them is over.
        std::thread::sleep(SETTLED);
        many.push(flooded(setting, &bed)?);
        for part in idle {
            if part.end()?["flows"] != CONNECTIONS * FLOWS {
                return Err(failed("flows are missing"));
            }
        }
    }
    Ok(numbers(many, Some(one), "kpps"))
}

fn idle_time(setting: &Setting) -> Result<Numbers, CaseError> {
    let bed = Bed::new(setting, None)?;
    let idle = bed.idle(USERS[0], 1, FEW)?;
    // The work after opening them is over.
    std::thread::sleep(WARM);
    let rounds = if setting.effort == Effort::Quick { 1 } else { 3 };
    let mut times = Vec::new();
    for _ in 0..rounds {
        let before = bed.own_processor_time(&[&idle]);
        std::thread::sleep(IDLE);
        times.push((bed.own_processor_time(&[&idle]) - before) * 1e3);
    }
    Ok(numbers(times, None, "ms"))
}
