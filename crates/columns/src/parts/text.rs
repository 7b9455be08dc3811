//! Text from the wire as UTF-8, with the values that `json` gives.

use std::borrow::Cow;

/// The text. A byte that is not UTF-8 becomes `\xHH`, and a backslash before an x `\x5c`, so the text always tells the
/// original bytes. Allocates only where something is escaped.
pub(crate) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains("\\x") => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

#[cold]
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace("\\x", "\\x5cx"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_become_text_that_says_which() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(readable(bytes), expected);
        check(b"", "");
        check("B\u{fc}cher\n".as_bytes(), "B\u{fc}cher\n");
        check(b"caf\xe9 \xff", r"caf\xe9 \xff");
        check(br"C:\x41\y", r"C:\x5cx41\y");
    }
}
