//! A FIFO for programs that know nothing of rings.

use super::{Trouble, stop};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use streamline::StopFlag;

fn failed(path: &Path, what: &str, error: impl Into<io::Error>) -> Trouble {
    Trouble::Failed(format!("cannot {what} `{}`: {}", path.display(), error.into()))
}

/// Makes the FIFO, if it is not there.
pub(super) fn make(path: &Path) -> Result<(), Trouble> {
    match rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => {
            let found = rustix::fs::stat(path).map_err(|error| failed(path, "look at", error))?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Fifo {
                return Ok(());
            }
            Err(Trouble::Failed(format!("`{}` is there and no FIFO", path.display())))
        }
        Err(error) => Err(failed(path, "make", error)),
    }
}

/// Opens a FIFO to read what one program after another writes to it.
pub(super) fn open_to_read(path: &Path) -> Result<OwnedFd, Trouble> {
    // Also open for writing by ourselves, so that it does not end when one of them closes it.
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .map_err(|error| failed(path, "open", error))
}

/// Opens a FIFO to write once somebody reads it; `None` where that was given up.
pub(super) fn open_to_write(path: &Path, stop: &StopFlag) -> Result<Option<OwnedFd>, Trouble> {
    while !stop.is_set() {
        match rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
            Ok(fifo) => return Ok(Some(fifo)),
            // Nobody has opened it, and nothing says when somebody does.
            Err(rustix::io::Errno::NXIO) => std::thread::sleep(std::time::Duration::from_millis(50)),
            Err(error) => return Err(failed(path, "open", error)),
        }
    }
    Ok(None)
}

/// Is there something to read (or room to write)? Waits a while for it.
pub(super) fn is_ready(file: impl AsFd, flags: PollFlags, timeout_ms: u16) -> bool {
    let timeout = Timespec { tv_sec: i64::from(timeout_ms / 1000), tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000 };
    // Interrupted: the caller looks at its flag and asks again.
    rustix::event::poll(&mut [PollFd::new(&file, flags)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Writes all of it, however slowly it is read. `false` where that was given up; a reader that went is an error.
pub(super) fn write_all(file: impl AsFd, mut bytes: &[u8], stop: &StopFlag) -> io::Result<bool> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                is_ready(&file, PollFlags::OUT, stop::look_ms());
            }
            Err(error) => return Err(error.into()),
        }
        if stop.is_set() && !bytes.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}
