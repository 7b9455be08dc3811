//! Plans in stages and partitions replace each other again and again while numbered frames go through. No frame is lost,
//! doubled or out of order. Nodes that go on keep their state, and all counters add up.

use crate::parts::Graph;
use base::atomic::StopFlag;
use base::id::Class;
use engine::{End, HandOver, Part, Plan, Replacement, Worker, Workers, stages_fit};
use filter::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;
use testkit::packets::{CLIENT, SERVER, facts, udp};

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// A device with endless numbered frames that pauses now and then.
struct Frames {
    next: u64,
    end: u64,
    pulls: u64,
    ring: Option<(buffer::SegmentId, buffer::ViewId)>,
    is_over: Arc<AtomicBool>,
}

impl Source for Frames {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let ethernet = buffer::Interface { link_type: Some(1), ..buffer::Interface::default() };
        let (segment, view) = *self.ring.get_or_insert_with(|| {
            let segment = cx.rings.add_append_ring();
            (segment, cx.rings.add_view(segment, ethernet).unwrap())
        });
        cx.rings.recycle(segment);
        for _ in 0..30.min(self.end - self.next) {
            let port = 1000 + (self.next * 7919 % 331) as u16;
            let frame = udp((CLIENT.0, port), SERVER, &self.next.to_le_bytes());
            let mut block = cx.rings.append_copy(view, &[&frame]).unwrap();
            block.time = 1_000_000_000 + self.next * 20_000;
            cx.emit(block);
            self.next += 1;
        }
        self.pulls += 1;
        Ok(if self.next == self.end || self.is_over.load(Ordering::Relaxed) {
            Pull::End
        } else if self.pulls.is_multiple_of(4) {
            Pull::Idle(Duration::ZERO)
        } else {
            Pull::Ready
        })
    }

    fn position(&self) -> Option<u64> {
        Some(self.next)
    }

    fn end_before(&mut self, number: u64) -> bool {
        self.end = self.end.min(number);
        self.next < self.end
    }

    fn begin_at(&mut self, number: u64) {
        self.next = self.next.max(number);
    }
}

/// Gives each block a few hundred blocks later, and the rest at the end.
#[derive(Default)]
struct Delay(VecDeque<Descriptor>);

impl Delay {
    fn give(&mut self, most: usize, cx: &mut Context<'_>) {
        while self.0.len() > most
            && let Some(held) = self.0.pop_front()
        {
            cx.rings.release(&held);
            cx.emit(held);
        }
    }
}

impl Filter for Delay {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            self.0.extend(cx.rings.hold(block));
        }
        self.give(200, cx);
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.give(0, cx);
        Ok(Status::Done)
    }
}

/// Gives the number in each frame.
struct Numbers;

impl Filter for Numbers {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let mut number = block.part(42, 8);
            number.time = block.time;
            cx.emit(number);
        }
        Ok(Status::Done)
    }
}

struct Yields(u64);

impl Filter for Yields {
    fn run(&mut self, _batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        if random(&mut self.0).is_multiple_of(16) {
            std::thread::yield_now();
        }
        Ok(Status::Done)
    }
}

struct Ends {
    /// The next number; filters that take turns share it.
    next: Arc<AtomicU64>,
    /// Numbers may be missing before its first.
    is_late: bool,
}

impl Filter for Ends {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let number = u64::from_le_bytes(*cx.rings.bytes(block).first_chunk().unwrap());
            let next = self.next.swap(number + 1, Ordering::Relaxed);
            assert!(number == next || self.is_late && number > next, "{number} came where {next} should");
            self.is_late = false;
        }
        Ok(Status::Done)
    }

    fn restart(&mut self, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

struct Counts(Arc<AtomicU64>);

impl Filter for Counts {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        assert!(batch.iter().all(|(_, block)| cx.rings.bytes(block).len() == 8));
        self.0.fetch_add(u64::from(batch.count()), Ordering::Relaxed);
        Ok(Status::Done)
    }
}

/// How the filters of a plan are divided: one bit for each edge that is cut, and the partitions.
#[derive(Clone, Copy, Debug)]
struct Organisation {
    cuts: u32,
    workers: usize,
}

