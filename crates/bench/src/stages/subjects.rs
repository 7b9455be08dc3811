//! The programs that forward frames between two devices, or drop them: ours and others.

use super::bed::{Bed, redirect_all};
use crate::case::CaseError;
use crate::machine::{IP, NETSNIFF, TESTPMD};
use crate::setting::Setting;
use driver::namespace::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take until it forwards, and until it ends.
const READY: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(5);

/// The wait mode of our threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// They sleep.
    Sleep,
    /// They spin, as testpmd does.
    Busy,
}

impl Wait {
    /// The beginning of a request in this mode.
    pub fn setting(self) -> &'static str {
        match self {
            Wait::Sleep => "",
            Wait::Busy => "set wait=busy; ",
        }
    }
}

/// The programs that forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarder {
    /// Our request, in user space.
    User(Wait),
    /// Our request, in the kernel.
    Kernel,
    /// testpmd with its driver `af_packet`.
    TestpmdPacket,
    /// testpmd with its driver `af_xdp`.
    TestpmdXdp,
    /// netsniff-ng.
    Netsniff,
    /// The barest XDP program that redirects.
    Redirect,
    /// The kernel's bridge.
    Bridge,
}

/// A program that works until this is dropped.
pub struct Running {
    child: Option<Child>,
    links: Vec<bpf::Link>,
    undo: Option<(Namespace, Command)>,
}

impl Running {
    /// The processes whose time counts: the program, and those that it started.
    pub fn processes(&self) -> Vec<u32> {
        self.child.iter().flat_map(|child| family(child.id())).collect()
    }

    fn of(child: Child) -> Running {
        Running { child: Some(child), links: Vec::new(), undo: None }
    }

    /// Asks the process to end, and waits for its end.
    pub fn end(&mut self) {
        let processes = self.processes();
        let Some(mut child) = self.child.take() else { return };
        signal(&processes, Signal::SIGINT);
        let until = Instant::now() + END;
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(&processes, Signal::SIGKILL);
        let _ = child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.links.clear();
        self.end();
        if let Some((namespace, mut command)) = self.undo.take() {
            let _ = namespace.enter(move || command.status());
        }
    }
}

/// A process and its children, from `/proc/PID/stat`.
fn family(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|folder| folder.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |process: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // After the name, which may hold any character: the state, then the parent.
        let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
        behind.split_whitespace().nth(1).and_then(|number| number.parse().ok()) == Some(parent)
    };
    std::iter::once(parent).chain(numbers.filter(is_child)).collect()
}

fn signal(processes: &[u32], signal: Signal) {
    for process in processes {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(*process as i32), signal);
    }
}

/// A program on the second processor, since the sender has the first.
pub fn pinned(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(program);
    command
}

/// Starts a program in the namespace of the devices. A file gets its output.
pub fn start(bed: &Bed, command: Command) -> Result<Running, CaseError> {
    start_at(bed, &bed.here, command)
}

/// Starts a program in the sender's namespace.
pub fn start_sending(bed: &Bed, command: Command) -> Result<Running, CaseError> {
    start_at(bed, &bed.sender.namespace, command)
}

fn start_at(bed: &Bed, at: &Namespace, mut command: Command) -> Result<Running, CaseError> {
    let said = || File::create(bed.scratch.path().join("said"));
    let (out, error) = (said(), said());
    let text = |error: std::io::Error| CaseError::Failed(format!("cannot start a program: {error}"));
    command.stdin(Stdio::null()).stdout(out.map_err(text)?).stderr(error.map_err(text)?);
    let child = at.enter(move || command.spawn()).and_then(|child| child);
    child.map(Running::of).map_err(text)
}

/// Our program with a request.
pub fn request(setting: &Setting, request: &str) -> Command {
    let mut command = pinned(&setting.streamline);
    command.args(["run", "--quiet", "--stats", "none", request]);
    command
}

