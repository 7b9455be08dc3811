//! Sessions: the blocks that a state sees, when it is opened and closed, and timers by packet time.

use crate::parts::{Graph, texts};
use base::id::Class;
use base::limits::{SECOND_NS, SESSION_IDLE_NS};
use buffer::Descriptor;
use filter::prelude::*;

/// Collects the bytes of a session. Gives them with the reason of its end when it is closed.
struct Collect;

impl SessionFilter for Collect {
    type State = (Vec<u8>, Option<Descriptor>);

    fn open(&mut self, _: Class, _: &mut Context<'_>) -> Self::State {
        (Vec::new(), None)
    }

    fn run(&mut self, state: &mut Self::State, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            state.0.extend_from_slice(cx.rings.bytes(block));
            state.1 = Some(*block);
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        state: Self::State,
        class: Class,
        why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let text = format!("{}:{}:{}", class.0, why.name(), String::from_utf8_lossy(&state.0));
        let block = cx.rings.append_copy(cx.own, &[text.as_bytes()]).unwrap();
        cx.emit(block);
        Ok(())
    }
}

const FIRST: Flags = Flags::FIRST;
const LAST: Flags = Flags::LAST;
const PLAIN: Flags = Flags::NONE;

fn check(key: SessionKey, blocks: &[(u64, u32, Flags, &str)], expected: &[&str]) {
    let mut graph = Graph::default();
    let blocks = blocks.iter().map(|(time, class, flags, text)| (*time, *class, *flags, text.as_bytes().to_vec()));
    let source = graph.timed_source(blocks.collect());
    let collect = graph.maker("collect", Instance::session(key, Collect));
    let sink = graph.sink("sink");
    graph.edge(source, collect);
    graph.edge(collect, sink);
    let seen = graph.seen.clone();
    let (_, report) = graph.run();
    assert_eq!(texts(&seen, "sink"), expected);
    report.check().unwrap();
}

#[test]
fn a_state_sees_the_blocks_of_its_class_from_first_to_last() {
    check(
        SessionKey::Class,
        &[(1, 4, FIRST, "a"), (2, 5, FIRST, "x"), (3, 4, PLAIN, "b"), (4, 4, LAST, "c"), (5, 5, PLAIN, "y")],
        &["4:ended:abc", "5:unfinished:xy"],
    );
}

#[test]
fn a_new_first_begins_a_new_session() {
    check(
        SessionKey::Class,
        &[(1, 4, FIRST, "a"), (2, 4, FIRST, "b"), (3, 4, LAST, "c"), (4, 4, PLAIN, "d")],
        &["4:replaced:a", "4:ended:bc", "4:unfinished:d"],
    );
}

#[test]
fn a_connection_ends_when_both_directions_have() {
    check(
        SessionKey::Connection,
        &[
            (1, 8, FIRST, "req "),
            (2, 8, LAST, "uest"),
            (3, 9, FIRST, "|res"),
            (4, 10, FIRST, "other"),
            (5, 9, LAST, "ponse"),
        ],
        &["8:ended:req uest|response", "10:unfinished:other"],
    );
}

/// Blocks of class 6 for `seconds`, a batch of 64 a second, after one block of class 4.
fn a_quiet_and_a_busy_one(seconds: u64) -> Vec<(u64, u32, Flags, Vec<u8>)> {
    let busy = (0..seconds * 64).map(|step| (step / 64 * SECOND_NS, 6, PLAIN, b"b".to_vec()));
    std::iter::once((0, 4, FIRST, b"quiet".to_vec())).chain(busy).collect()
}

fn ends_of(blocks: Vec<(u64, u32, Flags, Vec<u8>)>) -> Vec<String> {
    let mut graph = Graph::default();
    let source = graph.timed_source(blocks);
    let collect = graph.maker("collect", Instance::session(SessionKey::Class, Collect));
    let sink = graph.sink("sink");
    graph.edge(source, collect);
    graph.edge(collect, sink);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    texts(&seen, "sink").iter().map(|text| text.trim_end_matches('b').to_string()).collect()
}

#[test]
fn a_silent_session_is_closed_by_packet_time() {
    let idle_s = SESSION_IDLE_NS / SECOND_NS;
    assert_eq!(ends_of(a_quiet_and_a_busy_one(idle_s - 2)), ["4:unfinished:quiet", "6:unfinished:"]);
    assert_eq!(ends_of(a_quiet_and_a_busy_one(idle_s + 3)), ["4:idle:quiet", "6:unfinished:"]);
}

#[test]
fn a_leap_in_time_closes_nothing() {
    let mut blocks = a_quiet_and_a_busy_one(100);
    for (index, block) in blocks.iter_mut().enumerate().skip(1000) {
        // Two captures from different years, frame by frame.
        block.0 += (index as u64 % 2) * 40_000_000 * SECOND_NS;
    }
    assert_eq!(ends_of(blocks), ["4:unfinished:quiet", "6:unfinished:"]);
}