struct Bench {
    is_over: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
}

type Instances = Vec<Option<Instance>>;

const NODES: usize = 6;

impl Bench {
    fn new() -> Bench {
        Bench { is_over: Arc::default(), next: Arc::default() }
    }

    fn source(&self) -> Frames {
        Frames { next: 0, end: u64::MAX, pulls: 0, ring: None, is_over: Arc::clone(&self.is_over) }
    }

    fn ends(&self) -> Ends {
        Ends { next: Arc::clone(&self.next), is_late: false }
    }

    fn chain(&self, organisation: Organisation) -> (Plan, Instances, Vec<Instances>) {
        let mut graph = Graph::default();
        let nodes = [
            graph.broken_source(self.source()),
            graph.maker("delay", Instance::filter(Delay::default())),
            graph.streams("numbers", Numbers),
            graph.modest("first", Yields(1)),
            graph.modest("second", Yields(2)),
            graph.own_sink("ends", self.ends()),
        ];
        for (place, pair) in nodes.windows(2).enumerate() {
            match organisation.cuts & 1 << place {
                0 => graph.edge(pair[0], pair[1]),
                _ => graph.cut(pair[0], pair[1]),
            }
        }
        let (mut plan, instances) = graph.taken();
        plan.workers = Workers::Partitions(organisation.workers);
        let copy = |partition: usize| {
            let yields = |seed| Some(Instance::filter(Yields(seed + partition as u64)));
            vec![None, None, Some(Instance::filter(Numbers)), yields(3), yields(4), None]
        };
        (plan, instances, (1..organisation.workers).map(copy).collect())
    }
}

fn parts_of(instances: Instances, kept: usize, restarts: bool) -> Vec<Part> {
    let last = instances.len() - 1;
    let part = |(index, instance)| match index {
        _ if index < kept => Part::Kept(index),
        _ if index == last && restarts => Part::Restarts(index),
        _ => Part::New(instance),
    };
    instances.into_iter().enumerate().map(part).collect()
}

/// Runs a plan that others replace. `next` makes one after the other; after the last, `is_over` ends the input.
fn run(mut worker: Worker, mut next: impl FnMut() -> Option<Replacement>, is_over: &AtomicBool) -> Vec<usize> {
    let mut memory = Vec::new();
    let mut waiting: Option<(u64, Receiver<_>)> = None;
    let end = worker.run(&StopFlag::new(), &mut |worker| {
        for report in worker.take_replaced_reports() {
            report.check().unwrap();
            assert_eq!(report.traffic.faults, 0);
        }
        if let Some((replaced, done)) = &waiting {
            match done.try_recv() {
                Ok(_) => assert_eq!(worker.replaced(), replaced + 1),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => panic!("it was given up"),
            }
        }
        waiting = None;
        match next() {
            Some(mut replacement) => {
                memory.push(worker.memory_bytes());
                let (done, is_done) = sync_channel(1);
                replacement.done = done;
                waiting = Some((worker.replaced(), is_done));
                worker.replace(replacement);
            }
            None => is_over.store(true, Ordering::Relaxed),
        }
    });
    assert_eq!(end, Ok(End::Input));
    let report = worker.report();
    report.check().unwrap();
    assert_eq!(report.traffic.faults, 0);
    assert_eq!(worker.replaced(), memory.len() as u64);
    memory
}

