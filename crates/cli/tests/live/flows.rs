//! Flows of applications: `streamline net echo` and `cat`, and the filter `flow`, against the kernel's sockets on the
//! far side of a pair.

use crate::net::*;
use serde_json::Value;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

const POLICY: &str =
    "[[allow]]\nusers = [\"65534\"]\ndevices = [\"*\"]\nmodes = [\"flow\"]\nslices = \"70%\"\nweight = 20\n";

/// A daemon that owns one end of a pair as 10.0.0.2. The other end is the kernel's, 10.0.0.1. `None`: that cannot be made.
fn interface() -> Option<Net> {
    interface_with(&[])
}

/// The same, with more options of `net up`.
pub(crate) fn interface_with(options: &[&str]) -> Option<Net> {
    may_make_networks().then(Pair::new).and_then(|pair| interface_of(pair, options))
}

/// The same, on this pair.
pub(crate) fn interface_of(pair: Pair, options: &[&str]) -> Option<Net> {
    let net = Net::of(pair, Some(POLICY));
    let far = net.pair.far.clone();
    let give = || Command::new("ip").args(["address", "add", "10.0.0.1/24", "dev", &far.name]).status();
    if !far.namespace.enter(give).unwrap().is_ok_and(|status| status.success()) {
        eprintln!("skipped (tools): there is no `ip`");
        return None;
    }
    far.change(&driver::change::Change { arp: Some(true), ..Default::default() });
    let device = net.device().to_string();
    let via = if options.contains(&"--via") { &[][..] } else { &["--via", "af_packet"] };
    let up = command(&net, 0, &["up", &device, "--addr", "10.0.0.2/24"]).args(via).args(options).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    Some(net)
}

pub(crate) fn command(net: &Net, user: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("net").args(arguments).arg("--daemon").arg(net.socket());
    command.current_dir(net.path("")).uid(user).gid(user);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn far(net: &Net, address: &str) -> UdpSocket {
    let socket = net.pair.far.namespace.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

fn flows(net: &Net) -> usize {
    let output = command(net, 0, &["flows", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["flows"].as_array().unwrap().len()
}

#[test]
fn an_ordinary_user_echoes_what_the_kernel_sends() {
    let Some(net) = interface() else { return };
    let echo =
        Running::start(command(&net, NOBODY, &["echo", "udp", "4000", "--stack", "udp 4000 | ipv4 | tap echo.pcap"]));
    until("it listens", || flows(&net) == 1);
    let socket = far(&net, "10.0.0.1:5000");
    socket.connect("10.0.0.2:4000").unwrap();
    let mut bytes = [0; 2000];
    for len in (0..100).chain([1471, 1472]) {
        let sent = vec![len as u8; len];
        socket.send(&sent).unwrap();
        assert_eq!(socket.recv(&mut bytes).unwrap(), len);
        assert_eq!(bytes[..len], sent);
    }
    let output = echo.interrupt();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until("the flow goes with its process", || flows(&net) == 0);
    // 102 frames each way, behind the header of a capture file.
    let tapped = std::fs::read(net.path("echo.pcap")).unwrap();
    let payload: usize = (0..100).sum::<usize>() + 1471 + 1472;
    assert_eq!(tapped.len(), 24 + 2 * (102 * (16 + 42) + payload));
}

#[test]
fn requests_receive_from_flows_and_send_on_them() {
    let Some(net) = interface() else { return };
    let socket = far(&net, "10.0.0.1:5000");
    let counting = Running::start(net.as_nobody("flow udp 4000 | count"));
    until("it listens", || flows(&net) == 1);
    for number in 0..500_u32 {
        socket.send_to(&number.to_be_bytes(), "10.0.0.2:4000").unwrap();
        // The channel has 256 buffers: the driver drops packets while they are full.
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_millis(300));
    let output = counting.interrupt();
    let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report: Value = serde_json::from_slice(&output.stderr).unwrap();
    let dropped = report["filters"][0]["dropped"]["no empty buffer"].as_u64().unwrap_or(0);
    assert_eq!(counted["blocks"].as_u64().unwrap() + dropped, 500, "{report}");
    assert!(counted["blocks"].as_u64().unwrap() > 400, "{report}");

    // 100 datagrams, unchanged: the kernel's socket can hold them while the test does not read.
    let sent = Running::start(net.as_nobody("generate count=100 size=64 | udp | flow udp 4100 to=10.0.0.1:5000"));
    let mut bytes = [0; 100];
    for number in 0..100 {
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!((len, from.to_string().as_str()), (22, "10.0.0.2:4100"), "datagram {number}");
    }
    let output = sent.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn cat_sends_its_input_writes_what_comes_and_tells_what_the_network_reports() {
    let Some(net) = interface() else { return };
    let socket = far(&net, "10.0.0.1:5000");
    let mut cat = command(&net, NOBODY, &["cat", "udp", "4000", "--to", "10.0.0.1:5000", "--wait", "20"]);
    let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(b"a question\n").unwrap();
    let mut bytes = [0; 100];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..len], from.to_string().as_str()), (&b"a question\n"[..], "10.0.0.2:4000"));
    socket.send_to(b"an answer\n", from).unwrap();
    // From another port: a flow with a peer ignores other senders.
    far(&net, "10.0.0.1:5001").send_to(b"a lie\n", from).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // Longer than a frame and a receive buffer.
    let long = vec![b'l'; 60_000];
    socket.send_to(&long, from).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(input);
    let cat = Running(Some(cat));
    let output = cat.interrupt();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == [b"an answer\n", &long[..]].concat(), "{} bytes", output.stdout.len());

    let mut closed = command(&net, NOBODY, &["cat", "udp", "--to", "10.0.0.1:4444", "--wait", "1"]);
    let mut closed = closed.stdin(Stdio::piped()).spawn().unwrap();
    closed.stdin.take().unwrap().write_all(b"anybody?\n").unwrap();
    let output = closed.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("warning: Connection refused"), "{said}");
}

