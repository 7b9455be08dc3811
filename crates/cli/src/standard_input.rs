//! Standard input as the source of a request that names none: only if a capture comes there.

use crate::hints;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use std::io::{self, BufRead};

/// Silence after which a person is told what the command waits for.
const SILENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Whether standard input is a file, pipe or socket that begins with a capture. Takes no bytes from it: they stay in the
/// buffer of [`io::stdin`], from which the filter `pcap` reads. Waits for the first bytes of a pipe or socket, and says so
/// after a second.
pub(crate) fn is_capture() -> bool {
    let stdin = io::stdin();
    // A terminal, /dev/null and a closed descriptor are no input that anyone gave.
    let kind = rustix::fs::fstat(&stdin).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if !matches!(kind, Ok(FileType::RegularFile | FileType::Fifo | FileType::Socket)) {
        return false;
    }
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    if rustix::event::poll(&mut polled, Some(&SILENCE)) == Ok(0) {
        tell!("note: the request has no source: waiting for a capture on standard input");
    }
    match stdin.lock().fill_buf() {
        Ok([]) | Err(_) => false,
        Ok(first) if hints::begins_capture(first) => true,
        Ok(_) => {
            tell!("note: standard input is not read: it does not begin as a capture");
            false
        }
    }
}
