//! Bytes from the wire as text that is safe to print, with escapes of DNS master files (RFC 1035, 5.1; RFC 4343, 2.1).

/// Appends `byte`, or `\DDD` in decimal if it is not printable ASCII. A backslash becomes `\\`, so the bytes can be
/// recovered. A space is not escaped, unlike in master files: service names contain spaces (RFC 6763, 4.1.1), and
/// tshark and Suricata print them so.
#[inline]
pub fn append_escaped(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'\\' => out.extend_from_slice(b"\\\\"),
        0x20..=0x7e => out.push(byte),
        _ => out.extend_from_slice(&[b'\\', b'0' + byte / 100, b'0' + byte / 10 % 10, b'0' + byte % 10]),
    }
}

/// Appends bytes in hexadecimal, in lower case.
pub fn append_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
    }
}

/// Appends bytes in hexadecimal with colons.
pub fn append_with_colons(out: &mut Vec<u8>, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        append_hex(out, &[*byte]);
    }
}

/// Strings with a length byte in front of each: DNS character strings (RFC 1035, 3.3), TLS protocol names. A string
/// that is cut is given as far as it goes, and is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strings<'a> {
    rest: &'a [u8],
}

impl<'a> Strings<'a> {
    /// The strings in `bytes`, from the first length byte on.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&length, behind) = self.rest.split_first()?;
        let (string, rest) = behind.split_at_checked(usize::from(length)).unwrap_or((behind, &[]));
        self.rest = rest;
        Some(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let check = |bytes: &[u8], expected: &str| {
            let mut out = Vec::new();
            bytes.iter().for_each(|byte| append_escaped(&mut out, *byte));
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(b"abc~!", "abc~!");
        check(b"a b\\\0\x7f\xff", "a b\\\\\\000\\127\\255");
    }

    #[test]
    fn strings() {
        let check = |bytes: &[u8], expected: &[&[u8]]| {
            assert_eq!(Strings::new(bytes).collect::<Vec<_>>(), expected);
        };
        check(b"", &[]);
        check(b"\x02h2\x08http/1.1", &[b"h2", b"http/1.1"]);
        check(b"\x00\x01a", &[b"", b"a"]);
        check(b"\x05abc", &[b"abc"]);
    }

    #[test]
    fn colons() {
        let mut out = Vec::new();
        append_with_colons(&mut out, &[0, 0xab, 1]);
        assert_eq!(out, b"00:ab:01");
    }
}
