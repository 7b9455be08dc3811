//! `streamline net run`: an unmodified program whose sockets are flows.
//!
//! This process becomes the program, so the program keeps its process id, terminal and exit status. First it starts
//! `streamline socket-host`. The host keeps the program's flows and their stacks (crate `socket-host`), even after the
//! program exits.

use super::parse;
use crate::commands::preload::{self, Library};
use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use capture::CaptureErrorKind;
use flow::InterfaceState;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use socket::net::Options;
use socket::{Connection, NoEnv, SocketError, UdpOptions, UdpSocket};
use socket_host::{Host, HostAddress, Policy};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Run an unmodified program whose TCP and UDP sockets are flows
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The local address of its sockets of the same IP version, where the interface has several
    #[arg(long, value_name = "ADDRESS", value_parser = parse::address)]
    addr: Option<IpAddr>,

    /// The interface; the one that routes to the other side if not given
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// The share of the wire of each socket: 4ms/100ms, 4ms/100ms+slack, fair:3 or background; fair if not given
    #[arg(long, value_name = "SHARE")]
    slice: Option<String>,

    /// The file that selects which sockets become flows; without it, every socket that can
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    #[command(flatten)]
    daemon: DaemonArg,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net run -- curl http://10.0.0.1/
  streamline net run -- curl 'http://[fd00::1]/'
  streamline net run --slice 4ms/100ms -- iperf3 -c 10.0.0.1
  streamline net run -- nginx -g 'daemon off;'

Sockets that connect to where an interface of Streamline routes, or that are bound to one of its addresses or to all, are flows;
others stay the kernel's, and so do 127.0.0.1, ::1, link-local addresses of IPv6 and groups. A TCP socket that listens on all
addresses does so on every interface, also on those that come up later, and without --device on 127.0.0.1 and ::1 of the kernel. A socket that is bound to :: has flows
of IPv4, too, unless it is one of IPv6 alone. Names are resolved by the kernel's sockets. Programs that are linked statically,
setuid, or have file capabilities load no library and are refused; one of Go is told that its sockets stay the kernel's. What the program starts has no more rights than it (no sudo),
and no io_uring.

A line of a policy file has four words, and the first line that fits a socket decides. What no line names stays the kernel's:
  kernel  connect  udp  *:53              # or `flow`; connect, bind or *; tcp, udp or *
  flow    connect  *    10.0.0.0/8        # an address, a network or *
  flow    bind     tcp  *:8080-8089       # and ports

Variables:
  LD_PRELOAD                       libstreamline_sockets.so; `streamline net run` sets this, and STREAMLINE_SOCKETS
  STREAMLINE_SOCKETS_LIBRARY       where libstreamline_sockets.so is, if not beside the program `streamline`";

const LIBRARY: Library = Library {
    file: "libstreamline_sockets.so",
    variable: "STREAMLINE_SOCKETS_LIBRARY",
    package: "socket-shim",
    what: "its sockets stay the kernel's",
    instead: "make a copy of it without them",
};

pub(super) fn run(args: &Args) -> Outcome {
    let (program, arguments) = args.command.split_first().ok_or(CommandError::Wrong("which program?".into()))?;
    let path = preload::find(program)
        .ok_or_else(|| CommandError::Failed(format!("there is no program {}", program.display())))?;
    let library = LIBRARY.path().map_err(CommandError::Failed)?;
    LIBRARY.is_heeded_by(&path).map_err(CommandError::Failed)?;
    // If there is no daemon, the error says how to start one.
    let daemon = super::Connection(crate::daemon_client::connect(&args.daemon.path(), "streamline net run")?);
    check_interface(args, &daemon.interfaces()?)?;
    drop(daemon);
    if preload::is_go(&path) {
        let name = base::terminal::name(&path);
        eprintln!(
            "streamline: {name} is a program of Go, which makes system calls itself: its sockets stay the kernel's"
        );
    }
    // Report errors in the policy before anything starts.
    read_policy(args.policy.as_deref())?;
    let variable = start_host(args)?;
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    command.env("LD_PRELOAD", preload::before_others(library)).env(socket_host::VARIABLE, variable);
    // Calls through io_uring would bypass the library and make sockets of the kernel. Programs that find no io_uring do
    // without it.
    guard::calls::without_io_uring()
        .map_err(|error| CommandError::Failed(format!("io_uring cannot be withheld from the program: {error}")))?;
    // exec(2) returns only if it failed.
    let error = command.exec();
    Err(CommandError::Failed(format!("{} cannot be run: {error}", path.display())))
}

/// Checks that an interface has the device and gives the share that the options name. Else every socket would stay the
/// kernel's, or be refused.
fn check_interface(args: &Args, interfaces: &[InterfaceState]) -> Outcome {
    let Args { device, slice, .. } = args;
    let is_it = |interface: &&InterfaceState| device.as_ref().is_none_or(|device| *device == interface.device);
    let mut interfaces = interfaces.iter().filter(is_it).peekable();
    match (device, slice, interfaces.peek()) {
        (Some(device), _, None) => {
            let text = format!("the daemon has no interface `{device}`; `streamline net ls` lists those it has");
            return Err(CommandError::Failed(text));
        }
        (None, Some(_), None) => {
            let text = "the daemon has no interface that could give a slice; `streamline net up` makes one";
            return Err(CommandError::Failed(text.into()));
        }
        _ => {}
    }
    let Some(slice) = slice else { return Ok(()) };
    let mut refusal = None;
    for interface in interfaces {
        match refuses(args, &interface.device, slice)? {
            None => return Ok(()),
            refused => refusal = refused,
        }
    }
    refusal.map_or(Ok(()), |text| Err(CommandError::Failed(text)))
}

