//! Rings between processes: ours against pipes, tee and splice, against ourselves, and against loops without a reader.
//!
//! Both sides of a row are processes, forked and pinned to the same two processors. They wait in the same way: asleep
//! at once, unless the row says otherwise. Blocks are filled again for each call. Each consumer checks the number of
//! each block, and the sum of one in 64, or of all if its work is summing. A run wraps a ring a thousand times.

use super::floors;
use super::ours::{self, Plan};
use super::pipes::{self, Use};
use super::processes::Ran;
use crate::case::{Case, CaseError, How, Sides};
use crate::measure::{Clock, Effort, Figure, Side};
use crate::process::Cost;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use buffer::ring::{Patience, RingKind, Signalling};
use std::time::Duration;

type Made = Result<Sides<'static>, CaseError>;

/// Bytes that pass through a ring or a pipe of 1 MiB in a run.
const RUN_BYTES: u64 = 1 << 30;
const LARGE: usize = 64 << 10;
const SMALL: usize = 4 << 10;
const HUGE: usize = 1 << 20;
const RECORD: usize = 64;
/// Messages of 64 bytes that a ring, or a subscriber, holds.
const MESSAGES: u64 = 1 << 14;
const RECORDS: u64 = RUN_BYTES / RECORD as u64;
/// A pipe takes long for a record, so its rows send fewer.
const PIPE_RECORDS: u64 = 1 << 20;
/// Round trips, asleep and awake. Rings of 8 slots wrap a thousand times.
const TRIPS: u64 = 8 << 10;
const FAST_TRIPS: u64 = 400_000;

const fn wall(
    about: &'static str,
    against: &'static str,
    goal: Goal,
    touched: Touched,
    sides: fn(&Setting) -> Made,
) -> Case {
    Case { about, against, goal, touched, how: How::Time(Clock::Wall, Figure::TimesAsFast, sides) }
}

/// A side whose cost is that of all its processes.
fn side(items: u64, run: impl Fn() -> Result<Ran, String> + 'static) -> Side<'static> {
    part_side(items, run, Ran::cost)
}

/// A side whose cost is a part of that of its processes.
fn part_side(
    items: u64,
    run: impl Fn() -> Result<Ran, String> + 'static,
    cost: impl Fn(&Ran) -> Cost + 'static,
) -> Side<'static> {
    Side::new(move || run().map(|ran| cost(&ran))).per_item(items as f64)
}

const fn blocks(bytes: usize) -> u64 {
    RUN_BYTES / bytes as u64
}

fn pipe_stream<const BYTES: usize>(what: Use) -> Side<'static> {
    side(blocks(BYTES), move || pipes::stream::<BYTES>(1, blocks(BYTES), what))
}

fn ring_stream<const BYTES: usize>() -> Side<'static> {
    side(blocks(BYTES), || ours::copied::<BYTES>(Plan::new(RingKind::C), blocks(BYTES)))
}

fn records(plan: Plan) -> Side<'static> {
    side(RECORDS, move || ours::copied::<RECORD>(plan, RECORDS))
}

fn large_summed(plan: Plan) -> Side<'static> {
    side(blocks(LARGE), move || ours::peeked_at::<LARGE>(plan, blocks(LARGE), Use::Sum))
}

fn floor<const BYTES: usize>() -> Side<'static> {
    side(blocks(BYTES), || floors::copies::<BYTES>(blocks(BYTES)))
}

fn trips(patience: Patience, trips: u64, processors: [usize; 2]) -> Side<'static> {
    let plan = Plan { bytes: 4096, slots: 8, signalling: Signalling::Every, patience, ..Plan::new(RingKind::P) };
    side(trips, move || ours::round_trips(plan, trips, processors))
}

fn pipe_trips(processors: [usize; 2]) -> Side<'static> {
    side(TRIPS, move || pipes::round_trips(TRIPS, processors))
}

/// The peer that is built only on request.
#[cfg(feature = "iceoryx2")]
fn iceoryx<const BYTES: usize>(samples: u64, blocks: u64, what: Use) -> Result<Side<'static>, CaseError> {
    Ok(side(blocks, move || super::iceoryx::stream::<BYTES>(samples as usize, blocks, what)))
}

#[cfg(not(feature = "iceoryx2"))]
fn iceoryx<const BYTES: usize>(_samples: u64, _blocks: u64, _what: Use) -> Result<Side<'static>, CaseError> {
    Err(CaseError::Missing("cargo run --release -p bench --features iceoryx2".into()))
}

const AWAKE: Patience = Patience { spins: 20_000, latency: buffer::ring::doorbell::LATENCY };

fn ring_broadcast() -> Side<'static> {
    side(blocks(SMALL), || ours::broadcast::<SMALL>(Plan::new(RingKind::D), 4, blocks(SMALL)))
}

