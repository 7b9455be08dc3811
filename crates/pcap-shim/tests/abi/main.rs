//! The library as programs in C see it: its names, and what its functions do when they are called.
//!
//! - `symbols` — every name a program may look for; `calls` — a program in C that calls what tcpdump and dumpcap do not.
//!
//! Whole programs are run in `crates/cli/tests/live`.

mod calls;
mod symbols;

use std::path::Path;

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
