//! `streamline net up --share`: the host keeps a device's addresses. The daemon and its port keeper are confined.

use crate::net::*;
use serde_json::Value;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use testkit::network::{End, may_make_networks};

const POLICY: &str = "[[allow]]\nusers = [\"65534\"]\ndevices = [\"*\"]\nmodes = [\"flow\"]\n";

/// A daemon that shares one end of a pair, the host's 10.0.0.2. The other end is the kernel's, 10.0.0.1. `None`: that
/// cannot be made.
pub(crate) fn shared() -> Option<Net> {
    if !may_make_networks() {
        return None;
    }
    let net = Net::new(Some(POLICY));
    for (end, address) in [(&net.pair.near, "10.0.0.2/24"), (&net.pair.far, "10.0.0.1/24")] {
        end.change(&driver::change::Change { arp: Some(true), ..Default::default() });
        let give = || Command::new("ip").args(["address", "add", address, "dev", &end.name]).status();
        if !end.namespace.enter(give).unwrap().is_ok_and(|status| status.success()) {
            eprintln!("skipped (tools): there is no `ip`");
            return None;
        }
    }
    let output = command(&net, 0, &["up", net.device(), "--share"]).output().unwrap();
    let said = text(&output);
    if said.contains("cannot lock") {
        eprintln!("skipped (limits): {said}");
        return None;
    }
    assert!(output.status.success() && said.contains("shared with the host") && said.contains("10.0.0.2/24"), "{said}");
    Some(net)
}

fn command(net: &Net, user: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("net").args(arguments).arg("--daemon").arg(net.socket());
    command.current_dir(net.path("")).uid(user).gid(user);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

fn bind(end: &End, address: &str) -> std::io::Result<UdpSocket> {
    let socket = end.namespace.enter(|| UdpSocket::bind(address))??;
    socket.set_read_timeout(Some(LONG))?;
    Ok(socket)
}

fn flows(net: &Net) -> usize {
    let output = command(net, 0, &["flows", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["flows"].as_array().unwrap().len()
}

/// The process that holds ports for the daemon.
fn keeper(net: &Net) -> rustix::process::Pid {
    let daemon = net.daemon.as_ref().unwrap().0.as_ref().unwrap().id();
    let children = std::fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).unwrap();
    let is_keeper =
        |pid: &&str| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"--port-keeper\0"));
    let pid = children.split_whitespace().find(is_keeper).expect("the daemon started it").parse().unwrap();
    rustix::process::Pid::from_raw(pid).unwrap()
}

#[test]
fn a_flow_has_its_port_and_the_host_the_rest_until_the_application_is_killed() {
    let Some(net) = shared() else { return };
    let own = bind(&net.pair.near, "10.0.0.2:5000").unwrap();
    let taken = command(&net, NOBODY, &["echo", "udp", "5000"]).output().unwrap();
    assert!(!taken.status.success() && text(&taken).contains("the host has UDP port 5000"), "{}", text(&taken));
    let echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    // A port of root: the keeper has the right, and the daemon has given it up.
    let low = Running::start(command(&net, 0, &["echo", "udp", "7"]));
    until("both listen", || flows(&net) == 2);
    assert!(bind(&net.pair.near, "10.0.0.2:4000").is_err() && bind(&net.pair.near, "0.0.0.0:7").is_err());
    let far = bind(&net.pair.far, "10.0.0.1:6000").unwrap();
    let mut bytes = [0; 2000];
    for number in 0..100_usize {
        for to in ["10.0.0.2:4000", "10.0.0.2:7"] {
            far.send_to(&vec![7; number], to).unwrap();
            let (len, from) = far.recv_from(&mut bytes).unwrap();
            assert_eq!((len, from.to_string().as_str()), (number, to));
        }
        far.send_to(&[8; 9], "10.0.0.2:5000").unwrap();
        assert_eq!(own.recv(&mut bytes).unwrap(), 9);
    }
    let listed = command(&net, 0, &["ls"]).output().unwrap();
    let listed = text(&listed);
    for (name, at_least) in [("xdp.taken.local_port", 200), ("xdp.left.no_flow", 100), ("ended.delivered", 200)] {
        let line = listed.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {listed}"));
        let count: u64 = line.split_whitespace().last().unwrap().parse().unwrap();
        assert!(count >= at_least, "{line}");
    }
    // Killed: it cannot give anything back itself.
    echo.signal(rustix::process::Signal::KILL);
    until("its port is free", || bind(&net.pair.near, "10.0.0.2:4000").is_ok());
    until("its flow ended", || flows(&net) == 1);
    let down = command(&net, 0, &["down", net.device()]).output().unwrap();
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(net.pair.near.link().xdp, None);
    assert!(bind(&net.pair.near, "10.0.0.2:7").is_ok());
    drop(low);
}

