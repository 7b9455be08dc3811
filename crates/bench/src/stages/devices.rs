//! Frames of 64 bytes that are sent, forwarded and dropped, on virtual pairs.
//!
//! Rates are the highest without a loss, by bisection, counted where frames arrive. A row about forwarding in user
//! space counts only if the same sender, into a program that drops, reaches 1.5 times the forwarded rate. Otherwise the
//! row says `sender-bound`.

use super::bed::{self, Bed, Trial, drop_all};
use super::subjects::{self, Forwarder, Wait, pinned};
use crate::case::{Case, CaseError, How, Numbers};
use crate::machine::{TCPREPLAY, TRAFGEN};
use crate::measure::{Effort, median};
use crate::packets::PcapWriter;
use crate::process::processor_time;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

/// A row counts if the sender alone reaches this multiple of the forwarded rate.
const FASTER: f64 = 1.5;
const SENDER_BOUND: &str = "sender-bound";
/// How long a trial sends when losses or processor times are measured.
const LONG: Duration = Duration::from_secs(1);
/// How long a sender is measured, and how long it sends before.
const WINDOW: Duration = Duration::from_millis(500);
const WARM: Duration = Duration::from_millis(500);
const READY: Duration = Duration::from_secs(10);

const fn row(
    about: &'static str,
    against: &'static str,
    goal: Goal,
    numbers: fn(&Setting) -> Result<Numbers, CaseError>,
) -> Case {
    Case { about, against, goal, touched: Touched::Copy, how: How::Numbers(numbers) }
}

/// How often each is measured; a search takes some seconds.
fn rounds(setting: &Setting) -> usize {
    if setting.effort == Effort::Quick { 1 } else { 5 }
}

const BUSY: Forwarder = Forwarder::User(Wait::Busy);
const ASLEEP: Forwarder = Forwarder::User(Wait::Sleep);
const TESTPMD: &[Forwarder] = &[Forwarder::TestpmdPacket, Forwarder::TestpmdXdp];

/// The rows.
pub static CASES: &[Case] = &[
    row("generate 64 B, frames that arrive", "trafgen", Goal::AtLeast(1.0, 1.3), |setting| {
        generated(setting, Generator::Trafgen, |seen| seen.rate / 1000.0, "kpps")
    }),
    row("generate 64 B, frames that arrive", "tcpreplay", Goal::AtLeast(1.3, 2.0), |setting| {
        generated(setting, Generator::Tcpreplay, |seen| seen.rate / 1000.0, "kpps")
    }),
    row("generate 64 B, processor time a frame", "trafgen", Goal::Reported, |setting| {
        generated(setting, Generator::Trafgen, |seen| seen.cpu_ns, "ns")
    }),
    row(
        "forward 64 B in user space, busy, loss-free",
        "the better of testpmd's af_packet and af_xdp",
        Goal::AtLeast(0.95, 1.1),
        |setting| forwarded(setting, BUSY, TESTPMD, true),
    ),
    row("forward 64 B in user space, asleep, loss-free", "netsniff-ng", Goal::AtLeast(2.0, 2.0), |setting| {
        forwarded(setting, ASLEEP, &[Forwarder::Netsniff], true)
    }),
    row("frames lost at 0.9 of testpmd's af_xdp rate, busy", "-", Goal::AtMost(0.0, 0.0), lost_below_testpmd),
    row("forward 64 B in user space, busy, processor time a frame", "testpmd's af_packet", Goal::Reported, |setting| {
        cost_of(setting, BUSY, Forwarder::TestpmdPacket)
    }),
    row("forward 64 B in user space, asleep, processor time a frame", "testpmd's af_xdp", Goal::Reported, |setting| {
        cost_of(setting, ASLEEP, Forwarder::TestpmdXdp)
    }),
    row(
        "forward 64 B in the kernel, loss-free",
        "the barest XDP program that redirects",
        Goal::AtLeast(0.9, 0.97),
        |setting| forwarded(setting, Forwarder::Kernel, &[Forwarder::Redirect], false),
    ),
    row("forward 64 B in the kernel, loss-free", "Linux bridge", Goal::AtLeast(2.0, 3.0), |setting| {
        forwarded(setting, Forwarder::Kernel, &[Forwarder::Bridge], false)
    }),
    row("forward 64 B in the kernel, processor time a frame", "Linux bridge", Goal::Reported, |setting| {
        cost_of(setting, Forwarder::Kernel, Forwarder::Bridge)
    }),
    row(
        "64 B to an unmatched MAC, `ethernet a mode=consume | drop`, busy, loss-free",
        "the kernel drops it in its own stack",
        Goal::AtLeast(0.95, 1.1),
        |setting| dropped(setting, Some(Wait::Busy)),
    ),
    row(
        "64 B to an unmatched MAC, `ethernet a mode=consume | drop`, asleep, loss-free",
        "the kernel drops it in its own stack",
        Goal::Reported,
        |setting| dropped(setting, Some(Wait::Sleep)),
    ),
    row(
        "64 B to an unmatched MAC, an XDP program that drops",
        "the kernel drops it in its own stack",
        Goal::Reported,
        |setting| dropped(setting, None),
    ),
];

