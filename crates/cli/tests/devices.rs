//! Devices that a request opens by itself: the sources `af_packet`, `af_xdp` and `tuntap`, and the sink `send`, between
//! namespaces of the tests' own; skipped where those cannot be made.

use serde_json::Value;
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// 207 frames.
fn capture() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap").display().to_string()
}

/// A request in a device's namespace; `D` stands for the device.
fn start(end: &End, folder: &Path, request: &str) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--local", "--stats", "json", &request.replace('D', &end.name)]);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    end.namespace.enter(move || command.spawn().unwrap()).unwrap()
}

fn end(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn interrupt(child: Child) -> Output {
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    end(child)
}

/// Sends the whole capture on one end, again and again until the other has got at least one, then once more, and gives
/// what was counted of this last.
fn carried(pair: &Pair, source: &str, sink: &str) {
    let folder = tempfile::tempdir().unwrap();
    let request = format!("{source} | {{ save got.pcap + proto 253 | inspect }}");
    let mut reader = start(&pair.near, folder.path(), &request);
    let mut lines = std::io::BufReader::new(reader.stdout.take().unwrap()).lines();
    let seen = std::thread::spawn(move || lines.next());
    let began = Instant::now();
    // A probe that no capture has: the reader reads once it has come.
    let mut probe = pair.far.sender();
    while !seen.is_finished() {
        assert!(began.elapsed() < LONG, "{source}: nothing comes");
        probe.send(&probe_frame()).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let sent = end(start(&pair.far, folder.path(), &format!("pcap {} | {sink}", capture())));
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(said.contains("\"sent\":207"), "{sink}: {said}");
    assert!(matches!(seen.join(), Ok(Some(Ok(_)))), "{source}");
    interrupt(reader);
    let got = folder.path().join("got.pcap");
    let wanted = frames_of(Path::new(&capture()));
    let got: Vec<_> = frames_of(&got).into_iter().filter(|frame| *frame != probe_frame()).collect();
    assert_eq!(got.len(), wanted.len(), "{source}, {sink}");
    assert!(got == wanted, "{source}, {sink}: other bytes or another order");
}

/// IPv4 that nobody wants.
fn probe_frame() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..15].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
    (frame[17], frame[23]) = (46, 253);
    frame
}

fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut frames) = (24, Vec::new());
    while at + 16 <= bytes.len() {
        let len = word(at + 8);
        frames.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
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
        let host = End { namespace: namespace.clone(), name: "made".into(), index: 0 };
        let reader = start(&host, folder.path(), &format!("tuntap D layer={layer} | count"));
        let began = Instant::now();
        let found = loop {
            match End::find(&namespace, "made") {
                Ok(found) if found.link().is_up() => break found,
                _ => assert!(began.elapsed() < LONG, "it is not made"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut sender = found.sender();
        (0..10).for_each(|_| sender.send(&probe_frame()[if layer == "tap" { 0 } else { 14 }..]).unwrap());
        let output = interrupt(reader);
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("{\"blocks\":10,"), "{output:?}");
        assert!(End::find(&namespace, "made").is_err(), "it is gone with the request");
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
    let said = String::from_utf8_lossy(&end(start(&pair.near, folder.path(), &request)).stderr).into_owned();
    assert!(said.contains("longer than the device takes"), "{said}");
    pair.near.set_up(false);
    let said = String::from_utf8_lossy(&end(start(&pair.near, folder.path(), &request)).stderr).into_owned();
    assert!(said.contains("\"the device is down\":207"), "{said}");
    let none =
        start(&pair.near, folder.path(), &format!("pcap {} | send absent", capture())).wait_with_output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

/// UDP from port 4000 to this one.
fn datagram(port: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..12].fill(0xff);
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    (frame[17], frame[23]) = (46, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&4000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    frame
}

#[test]
fn what_a_filter_cannot_want_stays_in_the_kernel() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    let mut reader = start(&pair.near, folder.path(), "ethernet D | { port 53 + port 67 } | head 20 | count");
    let mut sender = pair.far.sender();
    let began = Instant::now();
    while reader.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < LONG, "nothing comes");
        for port in [53, 80, 67, 443] {
            sender.send(&datagram(port)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = report(&end(reader));
    let (device, dns, dhcp) = (row(&report, "ethernet"), row(&report, "port 53"), row(&report, "port 67"));
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let came = number(device, "blocks_made");
    assert!(number(dns, "blocks_in") == came && number(dhcp, "blocks_in") == came, "{report}");
    // Half of what was sent is for one of the two; the rest did not come up, though it was seen.
    assert!(came >= 20 && 2 * came <= number(&device["events"], "seen on the device") + 2, "{report}");
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{output:?}"))
}

/// What was counted of the filter whose label begins so.
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
    let began = Instant::now();
    while std::fs::read_dir(folder.path().join("out")).map_or(0, Iterator::count) < 2 {
        assert!(began.elapsed() < LONG, "nothing comes");
        pair.far.sender().send(&datagram(53)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    // The flow is silent for longer than its time, and nothing else is sent either.
    std::thread::sleep(Duration::from_secs(3));
    let report = report(&interrupt(reader));
    assert_eq!(row(&report, "udp")["events"]["flows idle"], 1, "{report}");
}
