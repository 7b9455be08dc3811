//! `streamline interface-process`: what the daemon has started for each interface; holds the device and the channels of its flows.

use crate::exit::{CommandError, Outcome};

/// Hold an interface for the daemon at standard input (what a daemon has started)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device, for people: the daemon says which
    device: String,
}

pub(crate) fn run(_args: &Args) -> Outcome {
    // It has no output; a signal that ends the daemon may go to all its processes, and the interface goes on without it for a while.
    crate::signals::outlive().and_then(|()| daemon::interfaces::run_process()).map_err(|_| CommandError::ToldFailed)
}
