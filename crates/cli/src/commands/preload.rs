//! Libraries that are put before others when an unmodified program starts: where they are, and which programs heed them.
//!
//! The loader preloads nothing into a program that runs with more rights than who started it, nor into one that loads no libraries;
//! both are said before anything runs, for the program itself would say something else.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A library of ours.
pub(crate) struct Library {
    /// Its file.
    pub(crate) file: &'static str,
    /// Environment variable that says where it is, if not beside this program.
    pub(crate) variable: &'static str,
    /// The package that it is built from.
    pub(crate) package: &'static str,
    /// What does not work without it.
    pub(crate) what: &'static str,
    /// What to do with a program that has rights of its own.
    pub(crate) instead: &'static str,
}

/// The value of LD_PRELOAD with this library before those that are named there.
pub(crate) fn before_others(library: PathBuf) -> OsString {
    let mut preload = library.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    preload
}

impl Library {
    /// Where the library is.
    pub(crate) fn path(&self) -> Result<PathBuf, String> {
        let Library { file, variable, package, .. } = self;
        if let Some(path) = std::env::var_os(variable) {
            let path = PathBuf::from(path);
            // The loader splits its list at spaces and colons, and looks for what has no slash elsewhere.
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

    /// Does the loader do for this program what LD_PRELOAD asks? If not, why, and what to do.
    pub(crate) fn is_heeded_by(&self, path: &Path) -> Result<(), String> {
        let Library { what, instead, .. } = self;
        let shown = path.display();
        let unreadable = |error| format!("{shown} cannot be read: {error}");
        let metadata = path.metadata().map_err(unreadable)?;
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mode = metadata.mode();
        let other_user = mode & 0o4000 != 0 && metadata.uid() != user;
        // Without the right to execute it for the group, the bit means something else.
        let other_group = mode & 0o2010 == 0o2010 && metadata.gid() != group;
        if other_user || other_group {
            return Err(format!(
                "{shown} is setuid or setgid, and such programs ignore preloaded libraries; {instead}"
            ));
        }
        // To root, these add nothing, and the loader does not mind.
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
            // What may be run but not read is run; it will tell.
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

/// The file that a command means.
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

/// Is it an ELF program that names no loader? `head` is its beginning. Scripts and what is not known are not.
fn is_static(head: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0usize, |number, byte| number.wrapping_shl(8) | usize::from(*byte)))
    };
    let wide = match head {
        // 32 or 64 bits, little-endian; others are believed.
        [0x7f, b'E', b'L', b'F', class @ (1 | 2), 1, ..] => *class == 2,
        _ => return false,
    };
    let layout = if wide { [(32, 8), (54, 2), (56, 2)] } else { [(28, 4), (42, 2), (44, 2)] };
    let [Some(first), Some(bytes), Some(count)] = layout.map(|(at, bytes)| number(at, bytes)) else { return false };
    let kinds = (0..count).map(|index| number(first.saturating_add(index.saturating_mul(bytes)), 4));
    let mut kinds = kinds.peekable();
    // A table that is not in the part that was read says nothing.
    kinds.peek().is_some_and(Option::is_some) && !kinds.any(|kind| kind.is_none_or(|kind| kind == PT_INTERP as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

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
