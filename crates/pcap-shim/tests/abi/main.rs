//! The library as programs in C see it: its names, and what its functions do when they are called.
//!
//! - `symbols` — every name a program may look for; `calls` — a program in C that calls what tcpdump and dumpcap do not.
//!
//! Whole programs are run in `crates/cli/tests/live`.

mod calls;
mod symbols;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the library, once; says where it is. Cargo builds it for no test by itself, for no test can link it.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // TARGET/PROFILE/deps/test
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "pcap-shim", "--target-dir"]).arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        profile.join("libstreamline_pcap.so")
    })
}

/// The libpcap that is installed.
fn libpcap() -> Option<&'static Path> {
    let paths = [
        "/usr/lib/x86_64-linux-gnu/libpcap.so.0.8",
        "/usr/lib/aarch64-linux-gnu/libpcap.so.0.8",
        "/usr/lib64/libpcap.so.1",
        "/usr/lib/libpcap.so.1",
    ];
    paths.into_iter().map(Path::new).find(|path| path.exists())
}
