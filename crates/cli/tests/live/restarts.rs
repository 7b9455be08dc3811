//! Killed processes of interfaces and killed daemons: flows go on with the next process, or end if none comes.

use crate::flows::{command, interface_with};
use crate::net::*;
use buffer::flow::State;
use capture::client::Client;
use capture::{CaptureError, CaptureErrorKind};
use flow::{Answer, Flow, Host, OpenFlow, Question};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than daemons and processes of interfaces wait for each other.
const OVER: Duration = Duration::from_secs(12);

fn children(process: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: Vec<i32> =
        tasks.flat_map(|task| of(task).split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect();
    all
}

fn command_line(process: i32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

fn daemon(net: &Net) -> i32 {
    net.daemon.as_ref().unwrap().0.as_ref().unwrap().id() as i32
}

/// The process of the interface, a child of this daemon's starter.
pub(crate) fn interface_process(net: &Net) -> Option<i32> {
    let starter = children(daemon(net)).into_iter().find(|id| command_line(*id).contains("--interface-starter"))?;
    children(starter).into_iter().find(|id| command_line(*id).starts_with("streamline interface-process"))
}

fn kill(process: i32) {
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
}

fn is_there(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) fn kill_interface_process(net: &Net) {
    let before = interface_process(net).expect("it runs");
    kill(before);
    until("another process goes on", || interface_process(net).is_some_and(|now| now != before));
}

fn kill_daemon(net: &mut Net) {
    let daemon = net.daemon.take().expect("it runs");
    daemon.signal(Signal::KILL);
    drop(daemon.end());
}

fn flows(net: &Net) -> Value {
    let output = command(net, 0, &["flows", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn count(net: &Net, what: &str) -> usize {
    flows(net)[what].as_array().unwrap().len()
}

fn echo(net: &Net, protocol: &str, port: &str) -> Running {
    let echo = Running::start(command(net, NOBODY, &["echo", protocol, port]));
    let what = if protocol == "tcp" { "listeners" } else { "flows" };
    until("it listens", || count(net, what) == 1);
    echo
}

fn far_connect(net: &Net, peer: &str) -> TcpStream {
    let stream = net.pair.far.namespace.enter(|| TcpStream::connect(peer)).unwrap().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

fn far_socket(net: &Net, address: &str) -> UdpSocket {
    net.pair.far.namespace.enter(|| UdpSocket::bind(address)).unwrap().unwrap()
}

/// Bytes with a prime period: a byte in a wrong place shows.
fn pattern() -> Vec<u8> {
    (0..65_521u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A peer that writes to an echo until it is stopped, and checks each byte that comes back. Returns their number.
struct Load {
    stop: &'static AtomicBool,
    writer: JoinHandle<u64>,
    reader: JoinHandle<u64>,
}

impl Load {
    fn start(net: &Net, peer: &str) -> Load {
        let stream = far_connect(net, peer);
        let stop: &AtomicBool = Box::leak(Box::default());
        let mut writes = stream.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            let block = pattern();
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                writes.write_all(&block).unwrap();
                sent += block.len() as u64;
            }
            writes.shutdown(std::net::Shutdown::Write).unwrap();
            sent
        });
        let mut reads = stream;
        let reader = std::thread::spawn(move || {
            let expected = [pattern(), pattern()].concat();
            let (mut got, mut bytes) = (0, vec![0; 60_000]);
            loop {
                let len = reads.read(&mut bytes).expect("the connection lives");
                if len == 0 {
                    return got;
                }
                let at = (got % 65_521) as usize;
                assert!(bytes[..len] == expected[at..at + len], "after {got} bytes");
                got += len as u64;
            }
        });
        Load { stop, writer, reader }
    }

    /// Checks that every written byte came back.
    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.writer.join().expect("the connection lives");
        let got = self.reader.join().expect("the bytes are right");
        assert_eq!(got, sent);
        got
    }
}

fn ask_once(net: &Net, peer: &str) {
    let mut stream = far_connect(net, peer);
    stream.write_all(b"again").unwrap();
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"again");
}

fn restarts(net: &Net) -> u64 {
    let output = command(net, 0, &["ls", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["interfaces"][0]["counters"]["process.restarts"].as_u64().unwrap()
}

#[test]
fn an_interface_process_has_no_rights_and_few_files() {
    let Some(net) = interface_with(&[]) else { return };
    let process = interface_process(&net).expect("it runs");
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_string();
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(set), "0000000000000000", "{status}");
        }
        assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1".into(), "2".into()), "{status}");
        assert!(!status.contains("Uid:\t0\t"), "{status}");
    }
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let files: Vec<String> = files.map(|file| std::fs::read_link(file.path()).unwrap().display().to_string()).collect();
    let known = ["socket:", "/dev/null", "net:", "anon_inode:[event", "/memfd:"];
    assert!(files.iter().all(|file| known.iter().any(|known| file.starts_with(known))), "{files:?}");
    // The daemon holds no packet socket of the device either.
    let packets = net.pair.near.namespace.enter(|| std::fs::read_to_string("/proc/thread-self/net/packet"));
    let count = packets.unwrap().unwrap().lines().count() - 1;
    let own = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(count > 0 && own(daemon(&net)) < 60, "{count} packet sockets, all of the process");
}

#[test]
fn connections_and_listeners_outlive_processes_of_their_interface() {
    let Some(net) = interface_with(&[]) else { return };
    let _echo = echo(&net, "tcp", "7000");
    let load = Load::start(&net, "10.0.0.2:7000");
    for killed in 1..=3 {
        std::thread::sleep(Duration::from_millis(300));
        kill_interface_process(&net);
        assert_eq!(restarts(&net), killed);
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(load.finish() > 100_000);
    ask_once(&net, "10.0.0.2:7000");
    let mut net = net;
    let said = net.daemon.take().unwrap().interrupt();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let line = "near: the interface's process ended (it was killed, or crashed); another one goes on";
    assert_eq!(said.matches(line).count(), 3, "{said}");
}

/// With AF_XDP, no packet socket of the next process sees packets of the gap.
#[test]
fn connections_open_and_close_between_two_ends_of_their_interface() {
    let Some(net) = interface_with(&["--via", "af_xdp"]) else { return };
    let _echo = echo(&net, "tcp", "7000");
    let load = Load::start(&net, "10.0.0.2:7000");
    for _ in 0..3 {
        for _ in 0..5 {
            ask_once(&net, "10.0.0.2:7000");
        }
        kill_interface_process(&net);
    }
    ask_once(&net, "10.0.0.2:7000");
    assert!(load.finish() > 0);
    until("connections that were closed are no flows", || count(&net, "flows") == 0);
}

#[test]
fn datagrams_go_on_whole_and_once_with_the_next_process() {
    let Some(net) = interface_with(&[]) else { return };
    let _echo = echo(&net, "udp", "4000");
    let socket = far_socket(&net, "10.0.0.1:5000");
    socket.connect("10.0.0.2:4000").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let datagram = |number: u32| [&number.to_be_bytes()[..], &pattern()[..number as usize % 1400]].concat();
    let (mut next, mut seen) = (0, HashSet::new());
    for round in 0..4 {
        if round > 0 {
            kill(interface_process(&net).expect("it runs"));
        }
        let goal = seen.len() + 200;
        let began = Instant::now();
        while seen.len() < goal {
            assert!(began.elapsed() < LONG, "round {round}: {} of {goal}", seen.len());
            // The far side may not find the neighbour for a moment.
            let _ = socket.send(&datagram(next));
            next += 1;
            let mut bytes = [0; 2000];
            while let Ok(len) = socket.recv(&mut bytes) {
                let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
                assert!(number < next && bytes[..len] == datagram(number)[..], "datagram {number}");
                assert!(seen.insert(number), "datagram {number} came twice");
                if number + 1 == next {
                    break;
                }
            }
        }
    }
    assert_eq!(restarts(&net), 3);
}

#[test]
fn an_interface_whose_processes_end_again_and_again_goes_down() {
    let Some(mut net) = interface_with(&[]) else { return };
    let echo = echo(&net, "udp", "4000");
    for _ in 0..5 {
        kill_interface_process(&net);
        until("it answers", || count(&net, "flows") == 1);
    }
    kill(interface_process(&net).expect("it runs"));
    let output = echo.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("Network is down"), "{said}");
    until("it is listed no more", || {
        let output = command(&net, 0, &["ls"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).starts_with("no interface is up")
    });
    let device = net.device().to_string();
    let up = ["up", device.as_str(), "--addr", "10.0.0.2/24", "--via", "af_packet"];
    assert!(command(&net, 0, &up).status().unwrap().success(), "the device is free");
    let said = net.daemon.take().unwrap().interrupt();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("near: the interface went down: its process ended 6 times within 60 s"), "{said}");
}

#[test]
fn flows_go_on_with_the_next_daemon_and_end_with_their_application() {
    let Some(mut net) = interface_with(&[]) else { return };
    let server = echo(&net, "tcp", "7000");
    let datagrams = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    until("both listen", || count(&net, "flows") == 1);
    let load = Load::start(&net, "10.0.0.2:7000");
    until("it was accepted", || count(&net, "flows") == 2);
    let process = interface_process(&net).expect("it runs");
    kill_daemon(&mut net);
    // Longer than a moment: packets move without a daemon.
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_there(process) && std::fs::exists(net.socket()).unwrap());
    net.start_daemon();
    until("the interface came", || flows(&net)["listeners"].as_array().unwrap().len() == 1);
    // A listener accepts, a datagram socket echoes, and a new flow is opened.
    ask_once(&net, "10.0.0.2:7000");
    let socket = far_socket(&net, "10.0.0.1:5000");
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.send_to(b"still there?", "10.0.0.2:4000").unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 12);
    let new = Running::start(command(&net, NOBODY, &["echo", "udp", "4001"]));
    until("it is opened", || count(&net, "flows") >= 3);
    socket.send_to(b"new", "10.0.0.2:4001").unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 3);
    std::thread::sleep(Duration::from_secs(6));
    assert!(load.finish() > 100_000);
    assert!(is_there(process), "the same process");

    // The peer of a killed application soon gets a reset.
    let mut idle = far_connect(&net, "10.0.0.2:7000");
    idle.write_all(b"x").unwrap();
    idle.read_exact(&mut [0]).unwrap();
    let killed = Instant::now();
    server.signal(Signal::KILL);
    assert_eq!(idle.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    until("its flows are gone", || count(&net, "listeners") == 0);
    drop((datagrams, new));
    until("all are gone", || count(&net, "flows") == 0);
    let device = net.device().to_string();
    assert!(command(&net, 0, &["down", &device]).status().unwrap().success());
    until("the process ended", || !is_there(process));
}

