//! Processes that confine themselves by seccomp(2), as sshd's does before a user is known. Their filter may kill them for a
//! call that this library makes and the program does not. Connections of that moment, and descriptors that are not the host's,
//! are left to the kernel's calls.

use crate::kernel::call;
use libc::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// File descriptors that are looked at: a confined process has few.
const FDS: usize = 1024;

static LEFT: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];

/// The program is about to confine itself: notes what is for the kernel alone.
pub(crate) fn begin(is_for_kernel: fn(c_int) -> bool) {
    for fd in 0..FDS as c_int {
        let is_open = call(libc::SYS_fcntl, [fd as usize, libc::F_GETFD as usize]) >= 0;
        if is_open
            && is_for_kernel(fd)
            && let Some(bits) = LEFT.get(fd as usize / 64)
        {
            bits.fetch_or(1 << (fd % 64), Ordering::Relaxed);
        }
    }
}

/// Whether it was noted when the program confined itself.
pub(crate) fn leaves(fd: c_int) -> bool {
    let bits = usize::try_from(fd).ok().and_then(|fd| LEFT.get(fd / 64));
    bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & (1 << (fd % 64)) != 0)
}
