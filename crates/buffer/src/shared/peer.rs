//! Who is at the other end of a Unix socket, by the kernel's word: as of when it connected.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whoever is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Every group it is in.
    pub groups: Vec<u32>,
}

/// Groups one process can be in (NGROUPS_MAX).
const GROUPS: usize = 65_536;

/// Asks the kernel (SO_PEERCRED, SO_PEERGROUPS).
pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    let mut groups = vec![0u32; GROUPS];
    let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: `groups` has room for `bytes` bytes, any of which are a number.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    groups.push(credentials.gid.as_raw());
    Ok(Peer { process: credentials.pid.as_raw_nonzero().get(), user: credentials.uid.as_raw(), groups })
}
