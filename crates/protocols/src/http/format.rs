//! The wrapping of deflated data: gzip's header and trailer (RFC 1952), zlib's (RFC 1950), or none (RFC 1951). The
//! first bytes tell these from each other and from data that is not coded. `decode` handles the data itself.

/// The wrapping of deflated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The position in a member, and how many members ended.
    Gzip(GzipAt, u64),
    /// zlib's header and trailer, or none.
    Deflate(DeflateAt),
}

/// A position in a member (RFC 1952 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipAt {
    Magic,
    /// In the ten bytes of every header: how many were read, and the flags.
    Header(u8, u8),
    /// In the length of the extra field: the flags, and the first byte once read.
    ExtraLength(u8, Option<u8>),
    /// In the extra field: the flags, and how many bytes are left.
    Extra(u8, u16),
    Name(u8),
    Comment(u8),
    /// In the header's checksum, with this many bytes left.
    HeaderCheck(u8),
    Data,
    /// In the trailer, with this many bytes left.
    Trailer(u8),
    /// Between members.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeflateAt {
    /// At the first byte, which tells zlib from raw.
    First,
    /// At the second byte of zlib's header; the first is kept.
    Second(u8),
    Data,
    End,
}

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_CHECK: u8 = 2;

impl GzipAt {
    /// The next position after the header part with the flag `done` (0: the ten fixed bytes).
    fn after(flags: u8, done: u8) -> GzipAt {
        match done {
            0 if flags & EXTRA != 0 => GzipAt::ExtraLength(flags, None),
            0 | EXTRA if flags & NAME != 0 => GzipAt::Name(flags),
            0 | EXTRA | NAME if flags & COMMENT != 0 => GzipAt::Comment(flags),
            _ if flags & HEADER_CHECK != 0 => GzipAt::HeaderCheck(2),
            _ => GzipAt::Data,
        }
    }

    /// Reads a byte of a header or trailer; `None` if it is not valid there.
    fn next(self, byte: u8) -> Option<GzipAt> {
        Some(match self {
            GzipAt::Magic | GzipAt::Between if byte == 0x1f => GzipAt::Header(1, 0),
            GzipAt::Magic | GzipAt::Between => return None,
            GzipAt::Header(1, _) if byte != 0x8b => return None,
            GzipAt::Header(2, _) if byte != 8 => return None,
            GzipAt::Header(3, _) => GzipAt::Header(4, byte),
            GzipAt::Header(9, flags) => GzipAt::after(flags, 0),
            GzipAt::Header(read, flags) => GzipAt::Header(read + 1, flags),
            GzipAt::ExtraLength(flags, None) => GzipAt::ExtraLength(flags, Some(byte)),
            GzipAt::ExtraLength(flags, Some(low)) => match u16::from_le_bytes([low, byte]) {
                0 => GzipAt::after(flags, EXTRA),
                left => GzipAt::Extra(flags, left),
            },
            GzipAt::Extra(flags, 1) => GzipAt::after(flags, EXTRA),
            GzipAt::Extra(flags, left) => GzipAt::Extra(flags, left - 1),
            GzipAt::Name(flags) if byte == 0 => GzipAt::after(flags, NAME),
            GzipAt::Comment(flags) if byte == 0 => GzipAt::after(flags, COMMENT),
            GzipAt::HeaderCheck(1) => GzipAt::Data,
            GzipAt::HeaderCheck(left) => GzipAt::HeaderCheck(left - 1),
            GzipAt::Trailer(1) => GzipAt::Between,
            GzipAt::Trailer(left) => GzipAt::Trailer(left - 1),
            GzipAt::Name(_) | GzipAt::Comment(_) | GzipAt::Data => self,
        })
    }
}

/// The meaning of a byte outside of deflated data.
pub enum Around {
    /// Part of the wrapping.
    Taken,
    /// The first byte of something else.
    Left,
    /// Behind the end.
    End,
    /// Not valid there.
    Damaged,
    /// The body is not coded; an earlier byte of it, if any, was already read.
    Plain(Option<u8>),
}

impl Format {
    /// Reads one byte outside of the data.
    pub fn next(&mut self, byte: u8) -> Around {
        match *self {
            Format::Gzip(at, members) => match at.next(byte) {
                Some(next) => *self = Format::Gzip(next, members),
                None if at == GzipAt::Magic => return Around::Plain(None),
                None if members > 0 => {
                    *self = Format::Gzip(GzipAt::Between, members);
                    return Around::End;
                }
                None => return Around::Damaged,
            },
            Format::Deflate(DeflateAt::First) if byte == 0x1f => *self = Format::Gzip(GzipAt::Header(1, 0), 0),
            Format::Deflate(DeflateAt::First) if byte & 0x0f == 8 && byte >> 4 <= 7 => {
                *self = Format::Deflate(DeflateAt::Second(byte));
            }
            // RFC 1951 section 3.2.3: block type 3 does not exist. Section 3.2.4: in type 0 these bits are padding.
            Format::Deflate(DeflateAt::First) if byte & 6 == 6 || byte & 6 == 0 && byte >> 3 != 0 => {
                return Around::Plain(None);
            }
            Format::Deflate(DeflateAt::First) => {
                *self = Format::Deflate(DeflateAt::Data);
                return Around::Left;
            }
            // RFC 1950 section 2.2: FCHECK, and no preset dictionary.
            Format::Deflate(DeflateAt::Second(first)) if !u16::from_be_bytes([first, byte]).is_multiple_of(31) => {
                return Around::Plain(Some(first));
            }
            Format::Deflate(DeflateAt::Second(_)) if byte & 0x20 != 0 => return Around::Damaged,
            Format::Deflate(DeflateAt::Second(_)) => *self = Format::Deflate(DeflateAt::Data),
            Format::Deflate(DeflateAt::Data | DeflateAt::End) => return Around::Left,
        }
        Around::Taken
    }
}
