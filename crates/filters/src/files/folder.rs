//! The folder of the files and its index, or a [store](super::store), which has side-cars in place of an index. All files in
//! it have plain names.

use super::store;
use crate::parts::held_folder::HeldFolder;
use crate::parts::room::Room;
use crate::parts::system::reason;
use base::terminal;
use filter::{Failure, ParamError};
use rustix::fs::{FallocateFlags, FileType};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

const INDEX: &str = "index.jsonl";

/// Index lines are written when they have this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes reserved on the disk for further lines, so that the lines of the last files fit when the disk is full.
const RESERVE_BYTES: u64 = 2 * PIECE_BYTES as u64;

/// Bytes of a line that are read from an earlier index: enough for the longest name. The rest of the line is skipped.
const LINE_HEAD_BYTES: u64 = 512;

#[derive(Debug)]
pub(super) struct Folder {
    held: HeldFolder,
    room: Room,
    overwrite: bool,
    index: Index,
    /// Lines that wait to be written.
    lines: Vec<u8>,
}

#[derive(Debug)]
enum Index {
    /// No file was created yet.
    None,
    /// The index, its bytes, and where its reserved room ends.
    Open(File, u64, u64),
    /// The index could not be created. The failure was reported.
    Failed,
    /// A store has no index.
    Store,
}

pub(super) fn failure(what: &str, path: &Path, error: &io::Error) -> Box<Failure> {
    Box::new(Failure::System(format!("cannot {what} `{}`: {}", terminal::name(path), reason(error))))
}

impl Folder {
    /// Opens the folder and checks that it takes files. Dropping it removes new folders, unless the run begins.
    pub(super) fn open(dir: &str, overwrite: bool, room: Room) -> Result<Folder, ParamError> {
        let held = hold("dir", dir, &room)?;
        if !overwrite && held.sort_of(OsStr::new(INDEX)).is_some() {
            let help = "choose another folder, or overwrite=yes to remove the files which that index lists";
            let message = format!("`{}` holds the index of an earlier run", terminal::name(dir));
            return Err(ParamError { key: Some("dir"), ..ParamError::system(message) }.with_help(help));
        }
        Ok(Folder { held, room, overwrite, index: Index::None, lines: Vec::new() })
    }

    /// Opens a store, likewise. Other runs may write to it at the same time.
    pub(super) fn open_store(dir: &str, room: Room) -> Result<Folder, ParamError> {
        let held = hold("store", dir, &room)?;
        Ok(Folder { held, room, overwrite: false, index: Index::Store, lines: Vec::new() })
    }

    pub(super) fn is_store(&self) -> bool {
        matches!(self.index, Index::Store)
    }

    /// Stores a file of this run under its digest. `true`: the content is new in the store. `fill` gets the file's new name,
    /// and appends the side-car's text without a line break.
    pub(super) fn store(
        &mut self,
        part: &str,
        digest: &str,
        (seconds, number): (u64, u64),
        fill: impl FnOnce(&mut Vec<u8>, &str),
    ) -> Result<bool, Box<Failure>> {
        let (folder, name) = store::place(digest);
        let path = format!("{folder}/{name}");
        let failed = |error: io::Error| failure("store", &self.path(&path), &error);
        let new = store::keep(&self.held, part, digest).map_err(failed)?;
        let mut line = std::mem::take(&mut self.lines);
        fill(&mut line, &path);
        line.push(b'\n');
        let added = store::add_side_car(&self.held, digest, seconds, number, &line);
        self.room.add(line.len() as u64);
        line.clear();
        self.lines = line;
        added.map_err(|error| failure("write a side-car of", &self.path(&path), &error))?;
        Ok(new)
    }

    /// Creates an empty index, once. Before that, removes an earlier run's files if `overwrite` permits it.
    pub(super) fn begin(&mut self) -> Result<(), Box<Failure>> {
        if self.is_store() {
            self.held.keep();
        }
        if matches!(self.index, Index::None) {
            self.index = Index::Failed;
            self.held.keep();
            let index = OsStr::new(INDEX);
            if self.overwrite && self.held.sort_of(index).is_some() {
                self.remove_listed().map_err(|error| failure("remove what is listed in", &self.path(INDEX), &error))?;
            }
            let made = self.held.create(index).and_then(|_| self.held.append(index));
            let made = made.and_then(|index| reserve(&index, 0).map(|reserved| Index::Open(index, 0, reserved)));
            self.index = made.map_err(|error| failure("create", &self.path(INDEX), &error))?;
        }
        Ok(())
    }

