//! Requests with a common beginning that share its parsing: each has the same results as alone, and the shared part runs once.

use crate::net::*;
use crate::programs::{installed, ours};
use crate::replacing::replace;
use buffer::control::Message;
use buffer::pipe::OpenOptions;
use buffer::ring::OnFull;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use streamline::parser::client::Client;
use streamline::parser::protocol::{PROTOCOL, PrefixState, Question};
use testkit::network::may_make_networks;

fn frames(name: &str) -> Vec<Vec<u8>> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures")).join(name);
    packets(&path).into_iter().map(|(_, frame)| frame).collect()
}

fn sharing(net: &Net, request: &str) -> Command {
    let mut command = net.request(request);
    command.arg("--share");
    command
}

/// The shared prefixes as `ps` shows them: for each, the blocks given and the number of readers.
fn shown(net: &Net) -> BTreeMap<String, (u64, usize)> {
    let state = net.state();
    let entry = |prefix: &Value| {
        let text = prefix["prefix"].as_str().unwrap().replace(net.device(), "D");
        (text, (prefix["blocks"].as_u64().unwrap(), prefix["readers"].as_array().unwrap().len()))
    };
    state["shared"].as_array().unwrap().iter().map(entry).collect()
}

/// The same from the parser process itself. Empty if there is none.
fn shared(net: &Net) -> BTreeMap<String, (u64, usize)> {
    let client = Client::connect(&streamline::parser::socket(&net.socket()).unwrap(), "a test");
    let prefixes = client.and_then(|client| client.state()).map(|state| state.prefixes).unwrap_or_default();
    let entry = |prefix: PrefixState| (prefix.text.replace(net.device(), "D"), (prefix.given.0, prefix.readers.len()));
    prefixes.into_iter().map(entry).collect()
}

fn start(net: &Net, requests: &[&str]) -> Vec<Running> {
    let readers = |net: &Net| shared(net).values().map(|(_, readers)| readers).sum::<usize>();
    let mut running = Vec::new();
    for request in requests {
        let before = readers(net);
        running.push(Running::start(sharing(net, request)));
        until("it reads what is shared", || readers(net) > before);
    }
    running
}

/// Sends frames, and waits until all resulting blocks were given to the requests that share.
fn send_all(net: &Net, frames: &[Vec<u8>]) {
    send(net, frames);
    let mut before = shared(net);
    let mut since = std::time::Instant::now();
    until("nothing more comes", || {
        let now = shared(net);
        if now != before {
            (before, since) = (now, std::time::Instant::now());
        }
        since.elapsed() > std::time::Duration::from_millis(300)
    });
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            for (below, bytes) in files(&entry.path()) {
                found.insert(format!("{name}/{below}"), bytes);
            }
        } else {
            found.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

fn count_of(output: &Output) -> u64 {
    let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
    counted["blocks"].as_u64().unwrap()
}

#[test]
fn two_requests_that_begin_alike_run_tcp_once_and_each_gives_what_it_gives_by_itself() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let alone = net.read(&["ethernet D | tcp | files dir=alone"]);
    let both = start(&net, &["ethernet D | tcp | files dir=one", "ethernet D | tcp | files dir=two"]);
    assert_eq!(shown(&net).into_iter().collect::<Vec<_>>(), [("ethernet D | decap | tcp".to_string(), (0, 2))]);
    assert_eq!(net.readers(), 2, "one of the request that is alone, one of the others");
    send_all(&net, &frames("web.pcap"));
    for running in alone.into_iter().chain(both) {
        succeeded(&running.interrupt());
    }
    let [alone, one, two] = ["alone", "one", "two"].map(|folder| files(&net.path(folder)));
    assert!(alone.len() > 3, "{:?}", alone.keys());
    assert_eq!(alone.keys().collect::<Vec<_>>(), one.keys().collect::<Vec<_>>());
    assert!(one == two);
    for (name, bytes) in alone {
        if name == "index.jsonl" {
            let rows = |index: &[u8]| String::from_utf8_lossy(index).lines().map(timeless).collect::<Vec<_>>();
            assert_eq!(rows(&bytes), rows(&one[&name]));
        } else {
            assert!(bytes == one[&name], "{name}");
        }
    }
}

