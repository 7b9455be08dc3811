//! Plans of several stages: each in a thread of its own, joined by channels.

use crate::parts::{Graph, Keep, Shout, exactly, texts};
use base::atomic::StopFlag;
use base::id::Class;
use engine::End;
use filter::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::packets::{CLIENT, SERVER, udp};

struct Numbered {
    next: u64,
    count: u64,
    gave: Arc<AtomicU64>,
}

fn numbered(count: u64) -> Numbered {
    Numbered { next: 0, count, gave: Arc::default() }
}

impl Source for Numbered {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        for _ in 0..100.min(self.count - self.next) {
            let mut block = cx.rings.append_copy(cx.own, &[&self.next.to_le_bytes(), &[7; 100]]).unwrap();
            (block.time, block.class) = (self.next * 1000, Class(self.next as u32 % 3));
            cx.emit(block);
            self.next += 1;
        }
        self.gave.store(self.next, Ordering::Relaxed);
        Ok(if self.next == self.count { Pull::End } else { Pull::Ready })
    }
}

struct Stalls {
    seed: u64,
    held: Vec<Descriptor>,
}

fn stalls(seed: u64) -> Stalls {
    Stalls { seed, held: Vec::new() }
}

impl Filter for Stalls {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match self.seed >> 56 {
            0 => std::thread::sleep(Duration::from_millis(2)),
            1..20 => std::thread::yield_now(),
            _ => {}
        }
        for (place, block) in batch.iter() {
            if place % 5 == 0 {
                self.held.extend(cx.rings.hold(block));
            }
        }
        while self.held.len() > 300 {
            let block = self.held.remove(0);
            assert_eq!(cx.rings.bytes(&block).len(), block.len as usize, "held in another thread");
            assert!(cx.rings.bytes(&block).get(8..).is_none_or(|bytes| [&[7; 100][..], b"end", b""].contains(&bytes)));
            cx.rings.release(&block);
        }
        Ok(Status::Done)
    }
}

struct InOrder(Arc<AtomicU64>);

impl Filter for InOrder {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let bytes = cx.rings.bytes(block);
            let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert_eq!(number, self.0.fetch_add(1, Ordering::Relaxed));
            assert_eq!((block.time, block.class.0, &bytes[8..]), (number * 1000, number as u32 % 3, &[7; 100][..]));
        }
        Ok(Status::Done)
    }
}

#[test]
fn numbered_blocks_come_in_order_through_any_number_of_stages() {
    const COUNT: u64 = 100_000;
    for stages in 1..=4 {
        for seed in 0..3 {
            let mut graph = Graph::default();
            let mut last = graph.broken_source(numbered(COUNT));
            for stage in 0..4 {
                let filter = graph.modest("stalls", stalls(seed * 10 + stage));
                if stage < stages - 1 {
                    graph.cut(last, filter)
                } else {
                    graph.edge(last, filter)
                }
                last = filter;
            }
            let seen = Arc::new(AtomicU64::new(0));
            let sink = graph.in_place("in order", InOrder(Arc::clone(&seen)));
            graph.edge(last, sink);
            let (end, report) = graph.run();
            assert_eq!((end, seen.load(Ordering::Relaxed)), (Ok(End::Input), COUNT), "{stages} stages");
            assert!(report.nodes.iter().skip(1).all(|node| node.counters.blocks_in == COUNT), "{stages} stages");
        }
    }
}

#[test]
fn branches_and_classes_are_those_of_one_stage() {
    let words: [(u32, &[u8]); 4] = [(1, b"anna"), (2, b"bert"), (1, b"carl"), (3, b"dora")];
    let run = |cut: bool| {
        let mut graph = Graph::default();
        let source = graph.source(&words);
        let early = graph.in_place("early", Keep { like: |first| first < b'd', set_class: false });
        let shout = graph.in_place("shout", Shout);
        let (one, rest, late) = (graph.sink("one"), graph.sink("rest"), graph.sink("late"));
        graph.edge(source, early);
        if cut {
            graph.cut(early, shout)
        } else {
            graph.edge(early, shout)
        }
        graph.selected(shout, one, Some(exactly(1)));
        graph.selected(shout, rest, Some(engine::Select::Otherwise(vec![exactly(1)])));
        graph.rejected(early, late, None);
        let seen = Arc::clone(&graph.seen);
        let (end, report) = graph.run();
        assert_eq!(end, Ok(End::Input));
        let nodes: Vec<_> = report.nodes.iter().map(|node| format!("{:?} {:?}", node.counters, node.edges)).collect();
        (["one", "rest", "late"].map(|sink| texts(&seen, sink)), nodes)
    };
    assert_eq!(run(false), run(true), "counted alike, too");
}

/// Wants this number of blocks and no more; or fails, or panics, there.
struct Ends {
    left: u64,
    how: fn() -> Made,
}

