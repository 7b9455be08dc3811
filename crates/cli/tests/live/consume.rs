//! Packets that are taken away from the host: `mode=consume`.

use crate::net::*;
use driver::af_packet::{Direction, Options, Receiver};
use driver::{Receive, Turn};
use kernel::code::{Code, Register};
use kernel::sys::{self, Hook, Link};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks};

const POLICY: &str = "[[allow]]\nusers = [\"65534\"]\ndevices = [\"near\"]\nmodes = [\"tap\", \"consume\"]\n";

/// A packet socket that sees what the host's stack receives.
struct Host(Receiver);

impl Host {
    fn new(pair: &Pair) -> Host {
        let options =
            Options { direction: Direction::In, block_timeout: Duration::from_millis(1), ..Options::default() };
        Host(Receiver::open(&pair.near.namespace, &pair.near.name, &options).unwrap())
    }

    fn until(&mut self, last: &[u8]) -> Vec<Vec<u8>> {
        let (mut got, began) = (Vec::<Vec<u8>>::new(), Instant::now());
        while got.last().is_none_or(|frame| frame != last) {
            assert!(began.elapsed() < LONG, "{} came", got.len());
            let mut take = |batch: driver::Batch<'_>| {
                got.extend(batch.frames.iter().map(|frame| {
                    let mut bytes = vec![0; frame.len()];
                    frame.copy_into(&mut bytes);
                    bytes
                }));
            };
            assert!(!matches!(self.0.receive(Duration::from_millis(100), &mut take).unwrap(), Turn::Down));
        }
        got
    }
}

/// The ring of consumed packets, from the daemon's state.
fn taking(state: &Value) -> Option<&Value> {
    let is_taking = |ring: &&Value| ring["how"].as_str().is_some_and(|how| how.contains("AF_XDP"));
    state["rings"].as_array().unwrap().iter().find(is_taking)
}

/// The matches of its readers, in ascending order.
fn matched(net: &Net) -> Vec<u64> {
    let state = net.state();
    let readers = taking(&state).map(|ring| ring["readers"].as_array().unwrap().clone()).unwrap_or_default();
    readers.iter().map(|reader| reader["matched"].as_u64().unwrap()).collect()
}

fn is_of_port(frame: &[u8], port: u16) -> bool {
    frame[12] == 8 && frame[36..38] == port.to_be_bytes()
}

fn taken(state: &Value) -> u64 {
    taking(state).map_or(0, |ring| ring["seen"].as_u64().unwrap())
}

#[test]
fn what_is_taken_comes_to_the_reader_alone_and_to_the_host_when_it_is_gone() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let mut host = Host::new(&net.pair);
    let mut sender = net.pair.far.sender();
    let frames = traffic(2000);
    sender.send(&frames[0]).unwrap();
    assert_eq!(host.until(&frames[0]), frames[..1]);
    for round in ["killed", "asked to stop"] {
        let taker =
            Running::start(net.as_nobody("ethernet D mode=consume everything=yes | save taken.pcap overwrite=yes"));
        until("it reads", || net.readers() == 1);
        let attached = net.pair.near.link().xdp.expect("its program is there").program;
        // A user who may not see the first user's packets is told why.
        let second = net.request("ethernet D mode=consume everything=yes | count").output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(!second.status.success() && said.contains("taken away by another reader already"), "{said}");
        assert_eq!(net.pair.near.link().xdp.unwrap().program, attached);
        // A reader that copies is told that no packets come. So is a user who asks for an explanation.
        let reader = Running::start(net.as_nobody("ethernet D direction=in | count"));
        until("both read", || net.readers() == 2);
        let state = net.state();
        let how = |at: usize| state["rings"][at]["how"].as_str().unwrap().to_string();
        let hows = [how(0), how(1)];
        assert!(hows.iter().any(|how| how.contains("AF_XDP")), "{hows:?}");
        assert!(hows.iter().any(|how| how.contains("taken away by another reader")), "{hows:?}");
        for (at, some) in frames.chunks(200).enumerate() {
            some.iter().for_each(|frame| sender.send(frame).unwrap());
            until("all are taken", || taken(&net.state()) == 200 * (at as u64 + 1));
        }
        let output = reader.interrupt();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("it does not come here"), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("\"blocks\":0"));
        if round == "killed" {
            taker.signal(Signal::KILL);
            drop(taker);
        } else {
            succeeded(&taker.interrupt());
            let got: Vec<Vec<u8>> = packets(&net.path("taken.pcap")).into_iter().map(|(_, bytes)| bytes).collect();
            assert!(got == frames, "{} of 2000", got.len());
        }
        // The host has not seen them, and sees later packets.
        until("its program is gone", || net.pair.near.link().xdp.is_none());
        let last = datagram(9999, 7, 100);
        sender.send(&last).unwrap();
        assert_eq!(host.until(&last), [last], "{round}");
    }
    let _taker = Running::start(net.as_nobody("ethernet D mode=consume everything=yes | count"));
    until("it reads", || net.readers() == 1);
    net.daemon.as_ref().expect("it was started").signal(Signal::KILL);
    until("the device is as it was", || (net.pair.near.link().promiscuity, net.pair.near.link().xdp) == (0, None));
    sender.send(&frames[1]).unwrap();
    assert_eq!(host.until(&frames[1]), frames[1..2]);
}

