//! `streamline pcap`: runs an unmodified libpcap program on a shared capture.
//!
//! Nothing is changed but the environment: the loader puts `libstreamline_pcap.so` before libpcap. It does so for no
//! program that runs with more rights than who started it, nor for one that loads nothing; both are said before anything
//! runs, for the program itself would say something else.

use crate::exit::{CommandError, Outcome};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
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
  streamline pcap -- tcpdump -i sl:eth0@0/4               a quarter of the traffic, by flow
  streamline pcap -- tcpdump -i 'sl:pcap x.pcap | port 80'   the frames a request gives
  streamline pcap --plain none -- tcpdump -i eth0         libpcap's own capture; sl:eth0 is ours

A device is captured once for all programs that read it through a daemon (`streamline daemon`), which need no
rights but to connect to it. Without a daemon the program needs the rights to capture, and shares with nobody.
What is not a network interface (files, `any`, USB ...) stays libpcap's. Variables, for services and wrappers:
  LD_PRELOAD                  libstreamline_pcap.so; `streamline pcap` sets this, and the next to all
  STREAMLINE_PCAP             plain names that are taken over: all, or eth0,eth1; off switches everything off
  STREAMLINE_DAEMON           socket of the daemon
  STREAMLINE_SHARE            yes: requests join what runs for other requests of this user (`run --share`)
  STREAMLINE_PCAP_FD          yes or no: do programs get a file descriptor to select on? If not said,
                              no for dumpcap, which is cheaper so, and yes for others
  STREAMLINE_PCAP_LIBRARY     where libstreamline_pcap.so is, if not beside the program `streamline`
  STREAMLINE_PCAP_REAL        where libpcap is, if not where the system has it";

/// Where the library is, if not beside this program.
const LIBRARY_VARIABLE: &str = "STREAMLINE_PCAP_LIBRARY";

/// Its file.
const LIBRARY: &str = "libstreamline_pcap.so";

pub(crate) fn run(args: &Args) -> Outcome {
    let mut command = prepare(args)?;
    // Comes back only if it could not.
    let error = command.exec();
    Err(CommandError::Failed(format!("{} cannot be run: {error}", command.get_program().display())))
}

fn prepare(args: &Args) -> Result<Command, CommandError> {
    let (program, arguments) = args.command.split_first().ok_or(CommandError::Wrong("which program?".into()))?;
    let path = find(program).ok_or_else(|| no_program(program))?;
    let library = library().map_err(CommandError::Failed)?;
    heeds_preloads(&path).map_err(CommandError::Failed)?;
    // These two have another capture for them, which is found beside them.
    if matches!(path.file_name().and_then(OsStr::to_str), Some("tshark" | "wireshark"))
        && let Some(dumpcap) = path.parent().map(|folder| folder.join("dumpcap")).filter(|path| path.exists())
    {
        heeds_preloads(&dumpcap).map_err(CommandError::Failed)?;
    }
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    let mut preload = library.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    command.env("LD_PRELOAD", preload);
    command.env("STREAMLINE_PCAP", if args.plain == "none" { "" } else { &args.plain });
    if let Some(daemon) = &args.daemon {
        let daemon = std::path::absolute(daemon).unwrap_or_else(|_| daemon.clone());
        command.env("STREAMLINE_DAEMON", daemon);
    }
    Ok(command)
}

/// The program is not there. A newcomer may have meant the filter of this command's name.
fn no_program(program: &OsStr) -> CommandError {
    let error = CommandError::Failed(format!("there is no program {}", program.display()));
    match Path::new(program).is_file() {
        true => error.with_help(&format!("to read a capture: streamline run 'pcap {} | ...'", program.display())),
        false => error,
    }
}

