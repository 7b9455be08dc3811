//! `streamline pipe`: named rings. One file for each subcommand.
//!
//! Options are `key=value` words behind the name, as in a request. They are declared and parsed like a filter's parameters.

mod confine;
mod create;
mod fifo;
mod ls;
mod options;
mod peek;
mod read;
mod rm;
mod stop;
mod write;

pub(super) use confine::supported as keeper_guards;

use crate::exit::{CommandError, Outcome};
use buffer::keeper::client::Named;
use std::io;

/// Named rings: pipes with several readers, each with a policy of its own for when the ring is full
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

const AFTER_HELP: &str = "\
Examples:
  streamline pipe create video size=4M
  streamline pipe read video > copy &                        gets everything: the writer waits for it
  streamline pipe read video on-full=overwrite | wc -c &     never holds anybody; says how much it lost
  producer | streamline pipe write video
  streamline pipe ls
  streamline pipe rm video

A ring lives in a small process of its own, its keeper, until `rm`. Where: $XDG_RUNTIME_DIR/streamline,
for root /run/streamline; a name with a / in it is the path of a keeper's socket.
What happens when a reader is a whole ring behind is that reader's choice (on-full=):
  wait         the writer waits for it, at most hold-limit if the ring has one; then it is overtaken, and told
  drop-newest  the writer drops new blocks for all readers; hold-limit works as with wait
  overwrite    it is overtaken; it learns exactly how much it lost
  shared       the same as overwrite; overtaken readers go on where the other shared readers are
A writer without readers waits for the first one, and ends (quietly, status 0) when all readers have left, as
with a pipe; with no-wait=yes it writes even without readers. A reader ends when the writer closes; with
keep-open=yes it waits for the next writer. The writer does not count `peek` as a reader, except with follow.";

#[derive(clap::Subcommand)]
enum Action {
    Create(create::Args),
    Write(write::Args),
    Read(read::Args),
    Peek(peek::Args),
    Ls(ls::Args),
    Rm(rm::Args),
    Keep(create::KeepArgs),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.action {
        Action::Create(args) => create::run(args),
        Action::Write(args) => write::run(args),
        Action::Read(args) => read::run(args),
        Action::Peek(args) => peek::run(args),
        Action::Ls(args) => ls::run(args),
        Action::Rm(args) => rm::run(args),
        Action::Keep(args) => create::keep(args),
    }
}

fn gone(named: &Named) -> CommandError {
    CommandError::Failed(match named.state() {
        // There may be another ring of this name by now.
        Ok(_) => "the ring was removed".to_string(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "the ring was removed".to_string(),
        Err(_) => "the ring's keeper died; `streamline pipe rm` clears away what it left".to_string(),
    })
}

fn with(name: &str) -> impl Fn(io::Error) -> CommandError {
    move |error| match error.kind() {
        io::ErrorKind::InvalidInput => CommandError::Wrong(error.to_string()),
        io::ErrorKind::NotFound if !name.contains('/') => {
            CommandError::Failed(format!("{name}: {error}; `streamline pipe create {name}` makes one"))
        }
        _ => CommandError::Failed(format!("{name}: {error}")),
    }
}