#[test]
fn who_may_take_away_need_not_be_allowed_to_copy() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some("[[allow]]\neverybody = true\ndevices = [\"*\"]\nmodes = [\"consume\"]\n"));
    let taker = Running::start(net.as_nobody("ethernet D mode=consume everything=yes | count"));
    until("it reads", || net.readers() == 1);
    let copy = net.as_nobody("ethernet D | count").output().unwrap();
    let said = String::from_utf8_lossy(&copy.stderr).into_owned();
    assert!(!copy.status.success() && said.contains("does not let user 65534 tap"), "{said}");
    succeeded(&taker.interrupt());
}

#[test]
fn who_reads_copies_is_said_to_lose_them_and_what_cannot_be_taken_is_refused() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let reader = net.read(&["ethernet D | count"]);
    let taker = Running::start(net.request("ethernet D mode=consume everything=yes | count"));
    until("both read", || net.readers() == 2);
    let output = taker.interrupt();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    for (request, why) in [
        (
            "ethernet D mode=consume everything=yes direction=out | count",
            "packets that the host sends cannot be taken away",
        ),
        ("ethernet D mode=consume everything=yes by=socket | count", "by AF_XDP sockets and in no other way"),
        ("ethernet D mode=consume everything=yes keep=8M | count", "are not kept for others"),
    ] {
        let output = net.request(request).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{request}: {said}");
    }
    drop(reader);
}

#[test]
fn without_a_policy_nobody_takes_but_root_by_itself() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let output = net.request("ethernet D mode=consume everything=yes | count").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--local"), "{said}");
    let pair = Pair::with_queues(2);
    let mut command = Command::new(PROGRAM);
    let request = format!("ethernet {} mode=consume everything=yes | head 3 | save own.pcap", pair.near.name);
    command.args(["run", "--local", "--stats", "json", &request]).current_dir(net.path("."));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut own = pair.near.namespace.enter(move || Running::start(command)).unwrap();
    let mut sender = pair.far.sender();
    until("three packets were taken", || {
        sender.send(&datagram(7, 53, 80)).unwrap();
        own.has_ended()
    });
    succeeded(&own.end());
    assert_eq!(packets(&net.path("own.pcap")), vec![(80, datagram(7, 53, 80)); 3]);
    assert_eq!(pair.near.link().xdp, None);
}

