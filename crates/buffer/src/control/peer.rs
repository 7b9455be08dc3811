//! The process at the other end of a Unix socket, as the kernel recorded it when the connection was made.

use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// The process at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 where the process is in a PID namespace that is not below ours.
    pub process: i32,
    /// User id.
    pub user: u32,
    /// All its groups.
    pub groups: Vec<u32>,
}

/// Groups one process can be in (NGROUPS_MAX).
const GROUPS: usize = 65_536;

/// Asks the kernel (SO_PEERCRED, SO_PEERGROUPS).
pub fn of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let credentials = credentials(socket)?;
    let mut groups = vec![0u32; GROUPS];
    // SAFETY: `groups` has room for `GROUPS` numbers, and every bit pattern is a number.
    let bytes =
        unsafe { ask(socket, libc::SO_PEERGROUPS, groups.as_mut_ptr().cast(), size_of_val(groups.as_slice()))? };
    groups.truncate(bytes / size_of::<u32>());
    groups.push(credentials.gid);
    Ok(Peer { process: credentials.pid, user: credentials.uid, groups })
}

/// A pidfd of the process at the other end (SO_PEERPIDFD, Linux 6.5). Until that process has ended, no other process
/// has its number. Fails where it is gone already.
pub fn process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    // SAFETY: there is room for one number, and any bit pattern is one.
    unsafe { ask(socket, libc::SO_PEERPIDFD, (&raw mut fd).cast(), size_of_val(&fd))? };
    // SAFETY: the kernel just made it for us; it closes on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Connects a socket to the one at `path`, if that is the user's own: folder and socket belong to `user`, the socket is
/// not a symbolic link, and a process of the user listens there. Else it fails with
/// [`io::ErrorKind::PermissionDenied`]. It never connects to a socket file of another user. Needs `/proc`.
pub fn connect_to(socket: impl AsFd, path: &Path, user: u32) -> io::Result<()> {
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let found = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
    let (of_folder, of_socket) = (rustix::fs::fstat(&folder)?, rustix::fs::fstat(&found)?);
    let denied = |what: &str| {
        let text = format!("`{}` is no socket of user {user}: {what}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    if FileType::from_raw_mode(of_socket.st_mode) != FileType::Socket {
        return denied("it is a link or a file");
    }
    if of_folder.st_uid != user || of_socket.st_uid != user {
        return denied("it is another user's, or in another user's folder");
    }
    // Connect to the file that was checked, even if another one lies at the path by now.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    rustix::net::connect(&socket, &address)?;
    match credentials(socket.as_fd())?.uid {
        listens if listens == user => Ok(()),
        _ => denied("a process of another user listens there"),
    }
}

/// Process (0 where it cannot be seen from here), user and group.
fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: a `ucred` is three numbers, any of which the kernel may store.
    unsafe { ask(socket, libc::SO_PEERCRED, (&raw mut credentials).cast(), size_of::<libc::ucred>())? };
    Ok(credentials)
}

/// Gets a socket option into `value`; returns its length in bytes.
///
/// # Safety
///
/// `value` has room for `bytes` bytes, of which any bit pattern is valid.
unsafe fn ask(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: *mut libc::c_void,
    bytes: usize,
) -> io::Result<usize> {
    let mut bytes = bytes as libc::socklen_t;
    // SAFETY: as the caller says.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, &raw mut bytes) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(bytes as usize) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_is_there() {
        let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = of(here.as_fd()).unwrap();
        assert_eq!(peer.process, std::process::id() as i32);
        assert_eq!(peer.user, rustix::process::getuid().as_raw());
        assert!(peer.groups.contains(&rustix::process::getgid().as_raw()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(of(null.as_fd()).is_err() && process(null.as_fd()).is_err());
    }
}
