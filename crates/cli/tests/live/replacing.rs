//! Requests that are replaced while packets come: each packet reaches one of them, once, and other requests notice nothing.

use crate::net::*;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::network::may_make_networks;

/// Replaces the request of this process. `D` stands for the device.
pub(crate) fn replace(net: &Net, process: u32, request: &str) -> std::process::Output {
    let mut command = Command::new(PROGRAM);
    command.args(["replace", &format!("p{process}"), &request.replace('D', net.device())]);
    command.arg("--daemon").arg(net.socket()).output().unwrap()
}

pub(crate) fn started(net: &Net, request: &str) -> (Running, u32) {
    let running = net.read(&[request]).pop().unwrap();
    let process = running.0.as_ref().unwrap().id();
    until("its request can be asked", || {
        net.state()["requests"].as_array().unwrap().iter().any(|request| request["process"] == process)
    });
    (running, process)
}

#[test]
fn a_hundred_replacements_lose_and_repeat_no_packet_and_others_notice_nothing() {
    if !may_make_networks() {
        return;
    }
    const TIMES: usize = 100;
    let net = Net::new(None);
    let (other, _) = started(&net, "ethernet D | save other.pcap");
    let (running, process) = started(&net, "ethernet D | save 0.pcap");
    let files = || std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let before = files();
    let done = AtomicBool::new(false);
    let mut sent = Vec::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sender = net.pair.far.sender();
            let mut frames = Vec::new();
            while !done.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    let frame = datagram(frames.len() as u32, 53, 100);
                    sender.send(&frame).unwrap();
                    frames.push(frame);
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            frames
        });
        for at in 1..=TIMES {
            // Every packet passes each of these filters. The way of reading the device changes, or stays the same.
            let way = ["", "| bpf \"udp\"", "| bpf \"udp or tcp\" | port", "| port"][at % 4];
            let output = replace(&net, process, &format!("ethernet D {way} | save {at}.pcap"));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(net.path(&format!("{}.pcap", at - 1)).exists(), "what was retired is finished");
        }
        done.store(true, Ordering::Relaxed);
        sent = sending.join().unwrap();
    });
    until("its readers are those of one request", || net.readers() == 2);
    until("nothing of the others is left open", || files() <= before + 1);
    until("all are seen", || net.state()["rings"][0]["seen"].as_u64().unwrap() >= sent.len() as u64);
    let stats = succeeded(&running.interrupt());
    assert_eq!(stats["before"].as_array().unwrap().len(), 64, "as many as are kept");
    succeeded(&other.interrupt());
    let bytes = |file: String| packets(&net.path(&file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert!(bytes("other.pcap".into()) == sent, "another reader of the device noticed");
    let got: Vec<Vec<u8>> = (0..=TIMES).flat_map(|at| bytes(format!("{at}.pcap"))).collect();
    let number = |frame: &Vec<u8>| u32::from_be_bytes(frame[42..46].try_into().unwrap());
    let wrong = got.iter().zip(&sent).position(|(got, sent)| got != sent);
    let wrong = wrong.map(|at| (number(&got[at]), number(&sent[at])));
    assert_eq!((got.len(), wrong), (sent.len(), None), "lost or repeated");
}

/// Changes the filter of a running capture again and again while packets come. All packets go to the same file, in
/// order and once, and bodies to the same folder.
#[test]
fn another_filter_goes_on_into_the_same_file() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let (running, process) =
        started(&net, "ethernet D | bpf \"udp\" | { save all.pcap + sample 20 | udp | files dir=out }");
    let done = AtomicBool::new(false);
    let mut sent = Vec::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sender = net.pair.far.sender();
            let mut frames = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let frame = datagram(frames.len() as u32, 53, 100);
                sender.send(&frame).unwrap();
                frames.push(frame);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            frames
        });
        let outputs: Vec<_> = (0..20)
            .map(|at| {
                let way = ["udp or tcp", "udp port 53", "ip", "udp"][at % 4];
                let request =
                    format!("ethernet D | bpf \"{way}\" | {{ save all.pcap + sample 20 | udp | files dir=out }}");
                replace(&net, process, &request)
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for output in outputs {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        sent = sending.join().unwrap();
    });
    until("all are seen", || net.state()["rings"][0]["seen"].as_u64().unwrap() >= sent.len() as u64);
    succeeded(&running.interrupt());
    let got: Vec<Vec<u8>> = packets(&net.path("all.pcap")).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(got == sent, "{} of {}", got.len(), sent.len());
    let index = net.text("out/index.jsonl");
    let names: std::collections::BTreeSet<&str> = index.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
    assert_eq!(names.len(), index.lines().count(), "no name twice");
    assert!(names.len() >= sent.len() / 50, "{} files of {}", names.len(), sent.len());
    assert_eq!(net.path("out").read_dir().unwrap().count(), names.len() + 1);
}

