//! What runs in the kernel besides expressions: it gives what it gives above, and the books add up.

use crate::net::*;
use serde_json::{Value, json};
use std::process::Output;
use testkit::network::may_make_networks;

/// What `explain` says of a request on a device that need not be there.
fn explained(request: &str) -> String {
    let output = std::process::Command::new(PROGRAM).args(["explain", request]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The line that tells of this filter.
fn line<'a>(explained: &'a str, filter: &str) -> &'a str {
    let found = explained.lines().find(|line| line.contains(filter));
    found.unwrap_or_else(|| panic!("{filter}: {explained}"))
}

#[test]
fn one_in_so_many_is_taken_where_packets_are() {
    if !may_make_networks() {
        return;
    }
    for by in ["kernel", "socket"] {
        let net = Net::new(None);
        let requests = [
            "ethernet D by=BY | sample 10 | save tenth.pcap",
            "ethernet D by=BY | bpf \"udp port 53\" | sample 7 | save dns.pcap",
            "ethernet D by=BY | bpf \"udp\" | sample 4 | sample 5 | udp | drop",
            "ethernet D by=BY | sample 10 by=flow | save flow.pcap",
        ];
        let requests = requests.map(|request| request.replace("BY", by));
        let readers = net.read(&requests.each_ref().map(String::as_str));
        let frames = traffic(1000);
        send(&net, &frames);
        let matched: Vec<u64> = net.state()["rings"][0]["readers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|reader| reader["matched"].as_u64().unwrap())
            .collect();
        // 800 are untagged, 267 of them of port 53.
        let dns: Vec<_> = frames.iter().enumerate().filter(|(at, _)| at % 3 == 0 && at % 5 != 0).collect();
        let dns: Vec<_> = dns.iter().step_by(7).map(|(_, frame)| *frame).collect();
        assert_eq!(matched, [100, dns.len() as u64, 40, 1000], "by {by}");
        let outputs: Vec<Output> = readers.into_iter().map(Running::interrupt).collect();
        let reports: Vec<Value> = outputs.iter().map(succeeded).collect();
        let got = |file: &str| packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        assert!(got("tenth.pcap").iter().eq(frames.iter().step_by(10)), "by {by}");
        assert!(got("dns.pcap").iter().eq(dns), "by {by}");
        for (report, matched) in reports.iter().zip(&matched) {
            let source = &report["filters"][0];
            assert_eq!(source["events"]["seen on the device"], 1000, "{report}");
            assert_eq!((&source["blocks_in"], &source["blocks_taken"]), (&json!(matched), &json!(matched)), "{report}");
        }
    }
}

#[test]
fn what_cannot_be_counted_in_the_kernel_is_counted_above() {
    let sampled = explained("ethernet v1 | bpf \"tcp\" | sample 10 | tcp | drop");
    assert!(line(&sampled, "sample 10").contains("kernel  lowest space"), "{sampled}");
    assert!(!line(&sampled, "tcp  ").contains("stays in the kernel"), "{sampled}");
    let check = |request: &str, filter: &str, why: &str| {
        let explained = explained(request);
        let line = line(&explained, filter);
        assert!(line.contains("app ") && line.contains(why), "{explained}");
    };
    check("ethernet v1 | sample 10 by=flow | drop", "sample", "which flows pass");
    check("ethernet v1 | sample 4294967296 | drop", "sample", "up to 4,294,967,295");
    check("ethernet v1@0/4 | sample 10 | drop", "sample", "chosen by the reader");
    check("ethernet v1 last=3s | sample 10 | drop", "sample", "looked at by the reader");
    check("ethernet v1 | sample 10 | bpf \"tcp\" | drop", "bpf", "before it takes one in so many");
}
