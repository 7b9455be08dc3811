//! The library as C programs see it: its symbols, and the effects of its functions.
//!
//! - `symbols` — every name that a program may look up
//! - `calls` — a C program with calls that tcpdump and dumpcap do not make
//!
//! Whole programs run in `crates/cli/tests/live`.

mod calls;
mod symbols;

use std::path::Path;

fn libpcap() -> Option<&'static Path> {
    let paths = [
        "/usr/lib/x86_64-linux-gnu/libpcap.so.0.8",
        "/usr/lib/aarch64-linux-gnu/libpcap.so.0.8",
        "/usr/lib64/libpcap.so.1",
        "/usr/lib/libpcap.so.1",
    ];
    paths.into_iter().map(Path::new).find(|path| path.exists())
}
