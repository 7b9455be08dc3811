//! The modules of a crate that ship: their files, paths and code, without those of tests and models.

use crate::files::Files;
use crate::source::{closing, shipped};
use crate::workspace::Package;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Module {
    /// Its file, from the repository's folder.
    pub file: String,
    /// The names from the crate's root down; empty for the root.
    pub path: Vec<String>,
    /// Its text, in which comments and tests are blank, and literals are quotation marks.
    pub code: String,
}

impl Module {
    /// The number of lines that are neither blank nor comments.
    pub fn lines(&self) -> usize {
        self.code.lines().filter(|line| !line.trim().is_empty()).count()
    }

    /// Whether the function is defined here.
    pub fn has_function(&self, name: &str) -> bool {
        words(&self.code, name).any(|at| self.code[..at].trim_end().ends_with("fn"))
    }

    /// Whether the code names the function, apart from its definition.
    pub fn names(&self, function: &str) -> bool {
        words(&self.code, function).any(|at| !self.code[..at].trim_end().ends_with("fn"))
    }

    /// The functions with a body: name, line, and lines of code in the body.
    pub fn functions(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        let line = |at: usize| 1 + self.code[..at].matches('\n').count();
        words(&self.code, "fn").filter_map(move |at| {
            let after = self.code[at + 2..].trim_start();
            let name = after.split(|one: char| !(one.is_alphanumeric() || one == '_')).next()?;
            let body = &self.code[body(self.code.as_bytes(), at)?];
            let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
            (!name.is_empty()).then(|| (name, line(at), lines))
        })
    }

    /// Whether the code declares this module, by `mod name;` or on a line of a macro's list.
    fn declares(&self, name: &str) -> bool {
        let declaration = format!("mod {name};");
        self.code
            .lines()
            .map(str::trim)
            .any(|line| line.ends_with(&declaration) || line.strip_suffix(',') == Some(name))
    }
}

/// The modules of a crate, a parent before its children.
pub(crate) fn modules(files: &Files, package: &Package) -> Vec<Module> {
    let folder = format!("{}/src/", package.folder);
    let in_folder = files.with_extension("rs").filter_map(|file| Some((path(file.path.strip_prefix(&folder)?), file)));
    let mut found: Vec<(Vec<String>, _)> = in_folder.collect();
    found.sort_by_key(|(path, _)| path.len());
    let mut modules: Vec<Module> = Vec::new();
    for (path, file) in found {
        let ships = match path.split_last() {
            None => true,
            Some((name, above)) => modules.iter().any(|module| module.path == above && module.declares(name)),
        };
        if ships {
            modules.push(Module { file: file.path.clone(), path, code: shipped(&file.text) });
        }
    }
    modules
}

/// The path of a module, from its file in `src`.
fn path(file: &str) -> Vec<String> {
    let names = file.trim_end_matches(".rs").split('/').map(str::to_string);
    let mut path: Vec<String> = names.collect();
    path.pop_if(|last| matches!(&last[..], "lib" | "main" | "mod"));
    path
}

/// The inside of the body of the function that begins at `at`. `None`: it has none.
fn body(code: &[u8], mut at: usize) -> Option<Range<usize>> {
    loop {
        match code.get(at)? {
            b'{' => return Some(at + 1..closing(code, at)?),
            b'(' | b'[' => at = closing(code, at)?,
            // Without a body, or the type of a function.
            b';' | b')' | b']' | b'}' => return None,
            _ => {}
        }
        at += 1;
    }
}

/// The positions of a word, not as a part of a longer one.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let joins = |one: char| one.is_alphanumeric() || one == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(joins) && !code[at + word.len()..].starts_with(joins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_lines_of_their_bodies() {
        let code = "fn a() {}\nfn b(c: fn(u8) -> u8) -> [u8; 2]\nwhere\n    T: U<V = W>,\n{\n    fn d() {\n        e();\n    }\n\n}\n\
                    trait F {\n    fn g(&self);\n    fn h(&self, f: fn()) -> i32 { 1 }\n}\n";
        let module = Module { file: String::new(), path: Vec::new(), code: code.into() };
        let found: Vec<(&str, usize, usize)> = module.functions().collect();
        assert_eq!(found, [("a", 1, 0), ("b", 2, 3), ("d", 6, 1), ("h", 13, 1)]);
    }

    #[test]
    fn modules_of_tests_and_files_of_no_module_are_left_out() {
        let files = Files::made_up(&[
            ("crates/a/src/lib.rs", "//! A.\npub mod b;\nlist! {\n    c,\n}\n#[cfg(test)]\nmod d;\n"),
            ("crates/a/src/b.rs", "fn one() {\n    two(\"x\n    y\"); // one\n}\n\nfn twofold() {}\n"),
            ("crates/a/src/c/mod.rs", "mod e;\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n"),
            ("crates/a/src/c/e.rs", ""),
            ("crates/a/src/d.rs", ""),
            ("crates/a/src/stray.rs", ""),
            ("crates/ab/src/lib.rs", ""),
        ]);
        let package = Package { folder: "crates/a".into(), ..Package::default() };
        let modules = modules(&files, &package);
        let paths: Vec<String> = modules.iter().map(|module| module.path.join("::")).collect();
        assert_eq!(paths, ["", "b", "c", "c::e"]);
        assert_eq!(modules.iter().map(Module::lines).collect::<Vec<_>>(), [4, 5, 1, 0]);
        let functions = ["one", "two", "twofold"].map(|name| (modules[1].has_function(name), modules[1].names(name)));
        assert_eq!(functions, [(true, false), (false, true), (true, false)]);
    }
}
