//! A C program that calls libpcap's functions, run with libpcap itself and with ours: both must give what the program expects.

use std::path::Path;
use std::process::{Command, Output};
use testkit::library;
use testkit::network::{Pair, may_make_networks};

/// Compiles the program for the installed libpcap. `false`, with a message: that is not possible.
fn compile(to: &Path) -> bool {
    let Some(libpcap) = crate::libpcap() else {
        eprintln!("skipped: libpcap is not installed");
        return false;
    };
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi/calls.c")).arg("-o").arg(to).arg(libpcap);
    match compiler.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no C compiler `cc`");
            false
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
    }
}

fn passed(who: &str, output: &Output) {
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{who}: {}: {}", output.status, String::from_utf8_lossy(&said));
}

#[test]
fn functions_give_what_libpcaps_give_preloaded_and_in_its_place() {
    if !may_make_networks() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("calls");
    if !compile(&program) {
        return;
    }
    let pair = Pair::new();
    let name = &pair.near.name;
    // In libpcap's place, under its name.
    std::fs::create_dir(folder.path().join("lib")).unwrap();
    std::fs::copy(library::pcap(), folder.path().join("lib/libpcap.so.0.8")).unwrap();
    std::os::unix::fs::symlink("libpcap.so.0.8", folder.path().join("lib/libpcap.so.1")).unwrap();
    let place = folder.path().join("lib");
    let run = |device: &str, variable: &str, value: &Path| {
        // A call that hangs ends by a timeout.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", "60"]).arg(&program).arg(device).arg(name).arg(folder.path());
        command.env_remove("STREAMLINE_DAEMON").env(variable, value);
        pair.near.namespace.enter(|| command.output()).unwrap().unwrap()
    };
    passed("libpcap", &run(name, "STREAMLINE_PCAP", Path::new("off")));
    passed("handed on, preloaded", &run(name, "LD_PRELOAD", library::pcap()));
    passed("handed on, in libpcap's place", &run(name, "LD_LIBRARY_PATH", &place));
    if Path::new("/run/streamline/control").exists() {
        eprintln!("skipped: a daemon is there, which has other devices");
        return;
    }
    let ours = format!("sl:{name}");
    passed("ours, preloaded", &run(&ours, "LD_PRELOAD", library::pcap()));
    passed("ours, in libpcap's place", &run(&ours, "LD_LIBRARY_PATH", &place));
}
