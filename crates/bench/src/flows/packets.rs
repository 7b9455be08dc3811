//! Datagrams in frames of 64 bytes: the highest rates without a loss, and the processor time of each datagram, received
//! and sent, against `recvmmsg` and `sendmmsg` of 64.
//!
//! Processor time is that of all processes: application, daemon, and the kernel's threads. For receiving it includes
//! the sender, in whose time the kernel delivers, minus the time of the same sender into a program that drops.

use super::bed::{BOTH, Bed, PORTS, SHORT_PAYLOAD, Whose, drop_ipv4};
use super::frames::Kind;
use super::part::{Part, count, failed, in_order};
use super::{numbers, remembered, row};
use crate::case::{Case, CaseError, Numbers};
use crate::measure::{Effort, median};
use crate::setting::Setting;
use crate::stages::bed::{Trial, highest};
use crate::table::Goal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const TRIAL: Duration = Duration::from_millis(300);
/// No more datagrams come after this long without one.
const QUIET: Duration = Duration::from_millis(50);
/// The part of the rate that both sides reach at which processor times are measured.
const EASY: f64 = 0.5;
/// More datagrams a second than any sender reaches.
const FASTEST: f64 = 2_000_000.0;
const CHECKS: u64 = 1_000_000;

/// Shows how steady the machine is; the first row.
pub static STEADY: &[Case] =
    &[row("A/A: the kernel sends 64 B as fast as it goes", "itself", Goal::Within(0.97, 1.03), |setting| {
        let bed = Bed::new(setting, None)?;
        let mut rates = [Vec::new(), Vec::new()];
        // The first run uses fresh memory.
        send(&bed, Whose::Kernel, FASTEST, TRIAL)?;
        for round in 0..setting.rounds() {
            for at in [round % 2, (round + 1) % 2] {
                rates[at].push(send(&bed, Whose::Kernel, FASTEST, TRIAL)?.rate / 1e3);
            }
        }
        let [one, other] = rates;
        Ok(numbers(one, Some(other), "kpps"))
    })];

/// The rows.
pub static CASES: &[Case] = &[
    row("UDP 64 B, received without loss", "recvmmsg of 64", Goal::AtLeast(1.0, 1.3), |setting| {
        received(setting).map(|seen| seen.rates.numbers("kpps"))
    }),
    row("UDP 64 B, sent without loss", "sendmmsg of 64", Goal::AtLeast(0.8, 1.0), |setting| {
        sent(setting).map(|seen| seen.rates.numbers("kpps"))
    }),
    row("UDP 64 B, received, processor time a packet", "recvmmsg of 64", Goal::AtMost(0.67, 0.5), |setting| {
        received(setting).map(|seen| seen.times.numbers("ns"))
    }),
    row("UDP 64 B, sent, processor time a packet", "sendmmsg of 64", Goal::AtMost(1.0, 0.7), |setting| {
        sent(setting).map(|seen| seen.times.numbers("ns"))
    }),
    row(
        "UDP 64 B, sent with the check of headers, as a part of what goes without",
        "-",
        Goal::AtLeast(0.9, 0.95),
        checked,
    ),
];

#[derive(Clone, Debug, Default)]
struct Pairs([Vec<f64>; 2]);

