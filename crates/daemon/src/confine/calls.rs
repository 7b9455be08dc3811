//! The only system calls that the daemon may make once it listens (seccomp). An attacker whose code runs in the daemon
//! can:
//! - execute no program, make, trace and signal no process (except to signal the daemon itself), and load no module;
//! - open no file for writing. `/dev/net/tun` for taps is the exception; Landlock keeps all other files away;
//! - make no connection.
//!
//! The daemon's own work stays possible: `bpf`, packet sockets, and devices' settings. [`guard::calls`] says what a
//! refused call means.

use guard::Guard;
use guard::calls::{Argument, Calls, SOCKETS};

const NAME: &str = "the system calls it makes (seccomp)";

/// Calls allowed with any arguments, besides those of any program.
const CALLS: &[libc::c_long] = &[
    libc::SYS_memfd_create,
    // Use of open files, and facts about others.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    // It removes its socket when it ends.
    libc::SYS_unlinkat,
    // Devices and programs.
    libc::SYS_bpf,
    libc::SYS_sendmmsg,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_capget,
];

/// Older calls that only this processor's kernels have.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[libc::c_long] =
    &[libc::SYS_poll, libc::SYS_unlink, libc::SYS_readlink, libc::SYS_stat, libc::SYS_lstat];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[libc::c_long] = &[];

/// Domains of the sockets that it makes: for clients, devices' settings, packets.
const DOMAINS: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// Requests to sockets and devices: names, properties, the device's own time stamps, which tap a file is, and whether a
/// client has taken all data. Not the choice of a process to signal (FIOSETOWN), since root may name any process.
const REQUESTS: [u32; 11] = [
    libc::SIOCGIFNAME as u32,
    libc::SIOCGIFINDEX as u32,
    libc::SIOCGIFFLAGS as u32,
    libc::SIOCGIFMTU as u32,
    libc::SIOCETHTOOL as u32,
    libc::SIOCGHWTSTAMP as u32,
    libc::SIOCSHWTSTAMP as u32,
    libc::TUNSETIFF as u32,
    libc::TUNGETIFF as u32,
    libc::TIOCOUTQ as u32,
    libc::FIONBIO as u32,
];

/// The calls that are allowed. `files_are_confined`: another guard decides which files may be written.
fn permitted(files_are_confined: bool) -> Calls {
    let calls = Calls::of_any_program()
        .and(CALLS)
        .and(SOCKETS)
        .and(OLDER_CALLS)
        .and_to_read()
        .and_if(libc::SYS_ioctl, REQUESTS.map(|request| vec![Argument::is(1, request)]))
        .and_if(libc::SYS_socket, DOMAINS.map(|domain| vec![Argument::is(0, domain as u32)]))
        .and_if(libc::SYS_socketpair, [vec![Argument::is(0, libc::AF_UNIX as u32)]]);
    if files_are_confined { calls.and_to_read_and_write() } else { calls }
}

/// Allows only the listed calls from now on, in this thread and those it will start. If files are confined already, the
/// files that are left may be opened for writing.
pub(super) fn confine(files_are_confined: bool) -> Guard {
    permitted(files_are_confined).confine(NAME)
}

/// Whether this kernel can confine calls. Confines nothing.
pub(super) fn supported() -> Guard {
    guard::calls::supported(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` in a confined thread, which ends with the test, so that this process stays free.
    fn confined<T: Send + 'static>(files_are_confined: bool, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let thread = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).ok()?;
            confine(files_are_confined).held.map_err(|error| eprintln!("skipped: {error}")).ok()?;
            Some(work())
        });
        thread.join().expect("what is tried does not panic")
    }

    #[test]
    fn nothing_is_executed_written_connected_to_or_made_executable() {
        let refused = confined(false, || {
            let error = |error: std::io::Error| error.kind();
            let temporary = std::env::temp_dir().join("streamline-confined");
            let pair = std::os::unix::net::UnixStream::pair().expect("there is room");
            [
                std::process::Command::new("/bin/true").status().map(drop).map_err(error),
                std::fs::write(temporary, "x").map_err(error),
                std::os::unix::net::UnixStream::connect("/run/streamline/control").map(drop).map_err(error),
                std::net::UdpSocket::bind("127.0.0.1:0").map(drop).map_err(error),
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
                    .map_err(|errno| errno.kind()),
                // Asking the kernel to send a signal to any process.
                rustix::fs::fcntl_setfl(&pair.0, rustix::fs::OFlags::from_bits_retain(libc::O_ASYNC as u32))
                    .map_err(|errno| errno.kind()),
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&std::fs::File::open("/proc/self/ns/net").expect("it may be read")),
                    None,
                )
                .map_err(|errno| errno.kind()),
            ]
        });
        let Some(refused) = refused else { return };
        assert_eq!(refused, [Err(std::io::ErrorKind::PermissionDenied); 7]);
    }

    #[test]
    fn files_are_written_to_where_something_else_confines_them_and_made_nowhere() {
        let folder = tempfile::tempdir().expect("there is room");
        let [there, new] = ["there", "new"].map(|name| folder.path().join(name));
        std::fs::write(&there, "x").expect("there is room");
        for files_are_confined in [false, true] {
            let (there, new) = (there.clone(), new.clone());
            let opened = confined(files_are_confined, move || {
                let mut options = std::fs::OpenOptions::new();
                let options = options.read(true).write(true);
                [
                    options.open(&there).is_ok(),
                    options.clone().truncate(true).open(&there).is_ok(),
                    options.clone().create(true).open(&new).is_ok(),
                    std::fs::OpenOptions::new().write(true).open(&there).is_ok(),
                ]
            });
            let Some(opened) = opened else { return };
            assert_eq!(opened, [files_are_confined, false, false, false]);
        }
    }

    #[test]
    fn threads_are_made_and_files_are_read() {
        let done = confined(false, || {
            let read = std::thread::spawn(|| std::fs::read_to_string("/proc/thread-self/status"));
            read.join().expect("no panic").expect("it may be read").contains("Seccomp:\t2")
        });
        assert!(done.is_none_or(|confined| confined));
    }
}
