//! Talks to the daemon for commands, and words its errors once for all of them.

use crate::exit::CommandError;
use capture::client::Client;
use capture::protocol::DaemonState;
use std::io::{self, ErrorKind};
use std::path::Path;

pub(crate) fn connect(path: &Path, purpose: &str) -> Result<Client, CommandError> {
    Client::connect(path, purpose).map_err(|error| unreachable(path, &error))
}

/// The daemon's state. `None`: no daemon listens, or it refuses this user (then a note says so).
///
/// For commands that have something to show without a daemon. A daemon that is there but does not answer is an error
/// for them, too: without it they would show only a part.
pub(crate) fn state(path: &Path, purpose: &str) -> Result<Option<DaemonState>, CommandError> {
    Ok(connect_if_there(path, purpose)?.map(|client| client.state()).transpose()?)
}

/// Connects to the daemon, with the same meaning of `None` as [`state`].
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

/// The daemon's state, or `None` after any error, without a message.
pub(crate) fn quietly(path: &Path, purpose: &str) -> Option<DaemonState> {
    Client::connect(path, purpose).ok()?.state().ok()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

fn unreachable(path: &Path, error: &io::Error) -> CommandError {
    let failed = CommandError::Failed(match error.kind() {
        // The daemon's own words.
        ErrorKind::Other => format!("the daemon at {}: {error}", base::terminal::name(path)),
        _ => format!("no daemon can be reached at {}: {error}", base::terminal::name(path)),
    });
    match error.kind() {
        // No process listens at this socket: a killed daemon left it.
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            failed.with_help("`streamline daemon` starts one (as root)")
        }
        _ => failed,
    }
}
