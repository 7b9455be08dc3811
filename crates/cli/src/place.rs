//! Where a request runs: which daemon it uses, if any, and whether filters go into the kernel.

use std::path::PathBuf;
use streamline::Session;
use streamline::devices::Place;

#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
    /// Never look for a daemon: everything runs in this process
    #[arg(long, conflicts_with = "daemon")]
    local: bool,

    #[command(flatten)]
    daemon: DaemonArg,

    /// Leave selectors out of the kernel: devices give all their packets, as files do
    #[arg(long)]
    no_push_down: bool,

    /// What parses packets may run once for several requests that begin alike, in a process of this user; as `set share=yes`
    /// in the request
    #[arg(long, env = "STREAMLINE_SHARE", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    share: bool,

    /// Divide the flows over N threads, where the request does not say `set workers=`; `pipeline` cuts the request into stages,
    /// `auto` takes what it expects to be fastest
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<engine::Workers>,
}

fn workers(text: &str) -> Result<engine::Workers, String> {
    control::settings::workers(text).map_err(|[_, label]| label)
}

impl PlaceArgs {
    pub(crate) fn session(&self) -> Session {
        let session = Session::with_output(crate::terminal::data())
            .devices_at(self.place())
            .push_down(!self.no_push_down)
            .share(self.share)
            .workers(self.workers)
            .costs(crate::profile::read());
        match std::env::current_exe() {
            Ok(program) => session
                .parser(vec![program.clone().into(), "parser-process".into()])
                .isolator(vec![program.clone().into(), "isolated-process".into()])
                .ring_maker(vec![program.into(), "pipe".into(), "create".into()]),
            // A process that already runs will do.
            Err(_) => session,
        }
    }

    fn place(&self) -> Place {
        match self.local {
            true => Place::Here,
            false => self.daemon.named().map_or(Place::Anywhere, Place::Daemon),
        }
    }
}

/// The daemon that a command asks.
// Clap does not read the variable: it would take it for `--daemon`, which conflicts with `--local`, and refuse an empty one,
// which names no daemon.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DaemonArg {
    /// The daemon that listens at this socket, else that of the variable STREAMLINE_DAEMON, else the usual one
    #[arg(long, value_name = "PATH")]
    daemon: Option<PathBuf>,
}

impl DaemonArg {
    /// The socket that the command line or the variable names.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        self.daemon.clone().or_else(socket::net::named_daemon)
    }

    /// The daemon's socket.
    pub(crate) fn path(&self) -> PathBuf {
        self.named().unwrap_or_else(|| capture::protocol::SOCKET.into())
    }
}
