//! Confines the daemon before it listens. It gives up all files, each system call that it does not make, and each
//! capability that opening devices and loading programs does not need.
//!
//! - here — capabilities, limits.
//! - `calls` — seccomp.
//! - `files` — Landlock.
//!
//! [`guard`] does the work; the parser process uses it, too.

mod calls;
pub(crate) mod files;

use crate::account::Account;
use guard::{CapabilitySet, Guard};
use rustix::process::{Resource, Rlimit};
use std::io;
use std::path::Path;

/// Confines this thread and those it will start, for good. `folder` is the folder of the socket, which is removed at
/// the end. First give up new privileges ([`drop_capabilities`]), and open all files that are written to.
pub fn confine(folder: Option<&Path>) -> [Guard; 2] {
    let files = files::confine(folder);
    let is_confined = files.held.is_ok();
    [files, calls::confine(is_confined)]
}

/// The guards that [`confine`] could use here; confines nothing.
pub fn supported() -> [Guard; 2] {
    [files::supported(), calls::supported()]
}

/// The rights of this user and its guards as one line, for people. `has_rights`: it has any of the kept capabilities.
pub fn describe(account: &Account, has_rights: bool, guards: &[Guard]) -> String {
    let capabilities = if has_rights { "three capabilities" } else { "no capabilities" };
    guard::describe(&format!("user {account}, {capabilities}"), guards)
}

/// The capabilities that are kept, for raw sockets and rings, devices' settings, and programs.
///
/// CAP_PERFMON is not kept. Programs loaded with it carry no guards against speculation, and untrusted clients
/// determine what the programs do. With CAP_BPF it also allows reading all of the kernel's memory. The guards cost 1 to
/// 3 ns a packet (BENCHMARKS.md).
pub(crate) const KEPT: CapabilitySet = CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::BPF);

/// Removes the limit for locked memory, which some devices' rings need; raises it as far as allowed if it cannot be
/// removed. Gives the limit, `None` if there is none.
pub fn raise_memory_lock() -> Option<u64> {
    if rustix::process::setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        let maximum = rustix::process::getrlimit(Resource::Memlock).maximum;
        // The hard limit may be used in any case. If even this fails, the limit stays as it is.
        let _ = rustix::process::setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
    rustix::process::getrlimit(Resource::Memlock).current
}

/// Files for 10,000 flows with two each, and the same number for the rest.
const FILES: u64 = 65_536;

/// Raises the limit of open files to the hard limit, and to at least 65,536 if this process may. Each client takes one
/// file, each reader another, each flow two. Files on their way to clients that have not taken them count as well.
pub fn raise_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let files = limit.maximum.map(|maximum| maximum.max(FILES));
    // If it cannot be raised it stays as it is, and fewer clients are let in.
    if rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }).is_err() {
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Becomes this user for good, if root started this process; see [`guard::become_user`]. Capabilities stay permitted,
/// but have no effect until [`drop_capabilities`] chooses among them.
pub fn become_user(account: &Account) -> io::Result<()> {
    guard::become_user(account.user, account.group)
}

/// Keeps the needed capabilities that this thread has, and drops all others for good. This holds for this thread, the
/// threads it will start, and programs they might execute.
pub fn drop_capabilities() -> io::Result<()> {
    guard::keep_capabilities(KEPT)
}

/// The capabilities that matter here, by name; `true`: this thread has it.
pub fn capabilities() -> Vec<(&'static str, bool)> {
    let have = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    [
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
        ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ]
    .map(|(name, capability)| (name, have.contains(capability)))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first guard plays a kernel that refuses guards: it refuses the calls that set them.
    #[test]
    fn what_cannot_be_held_is_said_and_the_daemon_goes_on() {
        let tried = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).ok()?;
            let first = confine(None);
            first[1].held.as_ref().map_err(|error| eprintln!("skipped: {error}")).ok()?;
            Some((first, confine(None)))
        });
        let Some((first, second)) = tried.join().expect("no panic") else { return };
        assert!(second.iter().all(|guard| guard.held.as_ref().is_err_and(|why| !why.is_empty())), "{second:?}");
        let account = Account { name: "anna".into(), user: 1000, group: 1000 };
        assert_eq!(describe(&account, true, &second), "user anna, three capabilities");
        let described = describe(&account, false, &first);
        assert!(described.starts_with("user anna, no cap") && described.ends_with(first[1].name), "{described}");
    }
}
