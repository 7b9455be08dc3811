//! The folder that files go to, and its index. All paths are made here: the folder, a slash, a plain name.

use crate::parts::system::reason;
use crate::parts::target;
use filter::{Failure, ParamError};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

const INDEX: &str = "index.jsonl";

/// Lines of the index are written out when this many bytes have come together.
const PIECE_BYTES: usize = 64 << 10;

/// As long as a name can be, with what stands around it, a line of an earlier index is read; the rest is skipped.
const LINE_HEAD_BYTES: u64 = 512;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    overwrite: bool,
    index: Index,
    /// Lines that are not written yet.
    lines: Vec<u8>,
}

#[derive(Debug)]
enum Index {
    /// Nothing was created yet.
    None,
    /// And the bytes that are in it.
    Open(File, u64),
    /// The folder or the index could not be made; that was said.
    Failed,
}

pub(super) fn failure(what: &str, path: &Path, error: &io::Error) -> Box<Failure> {
    Box::new(Failure::System(format!("cannot {what} `{}`: {}", path.display(), reason(error))))
}

impl Folder {
    /// Looks whether the folder may be used. Creates nothing.
    pub(super) fn check(dir: &str, overwrite: bool) -> Result<Folder, ParamError> {
        let dir = PathBuf::from(dir);
        if dir.exists() && !dir.is_dir() {
            return Err(ParamError::new("dir", format!("`{}` is not a folder", dir.display())));
        }
        target::check_folder(&dir).map_err(|error| {
            let message = format!("cannot create files in `{}`: {}", dir.display(), reason(&error));
            ParamError { key: Some("dir"), ..ParamError::system(message) }
        })?;
        if !overwrite && fs::symlink_metadata(dir.join(INDEX)).is_ok() {
            let message = format!("`{}` holds the index of an earlier run", dir.display());
            let help = "choose another folder, or overwrite=yes to remove the files which that index lists";
            return Err(ParamError::new("dir", message).with_help(help));
        }
        Ok(Folder { dir, overwrite, index: Index::None, lines: Vec::new() })
    }

    /// Makes the folder and an empty index, once; before that, removes what an earlier run left, if it may.
    pub(super) fn begin(&mut self) -> Result<(), Box<Failure>> {
        if matches!(self.index, Index::None) {
            self.index = Index::Failed;
            fs::create_dir_all(&self.dir).map_err(|error| failure("create the folder", &self.dir, &error))?;
            let path = self.dir.join(INDEX);
            if self.overwrite && fs::symlink_metadata(&path).is_ok() {
                self.remove_listed(&path).map_err(|error| failure("remove what is listed in", &path, &error))?;
            }
            let made = OpenOptions::new().append(true).create_new(true).open(&path);
            self.index = Index::Open(made.map_err(|error| failure("create", &path, &error))?, 0);
        }
        Ok(())
    }

    /// Could the folder or its index not be made? It was said when it was found.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.index, Index::Failed)
    }

    /// Removes the files that an earlier index lists, then that index. Only plain files inside the folder, and only
    /// names that we give: an index that somebody else wrote can do no more than that either.
    fn remove_listed(&self, index: &Path) -> io::Result<()> {
        let mut reader = BufReader::new(File::open(index)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.by_ref().take(LINE_HEAD_BYTES).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if let Some(name) = listed_name(&line) {
                let path = self.dir.join(name);
                if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                    fs::remove_file(path)?;
                }
            }
            if line.last() != Some(&b'\n') {
                reader.skip_until(b'\n')?;
            }
        }
        fs::remove_file(index)
    }

    /// Creates a file that is not there yet.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(self.dir.join(name))
    }

    /// Opens a file of this run again, to go on at its end.
    pub(super) fn append(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().append(true).open(self.dir.join(name))
    }

    /// Removes a file of this run.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    /// The path of a file, for people.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Lets `fill` append a line to the index, without its line break.
    pub(super) fn list(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), Box<Failure>> {
        fill(&mut self.lines);
        self.lines.push(b'\n');
        if self.lines.len() >= PIECE_BYTES { self.write_index() } else { Ok(()) }
    }

    /// Writes the lines of the index that came since the last time. Where that fails they are kept, to be tried again.
    pub(super) fn write_index(&mut self) -> Result<(), Box<Failure>> {
        match &mut self.index {
            Index::Open(file, len) => {
                if let Err(error) = file.write_all(&self.lines) {
                    // Part of a line would spoil the next one. Where that fails too, the index is lost anyway.
                    drop(file.set_len(*len));
                    return Err(failure("write", &self.dir.join(INDEX), &error));
                }
                *len += self.lines.len() as u64;
            }
            Index::None | Index::Failed => {}
        }
        self.lines.clear();
        Ok(())
    }
}

/// The name at the beginning of a line of an index, where it is one that we may have given.
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
