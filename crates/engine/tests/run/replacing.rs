//! Plans that replace a running one: nodes that go on keep their state and numbers, retired nodes are finished, new
//! nodes begin, and the counters of all of them add up.

use crate::parts::{Graph, Keep, Seen, exactly, texts};
use crate::watching::{self, Ring};
use base::atomic::StopFlag;
use base::id::Class;
use engine::{Choice, End, HandOver, Part, Replaced, Replacement, Report, Worker};
use filter::prelude::*;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A device whose packets are numbers, as text. All its readers read the same packets.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<u64>>);

impl Device {
    fn come(&self, count: u64) {
        *self.0.lock().unwrap() += count;
    }

    fn reader(&self, begin: u64) -> Reader {
        Reader { device: self.clone(), next: begin, end: u64::MAX, most: 3, booked: begin }
    }
}

struct Reader {
    device: Device,
    next: u64,
    end: u64,
    /// Most packets given at a time.
    most: u64,
    /// Packets that it has counted when it was asked to.
    booked: u64,
}

impl Source for Reader {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let there = (*self.device.0.lock().unwrap()).min(self.end);
        for _ in 0..self.most.min(there.saturating_sub(self.next)) {
            let mut block = cx.rings.append_copy(cx.own, &[self.next.to_string().as_bytes()]).unwrap();
            block.class = Class((self.next % 2) as u32);
            cx.emit(block);
            self.next += 1;
        }
        Ok(match self.next {
            next if next >= self.end => Pull::End,
            next if next < there => Pull::Ready,
            _ => Pull::Idle(Duration::ZERO),
        })
    }

    fn stop(&mut self) -> bool {
        self.end = self.end.min(*self.device.0.lock().unwrap());
        true
    }

    fn position(&self) -> Option<u64> {
        Some(self.next)
    }

    fn end_before(&mut self, number: u64) -> bool {
        self.end = self.end.min(number);
        true
    }

    fn begin_at(&mut self, number: u64) {
        self.next = self.next.max(number);
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        cx.count("booked", self.next - self.booked);
        self.booked = self.next;
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.account(cx);
    }
}

struct Tally(u64);

impl Filter for Tally {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        self.0 += u64::from(batch.count());
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let block = cx.rings.append_copy(cx.own, &[format!("{} blocks", self.0).as_bytes()]).unwrap();
        cx.emit(block);
        Ok(Status::Done)
    }
}

fn all() -> Keep {
    Keep { like: |_| true, set_class: false }
}

/// A step between two batches.
type Look = Box<dyn FnMut(&mut Worker)>;

/// Runs a graph with one of `looks` after each batch, and stops it after the last.
fn run(graph: Graph, mut looks: Vec<Look>) -> (Report, Vec<Report>) {
    let stop = StopFlag::new();
    let mut worker = graph.worker();
    looks.reverse();
    let end = worker.run(&stop, &mut |worker| match looks.pop() {
        Some(mut look) => look(worker),
        None => stop.stop(),
    });
    assert_eq!(end, Ok(End::Stopped));
    let (report, past) = (worker.report(), worker.take_replaced_reports());
    for report in past.iter().chain([&report]) {
        report.check().unwrap();
        assert_eq!(report.traffic.faults, 0);
    }
    (report, past)
}

/// A replacement by a graph's plan. `kept` replaces those of its parts that go on.
fn replacement(graph: Graph, kept: &[(usize, usize)], hand_overs: Vec<HandOver>) -> (Replacement, Receiver<Replaced>) {
    let (plan, instances) = graph.taken();
    let mut parts: Vec<Part> = instances.into_iter().map(Part::New).collect();
    for (new, old) in kept {
        parts[*new] = Part::Kept(*old);
    }
    let (done, is_done) = sync_channel(1);
    (Replacement { plan, parts, copies: Vec::new(), hand_overs, done }, is_done)
}

fn numbers(seen: &Seen, sink: &str) -> Vec<u64> {
    texts(seen, sink).iter().filter_map(|text| text.parse().ok()).collect()
}