impl Pairs {
    fn numbers(self, unit: &'static str) -> Numbers {
        let [ours, kernel] = self.0;
        numbers(ours, Some(kernel), unit)
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Thousands of packets a second.
    rates: Pairs,
    /// ns a packet.
    times: Pairs,
}

/// The highest rate of each side, then each side's processor time at half of the lower rate.
fn measured(
    setting: &Setting,
    search: impl Fn(&Bed, Whose) -> Result<f64, CaseError>,
    time: impl Fn(&Bed, Whose, f64) -> Result<f64, CaseError>,
) -> Result<Seen, CaseError> {
    let bed = Bed::new(setting, None)?;
    let mut seen = Seen::default();
    let rounds = if setting.effort == Effort::Quick { 1 } else { 5 };
    for _ in 0..rounds {
        for whose in BOTH {
            seen.rates.0[whose as usize].push(search(&bed, whose)? / 1e3);
        }
    }
    let both = seen.rates.0.each_ref().map(|rates| median(rates)).into_iter().fold(f64::INFINITY, f64::min);
    if both == 0.0 {
        return Err(failed("packets are lost even at the lowest rate"));
    }
    for _ in 0..rounds {
        for whose in BOTH {
            seen.times.0[whose as usize].push(time(&bed, whose, both * 1e3 * EASY)? * 1e9);
        }
    }
    Ok(seen)
}

// --- receiving ------------------------------------------------------------------------------------------------------

fn received(setting: &Setting) -> Result<Seen, CaseError> {
    static SEEN: OnceLock<Result<Seen, CaseError>> = OnceLock::new();
    let search = |bed: &Bed, whose: Whose| {
        let receiver = std::cell::RefCell::new(bed.receiver(whose, PORTS.0, "never")?);
        let rate = highest(|rate| receive(bed, whose, &mut receiver.borrow_mut(), rate, TRIAL))?;
        in_order(&receiver.into_inner().end()?)?;
        Ok(rate)
    };
    remembered(&SEEN, || measured(setting, search, |bed, whose, rate| receive_time(setting, bed, whose, rate)))
}

/// Sends to a receiver at a rate for a while, and counts what it gets.
fn receive(bed: &Bed, whose: Whose, receiver: &mut Part, rate: f64, time: Duration) -> Result<Trial, CaseError> {
    let frames = ((rate * time.as_secs_f64()) as u64).max(1);
    let (before, cpu_before) = (receiver.received()?, bed.processor_time(&[receiver]));
    let (sender_s, took) = bed.send_frames(whose, Kind::Short, PORTS.0, frames, rate as u64)?;
    let came = await_all(frames, || Ok(receiver.received()? - before))?;
    let cpu_s = bed.processor_time(&[receiver]) - cpu_before + sender_s;
    Ok(Trial { rate: frames as f64 / took, lost: frames.saturating_sub(came), cpu_s, frames })
}

/// Waits until `all` have come, or no more come. Gives how many came.
fn await_all(all: u64, mut come: impl FnMut() -> Result<u64, CaseError>) -> Result<u64, CaseError> {
    let mut last = (come()?, Instant::now());
    while last.0 < all && last.1.elapsed() < QUIET {
        std::thread::sleep(Duration::from_millis(2));
        let now = come()?;
        if now > last.0 {
            last = (now, Instant::now());
        }
    }
    if last.0 > all { Err(failed(format!("{} packets came of {all}", last.0))) } else { Ok(last.0) }
}

fn looked(setting: &Setting) -> Duration {
    Duration::from_millis(if setting.effort == Effort::Quick { 500 } else { 1000 })
}

/// Processor time for each packet received at a rate, in s.
fn receive_time(setting: &Setting, bed: &Bed, whose: Whose, rate: f64) -> Result<f64, CaseError> {
    let mut receiver = bed.receiver(whose, PORTS.0, "never")?;
    let trial = receive(bed, whose, &mut receiver, rate, looked(setting))?;
    in_order(&receiver.end()?)?;
    let got = trial.frames - trial.lost;
    if got == 0 {
        return Err(failed("no packet came"));
    }
    // The same frames into a program that drops: the cost of sending them.
    let _drop = drop_ipv4(bed.near(Whose::Kernel))?;
    let before = bed.processor_time(&[]);
    let (sender_s, _) = bed.send_frames(Whose::Kernel, Kind::Short, PORTS.0, trial.frames, rate as u64)?;
    let alone = bed.processor_time(&[]) - before + sender_s;
    Ok((trial.cpu_s - alone) / got as f64)
}

// --- sending --------------------------------------------------------------------------------------------------------

fn sent(setting: &Setting) -> Result<Seen, CaseError> {
    static SEEN: OnceLock<Result<Seen, CaseError>> = OnceLock::new();
    let search = |bed: &Bed, whose: Whose| highest(|rate| send(bed, whose, rate, TRIAL));
    let time = |bed: &Bed, whose: Whose, rate: f64| {
        let trial = send(bed, whose, rate, looked(setting))?;
        Ok(trial.cpu_s / (trial.frames - trial.lost).max(1) as f64)
    };
    remembered(&SEEN, || measured(setting, search, time))
}

/// Sends at a rate for a while into a program that drops, and counts what arrives.
fn send(bed: &Bed, whose: Whose, rate: f64, time: Duration) -> Result<Trial, CaseError> {
    let frames = ((rate * time.as_secs_f64()) as u64).max(1);
    let far = bed.far(whose);
    // A first datagram finds the neighbour, since an ARP request takes time.
    let mut first = bed.counting_sender(whose, PORTS.0 + 1, SHORT_PAYLOAD, "fair", 0, 1)?;
    first.go()?;
    first.finish()?;
    drop(first);
    let _drop = drop_ipv4(far)?;
    let mut sender = bed.counting_sender(whose, PORTS.0, SHORT_PAYLOAD, "fair", rate as u64, frames)?;
    std::thread::sleep(Duration::from_millis(10));
    let (before, cpu_before) = (bed.arrived(far)?, bed.processor_time(&[&sender]));
    sender.go()?;
    let said = sender.finish()?;
    let came = await_all(u64::MAX, || Ok(bed.arrived(far)? - before))?;
    let cpu_s = bed.processor_time(&[&sender]) - cpu_before;
    let took = said["seconds"].as_f64().unwrap_or(f64::INFINITY);
    if count(&said, "sent")? != frames {
        return Err(failed(format!("a sender sent {said}")));
    }
    Ok(Trial { rate: frames as f64 / took, lost: frames.saturating_sub(came), cpu_s, frames })
}

// --- the template ---------------------------------------------------------------------------------------------------

/// The rate with the header check as a part of the rate without it. Compares a packet's time without the check with its
/// whole time.
fn checked(setting: &Setting) -> Result<Numbers, CaseError> {
    let times = sent(setting)?.times.0;
    let whole = median(&times[0]);
    let parts = (0..setting.rounds()).map(|_| (whole - net::template_check_ns(CHECKS)) / whole);
    Ok(numbers(parts.collect(), None, "of it"))
}
