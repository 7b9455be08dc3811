//! `streamline pcap`: installed tcpdump, dumpcap and tshark on a shared capture, compared with the same programs on
//! libpcap itself. Programs that are not installed are skipped.

use crate::net::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::library;
use testkit::network::{Pair, may_make_networks};

/// The path of a program. `None`, with a message: it is not installed.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

pub(crate) fn ours(daemon: Option<&Path>, program: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("STREAMLINE_PCAP_LIBRARY", library::pcap()).arg("pcap");
    if let Some(socket) = daemon {
        command.arg("--daemon").arg(socket);
    }
    command.arg("--").arg(program);
    command
}

/// The traffic: each fourth frame is outgoing, the others incoming. Tags of both kinds, and many flows.
fn mixed(count: u32) -> Vec<Vec<u8>> {
    let frame = |number: u32| {
        let port = [53, 80, 4789, 5000 + (number % 97) as u16][number as usize % 4];
        let mut frame = datagram(number, port, 60 + (number as usize * 37) % 1400);
        frame[6] = if is_outgoing(number as usize) { 4 } else { 2 };
        match number % 7 {
            0 => tagged(frame, 7),
            1 => service_tagged(tagged(frame, 7), 9),
            _ => frame,
        }
    };
    (0..count).map(frame).collect()
}

fn is_outgoing(number: usize) -> bool {
    number % 4 == 3
}

fn service_tagged(frame: Vec<u8>, tag: u16) -> Vec<u8> {
    let mut frame = tagged(frame, tag);
    frame[12..14].copy_from_slice(&0x88a8u16.to_be_bytes());
    frame
}

fn send_mixed(pair: &Pair, frames: &[Vec<u8>]) {
    let (mut far, mut near) = (pair.far.sender(), pair.near.sender());
    for (number, frame) in frames.iter().enumerate() {
        let sender = if is_outgoing(number) { &mut near } else { &mut far };
        sender.send(frame).unwrap();
    }
}

/// Received and sent packets. Between two points of the kernel, sent packets may overtake received ones; each direction
/// keeps its order.
fn by_way(packets: Vec<(u32, Vec<u8>)>) -> [Vec<(u32, Vec<u8>)>; 2] {
    let (went, came) = packets.into_iter().partition(|(_, frame)| frame[6] == 4);
    [came, went]
}

/// Decides by number and bytes whether a frame is wanted, and how many of its bytes.
type Wanted = fn(usize, &[u8]) -> Option<usize>;

fn wanted(frames: &[Vec<u8>], which: Wanted) -> Vec<(u32, Vec<u8>)> {
    let cut = |(number, frame): (usize, &Vec<u8>)| {
        let keep = which(number, frame)?;
        Some((frame.len() as u32, frame[..frame.len().min(keep)].to_vec()))
    };
    frames.iter().enumerate().filter_map(cut).collect()
}

const ALL: usize = 70_000;

