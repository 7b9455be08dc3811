//! Libraries that the loader preloads into unmodified programs: where they are, and which programs accept them.
//!
//! The loader preloads no library into a program with more rights than its user, nor into one without shared libraries.
//! Both are reported before the program starts: its own error would be misleading.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) struct Library {
    pub(crate) file: &'static str,
    /// The environment variable with its path, if it is not beside this program.
    pub(crate) variable: &'static str,
    pub(crate) package: &'static str,
    pub(crate) what: &'static str,
    /// The advice for a program with rights of its own.
    pub(crate) instead: &'static str,
}

/// A value of LD_PRELOAD that has this library first, then those that LD_PRELOAD already names.
pub(crate) fn before_others(library: PathBuf) -> OsString {
    let mut preload = library.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    preload
}

impl Library {
    pub(crate) fn path(&self) -> Result<PathBuf, String> {
        let Library { file, variable, package, .. } = self;
        if let Some(path) = std::env::var_os(variable) {
            let path = PathBuf::from(path);
            // The loader splits its list at spaces and colons, and searches its own folders for names without a slash.
            return match std::path::absolute(&path) {
                Ok(path) if path.is_file() => loadable(path),
                _ => Err(format!("{variable} names {}, which is no file", path.display())),
            };
        }
        let program = std::env::current_exe().map_err(|error| format!("this program cannot find itself: {error}"))?;
        let folder = program.parent().unwrap_or(Path::new("/"));
        let places = [folder.join(file), folder.join("../lib").join(file), folder.join("../lib/streamline").join(file)];
        match places.into_iter().find_map(|place| place.canonicalize().ok()) {
            Some(path) => loadable(path),
            None => Err(format!(
                "{file} is not in {} nor in the lib folder beside it; build it (`cargo build --release -p {package}`), or say \
             where it is: {variable}=PATH",
                folder.display()
            )),
        }
    }

    /// Whether the loader preloads the library into this program. If not, the error says why, and what to do.
    pub(crate) fn is_heeded_by(&self, path: &Path) -> Result<(), String> {
        let Library { what, instead, .. } = self;
        let shown = path.display();
        let unreadable = |error| format!("{shown} cannot be read: {error}");
        let metadata = path.metadata().map_err(unreadable)?;
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mode = metadata.mode();
        let other_user = mode & 0o4000 != 0 && metadata.uid() != user;
        // Without the group's right to execute, the bit has another meaning.
        let other_group = mode & 0o2010 == 0o2010 && metadata.gid() != group;
        if other_user || other_group {
            return Err(format!(
                "{shown} is setuid or setgid, and such programs ignore preloaded libraries; {instead}"
            ));
        }
        // Root has these capabilities already, so that the loader accepts the library.
        let mut capabilities = [0u8; 64];
        if user != 0
            && rustix::fs::getxattr(path, "security.capability", &mut capabilities).is_ok_and(|length| length > 0)
        {
            return Err(format!(
                "{shown} has file capabilities, and such programs ignore preloaded libraries; {instead}"
            ));
        }
        let mut head = Vec::new();
        match File::open(path) {
            Ok(file) => file.take(4096).read_to_end(&mut head).map_err(unreadable)?,
            // The user may run this program but not read it. Run it: it will report any error.
            Err(_) => return Ok(()),
        };
        match is_static(&head) {
            true => Err(format!("{shown} is linked statically, and loads no libraries; {what}")),
            false => Ok(()),
        }
    }
}

fn loadable(path: PathBuf) -> Result<PathBuf, String> {
    match path.to_string_lossy().contains([' ', ':']) {
        true => Err(format!("{}: the loader takes no path with a space or a colon in it", path.display())),
        false => Ok(path),
    }
}

pub(crate) fn find(program: &OsStr) -> Option<PathBuf> {
    let may_run =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(may_run);
    }
    let paths = std::env::var_os("PATH")
        .unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    std::env::split_paths(&paths).map(|folder| folder.join(program)).find(may_run)
}

