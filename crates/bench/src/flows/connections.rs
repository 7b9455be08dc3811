//! Connections: how many a second with a byte each way, and a thousand at once, which must all succeed.

use super::bed::{Bed, NEAR_IP, Whose};
use super::bulk::{FAR, PORT};
use super::part::count;
use super::{beside, blocks, in_turns, numbers, row};
use crate::case::{Case, CaseError, Numbers};
use crate::setting::Setting;
use crate::table::Goal;
use driver::pair::End;
use serde_json::Value;

/// How long a run makes connections, in ms, and on how many threads.
const RUN_MS: &str = "600";
const THREADS: &str = "8";
const CROWD: &str = "1000";

/// The rows.
pub static CASES: &[Case] = &[
    row("connections a second, a byte each way", "the kernel's", Goal::AtLeast(0.3, 0.6), |setting| {
        let bed = Bed::new(setting, None)?;
        let [ours, kernel] = in_turns(blocks(setting), |whose| {
            let said = outward(&bed, whose, &["connect", FAR, THREADS, RUN_MS])?;
            let seconds = said["seconds"].as_f64().unwrap_or(f64::NAN);
            Ok(count(&said, "count")? as f64 / seconds)
        })?;
        Ok(numbers(ours, Some(kernel), "a second"))
    }),
    beside("1,000 connections at once, to the kernel: failed", "the kernel's", Goal::AtMost(0.0, 0.0), |setting| {
        worst(setting, |bed, whose| failures(&outward(bed, whose, &["crowd", FAR, CROWD])?))
    }),
    beside("1,000 connections at once, from the kernel: failed", "the kernel's", Goal::AtMost(0.0, 0.0), |setting| {
        worst(setting, |bed, whose| {
            let (near, far) = ((bed.near(whose), whose), (bed.far(whose), Whose::Kernel));
            failures(&run(bed, near, far, &["crowd", &format!("{NEAR_IP}:{PORT}"), CROWD])?)
        })
    }),
];

fn worst(setting: &Setting, run: fn(&Bed, Whose) -> Result<f64, CaseError>) -> Result<Numbers, CaseError> {
    let bed = Bed::new(setting, None)?;
    let found = in_turns(setting.rounds(), |whose| run(&bed, whose))?;
    let [ours, kernel] = found.map(|failed| vec![failed.into_iter().fold(0.0, f64::max)]);
    Ok(numbers(ours, Some(kernel), "of 1,000"))
}

/// A client on the near side, with a kernel server on the far side.
fn outward(bed: &Bed, whose: Whose, words: &[&str]) -> Result<Value, CaseError> {
    run(bed, (bed.far(whose), Whose::Kernel), (bed.near(whose), whose), words)
}

fn run(bed: &Bed, server: (&End, Whose), client: (&End, Whose), words: &[&str]) -> Result<Value, CaseError> {
    let _server = bed.tcp(server.0, server.1, &["serve", PORT], None)?;
    let mut client = bed.tcp(client.0, client.1, words, None)?;
    client.go()?;
    client.finish()
}

/// The number of failed connections; the reason for the first goes to standard error.
fn failures(said: &Value) -> Result<f64, CaseError> {
    if let Some(why) = said["first"].as_str() {
        eprintln!("  a connection failed: {why}");
    }
    Ok(count(said, "failed")? as f64)
}
