//! The place where listeners are measured: a pair of devices, a daemon on one side, a sender on the other.

use super::listeners::{Listener, Running, Said};
use crate::case::CaseError;
use crate::process::{Cost, processor_time, softirqs};
use crate::setting::Setting;
use driver::Transmit;
use driver::af_packet::{Sender, SenderOptions};
use driver::namespace::Namespace;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use streamline::parser::protocol::ParserState;
use testkit::network::{End, Pair, may_make_networks};

/// Packets sent in one run; they all fit into the buffers where costs are compared.
const PACKETS: u64 = 400_000;

/// Packets sent in one run if no listener wants them. Listeners then cost little, so their starting must not count.
const UNWANTED_PACKETS: u64 = 1_600_000;

/// Rates to try if there are losses at full speed, packets a second.
const RATES: [u64; 6] = [0, 800_000, 500_000, 300_000, 200_000, 100_000];

/// Rates to try if all packets are parsed, for nine listeners on few processors.
const WEB_RATES: [u64; 4] = [300_000, 200_000, 100_000, 50_000];

/// Packets and rates if each packet decodes to several kilobytes.
const CODED_PACKETS: u64 = 20_000;
const CODED_RATES: [u64; 4] = [40_000, 20_000, 10_000, 5_000];

/// How long to send when losses are looked for; this is far more than buffers hold.
const TRIAL: Duration = Duration::from_secs(1);

/// Range of the search for the highest rate, packets a second, and the ratio at which it ends.
const SEARCHED: (f64, f64) = (5_000.0, 3_000_000.0);
const CLOSE_ENOUGH: f64 = 1.05;

/// A rate counts as free of loss after this number of runs without a loss; this number of runs with a loss ends the
/// attempt.
const SURE: usize = 3;

/// All programs are through when they have been idle for this long.
const QUIET: Duration = Duration::from_millis(40);

/// How long the kernel keeps a packet socket's last, partly filled block from a program: the time that the program
/// asked for (1 s), and a little more.
const BLOCK_TIMEOUT: Duration = Duration::from_millis(1100);

/// The place where listeners are measured.
pub struct Field {
    pair: Pair,
    daemon: Child,
    socket: PathBuf,
    scratch: tempfile::TempDir,
    streamline: PathBuf,
    bench: PathBuf,
    /// The stage that sends, the packets of one run, and the rates to try.
    stage: &'static str,
    packets: u64,
    rates: &'static [u64],
    /// The sender runs before anything else on its processor.
    urgent: bool,
    /// Kernel threads that may receive packets instead of the sender.
    softirqs: Vec<u32>,
}

impl Drop for Field {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> CaseError + '_ {
    move |error| CaseError::Failed(format!("{what}: {error}"))
}

