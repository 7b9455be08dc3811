//! The space `parser`: runs prefixes that several requests of one user begin with, once for all.
//!
//! The *parser process* runs them without privileges; there is one for each user, set of groups, and daemon. The first
//! request that asks for it starts it, and it ends some seconds after its last client. It takes packets from the daemon
//! as that user. It writes each prefix's blocks into a ring that all clients map for reading. The rest of each request
//! runs in the request's own process, and with it all access to files and the terminal.
//!
//! - `prefix` — which part of a plan can be shared, and how it is written as a request.
//! - `space` — the space, for placement and for transactions.
//! - [`client`] — a request's way to the parser process: finds it, starts it, asks it.
//! - [`protocol`] — their messages.
//! - [`server`] — the parser process.
//! - `stage` — one prefix that runs in it; `bases` — the rings that it goes on from.
//! - `confine` — what it gives up first.
//!
//! [`filters::parser`] has the form of the blocks on their way.

pub(crate) mod bases;
pub mod client;
pub(crate) mod confine;
pub(crate) mod prefix;
pub mod protocol;
pub mod server;
pub(crate) mod space;
pub(crate) mod stage;

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The variable that turns sharing on for every request of a process, as `--share` does for one.
pub const VARIABLE: &CStr = c"STREAMLINE_SHARE";

/// Whether this value of the variable turns sharing on. As on the command line, anything but a word for no does.
pub fn is_asked_for(value: &str) -> bool {
    !["", "0", "f", "false", "n", "no", "off"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

/// The socket of the parser process that this process may use. That process takes packets from the daemon at `daemon`,
/// as this user and with these groups: a policy may depend on each of them.
pub fn socket(daemon: &Path) -> std::io::Result<PathBuf> {
    let daemon = std::path::absolute(daemon)?;
    let mut hash = Fnv::default();
    hash.add(daemon.as_os_str().as_encoded_bytes());
    for group in groups()? {
        hash.add(&group.to_le_bytes());
    }
    Ok(buffer::keeper::place::folder().join("shared").join(format!("{:016x}.control", hash.0)))
}

/// All groups of this process, sorted, without duplicates.
pub(crate) fn groups() -> std::io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
    groups.push(rustix::process::getegid().as_raw());
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// FNV-1a, 64 bits: makes a name, not a secret.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
