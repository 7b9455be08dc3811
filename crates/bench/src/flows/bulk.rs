//! TCP over one connection, as fast as it goes: to the kernel's sockets at the far end and from them, against the
//! kernel's own TCP. The receiver checks every byte.

use super::bed::{Bed, Whose};
use super::part::{Part, count, failed};
use super::{blocks, in_turns, numbers, remembered, row};
use crate::case::{Case, CaseError, Numbers};
use crate::setting::Setting;
use crate::table::Goal;
use driver::pair::End;
use std::sync::OnceLock;

/// The port of the server at the far end.
pub const PORT: &str = "5301";
/// The server's address and port.
pub const FAR: &str = "10.0.0.1:5301";
/// How long a run sends, ms.
const RUN_MS: &str = "600";

/// The rows.
pub static CASES: &[Case] = &[
    row("bulk TCP, sent by one connection", "the kernel's", Goal::AtLeast(0.35, 0.6), |setting| {
        sent(setting).map(Seen::rates)
    }),
    row("bulk TCP, received by one connection", "the kernel's", Goal::AtLeast(0.35, 0.6), |setting| {
        received(setting).map(Seen::rates)
    }),
    row("bulk TCP, sent: processor time of 1,500 bytes, both ends", "the kernel's", Goal::Reported, |setting| {
        sent(setting).map(Seen::times)
    }),
    row("bulk TCP, received: processor time of 1,500 bytes, both ends", "the kernel's", Goal::Reported, |setting| {
        received(setting).map(Seen::times)
    }),
];

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Gb/s.
    pub rate: f64,
    /// ns of all processors for 1,500 bytes.
    time: f64,
}

/// The runs of ours, and of the kernel.
#[derive(Clone, Debug)]
struct Seen([Vec<Run>; 2]);

impl Seen {
    fn of(self, number: fn(&Run) -> f64, unit: &'static str) -> Numbers {
        let [ours, kernel] = self.0.map(|runs| runs.iter().map(number).collect());
        numbers(ours, Some(kernel), unit)
    }

    fn rates(self) -> Numbers {
        self.of(|run| run.rate, "Gb/s")
    }

    fn times(self) -> Numbers {
        self.of(|run| run.time, "ns")
    }
}

fn sent(setting: &Setting) -> Result<Seen, CaseError> {
    static SEEN: OnceLock<Result<Seen, CaseError>> = OnceLock::new();
    remembered(&SEEN, || measured(setting, "send"))
}

fn received(setting: &Setting) -> Result<Seen, CaseError> {
    static SEEN: OnceLock<Result<Seen, CaseError>> = OnceLock::new();
    remembered(&SEEN, || measured(setting, "receive"))
}

fn measured(setting: &Setting, role: &str) -> Result<Seen, CaseError> {
    let bed = Bed::new(setting, None)?;
    in_turns(blocks(setting), |whose| run(&bed, (bed.near(whose), whose), (bed.far(whose), FAR), role)).map(Seen)
}

/// One run, to or from a kernel server; `to` is the server's address as the client sees it.
pub fn run(bed: &Bed, (near, whose): (&End, Whose), (far, to): (&End, &str), role: &str) -> Result<Run, CaseError> {
    let mut server = bed.tcp(far, Whose::Kernel, &["serve", PORT], None)?;
    let mut client = bed.tcp(near, whose, &[role, to, RUN_MS], None)?;
    // Both ends, the daemon, and the kernel's threads.
    let time = |parts: [&mut Part; 2]| -> Result<f64, CaseError> {
        parts.into_iter().try_fold(bed.processor_time(&[]), |sum, part| Ok(sum + part.processor_time()?))
    };
    let before = time([&mut server, &mut client])?;
    client.go()?;
    let said = client.finish()?;
    let spent = time([&mut server, &mut client])? - before;
    let bytes = count(&said, "bytes")? as f64;
    let seconds = said["seconds"].as_f64().ok_or_else(|| failed(format!("a part said `{said}`")))?;
    Ok(Run { rate: bytes * 8.0 / seconds / 1e9, time: spent * 1e9 / bytes * 1500.0 })
}
