//! The cost of expressions: an expression that exceeds the daemon's budget runs in the reader, and the reader says so.

use crate::net::*;
use crate::programs::{installed, ours};
use crate::replacing::{replace, started};
use kernel::inventory;
use kernel::sys::Hook;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;
use testkit::network::may_make_networks;

pub(crate) const EVERYBODY: &str =
    "[[allow]]\neverybody = true\ndevices = [\"near\"]\nmodes = [\"tap\", \"consume\"]\n";

/// All users may tap, and expressions may cost this number of instructions.
pub(crate) fn policy(instructions: u32) -> String {
    format!("[limits]\ninstructions = {instructions}\n{EVERYBODY}")
}

/// An expression for packets to this port that costs about 90 instructions for each of `terms`. Each term reads bytes
/// at a large offset, which no packet of these tests has.
fn dear(port: u16, terms: u32) -> String {
    let far = (0..terms).map(|term| format!(" or udp[{}:4] = {}", 1500 + 4 * term, term + 7));
    format!("udp port {port}{}", far.collect::<String>())
}

fn to_port(frames: &[Vec<u8>], port: u16) -> Vec<Vec<u8>> {
    let is_wanted = |frame: &&Vec<u8>| frame[12] == 8 && frame[36..38] == port.to_be_bytes();
    frames.iter().filter(is_wanted).cloned().collect()
}

fn saved(net: &Net, file: &str) -> Vec<Vec<u8>> {
    packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect()
}

/// Instructions of the program on each of the device's hooks, as the kernel reports them.
fn on_hooks(net: &Net) -> [u32; 2] {
    [Hook::TcxIngress, Hook::TcxEgress].map(|hook| {
        let index = net.pair.near.index;
        let programs = net.pair.near.namespace.enter(|| inventory::on_hook(index, hook)).unwrap().unwrap();
        programs.into_iter().map(|program| inventory::program(program).unwrap().instructions()).sum()
    })
}

fn explained(net: &Net, user: u32, request: &str, filter: &str) -> (String, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["explain", "--json", "--daemon"]).arg(net.socket()).arg(request.replace('D', net.device()));
    let output = command.uid(user).gid(user).output().unwrap();
    assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut nodes = told["nodes"].as_array().unwrap().iter();
    let node = nodes.find(|node| node["kind"] == filter).unwrap_or_else(|| panic!("{filter}: {told}"));
    let text = |key: &str| node[key].as_str().unwrap().to_string();
    (text("space"), format!("{}; {}", text("why"), node["notes"]))
}

fn ran(report: &Value, filter: &str) -> String {
    let filters = report["filters"].as_array().unwrap();
    let is_it = |one: &&Value| one["filter"].as_str().unwrap().split(" | ").any(|name| name.starts_with(filter));
    let found = filters.iter().find(is_it).unwrap_or_else(|| panic!("{filter}: {report}"));
    found["space"].as_str().unwrap().into()
}

fn start(net: &Net, user: u32, request: &str) -> Running {
    let before = net.readers();
    let mut command = net.request(request);
    command.uid(user).gid(user);
    let reader = Running::start(command);
    until("it reads", || net.readers() > before);
    reader
}

