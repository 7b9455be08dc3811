//! What passes, what ends and why, without a network.

use super::KIND;
use std::io::Write;
use testkit::chain::{Chain, Outcome};
use testkit::packets::{CLIENT, Conversation, SERVER};

const ETHERNET: u16 = 1;
const PSH_ACK: u8 = 0x18;

const RULES: &str = "drop tcp any any -> any any (msg:\"attack\"; flow:to_server; content:\"attack\"; sid:1;)\n\
                     alert tcp any any -> any any (msg:\"seen\"; flow:to_server; content:\"seen\"; sid:2;)\n";

/// A conversation through `ips`, with these parameters.
fn run(conversation: &Conversation, more: &[(&str, &str)]) -> Outcome {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(RULES.as_bytes()).unwrap();
    let path = file.path().display().to_string();
    let params = [&[("rules", path.as_str())], more].concat();
    Chain::frames(ETHERNET, &conversation.frames).then(&KIND, &params).run()
}

/// How many frames passed, and how many ended, by reason.
fn check(conversation: &Conversation, more: &[(&str, &str)], passed: u64, ended: &[(&str, u64)]) {
    let outcome = run(conversation, more);
    let counters = outcome.counters("ips");
    let mut drops: Vec<(&str, u64)> = counters.drops.iter().collect();
    drops.sort_unstable();
    assert_eq!((counters.blocks_rejected, &drops[..]), (passed, ended), "{more:?}");
}

fn talk() -> Conversation {
    Conversation::open(CLIENT, SERVER, 1000)
}

#[test]
fn what_completes_an_attack_ends_and_its_flow_with_it() {
    let mut conversation = talk();
    conversation.send(0, b"att").send(0, b"ack").send(0, b"more").send(1, b"answer");
    check(&conversation, &[], 4, &[("of a stopped flow", 2), ("stopped by a rule", 1)]);
    let mut conversation = talk();
    let [first, second] = [conversation.segment(0, 0, PSH_ACK, b"att"), conversation.segment(0, 3, PSH_ACK, b"ack")];
    conversation.push(second).push(first);
    check(&conversation, &[], 4, &[("stopped by a rule", 1)]);
    let mut conversation = talk();
    conversation.send(0, b"seen").send(1, b"attack");
    check(&conversation, &[], 5, &[]);
    assert_eq!(run(&conversation, &[]).blocks.len(), 1, "one alert");
    conversation.send(0, b"attack").send(0, b"more");
    let outcome = run(&conversation, &[]);
    assert_eq!(outcome.blocks.len(), 3, "two alerts, and the record of one drop");
}

#[test]
fn other_bytes_for_a_place_that_passed_end() {
    for first in [0, 2] {
        let mut conversation = talk();
        let [one, other] = [b"harmless", b"harmful!"].map(|bytes| conversation.segment(0, first, PSH_ACK, bytes));
        conversation.push(one.clone()).push(other).push(one);
        check(&conversation, &[], 5, &[("contradicts one that passed", 1)]);
    }
}

#[test]
fn what_a_receiver_refuses_passes_where_that_was_chosen() {
    let mut conversation = talk();
    conversation.send(0, b"right");
    let strange = conversation.segment(0, 0, 0x08, b"no ack");
    conversation.push(strange);
    check(&conversation, &[], 4, &[("data without ack", 1)]);
    check(&conversation, &[("fail", "open")], 5, &[]);
}