fn port(frame: &[u8]) -> u16 {
    let at = frame.len().min(36);
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

#[test]
fn programs_get_what_they_get_from_libpcap() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let frames = mixed(1200);
    // Options, filter, and the wanted frames. Each program ends once it has them all.
    let rows: &[(&str, &[&str], &str, Wanted)] = &[
        ("tcpdump", &[], "", |_, _| Some(ALL)),
        ("tcpdump", &["-s", "64"], "", |_, _| Some(64)),
        ("tcpdump", &["-Q", "in"], "", |number, _| (!is_outgoing(number)).then_some(ALL)),
        ("tcpdump", &["-Q", "out", "-s", "100"], "", |number, _| is_outgoing(number).then_some(100)),
        ("tcpdump", &["--time-stamp-precision=nano"], "udp port 53 and not vlan", |number, frame| {
            (number % 7 > 1 && port(frame) == 53).then_some(ALL)
        }),
        ("tcpdump", &["--immediate-mode"], "vlan 7", |number, _| (number % 7 == 0).then_some(ALL)),
        ("tcpdump", &["-p"], "vlan 9", |number, _| (number % 7 == 1).then_some(ALL)),
        ("tcpdump", &[], "outbound and udp", |number, _| (is_outgoing(number) && number % 7 > 1).then_some(ALL)),
        ("dumpcap", &["-P", "-f"], "udp and not vlan", |number, _| (number % 7 > 1).then_some(ALL)),
        ("dumpcap", &["-P", "-s", "70", "-f"], "vlan", |number, _| (number % 7 < 2).then_some(70)),
    ];
    let mut running = Vec::new();
    for (row, (name, options, filter, which)) in rows.iter().enumerate() {
        let Some(program) = installed(name) else { continue };
        let expected = wanted(&frames, *which);
        // libpcap itself decides about the first packets in user space, and does not know their direction.
        let sides = if filter.contains("outbound") { &["ours"][..] } else { &["stock", "ours"] };
        for &who in sides {
            let mut command = if who == "ours" { ours(Some(&net.socket()), &program) } else { Command::new(&program) };
            let file = format!("{row}-{who}");
            command.args(["-i", net.device(), "-c", &expected.len().to_string(), "-w", &format!("{file}.pcap")]);
            if who == "stock" {
                // Beside many programs on few processors, the usual buffer might overflow. dumpcap counts in MiB.
                command.args(["-B", if *name == "tcpdump" { "16384" } else { "16" }]);
            }
            command.args(*options).args((!filter.is_empty()).then_some(filter));
            running.push((row, file.clone(), net.there_noting(command, &format!("{file}.txt"))));
            // Each program prints this once its filter is set.
            let says = if *name == "tcpdump" { "listening on" } else { "File: " };
            until(&format!("row {row}, {who}: it listens"), || {
                let text = net.text(&format!("{file}.txt"));
                assert!(!text.contains("error"), "{text}");
                text.contains(says)
            });
        }
    }
    send_mixed(&net.pair, &frames);
    for (row, file, mut running) in running {
        until(&format!("{file}: it has all it was to get"), || running.has_ended());
        let text = net.text(&format!("{file}.txt"));
        assert!(running.end().status.success(), "{file}: {text}");
        let expected = by_way(wanted(&frames, rows[row].3));
        let got = by_way(packets(&net.path(&format!("{file}.pcap"))));
        assert_eq!(got.each_ref().map(Vec::len), expected.each_ref().map(Vec::len), "{file}");
        assert!(got == expected, "{file}: other bytes or another order");
    }
    let time = |file: &str| times(&net.path(file));
    if net.path("0-stock.pcap").exists() {
        // The times are taken at two points of the kernel, one after the other. On a busy machine some are further apart.
        let pairs = time("0-stock.pcap").into_iter().zip(time("0-ours.pcap"));
        let mut apart: Vec<u64> = pairs.map(|(stock, ours)| stock.abs_diff(ours)).collect();
        apart.sort_unstable();
        assert!(apart[apart.len() / 2] < 1_000_000, "{} ns between the times of one packet", apart[apart.len() / 2]);
    }
    until("no reader is left behind", || net.readers() == 0);
}

/// Times of a capture's packets in nanoseconds: first the received ones, then the sent ones.
fn times(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let unit = if word(0) == 0xa1b2_3c4d { 1 } else { 1000 };
    let (mut at, mut times) = (24, [Vec::new(), Vec::new()]);
    while at + 16 <= bytes.len() {
        let way = usize::from(bytes[at + 16 + 6] == 4);
        times[way].push(u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit);
        at += 16 + word(at + 8) as usize;
    }
    times.concat()
}

