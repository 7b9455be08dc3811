//! Edges for a filter's rejected blocks: they carry exactly these, unchanged and in order, without dropped or held
//! blocks.

use crate::parts::{Graph, Keep, Shout, exactly, texts};
use crate::watching::{self, Ring};
use base::atomic::StopFlag;
use engine::{Choice, Edges, End, NodeId, Part, Replacement};
use filter::prelude::*;
use std::sync::mpsc::sync_channel;

const WORDS: [(u32, &[u8]); 6] = [(1, b"anna"), (2, b"bert"), (1, b"carl"), (3, b"dora"), (2, b"emil"), (1, b"fred")];

fn classes(graph: &crate::parts::Seen, sink: &str) -> Vec<u32> {
    graph.lock().unwrap().iter().filter(|(name, ..)| *name == sink).map(|(_, class, _)| *class).collect()
}

/// `source | filter | gives`, and the filter's rejected blocks go to `rejects`.
fn sorted(add: impl FnOnce(&mut Graph) -> NodeId, blocks: &[(u32, &[u8])]) -> (Graph, [NodeId; 4]) {
    let mut graph = Graph::default();
    let source = graph.source(blocks);
    let filter = add(&mut graph);
    let (gives, rejects) = (graph.sink("gives"), graph.sink("rejects"));
    graph.edge(source, filter);
    graph.edge(filter, gives);
    graph.rejected(filter, rejects, None);
    (graph, [source, filter, gives, rejects])
}

#[test]
fn what_a_filter_in_place_rejects_goes_on_as_it_came() {
    let keep = Keep { like: |first| first == b'b' || first == b'd', set_class: true };
    let (graph, _) = sorted(|graph| graph.in_place("keep", keep), &WORDS);
    let seen = graph.seen.clone();
    let (_, report) = graph.run();
    assert_eq!(texts(&seen, "gives"), ["bert", "dora"]);
    assert_eq!(texts(&seen, "rejects"), ["anna", "carl", "emil", "fred"]);
    // The filter set the class of each block that it read.
    assert_eq!(classes(&seen, "gives"), [u32::from(b'b'), u32::from(b'd')]);
    assert_eq!(classes(&seen, "rejects"), [1, 1, 2, 1]);
    let edges: Vec<_> = report.nodes[1].edges.iter().map(|edge| (edge.blocks, edge.refused, edge.rejected)).collect();
    assert_eq!(edges, [(2, 0, false), (4, 0, true)]);
    assert_eq!(report.nodes[1].counters.blocks_rejected, 4);
}

#[test]
fn edges_divide_what_is_rejected_by_the_class_before() {
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let keep = graph.in_place("keep", Keep { like: |first| first == b'd', set_class: true });
    let (one, rest, all) = (graph.sink("one"), graph.sink("rest"), graph.sink("all"));
    graph.edge(source, keep);
    graph.rejected(keep, one, Some(exactly(1)));
    graph.rejected(keep, rest, Some(engine::Select::Otherwise(vec![exactly(1)])));
    graph.rejected(keep, all, None);
    let seen = graph.seen.clone();
    let (end, report) = graph.run();
    assert_eq!(end, Ok(End::Input));
    assert_eq!(texts(&seen, "one"), ["anna", "carl", "fred"]);
    assert_eq!(texts(&seen, "rest"), ["bert", "emil"]);
    assert_eq!(texts(&seen, "all"), ["anna", "bert", "carl", "emil", "fred"]);
    // Kept blocks have no edge to go along.
    assert_eq!((report.nodes[1].counters.blocks_passed, report.nodes[1].edges.len()), (1, 3));
}

/// Drops blocks that begin with `c`, writes over those with `d`, rejects those with `e`.
struct Odd;

impl Filter for Odd {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for place in filter::batch::places(batch.live()) {
            match cx.rings.bytes(batch.block(place))[0] {
                b'c' => cx.drop_of(batch, 1 << place, "odd"),
                b'd' => cx.edit(batch.block_mut(place), buffer::Room::default()).unwrap().make_ascii_uppercase(),
                b'e' => batch.keep(!(1 << place)),
                _ => {}
            }
        }
        Ok(Status::Done)
    }
}

