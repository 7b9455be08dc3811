//! The program `bench`: one comparison, one table. See BENCHMARKS.md for the results and how to read them.

#![forbid(unsafe_code)]

use bench::COMPARISONS;
use bench::machine;
use bench::measure::Effort;
use bench::piped;
use bench::setting::Setting;
use bench::table::Table;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Measures Streamline against other tools and against loops by hand.
#[derive(Parser)]
struct Args {
    /// The comparison, or `list`
    name: String,

    /// Write the table as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// 5 pairs of blocks for each case instead of 15: to see whether it works
    #[arg(long, conflicts_with = "quoted")]
    quick: bool,

    /// 31 pairs of blocks for each case: for figures that are quoted
    #[arg(long)]
    quoted: bool,

    /// Write the rows as BENCHMARKS.md has them into this file, too
    #[arg(long, value_name = "FILE")]
    brief: Option<PathBuf>,

    /// Write the charts of cases that make some into this folder; docs/benchmarks, or with --quick beside the captures, if not given
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,

    /// Draw the comparison's charts into this folder instead of measuring its cases
    #[arg(long, value_name = "FOLDER")]
    draw: Option<PathBuf>,

    /// Only cases whose text, or what they are compared with, contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Where captures are kept; beside the build's output if not given
    #[arg(long, value_name = "FOLDER")]
    captures: Option<PathBuf>,

    /// The program to measure; built first if not given
    #[arg(long, value_name = "FILE")]
    streamline: Option<PathBuf>,
}

fn main() -> ExitCode {
    // A stage of a measured pipeline is not for people, so help does not show it.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, rest)) if first == "stage" => piped::run(rest).map(|()| true),
        _ => run(&Args::parse()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs a comparison; `false` if one of its cases failed.
fn run(args: &Args) -> Result<bool, String> {
    if args.name == "list" {
        COMPARISONS.iter().for_each(|comparison| println!("{:12} {}", comparison.name, comparison.about));
        return Ok(true);
    }
    let comparison = COMPARISONS.iter().find(|comparison| comparison.name == args.name);
    let comparison = comparison.ok_or_else(|| format!("there is no comparison {}; see `bench list`", args.name))?;
    if let Some(folder) = &args.draw {
        let draw = comparison.draw.ok_or_else(|| format!("{} has no charts", args.name))?;
        return draw(folder).map(|()| true);
    }
    let effort = match args {
        Args { quick: true, .. } => Effort::Quick,
        Args { quoted: true, .. } => Effort::Quoted,
        _ => Effort::Usual,
    };
    let setting = Setting::new(effort, args.captures.as_deref(), args.streamline.as_deref(), args.figures.as_deref())?;
    let mut table = Table { machine: machine::description(&setting.streamline), rows: Vec::new() };
    for case in comparison.groups.iter().copied().flatten() {
        if args.only.as_ref().is_some_and(|only| !case.is_about(only)) {
            continue;
        }
        eprintln!("{}, against {}", case.about, case.against);
        let began = Instant::now();
        table.rows.push(case.run(&setting));
        eprintln!("  {:.1} s", began.elapsed().as_secs_f64());
    }
    print!("{}", table.text());
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", table.json());
        write(path, &text)?;
    }
    if let Some(path) = &args.brief {
        write(path, &table.brief())?;
    }
    // A document needs all rows.
    if let Some(document) = comparison.document.filter(|_| args.only.is_none()) {
        let path = setting.figures.join(format!("{}.md", comparison.name));
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        write(&path, &document(&table, &before))?;
        eprintln!("wrote {}", path.display());
    }
    for (case, why) in table.failures() {
        eprintln!("error: {case}: {why}");
    }
    Ok(!table.has_failed())
}