#[test]
fn a_program_of_somebody_elses_stays_and_is_named() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let near = &net.pair.near;
    let mut code = Code::default();
    code.set(Register::R0, 2);
    code.exit();
    let program = sys::load_xdp("somebody_elses", &code.finish().unwrap()).unwrap();
    let attach = || Link::attach(program.as_fd(), near.index, Hook::Xdp).unwrap();
    let foreign = near.namespace.enter(attach).unwrap();
    let number = near.link().xdp.expect("it is there").program;
    let by_itself = |request: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--local"]).arg(request.replace('D', net.device())).stdin(Stdio::null());
        command
    };
    // The earlier daemon has no right any more to ask for the program's name.
    let known = format!("XDP program {number} (`somebody_elses`) is attached to `near`");
    let unknown = format!("XDP program {number} is attached to `near`");
    let through_daemon = net.request("ethernet D mode=consume everything=yes | count");
    let attempts = [
        (through_daemon, &unknown),
        (by_itself("ethernet D mode=consume everything=yes | count"), &known),
        (by_itself("af_xdp D | count"), &known),
    ];
    for (mut command, expected) in attempts {
        let output = near.namespace.enter(|| command.output().unwrap()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert_eq!(near.link().xdp.expect("it stays").program, number);
    }
    let later = net.path("later");
    let mut command = Command::new(PROGRAM);
    command.arg("daemon").arg("--socket").arg(&later).arg("--config").arg(net.path("policy.toml"));
    let _daemon = net.there(command);
    until("it listens", || capture::client::Client::connect(&later, "a test").is_ok());
    let mut command = Command::new(PROGRAM);
    command
        .arg("run")
        .arg("--daemon")
        .arg(&later)
        .arg(format!("ethernet {} mode=consume everything=yes | count", net.device()));
    let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(said.contains(&known), "{said}");
    // The program has let everything through meanwhile. Once it is gone, the device can be taken.
    let mut host = Host::new(&net.pair);
    net.pair.far.sender().send(&datagram(1, 2, 80)).unwrap();
    assert_eq!(host.until(&datagram(1, 2, 80)).len(), 1);
    drop(foreign);
    let taker = Running::start(net.request("ethernet D mode=consume everything=yes | count"));
    until("it reads", || net.readers() == 1);
    succeeded(&taker.interrupt());
}

#[test]
fn what_no_expression_wants_stays_the_hosts_and_readers_of_one_group_take_together() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let mut host = Host::new(&net.pair);
    let mut sender = net.pair.far.sender();
    let frames = traffic(300);
    let of = |ports: &[u16]| -> Vec<Vec<u8>> {
        let wanted = |frame: &&Vec<u8>| ports.iter().any(|port| is_of_port(frame, *port));
        frames.iter().filter(wanted).cloned().collect()
    };
    let last = datagram(1, 9999, 80);
    let mut send = || {
        frames.iter().chain([&last]).for_each(|frame| sender.send(frame).unwrap());
        host.until(&last)
    };
    let left = |ports: &[u16]| -> Vec<Vec<u8>> {
        let wanted = of(ports);
        frames.iter().filter(|frame| !wanted.contains(frame)).chain([&last]).cloned().collect()
    };
    assert_eq!(send().len(), 301);
    let first = "ethernet D mode=consume | { bpf \"udp port 53\" | save dns.pcap + bpf \"udp port 80\" | count }";
    let first = Running::start(net.as_nobody(first));
    until("both of its branches read", || matched(&net).len() == 2);
    let attached = net.pair.near.link().xdp.expect("its program is there").program;
    assert!(send() == left(&[53, 80]));
    until("what they want came", || matched(&net) == [80, 80]);
    let second = "ethernet D mode=consume | bpf \"udp port 4789 or udp port 80\" | sample 2 | save more.pcap";
    let second = Running::start(net.as_nobody(second));
    until("it reads", || matched(&net).len() == 3);
    assert_ne!(net.pair.near.link().xdp.unwrap().program, attached, "the program is another");
    // A reader that copies is told that some packets do not come.
    let reader = Running::start(net.as_nobody("ethernet D direction=in | count"));
    until("it copies", || net.readers() == 4);
    assert!(send() == left(&[53, 80, 4789]));
    until("what they want came", || matched(&net) == [160, 160, 80]);
    let counted = |net: &Net| {
        let state = net.state();
        let ring = taking(&state).unwrap();
        ["seen", "written"]
            .map(|what| ring[what].as_u64().unwrap())
            .map(Some)
            .into_iter()
            .chain([ring["statistics"]["host.left"].as_u64(), ring["statistics"]["receiver.given"].as_u64()])
            .collect::<Option<Vec<u64>>>()
    };
    // 602 packets were shown, and 160 and 240 of them wanted. Those only counted, and the sampled-out half, were not written.
    until("the books are open", || counted(&net) == Some(vec![602, 80 + 160, 141 + 61, 400]));
    let output = reader.interrupt();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another reader takes away a part of the packets that `near` receives"), "{said}");
    succeeded(&second.interrupt());
    until("it is gone", || matched(&net).len() == 2);
    // Packets that only this reader wanted go to the host again.
    assert!(send() == left(&[53, 80]));
    until("what the others want came", || matched(&net) == [240, 240]);
    let output = first.interrupt();
    let report = succeeded(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"blocks\":240"), "{report}");
    assert!([0, 2].iter().all(|at| report["filters"][at]["space"] == "kernel"), "{report}");
    let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert!(got("dns.pcap") == [of(&[53]), of(&[53]), of(&[53])].concat(), "{} of 240", got("dns.pcap").len());
    assert!(got("more.pcap").iter().eq(of(&[80, 4789]).iter().step_by(2)), "{} of 80", got("more.pcap").len());
    until("its program is gone", || net.pair.near.link().xdp.is_none());
    assert_eq!(send().len(), 301);
}

