//! Copies of unfinished messages or lines at the end of a block, whose rest is in the next block. One limit covers all
//! streams of a filter.

/// Counts the bytes that one filter keeps of all streams.
#[derive(Debug)]
pub struct Carried {
    bytes: usize,
    limit: usize,
}

impl Carried {
    /// `limit`: maximum bytes.
    pub const fn new(limit: usize) -> Carried {
        Carried { bytes: 0, limit }
    }

    /// Bytes that are kept now.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a copy of `bytes` to the part of one stream; `false` if the limit of all streams is reached.
    #[must_use]
    pub fn keep(&mut self, part: &mut Vec<u8>, bytes: &[u8]) -> bool {
        if self.bytes + bytes.len() > self.limit {
            return false;
        }
        self.bytes += bytes.len();
        part.extend_from_slice(bytes);
        true
    }

    /// Frees the part of one stream.
    pub fn clear(&mut self, part: &mut Vec<u8>) {
        self.bytes -= part.len();
        *part = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_for_all_streams() {
        let (mut carried, mut one, mut other) = (Carried::new(10), Vec::new(), Vec::new());
        assert!(carried.keep(&mut one, b"123456"));
        assert!(!carried.keep(&mut other, b"12345"));
        assert!(carried.keep(&mut other, b"1234"));
        carried.clear(&mut one);
        assert!(carried.keep(&mut other, b"56") && one.is_empty());
        assert_eq!((other.as_slice(), carried.bytes), (&b"123456"[..], 6));
    }
}
