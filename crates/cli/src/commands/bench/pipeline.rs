//! `streamline bench pipeline`: how much work a request has time for with each frame.

use super::bed::per_second;
use super::jobs;
use super::options::{Common, Searched, Size, rate};
use super::search::{Bound, Found, Range, Verdict, search};
use super::show::{Ended, Shown, progress, rows, show, stopped};
use crate::exit::{CommandError, Outcome};
use crate::progress::count;
use crate::request_text::{RequestArgs, RequestText};
use crate::table::Table;
use request::{Name, Param};
use serde_json::{Value, json};
use std::time::Duration;
use streamline::StopFlag;
use streamline::language::FilterCall;

/// `work` replaces this word in a request.
const WORD: &str = "WORK";

/// Bytes on a wire besides those of a frame: preamble and gap (IEEE 802.3).
const WIRE_BYTES: f64 = 20.0;

/// Bits a second of a link where neither `--rate` nor `--bits` says otherwise.
const GIGABIT: u64 = 1_000_000_000;

/// The longest work that is tried: `work` refuses more.
const LONGEST_NS: u64 = 1_000_000_000;

/// A run that is later did not keep to the rate: by this share of its time, and this much more.
const LATE: f64 = 0.01;
const LATE_ANYWAY: Duration = Duration::from_millis(3);

/// Measure how much work a request has time for with each frame
///
/// The word WORK in the request becomes `work NS`, which keeps a processor busy for this time with each frame. By bisection: the
/// longest work at which the request keeps to the frame rate, and drops nothing. Frames come from memory: made, or those of a
/// capture (--replay): the request has no source of its own. It needs no device and no rights.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  streamline bench pipeline 'WORK | count'
  streamline bench pipeline 'tcp | WORK | count' --replay captures/web.pcap --rate 100k")]
pub(super) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    searched: Searched,

    /// Frames a second
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "bits")]
    rate: Option<u64>,

    /// Take the frames a second of a link with this number of bits a second, preamble and gap counted; 1G without --rate
    #[arg(long, value_name = "BITS", value_parser = rate)]
    bits: Option<u64>,

    /// The frames of this capture, again and again, instead of frames of each size
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["sizes", "bits"], requires = "rate")]
    replay: Option<String>,
}

struct Row {
    /// None for a capture.
    size: Option<Size>,
    rate: u64,
    found: Option<Found>,
    /// Without work: frames a second, and frames that filters dropped.
    reaches: u64,
    dropped: u64,
}

impl Row {
    fn budget_ns(&self) -> u64 {
        1_000_000_000 / self.rate.max(1)
    }

    fn label(&self) -> String {
        self.size.map_or("capture".into(), |size| size.to_string())
    }

    fn note(&self) -> String {
        match (self.found, self.dropped) {
            (Some(Found { bound: Bound::Sender, .. }), _) => "the work hides behind the rest".into(),
            (Some(_), _) => String::new(),
            (None, 0) => {
                format!(
                    "without work the request reaches {:.0}% of this rate",
                    self.reaches as f64 * 100.0 / self.rate as f64
                )
            }
            (None, dropped) => format!("without work the request drops {} frames", count(dropped)),
        }
    }
}

pub(super) fn run(args: &Args, stop: &StopFlag) -> Outcome {
    args.common.check_svg()?;
    let request = args.request.required()?;
    if words(&request.source).count() == 0 {
        let text = format!("the request does not say where the work stands: it lacks the word {WORD}");
        return Err(CommandError::Wrong(text).with_help("as in 'WORK | count'"));
    }
    let sizes = match &args.replay {
        None => args.common.sizes.iter().copied().map(Some).collect(),
        Some(_) => vec![None],
    };
    let (rows, outcome) = rows(sizes, |size| row(args, &request, size, stop));
    let works = |row: &Row| Some((row.size?, row.found?.value as f64));
    let budgets = |row: &Row| Some((row.size?, row.budget_ns() as f64));
    let lines = vec![
        ("work", rows.iter().filter_map(works).collect()),
        ("all of it", rows.iter().filter_map(budgets).collect()),
    ];
    let shown = Shown { name: "pipeline", table: table(&rows), rows: json(&rows), up: "ns a frame", lines };
    show(&args.common, shown, outcome)
}

/// Measures one size, or the capture.
fn row(args: &Args, request: &RequestText, size: Option<Size>, stop: &StopFlag) -> Result<Row, Ended> {
    let rate = args.rate.unwrap_or_else(|| line_rate(args.bits.unwrap_or(GIGABIT), size.unwrap_or(Size::Mix)));
    let mut row = Row { size, rate, found: None, reaches: 0, dropped: 0 };
    let label = row.label();
    let count = ((rate as f64 * args.common.trial.as_secs_f64()) as u64).max(1);
    // A first run is slower than those after it.
    let one = Given { size, rate, count: 1, work_ns: 0 };
    let unpaced = one.run(args, request, stop)?.took.min(one.run(args, request, stop)?.took);
    let trial = |work_ns| {
        progress(&format!("{label}: {work_ns} ns of work with a frame"));
        let given = Given { size, rate, count, work_ns };
        Ok::<_, Ended>(given.run(args, request, stop)?.judged(&given, unpaced, args.searched.loss))
    };
    let without = trial(0)?;
    (row.reaches, row.dropped) = (without.reached, without.dropped);
    if without.is_good() {
        let range =
            Range { highest: row.budget_ns().clamp(1, LONGEST_NS), resolution: args.searched.resolution, least: 1 };
        row.found = Some(search(range, |work_ns| {
            let verdict = if trial(work_ns)?.is_good() { Verdict::Passed } else { Verdict::Failed };
            Ok::<_, Ended>(verdict)
        })?);
    }
    Ok(row)
}