#[test]
fn plans_of_all_organisations_take_turns_at_one_frame() {
    const TURNS: usize = 400;
    for seed in 0..3 {
        let bench = Bench::new();
        let mut dice = seed + 77;
        let mut roll = |most: usize| random(&mut dice) as usize % most;
        let organisation = |roll: &mut dyn FnMut(usize) -> usize| match roll(3) {
            0 => Organisation { cuts: 0, workers: 2 + roll(2) },
            _ => Organisation { cuts: roll(32) as u32 & roll(32) as u32, workers: 1 },
        };
        let first = organisation(&mut roll);
        let (mut running, instances, copies) = bench.chain(first);
        let mut refused = 0;
        let (mut left, mut kept_nodes) = (TURNS, 0);
        let worker = Worker::with_copies(&running, instances, copies).unwrap();
        let next = || {
            left = left.checked_sub(1)?;
            // In every other turn only the nodes behind the kept filters are new.
            let wanted = organisation(&mut roll);
            let (mut kept, restarts) = (roll(NODES + 1), roll(2) == 0);
            loop {
                let (plan, instances, copies) = bench.chain(wanted);
                let is_same = |node: usize| running.nodes[node].edges == plan.nodes[node].edges;
                kept = kept.min((0..NODES - 1).position(|node| !is_same(node)).map_or(NODES, |node| node + 1));
                let parts = parts_of(instances, kept, restarts && kept < NODES);
                if let Err(why) = stages_fit(&running, &plan, &parts) {
                    assert!(why.contains('`'), "{why}");
                    (refused, kept) = (refused + 1, kept - 1);
                    continue;
                }
                kept_nodes += kept;
                let hand_over = HandOver { from: vec![0], to: vec![0], first: 0 };
                let hand_overs = if kept == 0 { vec![hand_over] } else { Vec::new() };
                running = plan.clone();
                return Some(Replacement { plan, parts, copies, hand_overs, done: sync_channel(1).0 });
            }
        };
        assert_eq!(run(worker, next, &bench.is_over).len(), TURNS);
        assert!(refused > TURNS / 20 && kept_nodes > TURNS / 2, "{refused} refused, {kept_nodes} nodes kept");
        assert!(bench.next.load(Ordering::Relaxed) > 10_000);
    }
}

#[test]
fn branches_behind_shares_come_and_go() {
    const BRANCHES: usize = 3;
    const TURNS: usize = 200;
    let is_over = Arc::<AtomicBool>::default();
    let nexts: [Arc<AtomicU64>; BRANCHES] = Default::default();
    let plan = |branches: &[usize], is_late: &dyn Fn(usize) -> bool| {
        let mut graph = Graph::default();
        let frames = Frames { next: 0, end: u64::MAX, pulls: 0, ring: None, is_over: Arc::clone(&is_over) };
        let source = graph.broken_source(frames);
        for branch in branches {
            let numbers = graph.streams("numbers", Numbers);
            let sink = Ends { next: Arc::clone(&nexts[*branch]), is_late: is_late(*branch) };
            let sink = graph.own_sink("ends", sink);
            graph.edge(source, numbers);
            graph.edge(numbers, sink);
        }
        let (mut plan, instances) = graph.taken();
        plan.workers = Workers::Partitions(2);
        let begins = |index: usize| (index % 2 == 1).then(|| Instance::filter(Numbers));
        let copy: Instances = (0..instances.len()).map(begins).collect();
        (plan, instances, vec![copy])
    };
    let mut running: Vec<usize> = vec![0];
    let (first, instances, copies) = plan(&running, &|_| false);
    let worker = Worker::with_copies(&first, instances, copies).unwrap();
    let (mut dice, mut left) = (5, TURNS);
    let next = || {
        left = left.checked_sub(1)?;
        let some = 1 + random(&mut dice) % ((1 << BRANCHES) - 1);
        let wanted: Vec<usize> = (0..BRANCHES).filter(|branch| some & 1 << branch != 0).collect();
        let place = |branch: usize| running.iter().position(|known| *known == branch);
        let (plan, instances, copies) = plan(&wanted, &|branch| place(branch).is_none());
        let part = |(index, instance): (usize, Option<Instance>)| match index.checked_sub(1) {
            None => Part::Kept(0),
            Some(index) => match place(wanted[index / 2]) {
                Some(place) => Part::Kept(1 + place * 2 + index % 2),
                None => Part::New(instance),
            },
        };
        let parts = instances.into_iter().enumerate().map(part).collect();
        running = wanted;
        Some(Replacement { plan, parts, copies, hand_overs: Vec::new(), done: sync_channel(1).0 })
    };
    assert_eq!(run(worker, next, &is_over).len(), TURNS);
    assert!(nexts.iter().all(|next| next.load(Ordering::Relaxed) > 1000));
}

