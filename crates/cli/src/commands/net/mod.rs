//! `streamline net`: devices that the daemon owns as interfaces, and the flows of applications on them.
//!
//! - `up` — makes a device an interface; `down` gives it back
//! - `change` — changes an interface while it is up
//! - `show` — lists interfaces, flows, neighbours and routes, as tables and for scripts
//! - `run` — an unmodified program whose sockets are flows
//! - `cat`, `echo` — programs with a flow and a protocol stack of their own; `socket` — their common parts
//! - `serve`, `get`, `perf` — programs over TCP connections, which `tcp` opens; `http` — common parts of the first two
//! - `trace` — the frames of one flow, as a capture

mod cat;
mod change;
mod echo;
mod get;
mod http;
mod parse;
mod perf;
pub(crate) mod run;
mod serve;
mod show;
mod socket;
mod tcp;
mod trace;
mod up;

use crate::daemon_client;
use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use flow::{Answer, InterfaceState, Question};

/// Interfaces: devices on which applications have flows, past the host's own network stack
///
/// The daemon owns an interface: it sends and receives frames, and answers for its addresses. An application opens
/// flows on it, and its own protocol stack makes and reads the packets. Root brings interfaces up and down; the
/// daemon's policy lists the users that may open flows (`modes = ["flow"]`). Each user sees the interfaces and their
/// own flows; root sees all flows.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net up eth1 --addr 10.0.0.2/24 --gateway 10.0.0.1
  streamline net ls                                      which interfaces there are, and what they have counted
  streamline net echo udp 7                              sends datagrams back to their senders
  streamline net cat udp --to 10.0.0.1:7                 standard input to datagrams, and back
  streamline net run -- curl http://10.0.0.1/            an unmodified program whose sockets are flows
  streamline net serve /srv/files                        files by HTTP
  streamline net get http://10.0.0.2/a.txt -o a.txt
  streamline net perf 10.0.0.2                           throughput to an iperf3 or `net perf -s`
  streamline net flows                                   who sends and receives on them
  streamline net trace 7 | tcpdump -n -r -               the frames of flow 7, as the driver sees them
  streamline net addr add eth1 10.0.1.2/24               while flows are open; also `route`, and `move` to another device
  streamline net down eth1";

#[derive(clap::Subcommand)]
enum Action {
    Up(up::UpArgs),
    Down(up::DownArgs),
    Ls(show::LsArgs),
    Flows(show::FlowsArgs),
    Neighbours(show::NeighboursArgs),
    Routes(show::RoutesArgs),
    Addr(change::AddrArgs),
    Route(change::RouteArgs),
    Move(change::MoveArgs),
    Slice(up::SliceArgs),
    Cat(cat::Args),
    Echo(echo::Args),
    Run(run::Args),
    Serve(serve::Args),
    Get(get::Args),
    Perf(perf::Args),
    Trace(trace::Args),
}

/// The daemon to ask, and the form of the answer.
#[derive(clap::Args)]
struct Asking {
    #[command(flatten)]
    daemon: DaemonArg,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

impl Asking {
    fn connect(&self, name: &str) -> Result<Connection, CommandError> {
        daemon_client::connect(&self.daemon.path(), &format!("streamline net {name}")).map(Connection)
    }
}

/// A connection for questions about interfaces.
struct Connection(capture::client::Client);

impl Connection {
    fn change(&self, question: Question) -> Outcome {
        match self.0.flows(question)?.0 {
            Answer::Done => Ok(()),
            Answer::Granted(_) | Answer::State(_) | Answer::Listening(_) | Answer::Accepted(_) => Err(unexpected()),
        }
    }

    fn interfaces(&self) -> Result<Vec<InterfaceState>, CommandError> {
        match self.0.flows(Question::State)?.0 {
            Answer::State(interfaces) => Ok(interfaces),
            Answer::Done | Answer::Granted(_) | Answer::Listening(_) | Answer::Accepted(_) => Err(unexpected()),
        }
    }
}

fn unexpected() -> CommandError {
    CommandError::Failed("the daemon answers something else than was asked".into())
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.action {
        Action::Up(args) => up::up(args),
        Action::Down(args) => up::down(args),
        Action::Ls(args) => show::ls(args),
        Action::Flows(args) => show::flows(args),
        Action::Neighbours(args) => show::neighbours(args),
        Action::Routes(args) => show::routes(args),
        Action::Addr(args) => change::addr(args),
        Action::Route(args) => change::route(args),
        Action::Move(args) => change::move_to(args),
        Action::Slice(args) => up::slice(args),
        Action::Cat(args) => cat::run(args),
        Action::Echo(args) => echo::run(args),
        Action::Run(args) => run::run(args),
        Action::Serve(args) => serve::run(args),
        Action::Get(args) => get::run(args),
        Action::Perf(args) => perf::run(args),
        Action::Trace(args) => trace::run(args),
    }
}
