//! Memory orderings in a source file, and the one-step weakenings of each.
//!
//! Fences are `fence(...)` itself, and calls of the functions in `ring/doorbell.rs` that act as fences.

use crate::source;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weakening {
    /// Its position; both count from 1.
    pub line: usize,
    pub column: usize,
    /// For messages: `load Acquire -> Relaxed`.
    pub change: String,
    /// The text to replace, and the new text.
    pub range: Range<usize>,
    pub replacement: String,
    /// Why the ordering may be stronger than the models need, from the comment beside it.
    pub reason: Option<String>,
    /// The model that must catch it, from the comment beside it.
    pub model: Option<String>,
}

/// Begins the comment about an ordering that no model needs.
const REASON: &str = "ordering:";
/// Begins the comment that names the model that needs it.
const MODEL: &str = "model:";

/// Beginnings of the names of functions that take an ordering.
const OPERATIONS: [&str; 7] = ["load", "store", "swap", "compare_exchange", "fetch_", "fence", "compiler_fence"];

/// Functions that are fences. The models have no membarrier(2), so there all of them are full fences.
const FENCES: [&str; 3] = ["full", "light", "heavy"];

/// Path before a new ordering that replaces one imported by its name.
const TYPE: &str = "base::atomic::Ordering::";

/// Replaces a fence.
const NOTHING: &str = "()";

/// All weakenings of a file, in order.
pub(super) fn weakenings(text: &str) -> Vec<Weakening> {
    let code = source::shipped(text);
    let mut found = Vec::new();
    for (at, name) in names(&code) {
        let (change_at, changes) = match name {
            "Acquire" | "Release" | "AcqRel" | "SeqCst" => {
                (path_start(&code, at), order_changes(&code, at..at + name.len(), name))
            }
            _ if FENCES.contains(&name) => (path_start(&code, at), fence_call_changes(&code, at, name)),
            _ => continue,
        };
        let line_start = text[..change_at].rfind('\n').map_or(0, |end| end + 1);
        let line = text[..change_at].matches('\n').count() + 1;
        let column = text[line_start..change_at].chars().count() + 1;
        let comment = |word| comment_beside(text, line_start, change_at, word);
        let (reason, model) = (comment(REASON), comment(MODEL));
        found.extend(changes.into_iter().map(|(change, range, replacement)| Weakening {
            line,
            column,
            change,
            range,
            replacement,
            reason: reason.clone(),
            model: model.clone(),
        }));
    }
    found
}

fn names(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.split(move |c| !in_name(c))
        .filter(|name| !name.is_empty())
        .map(move |name| (name.as_ptr().addr() - code.as_ptr().addr(), name))
}

type Change = (String, Range<usize>, String);

fn order_changes(code: &str, order_at: Range<usize>, order: &str) -> Vec<Change> {
    let (call, open, argument) = enclosing_call(code, path_start(code, order_at.start));
    // Imported names without a call have no effect.
    let is_call = OPERATIONS.iter().any(|operation| call.starts_with(operation));
    if !is_call {
        return Vec::new();
    }
    let is_imported = !code[..order_at.start].ends_with("::");
    let named = |order: &str| if is_imported { format!("{TYPE}{order}") } else { order.to_string() };
    if call == "fence" || call == "compiler_fence" {
        let Some(close) = source::closing(code.as_bytes(), open) else { return Vec::new() };
        let whole = path_start(code, open - call.len())..close + 1;
        let weaker = if order == "SeqCst" { Some("AcqRel") } else { None };
        let weaker = weaker.map(|to| (format!("{call} {order} -> {to}"), order_at, named(to)));
        return weaker.into_iter().chain([(format!("{call} {order} -> removed"), whole, NOTHING.into())]).collect();
    }
    let only_loads = call == "load"
        || matches!((call, argument), ("compare_exchange" | "compare_exchange_weak", 3))
        || (call, argument) == ("fetch_update", 1);
    let weaker: &[&str] = match order {
        "Acquire" | "Release" => &["Relaxed"],
        "AcqRel" => &["Relaxed", "Acquire", "Release"],
        _ if only_loads => &["Acquire"],
        _ if call == "store" => &["Release"],
        _ => &["AcqRel"],
    };
    weaker.iter().map(|to| (format!("{call} {order} -> {to}"), order_at.clone(), named(to))).collect()
}