#[test]
fn classes_that_no_stream_can_have_are_counted_drops() {
    let mut graph = Graph::default();
    let source = graph.source(&[(u32::MAX, b"x"), (2, b"y")]);
    let collect = graph.maker("collect", Instance::session(SessionKey::Class, Collect));
    let sink = graph.sink("sink");
    graph.edge(source, collect);
    graph.edge(collect, sink);
    let (_, report) = graph.run();
    assert_eq!(report.nodes[1].counters.drops.get("no stream class"), 1);
}

/// Asks to be woken a second after each block, and gives a block then.
struct Alarm;

impl Filter for Alarm {
    fn run(&mut self, _: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let at = cx.now + 1_000_000_000;
        cx.wake_at(at);
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        let again = cx.now + 1_000_000_000;
        cx.wake_at(again);
        let text = format!("{}", cx.now / 1_000_000_000);
        let block = cx.rings.append_copy(cx.own, &[text.as_bytes()]).unwrap();
        cx.emit(block);
        Ok(Status::Done)
    }
}

#[test]
fn timers_go_by_packet_time() {
    // A batch of 64 blocks each second: the alarm set by a batch goes off with the next.
    let mut graph = Graph::default();
    let blocks = (0..256u64).map(|index| ((10 + index / 64) * SECOND_NS, 0, PLAIN, b"x".to_vec()));
    let source = graph.timed_source(blocks.collect());
    let alarm = graph.maker("alarm", Instance::filter(Alarm));
    let sink = graph.sink("sink");
    graph.edge(source, alarm);
    graph.edge(alarm, sink);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    assert_eq!(texts(&seen, "sink"), ["11", "12", "13"]);
}

#[test]
fn two_sources_of_different_times_do_not_make_the_clock_run() {
    let mut graph = Graph::default();
    // 20 s each, a day apart, pulled in turns. An alarm a minute after the beginning must not go off.
    let day = 86_400 * SECOND_NS;
    let blocks = |start: u64| {
        (0..20 * 64u64).map(move |step| (start + step / 64 * SECOND_NS, 0, PLAIN, b"x".to_vec())).collect()
    };
    let (one, other) = (graph.timed_source(blocks(0)), graph.timed_source(blocks(day)));
    let alarm = graph.maker("alarm", Instance::filter(AfterAMinute(None)));
    let sink = graph.sink("sink");
    graph.edge(one, alarm);
    graph.edge(other, alarm);
    graph.edge(alarm, sink);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    assert_eq!(texts(&seen, "sink"), Vec::<String>::new());
}

/// Asks once to be woken after a minute, and gives a block then.
struct AfterAMinute(Option<u64>);

impl Filter for AfterAMinute {
    fn run(&mut self, _: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let at = *self.0.get_or_insert(cx.now + 60 * SECOND_NS);
        cx.wake_at(at);
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        let block = cx.rings.append_copy(cx.own, &[b"a minute"]).unwrap();
        cx.emit(block);
        Ok(Status::Done)
    }
}

#[test]
fn another_connection_with_the_same_number_is_another_session() {
    let facts = testkit::packets::facts(testkit::packets::CLIENT, testkit::packets::SERVER);
    let mut graph = Graph::default();
    let block = |class: u32, text: &str| (0, class, PLAIN, text.as_bytes().to_vec());
    // Number 0 is reused before the second block. The end of the first connection was not seen.
    let mut blocks = vec![block(0, "old")];
    blocks.extend((0..63).map(|_| block(2, "-")));
    blocks.push(block(0, "new"));
    let source = graph.timed_source(blocks);
    let turn = graph.in_place("turn", NewEpoch { facts, calls: 0 });
    let collect = graph.maker("collect", Instance::session(SessionKey::Connection, Collect));
    let sink = graph.sink("sink");
    graph.edge(source, turn);
    graph.edge(turn, collect);
    graph.edge(collect, sink);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    let texts = texts(&seen, "sink");
    assert_eq!(texts[0], "0:replaced:old");
    assert!(texts.contains(&"0:unfinished:new".to_string()), "{texts:?}");
}

/// Opens connection 0 before the first batch, and gives its number to another one before the second.
struct NewEpoch {
    facts: StreamFacts,
    calls: u32,
}

impl Filter for NewEpoch {
    fn run(&mut self, _: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.calls += 1;
        cx.streams.open(self.facts.clone());
        if self.calls == 2 {
            cx.streams.close(0);
            cx.streams.sweep();
            // Numbers are reused late, so use them up.
            while cx.streams.epoch(Class(0)) < 2 {
                let number = cx.streams.open(self.facts.clone()).unwrap();
                if number != 0 {
                    cx.streams.close(number);
                    cx.streams.sweep();
                }
            }
        }
        Ok(Status::Done)
    }
}
