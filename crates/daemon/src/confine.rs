//! What the daemon gives up before it listens: every capability that opening devices and loading programs does not take,
//! every system call it does not make, and every file.
//!
//! - here — capabilities, limits; `calls` — seccomp; `files` — Landlock.
//!
//! How that is done is for [`guard`], which the process that runs prefixes for several requests uses, too.

mod calls;
pub(crate) mod files;

use crate::account::Account;
use guard::{CapabilitySet, Guard};
use rustix::process::{Resource, Rlimit};
use std::io;
use std::path::Path;

/// Confines this thread and those it will start, for good. `folder` is where the socket lies that is to be removed in the end.
/// New privileges have to be given up before ([`drop_capabilities`]), and everything opened that is written to.
pub fn confine(folder: Option<&Path>) -> [Guard; 2] {
    // The second takes away the calls that the first makes.
    let files = files::confine(folder);
    let is_confined = files.held.is_ok();
    [files, calls::confine(is_confined)]
}

/// What [`confine`] could do here. Nothing is confined by asking.
pub fn supported() -> [Guard; 2] {
    [files::supported(), calls::supported()]
}

/// The rights of this user and guards as one line, for people. `has_rights`: has it any of the capabilities that are kept?
pub fn describe(account: &Account, has_rights: bool, guards: &[Guard]) -> String {
    let capabilities = if has_rights { "three capabilities" } else { "no capabilities" };
    guard::describe(&format!("user {account}, {capabilities}"), guards)
}

/// What is kept: raw sockets and rings, devices' settings, programs.
///
/// Not CAP_PERFMON, with which programs carry no guards against speculation: what they do is for clients to say, whom nobody
/// trusts. And who has it with CAP_BPF reads all of the kernel's memory. The guards take 1 to 3 ns a packet (BENCHMARKS.md).
pub(crate) const KEPT: CapabilitySet = CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::BPF);

/// Lets memory be locked without a limit, which some devices' rings take; as much as may be had where that is not permitted.
/// Gives the limit, none where there is none.
pub fn raise_memory_lock() -> Option<u64> {
    if rustix::process::setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        let maximum = rustix::process::getrlimit(Resource::Memlock).maximum;
        // What is permitted already can be asked for; if not, it stays as it is.
        let _ = rustix::process::setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
    rustix::process::getrlimit(Resource::Memlock).current
}

/// Files for 10,000 flows, two each, and as many again for all else.
const FILES: u64 = 65_536;

/// Lets this process have as many files as it is permitted, and at least 65,536 where it may say so: each client takes one,
/// each reader another, each flow two, and what is on its way to clients who have not taken it is counted as well.
pub fn raise_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let files = limit.maximum.map(|maximum| maximum.max(FILES));
    // Where it cannot be raised it stays as it is, and fewer clients are let in.
    if rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }).is_err() {
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Becomes this user for good, where root started this process; see [`guard::become_user`]. Capabilities stay, and are not in
/// force until [`drop_capabilities`] says which.
pub fn become_user(account: &Account) -> io::Result<()> {
    guard::become_user(account.user, account.group)
}

/// Keeps those of the needed capabilities that there are, and drops all others, for good: of this thread and those it will
/// start, and of what they might execute.
pub fn drop_capabilities() -> io::Result<()> {
    guard::keep_capabilities(KEPT)
}

/// The capabilities this thread has, by name, of those that matter here.
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

    /// A kernel that refuses is played by the guard itself, which has those calls refused that set guards.
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
