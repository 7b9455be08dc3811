//! Survives a file that is cut short while it is mapped: the fault gives a zero page and a note of the place.
//!
//! There is one handler for the process and a fixed table of mapped ranges; the handler uses atomics and one `mmap`
//! only. It passes on to the previous SIGBUS handler a fault outside every range, and any other kind of SIGBUS (failed
//! memory, a signal that a process sent).

// `std` atomics, not the crate's own: this is a static table for a signal handler.
use base::limits::MAPPED_FILES;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One mapped range. `start` is `FREE` (0) while the slot is free and `TAKEN` (1) while it is being filled.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Offset of the lowest page that faulted; `usize::MAX` before the first fault.
    cut_at: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

impl Slot {
    /// Start of the range, if the slot is in use and `address` lies in it.
    fn start_of(&self, address: usize) -> Option<usize> {
        // Acquire pairs with the Release in `Watch::new`.
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // A slot that is freed and taken again between the two loads could pair one range's start with another's end,
        // and cover memory of neither. Then the second load of `start` differs. The range in which a read faulted stays
        // mapped until the read is over, so its slot does not change.
        let whole = start > TAKEN && self.start.load(Ordering::Relaxed) == start;
        (whole && (start..end).contains(&address)).then_some(start)
    }

    /// Puts a zero page at `address`, which lies in this slot's range; false where the kernel refuses.
    fn fill(&self, start: usize, address: usize) -> bool {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let at = address & !(page - 1);
        // SAFETY: `at` is a page of a range that this process mapped read-only and still owns (a slot is emptied before
        // its range is unmapped), so replacing that page changes no other memory.
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
        let is_made = made != libc::MAP_FAILED;
        if is_made {
            self.cut_at.fetch_min(at - start, Ordering::Relaxed);
        }
        is_made
    }
}

/// `si_code` of a SIGBUS for an address behind the end of its file (`asm-generic/siginfo.h`).
const BUS_ADRERR: libc::c_int = 2;

/// `si_code` of a SIGBUS for failed memory that no instruction has touched yet.
const BUS_MCEERR_AO: libc::c_int = 5;

static SLOTS: [Slot; MAPPED_FILES] =
    [const { Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), cut_at: AtomicUsize::new(usize::MAX) } };
        MAPPED_FILES];

#[derive(Debug)]
pub(crate) struct Watch {
    slot: usize,
}

impl Watch {
    /// Watches `len` bytes from `start`. `cut_at`: the cut that is already known. `None` when the table is full: read
    /// such a file instead of mapping it.
    pub(crate) fn new(start: usize, len: usize, cut_at: Option<usize>) -> Option<Watch> {
        if !install() {
            return None;
        }
        for (index, slot) in SLOTS.iter().enumerate() {
            // Acquire pairs with the Release in `drop`: the last owner's stores come before this one's.
            if slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                slot.cut_at.store(cut_at.unwrap_or(usize::MAX), Ordering::Relaxed);
                // Release pairs with the Acquire in `Slot::start_of`: seeing this end implies seeing TAKEN or a later
                // start.
                slot.end.store(start + len, Ordering::Release);
                // Release pairs with the Acquire in `Slot::start_of`: a handler that sees the start sees the end.
                slot.start.store(start, Ordering::Release);
                return Some(Watch { slot: index });
            }
        }
        None
    }

    /// Offset of the first missing byte, rounded down to a page; `None` while no cut was noticed.
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

static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler once; false where the system refuses.
fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: both structures are plain data, and all zeroes is a valid value. `on_sigbus` has the signature that
        // SA_SIGINFO asks for. It calls only mmap, sysconf, sigaction and raise, all async-signal-safe in effect on
        // Linux (mmap is a bare system call, this sysconf reads a number). It touches only atomics and an initialised
        // `OnceLock`.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
                return false;
            }
            // Stored before the handler can run, so that the handler never waits for it.
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
    // SAFETY: the kernel hands a valid siginfo to a handler installed with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    if code == BUS_ADRERR {
        // SAFETY: as above; si_addr is set for this code.
        let address = unsafe { (*info).si_addr() } as usize;
        if SLOTS.iter().any(|slot| slot.start_of(address).is_some_and(|start| slot.fill(start, address))) {
            return;
        }
    }
    // Not in a watched range: restore the previous handler. The faulting instruction runs again and meets that one.
    if let Some(before) = BEFORE.get() {
        // SAFETY: `before` was filled in by sigaction itself.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
    // Codes up to 0 say that a process sent the signal. No instruction will fault again for these, so raise them again.
    if code <= 0 || code == BUS_MCEERR_AO {
        // SAFETY: async-signal-safe; blocked until this handler returns.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_covers_its_range_only_while_it_is_in_use() {
        let rows = [
            (FREE, 0x3000, 0x2000, None),
            (TAKEN, 0x3000, 0x2000, None),
            (0x1000, 0x3000, 0x0fff, None),
            (0x1000, 0x3000, 0x1000, Some(0x1000)),
            (0x1000, 0x3000, 0x2fff, Some(0x1000)),
            (0x1000, 0x3000, 0x3000, None),
        ];
        for (start, end, address, expected) in rows {
            let [start, end, cut_at] = [start, end, usize::MAX].map(AtomicUsize::new);
            assert_eq!(Slot { start, end, cut_at }.start_of(address), expected, "{address:x}");
        }
    }

    #[test]
    fn a_slot_taken_again_never_pairs_one_start_with_another_end() {
        use std::sync::atomic::AtomicBool;
        let slot = Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), cut_at: AtomicUsize::new(0) };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200_000 {
                    let (start, end) = if round % 2 == 0 { (0x1000, 0x2000) } else { (0x8000, 0x9000) };
                    assert!(slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok());
                    slot.end.store(end, Ordering::Release);
                    slot.start.store(start, Ordering::Release);
                    slot.start.store(FREE, Ordering::Release);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                assert_eq!(slot.start_of(0x5000), None);
            }
        });
    }
}
