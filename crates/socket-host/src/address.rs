//! How a host is found: an abstract unix address and a secret, which a program inherits in its environment.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};
use socket_calls::{SECRET, read_variable, variable};
use std::io;
use std::os::fd::OwnedFd;

/// The most questions that wait for the host.
const BACKLOG: i32 = 1024;

/// Name and secret of a host.
#[derive(Clone, Debug)]
pub struct HostAddress {
    name: String,
    pub(crate) secret: [u8; SECRET],
}

impl HostAddress {
    /// A new address, and the socket on which its host listens.
    ///
    /// An abstract address belongs to the network namespace: a program that changes its root folder or its user still
    /// reaches it. Any user can connect to it; the host closes connections without the secret.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn create() -> io::Result<(HostAddress, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut random = [0; SECRET + 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let (secret, name) = random.split_at(SECRET);
        let name = format!("streamline-sockets-{}", name.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let secret = secret.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&listener, BACKLOG)?;
        Ok((HostAddress { name, secret }, listener))
    }

    /// The value of [`VARIABLE`](socket_calls::VARIABLE) for this address.
    pub fn variable(&self) -> String {
        variable(&self.name, self.secret)
    }

    /// The address in a variable's value.
    pub fn of_variable(value: &str) -> Option<HostAddress> {
        let (name, secret) = read_variable(value.as_bytes())?;
        Some(HostAddress { name: String::from_utf8(name.to_vec()).ok()?, secret })
    }
}
