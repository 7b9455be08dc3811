//! `streamline parser`: what `run --share` starts; runs what several requests of one user begin with, once.

use crate::exit::{self, Outcome};
use std::io;
use std::path::PathBuf;
use streamline::parser::server::{Server, ServerError};

/// Run what several requests of this user begin with (what `run --share` starts)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The socket of the daemon that packets are taken from
    daemon: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match listen(args) {
        // Standard error is closed by now.
        Ok(mut server) => server.run().map_err(|_nobody_listens| exit::CommandError::ToldFailed),
        // Another was quicker: whoever started this one finds it.
        Err(ServerError::Present) => Ok(()),
        Err(ServerError::System(error)) => Err(error.into()),
    }
}

/// Listens, and gives up what it does not need to answer.
fn listen(args: &Args) -> Result<Server, ServerError> {
    let mut server = Server::listen(&args.daemon)?;
    detach()?;
    server.confine();
    Ok(server)
}

/// A session of its own, for the terminal's signals are not meant for it; and whoever started it is told that it listens.
fn detach() -> io::Result<()> {
    // Fails only for who leads one already.
    let _ = rustix::process::setsid();
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