#[test]
fn what_goes_on_keeps_its_state_and_what_is_retired_is_finished() {
    let device = Device::default();
    let mut graph = Graph::default();
    let source = graph.broken_source(device.reader(0));
    let (tally, old_tally) =
        (graph.maker("tally", Instance::filter(Tally(0))), graph.maker("old", Instance::filter(Tally(0))));
    let (kept, old) = (graph.sink("kept"), graph.sink("old"));
    for (from, to) in [(source, tally), (source, old_tally), (tally, kept), (old_tally, old)] {
        graph.edge(from, to);
    }
    let seen = Arc::clone(&graph.seen);
    let mut next = Graph::beside(&seen);
    let source = next.broken_source(device.reader(0));
    let new_tally = next.maker("new", Instance::filter(Tally(0)));
    let tally = next.maker("tally", Instance::filter(Tally(0)));
    let (new, kept) = (next.sink("new"), next.sink("kept"));
    for (from, to) in [(source, tally), (source, new_tally), (tally, kept), (new_tally, new)] {
        next.edge(from, to);
    }
    let (replacement, is_done) = replacement(next, &[(0, 0), (2, 1), (4, 3)], Vec::new());
    let mut replacement = Some(replacement);
    device.come(10);
    let wait = || Box::new(|_: &mut Worker| {}) as Look;
    let more = device.clone();
    let (report, past) = run(
        graph,
        vec![
            wait(),
            Box::new(move |worker| worker.replace(replacement.take().unwrap())),
            Box::new(move |_| more.come(5)),
            wait(),
        ],
    );
    assert!(is_done.try_recv().is_ok());
    assert_eq!(texts(&seen, "old"), ["10 blocks"], "it is finished when it is replaced");
    assert_eq!((texts(&seen, "new"), texts(&seen, "kept")), (vec!["5 blocks".into()], vec!["15 blocks".into()]));
    assert_eq!(past.len(), 1);
    assert_eq!((past[0].nodes[0].counters.blocks_made, report.nodes[0].counters.blocks_made), (10, 15));
    let booked = |report: &Report| report.nodes[0].counters.events.get("booked");
    assert_eq!((booked(&past[0]), booked(&report)), (10, 15), "who goes on is asked for its books, too");
    let edges = &report.nodes[0].edges;
    assert_eq!((edges[0].blocks, edges[0].before, edges[1].blocks, edges[1].before), (15, 0, 5, 10));
}

/// Other filters lead to a sink from now on. It learns of that behind the old filters' last blocks, and starts counting
/// again.
#[test]
fn a_sink_goes_on_where_others_lead_to_it() {
    struct Note(Arc<Mutex<Vec<String>>>);
    impl Filter for Note {
        fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
            let texts = batch.iter().map(|(_, block)| String::from_utf8_lossy(cx.rings.bytes(block)).into_owned());
            self.0.lock().unwrap().extend(texts);
            Ok(Status::Done)
        }

        fn restart(&mut self, _cx: &mut Context<'_>) -> Made {
            self.0.lock().unwrap().push("restart".into());
            Ok(Status::Done)
        }

        fn finish(&mut self, _cx: &mut Context<'_>) -> Made {
            self.0.lock().unwrap().push("end".into());
            Ok(Status::Done)
        }
    }
    let device = Device::default();
    let notes = Arc::<Mutex<Vec<String>>>::default();
    let plan = |tallies: usize, seen: &Seen| {
        let mut graph = Graph::beside(seen);
        let source = graph.broken_source(device.reader(0));
        let tallies: Vec<_> = (0..tallies).map(|_| graph.maker("tally", Instance::filter(Tally(0)))).collect();
        let sink = graph.in_place("note", Note(Arc::clone(&notes)));
        for tally in tallies {
            graph.edge(source, tally);
            graph.edge(tally, sink);
        }
        graph
    };
    let seen = Seen::default();
    let (mut replacement, is_done) = replacement(plan(2, &seen), &[(0, 0)], Vec::new());
    replacement.parts[3] = Part::Restarts(2);
    let mut replacement = Some(replacement);
    device.come(4);
    let more = device.clone();
    let (report, past) = run(
        plan(1, &seen),
        vec![
            Box::new(|_| {}),
            Box::new(move |worker| worker.replace(replacement.take().unwrap())),
            Box::new(move |_| more.come(2)),
            Box::new(|_| {}),
        ],
    );
    assert!(is_done.try_recv().is_ok());
    assert_eq!(*notes.lock().unwrap(), ["4 blocks", "restart", "2 blocks", "2 blocks", "end"]);
    assert_eq!((past[0].nodes[2].counters.blocks_in, report.nodes[3].counters.blocks_in), (1, 2));
}