#[test]
fn slices_divide_the_wire_and_change_while_flows_send() {
    let Some(net) = interface_with(&["--rate", "8M"]) else { return };
    // Slow enough for programs without optimisation: 1 MB a second in all. One packet takes 1 ms.
    let send = |slice: &str| {
        let request = format!("generate size=1014 count=100000000 | udp | flow udp to=10.0.0.1:9 slice={slice}");
        Running::start(net.as_nobody(&request))
    };
    let (small, large, rest) = (send("10ms/100ms"), send("40ms/100ms"), send("fair"));
    until("all send", || sent(&net).len() == 3 && sent(&net).values().all(|(_, bytes)| *bytes > 0));
    let flows = sent(&net);
    let numbered = |slice: &str| *flows.iter().find(|(_, (has, _))| has == slice).unwrap().0;
    let numbers = ["10ms/100ms", "40ms/100ms", "fair"].map(numbered);
    let shares = || {
        let (began, before) = (Instant::now(), sent(&net));
        std::thread::sleep(Duration::from_secs(3));
        let (took, after) = (began.elapsed().as_millis() as u64, sent(&net));
        // Of 1,000 bytes a millisecond, in percent.
        numbers.map(|flow| (after[&flow].1 - before[&flow].1) / 10 / took)
    };
    let first = shares();
    // The third flow takes the rest, as far as this machine can send it.
    assert!((8..=12).contains(&first[0]) && (36..=44).contains(&first[1]) && (5..=54).contains(&first[2]), "{first:?}");
    let number =
        sent(&net).iter().find(|(_, (slice, _))| slice == "10ms/100ms").map(|(flow, _)| flow.to_string()).unwrap();
    let refused = run_as_root(&net, &["slice", &number, "60ms/100ms"]);
    assert!(!refused.0 && refused.1.contains("60ms/100ms is 60 % of the wire"), "{}", refused.1);
    // The user reaches the policy's limit first.
    for (share, text) in [("31ms/100ms", "may guarantee 70 %"), ("fair:21", "weights up to 20")] {
        let output = command(&net, NOBODY, &["slice", &number, share]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(text), "{share}: {said}");
    }
    assert!(run_as_root(&net, &["slice", &number, "30ms/100ms"]).0);
    let then = shares();
    assert!((26..=34).contains(&then[0]) && (36..=44).contains(&then[1]) && (10..=34).contains(&then[2]), "{then:?}");
    for running in [small, large, rest] {
        drop(running.interrupt());
    }
}