fn ip(bed: &Bed, words: &str) -> Result<(), CaseError> {
    let mut command = Command::new(IP.find().map_err(CaseError::Missing)?);
    command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match bed.here.enter(move || command.status()).and_then(|status| status) {
        Ok(status) if status.success() => Ok(()),
        outcome => Err(CaseError::Failed(format!("`ip {words}`: {outcome:?}"))),
    }
}

fn testpmd(driver: &str) -> Result<Command, CaseError> {
    let mut command = Command::new(TESTPMD.find().map_err(CaseError::Missing)?);
    // It has cores of its own: 0 for its statistics, 1 for its packets.
    command.args(["--no-huge", "-m", "256", "--no-pci", "--lcores", "0@0,1@1"]);
    command.args([format!("--vdev=net_{driver}0,iface=in"), format!("--vdev=net_{driver}1,iface=out")]);
    command.args(["--", "--forward-mode=io", "--no-mlockall", "--total-num-mbufs=8192", "--auto-start"]);
    command.args(["--stats-period", "1"]);
    Ok(command)
}

impl Forwarder {
    /// Its name in messages.
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Starts it, and waits until frames come out.
    pub fn start(self, setting: &Setting, bed: &Bed) -> Result<Running, CaseError> {
        let Some(output) = &bed.output else {
            return Err(CaseError::Failed("the bed has no device to send by".to_owned()));
        };
        let forward = |wait: Wait, by: &str| {
            let text = format!("{}ethernet in mode=consume everything=yes | send out{by}", wait.setting());
            start(bed, request(setting, &text))
        };
        let mut running = match self {
            Forwarder::User(wait) => forward(wait, " by=socket")?,
            Forwarder::Kernel => forward(Wait::Sleep, "")?,
            Forwarder::TestpmdPacket => start(bed, testpmd("af_packet")?)?,
            Forwarder::TestpmdXdp => start(bed, testpmd("af_xdp")?)?,
            Forwarder::Netsniff => {
                let mut command = pinned(&NETSNIFF.find().map_err(CaseError::Missing)?);
                // Its own tuning of sockets needs a switch that namespaces do not have.
                command.args(["--in", "in", "--out", "out", "--silent", "--no-sock-mem", "--ring-size", "2MiB"]);
                start(bed, command)?
            }
            Forwarder::Redirect => {
                let link = redirect_all(&bed.input, output)?;
                Running { child: None, links: vec![link], undo: None }
            }
            Forwarder::Bridge => {
                let mut undo = Command::new(IP.find().map_err(CaseError::Missing)?);
                undo.args(["link", "del", "bridge"]);
                ip(bed, "link add bridge type bridge mcast_snooping 0")?;
                // Packets go through no tables, and frames without an IP checksum are forwarded. If the switch is
                // missing, so are the tables.
                let bare = || std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
                let _ = bed.here.enter(bare);
                let running = Running { child: None, links: Vec::new(), undo: Some((bed.here.clone(), undo)) };
                for words in ["link set in master bridge", "link set out master bridge", "link set bridge up"] {
                    ip(bed, words)?;
                }
                running
            }
        };
        self.await_ready(bed, &mut running)?;
        Ok(running)
    }

    fn await_ready(self, bed: &Bed, running: &mut Running) -> Result<(), CaseError> {
        let until = Instant::now() + READY;
        while Instant::now() < until {
            if let Some(Ok(Some(status))) = running.child.as_mut().map(Child::try_wait) {
                return Err(CaseError::Failed(format!("{} ended with {status}: {}", self.name(), said(bed))));
            }
            // All frames of two short trials: the first one may meet a program that is half set up, and frames that the
            // program sends by itself.
            let come = || bed.trial(10_000.0, Duration::from_millis(10), &[]).is_ok_and(|trial| trial.lost == 0);
            if come() && come() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(CaseError::Failed(format!("{} forwards nothing: {}", self.name(), said(bed))))
    }
}

/// The last line that a program wrote.
pub fn said(bed: &Bed) -> String {
    let text = std::fs::read(bed.scratch.path().join("said")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}
