//! Finds the shipped code of a Rust file: blanks out comments, literals, and items of tests and models. Not a full
//! parser: it recognises comments, literals and brackets, and evaluates `#[cfg(...)]`.

use std::ops::Range;

/// Replaces everything except shipped code by spaces, and literals by quotation marks. Bytes and lines keep their
/// positions.
pub(crate) fn shipped(text: &str) -> String {
    let mut code = without_comments_and_literals(text);
    let mut from = 0;
    while let Some(found) = find(&code, b"#[cfg(", from) {
        let Some(close) = closing(&code, found + 1) else { break };
        // `code` has no literals, so the names of features are ignored.
        let condition = String::from_utf8_lossy(&code[found + 6..close - 1]).into_owned();
        from = close + 1;
        if value(&condition) == Some(false) {
            let end = end_of_item(&code, from);
            fill(&mut code, found..end, b' ');
            from = end;
        }
    }
    // Only whole characters were blanked.
    String::from_utf8(code).unwrap_or_default()
}

/// The position of the bracket that closes the one at `open`.
pub(crate) fn closing(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn find(code: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    code.get(from..)?.windows(wanted.len()).position(|window| window == wanted).map(|at| from + at)
}

fn fill(code: &mut [u8], range: Range<usize>, with: u8) {
    code[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = with);
}

/// The position after the item, statement or field whose attribute ends before `from`: after its body, its `;` or its `,`.
fn end_of_item(code: &[u8], from: usize) -> usize {
    let (mut at, mut angles) = (from, 0);
    while let Some(byte) = code.get(at) {
        match byte {
            b';' => return at + 1,
            // Inside angle brackets a comma separates types.
            b',' if angles <= 0 => return at + 1,
            b'{' => return closing(code, at).map_or(code.len(), |close| close + 1),
            b'(' | b'[' => at = closing(code, at).unwrap_or(code.len()),
            b')' | b']' | b'}' => return at,
            b'<' => angles += 1,
            b'>' if !matches!(code[at - 1], b'-' | b'=') => angles -= 1,
            _ => {}
        }
        at += 1;
    }
    code.len()
}

/// The value of a condition in shipped code, which is neither test nor model. `None`: it differs between builds.
fn value(condition: &str) -> Option<bool> {
    let condition = condition.trim();
    let Some((name, rest)) = condition.split_once('(') else {
        return if matches!(condition, "test" | "loom") { Some(false) } else { None };
    };
    let parts = split(rest.strip_suffix(')').unwrap_or(rest));
    let values: Vec<Option<bool>> = parts.iter().map(|part| value(part)).collect();
    // One part with the value `deciding` decides. Otherwise the result is known if all parts are.
    let one_of = |deciding| {
        if values.contains(&Some(deciding)) {
            return Some(deciding);
        }
        if values.contains(&None) { None } else { Some(!deciding) }
    };
    match name.trim() {
        "not" => values.first().copied().flatten().map(|value| !value),
        "all" => one_of(false),
        "any" => one_of(true),
        _ => None,
    }
}

fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn without_comments_and_literals(text: &str) -> Vec<u8> {
    let mut code = text.as_bytes().to_vec();
    let mut at = 0;
    while at < code.len() {
        let rest = &text.as_bytes()[at..];
        let len = match rest {
            [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => block_comment_len(rest),
            [b'"', ..] => string_len(rest, 0),
            [b'r', ..] if !follows_word(text.as_bytes(), at) => raw_string_len(rest),
            [b'\'', ..] => character_len(rest),
            _ => 0,
        };
        fill(&mut code, at..at + len, if rest[0] == b'/' { b' ' } else { b'"' });
        at += len.max(1);
    }
    code
}

/// Whether the byte at `at` is in the middle of a name. The `b` before a raw string does not count.
fn follows_word(text: &[u8], at: usize) -> bool {
    at.checked_sub(1)
        .is_some_and(|before| text[before] == b'_' || (text[before].is_ascii_alphanumeric() && text[before] != b'b'))
}

/// Block comments nest.
fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of a string with its quotes. `hashes`: the number of `#` behind a raw string.
fn string_len(rest: &[u8], hashes: usize) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' if hashes == 0 => at += 2,
            b'"' if rest[at + 1..].iter().take_while(|byte| **byte == b'#').count() >= hashes => {
                return at + 1 + hashes;
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a raw string. 0: it is none.
fn raw_string_len(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    match rest.get(1 + hashes) {
        // Without hashes a backslash is an ordinary character: the next `"` ends the string.
        Some(b'"') if hashes == 0 => rest[2..].iter().position(|byte| *byte == b'"').map_or(rest.len(), |end| end + 3),
        Some(b'"') => 1 + hashes + string_len(&rest[1 + hashes..], hashes),
        _ => 0,
    }
}

/// The length of a character literal. 0: it is a lifetime.
fn character_len(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, tail @ ..] => tail.iter().position(|byte| *byte == b'\'').map_or(0, |end| end + 4),
        [_, first, tail @ ..] => {
            let more = match first {
                0xf0.. => 3,
                0xe0.. => 2,
                0xc0.. => 1,
                _ => 0,
            };
            if tail.get(more) == Some(&b'\'') { more + 3 } else { 0 }
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_that_ships_is_left() {
        // `X` is code, `q` is not.
        let rows = [
            "X // q\nX",
            "X /* q /* q */ q */ X",
            "X(\"q // \\\" q\", X)",
            "X(r#\"q \" q\"#, X)",
            "X(br\"q \\\", X)",
            "X(b'q', 'q', '\\'', '\\u{e9}', 'é', X::<'X>)",
            "/// q\nfn X() {}",
            "X #[cfg(test)] mod q { q { q } } X",
            "X #[cfg(all(test, not(loom)))]\nmod q { q } X",
            "X #[cfg(loom)] #[q] fn q(q: [u8; 3]) -> q { q } X",
            "X #[cfg(loom)] fn q<'q, q, const q: q>() -> q<q, q> { q } X",
            "X #[cfg(loom)] use q::{q, q}; X",
            "X { #[cfg(loom)] let q = q(q; q); X }",
            "X { #[cfg(loom)] q, X }",
            "X { #[cfg(any(test, loom))] q }",
            "#[cfg(not(loom))] X",
            "#[cfg(any(loom, X))] X",
            "#[cfg(all(not(loom), feature = \"q\"))] X",
            "#[cfg(not(test))] X { X }",
        ];
        for text in rows {
            let found = shipped(text);
            assert_eq!(found.len(), text.len());
            assert!(!found.contains('q'), "{text}: {found}");
            assert_eq!(found.matches('X').count(), text.matches('X').count(), "{text}: {found}");
            assert_eq!(found.lines().count(), text.lines().count());
        }
    }

    #[test]
    fn what_does_not_end_is_no_reason_to_stop() {
        for text in ["\"", "/*", "r#\"", "'", "'\\", "#[cfg(test)]", "#[cfg(test", "#[cfg(test)] {", "fn ( [", "}"] {
            assert_eq!(shipped(text).len(), text.len());
        }
    }
}
