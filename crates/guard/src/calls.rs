//! Lets a process make only listed system calls from now on (seccomp).
//!
//! Any other call fails with EPERM, and the process goes on: it serves many clients, and one of them must not be able
//! to end it for the others. A new libc may use another call for one of these purposes; then something fails here that
//! works elsewhere. Add that call to the list: to [`Calls::of_any_program`] if it is the libc's own affair.

use super::Guard;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// Calls of any of our programs: its libc (glibc, musl) and Rust's library make them for memory, threads, time and
/// signals.
const RUNTIME: &[libc::c_long] = &[
    // malloc, and threads' stacks: glibc grows its heap by `brk` and gives pages back by `madvise`, musl maps and
    // unmaps. The rule for executable memory is below.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads: in glibc each thread registers its locks and its restartable sequences, and glibc asks for the number of
    // processors to choose its number of heaps. musl only needs `clone`, `futex` and `exit`. Locks and channels are
    // `futex`.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_futex,
    libc::SYS_membarrier,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Clocks are read without a call, unless only the kernel can read the machine's clock. glibc and musl sleep by the
    // second of these, older ones by the third.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    // Arriving signals: each Rust thread has a stack for them.
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    // Hash maps.
    libc::SYS_getrandom,
];

/// Older calls that only this processor's kernels have.
#[cfg(target_arch = "x86_64")]
const OLDER_RUNTIME: &[libc::c_long] = &[libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_RUNTIME: &[libc::c_long] = &[];

/// Use of existing sockets: to let clients in, and to send and receive packets. Each process says which sockets it may
/// make and connect.
pub const SOCKETS: &[libc::c_long] = &[
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
];

/// Messages on connected sockets.
const MESSAGES: &[libc::c_long] = &[
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
];

/// Calls of a keeper of rings: sealed memory, lines to writers and readers, a socket to remove, and waiting for
/// clients.
const RINGS: &[libc::c_long] = &[
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
];

/// Commands for file descriptors: Rust's library checks that one is open before it closes it, and makes copies; memory
/// is sealed. Not the choice of a process to signal.
const DESCRIPTORS: [libc::c_int; 6] =
    [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC, libc::F_ADD_SEALS, libc::F_GET_SEALS];

/// Reads what the kernel told this process at its start: where the clock can be read without a call.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// A condition on an argument; the first argument has index 0.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    index: u8,
    mask: u64,
    value: u64,
    length: Length,
}

/// The bytes of an argument that the kernel reads.
#[derive(Clone, Copy, Debug)]
enum Length {
    Int,
    Pointer,
}

impl Argument {
    /// An `int` whose bits in `mask` have this value.
    pub fn bits(index: u8, mask: libc::c_int, value: libc::c_int) -> Argument {
        Argument { index, mask: (mask as u32).into(), value: (value as u32).into(), length: Length::Int }
    }

    /// An `int` with this value.
    pub fn is(index: u8, value: u32) -> Argument {
        Argument { index, mask: u32::MAX.into(), value: value.into(), length: Length::Int }
    }

    /// A null pointer.
    pub fn is_null(index: u8) -> Argument {
        Argument { index, mask: u64::MAX, value: 0, length: Length::Pointer }
    }

    fn condition(self) -> Result<SeccompCondition, BackendError> {
        let length = match self.length {
            Length::Int => SeccompCmpArgLen::Dword,
            Length::Pointer => SeccompCmpArgLen::Qword,
        };
        SeccompCondition::new(self.index, length, SeccompCmpOp::MaskedEq(self.mask), self.value)
    }
}

/// System calls that are allowed.
#[derive(Clone, Debug)]
pub struct Calls(BTreeMap<libc::c_long, Vec<Vec<Argument>>>);

