//! The installation folder. A list in it names all installed files and folders. Only those are removed again.

use super::files::{Content, File};
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The list: a path from the prefix in each line. Folders end with a slash.
const LIST: &str = "share/streamline/installed";

pub(super) struct Prefix {
    folder: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Installed {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
}

impl Prefix {
    pub(super) fn at(folder: &Path) -> Prefix {
        Prefix { folder: folder.to_path_buf() }
    }

    /// Installs files, in place of those of an earlier installation. Running programs keep their old files.
    ///
    /// # Errors
    /// If a file is in the way that was not installed. Then nothing changes.
    pub(super) fn put(&self, files: &[File]) -> io::Result<()> {
        let before = self.installed()?;
        for File { to, .. } in files {
            if !before.files.contains(to) && self.folder.join(to).symlink_metadata().is_ok() {
                let text =
                    format!("{} is in the way, and no `cargo xtask install` put it there: remove it", to.display());
                return Err(io::Error::new(ErrorKind::AlreadyExists, text));
            }
        }
        let mut now = Installed { files: files.iter().map(|file| file.to.clone()).collect(), folders: before.folders };
        let list = PathBuf::from(LIST);
        for file in files.iter().map(|file| &file.to).chain([&list]) {
            // The prefix itself is not removed.
            let above = file.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
            now.folders.extend(above.filter(|above| !self.folder.join(above).exists()).map(Path::to_path_buf));
        }
        // Write the list first: then everything can be removed, even after an error below.
        let left = before.files.difference(&now.files).cloned().collect::<Vec<_>>();
        self.write(&list, |new| fs::write(new, Installed { files: &now.files | &before.files, ..now.clone() }.text()))?;
        for File { to, content, is_program } in files {
            self.write(to, |new| {
                match content {
                    Content::Copy(from) => drop(fs::copy(from, new)?),
                    Content::Made(bytes) => fs::write(new, bytes)?,
                }
                fs::set_permissions(new, Permissions::from_mode(if *is_program { 0o755 } else { 0o644 }))
            })?;
        }
        for file in left {
            absent_is_fine(fs::remove_file(self.folder.join(file)))?;
        }
        self.write(&list, |new| fs::write(new, now.text()))
    }

    /// Removes the installed files and folders. Returns the number of files.
    pub(super) fn remove(&self) -> io::Result<usize> {
        let Installed { files, folders } = self.installed()?;
        if files.is_empty() {
            return Ok(0);
        }
        for file in &files {
            absent_is_fine(fs::remove_file(self.folder.join(file)))?;
        }
        absent_is_fine(fs::remove_file(self.folder.join(LIST)))?;
        // Inner folders come first in this order. A folder with other content stays.
        for folder in folders.iter().rev() {
            match fs::remove_dir(self.folder.join(folder)) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                removed => absent_is_fine(removed)?,
            }
        }
        Ok(files.len())
    }

    /// Writes a file under another name, then moves it to its place.
    fn write(&self, to: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let place = self.folder.join(to);
        let said = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", to.display()));
        let mut name = std::ffi::OsString::from(".");
        name.push(place.file_name().unwrap_or_default());
        name.push(".new");
        let new = place.with_file_name(name);
        fs::create_dir_all(place.parent().unwrap_or(&self.folder)).map_err(said)?;
        write(&new).and_then(|()| fs::rename(&new, &place)).map_err(said)
    }

    fn installed(&self) -> io::Result<Installed> {
        match fs::read_to_string(self.folder.join(LIST)) {
            Ok(text) => Ok(Installed::parse(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Installed::default()),
            Err(error) => Err(error),
        }
    }
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

impl Installed {
    fn text(&self) -> String {
        let files = self.files.iter().map(|file| format!("{}\n", file.display()));
        files.chain(self.folders.iter().map(|folder| format!("{}/\n", folder.display()))).collect()
    }

    /// Parses a list. Paths that lead out of the prefix are ignored.
    fn parse(text: &str) -> Installed {
        let mut installed = Installed::default();
        for line in text.lines() {
            let path = PathBuf::from(line.trim_end_matches('/'));
            let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
            if is_below && !path.as_os_str().is_empty() {
                let into = if line.ends_with('/') { &mut installed.folders } else { &mut installed.files };
                into.insert(path);
            }
        }
        installed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(to: &str, text: &str) -> File {
        File { to: to.into(), content: Content::Made(text.into()), is_program: to.starts_with("bin/") }
    }

    fn below(folder: &Path) -> Vec<String> {
        let mut all = Vec::new();
        let mut next = vec![folder.to_path_buf()];
        while let Some(folder) = next.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_dir() {
                    next.push(entry.path());
                }
                all.push(entry.path());
            }
        }
        let mut names: Vec<String> =
            all.iter().map(|path| path.strip_prefix(folder).unwrap().display().to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_put_there_is_taken_away_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("xtask-install-{}", std::process::id()));
        fs::create_dir_all(folder.join("share/man")).unwrap();
        fs::write(folder.join("share/man/other"), "").unwrap();
        let before = below(&folder);
        let prefix = Prefix::at(&folder);
        assert_eq!(prefix.remove().unwrap(), 0, "nothing is there yet");
        prefix.put(&[file("bin/a", "1"), file("share/man/man1/a.1", "x"), file("lib/old", "")]).unwrap();
        let mode = fs::metadata(folder.join("bin/a")).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, folder.join("lib/old").exists()), (0o755, true));
        // Another version, without one of the files.
        prefix.put(&[file("bin/a", "2"), file("share/man/man1/a.1", "y")]).unwrap();
        assert_eq!(fs::read_to_string(folder.join("bin/a")).unwrap(), "2");
        assert!(!folder.join("lib/old").exists());
        // A foreign file stops the installation before it begins.
        fs::write(folder.join("bin/b"), "theirs").unwrap();
        let error = prefix.put(&[file("bin/a", "3"), file("bin/b", "3")]).unwrap_err().to_string();
        assert!(error.starts_with("bin/b is in the way"), "{error}");
        assert_eq!(fs::read_to_string(folder.join("bin/a")).unwrap(), "2");
        assert_eq!(prefix.remove().unwrap(), 2);
        let mut left = [before, vec!["bin".into(), "bin/b".into()]].concat();
        left.sort();
        assert_eq!(below(&folder), left);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_list_names_nothing_outside() {
        let list = "bin/a\n/etc/passwd\n../x\nlib/../../y\nlib/\n/\n\n";
        let files = [PathBuf::from("bin/a")].into();
        assert_eq!(Installed::parse(list), Installed { files, folders: [PathBuf::from("lib")].into() });
        assert_eq!(Installed::parse(list).text(), "bin/a\nlib/\n");
    }
}