#[test]
fn what_is_counted_is_what_libpcap_counts() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    let frames = mixed(400);
    let rows: &[(&str, Wanted)] = &[
        ("udp port 80 and not vlan", |number, frame| (number % 7 > 1 && port(frame) == 80).then_some(ALL)),
        ("tcp port 9", |_, _| None),
        ("", |_, _| Some(ALL)),
    ];
    let mut running = Vec::new();
    for (row, (filter, which)) in rows.iter().enumerate() {
        for who in ["stock", "ours"] {
            let mut command = if who == "ours" { ours(Some(&net.socket()), &tcpdump) } else { Command::new(&tcpdump) };
            let file = format!("{row}-{who}");
            command.args(["-i", net.device(), "-U", "-w", &format!("{file}.pcap"), filter]);
            let program = net.there_noting(command, &format!("{file}.txt"));
            running.push((file.clone(), wanted(&frames, *which).len(), program));
            until("it listens", || net.text(&format!("{file}.txt")).contains("listening on"));
        }
    }
    send_mixed(&net.pair, &frames);
    for (file, count, running) in running {
        let (capture, text) = (net.path(&format!("{file}.pcap")), format!("{file}.txt"));
        until(&format!("{file}: it has written all"), || packets(&capture).len() >= count);
        // Prints its counts, and goes on.
        running.signal(rustix::process::Signal::USR1);
        let totals = |net: &Net| net.text(&text).matches(" packets dropped by kernel").count();
        until(&format!("{file}: it says how much it has"), || totals(&net) == 1);
        let output = running.interrupt();
        let text = net.text(&text);
        assert!(output.status.success(), "{file}: {text}");
        let expected =
            format!("{count} packets captured\n{count} packets received by filter\n0 packets dropped by kernel\n");
        let lines: String =
            text.lines().filter(|line| line.contains(" packets ")).flat_map(|line| [line, "\n"]).collect();
        // The first report is one line, with commas; the second one ends the program.
        assert!(lines.ends_with(&expected), "{file}: {text}");
        assert!(text.contains(&expected.trim_end().replace('\n', ", ")), "{file}: {text}");
        assert_eq!(packets(&capture).len(), count, "{file}");
    }
}

#[test]
fn parts_of_the_flows_add_up() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    let frames = mixed(600);
    let parts: Vec<Running> = (0..4)
        .map(|part| {
            let mut command = ours(Some(&net.socket()), &tcpdump);
            command.args(["-i", &format!("sl:{}@{part}/4", net.device()), "-U", "-w", &format!("{part}.pcap")]);
            let running = net.there_noting(command, &format!("{part}.txt"));
            until("it listens", || net.text(&format!("{part}.txt")).contains("listening on"));
            running
        })
        .collect();
    send_mixed(&net.pair, &frames);
    let got = || -> Vec<_> { (0..4).map(|part| packets(&net.path(&format!("{part}.pcap")))).collect() };
    until("all are in one of them", || got().iter().map(Vec::len).sum::<usize>() >= frames.len());
    let mut captured = 0;
    for (part, running) in parts.into_iter().enumerate() {
        assert!(running.interrupt().status.success());
        let text = net.text(&format!("{part}.txt"));
        let count = packets(&net.path(&format!("{part}.pcap"))).len();
        for what in ["captured", "received by filter"] {
            assert!(text.contains(&format!("{count} packets {what}\n")), "{text}");
        }
        captured += count;
    }
    assert_eq!(captured, frames.len());
    let mut flows: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (part, packets) in got().into_iter().enumerate() {
        assert!(!packets.is_empty(), "part {part} has no flow of a hundred");
        for (_, frame) in packets {
            let tags = frame.chunks(2).skip(6).step_by(2).take_while(|kind| *kind != [8, 0]).count() * 4;
            let flow = [&frame[12..12 + tags], &frame[26 + tags..38 + tags]].concat();
            assert_eq!(*flows.entry(flow).or_insert(part), part, "a flow is in two parts");
        }
    }
}

#[test]
fn standard_output_is_a_capture_with_and_without_a_daemon() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    let frames = mixed(40);
    let mut daemons = vec![Some(net.socket())];
    if Path::new("/run/streamline/control").exists() {
        eprintln!("skipped: a daemon is there, so that nothing runs without one");
    } else {
        daemons.push(None);
    }
    for daemon in daemons {
        let mut command = ours(daemon.as_deref(), &tcpdump);
        command.env_remove("STREAMLINE_DAEMON").args(["-i", net.device(), "-c", "40", "-w", "-"]);
        let mut running = net.there_noting(command, "said.txt");
        until("it listens", || net.text("said.txt").contains("listening on"));
        send_mixed(&net.pair, &frames);
        until("it has all it was to get", || running.has_ended());
        std::fs::write(net.path("got.pcap"), running.end().stdout).unwrap();
        assert!(by_way(packets(&net.path("got.pcap"))) == by_way(wanted(&frames, |_, _| Some(ALL))), "{daemon:?}");
        assert!(net.text("said.txt").contains("40 packets captured\n"), "{}", net.text("said.txt"));
    }
}