impl Calls {
    /// The calls of any of our programs. It can make threads, but no process, no namespace, and no executable memory.
    /// It can read its limits, but set none. It can signal only itself, and cannot have the kernel send a signal.
    pub fn of_any_program() -> Calls {
        let namespaces = libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET;
        Calls(BTreeMap::new())
            .and(RUNTIME)
            .and(OLDER_RUNTIME)
            .and_if(libc::SYS_mmap, [vec![Argument::bits(2, libc::PROT_EXEC, 0)]])
            .and_if(libc::SYS_mprotect, [vec![Argument::bits(2, libc::PROT_EXEC, 0)]])
            .and_if(libc::SYS_clone, [vec![Argument::bits(0, libc::CLONE_THREAD | namespaces, libc::CLONE_THREAD)]])
            .and_if(
                libc::SYS_prctl,
                [vec![Argument::is(0, libc::PR_SET_NAME as u32)], vec![Argument::is(0, PR_GET_AUXV as u32)]],
            )
            .and_if(libc::SYS_fcntl, DESCRIPTORS.map(|command| vec![Argument::is(1, command as u32)]))
            .and_if(libc::SYS_fcntl, [vec![Argument::is(1, libc::F_SETFL as u32), Argument::bits(2, libc::O_ASYNC, 0)]])
            // 0 stands for this process.
            .and_if(libc::SYS_prlimit64, [vec![Argument::is(0, 0), Argument::is_null(2)]])
            // A process that aborts sends this signal to itself.
            .and_if(libc::SYS_tgkill, [vec![Argument::is(0, std::process::id())]])
    }

    /// Also allows these calls, with any arguments.
    #[must_use]
    pub fn and(mut self, calls: &[libc::c_long]) -> Calls {
        self.0.extend(calls.iter().map(|call| (*call, Vec::new())));
        self
    }

    /// Also allows this call, if all conditions of at least one of these cases hold.
    #[must_use]
    pub fn and_if(mut self, call: libc::c_long, cases: impl IntoIterator<Item = Vec<Argument>>) -> Calls {
        self.0.entry(call).or_default().extend(cases);
        self
    }

    /// Also allows keeping rings, with existing sockets. A keeper also [reads](Self::and_to_read): its own memory, by
    /// another file descriptor.
    #[must_use]
    pub fn and_to_keep_rings(self) -> Calls {
        // A keeper asks with it whether a client has taken everything that was sent.
        self.and(RINGS).and(SOCKETS).and_if(libc::SYS_ioctl, [vec![Argument::is(1, libc::TIOCOUTQ as u32)]])
    }

    /// Also allows using rings whose keepers are connected. It makes, names, connects and listens at no socket.
    #[must_use]
    pub fn and_to_use_rings(self) -> Calls {
        self.and(RINGS).and(MESSAGES)
    }

    /// Also allows opening existing files for reading.
    #[must_use]
    pub fn and_to_read(self) -> Calls {
        self.and_to_open(libc::O_CREAT | libc::O_TRUNC)
    }

    /// Also allows opening files for reading and making missing ones, which stay empty.
    #[must_use]
    pub fn and_to_read_and_make(self) -> Calls {
        self.and_to_open(libc::O_TRUNC)
    }

    /// Also allows opening existing files for reading and writing, without making or cutting any.
    /// [`files`](super::files) has to say which files, since a path is in memory, which no filter sees.
    #[must_use]
    pub fn and_to_read_and_write(self) -> Calls {
        self.and_to_open_as(libc::O_RDWR, libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE)
    }

    /// Also allows opening for reading, without these flags.
    fn and_to_open(self, without: libc::c_int) -> Calls {
        self.and_to_open_as(libc::O_RDONLY, without)
    }

    /// Also allows opening in this mode, without these flags.
    fn and_to_open_as(self, mode: libc::c_int, without: libc::c_int) -> Calls {
        let flags = libc::O_ACCMODE | without;
        let calls = self.and_if(libc::SYS_openat, [vec![Argument::bits(2, flags, mode)]]);
        #[cfg(target_arch = "x86_64")]
        let calls = calls.and_if(libc::SYS_open, [vec![Argument::bits(1, flags, mode)]]);
        calls
    }

