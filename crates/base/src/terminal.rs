//! Makes foreign text fit for a terminal: text from a peer, a file name or another user's request is shown but not
//! obeyed.
//!
//! Escaped characters: controls (C0, DEL, C1); marks that turn the direction of writing, or are invisible (UAX #9, the
//! byte order mark, tags); and line separators. Letters of every script stay.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;

/// Whether this character would move the cursor, reorder its neighbours, or hide.
pub fn is_unfit(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A text in one line: unfit characters become `\x1b` or `\u{202e}`, and so do line breaks and tabs.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unfit)
}

/// A file's name or path in one line; bytes that are not UTF-8 become `\xff`.
pub fn name(name: impl AsRef<OsStr>) -> String {
    let mut out = String::new();
    for chunk in name.as_ref().as_encoded_bytes().utf8_chunks() {
        out.push_str(&line(chunk.valid()));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            write!(out, "\\x{byte:02x}").unwrap_or_default();
        }
    }
    out
}

/// A text of several lines: line breaks and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_unfit(character) && !matches!(character, '\n' | '\t'))
}

/// A JSON document with the same meaning: unfit characters, which are in strings only, become `\u` escapes.
pub fn json(document: &str) -> Cow<'_, str> {
    replaced(
        document,
        |character| is_unfit(character) && character != '\n',
        |out, character| {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            Ok(())
        },
    )
}

fn escaped(text: &str, unfit: fn(char) -> bool) -> Cow<'_, str> {
    replaced(text, unfit, |out, character| match u32::from(character) {
        byte @ 0..=0x7f => write!(out, "\\x{byte:02x}"),
        number => write!(out, "\\u{{{number:x}}}"),
    })
}

fn replaced(text: &str, unfit: fn(char) -> bool, escape: fn(&mut String, char) -> std::fmt::Result) -> Cow<'_, str> {
    let Some(first) = text.find(unfit) else { return Cow::Borrowed(text) };
    let mut out = String::from(&text[..first]);
    for character in text[first..].chars() {
        if unfit(character) {
            // Writing to a String cannot fail.
            escape(&mut out, character).unwrap_or_default();
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACK: &str = "a\x1b[2J\u{9b}2J\r\n\tb\u{7f}\u{202e}c\u{2066}\u{200f}\u{61c}\u{2028}\u{feff}\u{e0041}é書😀";

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(
            line(ATTACK),
            r"a\x1b[2J\u{9b}2J\x0d\x0a\x09b\x7f\u{202e}c\u{2066}\u{200f}\u{61c}\u{2028}\u{feff}\u{e0041}é書😀"
        );
        assert_eq!(text("a\x1b\tb\r\nc\u{202d}"), "a\\x1b\tb\\x0d\nc\\u{202d}");
        assert!(!text(ATTACK).chars().any(|one| is_unfit(one) && !matches!(one, '\n' | '\t')));
        let bytes: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"dir/\x1b[2J\xff\n.pcap");
        assert_eq!(name(bytes), r"dir/\x1b[2J\xff\x0a.pcap");
        assert!(matches!(line("plain, and 書 as well"), Cow::Borrowed(_)));
    }

    #[test]
    fn documents_mean_the_same() {
        assert_eq!(
            json("{\n \"a\": \"\u{202e}\u{7f}\u{e0041}é\"\n}"),
            "{\n \"a\": \"\\u202e\\u007f\\udb40\\udc41é\"\n}"
        );
    }
}