#[test]
fn who_takes_may_be_replaced_by_one_who_takes_something_else() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let mut host = Host::new(&net.pair);
    let mut sender = net.pair.far.sender();
    let frames = traffic(300);
    let last = datagram(1, 9999, 80);
    let mut send = || {
        frames.iter().chain([&last]).for_each(|frame| sender.send(frame).unwrap());
        host.until(&last).len()
    };
    let taker = net.read(&["ethernet D mode=consume | bpf \"udp port 53\" | save 53.pcap"]).remove(0);
    let process = taker.0.as_ref().unwrap().id();
    until("it can be asked", || {
        net.state()["requests"].as_array().unwrap().iter().any(|request| request["process"] == process)
    });
    assert_eq!(send(), 221);
    until("what it wants came", || matched(&net) == [80]);
    let mut replace = Command::new(PROGRAM);
    replace.args([
        "replace",
        &format!("p{process}"),
        "ethernet near mode=consume | bpf \"udp port 80\" | save 80.pcap",
    ]);
    let output = replace.arg("--daemon").arg(net.socket()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until("one is left", || net.readers() == 1);
    assert_eq!(send(), 221);
    until("what it wants came", || matched(&net).last() == Some(&80));
    succeeded(&taker.interrupt());
    for port in [53, 80] {
        let got: Vec<Vec<u8>> =
            packets(&net.path(&format!("{port}.pcap"))).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(got.iter().eq(frames.iter().filter(|frame| is_of_port(frame, port))), "{port}: {} of 80", got.len());
    }
}

/// Gives a device an address, and enables neighbour discovery. Returns whether that worked.
fn addressed(end: &End, address: &str) -> bool {
    let ip = |arguments: &[&str]| Command::new("ip").args(arguments).status().is_ok_and(|status| status.success());
    let work = || {
        ip(&["link", "set", "dev", &end.name, "arp", "on"])
            && ip(&["address", "add", &format!("{address}/24"), "dev", &end.name])
    };
    end.namespace.enter(work).unwrap()
}

