//! Confines the parser process once it listens. It reads packets that anyone may have sent, for all requests of its
//! user. It does so without that user's files, programs and network.
//!
//! It can still:
//! - make threads and memory;
//! - take packets from the daemon and give blocks to its clients, over Unix sockets that keep packets apart. Services
//!   that execute commands for this user (D-Bus, systemd, terminals, agents) take stream sockets, so it cannot reach
//!   them;
//! - make and remove its rings' sockets, in a folder of its own;
//! - look up names in tcpdump expressions from files. A name that needs the network is not found: the prefix is
//!   refused, and its request runs it by itself.
//!
//! [`guard`] says how this is done, and what a refused call means; the daemon does the same (`daemon/confine.rs`).

use guard::Guard;
use guard::calls::{Argument, Calls};
use guard::files::{AccessFs, BitFlags};
use rustix::fs::Mode;
use std::path::Path;

/// What people are told about files, and about calls.
const NAMES: [&str; 2] = ["the sockets of its rings (Landlock)", "the system calls it makes (seccomp)"];

/// Files of names in expressions (`port http`, `ip proto ospf`, `host localhost`, `net loopback`), and the file that
/// says where names are.
const NAME_FILES: [&str; 6] =
    ["/etc/services", "/etc/protocols", "/etc/hosts", "/etc/networks", "/etc/ethers", "/etc/nsswitch.conf"];

/// Calls that wait for rings, wake other processes, and ask for its own identity.
const WAITING: &[libc::c_long] = &[
    libc::SYS_futex_waitv,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_getppid,
    libc::SYS_pidfd_open,
    libc::SYS_getgroups,
];

/// Calls allowed with any arguments, besides those of any program and those of a ring's keeper.
const CALLS: &[libc::c_long] = &[
    // Socket calls besides the usual ones; which sockets it may make is below.
    libc::SYS_listen,
    libc::SYS_connect,
    libc::SYS_flock,
];

/// Bits of the socket type, without the flags (SOCK_TYPE_MASK).
const SOCKET_TYPES: libc::c_int = 0xf;

fn permitted() -> Calls {
    let packets = Argument::bits(1, SOCKET_TYPES, libc::SOCK_SEQPACKET);
    Calls::of_any_program()
        .and(WAITING)
        .and(CALLS)
        .and_to_keep_rings()
        // A lock is a file that is made and never written. Even without Landlock no file of the user's changes.
        .and_to_read_and_make()
        .and_if(libc::SYS_socket, [vec![Argument::is(0, libc::AF_UNIX as u32), packets]])
}

/// Makes this process's new files accessible to its user alone; it may not change modes later.
pub(crate) fn make_for_user_alone() {
    rustix::process::umask(Mode::from_raw_mode(0o177));
}

/// Confines this thread and those it will start, for good, to two open rings. They make no file and no socket, and
/// connect to none. New privileges must be given up first.
pub(crate) fn confine_between_rings() -> [Guard; 2] {
    let calls = Calls::of_any_program().and(WAITING).and_to_use_rings().and_to_read();
    [confine_files(None), calls.confine(NAMES[1])]
}

/// Confines this thread and those it will start, for good. The only changes they can make are to sockets and locks in
/// this folder. New privileges must be given up first.
pub(crate) fn confine(folder: &Path) -> [Guard; 2] {
    // The second guard takes away the calls that the first needs.
    [confine_files(Some(folder)), permitted().confine(NAMES[1])]
}

