//! The devices: virtual pairs between two namespaces. The measured program works in one namespace; the sender and the
//! sink are in the other. The sink is an XDP program that drops, so that arrival costs as little as possible; its
//! device counts the frames.

use crate::case::CaseError;
use crate::process::{processor_time, softirqs};
use crate::setting::Setting;
use bpf::{Instruction, MapKind};
use driver::namespace::Namespace;
use driver::pair::{End, Pair, quiet_namespace};
use nix::sys::resource::{UsageWho, getrusage};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a frame without its check sequence: 64 on the wire.
pub const FRAME_BYTES: usize = 60;

const TRIAL: Duration = Duration::from_millis(300);
/// A trial ends when no frame came for this time.
const QUIET: Duration = Duration::from_millis(60);
/// Range of the search for the highest rate, frames a second, and the ratio at which it ends.
const SEARCHED: (f64, f64) = (10_000.0, 6_000_000.0);
const CLOSE_ENOUGH: f64 = 1.05;
/// A rate fails after this number of trials with a loss; in one of them another program may have had the processor.
const TRIALS: usize = 2;

/// The devices.
pub struct Bed {
    /// The namespace of the measured program.
    pub here: Namespace,
    /// The device on which the measured program receives.
    pub input: End,
    /// The device on which the measured program sends. `None`: it does not forward.
    pub output: Option<End>,
    /// The sender's device.
    pub sender: End,
    /// The device on which forwarded frames arrive. `None`: no frames are forwarded.
    receiver: Option<End>,
    /// A folder for files of measured programs.
    pub scratch: tempfile::TempDir,
    bench: PathBuf,
    softirqs: Vec<u32>,
    _sink: Option<bpf::Link>,
}

/// The result of a trial.
pub struct Trial {
    /// Frames a second that the sender reached.
    pub rate: f64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Processor time of the sender, of softirqs, and of the given processes, in s.
    pub cpu_s: f64,
    /// Frames that were sent.
    pub frames: u64,
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> CaseError + '_ {
    move |error| CaseError::Failed(format!("{what}: {error}"))
}

/// An instruction: operation, registers, offset and constant, in the kernel's form.
pub const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers, offset, immediate }
}

const EXIT: Instruction = instruction(0x95, 0, 0, 0);

/// The barest program that drops: `return XDP_DROP`.
pub fn drop_all(end: &End) -> Result<bpf::Link, CaseError> {
    let code = [instruction(0xb7, 0, 0, 1), EXIT];
    attach(end, &code)
}

/// The barest program that forwards: `return bpf_redirect_map(devices, 0, XDP_DROP)`.
pub fn redirect_all(from: &End, to: &End) -> Result<bpf::Link, CaseError> {
    let map = from.namespace.enter(|| {
        let map = bpf::create_map(MapKind::Devices, "bench_devices", 4, 1, 0)?;
        bpf::update(map.as_fd(), 0, &to.index.to_ne_bytes())?;
        Ok::<OwnedFd, std::io::Error>(map)
    });
    let map = map.and_then(|map| map).map_err(failed("a map of devices"))?;
    let code = [
        // r1 = devices, in two parts; r2 = 0; r3 = XDP_DROP
        instruction(0x18, 1 | 1 << 4, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0),
        instruction(0xb7, 2, 0, 0),
        instruction(0xb7, 3, 0, 1),
        // bpf_redirect_map
        instruction(0x85, 0, 0, 51),
        EXIT,
    ];
    attach(from, &code)
}

/// Attaches a program to a device.
pub fn attach(end: &End, code: &[Instruction]) -> Result<bpf::Link, CaseError> {
    let attach = || {
        let program = bpf::load_xdp("bench", code).map_err(|refused| refused.error)?;
        bpf::Link::attach_xdp(program.as_fd(), end.index, false)
    };
    end.namespace.enter(attach).and_then(|link| link).map_err(failed("an XDP program"))
}

impl Bed {
    /// Two pairs: frames that come by one have to go out by the other.
    pub fn to_forward(setting: &Setting) -> Result<Bed, CaseError> {
        Bed::new(setting, true)
    }

    /// One pair: incoming frames have to be dropped, or sent from the other end.
    pub fn of_one_pair(setting: &Setting) -> Result<Bed, CaseError> {
        Bed::new(setting, false)
    }

