//! The chunked transfer coding (RFC 9112 section 7.1) as a state machine that stores no bytes: it tells data from
//! framing.
//!
//! As tolerant as receivers: a line may end in LF alone, white space and other junk may surround the size, and the
//! line break after the data may be missing. Extensions and trailer fields of any length are skipped.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// Before a size, where line breaks and white space are skipped.
    Before,
    /// In the digits of a size.
    Size {
        /// The digits so far.
        value: u64,
        /// The only digit so far was 0, so that an `x` may follow.
        zero: bool,
    },
    /// After the digits, up to the end of the line.
    Extension {
        /// The size of the chunk.
        value: u64,
    },
    /// In data, with this many bytes left (at least one).
    Data(u64),
    /// In the trailer section, after the last chunk.
    Trailer {
        /// The current line is empty so far.
        empty: bool,
    },
}

/// The result of reading framing. Each number counts the framing bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All bytes were framing.
    Framing(usize),
    /// Data follows.
    Data(usize),
    /// The body ends.
    End(usize),
    /// The next byte cannot be part of a size.
    Broken(usize),
}

impl Chunks {
    pub const START: Chunks = Chunks::Before;

    pub fn may_begin(byte: u8) -> bool {
        is_junk(byte) || digit(byte).is_some()
    }

    /// Whether the last chunk's size was read, so that all data came.
    pub fn has_all_data(&self) -> bool {
        matches!(self, Chunks::Trailer { .. })
    }

    /// Bytes left in the current chunk.
    pub fn data_left(&self) -> u64 {
        if let Chunks::Data(left) = self { *left } else { 0 }
    }

    /// `bytes` bytes of data were used, or are missing.
    pub fn took(&mut self, bytes: u64) {
        if let Chunks::Data(left) = self {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                *self = Chunks::Before;
            }
        }
    }

    /// Reads framing up to data, the body's end or the end of `bytes`.
    pub fn next(&mut self, bytes: &[u8]) -> Next {
        for (at, &byte) in bytes.iter().enumerate() {
            *self = match *self {
                Chunks::Data(_) => return Next::Data(at),
                Chunks::Before => match byte {
                    _ if is_junk(byte) => Chunks::Before,
                    _ => match digit(byte) {
                        Some(value) => Chunks::Size { value, zero: value == 0 },
                        None => return Next::Broken(at),
                    },
                },
                Chunks::Size { value, zero } => match (digit(byte), byte) {
                    (Some(_), _) if value >> 60 != 0 => return Next::Broken(at),
                    (Some(digit), _) => Chunks::Size { value: value << 4 | digit, zero: false },
                    (None, b'x' | b'X') if zero => Chunks::Size { value: 0, zero: false },
                    (None, b'\n') => Chunks::after_line(value),
                    (None, _) => Chunks::Extension { value },
                },
                Chunks::Extension { value } if byte == b'\n' => Chunks::after_line(value),
                Chunks::Extension { value } => Chunks::Extension { value },
                Chunks::Trailer { empty } => match byte {
                    b'\n' if empty => {
                        return Next::End(at + 1);
                    }
                    b'\n' => Chunks::Trailer { empty: true },
                    b'\r' => Chunks::Trailer { empty },
                    _ => Chunks::Trailer { empty: false },
                },
            };
        }
        Next::Framing(bytes.len())
    }

    fn after_line(size: u64) -> Chunks {
        if size == 0 { Chunks::Trailer { empty: true } } else { Chunks::Data(size) }
    }
}

/// Bytes that receivers tolerate before a size.
fn is_junk(byte: u8) -> bool {
    byte <= b' ' || b"+,;x".contains(&byte)
}

fn digit(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Undoes the chunking of `text`, given in pieces of `step` bytes. Returns the data, whether it ended well, and
    /// the bytes left.
    fn undo(text: &str, step: usize) -> (String, Option<(bool, usize)>) {
        let (mut chunks, mut data, mut at) = (Chunks::START, String::new(), 0);
        while at < text.len() {
            let end = (at + step).min(text.len());
            let bytes = &text.as_bytes()[at..end];
            match chunks.next(bytes) {
                Next::Framing(used) => at += used,
                Next::Data(used) => {
                    let len = (bytes.len() - used).min(chunks.data_left() as usize);
                    data += &text[at + used..at + used + len];
                    chunks.took(len as u64);
                    at += used + len;
                }
                Next::End(used) => return (data, Some((true, text.len() - at - used))),
                Next::Broken(used) => return (data, Some((false, text.len() - at - used))),
            }
        }
        (data, None)
    }

    fn check(text: &str, data: &str, end: Option<(bool, usize)>) {
        for step in 1..=text.len() {
            assert_eq!(undo(text, step), (data.to_string(), end), "{text:?} by {step}");
        }
    }

    #[test]
    fn as_the_rfc_has_it() {
        check("5\r\nhello\r\n0\r\n\r\nHTTP", "hello", Some((true, 4)));
        check(
            "A;name=\"v\"\r\n0123456789\r\n000a\r\nabcdefghij\r\n0\r\nX: y\r\nZ: z\r\n\r\n",
            "0123456789abcdefghij",
            Some((true, 0)),
        );
        check("0\r\n\r\n", "", Some((true, 0)));
        check("3\r\nabc\r\n0\r\nX: y\r\n", "abc", None);
        check("5\r\nab", "ab", None);
    }

    #[test]
    fn as_it_is_met() {
        check("5\nhello\n0\n\nrest", "hello", Some((true, 4)));
        check(" 3 \r\nabc\r\n \t0 ; x\r\n\r\n", "abc", Some((true, 0)));
        check("0x3\r\nabc\r\n+2\r\nde\r\n00\r\n\r\n", "abcde", Some((true, 0)));
        check("3\r\nabc3\r\ndef0\r\n\r\n", "abcdef", Some((true, 0)));
        check("\r\nx\r\n,3,\r\nabc\r\n0\n\n", "abc", Some((true, 0)));
        check("3\r\r\nabc\r\n\r\n\r\n0\r\r\n\r\r\n", "abc", Some((true, 0)));
    }

    #[test]
    fn what_cannot_be_a_size() {
        check("10000000000000000\r\n\r\nGET", "", Some((false, 8)));
        check("-4\r\nabc", "", Some((false, 7)));
        check("3\r\nabcXyz", "abc", Some((false, 3)));
        check("<html>", "", Some((false, 6)));
        check("ffffffffffffffff\r\nabc", "abc", None);
    }
}
