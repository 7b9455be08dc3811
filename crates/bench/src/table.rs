//! The results, as a table for people (which is also Markdown) and as JSON.

use crate::measure::{Estimate, Figure, Outcome};
use crate::process::Cost;
use serde_json::{Value, json};

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At most: the bound that must hold, and the target.
    AtMost(f64, f64),
    /// At least: the bound that must hold, and the target.
    AtLeast(f64, f64),
    /// Between these bounds: the same thing on both sides, which shows how steady the machine is.
    Within(f64, f64),
    /// No goal: the figure is only reported.
    Reported,
}

/// The part of the payload that the compared work reads or moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// No payload: descriptors only.
    None,
    /// Headers.
    Header,
    /// Every byte is read.
    Sum,
    /// Every byte is copied, by the kernel or by the program.
    Copy,
}

impl Touched {
    const fn name(self) -> &'static str {
        match self {
            Touched::None => "none",
            Touched::Header => "header",
            Touched::Sum => "sum",
            Touched::Copy => "copy",
        }
    }
}

impl Goal {
    /// The median decides. If the bound is inside the interval, the verdict says so.
    pub fn verdict(self, figure: Estimate) -> &'static str {
        let is_noise = |must: f64| figure.low <= must && must <= figure.high && figure.low < figure.high;
        let (must, target, noise) = match self {
            Goal::AtMost(must, target) => (figure.middle <= must, figure.middle <= target, is_noise(must)),
            Goal::AtLeast(must, target) => (figure.middle >= must, figure.middle >= target, is_noise(must)),
            Goal::Within(low, high) if figure.low < low || figure.high > high => return UNSTEADY,
            Goal::Within(..) => return "steady",
            Goal::Reported => return "reported",
        };
        match (must, target, noise) {
            (_, true, _) => "met, target too",
            (true, false, true) => "met within noise",
            (true, false, false) => "met",
            (false, false, true) => "**missed** within noise",
            (false, false, false) => "**missed**",
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtMost(must, target) => format!("<= {must} ({target})"),
            Goal::AtLeast(must, target) => format!(">= {must} ({target})"),
            Goal::Within(low, high) => format!("{low} to {high}"),
            Goal::Reported => "-".to_owned(),
        }
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub enum Found {
    /// Times.
    Times(Outcome, Figure),
    /// Highest memory in bytes of ours and the peer.
    Memory {
        /// Ours divided by the peer's.
        share: Estimate,
        /// Anonymous and shared.
        own: [u64; 2],
        /// Pages of mapped files.
        mapped_files: [u64; 2],
    },
    /// Numbers of another sort.
    Numbers {
        /// The number that the goal is for.
        figure: Estimate,
        /// Whether it is ours divided by the peer's. Else it is ours.
        is_ratio: bool,
        /// The median of ours.
        ours: f64,
        /// The median of the peer's.
        peer: Option<f64>,
        /// Their unit.
        unit: &'static str,
        /// Why the figure says nothing about the goal. `None`: it does.
        void: Option<&'static str>,
    },
    /// This machine lacks something; says how to get it.
    Missing(String),
    /// It went wrong.
    Failed(String),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The work, in words.
    pub case: String,
    /// The peer, in words.
    pub against: String,
    /// The goal.
    pub goal: Goal,
    /// The part of the payload that the work touches.
    pub touched: Touched,
    /// The result.
    pub found: Found,
}

impl Row {
    fn cells(&self) -> [String; 9] {
        let (ours, peer, ratio, interval, verdict) = match &self.found {
            Found::Times(outcome, figure) => {
                let verdict = format!(
                    "{}{}",
                    self.goal.verdict(outcome.figure),
                    if outcome.steady { "" } else { "; did not settle" }
                );
                let estimate = outcome.figure;
                (cost(outcome.ours), cost(outcome.peer), ratio(estimate.middle, *figure), interval(estimate), verdict)
            }
            Found::Memory { share, own, mapped_files } => {
                let cell = |index: usize| format!("{}, files {}", bytes(own[index]), bytes(mapped_files[index]));
                let verdict = self.goal.verdict(*share).to_owned();
                (cell(0), cell(1), ratio(share.middle, Figure::Share), interval(*share), verdict)
            }
            Found::Numbers { figure, is_ratio, ours, peer, unit, void } => {
                let cell = |number: f64| format!("{} {unit}", digits(number));
                let verdict = void.unwrap_or_else(|| self.goal.verdict(*figure)).to_owned();
                let ratio = if *is_ratio { digits(figure.middle) } else { cell(figure.middle) };
                (cell(*ours), peer.map_or_else(dash, cell), ratio, interval(*figure), verdict)
            }
            Found::Missing(how) => (dash(), dash(), dash(), dash(), how.clone()),
            Found::Failed(_) => (dash(), dash(), dash(), dash(), "**failed**".to_owned()),
        };
        let touched = self.touched.name().to_owned();
        let case = self.case.replace('|', "\\|");
        [case, self.against.replace('|', "\\|"), ours, peer, ratio, interval, self.goal.text(), touched, verdict]
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "case": self.case,
            "against": self.against,
            "goal": self.goal.text(),
            "touched": self.touched.name(),
        });
        let estimate = |figure: &Estimate| json!({"middle": figure.middle, "low": figure.low, "high": figure.high});
        let more = match &self.found {
            Found::Times(outcome, _) => json!({
                "figure": estimate(&outcome.figure),
                "verdict": self.goal.verdict(outcome.figure).trim_matches('*'),
                "ours": {"wall_s": outcome.ours.wall_s, "cpu_s": outcome.ours.cpu_s, "runs": outcome.runs[0]},
                "peer": {"wall_s": outcome.peer.wall_s, "cpu_s": outcome.peer.cpu_s, "runs": outcome.runs[1]},
                "pairs": outcome.pairs,
                "steady": outcome.steady,
            }),
            Found::Memory { share, own, mapped_files } => json!({
                "figure": estimate(share),
                "verdict": self.goal.verdict(*share).trim_matches('*'),
                "ours": {"own_bytes": own[0], "mapped_file_bytes": mapped_files[0]},
                "peer": {"own_bytes": own[1], "mapped_file_bytes": mapped_files[1]},
            }),
            Found::Numbers { figure, ours, peer, unit, void, .. } => json!({
                "figure": estimate(figure),
                "verdict": void.unwrap_or_else(|| self.goal.verdict(*figure)).trim_matches('*'),
                "ours": ours, "peer": peer, "unit": unit,
            }),
            Found::Missing(how) => json!({"missing": how}),
            Found::Failed(why) => json!({"failed": why}),
        };
        if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
            value.extend(more);
        }
        value
    }
}