#[test]
fn tshark_captures_by_the_program_beside_it() {
    if !may_make_networks() {
        return;
    }
    let (Some(tshark), Some(_)) = (installed("tshark"), installed("dumpcap")) else { return };
    let net = Net::new(None);
    let mut command = ours(Some(&net.socket()), &tshark);
    command.args(["-i", net.device(), "-f", "udp port 53", "-c", "3", "-n", "-T", "fields", "-e", "udp.dstport"]);
    let mut running = net.there_noting(command, "said.txt");
    let mut sender = net.pair.far.sender();
    until("it has three packets", || {
        sender.send(&datagram(1, 80, 60)).unwrap();
        sender.send(&datagram(2, 53, 60)).unwrap();
        running.has_ended()
    });
    let output = running.end();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "53\n53\n53\n", "{}", net.text("said.txt"));
}

#[test]
fn who_is_stopped_loses_packets_and_never_tears_them() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    // A ring of 1 MiB, and three times as many bytes.
    let net = Net::new(Some(
        "[[allow]]\nusers = [\"root\"]\ndevices = [\"*\"]\nmodes = [\"tap\"]\n\n[limits]\nring = \"1M\"\n",
    ));
    let mut command = ours(Some(&net.socket()), &tcpdump);
    command.args(["-i", net.device(), "-U", "-w", "got.pcap"]);
    let running = net.there_noting(command, "said.txt");
    until("it listens", || net.text("said.txt").contains("listening on"));
    let frames: Vec<Vec<u8>> = (0..2400u32)
        .map(|number| {
            let mut frame = datagram(number, 53, 1400);
            frame[46..].fill(number as u8);
            frame
        })
        .collect();
    send(&net, &frames[..100]);
    running.signal(rustix::process::Signal::STOP);
    send(&net, &frames[100..2300]);
    running.signal(rustix::process::Signal::CONT);
    send(&net, &frames[2300..]);
    let last = |net: &Net| packets(&net.path("got.pcap")).pop();
    until("it has the last packet", || last(&net).is_some_and(|(_, frame)| frame == frames[2399]));
    assert!(running.interrupt().status.success());
    let (said, got) = (net.text("said.txt"), packets(&net.path("got.pcap")));
    let numbers: Vec<usize> =
        got.iter().map(|(_, frame)| u32::from_be_bytes(frame[42..46].try_into().unwrap()) as usize).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next));
    assert!(numbers.iter().zip(&got).all(|(number, (_, frame))| *frame == frames[*number]), "a packet of two");
    assert!(got.len() < frames.len(), "nothing was lost: {said}");
    let totals = [
        format!("{} packets captured\n", got.len()),
        "2400 packets received by filter\n".into(),
        format!("{} packets dropped by kernel\n", 2400 - got.len()),
    ];
    assert!(totals.iter().all(|line| said.contains(line)), "{said} of {}", got.len());
}