    /// Whether the index could not be created. That was reported already.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.index, Index::Failed)
    }

    /// Removes the files that an earlier index lists, then the index. Removes only plain files in the folder, and only names
    /// that a run may give, so a forged index cannot harm other files.
    fn remove_listed(&self) -> io::Result<()> {
        let mut reader = BufReader::new(self.held.read(OsStr::new(INDEX))?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(LINE_HEAD_BYTES).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if let Some(name) = listed_name(&line).map(OsStr::new)
                && self.held.sort_of(name) == Some(FileType::RegularFile)
            {
                self.held.remove(name)?;
            }
            if line.last() != Some(&b'\n') {
                reader.skip_until(b'\n')?;
            }
        }
        self.held.remove(OsStr::new(INDEX))
    }

    /// Creates a new file.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        self.held.create(OsStr::new(name))
    }

    /// Opens a file of this run again, to append to it.
    pub(super) fn append(&self, name: &str) -> io::Result<File> {
        self.held.append(OsStr::new(name))
    }

    /// Removes a file of this run.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        self.held.remove(OsStr::new(name))
    }

    /// The path of a file, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.held.path_of(OsStr::new(name))
    }

    /// Bytes that the request may still write here, index included.
    pub(super) fn room_left(&self) -> u64 {
        self.room.left()
    }

    /// Takes room for `bytes` about to be written, beside `beside` others. An error: too little of the file system would
    /// stay free.
    pub(super) fn take_room(&mut self, bytes: u64, beside: u64) -> Result<(), Box<Failure>> {
        self.room.take(bytes, beside, self.held.as_fd(), self.held.path())
    }

    /// The notice that the request's limit was reached.
    pub(super) fn room_notice(&self) -> String {
        self.room.notice(self.held.path())
    }

    /// Lets `fill` append a line to the index, without its line break.
    pub(super) fn list(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), Box<Failure>> {
        let before = self.lines.len();
        fill(&mut self.lines);
        self.lines.push(b'\n');
        self.room.add((self.lines.len() - before) as u64);
        if self.lines.len() >= PIECE_BYTES { self.write_index() } else { Ok(()) }
    }

    /// Writes the index lines that wait. After a failure they wait for another try.
    pub(super) fn write_index(&mut self) -> Result<(), Box<Failure>> {
        match &mut self.index {
            Index::Open(file, len, reserved) => {
                if let Err(error) = file.write_all(&self.lines) {
                    // Cut off a partial line, which would spoil the next line. If that fails too, the index is lost anyway.
                    drop(file.set_len(*len));
                    return Err(failure("write", &self.path(INDEX), &error));
                }
                *len += self.lines.len() as u64;
                if *reserved < *len + RESERVE_BYTES / 2 {
                    // If there is no room, the next write reports it.
                    *reserved = reserve(file, *len).unwrap_or(*reserved);
                }
            }
            Index::None | Index::Failed | Index::Store => {}
        }
        self.lines.clear();
        Ok(())
    }

    /// Ends the index: writes the lines that wait, and returns the reserved room.
    pub(super) fn end_index(&mut self) -> Result<(), Box<Failure>> {
        let written = self.write_index();
        if let Index::Open(file, len, _) = &self.index {
            // A failure costs only room.
            let _ = file.set_len(*len);
        }
        written
    }
}

/// Opens the folder that a parameter names, and checks that it takes files.
fn hold(key: &'static str, dir: &str, room: &Room) -> Result<HeldFolder, ParamError> {
    let (path, dir) = (Path::new(dir), terminal::name(dir));
    let system = |message: String| ParamError { key: Some(key), ..ParamError::system(message) };
    if path.exists() && !path.is_dir() {
        return Err(system(format!("`{dir}` is not a folder")));
    }
    let held = HeldFolder::open_or_make(path).and_then(|held| held.probe().map(|()| held));
    let held = held.map_err(|error| system(format!("cannot create files in `{dir}`: {}", reason(&error))))?;
    room.check(key, held.as_fd(), path)?;
    Ok(held)
}

/// Reserves room behind the first `len` bytes of an index. Returns its end; `u64::MAX` if the file system cannot reserve.
fn reserve(index: &File, len: u64) -> io::Result<u64> {
    match rustix::fs::fallocate(index, FallocateFlags::KEEP_SIZE, len, RESERVE_BYTES) {
        Ok(()) => Ok(len + RESERVE_BYTES),
        Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
        Err(_) => Ok(u64::MAX),
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}

/// The name at the beginning of an index line. `None`: no run gives such a name.
fn listed_name(line: &[u8]) -> Option<&str> {
    let rest = line.strip_prefix(br#"{"file":""#)?;
    let name = &rest[..rest.iter().position(|byte| *byte == b'"')?];
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let ours =
        name.iter().all(plain) && name.first().is_some_and(u8::is_ascii_alphanumeric) && name != INDEX.as_bytes();
    ours.then(|| std::str::from_utf8(name).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_are_removed() {
        let check = |line: &str, expected: Option<&str>| assert_eq!(listed_name(line.as_bytes()), expected, "{line}");
        check(r#"{"file":"http-00000001-response.html","kind":"http"}"#, Some("http-00000001-response.html"));
        check(r#"{"file":"a--6c1"}"#, Some("a--6c1"));
        for bad in ["", ".", "..", "../x", "/etc/passwd", "a/b", "index.jsonl", ".hidden", "a b", "a\\u0041", "-rf"] {
            check(&format!(r#"{{"file":"{bad}"}}"#), None);
        }
        check(r#"{"kind":"http","file":"a"}"#, None);
        check(r#"{"file":"a"#, None);
        check("", None);
    }
}
