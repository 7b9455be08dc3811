//! `streamline pipe rm`: removes rings for good.

use crate::exit::{CommandError, Outcome};
use buffer::control::name::clear_dead;
use buffer::keeper::client::Named;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Remove rings; their readers still get the blocks that are there
#[derive(clap::Args)]
pub(super) struct Args {
    /// The rings' names
    #[arg(required = true)]
    names: Vec<String>,
}

/// How long a keeper may take to end once it has removed its ring.
const ENDING: Duration = Duration::from_secs(1);

/// Removes files that the keeper could not remove: it has no capabilities, and root's keeper may use another user's folder.
fn clear_left(path: &Path) -> io::Result<()> {
    let until = Instant::now() + ENDING;
    while std::fs::symlink_metadata(path).is_ok() {
        match clear_dead(path) {
            // The keeper has not ended yet, or there is another ring of this name by now.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            cleared => return cleared,
        }
    }
    Ok(())
}

pub(super) fn run(args: &Args) -> Outcome {
    let mut outcome: Outcome = Ok(());
    for name in &args.names {
        let removed = Named::at(name).and_then(|named| match named.remove() {
            // Its keeper died and left the name behind.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => clear_dead(named.path()),
            Ok(()) => clear_left(named.path()),
            refused => refused,
        });
        if let Err(error) = removed {
            let error = match error.kind() {
                io::ErrorKind::NotFound => CommandError::Failed(format!("{name}: {error}")),
                _ => super::with(name)(error),
            };
            // Prints each error except the last one, which the caller prints.
            if let Err(before) = std::mem::replace(&mut outcome, Err(error)) {
                before.told();
            }
        }
    }
    outcome
}
