//! `streamline pcap`: runs an unmodified libpcap program on a shared capture.
//!
//! Only the environment changes: the loader puts `libstreamline_pcap.so` before libpcap (`preload.rs`: not in every
//! program).

use crate::commands::preload::{self, Library};
use crate::exit::{CommandError, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Run a libpcap program (tcpdump, tshark ...) on a shared capture
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH")]
    daemon: Option<PathBuf>,

    /// Which devices are taken over under their plain names: `all`, `none`, or a list such as eth0,eth1
    #[arg(long, value_name = "NAMES", default_value = "all")]
    plain: String,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  streamline pcap -- tcpdump -i eth0 -w web.pcap 'tcp port 80'
  streamline pcap -- dumpcap -i eth0 -i eth1 -w both.pcapng
  streamline pcap -- tcpdump -i any port 53               all devices together, as LINKTYPE_LINUX_SLL2
  streamline pcap -- tcpdump -i sl:eth0@0/4               a quarter of the traffic, by flow
  streamline pcap -- tcpdump -i 'sl:pcap x.pcap | port 80'   the frames a request gives
  streamline pcap --plain none -- tcpdump -i eth0         libpcap's own capture; sl:eth0 is ours

A device is captured once for all programs that read it through a daemon (`streamline daemon`), which need no
rights but to connect to it. Without a daemon the program needs the rights to capture, and shares with nobody.
What is not a network interface (files, USB ...) stays libpcap's. Variables, for services and wrappers:
  LD_PRELOAD                  libstreamline_pcap.so; `streamline pcap` sets this, and the next to all
  STREAMLINE_PCAP             plain names that are taken over: all, or eth0,eth1; off switches everything off
  STREAMLINE_DAEMON           socket of the daemon
  STREAMLINE_SHARE            yes: requests join what runs for other requests of this user (`run --share`)
  STREAMLINE_PCAP_FD          yes or no: do programs get a file descriptor to select on? If not said,
                              no for dumpcap, which is cheaper so, and yes for others
  STREAMLINE_PCAP_LIBRARY     where libstreamline_pcap.so is, if not beside the program `streamline`
  STREAMLINE_PCAP_REAL        where libpcap is, if not where the system has it";

const LIBRARY: Library = Library {
    file: "libstreamline_pcap.so",
    variable: "STREAMLINE_PCAP_LIBRARY",
    package: "pcap-shim",
    what: "its capture cannot be replaced",
    instead: "make a copy of it without them, and let a daemon (`streamline daemon`) have the rights instead",
};

pub(crate) fn run(args: &Args) -> Outcome {
    let mut command = prepare(args)?;
    // exec(2) returns only if it failed.
    let error = command.exec();
    Err(CommandError::Failed(format!("{} cannot be run: {error}", command.get_program().display())))
}

fn prepare(args: &Args) -> Result<Command, CommandError> {
    let (program, arguments) = args.command.split_first().ok_or(CommandError::Wrong("which program?".into()))?;
    let path = preload::find(program).ok_or_else(|| no_program(program))?;
    let library = LIBRARY.path().map_err(CommandError::Failed)?;
    LIBRARY.is_heeded_by(&path).map_err(CommandError::Failed)?;
    // These two run dumpcap, which is found beside them, to capture.
    if matches!(path.file_name().and_then(OsStr::to_str), Some("tshark" | "wireshark"))
        && let Some(dumpcap) = path.parent().map(|folder| folder.join("dumpcap")).filter(|path| path.exists())
    {
        LIBRARY.is_heeded_by(&dumpcap).map_err(CommandError::Failed)?;
    }
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    command.env("LD_PRELOAD", preload::before_others(library));
    command.env("STREAMLINE_PCAP", if args.plain == "none" { "" } else { &args.plain });
    if let Some(daemon) = &args.daemon {
        let daemon = std::path::absolute(daemon).unwrap_or_else(|_| daemon.clone());
        command.env(socket::net::DAEMON, daemon);
    }
    Ok(command)
}

/// The error for a missing program. A newcomer may have meant the filter of the same name.
fn no_program(program: &OsStr) -> CommandError {
    let error = CommandError::Failed(format!("there is no program {}", program.display()));
    match Path::new(program).is_file() {
        true => error.with_help(&format!("to read a capture: streamline run 'pcap {} | ...'", program.display())),
        false => error,
    }
}
