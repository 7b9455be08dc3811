//! The keyword `content`: bytes to find, and where they may be.

use crate::mistake::Read;
use crate::text::{Word, quoted};
use memchr::memmem::Finder;

/// A number, or a variable set by an earlier `byte_extract` or `byte_math`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Num {
    Value(i64),
    Variable(u8),
}

impl Num {
    pub fn of(self, variables: &[u64]) -> i64 {
        match self {
            Num::Value(value) => value,
            Num::Variable(at) => variables.get(usize::from(at)).map_or(0, |value| *value as i64),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub bytes: Vec<u8>,
    pub negated: bool,
    pub nocase: bool,
    pub offset: Option<Num>,
    pub depth: Option<Num>,
    pub distance: Option<Num>,
    pub within: Option<Num>,
    pub starts: bool,
    pub ends: bool,
    /// `fast_pattern`: the engine searches for this content first.
    pub fast: bool,
    /// The next step is relative to the end of this content.
    pub relative_next: bool,
    finder: Option<Finder<'static>>,
}

impl Content {
    pub fn read(value: Word<'_>) -> Read<Content> {
        let (text, negated) = quoted(value)?;
        let bytes = pattern(text)?;
        if bytes.is_empty() {
            return text.wrong("the content is empty");
        }
        if bytes.len() > CONTENT_BYTES {
            return text.wrong(format!("a content has {CONTENT_BYTES} bytes at most"));
        }
        Ok(Content {
            bytes,
            negated,
            nocase: false,
            offset: None,
            depth: None,
            distance: None,
            within: None,
            starts: false,
            ends: false,
            fast: false,
            relative_next: false,
            finder: None,
        })
    }

    /// Whether it starts from the end of the previous step.
    pub fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }

    /// The offset in the buffer at which the content ends at the latest, if the rule states it.
    pub fn end(&self) -> Option<u64> {
        let offset = self.offset.unwrap_or(Num::Value(0));
        match (offset, self.depth?) {
            (Num::Value(offset), Num::Value(depth)) => u64::try_from(offset.saturating_add(depth)).ok(),
            _ => None,
        }
    }

    /// Prepares the searcher.
    pub fn compile(&mut self) {
        if self.nocase {
            self.bytes.make_ascii_lowercase();
        }
        self.finder = (!self.nocase).then(|| Finder::new(&self.bytes).into_owned());
    }

    /// Returns the first match.
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        match &self.finder {
            Some(finder) => finder.find(bytes),
            None => find_nocase(bytes, &self.bytes),
        }
    }
}

/// Most bytes of one content.
const CONTENT_BYTES: usize = 4096;

/// Finds `lower`, which is in lower case, ignoring case.
pub(crate) fn find_nocase(bytes: &[u8], lower: &[u8]) -> Option<usize> {
    let first = *lower.first()?;
    let last_start = bytes.len().checked_sub(lower.len())?;
    let candidates = memchr::memchr2_iter(first, first.to_ascii_uppercase(), &bytes[..=last_start]);
    candidates.into_iter().find(|at| bytes[*at..*at + lower.len()].eq_ignore_ascii_case(lower))
}

/// Reads a pattern: text with escapes, and hexadecimal between bars.
pub(crate) fn pattern(text: Word<'_>) -> Read<Vec<u8>> {
    let (mut bytes, mut hex, mut high, mut escaped) = (Vec::new(), false, None::<u8>, false);
    for (at, byte) in text.text.bytes().enumerate() {
        let here = Word::new(&text.text[..0], text.at + at);
        if hex {
            let digit = char::from(byte).to_digit(16).map(|digit| digit as u8);
            match (byte, digit, high) {
                (b'|', _, None) => hex = false,
                (b' ', _, None) => {}
                (_, Some(digit), None) => high = Some(digit),
                (_, Some(digit), Some(first)) => {
                    bytes.push(first << 4 | digit);
                    high = None;
                }
                _ => return here.wrong("between bars stand pairs of hexadecimal digits"),
            }
        } else if escaped {
            if !matches!(byte, b'"' | b'\\' | b';' | b':' | b'|') {
                return here.wrong("only \" \\ ; : and | are escaped");
            }
            bytes.push(byte);
            escaped = false;
        } else {
            match byte {
                b'|' => hex = true,
                b'\\' => escaped = true,
                b'"' => return here.wrong("a quote within a content is escaped"),
                byte => bytes.push(byte),
            }
        }
    }
    if hex || escaped {
        let end = Word::new("", text.at + text.text.len());
        return end.wrong(if hex { "the closing bar is missing" } else { "a backslash stands at the end" });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let read = |text: &str| pattern(Word::new(text, 10));
        let rows: [(&str, &[u8]); 5] =
            [("abc", b"abc"), ("a|41 42|c", b"aABc"), ("a\\;b", b"a;b"), ("|0D0a|", b"\r\n"), ("\\\\", b"\\")];
        for (text, bytes) in rows {
            assert_eq!(read(text).as_deref(), Ok(bytes), "{text}");
        }
        for (text, at) in [("a|4", 13), ("|4|", 12), ("a\\", 12), ("|4g|", 12), ("\\x", 11)] {
            assert_eq!(read(text).map_err(|wrong| wrong.at), Err(at), "{text}");
        }
    }

    #[test]
    fn in_whatever_case() {
        assert_eq!(find_nocase(b"xxAbCd", b"abc"), Some(2));
        assert_eq!(find_nocase(b"ab", b"abc"), None);
        assert_eq!(find_nocase(b"", b"a"), None);
    }
}
