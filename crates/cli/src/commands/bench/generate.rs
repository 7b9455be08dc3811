//! `streamline bench generate`: how many frames a second can be made and sent.

use super::bed::{Pace, Way, counter, named, per_second};
use super::options::{Common, Size};
use super::show::{Ended, Shown, progress, rows, show, stopped};
use crate::exit::Outcome;
use crate::progress::count;
use crate::table::Table;
use driver::pair::End;
use serde_json::{Value, json};
use std::time::Duration;
use streamline::StopFlag;

/// Measure how many frames a second can be made and sent
///
/// Runs `generate size=... | send DEVICE` as fast as it goes; the median of some trials. On a virtual pair frames are counted
/// where they arrive.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// Send on this device; without it a virtual pair is made
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Which way: the parameter `by` of `send`
    #[arg(long, value_enum, default_value_t = By::Socket)]
    by: By,

    /// Trials of each size
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000), default_value = "3")]
    trials: u32,

    /// Send for this time before the first trial of a size
    #[arg(long, value_name = "TIME", value_parser = super::options::time, default_value = "200ms")]
    warm_up: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Socket,
    Direct,
    Xdp,
}

impl By {
    fn param(self) -> &'static str {
        match self {
            By::Socket => "socket",
            By::Direct => "direct",
            By::Xdp => "xdp",
        }
    }
}

struct Row {
    size: Size,
    rate: u64,
    /// Of all trials.
    slowest: u64,
    fastest: u64,
    /// Frames that were sent in all, and did not arrive or were dropped by the device.
    lost: u64,
}

pub(super) fn run(args: &Args, stop: &StopFlag) -> Outcome {
    args.common.check_svg()?;
    let way = match &args.device {
        None => Way::pair()?,
        Some(device) => {
            let end = named(device)?;
            Way { from: end.clone(), to: end, through: None, own: false }
        }
    };
    let (rows, outcome) = rows(args.common.sizes.iter().copied(), |size| row(args, &way, size, stop));
    let lines = vec![("frames", rows.iter().map(|row| (row.size, row.rate as f64)).collect())];
    let shown = Shown { name: "generate", table: table(&rows), rows: json(&rows), up: "frames/s", lines };
    show(&args.common, shown, outcome)
}

fn row(args: &Args, way: &Way, size: Size, stop: &StopFlag) -> Result<Row, Ended> {
    let by = Some(args.by.param());
    progress(&format!("{size} bytes"));
    if !args.warm_up.is_zero() {
        way.send(size, Pace::Full, args.warm_up, by, stop)?;
    }
    let (mut rates, mut lost) = (Vec::new(), 0);
    for _ in 0..args.trials {
        stopped(stop)?;
        let before = gone(way)?;
        let sent = way.send(size, Pace::Full, args.common.trial, by, stop)?;
        let arrived = match way.own {
            true => settled(&way.to, stop)?.saturating_sub(before),
            false => sent.frames.saturating_sub(gone(way)?.saturating_sub(before)),
        };
        lost += sent.frames.saturating_sub(arrived);
        rates.push(per_second(arrived.min(sent.frames), sent.took));
        progress(&format!("{size} bytes: {} frames/s", count(sent.rate())));
    }
    stopped(stop)?;
    rates.sort_unstable();
    let (slowest, fastest) = (rates[0], rates[rates.len() - 1]);
    Ok(Row { size, rate: rates[rates.len() / 2], slowest, fastest, lost })
}

/// On a pair: frames that arrived. On another device: frames that it dropped.
fn gone(way: &Way) -> Result<u64, Ended> {
    Ok(counter(&way.to, if way.own { "rx_packets" } else { "tx_dropped" })?)
}

/// Frames that arrived, read once no more come.
fn settled(end: &End, stop: &StopFlag) -> Result<u64, Ended> {
    let mut last = counter(end, "rx_packets")?;
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let now = counter(end, "rx_packets")?;
        if now == last || stop.is_set() {
            return Ok(now);
        }
        last = now;
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[">bytes", ">frames/s", ">Mbit/s", ">slowest", ">fastest", ">dropped"]);
    for row in rows {
        table.row([
            row.size.to_string(),
            count(row.rate),
            format!("{:.0}", row.rate as f64 * row.size.bytes() * 8.0 / 1e6),
            count(row.slowest),
            count(row.fastest),
            count(row.lost),
        ]);
    }
    table.text()
}

fn json(rows: &[Row]) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "bytes": row.size.json(),
                "frames_per_second": row.rate,
                "slowest": row.slowest,
                "fastest": row.fastest,
                "dropped": row.lost,
            })
        })
        .collect()
}
