//! A folder that a sink writes to, held by its descriptor from before the run to its end: whatever comes into its place
//! meanwhile, another folder or a symbolic link, changes nothing. Files in it have plain names, and no link is followed to one.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// An open folder.
#[derive(Debug)]
pub(crate) struct HeldFolder {
    descriptor: OwnedFd,
    path: PathBuf,
    made: Made,
}

/// Folders that were made and are not needed yet, outermost first: dropping this removes those that are empty.
#[derive(Debug, Default)]
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // One that somebody else has put something into stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

impl HeldFolder {
    /// Opens a folder that is there.
    pub(crate) fn open(path: &Path) -> io::Result<HeldFolder> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(HeldFolder { descriptor, path: path.to_path_buf(), made: Made::default() })
    }

    /// Opens a folder, which is made with those above it where it is not there. What was made goes again, unless
    /// [`keep`](HeldFolder::keep) is called.
    pub(crate) fn open_or_make(path: &Path) -> io::Result<HeldFolder> {
        let mut made = Made::default();
        let missing: Vec<_> = path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !is_there(at)).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_path_buf()),
                // Somebody else makes it at the same time.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(not_made(error)),
            }
        }
        Ok(HeldFolder { made, ..HeldFolder::open(path)? })
    }

    /// What was made stays.
    pub(crate) fn keep(&mut self) {
        self.made.0.clear();
    }

    /// Makes sure that files can be made and written here, by making one and removing it again. Makes system calls.
    pub(crate) fn probe(&self) -> io::Result<()> {
        // What follows a folder leaves such names alone.
        let name = format!(".streamline-{}.part", std::process::id());
        let name = OsStr::new(&name);
        let mut file = match self.create(name) {
            // Of a process of the same number that was killed; or of a thread that does the same.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            created => created.map_err(not_made)?,
        };
        let written = file.write_all(b"x");
        self.remove(name).and(written)
    }

    /// Creates a file that is not there yet, to write to.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens a file to write to from its beginning, and creates it where it is not there.
    pub(crate) fn create_or_empty(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
    }

    /// Opens a file that is there, to write at its end.
    pub(crate) fn append(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::APPEND)
    }

    /// Opens a file that is there, to read it.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY)
    }

    fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // openat2 refuses a mode where nothing is created.
        let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.descriptor, name, flags, mode, within) {
            // A container's seccomp filter that is older than openat2 (Linux 5.6).
            Err(Errno::NOSYS | Errno::PERM) => self.open_plain(name, flags, mode),
            opened => Ok(opened?.into()),
        }
    }

    /// The same without openat2: a name of one part leads out of no folder, and NOFOLLOW looks at that part.
    fn open_plain(&self, name: &OsStr, flags: OFlags, mode: Mode) -> io::Result<File> {
        if Path::new(name).file_name() != Some(name) {
            return Err(Errno::XDEV.into());
        }
        Ok(rustix::fs::openat(&self.descriptor, name, flags, mode)?.into())
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Gives a file another name; a file that has it is replaced only where `replace` says so, else that is an error
    /// (`AlreadyExists`).
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr, replace: bool) -> io::Result<()> {
        self.move_file(from, self, to, replace)
    }

    /// [`rename`](HeldFolder::rename)s a file into another folder of the same file system.
    pub(crate) fn move_file(&self, from: &OsStr, folder: &HeldFolder, to: &OsStr, replace: bool) -> io::Result<()> {
        if !replace {
            match rustix::fs::renameat_with(&self.descriptor, from, &folder.descriptor, to, RenameFlags::NOREPLACE) {
                // File systems that do not know how to: what comes between these two calls is lost.
                Err(Errno::INVAL | Errno::NOSYS) if folder.sort_of(to).is_none() => {}
                Err(Errno::INVAL | Errno::NOSYS) => return Err(Errno::EXIST.into()),
                renamed => return Ok(renamed?),
            }
        }
        Ok(rustix::fs::renameat(&self.descriptor, from, &folder.descriptor, to)?)
    }

    /// Opens a folder in this one, which is made where it is not there. No link is followed.
    pub(crate) fn folder(&self, name: &OsStr) -> io::Result<HeldFolder> {
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?;
        Ok(HeldFolder { descriptor, path: self.path_of(name), made: Made::default() })
    }

    /// What has this name, a link itself and not what it leads to; `None` where nothing has.
    pub(crate) fn sort_of(&self, name: &OsStr) -> Option<FileType> {
        let found = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    }

    /// Where the folder was when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for people.
    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
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
    // What cannot be looked at is not missing: opening it says why.
    !matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// What the system says where a file system such as /proc lets nothing be made is that nothing is there.
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

    /// Another process puts a link into the folder's place, and links to the names that come next.
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
        // The link goes, not what it leads to.
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
        // What was there before stays, and so does what somebody else put something into.
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
