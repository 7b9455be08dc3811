//! Bytes from the wire as text: printable ASCII and escapes, so that no peer can steer the terminal.

/// Appends the bytes in quotation marks. A byte that is not printable ASCII becomes `\xHH`, `\r`, `\n` or `\t`; `"` and
/// `\` get a backslash.
pub(crate) fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x20..=0x7e => out.push(*byte),
            _ => {
                out.extend_from_slice(b"\\x");
                packet::text::append_hex(out, &[*byte]);
            }
        }
    }
    out.push(b'"');
}

/// Appends the bytes unquoted if they form a plain word, else as [`quoted`] does.
pub(crate) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    let plain =
        |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=' | b',' | b'{' | b'}' | b'[' | b']');
    if !bytes.is_empty() && bytes.iter().all(plain) {
        out.extend_from_slice(bytes);
    } else {
        quoted(out, bytes);
    }
}

const DUMP_BYTES: usize = 16;

/// Appends a hex dump: lines of offset, hexadecimal bytes and text. Each line is indented and begins with a line break.
pub(crate) fn dump(out: &mut Vec<u8>, bytes: &[u8]) {
    dump_from(out, 0, bytes);
}

/// The same, with offsets that begin at this one.
pub(crate) fn dump_from(out: &mut Vec<u8>, offset: u32, bytes: &[u8]) {
    for (line, row) in bytes.chunks(DUMP_BYTES).enumerate() {
        out.extend_from_slice(b"\n    ");
        packet::text::append_hex(out, &offset.wrapping_add((line * DUMP_BYTES) as u32).to_be_bytes());
        out.push(b' ');
        for place in 0..DUMP_BYTES {
            out.extend_from_slice(if place == DUMP_BYTES / 2 { b"  " } else { b" " });
            match row.get(place) {
                Some(byte) => packet::text::append_hex(out, &[*byte]),
                None => out.extend_from_slice(b"  "),
            }
        }
        out.extend_from_slice(b"  ");
        out.extend(row.iter().map(|byte| if matches!(byte, 0x20..=0x7e) { *byte } else { b'.' }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(append: fn(&mut Vec<u8>, &[u8]), bytes: &[u8], expected: &str) {
        let mut out = Vec::new();
        append(&mut out, bytes);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn texts() {
        check(quoted, b"GET / \"x\\\r\n\t\0\x1b\x7f\xff", r#""GET / \"x\\\r\n\t\x00\x1b\x7f\xff""#);
        check(word, b"www.example.org", "www.example.org");
        check(word, b"", r#""""#);
        check(word, b"two words", r#""two words""#);
        check(word, b"a=b", r#""a=b""#);
    }

    #[test]
    fn dumps() {
        check(dump, b"", "");
        check(
            dump,
            b"0123456789abcdef\x1b\n",
            "\n    00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  0123456789abcdef\
             \n    00000010  1b 0a                                             ..",
        );
    }
}
