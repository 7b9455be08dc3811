//! FIFOs that connect a ring to programs that cannot use rings.

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

/// A FIFO at a path. If `make` created it, dropping it removes it.
pub(super) struct Fifo {
    path: PathBuf,
    made: bool,
}

impl Drop for Fifo {
    fn drop(&mut self) {
        if self.made {
            // It may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

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
    /// Opens the FIFO to read. Several programs may write to it, one after the other.
    pub(super) fn open_to_read(self) -> Result<Input, CommandError> {
        let file = open_reading_end(&self.path).map_err(|error| failed(&self.path, "open", error))?;
        Ok(Input { fifo: self, file })
    }

    /// Opens the FIFO to write, once a program opens it to read. `None`: `stop` was set before.
    pub(super) fn open_to_write(&self, stop: &Stop) -> Result<Option<OwnedFd>, CommandError> {
        // Only open(2) notices when a reader opens the FIFO. It cannot wait for another descriptor at the same time, so
        // a thread calls it.
        let (opened, open) = mpsc::channel();
        let (done, is_done) = io::pipe().map_err(|error| failed(&self.path, "open", error))?;
        let path = self.path.clone();
        std::thread::spawn(move || {
            let fifo = rustix::fs::open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            let fifo = fifo.and_then(|fifo| {
                rustix::fs::fcntl_setfl(&fifo, OFlags::WRONLY | OFlags::NONBLOCK)?;
                Ok(fifo)
            });
            // If the command is ending, no thread receives it.
            let _ = opened.send(fifo);
            drop(is_done);
        });
        while !stop.is_set() {
            // The thread's closing of `is_done` makes `done` readable.
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

pub(super) struct Input {
    fifo: Fifo,
    file: OwnedFd,
}

impl Input {
    /// Prepares for the next writer after all writers have closed the FIFO. The reopened FIFO is quiet until one opens
    /// it. The old descriptor closes only after that, so a program that writes meanwhile always has a reader.
    pub(super) fn await_next(&mut self) -> Outcome {
        // The same FIFO, even if its name has gone to another file.
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

/// Standard output, opened so that the command can give up writing to a full pipe. A pipe is reopened for that: other
/// processes share the flags of the inherited descriptor.
pub(super) fn standard_output() -> io::Result<OwnedFd> {
    let stdout = rustix::stdio::stdout();
    if FileType::from_raw_mode(rustix::fs::fstat(stdout)?.st_mode) == FileType::Fifo {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        // Reopening fails for another user's pipe, and for a pipe without a reader. Then use the descriptor as it is.
        if let Ok(again) = rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()) {
            return Ok(again);
        }
    }
    stdout.try_clone_to_owned()
}

/// Whether all readers of this file have gone. Always no for regular files.
pub(super) fn is_closed(file: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&file, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

pub(super) fn is_readable(file: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Interrupted: the caller checks its flag and asks again.
    rustix::event::poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Writes all bytes, however slowly they are read. `false`: `stop` was set before. A reader that has gone is an error.
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
