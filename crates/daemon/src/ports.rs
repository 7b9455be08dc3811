//! The process that holds ports of the host for flows on shared devices ([`net::hold_ports`]). The daemon starts it
//! before giving up any right, because the process needs the right to bind ports below 1024, which the daemon does not
//! keep.

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

const NAME: &str = "holding ports";

/// Starts the process with the rights that this one has now: `command` is this program, told to call [`run`].
///
/// # Errors
///
/// The process could not be made.
pub fn start(mut command: Command) -> io::Result<Arc<PortKeeper>> {
    let (keeper, socket) = PortKeeper::pair()?;
    // A group of its own, so that it gets no signals from the terminal.
    command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
    // It ends with the daemon. By then it is no longer the daemon's child.
    command.spawn()?;
    Ok(keeper)
}

/// Runs the process: gives up everything except binding sockets, and holds ports as the daemon at its standard input
/// asks.
///
/// # Errors
///
/// Rights could not be given up, or the daemon sent an invalid message.
pub fn run() -> io::Result<()> {
    confine::raise_files();
    if rustix::process::geteuid().is_root() {
        confine::become_user(&Account::of_daemon())?;
    }
    guard::keep_capabilities(CapabilitySet::NET_BIND_SERVICE)?;
    let _: [Guard; 2] = [guard::files::confine_to_ports(NAME), calls().confine(NAME)];
    net::hold_ports(io::stdin().as_fd())
}

/// Allows making, binding and closing sockets of TCP and UDP. The process cannot connect them, listen or receive; it
/// receives only from the daemon.
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

    /// Confines a thread that ends with the test, like [`run`].
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
        // The library would also listen, which is refused, too.
        assert_eq!(tried[..5], [Err(io::ErrorKind::PermissionDenied); 5]);
        assert_eq!(tried[5], Ok(()));
    }
}
