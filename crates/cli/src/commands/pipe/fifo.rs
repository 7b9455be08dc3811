//! A FIFO for programs that know nothing of rings.

use super::stop::Stop;
use crate::exit::{CommandError, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

fn failed(path: &Path, what: &str, error: impl Into<io::Error>) -> CommandError {
    CommandError::Failed(format!("cannot {what} `{}`: {}", path.display(), error.into()))
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
pub(super) fn make(path: &Path) -> Result<Fifo, CommandError> {
    match rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
        Ok(()) => Ok(Fifo { path: path.to_owned(), made: true }),
        Err(rustix::io::Errno::EXIST) => {
            let found = rustix::fs::stat(path).map_err(|error| failed(path, "look at", error))?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Fifo {
                return Ok(Fifo { path: path.to_owned(), made: false });
            }
            Err(CommandError::Failed(format!("`{}` is there and no FIFO", path.display())))
        }
        Err(error) => Err(failed(path, "make", error)),
    }
}

impl Fifo {
    /// Opens it to read what one program after another writes to it.
    pub(super) fn open_to_read(self) -> Result<Input, CommandError> {
        let file = open_reading_end(&self.path).map_err(|error| failed(&self.path, "open", error))?;
        Ok(Input { fifo: self, file })
    }

    /// Opens it to write once somebody reads it; `None` where that was given up.
    pub(super) fn open_to_write(&self, stop: &Stop) -> Result<Option<OwnedFd>, CommandError> {
        // Nothing but open(2) itself tells when somebody opens the other end, and it hears of no descriptor: it waits aside.
        let (opened, open) = mpsc::channel();
        let (done, is_done) = io::pipe().map_err(|error| failed(&self.path, "open", error))?;
        let path = self.path.clone();
        std::thread::spawn(move || {
            let fifo = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            let fifo = fifo.and_then(|fifo| {
                rustix::fs::fcntl_setfl(&fifo, OFlags::WRONLY | OFlags::NONBLOCK)?;
                Ok(fifo)
            });
            // Nobody waits for it any more when the program is about to end.
            let _ = opened.send(fifo);
            drop(is_done);
        });
        while !stop.is_set() {
            // Closed at the other end, it can be read.
            stop.sleep(&[(done.as_fd(), PollFlags::IN)])?;
            match open.try_recv() {
                Ok(fifo) => return fifo.map(Some).map_err(|error| failed(&self.path, "open", error)),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => break,
            }
        }
        Ok(None)
    }
}

fn open_reading_end(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// A FIFO that is read.
pub(super) struct Input {
    fifo: Fifo,
    file: OwnedFd,
}

impl Input {
    /// Everybody who wrote has closed it. The next one is waited for: opened anew, it is quiet until then. At no time is it
    /// not open, so that nobody who writes meanwhile is told that nobody reads.
    pub(super) fn await_next(&mut self) -> Outcome {
        // The same one, whatever has its name by now.
        let same = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        self.file = open_reading_end(&same).map_err(|error| failed(&self.fifo.path, "open", error))?;
        Ok(())
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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

/// Is there something to read, now?
pub(super) fn is_readable(file: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Interrupted: the caller looks at its flag and asks again.
    rustix::event::poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Writes all of it, however slowly it is read. `false` where that was given up; a reader that went is an error.
pub(super) fn write_all(
    file: impl AsFd,
    mut bytes: &[u8],
    stop: &Stop,
) -> Result<Result<bool, io::Error>, CommandError> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => stop.sleep(&[(file.as_fd(), PollFlags::OUT)])?,
            Err(error) => return Ok(Err(error.into())),
        }
        if stop.is_set() && !bytes.is_empty() {
            return Ok(Ok(false));
        }
    }
    Ok(Ok(true))
}
