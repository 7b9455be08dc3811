//! One file being written: under its name with `.part` behind it until it is whole, so that nobody takes half a capture
//! for a capture, and nothing that exists is lost to a run that fails.

use crate::parts::system::reason;
use filter::Failure;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    file: File,
    path: PathBuf,
    /// What it is called while it is written; none where it is a device or a pipe.
    part: Option<PathBuf>,
    bytes: u64,
}

impl Open {
    /// Begins a file. Makes system calls.
    pub(super) fn new(path: PathBuf, overwrite: bool) -> Result<Open, Box<Failure>> {
        let existing = fs::metadata(&path).ok();
        if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
            let file = OpenOptions::new().write(true).open(&path).map_err(|error| cannot_write(&path, &error))?;
            return Ok(Open { file, path, part: None, bytes: 0 });
        }
        if existing.is_some() && !overwrite {
            return Err(failure(format!("{} exists; overwrite=yes replaces it", path.display())));
        }
        let mut part = OsString::from(&path);
        part.push(".part");
        let part = PathBuf::from(part);
        let mut options = OpenOptions::new();
        options.write(true);
        let options = if overwrite { options.create(true).truncate(true) } else { options.create_new(true) };
        match options.open(&part) {
            Ok(file) => Ok(Open { file, path, part: Some(part), bytes: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(failure(format!(
                "{} exists: somebody writes it, or was stopped half way; remove it, or let overwrite=yes do so",
                part.display()
            ))),
            Err(error) => Err(cannot_write(&path, &error)),
        }
    }

    /// Bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Can what was written be changed?
    pub(super) fn can_patch(&self) -> bool {
        self.part.is_some()
    }

    /// Writes the buffer and empties it. Makes system calls.
    pub(super) fn write(&mut self, buffer: &mut Vec<u8>) -> Result<(), Box<Failure>> {
        self.file.write_all(buffer).map_err(|error| self.failed(&error))?;
        self.bytes += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Changes bytes at an offset, in the buffer where they were not written yet.
    pub(super) fn patch(&mut self, bytes: [u8; 4], offset: u64, buffer: &mut [u8]) -> Result<(), Box<Failure>> {
        if self.bytes > offset {
            return self.file.write_all_at(&bytes, offset).map_err(|error| self.failed(&error));
        }
        let place =
            usize::try_from(offset - self.bytes).ok().and_then(|at| buffer.get_mut(at..)?.get_mut(..bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Ends the file and gives it its name.
    pub(super) fn close(self, overwrite: bool) -> Result<(), Box<Failure>> {
        let Some(part) = &self.part else { return Ok(()) };
        if !overwrite && self.path.exists() {
            let (path, part) = (self.path.display(), part.display());
            return Err(failure(format!("{path} exists by now; what was written is in {part}")));
        }
        fs::rename(part, &self.path).map_err(|error| self.failed(&error))
    }

    /// Gives up a file that nobody wants the half of.
    pub(super) fn discard(self) {
        if let Some(part) = &self.part {
            // Nothing depends on it, and something worse is being told already.
            let _ = fs::remove_file(part);
        }
    }

    #[cold]
    fn failed(&self, error: &io::Error) -> Box<Failure> {
        let (path, reason) = (self.path.display(), reason(error));
        failure(match &self.part {
            Some(part) => format!("cannot write {path}: {reason}; what was written is in {}", part.display()),
            None => format!("cannot write {path}: {reason}"),
        })
    }
}

#[cold]
fn cannot_write(path: &Path, error: &io::Error) -> Box<Failure> {
    failure(format!("cannot write {}: {}", path.display(), reason(error)))
}

fn failure(text: String) -> Box<Failure> {
    Box::new(Failure::System(text))
}
