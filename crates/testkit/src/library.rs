//! The library that unmodified libpcap programs are run with, which cargo builds for no test by itself, for no test can
//! link it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds `libstreamline_pcap.so` in the profile of this test, once; says where it is.
///
/// # Panics
///
/// If it cannot be built.
pub fn pcap() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // TARGET/PROFILE/deps/test
        let test = std::env::current_exe().expect("a test knows its own program");
        let profile = test.ancestors().nth(2).expect("cargo put the test three folders down");
        let target = profile.parent().expect("cargo put the test three folders down");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "pcap-shim", "--target-dir"]).arg(target);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        profile.join("libstreamline_pcap.so")
    })
}
