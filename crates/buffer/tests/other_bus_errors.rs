//! A SIGBUS that does not mean "behind the end of the file" goes to the earlier handler, and leaves the map alone.
//!
//! A single test in a process of its own, because it changes the handling of SIGBUS.

#![cfg(not(loom))]

use base::atomic::{AtomicU32, Ordering};
use buffer::MappedFile;
use std::io::Write;
use std::mem::zeroed;

static HANDED_ON: AtomicU32 = AtomicU32::new(0);

extern "C" fn before(_signal: libc::c_int) {
    HANDED_ON.fetch_add(1, Ordering::Relaxed);
}

fn handler() -> libc::sigaction {
    // SAFETY: plain data for which zeroes are valid; a null new action only asks.
    unsafe {
        let mut action = zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut action), 0);
        action
    }
}

fn set_handler(action: &libc::sigaction) {
    // SAFETY: `action` came from the system, or is filled in below; the handlers touch only atomics.
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, action, std::ptr::null_mut()) }, 0);
}

#[repr(C)]
struct Information {
    signal: i32,
    error: i32,
    code: i32,
    pad: i32,
    address: usize,
    rest: [u64; 13],
}

fn send(code: i32, address: usize) {
    assert_eq!(size_of::<Information>(), size_of::<libc::siginfo_t>());
    let information = Information { signal: libc::SIGBUS, error: 0, code, pad: 0, address, rest: [0; 13] };
    // SAFETY: a whole siginfo that lives through the call; a process may send itself any code.
    let result = unsafe {
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &raw const information)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn only_an_address_behind_the_end_of_the_file_is_a_cut() {
    // SAFETY: plain data for which zeroes are valid.
    let mut earlier: libc::sigaction = unsafe { zeroed() };
    earlier.sa_sigaction = before as *const () as usize;
    set_handler(&earlier);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 8192]).unwrap();
    let mapped = MappedFile::new(file.try_clone().unwrap()).unwrap();
    let ours = handler();
    assert_ne!(ours.sa_sigaction, earlier.sa_sigaction);

    // (code, calls of the earlier handler). 0 calls if the instruction must run into the fault again: a sent signal has
    // no such instruction.
    let hardware_action_required = 4;
    let hardware_action_optional = 5;
    let unaligned = 1;
    let rows = [
        (unaligned, 0),
        (hardware_action_required, 0),
        (hardware_action_optional, 1),
        (libc::SI_TKILL, 1),
        (libc::SI_QUEUE, 1),
    ];
    for (code, calls) in rows {
        set_handler(&ours);
        HANDED_ON.store(0, Ordering::Relaxed);
        send(code, mapped.bytes()[4096..].as_ptr() as usize);
        assert_eq!(HANDED_ON.load(Ordering::Relaxed), calls, "code {code}");
        assert_eq!(handler().sa_sigaction, earlier.sa_sigaction, "code {code}: the earlier handler is back");
        assert_eq!((mapped.bytes()[4096], mapped.cut_at()), (7, None), "code {code}");
    }

    set_handler(&ours);
    file.set_len(4096).unwrap();
    assert_eq!((mapped.bytes()[4096], mapped.cut_at()), (0, Some(4096)));
    assert_eq!(handler().sa_sigaction, ours.sa_sigaction);
}
