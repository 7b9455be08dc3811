//! How blocks go through a graph: branches, joins, selectors, choices, write isolation, the end.

use crate::parts::{Graph, Keep, Shout, exactly, texts};
use base::atomic::StopFlag;
use engine::{Choice, End};
use filter::prelude::*;

const WORDS: [(u32, &[u8]); 4] = [(1, b"anna"), (2, b"bert"), (1, b"carl"), (3, b"dora")];

#[test]
fn branches_see_every_block_and_joins_see_it_once_a_branch() {
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let all = graph.in_place("all", Keep { like: |_| true, set_class: false });
    let a = graph.in_place("a", Keep { like: |first| first == b'a', set_class: false });
    let sink = graph.sink("sink");
    graph.edge(source, all);
    graph.edge(source, a);
    graph.edge(all, sink);
    graph.edge(a, sink);
    let seen = graph.seen.clone();
    let (end, report) = graph.run();
    assert_eq!(end, Ok(End::Input));
    assert_eq!(texts(&seen, "sink"), ["anna", "bert", "carl", "dora", "anna"]);
    assert_eq!((report.nodes[2].counters.blocks_rejected, report.nodes[3].counters.blocks_taken), (3, 5));
}

#[test]
fn selectors_divide_by_class() {
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let (one, rest) = (graph.sink("one"), graph.sink("rest"));
    graph.selected(source, one, Some(exactly(1)));
    graph.selected(source, rest, Some(engine::Select::Otherwise(vec![exactly(1)])));
    let seen = graph.seen.clone();
    let (_, report) = graph.run();
    assert_eq!(texts(&seen, "one"), ["anna", "carl"]);
    assert_eq!(texts(&seen, "rest"), ["bert", "dora"]);
    assert_eq!(report.nodes[0].edges.iter().map(|edge| (edge.blocks, edge.refused)).collect::<Vec<_>>(), [(2, 2); 2]);
}

/// A planner relies on kinds: one that says too little must not get through a test.
#[test]
#[cfg(debug_assertions)]
fn a_filter_that_changes_what_its_kind_does_not_say_ends_in_a_panic() {
    let said = |add: fn(&mut Graph) -> engine::NodeId| {
        let mut graph = Graph::default();
        let source = graph.source(&WORDS);
        let (changes, sink) = (add(&mut graph), graph.sink("sink"));
        graph.edge(source, changes);
        graph.edge(changes, sink);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(graph.run())));
        outcome.expect_err("it was found").downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let bytes = said(|graph| graph.modest("shout", Shout));
    assert_eq!(bytes, "`shout` changes bytes, and its kind does not say so");
    let class = said(|graph| graph.modest("keep", Keep { like: |_| true, set_class: true }));
    assert_eq!(class, "`keep` changes what is known of blocks, and its kind does not say so");
}

#[test]
fn one_branch_edits_and_the_other_sees_what_was() {
    // The other receiver of the blocks: none, or a branch behind or before the one that edits.
    for other in [None, Some("behind"), Some("before")] {
        let mut graph = Graph::default();
        let source = graph.source(&WORDS);
        let plain = graph.sink("plain");
        if other == Some("before") {
            graph.edge(source, plain);
        }
        let shout = graph.in_place("shout", Shout);
        let loud = graph.sink("loud");
        graph.edge(source, shout);
        graph.edge(shout, loud);
        if other == Some("behind") {
            graph.edge(source, plain);
        }
        let seen = graph.seen.clone();
        let (_, report) = graph.run();
        assert_eq!(texts(&seen, "loud"), ["ANNA", "BERT", "CARL", "DORA"]);
        let expected: &[&str] = if other.is_some() { &["anna", "bert", "carl", "dora"] } else { &[] };
        assert_eq!(texts(&seen, "plain"), expected);
        let copied = (report.traffic.edit_copies, report.traffic.edits_in_place);
        let expected = if other == Some("behind") { (4, 0) } else { (0, 4) };
        assert_eq!(copied, expected, "nothing is copied where nobody looks later");
    }
}

