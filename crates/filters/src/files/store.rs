//! A store has each content once, as `ab/abcdef...` by its SHA-256, with a side-car for each sighting (as in Suricata's file
//! store, version 2). It takes only whole and closed files.

use crate::parts::held_folder::HeldFolder;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};

/// Limit of side-cars of one content and one second with different numbers, from runs that share a store.
const SIDE_CARS: u64 = 10_000;

/// A file's name before its hash is known. Programs that follow a folder ignore such names.
pub(super) fn part_name(number: u64) -> String {
    format!(".streamline-{}-{number:08}.part", std::process::id())
}

/// The folder and the name of the content with this digest, in hexadecimal digits.
pub(super) fn place(digest: &str) -> (&str, &str) {
    (digest.get(..2).unwrap_or(digest), digest)
}

/// Moves a file to its place. `false`: the store has its content, and the file was removed.
pub(super) fn keep(store: &HeldFolder, part: &str, digest: &str) -> io::Result<bool> {
    let (folder, name) = place(digest);
    let folder = store.folder(OsStr::new(folder))?;
    match store.move_file(OsStr::new(part), &folder, OsStr::new(name), false) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => store.remove(OsStr::new(part)).map(|()| false),
        Err(error) => Err(error),
    }
}

/// Writes a side-car for file `number` of a run, seen at `seconds` since 1970. An equal side-car is not repeated. If another
/// run's side-car has the number, takes the next number.
pub(super) fn add_side_car(store: &HeldFolder, digest: &str, seconds: u64, number: u64, line: &[u8]) -> io::Result<()> {
    let (folder, name) = place(digest);
    let folder = store.folder(OsStr::new(folder))?;
    for number in number..number.saturating_add(SIDE_CARS) {
        let name = format!("{name}.{seconds}.{number}.json");
        match folder.create(OsStr::new(&name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let mut there = Vec::with_capacity(line.len() + 1);
                let file = folder.read(OsStr::new(&name))?;
                file.take(line.len() as u64 + 1).read_to_end(&mut there)?;
                if there == line {
                    return Ok(());
                }
            }
            created => return created?.write_all(line),
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "so are all similar side-cars"))
}
