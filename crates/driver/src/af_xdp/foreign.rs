//! Whose XDP program it is that a device has already: its name. The kernel tells that to CAP_SYS_ADMIN alone, so whoever is
//! going to give that up looks at all of them before ([`remember`]); of programs that came later there is only the number.

use bpf::inventory::{self, Object};
use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

/// Programs that are looked at.
const PROGRAMS: usize = 4096;

/// Names by number, as of when they were looked at. Numbers are not given again for a long time.
static SEEN: OnceLock<BTreeMap<u32, String>> = OnceLock::new();

/// Looks at the names of all XDP programs there are, for later. Nothing is remembered where that is not permitted.
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

/// The name of an XDP program, where it can be known.
pub(super) fn name(number: u32) -> Option<String> {
    let seen = || SEEN.get().and_then(|seen| seen.get(&number)).cloned();
    look_up(number).ok().flatten().or_else(seen).filter(|name| !name.is_empty())
}

/// The name of a program, if it is of the kind XDP; takes CAP_SYS_ADMIN.
fn look_up(number: u32) -> io::Result<Option<String>> {
    let info = inventory::program(number)?;
    Ok(info.is_xdp().then(|| info.name()))
}
