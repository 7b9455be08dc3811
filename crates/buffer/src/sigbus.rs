//! A file cut short while it is mapped: the fault becomes a zero page and a note of where, not the death of the process.
//!
//! One handler for the process, a fixed table of the mapped ranges, nothing but atomics and one `mmap` inside the
//! handler. A fault outside every range is handed to whoever handled SIGBUS before.

use base::atomic::{AtomicUsize, Ordering};
use base::limits::MAPPED_FILES;
use std::sync::OnceLock;

/// One mapped range. `start` is 0 while the slot is free and 1 while it is being filled.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Offset of the lowest page that faulted, `usize::MAX` while none has.
    cut_at: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

static SLOTS: [Slot; MAPPED_FILES] =
    [const { Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), cut_at: AtomicUsize::new(usize::MAX) } };
        MAPPED_FILES];

/// Watches one mapped range until dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    slot: usize,
}

impl Watch {
    /// Watches `len` bytes from `start`, or `None` when the table is full (read such a file instead of mapping it).
    pub(crate) fn new(start: usize, len: usize) -> Option<Watch> {
        if !install() {
            return None;
        }
        for (index, slot) in SLOTS.iter().enumerate() {
            // Acquire pairs with the Release in `drop`: the last owner's stores come before ours.
            if slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                slot.cut_at.store(usize::MAX, Ordering::Relaxed);
                slot.end.store(start + len, Ordering::Relaxed);
                // Release pairs with the Acquire in `on_sigbus`: whoever sees the start sees the end.
                slot.start.store(start, Ordering::Release);
                return Some(Watch { slot: index });
            }
        }
        None
    }

    /// Offset of the first byte that was gone, where the file was cut under the map (rounded down to a page).
    pub(crate) fn cut_at(&self) -> Option<usize> {
        let at = SLOTS[self.slot].cut_at.load(Ordering::Relaxed);
        (at != usize::MAX).then_some(at)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SLOTS[self.slot].start.store(FREE, Ordering::Release);
    }
}

/// What handled SIGBUS before us.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler once; false where the system refuses.
fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: both structures are plain data for which all zeroes is a valid value; `on_sigbus` has the signature
        // that SA_SIGINFO asks for; it calls only mmap and sigaction, both async-signal-safe in effect on Linux (mmap
        // is a bare system call), and touches only atomics and an initialised `OnceLock`.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
                return false;
            }
            // Stored before the handler can run, so the handler never waits for it.
            let _ = BEFORE.set(before);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) == 0
        }
    })
}

/// The handler. Puts a zero page where the file ended and notes the place.
extern "C" fn on_sigbus(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to a handler installed with SA_SIGINFO; si_addr is set for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: sysconf has no preconditions.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    for slot in &SLOTS {
        // Acquire pairs with the Release in `Watch::new`.
        let start = slot.start.load(Ordering::Acquire);
        if start <= TAKEN || address < start || address >= slot.end.load(Ordering::Relaxed) {
            continue;
        }
        let at = address & !(page - 1);
        // SAFETY: `at` is a page of a range that this process mapped read-only and still owns (a slot is emptied
        // before its range is unmapped), so replacing that page touches nobody else's memory.
        let made = unsafe {
            libc::mmap(
                at as *mut libc::c_void,
                page,
                libc::PROT_READ,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if made != libc::MAP_FAILED {
            slot.cut_at.fetch_min(at - start, Ordering::Relaxed);
            return;
        }
        break;
    }
    // Not ours: give the signal back to whoever had it; the faulting instruction runs again and meets that handler.
    if let Some(before) = BEFORE.get() {
        // SAFETY: `before` was filled in by sigaction itself.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}
