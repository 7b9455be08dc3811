//! Any file of rules is loaded or refused with a place. What was loaded is matched with any bytes of a connection, or of
//! datagrams.
#![no_main]

#[path = "../traffic.rs"]
mod traffic;

use libfuzzer_sys::fuzz_target;
use traffic::{connection, datagrams, messages, run};

// The input: bit 0 of its first byte says UDP, the next two give the port; then the length of the rules, rules, messages.
fuzz_target!(|input: &[u8]| {
    let Some((&[how, low, high, rules_low, rules_high], input)) = input.split_first_chunk::<5>() else { return };
    let (rules, input) = input.split_at(input.len().min(usize::from(u16::from_le_bytes([rules_low, rules_high]))));
    let file = std::env::temp_dir().join(format!("fuzz-{}.rules", std::process::id()));
    std::fs::write(&file, rules).expect("room for a file of rules");
    let given = [("file", file.to_str().expect("a name in UTF-8")), ("partial", "yes")];
    let (messages, port) = (messages(input), u16::from_le_bytes([low, high]));
    let chain = if how & 1 == 0 { connection(&messages, port, 1460) } else { datagrams(&messages, port) };
    let chain = chain.then(&filters::rules::KIND, &given);
    if chain.refusal().is_none() {
        run(chain);
    }
});