/// How many frames of a size a link carries in a second.
fn line_rate(bits: u64, size: Size) -> u64 {
    ((bits as f64 / 8.0 / (size.bytes() + WIRE_BYTES)) as u64).max(1)
}

struct Trial {
    on_time: bool,
    reached: u64,
    dropped: u64,
    /// `--loss` permits them.
    few_enough: bool,
}

impl Trial {
    fn is_good(&self) -> bool {
        self.on_time && self.few_enough
    }
}

struct Given {
    size: Option<Size>,
    rate: u64,
    count: u64,
    work_ns: u64,
}

impl Given {
    fn run(&self, args: &Args, request: &RequestText, stop: &StopFlag) -> Result<Run, Ended> {
        let frames = match (&args.replay, self.size) {
            (Some(file), _) => vec![("file", file.clone()), ("loop", "0".into())],
            (None, size) => vec![("size", size.unwrap_or(Size::Mix).param())],
        };
        let paced = [("rate", self.rate.to_string()), ("count", self.count.to_string())];
        let source = FilterCall { params: params(frames.into_iter().chain(paced)), ..FilterCall::new("generate", []) };
        let text = RequestText {
            source: with_work(&request.source, self.work_ns),
            name: request.name.clone(),
            variables: request.variables.clone(),
        };
        let ran = jobs::run_reading(source, &text.source, &text.variables, stop).map_err(|error| text.tell(error))?;
        stopped(stop)?;
        let nodes = &ran.report.nodes;
        let frames = nodes.iter().filter(|node| node.source).map(|node| node.counters.blocks_made).min().unwrap_or(0);
        if frames < self.count {
            let text = format!("the request took {frames} frames of {} and wanted no more", self.count);
            return Err(CommandError::Wrong(text).with_help("measure one that takes all: without `head`").into());
        }
        Ok(Run { took: ran.took, dropped: nodes.iter().map(|node| node.counters.drops.total()).sum() })
    }
}

struct Run {
    took: Duration,
    dropped: u64,
}

impl Run {
    /// `unpaced` is the time of a run with one frame: it reads the capture into memory, and finishes.
    fn judged(&self, given: &Given, unpaced: Duration, loss: f64) -> Trial {
        let took = self.took.saturating_sub(unpaced);
        let on_time = Duration::from_secs_f64(given.count as f64 / given.rate as f64).mul_f64(1.0 + LATE) + LATE_ANYWAY;
        Trial {
            on_time: took <= on_time,
            reached: per_second(given.count, took),
            dropped: self.dropped,
            few_enough: self.dropped as f64 <= given.count as f64 * loss,
        }
    }
}

fn params(given: impl Iterator<Item = (&'static str, String)>) -> Vec<Param> {
    given
        .map(|(key, value)| Param {
            key: Name::new(key),
            value: request::Value { quoted: true, ..request::Value::new(value) },
        })
        .collect()
}

/// Where the word stands in a request: not as a part of another.
fn words(request: &str) -> impl Iterator<Item = usize> {
    let is_part = |c: char| c.is_alphanumeric() || "_-$=./".contains(c);
    request.match_indices(WORD).map(|(at, _)| at).filter(move |at| {
        let (before, after) = (&request[..*at], &request[at + WORD.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

fn with_work(request: &str, work_ns: u64) -> String {
    let (mut text, mut from) = (String::new(), 0);
    for at in words(request) {
        text += &request[from..at];
        text += &format!("work {work_ns}ns");
        from = at + WORD.len();
    }
    text + &request[from..]
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[">bytes", ">frames/s", ">ns a frame", ">work ns", ">share", ">trials", ""]);
    for row in rows {
        let work = row.found.map(|found| found.value);
        table.row([
            row.label(),
            count(row.rate),
            row.budget_ns().to_string(),
            work.map_or("-".into(), |work| work.to_string()),
            work.map_or("-".into(), |work| format!("{:.0}%", work as f64 * 100.0 / row.budget_ns().max(1) as f64)),
            row.found.map_or("-".into(), |found| found.trials.to_string()),
            row.note(),
        ]);
    }
    table.text()
}

fn json(rows: &[Row]) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "bytes": row.size.map(Size::json),
                "frames_per_second": row.rate,
                "ns_a_frame": row.budget_ns(),
                "work_ns": row.found.map(|found| found.value),
                "trials": row.found.map_or(0, |found| found.trials),
                "note": row.note(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_a_word() {
        let rows = [
            ("WORK | count", "work 5ns | count"),
            ("tcp|WORK|WORK", "tcp|work 5ns|work 5ns"),
            ("{WORK+count}", "{work 5ns+count}"),
            ("save WORKS.pcap | $WORK | MY_WORK | name=WORK", "save WORKS.pcap | $WORK | MY_WORK | name=WORK"),
        ];
        for (request, expected) in rows {
            assert_eq!(with_work(request, 5), expected);
        }
    }

    #[test]
    fn a_gigabit_is_1488_frames_of_64_bytes_in_a_millisecond() {
        assert_eq!(line_rate(GIGABIT, Size::Bytes(64)), 1_488_095);
        assert_eq!(line_rate(GIGABIT, Size::Bytes(1518)), 81_274);
        assert_eq!(line_rate(1, Size::Mix), 1);
    }
}
