//! A process owns a socket's path as long as it holds the lock beside the socket. The kernel releases the lock when the process
//! dies. The holder may remove a socket that lies there, for no process listens at it.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the lock of this socket lies: beside it, under all of its name. With another ending in place of the socket's it might
/// be another program's file (`Cargo.lock`).
pub fn lock_path(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    PathBuf::from(lock)
}

/// A lock that says that a keeper of this name lives; the kernel lets go of it when that dies, however it dies.
pub fn lock(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags};
    let open = |access| {
        let flags = access | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(lock_path(path), flags, Mode::from_raw_mode(0o600))
    };
    for _ in 0..LOCK_TRIES {
        let lock = match open(OFlags::RDWR) {
            // A process that may open no file for writing can lock all the same, unless the file is on NFS (flock(2)).
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

/// Tries to lock the file that has the name, where others make and remove rings of this name all the time.
const LOCK_TRIES: u32 = 16;

/// A name that is this process's.
#[derive(Debug)]
pub struct Claimed {
    /// Listens at the socket, without blocking.
    pub listener: OwnedFd,
    /// To be held as long as the name is used.
    pub lock: OwnedFd,
}

/// Claims a path and listens at it; `mode` and `group` are those of the socket. Takes over the path of a process that was
/// killed. A failure leaves no file.
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
    // Nobody keeps it: what lies there is what a killed keeper left.
    remove_socket(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // No client has files to give: what comes would be ours to close, which may take as long as a client likes.
    super::packets::take_no_files(&listener);
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before it is said who may: it does not listen yet.
    let listens = set_mode(path, mode)
        .and_then(|()| if group.is_some() { std::os::unix::fs::chown(path, None, group) } else { Ok(()) })
        .and_then(|()| Ok(rustix::net::listen(&listener, 128)?));
    if let Err(error) = listens {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(listener)
}

/// Who makes everything for its user alone, by its umask, need not be permitted to change modes.
fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    if std::fs::symlink_metadata(path)?.permissions().mode() & 0o777 == mode {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Gives a claimed name up: whoever comes next may claim it.
pub fn give_up(path: &Path, claimed: Claimed) {
    remove_name(path);
    drop(claimed);
}

/// Removes socket and lock of a name that is this process's, which holds the lock still.
pub fn remove_name(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(lock_path(path));
}

/// Removes what a keeper that was killed left at this path. Fails where one lives.
pub fn clear_dead(path: &Path) -> io::Result<()> {
    let _lock = lock(path)?;
    remove_socket(path)?;
    remove_if_there(&lock_path(path))
}

/// Removes a socket that nobody listens to. Anything else that has its name is somebody's.
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
