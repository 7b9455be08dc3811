//! Makes docs/benchmarks/flows.md: how rows are made, the machine, the table, and a line for each missed goal.

use crate::table::Table;
use std::fmt::Write;

const ABOUT: &str = include_str!("about.md");

const MISSES: &str = "\nMisses:\n\n";

const CHARTS: &str = "\n## Charts\n";

/// Explains a missed goal until its cause is known.
const UNKNOWN: &str = "not looked into yet.";

/// The document. `before` is the version that it replaces; its lines about goals that are still missed stay.
pub fn text(table: &Table, before: &str) -> String {
    let (about, charts) = ABOUT.split_once(CHARTS).unwrap_or((ABOUT, ""));
    let mut text = format!("{about}\n## Figures\n\n{}", table.text());
    let mut misses = table.misses().peekable();
    if misses.peek().is_some() {
        text += MISSES;
    }
    for case in misses {
        let begin = format!("- **{case}**: ");
        let known = before.lines().find_map(|line| line.strip_prefix(&begin));
        let _ = writeln!(text, "{begin}{}", known.unwrap_or(UNKNOWN));
    }
    text + CHARTS + charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Estimate;
    use crate::table::{Found, Goal, Row, Touched};

    #[test]
    fn misses_have_lines_that_stay() {
        let row = |case: &str, ours: f64| Row {
            case: case.into(),
            against: "-".into(),
            goal: Goal::AtMost(1.0, 0.5),
            touched: Touched::Copy,
            found: Found::Numbers {
                figure: Estimate { middle: ours, low: ours, high: ours },
                is_ratio: false,
                ours,
                peer: None,
                unit: "%",
                void: None,
            },
        };
        let table = Table {
            machine: vec!["a machine".into()],
            rows: vec![row("good", 0.7), row("bad", 2.0), row("worse", 3.0)],
        };
        let text = text(&table, "- **bad**: the wire is wet.\n- **good**: no.\n");
        assert!(
            text.contains("- **bad**: the wire is wet.\n- **worse**: not looked into yet.\n\n## Charts\n"),
            "{text}"
        );
        assert!(text.contains("- a machine\n") && !text.contains("**good**"), "{text}");
        // Made again from itself, it stays the same.
        assert_eq!(super::text(&table, &text), text);
    }
}