#[test]
fn without_another_daemon_flows_end_and_the_device_is_given_back() {
    let Some(mut net) = interface_with(&[]) else { return };
    let (server, datagrams) = (echo(&net, "tcp", "7000"), echo(&net, "udp", "4000"));
    let mut idle = far_connect(&net, "10.0.0.2:7000");
    idle.write_all(b"x").unwrap();
    idle.read_exact(&mut [0]).unwrap();
    let process = interface_process(&net).expect("it runs");
    let killed = Instant::now();
    kill_daemon(&mut net);
    assert_eq!(idle.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let took = killed.elapsed();
    assert!((Duration::from_secs(4)..OVER).contains(&took), "{took:?}");
    let output = datagrams.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("Network is down"), "{said}");
    assert!(killed.elapsed() < OVER);
    // A server reports it, and tries again.
    std::thread::sleep(Duration::from_millis(300));
    let output = server.interrupt();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Network is down"), "{said}");
    until("the process ended", || !is_there(process));
    net.start_daemon();
    let device = net.device().to_string();
    let up = ["up", device.as_str(), "--addr", "10.0.0.2/24", "--via", "af_packet"];
    assert!(command(&net, 0, &up).status().unwrap().success());
    assert_eq!(count(&net, "flows"), 0);
}

#[test]
fn an_application_that_is_killed_without_a_daemon_is_reset_at_its_peer() {
    let Some(mut net) = interface_with(&[]) else { return };
    let server = echo(&net, "tcp", "7000");
    let datagrams = echo(&net, "udp", "4000");
    let mut idle = far_connect(&net, "10.0.0.2:7000");
    idle.write_all(b"x").unwrap();
    idle.read_exact(&mut [0]).unwrap();
    kill_daemon(&mut net);
    std::thread::sleep(Duration::from_millis(300));
    let killed = Instant::now();
    server.signal(Signal::KILL);
    assert_eq!(idle.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    net.start_daemon();
    until("the other flow came", || count(&net, "flows") == 1);
    assert_eq!(count(&net, "listeners"), 0);
    let socket = far_socket(&net, "10.0.0.1:5000");
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.send_to(b"still there?", "10.0.0.2:4000").unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 12);
    drop(datagrams);
}

