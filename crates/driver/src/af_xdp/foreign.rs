//! Names of XDP programs that devices have already. The kernel tells them only to CAP_SYS_ADMIN. So a process that will
//! give that up reads all names before ([`remember`]); for later programs only the number is known.

use bpf::inventory::{self, Object};
use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

const PROGRAMS: usize = 4096;

/// Names by number, as of the call of `remember`. The kernel does not use a number again for a long time.
static SEEN: OnceLock<BTreeMap<u32, String>> = OnceLock::new();

/// Reads the names of all XDP programs, for later. Remembers no names if that is not permitted.
pub fn remember() {
    SEEN.get_or_init(|| {
        let mut names = BTreeMap::new();
        let mut number = 0;
        for _ in 0..PROGRAMS {
            let Ok(Some(next)) = inventory::next(Object::Program, number) else { break };
            number = next;
            names.extend(look_up(number).ok().flatten().map(|name| (number, name)));
        }
        names
    });
}

/// The name of an XDP program; `None` if it cannot be found out.
pub(super) fn name(number: u32) -> Option<String> {
    let seen = || SEEN.get().and_then(|seen| seen.get(&number)).cloned();
    look_up(number).ok().flatten().or_else(seen).filter(|name| !name.is_empty())
}

/// The name of a program, if it is of the kind XDP; takes CAP_SYS_ADMIN.
fn look_up(number: u32) -> io::Result<Option<String>> {
    let info = inventory::program(number)?;
    Ok(info.is_xdp().then(|| info.name()))
}
