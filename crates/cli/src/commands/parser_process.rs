//! `streamline parser`: the process that runs the common beginning of several requests of one user once. `run --share`
//! starts it.

use crate::exit::{self, Outcome};
use std::io;
use std::path::PathBuf;
use streamline::parser::server::{Server, ServerError};

/// Run the common beginning of several requests of this user (`run --share` starts this)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The socket of the daemon that the packets come from
    daemon: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match listen(args) {
        // Standard error is closed by now.
        Ok(mut server) => server.run().map_err(|_nobody_listens| exit::CommandError::ToldFailed),
        // Another parser process was quicker. The process that started this one finds that one.
        Err(ServerError::Present) => Ok(()),
        Err(ServerError::System(error)) => Err(error.into()),
    }
}

/// Listens, and gives up all rights that answering does not need.
fn listen(args: &Args) -> Result<Server, ServerError> {
    let mut server = Server::listen(&args.daemon)?;
    detach()?;
    server.confine();
    Ok(server)
}

/// Starts a session of its own: the terminal's signals are not meant for this process. Closing standard error tells the
/// starting process that this one listens.
fn detach() -> io::Result<()> {
    // An error means only that this process already leads a session.
    let _ = rustix::process::setsid();
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