/// The whole table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The machine and the programs.
    pub machine: Vec<String>,
    /// Its rows.
    pub rows: Vec<Row>,
}

const UNSTEADY: &str = "**unsteady**";

const HEAD: [&str; 9] =
    ["case", "against", "ours (cpu)", "peer (cpu)", "ratio", "95 % interval", "must (target)", "touched", ""];

impl Table {
    /// Aligned text, which is also Markdown.
    pub fn text(&self) -> String {
        let mut lines: Vec<[String; 9]> = vec![HEAD.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 9] = std::array::from_fn(width);
        let mut text = String::new();
        for line in &self.machine {
            text += &format!("- {line}\n");
        }
        text.push('\n');
        for (index, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(widths) {
                text += &format!("| {cell:width$} ");
            }
            text += "|\n";
            if index == 0 {
                widths.iter().for_each(|width| text += &format!("|{}", "-".repeat(width + 2)));
                text += "|\n";
            }
        }
        if lines.iter().any(|line| line[8] == UNSTEADY) {
            text +=
                "\nThe same thing under two names differs by more than 3 %: the machine was busy with other things.\n";
        }
        text
    }

    /// The rows in the form of BENCHMARKS.md: Markdown without processor times, with the interval behind the median.
    pub fn brief(&self) -> String {
        let mut text =
            "| case | against | ours | peer | ratio (95 % interval) | must (target) | outcome |\n".to_owned();
        text += "|---|---|---|---|---|---|---|\n";
        let wall = |cell: &str| cell.split(" (").next().unwrap_or_default().to_owned();
        for row in self.rows.iter().filter(|row| !matches!(row.goal, Goal::Within(..))) {
            let [case, against, ours, peer, ratio, interval, goal, _, verdict] = row.cells();
            let ratio = match interval.as_str() {
                "-" => ratio,
                interval => format!("{} ({interval})", ratio.replace(" times as fast", "x")),
            };
            let goal = goal.replace(">=", "≥").replace("<=", "≤");
            let (ours, peer) = (wall(&ours), wall(&peer));
            text += &format!("| {case} | {against} | {ours} | {peer} | {ratio} | {goal} | {verdict} |\n");
        }
        text
    }

