//! From payload to lines: text, as far as a line looks like text, and a hex dump for the rest of a piece.

use crate::parts::lines::Lines;
use crate::parts::printable::dump_from;
use base::terminal::is_unfit;
use filter::{Made, Status};

/// A line is text if at most one byte of this many is neither printable nor a blank.
const TEXT_RATIO: usize = 10;

/// Bytes of a line without an end after which it is written out.
const LINE_BYTES: usize = 64 << 10;

/// What one side says, in pieces.
pub(super) struct Speech {
    /// All bytes become a hex dump.
    hex: bool,
    /// The last line has no end yet.
    is_open: bool,
    /// Bytes said since the last pause.
    said: u64,
}

impl Speech {
    pub(super) fn new(hex: bool) -> Speech {
        Speech { hex, is_open: false, said: 0 }
    }

    /// Writes a piece.
    pub(super) fn say(&mut self, lines: &mut Lines, bytes: &[u8]) -> Made {
        let mut rest = bytes;
        while !rest.is_empty() && !self.hex {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (line, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            if !is_text(line) {
                break;
            }
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            // Lines end with CR LF in most protocols.
            let line = line.strip_suffix(b"\r").filter(|_| end.is_some()).unwrap_or(line);
            append(lines.buffer(), line);
            self.is_open = end.is_none();
            if end.is_some() {
                lines.line_done()?;
            } else if lines.buffer().len() >= LINE_BYTES {
                lines.write_out()?;
            }
            rest = after;
        }
        if !rest.is_empty() {
            let offset = self.said + (bytes.len() - rest.len()) as u64;
            self.end_line(lines)?;
            let mut dumped = Vec::new();
            dump_from(&mut dumped, offset as u32, rest);
            // Each line of the dump begins with a line break.
            for line in dumped.split(|byte| *byte == b'\n').skip(1) {
                lines.buffer().extend_from_slice(line);
                lines.line_done()?;
            }
        }
        self.said += bytes.len() as u64;
        Ok(Status::Done)
    }

    /// Ends the line, before somebody else speaks or bytes are missing.
    pub(super) fn pause(&mut self, lines: &mut Lines) -> Made {
        self.said = 0;
        self.end_line(lines)
    }

    fn end_line(&mut self, lines: &mut Lines) -> Made {
        if std::mem::take(&mut self.is_open) { lines.line_done() } else { Ok(Status::Done) }
    }
}

fn is_text(line: &[u8]) -> bool {
    let fits = |one: char| matches!(one, '\n' | '\r' | '\t') || !is_unfit(one);
    let odd = line.utf8_chunks().map(|chunk| {
        let unfit: usize = chunk.valid().chars().filter(|one| !fits(*one)).map(char::len_utf8).sum();
        unfit + chunk.invalid().len()
    });
    odd.sum::<usize>() * TEXT_RATIO <= line.len() && !line.contains(&0)
}

/// Appends text; what is unfit for a terminal as escapes.
fn append(out: &mut Vec<u8>, line: &[u8]) {
    for chunk in line.utf8_chunks() {
        let mut space = [0; 4];
        for one in chunk.valid().chars() {
            match one {
                '\t' => out.push(b'\t'),
                '\r' => out.extend_from_slice(b"\\r"),
                one if is_unfit(one) => escape(out, one.encode_utf8(&mut space).as_bytes()),
                one => out.extend_from_slice(one.encode_utf8(&mut space).as_bytes()),
            }
        }
        escape(out, chunk.invalid());
    }
}

fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(b"\\x");
        packet::text::append_hex(out, &[*byte]);
    }
}
