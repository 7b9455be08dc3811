//! A folder that a sink writes to. The sink holds the folder's descriptor from before the run until its end, so another
//! folder or a link in its place changes nothing. Its files have plain names, and no link to a file is followed.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A folder whose descriptor is held.
#[derive(Debug)]
pub struct HeldFolder {
    descriptor: OwnedFd,
    path: PathBuf,
    made: Made,
}

/// New folders, outermost first. Dropping this removes the empty folders.
#[derive(Debug, Default)]
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // A folder with another program's files stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

impl HeldFolder {
    /// Opens an existing folder.
    pub fn open(path: &Path) -> io::Result<HeldFolder> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(HeldFolder { descriptor, path: path.to_path_buf(), made: Made::default() })
    }

    /// Opens a folder. Makes it and its missing parents. Dropping it removes the new folders, unless
    /// [`keep`](HeldFolder::keep) is called.
    pub fn open_or_make(path: &Path) -> io::Result<HeldFolder> {
        let mut made = Made::default();
        let missing: Vec<_> = path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !is_there(at)).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_path_buf()),
                // Another process has made it at the same time.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(not_made(error)),
            }
        }
        Ok(HeldFolder { made, ..HeldFolder::open(path)? })
    }

    /// Keeps the new folders.
    pub fn keep(&mut self) {
        self.made.0.clear();
    }

    /// Checks that the folder takes new files: creates one, writes to it and removes it. Makes system calls.
    pub fn probe(&self) -> io::Result<()> {
        // Programs that follow a folder ignore such names.
        let name = format!(".streamline-{}.part", std::process::id());
        let name = OsStr::new(&name);
        let mut file = match self.create(name) {
            // The file belongs to a killed process with the same id, or to a thread that does the same.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            created => created.map_err(not_made)?,
        };
        let written = file.write_all(b"x");
        self.remove(name).and(written)
    }

    /// Creates a new file, to write to.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens a file to write from its beginning. Creates it if it does not exist.
    pub fn create_or_empty(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
    }

    /// Opens an existing file, to append to it.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::APPEND)
    }

    /// Opens an existing file, to read it.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY)
    }

    fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // openat2 refuses a mode if the call creates no file.
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.descriptor, name, flags, mode, within) {
            // A container's seccomp filter may be older than openat2 (Linux 5.6).
            Err(Errno::NOSYS | Errno::PERM) => self.open_plain(name, flags, mode),
            opened => Ok(opened?.into()),
        }
    }

    /// Opens a file without openat2: a name of one part leads out of no folder, and NOFOLLOW checks that part.
    fn open_plain(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        if Path::new(name).file_name() != Some(name) {
            return Err(Errno::XDEV.into());
        }
        Ok(rustix::fs::openat(&self.descriptor, name, flags, mode)?.into())
    }

    /// Removes a file.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Renames a file. If `to` exists, `replace` decides: replace it, or fail with `AlreadyExists`.
    pub fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> io::Result<()> {
        self.move_file(from, self, to, replace)
    }

    /// [`rename`](HeldFolder::rename)s a file into another folder of the same file system.
    pub fn move_file(&self, from: &OsStr, folder: &HeldFolder, to: &OsStr, replace: bool) -> io::Result<()> {
        if !replace {
            match rustix::fs::renameat_with(&self.descriptor, from, &folder.descriptor, to, RenameFlags::NOREPLACE) {
                // The file system does not know NOREPLACE: a file that appears between these two calls is lost.
                Err(Errno::INVAL | Errno::NOSYS) if folder.sort_of(to).is_none() => {}
                Err(Errno::INVAL | Errno::NOSYS) => return Err(Errno::EXIST.into()),
                renamed => return Ok(renamed?),
            }
        }
        Ok(rustix::fs::renameat(&self.descriptor, from, &folder.descriptor, to)?)
    }

    /// Opens a folder in this folder. Makes it if it does not exist. Follows no link.
    pub fn folder(&self, name: &OsStr) -> io::Result<HeldFolder> {
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?;
        Ok(HeldFolder { descriptor, path: self.path_of(name), made: Made::default() })
    }

    /// The type of the file `name`: of a link itself, not of its target. `None`: there is no such file.
    pub fn sort_of(&self, name: &OsStr) -> Option<FileType> {
        let found = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// The path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the folder, for messages.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        match self.path.to_str() {
            Some(".") => PathBuf::from(name),
            _ => self.path.join(name),
        }
    }
}

