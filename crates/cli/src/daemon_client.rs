//! Speaking to the daemon for people: what goes wrong is told here, once for all commands.

use crate::Exit;
use capture::client::Client;
use capture::protocol::DaemonState;
use std::io::{self, ErrorKind};
use std::path::Path;

/// A connection, or the exit where there is none.
pub(crate) fn connect(path: &Path, purpose: &str) -> Result<Client, Exit> {
    Client::connect(path, purpose).map_err(|error| unreachable(path, &error))
}

/// What is going on there; none where there is no daemon, or none that lets this user in: then people are told.
///
/// For commands that have something to say without one. That a daemon which is there says nothing is an error for them, too:
/// else they would show less than there is.
pub(crate) fn state(path: &Path, purpose: &str) -> Result<Option<DaemonState>, Exit> {
    match Client::connect(path, purpose) {
        Ok(client) => state_of(&client).map(Some),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tell!("note: the daemon at {} lets this user ask nothing: {error}", base::terminal::name(path));
            Ok(None)
        }
        Err(error) => Err(unreachable(path, &error)),
    }
}

/// What is going on at the other end.
pub(crate) fn state_of(client: &Client) -> Result<DaemonState, Exit> {
    client.state().map_err(|trouble| {
        tell!("error: {trouble}");
        Exit::Failed
    })
}

/// Is there no daemon at all?
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

fn unreachable(path: &Path, error: &io::Error) -> Exit {
    match error.kind() {
        // Its own words.
        ErrorKind::Other => tell!("error: the daemon at {}: {error}", base::terminal::name(path)),
        _ => tell!("error: no daemon can be reached at {}: {error}", base::terminal::name(path)),
    }
    if error.kind() == ErrorKind::NotFound {
        tell!("   = help: `streamline daemon` starts one (as root)");
    }
    Exit::Failed
}