#[test]
fn what_is_given_of_each_packet_is_what_the_new_request_says() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let (running, process) = started(&net, "ethernet D snaplen=60 | save 0.pcap");
    let frames: Vec<Vec<u8>> = (0..300).map(|number| datagram(number, 53, 100)).collect();
    let ways = ["snaplen=0", "snaplen=80 | port 53", "snaplen=80 | port 80"];
    for (at, some) in frames.chunks(100).enumerate() {
        let seen = || net.state()["rings"][0]["seen"].as_u64().unwrap();
        let before = seen();
        let mut sender = net.pair.far.sender();
        some.iter().for_each(|frame| sender.send(frame).unwrap());
        until("all are seen", || seen() >= before + 100);
        let output = replace(&net, process, &format!("ethernet D {} | save {}.pcap", ways[at], at + 1));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    send(&net, &frames[..100]);
    succeeded(&running.interrupt());
    let lengths = |at: usize| packets(&net.path(&format!("{at}.pcap"))).into_iter().map(|(_, bytes)| bytes.len());
    assert!(lengths(0).eq([60; 100]) && lengths(1).eq([100; 100]) && lengths(2).eq([80; 100]));
    assert_eq!(lengths(3).count(), 0);
}

#[test]
fn without_a_daemon_it_is_the_same() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    for by in ["kernel", "socket"] {
        let source = format!("ethernet {} by={by}", net.device());
        let file = |at: usize| format!("{by}{at}.pcap");
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--local", "--stats", "json", &format!("{source} | save {}", file(0))]);
        let running = net.there(command);
        let process = running.0.as_ref().unwrap().id();
        let told = || net.state()["requests"].as_array().unwrap().clone();
        until("its request can be asked", || told().iter().any(|request| request["process"] == process));
        let mut sender = net.pair.far.sender();
        let frames: Vec<Vec<u8>> = (0..1000).map(|number| datagram(number, 53, 100)).collect();
        let (most, last) = frames.split_at(900);
        for (at, some) in most.chunks(100).enumerate() {
            let way = ["", "| bpf \"udp\"", "| port"][at % 3];
            some.iter().for_each(|frame| sender.send(frame).unwrap());
            let output = replace(&net, process, &format!("{source} {way} | save {}", file(at + 1)));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        // A copying thread is a little behind: when its last packet is through, all are.
        let mut watching = Command::new(PROGRAM);
        watching.args(["watch", &format!("p{process}.port"), "--format", "raw"]);
        let said = format!("{by}.txt");
        let mut watching = net.there_noting(watching, &said);
        until("it watches", || net.text(&said).starts_with("watching"));
        last.iter().for_each(|frame| sender.send(frame).unwrap());
        let stdout = watching.0.as_mut().unwrap().stdout.as_mut().unwrap();
        let mut seen = vec![0; 100];
        while seen != frames[999] {
            std::io::Read::read_exact(stdout, &mut seen).unwrap();
        }
        succeeded(&running.interrupt());
        let files = (0..=9).map(|at| net.path(&file(at))).filter(|path| path.exists());
        let got: Vec<Vec<u8>> = files.flat_map(|path| packets(&path)).map(|(_, bytes)| bytes).collect();
        assert!(got == frames, "{by}: {} of {}", got.len(), frames.len());
    }
}

#[test]
fn a_request_that_cannot_be_replaced_goes_on() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some("[[allow]]\nusers = [\"0\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n"));
    let (running, process) = started(&net, "ethernet D | bpf \"udp\" | save all.pcap");
    let rows: [(&str, i32, &str); 6] = [
        ("ethernet D | nix", 2, "^^^ unknown filter"),
        ("ethernet D | bpf \"udb\" | save b.pcap", 2, "^"),
        ("ethernet none | save b.pcap", 1, "none"),
        ("ethernet D | save /none/b.pcap", 1, "/none"),
        ("ethernet D | save all.pcap precision=us", 2, "is written by the request that runs, and `save` has other"),
        ("ethernet D | { save all.pcap precision=us + bpf \"udb\" | count | json }", 2, "udb"),
    ];
    let frames: Vec<Vec<u8>> = (0..60).map(|number| datagram(number, 53, 100)).collect();
    for (at, (request, status, expected)) in rows.into_iter().enumerate() {
        send(&net, &frames[at * 10..(at + 1) * 10]);
        let output = replace(&net, process, request);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && said.contains(expected), "{request}: {said}");
        assert_eq!(net.readers(), 1, "{request}");
    }
    let stats = succeeded(&running.interrupt());
    assert!(stats["before"].is_null(), "{stats}");
    let got: Vec<Vec<u8>> = packets(&net.path("all.pcap")).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(got == frames);
}