struct Connected {
    client: Client,
    host: Host,
}

impl Connected {
    fn new(net: &Net, user: u32) -> Connected {
        let socket = net.socket();
        // The kernel tells the daemon the user of the thread that connects.
        let connecting = std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            Client::connect(&socket, "a test").unwrap()
        });
        Connected { client: connecting.join().unwrap(), host: Host::default() }
    }

    fn open(&mut self) -> Flow {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let small = OpenFlow {
            send_records: 1,
            send_bytes: 4096,
            receive_buffers: 1,
            buffer_bytes: 64,
            ..OpenFlow::new(None, 17, any, None)
        };
        let (answer, fds) = self.client.flows(Question::Open(small.clone())).unwrap();
        let Answer::Granted(granted) = answer else { panic!("{answer:?}") };
        self.host.adopt(granted, small.geometry(), fds).unwrap()
    }

    fn page(&self) -> OwnedFd {
        self.host.bells().expect("it has a flow").handles()[0].try_clone().unwrap()
    }
}

fn refused(claimed: Result<(), CaptureError>) -> CaptureErrorKind {
    claimed.expect_err("it is refused").kind
}

#[test]
fn flows_of_others_are_not_claimed_nor_own_ones_twice() {
    let Some(mut net) = interface_with(&[]) else { return };
    let (mut own, mut other) = (Connected::new(&net, NOBODY), Connected::new(&net, 0));
    let flows_before = [own.open(), own.open(), other.open()];
    // No daemon has ended: even the flows' own user has none to claim.
    assert_eq!(
        refused(Connected::new(&net, NOBODY).client.claim(vec![0, 1], own.page().as_fd())),
        CaptureErrorKind::Absent
    );
    kill_daemon(&mut net);
    net.start_daemon();
    until("the interface came", || count(&net, "flows") == 3);
    let claim = |user: u32, channels: Vec<u32>, page: &dyn AsFd| {
        let connected = Connected::new(&net, user);
        let claimed = connected.client.claim(channels, page.as_fd());
        (connected, claimed)
    };
    // The descriptor alone is not enough: another user has it here.
    assert_eq!(refused(claim(0, vec![0, 1], &own.page()).1), CaptureErrorKind::Absent);
    assert_eq!(refused(claim(NOBODY, vec![0], &other.page()).1), CaptureErrorKind::Absent);
    // Other descriptors of the same flow are refused, and so is nonsense.
    let [_, mine, theirs] = own.host.bells().unwrap().handles();
    assert_eq!(refused(claim(NOBODY, vec![0], mine).1), CaptureErrorKind::Absent);
    assert_eq!(refused(claim(NOBODY, vec![0], theirs).1), CaptureErrorKind::Absent);
    assert_eq!(refused(claim(NOBODY, vec![0], &std::io::stdin()).1), CaptureErrorKind::Absent);
    let asked = Connected::new(&net, NOBODY);
    assert_eq!(refused(asked.client.flows(Question::Claim(vec![0])).map(drop)), CaptureErrorKind::Request);
    // One of two flows is claimed: the other one ends.
    let (claimed, done) = claim(NOBODY, vec![flows_before[1].granted.channel], &own.page());
    done.unwrap();
    until("one was not known", || count(&net, "flows") == 2);
    assert_eq!((flows_before[0].channel.state(), flows_before[1].channel.state()), (State::Closed(0), State::Open));
    assert_eq!(refused(claim(NOBODY, vec![1], &own.page()).1), CaptureErrorKind::Absent, "twice");
    let again = claimed.client.claim(vec![1], own.page().as_fd());
    assert_eq!(refused(again), CaptureErrorKind::Request, "it has flows");
    // Flows belong to the connection that claimed them. Unclaimed flows end after some seconds.
    drop(claimed);
    until("it took them along", || count(&net, "flows") == 1);
    until("nobody came for the last one", || count(&net, "flows") == 0);
    assert_eq!(flows_before[2].channel.state(), State::Closed(0));
}

