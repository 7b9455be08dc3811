//! Which running request is meant: by the daemon's number for it, or by its process.

use crate::{Exit, daemon_client};
use std::path::Path;
use streamline::running::client;
use streamline::running::place::{Found, Id};

/// The request of this name; people are told where there is none.
pub(crate) fn find(id: Id, daemon: &Path) -> Result<Found, Exit> {
    let wrong = |text: String| {
        tell!("error: {text}\n   = help: `streamline ps` lists the requests there are");
        Err(Exit::Wrong)
    };
    let number = match id {
        Id::Process(process) => {
            return client::find(process)
                .map_or_else(|| wrong(format!("no request of yours runs in process {process}")), Ok);
        }
        Id::Client(number) => number,
    };
    // Without a daemon the number can only be that of a process.
    let clients = daemon_client::state(daemon, "streamline")?.map_or(Vec::new(), |state| state.clients);
    let client = clients.iter().find(|client| client.id == number);
    let by_client = client.and_then(|client| client::find(client.process));
    let by_process = i32::try_from(number).ok().filter(|process| *process > 0).and_then(client::find);
    match (by_client, by_process) {
        (Some(one), Some(other)) if one.process != other.process => wrong(format!(
            "{number} is client {number} of the daemon and process {number}: say p{} or p{}",
            one.process, other.process
        )),
        (Some(found), _) | (None, Some(found)) => Ok(found),
        (None, None) => match client {
            Some(client) => wrong(format!("client {number} of the daemon ({}) runs no request", client.purpose)),
            None => wrong(format!("no request of yours is called {number}")),
        },
    }
}
