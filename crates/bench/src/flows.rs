//! The comparison `flows`: flows of applications on an interface of ours, against kernel sockets. Experiments 1 to 4
//! are those of the Nemesis network stack; the charts are its figures 5 to 7.
//!
//! - [`slices`], [`joining`], [`best_effort`] — shares of the wire.
//! - [`slower`], [`overload`] — the effect of one receiver on another.
//! - [`packets`] — rates and processor time of short datagrams.
//! - [`idle`] — flows without traffic.
//! - [`bed`] — devices and daemon.
//! - [`part`] — processes; [`parts`] and [`streams`] — their work; [`sink`] — the arriving frames.
//! - [`frames`] — frames by hand; [`mmsg`] — the kernel's calls for many datagrams.
//! - [`document`] — docs/benchmarks/flows.md.

pub mod bed;
pub mod best_effort;
pub mod bulk;
pub mod connections;
pub mod document;
pub mod exchanges;
pub mod frames;
pub mod idle;
pub mod joining;
mod lines;
pub mod mmsg;
pub mod overload;
pub mod packets;
pub mod part;
pub mod parts;
pub mod programs;
pub mod shared;
pub mod sink;
pub mod slices;
pub mod slower;
pub mod streams;
pub mod tunnels;

use crate::case::{Case, CaseError, How, Numbers};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use bed::{BOTH, Whose};
use std::sync::OnceLock;

/// The groups, in the order of the table.
pub static GROUPS: &[&[Case]] = &[
    packets::STEADY,
    slices::CASES,
    joining::CASES,
    best_effort::CASES,
    slower::CASES,
    overload::CASES,
    packets::CASES,
    bulk::CASES,
    tunnels::CASES,
    exchanges::CASES,
    connections::CASES,
    programs::CASES,
    shared::CASES,
    idle::CASES,
];

/// A row that compares ours with the peer's or, without a peer, has ours alone.
const fn row(
    about: &'static str,
    against: &'static str,
    goal: Goal,
    numbers: fn(&Setting) -> Result<Numbers, CaseError>,
) -> Case {
    Case { about, against, goal, touched: Touched::Copy, how: How::Numbers(numbers) }
}

/// A row with a goal for ours alone; the peer's number is shown beside.
const fn beside(
    about: &'static str,
    against: &'static str,
    goal: Goal,
    numbers: fn(&Setting) -> Result<Numbers, CaseError>,
) -> Case {
    Case { about, against, goal, touched: Touched::Copy, how: How::Beside(numbers) }
}

fn numbers(ours: Vec<f64>, peer: Option<Vec<f64>>, unit: &'static str) -> Numbers {
    Numbers { ours, peer, unit, void: None }
}

/// The results of `measure` for ours and for the peer, in turns: A B, then B A. The first run of each does not count.
fn in_turns<T>(
    rounds: usize,
    mut measure: impl FnMut(Whose) -> Result<T, CaseError>,
) -> Result<[Vec<T>; 2], CaseError> {
    let mut found = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for at in [round % 2, (round + 1) % 2] {
            let one = measure(BOTH[at])?;
            if round > 0 {
                found[at].push(one);
            }
        }
    }
    Ok(found)
}

fn blocks(setting: &Setting) -> usize {
    if setting.effort == Effort::Quick { 5 } else { 15 }
}

/// Measures once and remembers the result, since several rows are about the same runs.
fn remembered<T: Clone>(
    place: &OnceLock<Result<T, CaseError>>,
    measure: impl FnOnce() -> Result<T, CaseError>,
) -> Result<T, CaseError> {
    place.get_or_init(measure).clone()
}