    fn new(setting: &Setting, forwards: bool) -> Result<Bed, CaseError> {
        let no_rights = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                CaseError::Missing("network namespaces cannot be made: run as root".to_owned())
            }
            _ => CaseError::Failed(format!("namespaces: {error}")),
        };
        let (here, there) = (quiet_namespace().map_err(no_rights)?, quiet_namespace().map_err(no_rights)?);
        let pair = |near: &str, far: &str| Pair::named([(&here, near), (&there, far)], 1).map_err(failed("a pair"));
        let first = pair("in", "sender")?;
        let second = if forwards { Some(pair("out", "receiver")?) } else { None };
        let sink = second.as_ref().map(|pair| drop_all(&pair.far)).transpose()?;
        let (output, receiver) = second.map(|pair| (pair.near, pair.far)).unzip();
        Ok(Bed {
            input: first.near,
            sender: first.far,
            output,
            receiver,
            here,
            scratch: setting.output()?,
            bench: setting.bench.clone(),
            softirqs: softirqs(),
            _sink: sink,
        })
    }

    fn sink(&self) -> &End {
        self.receiver.as_ref().unwrap_or(&self.input)
    }

    /// Kernel threads that may receive instead of the sender.
    pub fn softirqs(&self) -> &[u32] {
        &self.softirqs
    }

    /// Frames that have arrived since the devices were made.
    pub fn arrived(&self) -> Result<u64, CaseError> {
        let link = self.sink().link().map_err(failed("the sink"))?;
        Ok(link.counters.get("rx_packets").unwrap_or(0))
    }

    /// Sends `count` frames of 64 bytes at `rate` frames a second (0 = as fast as possible). Gives the sender's
    /// processor time, in s.
    pub fn send(&self, count: u64, rate: u64) -> Result<f64, CaseError> {
        let mut command = Command::new(&self.bench);
        command.args(["stage", "send", &self.sender.name]);
        command.args([count, FRAME_BYTES as u64, rate].map(|number| number.to_string()));
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let before = children_seconds()?;
        let status = self.sender.namespace.enter(move || command.status()).and_then(|status| status);
        if status.map_err(failed("the sender"))?.success() {
            Ok(children_seconds()? - before)
        } else {
            Err(CaseError::Failed("the sender failed".to_owned()))
        }
    }

    /// Sends for a time, and counts the frames that arrive; includes the processor time of these processes.
    pub fn trial(&self, rate: f64, time: Duration, processes: &[u32]) -> Result<Trial, CaseError> {
        let all = || processes.iter().chain(&self.softirqs).map(|process| processor_time(*process)).sum::<f64>();
        let frames = ((rate * time.as_secs_f64()) as u64).max(1);
        let (before, cpu_before) = (self.arrived()?, all());
        let began = Instant::now();
        let sender_s = self.send(frames, rate as u64)?;
        let took = began.elapsed().as_secs_f64();
        let mut last = (self.arrived()?, Instant::now());
        while last.0 - before < frames && last.1.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.arrived()?;
            if now > last.0 {
                last = (now, Instant::now());
            }
        }
        let cpu_s = all() - cpu_before + sender_s;
        match frames.checked_sub(last.0 - before) {
            Some(lost) => Ok(Trial { rate: frames as f64 / took, lost, cpu_s, frames }),
            None => Err(CaseError::Failed(format!("{} frames came of {frames}", last.0 - before))),
        }
    }

    /// The highest rate at which all frames are forwarded; see [`highest`].
    pub fn highest_forwarded(&self) -> Result<f64, CaseError> {
        highest(|rate| self.trial(rate, TRIAL, &[]))
    }

    /// Frames a second that the sender reaches if a program drops them at once.
    pub fn sender_alone(&self) -> Result<f64, CaseError> {
        let _drop = drop_all(&self.input)?;
        let mut rates = Vec::new();
        for _ in 0..3 {
            let (frames, began) = (1_000_000, Instant::now());
            self.send(frames, 0)?;
            rates.push(frames as f64 / began.elapsed().as_secs_f64());
        }
        Ok(crate::measure::median(&rates))
    }

    /// Processor time of the sender alone at this rate, in s for each frame.
    pub fn sending(&self, rate: f64) -> Result<f64, CaseError> {
        let _drop = drop_all(&self.input)?;
        let frames = rate.max(1.0) as u64;
        let all = || self.softirqs.iter().map(|process| processor_time(*process)).sum::<f64>();
        let before = all();
        let sender_s = self.send(frames, rate as u64)?;
        Ok((all() - before + sender_s) / frames as f64)
    }
}

/// The highest rate without a loss, in frames a second, by bisection; 0 if frames are lost even at the lowest.
pub fn highest(trial: impl Fn(f64) -> Result<Trial, CaseError>) -> Result<f64, CaseError> {
    // The rate that the sender reached, if no frame was lost.
    let free = |rate: f64| -> Result<Option<f64>, CaseError> {
        for _ in 0..TRIALS {
            let trial = trial(rate)?;
            if trial.lost == 0 {
                return Ok(Some(trial.rate));
            }
        }
        Ok(None)
    };
    let (mut low, mut high) = SEARCHED;
    let Some(mut best) = free(low)? else { return Ok(0.0) };
    while high / low > CLOSE_ENOUGH {
        let middle = (low * high).sqrt();
        match free(middle)? {
            // A sender that does not reach this rate reaches no higher one.
            Some(rate) if rate < 0.9 * middle => return Ok(best.max(rate)),
            Some(rate) => (low, best) = (middle, best.max(rate)),
            None => high = middle,
        }
    }
    Ok(best)
}

/// Processor time of all children that were waited for, in s.
pub fn children_seconds() -> Result<f64, CaseError> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| failed("getrusage")(error.into()))?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
