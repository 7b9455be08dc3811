//! `streamline daemon`: owns devices and shares them with readers.

mod remover;

use crate::exit::{CommandError, Outcome};
use capture::CaptureRegistry;
use daemon::{Account, Helpers, Listening, MayConnect, Policy, Server, account, confine};
use remover::Remover;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use streamline::devices::opener::{self, Opener};

/// The policy's form, with the use of each key.
const POLICY: &str = "\
The policy is a TOML file; without it root and the group `streamline` may read copies of everything, and open flows on every
interface (`streamline net`):

  [limits]
  ring = \"256M\"              # bytes of one device's ring at most (a power of two)
  readers = 48                # readers one user may have at a time, of all devices together
  instructions = 4096         # what all expressions of a device may cost each of its packets; one user's, three quarters

  [[allow]]                   # the first entry that fits decides; root may do everything
  users = [\"anna\"]            # by name or number
  groups = [\"streamline\"]     # or everybody = true
  devices = [\"eth*\", \"wlan0\"]
  modes = [\"tap\"]             # tap: read copies; consume: take packets away; flow: open flows
  keep = \"64M\"                # every packet of these devices is kept, so many bytes for each, for `last=30s`
  filter = \"udp port 53\"      # whatever they ask for, they see and take no other packets of these devices

A ring (of one device, for one entry) has places for 64 readers, and 8 of them are root's. So one user with the usual 48 leaves
8 to other users; with `readers = 56` or more, one user can take all that others might want.
Readers that different entries allow never share a ring, so what a filter rejects is in no memory they can read; how much
there is in all they are told. A filter is what `bpf` takes, for Ethernet and for devices without a link header: what is behind
a VLAN tag it finds with `vlan` only, so `not port 22` keeps back less than it seems to. It says nothing about flows, which get their own
packets: so an entry with a filter allows no `flow`.";

/// Own devices and let other programs read them
///
/// Runs until Ctrl-C or SIGTERM. Started as root, it becomes the user `streamline`, or `nobody` if there is no such
/// user. Of the capabilities that it has, it keeps CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (with the first alone it
/// copies packets from packet sockets). CAP_NET_BIND_SERVICE goes to the process that holds ports for `net up --share`.
/// Where the kernel can (Landlock, seccomp), the daemon confines itself to the system calls that it makes, and to its
/// socket's folder, `/dev/net/tun`, `/proc` and `/sys`. It owns devices of the network namespace in which it starts.
/// With `--loopback` it needs no right, and owns no device.
#[derive(clap::Args)]
#[command(after_long_help = POLICY)]
pub(crate) struct Args {
    /// Where to listen; a socket handed over by systemd comes first
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    socket: PathBuf,

    /// The policy: which users may do what (TOML); without it root and the group `streamline` may capture
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Start without rights and own no device: interfaces are those of `net up NAME --via loopback`. The user who starts it may do
    /// everything there; root starts a daemon without this
    #[arg(long)]
    loopback: bool,

    #[command(flatten)]
    metrics: crate::metrics::MetricsArgs,

    /// Remove the socket when asked to (a daemon that root starts runs this)
    #[arg(long, hide = true)]
    remover: bool,

    /// Hold ports of the host as the daemon at standard input asks (the daemon runs this)
    #[arg(long, hide = true)]
    port_keeper: bool,

    /// Start the processes of interfaces as the daemon at standard input asks (the daemon runs this)
    #[arg(long, hide = true)]
    interface_starter: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.remover {
        return remover::run(&args.socket);
    }
    if args.port_keeper {
        return helper(daemon::ports::run);
    }
    if args.interface_starter {
        return helper(daemon::interfaces::run_starter);
    }
    let failed = |what: &str| {
        let what = what.to_string();
        move |error: std::io::Error| CommandError::Failed(format!("{what}: {error}"))
    };
    let policy = match &args.config {
        Some(path) => Policy::read(path).map_err(CommandError::Wrong)?,
        None => Policy::without_file(),
    };
    let capabilities = confine::capabilities();
    let has = |wanted| capabilities.iter().any(|(name, there)| *name == wanted && *there);
    let opens_something = has("CAP_NET_RAW") || (has("CAP_NET_ADMIN") && has("CAP_BPF"));
    let policy = match (opens_something, args.loopback) {
        (true, false) => policy,
        (false, true) => policy.owned_by(rustix::process::geteuid().as_raw()),
        (false, false) => {
            let text = "the daemon could open no device: that takes CAP_NET_RAW, or CAP_NET_ADMIN and CAP_BPF\n   = help: \
                        start it as root; it keeps no other rights. For interfaces without a device: --loopback";
            return Err(CommandError::Failed(text.into()));
        }
        (true, true) => {
            let text = "--loopback is for a daemon without rights, and this one can open devices; leave it out, or start it as \
                        another user";
            return Err(CommandError::Wrong(text.into()));
        }
    };
    let counters = args.metrics.listen()?;
    // The helpers start first, so that they inherit no descriptor of the daemon and are not confined as the daemon is.
    let ports = own_command("--port-keeper").and_then(daemon::ports::start);
    let ports = ports.map_err(failed("the process that holds ports cannot be started"))?;
    let interfaces = own_command("--interface-starter").and_then(daemon::interfaces::start);
    let interfaces = interfaces.map_err(failed("the process that starts interface processes cannot be started"))?;
    confine::raise_memory_lock();
    confine::raise_files();
    let who = match (&args.config, daemon::policy::group()) {
        (Some(_), _) => MayConnect::Everybody,
        (None, Some(group)) => MayConnect::Group(group),
        (None, None) => MayConnect::Root,
    };
    let inherited = inherited();
    // A socket that systemd made has the access rights that systemd gave it.
    let own_socket = inherited.is_none();
    let (mut listening, place) = match inherited {
        Some(socket) => (Listening::inherited(socket), "the socket that was handed over".to_string()),
        None => {
            let place = args.socket.display().to_string();
            let listening = Listening::at(&args.socket, who);
            (listening.map_err(failed(&format!("cannot listen at {place}")))?, place)
        }
    };
    if own_socket && who == MayConnect::Root && rustix::process::geteuid().is_root() {
        tell!("warning: there is no group `streamline`: only root can connect (`groupadd streamline` makes it)");
    }
    opener::remember_foreign_programs();
    // Dropped before the listening socket: until then no other daemon can take this one's place.
    let _remover = if rustix::process::geteuid().is_root() { leave_root(args, &mut listening)? } else { None };
    let account = Account::of_this_process();
    confine::drop_capabilities().map_err(failed("capabilities cannot be dropped"))?;
    for (name, there) in &capabilities {
        if let Some(cost) = cost_without(name).filter(|_| !there && opens_something) {
            tell!("warning: {name} is not there: {cost}");
        }
    }
    let guards = confine::confine(listening.folder());
    for guard in &guards {
        if let Err(why) = &guard.held {
            tell!("warning: not confined to {}: {why}", guard.name);
        }
    }
    let confined = confine::describe(&account, opens_something, &guards);
    let registry = CaptureRegistry::new(Box::new(Opener))?;
    let helpers = Helpers { ports, interfaces, control: listening.path().unwrap_or_default() };
    let server = Server::new(registry, policy, confined.clone(), opener::device, Some(helpers))
        .map_err(failed("the daemon cannot be started"))?;
    let server = std::sync::Arc::new(server);
    let counters = counters.map(|listener| {
        tell!("counters at {}", listener.place());
        let server = std::sync::Arc::clone(&server);
        crate::metrics::of_daemon::start(listener, move || server.state())
    });
    let _counters = counters.transpose().map_err(failed("the counters cannot be served"))?;
    let stopper = server.stopper().map_err(failed("the daemon cannot be started"))?;
    crate::signals::write_on(stopper).map_err(failed("cannot listen for signals"))?;
    tell!("confined to: {confined}");
    tell!("listening at {place}");
    server.run(&listening, &|line| tell!("{line}")).map_err(failed("the daemon cannot go on"))
}

/// The command that runs this program as a helper of the daemon.
fn own_command(option: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["daemon", option]);
    Ok(command)
}

fn helper(run: fn() -> std::io::Result<()>) -> Outcome {
    // A signal that ends the daemon may reach all its processes. The helpers ignore it and end by themselves, after the daemon.
    crate::signals::outlive().and_then(|()| run()).map_err(|_| CommandError::ToldFailed)
}

/// Becomes the daemon's own user. Returns the process that removes the socket at the end, if the daemon needs one.
fn leave_root(args: &Args, listening: &mut Listening) -> Result<Option<Remover>, CommandError> {
    let failed = |error| {
        CommandError::Failed(format!("the process that removes the socket at the end cannot be started: {error}"))
    };
    let remover = listening.folder().is_some().then(|| Remover::start(&args.socket)).transpose().map_err(failed)?;
    if remover.is_some() {
        listening.leave_socket();
    }
    let account = Account::of_daemon();
    match confine::become_user(&account) {
        Ok(()) if account.name != account::NAME => tell!(
            "warning: there is no user `{0}`: the daemon runs as `{account}`, and other processes of that user may end it \
             (`useradd --system --gid {0} {0}` makes one)",
            account::NAME
        ),
        Ok(()) => {}
        Err(error) => tell!("warning: the daemon cannot become the user `{account}`, and goes on as root: {error}"),
    }
    Ok(remover)
}

/// The loss of function without this capability. `None`: the daemon never keeps this capability.
fn cost_without(capability: &str) -> Option<&'static str> {
    match capability {
        "CAP_NET_RAW" => Some("packets cannot be copied from packet sockets, nor devices made promiscuous"),
        "CAP_NET_ADMIN" => Some("no programs can be attached to devices: packets are copied from packet sockets"),
        "CAP_NET_BIND_SERVICE" => Some("flows on shared devices have no ports below 1024"),
        "CAP_BPF" => Some("no programs can be loaded: packets are copied from packet sockets"),
        _ => None,
    }
}

/// The socket that systemd made and handed over as the first after the standard ones (sd_listen_fds(3)).
fn inherited() -> Option<OwnedFd> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID")? != std::process::id() || number("LISTEN_FDS")? == 0 {
        return None;
    }
    // Another part of this process may own descriptor 3, so take a new descriptor for the same socket.
    let this = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_getfd(this, 3, rustix::process::PidfdGetfdFlags::empty()).ok()
}
