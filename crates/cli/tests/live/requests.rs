//! Requests on live devices: a daemon, several readers of one device, and the packets of each, one by one.

use crate::net::*;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use testkit::network::{Pair, may_make_networks};
use testkit::process::sleeps;

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
        stock = Some(net.there_noting(command, "stock.txt"));
        until("tcpdump listens", || net.text("stock.txt").contains("listening on"));
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
    let nobody = |request: &str| Running::start(net.as_nobody(request));
    let stranger = net.request("ethernet D | count").uid(1234).gid(1234).output().unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(!stranger.status.success() && said.contains("user 1234 may use no device here"), "{said}");
    let allowed: Vec<Running> = (0..2).map(|_| nobody("ethernet D | bpf \"port 53\" | count")).collect();
    until("both read", || net.readers() == 2);
    let third = nobody("ethernet D | count").end();
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(!third.status.success() && said.contains("as many as the daemon's policy lets one user have"), "{said}");
    send(&net, &traffic(300));
    for reader in allowed {
        let output = reader.interrupt();
        succeeded(&output);
        let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counted["blocks"], 80, "{counted}");
    }
    // A stranger cannot see or end other users' requests.
    let client = net.read(&["ethernet D | count"]).pop().unwrap();
    let id = net.state()["clients"][0]["id"].to_string();
    let mut stop = Command::new(PROGRAM);
    stop.args(["stop", "--client", &id, "--daemon"]).arg(net.socket()).uid(65534);
    assert!(!stop.output().unwrap().status.success());
    let mut stop = Command::new(PROGRAM);
    stop.args(["stop", "--client", &id, "--daemon"]).arg(net.socket());
    assert!(stop.output().unwrap().status.success());
    let output = client.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("has ended: stopped by `streamline stop` (user 0)"), "{said}");
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
    assert!(output.status.code() == Some(1) && said.contains("has ended: the device has gone"), "{said}");
    let none = net.request("ethernet D | count").output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(said.contains(&format!("there is no device `{}`", net.device())), "{said}");
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
    until("all have found theirs", || {
        let state = net.state();
        let readers = state["rings"].as_array().unwrap().iter().flat_map(|ring| ring["readers"].as_array().unwrap());
        readers.map(|reader| reader["matched"].as_u64().unwrap()).sum::<u64>() == 1600 + 1600 + 500
    });
    let outputs: Vec<Output> = readers.into_iter().map(Running::interrupt).collect();
    outputs.iter().for_each(|output| drop(succeeded(output)));
    let (kernel, socket) = (packets(&net.path("kernel.pcap")), packets(&net.path("socket.pcap")));
    assert_eq!((kernel.len(), socket.len()), (1600, 1600));
    // Between two points of the kernel, sent packets may overtake received ones. Each direction keeps its order.
    let (kernel, socket) = (by_way(kernel), by_way(socket));
    assert!(kernel == socket, "other bytes or another order");
    let counted: Value = serde_json::from_slice(&outputs[2].stdout).unwrap();
    assert_eq!(counted["blocks"], 500);
}

/// Received packets, and sent ones: each fourth.
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
        let mut running = pair.near.namespace.enter(move || Running::start(command)).unwrap();
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

#[test]
fn everything_on_the_way_is_counted() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let reader = net.read(&["ethernet D | bpf \"udp port 53\" | count"]).pop().unwrap();
    let frames = traffic(30);
    send(&net, &frames);
    let stats = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("stats").args(options).arg("--daemon").arg(net.socket());
        net.pair.near.namespace.enter(move || command.output().unwrap()).unwrap()
    };
    let counted: Value = serde_json::from_slice(&stats(&["--json", net.device()]).stdout).unwrap();
    assert_eq!(counted["devices"][net.device()]["link.rx_packets"], 30, "{counted}");
    assert_eq!(counted["rings"][0]["seen"], 30, "{counted}");
    // Each third packet goes to the port, and a fifth of those are tagged.
    assert_eq!(counted["rings"][0]["readers"][0]["matched"], 8, "{counted}");
    let text = String::from_utf8_lossy(&stats(&[]).stdout).into_owned();
    assert!(text.contains("ring.seen") && text.contains("reader.matched") && !text.contains(" 0 "), "{text}");
    let none = stats(&["absent"]);
    assert_eq!(none.status.code(), Some(1));
    reader.interrupt();
}

