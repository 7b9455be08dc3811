//! `streamline pcap` without devices: the program that it runs and its environment, its messages about programs that it
//! cannot help, and requests read as devices. With devices: `live/programs.rs`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::library;

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// A folder with a fake library. The loader ignores it, and says so.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("library.so");
    std::fs::write(&library, "no library").unwrap();
    (folder, library)
}

fn run(library: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.env_remove("LD_PRELOAD").env_remove("STREAMLINE_DAEMON").env("STREAMLINE_PCAP_LIBRARY", library);
    command.arg("pcap").args(arguments).output().unwrap()
}

#[test]
fn the_program_gets_its_arguments_and_the_environment() {
    let (_folder, library) = folder();
    let shell = "echo \"$LD_PRELOAD|$STREAMLINE_PCAP|$STREAMLINE_DAEMON|$0|$1\"; exit 7";
    let preloaded = library.display();
    let rows: [(&[&str], String); 3] = [
        (&[], format!("{preloaded}|all||name|-i\n")),
        (&["--plain", "eth0,eth1", "--daemon", "/x/control"], format!("{preloaded}|eth0,eth1|/x/control|name|-i\n")),
        (&["--plain", "none"], format!("{preloaded}|||name|-i\n")),
    ];
    for (options, expected) in rows {
        let output = run(&library, &[options, &["--", "sh", "-c", shell, "name", "-i"]].concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert_eq!(output.status.code(), Some(7), "the program's own");
    }
}

#[test]
fn what_it_can_do_nothing_for_is_said_before_it_runs() {
    let (folder, library) = folder();
    let file = |name: &str, content: &[u8], mode: u32| -> String {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // A 64-bit ELF file with one segment to load: it names no loader.
    let mut elf = vec![0u8; 120];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 1, 1);
    let alone = file("static", &elf, 0o755);
    let not_executable = file("data", b"#!/bin/sh\n", 0o644);
    let missing = folder.path().join("missing.so");
    let mut rows = vec![
        (library.clone(), vec![], 2, "required arguments were not provided"),
        (library.clone(), vec!["no-such-program"], 1, "there is no program no-such-program"),
        (library.clone(), vec![&*not_executable], 1, "there is no program"),
        (library.clone(), vec![&*alone, "-i", "eth0"], 1, "is linked statically"),
        (missing, vec!["true"], 1, "missing.so, which is no file"),
        (folder.path().join("a b"), vec!["true"], 1, "with a space or a colon in it"),
    ];
    std::fs::write(folder.path().join("a b"), "").unwrap();
    let setuid = file("setuid", b"#!/bin/sh\n", 0o755);
    let other = rustix::process::getuid().as_raw() ^ 1;
    match std::os::unix::fs::chown(&setuid, Some(other), None) {
        Ok(()) => {
            std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755)).unwrap();
            rows.push((
                library,
                vec![&*setuid],
                1,
                "is setuid or setgid, and such programs ignore preloaded libraries",
            ));
        }
        Err(error) => eprintln!("skipped (rights): no file of another user's can be made ({error}); run as root"),
    }
    for (library, command, status, expected) in rows {
        let output = run(&library, &[&["--"], &*command].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{command:?}: {said}");
        assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    }
}

/// A classic capture of frames of 1,000 bytes, each with its number in its last bytes.
fn capture(path: &Path, count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for number in 0..count {
        for word in [1_700_000_000 + number / 1000, number % 1000 * 1000, 1000, 1200] {
            bytes.extend(word.to_le_bytes());
        }
        let mut frame = vec![0u8; 1000];
        frame[12] = 8;
        frame[996..].copy_from_slice(&number.to_be_bytes());
        bytes.extend(frame);
    }
    std::fs::write(path, &bytes).unwrap();
    bytes
}

/// Device, more options of tcpdump, exit status, message, and the range of written frames.
type Row = (&'static str, &'static [&'static str], i32, &'static str, Option<(usize, usize)>);

#[test]
fn a_request_is_a_device() {
    let tcpdump = ["/usr/bin/tcpdump", "/usr/sbin/tcpdump"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(tcpdump) = tcpdump else {
        eprintln!("skipped: tcpdump is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // Six times the size of the ring between the engine and the program.
    let whole = capture(&folder.path().join("in.pcap"), 25_000);
    let part = |from: usize, to: usize| [&whole[..24], &whole[24 + from * 1016..24 + to * 1016]].concat();
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
    std::fs::copy(web, folder.path().join("web.pcap")).unwrap();
    let rows: &[Row] = &[
        (
            "sl:pcap in.pcap",
            &[],
            0,
            "25000 packets captured\n25000 packets received by filter\n0 packets dropped",
            Some((0, 25_000)),
        ),
        ("sl:pcap in.pcap | head 7", &[], 0, "7 packets captured", Some((0, 7))),
        ("sl:(pcap,in.pcap) > (head,7)", &[], 0, "7 packets captured", Some((0, 7))),
        ("sl:pcap in.pcap", &["-c", "9"], 0, "9 packets captured", Some((0, 9))),
        (
            "sl:pcap in.pcap",
            &["ether[996:4] >= 24990"],
            0,
            "10 packets captured\n10 packets received",
            Some((24_990, 25_000)),
        ),
        ("sl:pcap in.pcap", &["tcp"], 0, "0 packets captured\n0 packets received", Some((0, 0))),
        ("sl:pcap in.pcap | bpf \"tcp\"", &[], 0, "0 packets captured", Some((0, 0))),
        ("sl:pcap none.pcap", &[], 1, "none.pcap", None),
        ("sl:pcap in.pcap | hed 7", &[], 1, "hed", None),
        ("sl:pcap web.pcap | http", &[], 1, "save", None),
    ];
    for (device, options, status, says, expected) in rows {
        let mut command = Command::new(PROGRAM);
        command
            .env("STREAMLINE_PCAP_LIBRARY", library::pcap())
            .env_remove("STREAMLINE_DAEMON")
            .current_dir(folder.path());
        command.args(["pcap", "--"]).arg(tcpdump).args(["-i", device, "-Z", "root", "-w", "out.pcap"]).args(*options);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*status), "{device} {options:?}: {said}");
        assert!(said.contains(says), "{device} {options:?}: {said}");
        if let Some((from, to)) = *expected {
            let expected = part(from, to);
            let written = std::fs::read(folder.path().join("out.pcap")).unwrap();
            assert_eq!(written.len(), expected.len(), "{device} {options:?}: {said}");
            assert!(written == expected, "{device} {options:?}");
        }
    }
}