#[test]
fn a_thousand_switches_of_stages_leave_no_memory() {
    const TURNS: usize = 1000;
    let bench = Bench::new();
    let cut = Organisation { cuts: 0b11111, workers: 1 };
    let (plan, instances, copies) = bench.chain(cut);
    let worker = Worker::with_copies(&plan, instances, copies).unwrap();
    let mut left = TURNS;
    let next = || {
        left = left.checked_sub(1)?;
        let (plan, instances, copies) = bench.chain(cut);
        // The second stage stays and the stage behind it begins, or the other way round.
        let parts = parts_of(instances, 2, true);
        Some(Replacement { plan, parts, copies, hand_overs: Vec::new(), done: sync_channel(1).0 })
    };
    let memory = run(worker, next, &bench.is_over);
    let most = memory[100..200].iter().max().unwrap();
    assert!(memory[TURNS - 1] <= *most, "{most} and then {}", memory[TURNS - 1]);
}

#[test]
fn a_stage_that_goes_on_lets_go_of_what_it_got_by_ways_that_end() {
    const TURNS: usize = 300;
    let bench = Bench::new();
    let plan = || {
        let mut graph = Graph::default();
        let source = graph.broken_source(bench.source());
        let begins = graph.streams("begins", Numbers);
        let stays = graph.streams("stays", Numbers);
        let follows = graph.modest("follows", Yields(1));
        let ends = graph.own_sink("ends", Counts(Arc::clone(&bench.next)));
        graph.cut(source, begins);
        graph.cut(source, stays);
        graph.cut(begins, follows);
        graph.edge(stays, ends);
        graph.edge(follows, ends);
        graph.taken()
    };
    let (first, instances) = plan();
    let mut left = TURNS;
    let next = || {
        left = left.checked_sub(1)?;
        let (plan, instances) = plan();
        let part = |(index, instance)| match index {
            0 | 2 => Part::Kept(index),
            4 => Part::Restarts(index),
            _ => Part::New(instance),
        };
        let parts = instances.into_iter().enumerate().map(part).collect();
        Some(Replacement { plan, parts, copies: Vec::new(), hand_overs: Vec::new(), done: sync_channel(1).0 })
    };
    run(Worker::new(&first, instances), next, &bench.is_over);
    assert!(bench.next.load(Ordering::Relaxed) > 10_000);
}

/// Opens a stream for each flow, and gives the number in each frame as a block of that stream.
#[derive(Default)]
struct Opens(BTreeMap<u32, u32>);

/// The flow of a frame with this number; see `Frames`.
fn flow_of(number: u64) -> u32 {
    (number * 7919 % 331) as u32
}

impl Filter for Opens {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let mut number = block.part(42, 8);
            let flow = flow_of(u64::from_le_bytes(*cx.rings.bytes(&number).first_chunk().unwrap()));
            let facts = StreamFacts { reuse: flow, ..facts(CLIENT, SERVER) };
            let stream = *self.0.entry(flow).or_insert_with(|| cx.streams.open(facts).unwrap());
            (number.time, number.class) = (block.time, Class::of_stream(stream, 0));
            cx.emit(number);
        }
        Ok(Status::Done)
    }
}

/// Checks that the facts of each block are those of its own flow.
struct Knows(Arc<AtomicU64>);

impl Filter for Knows {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let flow = flow_of(u64::from_le_bytes(*cx.rings.bytes(block).first_chunk().unwrap()));
            assert_eq!(cx.streams.get(block.class).map(|facts| facts.reuse), Some(flow));
        }
        self.0.fetch_add(u64::from(batch.count()), Ordering::Relaxed);
        Ok(Status::Done)
    }
}

