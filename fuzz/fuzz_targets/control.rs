//! Whatever comes over a control socket is understood one way or not at all.
#![no_main]

#[path = "../../crates/streamline/tests/all/said/check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| check::check(packet));
