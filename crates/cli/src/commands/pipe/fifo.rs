//! A FIFO for programs that know nothing of rings.

use super::{Trouble, stop};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use streamline::StopFlag;

fn failed(path: &Path, what: &str, error: impl Into<io::Error>) -> Trouble {
    Trouble::Failed(format!("cannot {what} `{}`: {}", path.display(), error.into()))
}

/// A FIFO at its path; who made it removes it when done.
pub(super) struct Fifo {
    path: PathBuf,
    made: bool,
}

impl Drop for Fifo {
    fn drop(&mut self) {
        if self.made {
            // That it is gone already is no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the FIFO, if it is not there.
pub(super) fn make(path: &Path) -> Result<Fifo, Trouble> {
    match rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
        Ok(()) => Ok(Fifo { path: path.to_owned(), made: true }),
        Err(rustix::io::Errno::EXIST) => {
            let found = rustix::fs::stat(path).map_err(|error| failed(path, "look at", error))?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Fifo {
                return Ok(Fifo { path: path.to_owned(), made: false });
            }
            Err(Trouble::Failed(format!("`{}` is there and no FIFO", path.display())))
        }
        Err(error) => Err(failed(path, "make", error)),
    }
}

impl Fifo {
    /// Opens it to read what one program after another writes to it.
    pub(super) fn open_to_read(&self) -> Result<OwnedFd, Trouble> {
        // Also open for writing by ourselves, so that it does not end when one of them closes it.
        rustix::fs::open(&self.path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
            .map_err(|error| failed(&self.path, "open", error))
    }

    /// Opens it to write once somebody reads it; `None` where that was given up.
    pub(super) fn open_to_write(&self, stop: &StopFlag) -> Result<Option<OwnedFd>, Trouble> {
        // Nothing but open(2) itself tells when somebody opens the other end, and it hears of no flag: it waits aside.
        let (opened, open) = mpsc::channel();
        let path = self.path.clone();
        std::thread::spawn(move || {
            let fifo = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            let fifo = fifo.and_then(|fifo| {
                rustix::fs::fcntl_setfl(&fifo, OFlags::WRONLY | OFlags::NONBLOCK)?;
                Ok(fifo)
            });
            // Nobody waits for it any more when the program is about to end.
            let _ = opened.send(fifo);
        });
        while !stop.is_set() {
            match open.recv_timeout(stop::LOOK) {
                Ok(fifo) => return fifo.map(Some).map_err(|error| failed(&self.path, "open", error)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(None)
    }
}

/// Standard output, such that writing to a pipe that nobody empties can be given up. A pipe is opened once more for that:
/// its flags are shared with everybody who has it open.
pub(super) fn standard_output() -> io::Result<OwnedFd> {
    let stdout = rustix::stdio::stdout();
    if FileType::from_raw_mode(rustix::fs::fstat(stdout)?.st_mode) == FileType::Fifo {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Another user's pipe may refuse it, and one that nobody reads does: then it is used as it is.
        if let Ok(again) = rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()) {
            return Ok(again);
        }
    }
    stdout.try_clone_to_owned()
}

/// Has everybody gone who could read what is written here? Regular files always say no.
pub(super) fn is_closed(file: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&file, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
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
