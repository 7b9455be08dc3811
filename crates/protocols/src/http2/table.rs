//! The header table of one direction (RFC 7541, 2.3). Decodes blocks of fields into a head of HTTP/1, which the rest
//! of `http` reads.

use crate::hpack::{self, Name, Piece, STATIC_TABLE};
use base::limits::{HPACK_TABLE_BYTES, HTTP2_FIELDS_BYTES};
use std::collections::VecDeque;

/// The fields that later blocks name by number.
#[derive(Debug)]
pub struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
    limit: usize,
}

/// A field: its name, then its value.
#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name_len: usize,
}

/// The size of an entry beside its text (RFC 7541, 4.1).
const ENTRY_BYTES: usize = 32;

impl Default for Table {
    fn default() -> Table {
        Table { entries: VecDeque::new(), bytes: 0, limit: 4096 }
    }
}

impl Table {
    /// The size of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let place = number.checked_sub(1)?;
        if let Some(field) = STATIC_TABLE.get(place) {
            return Some(*field);
        }
        let entry = self.entries.get(place - STATIC_TABLE.len())?;
        Some(entry.text.split_at(entry.name_len))
    }

    fn keep(&mut self, name: &[u8], value: &[u8]) {
        let bytes = name.len() + value.len() + ENTRY_BYTES;
        self.shrink(self.limit.saturating_sub(bytes));
        if bytes <= self.limit {
            self.bytes += bytes;
            self.entries.push_front(Entry { text: [name, value].concat().into(), name_len: name.len() });
        }
    }

    fn shrink(&mut self, limit: usize) {
        while self.bytes > limit
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= entry.text.len() + ENTRY_BYTES;
        }
    }

    /// Decodes a block and calls `each` with every field, in the buffers of `head`. `None`: the block is damaged or too large, so
    /// later fields of the connection cannot be known.
    pub fn each_field(
        &mut self,
        mut block: &[u8],
        head: &mut FieldText,
        mut each: impl FnMut(&mut FieldText),
    ) -> Option<()> {
        let mut total = 0;
        while !block.is_empty() {
            let piece = hpack::next(&mut block)?;
            let is_kept = match piece {
                Piece::TableSize(size) => {
                    self.limit = size.min(HPACK_TABLE_BYTES);
                    self.shrink(self.limit);
                    continue;
                }
                Piece::Indexed(number) => {
                    let (name, value) = self.field(number)?;
                    head.set(name, value);
                    false
                }
                Piece::Literal { name, value, is_kept } => {
                    match name {
                        Name::Indexed(number) => head.set(self.field(number)?.0, b""),
                        Name::Text(text) => {
                            head.set(b"", b"");
                            text.append(&mut head.name)?;
                        }
                    }
                    value.append(&mut head.value)?;
                    is_kept
                }
            };
            if is_kept {
                self.keep(&head.name, &head.value);
            }
            // SETTINGS_MAX_HEADER_LIST_SIZE counts like this (RFC 9113, 6.5.2).
            total += head.name.len() + head.value.len() + ENTRY_BYTES;
            if total > HTTP2_FIELDS_BYTES {
                return None;
            }
            each(head);
        }
        Some(())
    }
}

/// A field being decoded; its buffers are reused.
#[derive(Debug, Default)]
pub struct FieldText {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl FieldText {
    fn set(&mut self, name: &[u8], value: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name);
        self.value.clear();
        self.value.extend_from_slice(value);
    }
}

/// A head being decoded; its buffers are reused.
#[derive(Debug, Default)]
pub struct HeadText {
    method: Vec<u8>,
    path: Vec<u8>,
    status: Vec<u8>,
    fields: Vec<u8>,
}

impl HeadText {
    /// Begins again.
    pub fn clear(&mut self) {
        for text in [&mut self.method, &mut self.path, &mut self.status, &mut self.fields] {
            text.clear();
        }
    }

