//! The process that holds ports of the host for flows on shared devices ([`net::hold_ports`]), as the daemon starts it: before it
//! gives up anything, for the process needs the right to bind ports below 1024, and the daemon keeps it not.

use crate::account::Account;
use crate::confine;
use guard::calls::{Argument, Calls};
use guard::{CapabilitySet, Guard};
pub use net::PortKeeper;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What people are told.
const NAME: &str = "holding ports";

/// Starts the process with the rights that this one has now: `command` is this program, told to call [`run`].
///
/// # Errors
///
/// The process could not be made.
pub fn start(mut command: Command) -> io::Result<Arc<PortKeeper>> {
    let (keeper, socket) = PortKeeper::pair()?;
    // A group of its own: a terminal's signals are not meant for it.
    command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
    // It ends when the daemon does, whose child it is no more then.
    command.spawn()?;
    Ok(keeper)
}

/// The process: gives up everything but binding sockets, and holds ports as the daemon at its standard input wishes.
///
/// # Errors
///
/// Rights could not be given up, or the daemon said something strange.
pub fn run() -> io::Result<()> {
    confine::raise_files();
    if rustix::process::geteuid().is_root() {
        confine::become_user(&Account::of_daemon())?;
    }
    guard::keep_capabilities(CapabilitySet::NET_BIND_SERVICE)?;
    // Where a kernel lacks one of them the process holds ports without it, as the daemon does.
    let _: [Guard; 2] = [guard::files::confine_to_ports(NAME), calls().confine(NAME)];
    net::hold_ports(io::stdin().as_fd())
}

/// Sockets of TCP and UDP are made, bound and closed; nothing is connected, listened at or received from, but the daemon.
fn calls() -> Calls {
    Calls::of_any_program()
        .and(&[
            libc::SYS_bind,
            libc::SYS_close,
            libc::SYS_getsockname,
            libc::SYS_setsockopt,
            libc::SYS_recvfrom,
            libc::SYS_sendto,
        ])
        .and_if(libc::SYS_socket, [vec![Argument::is(0, libc::AF_INET as u32)]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// As [`run`] is confined, on a thread that ends with the test.
    #[test]
    fn a_confined_process_binds_and_does_nothing_else() {
        let tried = std::thread::spawn(|| {
            guard::keep_capabilities(CapabilitySet::empty()).ok()?;
            let guards = [guard::files::confine_to_ports(NAME), calls().confine(NAME)];
            guards[1].held.as_ref().map_err(|error| eprintln!("skipped: {error}")).ok()?;
            let kind = |error: io::Error| error.kind();
            let socket = UdpSocket::bind("127.0.0.1:0");
            let connected = socket.as_ref().map_err(|error| error.kind()).map(|socket| socket.connect("127.0.0.1:9"));
            Some([
                std::net::TcpListener::bind("127.0.0.1:0").map(drop).map_err(kind),
                connected.and_then(|connected| connected.map_err(kind)),
                std::fs::File::open("/proc/self/status").map(drop).map_err(kind),
                std::os::unix::net::UnixDatagram::unbound().map(drop).map_err(kind),
                Command::new("/bin/true").status().map(drop).map_err(kind),
                socket.map(drop).map_err(kind),
            ])
        });
        let Some(tried) = tried.join().expect("no panic") else { return };
        // The library would listen, which is refused, too.
        assert_eq!(tried[..5], [Err(io::ErrorKind::PermissionDenied); 5]);
        assert_eq!(tried[5], Ok(()));
    }
}
