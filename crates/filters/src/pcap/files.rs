//! Which files a list of names means: files, folders, patterns, standard input. Looks at folders, opens nothing.

use super::open::Refusal;
use base::terminal;
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What to read next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Standard input.
    Stdin,
    /// A file.
    Path(PathBuf),
}

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) place: Place,
    /// Somebody named it, or a pattern did: it must be a capture. What lies in a folder need not be.
    pub(super) named: bool,
    /// Its length when it was found, where it has one.
    pub(super) bytes: Option<u64>,
}

impl Candidate {
    /// As people know it.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Place::Stdin => "standard input".into(),
            Place::Path(path) => terminal::name(path),
        }
    }
}

/// The files that are still to be read.
#[derive(Debug, Default)]
pub(super) struct Files {
    names: Vec<String>,
    queue: VecDeque<Candidate>,
    /// Everything that was ever found, where folders are looked at again.
    seen: Option<HashSet<PathBuf>>,
    /// Some name is a folder or a pattern, so more files can come.
    open_ended: bool,
    /// Folders below the named ones that could not be looked into, and why not; told once each.
    unread: VecDeque<Refusal>,
    unread_before: HashSet<PathBuf>,
}

impl Files {
    /// Finds what these names mean, in their order; within a folder or a pattern sorted by path. `watch` prepares for
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
                // A file or folder that is gone by now has been read.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, candidate: Candidate, first: bool) {
        let new = match (&candidate.place, &mut self.seen) {
            (Place::Path(path), Some(seen)) => seen.insert(path.clone()) || first,
            _ => first,
        };
        if new {
            self.queue.push_back(candidate);
        }
    }

    /// Adds what has come since. Reads folders.
    pub(super) fn look_again(&mut self) {
        if self.open_ended && self.seen.is_some() {
            // Only the first search refuses.
            let _ = self.search(false);
        }
    }

    /// Can more files come?
    pub(super) fn is_open_ended(&self) -> bool {
        self.open_ended
    }

    /// What was asked for.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The first folder that could not be looked into.
    pub(super) fn first_unread(&self) -> Option<&Refusal> {
        self.unread.front()
    }

    /// Takes the next folder that could not be looked into.
    pub(super) fn next_unread(&mut self) -> Option<Refusal> {
        self.unread.pop_front()
    }

    /// What is still to be read, in order.
    pub(super) fn left(&self) -> &VecDeque<Candidate> {
        &self.queue
    }

    /// Takes the next one.
    pub(super) fn next(&mut self) -> Option<Candidate> {
        self.queue.pop_front()
    }

    /// Bytes of all files, where every one has a length.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        self.queue.iter().try_fold(0u64, |sum, candidate| sum.checked_add(candidate.bytes?))
    }
}

/// What one name means.
#[derive(Default)]
struct Meaning {
    candidates: Vec<Candidate>,
    open_ended: bool,
    /// Folders that could not be looked into.
    unread: Vec<(PathBuf, Refusal)>,
}

fn meant_by(name: &str) -> Result<Meaning, Refusal> {
    if name == "-" {
        let stdin = Candidate { place: Place::Stdin, named: true, bytes: None };
        return Ok(Meaning { candidates: vec![stdin], ..Meaning::default() });
    }
    let mut meaning = Meaning::default();
    match fs::metadata(name) {
        Ok(metadata) => add_named(Path::new(name), &metadata, &mut meaning)?,
        Err(error) if is_no_folder(&error) && name.contains(['*', '?']) => {
            for path in expand(name)? {
                // What is gone again already was not meant.
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

/// Adds a file, or what lies in a folder.
fn add_named(path: &Path, metadata: &fs::Metadata, meaning: &mut Meaning) -> Result<(), Refusal> {
    if metadata.is_dir() {
        let begin = meaning.candidates.len();
        walk(path, meaning)?;
        meaning.candidates[begin..].sort_by(|one, other| path_of(one).cmp(&path_of(other)));
        meaning.open_ended = true;
        return Ok(());
    }
    let bytes = metadata.is_file().then_some(metadata.len());
    meaning.candidates.push(Candidate { place: Place::Path(path.to_path_buf()), named: true, bytes });
    Ok(())
}

fn path_of(candidate: &Candidate) -> Option<&Path> {
    match &candidate.place {
        Place::Stdin => None,
        Place::Path(path) => Some(path),
    }
}

/// Adds every regular file below a folder, but for hidden ones and those that are still being written (`.part`).
/// Links to folders are not followed, so there is no circle to be caught in. The folder itself must be readable; one
/// below it that is not does not hide the others.
fn walk(top: &Path, meaning: &mut Meaning) -> Result<(), Refusal> {
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let refused = |error: io::Error| Refusal::system(&folder, &error);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == top => return Err(refused(error)),
            // What is gone again already is not there.
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
            // What is gone again already is not there.
            let (Ok(kind), Ok(metadata)) = (entry.file_type(), fs::metadata(&path)) else { continue };
            if kind.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                let bytes = Some(metadata.len());
                meaning.candidates.push(Candidate { place: Place::Path(path), named: false, bytes });
            }
        }
    }
    Ok(())
}

/// The paths that a pattern means, sorted: `*` stands for any bytes of one name, `?` for one; hidden names must be
/// asked for by their dot.
fn expand(pattern: &str) -> Result<Vec<PathBuf>, Refusal> {
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains(['*', '?']) {
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
                if !hidden && matches(part.as_bytes(), name.as_bytes()) {
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

/// Does a pattern with `*` and `?` match the whole name? Time is at most the product of the lengths: only the last star
/// is ever tried again.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (p, n) = (after, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let rows = [
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("*.pcap", "a.pcap", true),
            ("*.pcap", "a.pcapng", false),
            ("?.pcap", "ab.pcap", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**", "", true),
            ("a?", "a", false),
            ("[a]", "[a]", true),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        let (stars, long) = ("*a".repeat(200), "a".repeat(199) + "b");
        assert!(!matches(stars.as_bytes(), long.as_bytes()), "in time");
    }

    /// Makes these files in a folder and says what each name there means, relative to the folder.
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