impl Filter for Ends {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        self.left = self.left.saturating_sub(u64::from(batch.count()));
        if self.left == 0 { (self.how)() } else { Ok(Status::Done) }
    }
}

/// An endless source, several stages, and a sink that ends by itself. A further stage beside it goes on.
fn ending(how: fn() -> Made, stop: &StopFlag) -> (Result<End, Box<Failure>>, u64) {
    let mut graph = Graph::default();
    let source = numbered(u64::MAX);
    let gave = Arc::clone(&source.gave);
    let source = graph.broken_source(source);
    let middle = graph.modest("middle", stalls(1));
    let ends = graph.modest("ends", Ends { left: 10_000, how });
    graph.cut(source, middle);
    graph.cut(middle, ends);
    let (end, _) = graph.run_until(stop);
    (end, gave.load(Ordering::Relaxed))
}

#[test]
fn who_wants_no_more_ends_all_stages() {
    let (end, gave) = ending(|| Ok(Status::Finished), &StopFlag::new());
    assert_eq!(end, Ok(End::Enough));
    assert!(gave < 100_000, "{gave}");
}

#[test]
fn a_stage_that_fails_ends_the_run_with_its_error() {
    let (end, _) = ending(|| Err(Box::new(Failure::System("cut".into()))), &StopFlag::new());
    assert_eq!(end, Err(Box::new(Failure::System("cut".into()))));
}

#[test]
#[should_panic(expected = "a stage panicked")]
fn a_stage_that_panics_ends_the_others() {
    let _ = std::panic::catch_unwind(|| ending(|| panic!("in a stage"), &StopFlag::new()))
        .map_err(|_| panic!("a stage panicked"));
}

#[test]
fn a_wish_to_stop_ends_all_stages_and_nothing_under_way_is_lost() {
    let mut graph = Graph::default();
    let source = numbered(u64::MAX);
    let gave = Arc::clone(&source.gave);
    let source = graph.broken_source(source);
    let middle = graph.modest("middle", stalls(1));
    let seen = Arc::new(AtomicU64::new(0));
    let sink = graph.in_place("in order", InOrder(Arc::clone(&seen)));
    graph.cut(source, middle);
    graph.cut(middle, sink);
    let stop = StopFlag::new();
    let asked = stop.clone();
    let asking = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        asked.stop();
    });
    let (end, _) = graph.run_until(&stop);
    asking.join().unwrap();
    assert_eq!(end, Ok(End::Stopped));
    assert_eq!(seen.load(Ordering::Relaxed), gave.load(Ordering::Relaxed));
}

// --- partitions of the flows ---

/// Gives numbered UDP frames of a few hundred flows.
#[derive(Default)]
pub struct Frames {
    pub next: u64,
    pub count: u64,
    pub view: Option<buffer::ViewId>,
}

impl Source for Frames {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let ethernet = buffer::Interface { link_type: Some(1), ..buffer::Interface::default() };
        let view = *self.view.get_or_insert_with(|| {
            let segment = cx.rings.add_append_ring();
            cx.rings.add_view(segment, ethernet).unwrap()
        });
        for _ in 0..200.min(self.count - self.next) {
            let port = 1000 + (self.next * 7919 % 331) as u16;
            let frame = udp((CLIENT.0, port), SERVER, &self.next.to_le_bytes());
            let mut block = cx.rings.append_copy(view, &[&frame]).unwrap();
            // Time stands still now and then, and also goes back.
            block.time = 1_000_000_000 + self.next / 50 * 1_000_000 - self.next % 3 * 1000;
            cx.emit(block);
            self.next += 1;
        }
        Ok(if self.next == self.count { Pull::End } else { Pull::Ready })
    }
}

/// Makes streams: gives the number in each frame. When a flow ends, or was silent for long, gives the flow's last
/// block. Stalls now and then.
#[derive(Default)]
struct Flows {
    stalls: u64,
    /// Port, the run that last touched it, and its last number; the longest silence first.
    known: Vec<(u16, u64, u64)>,
}

impl Flows {
    fn end(&mut self, since: u64, cx: &mut Context<'_>) -> Made {
        while self.known.first().is_some_and(|(_, seen, _)| *seen <= since) {
            if cx.order.is_partition && !cx.out.is_empty() {
                return Ok(Status::More);
            }
            let (port, _, touched) = self.known.remove(0);
            cx.order.ends = touched;
            let end = cx.rings.append_copy(cx.own, &[&u64::from(port).to_le_bytes(), b"end"]).unwrap();
            cx.emit(end);
        }
        Ok(Status::Done)
    }
}

