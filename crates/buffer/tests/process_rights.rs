//! A right of one process does not pass to the next process with the same number. A program of its own:
//! a fork copies whatever locks other tests hold.

#![cfg(not(loom))]

use buffer::keeper::client::Named;
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::RingKind;
use buffer::ring::memory::Geometry;
use std::io;
use std::os::unix::fs::PermissionsExt;

const NOBODY: u32 = 65_534;

/// Forks a child, with this process number if given. It runs `work` and exits with the result.
fn child(number: Option<i32>, work: impl FnOnce() -> i32) -> io::Result<i32> {
    let number: libc::pid_t = number.unwrap_or(0);
    // SAFETY: all zero is an empty request.
    let mut request: libc::clone_args = unsafe { std::mem::zeroed() };
    request.exit_signal = libc::SIGCHLD as u64;
    if number != 0 {
        (request.set_tid, request.set_tid_size) = ((&raw const number) as u64, 1);
    }
    // SAFETY: a fork; the child asks the keeper, a thread of its parent, over a socket, and ends.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw mut request, size_of::<libc::clone_args>()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the child ends here.
        0 => unsafe { libc::_exit(work()) },
        child => Ok(child as i32),
    }
}

fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: there is room for a status.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {}
    libc::WEXITSTATUS(status)
}

fn become_nobody() {
    // SAFETY: changes this thread alone.
    let changed = unsafe {
        libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
            && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
    };
    assert!(changed, "root may become anybody");
}

#[test]
fn who_gets_a_dead_processs_number_gets_none_of_its_rights() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped (rights): only root can try what others may do, and choose a process's number");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("ring.sock");
    let policy = Policy { read: Reach::Process, ..Policy::default() };
    let geometry = Geometry::new(RingKind::D, 4096, 16);
    let options = RingOptions { policy, ..RingOptions::new(geometry) };
    let at = path.clone();
    let (begin, begun) = std::sync::mpsc::channel();
    let (owner_is, owner) = std::sync::mpsc::channel();
    let keeping = std::thread::spawn(move || {
        become_nobody();
        let mut keeper = Keeper::create(&at, options).unwrap();
        begin.send(()).unwrap();
        keeper.set_owner_process(owner.recv().unwrap());
        begin.send(()).unwrap();
        keeper.run().unwrap();
    });
    begun.recv().unwrap();
    let named = Named::at(path.to_str().unwrap()).unwrap();
    // 0: it may ask for the ring's state; 1: it may not.
    let asks = || {
        become_nobody();
        match named.state() {
            Ok(_) => 0,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => 1,
            Err(_) => 2,
        }
    };
    let (go_on, mut going_on) = (io::pipe().unwrap(), [0]);
    let first = child(None, || {
        let _ = io::Read::read(&mut &go_on.0, &mut going_on);
        asks()
    })
    .unwrap();
    owner_is.send(first).unwrap();
    begun.recv().unwrap();
    io::Write::write_all(&mut &go_on.1, b"x").unwrap();
    assert_eq!(wait(first), 0, "the owner itself");
    match child(Some(first), asks) {
        Ok(second) => assert_eq!((second, wait(second)), (first, 1), "another with its number"),
        Err(error) => eprintln!("skipped (rights): no process can be given a number here: {error}"),
    }
    named.remove().unwrap();
    keeping.join().unwrap();
}