/// A line without its time and stream number. Each process that takes packets computes times itself, a few nanoseconds
/// apart. The stream number is derived from the time, or counts the streams of one process.
fn timeless(line: &str) -> String {
    let Ok(Value::Object(mut row)) = serde_json::from_str(line) else {
        return line.splitn(3, ' ').nth(2).unwrap_or_default().to_string();
    };
    let times = ["timestamp", "ts", "flow_id"].map(|key| row.remove(key).is_some());
    assert!(times.contains(&true), "a row has its time");
    Value::Object(row).to_string()
}

/// Runs these requests alone, then shared. Compares their standard output, line by line, with the lines sorted.
fn compare(net: &Net, requests: &[&str], captures: &[&str]) -> BTreeMap<String, (u64, usize)> {
    let alone = net.read(requests);
    let sharing = start(net, requests);
    for capture in captures {
        send_all(net, &frames(capture));
    }
    let shared = shared(net);
    let lines = |running: Vec<Running>| -> Vec<Vec<String>> {
        let outputs = running.into_iter().map(|running| {
            let output = running.interrupt();
            succeeded(&output);
            // For a lone `tcp`, an unfinished stream ends with the run. A shared `tcp` goes on.
            let lines = String::from_utf8_lossy(&output.stdout);
            let mut lines: Vec<String> =
                lines.lines().filter(|line| !line.ends_with("last cut")).map(timeless).collect();
            lines.sort_unstable();
            lines
        });
        outputs.collect()
    };
    let (alone, sharing) = (lines(alone), lines(sharing));
    for ((request, alone), sharing) in requests.iter().zip(alone).zip(sharing) {
        assert!(!alone.is_empty(), "{request} gives nothing");
        let differs = alone.iter().zip(&sharing).find(|(one, other)| one != other);
        assert!(differs.is_none() && alone.len() == sharing.len(), "{request}: {differs:?}");
    }
    shared
}

#[test]
fn whatever_parses_gives_the_same_when_it_is_shared() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let requests = [
        "ethernet D | http | json",
        "ethernet D | dns | json",
        "ethernet D | tcp | match \"HTTP/1\" | inspect",
        "ethernet D | tls | json",
        "ethernet D | udp | inspect",
        "ethernet D | bpf \"port 8080\" | tls | json",
        "ethernet D | dns | json",
    ];
    let shared = compare(&net, &requests, &["web.pcap", "dns.pcap", "tls.pcap", "brotli.pcap"]);
    let readers: Vec<(&str, usize)> = shared.iter().map(|(text, (_, readers))| (text.as_str(), *readers)).collect();
    let expected = [
        ("ethernet D | bpf \"port 8080\" | decap | tcp | tls", 1),
        // Read by `dns`, `match` and `tls`. Each of these has one request only, so that it is not shared.
        ("ethernet D | decap | tcp", 3),
        ("ethernet D | decap | tcp | http", 1),
        ("ethernet D | decap | udp", 2),
        // Shared from the second request on that wants it.
        ("{ ethernet D | decap | tcp + ethernet D | decap | udp } | dns", 1),
    ];
    assert_eq!(readers, expected);
}

#[test]
fn what_two_go_on_with_alike_is_shared_too() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let running = start(
        &net,
        &[
            "ethernet D | http | count",
            "ethernet D | tls | count",
            "ethernet D | tls | json",
            "ethernet D | http | files dir=x",
            "ethernet D | tls | inspect",
        ],
    );
    send_all(&net, &frames("tls.pcap"));
    send_all(&net, &frames("web.pcap"));
    let now = shared(&net);
    let readers: Vec<(&str, usize)> = now.iter().map(|(text, (_, readers))| (text.as_str(), *readers)).collect();
    // The second request started before another one wanted `tls`.
    assert_eq!(
        readers,
        [
            ("ethernet D | decap | tcp", 1),
            ("ethernet D | decap | tcp | http", 2),
            ("ethernet D | decap | tcp | tls", 2)
        ]
    );
    assert_eq!(net.readers(), 1, "the device's packets are taken once");
    let outputs: Vec<Output> = running.into_iter().map(Running::interrupt).collect();
    outputs.iter().for_each(|output| drop(succeeded(output)));
    let rows = String::from_utf8_lossy(&outputs[2].stdout).lines().count() as u64;
    assert!(rows > 0);
    assert_eq!(count_of(&outputs[1]), rows, "`tls` by itself and shared");
    until("nobody needs it, and it goes", || net.readers() == 0 && shared(&net).is_empty());
}

