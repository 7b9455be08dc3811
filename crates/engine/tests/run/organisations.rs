//! Numbered frames through every organisation of a plan: one to four stages, partitions of the flows, both.
//!
//! Filters stall, fail and panic in the middle of a batch, sources end, sinks want no more. Frames come out in order,
//! and the run reports each lost frame. The report agrees with each filter's own counters.

use crate::parts::Graph;
use crate::stages::Frames;
use base::atomic::StopFlag;
use engine::{End, Report, Worker};
use filter::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Frames of a run without a fault; runs with a fault get a tenth. The variable `STREAMLINE_FRAMES` sets another number.
const FRAMES: u64 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

fn frames() -> u64 {
    std::env::var("STREAMLINE_FRAMES").ok().map_or(FRAMES, |text| text.parse().expect("a number of frames"))
}

/// A fault, and the frame at which it happens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    SourceEnds(u64),
    SourceFails(u64),
    FilterFails(u64),
    FilterPanics(u64),
    SinkHasEnough(u64),
    Stopped(Duration),
}

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 32
}

#[derive(Default)]
struct Seen {
    blocks: AtomicU64,
    /// Blocks of the batch in which it failed.
    failed: AtomicU64,
}

/// A source that may end, or fail, before it has given all frames.
struct Begins {
    frames: Frames,
    fails: bool,
    gave: Arc<AtomicU64>,
}

impl Source for Begins {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        if self.fails && self.frames.next == self.frames.count {
            return Err(Box::new(Failure::System("the source failed".into())));
        }
        let pull = self.frames.pull(cx)?;
        self.gave.store(self.frames.next, Ordering::Relaxed);
        Ok(if self.fails { Pull::Ready } else { pull })
    }
}

/// Gives the number in each frame, or hands blocks on. Stalls now and then, and may fail at a block.
struct Works {
    seed: u64,
    parses: bool,
    fault: Fault,
    seen: Arc<Seen>,
}

impl Filter for Works {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        match random(&mut self.seed) % 256 {
            0 => std::thread::sleep(Duration::from_micros(500)),
            1..20 => std::thread::yield_now(),
            _ => {}
        }
        let count = u64::from(batch.count());
        let before = self.seen.blocks.fetch_add(count, Ordering::Relaxed);
        let is_it = |at: u64| (before..before + count).contains(&at);
        for (place, block) in batch.iter() {
            if let Fault::FilterPanics(at) = self.fault
                && is_it(at)
                && place > 5
            {
                panic!("in the middle of a batch");
            }
            if self.parses {
                let mut number = block.part(42, 8);
                number.time = block.time;
                cx.emit(number);
            }
        }
        match self.fault {
            Fault::FilterFails(at) if is_it(at) => {
                self.seen.failed.fetch_add(count, Ordering::Relaxed);
                Err(Box::new(Failure::System("the filter failed".into())))
            }
            _ => Ok(Status::Done),
        }
    }
}

/// Counts numbers, and numbers out of order.
struct Ends {
    enough: Option<u64>,
    next: u64,
    order: Arc<Order>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Order {
    /// Repeated, or behind a larger number.
    back: AtomicU64,
    /// Behind missing numbers.
    gaps: AtomicU64,
}

impl Filter for Ends {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let number = cx.rings.bytes(block).first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            let number = number.unwrap_or(0);
            self.seen.blocks.fetch_add(1, Ordering::Relaxed);
            self.order.back.fetch_add(u64::from(number < self.next), Ordering::Relaxed);
            self.order.gaps.fetch_add(u64::from(number > self.next), Ordering::Relaxed);
            self.next = number + 1;
        }
        let has_enough = self.enough.is_some_and(|enough| self.seen.blocks.load(Ordering::Relaxed) >= enough);
        Ok(if has_enough { Status::Finished } else { Status::Done })
    }
}

#[derive(Clone, Copy, Debug)]
struct Organisation {
    /// One bit for each edge behind the first filter: the edge is cut.
    cuts: u32,
    workers: usize,
}

struct Outcome {
    /// How it ended. `None`: it panicked.
    end: Option<Result<End, Box<Failure>>>,
    report: Report,
    gave: u64,
    seen: [Arc<Seen>; 4],
    order: Arc<Order>,
}

fn run(organisation: Organisation, count: u64, fault: Fault, seed: u64) -> Outcome {
    let gave = Arc::new(AtomicU64::new(0));
    let given = match fault {
        Fault::SourceEnds(at) | Fault::SourceFails(at) => at,
        Fault::Stopped(_) => u64::MAX,
        _ => count,
    };
    let mut graph = Graph::default();
    let source = graph.broken_source(Begins {
        frames: Frames { count: given, ..Frames::default() },
        fails: matches!(fault, Fault::SourceFails(_)),
        gave: Arc::clone(&gave),
    });
    let seen: [Arc<Seen>; 4] = Default::default();
    // The second filter has the fault.
    let works = |place: usize, partition: usize| Works {
        seed: seed * 64 + (place * 8 + partition) as u64,
        parses: place == 0,
        fault: if place == 1 { fault } else { Fault::Nothing },
        seen: Arc::clone(&seen[place]),
    };
    let order = Arc::<Order>::default();
    let enough = if let Fault::SinkHasEnough(at) = fault { Some(at) } else { None };
    let nodes = [
        graph.streams("numbers", works(0, 0)),
        graph.modest("first", works(1, 0)),
        graph.modest("second", works(2, 0)),
        graph.own_sink("ends", Ends { enough, next: 0, order: Arc::clone(&order), seen: Arc::clone(&seen[3]) }),
    ];
    graph.edge(source, nodes[0]);
    for (place, pair) in nodes.windows(2).enumerate() {
        if organisation.cuts & 1 << place != 0 {
            graph.cut(pair[0], pair[1]);
        } else {
            graph.edge(pair[0], pair[1]);
        }
    }
    let (mut plan, instances) = graph.taken();
    plan.workers = engine::Workers::Partitions(organisation.workers);
    let copy = |partition: usize| {
        let works = |place| Some(Instance::filter(works(place, partition)));
        vec![None, works(0), works(1), works(2), None]
    };
    let mut worker = Worker::with_copies(&plan, instances, (1..organisation.workers).map(copy).collect()).unwrap();
    let stop = StopFlag::new();
    let asking = match fault {
        Fault::Stopped(after) => {
            let stop = stop.clone();
            Some(std::thread::spawn(move || {
                std::thread::sleep(after);
                stop.stop();
            }))
        }
        _ => None,
    };
    let end = catch_unwind(AssertUnwindSafe(|| worker.run(&stop, &mut |_| {}))).ok();
    asking.into_iter().for_each(|asking| asking.join().unwrap());
    Outcome { end, report: worker.report(), gave: gave.load(Ordering::Relaxed), seen, order }
}

