//! Large losses are always reported, whatever the options print. With `--strict` they are a failure.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

fn bundled(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures").join(name)).unwrap()
}

/// The frames of a classic capture in this machine's byte order, with each `every`-th one changed.
fn changed(capture: &[u8], every: usize, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let (mut made, mut at, mut number) = (capture[..24].to_vec(), 24, 0);
    while at < capture.len() {
        let len = u32::from_le_bytes(capture[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &capture[at + 16..at + 16 + len];
        let frame = if number % every == 0 { change(frame) } else { frame.to_vec() };
        made.extend(&capture[at..at + 8]);
        (0..2).for_each(|_| made.extend((frame.len() as u32).to_le_bytes()));
        made.extend(frame);
        (at, number) = (at + 16 + len, number + 1);
    }
    made
}

/// The packet of a frame in a tunnel: IPv4 and GRE.
fn in_gre(frame: &[u8]) -> Vec<u8> {
    let mut made = frame[..14].to_vec();
    made.extend([0x45, 0]);
    made.extend((24 + frame.len() as u16 - 14).to_be_bytes());
    made.extend([0, 1, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 8, 0]);
    made.extend(&frame[14..]);
    made
}

fn first_fragment(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[20] |= 0x20;
    frame
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let (folder, web) = (Folder(tempfile::tempdir().unwrap()), bundled("web.pcap"));
        let mut unread = web.clone();
        unread[20..24].copy_from_slice(&139u32.to_le_bytes());
        let captures = [
            ("web.pcap", web.clone()),
            ("unread.pcap", unread),
            ("gre.pcap", changed(&web, 1, in_gre)),
            ("some.pcap", changed(&web, 5, in_gre)),
            ("few.pcap", changed(&web, 20, in_gre)),
            ("fragments.pcap", changed(&web, 1, first_fragment)),
        ];
        for (name, bytes) in captures {
            std::fs::write(folder.path(name), bytes).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, options: &[&str], request: &str) -> (Output, String) {
        let output = Command::new(PROGRAM).arg("run").args(options).arg(request).current_dir(self.0.path()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }
}

const ALL: &str = "207 of 207 frames were";

#[test]
fn what_is_lost_is_said_by_filter_number_and_reason() {
    let folder = Folder::new();
    let rows = [
        (
            "pcap unread.pcap | tcp | count",
            format!("{ALL} dropped by `tcp`: link type 139 (MTP2_WITH_PHDR) is not read"),
        ),
        ("pcap unread.pcap | port 80 | count", format!("{ALL} rejected by `port 80`: link type 139 (MTP2_WITH_PHDR)")),
        ("pcap unread.pcap | not host 10.0.0.1 | count", format!("{ALL} rejected by `host 10.0.0.1`: link type 139")),
        ("set decap=no; pcap gre.pcap | http | drop", format!("{ALL} rejected by `tcp`: GRE tunnels are not opened")),
        ("pcap gre.pcap | port |80 count", format!("{ALL} rejected by `port`: GRE tunnels are not opened")),
        (
            "set decap=no; pcap fragments.pcap | tcp | count",
            format!("{ALL} dropped by `tcp`: fragments are not put together"),
        ),
        ("set decap=no; pcap some.pcap | tcp | count", "42 of 207 frames were rejected by `tcp`: GRE tunnels".into()),
    ];
    for (request, expected) in rows {
        for options in [&[][..], &["--stats", "none"], &["--stats", "json", "--stats-file", "stats"]] {
            let (output, said) = folder.run(options, request);
            let warned = said.lines().filter(|line| line.starts_with("warning: ")).collect::<Vec<_>>();
            assert!(matches!(warned[..], [line] if line.contains(&expected)), "{request} {options:?}: {said}");
            assert_eq!(output.status.code(), Some(0), "{said}");
        }
        let (output, said) = folder.run(&["-q", "--strict"], request);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{request}: {said}");
        assert!(said.starts_with("error: ") && said.contains(&expected), "{request}: {said}");
        let (output, said) = folder.run(&["--stats", "json"], request);
        let stats: Value = serde_json::from_str(&said).unwrap();
        assert!(stats["warnings"][0].as_str().unwrap().contains(&expected), "{request}: {said}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn what_a_selector_does_not_want_and_a_little_loss_are_no_loss() {
    let folder = Folder::new();
    for request in [
        "pcap web.pcap | http | drop",
        "pcap web.pcap | udp | drop",
        "pcap web.pcap | dns | drop",
        "pcap web.pcap | port 53 | count",
        "pcap web.pcap | not host 192.0.2.42 | tls | drop",
        "pcap web.pcap | vlan 1 | count",
        "pcap few.pcap | tcp | count",
        // It passes by its addresses, whatever it carries.
        "pcap gre.pcap | host 10.0.0.1 | count",
    ] {
        let (output, said) = folder.run(&["--strict"], request);
        assert_eq!(output.status.code(), Some(0), "{request}: {said}");
        assert!(!said.contains("warning"), "{request}: {said}");
    }
}

#[test]
fn files_that_cannot_be_read_are_a_warning_that_quiet_keeps() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("all")).unwrap();
    std::fs::copy(folder.path("web.pcap"), folder.path("all/web.pcap")).unwrap();
    std::fs::write(folder.path("all/web.pcap.zip"), b"PK\x03\x04").unwrap();
    for request in ["pcap all | count", "pcap all/* | count", "pcap all/web.pcap all/web.pcap.zip | count"] {
        let (output, said) = folder.run(&["-q"], request);
        assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{request}: {said}");
        assert!(said.starts_with("warning: all/web.pcap.zip is not a capture"), "{request}: {said}");
        let (output, said) = folder.run(&["-q", "--strict"], request);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{request}: {said}");
        assert!(said.starts_with("error: all/web.pcap.zip is not a capture"), "{request}: {said}");
        let (_, said) = folder.run(&["--stats", "none"], request);
        assert_eq!(said.lines().count(), 1, "{said}");
        let (_, said) = folder.run(&["-q", "--stats", "json"], request);
        let stats: Value = serde_json::from_str(&said).unwrap();
        assert!(stats["warnings"][0].as_str().unwrap().starts_with("all/web.pcap.zip is not"), "{said}");
    }
}
