//! What a process gives up for good, before it listens to others: capabilities, system calls, files.
//!
//! - here — the user, capabilities, and what is said of a guard.
//! - [`calls`] — system calls (seccomp): those that any program of ours makes, and how each adds its own.
//! - [`files`] — files, ports and other processes (Landlock).
//! - [`linger`] — a child that goes on with what an exit must not cut off, without the rest of the process.
//!
//! Which of them a process keeps stands with the process: `daemon/confine.rs`, `daemon/interfaces.rs`,
//! `streamline/parser/confine.rs`, `cli/commands/pipe/confine.rs`. Where a kernel lacks one of these guards, a process runs without it, and says so.

pub mod calls;
pub mod files;
pub mod linger;

pub use rustix::thread::CapabilitySet;

use rustix::thread::{CapabilitySets, Gid, Uid};
use std::io;

/// Something that holds of this process from some moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// What holds, for people.
    pub name: &'static str,
    /// Does it hold? Else why not.
    pub held: Result<(), String>,
}

/// What holds, as one line for people: `always`, and the guards that do.
pub fn describe(always: &str, guards: &[Guard]) -> String {
    let held = guards.iter().filter(|guard| guard.held.is_ok()).map(|guard| guard.name);
    [always].into_iter().chain(held).collect::<Vec<_>>().join(", ")
}

/// Keeps those of these capabilities that there are, and drops all others, for good: of this thread and those it will
/// start, and of what they might execute.
pub fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let have = rustix::thread::capabilities(None)?;
    let kept = have.permitted & kept;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_no_new_privs(true)?;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Keeps those of these capabilities that there are, and drops all others, as [`keep_capabilities`] does. Programs that this process
/// executes have them, too.
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

/// Other processes of this user do not look into this one any more: they do not trace it, and read neither its memory nor its files.
pub fn hide() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Becomes this user, of this group and no other, for good. Root's capabilities stay permitted. To be called before the
/// process starts threads, because each thread has a user of its own: fails where there are several. Fails also where the
/// process may not change its user, and may have lost its groups then.
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

    /// Tests run in threads of their own, so there are two.
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
