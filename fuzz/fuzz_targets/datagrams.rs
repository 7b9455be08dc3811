//! Any bytes of datagrams, to each filter that reads a protocol over UDP. The first byte chooses the filter.
#![no_main]

#[path = "../traffic.rs"]
mod traffic;

use filter::Kind;
use libfuzzer_sys::fuzz_target;
use traffic::{datagrams, messages, run};

/// Each filter and a port of its protocol.
const FILTERS: [(&Kind, u16); 5] = [
    (&filters::quic::KIND, 443),
    (&filters::dns::KIND, 53),
    (&filters::dhcp::KIND, 67),
    (&filters::ntp::KIND, 123),
    (&filters::sip::KIND, 5060),
];

fuzz_target!(|input: &[u8]| {
    let Some((which, input)) = input.split_first() else { return };
    let (kind, port) = FILTERS[usize::from(*which) % FILTERS.len()];
    run(datagrams(&messages(input), port).then(kind, &[]));
});
