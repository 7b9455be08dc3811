//! Speaking to the daemon for people: what goes wrong is told here, once for all commands.

use crate::exit::CommandError;
use capture::client::Client;
use capture::protocol::DaemonState;
use std::io::{self, ErrorKind};
use std::path::Path;

/// A connection.
pub(crate) fn connect(path: &Path, purpose: &str) -> Result<Client, CommandError> {
    Client::connect(path, purpose).map_err(|error| unreachable(path, &error))
}

/// What is going on there; none where there is no daemon, or none that lets this user in: then people are told.
///
/// For commands that have something to say without one. That a daemon which is there says nothing is an error for them, too:
/// else they would show less than there is.
pub(crate) fn state(path: &Path, purpose: &str) -> Result<Option<DaemonState>, CommandError> {
    Ok(connect_if_there(path, purpose)?.map(|client| client.state()).transpose()?)
}

/// A connection, for the same commands.
pub(crate) fn connect_if_there(path: &Path, purpose: &str) -> Result<Option<Client>, CommandError> {
    match Client::connect(path, purpose) {
        Ok(client) => Ok(Some(client)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tell!("note: the daemon at {} lets this user ask nothing: {error}", base::terminal::name(path));
            Ok(None)
        }
        Err(error) => Err(unreachable(path, &error)),
    }
}

/// The same for who has something else to say where there is nothing to be known.
pub(crate) fn quietly(path: &Path, purpose: &str) -> Option<DaemonState> {
    Client::connect(path, purpose).ok()?.state().ok()
}

/// Is there no daemon at all?
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

fn unreachable(path: &Path, error: &io::Error) -> CommandError {
    let failed = CommandError::Failed(match error.kind() {
        // Its own words.
        ErrorKind::Other => format!("the daemon at {}: {error}", base::terminal::name(path)),
        _ => format!("no daemon can be reached at {}: {error}", base::terminal::name(path)),
    });
    match error.kind() {
        // A socket that nobody listens at was left by a daemon that was killed.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            failed.with_help("`streamline daemon` starts one (as root)")
        }
        _ => failed,
    }
}
