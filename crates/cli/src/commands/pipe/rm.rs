//! `streamline pipe rm`: rings go for good.

use super::Trouble;
use buffer::keeper::client::Named;
use buffer::keeper::server::clear_dead;
use std::io;

/// Remove rings; who reads one takes what is there and is done
#[derive(clap::Args)]
pub(super) struct Args {
    /// The rings' names
    #[arg(required = true)]
    names: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Trouble> {
    let mut outcome: Result<(), Trouble> = Ok(());
    for name in &args.names {
        let removed = Named::at(name).and_then(|named| match named.remove() {
            // Its keeper died and left the name behind.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => clear_dead(named.path()),
            removed => removed,
        });
        if let Err(error) = removed {
            let trouble = match error.kind() {
                io::ErrorKind::NotFound => Trouble::Failed(format!("{name}: {error}")),
                _ => Trouble::with(name)(error),
            };
            // Each is told; the last one is told by the caller, who knows how that ends.
            if let Err(Trouble::Wrong(before) | Trouble::Failed(before)) = outcome {
                tell!("error: {before}");
            }
            outcome = Err(trouble);
        }
    }
    outcome
}
