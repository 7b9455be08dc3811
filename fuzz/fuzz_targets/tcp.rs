//! Segments of one connection in any order, with any flags, offsets and overlaps, under each policy: the assembler keeps its
//! counters, and gives each side at most once.
#![no_main]

#[path = "../traffic.rs"]
#[expect(dead_code, reason = "this target makes its segments itself")]
mod traffic;

use libfuzzer_sys::fuzz_target;
use testkit::Chain;
use testkit::packets::{CLIENT, Conversation, SERVER};

const POLICIES: [&str; 6] = ["first", "last", "bsd", "linux", "solaris", "windows"];

fuzz_target!(|input: &[u8]| {
    let Some((how, mut input)) = input.split_first() else { return };
    let policy = POLICIES[usize::from(how & 7) % POLICIES.len()];
    let mut conversation = if how & 8 == 0 {
        Conversation::open(CLIENT, SERVER, u32::MAX - 300)
    } else {
        Conversation::midstream(CLIENT, SERVER, 7)
    };
    // Head of a segment: flags of this list, offset (two bytes), length, TCP flags.
    while let Some((&[kind, low, high, len, flags], rest)) = input.split_first_chunk::<5>() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(len)));
        let (side, offset) = (usize::from(kind & 1), i64::from(i16::from_le_bytes([low, high])));
        match kind >> 1 & 3 {
            0 => drop(conversation.send(side, payload)),
            1 => drop(conversation.lose(side, u32::from(len))),
            _ => {
                let segment = conversation.segment(side, offset, flags, payload);
                conversation.push(segment);
            }
        }
        input = rest;
    }
    let chain = Chain::frames(1, &conversation.frames);
    traffic::run(chain.then(&filters::tcp::KIND, &[("policy", policy), ("checksum", "no")]));
});