#[test]
fn choices_are_sets_over_places_and_keep_order_and_class() {
    let not = |choice| Choice::Not(Box::new(choice));
    let keep = |choice| Choice::KeepClass(Box::new(choice));
    type Row = (fn([Choice; 2]) -> Choice, &'static [&'static str]);
    let rows: [Row; 4] = [
        (|[a, b]| Choice::Any(vec![a, b]), &["anna", "bert", "dora"]),
        (|[a, b]| Choice::All(vec![a, b]), &["bert"]),
        (|[a, _]| Choice::Not(Box::new(a)), &["carl", "dora"]),
        (|[a, b]| Choice::All(vec![a, Choice::Not(Box::new(b))]), &["anna"]),
    ];
    for (choice, expected) in rows {
        let mut graph = Graph::default();
        let source = graph.source(&WORDS);
        let ab = graph.in_place("ab", Keep { like: |first| first <= b'b', set_class: true });
        let bd = graph.in_place("bd", Keep { like: |first| first == b'b' || first == b'd', set_class: false });
        let chosen = graph.choose(keep(choice([Choice::Filter(ab), Choice::Filter(bd)])));
        let sink = graph.sink("sink");
        graph.edge(source, chosen);
        graph.edge(chosen, sink);
        let seen = graph.seen.clone();
        graph.run().0.unwrap();
        assert_eq!(texts(&seen, "sink"), expected);
        assert!(seen.lock().unwrap().iter().all(|(_, class, _)| *class <= 3), "classes are as they were");
    }
    // A chain inside a choice sees the class set before it.
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let set = graph.in_place("set", Keep { like: |_| true, set_class: true });
    let chain = Choice::All(vec![Choice::Filter(set), Choice::Class(exactly(u32::from(b'c')))]);
    let chosen = graph.choose(not(keep(chain)));
    let sink = graph.sink("sink");
    graph.edge(source, chosen);
    graph.edge(chosen, sink);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    assert_eq!(texts(&seen, "sink"), ["anna", "bert", "dora"]);
}

struct First(usize);

impl Filter for First {
    fn run(&mut self, batch: &mut Batch<'_>, _: &mut Context<'_>) -> Made {
        let mut left = self.0;
        batch.keep_if(|_| {
            let keep = left > 0;
            left -= usize::from(keep);
            keep
        });
        self.0 = left;
        Ok(if left == 0 { Status::Finished } else { Status::Done })
    }
}

#[test]
fn a_source_stops_when_nobody_wants_more() {
    let block: (u32, &[u8]) = (0, b"x");
    let blocks = vec![block; 1000];
    for (other, read) in [(false, 64), (true, 1000)] {
        let mut graph = Graph::default();
        let source = graph.source(&blocks);
        let first = graph.in_place("first", First(10));
        let (few, all) = (graph.sink("few"), graph.sink("all"));
        graph.edge(source, first);
        graph.edge(first, few);
        if other {
            graph.edge(source, all);
        }
        let seen = graph.seen.clone();
        let (end, report) = graph.run();
        assert_eq!(end, Ok(if other { End::Input } else { End::Enough }));
        assert_eq!((texts(&seen, "few").len(), report.nodes[0].counters.blocks_made), (10, read));
    }
}

struct Repeat {
    times: usize,
    given: usize,
}

impl Filter for Repeat {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let blocks: Vec<_> = batch.iter().map(|(_, block)| *block).collect();
        let all = blocks.len() * self.times;
        let end = all.min(self.given + 100);
        (self.given..end).for_each(|index| cx.emit(blocks[index / self.times]));
        self.given = if end == all { 0 } else { end };
        Ok(if end == all { Status::Done } else { Status::More })
    }
}

#[test]
fn a_filter_with_more_to_give_is_called_again() {
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let repeat = graph.maker("repeat", Instance::filter(Repeat { times: 150, given: 0 }));
    let sink = graph.sink("sink");
    graph.edge(source, repeat);
    graph.edge(repeat, sink);
    let seen = graph.seen.clone();
    let (_, report) = graph.run();
    assert_eq!(report.nodes[1].counters.blocks_made, 600);
    assert_eq!(report.nodes[1].counters.blocks_taken, 4);
    let texts = texts(&seen, "sink");
    assert!(texts[..150].iter().all(|text| text == "anna") && texts[450..].iter().all(|text| text == "dora"));
}

struct Fail(usize);

impl Filter for Fail {
    fn run(&mut self, batch: &mut Batch<'_>, _: &mut Context<'_>) -> Made {
        self.0 += batch.count() as usize;
        if self.0 > 64 { Err(Box::new(Failure::System("disk full".into()))) } else { Ok(Status::Done) }
    }
}

struct Last;