#[test]
fn strangers_are_no_processes_of_interfaces() {
    let Some(net) = interface_with(&[]) else { return };
    // The daemon is `streamline`, or `nobody` if there is no such user.
    let own = rustix::fs::stat(format!("/proc/{}/task", daemon(&net))).unwrap().st_uid;
    for user in [0, 1234, NOBODY] {
        if user == own {
            continue;
        }
        let stranger = Connected::new(&net, user);
        assert_eq!(refused(stranger.client.flows(Question::Adopt).map(drop)), CaptureErrorKind::Denied, "{user}");
    }
    assert_eq!(count(&net, "flows"), 0);
}

/// Numbers of open files of the daemon and of the interface's process.
fn files(net: &Net, process: i32) -> [usize; 2] {
    [daemon(net), process].map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

#[test]
fn a_thousand_flows_leave_nothing() {
    let Some(mut net) = interface_with(&[]) else { return };
    let process = interface_process(&net).expect("it runs");
    drop(Connected::new(&net, NOBODY));
    until("it is gone", || count(&net, "flows") == 0);
    let before = files(&net, process);
    let memory = |process: i32| {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        maps.lines().filter(|line| line.contains("memfd:streamline-flow")).count()
    };
    for is_away in [false, true] {
        let mut connected = Connected::new(&net, NOBODY);
        let flows: Vec<Flow> = (0..1000).map(|_| connected.open()).collect();
        assert_eq!(count(&net, "flows"), 1000);
        let held = files(&net, process);
        assert!(held[0] >= before[0] + 2000 && held[1] >= before[1] + 2000, "{before:?} {held:?}");
        assert!(memory(process) >= 2000 && memory(daemon(&net)) == 0, "the daemon maps none of it");
        if is_away {
            kill_daemon(&mut net);
        }
        drop((connected, flows));
        if is_away {
            net.start_daemon();
            until("the interface came", || {
                let output = command(&net, 0, &["ls"]).output().unwrap();
                String::from_utf8_lossy(&output.stdout).contains("near")
            });
        }
        until("no flow is left", || count(&net, "flows") == 0);
        until("no file is left", || {
            let after = files(&net, process);
            // A client may be about to leave.
            after[0] <= before[0] + 5 && after[1] <= before[1] + 3
        });
        assert_eq!(memory(process), 0);
    }
}

#[test]
fn flows_of_ipv6_outlive_processes_and_daemons() {
    let Some(mut net) = crate::ipv6::both() else { return };
    let start = |words: [&str; 5]| Running::start(command(&net, NOBODY, &words));
    let _echoes = [start(["echo", "tcp", "7000", "--addr", "::"]), start(["echo", "udp", "4000", "--addr", "fd00::2"])];
    until("they listen", || count(&net, "listeners") == 1 && count(&net, "flows") == 1);
    let load = Load::start(&net, "[fd00::2]:7000");
    let socket = far_socket(&net, "[fd00::1]:5000");
    socket.connect("[fd00::2]:4000").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let answers = |number: u8| {
        until("a datagram comes back", || {
            // The far side may not find the neighbour for a moment.
            let _ = socket.send(&[number; 100]);
            let mut bytes = [0; 200];
            socket.recv(&mut bytes).is_ok_and(|len| bytes[..len] == [number; 100])
        });
    };
    answers(0);
    for number in 1..3 {
        std::thread::sleep(Duration::from_millis(300));
        kill_interface_process(&net);
        answers(number);
    }
    let process = interface_process(&net).expect("it runs");
    kill_daemon(&mut net);
    net.start_daemon();
    until("the interface came", || count(&net, "listeners") == 1 && count(&net, "flows") == 2);
    assert!(is_there(process));
    answers(3);
    assert!(load.finish() > 100_000);
    ask_once(&net, "[fd00::2]:7000");
    let locals: Vec<Value> =
        flows(&net)["listeners"].as_array().unwrap().iter().map(|one| one["local"].clone()).collect();
    assert_eq!(locals, ["[fd00::2]:7000"]);
}

/// The host has the device, and would answer the packets of a flow with resets.
#[test]
fn connections_on_a_shared_device_outlive_processes_and_daemons() {
    let Some(mut net) = crate::sharing::shared() else { return };
    let _echo = echo(&net, "tcp", "7000");
    let load = Load::start(&net, "10.0.0.2:7000");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(300));
        kill_interface_process(&net);
        until("it is restored", || count(&net, "listeners") == 1);
    }
    let process = interface_process(&net).expect("it runs");
    std::thread::sleep(Duration::from_millis(300));
    kill_daemon(&mut net);
    std::thread::sleep(Duration::from_millis(300));
    net.start_daemon();
    until("the interface came", || count(&net, "listeners") == 1);
    assert!(load.finish() > 100_000);
    ask_once(&net, "10.0.0.2:7000");
    // The next port keeper holds the port for the flow, too.
    let bind = || TcpListener::bind("10.0.0.2:7000");
    assert!(net.pair.near.namespace.enter(bind).unwrap().is_err());
    let device = net.device().to_string();
    assert!(command(&net, 0, &["down", &device]).status().unwrap().success());
    assert_eq!(net.pair.near.link().xdp, None);
    assert!(net.pair.near.namespace.enter(bind).unwrap().is_ok());
    until("the process ended", || !is_there(process));
}
