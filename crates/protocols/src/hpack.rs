//! HPACK, the coding of HTTP/2's header fields (RFC 7541), piece by piece. The caller keeps the table of a connection,
//! and looks up numbers above those of [`STATIC_TABLE`] there.

/// A piece of a block of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The field with this number: name and value.
    Indexed(usize),
    /// A field spelled out.
    Literal {
        /// Its name.
        name: Name<'a>,
        /// Its value.
        value: Text<'a>,
        /// The field is added to the table.
        is_kept: bool,
    },
    /// The new limit of the table, in bytes.
    TableSize(usize),
}

/// A field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// The name of the field with this number.
    Indexed(usize),
    /// A name spelled out.
    Text(Text<'a>),
}

/// A text, perhaps Huffman-coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    bytes: &'a [u8],
    is_coded: bool,
}

impl Text<'_> {
    /// Appends the decoded text; `None` if its code is damaged.
    pub fn append(&self, out: &mut Vec<u8>) -> Option<()> {
        if self.is_coded {
            return append_decoded(out, self.bytes);
        }
        out.extend_from_slice(self.bytes);
        Some(())
    }
}

/// Takes the next piece of a block; `None` if it is truncated or damaged.
pub fn next<'a>(block: &mut &'a [u8]) -> Option<Piece<'a>> {
    let first = *block.first()?;
    match first {
        0x80.. => Some(Piece::Indexed(number(block, 7)?)),
        0x40..=0x7f => literal(block, 6, true),
        0x20..=0x3f => Some(Piece::TableSize(number(block, 5)?)),
        _ => literal(block, 4, false),
    }
}

fn literal<'a>(block: &mut &'a [u8], bits: u32, is_kept: bool) -> Option<Piece<'a>> {
    let name = match number(block, bits)? {
        0 => Name::Text(text(block)?),
        number => Name::Indexed(number),
    };
    Some(Piece::Literal { name, value: text(block)?, is_kept })
}

fn text<'a>(block: &mut &'a [u8]) -> Option<Text<'a>> {
    let is_coded = block.first()? & 0x80 != 0;
    let length = number(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length)?;
    *block = rest;
    Some(Text { bytes, is_coded })
}

/// A number with a prefix of `bits` bits (RFC 7541, 5.1); `None` if it is unreasonably large.
fn number(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let max = (1usize << bits) - 1;
    let mut number = usize::from(*first) & max;
    if number == max {
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            number = number.checked_add(usize::from(byte & 0x7f) << shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 21 {
                return None;
            }
        }
    }
    *block = rest;
    Some(number)
}

/// Decodes Huffman-coded bytes (RFC 7541, 5.2). The code is canonical: codes of one length are consecutive, in the
/// order of their symbols.
fn append_decoded(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    let (mut code, mut length) = (0u32, 0);
    for byte in bytes {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            length += 1;
            if length > LONGEST_CODE {
                return None;
            }
            let Some(place) = code.checked_sub(CODES.first[length]).filter(|place| *place < CODES.count[length]) else {
                continue;
            };
            let symbol = CODES.symbols[CODES.start[length] + place as usize];
            out.push(u8::try_from(symbol).ok()?);
            (code, length) = (0, 0);
        }
    }
    // The padding is less than a byte, all ones.
    (length < 8 && code == (1 << length) - 1).then_some(())
}

const LONGEST_CODE: usize = 30;

/// The codes, by length.
struct Codes {
    /// The first code of each length.
    first: [u32; LONGEST_CODE + 1],
    /// The number of codes of each length.
    count: [u32; LONGEST_CODE + 1],
    /// Index in `symbols` of the first code's symbol.
    start: [usize; LONGEST_CODE + 1],
    symbols: [u16; 257],
}

static CODES: Codes = codes();

const fn codes() -> Codes {
    let mut codes = Codes {
        first: [0; LONGEST_CODE + 1],
        count: [0; LONGEST_CODE + 1],
        start: [0; LONGEST_CODE + 1],
        symbols: [0; 257],
    };
    let (mut length, mut code, mut place) = (1, 0, 0);
    while length <= LONGEST_CODE {
        code <<= 1;
        (codes.first[length], codes.start[length]) = (code, place);
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                codes.symbols[place] = symbol as u16;
                codes.count[length] += 1;
                (place, code) = (place + 1, code + 1);
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

/// Code length of each byte, and of the end (RFC 7541, appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Fields from number 1 on that every connection knows (RFC 7541, appendix A).
pub const STATIC_TABLE: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(text: Text<'_>) -> String {
        let mut out = Vec::new();
        text.append(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The examples of RFC 7541, appendix C.
    #[test]
    fn pieces() {
        let mut block: &[u8] = &[
            0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff, 0x3f,
            0xe1, 0x1f, 0x10, 8, b'p', b'a', b's', b's', b'w', b'o', b'r', b'd', 6, b's', b'e', b'c', b'r', b'e', b't',
        ];
        assert_eq!(
            [next(&mut block), next(&mut block), next(&mut block)],
            [2, 6, 4].map(|number| Some(Piece::Indexed(number)))
        );
        let Some(Piece::Literal { name: Name::Indexed(1), value, is_kept: true }) = next(&mut block) else { panic!() };
        assert_eq!(plain(value), "www.example.com");
        assert_eq!(next(&mut block), Some(Piece::TableSize(4096)));
        let Some(Piece::Literal { name: Name::Text(name), value, is_kept: false }) = next(&mut block) else { panic!() };
        assert_eq!((plain(name), plain(value)), ("password".into(), "secret".into()));
        assert_eq!((block, next(&mut block)), (&[][..], None));
    }

    #[test]
    fn damaged_texts() {
        let check =
            |bytes: &[u8]| assert_eq!(Text { bytes, is_coded: true }.append(&mut Vec::new()), None, "{bytes:x?}");
        // The code of the end, too much padding, and padding of zeros.
        check(&[0xff, 0xff, 0xff, 0xff]);
        check(&[0x1f, 0xff]);
        check(&[0x18]);
    }

    #[test]
    fn numbers() {
        let check =
            |mut bytes: &[u8], bits: u32, expected: Option<usize>| assert_eq!(number(&mut bytes, bits), expected);
        check(&[10], 5, Some(10));
        check(&[31, 154, 10], 5, Some(1337));
        check(&[42], 8, Some(42));
        check(&[31, 0x80], 5, None);
        check(&[31, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 5, None);
        check(&[], 5, None);
    }

    proptest! {
        #[test]
        fn any_block(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut block = &bytes[..];
            let mut left = block.len();
            while let Some(piece) = next(&mut block) {
                prop_assert!(block.len() < left);
                left = block.len();
                if let Piece::Literal { value, .. } = piece {
                    let mut out = Vec::new();
                    let _ = value.append(&mut out);
                    prop_assert!(out.len() <= 2 * bytes.len());
                }
            }
        }
    }
}
