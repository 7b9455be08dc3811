//! Live traffic as people read it: a daemon, several readers of one device, and what each of them gets, packet by packet.
//! In namespaces of the tests' own; skipped where those cannot be made.

use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that ends with the test.
struct Running(Option<Child>);

impl Running {
    fn signal(&self, signal: rustix::process::Signal) {
        let child = self.0.as_ref().expect("not waited for yet");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    }

    fn end(mut self) -> Output {
        self.0.take().expect("not waited for yet").wait_with_output().unwrap()
    }

    /// Ctrl-C, and what it said.
    fn interrupt(self) -> Output {
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

/// A pair of devices, and a daemon for one of them.
struct Net {
    pair: Pair,
    folder: tempfile::TempDir,
    daemon: Option<Running>,
}

impl Net {
    fn new(policy: Option<&str>) -> Net {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let mut net = Net { pair: Pair::new(), folder, daemon: None };
        let mut command = Command::new(PROGRAM);
        command.arg("daemon").arg("--socket").arg(net.socket());
        if let Some(policy) = policy {
            std::fs::write(net.path("policy.toml"), policy).unwrap();
            command.arg("--config").arg(net.path("policy.toml"));
        }
        net.daemon = Some(net.there(command));
        until("the daemon listens", || net.socket().exists());
        net
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("control")
    }

    fn device(&self) -> &str {
        &self.pair.near.name
    }

    /// Starts a process where the device is.
    fn there(&self, mut command: Command) -> Running {
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(self.pair.near.namespace.enter(move || command.spawn().unwrap()).unwrap()))
    }

    /// A request through the daemon, from outside the device's namespace; `D` stands for the device.
    fn request(&self, request: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json", "--daemon"]).arg(self.socket());
        command.arg(request.replace('D', self.device())).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts requests one after the other, each once the one before reads.
    fn read(&self, requests: &[&str]) -> Vec<Running> {
        let before = self.readers();
        let mut running = Vec::new();
        for request in requests {
            running.push(Running(Some(self.request(request).spawn().unwrap())));
            until("a reader reads", || self.readers() >= before + running.len());
        }
        running
    }

    fn state(&self) -> Value {
        let output = Command::new(PROGRAM).args(["ps", "--json", "--daemon"]).arg(self.socket()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn readers(&self) -> usize {
        let state = self.state();
        let rings = state["rings"].as_array().unwrap();
        rings.iter().map(|ring| ring["readers"].as_array().unwrap().len()).sum()
    }
}

/// UDP in IPv4 in Ethernet, to this port; its number in its first bytes.
fn datagram(number: u32, port: u16, len: usize) -> Vec<u8> {
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

/// The same behind a VLAN tag.
fn tagged(mut frame: Vec<u8>, tag: u16) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// Frames of every sort, `count` of them.
fn traffic(count: u32) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let frame = datagram(number, [53, 80, 4789][number as usize % 3], 60 + (number as usize * 37) % 1400);
            if number % 5 == 0 { tagged(frame, 7) } else { frame }
        })
        .collect()
}

/// Packets of a classic capture file: length on the wire, bytes.
fn packets(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert!([0xa1b2_c3d4, 0xa1b2_3c4d].contains(&word(0)), "{} is no classic capture", path.display());
    let (mut at, mut packets) = (24, Vec::new());
    while at + 16 <= bytes.len() {
        let len = word(at + 8) as usize;
        if at + 16 + len > bytes.len() {
            // It is being written.
            break;
        }
        packets.push((word(at + 12), bytes[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    packets
}

fn succeeded(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_str(&error).unwrap_or_else(|_| panic!("{error}"))
}

/// Sends frames and waits until the daemon has been shown them all.
fn send(net: &Net, frames: &[Vec<u8>]) {
    let seen =
        |net: &Net| net.state()["rings"].as_array().unwrap().iter().map(|ring| ring["seen"].as_u64().unwrap()).max();
    let before = seen(net).unwrap();
    let mut sender = net.pair.far.sender();
    for frame in frames {
        sender.send(frame).unwrap();
    }
    until("all are seen", || seen(net) >= Some(before + frames.len() as u64));
}

#[test]
fn one_capture_serves_many_and_each_gets_its_own() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let mut stock = None;
    if Path::new("/usr/bin/tcpdump").exists() {
        let mut command = Command::new("/usr/bin/tcpdump");
        command.args(["-i", net.device(), "--immediate-mode", "-B", "16384", "-U", "-w", "stock.pcap", "-Z", "root"]);
        stock = Some(net.there(command));
        until("tcpdump has written its header", || {
            net.path("stock.pcap").metadata().is_ok_and(|file| file.len() >= 24)
        });
        // It has opened its file before it listens for packets to put there.
        std::thread::sleep(Duration::from_millis(300));
    }
    let readers = net.read(&[
        "ethernet D | save all.pcap",
        "ethernet D | bpf \"udp port 53\" | save dns.pcap",
        "ethernet D | bpf \"vlan 7\" | save vlan.pcap",
        "ethernet D | vlan 7 | save vlan2.pcap",
        "ethernet D | bpf \"tcp\" | count",
        "ethernet D snaplen=64 | bpf \"udp\" | bpf \"greater 1000\" | save long.pcap",
    ]);
    let frames = traffic(3000);
    send(&net, &frames);
    let state = net.state();
    assert_eq!(state["rings"].as_array().unwrap().len(), 1, "one ring: {state}");
    let outputs: Vec<Output> = readers.into_iter().map(Running::interrupt).collect();
    for output in &outputs {
        succeeded(output);
    }
    let same = |file: &str, wanted: &dyn Fn(usize, &Vec<u8>) -> bool, snap: usize| {
        let got = packets(&net.path(file));
        let wanted = frames.iter().enumerate().filter(|(at, frame)| wanted(*at, frame));
        let wanted: Vec<_> =
            wanted.map(|(_, frame)| (frame.len() as u32, frame[..frame.len().min(snap)].to_vec())).collect();
        assert_eq!(got.len(), wanted.len(), "{file}");
        assert!(got == wanted, "{file}: other bytes or another order");
    };
    same("all.pcap", &|_, _| true, 70_000);
    same("dns.pcap", &|at, _| at % 3 == 0 && at % 5 != 0, 70_000);
    same("vlan.pcap", &|at, _| at % 5 == 0, 70_000);
    same("vlan2.pcap", &|at, _| at % 5 == 0, 70_000);
    same("long.pcap", &|at, frame| at % 5 != 0 && frame.len() >= 1000, 64);
    assert_eq!(String::from_utf8_lossy(&outputs[4].stdout), "{\"blocks\":0,\"bytes\":0,\"wire_bytes\":0}\n");
    match stock {
        None => eprintln!("skipped: tcpdump is not installed, so nothing is compared with it"),
        Some(stock) => {
            until("tcpdump has written everything", || packets(&net.path("stock.pcap")).len() >= frames.len());
            stock.interrupt();
            assert!(packets(&net.path("stock.pcap")) == packets(&net.path("all.pcap")), "tcpdump got something else");
        }
    }
}

#[test]
fn who_is_stopped_or_killed_disturbs_nobody() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let mut readers =
        net.read(&["ethernet D | save steady.pcap", "ethernet D | count", "ethernet D buffer=1M | count"]);
    let killed = readers.pop().unwrap();
    let stopped = readers.pop().unwrap();
    stopped.signal(rustix::process::Signal::STOP);
    let frames = traffic(4000);
    send(&net, &frames[..2000]);
    killed.signal(rustix::process::Signal::KILL);
    send(&net, &frames[2000..]);
    until("its place is free", || net.readers() == 2);
    stopped.signal(rustix::process::Signal::CONT);
    for (reader, what) in readers.into_iter().chain([stopped]).zip(["steady", "stopped"]) {
        let output = reader.interrupt();
        let stats = succeeded(&output);
        if what == "steady" {
            let got = packets(&net.path("steady.pcap"));
            assert!(got.iter().map(|(_, bytes)| bytes).eq(frames.iter()), "{} of 4000: {stats}", got.len());
        }
    }
    until("the ring goes with its last reader", || net.state()["rings"].as_array().unwrap().is_empty());
}

#[test]
fn policy_decides_and_says_so() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(
        "[[allow]]\nusers = [\"65534\"]\ndevices = [\"NOT*\", \"*\"]\nmodes = [\"tap\"]\n\n[limits]\nreaders = 2\n",
    ));
    let nobody = |request: &str| {
        let mut command = net.request(request);
        command.uid(65534).gid(65534);
        Running(Some(command.spawn().unwrap()))
    };
    let stranger = net.request("ethernet D | count").uid(1234).gid(1234).output().unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(!stranger.status.success() && said.contains("user 1234 may use no device here"), "{said}");
    let allowed: Vec<Running> = (0..2).map(|_| nobody("ethernet D | bpf \"port 53\" | count")).collect();
    until("both read", || net.readers() == 2);
    let third = nobody("ethernet D | count").end();
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(!third.status.success() && said.contains("as many as the policy allows"), "{said}");
    send(&net, &traffic(300));
    for reader in allowed {
        let output = reader.interrupt();
        succeeded(&output);
        let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counted["blocks"], 80, "{counted}");
    }
    // What others do is not for a stranger to see or end.
    let client = net.read(&["ethernet D | count"]).pop().unwrap();
    let id = net.state()["clients"][0]["id"].to_string();
    let mut stop = Command::new(PROGRAM);
    stop.args(["stop", &id, "--daemon"]).arg(net.socket()).uid(65534);
    assert!(!stop.output().unwrap().status.success());
    let mut stop = Command::new(PROGRAM);
    stop.args(["stop", &id, "--daemon"]).arg(net.socket());
    assert!(stop.output().unwrap().status.success());
    let output = client.end();
    assert!(String::from_utf8_lossy(&output.stderr).contains("has ended"));
}

#[test]
fn devices_that_go_and_daemons_that_end_are_told() {
    if !may_make_networks() {
        return;
    }
    let mut net = Net::new(None);
    let reader = net.read(&["ethernet D | count"]).pop().unwrap();
    net.pair.near.remove();
    let output = reader.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("has ended"), "{said}");
    let none = net.request("ethernet D | count").output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is no device"));
    let daemon = net.daemon.take().unwrap();
    let output = daemon.interrupt();
    assert!(output.status.success() && !net.socket().exists());
    let none = net.request("ethernet D | count").output().unwrap();
    assert!(String::from_utf8_lossy(&none.stderr).contains("no daemon can be reached"));
}