#[test]
fn in_libpcaps_place_programs_start_and_capture() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    let place = net.path("lib");
    std::fs::create_dir(&place).unwrap();
    std::fs::copy(library::pcap(), place.join("libpcap.so.0.8")).unwrap();
    std::os::unix::fs::symlink("libpcap.so.0.8", place.join("libpcap.so.1")).unwrap();
    let in_place = |program: &Path, plain: &str| {
        let mut command = Command::new(program);
        command.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", &place);
        command.env("STREAMLINE_DAEMON", net.socket()).env("STREAMLINE_PCAP", plain);
        command
    };
    for (program, option) in [("tcpdump", "--version"), ("dumpcap", "--version"), ("tshark", "--version")] {
        let Some(program) = installed(program) else { continue };
        let output = in_place(&program, "").arg(option).env("LD_BIND_NOW", "1").output().unwrap();
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{}: {said}", program.display());
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("under Streamline"), "{}: {said}", program.display());
    }
    let frames = mixed(200);
    let mut running = Vec::new();
    // Under a name with our prefix, under its plain name, and by libpcap itself.
    for (file, device, plain) in [
        ("prefix", format!("sl:{}", net.device()), ""),
        ("plain", net.device().into(), "all"),
        ("off", net.device().into(), ""),
    ] {
        let mut command = in_place(&tcpdump, plain);
        command.args(["-i", &device, "-c", "200", "-B", "4096", "-w", &format!("{file}.pcap")]);
        running.push((file, net.there_noting(command, &format!("{file}.txt"))));
        until("it listens", || net.text(&format!("{file}.txt")).contains("listening on"));
    }
    assert_eq!(net.readers(), 2);
    send_mixed(&net.pair, &frames);
    let expected = by_way(wanted(&frames, |_, _| Some(ALL)));
    for (file, mut running) in running {
        until(&format!("{file}: it has all it was to get"), || running.has_ended());
        assert!(running.end().status.success(), "{}", net.text(&format!("{file}.txt")));
        assert!(by_way(packets(&net.path(&format!("{file}.pcap")))) == expected, "{file}");
    }
    let mut reading = in_place(&tcpdump, "all");
    let output = reading.arg("-nr").arg(net.path("off.pcap")).arg("udp port 53 and not vlan").output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    let dns = |number: usize, frame: &[u8]| (number % 7 > 1 && port(frame) == 53).then_some(ALL);
    assert_eq!(lines, wanted(&frames, dns).len(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_request_with_a_device_is_a_device() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    let frames = mixed(700);
    let rows: &[(&str, &[&str], Wanted)] = &[
        ("ethernet D | vlan 7", &[], |number, _| (number % 7 == 0).then_some(ALL)),
        ("ethernet D | bpf \"greater 500\"", &["-Q", "out"], |number, frame| {
            (is_outgoing(number) && frame.len() >= 500).then_some(ALL)
        }),
        ("ethernet D snaplen=100", &["-s", "80", "vlan 9"], |number, _| (number % 7 == 1).then_some(80)),
    ];
    let mut running = Vec::new();
    for (row, (request, options, which)) in rows.iter().enumerate() {
        let mut command = ours(Some(&net.socket()), &tcpdump);
        let (device, count) = (request.replace('D', net.device()), wanted(&frames, *which).len().to_string());
        command.args(["-i", &format!("sl:{device}"), "-w", &format!("{row}.pcap"), "-c", &count]).args(*options);
        running.push(net.there_noting(command, &format!("{row}.txt")));
        until("it listens", || net.text(&format!("{row}.txt")).contains("listening on"));
    }
    send_mixed(&net.pair, &frames);
    for (row, mut running) in running.into_iter().enumerate() {
        until(&format!("row {row}: it has all it was to get"), || running.has_ended());
        assert!(running.end().status.success(), "{}", net.text(&format!("{row}.txt")));
        let got = by_way(packets(&net.path(&format!("{row}.pcap"))));
        assert!(got == by_way(wanted(&frames, rows[row].2)), "row {row}");
    }
    until("no reader is left behind", || net.readers() == 0);
}

#[test]
fn wireshark_s_captures_share_the_device() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let frames = mixed(300);
    assert!(Command::new("mkfifo").arg(net.path("fifo")).status().unwrap().success());
    let mut command = Command::new(PROGRAM);
    command.args(["extcap", "--capture", "--extcap-interface", &format!("sl:{}", net.device()), "--fifo", "fifo"]);
    command.args(["--snaplen", "200", "--extcap-capture-filter", "vlan", "--daemon"]).arg(net.socket());
    let running = net.there_noting(command, "said.txt");
    let (fifo, seen) = (net.path("fifo"), std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)));
    let counted = std::sync::Arc::clone(&seen);
    let reading = std::thread::spawn(move || {
        let (mut fifo, mut got, mut some) = (std::fs::File::open(fifo).unwrap(), Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = std::io::Read::read(&mut fifo, &mut some) {
            got.extend_from_slice(&some[..count]);
            counted.store(got.len(), std::sync::atomic::Ordering::Relaxed);
        }
        got
    });
    until("it reads", || net.readers() == 1);
    send_mixed(&net.pair, &frames);
    let expected = wanted(&frames, |number, _| (number % 7 < 2).then_some(200));
    // A block is longer than its frame.
    let least = expected.iter().map(|(_, frame)| frame.len() + 32).sum::<usize>();
    until("all are in the FIFO", || seen.load(std::sync::atomic::Ordering::Relaxed) >= least);
    running.signal(rustix::process::Signal::TERM);
    let output = running.end();
    assert!(output.status.success(), "{}", net.text("said.txt"));
    std::fs::write(net.path("got.pcapng"), reading.join().unwrap()).unwrap();
    let mut convert = Command::new(PROGRAM);
    convert.args(["run", "-q", "pcap got.pcapng | save got.pcap"]).current_dir(net.path(""));
    assert!(convert.status().unwrap().success());
    assert!(by_way(packets(&net.path("got.pcap"))) == by_way(expected));
}

