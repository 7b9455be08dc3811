//! `x |! y` behind a device: packets that x rejects come up, in whatever place x runs. The edge can be watched, and `replace`
//! can add and remove it.

use crate::net::*;
use crate::replacing::replace;
use serde_json::json;
use std::process::Command;
use testkit::network::may_make_networks;
use testkit::packets::{CLIENT, SERVER, tcp};

/// 200 datagrams, some behind tags, and 40 segments of TCP.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = traffic(200);
    let segment = |at: u32| tcp(CLIENT, SERVER, at, 0, 0x10, &[7; 60]);
    (0..40).for_each(|at| frames.insert(at as usize * 5, segment(at * 60)));
    frames
}

fn is_tcp(frame: &[u8]) -> bool {
    frame[12] == 8 && frame[23] == 6
}

fn is_dns(frame: &[u8]) -> bool {
    frame[12] == 8 && frame[23] == 17 && frame[36..38] == [0, 53]
}

#[test]
fn what_is_rejected_comes_up_whole() {
    if !may_make_networks() {
        return;
    }
    let frames = frames();
    let of = |wanted: &dyn Fn(&[u8]) -> bool| frames.iter().filter(|one| wanted(one)).cloned().collect::<Vec<_>>();
    for by in ["kernel", "socket"] {
        let net = Net::new(None);
        let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        let requests = [
            // These filters stay above, and so does the handling of their packets.
            "ethernet D by=BY | tcp |! save no-tcp.pcap",
            "ethernet D by=BY | bpf \"udp port 53\" | { save dns.pcap + |! save no-dns.pcap }",
            "ethernet D by=BY | udp | { drop + |! tcp |! count }",
            // This filter is inverted, and runs in the kernel.
            "ethernet D by=BY | bpf \"tcp\" |! save turned.pcap",
        ];
        let requests = requests.map(|request| request.replace("BY", by));
        let readers = net.read(&requests.each_ref().map(String::as_str));
        send(&net, &frames);
        let outputs: Vec<_> = readers.into_iter().map(Running::interrupt).collect();
        let reports: Vec<_> = outputs.iter().map(succeeded).collect();
        assert!(got("no-tcp.pcap") == of(&|frame| !is_tcp(frame)), "by {by}: {}", got("no-tcp.pcap").len());
        assert!(got("dns.pcap") == of(&is_dns) && got("no-dns.pcap") == of(&|frame| !is_dns(frame)), "by {by}");
        assert!(got("turned.pcap") == of(&|frame| !is_tcp(frame)), "by {by}");
        let place = if by == "kernel" { "kernel" } else { "daemon" };
        let first = |at: usize| (&reports[at]["filters"][0], &reports[at]["filters"][1]);
        assert_eq!((&first(1).0["blocks_made"], &first(1).1["space"]), (&json!(240), &json!("app")), "{}", reports[1]);
        assert_eq!((&first(3).0["space"], &first(3).0["blocks_made"]), (&json!(place), &json!(200)), "{}", reports[3]);
        assert!(String::from_utf8_lossy(&outputs[2].stdout).contains("\"blocks\":0,"), "{:?}", outputs[2]);
    }
}

#[test]
fn explain_says_why_a_filter_whose_rejects_are_wanted_stays_above() {
    let explained = |options: &[&str], request: &str| {
        let output = Command::new(PROGRAM).arg("explain").args(options).arg(request).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let both = explained(&[], "ethernet v1 | bpf \"tcp\" | { count + |! save rest.pcap }");
    assert!(both.contains("bpf tcp") && both.contains("(kernel: another filter takes its rejected blocks)"), "{both}");
    assert!(both.contains("├─") && both.contains("└─|! save rest.pcap"), "{both}");
    let tcp = explained(&[], "ethernet v1 | tcp | { http | count + |! save rest.pcap }");
    assert!(!tcp.contains("filtered in the kernel"), "{tcp}");
    let shared = ["--share", "--daemon", "/nowhere/control"];
    let shared = explained(&shared, "set decap=no; ethernet v1 | tcp | { http | count + |! save rest.pcap }");
    assert!(
        !shared.contains(" parser  ") && shared.contains("(parser: another filter takes its rejected blocks"),
        "{shared}"
    );
}

#[test]
fn what_is_rejected_is_watched_and_wanted_from_a_replacement_on() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let running = net.read(&["set decap=no; ethernet D | tcp name=t | drop"]).pop().unwrap();
    let process = running.0.as_ref().unwrap().id();
    let frames = frames();
    let watch = |edge: Option<&str>| {
        let of = edge.map_or_else(|| format!("p{process}"), |edge| format!("p{process}.{edge}"));
        let mut command = Command::new(PROGRAM);
        command.args(["watch", &of, "--format", "pcap", "--daemon"]).arg(net.socket());
        command
    };
    until("its request can be asked", || watch(None).output().unwrap().status.success());
    send(&net, &frames);
    let replaced = replace(&net, process, "set decap=no; ethernet D | tcp name=t | { drop + |! save rest.pcap }");
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    let edges = String::from_utf8(watch(None).output().unwrap().stdout).unwrap();
    assert!(edges.contains("t.save") && edges.contains("|!"), "{edges}");
    let watcher = net.there_noting(watch(Some("t.save")), "watched.txt");
    until("it watches", || net.text("watched.txt").starts_with("watching "));
    send(&net, &frames);
    let report = succeeded(&running.interrupt());
    let output = watcher.end();
    std::fs::write(net.path("watched.pcap"), output.stdout).unwrap();
    let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    let rest: Vec<Vec<u8>> = frames.iter().filter(|frame| !is_tcp(frame)).cloned().collect();
    assert!(got("rest.pcap") == rest, "{} of {}: {report}", got("rest.pcap").len(), rest.len());
    assert!(got("watched.pcap") == rest, "{}", net.text("watched.txt"));
    // `tcp` kept its earlier counts. From then on, packets that it rejects stayed in the kernel.
    let counters = report["filters"].as_array().unwrap().iter().find(|one| one["filter"] == "tcp name=t").unwrap();
    assert_eq!((&counters["blocks_taken"], &counters["blocks_rejected"]), (&json!(80), &json!(200)), "{report}");
}
