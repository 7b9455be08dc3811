//! The system calls the daemon makes once it listens, and no others (seccomp): whoever gets it to run code of theirs can
//! execute nothing, make no process, trace none, signal none but the daemon, load no module, open no file for writing, and
//! connect to nobody. It does not stop what the daemon does itself: `bpf`, packet sockets and devices' settings are its work.
//!
//! What is not in the list fails with EPERM, and the daemon goes on: it is asked by many, and one of them should not be able to
//! end it for the others. A libc that makes another call for one of these purposes is why something could fail here that does
//! not elsewhere; its number goes into the list.

use super::Guard;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// What people are told.
const NAME: &str = "the system calls it makes (seccomp)";

/// Calls that may be made with any arguments.
const CALLS: &[libc::c_long] = &[
    // Memory; what may be made executable is below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    // Files that are open, and what can be known of others.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    // Its socket goes when it goes.
    libc::SYS_unlinkat,
    // Devices, programs and clients.
    libc::SYS_bpf,
    libc::SYS_bind,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_shutdown,
    // Waiting, and waking.
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_eventfd2,
    libc::SYS_membarrier,
    // Threads, and signals that come.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_sched_getaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // What holds of this process.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_capget,
    libc::SYS_getrandom,
];

/// The same, by the numbers that only this processor's kernels have.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[libc::c_long] =
    &[libc::SYS_poll, libc::SYS_unlink, libc::SYS_readlink, libc::SYS_stat, libc::SYS_lstat, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[libc::c_long] = &[];

/// The sockets it makes: for clients, devices' settings, packets.
const DOMAINS: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// Asking sockets and devices: 0x8900 to 0x89ff.
const SOCKET_REQUESTS: u64 = 0x8900;

/// What the kernel told this process when it began: where the clock can be read without a call.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// An argument, the first being 0, of which these bits have this value.
fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)?;
    SeccompRule::new(vec![condition])
}

fn is(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    bits(argument, u32::MAX.into(), value)
}

/// What may be called.
fn permitted() -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        CALLS.iter().chain(OLDER_CALLS).map(|call| (*call, Vec::new())).collect();
    let writable = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
    let domains = DOMAINS.iter().map(|domain| is(0, *domain as u64)).collect::<Result<_, _>>()?;
    rules.extend([
        (libc::SYS_mmap, vec![bits(2, libc::PROT_EXEC as u64, 0)?]),
        (libc::SYS_mprotect, vec![bits(2, libc::PROT_EXEC as u64, 0)?]),
        (libc::SYS_openat, vec![bits(2, writable as u64, libc::O_RDONLY as u64)?]),
        (libc::SYS_ioctl, vec![bits(1, 0xffff_ff00, SOCKET_REQUESTS)?, is(1, libc::TIOCOUTQ)?, is(1, libc::FIONBIO)?]),
        (libc::SYS_socket, domains),
        (libc::SYS_socketpair, vec![is(0, libc::AF_UNIX as u64)?]),
        // A thread, no process and no namespace.
        (libc::SYS_clone, vec![bits(0, libc::CLONE_THREAD as u64, libc::CLONE_THREAD as u64)?]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_NAME as u64)?, is(0, PR_GET_AUXV)?]),
        // Limits are looked at; 0: of this process. None is set.
        (libc::SYS_prlimit64, vec![looked_at()?]),
        // What a process sends itself when it gives up.
        (libc::SYS_tgkill, vec![is(0, std::process::id().into())?]),
    ]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![bits(1, writable as u64, libc::O_RDONLY as u64)?]);
    Ok(rules)
}

fn looked_at() -> Result<SeccompRule, BackendError> {
    let nothing = |argument| SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0);
    SeccompRule::new(vec![nothing(0)?, nothing(2)?])
}

/// What this thread and those it starts may call from now on.
fn programs() -> Result<[BpfProgram; 2], BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let allow = SeccompAction::Allow;
    // Its flags lie in memory, which no program sees: libc takes `clone` where the kernel is said not to know it.
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = SeccompFilter::new([(libc::SYS_clone3, Vec::new())].into(), allow.clone(), unknown, arch)?;
    let listed = SeccompFilter::new(permitted()?, SeccompAction::Errno(libc::EPERM as u32), allow, arch)?;
    Ok([clone3.try_into()?, listed.try_into()?])
}

/// Permits nothing but what is listed from now on, to this thread and those it will start.
pub(super) fn confine() -> Guard {
    let made = programs().map_err(|error| error.to_string());
    // Each may only narrow what the one before permits: the list comes last, for it does not have the call that sets it.
    let set = made.and_then(|programs| {
        programs.iter().try_for_each(|program| apply_filter(program).map_err(|error| error.to_string()))
    });
    Guard { name: NAME, held: set }
}

/// Does this kernel confine calls? Nothing is confined by asking.
pub(super) fn supported() -> Guard {
    let known = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let has = known.split_whitespace().any(|action| action == "errno");
    Guard { name: NAME, held: if has { Ok(()) } else { Err("this kernel has no seccomp filters".into()) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be tried in this process without being confined for good: a thread of its own, which ends with it.
    fn confined<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).ok()?;
            confine().held.map_err(|error| eprintln!("skipped: {error}")).ok()?;
            Some(work())
        });
        thread.join().expect("what is tried does not panic")
    }

    #[test]
    fn nothing_is_executed_written_connected_to_or_made_executable() {
        let refused = confined(|| {
            let error = |error: std::io::Error| error.kind();
            let temporary = std::env::temp_dir().join("streamline-confined");
            [
                std::process::Command::new("/bin/true").status().map(drop).map_err(error),
                std::fs::write(temporary, "x").map_err(error),
                std::os::unix::net::UnixStream::connect("/run/streamline/control").map(drop).map_err(error),
                std::net::UdpSocket::bind("127.0.0.1:0").map(drop).map_err(error),
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
                    .map_err(|errno| errno.kind()),
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&std::fs::File::open("/proc/self/ns/net").expect("it may be read")),
                    None,
                )
                .map_err(|errno| errno.kind()),
            ]
        });
        let Some(refused) = refused else { return };
        assert_eq!(refused, [Err(std::io::ErrorKind::PermissionDenied); 6]);
    }

    #[test]
    fn threads_are_made_and_files_are_read() {
        let done = confined(|| {
            let read = std::thread::spawn(|| std::fs::read_to_string("/proc/thread-self/status"));
            read.join().expect("no panic").expect("it may be read").contains("Seccomp:\t2")
        });
        assert!(done.is_none_or(|confined| confined));
    }
}
