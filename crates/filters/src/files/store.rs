//! A store: each content once, as `ab/abcdef...` by its SHA-256, with a side-car for each time it was seen (as Suricata's file
//! store, version 2, has them). Not the writing: a file comes here when it is whole and closed.

use crate::parts::held_folder::HeldFolder;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};

/// Side-cars of one content and one second that have the same number, of runs that share a store.
const SIDE_CARS: u64 = 10_000;

/// What a file is called before its hash is known. What follows a folder leaves such names alone.
pub(super) fn part_name(number: u64) -> String {
    format!(".streamline-{}-{number:08}.part", std::process::id())
}

/// Where a content of this digest lies, in hexadecimal digits: its folder and its name there.
pub(super) fn place(digest: &str) -> (&str, &str) {
    (digest.get(..2).unwrap_or(digest), digest)
}

/// Moves a file to its place. False where its content is there already: then the file is removed.
pub(super) fn keep(store: &HeldFolder, part: &str, digest: &str) -> io::Result<bool> {
    let (folder, name) = place(digest);
    let folder = store.folder(OsStr::new(folder))?;
    match store.move_file(OsStr::new(part), &folder, OsStr::new(name), false) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => store.remove(OsStr::new(part)).map(|()| false),
        Err(error) => Err(error),
    }
}

/// Writes a side-car beside a content, for file `number` of a run, seen at `seconds` since 1970. One that says the same stays
/// alone; where another run's says something else, the next number is taken.
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