#[test]
fn connections_of_the_host_go_on_while_a_port_is_taken_away() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let (near, far) = (&net.pair.near, &net.pair.far);
    if !addressed(near, "10.9.0.1") || !addressed(far, "10.9.0.2") {
        return println!("skipped: `ip` gives no addresses");
    }
    let (near_ip, far_ip) = ("10.9.0.1", "10.9.0.2");
    let listener = near.namespace.enter(|| TcpListener::bind((near_ip, 7777)).unwrap()).unwrap();
    let mut client = far.namespace.enter(|| TcpStream::connect((near_ip, 7777)).unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    let [taken, kept] = [53, 5353].map(|port| {
        let socket = near.namespace.enter(|| UdpSocket::bind((near_ip, port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    });
    let from = far.namespace.enter(|| UdpSocket::bind((far_ip, 4000)).unwrap()).unwrap();
    let mut number = 0u32;
    // Sends a byte there and back, and a datagram to each port. Later packets show which of them the host got.
    let mut talk = || {
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(LONG)).unwrap();
        }
        for _ in 0..20 {
            number += 1;
            from.send_to(&number.to_be_bytes(), (near_ip, 53)).unwrap();
            from.send_to(&number.to_be_bytes(), (near_ip, 5353)).unwrap();
            let mut byte = [0];
            client.write_all(&[7]).unwrap();
            server.read_exact(&mut byte).unwrap();
            server.write_all(&byte).unwrap();
            client.read_exact(&mut byte).unwrap();
            let mut bytes = [0; 8];
            assert_eq!(kept.recv(&mut bytes).unwrap(), 4);
            assert_eq!(bytes[..4], number.to_be_bytes());
        }
    };
    let came = |socket: &UdpSocket| {
        socket.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| socket.recv(&mut [0; 8]).ok()).count()
    };
    talk();
    assert_eq!(came(&taken), 20);
    for through_daemon in [true, false] {
        // The last packet is printed. All earlier ones have come by then.
        let said = "bpf \"udp[8:4] = 0xffffffff\" | head 1 | inspect";
        let request =
            format!("ethernet D mode=consume | bpf \"udp port 53\" | {{ save taken.pcap overwrite=yes + {said} }}");
        let mut taker = match through_daemon {
            true => Running::start(net.request(&request)),
            false => {
                let mut command = Command::new(PROGRAM);
                command.args(["run", "--local", "--stats", "json", &request.replace('D', net.device())]);
                net.there(command)
            }
        };
        until("its program is there", || near.link().xdp.is_some());
        until("it takes", || {
            from.send_to(&[0; 4], (near_ip, 53)).unwrap();
            // Once the later datagram has come, the earlier one has come or was taken.
            from.send_to(&[0; 4], (near_ip, 5353)).unwrap();
            assert_eq!(kept.recv(&mut [0; 8]).unwrap(), 4);
            came(&taken) == 0
        });
        talk();
        assert_eq!(came(&taken), 0, "through a daemon: {through_daemon}");
        // Its number is behind the link, IP and UDP headers.
        let numbers = || -> Vec<u32> {
            let frames = packets(&net.path("taken.pcap")).into_iter().map(|(_, bytes)| bytes);
            frames
                .map(|frame| u32::from_be_bytes(frame[42..46].try_into().unwrap()))
                .filter(|at| ![0, u32::MAX].contains(at))
                .collect()
        };
        from.send_to(&[0xff; 4], (near_ip, 53)).unwrap();
        let mut lines = BufReader::new(taker.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let line = std::thread::spawn(move || lines.next());
        until("all were taken", || line.is_finished());
        succeeded(&taker.interrupt());
        let numbers = numbers();
        assert_eq!(numbers.len(), 20, "through a daemon: {through_daemon}: {numbers:?}");
        until("its program is gone", || near.link().xdp.is_none());
    }
    talk();
    assert_eq!(came(&taken), 20);
}

#[test]
fn everything_is_taken_only_where_that_is_said() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    let asked = |command: &str, request: &str, more: &[&str]| {
        let mut asking = Command::new(PROGRAM);
        asking.arg(command).arg("--local").args(more).arg(request.replace('D', &pair.near.name));
        asking.current_dir(folder.path()).stdin(Stdio::null());
        pair.near.namespace.enter(move || asking.output().unwrap()).unwrap()
    };
    let refused = [
        "ethernet D mode=consume | count",
        "ethernet D mode=consume | tcp | drop",
        "ethernet D mode=consume | bpf \"\" | drop",
        "ethernet D mode=consume | sample 10 | count",
        // One branch wants everything.
        "ethernet D mode=consume | { bpf \"udp\" | drop + drop }",
    ];
    for request in refused {
        for command in ["run", "explain", "check"] {
            let output = asked(command, request, &[]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command} {request}: {said}");
            let names = format!("takes away everything `{}` receives: this host loses its network", pair.near.name);
            assert!(said.contains(&names) && said.contains("mode=consume everything=yes"), "{command}: {said}");
        }
        assert!(pair.near.link().xdp.is_none(), "{request}: nothing was attached");
    }
    // If the kernel selects, only selected packets are taken; otherwise all would be.
    let chosen = "ethernet D mode=consume | bpf \"udp port 53\" | drop";
    assert!(asked("explain", chosen, &[]).status.success());
    assert_eq!(asked("explain", chosen, &["--no-push-down"]).status.code(), Some(2));
    for request in refused {
        let said = request.replace("mode=consume", "mode=consume everything=yes");
        assert!(asked("explain", &said, &[]).status.success(), "{said}");
    }
}