#[test]
fn devices_are_known_by_plain_names_wherever_the_daemon_is() {
    if !may_make_networks() {
        return;
    }
    let Some(tcpdump) = installed("tcpdump") else { return };
    let net = Net::new(None);
    // Not in the device's namespace, where only the daemon is.
    let mut command = ours(Some(&net.socket()), &tcpdump);
    command.args(["-i", net.device(), "-c", "5", "-w", "elsewhere.pcap"]).current_dir(net.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(net.path("elsewhere.txt")).unwrap());
    let mut running = Running::start(command);
    until("it listens", || net.text("elsewhere.txt").contains("listening on") || running.has_ended());
    let mut sender = net.pair.far.sender();
    traffic(5).iter().for_each(|frame| sender.send(frame).unwrap());
    until("it has all", || running.has_ended());
    assert_eq!(packets(&net.path("elsewhere.pcap")).len(), 5, "{}", net.text("elsewhere.txt"));
}

#[test]
fn programs_of_others_take_the_end_of_a_capture_for_no_bug() {
    if !may_make_networks() {
        return;
    }
    let (Some(dumpcap), Some(tcpdump)) = (installed("dumpcap"), installed("tcpdump")) else { return };
    for (row, stopped) in [true, false].into_iter().enumerate() {
        let mut net = Net::new(None);
        let start = |program: &Path, says: &str, file: &str| {
            let mut command = ours(Some(&net.socket()), program);
            command.args(["-i", net.device(), "-w", &format!("{row}.{file}.pcap")]);
            let running = net.there_noting(command, file);
            until("it listens", || net.text(file).contains(says));
            running
        };
        let running = [start(&dumpcap, "File: ", "dumpcap.txt"), start(&tcpdump, "listening on", "tcpdump.txt")];
        let why = if stopped { "stopped by `streamline stop` (user 0)" } else { "the daemon has ended" };
        if stopped {
            for client in net.state()["clients"].as_array().unwrap() {
                // `ps` itself was a client.
                let mut stop = Command::new(PROGRAM);
                let _ = stop
                    .args(["stop", "--client", &client["id"].to_string(), "--daemon"])
                    .arg(net.socket())
                    .output()
                    .unwrap();
            }
        } else {
            net.daemon.take().unwrap().signal(rustix::process::Signal::KILL);
        }
        running.into_iter().for_each(|running| drop(running.end()));
        let (dumpcap, tcpdump) = (net.text("dumpcap.txt"), net.text("tcpdump.txt"));
        assert!(dumpcap.contains("capture has stopped") && !dumpcap.contains("bug"), "{dumpcap}");
        assert!(tcpdump.contains(why), "{tcpdump}");
    }
}
