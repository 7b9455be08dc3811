//! The highest rate without loss at each size, whatever stands between sender and sink: RFC 2544, section 26.1.

use super::bed::{Pace, Sent, Way};
use super::jobs::{self, Running};
use super::options::{Common, Searched, Size, rate, time};
use super::search::{Bound, Found, Verdict, search};
use super::show::{Ended, Shown, progress, stopped};
use crate::exit::CommandError;
use crate::progress::count;
use crate::table::Table;
use serde_json::{Value, json};
use std::time::Duration;
use streamline::StopFlag;

/// A sender that is later did not reach its rate: by this fraction of its time, and this much more.
const LATE: f64 = 0.02;
const LATE_ANYWAY: Duration = Duration::from_millis(3);

/// The options of benches of loss.
#[derive(clap::Args)]
pub(super) struct Rates {
    #[command(flatten)]
    pub(super) searched: Searched,

    /// Try no higher rate, in frames a second, and refuse sizes at which the sender alone does not reach it. Without this option
    /// the sender's own rate is the highest
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,

    /// Send for this time before the first trial of a size
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "200ms")]
    warm_up: Duration,
}

pub(super) struct Row {
    size: Size,
    /// Frames a second that the sender reaches alone.
    sender: u64,
    /// None where the sender cannot reach the rate that was asked for.
    found: Option<Found>,
    /// Frames that came twice or out of order in trials that passed.
    disordered: u64,
    /// Frames that reached the sink's device, and that the sink lost.
    sink_lost: u64,
    /// Where frames were captured or forwarded: in the kernel or not.
    place: &'static str,
}

pub(super) struct Bench<'a> {
    pub(super) way: &'a Way,
    /// The request of the sink, without `sequence`.
    pub(super) sink: String,
    /// The sink is the bench's subject: its own losses count.
    pub(super) sink_counts: bool,
    pub(super) common: &'a Common,
    pub(super) rates: &'a Rates,
    pub(super) stop: &'a StopFlag,
}

struct Trial {
    verdict: Verdict,
    lost: u64,
    disordered: u64,
    sink_lost: u64,
}

impl Bench<'_> {
    /// Measures one size: first the sender alone. Then `begin` starts the request between sender and sink, if there is one, and
    /// says where the frames go.
    pub(super) fn row(
        &self,
        size: Size,
        begin: impl FnOnce() -> Result<(Option<Running>, &'static str), CommandError>,
    ) -> Result<Row, Ended> {
        let Bench { way, common, rates, stop, .. } = *self;
        progress(&format!("{size} bytes: the sender alone"));
        let full = |time| way.send(size, Pace::Full, time, None, stop);
        if !rates.warm_up.is_zero() {
            full(rates.warm_up)?;
        }
        let sender = full(common.trial)?.rate();
        stopped(stop)?;
        let (mut between, place) = begin()?;
        let mut row = Row { size, sender, found: None, disordered: 0, sink_lost: 0, place };
        if rates.rate.is_some_and(|rate| sender < rate) {
            return Ok(row);
        }
        let range = rates.searched.rates(rates.rate.unwrap_or(sender).max(1));
        row.found = Some(search(range, |rate| {
            let mut trial = self.trial(size, rate)?;
            // Something else on this machine may have held the sender up. Try once more.
            if let Verdict::Short(_) = trial.verdict {
                trial = self.trial(size, rate)?;
            }
            progress(&format!("{size} bytes: {} frames/s, {} lost", count(rate), count(trial.lost)));
            row.sink_lost += trial.sink_lost;
            match trial.verdict {
                Verdict::Failed => between.as_mut().map_or(Ok(()), Running::check)?,
                Verdict::Passed | Verdict::Short(_) => row.disordered += trial.disordered,
            }
            Ok::<_, Ended>(trial.verdict)
        })?);
        Ok(row)
    }

    fn trial(&self, size: Size, rate: u64) -> Result<Trial, Ended> {
        let Bench { way, common, stop, .. } = *self;
        let sink = jobs::start(&way.to.namespace, &format!("{} | sequence", self.sink))?;
        let before = way.arrived()?;
        let sent = way.send(size, Pace::Rate(rate), common.trial, None, stop)?;
        sink.settle(stop);
        let arrived = way.arrived()?.saturating_sub(before);
        let ran = sink.end()?;
        stopped(stop)?;
        let said: Value = serde_json::from_str(&ran.output)
            .map_err(|_| CommandError::Failed(format!("`sequence` did not say what came: {:?}", ran.output)))?;
        let number = |name: &str| said[name].as_u64().unwrap_or(0);
        let seen = number("frames") - number("repeated").min(number("frames"));
        let missed = sent.frames.saturating_sub(seen);
        // On its own devices the bench can count the frames that reached the sink's device.
        let lost = if self.sink_counts || !way.own { missed } else { sent.frames.saturating_sub(arrived).min(missed) };
        Ok(Trial {
            verdict: verdict(&sent, rate, lost, self.rates.searched.loss),
            lost,
            disordered: number("repeated") + number("late"),
            sink_lost: missed - lost,
        })
    }
}