#[test]
fn what_is_dropped_is_not_among_it() {
    let (graph, _) = sorted(|graph| graph.in_place("odd", Odd), &WORDS);
    let seen = graph.seen.clone();
    let (_, report) = graph.run();
    assert_eq!(texts(&seen, "gives"), ["anna", "bert", "DORA", "fred"]);
    assert_eq!(texts(&seen, "rejects"), ["emil"]);
    assert_eq!(report.nodes[1].counters.drops.get("odd"), 1);
}

/// Gives each block twice, a few in each call. Rejects every third, and drops every fifth.
#[derive(Default)]
struct Twice {
    dealt_with: u64,
}

impl Filter for Twice {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for place in filter::batch::places(batch.live() & !self.dealt_with) {
            if cx.out.len() >= 10 {
                return Ok(Status::More);
            }
            self.dealt_with |= 1 << place;
            let block = *batch.block(place);
            match cx.rings.bytes(&block) {
                [number, ..] if number % 5 == 0 => cx.drop(1, "fifth"),
                [number, ..] if number % 3 == 0 => cx.reject(place),
                _ => (0..2).for_each(|_| cx.emit(block)),
            }
        }
        self.dealt_with = 0;
        Ok(Status::Done)
    }
}

#[test]
fn what_a_maker_rejects_in_several_calls_goes_on_in_order() {
    let numbers: Vec<[u8; 1]> = (0..200u8).map(|number| [number]).collect();
    let blocks: Vec<(u32, &[u8])> = numbers.iter().map(|number| (u32::from(number[0]), &number[..])).collect();
    let (graph, _) = sorted(|graph| graph.maker("twice", Instance::filter(Twice::default())), &blocks);
    let seen = graph.seen.clone();
    let (_, report) = graph.run();
    let expected: Vec<u32> = (0..200).filter(|number| number % 3 == 0 && number % 5 != 0).collect();
    assert_eq!(classes(&seen, "rejects"), expected);
    let counters = &report.nodes[1].counters;
    assert_eq!((counters.blocks_rejected, counters.drops.total()), (expected.len() as u64, 40));
    assert_eq!(classes(&seen, "gives").len() as u64, 2 * counters.blocks_taken);
}

/// Passes the first block of each session.
struct OnlyFirst;

impl SessionFilter for OnlyFirst {
    type State = bool;

    fn open(&mut self, _: Class, _: &mut Context<'_>) -> bool {
        true
    }

    fn run(&mut self, is_first: &mut bool, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let live = batch.live();
        let keep = if std::mem::take(is_first) { live & live.wrapping_neg() } else { 0 };
        // It fills both `cx.out` and the marks; the engine uses only the one for its kind.
        filter::batch::places(live & keep).for_each(|place| cx.out.push(*batch.block(place)));
        filter::batch::places(live & !keep).for_each(|place| cx.reject(place));
        Ok(Status::Done)
    }

    fn close(&mut self, _: bool, _: Class, _: Closed, _: &mut Context<'_>) -> Result<(), Box<Failure>> {
        Ok(())
    }
}

#[test]
fn sessions_reject_what_is_not_for_them() {
    let (graph, _) = sorted(|graph| graph.maker("first", Instance::session(SessionKey::Class, OnlyFirst)), &WORDS);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    assert_eq!(texts(&seen, "gives"), ["anna", "bert", "dora"]);
    assert_eq!(texts(&seen, "rejects"), ["carl", "emil", "fred"]);
}

struct First(usize);

impl Filter for First {
    fn run(&mut self, batch: &mut Batch<'_>, _: &mut Context<'_>) -> Made {
        batch.keep_if(|_| self.0.checked_sub(1).map(|left| self.0 = left).is_some());
        Ok(if self.0 == 0 { Status::Finished } else { Status::Done })
    }
}

#[test]
fn a_filter_that_is_finished_rejects_the_rest() {
    let block: (u32, &[u8]) = (0, b"x");
    let (graph, _) = sorted(|graph| graph.in_place("first", First(100)), &vec![block; 1000]);
    let seen = graph.seen.clone();
    let (end, report) = graph.run();
    assert_eq!(end, Ok(End::Input), "what it rejects is still wanted");
    assert_eq!((texts(&seen, "gives").len(), texts(&seen, "rejects").len()), (100, 900));
    assert_eq!(report.nodes[1].counters.blocks_rejected, 900);
    // One node wants ten of the rejected blocks, and then no node wants any: that is enough.
    let mut graph = Graph::default();
    let source = graph.source(&vec![block; 1000]);
    let first = graph.in_place("first", First(1));
    let ten = graph.in_place("ten", First(10));
    let (one, few) = (graph.sink("one"), graph.sink("few"));
    graph.edge(source, first);
    graph.rejected(first, ten, None);
    graph.edge(first, one);
    graph.edge(ten, few);
    let seen = graph.seen.clone();
    let (end, report) = graph.run();
    assert_eq!((end, texts(&seen, "few").len(), texts(&seen, "one").len()), (Ok(End::Enough), 10, 1));
    assert_eq!(report.nodes[0].counters.blocks_made, 64);
}

