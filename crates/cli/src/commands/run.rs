//! `streamline run`: runs a request.

use crate::Exit;
use crate::progress::Progress;
use crate::request_text::RequestArgs;
use crate::signals::Finishing;
use crate::table;
use std::path::PathBuf;
use std::sync::Arc;
use streamline::running::Running;
use streamline::{End, Report, StopFlag};

/// Run a request
///
/// It ends with its input. Ctrl-C (or SIGTERM, or SIGHUP) ends it before that: what has come is carried through, files are
/// closed, and what was counted is printed. More signals within a second are taken for the same; a later one abandons it at
/// once, and leaves files as they are.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    /// What was counted, at the end, on standard error: a table, JSON, or nothing
    #[arg(long, value_enum, default_value_t = Stats::Table, value_name = "FORM")]
    stats: Stats,

    /// Write what was counted to a file instead of standard error
    #[arg(long, value_name = "FILE")]
    stats_file: Option<PathBuf>,

    #[command(flatten)]
    place: crate::place::PlaceArgs,

    /// Errors only
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stats {
    Table,
    Json,
    None,
}

pub(crate) fn run(args: &Args) -> Exit {
    let request = match args.request.read() {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    let stop = StopFlag::new();
    // A document on standard error is read by a program.
    let quiet = args.quiet || (args.stats == Stats::Json && args.stats_file.is_none());
    if let Err(error) = crate::signals::listen(&stop, Finishing::told_unless(quiet)) {
        tell!("error: cannot listen for signals: {error}");
        return Exit::Failed;
    }
    let session = Arc::new(args.place.session());
    let mut job = match session.prepare(&request.source, &request.variables) {
        Ok(job) => job,
        Err(error) => return request.tell(&error),
    };
    if let Some(Err(why)) = &job.sharing
        && !args.quiet
    {
        tell!("note: nothing of it is shared: {why}");
    }
    let mut progress = Progress::new(args.quiet);
    // Who cannot be found runs all the same.
    let running = Running::listen(session, &request.source, &job, &stop).ok();
    let mut before = Before::default();
    let (outcome, report) = job.run_to_end(&stop, &mut |worker| {
        progress.look(worker);
        before.extend(worker.take_replaced_reports());
        if let Some(running) = &running {
            running.look(worker);
        }
    });
    // Nobody is to come from here on.
    drop(running);
    progress.clear();
    let end = outcome.as_ref().ok().map(|finished| finished.end);
    let exit = match &outcome {
        Ok(_) => Exit::Done,
        Err(error) => request.tell(error),
    };
    let stats = match args.stats {
        Stats::Table if args.quiet && args.stats_file.is_none() => return exit,
        Stats::Table => before.text() + &table::text(&report, end),
        Stats::Json => table::json(&report, end, &before.0),
        Stats::None => return exit,
    };
    match &args.stats_file {
        None => tell_part!("{stats}"),
        Some(file) => {
            if let Err(error) = std::fs::write(file, stats) {
                tell!("error: cannot write {}: {error}", base::terminal::name(file));
                return Exit::Failed;
            }
        }
    }
    exit
}

/// What was counted by requests that this one took the place of: of so many, and of no more.
#[derive(Default)]
struct Before(Vec<Report>);

impl Before {
    fn extend(&mut self, reports: Vec<Report>) {
        let room = engine::REPLACED_REPORTS.saturating_sub(self.0.len());
        self.0.extend(reports.into_iter().take(room));
    }

    fn text(&self) -> String {
        let one = |report| format!("until it was replaced:\n{}\n", table::text(report, Some(End::Enough)));
        self.0.iter().map(one).collect()
    }
}
