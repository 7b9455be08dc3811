//! The header by which a proxy names its client in front of a connection's bytes: the PROXY protocol, versions 1 and 2
//! (haproxy.org/download/3.0/doc/proxy-protocol.txt). It is skipped; its contents are not recorded.

/// How a header of version 1 begins. It is one line.
const LINE: &[u8] = b"PROXY ";

/// Longest header of version 1, with its line end.
const LINE_BYTES: u8 = 107;

/// How a header of version 2 begins. Version and command, family and a length of two bytes follow, and that many bytes.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_AT: u32 = SIGNATURE.len() as u32;
const LENGTH_AT: u32 = VERSION_AT + 2;
const LENGTH_END: u32 = LENGTH_AT + 1;

/// The state of a header. Each step reads one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// Version 1.
    Line {
        /// Bytes read.
        read: u8,
        /// The last one was a CR.
        is_return: bool,
    },
    /// Version 2.
    Binary {
        /// Bytes read.
        read: u32,
        /// The length of the header, as far as it was read.
        len: u32,
    },
}

/// The result of reading bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All bytes belong to it.
    More,
    /// It ends after this many bytes; the proxied connection follows.
    Done(usize),
    /// It is none.
    No,
}

/// Reads bytes in steps of one. `next`: the state behind a byte; `Some(None)`: the byte was the last one; `None`: it is not
/// valid there.
pub fn read_each<S: Copy>(state: &mut S, bytes: &[u8], next: impl Fn(S, u8) -> Option<Option<S>>) -> Read {
    for (at, &byte) in bytes.iter().enumerate() {
        match next(*state, byte) {
            Some(Some(after)) => *state = after,
            Some(None) => return Read::Done(at + 1),
            None => return Read::No,
        }
    }
    Read::More
}

impl Proxy {
    /// Whether a header begins with these first bytes of a client. [`read`](Proxy::read) reads them again. A proxy sends its
    /// header at once (section 2), so a stream's first block shows it.
    pub fn begin(bytes: &[u8]) -> Option<Proxy> {
        if bytes.starts_with(LINE) {
            return Some(Proxy::Line { read: 0, is_return: false });
        }
        bytes.starts_with(SIGNATURE).then_some(Proxy::Binary { read: 0, len: 0 })
    }

    /// Reads more bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Read {
        read_each(self, bytes, Proxy::next)
    }

    /// The state behind a byte: see [`read_each`].
    fn next(self, byte: u8) -> Option<Option<Proxy>> {
        match self {
            Proxy::Line { is_return: true, .. } if byte == b'\n' => Some(None),
            Proxy::Line { read, .. } if byte == b'\n' || read + 1 >= LINE_BYTES => None,
            Proxy::Line { read, .. } => Some(Some(Proxy::Line { read: read + 1, is_return: byte == b'\r' })),
            Proxy::Binary { read: VERSION_AT, .. } if byte >> 4 != 2 => None,
            Proxy::Binary { read, len } => {
                let len = match read {
                    LENGTH_AT => u32::from(byte) << 8,
                    LENGTH_END => len + u32::from(byte) + LENGTH_END + 1,
                    _ => len,
                };
                let is_last = read >= LENGTH_END && read + 1 == len;
                Some((!is_last).then_some(Proxy::Binary { read: read + 1, len }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rest`: bytes after the header; `None` if `bytes` begin with none.
    fn check(bytes: &[u8], rest: Option<usize>) {
        for split in 0..=bytes.len() {
            let found = Proxy::begin(bytes).and_then(|mut proxy| match proxy.read(&bytes[..split]) {
                Read::Done(used) => Some(bytes.len() - used),
                Read::More => match proxy.read(&bytes[split..]) {
                    Read::Done(used) => Some(bytes.len() - split - used),
                    Read::More | Read::No => None,
                },
                Read::No => None,
            });
            assert_eq!(found, rest, "{bytes:?} at {split}");
        }
    }

    #[test]
    fn headers_of_a_proxy() {
        check(b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\nGET", Some(3));
        check(b"PROXY UNKNOWN\r\n", Some(0));
        check(&[b"PROXY UNKNOWN ", &[b'f'; 91][..], b"\r\nGET"].concat(), Some(3));
        check(&[b"PROXY UNKNOWN ", &[b'f'; 92][..], b"\r\nGET"].concat(), None);
        check(b"PROXY UNKNOWN\nGET", None);
        check(b"PROPFIND / HTTP/1.1\r\n", None);
        let version_2 = |bytes: &[u8]| [SIGNATURE, bytes].concat();
        check(&version_2(b"\x20\0\0\0GET"), Some(3));
        check(&version_2(b"\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x9c\x40\x01\xbbGET"), Some(3));
        check(&version_2(&[b"\x21\x11\x01\x02", &[10; 258][..], b"GET"].concat()), Some(3));
        check(&version_2(b"\x11\x11\0\x0cGET"), None);
        check(&version_2(b"\x21\x11\0\x0c"), None);
    }
}
