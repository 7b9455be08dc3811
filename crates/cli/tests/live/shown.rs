//! A policy's filter: its users see only matching packets of a device, for any request.

use crate::net::*;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use testkit::network::may_make_networks;

const POLICY: &str = "[[allow]]\nusers = [\"65534\"]\ndevices = [\"near\"]\nmodes = [\"tap\", \"consume\"]\nkeep = \"8M\"\n\
                      filter = \"udp port 53\"\n";

fn as_nobody(net: &Net, request: &str) -> Running {
    Running::start(net.as_nobody(request))
}

fn is_shown(frame: &[u8]) -> bool {
    frame[12] == 8 && frame[36..38] == 53u16.to_be_bytes()
}

fn shown(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().filter(|frame| is_shown(frame)).cloned().collect()
}

fn saved(net: &Net, file: &str) -> Vec<Vec<u8>> {
    packets(&net.path(file)).into_iter().map(|(_, bytes)| bytes).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_policy_shows_is_all_there_is_for_who_has_its_ring() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let kept = || net.state()["rings"].as_array().unwrap().iter().any(|ring| ring["kept"] == true);
    until("packets are kept", kept);
    let frames = traffic(600);
    let (before, rest) = frames.split_at(300);
    send(&net, before);
    let requests = [
        "ethernet D | save plain.pcap",
        "ethernet D by=socket | save socket.pcap",
        "ethernet D last=60s | save past.pcap",
        // The reader evaluates expressions that the kernel cannot evaluate as a whole.
        "ethernet D | bpf \"udp or ip6 protochain 17\" | save above.pcap",
        "ethernet D | count",
        "ethernet D | sample 2 | count",
        "ethernet D | bpf \"tcp\" | count",
        "ethernet D last=60s | bpf \"udp port 80\" | count",
    ];
    let mut readers = Vec::new();
    for request in requests {
        readers.push(as_nobody(&net, request));
        until("it reads", || net.readers() == readers.len());
    }
    let root = net.read(&["ethernet D last=60s | save root.pcap"]).pop().unwrap();
    let state = net.state();
    let hows: Vec<&str> = state["rings"].as_array().unwrap().iter().filter_map(|ring| ring["how"].as_str()).collect();
    let limited = hows.iter().filter(|how| how.ends_with("; only what `udp port 53` passes")).count();
    assert_eq!((hows.len(), limited), (3, 2), "root has a ring that has everything: {hows:?}");
    send(&net, rest);
    let outputs: Vec<Output> = readers.into_iter().map(Running::interrupt).collect();
    for (output, request) in outputs.iter().zip(requests) {
        assert!(output.status.success(), "{request}: {}", said(output));
        assert!(said(output).contains("shows of `near` only what `udp port 53` passes"), "{request}: {}", said(output));
    }
    let told = said(&root.interrupt());
    assert!(!told.contains("udp port 53") && told.contains("holds what others wanted"), "{told}");
    assert!(saved(&net, "root.pcap") == rest, "root sees everything, and nothing of what was kept for others");
    for file in ["plain.pcap", "socket.pcap", "above.pcap"] {
        assert!(saved(&net, file) == shown(rest), "{file}: {} of {}", saved(&net, file).len(), shown(rest).len());
    }
    assert!(saved(&net, "past.pcap") == shown(&frames), "{} of them", saved(&net, "past.pcap").len());
    let count = shown(rest).len() as u64;
    for (output, expected) in outputs[4..].iter().zip([count, count.div_ceil(2), 0, 0]) {
        let counted: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(counted["blocks"], expected, "{counted}");
    }
    // All packets that the policy's filter passes are kept.
    assert!(said(&outputs[2]).contains("nothing from before was kept"), "{}", said(&outputs[2]));
}

#[test]
fn what_policy_does_not_show_is_left_to_the_host() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(POLICY));
    let taker = as_nobody(&net, "ethernet D mode=consume everything=yes | save taken.pcap");
    until("it takes", || net.readers() == 1);
    let host = net.read(&["ethernet D direction=in | save host.pcap"]).pop().unwrap();
    let frames = traffic(300);
    send(&net, &frames[..1]);
    let mut sender = net.pair.far.sender();
    frames[1..].iter().for_each(|frame| sender.send(frame).unwrap());
    let left: Vec<Vec<u8>> = frames.iter().filter(|frame| !is_shown(frame)).cloned().collect();
    until("all have come", || {
        let state = net.state();
        let readers = state["rings"].as_array().unwrap().iter().flat_map(|ring| ring["readers"].as_array().unwrap());
        readers.map(|reader| reader["matched"].as_u64().unwrap()).sum::<u64>() == frames.len() as u64
    });
    let told = said(&host.interrupt());
    assert!(told.contains("another reader takes away a part of the packets that `near` receives"), "{told}");
    succeeded_saying(&taker.interrupt(), "only what `udp port 53` passes");
    assert!(saved(&net, "taken.pcap") == shown(&frames) && saved(&net, "host.pcap") == left);
}

fn succeeded_saying(output: &Output, what: &str) {
    assert!(output.status.success() && said(output).contains(what), "{}", said(output));
}

#[test]
fn a_filter_that_is_none_is_a_mistake_of_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    for (filter, why) in [("prot 80", "syntax error"), ("ip6 protochain 6", "which the kernel cannot run")] {
        std::fs::write(&path, POLICY.replace("udp port 53", filter)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("daemon").arg("--socket").arg(folder.path().join("control")).arg("--config").arg(&path);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut daemon = Running::start(command);
        until("it does not start", || daemon.has_ended());
        let output = daemon.end();
        let (told, place) = (said(&output), format!("policy.toml: [[allow]] number 1: filter = `{filter}`: "));
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(&place) && told.contains(why), "{told}");
    }
}