#[test]
fn who_is_replaced_goes_on_with_what_is_shared_and_joins_what_is_new() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let running = start(&net, &["ethernet D | tcp | files dir=one", "ethernet D | tcp | files dir=two"]);
    let process = running[1].0.as_ref().unwrap().id();
    let replaced = |request: &str| {
        let output = replace(&net, process, request);
        assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let are_read = |expected: &[(&str, usize)], of_device: usize| {
        let is_expected = |shared: BTreeMap<String, (u64, usize)>| {
            shared.iter().map(|(text, (_, readers))| (text.as_str(), *readers)).eq(expected.iter().copied())
        };
        until("so many read", || is_expected(shared(&net)) && net.readers() == of_device);
    };
    let web = frames("web.pcap");
    let (before, after) = web.split_at(web.len() / 2);
    // In the middle of streams: the common beginning goes on, and loses nothing.
    send_all(&net, before);
    let goes_on = "ethernet D | tcp | { files dir=two + http | count | json file=http.json }";
    replaced(goes_on);
    are_read(&[("ethernet D | decap | tcp", 2)], 1);
    // Filters in the request's own process stay there, with their output, even if other requests share them now.
    replaced(goes_on);
    let others = start(&net, &["ethernet D | http | count", "ethernet D | http | count"]);
    replaced(goes_on);
    are_read(&[("ethernet D | decap | tcp", 3), ("ethernet D | decap | tcp | http", 1)], 1);
    others.into_iter().for_each(|other| drop(succeeded(&other.interrupt())));
    let told = net.state()["shared"][0]["readers"][1]["purpose"].clone();
    assert_eq!(told, goes_on.replace('D', net.device()));
    send_all(&net, after);
    // It stops reading what it read before. Packets that it takes itself are not shared.
    replaced("set share=no; ethernet D | udp | count | json file=own.json");
    are_read(&[("ethernet D | decap | tcp", 1)], 2);
    let datagrams: Vec<_> = (0..100).map(|number| datagram(number, 53, 100)).collect();
    send_all(&net, &datagrams);
    replaced("ethernet D | udp | count");
    are_read(&[("ethernet D | decap | tcp", 1), ("ethernet D | decap | udp", 1)], 2);
    send_all(&net, &datagrams);
    let outputs: Vec<Output> = running.into_iter().map(Running::interrupt).collect();
    outputs.iter().for_each(|output| drop(succeeded(output)));
    assert_eq!(count_of(&outputs[1]), 100);
    let [one, mut two] = ["one", "two"].map(|folder| files(&net.path(folder)));
    assert!(one.len() > 3 && two.remove("index.jsonl").is_some());
    two.iter().for_each(|(name, bytes)| assert!(*bytes == one[name], "{name}"));
    assert_eq!(two.len() + 1, one.len());
    let counted = |file: &str| serde_json::from_slice::<Value>(&std::fs::read(net.path(file)).unwrap()).unwrap();
    assert_eq!(counted("own.json")["blocks"], 100);
    assert!(counted("http.json")["blocks"].as_u64() > Some(0));
}

#[test]
fn what_has_ended_is_read_anew_by_what_takes_its_place() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let request = "ethernet D | { tcp | files dir=x + save all.pcap }";
    let running = start(&net, &[request]).pop().unwrap();
    until("the other branch reads, too", || net.readers() == 2);
    let process = running.0.as_ref().unwrap().id();
    let web = frames("web.pcap");
    let (before, after) = web.split_at(web.len() / 2);
    send_all(&net, before);
    let parser = net.state()["shared"][0]["process"].as_i64().unwrap();
    kill_process(Pid::from_raw(parser as i32).unwrap(), Signal::KILL).unwrap();
    // The parser process notices a moment later, however often the request is replaced meanwhile.
    let mut tries = 0;
    until("it is read anew", || {
        tries += 1;
        let output = replace(&net, process, request);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        shared(&net).get("ethernet D | decap | tcp").is_some_and(|(_, readers)| *readers == 1)
    });
    assert!(tries < 60, "{tries}");
    let written = |net: &Net| files(&net.path("x")).len();
    let by_then = written(&net);
    send_all(&net, after);
    let said = String::from_utf8_lossy(&running.interrupt().stderr).into_owned();
    assert!(said.contains("is gone"), "{said}");
    assert!(written(&net) > by_then, "{by_then} files");
    assert!(packets(&net.path("all.pcap")).into_iter().map(|(_, frame)| frame).eq(web), "the other branch went on");
}

