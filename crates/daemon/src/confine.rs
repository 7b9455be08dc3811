//! What the daemon gives up before it listens: every capability that opening devices and loading programs does not take.

use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// What is kept: raw sockets and rings, devices' settings, programs; and the limit on locked memory.
const KEPT: CapabilitySet = CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::BPF);

/// Lets memory be locked without a limit, which rings of devices take, where that is permitted.
pub fn raise_memory_lock() -> io::Result<()> {
    let unlimited = Rlimit { current: None, maximum: None };
    Ok(rustix::process::setrlimit(Resource::Memlock, unlimited)?)
}

/// Keeps those of the needed capabilities that there are, and drops all others, for good: of this thread and those it will
/// start, and of what they might execute.
pub fn drop_capabilities() -> io::Result<()> {
    let have = rustix::thread::capabilities(None)?;
    let kept = have.permitted & KEPT;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_no_new_privs(true)?;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// The capabilities this thread has, by name, of those that matter here.
pub fn capabilities() -> Vec<(&'static str, bool)> {
    let have = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    [
        ("CAP_NET_RAW", CapabilitySet::NET_RAW),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    ]
    .map(|(name, capability)| (name, have.contains(capability)))
    .to_vec()
}