impl Field {
    /// Makes the devices, and starts the daemon.
    pub fn new(setting: &Setting) -> Result<Field, CaseError> {
        if !may_make_networks() {
            return Err(CaseError::Missing("network namespaces cannot be made: run as root".into()));
        }
        let pair = Pair::new();
        let scratch = setting.output()?;
        let socket = scratch.path().join("control");
        let mut command = Command::new(&setting.streamline);
        command.arg("daemon").arg("--socket").arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = pair.near.namespace.enter(move || command.spawn()).map_err(failed("the namespace"))?;
        let daemon = daemon.map_err(failed("the daemon"))?;
        let field = Field {
            pair,
            daemon,
            socket,
            scratch,
            streamline: setting.streamline.clone(),
            bench: setting.bench.clone(),
            stage: "send",
            packets: PACKETS,
            rates: &RATES,
            urgent: false,
            softirqs: softirqs(),
        };
        let until = Instant::now() + Duration::from_secs(10);
        while !field.socket.exists() {
            if Instant::now() > until {
                return Err(CaseError::Failed("the daemon does not listen".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(field)
    }

    /// Like [`new`](Field::new), for packets that no listener wants.
    pub fn of_unwanted(setting: &Setting) -> Result<Field, CaseError> {
        let mut field = Field::new(setting)?;
        field.packets = UNWANTED_PACKETS;
        Ok(field)
    }

    /// Like [`new`](Field::new), with a sender that goes before all others on its processor. Then only the cost of each
    /// packet slows it.
    pub fn of_urgent(setting: &Setting) -> Result<Field, CaseError> {
        let mut field = Field::new(setting)?;
        field.urgent = true;
        Ok(field)
    }

    /// Like [`new`](Field::new), for web traffic: HTTP in one TCP connection, with bodies compressed (`coded`) or not.
    pub fn of_web(setting: &Setting, coded: bool) -> Result<Field, CaseError> {
        let mut field = Field::new(setting)?;
        (field.stage, field.rates) = ("web", &WEB_RATES);
        if coded {
            (field.stage, field.packets, field.rates) = ("web-gzip", CODED_PACKETS, &CODED_RATES);
        }
        Ok(field)
    }

    /// The state of the parser process. `None`: there is none.
    fn parser(&self) -> Option<ParserState> {
        let path = streamline::parser::socket(&self.socket).ok()?;
        streamline::parser::client::Client::connect(&path, "bench").ok()?.state().ok()
    }

    /// Packets that were lost before the parser process read them.
    fn lost_before_shared(&self) -> u64 {
        self.parser().map_or(0, |parser| parser.prefixes.iter().map(|prefix| prefix.lost).max().unwrap_or(0))
    }

    /// The highest rate at which all these sets of listeners get every packet; 0 = as fast as possible.
    pub fn common_rate(&self, sets: &[Vec<Listener>], frame_bytes: usize) -> Result<u64, CaseError> {
        'rates: for &rate in self.rates {
            let shown = if rate == 0 { "full speed".into() } else { format!("{rate} packets a second") };
            for listeners in std::iter::repeat_n(sets, SURE).flatten() {
                let lost = self.run(listeners, frame_bytes, rate, self.packets)?.lost;
                if lost > 0 {
                    eprintln!("  at {shown}, {} lost {lost}", shown_of(listeners));
                    continue 'rates;
                }
            }
            eprintln!("  at {shown}");
            return Ok(rate);
        }
        Err(CaseError::Failed("packets are lost even at the lowest rate".into()))
    }

    /// The name of the captured device.
    pub fn device(&self) -> &str {
        &self.pair.near.name
    }

    /// The captured end.
    pub fn near(&self) -> &End {
        &self.pair.near
    }

    /// The sending end.
    pub fn far(&self) -> &End {
        &self.pair.far
    }

    /// Starts a listener, and waits until it listens.
    pub fn start(&self, listener: &Listener) -> Result<Running, CaseError> {
        let mut command = listener.command(self.device(), &self.streamline, &self.socket, self.scratch.path());
        let child = self.pair.near.namespace.enter(move || command.spawn()).map_err(failed("the namespace"))?;
        listener.started(child.map_err(failed("a listener"))?)
    }

    /// Our program with this request, through the daemon.
    pub fn request(&self, request: &str) -> Command {
        let mut command = Command::new(&self.streamline);
        command.args(["run", "--quiet", "--stats", "none", "--daemon"]).arg(&self.socket).arg(request);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Seconds that the daemon has spent on a processor.
    pub fn daemon_time(&self) -> f64 {
        processor_time(self.daemon.id())
    }

    /// Starts to send `count` frames, until the sender ends.
    pub fn start_sending(&self, count: u64, frame_bytes: usize, rate: u64) -> Result<Sending, CaseError> {
        let mut command = self.sender(count, frame_bytes, rate);
        let child = self.pair.far.namespace.enter(move || command.spawn()).map_err(failed("the namespace"))?;
        child.map(Sending).map_err(failed("the sender"))
    }

    /// The highest rate, in packets a second, at which these listeners lose no packet for a second. It is the rate that
    /// the sender reached, since listeners that only slow it down lose nothing.
    pub fn highest_rate(&self, listeners: &[Listener], frame_bytes: usize) -> Result<f64, CaseError> {
        let rate_or_lost = |wanted: f64| -> Result<Result<f64, u64>, CaseError> {
            let count = (wanted * TRIAL.as_secs_f64()) as u64;
            let run = self.run(listeners, frame_bytes, wanted as u64, count)?;
            Ok(if run.lost == 0 { Ok(count as f64 / run.wall_s) } else { Err(run.lost) })
        };
        let (mut low, mut high) = SEARCHED;
        let mut best = rate_or_lost(low)?.map_err(|lost| {
            CaseError::Failed(format!("at {low} packets a second, {} lost {lost}", shown_of(listeners)))
        })?;
        while high / low > CLOSE_ENOUGH {
            let middle = (low * high).sqrt();
            match rate_or_lost(middle)? {
                Ok(rate) => (low, best) = (middle, best.max(rate)),
                Err(_) => high = middle,
            }
        }
        Ok(best)
    }

    /// Packets a second that a sender reaches beside these listeners if it should send at `rate`; 0 = as fast as
    /// possible.
    pub fn speed(&self, listeners: &[Listener], frame_bytes: usize, rate: u64) -> Result<f64, CaseError> {
        Ok(self.packets as f64 / self.run(listeners, frame_bytes, rate, self.packets)?.wall_s)
    }

    /// Packets of one run.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The cost of these listeners for one run's packets, beyond sending them.
    pub fn cost_of(&self, listeners: &[Listener], frame_bytes: usize, rate: u64) -> Result<Cost, String> {
        let told = |error| match error {
            CaseError::Missing(text) | CaseError::Failed(text) => text,
        };
        let mut lost = 0;
        for _ in 0..SURE {
            let without = self.run(&[], frame_bytes, rate, self.packets).map_err(told)?;
            let with = self.run(listeners, frame_bytes, rate, self.packets).map_err(told)?;
            if with.lost == 0 {
                return Ok(Cost { wall_s: with.wall_s, cpu_s: with.cpu_s - without.cpu_s });
            }
            // A run with losses has no meaning.
            lost += with.lost;
        }
        Err(format!("{lost} packets were lost in {SURE} runs"))
    }

    fn run(&self, listeners: &[Listener], frame_bytes: usize, rate: u64, packets: u64) -> Result<Run, CaseError> {
        let running = listeners.iter().map(|listener| self.start(listener)).collect::<Result<Vec<_>, _>>()?;
        let processes = running.iter().map(Running::id).chain([self.daemon.id()]);
        let processes = processes.chain(self.parser().and_then(|parser| u32::try_from(parser.process).ok()));
        let processes: Vec<u32> = processes.chain(self.softirqs.iter().copied()).collect();
        let all = || processes.iter().map(|process| processor_time(*process)).sum::<f64>();
        self.await_quiet(&all);
        let (before, received, lost_before) = (all(), self.received(), self.lost_before_shared());
        let began = Instant::now();
        let sent = self.send(packets, frame_bytes, rate)?;
        let wall_s = began.elapsed().as_secs_f64();
        if !listeners.is_empty() {
            std::thread::sleep(BLOCK_TIMEOUT);
        }
        self.await_quiet(&all);
        let cpu_s = all() - before + sent;
        let arrived = self.received() - received;
        if arrived != packets {
            return Err(CaseError::Failed(format!("{arrived} of {packets} packets arrived")));
        }
        // Ask before the listeners end.
        let lost_shared = self.lost_before_shared().saturating_sub(lost_before);
        let said: Vec<Said> = running.into_iter().map(Running::end).collect::<Result<_, _>>()?;
        let mut lost = said.iter().map(|said| said.dropped).sum::<u64>() + lost_shared;
        for (listener, said) in listeners.iter().zip(&said) {
            let Some(wanted) = listener.wanted(packets) else { continue };
            if said.captured + said.dropped < wanted {
                lost += wanted - said.captured - said.dropped;
            }
            if said.captured > wanted {
                return Err(CaseError::Failed(format!("a listener got {} packets of {wanted}", said.captured)));
            }
        }
        Ok(Run { wall_s, cpu_s, lost })
    }

    fn await_quiet(&self, all: &dyn Fn() -> f64) {
        let until = Instant::now() + Duration::from_secs(10);
        let mut last = all();
        while Instant::now() < until {
            std::thread::sleep(QUIET);
            let now = all();
            // A napping reader looks at its ring now and then.
            if now - last < 0.001 {
                return;
            }
            last = now;
        }
    }

    fn send(&self, packets: u64, frame_bytes: usize, rate: u64) -> Result<f64, CaseError> {
        let mut command = self.sender(packets, frame_bytes, rate);
        let usage = || nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
        let seconds = |usage: nix::sys::resource::Usage| {
            let of = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
            of(usage.user_time()) + of(usage.system_time())
        };
        let before = usage().map_err(|error| failed("processor time")(error.into()))?;
        let namespace = &self.pair.far.namespace;
        let status = namespace.enter(move || command.status()).map_err(failed("the namespace"))?;
        let after = usage().map_err(|error| failed("processor time")(error.into()))?;
        match status {
            Ok(status) if status.success() => Ok(seconds(after) - seconds(before)),
            Ok(_) => Err(CaseError::Failed("the sender failed".into())),
            Err(error) => Err(failed("the sender")(error)),
        }
    }

    fn sender(&self, packets: u64, frame_bytes: usize, rate: u64) -> Command {
        let mut command = match self.urgent {
            true => {
                let mut command = Command::new("nice");
                command.args(["-n", "-20"]).arg(&self.bench);
                command
            }
            false => Command::new(&self.bench),
        };
        command.args(["stage", self.stage, &self.pair.far.name]);
        command.args([packets, frame_bytes as u64, rate].map(|number| number.to_string()));
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    /// Packets that the near device has received.
    fn received(&self) -> u64 {
        self.pair.near.link().counters.get("rx_packets").unwrap_or(0)
    }
}

/// A running sender.
pub struct Sending(Child);

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number and kind of these listeners, for messages; all are of one kind.
fn shown_of(listeners: &[Listener]) -> String {
    listeners.first().map_or("no listeners".to_owned(), |listener| {
        format!("{} x {:?} {:?}", listeners.len(), listener.who, listener.program)
    })
}

struct Run {
    wall_s: f64,
    cpu_s: f64,
    lost: u64,
}

/// A frame length that stands for a mixture: seven frames of 64 bytes, four of 594 and one of 1,518, checksums
/// included. It is the "simple IMIX" of device tests (RFC 6985, section 1).
pub const MIXED: usize = 0;
const MIXTURE: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

/// The stage `send DEVICE COUNT BYTES RATE`: sends `count` frames of UDP in IPv4, pinned to the first processor. Every
/// hundredth goes to another port.
pub fn send(device: &str, count: u64, frame_bytes: usize, rate: u64) -> Result<(), String> {
    let lengths = if frame_bytes == MIXED { MIXTURE.to_vec() } else { vec![frame_bytes] };
    let frames: Vec<[Vec<u8>; 2]> = lengths.iter().map(|len| [0x1f91, 7777].map(|port| udp(*len, port))).collect();
    send_each(device, count, rate, |number, to| {
        to.clear();
        let frame = &frames[(number % frames.len() as u64) as usize];
        to.extend_from_slice(&frame[usize::from(number.is_multiple_of(100))]);
    })
}

/// A frame to an address that no host has: the stack on the other side drops it as soon as it has seen the address.
fn udp(frame_bytes: usize, port: u16) -> Vec<u8> {
    let mut frame = vec![0u8; frame_bytes.max(60)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    let ip = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&ip.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..36].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x1f, 0x90]);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip - 20).to_be_bytes());
    frame
}

/// Sends `count` frames, pinned to the first processor; `write` writes the frame with the given number.
pub(crate) fn send_each(device: &str, count: u64, rate: u64, write: impl Fn(u64, &mut Vec<u8>)) -> Result<(), String> {
    let told = |error: driver::Error| error.to_string();
    crate::process::pin(0)?;
    let namespace = Namespace::current().map_err(|error| error.to_string())?;
    let mut sender = Sender::open(&namespace, device, SenderOptions::default()).map_err(told)?;
    let mut frames: [Vec<u8>; 64] = std::array::from_fn(|_| Vec::new());
    let began = Instant::now();
    let mut sent = 0;
    while sent < count {
        (sent..).zip(&mut frames).for_each(|(number, frame)| write(number, frame));
        let batch: [&[u8]; 64] = std::array::from_fn(|at| frames[at].as_slice());
        let most = (count - sent).min(64) as usize;
        match sender.transmit(&batch[..most]).map_err(told)? {
            driver::Turn::Frames(taken) => sent += taken as u64,
            driver::Turn::Nothing => drop(sender.wait_for_room(Duration::from_millis(10)).map_err(told)?),
            driver::Turn::Down => return Err(format!("{device} is down")),
        }
        // At full speed, which is rate 0, each frame is due now.
        let due = Duration::from_nanos((sent * 1_000_000_000).checked_div(rate).unwrap_or(0));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok(())
}
