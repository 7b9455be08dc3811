//! Checks that comments and messages can be read once. Counts *hits*: phrases that hide the actor or the noun, dated words
//! and very long sentences (`plain/patterns.rs`), in comments, and outside tests in string literals: help texts and messages
//! (`plain/prose.rs`). No comment ends as a question.
//!
//! Each crate has a limit of hits per 1,000 lines of prose. A crate above its limit fails, and all its hits are listed.
//! A hit is a hint and not a verdict: `// plain: WHY` directly above a line excepts that line.

mod patterns;
mod prose;

use super::{Finding, Tree};
use crate::workspace::Package;
use patterns::Patterns;
use std::collections::BTreeSet;

/// The limit of each crate, in hits per 1,000 lines of prose.
const LIMIT: usize = 15;

/// The most lines of the repository that `// plain: WHY` may except.
const MOST_EXCEPTED: usize = 20;

/// Opens the comment that excepts the next line.
const EXCEPT: &str = "// plain:";

/// A line that has to be read twice.
#[derive(Debug)]
struct Hit {
    path: String,
    line: usize,
    reason: String,
}

#[derive(Debug, Default)]
struct Count {
    lines: usize,
    hits: Vec<Hit>,
    /// Lines that `// plain: WHY` excepts: path and number of the marker.
    excepted: Vec<(String, usize)>,
    /// Markers without a reason, or without a hit below them.
    findings: Vec<Finding>,
}

impl Count {
    fn of(tree: &Tree, package: &Package, patterns: &Patterns) -> Count {
        let inside = format!("{}/", package.folder);
        let mut count = Count::default();
        for file in tree.files.with_extension("rs").filter(|file| file.path.starts_with(&inside)) {
            count.add(&file.path, &file.text, patterns);
        }
        count
    }

    fn add(&mut self, path: &str, text: &str, patterns: &Patterns) {
        self.lines += text.lines().filter(|line| line.trim_start().starts_with("//")).count();
        let mut hits = Vec::<(usize, String)>::new();
        for passage in prose::passages(path, text) {
            let end = passage.words.trim_end();
            if passage.is_comment && end.ends_with('?') {
                let message = "a comment asks; let it state what is so".to_string();
                self.findings.push(Finding::new(path, passage.line(end.len() - 1), message));
            } else if !passage.is_comment {
                self.lines += passage.count();
            }
            hits.extend(patterns.find(&passage.words).map(|(at, reason)| (passage.line(at), reason)));
        }
        hits.sort();
        hits.dedup_by_key(|(line, _)| *line);
        let with_hit: BTreeSet<usize> = hits.iter().map(|(line, _)| *line).collect();
        let mut excepted = BTreeSet::new();
        for (line, number) in text.lines().zip(1..) {
            let Some(reason) = line.trim_start().strip_prefix(EXCEPT) else { continue };
            if reason.trim().is_empty() {
                self.findings.push(Finding::new(path, number, format!("`{EXCEPT}` has no reason; say why")));
            } else if with_hit.contains(&(number + 1)) {
                excepted.insert(number + 1);
                self.excepted.push((path.into(), number));
            } else {
                let message = format!("the line below this `{EXCEPT}` needs no exception; remove the comment");
                self.findings.push(Finding::new(path, number, message));
            }
        }
        let left = hits.into_iter().filter(|(line, _)| !excepted.contains(line));
        self.hits.extend(left.map(|(line, reason)| Hit { path: path.into(), line, reason }));
    }

    /// Hits per 1,000 lines of prose, rounded down: a small crate may have one hit.
    fn rate(&self) -> usize {
        self.hits.len().saturating_sub(1) * 1000 / self.lines.max(1)
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let patterns = Patterns::new();
    let mut findings = Vec::new();
    let mut excepted = Vec::new();
    for package in &tree.workspace.packages {
        let count = Count::of(tree, package, &patterns);
        let rate = count.rate();
        if rate > LIMIT {
            for hit in &count.hits {
                let message = format!(
                    "{}; say it plainly: `{}` has {rate} such hits per 1,000 lines, {LIMIT} are the most",
                    hit.reason, package.name
                );
                findings.push(Finding::new(&hit.path, hit.line, message));
            }
        }
        excepted.extend(count.excepted);
        findings.extend(count.findings);
    }
    for (path, line) in excepted.iter().skip(MOST_EXCEPTED) {
        let message = format!("more than {MOST_EXCEPTED} lines have `{EXCEPT}`; rewrite the line below instead");
        findings.push(Finding::new(path, *line, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::workspace::Workspace;

    const PATH: &str = "crates/a/src/lib.rs";
    const GOOD: &str = "// The reader waits.\n";
    const BAD: &str = "// Whoever waits.\n";

    fn tree(text: &str) -> Tree {
        let (name, folder) = ("a".to_string(), "crates/a".to_string());
        let package = Package { name, folder, arrows: Vec::new(), targets: Vec::new() };
        let workspace = Workspace { packages: vec![package], default_members: Vec::new() };
        Tree { files: Files::made_up(&[(PATH, text), ("crates/ab/src/lib.rs", BAD)]), workspace }
    }

    fn check_text(text: &str, expected: &[&str]) {
        let findings = check(&tree(text));
        assert_eq!(findings.iter().map(Finding::to_string).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn a_crate_is_held_at_its_limit() {
        let text = format!("{BAD}\nx();\n{BAD}\n{}", GOOD.repeat(38));
        let line = |number| {
            format!(
                "{PATH}:{number}: no actor: \"Whoever\"; say it plainly: `a` has 25 such hits per 1,000 lines, 15 are \
                 the most"
            )
        };
        check_text(&text, &[&line(1), &line(4)]);
        check_text(&format!("{text}{}", GOOD.repeat(40)), &[]);
        check_text(&format!("{BAD}{GOOD}"), &[]);
    }

    #[test]
    fn comments_state() {
        let asks = format!("{PATH}:2: a comment asks; let it state what is so");
        check_text("/// The reader waits,\n/// does it?\nx(\"may it wait so?\");\n", &[&asks]);
        check_text("// Which one? The second.\n// `a?`\n", &[]);
    }

    #[test]
    fn lines_are_excepted_for_a_reason() {
        let excepted = format!("// plain: the RFC says so\n{BAD}\n");
        check_text(&excepted.repeat(20), &[]);
        let more = format!("{PATH}:61: more than 20 lines have `// plain:`; rewrite the line below instead");
        check_text(&excepted.repeat(21), &[&more]);
        let no_reason = format!("{PATH}:1: `// plain:` has no reason; say why");
        check_text(&format!("// plain:\n{BAD}"), &[&no_reason]);
        let not_needed = format!("{PATH}:1: the line below this `// plain:` needs no exception; remove the comment");
        check_text(&format!("// plain: it is good\n{GOOD}"), &[&not_needed]);
    }
}
