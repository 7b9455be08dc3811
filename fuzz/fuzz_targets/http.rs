//! Any bytes of a connection as HTTP/1: the bodies are the same however the bytes are cut into segments.
#![no_main]

#[path = "../traffic.rs"]
mod traffic;

use libfuzzer_sys::fuzz_target;
use traffic::{connection, messages, run};

fuzz_target!(|input: &[u8]| {
    let Some((size, input)) = input.split_first() else { return };
    let messages = messages(input);
    let bodies = |size| {
        run(connection(&messages, 80, size).then(&filters::tcp::KIND, &[]).then(&filters::http::KIND, &[])).by_class()
    };
    assert_eq!(bodies(1460), bodies(usize::from(size % 16) + 1));
});
