//! What removes the socket of a daemon that is not root's any more: a process that root's daemon starts before it becomes
//! another user. The socket's folder is root's, so that nobody can put another socket in its place; the daemon itself may
//! not remove anything there.
//!
//! It waits for the daemon's word, and has no capabilities, no files and no system calls but what removing a file takes. A
//! daemon that dies says nothing: its socket stays, as that of any that was killed, until the next daemon takes its place.

use crate::Exit;
use guard::CapabilitySet;
use guard::calls::Calls;
use guard::files::{AccessFs, BitFlags};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Has the socket removed when it is dropped, and waits until it is.
pub(super) struct Remover {
    asks: ChildStdin,
    ended: ChildStdout,
}

impl Remover {
    /// Starts the process, with the rights that this one has now.
    pub(super) fn start(socket: &Path) -> io::Result<Remover> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["daemon", "--remover", "--socket"]).arg(std::path::absolute(socket)?).current_dir("/");
        // A group of its own: a terminal's signals are not meant for it.
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
        // Where it was killed nobody can be asked, and the end is there at once.
        let _ = self.asks.write_all(&[1]);
        let _ = self.ended.read(&mut [0]);
    }
}

/// The process: removes the socket when it is asked to.
pub(super) fn run(socket: &Path) -> Exit {
    // Who ends the daemon may signal all of its processes; this one has something to do when the daemon has ended.
    if crate::signals::outlive().is_err() || guard::keep_capabilities(CapabilitySet::empty()).is_err() {
        return Exit::Failed;
    }
    let folder = socket.parent().unwrap_or(Path::new("/"));
    guard::files::confine("removing a socket", &[(folder, BitFlags::from(AccessFs::RemoveFile))]);
    Calls::of_any_program().and_to_keep_rings().confine("removing a socket");
    let asked = io::stdin().read_exact(&mut [0]);
    match asked.and_then(|()| std::fs::remove_file(socket)) {
        Ok(()) => Exit::Done,
        Err(_nobody_listens) => Exit::Failed,
    }
}
