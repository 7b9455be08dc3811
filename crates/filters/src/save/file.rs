//! One output file. It has `.part` behind its name until it is complete, so half a capture is not taken for a whole
//! one, and a run that fails does not destroy an existing file.

use crate::parts::held_folder::HeldFolder;
use crate::parts::system::reason;
use crate::parts::target::{Target, open_special, part_of};
use base::terminal;
use filter::Failure;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Open {
    file: File,
    /// For messages.
    path: PathBuf,
    /// The final name and the name during writing; `None` for a device or a pipe.
    names: Option<(OsString, OsString)>,
    bytes: u64,
}

impl Open {
    /// Creates the file `name` in the target's folder. Makes system calls.
    pub(super) fn new(target: &Target, name: &OsStr, overwrite: bool) -> Result<Open, Box<Failure>> {
        let folder = match target {
            Target::In(folder, _) => folder,
            Target::Special(path) => {
                let file = open_special(path).map_err(|error| cannot_write(path, &error))?;
                return Ok(Open { file, path: path.clone(), names: None, bytes: 0 });
            }
        };
        let path = folder.path_of(name);
        if !overwrite && folder.sort_of(name).is_some() {
            return Err(failure(format!("{} exists; overwrite=yes replaces it", terminal::name(path))));
        }
        let part = part_of(name);
        match if overwrite { folder.create_or_empty(&part) } else { folder.create(&part) } {
            Ok(file) => Ok(Open { file, path, names: Some((name.to_os_string(), part)), bytes: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(failure(format!(
                "{} exists: another program writes it, or was stopped half way; remove it, or let overwrite=yes do so",
                terminal::name(folder.path_of(&part))
            ))),
            Err(error) => Err(cannot_write(&folder.path_of(&part), &error)),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether bytes already written can be changed.
    pub(super) fn can_patch(&self) -> bool {
        self.names.is_some()
    }

    /// Writes the buffer and empties it. Makes system calls.
    pub(super) fn write(&mut self, buffer: &mut Vec<u8>) -> Result<(), Box<Failure>> {
        self.file.write_all(buffer).map_err(|error| cannot_write(&self.path, &error))?;
        self.bytes += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Changes bytes at an offset: in the file, or in the buffer if they are not written yet.
    pub(super) fn patch(&mut self, bytes: [u8; 4], offset: u64, buffer: &mut [u8]) -> Result<(), Box<Failure>> {
        if self.bytes > offset {
            return self.file.write_all_at(&bytes, offset).map_err(|error| cannot_write(&self.path, &error));
        }
        let place =
            usize::try_from(offset - self.bytes).ok().and_then(|at| buffer.get_mut(at..)?.get_mut(..bytes.len()));
        if let Some(place) = place {
            place.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// After a failed write: truncates the file to the last buffer written completely. False: there is none.
    pub(super) fn cut(&self) -> bool {
        self.bytes > 0 && self.file.set_len(self.bytes).is_ok()
    }

    /// Completes the file and gives it its final name.
    pub(super) fn close(&self, folder: Option<&HeldFolder>, overwrite: bool) -> Result<(), Box<Failure>> {
        let (Some((name, part)), Some(folder)) = (&self.names, folder) else { return Ok(()) };
        folder.rename(part, name, overwrite).map_err(|error| {
            let (path, part) = (terminal::name(&self.path), folder.path_of(part));
            failure(match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    format!("{path} exists by now; the output is in {}", terminal::name(part))
                }
                _ => format!("cannot name {path}: {}; the output is in {}", reason(&error), terminal::name(part)),
            })
        })
    }

    /// The path for messages. `named`: it has its final name.
    pub(super) fn path(&self, folder: Option<&HeldFolder>, named: bool) -> PathBuf {
        match (&self.names, folder) {
            (Some((_, part)), Some(folder)) if !named => folder.path_of(part),
            _ => self.path.clone(),
        }
    }

    /// Removes an incomplete file.
    pub(super) fn discard(self, folder: Option<&HeldFolder>) {
        if let (Some((_, part)), Some(folder)) = (&self.names, folder) {
            // Ignore an error: a worse failure is being reported already.
            let _ = folder.remove(part);
        }
    }
}

#[cold]
fn cannot_write(path: &Path, error: &io::Error) -> Box<Failure> {
    failure(format!("cannot write {}: {}", terminal::name(path), reason(error)))
}

fn failure(text: String) -> Box<Failure> {
    Box::new(Failure::System(text))
}
