//! What a process gives up for good, before it listens to others: capabilities, system calls, files.
//!
//! - here — the user, capabilities, and the description of guards.
//! - [`calls`] — system calls (seccomp): those of any of our programs, and how each program adds its own.
//! - [`files`] — files, ports and other processes (Landlock).
//! - [`linger`] — a child process that finishes work after an exit, without the rest of the process.
//!
//! Each process lists for itself the rights that it keeps: `daemon/confine.rs`, `daemon/interfaces.rs`,
//! `streamline/parser/confine.rs`, `cli/commands/pipe/confine.rs`. If a kernel lacks one of these guards, a process
//! runs without it, and says so.

pub mod calls;
pub mod files;
pub mod linger;

pub use rustix::thread::CapabilitySet;

use rustix::thread::{CapabilitySets, Gid, Uid};
use std::io;

/// A guard that confines this process from some moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The confined things, for people.
    pub name: &'static str,
    /// Whether it is in force. The error says why not.
    pub held: Result<(), String>,
}

/// All confinement as one line for people: `always`, then the guards in force.
pub fn describe(always: &str, guards: &[Guard]) -> String {
    let held = guards.iter().filter(|guard| guard.held.is_ok()).map(|guard| guard.name);
    [always].into_iter().chain(held).collect::<Vec<_>>().join(", ")
}

/// Keeps these capabilities as far as this thread has them, and drops all others for good. This holds for this thread,
/// the threads it will start, and programs they might execute.
pub fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let have = rustix::thread::capabilities(None)?;
    let kept = have.permitted & kept;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_no_new_privs(true)?;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Like [`keep_capabilities`], but programs that this process executes have the kept capabilities as well.
pub fn hand_on_capabilities(handed: CapabilitySet) -> io::Result<()> {
    let kept = rustix::thread::capabilities(None)?.permitted & handed;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    rustix::thread::set_no_new_privs(true)?;
    rustix::thread::set_capabilities(None, sets)?;
    for capability in kept.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Hides this process from other processes of its user: they cannot trace it, or read its memory or its files.
pub fn hide() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Becomes this user, with this group and no other, for good. Root's capabilities stay permitted. Call it before the
/// process starts threads, because each thread has a user of its own: it fails if there are several. It also fails if
/// the process may not change its user; the process may then have lost its groups.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
        return Err(io::Error::other("other threads would stay root's"));
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    // The kernel forgets it when the user changes.
    let parent_ends = rustix::process::parent_process_death_signal()?;
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    rustix::thread::set_keep_capabilities(false)?;
    Ok(rustix::process::set_parent_process_death_signal(parent_ends)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run in threads of their own, so there are two threads.
    #[test]
    fn a_process_with_several_threads_does_not_become_another_user() {
        let user =
            || std::fs::read_to_string("/proc/thread-self/status").map(|status| status.contains("Uid:\t65534\t"));
        let before = user().unwrap();
        let refused = std::thread::spawn(|| become_user(65_534, 65_534).map_err(|error| error.to_string()));
        assert_eq!(refused.join().unwrap(), Err("other threads would stay root's".to_string()));
        assert_eq!(user().unwrap(), before);
    }
}
