//! Devices that a request opens itself: the sources `af_packet`, `af_xdp` and `tuntap`, and the sink `send`, between
//! namespaces of the tests. Skipped where those cannot be made.

use crate::net::*;
use serde_json::Value;
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

/// 207 frames.
fn capture() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap").display().to_string()
}

/// Runs a request in a device's namespace. `D` stands for the device.
fn start(end: &End, folder: &Path, request: &str) -> Running {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--local", "--stats", "json", &request.replace('D', &end.name)]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    end.namespace.enter(move || Running::start(command)).unwrap()
}

/// Sends the whole capture on one end, again and again until the other end has received a frame, and then once more.
/// Returns the counts of this last time.
fn carried(pair: &Pair, source: &str, sink: &str) {
    let folder = tempfile::tempdir().unwrap();
    let request = format!("{source} | {{ save got.pcap + proto 253 | inspect }}");
    let mut reader = start(&pair.near, folder.path(), &request);
    let mut lines = std::io::BufReader::new(reader.0.as_mut().and_then(|child| child.stdout.take()).unwrap()).lines();
    let seen = std::thread::spawn(move || lines.next());
    // A probe that is in no capture shows that the reader reads.
    let mut probe = pair.far.sender();
    until(&format!("{source}: something comes"), || {
        probe.send(&probe_frame()).unwrap();
        seen.is_finished()
    });
    let sent = start(&pair.far, folder.path(), &format!("pcap {} | {sink}", capture())).end();
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(said.contains("\"sent\":207"), "{sink}: {said}");
    assert!(matches!(seen.join(), Ok(Some(Ok(_)))), "{source}");
    succeeded(&reader.interrupt());
    let got = folder.path().join("got.pcap");
    let wanted = packets(Path::new(&capture()));
    let got: Vec<_> = packets(&got).into_iter().filter(|(_, frame)| *frame != probe_frame()).collect();
    assert_eq!(got.len(), wanted.len(), "{source}, {sink}");
    assert!(got == wanted, "{source}, {sink}: other bytes or another order");
}

fn probe_frame() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..15].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
    (frame[17], frame[23]) = (46, 253);
    frame
}

#[test]
fn what_is_sent_in_any_way_arrives_by_any_way() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    carried(&pair, "af_packet D", "send D");
    carried(&pair, "af_packet D fanout=77 by=cpu buffer=1M", "send D by=direct");
    carried(&pair, "af_xdp D", "send D");
    carried(&pair, "af_xdp D place=generic copy=always", "send D by=xdp");
    carried(&pair, "ethernet D", "send D by=direct");
}

#[test]
fn a_device_that_is_made_is_up_while_the_request_runs() {
    if !may_make_networks() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let namespace = quiet_namespace();
    for layer in ["tap", "tun"] {
        let host = End::new(&namespace, "made", 0);
        let reader = start(&host, folder.path(), &format!("tuntap D layer={layer} | count"));
        let up = || End::find(&namespace, "made").is_ok_and(|found| found.link().is_up());
        until("the device is made and up", up);
        let mut sender = End::find(&namespace, "made").unwrap().sender();
        (0..10).for_each(|_| sender.send(&probe_frame()[if layer == "tap" { 0 } else { 14 }..]).unwrap());
        let output = reader.interrupt();
        succeeded(&output);
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("{\"blocks\":10,"), "{output:?}");
        assert!(End::find(&namespace, "made").is_err(), "it is gone with the request");
    }
}

/// The kernel hands over a block of a packet socket when it is full, or after a timeout.
#[test]
fn what_came_before_the_end_is_still_given() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    let mut sender = pair.far.sender();
    for source in ["af_packet D", "af_packet D direction=in buffer=16M", "af_xdp D"] {
        let request = format!("{source} | {{ save got.pcap overwrite=yes + head 1 | inspect }}");
        let mut reader = start(&pair.near, folder.path(), &request);
        let mut line = std::io::BufReader::new(reader.0.as_mut().unwrap().stdout.take().unwrap()).lines();
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || said.send(line.next()));
        until("it receives", || {
            sender.send(&datagram(u32::MAX, 7, 60)).unwrap();
            hears.recv_timeout(Duration::from_millis(20)).is_ok()
        });
        (0..50).for_each(|number| sender.send(&datagram(number, 7, 100)).unwrap());
        succeeded(&reader.interrupt());
        let got = packets(&folder.path().join("got.pcap"));
        assert_eq!(got.iter().filter(|(wire, _)| *wire == 100).count(), 50, "{source}");
    }
}

#[test]
fn what_cannot_be_sent_is_counted_by_its_reason() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    pair.near.set_mtu(68);
    let request = format!("pcap {} | send D", capture());
    let said = String::from_utf8_lossy(&start(&pair.near, folder.path(), &request).end().stderr).into_owned();
    assert!(said.contains("longer than the device takes"), "{said}");
    pair.near.set_up(false);
    let said = String::from_utf8_lossy(&start(&pair.near, folder.path(), &request).end().stderr).into_owned();
    assert!(said.contains("\"the device is down\":207"), "{said}");
    let none = start(&pair.near, folder.path(), &format!("pcap {} | send absent", capture())).end();
    assert_eq!(none.status.code(), Some(1), "{none:?}");
}

#[test]
fn what_a_filter_cannot_want_stays_in_the_kernel() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    // Truncated packets are selected above the kernel.
    let request = "ethernet D snaplen=100 | { port 53 and ip + port 67 and ip } | head 20 | count";
    let mut reader = start(&pair.near, folder.path(), request);
    let mut sender = pair.far.sender();
    until("enough has come", || {
        [53, 80, 67, 443].iter().for_each(|port| sender.send(&datagram(0, *port, 60)).unwrap());
        reader.has_ended()
    });
    let report = succeeded(&reader.end());
    let (device, dns, dhcp) = (row(&report, "ethernet"), row(&report, "port 53 and"), row(&report, "port 67 and"));
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let came = number(device, "blocks_made");
    assert!(number(dns, "blocks_in") == came && number(dhcp, "blocks_in") == came, "{report}");
    // Half of the sent packets match a branch. The rest was seen and not handed up.
    assert!(came >= 20 && 2 * came <= number(&device["events"], "seen on the device") + 2, "{report}");
}

fn row<'a>(report: &'a Value, label: &str) -> &'a Value {
    let rows = report["filters"].as_array().unwrap();
    rows.iter().find(|row| row["filter"].as_str().is_some_and(|name| name.starts_with(label))).unwrap()
}

#[test]
fn time_goes_on_while_nothing_comes() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    let reader = start(&pair.near, folder.path(), "ethernet D | udp timeout=500ms | files dir=out");
    until("something comes", || {
        pair.far.sender().send(&datagram(0, 53, 60)).unwrap();
        std::fs::read_dir(folder.path().join("out")).map_or(0, Iterator::count) >= 2
    });
    // The flow is silent for longer than its timeout, and no other packets are sent.
    std::thread::sleep(Duration::from_secs(3));
    let report = succeeded(&reader.interrupt());
    assert_eq!(row(&report, "udp")["events"]["flows idle"], 1, "{report}");
}

#[test]
fn a_check_makes_no_device() {
    if !may_make_networks() {
        return;
    }
    let check = || {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["check", "--local", "tuntap made0 persistent=yes | count"]).output().unwrap();
        (output, driver::link::find("made0").unwrap())
    };
    let (output, made) = quiet_namespace().enter(check).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(made.is_none(), "{made:?}");
}
