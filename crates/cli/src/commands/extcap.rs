//! `streamline extcap`: Wireshark's and tshark's interfaces, by the protocol of extcap(4).
//!
//! Wireshark runs it four times:
//!
//! 1. for the list of interfaces,
//! 2. for the link type and the settings of each,
//! 3. to check a capture filter,
//! 4. to capture into a FIFO, until the FIFO is closed or SIGTERM comes.
//!
//! The first three must be quick and need no rights, so they open no device.

use crate::exit::{CommandError, Outcome};
use crate::signals::Finishing;
use driver::link::{self, Link};
use packet::link::LinkType;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use streamline::devices::Place;
use streamline::{Output, Session, StopFlag};

/// Give Wireshark and tshark devices and requests as interfaces
///
/// Not for people: Wireshark runs it, under a name that ends in `extcap`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// List interfaces
    #[arg(long)]
    extcap_interfaces: bool,

    /// Wireshark's version; without effect
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<Option<String>>,

    /// The interface the rest is about
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,

    /// Print its link type
    #[arg(long)]
    extcap_dlts: bool,

    /// Print its settings
    #[arg(long)]
    extcap_config: bool,

    /// A tcpdump expression; without --capture, say what is wrong with it
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    extcap_capture_filter: Option<String>,

    /// Capture
    #[arg(long)]
    capture: bool,

    /// Where to write pcapng to
    #[arg(long, value_name = "PATH")]
    fifo: Option<PathBuf>,

    /// Of Wireshark's toolbar, which is not supported
    #[arg(long, value_name = "PATH")]
    extcap_control_in: Option<PathBuf>,

    /// Of Wireshark's toolbar, which is not supported
    #[arg(long, value_name = "PATH")]
    extcap_control_out: Option<PathBuf>,

    /// Setting: a request that gives frames
    #[arg(long, value_name = "REQUEST")]
    request: Option<String>,

    /// Setting: bytes of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    snaplen: u32,

    /// Setting: a part of the flows, such as 0/4
    #[arg(long, value_name = "PART")]
    part: Option<String>,

    /// Setting: the socket of the daemon
    #[arg(long, value_name = "PATH")]
    daemon: Option<OsString>,
}

const AFTER_HELP: &str = "\
To install it, link to this program in a folder that `tshark -G folders` calls \"Extcap path\" or \"Personal Extcap
path\", such as one of these:
  ln -s \"$(command -v streamline)\" ~/.local/lib/wireshark/extcap/streamline-extcap
  ln -s \"$(command -v streamline)\" /usr/lib/x86_64-linux-gnu/wireshark/extcap/streamline-extcap
  ln -s \"$(command -v streamline)\" /usr/libexec/wireshark/extcap/streamline-extcap
Then:
  tshark -D                                       lists sl:eth0 and the like, and sl:request
  tshark -i sl:eth0 -f 'udp port 53'              shares the capture of everybody else
In Wireshark, the wheel beside an interface has its settings; sl:request has one for the request.
A daemon (`streamline daemon`) makes all of it work without rights.";

/// The interface for a request that the user writes.
const REQUEST: &str = "sl:request";

/// Names of devices begin with this prefix.
const PREFIX: &str = "sl:";

/// The variable of a request that holds the capture filter.
const EXPRESSION: &str = "extcap_capture_filter";

/// The number that extcap uses for LINKTYPE_RAW (DLT_RAW).
const RAW_HERE: u16 = 12;

/// The command line. Under a program name that ends in `extcap`, the subcommand is inserted.
pub(crate) fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = given.collect();
    let name = arguments.first().map(Path::new).and_then(Path::file_stem).unwrap_or_default();
    if name.to_string_lossy().ends_with("extcap") {
        arguments.insert(1, "extcap".into());
    }
    arguments
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.extcap_interfaces {
        return crate::print_data(&interfaces(&links()?));
    }
    let wrong = |text: &str| CommandError::Wrong(text.into());
    let name = args.extcap_interface.as_deref().ok_or_else(|| wrong("which interface? (--extcap-interface)"))?;
    if args.capture {
        return capture(args, name);
    }
    if args.extcap_dlts {
        return crate::print_data(&data_link(link_type(name)?));
    }
    if args.extcap_config {
        return crate::print_data(if name == REQUEST { CONFIG_OF_REQUEST } else { CONFIG_OF_DEVICE });
    }
    match args.extcap_capture_filter.as_deref() {
        // Wireshark takes any output for an error: a right filter prints nothing.
        Some(expression) => match streamline::check_expression(expression, link_type(name)?) {
            Ok(()) => Ok(()),
            Err(text) => crate::print_data(&format!("{text}\n")),
        },
        None => Err(wrong("what of it? (--capture, --extcap-dlts, --extcap-config)")),
    }
}

fn links() -> Result<Vec<Link>, CommandError> {
    link::list().map_err(|error| CommandError::Failed(format!("devices cannot be listed: {error}")))
}

/// The list of interfaces: devices that can be captured, and the one for requests.
fn interfaces(links: &[Link]) -> String {
    let mut text = format!("extcap {{version={}}}{{display=Streamline}}\n", env!("CARGO_PKG_VERSION"));
    for link in links.iter().filter(|link| link.is_up() && link.link_type().is_some()) {
        let name = &link.name;
        let _ = writeln!(text, "interface {{value={PREFIX}{name}}}{{display=Streamline: {name}, shared}}");
    }
    let _ = writeln!(text, "interface {{value={REQUEST}}}{{display=Streamline: a request}}");
    text
}

