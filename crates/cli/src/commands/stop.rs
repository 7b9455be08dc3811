//! `streamline stop`: ends a request, disconnects a client of the daemon, or lets a kept ring go.

use crate::daemon_client::connect;
use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use crate::running;
use streamline::running::place::Id;
use streamline::running::protocol::{Answer, Question};

/// End a request that runs, as Ctrl-C does
///
/// The request carries through the blocks that have come, closes its files and prints its counts. Its user and root may
/// end it. With --client, a client of the daemon is cut off instead: its readers get no more packets. With --kept, the
/// daemon stops holding a device's packets for readers that look back.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").args(["id", "client", "kept"]).required(true), after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The number of the request, as `streamline ps` shows it
    #[arg(value_name = "NUMBER")]
    id: Option<Id>,

    /// Cut off the client of the daemon that has this number; for programs other than `streamline run`
    #[arg(long, value_name = "N")]
    client: Option<u64>,

    /// Keep packets of this device no longer for readers that look back (`keep=`)
    #[arg(long, value_name = "DEVICE")]
    kept: Option<String>,

    #[command(flatten)]
    daemon: DaemonArg,
}

const AFTER_HELP: &str = "\
Examples:
  streamline run 'ethernet eth0 | http | files dir=out' &
  streamline ps                                          which numbers there are
  streamline stop $!
  streamline stop --client 7                             cuts off tcpdump, which read through the daemon";

pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(id) = args.id {
        return match running::find(id, &args.daemon.path())?.ask(&Question::Stop)? {
            Answer::Stopping => Ok(()),
            other => Err(CommandError::from(other)),
        };
    }
    let client = connect(&args.daemon.path(), "streamline stop")?;
    if let Some(device) = &args.kept {
        client.forget(device)?;
    }
    if let Some(number) = args.client {
        client.stop(number)?;
    }
    Ok(())
}
