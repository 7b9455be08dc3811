//! `streamline pipe rm`: rings go for good.

use super::Trouble;
use buffer::keeper::client::Named;
use std::io;

/// Remove rings; who reads one takes what is there and is done
#[derive(clap::Args)]
pub(super) struct Args {
    /// The rings' names
    #[arg(required = true)]
    names: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Trouble> {
    let mut outcome = Ok(());
    for name in &args.names {
        let removed = Named::at(name).and_then(|named| match named.remove() {
            // Its keeper died and left the name behind.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(named.path()),
            removed => removed,
        });
        if let Err(error) = removed {
            outcome = outcome.and(Err(Trouble::with(name)(error)));
        }
    }
    outcome
}
