//! Interface processes ([`net::serve`]), and the process that starts them.
//!
//! Once it is confined, the daemon can execute no program, and it should not be able to. So it first starts a
//! *starter*: a process that keeps the three capabilities for opening devices. The starter may execute this program
//! alone, and does so when the daemon asks. It reads only the daemon's short messages. An interface process opens its
//! device with these capabilities, and then gives all of them up.
//!
//! - [`start`], [`run_starter`] — the starter's two ends.
//! - [`run_process`] — an interface process.
//!
//! The starter ends with the daemon. Interface processes go on, and look for the next daemon.

use crate::account::Account;
use crate::confine;
use buffer::control::{self, packets};
use capture::protocol::{Answer, PROTOCOL, Question};
use guard::calls::{Argument, Calls};
use guard::{CapabilitySet, Guard};
use net::{Running, Starter, Surroundings};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const NAME: &str = "an interface";

/// How long the starter may take.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a daemon may take to answer an interface process that has found it.
const FOUND: Duration = Duration::from_secs(2);

/// First byte of a question to the starter: start a process for the named device, or kill a process.
const START: u8 = 1;
const KILL: u8 = 2;

const QUESTION: usize = 64;

/// This program, even if another file has its name by now.
const PROGRAM: &str = "/proc/self/exe";

/// The daemon's end of the starter.
#[derive(Debug)]
pub struct InterfaceStarter {
    /// Locked for one question and its answer.
    socket: Mutex<OwnedFd>,
    /// The same socket: hangs up when the process has ended.
    line: OwnedFd,
}

/// Starts the starter with the rights that this process has now: `command` is this program, told to call [`run_starter`].
///
/// # Errors
///
/// The process could not be made.
pub fn start(mut command: Command) -> io::Result<Arc<InterfaceStarter>> {
    let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, which, Some(ANSWER))?;
    }
    let line = socket.try_clone()?;
    // A group of its own, so that it gets no signals from the terminal.
    command.stdin(other).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
    // It ends with the daemon. By then it is no longer the daemon's child.
    command.spawn()?;
    Ok(Arc::new(InterfaceStarter { socket: Mutex::new(socket), line }))
}