/// The link type of an interface. An unknown device may be the daemon's; most are Ethernet.
fn link_type(interface: &str) -> Result<u16, CommandError> {
    let found = device(interface).map(|name| links().map(|links| links.into_iter().find(|link| link.name == name)));
    Ok(found.transpose()?.flatten().and_then(|link| link.link_type()).unwrap_or(LinkType::ETHERNET.0))
}

/// The device of an interface. `None`: the interface for requests.
fn device(interface: &str) -> Option<&str> {
    (interface != REQUEST).then(|| interface.strip_prefix(PREFIX).unwrap_or(interface))
}

fn data_link(link_type: u16) -> String {
    match LinkType(link_type) {
        LinkType::ETHERNET => "dlt {number=1}{name=EN10MB}{display=Ethernet}\n".into(),
        LinkType::RAW => format!("dlt {{number={RAW_HERE}}}{{name=RAW}}{{display=Raw IP}}\n"),
        LinkType(other) => format!("dlt {{number={other}}}{{name=DLT{other}}}{{display=Link type {other}}}\n"),
    }
}

const CONFIG_OF_DEVICE: &str = "\
arg {number=0}{call=--snaplen}{display=Snap length}{tooltip=Bytes of each packet, 0 for all}{type=unsigned}{default=0}
arg {number=1}{call=--part}{display=Part of the flows}{tooltip=For example 0/4, the first of four}{type=string}
arg {number=2}{call=--daemon}{display=Daemon}{tooltip=Its socket, if not the usual one}{type=string}
";

const CONFIG_OF_REQUEST: &str = "\
arg {number=0}{call=--request}{display=Request}{tooltip=ethernet eth0 | sample 100}{type=string}{required=true}
arg {number=1}{call=--daemon}{display=Daemon}{tooltip=Its socket, if not the usual one}{type=string}
";

fn request(args: &Args, interface: &str) -> Result<String, CommandError> {
    let Some(device) = device(interface) else {
        let text = args.request.clone().filter(|text| !text.trim().is_empty());
        return text.ok_or_else(|| CommandError::Wrong("which request? (a setting of the interface)".into()));
    };
    let part = args.part.as_deref().map(str::trim).filter(|part| !part.is_empty());
    let mut name = match part {
        Some(part) => format!("{device}@{part}"),
        None => device.to_string(),
    };
    name = name.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("ethernet \"{name}\" snaplen={}", args.snaplen))
}

fn capture(args: &Args, interface: &str) -> Outcome {
    let fifo =
        args.fifo.as_deref().ok_or_else(|| CommandError::Wrong("captures are written to where? (--fifo)".into()))?;
    let stop = StopFlag::new();
    crate::signals::listen(&stop, Finishing::Untold)
        .map_err(|error| CommandError::Failed(format!("cannot listen for signals: {error}")))?;
    // Open the FIFO first: Wireshark waits for that.
    let failed = |error: std::io::Error| CommandError::Failed(format!("{}: {error}", fifo.display()));
    let file = File::options().write(true).open(fifo).map_err(failed)?;
    watch(file.try_clone().map_err(failed)?.into(), stop.clone()).map_err(failed)?;
    let expression = args.extcap_capture_filter.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let request = request(args, interface)?;
    let text = streamline::frames::to_output(&request, expression.map(|_| EXPRESSION));
    let text = text.map_err(streamline::Error::from)?;
    let variables: BTreeMap<String, String> =
        expression.map(|text| (EXPRESSION.to_string(), text.to_string())).into_iter().collect();
    let place = match &args.daemon {
        // The user may have emptied this setting.
        Some(path) if !path.is_empty() => Place::Daemon(path.into()),
        _ => socket::net::named_daemon().map_or(Place::Anywhere, Place::Daemon),
    };
    let session = Session::with_output(Output::new(Box::new(file), false)).devices_at(place);
    let job = session.prepare(&text, &variables)?;
    job.run(&stop, &mut |worker| worker.take_notices().iter().for_each(|text| tell!("warning: {text}")))?;
    Ok(())
}

/// Stops the run once the reader closes the FIFO. A run that writes no frames would not notice.
fn watch(fifo: OwnedFd, stop: StopFlag) -> std::io::Result<()> {
    let wait = move || {
        loop {
            let mut fds = [PollFd::new(&fifo, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                // The reader closed the FIFO (poll(2) reports no more than that), or the FIFO cannot be watched.
                _ => return stop.stop(),
            }
        }
    };
    std::thread::Builder::new().name("fifo".into()).spawn(wait).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_its_other_name_it_is_the_subcommand() {
        let rows: [(&[&str], &[&str]); 3] = [
            (&["/usr/bin/streamline", "ps"], &["/usr/bin/streamline", "ps"]),
            (&["/x/streamline-extcap", "--capture"], &["/x/streamline-extcap", "extcap", "--capture"]),
            (&[], &[]),
        ];
        for (given, expected) in rows {
            assert_eq!(arguments(given.iter().map(OsString::from)), expected);
        }
    }

    #[test]
    fn link_types_are_named() {
        for (number, expected) in [(1, "number=1}{name=EN10MB}"), (101, "number=12}{name=RAW}"), (113, "number=113}")] {
            assert!(data_link(number).contains(expected), "{number}");
        }
    }
}
