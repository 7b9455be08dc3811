//! Where listeners are measured: a pair of devices, a daemon on one side of it, a sender on the other.

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

/// Packets sent in one run: all of them fit into the buffers where costs are compared.
const PACKETS: u64 = 400_000;

/// The same where nobody wants any: what listeners cost then is little, and none of it is for their starting.
const UNWANTED_PACKETS: u64 = 1_600_000;

/// Rates tried where there are losses at full speed, packets a second.
const RATES: [u64; 6] = [0, 800_000, 500_000, 300_000, 200_000, 100_000];

/// The same where everything is parsed, and read by nine on few processors.
const WEB_RATES: [u64; 4] = [300_000, 200_000, 100_000, 50_000];

/// And where each packet holds several kilobytes once it is decoded.
const CODED_PACKETS: u64 = 20_000;
const CODED_RATES: [u64; 4] = [40_000, 20_000, 10_000, 5_000];

/// How long is sent to see whether anything is lost: buffers are far smaller than what is sent.
const TRIAL: Duration = Duration::from_secs(1);

/// Rates the highest is looked for between, packets a second, and how close is close enough.
const SEARCHED: (f64, f64) = (5_000.0, 3_000_000.0);
const CLOSE_ENOUGH: f64 = 1.05;

/// A rate is free of loss when so many runs were; so many runs with a loss are given up.
const SURE: usize = 3;

/// Everybody is through when nothing was done for so long.
const QUIET: Duration = Duration::from_millis(40);

/// The kernel gives a packet socket's last block, which is not full, to a program after this long: what the program asked
/// for (1 s) and some more.
const BLOCK_TIMEOUT: Duration = Duration::from_millis(1100);

/// Where listeners are measured.
pub struct Field {
    pair: Pair,
    daemon: Child,
    socket: PathBuf,
    scratch: tempfile::TempDir,
    streamline: PathBuf,
    bench: PathBuf,
    /// Which of the bench's stages sends, how many packets in one run, and at which rates it is tried.
    stage: &'static str,
    packets: u64,
    rates: &'static [u64],
    /// What is sent goes before whatever else the processor has to do.
    urgent: bool,
    /// Threads of the kernel that receive packets in the place of who sent them.
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

    /// The same; nobody wants what is sent.
    pub fn of_unwanted(setting: &Setting) -> Result<Field, CaseError> {
        let mut field = Field::new(setting)?;
        field.packets = UNWANTED_PACKETS;
        Ok(field)
    }

    /// The same; the sender has its processor before all others, so that what slows it is what each packet costs.
    pub fn of_urgent(setting: &Setting) -> Result<Field, CaseError> {
        let mut field = Field::new(setting)?;
        field.urgent = true;
        Ok(field)
    }

    /// The same; what is sent is the web's: HTTP in one TCP connection, its bodies compressed or not.
    pub fn of_web(setting: &Setting, coded: bool) -> Result<Field, CaseError> {
        let mut field = Field::new(setting)?;
        (field.stage, field.rates) = ("web", &WEB_RATES);
        if coded {
            (field.stage, field.packets, field.rates) = ("web-gzip", CODED_PACKETS, &CODED_RATES);
        }
        Ok(field)
    }

    /// The process that runs filters for several requests, where there is one.
    fn parser(&self) -> Option<ParserState> {
        let path = streamline::parser::socket(&self.socket).ok()?;
        streamline::parser::client::Client::connect(&path, "bench").ok()?.state().ok()
    }

    /// Packets that were lost before anything shared looked at them.
    fn lost_before_shared(&self) -> u64 {
        self.parser().map_or(0, |parser| parser.prefixes.iter().map(|prefix| prefix.lost).max().unwrap_or(0))
    }

    /// The highest rate at which none of these sets of listeners loses a packet; 0 is as fast as can be.
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

    /// The device that is captured.
    pub fn device(&self) -> &str {
        &self.pair.near.name
    }

    /// The end that is captured.
    pub fn near(&self) -> &End {
        &self.pair.near
    }