// --- forwarding -----------------------------------------------------------------------------------------------------

/// The highest rates, in thousands of frames a second; `bound`: the sender has to be faster.
fn forwarded(setting: &Setting, ours: Forwarder, peers: &[Forwarder], bound: bool) -> Result<Numbers, CaseError> {
    let bed = Bed::to_forward(setting)?;
    let highest = |forwarder: Forwarder| -> Result<f64, CaseError> {
        let _running = forwarder.start(setting, &bed)?;
        let rate = bed.highest_forwarded()? / 1000.0;
        eprintln!("  {}: {rate:.0} kpps", forwarder.name());
        Ok(rate)
    };
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "kpps", void: None };
    // Peers that work here. A peer that does not is reported once.
    let mut able = Vec::new();
    let mut why = None;
    for peer in peers {
        match peer.start(setting, &bed) {
            Ok(_) => able.push(*peer),
            Err(error) => {
                eprintln!("  {}: {error:?}", peer.name());
                why = Some(error);
            }
        }
    }
    if let (true, Some(why)) = (able.is_empty(), why) {
        return Err(why);
    }
    for round in 0..rounds(setting) {
        let ours_first = if round % 2 == 0 { Some(highest(ours)?) } else { None };
        let mut best = 0.0f64;
        for peer in &able {
            best = best.max(highest(*peer)?);
        }
        numbers.ours.push(match ours_first {
            Some(rate) => rate,
            None => highest(ours)?,
        });
        numbers.peer.get_or_insert_default().push(best);
    }
    let sender = bed.sender_alone()? / 1000.0;
    eprintln!("  the sender alone: {sender:.0} kpps");
    let fastest = median(&numbers.ours).max(median(numbers.peer.as_deref().unwrap_or(&[])));
    numbers.void = (bound && sender < FASTER * fastest).then_some(SENDER_BOUND);
    Ok(numbers)
}

/// Frames that ours loses in a second, at nine tenths of the rate at which testpmd's af_xdp loses none.
fn lost_below_testpmd(setting: &Setting) -> Result<Numbers, CaseError> {
    let bed = Bed::to_forward(setting)?;
    let rate = {
        let _running = Forwarder::TestpmdXdp.start(setting, &bed)?;
        0.9 * bed.highest_forwarded()?
    };
    eprintln!("  at {rate:.0} frames a second");
    let _running = BUSY.start(setting, &bed)?;
    let lost = |_| bed.trial(rate, LONG, &[]).map(|trial| trial.lost as f64);
    let ours = (0..rounds(setting)).map(lost).collect::<Result<Vec<f64>, _>>()?;
    Ok(Numbers { ours, peer: None, unit: "frames", void: None })
}

/// Processor time for each frame beyond sending it, in ns, at half the rate at which both lose none.
fn cost_of(setting: &Setting, ours: Forwarder, peer: Forwarder) -> Result<Numbers, CaseError> {
    let bed = Bed::to_forward(setting)?;
    let mut rate = f64::INFINITY;
    for forwarder in [ours, peer] {
        let _running = forwarder.start(setting, &bed)?;
        rate = rate.min(0.5 * bed.highest_forwarded()?);
    }
    eprintln!("  at {rate:.0} frames a second");
    let cost = |forwarder: Forwarder| -> Result<f64, CaseError> {
        let alone = bed.sending(rate)?;
        let running = forwarder.start(setting, &bed)?;
        let trial = bed.trial(rate, LONG, &running.processes())?;
        Ok((trial.cpu_s / trial.frames as f64 - alone) * 1e9)
    };
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "ns", void: None };
    for _ in 0..rounds(setting) {
        numbers.ours.push(cost(ours)?);
        numbers.peer.get_or_insert_default().push(cost(peer)?);
    }
    Ok(numbers)
}

// --- generating -----------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq)]
enum Generator {
    Ours,
    Trafgen,
    Tcpreplay,
}

struct Seen {
    rate: f64,
    /// Processor time of the sender and the softirq threads for each frame, in ns.
    cpu_ns: f64,
}

impl Generator {
    /// Sends on the device `sender` until it is ended.
    fn command(self, setting: &Setting, bed: &Bed) -> Result<Command, CaseError> {
        let file = |name: &str| bed.scratch.path().join(name);
        let text = |error: std::io::Error| CaseError::Failed(format!("a file of frames: {error}"));
        Ok(match self {
            Generator::Ours => subjects::request(setting, "generate size=60 | send sender"),
            Generator::Trafgen => {
                let path = file("frames.cfg");
                let config = "{ 2,0,0,0,0,9, 2,0,0,0,0,1, 8,0, 0x45,0, 0,46, 0,0, 0,0, 64,17, 0,0, 10,0,0,1, 10,0,0,2, \
                              0x1f,0x90, 0x1e,0x61, 0,26, 0,0, fill(0, 18) }\n";
                std::fs::write(&path, config).map_err(text)?;
                let mut command = pinned(&TRAFGEN.find().map_err(CaseError::Missing)?);
                command.args(["--dev", "sender", "--cpus", "1", "--in"]).arg(path);
                command
            }
            Generator::Tcpreplay => {
                let path = file("frames.pcap");
                let mut writer = PcapWriter::new(std::fs::File::create(&path).map_err(text)?).map_err(text)?;
                let ends = [(Ipv4Addr::new(10, 0, 0, 1), 8080), (Ipv4Addr::new(10, 0, 0, 2), 7777)];
                for _ in 0..1000 {
                    writer.udp(ends, &[0; 18]).map_err(text)?;
                }
                writer.finish().map_err(text)?;
                let mut command = pinned(&TCPREPLAY.find().map_err(CaseError::Missing)?);
                command.args(["--intf1=sender", "--topspeed", "--loop=0", "--preload-pcap", "--quiet"]).arg(path);
                command
            }
        })
    }