/// Why an interface gives no flow such a share of the wire, if the share is the reason.
fn refuses(args: &Args, device: &str, slice: &str) -> Result<Option<String>, CommandError> {
    let connection = Connection::open(&args.daemon.path(), "streamline net run");
    let connection = connection.map_err(|error| CommandError::Failed(error.to_string()))?;
    let wanted = UdpOptions { device: Some(device.into()), share: Some(slice.into()), ..UdpOptions::default() };
    match UdpSocket::open(Arc::new(connection), &wanted, &mut NoEnv) {
        Err(SocketError::Refused(CaptureErrorKind::Request, text)) => Ok(Some(text)),
        _ => Ok(None),
    }
}

/// Reads the policy. Without a file, every socket may become a flow.
fn read_policy(file: Option<&Path>) -> Result<Policy, CommandError> {
    let Some(file) = file else { return Ok(Policy::default()) };
    let name = base::terminal::name(file);
    let text = std::fs::read_to_string(file).map_err(|error| CommandError::Failed(format!("{name}: {error}")))?;
    Policy::parse(&text).map_err(|why| CommandError::Wrong(format!("{name}: {why}")))
}

/// Starts the host. Returns the variable's value, by which programs find the host.
fn start_host(args: &Args) -> Result<String, CommandError> {
    let system = |error| CommandError::Failed(format!("the host of the sockets cannot be started: {error}"));
    let (address, listener) = HostAddress::create().map_err(system)?;
    let this = std::env::current_exe().map_err(system)?;
    let mut host = Command::new(this);
    host.arg("socket-host").arg(std::path::absolute(args.daemon.path()).map_err(system)?);
    host.arg(std::process::id().to_string());
    host.env(socket_host::VARIABLE, address.variable());
    if let Some(address) = args.addr {
        host.arg("--addr").arg(address.to_string());
    }
    if let Some(device) = &args.device {
        host.arg("--device").arg(device);
    }
    if let Some(share) = &args.slice {
        host.arg("--slice").arg(share);
    }
    if let Some(policy) = &args.policy {
        host.arg("--policy").arg(std::path::absolute(policy).map_err(system)?);
    }
    host.stdin(Stdio::from(listener)).stdout(Stdio::null()).current_dir("/");
    // This child starts the host and exits. So the program, which may wait for all its children, has no child of ours.
    let started = host.status().map_err(system)?;
    match started.success() {
        true => Ok(address.variable()),
        false => Err(CommandError::ToldFailed),
    }
}

/// Keep the sockets of a program (what `net run` starts)
#[derive(clap::Args)]
pub(crate) struct HostArgs {
    /// The socket of the daemon
    daemon: PathBuf,

    /// Number of the process that becomes the program
    program: i32,

    #[arg(long)]
    addr: Option<IpAddr>,

    #[arg(long)]
    device: Option<String>,

    #[arg(long)]
    slice: Option<String>,

    #[arg(long)]
    policy: Option<PathBuf>,

    /// This process is the host itself
    #[arg(long)]
    runs: bool,
}

/// Runs the host, or starts it. Standard input is the socket on which it listens.
pub(crate) fn host(args: HostArgs) -> Outcome {
    let system = |error: std::io::Error| CommandError::Failed(format!("the host of the sockets: {error}"));
    if !args.runs {
        let this = std::env::current_exe().map_err(system)?;
        let mut host = Command::new(this);
        host.args(std::env::args_os().skip(1)).arg("--runs").spawn().map_err(system)?;
        return Ok(());
    }
    let variable = std::env::var(socket_host::VARIABLE).unwrap_or_default();
    let address = HostAddress::of_variable(&variable);
    let address = address.ok_or_else(|| CommandError::Wrong("`streamline net run` starts this".into()))?;
    let program = Pid::from_raw(args.program).ok_or_else(|| CommandError::Wrong("no such program".into()))?;
    let program = pidfd_open(program, PidfdFlags::empty()).map_err(|error| system(error.into()))?;
    let listener = std::io::stdin().as_fd().try_clone_to_owned().map_err(system)?;
    // The terminal's signals are the program's. An error means only that this process already leads a session.
    let _ = rustix::process::setsid();
    let options = Options {
        daemon: args.daemon,
        device: args.device,
        local: args.addr.map(|address| SocketAddr::new(address, 0)),
        share: args.slice,
        ..Options::default()
    };
    let policy = read_policy(args.policy.as_deref())?;
    let mut host = Host::new(&address, listener, program, options, policy).map_err(system)?;
    // A reader of the program's output waits until all writers have closed it. So the host closes its standard error.
    let null = std::fs::File::options().write(true).open("/dev/null").map_err(system)?;
    rustix::stdio::dup2_stderr(&null).map_err(|error| system(error.into()))?;
    host.run().map_err(system)
}