/// Flows by number: slice, and bytes sent.
fn sent(net: &Net) -> std::collections::BTreeMap<u64, (String, u64)> {
    let output = command(net, 0, &["flows", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let flow = |flow: &Value| {
        let slice = flow["slice"].as_str().unwrap().to_string();
        (flow["flow"].as_u64().unwrap(), (slice, flow["sent_bytes"].as_u64().unwrap()))
    };
    document["flows"].as_array().unwrap().iter().map(flow).collect()
}

/// Runs a command as root. Returns whether it succeeded, and its message.
fn run_as_root(net: &Net, arguments: &[&str]) -> (bool, String) {
    let output = command(net, 0, arguments).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_trace_is_a_capture_of_both_directions() {
    let Some(net) = interface() else { return };
    let echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    until("it listens", || flows(&net) == 1);
    let number = sent(&net).keys().next().unwrap().to_string();
    let stranger = command(&net, 1234, &["trace", &number]).output().unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(stranger.status.code() == Some(1) && said.contains("no flow"), "{said}");

    let to_file = Running::start(command(&net, NOBODY, &["trace", &number, "-w", "flow.pcapng"]));
    let to_pipe = Running::start(command(&net, 0, &["trace", &number, "--snap", "50"]));
    let traces = || {
        let output = command(&net, 0, &["ls", "--json"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("\"flows.traces_begun\":2")
            || String::from_utf8_lossy(&output.stdout).contains("\"flows.traces_begun\": 2")
    };
    until("both trace", traces);
    let socket = far(&net, "10.0.0.1:5000");
    socket.connect("10.0.0.2:4000").unwrap();
    for number in 0..20_u8 {
        socket.send(&vec![number; 20 + usize::from(number)]).unwrap();
        socket.recv(&mut [0; 100]).unwrap();
    }
    // The flow ends, and its traces end with it.
    drop(echo.interrupt());
    let (to_file, to_pipe) = (to_file.end(), to_pipe.end());
    let said = String::from_utf8_lossy(&to_file.stderr).into_owned();
    assert!(to_file.status.success() && said.contains("40 frames"), "{said}");
    // Read the captures with this program: each datagram occurs twice, there and back.
    for (capture, snap) in [(std::fs::read(net.path("flow.pcapng")).unwrap(), 100), (to_pipe.stdout, 50)] {
        std::fs::write(net.path("read.pcapng"), capture).unwrap();
        let mut read = Command::new(PROGRAM);
        read.current_dir(net.path("")).args(["run", "pcap read.pcapng | save read.pcap"]);
        let read = read.output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let frames = packets(&net.path("read.pcap"));
        let lengths: Vec<usize> = frames.iter().map(|(len, _)| *len as usize).collect();
        assert_eq!(lengths, (0..40).map(|at| 42 + 20 + at / 2).collect::<Vec<_>>());
        for (at, (len, bytes)) in frames.iter().enumerate() {
            assert_eq!(bytes.len(), snap.min(*len as usize));
            assert_eq!((bytes[29], bytes[42]), (if at % 2 == 0 { 1 } else { 2 }, at as u8 / 2), "who sent frame {at}");
        }
        std::fs::remove_file(net.path("read.pcap")).unwrap();
    }
}

#[test]
fn users_of_flows_learn_that_the_interface_or_the_daemon_has_gone() {
    let Some(mut net) = interface() else { return };
    let echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    until("it listens", || flows(&net) == 1);
    let device = net.device().to_string();
    assert!(command(&net, 0, &["down", &device]).status().unwrap().success());
    let output = echo.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("error: the flow was closed"), "{said}");

    let up = ["up", device.as_str(), "--addr", "10.0.0.2/24", "--via", "af_packet"];
    assert!(command(&net, 0, &up).status().unwrap().success());
    let echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    let counting = Running::start(net.as_nobody("flow udp 4001 | count"));
    until("both listen", || flows(&net) == 2);
    net.daemon.take().unwrap().interrupt();
    for (running, word) in [(echo, "echo"), (counting, "count")] {
        let output = running.end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains("error"), "{word}: {said}");
    }
}

#[test]
fn what_makes_no_flow_is_refused_with_a_word_on_what_would() {
    let Some(net) = interface() else { return };
    let held = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    until("it listens", || flows(&net) == 1);
    let refused: [(&[&str], i32, &str); 6] = [
        (&["echo", "udp", "4000"], 1, "4000"),
        (&["echo", "udp", "80"], 1, "80"),
        (&["echo", "udp", "70000"], 2, "70000"),
        (&["echo", "tcp", "80"], 1, "80"),
        (&["echo", "udp", "5000", "--stack", "udp 5000 | udp 6000"], 2, "^"),
        (&["echo", "udp", "5000", "--stack", "udp 6000"], 2, "another port"),
    ];
    for (arguments, code, text) in refused {
        let output = command(&net, NOBODY, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(text), "{arguments:?}: {said}");
    }
    let stranger = command(&net, 1234, &["echo", "udp", "5000"]).output().unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(stranger.status.code() == Some(1) && said.contains("1234"), "{said}");
    drop(held);
}