#[test]
fn who_joins_leaves_is_stopped_or_killed_disturbs_nobody_and_losses_are_counted() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let mut running =
        start(&net, &["ethernet D | udp | count", "ethernet D | udp | count", "ethernet D | udp | count"]);
    running[1].signal(Signal::STOP);
    let total = 100_000u64;
    let frame = |number: u64| datagram(number as u32, 53, 80);
    let mut sender = net.pair.far.sender();
    let mut joined = 0;
    for number in 0..total {
        if number % 25_000 == 10_000 {
            let one = start(&net, &["ethernet D | udp | count"]).pop().unwrap();
            joined += 1;
            if number < 60_000 {
                one.signal(Signal::KILL);
            } else {
                succeeded(&one.interrupt());
            }
        }
        if number == 50_000 {
            running.remove(2).signal(Signal::KILL);
        }
        if number % 2000 == 0 {
            // No faster than a test build takes packets.
            until("it is taken", || shared(&net)["ethernet D | decap | udp"].0 + 20_000 > number);
        }
        sender.send(&frame(number)).unwrap();
    }
    assert_eq!(joined, 4);
    until("all is given", || shared(&net)["ethernet D | decap | udp"].0 >= total);
    running[1].signal(Signal::CONT);
    let outputs: Vec<Output> = running.into_iter().map(Running::interrupt).collect();
    let sources: Vec<Value> = outputs.iter().map(|output| succeeded(output)["filters"][0].clone()).collect();
    assert_eq!(count_of(&outputs[0]), total, "{}", sources[0]);
    let lost = sources[1]["dropped"]["overwritten before they were read"].as_u64().unwrap_or(0);
    assert!(lost > 0 && count_of(&outputs[1]) > 0, "{}", sources[1]);
    assert_eq!(count_of(&outputs[1]) + lost, total, "{}", sources[1]);
}

/// A TCP segment from the client or the server, with these flags, `behind` bytes after the start.
fn segment(from_client: bool, flags: u8, behind: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = datagram(0, 80, 54 + payload.len());
    frame.truncate(54 + payload.len());
    let len = frame.len() as u16 - 14;
    frame[16..18].copy_from_slice(&len.to_be_bytes());
    frame[23] = 6;
    let (ports, addresses) = if from_client { ([4000u16, 80], [1, 2]) } else { ([80, 4000], [2, 1]) };
    (frame[29], frame[33]) = (addresses[0], addresses[1]);
    frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
    frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
    frame[38..42].copy_from_slice(&(1000 + behind).to_be_bytes());
    frame[42..46].copy_from_slice(&1001u32.to_be_bytes());
    frame[46..54].copy_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame[54..].copy_from_slice(payload);
    frame
}