/// Allows the files of names, and its own files in this folder.
fn confine_files(folder: Option<&Path>) -> Guard {
    let own = AccessFs::MakeSock | AccessFs::MakeReg | AccessFs::ReadFile | AccessFs::RemoveFile;
    let names = NAME_FILES.map(|file| (Path::new(file), BitFlags::from(AccessFs::ReadFile)));
    let permitted_files: Vec<_> = folder.map(|folder| (folder, own)).into_iter().chain(names).collect();
    guard::files::confine(NAMES[0], &permitted_files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    use std::io::ErrorKind;

    /// Confines a thread that ends after the test, and gives what `work` gives there. `None`: this kernel lacks a
    /// guard.
    fn confined<T: Send + 'static>(
        confine: impl FnOnce() -> Vec<Guard> + Send + 'static,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).ok()?;
            for guard in confine() {
                guard.held.map_err(|error| eprintln!("skipped: {}: {error}", guard.name)).ok()?;
            }
            Some(work())
        });
        thread.join().expect("what is tried does not panic")
    }

    #[test]
    fn without_landlock_too_nothing_is_executed_written_traced_or_spoken_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let tried = confined(
            || vec![permitted().confine(NAMES[1])],
            move || {
                let kind = |error: std::io::Error| error.kind();
                let errno = |error: rustix::io::Errno| error.kind();
                let socket = |family, kind| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
                let read = std::fs::File::open(&path).expect("it may be read");
                [
                    std::process::Command::new("/bin/true").status().map(drop).map_err(kind),
                    std::fs::File::options().append(true).open(&path).map(drop).map_err(kind),
                    std::fs::write(&path, "x").map_err(kind),
                    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).map_err(kind),
                    read.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)).map_err(kind),
                    std::fs::rename(&path, "/tmp/streamline-elsewhere").map_err(kind),
                    std::fs::create_dir(path.with_extension("folder")).map_err(kind),
                    std::net::UdpSocket::bind("127.0.0.1:0").map(drop).map_err(kind),
                    std::os::unix::net::UnixStream::connect("/run/dbus/system_bus_socket").map(drop).map_err(kind),
                    socket(AddressFamily::UNIX, SocketType::DGRAM).map(drop).map_err(errno),
                    socket(AddressFamily::NETLINK, SocketType::RAW).map(drop).map_err(errno),
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
                        .map_err(errno),
                    rustix::thread::move_into_link_name_space(
                        std::os::fd::AsFd::as_fd(&std::fs::File::open("/proc/self/ns/net").expect("it may be read")),
                        None,
                    )
                    .map_err(errno),
                ]
            },
        );
        let Some(tried) = tried else { return };
        assert_eq!(tried, [Err(ErrorKind::PermissionDenied); 13]);
        assert_eq!(std::fs::read(file.path()).unwrap(), b"");
    }

    #[test]
    fn between_rings_no_socket_is_made_or_connected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("listens");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let before = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let tried = confined(
            || confine_between_rings().into(),
            move || {
                let packets =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
                [
                    packets.map(drop).map_err(|error| error.kind()),
                    before.connect(&path).map_err(|error| error.kind()),
                    std::fs::write(path.with_extension("file"), "x").map_err(|error| error.kind()),
                ]
            },
        );
        let Some(tried) = tried else { return };
        assert_eq!(tried, [Err(ErrorKind::PermissionDenied); 3]);
    }

    #[test]
    fn files_are_made_and_removed_in_its_folder_and_names_looked_up() {
        let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let [own, other] = folders.each_ref().map(|folder| folder.path().to_owned());
        let own_folder = own.clone();
        for folder in [&own, &other] {
            std::fs::write(folder.join("old.lock"), "").unwrap();
        }
        let tried = confined(
            move || confine(&own_folder).into(),
            move || {
                let kind = |error: std::io::Error| error.kind();
                let claim = |folder: &Path| {
                    let path = folder.join("new.ring");
                    let _lock = buffer::control::name::lock(&path)?;
                    let socket = rustix::net::socket_with(
                        AddressFamily::UNIX,
                        SocketType::SEQPACKET,
                        SocketFlags::CLOEXEC,
                        None,
                    )?;
                    rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
                    buffer::control::name::remove_socket(&path)
                };
                [
                    claim(&own).map_err(kind),
                    std::fs::remove_file(own.join("old.lock")).map_err(kind),
                    std::fs::read("/etc/nsswitch.conf").map(drop).or_else(|error| match error.kind() {
                        ErrorKind::NotFound => Ok(()),
                        other => Err(other),
                    }),
                    claim(&other).map_err(kind),
                    std::fs::remove_file(other.join("old.lock")).map_err(kind),
                    std::fs::read("/etc/passwd").map(drop).map_err(kind),
                    std::fs::read("/proc/self/environ").map(drop).map_err(kind),
                    std::fs::read_dir(&own).map(drop).map_err(kind),
                ]
            },
        );
        let Some(tried) = tried else { return };
        assert_eq!(tried[..3], [Ok(()); 3]);
        assert_eq!(tried[3..], [Err(ErrorKind::PermissionDenied); 5]);
    }
}
