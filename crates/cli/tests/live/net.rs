//! Helpers for tests of live traffic: a pair of devices with a daemon on one of them, processes that end with the test,
//! frames to send, and captures to compare.

use capture::client::Client;
use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::network::Pair;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct Running(pub(crate) Option<Child>);

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        Running(Some(command.spawn().unwrap()))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let child = self.0.as_ref().expect("not waited for yet");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.as_mut().expect("not waited for yet").try_wait().unwrap().is_some()
    }

    pub(crate) fn end(mut self) -> Output {
        let output = self.0.take().expect("not waited for yet").wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked") && !said.contains("a fault of this program"), "{said}");
        output
    }

    /// Sends SIGINT, and returns the output.
    pub(crate) fn interrupt(self) -> Output {
        self.signal(rustix::process::Signal::INT);
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) const NOBODY: u32 = 65534;

/// A pair of devices, and a daemon for one of them.
pub(crate) struct Net {
    pub(crate) pair: Pair,
    folder: tempfile::TempDir,
    pub(crate) daemon: Option<Running>,
}

impl Net {
    pub(crate) fn new(policy: Option<&str>) -> Net {
        Net::of(Pair::new(), policy)
    }

    /// The same, on this pair.
    pub(crate) fn of(pair: Pair, policy: Option<&str>) -> Net {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let mut net = Net { pair, folder, daemon: None };
        if let Some(policy) = policy {
            std::fs::write(net.path("policy.toml"), policy).unwrap();
        }
        net.start_daemon();
        net
    }

    pub(crate) fn start_daemon(&mut self) {
        let mut command = Command::new(PROGRAM);
        command.arg("daemon").arg("--socket").arg(self.socket());
        if self.path("policy.toml").exists() {
            command.arg("--config").arg(self.path("policy.toml"));
        }
        self.daemon = Some(self.there(command));
        until("the daemon listens", || Client::connect(&self.socket(), "a test").is_ok());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("control")
    }

    pub(crate) fn device(&self) -> &str {
        &self.pair.near.name
    }

    pub(crate) fn there(&self, mut command: Command) -> Running {
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.pair.near.namespace.enter(move || Running::start(command)).unwrap()
    }

    pub(crate) fn there_noting(&self, mut command: Command, file: &str) -> Running {
        let file = std::fs::File::create(self.path(file)).unwrap();
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        self.pair.near.namespace.enter(move || Running::start(command)).unwrap()
    }

    pub(crate) fn text(&self, file: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(file)).unwrap_or_default()).into_owned()
    }

    /// A request through the daemon, from outside the device's namespace. `D` stands for the device.
    pub(crate) fn request(&self, request: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json", "--daemon"]).arg(self.socket());
        command.arg(request.replace('D', self.device())).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn as_nobody(&self, request: &str) -> Command {
        let mut command = self.request(request);
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    /// Starts requests one after the other, each once the previous one reads.
    pub(crate) fn read(&self, requests: &[&str]) -> Vec<Running> {
        let start = |request: &&str| {
            let running = Running::start(self.request(request));
            let process = running.0.as_ref().expect("just started").id();
            until("a reader reads", || self.reads(process));
            running
        };
        requests.iter().map(start).collect()
    }

    /// Whether this process has a reader at the daemon. A count of all readers would not show that: a reader that was
    /// interrupted before may still be among them.
    fn reads(&self, process: u32) -> bool {
        let state = self.state();
        let mut clients = state["clients"].as_array().unwrap().iter();
        clients.any(|client| {
            client["process"] == process && client["readers"].as_array().is_some_and(|all| !all.is_empty())
        })
    }

    pub(crate) fn state(&self) -> Value {
        let output = Command::new(PROGRAM).args(["ps", "--json", "--daemon"]).arg(self.socket()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn readers(&self) -> usize {
        let state = self.state();
        let rings = state["rings"].as_array().unwrap();
        rings.iter().map(|ring| ring["readers"].as_array().unwrap().len()).sum()
    }
}

/// A UDP datagram in IPv4 in Ethernet to this port. Its first payload bytes are its number.
pub(crate) fn datagram(number: u32, port: u16, len: usize) -> Vec<u8> {
    let mut frame = vec![0u8; len.max(60)];
    frame[..6].fill(0xff);
    frame[6] = 2;
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    let ip = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&ip.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&4000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip - 20).to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

pub(crate) fn tagged(mut frame: Vec<u8>, tag: u16) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// `count` frames of all kinds.
pub(crate) fn traffic(count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let frame = datagram(number, [53, 80, 4789][number as usize % 3], 60 + (number as usize * 37) % 1400);
            if number % 5 == 0 { tagged(frame, 7) } else { frame }
        })
        .collect()
}

/// Packets of a classic capture file: length on the wire, bytes.
pub(crate) fn packets(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert!([0xa1b2_c3d4, 0xa1b2_3c4d].contains(&word(0)), "{} is no classic capture", path.display());
    let (mut at, mut packets) = (24, Vec::new());
    while at + 16 <= bytes.len() {
        let len = word(at + 8) as usize;
        if at + 16 + len > bytes.len() {
            // The packet is still being written.
            break;
        }
        packets.push((word(at + 12), bytes[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    packets
}

pub(crate) fn succeeded(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_str(&error).unwrap_or_else(|_| panic!("{error}"))
}

pub(crate) fn send(net: &Net, frames: &[Vec<u8>]) {
    let seen =
        |net: &Net| net.state()["rings"].as_array().unwrap().iter().map(|ring| ring["seen"].as_u64().unwrap()).max();
    let before = seen(net).unwrap_or_else(|| panic!("nobody reads any more: {}", net.state()));
    let mut sender = net.pair.far.sender();
    for frame in frames {
        sender.send(frame).unwrap();
    }
    until("all are seen", || seen(net) >= Some(before + frames.len() as u64));
}
