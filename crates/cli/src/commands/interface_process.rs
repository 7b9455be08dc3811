//! `streamline interface-process`: the process that the daemon has started for each interface. It holds the device and
//! the channels of the interface's flows.

use crate::exit::{CommandError, Outcome};

/// Hold an interface for the daemon at standard input (what a daemon has started)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device, for people: the daemon says which
    device: String,
}

pub(crate) fn run(_args: &Args) -> Outcome {
    // The process has no output. It ignores signals, since one that ends the daemon may reach all its processes, and
    // the interface goes on without the daemon for a while.
    crate::signals::outlive().and_then(|()| daemon::interfaces::run_process()).map_err(|_| CommandError::ToldFailed)
}