/// Whether it is an ELF program without a loader. `head` is the beginning of the file. No for scripts and unknown formats.
fn is_static(head: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| Some(little_endian(head.get(at..at.checked_add(bytes)?)?));
    // Files of other kinds are taken for dynamic.
    let Some(wide) = is_wide(head) else { return false };
    let layout = if wide { [(32, 8), (54, 2), (56, 2)] } else { [(28, 4), (42, 2), (44, 2)] };
    let [Some(first), Some(bytes), Some(count)] = layout.map(|(at, bytes)| number(at, bytes)) else { return false };
    let kinds = (0..count).map(|index| number(first.saturating_add(index.saturating_mul(bytes)), 4));
    let mut kinds = kinds.peekable();
    // If the table of segments is not within `head`, take the program for dynamic.
    kinds.peek().is_some_and(Option::is_some) && !kinds.any(|kind| kind.is_none_or(|kind| kind == PT_INTERP as usize))
}

/// Whether a little-endian ELF program has 64 bits. `None`: another file. `head` is the beginning of the file.
fn is_wide(head: &[u8]) -> Option<bool> {
    match head {
        [0x7f, b'E', b'L', b'F', class @ (1 | 2), 1, ..] => Some(*class == 2),
        _ => None,
    }
}

fn little_endian(field: &[u8]) -> usize {
    field.iter().rev().fold(0, |number: usize, byte| number.wrapping_shl(8) | usize::from(*byte))
}

/// Whether Go's runtimes make this program's system calls. They go past every preloaded library.
pub(crate) fn is_go(path: &Path) -> bool {
    File::open(path)
        .ok()
        .and_then(|file| section_names(&|at, bytes| read_at(&file, at, bytes)))
        .is_some_and(|names| names.split(|byte| *byte == 0).any(|name| name == b".go.buildinfo"))
}

fn read_at(file: &File, at: usize, bytes: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, at as u64).ok()?;
    Some(read)
}

/// The longest table of names that is read.
const NAMES: usize = 1 << 20;

/// The names of a little-endian ELF program's sections, each ended by a zero. `read`: bytes of the file, from an offset.
fn section_names(read: &dyn Fn(usize, usize) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let number = |at: usize, bytes: usize| Some(little_endian(&read(at, bytes)?));
    let wide = is_wide(&read(0, 6)?)?;
    let header = if wide { [(40, 8), (58, 2), (62, 2)] } else { [(32, 4), (46, 2), (50, 2)] };
    let [Some(first), Some(bytes), Some(index)] = header.map(|(at, bytes)| number(at, bytes)) else { return None };
    let names = first.checked_add(index.checked_mul(bytes)?)?;
    let (at, length) = if wide { ((24, 8), (32, 8)) } else { ((16, 4), (20, 4)) };
    let field = |(offset, bytes): (usize, usize)| number(names.checked_add(offset)?, bytes);
    read(field(at)?, field(length)?.min(NAMES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_go_are_known_by_a_section() {
        let check = |names: &[u8], expected: bool| {
            let mut file = vec![0; 64 + 2 * 64];
            file[..6].copy_from_slice(b"\x7fELF\x02\x01");
            // Two sections behind the header, the second one with the names.
            (file[40], file[58], file[60], file[62]) = (64, 64, 2, 1);
            (file[64 + 64 + 24], file[64 + 64 + 32]) = (file.len() as u8, names.len() as u8);
            file.extend(names);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("program");
            for cut in [file.len(), file.len() - 1, 70, 10, 0] {
                std::fs::write(&path, &file[..cut]).unwrap();
                assert_eq!(is_go(&path), expected && cut == file.len(), "{cut}");
            }
        };
        check(b"\0.text\0.go.buildinfo\0.data\0", true);
        check(b"\0.text\0.gone\0", false);
        assert!(!is_go(Path::new("/bin/sh")) && !is_go(Path::new("/no/such/program")));
    }

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (head[32], head[54], head[56]) = (64, 56, kinds.len() as u8);
        for kind in kinds {
            head.extend(kind.to_le_bytes());
            head.extend([0; 52]);
        }
        head
    }

    #[test]
    fn static_programs_are_known_by_having_no_loader() {
        assert!(is_static(&elf(&[1, 1, 7])));
        assert!(!is_static(&elf(&[6, 3, 1])));
        assert!(!is_static(&elf(&[])));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&elf(&[1, 1])[..70]), "not all of it was read");
        assert!(!is_static(&[]));
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&this[..4096]));
    }
}
