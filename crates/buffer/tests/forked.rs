//! A forked child has everything its parent had, except the threads. A program of its
//! own: a fork copies whatever locks other tests hold.

#![cfg(not(loom))]

use buffer::pipe::Local;
use buffer::ring::memory::Geometry;
use buffer::ring::{RingKind, Signalling};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn a_child_lets_go_of_descriptors_whose_threads_it_has_not() {
    let geometry = Geometry::new(RingKind::D, 4096, 16);
    let (_kept, mut writer, mut reader) = Local::pair(geometry, Signalling::Every).unwrap();
    reader.set_non_blocking(true);
    reader.poll_fd().unwrap();
    writer.poll_fd(1).unwrap();
    // SAFETY: a fork; the child closes two descriptors, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        reader.close_poll_fd();
        writer.close_poll_fd();
        // SAFETY: the child ends here.
        unsafe { libc::_exit(7) };
    }
    let began = Instant::now();
    let mut status = 0;
    // SAFETY: the child is ours, and there is room for its status.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > Duration::from_secs(5) {
            // SAFETY: the child is ours and has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "it waits for a thread of its parent's");
    // The parent goes on undisturbed.
    writer.write_all(b"more").unwrap();
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 4);
}
