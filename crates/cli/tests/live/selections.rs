//! Typed selectors, and `and`, `or` and `not` over them, behind a device: their results equal those on a file, wherever
//! they run, and rejected packets are not copied.

use crate::budget::policy;
use crate::net::*;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::frames::{real_and_damaged, shaped};
use testkit::network::may_make_networks;
use testkit::random::Random;

/// Filters behind a source: single selectors, chains and combinations.
const WAYS: [&str; 13] = [
    "host 10.0.0.1",
    "not { host 10.0.0.1 or vlan }",
    "net \"10.0.0.0/8,fe80::/10\" and not port 53",
    "ip6 or ether arp",
    "vlan 7 | proto udp",
    "not ip and not ip6",
    "bpf \"tcp or vlan\" and not bpf \"len > 200\" or icmp",
    "{ bpf \"udp\" or host 10.0.0.2 } and not vlan",
    "proto \"6,17\" and sourceport 1024:65535",
    "ether 02:00:00:00:00:02 or not ether ip",
    "not not { ip and not { net 0.0.0.0/1 or destport 80 } }",
    "ether",
    "port 53 | not vlan",
];

/// Plain packets, and packets that the kernel program cannot judge: with two tags, SNAP, MPLS, IP options, extension
/// headers; intact and damaged.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Random(77);
    let mut frames = traffic(200);
    frames.extend((0..200).map(|at| tagged(tagged(datagram(at, 53, 100), 7), 8)));
    frames.extend(real_and_damaged(300, &mut random));
    frames.extend((0..300).map(|_| shaped(&mut random).bytes));
    // Lengths that a device accepts.
    frames.retain(|frame| (60..1500).contains(&frame.len()));
    frames
}

fn counted(stdout: &[u8]) -> [u64; 3] {
    let counted: Value = serde_json::from_slice(stdout).unwrap();
    ["blocks", "bytes", "wire_bytes"].map(|key| counted[key].as_u64().unwrap())
}

