//! Parameters of a header field (RFC 2045, 5.1; RFC 2231): `attachment; filename="a.txt"`.

use std::borrow::Cow;

/// The value of a parameter behind a `;`, without quotes. Joins values in several parts (RFC 2231).
pub fn parameter(value: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let mut found: Option<Vec<u8>> = None;
    let mut rest = &value[memchr::memchr(b';', value)? + 1..];
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'=' | b';')) {
        let name = rest[..at].trim_ascii();
        let is_value = rest[at] == b'=';
        rest = rest[at + 1..].trim_ascii_start();
        if !is_value {
            continue;
        }
        let (text, behind) = text(rest);
        rest = &behind[memchr::memchr(b';', behind).map_or(behind.len(), |end| end + 1)..];
        let Some((start, of)) = name.split_at_checked(key.len()) else { continue };
        if !start.eq_ignore_ascii_case(key) {
            continue;
        }
        match of {
            b"" => return Some(text.into_owned()),
            [b'*', of @ ..] => {
                let is_first = found.is_none();
                let list = found.get_or_insert_default();
                match of.last() {
                    // Character set, language, and percent-encoded bytes.
                    None | Some(b'*') => append_percent(list, &text, is_first),
                    Some(_) => list.extend_from_slice(&text),
                }
            }
            _ => {}
        }
    }
    found
}

/// Reads a value; returns it, and the bytes behind it.
fn text(bytes: &[u8]) -> (Cow<'_, [u8]>, &[u8]) {
    let Some(quoted) = bytes.strip_prefix(b"\"") else {
        let (text, behind) = bytes.split_at(memchr::memchr(b';', bytes).unwrap_or(bytes.len()));
        return (text.trim_ascii_end().into(), behind);
    };
    let (mut text, mut at) = (Vec::new(), 0);
    while let Some(byte) = quoted.get(at).filter(|byte| **byte != b'"') {
        // A backslash before any other character belongs to a file path.
        at += usize::from(*byte == b'\\' && matches!(quoted.get(at + 1), Some(b'"' | b'\\')));
        text.push(quoted[at]);
        at += 1;
    }
    (text.into(), quoted.get(at + 1..).unwrap_or_default())
}

fn append_percent(out: &mut Vec<u8>, text: &[u8], is_first: bool) {
    let mut rest = text;
    if is_first && let Some(second) = memchr::memchr_iter(b'\'', text).nth(1) {
        rest = &text[second + 1..];
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    while let Some((first, behind)) = rest.split_first() {
        let coded = if let [high, low, ..] = behind { digit(high).zip(digit(low)) } else { None };
        let coded = coded.filter(|_| *first == b'%');
        out.push(coded.map_or(*first, |(high, low)| (high << 4 | low) as u8));
        rest = coded.map_or(behind, |_| &behind[2..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let check = |value: &str, expected: Option<&str>| {
            let found = parameter(value.as_bytes(), b"filename");
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{value}");
        };
        check("attachment; x; FileName = a ; b=c", Some("a"));
        check("attachment; y=\"; filename=no\"; filename=\"q\\\"uo\\\\te\"", Some("q\"uo\\te"));
        check("attachment; filename*0=\"long\"; filename*1=.exe", Some("long.exe"));
        check("attachment; filename*0*=utf-8'en'%41b; filename*1*=%2e; filename*2=%2e", Some("Ab.%2e"));
        check("attachment; name=b", None);
        check("filename=a", None);
        check("attachment; filename=\"open", Some("open"));
    }
}
