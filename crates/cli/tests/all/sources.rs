//! A request without a source reads standard input, if a capture comes there, and never waits for a terminal.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn capture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap")
}

fn run(stdin: Stdio, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamline"));
    command.arg("run").args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.output().unwrap()
}

/// Runs with bytes that come by a pipe.
fn piped(bytes: &[u8], arguments: &[&str]) -> Output {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = bytes.to_vec();
    // A command that reads none of it closes the pipe.
    let writing = std::thread::spawn(move || drop(writer.write_all(&bytes)));
    let output = run(reader.into(), arguments);
    writing.join().unwrap();
    output
}

const COUNTED: &str = "{\"blocks\":207,\"bytes\":18287,\"wire_bytes\":18287}\n";

#[test]
fn a_capture_on_standard_input_is_read() {
    let bytes = std::fs::read(capture()).unwrap();
    let zipped = Command::new("gzip").arg("-c").arg(capture()).output().unwrap().stdout;
    for output in [
        piped(&bytes, &["count"]),
        piped(&zipped, &["count"]),
        run(File::open(capture()).unwrap().into(), &["-q", "count"]),
    ] {
        assert_eq!(String::from_utf8_lossy(&output.stdout), COUNTED, "{output:?}");
    }
    // An empty request is one without a source.
    let output = piped(&bytes, &["-q", "-c", "1"]);
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
}

#[test]
fn without_a_capture_there_it_is_the_usage_error() {
    let web = capture().display().to_string();
    let (ended, writer) = std::io::pipe().unwrap();
    drop(writer);
    for (stdin, request, says) in [
        (Stdio::null(), "http", "error: `http` has no source"),
        (ended.into(), "http", "error: `http` has no source"),
        (
            File::open(env!("CARGO_MANIFEST_DIR").to_string() + "/Cargo.toml").unwrap().into(),
            "http",
            "does not begin as a capture",
        ),
        (Stdio::null(), "", "error: the request is empty"),
    ] {
        let output = run(stdin, &[request]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(says) && output.status.code() == Some(2), "{request}: {said}");
    }
    // A request with a source leaves standard input alone: this pipe gives nothing, and stays open.
    let (silent, _writer) = std::io::pipe().unwrap();
    let output = run(silent.into(), &["-q", "-r", &web, "count"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), COUNTED);
}