impl Filter for Flows {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.stalls = self.stalls.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match self.stalls >> 54 {
            0 => std::thread::sleep(Duration::from_millis(2)),
            1..90 => std::thread::yield_now(),
            _ => {}
        }
        for (_, block) in batch.iter() {
            let bytes = cx.rings.bytes(block);
            let port = u16::from_be_bytes([bytes[34], bytes[35]]);
            self.known.retain(|(known, ..)| *known != port);
            self.known.push((port, cx.now, cx.order.sequence));
            // Some frames give no block, others two.
            for _ in 0..bytes[42] % 3 {
                let mut number = block.part(42, 8);
                number.time = block.time;
                cx.emit(number);
            }
        }
        cx.wake_at(self.known.first().map_or(u64::MAX, |(_, seen, _)| seen + 2_000_000));
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        let status = self.end(cx.now.saturating_sub(2_000_000), cx);
        cx.wake_at(self.known.first().map_or(u64::MAX, |(_, seen, _)| seen + 2_000_000));
        status
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.end(u64::MAX, cx)
    }
}

/// The numbered frames that a sink sees with this number of partitions, and the number of blocks that came to each filter.
fn shared(count: u64, workers: usize, seed: u64) -> (Vec<Vec<u8>>, Vec<u64>) {
    let mut graph = Graph::default();
    let source = graph.broken_source(Frames { count, ..Frames::default() });
    let flows = graph.streams("flows", Flows { stalls: seed, ..Flows::default() });
    let passes = graph.modest("passes", stalls(3));
    let sink = graph.sink("sink");
    graph.edge(source, flows);
    graph.edge(flows, passes);
    graph.edge(passes, sink);
    let seen = Arc::clone(&graph.seen);
    let (mut plan, instances) = graph.taken();
    plan.workers = engine::Workers::Partitions(workers);
    let copy = |partition: usize| {
        let flows = Instance::filter(Flows { stalls: seed + partition as u64, ..Flows::default() });
        vec![None, Some(flows), Some(Instance::filter(stalls(3))), None]
    };
    let mut worker = engine::Worker::with_copies(&plan, instances, (1..workers).map(copy).collect()).unwrap();
    assert_eq!(worker.run(&StopFlag::new(), &mut |_| {}), Ok(End::Input));
    let report = worker.report();
    report.check().unwrap();
    let came = report.nodes.iter().map(|node| node.counters.blocks_in).collect();
    let seen = seen.lock().unwrap().iter().map(|(_, _, bytes)| bytes.clone()).collect();
    (seen, came)
}

/// A source, filters in place and a sink in a row. `ns` has the cost of a block for each filter.
fn costly(ns: &[u32]) -> engine::Plan {
    let mut graph = Graph::default();
    let mut last = graph.broken_source(numbered(1));
    for _ in ns {
        let next = graph.modest("filter", stalls(0));
        graph.edge(last, next);
        last = next;
    }
    let sink = graph.sink("sink");
    graph.edge(last, sink);
    let (mut plan, _) = graph.taken();
    for (node, ns) in plan.nodes[1..].iter_mut().zip(ns) {
        node.how.cost = Some(engine::Cost { ns: *ns, gives: 1000, is_measured: true });
    }
    plan.processors = 3;
    plan
}

#[test]
fn a_pipeline_is_cut_where_costs_are_balanced() {
    let rows: [(&[u32], &[usize]); 5] = [
        (&[1000, 1000, 1000], &[2, 1, 2]),
        (&[3000, 500, 500, 3000], &[2, 2, 2]),
        (&[10, 10], &[3, 1]),
        (&[9000, 10], &[4]),
        (&[1000; 6], &[3, 2, 3]),
    ];
    for (costs, wanted) in rows {
        let mut plan = costly(costs);
        plan.workers = engine::Workers::Pipeline;
        let stages = engine::Stages::of(&plan);
        let nodes: Vec<usize> = stages.stages.iter().map(|stage| stage.nodes.len()).collect();
        assert_eq!(nodes, wanted, "{costs:?}: {:?} {:?}", stages.why, stages.undivided);
        plan.processors = 1;
        assert_eq!(engine::Stages::of(&plan).threads(), 1, "one processor");
    }
}

#[test]
fn auto_takes_threads_only_where_they_pay() {
    let mut plan = costly(&[50, 5000, 50]);
    plan.workers = engine::Workers::Auto;
    assert_eq!(engine::Stages::of(&plan).threads(), 5, "copies of the costly one");
    plan.nodes[2].how.cost = Some(engine::Cost { ns: 100, gives: 1000, is_measured: true });
    assert_eq!(engine::Stages::of(&plan).threads(), 1, "cheap");
    plan.nodes[2].how.cost = Some(engine::Cost { ns: 5000, gives: 1000, is_measured: true });
    plan.nodes[1].how.cost = Some(engine::Cost { ns: 50, gives: 1, is_measured: true });
    assert_eq!(engine::Stages::of(&plan).threads(), 1, "almost nothing comes to it");
    plan.nodes.iter_mut().for_each(|node| node.how.cost = None);
    assert_eq!(engine::Stages::of(&plan).threads(), 1, "nothing is known");
}

