//! `streamline sharer`: what `run --share` starts; runs what several requests of one user begin with, once.

use crate::Exit;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::path::PathBuf;
use streamline::shared::server::{Server, Trouble};

/// Run what several requests of this user begin with (what `run --share` starts)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The socket of the daemon that packets are taken from
    daemon: PathBuf,
}

pub(crate) fn run(args: &Args) -> Exit {
    let served =
        give_up_rights().map_err(Trouble::System).and_then(|()| Server::listen(&args.daemon)).and_then(|server| {
            detach()?;
            Ok(server)
        });
    match served {
        Ok(mut server) => match server.run() {
            Ok(()) => Exit::Done,
            Err(_nobody_listens) => Exit::Failed,
        },
        // Another was quicker: whoever started this one finds it.
        Err(Trouble::Present) => Exit::Done,
        Err(Trouble::System(error)) => {
            tell!("error: {error}");
            Exit::Failed
        }
    }
}

/// Payload is parsed here: no capability is kept, nor can one be got again.
fn give_up_rights() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// A session of its own, for the terminal's signals are not meant for it; and whoever started it is told that it listens.
fn detach() -> io::Result<()> {
    // Fails only for who leads one already.
    let _ = rustix::process::setsid();
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
