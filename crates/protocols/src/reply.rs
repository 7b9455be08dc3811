//! A line of a reply of SMTP (RFC 5321, 4.2) or FTP (RFC 959, 4.2), without its end.

/// A line of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its code; `None`: a line inside an FTP reply, which need not repeat the code.
    pub code: Option<u16>,
    /// Whether it is the last line of its reply.
    pub is_last: bool,
    /// The text behind the code.
    pub text: &'a [u8],
}

/// Reads a line.
pub fn line(line: &[u8]) -> Line<'_> {
    let inside = Line { code: None, is_last: false, text: line };
    let Some((digits, rest)) = line.split_first_chunk::<3>() else { return inside };
    if !digits.iter().all(u8::is_ascii_digit) || !(b'1'..=b'6').contains(&digits[0]) {
        return inside;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest {
        [b'-', text @ ..] => Line { code: Some(code), is_last: false, text },
        [b' ', text @ ..] => Line { code: Some(code), is_last: true, text },
        [] => Line { code: Some(code), is_last: true, text: rest },
        _ => inside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check = |text: &[u8], code: Option<u16>, is_last: bool, expected: &[u8]| {
            assert_eq!(line(text), Line { code, is_last, text: expected });
        };
        check(b"220 ready", Some(220), true, b"ready");
        check(b"250-SIZE", Some(250), false, b"SIZE");
        check(b"354", Some(354), true, b"");
        check(b" inside", None, false, b" inside");
        check(b"999 x", None, false, b"999 x");
        check(b"2200", None, false, b"2200");
        check(b"", None, false, b"");
    }
}