fn verdict(sent: &Sent, rate: u64, lost: u64, loss: f64) -> Verdict {
    if lost as f64 > sent.frames as f64 * loss {
        return Verdict::Failed;
    }
    let on_time = Duration::from_secs_f64(sent.wanted as f64 / rate as f64);
    let late = sent.took > on_time.mul_f64(1.0 + LATE) + LATE_ANYWAY;
    if late || sent.frames < sent.wanted { Verdict::Short(sent.rate()) } else { Verdict::Passed }
}

impl Row {
    /// Why the rate is not higher, or is none.
    fn note(&self, asked: Option<u64>) -> String {
        let mut notes = Vec::new();
        match self.found {
            None => notes.push(format!(
                "sender-bound: the sender alone reaches {} frames/s, not {}",
                count(self.sender),
                count(asked.unwrap_or(0))
            )),
            Some(Found { value: 0, bound: Bound::Measured, .. }) => notes.push("frames were lost at every rate".into()),
            Some(Found { bound: Bound::Sender, value, .. }) if asked == Some(value) => {
                notes.push("no frame was lost at the rate of --rate".into());
            }
            Some(Found { bound: Bound::Sender, .. }) => {
                notes.push("sender-bound: no frame was lost, and the sender reaches no higher rate".into());
            }
            Some(_) => {}
        }
        if self.disordered > 0 {
            notes.push(format!("{} frames twice or out of order", count(self.disordered)));
        }
        if self.sink_lost > 0 {
            notes.push(format!("{} that arrived the sink lost", count(self.sink_lost)));
        }
        notes.join("; ")
    }
}

pub(super) fn shown<'a>(name: &'a str, rows: &[Row], rates: &Rates) -> Shown<'a> {
    let found = rows.iter().filter_map(|row| Some((row.size, row.found?.value as f64)));
    let sender = rows.iter().map(|row| (row.size, row.sender as f64));
    let lines = vec![("loss-free", found.collect()), ("sender", sender.collect())];
    Shown { name, table: table(rows, rates), rows: json(rows, rates), up: "frames/s", lines }
}

fn table(rows: &[Row], rates: &Rates) -> String {
    let mut table = Table::new(&[">bytes", ">frames/s", ">Mbit/s", ">sender", "where", ">trials", ""]);
    for row in rows {
        let value = row.found.map(|found| found.value);
        table.row([
            row.size.to_string(),
            value.map_or("-".into(), count),
            value.map_or("-".into(), |rate| format!("{:.0}", rate as f64 * row.size.bytes() * 8.0 / 1e6)),
            count(row.sender),
            row.place.into(),
            row.found.map_or("-".into(), |found| found.trials.to_string()),
            row.note(rates.rate),
        ]);
    }
    table.text()
}

fn json(rows: &[Row], rates: &Rates) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "bytes": row.size.json(),
                "frames_per_second": row.found.map(|found| found.value),
                "sender_frames_per_second": row.sender,
                "bound": match row.found {
                    Some(Found { bound: Bound::Measured, .. }) => "loss",
                    _ => "sender",
                },
                "trials": row.found.map_or(0, |found| found.trials),
                "where": row.place,
                "disordered": row.disordered,
                "lost_by_sink": row.sink_lost,
                "note": row.note(rates.rate),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_passes_fails_or_falls_short() {
        let sent = |wanted, frames, ms| Sent { wanted, frames, took: Duration::from_millis(ms) };
        let rows = [
            (sent(1000, 1000, 1000), 0, 0.0, Verdict::Passed),
            (sent(1000, 1000, 1020), 0, 0.0, Verdict::Passed),
            (sent(1000, 1000, 2000), 0, 0.0, Verdict::Short(500)),
            (sent(1000, 900, 1000), 0, 0.0, Verdict::Short(900)),
            (sent(1000, 1000, 1000), 1, 0.0, Verdict::Failed),
            (sent(1000, 1000, 1000), 1, 0.001, Verdict::Passed),
            (sent(1000, 1000, 1000), 2, 0.001, Verdict::Failed),
            (sent(1000, 1000, 2000), 1, 0.0, Verdict::Failed),
        ];
        for (sent, lost, loss, expected) in rows {
            assert_eq!(verdict(&sent, 1000, lost, loss), expected, "{} {lost} {loss}", sent.frames);
        }
    }
}
