//! JSON values as text (RFC 8259), appended to a buffer without allocating.
//!
//! Text from the wire need not be UTF-8. A byte that is not becomes `\xHH` in the value (in JSON source: `\\xHH`), and a
//! backslash before an `x` becomes `\x5c`, so the value always tells the original bytes. Control characters and characters
//! that change the writing direction are escaped, so any terminal can show a line.

use filter::Unit;
use packet::text::append_hex;
use std::io::Write;
use std::net::IpAddr;

/// Bytes that need no escape.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        plain[byte] = byte != b'"' as usize && byte != b'\\' as usize;
        byte += 1;
    }
    plain
};

/// Appends bytes as a string.
#[inline]
pub(crate) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let plain = bytes.iter().take_while(|byte| PLAIN[usize::from(**byte)]).count();
    out.extend_from_slice(&bytes[..plain]);
    if plain < bytes.len() {
        escaped(out, &bytes[plain..]);
    }
    out.push(b'"');
}

#[cold]
fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        let mut characters = chunk.valid().chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' if characters.peek() == Some(&'x') => byte_escape(out, b'\\'),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                _ if base::terminal::is_unfit(character) => unicode_escape(out, character),
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|byte| byte_escape(out, *byte));
    }
}

fn byte_escape(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\\\x");
    append_hex(out, &[byte]);
}

fn unicode_escape(out: &mut Vec<u8>, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.extend_from_slice(b"\\u");
        append_hex(out, &unit.to_be_bytes());
    }
}

/// Appends a number.
#[inline]
pub(crate) fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a duration: a whole number, or seconds with a fraction to the microsecond, to the nanosecond where it has them.
pub(crate) fn duration(out: &mut Vec<u8>, count: u64, unit: Unit) {
    if unit != Unit::Fraction {
        return number(out, count);
    }
    let (seconds, rest) = (count / 1_000_000_000, count % 1_000_000_000);
    number(out, seconds);
    let digits = format!(".{rest:09}");
    let end = if rest.is_multiple_of(1_000) { digits.len() - 3 } else { digits.len() };
    out.extend_from_slice(&digits.as_bytes()[..end]);
}

/// Appends an address as a string.
pub(crate) fn address(out: &mut Vec<u8>, value: IpAddr) {
    out.push(b'"');
    plain_address(out, value);
    out.push(b'"');
}

/// Appends an address.
pub(crate) fn plain_address(out: &mut Vec<u8>, value: IpAddr) {
    match value {
        IpAddr::V4(value) => {
            for (index, octet) in value.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        // RFC 5952. Writing to a Vec cannot fail.
        IpAddr::V6(value) => drop(write!(out, "{value}")),
    }
}

/// Appends `"name":`, after a comma if it is not the first. The name is a constant of this program, and needs no escape.
pub(crate) fn key(out: &mut Vec<u8>, name: &str) {
    comma(out);
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a comma, unless an object or list has just begun.
#[inline]
pub(crate) fn comma(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'{' | b'[')) {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        let check = |bytes: &[u8], expected: &str| {
            let mut out = Vec::new();
            text(&mut out, bytes);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(b"", r#""""#);
        check(b"a/b c", r#""a/b c""#);
        check(b"say \"hi\"\\", r#""say \"hi\"\\""#);
        check(b"a\r\n\t\x1b[31m\x7f\0", r#""a\r\n\t\u001b[31m\u007f\u0000""#);
        check("Bücher 書 😀".as_bytes(), "\"Bücher 書 😀\"");
        check("\u{9b}31m\u{202e}".as_bytes(), r#""\u009b31m\u202e""#);
        check("\u{61c}\u{feff}\u{e0041}".as_bytes(), r#""\u061c\ufeff\udb40\udc41""#);
        check(b"caf\xe9 \xff\xfe", r#""caf\\xe9 \\xff\\xfe""#);
        // A text that looks like an escape.
        check(br"C:\x41\y", r#""C:\\x5cx41\\y""#);
        check(b"\\\xff", r#""\\\\xff""#);
    }

    #[test]
    fn durations() {
        let check = |count: u64, unit: Unit, expected: &str| {
            let mut out = Vec::new();
            duration(&mut out, count, unit);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(90, Unit::Seconds, "90");
        check(90, Unit::Microseconds, "90");
        check(0, Unit::Fraction, "0.000000");
        check(30_393_704_000, Unit::Fraction, "30.393704");
        check(1, Unit::Fraction, "0.000000001");
        check(u64::MAX, Unit::Fraction, "18446744073.709551615");
    }

    #[test]
    fn values() {
        let mut out = b"{".to_vec();
        key(&mut out, "a");
        number(&mut out, u64::MAX);
        key(&mut out, "b");
        address(&mut out, "192.168.0.255".parse().unwrap());
        key(&mut out, "c");
        address(&mut out, "2001:db8::1".parse().unwrap());
        assert_eq!(out, br#"{"a":18446744073709551615,"b":"192.168.0.255","c":"2001:db8::1""#);
    }

    /// Undoes both layers of escapes.
    fn original(json: &str) -> Vec<u8> {
        let value: String = serde_json::from_str(json).unwrap();
        let (mut bytes, mut rest) = (Vec::new(), value.as_str());
        while let Some(character) = rest.chars().next() {
            match rest.strip_prefix("\\x") {
                Some(behind) => {
                    bytes.push(u8::from_str_radix(&behind[..2], 16).unwrap());
                    rest = &behind[2..];
                }
                None => {
                    bytes.extend_from_slice(&rest.as_bytes()[..character.len_utf8()]);
                    rest = &rest[character.len_utf8()..];
                }
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_become_json_that_says_which(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            text(&mut out, &bytes);
            let json = String::from_utf8(out).unwrap();
            prop_assert!(!json.chars().any(char::is_control));
            prop_assert_eq!(original(&json), bytes);
        }

        #[test]
        fn backslashes_too(text_of in r"[\\x0-9a-f\xff]{0,12}") {
            let mut out = Vec::new();
            text(&mut out, text_of.as_bytes());
            prop_assert_eq!(original(&String::from_utf8(out).unwrap()), text_of.as_bytes());
        }
    }
}
