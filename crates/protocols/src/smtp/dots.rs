//! The bytes of a mail after DATA: its end, and the dots that its sender stuffed at line starts (RFC 5321, 4.5.2).
//!
//! A line ends with LF, with or without CR before it: servers differ, and most accept both.

use memchr::memchr_iter;

/// The position of the next byte. `Start` and `Inside` never end a mail: a line must hold a single dot.
///
/// | from | LF | CR | dot | other |
/// |---|---|---|---|---|
/// | `Start` | `Start` | `Inside` | `Dot` | `Inside` |
/// | `Inside` | `Start` | `Inside` | `Inside` | `Inside` |
/// | `Dot` | end of the mail | `Return` | `Inside` | `Inside` |
/// | `Return` | end of the mail | `Inside` | `Inside` | `Inside` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dots {
    /// At the start of a line.
    #[default]
    Start,
    /// Inside a line.
    Inside,
    /// After a dot at the start of a line.
    Dot,
    /// After that dot and a carriage return.
    Return,
}

/// What to do with the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The mail gets a carriage return that an earlier block ended with.
    pub(super) is_return: bool,
    /// Number of bytes of the mail.
    pub(super) body: usize,
    /// Number of bytes to skip after them.
    pub(super) skip: usize,
    /// The mail is over.
    pub(super) is_end: bool,
}

impl Dots {
    /// Reads the next bytes, at least one. Each call uses a byte, or leaves a state in which the next call does.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Step {
        let nothing = Step { is_return: false, body: 0, skip: 0, is_end: false };
        let over = Step { skip: 1, is_end: true, ..nothing };
        match (*self, bytes.first()) {
            (Dots::Start, Some(b'.')) => {
                *self = Dots::Dot;
                Step { skip: 1, ..nothing }
            }
            (Dots::Start | Dots::Inside, _) => self.run(bytes),
            (Dots::Dot | Dots::Return, Some(b'\n')) => over,
            (Dots::Dot, Some(b'\r')) => {
                *self = Dots::Return;
                Step { skip: 1, ..nothing }
            }
            (Dots::Dot, _) => {
                *self = Dots::Inside;
                nothing
            }
            (Dots::Return, _) => {
                *self = Dots::Inside;
                Step { is_return: true, ..nothing }
            }
        }
    }

    /// Reads up to the next dot at the start of a line.
    fn run(&mut self, bytes: &[u8]) -> Step {
        *self = Dots::Inside;
        for end in memchr_iter(b'\n', bytes) {
            match bytes.get(end + 1) {
                Some(b'.') => {
                    *self = Dots::Dot;
                    return Step { is_return: false, body: end + 1, skip: 1, is_end: false };
                }
                Some(_) => {}
                None => *self = Dots::Start,
            }
        }
        Step { is_return: false, body: bytes.len(), skip: 0, is_end: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mail, and the bytes left behind it, from blocks of `size` bytes.
    fn read(bytes: &[u8], size: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut dots, mut mail, mut at) = (Dots::default(), Vec::new(), 0);
        for block in bytes.chunks(size) {
            let mut offset = 0;
            while offset < block.len() {
                let step = dots.step(&block[offset..]);
                if step.is_return {
                    mail.push(b'\r');
                }
                mail.extend_from_slice(&block[offset..offset + step.body]);
                offset += step.body + step.skip;
                if step.is_end {
                    return (mail, Some(bytes[at + offset..].to_vec()));
                }
            }
            at += block.len();
        }
        (mail, None)
    }

    #[test]
    fn mails() {
        let check = |bytes: &[u8], mail: &[u8], rest: Option<&[u8]>| {
            for size in 1..=bytes.len() {
                assert_eq!(read(bytes, size), (mail.to_vec(), rest.map(<[u8]>::to_vec)), "{bytes:?} by {size}");
            }
        };
        check(b"a\r\n.\r\nQUIT", b"a\r\n", Some(b"QUIT"));
        check(b"a\n.\nQUIT", b"a\n", Some(b"QUIT"));
        check(b".\r\nx", b"", Some(b"x"));
        check(b"..a\r\n..\r\n.b\r\n.\r\n", b".a\r\n.\r\nb\r\n", Some(b""));
        check(b"a.b\r\n.\rc", b"a.b\r\n\rc", None);
        check(b"no end\r\n", b"no end\r\n", None);
    }
}