#[test]
fn what_policy_keeps_is_there_for_who_comes_later() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(
        "[[allow]]\nusers = [\"65534\"]\ndevices = [\"near\", \"late*\"]\nmodes = [\"tap\"]\nkeep = \"8MiB\"\n\n\
         [[allow]]\nusers = [\"1234\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n",
    ));
    let seen = |name: &str| {
        let state = net.state();
        let mut rings = state["rings"].as_array().unwrap().iter();
        let kept = rings.find(|ring| ring["kept"] == true && ring["device"] == name);
        kept.map(|ring| ring["seen"].as_u64().unwrap())
    };
    let far = |pair: &Pair, frames: &[Vec<u8>]| {
        let mut sender = pair.far.sender();
        frames.iter().for_each(|frame| sender.send(frame).unwrap());
    };
    until("the device's packets are kept", || seen("near").is_some());
    let frames = traffic(500);
    far(&net.pair, &frames);
    until("all are seen", || seen("near") == Some(500));
    let late = Pair::named([(&net.pair.near.namespace, "late0"), (&testkit::network::quiet_namespace(), "end")], 1);
    let late = late.unwrap();
    until("the new device's packets are kept", || seen("late0").is_some());
    far(&late, &frames[..100]);
    until("all are seen", || seen("late0") == Some(100));
    // The permitted user and root look back. Each filter also selects from the past.
    let look_back = |user: u32, request: &str| {
        let mut command = net.request(request);
        command.uid(user).gid(user);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    for user in [65534, 0] {
        let file = format!("past-{user}.pcap");
        look_back(user, &format!("ethernet D last=60s | head 500 | save {file}"));
        let got: Vec<Vec<u8>> = packets(&net.path(&file)).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(got == frames, "{} of 500", got.len());
    }
    look_back(65534, "ethernet late0 last=60s | head 100 | save late.pcap");
    assert_eq!(packets(&net.path("late.pcap")).len(), 100);
    // A message says how far the ring reaches back. A user with another ring has no past packets.
    let told = |user: u32, request: &str| {
        let mut command = net.request(request);
        command.uid(user).gid(user);
        let reader = Running::start(command);
        until("it reads", || net.readers() == 1);
        let output = reader.interrupt();
        until("it is gone", || net.readers() == 0);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = told(65534, "ethernet D last=1h | count");
    assert!(said.contains("of 3600.0 s; nothing from before was kept"), "{said}");
    let said = told(65534, "ethernet D last=1ms | count");
    assert!(!said.contains("reaches back"), "{said}");
    let said = told(1234, "ethernet D last=1h | count");
    assert!(said.contains("holds what others wanted"), "{said}");
    // Only root may keep a device's packets, and only root may end that.
    let denied = net.request("ethernet D keep=8M | count").uid(1234).gid(1234).output().unwrap();
    let said = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert!(
        !denied.status.success() && said.contains("only root, or the daemon's policy (`keep`), may have packets kept"),
        "{said}"
    );
    let stop = |user: u32| {
        let mut stop = Command::new(PROGRAM);
        stop.args(["stop", "--kept", "late0", "--daemon"]).arg(net.socket()).uid(user);
        stop.output().unwrap().status.success()
    };
    assert!(!stop(65534) && stop(0) && !stop(0));
    assert_eq!(seen("late0"), None);
    let keeper = Running::start(net.request("ethernet late0 keep=8M | bpf \"tcp\" | count"));
    until("all of it is kept", || seen("late0").is_some());
    succeeded(&keeper.interrupt());
    far(&late, &frames[100..150]);
    until("all are seen", || seen("late0") == Some(50));
    look_back(0, "ethernet late0 last=60s | head 50 | save late2.pcap");
    assert!(packets(&net.path("late2.pcap")).into_iter().map(|(_, bytes)| bytes).eq(frames[100..150].iter().cloned()));
}

#[test]
fn what_a_stopped_reader_loses_is_shown_while_it_is_stopped() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(
        "[[allow]]\nusers = [\"root\"]\ndevices = [\"*\"]\nmodes = [\"tap\"]\n\n[limits]\nring = \"1M\"\n",
    ));
    let shown = |command: &str| {
        let output = Command::new(PROGRAM).args([command, "--daemon"]).arg(net.socket()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let client = |net: &Net| {
        let clients = net.state()["clients"].as_array().unwrap().clone();
        clients.into_iter().find(|client| client["readers"].as_array().is_some_and(|readers| !readers.is_empty()))
    };
    let reader = net.read(&["ethernet D | save got.pcap"]).pop().unwrap();
    send(&net, &traffic(100));
    let state = client(&net).unwrap();
    assert_eq!((state["lost"].as_u64(), state["stopped"].as_bool()), (Some(0), Some(false)), "{state}");
    reader.signal(Signal::STOP);
    until("it is stopped", || client(&net).unwrap()["stopped"] == true);
    let frames: Vec<Vec<u8>> = (0..2400).map(|number| datagram(number, 53, 1400)).collect();
    send(&net, &frames);
    // The most packets that fit into a MiB, each in whole cache lines.
    let (sent, most) = (frames.len() as u64, (1 << 20) / 1408);
    let state = net.state();
    let ring = &state["rings"][0]["readers"][0];
    let lost = ring["lost"].as_u64().unwrap();
    assert!((sent - most..sent + 100).contains(&lost), "{state}");
    let (ps, stats) = (shown("ps"), shown("stats"));
    assert!(ps.contains(" s, stopped ") && ps.contains(" lost "), "{ps}");
    assert!(stats.lines().any(|line| line.contains("reader.lost") && line.contains(&lost.to_string())), "{stats}");
    reader.signal(Signal::CONT);
    let report = succeeded(&reader.interrupt());
    let dropped = report["filters"][0]["dropped"]["overwritten before they were read"].as_u64().unwrap();
    assert!((lost..=sent + 100).contains(&dropped), "{lost} were lost for sure: {report}");
}

#[test]
fn who_may_hear_later_looks_less_often() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let requests = ["ethernet D | head 1000000 | count", "set latency=500ms; ethernet D | head 1000000 | count"];
    let running = net.read(&requests);
    let processes: Vec<u32> = running.iter().map(|running| running.0.as_ref().unwrap().id()).collect();
    let mut sender = net.pair.far.sender();
    let sent = 300;
    let before = processes.iter().copied().map(sleeps).collect::<Vec<_>>();
    for number in 0..sent {
        sender.send(&datagram(number, 53, 100)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let slept: Vec<u64> = processes.iter().zip(before).map(|(process, before)| sleeps(*process) - before).collect();
    for running in running {
        let output = running.interrupt();
        succeeded(&output);
        let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counted["blocks"], sent);
    }
    // The difference, not the ratio: `streamline ps` of a parallel test asks every request of the machine, and wakes
    // both equally often. Without that, the counts are 156 and 39.
    assert!(slept[1] + 60 < slept[0], "{slept:?}");
}

#[test]
fn a_request_that_leaves_out_its_source_reads_the_device_beside_it() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let mut command = net.request("bpf \"udp port 53\" | save dns.pcap + not bpf \"udp port 53\" | save rest.pcap");
    command.args(["-i", net.device()]);
    let running = Running::start(command);
    // Both branches read the device: it is one source of the plan.
    until("both branches read", || net.readers() == 2);
    let process = running.0.as_ref().unwrap().id();
    let said = || {
        let state = net.state();
        let of_process = |key: &str| {
            let all = state[key].as_array().unwrap().clone();
            all.into_iter().find(|one| one["process"] == process).unwrap_or_default().to_string()
        };
        (of_process("requests"), of_process("clients"))
    };
    until("its request can be asked", || said().0 != "null");
    assert!(said().0.contains("ethernet near: bpf") && said().1.contains("ethernet near: bpf"), "{:?}", said());
    let frames = traffic(90);
    send(&net, &frames[..45]);
    // Its replacement may also leave the source out, or have its own.
    for (request, file) in [("bpf \"udp port 53\" | save again.pcap", "again"), ("ethernet D | save own.pcap", "own")] {
        let replaced = crate::replacing::replace(&net, process, request);
        assert!(replaced.status.success(), "{request}: {}", String::from_utf8_lossy(&replaced.stderr));
        if file == "again" {
            send(&net, &frames[45..]);
        }
    }
    assert!(said().0.contains("\"ethernet near | save own.pcap\""), "{:?}", said());
    succeeded(&running.interrupt());
    let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    let is_dns = |frame: &&Vec<u8>| frame[12] == 8 && frame[36..38] == [0, 53];
    let (dns, rest): (Vec<_>, Vec<_>) = frames[..45].iter().partition(is_dns);
    assert!(got("dns.pcap").iter().eq(dns) && got("rest.pcap").iter().eq(rest));
    assert!(got("again.pcap").iter().eq(frames[45..].iter().filter(is_dns)));
}

#[test]
fn what_a_live_request_could_not_read_is_said_at_its_end() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let mut request = Command::new(PROGRAM);
    request.args(["run", "--stats", "none", "--daemon"]).arg(net.socket());
    request.arg(format!("ethernet {} | udp | drop", net.device())).stdin(Stdio::null()).stderr(Stdio::piped());
    let reader = Running::start(request);
    until("it reads", || net.readers() == 1);
    let mut frames = traffic(20);
    // The first of several fragments, each of another packet.
    let ipv4 = frames.iter_mut().filter(|frame| frame[12..14] == [8, 0]).enumerate();
    ipv4.for_each(|(number, frame)| (frame[19], frame[20]) = (number as u8, frame[20] | 0x20));
    send(&net, &frames);
    let output = reader.interrupt();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("16 of 16 fragmented packets are left out, for fragments are missing"), "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
}