#[test]
fn a_daemon_that_is_killed_leaves_the_host_all() {
    let Some(mut net) = shared() else { return };
    let keeper = keeper(&net);
    let _echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    until("it listens", || flows(&net) == 1);
    drop(net.daemon.take());
    until("the port is free", || bind(&net.pair.near, "10.0.0.2:4000").is_ok());
    until("the program is gone", || net.pair.near.link().xdp.is_none());
    let ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", keeper.as_raw_nonzero())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    until("the keeper ended", ended);
}

#[test]
fn a_keeper_that_is_killed_is_told_and_new_flows_are_refused() {
    let Some(net) = shared() else { return };
    let far = bind(&net.pair.far, "10.0.0.1:6000").unwrap();
    let _echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000"]));
    until("it listens", || flows(&net) == 1);
    rustix::process::kill_process(keeper(&net), rustix::process::Signal::KILL).unwrap();
    let mut refused = String::new();
    until("flows are refused", || {
        let mut echo = command(&net, NOBODY, &["echo", "udp", "4001"]);
        refused = text(&echo.output().unwrap());
        refused.contains("holds ports of the host does not answer")
    });
    far.send_to(b"still there?", "10.0.0.2:4000").unwrap();
    assert_eq!(far.recv(&mut [0; 100]).unwrap(), 12);
    let mut net = net;
    let output = net.daemon.take().unwrap().interrupt();
    assert!(text(&output).contains("the process that holds ports of the host ended"), "{}", text(&output));
}

#[test]
fn addresses_and_ways_that_contradict_sharing_are_refused() {
    let Some(net) = shared() else { return };
    let device = net.device();
    for words in [
        &["cat", "udp", "--to", "[fd00::1]:7"][..],
        &["cat", "tcp", "--to", "[fd00::1]:7", "--device", device],
        &["echo", "udp", "4000", "--addr", "::"],
    ] {
        let output = command(&net, NOBODY, words).output().unwrap();
        assert!(!output.status.success() && text(&output).contains("has flows of IPv4 only"), "{}", text(&output));
    }
    for (options, told) in [
        (&["--share", "--addr", "10.0.0.9/24"][..], "cannot be used with"),
        (&["--share", "--via", "af_packet"], "takes XDP"),
        (&[], "--addr"),
    ] {
        let _ = command(&net, 0, &["down", device]).output().unwrap();
        let output = command(&net, 0, &["up", device]).args(options).output().unwrap();
        assert!(!output.status.success() && text(&output).contains(told), "{}", text(&output));
    }
}

fn fetched(end: &End, address: &str) -> String {
    use std::io::{Read, Write};
    let address: std::net::SocketAddr = address.parse().unwrap();
    let mut stream = None;
    until("it listens", || {
        let connect = || std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(1));
        stream = end.namespace.enter(connect).unwrap().ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads a whole request: closing a socket with unread bytes resets its connection.
fn read_request(stream: &mut std::net::TcpStream) {
    use std::io::BufRead;
    let lines = std::io::BufReader::new(stream).lines();
    lines.take_while(|line| !line.as_ref().unwrap().is_empty()).for_each(drop);
}

#[test]
fn connections_of_flows_and_of_the_host_run_side_by_side() {
    let Some(net) = shared() else { return };
    let file = "0123456789".repeat(20_000);
    std::fs::write(net.path("file"), &file).unwrap();
    let server = Running::start(command(&net, NOBODY, &["serve", ".", "--port", "8081"]));
    let host = net.pair.near.namespace.enter(|| std::net::TcpListener::bind("10.0.0.2:8080")).unwrap().unwrap();
    let answered = std::thread::spawn(move || {
        let (mut stream, _) = host.accept().unwrap();
        read_request(&mut stream);
        std::io::Write::write_all(&mut stream, b"the host").unwrap();
    });
    assert!(fetched(&net.pair.far, "10.0.0.2:8081").ends_with(&file));
    assert_eq!(fetched(&net.pair.far, "10.0.0.2:8080"), "the host");
    answered.join().unwrap();
    let taken = command(&net, NOBODY, &["serve", ".", "--port", "8082"]);
    let held = net.pair.near.namespace.enter(|| std::net::TcpListener::bind("10.0.0.2:8082")).unwrap().unwrap();
    let refused = Running::start(taken).end();
    assert!(!refused.status.success() && text(&refused).contains("address in use"), "{}", text(&refused));
    drop(held);
    // Outwards: the kernel listens on the far side, and a flow sends the file back.
    let far = net.pair.far.namespace.enter(|| std::net::TcpListener::bind("10.0.0.1:9000")).unwrap().unwrap();
    let sent = file.clone();
    let served = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = far.accept().unwrap();
        read_request(&mut stream);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{sent}", sent.len()).unwrap();
    });
    let got = command(&net, NOBODY, &["get", "http://10.0.0.1:9000/file"]).output().unwrap();
    assert!(got.status.success() && got.stdout == file.as_bytes(), "{}", text(&got));
    served.join().unwrap();
    assert!(server.interrupt().status.success());
}