#[test]
fn sources_of_one_device_take_turns_at_one_packet() {
    // The new reader knows all packets from 4 or 7 on. By then the old one has given some of 10, or all.
    for (first, begin) in [(4, 2), (7, 0), (10, 10)] {
        let device = Device::default();
        let mut graph = Graph::default();
        let source = graph.broken_source(Reader { most: 2, ..device.reader(0) });
        let sink = graph.sink("old");
        graph.edge(source, sink);
        let seen = Arc::clone(&graph.seen);
        let mut next = Graph::beside(&seen);
        let source = next.broken_source(device.reader(begin));
        let sink = next.sink("new");
        next.edge(source, sink);
        let (replacement, is_done) = replacement(next, &[], vec![HandOver { from: vec![0], to: vec![0], first }]);
        let mut replacement = Some(replacement);
        device.come(5);
        let more = device.clone();
        run(
            graph,
            vec![
                Box::new(move |worker| {
                    more.come(5);
                    worker.replace(replacement.take().unwrap());
                }),
                Box::new(|_| {}),
                Box::new(|_| {}),
            ],
        );
        assert!(is_done.try_recv().is_ok());
        let (old, new) = (numbers(&seen, "old"), numbers(&seen, "new"));
        let both: Vec<u64> = old.iter().chain(&new).copied().collect();
        assert_eq!(both, (0..10).collect::<Vec<_>>(), "{old:?}, then {new:?}");
        assert!(old.len() as u64 >= first.min(10) && old.len() >= 5);
    }
}

#[test]
fn choices_go_on_with_their_operands_and_edges_with_other_classes_are_new() {
    let device = Device::default();
    let plan = |class: u32, sink: &'static str, seen: &Seen| {
        let mut graph = Graph::beside(seen);
        let source = graph.broken_source(device.reader(0));
        let operand = graph.in_place("operand", all());
        let choice = graph.choose(Choice::Filter(operand));
        let sink = graph.sink(sink);
        graph.edge(source, choice);
        graph.selected(choice, sink, Some(exactly(class)));
        graph
    };
    let seen = Seen::default();
    let (replacement, _done) = replacement(plan(1, "odd", &seen), &[(0, 0), (1, 1), (2, 2)], Vec::new());
    let mut replacement = Some(replacement);
    device.come(6);
    let more = device.clone();
    let (report, _) = run(
        plan(0, "even", &seen),
        vec![
            Box::new(|_| {}),
            Box::new(move |worker| worker.replace(replacement.take().unwrap())),
            Box::new(move |_| more.come(6)),
            Box::new(|_| {}),
        ],
    );
    assert_eq!((numbers(&seen, "even"), numbers(&seen, "odd")), (vec![0, 2, 4], vec![7, 9, 11]));
    assert_eq!(report.nodes[1].counters.blocks_in, 12, "the operand saw all of them");
}

