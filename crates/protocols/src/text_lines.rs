//! Splits a text stream into lines, also across blocks. For protocols whose messages are lines.

use crate::carry::Carried;
use base::limits::TEXT_LINE_BYTES;
use memchr::memchr;

/// The lines of one side.
#[derive(Debug, Default)]
pub struct TextLines {
    /// The beginning of a line that continues in the next block.
    part: Vec<u8>,
    /// Skip to the end of the line: bytes are missing, or there was no room to keep them.
    skip: bool,
    /// The next bytes are the first ones behind a gap.
    is_behind_gap: bool,
}

impl TextLines {
    /// The next bytes begin here. Behind a gap they are a line if they begin like one: what a capture lacks is whole
    /// segments, and these end with a line most of the time.
    pub fn begin(&mut self, bytes: &[u8], is_line: fn(&[u8]) -> bool) {
        let end = memchr(b'\n', bytes).unwrap_or(bytes.len());
        if !bytes.is_empty() && std::mem::take(&mut self.is_behind_gap) && is_line(without_return(&bytes[..end])) {
            self.skip = false;
        }
    }

    /// Takes the next bytes, and calls `each` for each line until it returns `false`: then nothing more is read. `is_line`
    /// tells lines of this side from others, for [`TextLines::begin`].
    pub fn feed(
        &mut self,
        mut rest: &[u8],
        is_line: fn(&[u8]) -> bool,
        carried: &Carried,
        mut each: impl FnMut(&[u8]) -> bool,
    ) {
        let mut whole = Vec::new();
        self.begin(rest, is_line);
        while let Some(line) = self.next(&mut rest, &mut whole, carried) {
            if !each(line) {
                return;
            }
        }
    }

    /// Takes the next line from `rest`, without its line end, cut to 4 KiB. `None`: `rest` is used up; the partial line
    /// is kept. `whole` is scratch space for a line that spans blocks.
    pub fn next<'a, 'b: 'a>(
        &mut self,
        rest: &mut &'b [u8],
        whole: &'a mut Vec<u8>,
        carried: &Carried,
    ) -> Option<&'a [u8]> {
        loop {
            let bytes = *rest;
            let Some(end) = memchr(b'\n', bytes) else {
                let room = TEXT_LINE_BYTES - self.part.len();
                if !self.skip && !carried.keep(&mut self.part, &bytes[..bytes.len().min(room)]) {
                    self.clear(carried);
                    self.skip = true;
                }
                *rest = &[];
                return None;
            };
            let line = &bytes[..end];
            *rest = &bytes[end + 1..];
            if std::mem::take(&mut self.skip) {
                continue;
            }
            if self.part.is_empty() {
                return Some(without_return(&line[..end.min(TEXT_LINE_BYTES)]));
            }
            let room = TEXT_LINE_BYTES - self.part.len();
            whole.clear();
            whole.extend_from_slice(&self.part);
            whole.extend_from_slice(&line[..end.min(room)]);
            carried.clear(&mut self.part);
            return Some(without_return(whole));
        }
    }

    /// Reports missing bytes: the current line is discarded.
    pub fn lose(&mut self, carried: &Carried) {
        self.clear(carried);
        (self.skip, self.is_behind_gap) = (true, true);
    }

    /// Forgets the kept part of a line.
    pub fn clear(&mut self, carried: &Carried) {
        carried.clear(&mut self.part);
        self.skip = false;
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: &[&[u8]], expected: &[&[u8]]) {
        let (mut lines, carried, mut whole) = (TextLines::default(), Carried::new(10_000), Vec::new());
        let mut found: Vec<Vec<u8>> = Vec::new();
        for block in blocks {
            let mut rest = *block;
            while let Some(line) = lines.next(&mut rest, &mut whole, &carried) {
                found.push(line.to_vec());
            }
            if block.is_empty() {
                lines.lose(&carried);
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn lines() {
        check(&[b"a\r\nb\n\nc"], &[b"a", b"b", b""]);
        check(&[b"a", b"b", b"\r", b"\nc\r\n"], &[b"ab", b"c"]);
        // An empty block stands for a gap.
        check(&[b"a", b"", b"b\nc\n"], &[b"c"]);
        let long = [b'x'; TEXT_LINE_BYTES + 9];
        check(&[&long, b"y\nz\n"], &[&long[..TEXT_LINE_BYTES], b"z"]);
        check(&[&[&long[..], b"\nz\n"].concat()], &[&long[..TEXT_LINE_BYTES], b"z"]);
        // A line that begins behind a gap.
        let (mut lines, carried, mut whole) = (TextLines::default(), Carried::new(10), Vec::new());
        for (mut rest, expected) in [(&b"NOOP x\n"[..], Some(&b"NOOP x"[..])), (b"OP\n", None)] {
            lines.lose(&carried);
            lines.begin(rest, |line| line.starts_with(b"NOOP"));
            assert_eq!(lines.next(&mut rest, &mut whole, &carried), expected);
        }
        // A line longer than the budget.
        let (mut lines, carried, mut whole) = (TextLines::default(), Carried::new(2), Vec::new());
        for (mut rest, expected) in [(&b"abc"[..], None), (b"d\ne\n", Some(&b"e"[..]))] {
            assert_eq!(lines.next(&mut rest, &mut whole, &carried), expected);
        }
    }
}
