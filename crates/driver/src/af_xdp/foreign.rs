//! Whose XDP program it is that a device has already: its name. The kernel tells that to CAP_SYS_ADMIN alone, so whoever is
//! going to give that up looks at all of them before ([`remember`]); of programs that came later there is only the number.

use super::redirect::{XDP_PROGRAM, bpf, owned};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

// `linux/bpf.h`.
const PROGRAM_NEXT: libc::c_int = 11;
const PROGRAM_OPEN: libc::c_int = 13;
const OBJECT_INFO: libc::c_int = 15;

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
            let Ok(next) = next(number) else { break };
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

#[repr(C)]
struct Number {
    number: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
struct Info {
    fd: u32,
    bytes: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    number: u32,
    _tag: [u8; 8],
    _lengths: [u32; 2],
    _code: [u64; 2],
    _loaded: u64,
    _user: u32,
    _maps: u32,
    _map_numbers: u64,
    name: [u8; 16],
}

/// The number of the program behind this one.
fn next(number: u32) -> io::Result<u32> {
    let mut attributes = Number { number, next: 0, flags: 0 };
    // SAFETY: no pointers.
    unsafe { bpf(PROGRAM_NEXT, &mut attributes) }.map(|_| attributes.next)
}

/// The name of a program, if it is of the kind XDP; takes CAP_SYS_ADMIN.
fn look_up(number: u32) -> io::Result<Option<String>> {
    // SAFETY: no pointers.
    let program: OwnedFd = unsafe { bpf(PROGRAM_OPEN, &mut Number { number, next: 0, flags: 0 }) }.map(owned)?;
    let mut info = ProgramInfo::default();
    let (bytes, place) = (size_of::<ProgramInfo>() as u32, std::ptr::from_mut(&mut info) as u64);
    // SAFETY: the kernel writes so many bytes at most, of numbers and letters, and the place lives for the call.
    unsafe { bpf(OBJECT_INFO, &mut Info { fd: program.as_raw_fd() as u32, bytes, info: place })? };
    let letters = info.name.iter().take_while(|letter| **letter != 0).map(|letter| char::from(*letter));
    Ok((info.kind == XDP_PROGRAM).then(|| letters.filter(|letter| letter.is_ascii_graphic()).collect()))
}