/// Removes a call of a fence function. Not its definition, nor another item of this name.
fn fence_call_changes(code: &str, at: usize, name: &str) -> Vec<Change> {
    let end = at + name.len() + NOTHING.len();
    let start = path_start(code, at);
    let before = code[..start].trim_end();
    if !code[at + name.len()..].starts_with(NOTHING) || before.ends_with("fn") || before.ends_with('.') {
        return Vec::new();
    }
    vec![(format!("{name}() -> removed"), start..end, NOTHING.into())]
}

/// The beginning of the path whose last name is at `at`, such as `base::atomic::fence`.
fn path_start(code: &str, at: usize) -> usize {
    let mut start = at;
    while let Some(before) = code[..start].strip_suffix("::") {
        let name_len =
            before.chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').map(char::len_utf8).sum::<usize>();
        start = before.len() - name_len;
    }
    start
}

/// The call that has the text at `at` as an argument: its name, the position of its bracket, and the index of the argument.
fn enclosing_call(code: &str, at: usize) -> (&str, usize, usize) {
    let (mut depth, mut commas) = (0, 0);
    for (open, byte) in code[..at].bytes().enumerate().rev() {
        match byte {
            b')' | b']' | b'}' => depth += 1,
            b'(' if depth == 0 => {
                let name = code[..open].rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
                return (name, open, commas);
            }
            b'(' | b'[' | b'{' if depth > 0 => depth -= 1,
            b'[' | b'{' => break,
            b',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    ("", at, commas)
}

/// The text of a comment that begins with `word`: behind the code of the line, or in the pure comment lines directly above.
fn comment_beside(text: &str, line_start: usize, at: usize, word: &str) -> Option<String> {
    let line_end = text[at..].find('\n').map_or(text.len(), |len| at + len);
    let behind = text[at..line_end].split_once("//").map(|(_, comment)| comment.trim());
    let said = |text: &str| Some(text.trim().to_string()).filter(|said| !said.is_empty());
    if let Some(comment) = behind.and_then(|comment| comment.strip_prefix(word)) {
        return said(comment);
    }
    let above = text[..line_start].lines().rev().map_while(|line| line.trim_start().strip_prefix("//"));
    let mut above: Vec<&str> = above.map(str::trim).collect();
    above.reverse();
    let first = above.iter().rposition(|line| line.starts_with(word))?;
    said(&above[first..].join(" ")[word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(usize, usize, &str, &str)]) {
        let found = weakenings(text);
        let seen: Vec<_> = found
            .iter()
            .map(|one| {
                let mut changed = text.to_string();
                changed.replace_range(one.range.clone(), &one.replacement);
                (one.line, one.column, one.change.clone(), changed)
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(line, column, change, text)| (*line, *column, change.to_string(), text.to_string()))
            .collect();
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn each_order_is_weakened_as_far_as_its_operation_goes() {
        check("a.load(Ordering::Acquire)", &[(1, 8, "load Acquire -> Relaxed", "a.load(Ordering::Relaxed)")]);
        check(
            "é;\n a.store(b(c, [d, e]), Ordering::Release)",
            &[(2, 24, "store Release -> Relaxed", "é;\n a.store(b(c, [d, e]), Ordering::Relaxed)")],
        );
        check(
            "a.load(Acquire, x::Ordering::Acquire)",
            &[
                (1, 8, "load Acquire -> Relaxed", "a.load(base::atomic::Ordering::Relaxed, x::Ordering::Acquire)"),
                (1, 17, "load Acquire -> Relaxed", "a.load(Acquire, x::Ordering::Relaxed)"),
            ],
        );
        check("a.load(Ordering::SeqCst)", &[(1, 8, "load SeqCst -> Acquire", "a.load(Ordering::Acquire)")]);
        check("a.store(1, Ordering::SeqCst)", &[(1, 12, "store SeqCst -> Release", "a.store(1, Ordering::Release)")]);
        check("a.swap(1, Ordering::SeqCst)", &[(1, 11, "swap SeqCst -> AcqRel", "a.swap(1, Ordering::AcqRel)")]);
        check(
            "a.swap(1, Ordering::AcqRel)",
            &[
                (1, 11, "swap AcqRel -> Relaxed", "a.swap(1, Ordering::Relaxed)"),
                (1, 11, "swap AcqRel -> Acquire", "a.swap(1, Ordering::Acquire)"),
                (1, 11, "swap AcqRel -> Release", "a.swap(1, Ordering::Release)"),
            ],
        );
        check(
            "a.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst)",
            &[
                (
                    1,
                    26,
                    "compare_exchange SeqCst -> AcqRel",
                    "a.compare_exchange(1, 2, Ordering::AcqRel, Ordering::SeqCst)",
                ),
                (
                    1,
                    44,
                    "compare_exchange SeqCst -> Acquire",
                    "a.compare_exchange(1, 2, Ordering::SeqCst, Ordering::Acquire)",
                ),
            ],
        );
    }

    #[test]
    fn fences_are_weakened_and_removed() {
        check("x::fence(Ordering::Acquire);", &[(1, 10, "fence Acquire -> removed", "();")]);
        check(
            "fence(Ordering::SeqCst);",
            &[(1, 7, "fence SeqCst -> AcqRel", "fence(Ordering::AcqRel);"), (1, 7, "fence SeqCst -> removed", "();")],
        );
        check(
            "if b { doorbell::heavy() } else { full() }",
            &[
                (1, 8, "heavy() -> removed", "if b { () } else { full() }"),
                (1, 35, "full() -> removed", "if b { doorbell::heavy() } else { () }"),
            ],
        );
    }

    #[test]
    fn nothing_else_is_touched() {
        let rows = [
            "a.load(Ordering::Relaxed)",
            "// a.load(Ordering::Acquire)",
            "\"Ordering::Acquire\"",
            "pub fn full() {}",
            "a.full()",
            "is_full()",
            "full(1)",
            "use x::{Acquire, Release};",
            "#[cfg(test)] mod tests { a.load(Ordering::Acquire) }",
            "cmp::Ordering::Less",
            "look(Ordering::Acquire)",
            "x = Acquire",
        ];
        for text in rows {
            check(text, &[]);
        }
    }

    #[test]
    fn a_reason_stands_beside_its_order() {
        let rows = [
            ("a.load(Ordering::Acquire); // ordering: b", Some("b")),
            ("// ordering: b\na.load(Ordering::Acquire);", Some("b")),
            ("// A.\n// ordering: b\n    // c\n a.load(Ordering::Acquire);", Some("b c")),
            ("// ordering: b\n\na.load(Ordering::Acquire);", None),
            ("// ordering: b\nx;\na.load(Ordering::Acquire);", None),
            ("// an ordering: b\na.load(Ordering::Acquire);", None),
            ("// ordering:\na.load(Ordering::Acquire);", None),
            ("a.load(\n    Ordering::Acquire, // ordering: b\n)", Some("b")),
        ];
        for (text, expected) in rows {
            let found = weakenings(text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].reason.as_deref(), expected, "{text}");
        }
        let found = weakenings("a.load(Ordering::Acquire); // model: some_model");
        assert_eq!((found[0].reason.as_deref(), found[0].model.as_deref()), (None, Some("some_model")));
    }
}