#[test]
fn four_readers_with_eight_thousand_instructions_each_add_few_to_a_packets_way() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(EVERYBODY));
    let root = start(&net, 0, "ethernet D | bpf \"udp port 80\" | save root.pcap");
    let before = on_hooks(&net);
    let ports = [53, 80, 4789, 9];
    let requests: Vec<String> =
        ports.iter().map(|port| format!("ethernet D | bpf \"{}\" | save {port}.pcap", dear(*port, 100))).collect();
    let mut readers = Vec::new();
    for request in &requests {
        let (space, why) = explained(&net, NOBODY, request, "bpf");
        assert!(space == "app" && why.contains("it runs in the reader: your expressions on `near` cost"), "{why}");
        assert!(why.contains("some packets it certainly cannot use are filtered in the kernel"), "{why}");
        readers.push(start(&net, NOBODY, request));
    }
    // The kernel's programs hold the basics of each reader and a rough expression, and no part of the refused expression.
    let after = on_hooks(&net);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before < 4 * 400, "{before} instructions on a hook before, {after} now");
    }
    let told = net.state()["rings"][0]["statistics"]["expressions.instructions"].as_u64().unwrap();
    assert!(told > 0 && told < 400, "{told}");
    let frames = traffic(600);
    let tcp = (0..50).map(|number| {
        let mut frame = datagram(number, 53, 100);
        frame[23] = 6;
        frame
    });
    send(&net, &frames);
    send(&net, &tcp.collect::<Vec<_>>());
    for (reader, port) in readers.into_iter().zip(ports) {
        let report = succeeded(&reader.interrupt());
        assert_eq!((ran(&report, "bpf").as_str(), ran(&report, "ethernet").as_str()), ("app", "kernel"), "{report}");
        assert!(saved(&net, &format!("{port}.pcap")) == to_port(&frames, port), "{port}: {report}");
        // TCP is dropped in the kernel by the beginning of its expression.
        assert_eq!(report["filters"][0]["blocks_taken"], 480, "{report}");
    }
    let report = succeeded(&root.interrupt());
    assert_eq!(ran(&report, "bpf"), "kernel");
    assert!(saved(&net, "root.pcap") == to_port(&frames, 80));
}

#[test]
fn explain_and_run_find_the_same_room_and_one_user_leaves_some_to_others() {
    if !may_make_networks() {
        return;
    }
    const OTHER: u32 = 65533;
    let net = Net::new(Some(EVERYBODY));
    let nine_hundred = dear(53, 9);
    let request = |file: &str| format!("ethernet D | bpf \"{nine_hundred}\" | save {file}.pcap");
    // One user may take three quarters of 4,096, which is room for three of them. Other users and root get one more.
    let (mut readers, rows) = (
        Vec::new(),
        [
            (NOBODY, "a", "kernel"),
            (NOBODY, "b", "kernel"),
            (NOBODY, "c", "kernel"),
            (NOBODY, "d", "app"),
            (OTHER, "e", "kernel"),
            (0, "f", "app"),
        ],
    );
    for (user, file, expected) in rows {
        let (space, why) = explained(&net, user, &request(file), "bpf");
        assert_eq!(space, expected, "{file}: {why}");
        let whose = if user == NOBODY { "3072 instructions" } else { "4096 instructions" };
        assert!(space == "kernel" || why.contains(whose), "{why}");
        readers.push(start(&net, user, &request(file)));
    }
    // In one request as far as there is room. Narrowed expressions take room, too.
    let several =
        format!("ethernet D | {{ bpf \"{nine_hundred}\" | drop + bpf \"udp port 53\" | count | drop + tcp | drop }}");
    for (filter, expected) in [("bpf", "app"), ("count", "kernel")] {
        assert_eq!(explained(&net, OTHER, &several, filter).0, expected);
    }
    let frames = traffic(300);
    send(&net, &frames);
    for (reader, (_, file, expected)) in readers.into_iter().zip(rows) {
        let report = succeeded(&reader.interrupt());
        assert_eq!(ran(&report, "bpf"), expected, "{file}: {report}");
        assert!(saved(&net, &format!("{file}.pcap")) == to_port(&frames, 53), "{file}");
    }
    until("they are gone", || net.readers() == 0);
    assert_eq!(explained(&net, 0, &request("g"), "bpf").0, "kernel", "those that went take nothing");
}