    fn run(self, setting: &Setting, bed: &Bed) -> Result<Seen, CaseError> {
        let running = subjects::start_sending(bed, self.command(setting, bed)?)?;
        std::thread::sleep(WARM);
        let time =
            || running.processes().iter().chain(bed.softirqs()).map(|process| processor_time(*process)).sum::<f64>();
        let (began, arrived, cpu) = (Instant::now(), bed.arrived()?, time());
        std::thread::sleep(WINDOW);
        let (took, frames, cpu_s) = (began.elapsed().as_secs_f64(), bed.arrived()? - arrived, time() - cpu);
        if frames == 0 {
            return Err(CaseError::Failed(format!("a sender sent nothing: {}", subjects::said(bed))));
        }
        Ok(Seen { rate: frames as f64 / took, cpu_ns: cpu_s * 1e9 / frames as f64 })
    }
}

fn generated(
    setting: &Setting,
    peer: Generator,
    number: fn(Seen) -> f64,
    unit: &'static str,
) -> Result<Numbers, CaseError> {
    let bed = Bed::of_one_pair(setting)?;
    let _drop = drop_all(&bed.input)?;
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit, void: None };
    for _ in 0..rounds(setting) {
        numbers.ours.push(number(Generator::Ours.run(setting, &bed)?));
        numbers.peer.get_or_insert_default().push(number(peer.run(setting, &bed)?));
    }
    Ok(numbers)
}

// --- dropping -------------------------------------------------------------------------------------------------------

/// The highest rate at which all frames are dropped in the right place, and that of the kernel's stack. `ours`: our way
/// to wait; `None`: a bare program drops.
fn dropped(setting: &Setting, ours: Option<Wait>) -> Result<Numbers, CaseError> {
    let bed = Bed::of_one_pair(setting)?;
    let time = Duration::from_millis(300);
    let in_stack = || {
        bed::highest(|rate| {
            let before = backlog_dropped();
            let trial = bed.trial(rate, time, &[])?;
            Ok(Trial { lost: trial.lost + backlog_dropped() - before, ..trial })
        })
    };
    let by_ours = || match ours {
        Some(wait) => bed::highest(|rate| consumed(setting, &bed, wait, rate, time)),
        None => {
            let _drop = drop_all(&bed.input)?;
            bed::highest(|rate| bed.trial(rate, time, &[]))
        }
    };
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "kpps", void: None };
    for _ in 0..rounds(setting) {
        numbers.ours.push(by_ours()? / 1000.0);
        numbers.peer.get_or_insert_default().push(in_stack()? / 1000.0);
    }
    Ok(numbers)
}

/// Frames that the kernel dropped because a processor's queue was full.
fn backlog_dropped() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(second).sum()
}

/// Sends at a rate while a request takes all frames away and drops them. Frames that it did not drop are lost.
fn consumed(setting: &Setting, bed: &Bed, wait: Wait, rate: f64, time: Duration) -> Result<Trial, CaseError> {
    let counts = bed.scratch.path().join("counts.json");
    let text = format!("{}ethernet in mode=consume everything=yes | drop", wait.setting());
    let mut command = pinned(&setting.streamline);
    command.args(["run", "--quiet", "--stats", "json", "--stats-file"]).arg(&counts).arg(text);
    let mut running = subjects::start(bed, command)?;
    let until = Instant::now() + READY;
    // The request attaches its program once its rings are ready.
    while bed.input.link().is_ok_and(|link| link.xdp.is_none()) {
        if Instant::now() > until {
            return Err(CaseError::Failed(format!("nothing takes frames away: {}", subjects::said(bed))));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(50));
    let trial = bed.trial(rate, time, &[])?;
    running.end();
    let counted = std::fs::read_to_string(&counts).map_err(|error| CaseError::Failed(error.to_string()))?;
    let counted: serde_json::Value =
        serde_json::from_str(&counted).map_err(|error| CaseError::Failed(error.to_string()))?;
    let filters = counted["filters"].as_array().and_then(|filters| filters.last());
    let taken = filters.and_then(|filter| filter["blocks_taken"].as_u64()).unwrap_or(0);
    Ok(Trial { lost: trial.frames.saturating_sub(taken), ..trial })
}