#[test]
fn selections_give_of_a_device_what_they_give_of_a_file() {
    if !may_make_networks() {
        return;
    }
    let frames = frames();
    for (by, place) in [("kernel", "kernel"), ("socket", "daemon")] {
        // These long expressions exceed the default budget of one device's readers.
        let net = Net::new(Some(&policy(65536)));
        let requests = |net: &Net, tail: &dyn Fn(usize) -> String| {
            let ways = WAYS.iter().enumerate();
            let requests: Vec<String> =
                ways.map(|(at, way)| format!("ethernet D by={by} | {way} | {}", tail(at))).collect();
            net.read(&requests.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let all = net.read(&[&format!("ethernet D by={by} | save all.pcap")]);
        let savers = requests(&net, &|at| format!("save {at}.pcap"));
        let counters = requests(&net, &|_| "count".into());
        // Each request that counts has a second reader if its program cannot judge every packet.
        let exact = WAYS.iter().filter(|way| way.contains("ether 02:") && !way.contains("ip")).count();
        until("all read", || net.readers() == 1 + 3 * WAYS.len() - exact);
        send(&net, &frames);
        let written = net.state()["rings"][0]["written"].as_u64().unwrap();
        assert_eq!(written, frames.len() as u64, "everything is copied for the one that saves everything, and once");
        assert!(all.into_iter().all(|reader| succeeded(&reader.interrupt())["end"] == "stopped"));
        let mut matched = 0;
        for (at, (way, (saver, counter))) in WAYS.iter().zip(savers.into_iter().zip(counters)).enumerate() {
            let report = succeeded(&saver.interrupt());
            let above = |tail: &str| {
                let mut above = Command::new(PROGRAM);
                above.args(["run", "--local", "--quiet", &format!("pcap all.pcap | {way} | {tail}")]);
                let output = net.there(above).end();
                assert!(output.status.success(), "{way}: {}", String::from_utf8_lossy(&output.stderr));
                output.stdout
            };
            above("save above.pcap overwrite=yes");
            let (got, right) = (packets(&net.path(&format!("{at}.pcap"))), packets(&net.path("above.pcap")));
            assert!(got == right, "by {by}: {way}: {} instead of {}: {report}", got.len(), right.len());
            assert!(!right.is_empty() && right.len() < frames.len() || *way == "ether", "{way}: {}", right.len());
            let source = &report["filters"][0];
            assert_eq!((&source["space"], &source["blocks_made"]), (&json!(place), &json!(got.len())), "{source}");
            // Packets that the program cannot judge come up, and few others.
            let came = source["blocks_in"].as_u64().unwrap();
            assert!(came <= frames.len() as u64, "{source}");
            matched += came;
            let output = counter.interrupt();
            let report = succeeded(&output);
            assert_eq!(counted(&output.stdout), counted(&above("count")), "by {by}: {way}: {report}");
            assert_eq!(report["filters"][0]["space"], place, "{report}");
        }
        assert!(matched < WAYS.len() as u64 * frames.len() as u64 * 2 / 3, "by {by}: {matched} come up");
    }
}

#[test]
fn what_only_counts_copies_no_more_than_a_program_cannot_tell_about() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let reader = net.read(&["ethernet D | not { host 10.0.0.9 or vlan 9 } | count"]).pop().unwrap();
    until("both of its readers read", || net.readers() == 2);
    // 160 plain frames, 40 with one tag, and 5 with two. The program cannot judge the latter; two of them have the outer tag.
    let mut frames = traffic(200);
    frames.extend((0..5).map(|at| tagged(tagged(datagram(at, 53, 100), 9), if at < 3 { 8 } else { 9 })));
    send(&net, &frames);
    assert_eq!(net.state()["rings"][0]["written"], 5);
    let output = reader.interrupt();
    let report = succeeded(&output);
    assert_eq!(counted(&output.stdout)[0], 203, "{report}");
    let source = &report["filters"][0];
    assert_eq!((&source["blocks_in"], &source["blocks_taken"]), (&json!(205), &json!(203)), "{report}");
    assert_eq!(source["blocks_rejected"], 2, "{report}");
}

#[test]
fn what_a_selection_rejects_is_left_to_the_host() {
    if !may_make_networks() {
        return;
    }
    // On a device of its own, the request selects above. Packets that no selection can want are still left to the host.
    for source in ["ethernet D mode=consume", "af_xdp D"] {
        let net = Net::new(Some("[[allow]]\nusers = [\"0\"]\ndevices = [\"*\"]\nmodes = [\"tap\", \"consume\"]\n"));
        let host = net.read(&["ethernet D direction=in | save host.pcap"]).pop().unwrap();
        let selection = "not { host 10.0.0.9 or port 80 or vlan 7 }";
        let branches = "{ save taken.pcap + head 1 | inspect + bpf \"port 9999\" | head 1 | inspect }";
        let request = format!("{source} | {selection} | {branches}").replace('D', net.device());
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json"]);
        match source.starts_with("af_xdp") {
            true => command.arg("--local"),
            false => command.arg("--daemon").arg(net.socket()),
        };
        command.arg(&request);
        let mut taker = net.there(command);
        let lines = BufReader::new(taker.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let (said, hears) = channel();
        std::thread::spawn(move || lines.for_each(|line| drop(said.send(line))));
        let mut sender = net.pair.far.sender();
        until("it takes what it wants", || {
            sender.send(&datagram(u32::MAX, 53, 60)).unwrap();
            hears.recv_timeout(Duration::from_millis(20)).is_ok()
        });
        let frames = traffic(300);
        let (rest, wanted): (Vec<_>, Vec<_>) =
            frames.iter().cloned().partition(|frame| frame[12] == 0x81 || frame[36..38] == [0, 80]);
        frames.iter().chain([&datagram(1, 9999, 60)]).for_each(|frame| sender.send(frame).unwrap());
        assert!(hears.recv_timeout(LONG).unwrap().unwrap().contains("9999"), "{source}");
        let got = |file: &str| -> Vec<Vec<u8>> {
            let all = packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes);
            all.filter(|frame| frame[42..46] != [0xff; 4] && frame[36..38] != 9999u16.to_be_bytes()).collect()
        };
        assert!(taker.interrupt().status.success());
        assert!(host.interrupt().status.success());
        assert!(got("taken.pcap") == wanted, "{source}: {} of {}", got("taken.pcap").len(), wanted.len());
        assert!(got("host.pcap") == rest, "{source}: {} of {}", got("host.pcap").len(), rest.len());
    }
}
