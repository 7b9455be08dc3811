//! Finds the files that a list of names means: files, folders, patterns, standard input. Lists folders, opens no file.

use super::open::Refusal;
use crate::parts::glob;
use base::terminal;
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where to read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Stdin,
    Path(PathBuf),
}

/// A file to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) target: Target,
    /// A name or pattern of the request gave it, so it must be a capture. A file found in a folder need not be.
    pub(super) named: bool,
    /// Its length when it was found; `None` if it has none.
    pub(super) bytes: Option<u64>,
}

impl Candidate {
    /// The name for messages.
    pub(super) fn name(&self) -> String {
        match &self.target {
            Target::Stdin => "standard input".into(),
            Target::Path(path) => terminal::name(path),
        }
    }
}

/// The files still to be read.
#[derive(Debug, Default)]
pub(super) struct Files {
    names: Vec<String>,
    queue: VecDeque<Candidate>,
    /// All files found so far, kept only if the folders are searched again.
    seen: Option<HashSet<PathBuf>>,
    /// Some name is a folder or a pattern, so more files can appear.
    open_ended: bool,
    /// Folders below the named ones that could not be read, and why. Each is reported once.
    unread: VecDeque<Refusal>,
    unread_before: HashSet<PathBuf>,
}

impl Files {
    /// Finds the files of these names, in order; those of a folder or pattern are sorted by path. `watch`: prepare for
    /// [`look_again`](Files::look_again).
    pub(super) fn find(names: &[String], watch: bool) -> Result<Files, Refusal> {
        let mut files = Files { names: names.to_vec(), seen: watch.then(HashSet::new), ..Files::default() };
        files.search(true)?;
        Ok(files)
    }

    fn search(&mut self, first: bool) -> Result<(), Refusal> {
        for name in std::mem::take(&mut self.names) {
            let found = meant_by(&name);
            self.names.push(name);
            match found {
                Ok(Meaning { candidates, open_ended, unread }) => {
                    self.open_ended |= open_ended;
                    for (folder, refusal) in unread {
                        if self.unread_before.insert(folder) {
                            self.unread.push_back(refusal);
                        }
                    }
                    candidates.into_iter().for_each(|candidate| self.add(candidate, first));
                }
                Err(refusal) if first => return Err(refusal),
                // The file or folder has gone since the first search, after its turn to be read.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, candidate: Candidate, first: bool) {
        let new = match (&candidate.target, &mut self.seen) {
            (Target::Path(path), Some(seen)) => seen.insert(path.clone()) || first,
            _ => first,
        };
        if new {
            self.queue.push_back(candidate);
        }
    }

    /// Adds files that have appeared. Reads folders.
    pub(super) fn look_again(&mut self) {
        if self.open_ended && self.seen.is_some() {
            // Only the first search can refuse the request.
            let _ = self.search(false);
        }
    }

    /// Whether more files can appear.
    pub(super) fn is_open_ended(&self) -> bool {
        self.open_ended
    }

    /// The names in the request.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The first folder that could not be read.
    pub(super) fn first_unread(&self) -> Option<&Refusal> {
        self.unread.front()
    }

    /// Takes the next folder that could not be read.
    pub(super) fn next_unread(&mut self) -> Option<Refusal> {
        self.unread.pop_front()
    }

    /// The files still to be read, in order.
    pub(super) fn left(&self) -> &VecDeque<Candidate> {
        &self.queue
    }

    /// Takes the next file.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        self.queue.pop_front()
    }

    /// Total bytes of all files; `None` if one has no length.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.queue.iter().try_fold(0u64, |sum, candidate| sum.checked_add(candidate.bytes?))
    }
}

/// The files that one name means.
#[derive(Default)]
struct Meaning {
    candidates: Vec<Candidate>,
    open_ended: bool,
    /// Folders that could not be read.
    unread: Vec<(PathBuf, Refusal)>,
}

/// The bytes of standard input that are still to be read, if it is a file.
fn stdin_bytes() -> Option<u64> {
    let stdin = rustix::stdio::stdin();
    let stat = rustix::fs::fstat(stdin).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
    let at = rustix::fs::tell(stdin).ok().filter(|_| is_file)?;
    u64::try_from(stat.st_size).ok()?.checked_sub(at)
}

fn meant_by(name: &str) -> Result<Meaning, Refusal> {
    if name == "-" {
        let stdin = Candidate { target: Target::Stdin, named: true, bytes: stdin_bytes() };
        return Ok(Meaning { candidates: vec![stdin], ..Meaning::default() });
    }
    let mut meaning = Meaning::default();
    match fs::metadata(name) {
        Ok(metadata) => add_named(Path::new(name), &metadata, &mut meaning)?,
        Err(error) if is_no_folder(&error) && glob::is_pattern(name) => {
            for path in expand(name)? {
                // A file that has gone again is left out.
                if let Ok(metadata) = fs::metadata(&path)
                    && let Err(refusal) = add_named(&path, &metadata, &mut meaning)
                {
                    meaning.unread.push((path, refusal));
                }
            }
            if meaning.candidates.is_empty() && meaning.unread.is_empty() {
                return Err(Refusal::new(format!("no file matches {}", terminal::name(name))));
            }
            meaning.open_ended = true;
        }
        Err(error) => return Err(Refusal::system(name, &error)),
    }
    Ok(meaning)
}