    /// The end that sends.
    pub fn far(&self) -> &End {
        &self.pair.far
    }

    /// Starts a listener, and waits until it listens.
    pub fn start(&self, listener: &Listener) -> Result<Running, CaseError> {
        let mut command = listener.command(self.device(), &self.streamline, &self.socket, self.scratch.path());
        let child = self.pair.near.namespace.enter(move || command.spawn()).map_err(failed("the namespace"))?;
        listener.started(child.map_err(failed("a listener"))?)
    }

    /// Our own program with this request, through the daemon.
    pub fn request(&self, request: &str) -> Command {
        let mut command = Command::new(&self.streamline);
        command.args(["run", "--quiet", "--stats", "none", "--daemon"]).arg(&self.socket).arg(request);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Seconds the daemon was on a processor so far.
    pub fn daemon_time(&self) -> f64 {
        processor_time(self.daemon.id())
    }

    /// Starts sending so many frames; they are sent until the process ends.
    pub fn start_sending(&self, count: u64, frame_bytes: usize, rate: u64) -> Result<Sending, CaseError> {
        let mut command = self.sender(count, frame_bytes, rate);
        let child = self.pair.far.namespace.enter(move || command.spawn()).map_err(failed("the namespace"))?;
        child.map(Sending).map_err(failed("the sender"))
    }

    /// The highest rate, in packets a second, at which these listeners lose nothing for a second: what the sender came to, for
    /// listeners that slow it down lose nothing by that.
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

    /// Packets a second that a sender comes to beside these listeners which is to send so many; 0 is as fast as it can.
    pub fn speed(&self, listeners: &[Listener], frame_bytes: usize, rate: u64) -> Result<f64, CaseError> {
        Ok(self.packets as f64 / self.run(listeners, frame_bytes, rate, self.packets)?.wall_s)
    }

    /// Packets sent in one run.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// What these listeners cost for so many packets, beyond sending them.
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
            // A run with losses says nothing.
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
        // As long as they read.
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

    /// Waits until processes have nothing to do any more.
    fn await_quiet(&self, all: &dyn Fn() -> f64) {
        let until = Instant::now() + Duration::from_secs(10);
        let mut last = all();
        while Instant::now() < until {
            std::thread::sleep(QUIET);
            let now = all();
            // A reader that naps looks now and then.
            if now - last < 0.001 {
                return;
            }
            last = now;
        }
    }

    /// Sends; gives the sender's processor time.
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

    /// Packets the near device has received.
    fn received(&self) -> u64 {
        self.pair.near.link().counters.get("rx_packets").unwrap_or(0)
    }
}

/// A sender that runs.
pub struct Sending(Child);

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many listeners these are, and which, for messages: they are all of one kind.
fn shown_of(listeners: &[Listener]) -> String {
    listeners.first().map_or("no listeners".to_owned(), |listener| {
        format!("{} x {:?} {:?}", listeners.len(), listener.who, listener.program)
    })
}

/// What one run took.
struct Run {
    wall_s: f64,
    cpu_s: f64,
    lost: u64,
}

/// Frame length that stands for a mixture: seven of 64 bytes, four of 594 and one of 1,518 with their checksums, the "simple
/// IMIX" of device tests (RFC 6985, section 1).
pub const MIXED: usize = 0;
const MIXTURE: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

/// The stage `send DEVICE COUNT BYTES RATE`: sends so many frames of UDP in IPv4, pinned to the first processor. Every
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

/// A frame to an address nobody has: the stack on the other side drops it as soon as it has seen that.
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

/// Sends so many frames, pinned to the first processor; `write` writes the one with this number.
pub(crate) fn send_each(device: &str, count: u64, rate: u64, write: impl Fn(u64, &mut Vec<u8>)) -> Result<(), String> {
    let told = |error: driver::Error| error.to_string();
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(0).map_err(|error| error.to_string())?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).map_err(|error| error.to_string())?;
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
        // At full speed, whose rate is 0, nothing is due later than now.
        let due = Duration::from_nanos((sent * 1_000_000_000).checked_div(rate).unwrap_or(0));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok(())
}
