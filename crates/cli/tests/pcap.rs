//! `streamline pcap` before any device is opened: what it runs, with which environment, and what it says of programs that
//! it can do nothing for. With devices: `live/programs.rs`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// A folder with a file in the library's place. The loader ignores it, and says so.
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
    // An ELF file of 64 bits with one segment, which is to be loaded: nothing in it names a loader.
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
    match std::os::unix::fs::chown(&setuid, Some(65534), Some(65534)) {
        Ok(()) => {
            std::fs::set_permissions(&setuid, PermissionsExt::from_mode(0o4755)).unwrap();
            rows.push((
                library,
                vec![&*setuid],
                1,
                "is setuid or setgid, and such programs ignore preloaded libraries",
            ));
        }
        Err(error) => eprintln!("skipped: no file of another user's can be made ({error}); run as root"),
    }
    for (library, command, status, expected) in rows {
        let output = run(&library, &[&["--"], &*command].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{command:?}: {said}");
        assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    }
}
