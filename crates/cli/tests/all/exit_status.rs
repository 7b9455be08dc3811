//! The exit status of every command: 0 done, 1 the machine or a file failed, 2 the command line or request is wrong.
//! `exit.rs` tests the rule itself with every error.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// A folder with a capture, one that ends in the middle of a record, and a request.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let web = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap")).unwrap();
    std::fs::write(folder.path().join("web.pcap"), &web).unwrap();
    std::fs::write(folder.path().join("cut.pcap"), &web[..web.len() - 5]).unwrap();
    std::fs::write(folder.path().join("request.srl"), "pcap web.pcap | count").unwrap();
    std::fs::write(folder.path().join("wrong.toml"), "[limits]\nring = 5\n").unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    // The test's own rings and requests.
    command.args(arguments).current_dir(folder).env("XDG_RUNTIME_DIR", folder).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const NOWHERE: &str = "--daemon=/nowhere/control";

#[test]
fn each_command_ends_by_the_rule() {
    let folder = folder();
    let rows: &[(i32, &[&str])] = &[
        (0, &["--help"]),
        (0, &["--version"]),
        (0, &["help", "run"]),
        (2, &[]),
        (2, &["nonsense"]),
        (2, &["run", "--nonsense", "pcap web.pcap"]),
        (0, &["run", "pcap web.pcap | count"]),
        (0, &["run", "-f", "request.srl"]),
        (0, &["run", "pcap cut.pcap | count"]),
        (0, &["run", "set workers=2; pcap web.pcap | count"]),
        (0, &["run", "--strict", "pcap web.pcap | http | drop"]),
        (1, &["run", "pcap none.pcap | count"]),
        (1, &["run", "pcap request.srl | count"]),
        (1, &["run", "pcap web.pcap | save none/x.pcap"]),
        (1, &["run", "pcap web.pcap | count | json file=/dev/full"]),
        (1, &["run", "--local", "ethernet nosuchdevice | count"]),
        (1, &["run", NOWHERE, "ethernet lo | count"]),
        (1, &["run", "-f", "none.srl"]),
        (1, &["run", "--stats-file", "none/stats", "pcap web.pcap | count"]),
        (2, &["run"]),
        (2, &["run", "pcap", "web.pcap"]),
        (2, &["run", "pcap web.pcap | nix"]),
        (2, &["run", "pcap web.pcap |"]),
        (2, &["run", "pcap $x | count"]),
        (2, &["run", "pcap web.pcap | head x"]),
        (2, &["run", "pcap web.pcap | match regex=\"(\""]),
        (2, &["run", "--stats", "nonsense", "pcap web.pcap | count"]),
        (0, &["check", "pcap web.pcap | count"]),
        (0, &["check", "pcap none.pcap | save none/x.pcap"]),
        (2, &["check", "pcap web.pcap | nix"]),
        (0, &["explain", "pcap none.pcap | http"]),
        (2, &["explain", "http"]),
        (0, &["fmt", "pcap x|count"]),
        (2, &["fmt", "pcap x |"]),
        (1, &["fmt", "-f", "none.srl"]),
        (0, &["filters"]),
        (0, &["filters", "http"]),
        (2, &["filters", "nix"]),
        (0, &["man"]),
        (0, &["man", "http"]),
        (2, &["man", "nix"]),
        (0, &["completions", "bash"]),
        (2, &["completions", "nix"]),
        (0, &["complete", "pcap "]),
        (0, &["demo"]),
        (1, &["demo", "/proc"]),
        (0, &["devices"]),
        (0, &["doctor", NOWHERE]),
        (0, &["stats", NOWHERE]),
        (1, &["stats", NOWHERE, "nosuchdevice"]),
        (0, &["ps", NOWHERE]),
        (0, &["top", NOWHERE, "--interval", "0.1", "--count", "1"]),
        (2, &["top", "--interval", "0"]),
        (1, &["stop", NOWHERE, "1"]),
        (1, &["stop", NOWHERE, "--client", "1"]),
        (1, &["stop", NOWHERE, "--kept", "lo"]),
        (2, &["stop", NOWHERE, "x"]),
        (2, &["stop"]),
        (1, &["watch", NOWHERE, "1.tcp"]),
        (2, &["watch", NOWHERE, "x"]),
        (1, &["replace", NOWHERE, "1", "pcap web.pcap | count"]),
        (2, &["replace", NOWHERE, "x", "pcap web.pcap | count"]),
        (2, &["replace", NOWHERE, "1"]),
        (0, &["pcap", "--", "true"]),
        (1, &["pcap", "--", "no-such-program"]),
        (2, &["pcap"]),
        (2, &["daemon", "--config", "wrong.toml"]),
        (1, &["daemon", "--socket", "web.pcap/control"]),
        (1, &["net", "up", "lo", "--addr", "10.0.0.2/24", NOWHERE]),
        (2, &["net", "up", "lo", "--addr", "10.0.0.300/24", NOWHERE]),
        (2, &["net", "up", "lo", "--addr", "10.0.0.2", NOWHERE]),
        (2, &["net", "up", "lo", NOWHERE]),
        (2, &["net", "up", "lo", "--addr", "10.0.0.2/24", "--count-gaps", NOWHERE]),
        (2, &["net", "up", "lo", "--addr", "10.0.0.2/24", "--via", "nonsense", NOWHERE]),
        (1, &["net", "down", "lo", NOWHERE]),
        (1, &["net", "ls", NOWHERE]),
        (1, &["net", "flows", NOWHERE]),
        (1, &["net", "neighbours", "--json", NOWHERE]),
        (1, &["net", "routes", NOWHERE]),
        (2, &["net"]),
        (2, &["extcap"]),
        (0, &["extcap", "--extcap-interfaces"]),
        (0, &["pipe", "create", "./ring", "size=4k"]),
        (1, &["pipe", "create", "./ring", "size=4k"]),
        (0, &["pipe", "ls", "./ring"]),
        (0, &["pipe", "peek", "./ring"]),
        (2, &["pipe", "read", "./ring", "on-full=nonsense"]),
        (0, &["pipe", "rm", "./ring"]),
        (1, &["pipe", "rm", "./ring"]),
        (1, &["pipe", "ls", "./ring"]),
        (1, &["pipe", "read", "./ring"]),
        (1, &["pipe", "write", "./ring"]),
        (2, &["pipe", "create", "./ring", "size=nonsense"]),
        (2, &["pipe"]),
    ];
    let mut wrong = Vec::new();
    for (expected, arguments) in rows {
        let mut command = command(folder.path(), arguments);
        if arguments.first() == Some(&"pcap") {
            command.env("STREAMLINE_PCAP_LIBRARY", testkit::library::pcap());
        }
        let output = command.output().unwrap();
        if output.status.code() != Some(*expected) {
            wrong.push(format!("{arguments:?}: {:?}, not {expected}: {}", output.status, said(&output)));
        }
        let errors = said(&output).lines().filter(|line| line.starts_with("error: ")).count();
        if (*expected > 0) != (errors == 1)
            && !said(&output).contains("Usage:")
            && arguments[..] != ["pipe", "ls", "./ring"]
        {
            wrong.push(format!("{arguments:?}: {errors} errors: {}", said(&output)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_full_standard_output_fails_and_a_closed_one_does_not() {
    let folder = folder();
    for arguments in [
        &["run", "-q", "pcap web.pcap | count"][..],
        &["check", "pcap web.pcap | count"],
        &["explain", "pcap web.pcap | count"],
        &["fmt", "pcap web.pcap | count"],
        &["filters"],
        &["man"],
        &["completions", "bash"],
        &["complete", "pcap "],
        &["devices"],
        &["doctor", NOWHERE],
        &["stats", NOWHERE, "--all"],
        &["extcap", "--extcap-interfaces"],
        &["pipe", "ls", "--json"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), arguments).stdout(full).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.starts_with("error: cannot write to standard output"), "{arguments:?}: {text}");
        let (reads, writes) = std::io::pipe().unwrap();
        drop(reads);
        let output = command(folder.path(), arguments).stdout(writes).output().unwrap();
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
}
