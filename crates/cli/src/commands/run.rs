//! `streamline run`: runs a request.

use crate::exit::{CommandError, Outcome};
use crate::hints;
use crate::losses;
use crate::metrics::of_run::Metrics;
use crate::progress::Progress;
use crate::report;
use crate::request_text::{RequestArgs, SourceArgs};
use crate::signals::Finishing;
use crate::terminal;
use std::path::PathBuf;
use std::sync::Arc;
use streamline::running::Running;
use streamline::{End, Report, StopFlag};

/// Run a request
///
/// Without a request, `-r FILE` or `-i DEVICE` prints the packets. A request without a source reads standard input, if that is
/// a capture.
///
/// It ends with its input. Ctrl-C (or SIGTERM, or SIGHUP) ends it before that: blocks that have come are carried
/// through, files are closed, and the counts are printed. More signals within a second count as the same one; a later
/// one abandons the request at once, and leaves files as they are.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    source: SourceArgs,

    /// The counts at the end, on standard error: a table, JSON, or nothing
    #[arg(long, value_enum, default_value_t = Stats::Table, value_name = "FORM")]
    stats: Stats,

    /// What the request sends nowhere comes on a terminal as in a pipe, records as JSON, and not as columns
    #[arg(long)]
    json: bool,

    /// Write the counts to a file instead of standard error
    #[arg(long, value_name = "FILE")]
    stats_file: Option<PathBuf>,

    /// Fail (status 1) if a filter dropped, or could not read, more than a tenth of its blocks, or a source a file
    #[arg(long)]
    strict: bool,

    /// Measure the time of each filter, print it, and save it for later runs with `--workers pipeline` or `auto`
    #[arg(long)]
    profile: bool,

    #[command(flatten)]
    metrics: crate::metrics::MetricsArgs,

    #[command(flatten)]
    place: crate::place::PlaceArgs,

    /// Errors only, and warnings of files that could not be read
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stats {
    Table,
    Json,
    None,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (session, request) = args.source.session_now(&args.place, &args.request)?;
    let listener = args.metrics.listen()?;
    let stop = StopFlag::new();
    // With JSON on standard error, a program reads it: print only that.
    let is_read_by_program = args.stats == Stats::Json && args.stats_file.is_none();
    let quiet = args.quiet || is_read_by_program;
    crate::signals::listen(&stop, Finishing::told_unless(quiet))?;
    let session = session.measure(args.profile);
    let session = Arc::new(if args.json { session.as_json() } else { session });
    let job = session.prepare(&request.source, &request.variables);
    let mut job = job.map_err(|error| request.tell(error))?;
    if !args.quiet {
        hints::tell_idle(&job.running.design);
    }
    if let Some(Err(why)) = &job.sharing
        && !args.quiet
    {
        tell!("note: the request shares no work with others: {why}");
    }
    job.notes.iter().filter(|_| !args.quiet).for_each(|note| tell!("note: {note}"));
    let mut progress = Progress::new(args.quiet);
    // The request runs even if it cannot listen; then other commands cannot find it.
    let running = Running::listen(Arc::clone(&session), &request.source, &job, &stop).ok();
    let metrics = listener.map(|listener| {
        if !quiet {
            tell!("note: counters at {}", listener.place());
        }
        Metrics::start(listener)
    });
    let metrics =
        metrics.transpose().map_err(|error| CommandError::Failed(format!("the counters cannot be served: {error}")))?;
    let mut before = Before::default();
    let (outcome, report) = job.run_to_end(&stop, &mut |worker| {
        progress.look(worker);
        before.extend(worker.take_replaced_reports());
        if let Some(running) = &running {
            running.look(worker);
        }
        if let Some(metrics) = &metrics {
            metrics.look(&request.source, worker);
        }
    });
    // Stop accepting questions, such as watch and replace.
    drop(running);
    terminal::clear_line();
    let end = outcome.as_ref().ok().map(|finished| finished.end);
    let outcome = outcome.map(drop).map_err(|error| request.tell(error));
    let measured = job.measured(&report);
    let left_out = losses::left_out(before.0.iter().chain([&report]));
    let losses = losses::lines(before.0.iter().chain([&report]));
    let all = [&left_out[..], &losses[..]].concat();
    let counted = match args.stats {
        Stats::Table => Some(before.text() + &report::text(&report, end)),
        Stats::Json => Some(report::json(&report, end, &before.0, &all)),
        Stats::None => None,
    };
    match (counted, &args.stats_file) {
        (Some(counted), Some(file)) => std::fs::write(file, counted)
            .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", base::terminal::name(file))))?,
        (Some(counted), None) if args.stats == Stats::Json || !args.quiet => tell_part!("{counted}"),
        _ => {}
    }
    if args.profile {
        if !args.quiet && args.stats != Stats::Json {
            tell_part!("{}", crate::profile::text(&measured));
        }
        let saved = crate::profile::save(&measured);
        if let (Ok(path), false) = (&saved, quiet) {
            tell!("saved in {}", base::terminal::name(path));
        }
        saved?;
    }
    if args.strict && outcome.is_ok() && !all.is_empty() {
        return Err(CommandError::Failed(all.join("\nerror: ")));
    }
    // Without -q, what was left out was told as it came.
    let told = if args.quiet { &left_out } else { &losses };
    if !is_read_by_program {
        told.iter().for_each(|line| tell!("warning: {line}"));
    }
    outcome
}

/// The reports of requests that this one replaced: the first [`engine::REPLACED_REPORTS`] of them.
#[derive(Default)]
struct Before(Vec<Report>);

impl Before {
    fn extend(&mut self, reports: Vec<Report>) {
        let room = engine::REPLACED_REPORTS.saturating_sub(self.0.len());
        self.0.extend(reports.into_iter().take(room));
    }

    fn text(&self) -> String {
        let one = |report| format!("until it was replaced:\n{}\n", report::text(report, Some(End::Enough)));
        self.0.iter().map(one).collect()
    }
}