    /// Adds a field.
    pub fn add_field(&mut self, field: &mut FieldText) {
        // Line breaks are not allowed (RFC 9113, 8.2.1) and would begin new fields here.
        field.value.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n' | 0)).for_each(|byte| *byte = b' ');
        let name = match &field.name[..] {
            b":method" => return replace(&mut self.method, &field.value),
            b":path" => return replace(&mut self.path, &field.value),
            b":status" => return replace(&mut self.status, &field.value),
            b":authority" => b"host",
            // HTTP/2 has its own framing (RFC 9113, 8.2.2).
            b"transfer-encoding" => return,
            name if name.iter().all(|byte| crate::http::start::is_token(*byte)) => name,
            _ => return,
        };
        for part in [name, b": ", &field.value, b"\r\n"] {
            self.fields.extend_from_slice(part);
        }
    }

    /// Writes the head as HTTP/1.1; `false` if it has neither a method nor a status.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        out.clear();
        let line: [&[u8]; 5] = match (&self.method[..], &self.status[..]) {
            ([], []) => return false,
            ([], status) => [b"HTTP/1.1 ", status, b"", b"", b""],
            // CONNECT has no path (RFC 9113, 8.5).
            (method, _) if self.path.is_empty() => [method, b" ", b"*", b" HTTP/1.1", b""],
            (method, _) => [method, b" ", &self.path, b" HTTP/1.1", b""],
        };
        line.into_iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.fields);
        out.extend_from_slice(b"\r\n");
        true
    }
}

fn replace(slot: &mut Vec<u8>, value: &[u8]) {
    slot.clear();
    slot.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(table: &mut Table, block: &[u8], head: &mut HeadText) -> Option<()> {
        head.clear();
        table.each_field(block, &mut FieldText::default(), |field| head.add_field(field))
    }

    /// The examples of RFC 7541, C.4: three requests on one connection.
    #[test]
    fn a_connection() {
        let blocks: [&[u8]; 3] = [
            &[0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff],
            &[0x82, 0x86, 0x84, 0xbe, 0x58, 0x86, 0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf],
            &[
                0x82, 0x87, 0x85, 0xbf, 0x40, 0x88, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f, 0x89, 0x25, 0xa8,
                0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf,
            ],
        ];
        let expected = [
            "GET / HTTP/1.1\r\nhost: www.example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: www.example.com\r\ncache-control: no-cache\r\n\r\n",
            "GET /index.html HTTP/1.1\r\nhost: www.example.com\r\ncustom-key: custom-value\r\n\r\n",
        ];
        let (mut table, mut head, mut text) = (Table::default(), HeadText::default(), Vec::new());
        for (block, expected) in blocks.into_iter().zip(expected) {
            decode(&mut table, block, &mut head).unwrap();
            assert!(head.write(&mut text));
            assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        }
        assert_eq!((table.bytes(), table.entries.len()), (164, 3));
        // A smaller table keeps the newest fields.
        decode(&mut table, &[0x3f, 0x21], &mut head).unwrap();
        assert_eq!((table.bytes(), table.entries.len()), (54, 1));
        assert_eq!(decode(&mut table, &[0xff, 9], &mut head), None);
    }

    #[test]
    fn what_would_be_another_line_is_none() {
        let (mut table, mut head, mut text) = (Table::default(), HeadText::default(), Vec::new());
        let block = [&[0x88, 0, 1, b'a', 6][..], b"x\r\nb:c", &[0, 3], b"a\nb", &[1, b'c']].concat();
        decode(&mut table, &block, &mut head).unwrap();
        assert!(head.write(&mut text));
        assert_eq!(text, b"HTTP/1.1 200\r\na: x  b:c\r\n\r\n");
        // A long field, repeated by its number.
        let long = [&[0x40, 1, b'a', 0x7f, 0xe9, 0x1e][..], &[b'x'; 4000]].concat();
        let bomb = [long, vec![0xbe; 100]].concat();
        assert_eq!(decode(&mut Table::default(), &bomb, &mut head), None);
    }
}