#[test]
fn the_packet_socket_gives_the_same_as_the_kernels_program() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let readers = net.read(&[
        "ethernet D by=kernel | bpf \"udp\" | save kernel.pcap",
        "ethernet D by=socket | bpf \"udp\" | save socket.pcap",
        "ethernet D direction=out | count",
    ]);
    assert_eq!(net.state()["rings"].as_array().unwrap().len(), 3, "each way of writing has its ring");
    let frames = traffic(2000);
    let mut sender = net.pair.near.sender();
    for (number, frame) in frames.iter().enumerate() {
        if number % 4 == 3 {
            sender.send(frame).unwrap();
        } else {
            send_one(&net, frame);
        }
    }
    until("both have been shown them all", || {
        let state = net.state();
        state["rings"].as_array().unwrap().iter().all(|ring| ring["seen"].as_u64() >= Some(frames.len() as u64))
    });
    let outputs: Vec<Output> = readers.into_iter().map(Running::interrupt).collect();
    outputs.iter().for_each(|output| drop(succeeded(output)));
    let (kernel, socket) = (packets(&net.path("kernel.pcap")), packets(&net.path("socket.pcap")));
    assert_eq!((kernel.len(), socket.len()), (1600, 1600));
    // What is sent may overtake what is received between one place of the kernel and the other: each way has its order.
    let (kernel, socket) = (by_way(kernel), by_way(socket));
    assert!(kernel == socket, "other bytes or another order");
    let counted: Value = serde_json::from_slice(&outputs[2].stdout).unwrap();
    assert_eq!(counted["blocks"], 500);
}

