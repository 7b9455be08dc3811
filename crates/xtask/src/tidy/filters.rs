//! Checks the crates of filters: each file of their `src` is in the list of `lib.rs`, its kind has the name of the
//! file, a manual and an example.

use super::{Finding, Tree};
use crate::files::File;

const FOLDERS: [&str; 3] = ["crates/filters/src/", "crates/inspection/src/", "crates/columns/src/"];

/// Filters without an example, and why. Sources that read devices need none either: they need traffic.
const WITHOUT_EXAMPLE: &[(&str, &str)] = &[
    ("bridge", "needs two devices"),
    ("drop", "gives nothing to see"),
    ("flow", "needs a daemon"),
    ("ips", "needs a file of rules"),
    ("ring", "needs another request"),
    ("send", "needs a device"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    FOLDERS.iter().flat_map(|folder| check_folder(tree, folder)).collect()
}

fn check_folder(tree: &Tree, folder: &str) -> Vec<Finding> {
    let path = &format!("{folder}lib.rs");
    let Some(list) = tree.files.get(path) else { return Vec::new() };
    let listed = listed(list);
    if listed.is_empty() {
        return vec![Finding::new(
            path,
            1,
            "there is no list `filters! { ... }`; write it as one line for each filter",
        )];
    }
    let mut findings = Vec::new();
    for (file, stem) in tree.files.texts.iter().filter_map(|file| Some((file, stem(file, folder)?))) {
        if !listed.contains(&stem) {
            let message = format!("`{stem}` is not in the list `filters! {{ ... }}` of {path}; add it");
            findings.push(Finding::new(&file.path, 1, message));
        }
        findings.extend(check_filter(file, stem));
    }
    findings
}

/// The filter's name. `None`: the file has no filter.
fn stem<'a>(file: &'a File, folder: &str) -> Option<&'a str> {
    let stem = file.path.strip_prefix(folder)?.strip_suffix(".rs")?;
    (!stem.contains('/') && stem != "lib").then_some(stem)
}

/// The names between the braces of `filters! { ... }`. A Rust keyword is written as `r#name`.
fn listed(list: &File) -> Vec<&str> {
    let lines = list.lines().map(|(_, line)| line).skip_while(|line| !line.ends_with("filters! {"));
    let lines = lines.skip(1).take_while(|line| !line.starts_with('}'));
    let names = lines.flat_map(|line| line.split("//").next().unwrap_or_default().split(','));
    let names = names.map(|name| name.trim().trim_start_matches("r#"));
    names.filter(|name| !name.is_empty()).collect()
}

fn check_filter(file: &File, stem: &str) -> Vec<Finding> {
    let Some((line, kind)) = kind(file) else {
        return vec![Finding::new(&file.path, 1, "there is no `pub static KIND`; add it, as count.rs has it")];
    };
    let mut messages = Vec::new();
    let name = kind.split_once("Kind::new(").and_then(|(_, rest)| rest.trim_start().strip_prefix('"'));
    match name.and_then(|rest| rest.split('"').next()) {
        Some(name) if name == stem => {}
        Some(name) => messages.push(format!("the kind is named `{name}` and the file `{stem}`; name both alike")),
        None => messages.push(format!("the kind has no name in sight; begin it with `Kind::new(\"{stem}\", `")),
    }
    if !kind.contains(".help(") {
        messages.push(format!("`{stem}` has no help; add `.help(\"...\")`: what its manual says"));
    }
    let excepted = WITHOUT_EXAMPLE.iter().any(|(name, _)| *name == stem);
    match (kind.contains(".examples("), excepted) {
        (false, false) if !kind.contains(".device(DeviceAccess::") => messages.push(format!(
            "`{stem}` has no example; add `.examples(...)`, or a line to WITHOUT_EXAMPLE in {}",
            file!()
        )),
        (true, true) => messages.push(format!("`{stem}` has an example; remove its line in {}", file!())),
        _ => {}
    }
    messages.into_iter().map(|message| Finding::new(&file.path, line, message)).collect()
}

/// The statement that defines the filter's kind, and its line number.
fn kind(file: &File) -> Option<(usize, &str)> {
    let start = file.text.find("\npub static KIND: ")? + 1;
    let statement = &file.text[start..];
    let end = statement.find(";\n").unwrap_or(statement.len());
    Some((file.text[..start].matches('\n').count() + 1, &statement[..end]))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const LIST: &str = "crates/filters/src/lib.rs";
    const LIB: &str = "//! L.\nfilter::filters! {\n    a, // first\n    drop,\n    r#match,\n}\n";

    fn check_file(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(found(check, &[(LIST, LIB), (path, text)]), expected, "{text}");
    }

    #[test]
    fn a_filter_is_listed_named_and_explained() {
        let whole =
            "//! A.\n\npub static KIND: Kind =\n    Kind::new(\"a\", \"s\", make).help(\"h; \\\n x\").examples(X);\n";
        let [a, b, drop] = ["crates/filters/src/a.rs", "crates/filters/src/b.rs", "crates/filters/src/drop.rs"];
        check_file(a, whole, &[]);
        check_file("crates/filters/src/parts/b.rs", "", &[]);
        check_file("crates/filters/src/a/b.rs", "", &[]);
        check_file(
            b,
            whole,
            &[
                "crates/filters/src/b.rs:1: `b` is not in the list `filters! { ... }` of crates/filters/src/lib.rs; add it",
                "crates/filters/src/b.rs:3: the kind is named `a` and the file `b`; name both alike",
            ],
        );
        check_file(a, "", &["crates/filters/src/a.rs:1: there is no `pub static KIND`; add it, as count.rs has it"]);
        check_file(
            a,
            "//! A.\npub static KIND: Kind = make_kind();\n\nfn x() { kind.help().examples() }\n",
            &[
                "crates/filters/src/a.rs:2: the kind has no name in sight; begin it with `Kind::new(\"a\", `",
                "crates/filters/src/a.rs:2: `a` has no help; add `.help(\"...\")`: what its manual says",
                "crates/filters/src/a.rs:2: `a` has no example; add `.examples(...)`, or a line to WITHOUT_EXAMPLE in \
                 crates/xtask/src/tidy/filters.rs",
            ],
        );
        check_file(a, &whole.replace("examples(X)", "device(DeviceAccess::Made)"), &[]);
        check_file("crates/filters/src/match.rs", &whole.replace("\"a\"", "\"match\""), &[]);
        check_file(drop, "//! D.\npub static KIND: Kind = Kind::new(\"drop\", \"s\", make).help(\"h\");\n", &[]);
        check_file(
            drop,
            "//! D.\npub static KIND: Kind = Kind::new(\"drop\", \"s\", make).help(\"h\").examples(X);\n",
            &[
                "crates/filters/src/drop.rs:2: `drop` has an example; remove its line in crates/xtask/src/tidy/filters.rs",
            ],
        );
    }

    #[test]
    fn a_library_without_a_list_is_a_finding() {
        let expected =
            "crates/filters/src/lib.rs:1: there is no list `filters! { ... }`; write it as one line for each filter";
        assert_eq!(found(check, &[(LIST, "//! L.\n")]), [expected]);
        assert!(found(check, &[]).is_empty());
    }
}
