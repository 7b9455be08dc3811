//! Prefixes that several requests of one user begin with, run once: the space `parser`.
//!
//! One process for each user (and set of groups, and daemon), the *parser process*, runs them without privileges. The first request
//! that asks for it starts it, and it ends some seconds after its last client. It takes packets from the daemon as that user,
//! and gives what a prefix gives into a ring that all clients map for reading; the rest of each request, with all that
//! touches files and the terminal, runs in the request's own process.
//!
//! - `prefix` — which part of a plan can be shared, and how it is written as a request.
//! - `space` — the space, as placement and the transaction see it.
//! - [`client`] — a request's way to the parser process: found, started, asked.
//! - [`protocol`] — what is said between them.
//! - [`server`] — the parser process; `stage` — one prefix that runs in it; `confine` — what it gives up before.
//!
//! What the blocks look like on their way is for [`filters::parser`].

pub mod client;
pub(crate) mod confine;
pub(crate) mod prefix;
pub mod protocol;
pub mod server;
pub(crate) mod space;
pub(crate) mod stage;

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The variable that asks for it on behalf of every request of a process, as `--share` does of one.
pub const VARIABLE: &CStr = c"STREAMLINE_SHARE";

/// Does the variable's value ask for it? As the command line takes it: anything but a word for no.
pub fn is_asked_for(value: &str) -> bool {
    !["", "0", "f", "false", "n", "no", "off"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

/// Where the parser process that this process may use listens: it takes packets from the daemon at this socket, as this user and with
/// these groups, for what a policy permits may depend on each of them.
pub fn socket(daemon: &Path) -> std::io::Result<PathBuf> {
    let daemon = std::path::absolute(daemon)?;
    let mut hash = Fnv::default();
    hash.add(daemon.as_os_str().as_encoded_bytes());
    for group in groups()? {
        hash.add(&group.to_le_bytes());
    }
    Ok(buffer::keeper::place::folder().join("shared").join(format!("{:016x}.control", hash.0)))
}

/// Every group this process is in, each once, in order.
pub(crate) fn groups() -> std::io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = rustix::process::getgroups()?.into_iter().map(|group| group.as_raw()).collect();
    groups.push(rustix::process::getegid().as_raw());
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// FNV-1a, 64 bits: a name, not a secret.
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