#[test]
fn who_watches_what_goes_on_goes_on_and_who_watches_what_is_retired_comes_to_the_end() {
    let device = Device::default();
    let plan = |sinks: [&'static str; 2], seen: &Seen| {
        let mut graph = Graph::beside(seen);
        let source = graph.broken_source(device.reader(0));
        let filter = graph.in_place("all", all());
        let sinks = sinks.map(|sink| graph.sink(sink));
        graph.edge(source, filter);
        sinks.into_iter().for_each(|sink| graph.edge(filter, sink));
        graph
    };
    let seen = Seen::default();
    // The filter's edge to `both` is its first edge, and then its second.
    let (replacement, _done) = replacement(plan(["new", "both"], &seen), &[(0, 0), (1, 1), (3, 2)], Vec::new());
    let mut replacement = Some(replacement);
    let rings = [Ring::new(), Ring::new(), Ring::new()];
    let places = [(0, None), (1, Some(0)), (1, Some(1))];
    let watches: Vec<engine::Watch> = rings
        .iter()
        .zip(places)
        .map(|(ring, (from, edge))| ring.watch(&[engine::Edges { from, edge }], true))
        .collect();
    let mut readers: Vec<_> = rings.iter().map(Ring::reader).collect();
    let mut watches = Some(watches);
    let (some, more) = (device.clone(), device.clone());
    run(
        plan(["both", "old"], &seen),
        vec![
            Box::new(move |worker| {
                watches.take().unwrap().into_iter().for_each(|watch| assert!(worker.watch(watch)));
                some.come(3);
            }),
            Box::new(move |worker| worker.replace(replacement.take().unwrap())),
            Box::new(move |_| more.come(2)),
            Box::new(|_| {}),
        ],
    );
    assert_eq!((numbers(&seen, "both").len(), numbers(&seen, "old").len(), numbers(&seen, "new").len()), (5, 3, 2));
    let found = readers.iter_mut().map(|reader| watching::all(reader).0.len());
    assert_eq!(found.collect::<Vec<_>>(), [5, 5, 3]);
}

#[test]
fn a_thousand_replacements_leave_no_memory() {
    let device = Device::default();
    let plan = |seen: &Seen| {
        let mut graph = Graph::beside(seen);
        let source = graph.broken_source(device.reader(0));
        let tally = graph.maker("tally", Instance::filter(Tally(0)));
        let sink = graph.sink("sink");
        graph.edge(source, tally);
        graph.edge(tally, sink);
        graph
    };
    let (seen, stop) = (Seen::default(), StopFlag::new());
    let (mut given, mut memory) = (0, Vec::new());
    let mut worker = plan(&seen).worker();
    let end = worker.run(&stop, &mut |worker| {
        if worker.replaced() < given {
            return;
        }
        if given == 1000 {
            return stop.stop();
        }
        let hand_over = HandOver { from: vec![0], to: vec![0], first: 0 };
        let (replacement, _) = replacement(plan(&seen), &[], vec![hand_over]);
        device.come(1);
        memory.push(worker.memory_bytes());
        worker.replace(replacement);
        given += 1;
    });
    assert_eq!(end, Ok(End::Stopped));
    assert_eq!(worker.take_replaced_reports().len(), base::limits::REPLACED_REPORTS, "no more are kept");
    let texts = texts(&seen, "sink");
    let counted = texts.iter().map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!((texts.len(), counted.sum::<u64>()), (1001, 1000), "each packet came to one of them");
    let most = memory[10..20].iter().max().unwrap();
    assert!(memory[999] <= *most, "{most} and then {}", memory[999]);
}

#[test]
fn a_run_that_ends_first_says_so() {
    let mut graph = Graph::default();
    let source = graph.source(&[(0, b"a")]);
    let sink = graph.sink("sink");
    graph.edge(source, sink);
    let mut next = Graph::default();
    let source = next.source(&[(0, b"b")]);
    let sink = next.sink("sink");
    next.edge(source, sink);
    let (replacement, is_done) = replacement(next, &[], Vec::new());
    let mut worker = graph.worker();
    let mut replacement = Some(replacement);
    worker.run(&StopFlag::new(), &mut |worker| replacement.take().into_iter().for_each(|r| worker.replace(r))).unwrap();
    assert!(is_done.recv().is_err(), "nobody waits for ever");
}
