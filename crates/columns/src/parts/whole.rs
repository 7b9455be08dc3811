//! A file that appears whole or not at all: it has another name until it is complete.

use filters::parts::held_folder::HeldFolder;
use filters::parts::target::part_of;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// A file under way. Dropping it removes it, unless it was kept.
#[derive(Debug)]
pub(crate) struct Whole {
    folder: Arc<HeldFolder>,
    part: OsString,
    file: File,
    is_kept: bool,
}

impl Whole {
    /// Creates `NAME.part` in the folder.
    pub(crate) fn create(folder: Arc<HeldFolder>, name: &OsStr) -> io::Result<Whole> {
        let part = part_of(name);
        let file = folder.create(&part)?;
        Ok(Whole { folder, part, file, is_kept: false })
    }

    /// Gives the complete file its name. If there is a file of that name, `replace` decides: replace it, or fail with
    /// `AlreadyExists`.
    pub(crate) fn keep(&mut self, name: &OsStr, replace: bool) -> io::Result<()> {
        self.folder.rename(&self.part, name, replace)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if !self.is_kept {
            // It may be gone: then there is nothing to remove.
            let _ = self.folder.remove(&self.part);
        }
    }
}