#[test]
fn what_is_replaced_by_the_same_needs_no_more_room() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(&policy(1500)));
    let of = |tail: &str| format!("ethernet D | bpf \"{}\" | {tail}", dear(53, 10));
    let (reader, process) = started(&net, &of("save one.pcap"));
    assert_eq!(explained(&net, 0, &of("drop"), "bpf").0, "app", "there is room for one");
    send(&net, &traffic(30));
    let output = replace(&net, process, &of("save two.pcap"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    send(&net, &traffic(30));
    let report = succeeded(&reader.interrupt());
    assert_eq!(ran(&report, "bpf"), "kernel", "{report}");
    let both = [saved(&net, "one.pcap"), saved(&net, "two.pcap")].concat();
    assert_eq!(both.len(), 2 * to_port(&traffic(30), 53).len());
}

#[test]
fn a_policys_filter_stays_where_packets_are_however_little_room_there_is() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(&format!("{}filter = \"udp port 53 or udp port 80\"\n", policy(10))));
    for by in ["kernel", "socket"] {
        let reader = start(&net, NOBODY, &format!("ethernet D by={by} | bpf \"udp port 53 or tcp\" | save {by}.pcap"));
        let frames = traffic(300);
        send(&net, &frames);
        let ring = net.state()["rings"][0].clone();
        let shown = to_port(&frames, 53).len() + to_port(&frames, 80).len();
        assert_eq!(ring["written"], shown, "nothing else is in its ring: {ring}");
        let output = reader.interrupt();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let (warning, report) = told.split_at(told.find('{').expect("a report"));
        let report: Value = serde_json::from_str(report).unwrap();
        assert!(warning.contains("shows of `near` only what"), "{warning}");
        assert_eq!(ran(&report, "bpf"), "app", "{report}");
        assert!(saved(&net, &format!("{by}.pcap")) == to_port(&frames, 53), "by {by}");
        until("it is gone", || net.state()["rings"].as_array().unwrap().is_empty());
    }
    // Packets to be taken from the host are selected in the kernel; otherwise the request is refused.
    let output = net.as_nobody("ethernet D mode=consume | bpf \"udp port 53\" | drop").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && told.contains("cannot choose what is taken away from the host"),
        "{told}"
    );
    assert!(told.contains("0 of the 6 instructions"), "{told}");
}

#[test]
fn programs_and_shared_requests_decide_by_themselves_where_there_is_no_room() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(&policy(10)));
    let frames = traffic(300);
    let request = "ethernet D | bpf \"udp port 53\" | udp | count";
    let (space, why) = {
        let mut command = Command::new(PROGRAM);
        command.args(["explain", "--share", "--json", "--daemon"]).arg(net.socket());
        let output = command.arg(request.replace('D', net.device())).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let bpf = told["nodes"].as_array().unwrap().iter().find(|node| node["kind"] == "bpf").unwrap().clone();
        (bpf["space"].clone(), bpf["why"].as_str().unwrap().to_string())
    };
    assert!(space == "parser" && why.contains("it runs in the reader"), "{space}: {why}");
    let mut readers = Vec::new();
    for share in [true, false] {
        let mut command = net.request(request);
        command.args(share.then_some("--share"));
        readers.push(Running::start(command));
        until("it reads", || net.readers() == readers.len());
    }
    let tcpdump = installed("tcpdump").map(|tcpdump| {
        let mut command = ours(Some(&net.socket()), &tcpdump);
        command.args(["-i", net.device(), "-U", "-w", "tcpdump.pcap", "udp port 53"]);
        command.current_dir(net.path(".")).uid(NOBODY).gid(NOBODY);
        let program = net.there_noting(command, "tcpdump.txt");
        until("it listens", || net.text("tcpdump.txt").contains("listening on"));
        program
    });
    send(&net, &frames);
    let expected = to_port(&frames, 53);
    if let Some(program) = tcpdump {
        until("all is there", || {
            net.path("tcpdump.pcap").exists() && saved(&net, "tcpdump.pcap").len() >= expected.len()
        });
        assert!(program.interrupt().status.success());
        assert!(saved(&net, "tcpdump.pcap") == expected);
        let told = net.text("tcpdump.txt");
        assert!(
            told.contains("Kernel filter failed: your expressions on `near` cost each packet 0 of the 6"),
            "{told}"
        );
    }
    let counts = readers.into_iter().map(|reader| {
        let output = reader.interrupt();
        succeeded(&output);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["blocks"].clone()
    });
    let counts: Vec<Value> = counts.collect();
    assert!(counts[0].as_u64() > Some(0) && counts[0] == counts[1], "{counts:?}");
}
