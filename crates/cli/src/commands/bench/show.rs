//! How benches end and show what they found: a table or JSON on standard output, a chart, a line of progress.

use super::options::{Common, Size, cannot_write};
use crate::exit::{CommandError, Outcome};
use crate::terminal;
use chart::{Chart, Scale, Series};
use serde_json::{Value, json};
use std::io::IsTerminal;
use streamline::StopFlag;

/// Why a bench did not go through.
pub(super) enum Ended {
    Stopped,
    Failed(CommandError),
}

impl<E: Into<CommandError>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

pub(super) fn stopped(stop: &StopFlag) -> Result<(), Ended> {
    if stop.is_set() { Err(Ended::Stopped) } else { Ok(()) }
}

pub(super) fn progress(line: &str) {
    if std::io::stderr().is_terminal() {
        terminal::show_line(line);
    }
}

fn progress_ends() {
    if std::io::stderr().is_terminal() {
        terminal::clear_line();
    }
}

pub(super) struct Shown<'a> {
    pub(super) name: &'a str,
    pub(super) table: String,
    pub(super) rows: Value,
    pub(super) up: &'a str,
    pub(super) lines: Vec<(&'a str, Vec<(Size, f64)>)>,
}

/// Measures a row for each size. An error or a signal ends it; the rows before stay.
pub(super) fn rows<S, R>(
    sizes: impl IntoIterator<Item = S>,
    mut row: impl FnMut(S) -> Result<R, Ended>,
) -> (Vec<R>, Outcome) {
    let mut rows = Vec::new();
    for size in sizes {
        match row(size) {
            Ok(row) => rows.push(row),
            Err(ended) => {
                progress_ends();
                let outcome = match ended {
                    Ended::Failed(error) => Err(error),
                    Ended::Stopped => {
                        tell!("warning: stopped before all sizes were measured");
                        Ok(())
                    }
                };
                return (rows, outcome);
            }
        }
    }
    progress_ends();
    (rows, Ok(()))
}

/// Shows the rows, if there are any or nothing failed; gives back how the bench ended.
pub(super) fn show(common: &Common, shown: Shown<'_>, outcome: Outcome) -> Outcome {
    if outcome.is_err() && shown.rows.as_array().is_none_or(Vec::is_empty) {
        return outcome;
    }
    if let Some(path) = common.svg.as_ref().filter(|_| shown.lines.iter().any(|(_, points)| !points.is_empty())) {
        let svg = chart(&shown).svg();
        std::fs::write(path, svg).map_err(|error| cannot_write(path, &error))?;
    }
    let document = || json!({ "bench": shown.name, "trial_ns": common.trial.as_nanos() as u64, "rows": shown.rows });
    if common.json {
        crate::print_json(&document())?
    } else {
        crate::print_text(&shown.table)?
    }
    outcome
}

/// The chart: a line over the sizes; the mix stands beside its line, at its mean.
fn chart<'a>(shown: &Shown<'a>) -> Chart<'a> {
    let mut series = Vec::new();
    for (name, points) in &shown.lines {
        let points = || points.iter().filter(|(_, value)| *value > 0.0);
        let is_mix = |size: &Size| *size == Size::Mix;
        let place = |(size, value): &(Size, f64)| (size.bytes(), *value);
        let mut line: Vec<_> = points().filter(|(size, _)| !is_mix(size)).map(place).collect();
        line.sort_by(|one, other| one.0.total_cmp(&other.0));
        series.push(Series { name: (*name).into(), points: line });
        let mix: Vec<_> = points().filter(|(size, _)| is_mix(size)).map(place).collect();
        if !mix.is_empty() {
            series.push(Series { name: format!("{name} (mix)"), points: mix });
        }
    }
    Chart {
        title: shown.name,
        across: "bytes of a frame",
        scale: Scale::Bytes,
        up: shown.up,
        up_scale: Scale::Powers,
        series,
    }
}
