//! What stands around deflated data: gzip's header and trailer (RFC 1952), zlib's (RFC 1950), or nothing (RFC 1951); and how
//! the first bytes tell them from each other and from what is not coded. Not the data itself: that is `decode`'s.

/// What stands around deflated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Where in a member, and how many members came.
    Gzip(GzipAt, u64),
    /// zlib's header and trailer, or nothing.
    Deflate(DeflateAt),
}

/// Where in a member (RFC 1952 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GzipAt {
    Magic,
    /// In the ten bytes every header has: so many were read, and the flags.
    Header(u8, u8),
    /// The length of the extra field: none or one byte of it was read.
    ExtraLength(u8, Option<u8>),
    /// So many bytes of it are left.
    Extra(u8, u16),
    Name(u8),
    Comment(u8),
    /// So many bytes of the header's check sum are left.
    HeaderCheck(u8),
    Data,
    /// So many bytes of the trailer are left.
    Trailer(u8),
    /// Between members.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeflateAt {
    /// The first byte tells zlib from raw.
    First,
    /// The second byte of zlib's header, after this one.
    Second(u8),
    Data,
    End,
}

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_CHECK: u8 = 2;

impl GzipAt {
    /// What comes after the parts of the header up to the one whose flag is `done`.
    fn after(flags: u8, done: u8) -> GzipAt {
        match done {
            0 if flags & EXTRA != 0 => GzipAt::ExtraLength(flags, None),
            0 | EXTRA if flags & NAME != 0 => GzipAt::Name(flags),
            0 | EXTRA | NAME if flags & COMMENT != 0 => GzipAt::Comment(flags),
            _ if flags & HEADER_CHECK != 0 => GzipAt::HeaderCheck(2),
            _ => GzipAt::Data,
        }
    }

    /// Reads one byte of a header or trailer; `None` where it cannot be one.
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

/// What a byte outside of deflated data was.
pub(super) enum Around {
    /// A part of what stands around it.
    Taken,
    /// The first byte of something else.
    Left,
    /// Behind the end.
    End,
    /// Nothing that can stand there.
    Damaged,
    /// The body is not coded; this byte of it was taken before.
    Plain(Option<u8>),
}

impl Format {
    /// Reads one byte outside of the data.
    pub(super) fn next(&mut self, byte: u8) -> Around {
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
            // RFC 1951 section 3.2.3: there is no block type 3; section 3.2.4: of type 0 these bits are padding.
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
