//! `streamline replace`: replaces a running request by another one.

use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use crate::request_text::{RequestArgs, RequestText};
use crate::running;
use streamline::running::place::Id;
use streamline::running::protocol::{Answer, NewRequest, Question};

/// Replace a running request by another one
///
/// The process that runs it prepares the new one beside it, with the same devices and in its own folder, and switches
/// between two batches. If the new one is wrong or cannot be prepared, the old one goes on untouched, and the error is
/// printed here.
///
/// The common beginning of both keeps its state: the same source, and the filters behind it as long as they are the
/// same. If the new request reads a shared device (`ethernet`) otherwise, the new reader takes over at one packet: no
/// packet is lost or comes twice. A shared beginning (`run --share`) goes on if both have it; else the new request
/// joins the shared one from then on. The rest of the old request is finished: files are closed, indexes written. The
/// rest of the new one begins. A sink that writes to the same place with the same parameters goes on there, whatever
/// leads to it now: open files are finished, and the index, the numbers and the file go on.
///
/// NUMBER is that of the request in `streamline ps`; its user and root may replace it.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The request that runs
    #[arg(value_name = "NUMBER")]
    id: Id,

    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    daemon: DaemonArg,
}

const AFTER_HELP: &str = "\
Examples:
  streamline run 'ethernet eth0 | http | files dir=out' &
  streamline replace $! 'ethernet eth0 | http | { files dir=out + json file=http.json }'
  streamline replace 4711 -f night.srl -D dir=/srv/night";

pub(crate) fn run(args: &Args) -> Outcome {
    let request = args.request.required()?;
    let target = running::find(args.id, &args.daemon.path())?;
    let RequestText { source, name, variables } = request;
    match target.ask(&Question::Replace(NewRequest { source, name, variables }))? {
        Answer::Replaced => Ok(()),
        // The error points into the text as it does for `run`.
        Answer::Wrong(text) => {
            tell_part!("{text}");
            Err(CommandError::ToldWrong)
        }
        other => Err(CommandError::from(other)),
    }
}