#[test]
fn what_a_reader_of_a_stream_lost_is_a_gap_of_the_right_length() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let running = start(
        &net,
        &["ethernet D | tcp | files dir=all", "ethernet D | tcp | files dir=some", "ethernet D | tcp | count"],
    );
    let (segments, len) = (30_000u32, 1400u32);
    let mut sender = net.pair.far.sender();
    for frame in [segment(true, 2, 0, &[]), segment(false, 0x12, 0, &[]), segment(true, 0x10, 1, &[])] {
        sender.send(&frame).unwrap();
    }
    let payload = |number: u32| vec![number as u8; len as usize];
    let given = |net: &Net| shared(net)["ethernet D | decap | tcp"].0;
    for number in 0..segments {
        if number == 1000 {
            // The reader's own files show that it reads: packets before the first block that it sees are no gap.
            let has_written = |entry: std::fs::DirEntry| entry.metadata().is_ok_and(|found| found.len() > 0);
            let reads = || std::fs::read_dir(net.path("some")).into_iter().flatten().flatten().any(has_written);
            until("the beginning is taken", || given(&net) >= 1000 && reads());
            running[1].signal(Signal::STOP);
        }
        if number % 1000 == 0 {
            let entries = || std::fs::read_dir(net.path("all")).into_iter().flatten().flatten();
            let bytes = || entries().filter_map(|entry| Some(entry.metadata().ok()?.len())).max().unwrap_or(0);
            let written = || (bytes() / u64::from(len)) as u32;
            until("it is taken", || {
                given(&net) + 2000 > u64::from(number) && (number < 5000 || written() + 4000 > number)
            });
        }
        if number + 100 == segments {
            until("it is taken", || given(&net) >= u64::from(number));
            running[1].signal(Signal::CONT);
        }
        sender.send(&segment(true, 0x10, 1 + number * len, &payload(number))).unwrap();
    }
    sender.send(&segment(true, 0x11, 1 + segments * len, &[])).unwrap();
    sender.send(&segment(false, 0x11, 1, &[])).unwrap();
    until("all is given", || given(&net) >= u64::from(segments) + 2);
    let outputs: Vec<Output> = running.into_iter().map(Running::interrupt).collect();
    let longest = |folder: &str| files(&net.path(folder)).into_values().max_by_key(Vec::len).unwrap();
    let (whole, some) = (longest("all"), longest("some"));
    assert_eq!(whole.len(), (segments * len) as usize);
    let source = succeeded(&outputs[1])["filters"][0].clone();
    let lost = source["events"]["bytes of streams lost"].as_u64().unwrap_or(0);
    assert!(lost > 0, "{source}");
    // The content equals the sent bytes, at their offsets.
    let index = String::from_utf8_lossy(&files(&net.path("some"))["index.jsonl"]).into_owned();
    let rows = index.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let row = rows.max_by_key(|row| row["size"].as_u64()).unwrap();
    let (mut expected, mut from, mut missing) = (Vec::new(), 0, 0);
    for gap in row["gaps"].as_array().unwrap() {
        let (offset, gap) = (gap[0].as_u64().unwrap() as usize, gap[1].as_u64().unwrap());
        expected.extend_from_slice(&whole[from..offset + missing as usize]);
        missing += gap;
        from = offset + missing as usize;
    }
    expected.extend_from_slice(&whole[from..]);
    assert_eq!(missing, lost, "{row}");
    assert!(expected == some, "{row}");
    let blocks = source["dropped"]["overwritten before they were read"].as_u64().unwrap();
    assert_eq!(source["blocks_in"].as_u64().unwrap(), source["blocks_taken"].as_u64().unwrap() + blocks);
    assert_eq!(blocks * u64::from(len), lost);
}

#[test]
fn who_runs_it_dies_and_is_told_and_the_next_request_starts_another() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let process = |net: &Net| net.state()["shared"][0]["process"].as_i64().unwrap() as i32;
    let running = start(&net, &["ethernet D | http | count", "ethernet D | http | files dir=x"]);
    let first = process(&net);
    send_all(&net, &frames("web.pcap"));
    until("something was given", || net.path("x").is_dir() && files(&net.path("x")).len() > 3);
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let mut counted = Vec::new();
    for running in running {
        let output = running.end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let why = "tcp | http` has ended: the process that runs it for several requests is gone";
        assert!(said.contains(why), "{said}");
        counted.push(output);
    }
    // Blocks already given are still written.
    assert!(count_of(&counted[0]) > 0);
    let again = start(&net, &["ethernet D | http | count"]);
    assert_ne!(process(&net), first);
    send_all(&net, &frames("web.pcap"));
    // The device vanishes, and the process that captures says so before it ends its ring.
    net.pair.near.remove();
    for running in again {
        let output = running.end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = format!("error: the capture of `{}` has ended: the device has gone\n", net.device());
        assert!(output.status.code() == Some(1) && said.contains(&why), "{said}");
    }
    let socket = streamline::parser::socket(&net.socket()).unwrap();
    until("it ends, and leaves nothing", || {
        let stem = socket.file_stem().unwrap().to_str().unwrap();
        let mut entries = std::fs::read_dir(socket.parent().unwrap()).unwrap();
        !entries.any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with(stem))
    });
}

#[test]
fn a_ring_of_another_that_ends_only_now_is_in_nobodys_way() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let socket = streamline::parser::socket(&net.socket()).unwrap();
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let left = socket.with_extension("1.ring");
    let lock = buffer::control::name::lock(&left).unwrap();
    let running = start(&net, &["ethernet D | udp | count"]);
    assert_eq!(shared(&net).into_values().map(|(_, readers)| readers).collect::<Vec<_>>(), [1]);
    running.into_iter().for_each(|running| drop(succeeded(&running.interrupt())));
    std::fs::remove_file(buffer::control::name::lock_path(&left)).unwrap();
    drop(lock);
}

