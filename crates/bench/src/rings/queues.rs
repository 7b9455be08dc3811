//! Queues between two threads: ours against rtrb, crossbeam's `ArrayQueue` and a loop of bare stores.
//!
//! A run sends numbered entries between two pinned threads; each spins when it cannot go on. Every number is checked.
//! With 1,024 slots a run takes thousands of laps.

mod contenders;
mod run;

use crate::case::{Case, CaseError, How, Sides};
use crate::measure::{Clock, Figure, Side};
use crate::process::Cost;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use buffer::Descriptor;
use contenders::{CrossbeamArray, FastForward, Indexed, Queue, Rtrb};
use run::{Payload, bare_stores, batches, round_trips, singles};

/// Number of slots, unless a row says otherwise.
const USUAL: usize = 1024;
/// Entries in one run; fewer if they carry work, or go back and forth.
const ENTRIES: u64 = 4_000_000;
const WORKED: u64 = 200_000;
const TRIPS: u64 = 200_000;

type Made = Result<Sides<'static>, CaseError>;

const fn row(about: &'static str, against: &'static str, goal: Goal, sides: fn(&Setting) -> Made) -> Case {
    Case { about, against, goal, touched: Touched::Sum, how: How::Time(Clock::Wall, Figure::TimesAsFast, sides) }
}

fn single<Q: Queue<T>, T: Payload>() -> Side<'static> {
    Side::new(|| singles::<Q, T>(USUAL, ENTRIES, 0)).per_item(ENTRIES as f64)
}

fn batch<Q: Queue<T>, T: Payload>() -> Side<'static> {
    Side::new(|| batches::<Q, T>(USUAL, ENTRIES)).per_item(ENTRIES as f64)
}

/// Descriptors in batches of 32 through rtrb.
pub fn rtrb_batches(entries: u64) -> Result<Cost, String> {
    batches::<Rtrb, Descriptor>(USUAL, entries)
}

/// Descriptors in batches of 32 through the FastForward queue.
pub fn fast_forward_batches(entries: u64) -> Result<Cost, String> {
    batches::<FastForward, Descriptor>(USUAL, entries)
}

fn trip<Q: Queue<u64>>() -> Side<'static> {
    Side::new(|| round_trips::<Q>(USUAL, TRIPS)).per_item(TRIPS as f64)
}

fn cell<Ours: Queue<u64>, const SLOTS: usize, const WORK_NS: u32>(_: &Setting) -> Made {
    fn side<Q: Queue<u64>>(slots: usize, work_ns: u32) -> Side<'static> {
        // Two slots make an entry as slow as work does.
        let entries = if work_ns > 0 || slots < 16 { WORKED } else { ENTRIES };
        Side::new(move || singles::<Q, u64>(slots, entries, work_ns)).per_item(entries as f64)
    }
    Ok(Sides { ours: side::<Ours>(SLOTS, WORK_NS), peer: side::<Rtrb>(SLOTS, WORK_NS) })
}

/// No entry may be more than a tenth slower than with the peer, whatever the queue's size and the load.
const NO_COLLAPSE: Goal = Goal::AtLeast(0.9, 1.0);