struct Fail(bool);

impl Filter for Fail {
    fn run(&mut self, batch: &mut Batch<'_>, _: &mut Context<'_>) -> Made {
        if std::mem::replace(&mut self.0, true) {
            return Err(Box::new(Failure::System("disk full".into())));
        }
        batch.keep(0b1);
        Ok(Status::Done)
    }
}

#[test]
fn a_filter_that_fails_rejects_nothing() {
    let block: (u32, &[u8]) = (0, b"x");
    let (graph, _) = sorted(|graph| graph.in_place("fail", Fail(false)), &vec![block; 200]);
    let seen = graph.seen.clone();
    let (end, report) = graph.run();
    assert_eq!(end, Err(Box::new(Failure::System("disk full".into()))));
    assert_eq!((texts(&seen, "gives").len(), texts(&seen, "rejects").len()), (1, 63));
    assert_eq!(report.nodes[1].counters.drops.get("the filter failed"), 64);
}

/// Loses its place to write after the first batch.
struct Loses(u64);

impl Filter for Loses {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.0 == 0 {
            cx.drop_rest(u64::from(batch.count()), "gone");
            return Ok(Status::Finished);
        }
        self.0 -= 1;
        Ok(Status::Done)
    }
}

/// Gives this many empty blocks at once, and ends.
struct AtOnce(usize);

impl Source for AtOnce {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        for _ in 0..self.0 {
            let block = cx.rings.append_copy(cx.own, &[b"x"]).unwrap();
            cx.emit(block);
        }
        Ok(Pull::End)
    }
}

#[test]
fn what_comes_behind_a_loss_is_lost_and_not_rejected() {
    for cut in [false, true] {
        let mut graph = Graph::default();
        let source = graph.broken_source(AtOnce(500));
        let passes = graph.in_place("passes", First(1000));
        let loses = graph.maker("loses", Instance::filter(Loses(1)));
        graph.edge(source, passes);
        if cut {
            graph.cut(passes, loses)
        } else {
            graph.edge(passes, loses)
        }
        let (end, report) = graph.run();
        assert_eq!(end, Ok(End::Enough));
        let gone: u64 = report.nodes.iter().map(|node| node.counters.drops.get("gone")).sum();
        // The stage before may learn of it while blocks are on their way: it rejects those.
        let before = report.nodes[1].counters.blocks_rejected;
        assert!(before == 0 || cut);
        assert_eq!((gone + before, report.nodes[2].counters.blocks_rejected), (500 - 64, 0), "{cut}");
    }
}

#[test]
fn selections_reject_as_filters_do() {
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let early = graph.in_place("early", Keep { like: |first| first <= b'b', set_class: true });
    let late = graph.in_place("late", Keep { like: |first| first >= b'e', set_class: false });
    let any = Choice::Any(vec![Choice::Filter(early), Choice::Filter(late)]);
    let chosen = graph.choose(Choice::KeepClass(Box::new(any)));
    let (gives, rejects) = (graph.sink("gives"), graph.sink("rejects"));
    graph.edge(source, chosen);
    graph.edge(chosen, gives);
    graph.rejected(chosen, rejects, None);
    let seen = graph.seen.clone();
    graph.run().0.unwrap();
    assert_eq!(texts(&seen, "gives"), ["anna", "bert", "emil", "fred"]);
    assert_eq!(texts(&seen, "rejects"), ["carl", "dora"]);
    assert_eq!(classes(&seen, "rejects"), [1, 3]);
}

