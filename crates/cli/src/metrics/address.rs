//! Where counters are served: an address and port, or the path of a Unix socket.

use crate::exit::CommandError;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An address as a user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Network(SocketAddr),
    Path(PathBuf),
}

impl std::str::FromStr for Address {
    type Err = String;

    /// A text with a slash is a path. A port alone is one of 127.0.0.1.
    fn from_str(text: &str) -> Result<Address, String> {
        if text.contains('/') {
            return Ok(Address::Path(text.into()));
        }
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Address::Network(([127, 0, 0, 1], port).into()));
        }
        let text = text.strip_prefix("localhost:").map_or_else(|| text.to_string(), |port| format!("127.0.0.1:{port}"));
        let wrong = "neither ADDRESS:PORT (127.0.0.1:9177, [::1]:9177) nor the path of a socket (/run/x.sock)";
        text.parse().map(Address::Network).map_err(|_| wrong.into())
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Network(TcpListener),
    /// The path is removed at the end.
    Path(UnixListener, PathBuf),
}

/// A connection.
pub(super) enum Connection {
    Network(TcpStream),
    Path(UnixStream),
}

/// Users of the socket's group may read the counters.
const MODE: u32 = 0o660;

impl Address {
    /// Listens. `is_public`: at any address, not only at one of this host alone.
    pub(crate) fn listen(&self, is_public: bool) -> Result<Listener, CommandError> {
        let failed = |error: io::Error| CommandError::Failed(format!("cannot listen at {self}: {error}"));
        match self {
            Address::Network(address) if !address.ip().is_loopback() && !is_public => {
                Err(CommandError::Wrong(format!("other hosts can reach {address}, and would read the counters"))
                    .with_help("127.0.0.1 is reached from this host alone; --metrics-public allows any address"))
            }
            Address::Network(address) => TcpListener::bind(address).map(Listener::Network).map_err(failed),
            Address::Path(path) => at_path(path).map(|listener| Listener::Path(listener, path.clone())).map_err(failed),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Network(address) => address.fmt(f),
            Address::Path(path) => base::terminal::name(path).fmt(f),
        }
    }
}

/// Listens at a path, in place of a socket that no process listens at any more.
fn at_path(path: &Path) -> io::Result<UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(MODE))?;
    Ok(listener)
}

impl Listener {
    /// Where it listens, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Listener::Network(listener) => {
                listener.local_addr().map_or_else(|_| "?".into(), |address| format!("http://{address}/metrics"))
            }
            Listener::Path(_, path) => format!("/metrics of {}", base::terminal::name(path)),
        }
    }

    /// Whether only this host can reach it by a network. Then a page of another site could send a browser here.
    pub(super) fn is_loopback(&self) -> bool {
        matches!(self, Listener::Network(listener) if listener.local_addr().is_ok_and(|at| at.ip().is_loopback()))
    }

    pub(super) fn accept(&self) -> io::Result<Connection> {
        match self {
            Listener::Network(listener) => listener.accept().map(|(stream, _)| Connection::Network(stream)),
            Listener::Path(listener, _) => listener.accept().map(|(stream, _)| Connection::Path(stream)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Network(listener) => listener.as_fd(),
            Listener::Path(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Path(_, path) = self {
            // A daemon that is no longer root may lack the right; the next one replaces the socket.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Connection {
    /// The longest time of each read and write.
    pub(super) fn set_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Connection::Network(stream) => {
                stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)))
            }
            Connection::Path(stream) => {
                stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time)))
            }
        }
    }
}

impl Read for Connection {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Network(stream) => stream.read(to),
            Connection::Path(stream) => stream.read(to),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Network(stream) => stream.write(bytes),
            Connection::Path(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_users_write_them() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(text.parse::<Address>().ok().map(|address| address.to_string()).as_deref(), expected, "{text}");
        };
        check("127.0.0.1:9177", Some("127.0.0.1:9177"));
        check("9177", Some("127.0.0.1:9177"));
        check(":9177", Some("127.0.0.1:9177"));
        check("localhost:9177", Some("127.0.0.1:9177"));
        check("[::1]:9177", Some("[::1]:9177"));
        check("/run/x.sock", Some("/run/x.sock"));
        check("./x", Some("./x"));
        ["", "x", "127.0.0.1", "99999", "host:80"].iter().for_each(|text| check(text, None));
    }

    #[test]
    fn other_hosts_reach_it_only_if_that_is_said() {
        let any: Address = "0.0.0.0:0".parse().unwrap();
        assert!(
            matches!(any.listen(false), Err(CommandError::Wrong(text)) if text.starts_with("other hosts can reach 0.0.0.0:0"))
        );
        assert!(!any.listen(true).unwrap().is_loopback());
        assert!("127.0.0.1:0".parse::<Address>().unwrap().listen(false).unwrap().is_loopback());
    }

    #[test]
    fn a_socket_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        drop(UnixListener::bind(&path).unwrap());
        let address = Address::Path(path.clone());
        let listener = address.listen(false).unwrap();
        assert!(address.listen(false).is_err(), "one listens there");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert!(address.listen(false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
