//! Which daemon a command speaks to, if any.

use std::path::PathBuf;
use streamline::devices::Place;

#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    /// Never look for a daemon: everything runs in this process
    #[arg(long, conflicts_with = "daemon")]
    local: bool,

    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH")]
    daemon: Option<PathBuf>,
}

impl PlaceArgs {
    /// Where devices are opened.
    pub(crate) fn place(&self) -> Place {
        match (&self.daemon, self.local) {
            (Some(path), _) => Place::Daemon(path.clone()),
            (None, true) => Place::Here,
            (None, false) => Place::Anywhere,
        }
    }
}