impl AsFd for HeldFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn is_there(path: &Path) -> bool {
    // A path that cannot be checked is not missing: opening it tells why.
    !matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// A file system such as /proc says "not found" where it lets no process create a file.
fn not_made(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), "its file system lets nothing be created there");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn is_error<T: std::fmt::Debug>(result: io::Result<T>, expected: &[Errno]) {
        let error = result.unwrap_err().raw_os_error();
        assert!(expected.iter().any(|errno| error == Some(errno.raw_os_error())), "{error:?}, not {expected:?}");
    }

    /// Another process replaces the folder by a link, and puts links at the next names.
    #[test]
    fn links_lead_nowhere() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/precious"), "kept").unwrap();
        let held = HeldFolder::open_or_make(&at("out")).unwrap();
        held.create(OsStr::new("one")).unwrap();
        fs::rename(at("out"), at("moved")).unwrap();
        symlink(at("outside"), at("out")).unwrap();
        held.create(OsStr::new("two")).unwrap().write_all(b"2").unwrap();
        assert_eq!(fs::read(at("moved/two")).unwrap(), b"2");
        for name in ["next", "part"] {
            symlink(at("outside/precious"), at("moved").join(name)).unwrap();
        }
        let next = OsStr::new("next");
        is_error(held.create(next), &[Errno::EXIST, Errno::LOOP]);
        for open in [HeldFolder::create_or_empty, HeldFolder::append, HeldFolder::read] {
            is_error(open(&held, next), &[Errno::LOOP]);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        is_error(held.open_plain(next, flags, Mode::empty()), &[Errno::LOOP]);
        for name in ["../outside/precious", "/etc/hostname", ".."] {
            is_error(held.read(OsStr::new(name)), &[Errno::XDEV]);
            is_error(held.open_plain(OsStr::new(name), OFlags::RDONLY, Mode::empty()), &[Errno::XDEV]);
        }
        // Removes the link, not its target.
        held.remove(next).unwrap();
        is_error(held.rename(OsStr::new("one"), OsStr::new("part"), false), &[Errno::EXIST]);
        held.rename(OsStr::new("one"), OsStr::new("part"), true).unwrap();
        assert_eq!(held.sort_of(OsStr::new("part")), Some(FileType::RegularFile));
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 1);
        assert_eq!(fs::read(at("outside/precious")).unwrap(), b"kept");
    }

    #[test]
    fn what_was_made_for_nothing_goes() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("a/b/c");
        for keep in [false, true] {
            let mut held = HeldFolder::open_or_make(&deep).unwrap();
            held.probe().unwrap();
            assert_eq!(fs::read_dir(&deep).unwrap().count(), 0, "the probe is gone");
            if keep {
                held.keep();
            }
            drop(held);
            assert_eq!((deep.exists(), base.path().join("a").exists()), (keep, keep));
        }
        // Folders that existed before stay, and so do folders with another program's files.
        drop(HeldFolder::open_or_make(&deep).unwrap());
        assert!(deep.exists());
        let held = HeldFolder::open_or_make(&deep.join("d")).unwrap();
        fs::write(deep.join("d/theirs"), "").unwrap();
        drop(held);
        assert!(deep.join("d/theirs").exists());
    }

    #[test]
    fn where_nothing_can_be_made() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        is_error(HeldFolder::open_or_make(&base.path().join("file/below")), &[Errno::NOTDIR]);
        is_error(HeldFolder::open(&base.path().join("none")), &[Errno::NOENT]);
        for made in [
            HeldFolder::open_or_make(Path::new("/proc/none/below")).map(drop),
            HeldFolder::open(Path::new("/proc")).and_then(|held| held.probe()),
        ] {
            let error = made.unwrap_err();
            assert!(
                ["its file system lets nothing be created there", "Permission denied (os error 13)"]
                    .contains(&&error.to_string()[..]),
                "{error}"
            );
        }
    }
}
