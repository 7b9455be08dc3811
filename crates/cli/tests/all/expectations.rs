//! Compares results on the shared captures with those of tcpdump, tshark, tcpflow and a reference reader.
//!
//! Runs the comparison tool that comes with the captures. `expectations.allow` lists accepted differences, one `CAPTURE
//! PART reason` a line. Skipped, with a message, without the captures or python3.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn agrees_with_the_peers() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("STREAMLINE_SHARED").map_or_else(|| here.join("../../../shared"), PathBuf::from);
    let tool = shared.join("data/tools/check.py");
    if !tool.exists() {
        eprintln!("skipped: the shared captures are not here");
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let has_libpcap = !refuses_bpf();
    let parts = if has_libpcap { "count,bpf,tcp,http,dns,tls" } else { "count,tcp,http,dns,tls" };
    if !has_libpcap {
        eprintln!("no libpcap here: the part bpf is skipped");
    }
    let output = Command::new("python3")
        .arg(tool)
        .args(["--streamline", env!("CARGO_BIN_EXE_streamline"), "--parts", parts])
        .arg("--allow")
        .arg(here.join("tests/expectations.allow"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    eprintln!("{}", text.lines().rev().take(2).collect::<Vec<_>>().join("\n"));
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn refuses_bpf() -> bool {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
    let request = format!("pcap \"{}\" | bpf tcp | count", capture.display());
    let output = Command::new(env!("CARGO_BIN_EXE_streamline")).args(["run", &request]).output().unwrap();
    !output.status.success()
}
