//! Finds the clients that get no kernel maps. A process that may load programs can write a frozen map through its file
//! descriptor: a program of its own stores into it. So it could forge packets for all readers of a ring that the
//! kernel's program writes. Such a client gets a ring of sealed memory instead, which a thread of the daemon copies
//! (`by=socket`).
//!
//! Loading takes CAP_BPF or CAP_SYS_ADMIN, or neither if `kernel.unprivileged_bpf_disabled` is 0. A capability in a
//! user namespace counts as well: with a BPF token it permits programs. The daemon reads the capabilities of all
//! threads of a process when the process asks. It cannot know about later ones, which a process gets when it executes a
//! file with capabilities. Nor does it know to which other process a map is handed: `docs/decisions/exclusive-maps.md`.

use buffer::control::{packets, peer};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// CAP_SYS_ADMIN and CAP_BPF (linux/capability.h).
const LOADS: u64 = 1 << 21 | 1 << 39;

/// The lines of `/proc/PID/status` with the capabilities that a thread has, or gets when it executes a program.
const SETS: [&str; 4] = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];

const TRIES: u32 = 8;

/// The setting that lets all users load programs.
const SETTING: &str = "/proc/sys/kernel/unprivileged_bpf_disabled";

/// Why users other than root get no maps.
pub const EVERYBODY: &str =
    "every user may load programs here (kernel.unprivileged_bpf_disabled=0), and so write the kernel's maps";
/// Why this client gets no maps.
pub const THIS_PROCESS: &str = "this process has CAP_BPF or CAP_SYS_ADMIN, and so could write the kernel's maps";

/// Whether all users of this machine may load programs. `true` if the setting cannot be read.
pub fn everybody_loads() -> bool {
    std::fs::read_to_string(SETTING).map_or(true, |value| value.trim() == "0")
}

/// Why this user's client at the other end of this socket gets no kernel maps. `None`: it may have them.
pub(crate) fn why_no_maps(socket: BorrowedFd<'_>, user: u32) -> Option<String> {
    if everybody_loads() {
        return Some(EVERYBODY.into());
    }
    // Root may load programs in any case.
    if user == 0 {
        return None;
    }
    match peer::process(socket).and_then(|process| may_load(&process)) {
        Ok(false) => None,
        Ok(true) => Some(THIS_PROCESS.into()),
        Err(error) => Some(format!("the daemon cannot see whether this process may load programs: {error}")),
    }
}

/// Whether a thread of this process may load programs.
fn may_load(process: &OwnedFd) -> io::Result<bool> {
    // Its number in this /proc, which may be that of another PID namespace than the daemon's.
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let number = about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    let number = number.filter(|number| *number > 0).ok_or_else(|| io::Error::other("/proc does not show it"))?;
    let loads = threads_load(number)?;
    // The pidfd is readable once the process has ended; from then on another process may have its number.
    if packets::is_readable(process, Instant::now())? {
        return Err(io::Error::other("it has ended"));
    }
    Ok(loads)
}

/// Whether a thread of the process with this number may load programs.
pub fn threads_load(number: i32) -> io::Result<bool> {
    let folder = format!("/proc/{number}/task");
    for _ in 0..TRIES {
        let mut ended = false;
        for thread in std::fs::read_dir(&folder)? {
            match std::fs::read_to_string(thread?.path().join("status")) {
                Ok(status) if loads(&status)? => return Ok(true),
                Ok(_) => {}
                // Before it ended it may have started a thread that is not in the list.
                Err(_) => ended = true,
            }
        }
        if !ended {
            return Ok(false);
        }
    }
    Err(io::Error::other("its threads come and go"))
}

/// Whether the thread with this status may load programs. Root's threads are not asked: only root can put one into another
/// user's process.
fn loads(status: &str) -> io::Result<bool> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "/proc says something else");
    let user = field("Uid:").and_then(|ids| ids.split_whitespace().nth(1)).ok_or_else(strange)?;
    let mut all = 0;
    for set in SETS {
        let set = field(set).and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        all |= set.ok_or_else(strange)?;
    }
    Ok(user != "0" && all & LOADS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(user: u32, sets: [u64; 4]) -> String {
        let [inheritable, permitted, effective, ambient] = sets;
        format!(
            "Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nGid:\t0\t0\t0\t0\nCapInh:\t{inheritable:016x}\n\
             CapPrm:\t{permitted:016x}\nCapEff:\t{effective:016x}\nCapBnd:\tffffffffffffffff\nCapAmb:\t{ambient:016x}\n"
        )
    }

    #[test]
    fn whoever_has_the_capability_in_any_set_may_load() {
        let (bpf, admin, others) = (1 << 39, 1 << 21, !(1 << 39 | 1 << 21));
        for (user, sets, expected) in [
            (1000, [0; 4], false),
            (1000, [others; 4], false),
            (1000, [bpf, 0, 0, 0], true),
            (1000, [0, bpf, 0, 0], true),
            (1000, [0, admin, 0, 0], true),
            (1000, [0, 0, bpf, 0], true),
            (1000, [0, 0, 0, bpf], true),
            (0, [0, admin | bpf, admin | bpf, 0], false),
        ] {
            assert_eq!(loads(&status(user, sets)).unwrap(), expected, "{user} {sets:x?}");
        }
        assert!(loads("").is_err() && loads("Uid:\t1\t1\t1\t1\nCapInh:\tx\n").is_err());
    }

    #[test]
    fn a_number_that_another_process_may_have_by_now_is_not_believed() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        let process = rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), flags).unwrap();
        assert!(may_load(&process).is_ok());
        drop(child.stdin.take());
        assert!(packets::is_readable(&process, Instant::now() + std::time::Duration::from_secs(20)).unwrap());
        // The number stays its own until the process has been waited for.
        assert!(may_load(&process).is_err());
        child.wait().unwrap();
        assert!(may_load(&process).is_err());
    }

    #[test]
    fn one_thread_that_may_is_enough() {
        use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped (rights): only root can give a thread another user");
        }
        let here = std::process::id() as i32;
        let (is_made, made) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // Only for this thread, which ends with the test.
            rustix::thread::set_keep_capabilities(true).unwrap();
            let (user, group) = (Uid::from_raw(20_001), Gid::from_raw(20_001));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            for kept in [CapabilitySet::BPF, CapabilitySet::empty()] {
                let sets = CapabilitySets { effective: CapabilitySet::empty(), permitted: kept, inheritable: kept };
                rustix::thread::set_capabilities(None, sets).unwrap();
                is_made.send(()).unwrap();
                ends.recv().unwrap();
            }
        });
        for expected in [true, false] {
            made.recv().unwrap();
            // Threads of other tests come and go.
            let loads = (0..100).find_map(|_| threads_load(here).ok());
            assert_eq!(loads, Some(expected));
            end.send(()).unwrap();
        }
        thread.join().unwrap();
    }
}
