//! Watching requests on devices: the blocks on their edges, and no effect on the data path.

use crate::net::*;
use std::process::{Command, Stdio};
use testkit::network::may_make_networks;

fn watch(net: &Net, edge: &str, options: &[&str]) -> Command {
    let mut id = String::new();
    until("it can be asked", || {
        let state = net.state();
        let clients = state["clients"].as_array().unwrap();
        let reader = clients.iter().find(|client| !client["readers"].as_array().unwrap().is_empty());
        id = reader.map(|client| client["process"].to_string()).unwrap_or_default();
        // The answer may include requests of other tests.
        state["requests"].as_array().unwrap().iter().any(|request| request["id"] == id.as_str())
    });
    let mut command = Command::new(PROGRAM);
    command.args(["watch", &format!("{id}.{edge}"), "--daemon"]).arg(net.socket()).args(options);
    command
}

/// Watches; it has begun when this returns. Blocks go to the file `to`, messages to the file `to`.txt.
fn started(net: &Net, edge: &str, options: &[&str], to: &str) -> Running {
    let said = format!("{to}.txt");
    let files = [to, &said].map(|name| std::fs::File::create(net.path(name)).unwrap());
    let [output, errors] = files;
    let mut command = watch(net, edge, options);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let running = Running::start(command);
    until("it watches", || net.text(&said).starts_with("watching "));
    running
}

#[test]
fn what_leaves_the_kernel_is_seen_packet_by_packet() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let mut readers = net.read(&["ethernet D | bpf \"udp port 53\" | save dns.pcap"]);
    let inside = watch(&net, "ethernet", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&inside.stderr).into_owned();
    assert!(inside.status.code() == Some(2) && said.contains("stays in the kernel") && said.contains(".bpf"), "{said}");
    let watcher = started(&net, "bpf", &["--format", "pcap"], "seen.pcap");
    send(&net, &traffic(300));
    until("it is seen", || packets(&net.path("seen.pcap")).len() >= 80);
    succeeded(&readers.pop().unwrap().interrupt());
    assert!(watcher.end().status.success());
    let said = net.text("seen.pcap.txt");
    assert!(said.ends_with("80 blocks were seen, none was lost\n"), "{said}");
    assert!(packets(&net.path("seen.pcap")) == packets(&net.path("dns.pcap")), "other packets than the request saved");
    if std::path::Path::new("/usr/bin/tcpdump").exists() {
        let dumped = |file: &str| {
            let mut command = Command::new("/usr/bin/tcpdump");
            command.args(["-nn", "-tttt", "-XX", "-r"]).arg(net.path(file));
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        assert!(dumped("seen.pcap") == dumped("dns.pcap"), "other times");
    }
}

#[test]
fn a_watcher_that_is_stopped_or_killed_disturbs_nothing() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let run = || {
        let mut readers = net.read(&["ethernet D | port | udp | count | json"]);
        (readers.pop().unwrap(), net.state())
    };
    let counts = |reader: Running| {
        let output = reader.interrupt();
        let stats = succeeded(&output);
        let nodes = stats["filters"].as_array().unwrap().clone();
        (String::from_utf8(output.stdout).unwrap(), nodes, stats["rings"].clone())
    };
    let frames: Vec<Vec<u8>> = (0..30_000).map(|number| datagram(number, 53, 200)).collect();
    let (alone, _) = run();
    send(&net, &frames);
    let alone = counts(alone);
    let (watched, _) = run();
    let stopped = started(&net, "port", &["--format", "raw"], "stopped.raw");
    let killed = started(&net, "port", &["--format", "raw"], "killed.raw");
    stopped.signal(rustix::process::Signal::STOP);
    send(&net, &frames[..15_000]);
    killed.signal(rustix::process::Signal::KILL);
    send(&net, &frames[15_000..]);
    let with = counts(watched);
    assert_eq!(with, alone, "what the path counted");
    assert!(with.0.contains("\"blocks\":30000"), "{}", with.0);
    stopped.signal(rustix::process::Signal::CONT);
    assert!(stopped.end().status.success());
    let said = net.text("stopped.raw.txt");
    let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(numbers[..], [seen, lost] if lost > 0 && seen + lost == 30_000), "{said}");
}
