//! The files of the repository: tracked by git, or new and not ignored. Read once, as text if they are text.

use crate::{Failure, process};
use std::collections::BTreeSet;
use std::path::Path;

/// Every file, by its path from the repository's folder, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub paths: BTreeSet<String>,
    /// Text files, in the order of their paths.
    pub texts: Vec<File>,
}

#[derive(Debug)]
pub(crate) struct File {
    /// Its path from the repository's folder.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Extensions of text files that are written by hand, for which there are rules about white space and length. Other
/// files are data.
const HAND_WRITTEN: &[&str] = &["rs", "md", "toml", "sh", "py", "yml", "yaml", "html", "css", "js", "c", "h"];

impl File {
    /// The part of the name after its last dot. `None` for `run` and `.gitignore`.
    pub fn extension(&self) -> Option<&str> {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str())
    }

    /// Whether it is our source, script or prose, and not data or a licence.
    pub fn is_hand_written(&self) -> bool {
        if self.path.starts_with("LICENSE") {
            return false;
        }
        self.extension().is_none_or(|extension| HAND_WRITTEN.contains(&extension))
    }

    /// Its lines, numbered from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.strip_suffix('\n').unwrap_or(&self.text).split('\n').zip(1..).map(|(line, number)| (number, line))
    }
}

impl Files {
    /// Reads all files. A tracked file that was deleted is left out.
    pub fn read(root: &Path) -> Result<Files, Failure> {
        let mut files = Files::default();
        for path in list(root, &[])? {
            let Ok(bytes) = std::fs::read(root.join(&path)) else { continue };
            if !bytes.contains(&0)
                && let Ok(text) = String::from_utf8(bytes)
            {
                files.texts.push(File { path: path.clone(), text });
            }
            files.paths.insert(path);
        }
        Ok(files)
    }

    #[cfg(test)]
    pub fn made_up(files: &[(&str, &str)]) -> Files {
        let texts = files.iter().map(|(path, text)| File { path: path.to_string(), text: text.to_string() });
        Files { paths: files.iter().map(|(path, _)| path.to_string()).collect(), texts: texts.collect() }
    }

    pub fn get(&self, path: &str) -> Option<&File> {
        self.texts.iter().find(|file| file.path == path)
    }

    /// The text files whose names end in `.extension`.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        self.texts.iter().filter(move |file| file.extension() == Some(extension))
    }

    pub fn has_folder(&self, folder: &str) -> bool {
        let inside = format!("{}/", folder.trim_end_matches('/'));
        self.paths.range(inside.clone()..).next().is_some_and(|path| path.starts_with(&inside))
    }
}

/// The paths of the repository's files that match one of the patterns. Without patterns: all files.
pub(crate) fn list(root: &Path, patterns: &[&str]) -> Result<BTreeSet<String>, Failure> {
    // The clone may belong to another user than the developer, especially in containers. Reading its index is safe.
    let safe = format!("safe.directory={}", root.display());
    let mut arguments = vec!["-c", &safe, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    arguments.extend(patterns);
    let names = process::output(&mut process::program(root, "git", &arguments))?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    Ok(names.filter(|name| root.join(name).is_file()).map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_is_written_by_hand() {
        let rows = [
            ("README.md", true),
            (".ci/run", true),
            (".gitignore", true),
            ("crates/a/src/lib.rs", true),
            ("Cargo.lock", false),
            ("LICENSE-MIT", false),
            ("crates/a/tests/expected.tsv", false),
        ];
        for (path, expected) in rows {
            let file = File { path: path.into(), text: String::new() };
            assert_eq!(file.is_hand_written(), expected, "{path}");
        }
    }

    #[test]
    fn finds_folders_by_the_files_in_them() {
        let files = Files::made_up(&[("crates/ab/x.rs", ""), ("crates/a-b", "")]);
        for (folder, expected) in [("crates", true), ("crates/ab/", true), ("crates/a", false), ("crates/a-b", false)] {
            assert_eq!(files.has_folder(folder), expected, "{folder}");
        }
    }

    #[test]
    fn lines_are_those_of_an_editor() {
        for (text, expected) in [("", 1), ("a", 1), ("a\n", 1), ("a\n\n", 2), ("a\nb", 2)] {
            let file = File { path: String::new(), text: text.into() };
            assert_eq!(file.lines().map(|(number, _)| number).last(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn this_file_is_one_of_the_files() {
        let files = list(&crate::root().unwrap(), &["*.rs"]).unwrap();
        assert!(files.contains("crates/xtask/src/files.rs"));
        assert!(files.iter().all(|path| path.ends_with(".rs")));
    }
}