fn check(organisation: Organisation, count: u64, fault: Fault, seed: u64) {
    let Outcome { end, report, gave, seen, order } = run(organisation, count, fault, seed);
    let what = format!("{organisation:?}, {fault:?}");
    let came = seen[3].blocks.load(Ordering::Relaxed);
    let (back, gaps) = (order.back.load(Ordering::Relaxed), order.gaps.load(Ordering::Relaxed));
    // If one partition is gone, the others still carry their blocks through.
    let is_share_gone = organisation.workers > 1 && matches!(fault, Fault::FilterFails(_) | Fault::FilterPanics(_));
    assert!(back == 0 && (gaps == 0 || is_share_gone), "{what}: {back} and {gaps} of {came} numbers are not in order");
    let failure = |text: &str| Some(Err(Box::new(Failure::System(text.into()))));
    let expected = match fault {
        Fault::Nothing | Fault::SourceEnds(_) => Some(Ok(End::Input)),
        Fault::SourceFails(_) => failure("the source failed"),
        Fault::FilterFails(_) => failure("the filter failed"),
        Fault::FilterPanics(_) => None,
        Fault::SinkHasEnough(_) => Some(Ok(End::Enough)),
        Fault::Stopped(_) => Some(Ok(End::Stopped)),
    };
    // All frames may be under way already when a sink has enough.
    let is_late = matches!(fault, Fault::SinkHasEnough(_)) && end == Some(Ok(End::Input));
    assert!(end == expected || is_late, "{what}: {end:?}");
    match fault {
        Fault::FilterPanics(at) | Fault::FilterFails(at) => assert!(came <= at || is_share_gone, "{what}: {came}"),
        Fault::SinkHasEnough(at) => assert!((at..at + 64).contains(&came), "{what}: {came}"),
        Fault::SourceEnds(at) | Fault::SourceFails(at) => assert_eq!((came, gave), (at, at), "{what}"),
        Fault::Nothing => assert_eq!((came, gave), (count, count), "{what}"),
        Fault::Stopped(_) => assert_eq!(came, gave, "{what}"),
    }
    if end.is_none() {
        return;
    }
    report.check().unwrap();
    assert_eq!((report.nodes[0].counters.blocks_made, report.traffic.faults), (gave, 0), "{what}");
    for (node, seen) in report.nodes[1..].iter().zip(&seen) {
        let counters = &node.counters;
        let (blocks, failed) = (seen.blocks.load(Ordering::Relaxed), seen.failed.load(Ordering::Relaxed));
        // Blocks that came after the filter, or all filters below it, had finished; including those in the channel.
        let late = counters.blocks_rejected + counters.drops.total() - failed;
        assert_eq!(blocks + late, counters.blocks_in, "{what}: `{}` {counters:?}", node.label);
    }
    let ends_well = matches!(fault, Fault::Nothing | Fault::SourceEnds(_) | Fault::SourceFails(_) | Fault::Stopped(_));
    assert!(!ends_well || report.nodes[1..].iter().all(|node| node.counters.blocks_in == gave), "{what}: {report:?}");
}

fn organisations() -> impl Iterator<Item = Organisation> {
    let cut = (0..8).map(|cuts| Organisation { cuts, workers: 1 });
    let shared = (2..=4).map(|workers| Organisation { cuts: 0, workers });
    let both = [0b001, 0b010, 0b100, 0b111].map(|cuts| Organisation { cuts, workers: 2 });
    cut.chain(shared).chain(both)
}

#[test]
fn every_organisation_gives_all_frames_in_order() {
    organisations().enumerate().for_each(|(seed, one)| check(one, frames(), Fault::Nothing, seed as u64));
}

#[test]
fn whatever_goes_wrong_in_an_organisation_is_in_its_ledger() {
    let count = frames() / 10;
    for (index, organisation) in organisations().enumerate() {
        let mut seed = index as u64;
        let mut at = || random(&mut seed) % count;
        let faults = [
            Fault::SourceEnds(at().max(1)),
            Fault::SourceFails(at().max(1)),
            Fault::FilterFails(at()),
            Fault::FilterPanics(at()),
            Fault::SinkHasEnough(at().max(1)),
            Fault::Stopped(Duration::from_micros(at() % 20_000)),
        ];
        for (number, fault) in faults.into_iter().enumerate() {
            check(organisation, count, fault, (index * 8 + number) as u64);
        }
    }
}