#[test]
fn a_hostile_client_of_the_same_user_hurts_nobody() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let running = start(&net, &["ethernet D | udp | count"]);
    let socket = streamline::parser::socket(&net.socket()).unwrap();
    let connect = || {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let made = made.unwrap();
        rustix::net::connect(&made, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        made
    };
    let hello = Question::Hello(PROTOCOL, env!("CARGO_PKG_VERSION").into(), "hostile".into()).encode();
    let silent: Vec<_> = (0..40).map(|_| connect()).collect();
    for seed in 0..200u32 {
        let peer = connect();
        let garbage: Vec<u8> =
            (0..seed % 90).map(|at| (seed.wrapping_mul(2_654_435_761).rotate_left(at) >> 7) as u8).collect();
        let join = Question::Join(
            ["ethernet D | decap | udp", "pcap /etc/passwd | tcp", "{{{", "ethernet D | files dir=/"]
                [seed as usize % 4]
                .replace('D', net.device()),
        );
        let messages = [vec![hello.clone(), garbage], vec![hello.clone(), join.encode(), Question::Leave(1).encode()]];
        for message in &messages[seed as usize % 2] {
            // The daemon may have disconnected it already.
            let _ = buffer::control::packets::send(&peer, message, &[]);
        }
        if seed % 3 == 0 {
            // Asks, and never reads an answer.
            (0..500).for_each(|_| drop(buffer::control::send(&peer, &Question::State, &[])));
        }
    }
    // A stranger may read the ring without holding it, and may not write it. Only root may hold it, for a moment.
    let ring = std::fs::read_dir(socket.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(socket.file_stem().unwrap().to_str().unwrap()) && name.ends_with(".ring")
    });
    let ring = ring.expect("somebody reads").to_str().unwrap().to_string();
    assert!(OpenOptions::new().write(&ring).is_err());
    let mut holder = OpenOptions::new().contract(OnFull::Wait).read(&ring).unwrap();
    let total = 80_000u32;
    let mut sender = net.pair.far.sender();
    for number in 0..total {
        if number % 2000 == 0 {
            until("it is taken", || shared(&net)["ethernet D | decap | udp"].0 + 20_000 > u64::from(number));
        }
        sender.send(&datagram(number, 53, 60)).unwrap();
    }
    // It was held for a millisecond, and no process waited meanwhile.
    let least = u64::from(total) - 5000;
    until("all is given", || shared(&net)["ethernet D | decap | udp"].0 >= least);
    holder.set_non_blocking(true);
    assert!(holder.peek().is_ok());
    assert_eq!(holder.stat().contract, OnFull::Overwrite, "demoted");
    drop(silent);
    for running in running {
        let output = running.interrupt();
        let source = succeeded(&output)["filters"][0].clone();
        assert_eq!(source["dropped"], serde_json::json!({}), "{source}");
        assert!(count_of(&output) >= least, "{source}");
    }
}

#[test]
fn who_runs_it_is_confined_in_all_its_threads_and_looks_up_names_all_the_same() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let by_name = "ethernet D | bpf \"udp port domain and not ip proto ospf and not host localhost\" | udp | count";
    let running = start(&net, &[by_name, by_name, "ethernet D | http | count"]);
    let state = &net.state()["shared"][0];
    let confined = state["confined"].as_str().unwrap();
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", state["process"])).unwrap().flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let has = |line: &str| assert!(status.contains(line), "{line}: {status}");
        has("NoNewPrivs:\t1\n");
        has("CapEff:\t0000000000000000\n");
        has("CapPrm:\t0000000000000000\n");
        assert_eq!(status.contains("Seccomp:\t2\n"), confined.contains("seccomp"), "{status}");
        threads += 1;
    }
    assert!(threads >= 5, "{threads}: who answers, two prefixes, two rings");
    let known = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    assert_eq!(confined.contains("seccomp"), known.contains("errno"), "{confined}");
    if !confined.contains("seccomp") || !confined.contains("Landlock") {
        eprintln!("skipped: this kernel confines it only to {confined}");
    }
    let shown: Vec<_> = shared(&net).into_values().map(|(_, readers)| readers).collect();
    assert_eq!(shown, [2, 1]);
    send_all(&net, &(0..100).map(|number| datagram(number, 53, 100)).collect::<Vec<_>>());
    for (running, counted) in running.into_iter().zip([100, 100, 0]) {
        let output = running.interrupt();
        succeeded(&output);
        assert_eq!(count_of(&output), counted);
    }
}