/// The rows.
pub static CASES: &[Case] = &[
    row("A/A: rtrb, numbers one by one", "itself", Goal::Within(0.97, 1.03), |_| {
        Ok(Sides { ours: single::<Rtrb, u64>(), peer: single::<Rtrb, u64>() })
    }),
    row("indexed queue, numbers one by one", "rtrb", Goal::AtLeast(1.0, 1.3), |_| {
        Ok(Sides { ours: single::<Indexed, u64>(), peer: single::<Rtrb, u64>() })
    }),
    row("fast-forward queue, numbers one by one", "rtrb", Goal::AtLeast(1.0, 1.3), |_| {
        Ok(Sides { ours: single::<FastForward, u64>(), peer: single::<Rtrb, u64>() })
    }),
    row("indexed queue, descriptors one by one", "rtrb", Goal::AtLeast(1.0, 1.3), |_| {
        Ok(Sides { ours: single::<Indexed, Descriptor>(), peer: single::<Rtrb, Descriptor>() })
    }),
    row("fast-forward queue, descriptors one by one", "rtrb", Goal::AtLeast(1.0, 1.3), |_| {
        Ok(Sides { ours: single::<FastForward, Descriptor>(), peer: single::<Rtrb, Descriptor>() })
    }),
    row("indexed queue, numbers one by one", "crossbeam `ArrayQueue`", Goal::AtLeast(2.0, 4.0), |_| {
        Ok(Sides { ours: single::<Indexed, u64>(), peer: single::<CrossbeamArray, u64>() })
    }),
    row("fast-forward queue, numbers one by one", "crossbeam `ArrayQueue`", Goal::AtLeast(2.0, 4.0), |_| {
        Ok(Sides { ours: single::<FastForward, u64>(), peer: single::<CrossbeamArray, u64>() })
    }),
    row("indexed queue, numbers in batches of 32", "rtrb, chunks of 32", Goal::AtLeast(1.0, 1.2), |_| {
        Ok(Sides { ours: batch::<Indexed, u64>(), peer: batch::<Rtrb, u64>() })
    }),
    row("fast-forward queue, numbers in batches of 32", "rtrb, chunks of 32", Goal::AtLeast(1.0, 1.2), |_| {
        Ok(Sides { ours: batch::<FastForward, u64>(), peer: batch::<Rtrb, u64>() })
    }),
    row("indexed queue, descriptors in batches of 32", "rtrb, chunks of 32", Goal::AtLeast(1.0, 1.2), |_| {
        Ok(Sides { ours: batch::<Indexed, Descriptor>(), peer: batch::<Rtrb, Descriptor>() })
    }),
    row("fast-forward queue, descriptors in batches of 32", "rtrb, chunks of 32", Goal::AtLeast(1.0, 1.2), |_| {
        Ok(Sides { ours: batch::<FastForward, Descriptor>(), peer: batch::<Rtrb, Descriptor>() })
    }),
    row("indexed queue, numbers in batches of 32", "the same one by one", Goal::AtLeast(2.0, 4.0), |_| {
        Ok(Sides { ours: batch::<Indexed, u64>(), peer: single::<Indexed, u64>() })
    }),
    row("fast-forward queue, numbers in batches of 32", "the same one by one", Goal::Reported, |_| {
        Ok(Sides { ours: batch::<FastForward, u64>(), peer: single::<FastForward, u64>() })
    }),
    row("indexed queue, numbers in batches of 32", "a loop of bare stores by one thread", Goal::Reported, |_| {
        let floor = Side::new(|| bare_stores(USUAL, ENTRIES)).per_item(ENTRIES as f64);
        Ok(Sides { ours: batch::<Indexed, u64>(), peer: floor })
    }),
    row("indexed queue, there and back", "rtrb", Goal::AtLeast(0.95, 1.0), |_| {
        Ok(Sides { ours: trip::<Indexed>(), peer: trip::<Rtrb>() })
    }),
    row("fast-forward queue, there and back", "rtrb", Goal::AtLeast(0.95, 1.0), |_| {
        Ok(Sides { ours: trip::<FastForward>(), peer: trip::<Rtrb>() })
    }),
    row("indexed queue, 2 slots", "rtrb", NO_COLLAPSE, cell::<Indexed, 2, 0>),
    row("indexed queue, 64 slots", "rtrb", NO_COLLAPSE, cell::<Indexed, 64, 0>),
    row("indexed queue, 65,536 slots", "rtrb", NO_COLLAPSE, cell::<Indexed, 65_536, 0>),
    row("indexed queue, 2 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<Indexed, 2, 100>),
    row("indexed queue, 64 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<Indexed, 64, 100>),
    row("indexed queue, 1,024 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<Indexed, 1024, 100>),
    row("indexed queue, 65,536 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<Indexed, 65_536, 100>),
    row("fast-forward queue, 2 slots", "rtrb", NO_COLLAPSE, cell::<FastForward, 2, 0>),
    row("fast-forward queue, 64 slots", "rtrb", NO_COLLAPSE, cell::<FastForward, 64, 0>),
    row("fast-forward queue, 65,536 slots", "rtrb", NO_COLLAPSE, cell::<FastForward, 65_536, 0>),
    row("fast-forward queue, 2 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<FastForward, 2, 100>),
    row("fast-forward queue, 64 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<FastForward, 64, 100>),
    row("fast-forward queue, 1,024 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<FastForward, 1024, 100>),
    row("fast-forward queue, 65,536 slots, 100 ns of work", "rtrb", NO_COLLAPSE, cell::<FastForward, 65_536, 100>),
];
