//! Copies of what a block of a stream ends within: the beginning of a message or line whose rest is in the next block.
//! One limit holds for all streams of a filter.

/// What one filter keeps of all its streams.
#[derive(Debug)]
pub(crate) struct Carried {
    bytes: usize,
    limit: usize,
}

impl Carried {
    /// Nothing yet, and this many bytes at most.
    pub(crate) const fn new(limit: usize) -> Carried {
        Carried { bytes: 0, limit }
    }

    /// Bytes that are kept.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes behind what is kept of one stream; says no where too much is kept already, of all streams.
    #[must_use]
    pub(crate) fn keep(&mut self, part: &mut Vec<u8>, bytes: &[u8]) -> bool {
        if self.bytes + bytes.len() > self.limit {
            return false;
        }
        self.bytes += bytes.len();
        part.extend_from_slice(bytes);
        true
    }

    /// Forgets what is kept of one stream.
    pub(crate) fn clear(&mut self, part: &mut Vec<u8>) {
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
