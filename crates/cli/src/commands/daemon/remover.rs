//! The process that removes a daemon's socket. A daemon that root starts becomes another user. The socket's folder
//! stays root's, so that no process of that user can put another socket there. The daemon cannot remove the socket
//! either, so it starts this process while it is root.
//!
//! The process waits until the daemon asks. It has no capabilities, opens no files, and makes only the system calls of a
//! keeper of rings. A daemon that is killed does not ask: its socket stays until the next daemon takes its place.

use crate::exit::{CommandError, Outcome};
use guard::CapabilitySet;
use guard::calls::Calls;
use guard::files::{AccessFs, BitFlags};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// The daemon's end. Dropping it has the socket removed, and waits for that.
pub(super) struct Remover {
    asks: ChildStdin,
    ended: ChildStdout,
}

impl Remover {
    /// Starts the process with the rights that this one has now.
    pub(super) fn start(socket: &Path) -> io::Result<Remover> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["daemon", "--remover", "--socket"]).arg(std::path::absolute(socket)?).current_dir("/");
        // Its own process group: a terminal's signals are not meant for it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(asks), Some(ended)) => Ok(Remover { asks, ended }),
            _ => Err(io::Error::other("a process that is spoken to by pipes has none")),
        }
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        // The write fails if the process was killed. The read then ends at once.
        let _ = self.asks.write_all(&[1]);
        let _ = self.ended.read(&mut [0]);
    }
}

/// The process: removes the socket when it is asked to.
pub(super) fn run(socket: &Path) -> Outcome {
    // A signal that ends the daemon may reach all its processes. This one must run until the daemon has ended.
    if crate::signals::outlive().is_err() || guard::keep_capabilities(CapabilitySet::empty()).is_err() {
        return Err(CommandError::ToldFailed);
    }
    let folder = socket.parent().unwrap_or(Path::new("/"));
    guard::files::confine("removing a socket", &[(folder, BitFlags::from(AccessFs::RemoveFile))]);
    Calls::of_any_program().and_to_keep_rings().confine("removing a socket");
    let asked = io::stdin().read_exact(&mut [0]);
    // An error shows in the exit status only: the process has no output.
    asked.map(|()| buffer::control::name::remove_name(socket)).map_err(|_| CommandError::ToldFailed)
}