    fn rules(&self) -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, BackendError> {
        let rule = |case: &Vec<Argument>| {
            SeccompRule::new(case.iter().map(|argument| argument.condition()).collect::<Result<_, _>>()?)
        };
        let rules = |(call, cases): (&libc::c_long, &Vec<Vec<Argument>>)| {
            Ok((*call, cases.iter().map(rule).collect::<Result<_, _>>()?))
        };
        self.0.iter().map(rules).collect()
    }

    /// The filters for the calls of this thread and those it starts.
    fn programs(&self) -> Result<[BpfProgram; 2], BackendError> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let listed = SeccompFilter::new(self.rules()?, refused, SeccompAction::Allow, arch)?;
        // `clone3` has its flags in memory, which no filter sees. If the kernel seems not to know it, libc uses
        // `clone`.
        Ok([without(&[libc::SYS_clone3])?, listed.try_into()?])
    }

    /// Allows only these calls from now on, in this thread and those it will start. New privileges must be given up
    /// first; `name` is the guard's name for people.
    pub fn confine(&self, name: &'static str) -> Guard {
        let made = self.programs().map_err(|error| error.to_string());
        // Each filter only narrows the one before. The list comes last, since it does not allow the call that sets
        // filters.
        let held = made.and_then(|programs| {
            programs.iter().try_for_each(|program| apply_filter(program).map_err(|error| error.to_string()))
        });
        Guard { name, held }
    }
}

/// A filter that answers these calls like a kernel that does not know them (ENOSYS).
fn without(calls: &[libc::c_long]) -> Result<BpfProgram, BackendError> {
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, unknown, TargetArch::try_from(std::env::consts::ARCH)?)?.try_into()
}

/// Hides io_uring from this thread, and from the program that it becomes. This gives up new privileges: a program with
/// more rights than its user starts without them.
///
/// # Errors
///
/// The kernel has no seccomp filters.
pub fn without_io_uring() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())?;
    let program = without(&[libc::SYS_io_uring_setup]).map_err(|error| error.to_string())?;
    apply_filter(&program).map_err(|error| error.to_string())
}

/// Whether this kernel can confine calls. Confines nothing.
pub fn supported(name: &'static str) -> Guard {
    let known = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let has = known.split_whitespace().any(|action| action == "errno");
    Guard { name, held: if has { Ok(()) } else { Err("this kernel has no seccomp filters".into()) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_done_as_far_as_its_cases_go_and_nothing_else() {
        let tried = std::thread::spawn(|| {
            crate::keep_capabilities(rustix::thread::CapabilitySet::empty()).ok()?;
            let read = Argument::bits(2, libc::O_ACCMODE, libc::O_RDONLY);
            let calls = Calls::of_any_program()
                .and(&[libc::SYS_read, libc::SYS_close])
                .and_if(libc::SYS_openat, [vec![read, Argument::is_null(3)]]);
            calls.confine("what it calls").held.map_err(|error| eprintln!("skipped: {error}")).ok()?;
            let kind = |error: std::io::Error| error.kind();
            Some([
                std::fs::File::open("/dev/null").map(drop).map_err(kind),
                std::thread::Builder::new().spawn(|| ()).map(drop).map_err(kind),
                std::fs::File::options().write(true).open("/dev/null").map(drop).map_err(kind),
                std::fs::File::options().read(true).write(true).open("/dev/null").map(drop).map_err(kind),
                std::fs::read_dir("/").and_then(|mut names| names.next().transpose()).map(drop).map_err(kind),
                std::process::Command::new("/bin/true").status().map(drop).map_err(kind),
            ])
        });
        let Some(tried) = tried.join().expect("no panic") else { return };
        assert_eq!(tried[..2], [Ok(()); 2]);
        assert_eq!(tried[2..], [Err(std::io::ErrorKind::PermissionDenied); 4]);
    }
}
