//! Charts that no table can replace: throughput over the size of the ring and of the call, and of the four kinds over
//! the size of the packet. Drawn by `bench rings --draw FOLDER`. They are medians of a few runs, without a comparison.

use super::ours::{self, Plan};
use super::processes::Ran;
use crate::measure::median;
use buffer::ring::RingKind;
use chart::{Chart, Scale, Series};
use std::path::Path;

const RUNS: usize = 5;

/// Bytes of a run, and the most blocks, since small blocks take long.
const RUN_BYTES: u64 = 128 << 20;
const RUN_BLOCKS: u64 = 1 << 20;

/// Draws all charts into a folder.
pub fn draw(folder: &Path) -> Result<(), String> {
    for (name, chart) in [("rings-by-size.svg", by_size()?), ("rings-by-kind.svg", by_kind()?)] {
        let path = folder.join(name);
        std::fs::write(&path, chart.svg()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

type Run = fn(Plan, u64) -> Result<Ran, String>;

fn throughput(plan: Plan, block_bytes: usize, run: Run) -> Result<f64, String> {
    let blocks = (RUN_BYTES / block_bytes as u64).min(RUN_BLOCKS);
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        let seconds = run(plan, blocks)?.cost().wall_s;
        rates.push(blocks as f64 * block_bytes as f64 / seconds / 1e9);
    }
    Ok(median(&rates))
}

fn by_size() -> Result<Chart<'static>, String> {
    let calls: [(usize, &str, Run); 4] = [
        (64, "64 B", ours::copied::<64>),
        (512, "512 B", ours::copied::<512>),
        (4096, "4 KiB", ours::copied::<4096>),
        (65536, "64 KiB", ours::copied::<65536>),
    ];
    let mut series = Vec::new();
    for (bytes, name, run) in calls {
        let mut points = Vec::new();
        for log in [14, 16, 18, 20, 22, 24, 26] {
            let ring_bytes = 1u64 << log;
            if ring_bytes >= bytes as u64 {
                let plan = Plan { bytes: ring_bytes, ..Plan::new(RingKind::C) };
                points.push((ring_bytes as f64, throughput(plan, bytes, run)?));
            }
        }
        series.push(Series { name: name.to_owned(), points });
    }
    let title = "stream written and read between two processes, by bytes a call";
    Ok(Chart { title, across: "bytes of the ring", scale: Scale::Bytes, up: "GB/s", up_scale: Scale::Powers, series })
}

fn by_kind() -> Result<Chart<'static>, String> {
    let packets: [(usize, Run); 6] = [
        (64, ours::copied::<64>),
        (256, ours::copied::<256>),
        (1024, ours::copied::<1024>),
        (4096, ours::copied::<4096>),
        (16384, ours::copied::<16384>),
        (65536, ours::copied::<65536>),
    ];
    let mut series = Vec::new();
    for kind in RingKind::ALL {
        let mut points = Vec::new();
        for (bytes, run) in packets {
            let slots = super::pipes::PIPE_BYTES / bytes;
            let plan = Plan { slots: slots as u64, ..Plan::new(kind) };
            points.push((bytes as f64, throughput(plan, bytes, run)?));
        }
        series.push(Series { name: kind.name().to_owned(), points });
    }
    let title = "packets written and read between two processes, rings of 1 MiB, by kind";
    Ok(Chart { title, across: "bytes of a packet", scale: Scale::Bytes, up: "GB/s", up_scale: Scale::Powers, series })
}