impl InterfaceStarter {
    /// Asks a question with a file descriptor; gives the file descriptor of the answer, if there is one.
    fn ask(&self, what: u8, device: &str, beside: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let question = [&[what][..], device.as_bytes()].concat();
        packets::send(&*socket, &question, &[beside])?;
        let mut answer = [0; 4];
        let received = packets::receive(&*socket, &mut answer)?;
        let ended = || io::Error::other("the process that starts interface processes ended; start the daemon again");
        let received = received.filter(|received| received.len == answer.len()).ok_or_else(ended)?;
        match i32::from_ne_bytes(answer) {
            0 => Ok(received.fds.into_iter().next()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Starter for InterfaceStarter {
    fn start(&self, device: &str) -> io::Result<Running> {
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let process = self.ask(START, device, theirs.as_fd())?;
        Ok(Running { socket, process })
    }

    fn kill(&self, process: BorrowedFd<'_>) -> io::Result<()> {
        self.ask(KILL, "", process).map(drop)
    }
}

impl AsFd for InterfaceStarter {
    /// Hangs up when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// The starter: starts processes as the daemon at its standard input asks, until that ends.
///
/// # Errors
///
/// Rights could not be given up, or the daemon sent an invalid message.
pub fn run_starter() -> io::Result<()> {
    // Interface processes inherit these limits.
    confine::raise_memory_lock();
    confine::raise_files();
    if rustix::process::geteuid().is_root() {
        confine::become_user(&Account::of_daemon())?;
    }
    guard::hand_on_capabilities(confine::KEPT)?;
    // On a kernel without Landlock it starts processes without that guard, as the daemon itself runs.
    let _: Guard = confine::files::confine_to_start(&mapped_programs()?);
    let socket = io::stdin();
    loop {
        let mut question = [0; QUESTION];
        let Some(received) = packets::receive(&socket, &mut question)? else { return Ok(()) };
        let beside = received.fds.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
        let done = match question[..received.len].split_first() {
            Some((&START, device)) => start_process(OsStr::from_bytes(device), beside).map(Some),
            Some((&KILL, [])) => pidfd_send_signal(beside, Signal::KILL).map(|()| None).map_err(io::Error::from),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let (errno, process) = match done {
            Ok(process) => (0, process),
            Err(error) => (error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()), None),
        };
        let beside: Vec<_> = process.iter().map(AsFd::as_fd).collect();
        packets::send(&socket, &errno.to_ne_bytes(), &beside)?;
    }
}

/// Starts a process that serves this socket; gives its pidfd. `device` names the device for people.
fn start_process(device: &OsStr, socket: OwnedFd) -> io::Result<OwnedFd> {
    let mut command = Command::new(PROGRAM);
    command.arg0("streamline").args(["interface-process", "--"]).arg(device);
    command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
    let mut child = command.spawn()?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    // A thread waits for its end, so that it leaves no zombie.
    std::thread::Builder::new().name("waits".into()).spawn(move || child.wait())?;
    Ok(process?)
}

/// The files that this process executes: the program, its loader and libraries.
fn mapped_programs() -> io::Result<Vec<PathBuf>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter(|line| line.split_whitespace().nth(1).is_some_and(|rights| rights.contains('x')))
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .collect();
    files.dedup();
    files.push(PROGRAM.into());
    Ok(files)
}

/// Runs an interface process, with the daemon at its standard input.
///
/// # Errors
///
/// The daemon ended before the interface was up, or sent an invalid message.
pub fn run_process() -> io::Result<()> {
    guard::linger::close_inherited();
    // Otherwise people would see the name of `PROGRAM`.
    rustix::thread::set_name(c"streamline")?;
    net::serve(io::stdin().as_fd().try_clone_to_owned()?, &Confined)
}

struct Confined;

impl Surroundings for Confined {
    fn confine(&self, uses_maps: bool) -> io::Result<()> {
        guard::keep_capabilities(CapabilitySet::empty())?;
        guard::hide()?;
        // On a kernel that lacks a guard the process goes on without it, like the daemon.
        let _: [Guard; 2] = guards(uses_maps);
        Ok(())
    }

    fn find_daemon(&self, control: &Path) -> io::Result<OwnedFd> {
        let socket = control::connect(control, None, SocketFlags::empty(), FOUND)?;
        // This daemon is given the channels of all applications. Root may be the owner: it listens for daemons that
        // become another user, and for systemd.
        let user = control::peer::of(socket.as_fd())?.user;
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        set_socket_timeout(&socket, Timeout::Recv, Some(FOUND))?;
        let ask = |question: Question| {
            control::ask(&socket, &question)?;
            let answer = control::receive::<Answer>(&socket)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok::<_, io::Error>(answer.0)
        };
        let hello = ask(Question::Hello(PROTOCOL, "an interface's process".into()))?;
        let taken = ask(Question::Flows(flow::Question::Adopt))?;
        if (hello, taken) != (Answer::Hello(PROTOCOL), Answer::Flows(flow::Answer::Done)) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        set_socket_timeout(&socket, Timeout::Recv, None)?;
        Ok(socket)
    }
}

/// Allows no file, and few system calls.
fn guards(uses_maps: bool) -> [Guard; 2] {
    [guard::files::confine(NAME, &[]), calls(uses_maps).confine(NAME)]
}

/// Allows packets on open sockets, memory and doorbells for new channels, and a connection to the next daemon. A shared
/// device also has maps, whose entries change.
fn calls(uses_maps: bool) -> Calls {
    // `linux/bpf.h`.
    const MAP_UPDATE_ELEM: u32 = 2;
    const MAP_DELETE_ELEM: u32 = 3;
    const LINK_UPDATE: u32 = 29;
    let asks = [libc::SIOCGIFNAME as u32, libc::SIOCGIFFLAGS as u32, libc::SIOCGIFMTU as u32, libc::TUNGETIFF as u32];
    let calls = Calls::of_any_program()
        .and_to_use_rings()
        // Its own memory, by another file descriptor.
        .and_to_read()
        .and(&[
            libc::SYS_fchmod,
            libc::SYS_sendmmsg,
            libc::SYS_recvmmsg,
            libc::SYS_setsockopt,
            libc::SYS_eventfd2,
            libc::SYS_connect,
        ])
        .and_if(libc::SYS_socket, [vec![Argument::is(0, libc::AF_UNIX as u32)]])
        .and_if(libc::SYS_ioctl, asks.map(|request| vec![Argument::is(1, request)]));
    let maps = [MAP_UPDATE_ELEM, MAP_DELETE_ELEM, LINK_UPDATE].map(|command| vec![Argument::is(0, command)]);
    if uses_maps { calls.and_if(libc::SYS_bpf, maps) } else { calls }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// Confines a thread that ends with the test, like an interface process.
    #[test]
    fn a_confined_process_makes_channels_and_opens_nothing() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("control");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("there is room");
        let tried = std::thread::spawn(move || {
            guard::keep_capabilities(CapabilitySet::empty()).ok()?;
            let guards = guards(false);
            guards
                .iter()
                .try_for_each(|guard| guard.held.as_ref().map(drop).map_err(|why| eprintln!("skipped: {why}")))
                .ok()?;
            let kind = |error: io::Error| error.kind();
            let (packets, netlink) = (AddressFamily::PACKET, AddressFamily::NETLINK);
            let socket =
                |family| rustix::net::socket(family, SocketType::RAW, None).map(drop).map_err(|errno| errno.kind());
            Some([
                std::fs::read("/proc/self/status").map(drop).map_err(kind),
                std::fs::write(folder.path().join("file"), "x").map_err(kind),
                Command::new("/bin/true").status().map(drop).map_err(kind),
                std::net::UdpSocket::bind("127.0.0.1:0").map(drop).map_err(kind),
                socket(packets),
                socket(netlink),
                std::os::unix::net::UnixListener::bind(folder.path().join("other")).map(drop).map_err(kind),
                // An incoming connection, a thread, and the next daemon.
                buffer::flow::Driver::create(buffer::flow::Geometry::default()).map(drop).map_err(kind),
                buffer::flow::Bells::create().map(drop).map_err(kind),
                std::thread::Builder::new().spawn(|| ()).map(drop).map_err(kind),
                std::os::unix::net::UnixStream::connect(&path).map(drop).map_err(kind),
            ])
        });
        let Some(tried) = tried.join().expect("no panic") else { return };
        assert_eq!(tried[..7], [Err(ErrorKind::PermissionDenied); 7]);
        assert_eq!(tried[7..], [Ok(()); 4]);
    }

    #[test]
    fn the_starter_may_execute_what_this_program_is_made_of() {
        let programs = mapped_programs().expect("it may be read");
        let own = std::env::current_exe().expect("it has a name");
        assert!(programs.contains(&own) && programs.iter().all(|program| program.is_absolute()), "{programs:?}");
    }
}