/// Packets that were received, and those that were sent: each fourth.
fn by_way(packets: Vec<(u32, Vec<u8>)>) -> [Vec<(u32, Vec<u8>)>; 2] {
    let (sent, received) = packets.into_iter().partition(|(_, frame)| frame[45] % 4 == 3);
    [received, sent]
}

#[test]
fn without_a_daemon_a_process_captures_by_itself() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    for by in ["kernel", "socket"] {
        let file = folder.path().join(format!("{by}.pcap"));
        let mut command = Command::new(PROGRAM);
        let request = format!("ethernet {} by={by} | bpf \"udp\" | head 3 | save {by}.pcap", pair.near.name);
        command.args(["run", "--local", "--stats", "json", &request]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running(Some(pair.near.namespace.enter(move || command.spawn().unwrap()).unwrap()));
        let mut sender = pair.far.sender();
        until("three packets are there", || {
            sender.send(&datagram(7, 53, 80)).unwrap();
            running.0.as_mut().unwrap().try_wait().unwrap().is_some()
        });
        succeeded(&running.end());
        assert_eq!(packets(&file), vec![(80, datagram(7, 53, 80)); 3], "{by}");
    }
}

fn send_one(net: &Net, frame: &[u8]) {
    thread_local! {
        static SENDER: std::cell::RefCell<Option<testkit::network::FrameSender>> = const { std::cell::RefCell::new(None) };
    }
    SENDER.with_borrow_mut(|sender| sender.get_or_insert_with(|| net.pair.far.sender()).send(frame).unwrap());
}
