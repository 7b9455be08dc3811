//! Crosstalk: the losses of an application that gets 50,000 datagrams a second, beside another one. That one is slow,
//! stopped, flooded, or gets fragments or SYN segments without an end.

use super::bed::{BOTH, Bed, PORTS, Whose, drop_ipv4};
use super::beside;
use super::frames::Kind;
use super::numbers;
use super::part::{count, in_order};
use crate::case::{Case, CaseError, Numbers};
use crate::measure::Effort;
use crate::setting::Setting;
use crate::table::Goal;
use std::time::Duration;

/// Datagrams a second to the measured application, and to the other one if that is slow or stopped.
const RATE: u64 = 50_000;
/// Sleep of a slow application for each datagram, in us: it reads 100 a second.
const SLOW: &str = "10000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Slow,
    Stopped,
    Flooded,
    Fragments,
    Syns,
}

const fn case(about: &'static str, numbers: fn(&Setting) -> Result<Numbers, CaseError>) -> Case {
    beside(about, "kernel sockets", Goal::AtMost(10.0, 2.0), numbers)
}

/// The rows.
pub static CASES: &[Case] = &[
    case("overload of one, slow: the other loses of 50 kpps", |setting| lost(setting, Trouble::Slow)),
    case("overload of one, stopped: the other loses of 50 kpps", |setting| lost(setting, Trouble::Stopped)),
    case("overload of one, flooded: the other loses of 50 kpps", |setting| lost(setting, Trouble::Flooded)),
    case("overload of one, fragments: the other loses of 50 kpps", |setting| lost(setting, Trouble::Fragments)),
    case("overload of one, SYN flood at its listener: the other loses of 50 kpps", |setting| {
        lost(setting, Trouble::Syns)
    }),
];

fn lost(setting: &Setting, trouble: Trouble) -> Result<Numbers, CaseError> {
    let bed = Bed::new(setting, None)?;
    let mut lost = [Vec::new(), Vec::new()];
    let rounds = if setting.effort == Effort::Quick { 1 } else { 5 };
    for _ in 0..rounds {
        for whose in BOTH {
            lost[whose as usize].push(run(setting, &bed, whose, trouble)?);
        }
    }
    let [ours, kernel] = lost;
    Ok(numbers(ours, Some(kernel), "%"))
}

/// The losses of the measured application, in %.
fn run(setting: &Setting, bed: &Bed, whose: Whose, trouble: Trouble) -> Result<f64, CaseError> {
    let time_s = if setting.effort == Effort::Quick { 1 } else { 4 };
    let (one, other) = (PORTS.0, PORTS.0 + 1);
    let troubled = match trouble {
        Trouble::Syns => bed.tcp(bed.near(whose), whose, &["serve", &one.to_string()], None)?,
        Trouble::Slow => bed.receiver(whose, one, SLOW)?,
        _ => bed.receiver(whose, one, "never")?,
    };
    // Answers to SYN segments end at the far device. Otherwise the stack there would send a reset for each.
    let _drop = (trouble == Trouble::Syns).then(|| drop_ipv4(bed.far(whose))).transpose()?;
    let looked_at = bed.receiver(whose, other, "never")?;
    if trouble == Trouble::Stopped {
        troubled.stop(true)?;
    }
    let (kind, rate) = match trouble {
        Trouble::Slow | Trouble::Stopped => (Kind::Short, RATE),
        Trouble::Flooded => (Kind::Short, 0),
        Trouble::Fragments => (Kind::Fragments, 0),
        Trouble::Syns => (Kind::Syns, 0),
    };
    let overload = bed.keep_sending_frames(whose, kind, one, rate)?;
    // By now its buffers are full.
    std::thread::sleep(Duration::from_millis(200));
    bed.send_frames(whose, Kind::Short, other, RATE * time_s, RATE)?;
    std::thread::sleep(Duration::from_millis(100));
    drop(overload);
    let said = looked_at.end()?;
    in_order(&said)?;
    let sent = (RATE * time_s) as f64;
    Ok((sent - count(&said, "received")? as f64) / sent * 100.0)
}
