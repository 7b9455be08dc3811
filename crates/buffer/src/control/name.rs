//! A process owns a socket's path as long as it holds the lock beside the socket. The kernel releases the lock when the
//! process dies. The holder of the lock may remove a socket found at the path: no process listens there.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Path of the lock of a socket: beside it, with `.lock` behind its whole name. If the lock replaced the socket's
/// ending, it might name another program's file (`Cargo.lock`).
pub fn lock_path(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    PathBuf::from(lock)
}

/// Takes the lock of a name, which shows that its keeper lives. The kernel releases it when the process dies.
pub fn lock(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags};
    let open = |access| {
        let flags = access | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(lock_path(path), flags, Mode::from_raw_mode(0o600))
    };
    for _ in 0..LOCK_TRIES {
        let lock = match open(OFlags::RDWR) {
            // A process that may not write to the file can lock it all the same, unless the file is on NFS (flock(2)).
            Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => open(OFlags::RDONLY)?,
            opened => opened?,
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => break,
            Err(error) => return Err(error.into()),
        }
        // The former holder removed the file between the two calls: the next process would lock another file.
        if rustix::fs::fstat(&lock)?.st_nlink > 0 {
            return Ok(lock);
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "this name is in use already"))
}

/// How often to try, where other processes make and remove rings of this name all the time.
const LOCK_TRIES: u32 = 16;

/// A name that this process owns.
#[derive(Debug)]
pub struct Claimed {
    /// Listens at the socket, without blocking.
    pub listener: OwnedFd,
    /// Holds the name: keep it as long as the name is used.
    pub lock: OwnedFd,
}

/// Claims a path and listens there; `mode` and `group` are those of the socket. Takes over the path of a process that
/// was killed. A failure leaves no file.
pub fn claim(path: &Path, mode: u32, group: Option<u32>) -> io::Result<Claimed> {
    let lock = lock(path)?;
    match listen(path, mode, group) {
        Ok(listener) => Ok(Claimed { listener, lock }),
        Err(error) => {
            let _ = std::fs::remove_file(lock_path(path));
            Err(error)
        }
    }
}

fn listen(path: &Path, mode: u32, group: Option<u32>) -> io::Result<OwnedFd> {
    // This process has the lock: what lies there was left by a killed keeper.
    remove_socket(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Clients have no reason to send files. This process would have to close them, which a client can make slow.
    super::packets::take_no_files(&listener);
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    // Until `listen` no client can connect, so none connects before mode and group are set.
    let listens = set_mode(path, mode)
        .and_then(|()| if group.is_some() { std::os::unix::fs::chown(path, None, group) } else { Ok(()) })
        .and_then(|()| Ok(rustix::net::listen(&listener, 128)?));
    if let Err(error) = listens {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(listener)
}

/// A process whose umask already gives this mode may be forbidden to change modes.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.permissions().mode() & 0o777 == mode {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Gives up a claimed name: another process may claim it then.
pub fn give_up(path: &Path, claimed: Claimed) {
    remove_name(path);
    drop(claimed);
}

/// Removes the socket and the lock of a name. The caller owns the name and holds the lock.
pub fn remove_name(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(lock_path(path));
}

/// Removes what a killed keeper left at this path. Fails where a keeper lives.
pub fn clear_dead(path: &Path) -> io::Result<()> {
    let _lock = lock(path)?;
    remove_socket(path)?;
    remove_if_there(&lock_path(path))
}

/// Removes a socket to which no process listens. Fails for a file of another kind, which is not ours.
pub fn remove_socket(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let text = format!("`{}` is there, and is no socket", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
        _ => remove_if_there(path),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