#[test]
fn a_stage_that_numbered_streams_numbers_those_of_new_channels() {
    let bench = Bench::new();
    let seen: [Arc<AtomicU64>; 3] = Default::default();
    let knows = |place: usize| Knows(Arc::clone(&seen[place]));
    let sink = || Counts(Arc::clone(&bench.next));
    let mut graph = Graph::default();
    let (one, other) = (graph.broken_source(bench.source()), graph.broken_source(bench.source()));
    let (opens, other_opens) = (graph.streams("opens", Opens::default()), graph.streams("other", Opens::default()));
    let (stays, goes) = (graph.modest("stays", knows(0)), graph.modest("goes", knows(1)));
    let ends = graph.own_sink("ends", sink());
    graph.edge(one, opens);
    graph.edge(other, other_opens);
    graph.cut(opens, stays);
    graph.cut(other_opens, goes);
    graph.edge(stays, ends);
    graph.edge(goes, ends);
    // Two channels from one stage to one other stage: both would know a stream by the same number.
    let mut graph_after = Graph::default();
    let one = graph_after.broken_source(bench.source());
    let opens = graph_after.streams("opens", Opens::default());
    let passes = graph_after.modest("passes", Yields(3));
    let (stays, comes) = (graph_after.modest("stays", knows(0)), graph_after.modest("comes", knows(2)));
    let ends = graph_after.own_sink("ends", sink());
    graph_after.edge(one, opens);
    graph_after.cut(opens, stays);
    graph_after.edge(opens, passes);
    graph_after.cut(passes, comes);
    graph_after.edge(stays, ends);
    graph_after.edge(comes, ends);
    let (plan, instances) = graph_after.taken();
    let part = |(index, instance)| match index {
        0 => Part::Kept(0),
        1 => Part::Kept(2),
        3 => Part::Kept(4),
        5 => Part::Restarts(6),
        _ => Part::New(instance),
    };
    let parts: Vec<Part> = instances.into_iter().enumerate().map(part).collect();
    let replacement = Replacement { plan, parts, copies: Vec::new(), hand_overs: Vec::new(), done: sync_channel(1).0 };
    let (mut replacement, mut looks) = (Some(replacement), 0);
    let (mut worker, stop) = (graph.worker(), StopFlag::new());
    let end = worker.run(&stop, &mut |worker| {
        looks += 1;
        match looks {
            20 => replacement.take().into_iter().for_each(|replacement| worker.replace(replacement)),
            80 => stop.stop(),
            _ => {}
        }
    });
    assert_eq!((end, worker.replaced()), (Ok(End::Stopped), 1));
    worker.report().check().unwrap();
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) > 331));
}

#[test]
fn a_wish_to_stop_amid_a_switch_loses_nothing() {
    let mut replaced = 0;
    for seed in 0..60 {
        let bench = Bench::new();
        let mut dice = seed;
        let cut = Organisation { cuts: 0b11111 & !(1 << (seed % 5)), workers: 1 };
        let (plan, instances, copies) = bench.chain(cut);
        let mut worker = Worker::with_copies(&plan, instances, copies).unwrap();
        let stop = StopFlag::new();
        let asks = {
            let (stop, after) = (stop.clone(), Duration::from_micros(2000 + random(&mut dice) % 8000));
            std::thread::spawn(move || {
                std::thread::sleep(after);
                stop.stop();
            })
        };
        // Each replacement follows as soon as the one before has taken place.
        let mut waiting: Option<Receiver<_>> = None;
        let end = worker.run(&stop, &mut |worker| {
            if waiting.as_ref().is_some_and(|done| matches!(done.try_recv(), Err(TryRecvError::Empty))) {
                return;
            }
            let (plan, instances, copies) = bench.chain(cut);
            let (done, is_done) = sync_channel(1);
            let parts = parts_of(instances, 1 + random(&mut dice) as usize % 4, true);
            worker.replace(Replacement { plan, parts, copies, hand_overs: Vec::new(), done });
            waiting = Some(is_done);
        });
        asks.join().unwrap();
        assert_eq!(end, Ok(End::Stopped));
        replaced += worker.replaced();
        let report = worker.report();
        report.check().unwrap();
        let gave = report.nodes[0].counters.blocks_made;
        assert_eq!(bench.next.load(Ordering::Relaxed), gave, "{seed}: all that the source gave came out");
    }
    assert!(replaced > 5, "{replaced} plans took another's place");
}
