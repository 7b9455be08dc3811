//! Packets that are taken away from the host: `mode=consume`.

use crate::net::*;
use driver::af_packet::{Direction, Options, Receiver};
use driver::{Receive, Turn};
use kernel::code::{Code, Register};
use kernel::sys::{self, Hook, Link};
use rustix::process::Signal;
use serde_json::Value;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

const POLICY: &str = "[[allow]]\nusers = [\"65534\"]\ndevices = [\"near\"]\nmodes = [\"tap\", \"consume\"]\n";

/// What the host's own stack receives.
struct Host(Receiver);

impl Host {
    fn new(pair: &Pair) -> Host {
        let options =
            Options { direction: Direction::In, block_timeout: Duration::from_millis(1), ..Options::default() };
        Host(Receiver::open(&pair.near.namespace, &pair.near.name, &options).unwrap())
    }

    /// Frames that came, until one is `last`.
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

/// Packets taken away, by the daemon's word.
fn taken(state: &Value) -> u64 {
    let is_taking = |ring: &&Value| ring["how"].as_str().is_some_and(|how| how.contains("AF_XDP"));
    state["rings"].as_array().unwrap().iter().find(is_taking).map_or(0, |ring| ring["seen"].as_u64().unwrap())
}

#[test]
fn what_is_taken_comes_to_the_reader_alone_and_to_the_host_when_it_is_gone() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let as_nobody = |request: &str| {
        let mut command = net.request(request);
        command.uid(65534).gid(65534);
        command
    };
    let mut host = Host::new(&net.pair);
    let mut sender = net.pair.far.sender();
    let frames = traffic(2000);
    sender.send(&frames[0]).unwrap();
    assert_eq!(host.until(&frames[0]), frames[..1]);
    for round in ["killed", "asked to stop"] {
        let taker =
            Running(Some(as_nobody("ethernet D mode=consume | save taken.pcap overwrite=yes").spawn().unwrap()));
        until("it reads", || net.readers() == 1);
        let attached = net.pair.near.link().xdp.expect("its program is there").program;
        // One takes; who wants to take as well, and who had his program there, hear why not.
        let second = as_nobody("ethernet D mode=consume | count").output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(!second.status.success() && said.contains("taken away by another reader already"), "{said}");
        assert_eq!(net.pair.near.link().xdp.unwrap().program, attached);
        // Who copies is told that nothing comes, and so is who looks.
        let tap = Running(Some(as_nobody("ethernet D direction=in | count").spawn().unwrap()));
        until("both read", || net.readers() == 2);
        let state = net.state();
        let how = |at: usize| state["rings"][at]["how"].as_str().unwrap().to_string();
        let hows = [how(0), how(1)];
        assert!(hows.iter().any(|how| how.contains("AF_XDP")), "{hows:?}");
        assert!(hows.iter().any(|how| how.contains("taken away by another reader")), "{hows:?}");
        // No more at a time than there is room for.
        for (at, some) in frames.chunks(200).enumerate() {
            some.iter().for_each(|frame| sender.send(frame).unwrap());
            until("all are taken", || taken(&net.state()) == 200 * (at as u64 + 1));
        }
        let output = tap.interrupt();
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
        // The host has seen none of them, and sees what comes from now on.
        until("its program is gone", || net.pair.near.link().xdp.is_none());
        let last = datagram(9999, 7, 100);
        sender.send(&last).unwrap();
        assert_eq!(host.until(&last), [last], "{round}");
    }
    // The daemon itself goes, without a word.
    let _taker = Running(Some(as_nobody("ethernet D mode=consume | count").spawn().unwrap()));
    until("it reads", || net.readers() == 1);
    net.daemon.as_ref().expect("it was started").signal(Signal::KILL);
    until("the device is as it was", || (net.pair.near.link().promiscuity, net.pair.near.link().xdp) == (0, None));
    sender.send(&frames[1]).unwrap();
    assert_eq!(host.until(&frames[1]), frames[1..2]);
}

#[test]
fn who_reads_copies_is_said_to_lose_them_and_what_cannot_be_taken_is_refused() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let tap = net.read(&["ethernet D | count"]);
    let taker = Running(Some(net.request("ethernet D mode=consume | count").spawn().unwrap()));
    until("both read", || net.readers() == 2);
    let output = taker.interrupt();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    for (request, why) in [
        ("ethernet D mode=consume direction=out | count", "what the host sends cannot be taken away"),
        ("ethernet D mode=consume by=socket | count", "by AF_XDP sockets and in no other way"),
        ("ethernet D mode=consume keep=8M | count", "are not kept for others"),
    ] {
        let output = net.request(request).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{request}: {said}");
    }
    drop(tap);
}

#[test]
fn without_a_policy_nobody_takes_but_root_by_itself() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let output = net.request("ethernet D mode=consume | count").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--local"), "{said}");
    let pair = Pair::with_queues(2);
    let mut command = Command::new(PROGRAM);
    let request = format!("ethernet {} mode=consume | head 3 | save own.pcap", pair.near.name);
    command.args(["run", "--local", "--stats", "json", &request]).current_dir(net.path("."));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut own = Running(Some(pair.near.namespace.enter(move || command.spawn().unwrap()).unwrap()));
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
    // Passes everything.
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
    // The daemon was there before, and has no right to ask for its name any more.
    let known = format!("XDP program {number} (`somebody_elses`) is attached to `near`");
    let unknown = format!("XDP program {number} is attached to `near`");
    let through_daemon = net.request("ethernet D mode=consume | count");
    let attempts = [
        (through_daemon, &unknown),
        (by_itself("ethernet D mode=consume | count"), &known),
        (by_itself("af_xdp D | count"), &known),
    ];
    for (mut command, expected) in attempts {
        let output = near.namespace.enter(|| command.output().unwrap()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert_eq!(near.link().xdp.expect("it stays").program, number);
    }
    // A daemon that came later has seen it.
    let later = net.path("later");
    let mut command = Command::new(PROGRAM);
    command.arg("daemon").arg("--socket").arg(&later).arg("--config").arg(net.path("policy.toml"));
    let _daemon = net.there(command);
    until("it listens", || capture::client::Client::connect(&later, "a test").is_ok());
    let mut command = Command::new(PROGRAM);
    command.arg("run").arg("--daemon").arg(&later).arg(format!("ethernet {} mode=consume | count", net.device()));
    let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(said.contains(&known), "{said}");
    // It has let everything through meanwhile; when it is gone, the device can be taken.
    let mut host = Host::new(&net.pair);
    net.pair.far.sender().send(&datagram(1, 2, 80)).unwrap();
    assert_eq!(host.until(&datagram(1, 2, 80)).len(), 1);
    drop(foreign);
    let taker = Running(Some(net.request("ethernet D mode=consume | count").spawn().unwrap()));
    until("it reads", || net.readers() == 1);
    succeeded(&taker.interrupt());
}