/// Adds a file, or the files in a folder.
fn add_named(path: &Path, metadata: &fs::Metadata, meaning: &mut Meaning) -> Result<(), Refusal> {
    if metadata.is_dir() {
        let begin = meaning.candidates.len();
        walk(path, meaning)?;
        meaning.candidates[begin..].sort_by(|one, other| path_of(one).cmp(&path_of(other)));
        meaning.open_ended = true;
        return Ok(());
    }
    let bytes = metadata.is_file().then_some(metadata.len());
    meaning.candidates.push(Candidate { target: Target::Path(path.to_path_buf()), named: true, bytes });
    Ok(())
}

fn path_of(candidate: &Candidate) -> Option<&Path> {
    match &candidate.target {
        Target::Stdin => None,
        Target::Path(path) => Some(path),
    }
}

/// Adds every regular file below a folder, except hidden ones and unfinished ones (`.part`). Does not follow links to
/// folders, so there are no cycles. `top` must be readable; an unreadable folder below it does not hide the others.
fn walk(top: &Path, meaning: &mut Meaning) -> Result<(), Refusal> {
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let refused = |error: io::Error| Refusal::system(&folder, &error);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == top => return Err(refused(error)),
            // The folder has gone again.
            Err(error) if is_no_folder(&error) => continue,
            Err(error) => {
                let refusal = refused(error);
                meaning.unread.push((folder, refusal));
                continue;
            }
        };
        for entry in entries {
            let entry = entry.map_err(refused)?;
            let (path, name) = (entry.path(), entry.file_name());
            if name.as_bytes().starts_with(b".") || name.as_bytes().ends_with(b".part") {
                continue;
            }
            // The entry has gone again.
            let (Ok(kind), Ok(metadata)) = (entry.file_type(), fs::metadata(&path)) else { continue };
            if kind.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                let bytes = Some(metadata.len());
                meaning.candidates.push(Candidate { target: Target::Path(path), named: false, bytes });
            }
        }
    }
    Ok(())
}

/// The paths that match a pattern, sorted. `*` matches any bytes of one name, `?` one byte. A hidden name matches only
/// a pattern that begins with a dot.
fn expand(pattern: &str) -> Result<Vec<PathBuf>, Refusal> {
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !glob::is_pattern(part) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let entries = match fs::read_dir(listed) {
                Ok(entries) => entries,
                Err(error) if is_no_folder(&error) => continue,
                Err(error) => return Err(Refusal::system(listed, &error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| Refusal::system(listed, &error))?;
                let name = entry.file_name();
                let hidden = name.as_bytes().starts_with(b".") && !part.starts_with('.');
                if !hidden && glob::matches(part.as_bytes(), name.as_bytes()) {
                    next.push(folder.join(name));
                }
            }
        }
        found = next;
    }
    found.sort();
    Ok(found)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates `made` in a folder and checks which files `names` mean, relative to the folder.
    fn check(made: &[&str], names: &[&str], expected: Result<&[&str], &str>) {
        let folder = tempfile::tempdir().unwrap();
        for file in made {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"xyz").unwrap();
        }
        let below = |path: &str| path.strip_prefix(&format!("{}/", folder.path().display())).unwrap().to_string();
        let names: Vec<_> = names.iter().map(|name| format!("{}/{name}", folder.path().display())).collect();
        let found = Files::find(&names, false).map(|files| {
            assert_eq!(files.total_bytes(), Some(3 * files.left().len() as u64));
            files.left().iter().map(|candidate| below(&candidate.name())).collect::<Vec<_>>()
        });
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(refusal), Err(expected)) => assert!(refusal.text.contains(expected), "{}", refusal.text),
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn names_mean_files_folders_and_patterns() {
        let made = ["b.pcap", "a.pcap", "sub/c.pcap", "sub/deep/d", ".hidden", "w.part", "e*f"];
        check(&made, &["b.pcap", "a.pcap", "b.pcap"], Ok(&["b.pcap", "a.pcap", "b.pcap"]));
        check(&made, &["sub"], Ok(&["sub/c.pcap", "sub/deep/d"]));
        check(&made, &[""], Ok(&["a.pcap", "b.pcap", "e*f", "sub/c.pcap", "sub/deep/d"]));
        check(&made, &["*.pcap"], Ok(&["a.pcap", "b.pcap"]));
        check(&made, &["*/?.pcap"], Ok(&["sub/c.pcap"]));
        check(&made, &["s*"], Ok(&["sub/c.pcap", "sub/deep/d"]));
        check(&made, &["e*f"], Ok(&["e*f"]));
        check(&made, &["w.part"], Ok(&["w.part"]));
        check(&made, &["a.pcap", "z.pcap"], Err("z.pcap: No such file or directory"));
        check(&made, &["z*"], Err("no file matches "));
        check(&made, &["b.pcap/*"], Err("no file matches "));
    }

    #[test]
    fn looking_again_finds_only_what_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let add = |name: &str| fs::write(folder.path().join(name), b"x").unwrap();
        add("b");
        let mut files = Files::find(&[folder.path().display().to_string()], true).unwrap();
        assert!(files.is_open_ended());
        assert!(files.next().unwrap().name().ends_with("/b"));
        add("a");
        add("c.part");
        files.look_again();
        files.look_again();
        assert!(files.next().unwrap().name().ends_with("/a"));
        assert_eq!(files.next(), None);
    }
}
