//! A reader whose sandbox denies membarrier(2) cannot make the writer's processor run its fence. It may miss a wake-up,
//! and so looks at intervals.

use buffer::ring::memory::Geometry;
use buffer::ring::{From, Nothing, OnFull, Patience, Ring, RingKind, Signalling};
use buffer::shared::segment::Pages;
use std::io;
use std::time::{Duration, Instant};

fn deny_membarrier() -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let filter = [
        // The number of the system call; for any other one, the refusal is skipped.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32)
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the arguments are numbers.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program outlives the call, which copies it.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Number of sleeps of a reader that gets no block for a third of a second.
fn sleeps() -> u64 {
    let geometry = Geometry::new(RingKind::P, 4096, 16);
    let (mut ring, _writer) = Ring::create(geometry, Pages::Normal, Signalling::Batched(32)).unwrap();
    let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
    reader.set_patience(Patience::NONE);
    assert_eq!(reader.wait(Some(Instant::now() + Duration::from_millis(300))), Err(Nothing::Yet));
    reader.counters().waits
}

#[test]
fn who_may_not_have_others_run_a_fence_looks_again_and_again() {
    let free = sleeps();
    assert!(free <= 5, "{free}: it sleeps until it is woken");
    let confined = std::thread::spawn(|| deny_membarrier().map(|()| sleeps())).join().unwrap();
    match confined {
        // Every 5 ms, if the processor has time for it.
        Ok(sleeps) => assert!(sleeps > 10, "{sleeps}"),
        Err(error) => eprintln!("skipped (rights): no system call can be denied here: {error}"),
    }
}