    /// The table as JSON.
    pub fn json(&self) -> Value {
        json!({"machine": self.machine, "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>()})
    }

    /// Whether a case went wrong. A missed goal or a missing peer is no error.
    pub fn has_failed(&self) -> bool {
        self.failures().next().is_some()
    }

    /// Cases that missed their goal, or went wrong.
    pub fn misses(&self) -> impl Iterator<Item = &str> {
        let is_miss = |row: &&Row| matches!(row.found, Found::Failed(_)) || row.cells()[8].contains("missed");
        self.rows.iter().filter(is_miss).map(|row| row.case.as_str())
    }

    /// For each case that went wrong: the error.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().filter_map(|row| match &row.found {
            Found::Failed(why) => Some((row.case.as_str(), why.as_str())),
            _ => None,
        })
    }
}

fn dash() -> String {
    "-".to_owned()
}

fn cost(cost: Cost) -> String {
    format!("{} ({})", seconds(cost.wall_s), seconds(cost.cpu_s))
}

fn seconds(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1.0 => (value, "s"),
        value if value >= 1e-3 => (value * 1e3, "ms"),
        value if value >= 1e-6 => (value * 1e6, "us"),
        value => (value * 1e9, "ns"),
    };
    format!("{} {unit}", digits(scaled))
}

fn bytes(value: u64) -> String {
    format!("{:.1} MB", value as f64 / 1e6)
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

fn ratio(value: f64, figure: Figure) -> String {
    match figure {
        Figure::Share => digits(value),
        Figure::TimesAsFast => format!("{} times as fast", digits(value)),
        Figure::ExtraNs(_) => format!("{} ns", digits(value)),
    }
}

fn interval(figure: Estimate) -> String {
    format!("{} to {}", digits(figure.low), digits(figure.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides() {
        let figure = Estimate { middle: 1.0, low: 0.9, high: 1.3 };
        let rows = [
            (Goal::AtMost(1.4, 1.0), "met, target too"),
            (Goal::AtMost(1.4, 0.9), "met"),
            (Goal::AtMost(1.2, 0.9), "met within noise"),
            (Goal::AtMost(0.95, 0.9), "**missed** within noise"),
            (Goal::AtMost(0.8, 0.7), "**missed**"),
            (Goal::AtLeast(0.8, 1.0), "met, target too"),
            (Goal::AtLeast(0.8, 1.1), "met"),
            (Goal::AtLeast(0.95, 1.1), "met within noise"),
            (Goal::AtLeast(1.1, 2.0), "**missed** within noise"),
            (Goal::AtLeast(1.4, 2.0), "**missed**"),
            (Goal::Within(0.9, 1.3), "steady"),
            (Goal::Within(0.97, 1.3), UNSTEADY),
            (Goal::Within(0.9, 1.03), UNSTEADY),
            (Goal::Reported, "reported"),
        ];
        for (goal, expected) in rows {
            assert_eq!(goal.verdict(figure), expected, "{goal:?}");
        }
    }

    #[test]
    fn a_table_is_markdown_and_json() {
        let row = |found| Row {
            case: "`a | b`".into(),
            against: "tool".into(),
            goal: Goal::AtMost(2.0, 1.0),
            touched: Touched::Header,
            found,
        };
        let share = Estimate { middle: 0.5, low: 0.4, high: 0.6 };
        let memory = Found::Memory { share, own: [1_000_000, 2_000_000], mapped_files: [3_000_000, 0] };
        let rows = vec![row(memory), row(Found::Missing("peer missing: apt-get install tool".into()))];
        let table = Table { machine: vec!["a machine".into()], rows };
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[4].starts_with("| `a \\| b` | tool    | 1.0 MB, files 3.0 MB | 2.0 MB, files 0.0 MB | 0.50"),
            "{text}"
        );
        assert!(lines[5].contains("apt-get install tool"), "{text}");
        assert!(
            table.brief().contains("| 1.0 MB, files 3.0 MB | 2.0 MB, files 0.0 MB | 0.50 (0.40 to 0.60) | ≤ 2 (1) |"),
            "{}",
            table.brief()
        );
        assert!(lines[2..].iter().all(|line| line.chars().count() == lines[2].chars().count()), "{text}");
        assert!(!table.has_failed());
        assert_eq!(table.json()["rows"][0]["figure"]["middle"], 0.5);
    }

    #[test]
    fn numbers_have_three_digits() {
        let rows = [(1.234, "1.23 s"), (0.012_34, "12.3 ms"), (5.4e-6, "5.40 us"), (3.21e-9, "3.21 ns")];
        for (value, expected) in rows {
            assert_eq!(seconds(value), expected);
        }
    }
}