fn library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
        let path = PathBuf::from(path);
        // The loader splits its list at spaces and colons, and looks for what has no slash elsewhere.
        return match std::path::absolute(&path) {
            Ok(path) if path.is_file() => loadable(path),
            _ => Err(format!("{LIBRARY_VARIABLE} names {}, which is no file", path.display())),
        };
    }
    let program = std::env::current_exe().map_err(|error| format!("this program cannot find itself: {error}"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places =
        [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY), folder.join("../lib/streamline").join(LIBRARY)];
    match places.into_iter().find_map(|place| place.canonicalize().ok()) {
        Some(path) => loadable(path),
        None => Err(format!(
            "{LIBRARY} is not in {} nor in the lib folder beside it; build it (`cargo build --release -p pcap-shim`), or say \
             where it is: {LIBRARY_VARIABLE}=PATH",
            folder.display()
        )),
    }
}

fn loadable(path: PathBuf) -> Result<PathBuf, String> {
    match path.to_string_lossy().contains([' ', ':']) {
        true => Err(format!("{}: the loader takes no path with a space or a colon in it", path.display())),
        false => Ok(path),
    }
}

/// The file that a command means.
fn find(program: &OsStr) -> Option<PathBuf> {
    let may_run =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(may_run);
    }
    let paths = std::env::var_os("PATH")
        .unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    std::env::split_paths(&paths).map(|folder| folder.join(program)).find(may_run)
}

/// Does the loader do for this program what LD_PRELOAD asks? If not, why, and what to do.
fn heeds_preloads(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let unreadable = |error| format!("{shown} cannot be read: {error}");
    let metadata = path.metadata().map_err(unreadable)?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let instead = "make a copy of it without them, and let a daemon (`streamline daemon`) have the rights instead";
    let mode = metadata.mode();
    let other_user = mode & 0o4000 != 0 && metadata.uid() != user;
    // Without the right to execute it for the group, the bit means something else.
    let other_group = mode & 0o2010 == 0o2010 && metadata.gid() != group;
    if other_user || other_group {
        return Err(format!("{shown} is setuid or setgid, and such programs ignore preloaded libraries; {instead}"));
    }
    // To root, these add nothing, and the loader does not mind.
    let mut capabilities = [0u8; 64];
    if user != 0 && rustix::fs::getxattr(path, "security.capability", &mut capabilities).is_ok_and(|length| length > 0)
    {
        return Err(format!("{shown} has file capabilities, and such programs ignore preloaded libraries; {instead}"));
    }
    let mut head = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(4096).read_to_end(&mut head).map_err(unreadable)?,
        // What may be run but not read is run; it will tell.
        Err(_) => return Ok(()),
    };
    match is_static(&head) {
        true => Err(format!("{shown} is linked statically, and loads no libraries; its capture cannot be replaced")),
        false => Ok(()),
    }
}

/// Is it an ELF program that names no loader? `head` is its beginning. Scripts and what is not known are not.
fn is_static(head: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0usize, |number, byte| number.wrapping_shl(8) | usize::from(*byte)))
    };
    let wide = match head {
        // 32 or 64 bits, little-endian; others are believed.
        [0x7f, b'E', b'L', b'F', class @ (1 | 2), 1, ..] => *class == 2,
        _ => return false,
    };
    let layout = if wide { [(32, 8), (54, 2), (56, 2)] } else { [(28, 4), (42, 2), (44, 2)] };
    let [Some(first), Some(bytes), Some(count)] = layout.map(|(at, bytes)| number(at, bytes)) else { return false };
    let kinds = (0..count).map(|index| number(first.saturating_add(index.saturating_mul(bytes)), 4));
    let mut kinds = kinds.peekable();
    // A table that is not in the part that was read says nothing.
    kinds.peek().is_some_and(Option::is_some) && !kinds.any(|kind| kind.is_none_or(|kind| kind == PT_INTERP as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (head[32], head[54], head[56]) = (64, 56, kinds.len() as u8);
        for kind in kinds {
            head.extend(kind.to_le_bytes());
            head.extend([0; 52]);
        }
        head
    }

    #[test]
    fn static_programs_are_known_by_having_no_loader() {
        assert!(is_static(&elf(&[1, 1, 7])));
        assert!(!is_static(&elf(&[6, 3, 1])));
        assert!(!is_static(&elf(&[])));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&elf(&[1, 1])[..70]), "not all of it was read");
        assert!(!is_static(&[]));
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&this[..4096]));
    }
}
