//! Generated and modified frames as other programs see them: tcpdump accepts every checksum, tshark every number.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

fn streamline(request: &str) -> Vec<u8> {
    let output = Command::new(PROGRAM).args(["run", "--quiet", request]).output().unwrap();
    assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The output of a program for a capture on its standard input. `None`, with a message: it is not installed.
fn said_of(capture: &[u8], program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: no {program} here");
        return None;
    };
    let (mut input, capture) = (child.stdin.take().unwrap(), capture.to_vec());
    let writing = std::thread::spawn(move || input.write_all(&capture));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The number of frames that tcpdump finds, and its lines about wrong checksums. `None`: tcpdump is not installed.
fn judged_by_tcpdump(capture: &[u8]) -> Option<(usize, Vec<String>)> {
    let said = said_of(capture, "tcpdump", &["-nn", "-vv", "-r", "-"])?;
    // Of UDP and ICMPv6, of IPv4 and IGMP, of TCP, of ICMP.
    let words = ["[bad ", "bad cksum", "bad igmp", "(incorrect", "wrong icmp"];
    let is_wrong = |line: &&str| words.iter().any(|word| line.contains(word));
    let wrong = said.lines().filter(is_wrong).map(String::from).collect();
    let is_first =
        |line: &&str| line.as_bytes().first_chunk::<3>().is_some_and(|[a, _, c]| a.is_ascii_digit() && *c == b':');
    Some((said.lines().filter(is_first).count(), wrong))
}

/// tcpdump finds this number of frames in a capture, and no wrong checksum.
fn check_by_tcpdump(capture: &[u8], frames: usize, what: &str) {
    if let Some(judged) = judged_by_tcpdump(capture) {
        assert_eq!(judged, (frames, Vec::new()), "{what}");
    }
}

#[test]
fn tcpdump_finds_what_is_generated_right() {
    for what in [
        "size=64",
        "tcp size=imix sequence=no src=random:10.0.0.0/8",
        "icmp size=random:60..1514 dst=192.0.2.0/24",
        "size=90..1514 src=2001:db8::1 dst=random:2001:db8:1::/48 fill=random src-port=1..65535",
        "tcp size=100 vlan=1..4094 dst=2001:db8::9",
        "icmp size=200 src=2001:db8::1",
    ] {
        check_by_tcpdump(&streamline(&format!("generate {what} count=600 | save -")), 600, what);
    }
}

#[test]
fn tshark_reads_the_numbers() {
    let capture = streamline("generate count=300 src-port=10000..10099 | save -");
    let fields = ["-r", "-", "-T", "fields", "-e", "pktgen.seqnum", "-e", "udp.srcport"];
    let Some(said) = said_of(&capture, "tshark", &fields) else { return };
    let expected: Vec<String> = (0..300).map(|number| format!("{number}\t{}", 10_000 + number % 100)).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

/// Captures of Ethernet: the bundled ones, and the shared ones if they are there.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("STREAMLINE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let shared = shared.join("data/captures");
    if !shared.is_dir() {
        eprintln!("the shared captures are not here; the bundled ones are used");
    }
    let folders = [root.join("captures"), shared];
    let entries = folders.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let is_ethernet = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        let is_small = bytes.len() < 2 << 20;
        bytes.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]) && bytes.get(20..24) == Some(&[1, 0, 0, 0]) && is_small
    };
    entries.filter(is_ethernet).collect()
}

#[test]
fn tcpdump_finds_no_checksum_wrong_that_was_right() {
    let captures = captures();
    assert!(captures.len() >= 5);
    let mut judged = 0;
    for path in captures {
        let file = path.display().to_string();
        // Damaged captures end with a status of their own, after the output of the frames before the damage.
        let run = |request: &str| {
            let mut command = Command::new(PROGRAM);
            command.args(["run", "--quiet", "-D", &format!("f={file}"), request]);
            judged_by_tcpdump(&command.output().unwrap().stdout)
        };
        let Some((frames, wrong)) = run("pcap $f | save -") else { return };
        for change in [
            "anonymize key=\"a key that nobody knows\"",
            "anonymize key=\"a key that nobody knows\" payload=keep",
            "rewrite net=\"0.0.0.0/1->128.0.0.0/1,::/1->8000::/1\" port=80->8080 ttl=77",
        ] {
            let (after, now_wrong) = run(&format!("pcap $f | {change} | save -")).unwrap();
            assert_eq!(after, frames, "{file}: {change}");
            assert!(now_wrong.len() <= wrong.len(), "{file}: {change}\nbefore: {wrong:#?}\nafter: {now_wrong:#?}");
            judged += after;
        }
    }
    assert!(judged > 500, "{judged}");
}
