//! `tcp` on handmade conversations, one row per behaviour, and on random ones against a model.

use super::settings::Settings;
use super::{KIND, with};
use base::limits::BATCH_BLOCKS;
use filter::prelude::*;
use packet::flow::Flow;
use std::collections::BTreeMap;
use testkit::packets::{CLIENT, Conversation, SERVER, flag, ipv4, tcp, udp};
use testkit::{Chain, Outcome};

mod checks;
mod data;
mod ends;
mod held;
mod limits;
mod model;
mod policies;

const ETHERNET: u16 = 1;
const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// The two directions of the first connection.
const FROM_CLIENT: u32 = 0;
const FROM_SERVER: u32 = 1;

fn run(conversation: &Conversation) -> Outcome {
    Chain::frames(ETHERNET, &conversation.frames).then(&KIND, &[]).run()
}

/// A block as text: its bytes, after `[n]` for n missing bytes, and before `$` for the end of the stream or `~` for an
/// end that was not seen.
fn text(descriptor: &Descriptor, bytes: &[u8]) -> String {
    let mut text = String::new();
    if descriptor.gap() > 0 {
        text += &format!("[{}]", descriptor.gap());
    }
    text += &String::from_utf8_lossy(bytes);
    match (descriptor.has(Flags::LAST), descriptor.has(Flags::TRUNCATED)) {
        (true, true) => text + "~",
        (true, false) => text + "$",
        (false, _) => text,
    }
}

/// Streams by class. Checks the invariants of all outputs: flags, facts, and that no byte was copied.
fn streams(outcome: &Outcome) -> BTreeMap<u32, String> {
    let mut streams = BTreeMap::<u32, String>::new();
    let mut ended = Vec::new();
    for block in &outcome.blocks {
        let (descriptor, class) = (&block.descriptor, block.descriptor.class.0);
        assert_eq!(descriptor.has(Flags::FIRST), !streams.contains_key(&class), "FIRST once, in front: {descriptor:?}");
        assert!(!ended.contains(&class), "nothing comes after LAST: {descriptor:?}");
        if descriptor.has(Flags::LAST) {
            ended.push(class);
        }
        assert!(block.from_source || descriptor.len == 0, "copied: {descriptor:?}");
        assert_eq!(descriptor.has(Flags::GAP_BEFORE), descriptor.gap() > 0, "{descriptor:?}");
        assert!(block.stream.is_some(), "no facts");
        *streams.entry(class).or_default() += &text(descriptor, &block.bytes);
    }
    for class in streams.keys() {
        assert!(ended.contains(class) && streams.contains_key(&(class ^ 1)), "both directions of {class} end");
    }
    assert_eq!(outcome.report.traffic.hold_copies, 0);
    streams
}

/// The streams of a conversation, by class from 0 on.
fn check(conversation: &Conversation, expected: &[&str]) -> Outcome {
    let outcome = run(conversation);
    assert_eq!(streams(&outcome).into_values().collect::<Vec<_>>(), expected);
    outcome
}

fn event(outcome: &Outcome, name: &str) -> u64 {
    outcome.counters("tcp").events.get(name)
}

/// Lets time pass: a batch of other frames each second, because the clock advances per batch.
fn wait(conversation: &mut Conversation, seconds: u64) {
    let from = conversation.frames.last().map_or(0, |(time, _)| *time);
    for second in 1..=seconds {
        for _ in 0..BATCH_BLOCKS {
            let frame = udp((CLIENT.0, 5353), (SERVER.0, 5353), b"time passes");
            conversation.frames.push((from + second * SECOND, frame));
        }
    }
}

/// Adds a frame a millisecond after the last one.
fn then(conversation: &mut Conversation, frame: Vec<u8>) {
    let time = conversation.frames.last().map_or(0, |(time, _)| *time + MILLISECOND);
    conversation.frames.push((time, frame));
}

fn opened(isn: u32) -> Conversation {
    Conversation::open(CLIENT, SERVER, isn)
}

/// Ends both directions, the client first, with the last acknowledgement.
fn close(conversation: &mut Conversation) {
    conversation.fin(0).fin(1);
    let last = conversation.segment(0, 0, flag::ACK, b"");
    then(conversation, last);
}

/// Adds a frame of one side, `offset` bytes from its next byte.
fn out_of_turn(conversation: &mut Conversation, side: usize, offset: i64, payload: &[u8]) {
    let frame = conversation.segment(side, offset, flag::ACK, payload);
    then(conversation, frame);
}
