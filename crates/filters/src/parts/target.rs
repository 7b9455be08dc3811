//! Output files of sinks, checked before the run begins. A run does not begin if its first write would fail, or if it
//! would replace a file without permission.

use crate::parts::held_folder::HeldFolder;
use crate::parts::room::Room;
use crate::parts::system::reason;
use base::terminal;
use filter::{Failure, ParamError};
use rustix::fs::{Access, FileType};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The fate of a regular file that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: the request is refused.
    Stays,
    /// Truncates it and writes to it.
    Emptied,
    /// Gives its name to a new file, or uses other names.
    Replaced,
}

/// An output file.
#[derive(Debug)]
pub enum Target {
    /// A regular file of this name, or a series named after it, in this folder.
    In(HeldFolder, OsString),
    /// A device or a named pipe, opened as it is.
    Special(PathBuf),
}

impl Target {
    /// Finds before the run what would fail at the first write. Makes system calls; leaves no file behind.
    pub fn check(key: &'static str, path: &Path, existing: Existing, room: &Room) -> Result<Target, ParamError> {
        let name = terminal::name(path);
        let system = |message: String| ParamError { key: Some(key), ..ParamError::system(message) };
        let cannot = |error: io::Error| system(format!("cannot write {name}: {}", reason(&error)));
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(system(format!("{name} is a folder"))),
            Ok(found) if !found.is_file() => {
                rustix::fs::access(path, Access::WRITE_OK).map_err(|error| cannot(error.into()))?;
                return Ok(Target::Special(path.to_path_buf()));
            }
            _ => {}
        }
        let Some(file) = path.file_name() else { return Err(system(format!("{name} is not the name of a file"))) };
        let folder = path.parent().unwrap_or(Path::new("."));
        let held = HeldFolder::open(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => {
                system(format!("cannot write {name}: {} is no folder", terminal::name(folder)))
            }
            _ => cannot(error),
        })?;
        let found = held.sort_of(file);
        match (found, existing) {
            (Some(FileType::Symlink), _) => {
                return Err(system(format!("{name} is a symbolic link")).with_help("name the file that it leads to"));
            }
            (Some(_), Existing::Stays) => {
                return Err(system(format!("{name} exists")).with_help("overwrite=yes replaces it"));
            }
            (Some(_), Existing::Emptied) => drop(held.append(file).map_err(cannot)?),
            _ => held.probe().map_err(cannot)?,
        }
        room.check(key, held.as_fd(), path)?;
        Ok(Target::In(held, file.to_os_string()))
    }

    /// The folder of a regular file; `None` for a device or a pipe.
    pub fn folder(&self) -> Option<&HeldFolder> {
        match self {
            Target::In(folder, _) => Some(folder),
            Target::Special(_) => None,
        }
    }

    /// Its path, for messages.
    pub fn path(&self) -> PathBuf {
        match self {
            Target::In(folder, name) => folder.path_of(name),
            Target::Special(path) => path.clone(),
        }
    }

    /// Counts `bytes` as written. Error: too little of the file system would stay free.
    pub fn take_room(&self, room: &mut Room, bytes: u64) -> Result<(), Box<Failure>> {
        match self {
            Target::In(folder, name) => room.take(bytes, 0, folder.as_fd(), &folder.path_of(name)),
            Target::Special(_) => {
                room.add(bytes);
                Ok(())
            }
        }
    }
}

/// Opens a device or named pipe. Does not touch a regular file that has taken its place.
pub fn open_special(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.is_file() {
        return Err(io::Error::other("another file has come into its place"));
    }
    Ok(file)
}

/// The name that a file has while it is being written.
pub fn part_of(name: &OsStr) -> OsString {
    let mut part = name.to_os_string();
    part.push(".part");
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::Params;

    #[test]
    fn only_regular_files_are_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "x").unwrap();
        std::os::unix::fs::symlink("old", folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("broken")).unwrap();
        let check = |name: &str, existing: Existing, expected: Result<(), &str>| {
            let checked = Target::check("file", &folder.path().join(name), existing, &Room::new(&Params::new()));
            let text = checked.map(drop).map_err(|error| error.message.rsplit_once('/').unwrap().1.to_string());
            assert_eq!(text, expected.map_err(str::to_string), "{name}");
        };
        use Existing::{Emptied, Replaced, Stays};
        check("new", Stays, Ok(()));
        check("old", Emptied, Ok(()));
        check("old", Replaced, Ok(()));
        check("old", Stays, Err("old exists"));
        check("link", Emptied, Err("link is a symbolic link"));
        check("broken", Replaced, Err("broken is a symbolic link"));
        check("", Replaced, Err(" is a folder"));
        check("old/new", Stays, Err("old is no folder"));
        check("none/new", Emptied, Err("new: No such file or directory"));
        check("/dev/null", Stays, Ok(()));
        assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"x");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// Another process replaces the pipe by a regular file after the run began.
    #[test]
    fn what_is_no_device_any_more_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("was-a-pipe");
        fs::write(&path, "precious").unwrap();
        assert!(open_special(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
