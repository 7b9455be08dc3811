//! Whatever comes over a daemon's control socket is understood one way or not at all.
#![no_main]

#[path = "../../crates/capture/tests/said/check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| check::check(packet));
