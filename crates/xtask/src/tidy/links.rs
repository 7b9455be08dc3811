//! Checks links between files of the repository: the file or folder exists, and so does the heading. Links to other
//! sites are not followed.

use super::{Finding, Tree};
use crate::files::Files;
use crate::markdown::{self, Syntax};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.with_extension("md") {
        for (line, target) in targets(&file.text) {
            if let Some(message) = dead(&tree.files, &file.path, target) {
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// The targets of links, `[text](target)` and `[name]: target`, with line numbers.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    for piece in markdown::pieces(text).iter().filter(|piece| matches!(piece.syntax, Syntax::Prose | Syntax::Indented))
    {
        for (line, number) in piece.text.split('\n').zip(piece.line..) {
            let ends = line.match_indices("](").map(|(at, mark)| &line[at + mark.len()..]);
            let inline = ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
            let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
            let found = inline.chain(reference).filter_map(|target| target.split_whitespace().next());
            targets.extend(found.map(|target| (number, target.trim_matches(['<', '>']))));
        }
    }
    targets
}

fn dead(files: &Files, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() { Some(from.to_string()) } else { resolve(from, path) };
    let Some(path) = path.filter(|path| path.is_empty() || files.paths.contains(path) || files.has_folder(path)) else {
        return Some(format!("the link `{target}` leads to no file of the repository; mend it"));
    };
    let text = &files.get(&path).filter(|file| file.extension() == Some("md"))?.text;
    let missing = anchor.filter(|anchor| !markdown::anchors(text).iter().any(|one| one == anchor))?;
    Some(format!("the link `{target}` leads to no heading of {path}: none gives `#{missing}`; mend it"))
}

/// A link's target, from the repository's folder. The link is in the file `from`. `None`: the target is outside.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => from.rsplit_once('/').map_or(Vec::new(), |(folder, _)| folder.split('/').collect()),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_link(text: &str, expected: &[&str]) {
        let files = [("docs/a.md", text), ("docs/b.md", "# The B\n"), ("src/c.rs", "")];
        assert_eq!(found(check, &files), expected, "{text}");
    }

    #[test]
    fn links_lead_somewhere() {
        let good = [
            "[b](b.md)",
            "[b](./b.md#the-b)",
            "![c](../src/c.rs \"title\")",
            "[folder](../src/), [root](..), [from the root](/src/c.rs)",
            "# Here\n[x](#here) [y](https://example.org/none) [z](mailto:a@b)",
            "[c]: ../src/c.rs\n",
            "`[code](none)` and\n```\n[code](none)\n```\n",
        ];
        for text in good {
            check_link(text, &[]);
        }
        check_link("\n[x](none.md)", &["docs/a.md:2: the link `none.md` leads to no file of the repository; mend it"]);
        check_link(
            "a [x](b.md) [y](../../c)",
            &["docs/a.md:1: the link `../../c` leads to no file of the repository; mend it"],
        );
        check_link("[x]: src/c.rs", &["docs/a.md:1: the link `src/c.rs` leads to no file of the repository; mend it"]);
        check_link(
            "[x](b.md#b)",
            &["docs/a.md:1: the link `b.md#b` leads to no heading of docs/b.md: none gives `#b`; mend it"],
        );
    }
}