fn overwriting(readers: usize) -> Side<'static> {
    let plan = Plan::new(RingKind::D);
    part_side(RECORDS / 4, move || ours::overwriting::<RECORD>(plan, readers, RECORDS / 4), |ran| ran.cost_of(0))
}

/// Blocks that a consumer reads, from a ring that holds a batch of them, so that one sleep serves many blocks.
fn consumed(what: Use) -> Side<'static> {
    let plan = Plan { bytes: 8 << 20, ..Plan::new(RingKind::D) };
    let count = 8 * blocks(LARGE);
    let run = move || match what {
        Use::Copy => ours::copied::<LARGE>(plan, count),
        _ => ours::peeked_at::<LARGE>(plan, count, what),
    };
    part_side(count, run, |ran| ran.cost_of(1))
}

fn signalled(signalling: Signalling) -> Side<'static> {
    // A signal for each record costs a system call whenever the consumer was faster, so there are fewer records.
    let (plan, records) = (Plan { signalling, bytes: 64 << 10, ..Plan::new(RingKind::C) }, RECORDS / 16);
    side(records, move || ours::copied::<RECORD>(plan, records))
}

/// What two idle endpoints may cost, in nanoseconds.
const IDLE_NS: (f64, f64) = (1e6, 1e5);

/// The rows.
pub static CASES: &[Case] = &[
    wall("A/A: pipe, 64 KiB a call", "itself", Goal::Within(0.97, 1.03), Touched::Copy, |_| {
        Ok(Sides { ours: pipe_stream::<LARGE>(Use::Copy), peer: pipe_stream::<LARGE>(Use::Copy) })
    }),
    wall("stream, write and read, 64 KiB a call", "pipe", Goal::AtLeast(1.5, 3.0), Touched::Copy, |_| {
        Ok(Sides { ours: ring_stream::<LARGE>(), peer: pipe_stream::<LARGE>(Use::Copy) })
    }),
    wall(
        "stream, write and read, 64 KiB a call",
        "fill and memcpy by hand, nobody reads",
        Goal::Reported,
        Touched::Copy,
        |_| Ok(Sides { ours: ring_stream::<LARGE>(), peer: floor::<LARGE>() }),
    ),
    wall("stream, write and read, 4 KiB a call", "pipe", Goal::AtLeast(3.0, 5.0), Touched::Copy, |_| {
        Ok(Sides { ours: ring_stream::<SMALL>(), peer: pipe_stream::<SMALL>(Use::Copy) })
    }),
    wall(
        "stream, write and read, 4 KiB a call",
        "fill and memcpy by hand, nobody reads",
        Goal::Reported,
        Touched::Copy,
        |_| Ok(Sides { ours: ring_stream::<SMALL>(), peer: floor::<SMALL>() }),
    ),
    wall(
        "64-byte records, one a call, signals batched",
        "pipe, one a call",
        Goal::AtLeast(20.0, 40.0),
        Touched::Copy,
        |_| {
            Ok(Sides {
                ours: records(Plan::new(RingKind::C)),
                peer: side(PIPE_RECORDS, || pipes::stream::<RECORD>(1, PIPE_RECORDS, Use::Copy)),
            })
        },
    ),
    wall(
        "64-byte records, one a call, signals batched",
        "pipe, 32 a call",
        Goal::AtLeast(3.0, 5.0),
        Touched::Copy,
        |_| {
            Ok(Sides {
                ours: records(Plan::new(RingKind::C)),
                peer: side(RECORDS, || pipes::stream::<RECORD>(32, RECORDS, Use::Copy)),
            })
        },
    ),
    wall(
        "64-byte records, one a call, signals batched",
        "filled and stored by hand, nobody reads",
        Goal::Reported,
        Touched::Copy,
        |_| Ok(Sides { ours: records(Plan::new(RingKind::C)), peer: floor::<RECORD>() }),
    ),
    wall(
        "write, sum where it lies, 64 KiB blocks",
        "pipe, read and sum",
        Goal::AtLeast(1.8, 3.0),
        Touched::Sum,
        |_| Ok(Sides { ours: large_summed(Plan::new(RingKind::D)), peer: pipe_stream::<LARGE>(Use::Sum) }),
    ),
    wall(
        "write, sum where it lies, 64 KiB blocks",
        "fill and memcpy by hand, nobody sums",
        Goal::Reported,
        Touched::Sum,
        |_| Ok(Sides { ours: large_summed(Plan::new(RingKind::D)), peer: floor::<LARGE>() }),
    ),
    wall("there and back, both asleep, two processors", "pipe", Goal::AtLeast(0.95, 1.0), Touched::Copy, |_| {
        Ok(Sides { ours: trips(ours::ASLEEP, TRIPS, [0, 1]), peer: pipe_trips([0, 1]) })
    }),
    wall("there and back, both asleep, one processor", "pipe", Goal::AtLeast(0.9, 1.0), Touched::Copy, |_| {
        Ok(Sides { ours: trips(ours::ASLEEP, TRIPS, [0, 0]), peer: pipe_trips([0, 0]) })
    }),
    wall("there and back, awake for a while, then asleep", "pipe", Goal::AtLeast(5.0, 20.0), Touched::Copy, |_| {
        Ok(Sides { ours: trips(AWAKE, FAST_TRIPS, [0, 1]), peer: pipe_trips([0, 1]) })
    }),
    wall("64-byte messages, both awake", "iceoryx2", Goal::AtLeast(2.0, 5.0), Touched::Copy, |_| {
        let plan = Plan { patience: AWAKE, slots: MESSAGES, ..Plan::new(RingKind::P) };
        Ok(Sides { ours: records(plan), peer: iceoryx::<RECORD>(MESSAGES, RECORDS / 4, Use::Copy)? })
    }),
    wall("1 MiB blocks, filled and summed where they lie", "iceoryx2", Goal::AtLeast(1.0, 1.05), Touched::Sum, |_| {
        let plan = Plan { patience: AWAKE, bytes: 8 << 20, ..Plan::new(RingKind::D) };
        let run = move || ours::filled_in_place::<HUGE>(plan, 4 * blocks(HUGE), Use::Sum);
        Ok(Sides { ours: side(4 * blocks(HUGE), run), peer: iceoryx::<HUGE>(8, 4 * blocks(HUGE), Use::Sum)? })
    }),
    wall("to 4 readers that sum where it lies, 4 KiB blocks", "4 pipes", Goal::AtLeast(4.0, 8.0), Touched::Sum, |_| {
        let peer = side(blocks(SMALL) / 4, || pipes::broadcast::<SMALL>(4, blocks(SMALL) / 4));
        Ok(Sides { ours: ring_broadcast(), peer })
    }),
    wall(
        "to 4 readers that sum where it lies, 4 KiB blocks",
        "pipe and tee, as many blocks at a time as there is room for",
        Goal::AtLeast(2.0, 2.5),
        Touched::Sum,
        |_| {
            let peer = side(blocks(SMALL) / 4, || pipes::broadcast_tee::<SMALL>(4, blocks(SMALL) / 4));
            Ok(Sides { ours: ring_broadcast(), peer })
        },
    ),
    Case {
        about: "producer's time for a 64-byte record, 8 readers that are overtaken",
        against: "1 such reader",
        goal: Goal::AtMost(1.3, 1.1),
        touched: Touched::Copy,
        how: How::Time(Clock::Cpu, Figure::Share, |_| Ok(Sides { ours: overwriting(8), peer: overwriting(1) })),
    },
    Case {
        about: "consumer's time for a 64 KiB block, first word looked at where it lies",
        against: "copied out",
        goal: Goal::AtLeast(10.0, 15.0),
        touched: Touched::Header,
        how: How::Time(Clock::Cpu, Figure::TimesAsFast, |_| {
            Ok(Sides { ours: consumed(Use::Header), peer: consumed(Use::Copy) })
        }),
    },
    wall(
        "64 KiB blocks passed on, 32 at a time",
        "splice(2) from pipe to pipe",
        Goal::AtLeast(4.0, 10.0),
        Touched::None,
        |_| {
            let ours = part_side(32 * 500, || ours::forward::<LARGE>(500), |ran| ran.given_by(1));
            let peer = part_side(16 * 1000, || pipes::forward::<LARGE>(1000), |ran| ran.given_by(1));
            Ok(Sides { ours, peer })
        },
    ),
    wall(
        "64-byte records, a signal every 32, consumer asleep",
        "a signal with each",
        Goal::AtLeast(2.36, 6.0),
        Touched::Copy,
        |_| Ok(Sides { ours: signalled(Signalling::Batched(32)), peer: signalled(Signalling::Every) }),
    ),
    Case {
        about: "idle, two endpoints, 10 s (2 s with --quick): processor time",
        against: "two processes asleep",
        goal: Goal::AtMost(IDLE_NS.0, IDLE_NS.1),
        touched: Touched::None,
        how: How::Time(Clock::Cpu, Figure::ExtraNs(1.0), |setting| {
            let time = Duration::from_secs(if setting.effort == Effort::Quick { 2 } else { 10 });
            let ours =
                side(1, move || ours::idle(Plan { patience: Patience::default(), ..Plan::new(RingKind::D) }, time));
            Ok(Sides { ours, peer: side(1, move || floors::sleeps(time)) })
        }),
    },
];