#[test]
fn copies_made_of_what_is_rejected_go_with_the_batch() {
    let text = vec![b'a'; 64 << 10];
    let blocks: Vec<(u32, &[u8])> = (0..2000).map(|_| (0, &text[..])).collect();
    // Rejected by a filter in place, and by one that gives new blocks.
    for in_place in [true, false] {
        let mut graph = Graph::default();
        let source = graph.source(&blocks);
        let rejects = match in_place {
            true => graph.in_place("none", Keep { like: |_| false, set_class: false }),
            false => graph.maker("all", Instance::session(SessionKey::Class, OnlyFirst)),
        };
        let (shout, loud, plain) = (graph.in_place("shout", Shout), graph.sink("loud"), graph.sink("plain"));
        graph.edge(source, rejects);
        graph.edge(source, plain);
        graph.rejected(rejects, shout, None);
        graph.edge(shout, loud);
        let seen = graph.seen.clone();
        let memory = graph.run_and_measure();
        assert!(memory < 32 << 20, "{memory} bytes of rings after 128 MB of copies");
        assert!(texts(&seen, "plain").iter().all(|text| text.starts_with('a')), "nobody else sees what was written");
        assert!(texts(&seen, "loud").iter().all(|text| text.starts_with('A')));
    }
}

#[test]
fn edges_of_rejects_are_watched_by_themselves() {
    let keep = Keep { like: |first| first == b'b' || first == b'd', set_class: true };
    let (graph, [_, filter, ..]) = sorted(|graph| graph.in_place("keep", keep), &WORDS);
    let (all, rest) = (Ring::new(), Ring::new());
    let of = |edge| Edges { from: filter.index(), edge };
    let watches = [all.watch(&[of(None)], true), rest.watch(&[of(Some(1))], true)];
    let mut readers = [all.reader(), rest.reader()];
    let mut worker = graph.worker();
    assert!(watches.into_iter().all(|watch| worker.watch(watch)));
    assert!(!worker.watch(Ring::new().watch(&[of(Some(2))], true)), "there is no such edge");
    worker.run(&StopFlag::new(), &mut |_| {}).unwrap();
    let words = |seen: Vec<(u64, u32, String)>| seen.into_iter().map(|(_, _, text)| text).collect::<Vec<_>>();
    assert_eq!(words(watching::all(&mut readers[0]).0), ["bert", "dora"]);
    assert_eq!(words(watching::all(&mut readers[1]).0), ["anna", "carl", "emil", "fred"]);
}

#[test]
fn a_plan_that_takes_anothers_place_may_want_what_is_rejected() {
    let blocks = [(0, &b"a"[..]), (0, b"x")].repeat(32 * 2000);
    let keep = || Keep { like: |first| first == b'a', set_class: false };
    let (first, _) = sorted(|graph| graph.in_place("keep", keep()), &blocks);
    let seen = first.seen.clone();
    // First without the edge for rejected blocks, then with one to another sink: the filter goes on.
    let plan = |with: bool| {
        let mut graph = Graph::beside(&seen);
        let source = graph.source(&[]);
        let filter = graph.in_place("keep", keep());
        let gives = graph.sink("gives");
        graph.edge(source, filter);
        graph.edge(filter, gives);
        if with {
            let again = graph.sink("again");
            graph.rejected(filter, again, None);
        }
        let (plan, instances) = graph.taken();
        let kept = (0..3).map(Part::Kept);
        (plan, kept.chain(instances.into_iter().skip(3).map(Part::New)).collect())
    };
    let mut worker = first.worker();
    let mut waiting = Vec::new();
    worker
        .run(&StopFlag::new(), &mut |worker| {
            if waiting.len() < 2 {
                let (done, is_done) = sync_channel(1);
                let (plan, parts) = plan(waiting.len() == 1);
                worker.replace(Replacement { plan, parts, copies: vec![], hand_overs: vec![], done });
                waiting.push(is_done);
            }
        })
        .unwrap();
    assert!(waiting.len() == 2 && waiting.iter().all(|done| done.try_recv().is_ok()));
    let past = worker.take_replaced_reports();
    past.iter().for_each(|past| past.check().unwrap());
    let report = worker.report();
    report.check().unwrap();
    let [sent, again] =
        [&past[0], &report].map(|report| *report.nodes[1].edges.iter().find(|edge| edge.rejected).unwrap());
    assert!(past[1].nodes[1].edges.iter().all(|edge| !edge.rejected));
    assert!(again.before > sent.blocks && again.blocks > 0, "{sent:?} {again:?}");
    assert_eq!(texts(&seen, "rejects").len() as u64, sent.blocks);
    assert_eq!(texts(&seen, "again").len() as u64, again.blocks);
    let counters = &report.nodes[1].counters;
    assert_eq!((counters.blocks_passed, counters.blocks_rejected), (32 * 2000, 32 * 2000));
}
