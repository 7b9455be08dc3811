//! 256 MiB in blocks of 1 KiB through 0 to 16 filters that read one byte of each, or all bytes (figure 5.1 of the
//! dissertation).

use super::others;
use crate::case::{Case, CaseError, How, Numbers, Sides};
use crate::measure::{Clock, Figure, Side, median};
use crate::memory::{Blocks, Read};
use crate::piped::BLOCK_BYTES;
use crate::process::Cost;
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use chart::{Chart, Scale, Series};
use std::path::Path;

/// Bytes of memory, which no cache holds, and how often our side and the loop go through it in a run.
const MEMORY_BYTES: u64 = 256 << 20;
const PASSES: u64 = 2;
/// Blocks of the memory. Pipes take a system call for each block and signals a sleep, so those sides take only a part.
const BLOCKS: u64 = MEMORY_BYTES / BLOCK_BYTES as u64;
const PIPED: u64 = BLOCKS / 4;
const SIGNALLED: u64 = BLOCKS / 16;
/// Filters in the rows, and in the curves.
const MANY: usize = 16;
const CURVE: [usize; 6] = [0, 1, 2, 4, 8, MANY];
const RUNS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Loop,
    Pipes,
    Signalled,
}

impl Who {
    const ALL: [Who; 4] = [Who::Ours, Who::Loop, Who::Pipes, Who::Signalled];

    fn name(self) -> &'static str {
        match self {
            Who::Ours => "streamline",
            Who::Loop => "loop by hand",
            Who::Pipes => "pipes",
            Who::Signalled => "signal a block",
        }
    }

    fn blocks(self) -> u64 {
        match self {
            Who::Ours | Who::Loop => BLOCKS * PASSES,
            Who::Pipes => PIPED,
            Who::Signalled => SIGNALLED,
        }
    }

    fn run(self, setting: &Setting, path: &Path, filters: usize, read: Read) -> Result<Cost, String> {
        let blocks = || Blocks::new(path, MEMORY_BYTES, BLOCK_BYTES as u32, PASSES);
        match self {
            Who::Ours => Ok(blocks().through_readers(filters, read)?.0),
            Who::Loop => Ok(blocks().readers_by_hand(filters, read)?.0),
            Who::Pipes => others::pipes(setting, filters, read, PIPED),
            Who::Signalled => others::signalled(path, filters, read, SIGNALLED),
        }
    }
}

fn side(setting: &Setting, who: Who, filters: usize, read: Read) -> Result<Side<'_>, CaseError> {
    let path = setting.store.noise(MEMORY_BYTES)?;
    Ok(Side::new(move || who.run(setting, &path, filters, read)).per_item(who.blocks() as f64))
}

macro_rules! row {
    ($about:literal, $against:literal, $goal:expr, $figure:ident, $who:ident, $filters:expr, $read:ident) => {
        Case {
            about: $about,
            against: $against,
            goal: $goal,
            touched: match Read::$read {
                Read::Byte => Touched::Header,
                Read::All => Touched::Sum,
            },
            how: How::Time(Clock::Wall, Figure::$figure, |setting| {
                Ok(Sides {
                    ours: side(setting, Who::Ours, $filters, Read::$read)?,
                    peer: side(setting, Who::$who, $filters, Read::$read)?,
                })
            }),
        }
    };
}

const fn curve(about: &'static str, touched: Touched, numbers: fn(&Setting) -> Result<Numbers, CaseError>) -> Case {
    Case {
        about,
        against: "a loop by hand, median over the curve",
        goal: Goal::Reported,
        touched,
        how: How::Numbers(numbers),
    }
}

/// The rows: the time of a block.
pub static CASES: &[Case] = &[
    row!("1 filter reads 1 byte of each 1 KiB of 256 MiB", "a loop by hand", AT_MOST_LITTLE, Share, Loop, 1, Byte),
    row!("16 filters read 1 byte of each 1 KiB of 256 MiB", "a loop by hand", AT_MOST_LITTLE, Share, Loop, MANY, Byte),
    row!(
        "16 filters read 1 byte of each 1 KiB",
        "processes and pipes of 1 MiB",
        Goal::AtLeast(100.0, 100.0),
        TimesAsFast,
        Pipes,
        MANY,
        Byte
    ),
    row!(
        "16 filters read 1 byte of each 1 KiB",
        "processes and rings, a signal a block",
        Goal::AtLeast(10.0, 10.0),
        TimesAsFast,
        Signalled,
        MANY,
        Byte
    ),
    row!("1 filter reads all of each 1 KiB of 256 MiB", "a loop by hand", AT_MOST_ALL, Share, Loop, 1, All),
    row!("16 filters read all of each 1 KiB of 256 MiB", "a loop by hand", AT_MOST_ALL, Share, Loop, MANY, All),
    curve("256 MiB through 0 to 16 filters that read 1 byte of a block: curves", Touched::Header, |setting| {
        curves(
            setting,
            Read::Byte,
            "stages-filters-1-byte.svg",
            "256 MiB through filters that read 1 byte of each 1 KiB",
        )
    }),
    curve("256 MiB through 0 to 16 filters that read all of a block: curves", Touched::Sum, |setting| {
        curves(setting, Read::All, "stages-filters-all.svg", "256 MiB through filters that read all of each 1 KiB")
    }),
];

const AT_MOST_LITTLE: Goal = Goal::AtMost(1.4, 1.4);
const AT_MOST_ALL: Goal = Goal::AtMost(1.1, 1.1);

/// Draws the time of 256 MiB over the number of filters. Gives ours and the loop's, in ms.
fn curves(setting: &Setting, read: Read, name: &str, title: &str) -> Result<Numbers, CaseError> {
    let path = setting.store.noise(MEMORY_BYTES)?;
    let mut series = Vec::new();
    for who in Who::ALL {
        let runs = if matches!(who, Who::Ours | Who::Loop) { RUNS } else { 1 };
        let mut points = Vec::new();
        for filters in CURVE {
            let times = (0..runs).map(|_| Ok(who.run(setting, &path, filters, read)?.wall_s));
            let seconds = median(&times.collect::<Result<Vec<f64>, String>>()?);
            points.push((filters as f64, seconds * 1000.0 * BLOCKS as f64 / who.blocks() as f64));
        }
        series.push(Series { name: who.name().to_owned(), points });
    }
    let of = |series: &Series| series.points.iter().map(|point| point.1).collect::<Vec<f64>>();
    let numbers = Numbers { ours: of(&series[0]), peer: Some(of(&series[1])), unit: "ms", void: None };
    setting.draw(
        name,
        &Chart { title, across: "filters", scale: Scale::Count, up: "ms", up_scale: Scale::Powers, series },
    )?;
    Ok(numbers)
}
