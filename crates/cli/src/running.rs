//! Finds a running request by its number, which is its process id.

use crate::daemon_client;
use crate::exit::CommandError;
use capture::protocol::ClientState;
use std::path::Path;
use streamline::running::client;
use streamline::running::place::{Found, Id};
use streamline::running::protocol::{Answer, Question};

pub(crate) struct Target(pub(crate) Found);

impl Target {
    /// Sends a question. The answer may be that the question was wrong.
    pub(crate) fn ask(&self, question: &Question) -> Result<Answer, CommandError> {
        match client::ask(&self.0, question) {
            Ok(Answer::Failed(text)) | Err(text) => Err(self.failed(&text)),
            Ok(answer) => Ok(answer),
        }
    }

    pub(crate) fn failed(&self, text: &str) -> CommandError {
        CommandError::Failed(format!("request {}: {text}", self.0.process))
    }
}

/// The request with this number. If there is none, the error says what the number is instead.
pub(crate) fn find(id: Id, daemon: &Path) -> Result<Target, CommandError> {
    let Id(process) = id;
    if let Some(found) = client::find(process) {
        return Ok(Target(found));
    }
    // Without access to a daemon, there are no clients to tell about.
    let clients = daemon_client::quietly(daemon, "streamline").map_or(Vec::new(), |state| state.clients);
    let cut_off = |client: &ClientState| {
        format!("`streamline stop --client {}` cuts off this client of the daemon ({})", client.id, client.purpose)
    };
    let none = CommandError::Failed(format!("no request of yours has the number {id}"));
    if let Some(client) = clients.iter().find(|client| client.process == process) {
        return Err(CommandError::Failed(format!("process {id} runs no request of yours that could be asked"))
            .with_help(&cut_off(client)));
    }
    if let Some(client) = clients.iter().find(|client| u64::try_from(process) == Ok(client.id)) {
        return Err(none.with_help(&cut_off(client)));
    }
    Err(none.with_help("`streamline ps` lists the requests there are"))
}
