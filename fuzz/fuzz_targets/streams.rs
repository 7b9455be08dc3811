//! Any bytes of a connection, to each filter that reads a protocol over TCP. The first byte chooses the filter.
#![no_main]

#[path = "../traffic.rs"]
mod traffic;

use filter::Kind;
use libfuzzer_sys::fuzz_target;
use traffic::{connection, messages, run};

/// Each filter and a port of its protocol.
const FILTERS: [(&Kind, u16); 7] = [
    (&filters::http2::KIND, 80),
    (&filters::tls::KIND, 443),
    (&filters::ssh::KIND, 22),
    (&filters::smtp::KIND, 25),
    (&filters::ftp::KIND, 21),
    (&filters::sip::KIND, 5060),
    (&filters::dns::KIND, 53),
];

fuzz_target!(|input: &[u8]| {
    let Some((&[which, size], input)) = input.split_first_chunk::<2>() else { return };
    let (kind, port) = FILTERS[usize::from(which) % FILTERS.len()];
    let size = if size & 1 == 0 { 1460 } else { usize::from(size) };
    run(connection(&messages(input), port, size).then(&filters::tcp::KIND, &[]).then(kind, &[]));
});
