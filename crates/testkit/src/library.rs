//! The libraries that unmodified programs are run with, which cargo builds for no test by itself, for no test can link them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `libstreamline_pcap.so`, for libpcap programs, in the profile of this test.
///
/// # Panics
///
/// If it cannot be built.
pub fn pcap() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("pcap-shim", "libstreamline_pcap.so"))
}

/// `libstreamline_sockets.so`, for programs with sockets, in the profile of this test.
///
/// # Panics
///
/// If it cannot be built.
pub fn sockets() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("socket-shim", "libstreamline_sockets.so"))
}

/// Builds a package; says where its file is.
fn built(package: &str, file: &str) -> PathBuf {
    // TARGET/PROFILE/deps/test
    let test = std::env::current_exe().expect("a test knows its own program");
    let profile = test.ancestors().nth(2).expect("cargo put the test three folders down");
    let target = profile.parent().expect("cargo put the test three folders down");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", package, "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    profile.join(file)
}