#[test]
fn batches_in_turn_stay_in_order_through_shares_that_stall() {
    const COUNT: u64 = 50_000;
    for threads in 2..=4 {
        for seed in 0..3 {
            let mut graph = Graph::default();
            let source = graph.broken_source(numbered(COUNT));
            // Two filters with the same partitions.
            let (first, second) = (graph.modest("first", stalls(seed)), graph.modest("second", stalls(seed + 10)));
            let seen = Arc::new(AtomicU64::new(0));
            let sink = graph.in_place("in order", InOrder(Arc::clone(&seen)));
            graph.edge(source, first);
            graph.edge(first, second);
            graph.edge(second, sink);
            let (mut plan, instances) = graph.taken();
            plan.nodes[1].how.spread = threads;
            plan.nodes[2].how.spread = threads;
            plan.queue = if seed % 2 == 1 { engine::Queue::FastForward } else { engine::Queue::Indexed };
            assert_eq!(engine::Stages::of(&plan).threads(), threads + 2);
            let copy = |partition: usize| {
                let stalls = |more| Some(Instance::filter(stalls(seed * 100 + partition as u64 + more)));
                vec![None, stalls(0), stalls(50), None]
            };
            let mut worker = engine::Worker::with_copies(&plan, instances, (1..threads).map(copy).collect()).unwrap();
            assert_eq!(worker.run(&StopFlag::new(), &mut |_| {}), Ok(End::Input));
            let report = worker.report();
            report.check().unwrap();
            assert_eq!(seen.load(Ordering::Relaxed), COUNT, "{threads} threads");
            let partitions = &report.stages[1].blocks;
            assert!(partitions.iter().all(|blocks| *blocks >= COUNT / (2 * threads as u64)), "{partitions:?}");
        }
    }
}

#[test]
fn shares_give_what_one_thread_gives_in_its_order() {
    let one = shared(20_000, 1, 0);
    assert!(one.0.len() > 20_000);
    for workers in 2..=4 {
        for seed in 1..3 {
            let several = shared(20_000, workers, seed);
            let differs = several.0.iter().zip(&one.0).position(|(several, one)| several != one);
            assert_eq!((differs, several.0.len()), (None, one.0.len()), "{workers} workers");
            assert_eq!(several.1, one.1, "{workers} workers");
        }
    }
}

// --- branches ---

/// Sends blocks along edges by their number.
struct Divides;

impl Filter for Divides {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (place, block) in batch.iter() {
            let number = cx.rings.bytes(block)[0];
            cx.marks.branches[place] =
                if number.is_multiple_of(7) { filter::marks::LEAST_LOADED } else { u16::from(number % 5) };
        }
        Ok(Status::Done)
    }
}

static DIVIDES: Kind = Kind::new("divides", "", |_, _| unreachable!()).splits();

#[test]
fn each_block_goes_along_one_edge_in_order_and_by_channels_too() {
    const COUNT: u64 = 20_000;
    for cut in [false, true] {
        let mut graph = Graph::default();
        let source = graph.broken_source(numbered(COUNT));
        let divides = graph.in_place("divides", Divides);
        graph.edge(source, divides);
        let mut branch = |seed| {
            let branch = graph.modest("branch", stalls(seed));
            if cut {
                graph.cut(divides, branch)
            } else {
                graph.edge(divides, branch)
            }
            branch
        };
        let branches = [branch(1), branch(2), branch(3)];
        let seen = Arc::new(AtomicU64::new(0));
        if !cut {
            let sink = graph.in_place("in order", InOrder(Arc::clone(&seen)));
            branches.into_iter().for_each(|branch| graph.edge(branch, sink));
        }
        let (mut plan, instances) = graph.taken();
        if let engine::Task::Filter { kind, .. } = &mut plan.nodes[1].task {
            *kind = &DIVIDES;
        }
        let mut worker = engine::Worker::new(&plan, instances);
        assert_eq!(worker.run(&StopFlag::new(), &mut |_| {}), Ok(End::Input));
        let report = worker.report();
        report.check().unwrap();
        let came: Vec<u64> = report.nodes[2..5].iter().map(|node| node.counters.blocks_in).collect();
        assert!(came.iter().all(|blocks| *blocks > COUNT / 10), "{came:?}");
        assert_eq!(came.iter().sum::<u64>(), COUNT);
        assert_eq!(report.stages.len(), if cut { 4 } else { 0 });
        assert_eq!(seen.load(Ordering::Relaxed), if cut { 0 } else { COUNT });
    }
}
