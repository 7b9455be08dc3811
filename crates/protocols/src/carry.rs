//! Copies of unfinished messages or lines at the end of a block, whose rest is in the next block. One limit covers all
//! streams of a filter.

use std::cell::Cell;

/// Counts the bytes that one filter keeps of all streams.
///
/// Conversation and ear both have it, hence the cell.
#[derive(Debug)]
pub struct Carried {
    bytes: Cell<usize>,
    limit: usize,
}

impl Carried {
    /// `limit`: maximum bytes.
    pub const fn new(limit: usize) -> Carried {
        Carried { bytes: Cell::new(0), limit }
    }

    /// Bytes that are kept now.
    pub const fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Appends a copy of `bytes` to the part of one stream; `false` if the limit of all streams is reached.
    #[must_use]
    pub fn keep(&self, part: &mut Vec<u8>, bytes: &[u8]) -> bool {
        if bytes.len() > self.limit - self.bytes() {
            return false;
        }
        self.bytes.set(self.bytes() + bytes.len());
        part.extend_from_slice(bytes);
        true
    }

    /// Removes the first `used` bytes of a part.
    pub fn pass(&self, part: &mut Vec<u8>, used: usize) {
        self.bytes.set(self.bytes() - used);
        part.drain(..used);
    }

    /// Counts `bytes` of something that keeps them itself, in place of those counted before; `false`: the limit of all
    /// streams is reached, and nothing changes.
    #[must_use]
    pub fn recount(&self, counted: &mut usize, bytes: usize) -> bool {
        let others = self.bytes() - *counted;
        let has_room = bytes <= *counted || bytes <= self.limit - others;
        if has_room {
            self.bytes.set(others + bytes);
            *counted = bytes;
        }
        has_room
    }

    /// Frees the part of one stream.
    pub fn clear(&self, part: &mut Vec<u8>) {
        self.bytes.set(self.bytes() - part.len());
        *part = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_for_all_streams() {
        let (carried, mut one, mut other) = (Carried::new(10), Vec::new(), Vec::new());
        assert!(carried.keep(&mut one, b"123456"));
        assert!(!carried.keep(&mut other, b"12345"));
        assert!(carried.keep(&mut other, b"1234"));
        carried.clear(&mut one);
        assert!(carried.keep(&mut other, b"56") && one.is_empty());
        assert_eq!((other.as_slice(), carried.bytes()), (&b"123456"[..], 6));
        carried.pass(&mut other, 2);
        assert_eq!((other.as_slice(), carried.bytes()), (&b"3456"[..], 4));
    }
}