impl Filter for Last {
    fn run(&mut self, _: &mut Batch<'_>, _: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let block = cx.rings.append_copy(cx.own, &[b"the end"]).unwrap();
        cx.emit(block);
        Ok(Status::Done)
    }
}

#[test]
fn a_failure_ends_the_run_and_others_are_finished_all_the_same() {
    let block: (u32, &[u8]) = (0, b"x");
    let mut graph = Graph::default();
    let source = graph.source(&vec![block; 200]);
    let fail = graph.in_place("fail", Fail(0));
    let last = graph.maker("last", Instance::filter(Last));
    let (other, sink) = (graph.sink("other"), graph.sink("sink"));
    graph.edge(source, fail);
    graph.edge(source, last);
    graph.edge(fail, other);
    graph.edge(last, sink);
    let seen = graph.seen.clone();
    let (end, _) = graph.run();
    assert_eq!(end, Err(Box::new(Failure::System("disk full".into()))));
    assert_eq!(texts(&seen, "sink"), ["the end"]);
    assert_eq!(texts(&seen, "other").len(), 64);
}

struct Broken(bool);

impl Source for Broken {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        if std::mem::replace(&mut self.0, true) {
            return Err(Box::new(Failure::System("cut".into())));
        }
        let block = cx.rings.append_copy(cx.own, &[b"half"]).unwrap();
        cx.emit(block);
        Ok(Pull::Ready)
    }
}

#[test]
fn a_source_that_fails_does_not_end_the_others() {
    let block: (u32, &[u8]) = (0, b"x");
    let mut graph = Graph::default();
    let broken = graph.broken_source(Broken(false));
    let whole = graph.source(&vec![block; 200]);
    let sink = graph.sink("sink");
    graph.edge(broken, sink);
    graph.edge(whole, sink);
    let seen = graph.seen.clone();
    let (end, _) = graph.run();
    assert_eq!(end, Err(Box::new(Failure::System("cut".into()))));
    assert_eq!(texts(&seen, "sink").len(), 201);
}

/// Gives one block in each call, for ever; after a stop, two more.
struct Endless {
    stop: StopFlag,
    given: usize,
    left: Option<usize>,
}

impl Source for Endless {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        match &mut self.left {
            Some(0) => return Ok(Pull::End),
            Some(left) => *left -= 1,
            None if self.given == 3 => self.stop.stop(),
            None => {}
        }
        self.given += 1;
        let block = cx.rings.append_copy(cx.own, &[b"block"]).unwrap();
        cx.emit(block);
        Ok(Pull::Ready)
    }

    fn stop(&mut self) -> bool {
        self.left = Some(2);
        true
    }
}

#[test]
fn who_asks_to_stop_still_gets_what_was_there() {
    let block: (u32, &[u8]) = (0, b"x");
    let mut graph = Graph::default();
    let stop = StopFlag::new();
    let endless = graph.broken_source(Endless { stop: stop.clone(), given: 0, left: None });
    let file = graph.source(&vec![block; 64 * base::limits::BATCH_BLOCKS]);
    let sinks = [graph.sink("endless"), graph.sink("file")];
    graph.edge(endless, sinks[0]);
    graph.edge(file, sinks[1]);
    let seen = graph.seen.clone();
    let (end, _) = graph.run_until(&stop);
    assert_eq!(end, Ok(End::Stopped));
    assert_eq!(texts(&seen, "endless").len(), 4 + 2);
    // A file has no blocks that a stop could lose.
    assert_eq!(texts(&seen, "file").len(), 3 * base::limits::BATCH_BLOCKS);
}

#[test]
fn copies_of_a_filter_in_place_go_with_the_batch() {
    let text = vec![b'a'; 64 << 10];
    let blocks: Vec<(u32, &[u8])> = (0..2000).map(|_| (0, &text[..])).collect();
    let mut graph = Graph::default();
    let source = graph.source(&blocks);
    let shout = graph.in_place("shout", Shout);
    let (loud, plain) = (graph.in_place("count", Keep { like: |_| false, set_class: false }), graph.sink("plain"));
    let end = graph.sink("end");
    graph.edge(source, shout);
    graph.edge(source, plain);
    graph.edge(shout, loud);
    graph.edge(loud, end);
    graph.seen.lock().unwrap().clear();
    let memory = graph.run_and_measure();
    assert!(memory < 32 << 20, "{memory} bytes of rings after 128 MB of copies");
}
