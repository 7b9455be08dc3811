//! `streamline replace`: another request in the place of one that runs.

use crate::request_text::RequestArgs;
use crate::{Exit, running};
use std::path::PathBuf;
use streamline::running::client;
use streamline::running::place::Id;
use streamline::running::protocol::{Answer, Question};

/// Put another request in the place of one that runs
///
/// The process that runs it prepares the new one beside it, with the same devices and in its own folder, and switches between
/// two batches. Where the new one is wrong or cannot be prepared, the old one goes on untouched, and what is wrong is said
/// here.
///
/// What both begin with goes on with its state: the same source, and the filters behind it as long as they are the same.
/// Where a shared device (`ethernet`) is read otherwise, the new reader takes over at one packet: none is lost, and none comes
/// twice. What runs for several requests (`run --share`) goes on where both begin with it, too; else the new one reads what
/// others share from then on. What only the old one has is finished: files are closed, indexes written. What only the new one
/// has begins. A sink that writes to the same place with the same parameters goes on there, whatever leads to it now: what is
/// open is finished, and the index, the numbers and the file go on.
///
/// ID is what `streamline ps` calls the request; its user and root may replace it.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The request that runs
    #[arg(value_name = "ID")]
    id: Id,

    #[command(flatten)]
    request: RequestArgs,

    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    daemon: PathBuf,
}

const AFTER_HELP: &str = "\
Examples:
  streamline run 'ethernet eth0 | http | files dir=out' &
  streamline replace 7 'ethernet eth0 | http | { files dir=out + json file=http.json }'
  streamline replace p4711 -f night.srl -D dir=/srv/night";

pub(crate) fn run(args: &Args) -> Exit {
    let request = match args.request.read() {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    let target = match running::find(args.id, &args.daemon) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let crate::request_text::RequestText { source, name, variables } = request;
    let question = Question::Replace { source, name, variables };
    match client::ask(&target, &question) {
        Ok(Answer::Replaced) => Exit::Done,
        // It points into the text as it does for `run`.
        Ok(Answer::Wrong(text)) => {
            tell_part!("{text}");
            Exit::Wrong
        }
        Ok(Answer::Failed(text)) | Err(text) => {
            tell!("error: request {}: {text}", args.id);
            Exit::Failed
        }
        Ok(_) => {
            tell!("error: request {} answers something else than was asked", args.id);
            Exit::Failed
        }
    }
}