#[test]
fn a_user_without_rights_shares_with_itself_alone() {
    if !may_make_networks() {
        return;
    }
    let policy = "[[allow]]\nusers = [\"65534\", \"65533\"]\ndevices = [\"*\"]\nmodes = [\"tap\"]\n";
    let net = Net::new(Some(policy));
    let nobody = |mut command: Command, user: u32| {
        command.uid(user).gid(user).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", net.path(""));
        command
    };
    let state = |user: u32| -> Value {
        let mut command = Command::new(PROGRAM);
        command.args(["ps", "--json", "--daemon"]).arg(net.socket());
        let output = nobody(command, user).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    let reads = |user: u32| state(user)["shared"][0]["readers"].as_array().map_or(0, Vec::len);
    let mut running = Vec::new();
    for (user, before) in [(65534, 0), (65534, 1), (65533, 0)] {
        let command = nobody(sharing(&net, "ethernet D | udp | count"), user);
        running.push(Running::start(command));
        until("it reads what is shared", || reads(user) > before);
    }
    let processes = [65534, 65533].map(|user| state(user)["shared"][0]["process"].as_i64().unwrap());
    assert_ne!(processes[0], processes[1], "each user has its own");
    for (process, user) in processes.into_iter().zip(["65534", "65533"]) {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let has = |line: &str| assert!(status.contains(line), "{line}: {status}");
        has(&format!("Uid:\t{user}\t{user}"));
        has("CapEff:\t0000000000000000");
        has("CapPrm:\t0000000000000000");
        has("NoNewPrivs:\t1");
    }
    // Other users may not open its rings, and no process may hold them.
    let folder = net.path("streamline-65534/shared");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let ring = names.into_iter().find(|name| name.ends_with(".ring")).map(|name| folder.join(name)).unwrap();
    for (user, options) in [(65534, vec!["on-full=wait"]), (65533, vec!["on-full=overwrite"])] {
        let mut command = Command::new(PROGRAM);
        command.args(["pipe", "read"]).arg(&ring).args(options);
        let output = nobody(command, user).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    }
    send(&net, &traffic(300));
    until("all is given", || state(65534)["shared"][0]["blocks"].as_u64() >= Some(240));
    for running in running {
        let output = running.interrupt();
        succeeded(&output);
        assert!(count_of(&output) > 0);
    }
}

#[test]
fn requests_read_as_devices_join_what_runs_where_they_are_told_to() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    let first = start(&net, &["ethernet D | http | count"]).remove(0);
    let prefix = "ethernet D | decap | tcp | http".to_string();
    let read_by = || shared(&net).get(&prefix).map_or(0, |(_, readers)| *readers);
    assert_eq!(read_by(), 1);
    let datagrams: Vec<_> = (0..50).map(|number| datagram(number, 53, 80)).collect();
    for (said, readers) in [(Some("1"), 2), (Some("no"), 1), (None, 1)] {
        let mut command = ours(Some(&net.socket()), &tcpdump);
        let request =
            "sl:ethernet D name=all | http | count | json file=NAME.json overwrite=yes; @all | bpf \"udp port 53\"";
        let name = said.unwrap_or("unsaid");
        command.args(["-U", "-i", &request.replace('D', net.device()).replace("NAME", name)]);
        command.args(["-w", &format!("{name}.pcap")]).args(["-Z", "root"]).env_remove("STREAMLINE_SHARE");
        command.envs(said.map(|said| ("STREAMLINE_SHARE", said)));
        command.current_dir(net.path(".")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let before = net.readers();
        let program = Running::start(command);
        // Its frames, and the parser if it runs in the same process, are readers of the device.
        until("it reads", || net.readers() == before + 3 - readers && net.path(&format!("{name}.pcap")).exists());
        assert_eq!(read_by(), readers, "{name}");
        send_all(&net, &[datagrams.clone(), frames("web.pcap")].concat());
        let written = || packets(&net.path(&format!("{name}.pcap"))).into_iter().map(|(_, bytes)| bytes);
        until("its frames came", || written().count() >= 50);
        let output = program.interrupt();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(written().eq(datagrams.iter().cloned()), "{name}");
        until("it is gone", || net.readers() == before);
        let counted: Value =
            serde_json::from_slice(&std::fs::read(net.path(&format!("{name}.json"))).unwrap()).unwrap();
        assert!(counted["blocks"].as_u64() > Some(0), "{name}: {counted}");
    }
    succeeded(&first.interrupt());
}
