//! Classic pcap files: a header, then records. Reads as libpcap 1.10 does and writes version 2.4. For pcapng see
//! `pcapng.rs`. Does no I/O; `capture_file.rs` explains the loop.
//!
//! Accepts both byte orders, microseconds and nanoseconds, and Kuznetzov's format with 24-byte record headers. Accepts
//! versions 2.0 to 2.4, and 543.0 of DG/UX; the two lengths of a record are swapped in 543.0 and before 2.3. Cuts
//! records that are longer than the header's snap length.
//!
//! Format: draft-ietf-opsawg-pcap; sf-pcap.c for older formats.

use crate::capture::{ByteOrder, Cause, Damage, Interface, Record, Stop};
use crate::link::LinkType;
use crate::sniff::{FileKind, sniff};

/// Unit of the fractions in record headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Magic 0xa1b2c3d4.
    Microseconds,
    /// Magic 0xa1b23c4d.
    Nanoseconds,
}

/// Which of a record's two lengths comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    /// Version 2.3: the shorter length is the captured one.
    Either,
}

const MICROSECOND_MAGIC: u32 = 0xa1b2_c3d4;
const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;
const KUZNETZOV_MAGIC: u32 = 0xa1b2_cd34;

/// A file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Byte order of header and record headers.
    pub order: ByteOrder,
    /// Unit of the fractions of seconds.
    pub resolution: Resolution,
    /// Bytes kept of each packet. As in libpcap, 0 and absurd values become the link's maximum.
    pub snap_len: u32,
    /// Link type, without the upper bits of the field.
    pub link: LinkType,
    /// Bytes of frame check sequence at the end of each frame, if the file says.
    pub fcs_bytes: Option<u8>,
    /// Record headers have eight bytes more.
    kuznetzov: bool,
    lengths: Lengths,
}

/// The header in front of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
    /// Bytes in the file.
    pub stored_len: u32,
    /// [`Self::stored_len`] cut to the snap length.
    pub captured_len: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
}

impl Header {
    /// Length of the header.
    pub const BYTES: usize = 24;

    /// Reads the header of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Stop> {
        let refuse = |cause| Err(Stop::Damaged(Damage { offset: 0, cause }));
        if bytes.len() >= 4 && sniff(bytes) != Some(FileKind::Pcap) {
            return refuse(Cause::NotACapture(sniff(bytes)));
        }
        let Some(bytes) = bytes.first_chunk::<{ Self::BYTES }>() else {
            return Err(Stop::More { consumed: 0, need: Self::BYTES });
        };
        let order = if bytes[0] == 0xa1 { ByteOrder::Big } else { ByteOrder::Little };
        let word = |at: usize| order.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (magic, snap_len, link_field) = (word(0), word(16), word(20));
        let version = (order.u16([bytes[4], bytes[5]]), order.u16([bytes[6], bytes[7]]));
        let lengths = match version {
            (2, 0..=2) | (543, 0) => Lengths::WireFirst,
            (2, 3) => Lengths::Either,
            (2, 4) => Lengths::CapturedFirst,
            (0 | 1, _) => return refuse(Cause::ArchaicVersion),
            (major, minor) => return refuse(Cause::UnsupportedVersion { major, minor }),
        };
        // 16 bits of link type, 10 reserved. Bit 26: the top four bits are the length of the frame check sequence in
        // units of 16 bits.
        let link = LinkType(link_field as u16);
        let fcs_bytes = (link_field & 0x0400_0000 != 0).then_some((link_field >> 28) as u8 * 2);
        let kuznetzov = magic == KUZNETZOV_MAGIC;
        let snap_len = match snap_len {
            0 | 0x8000_0000.. => link.maximum_snap_len(),
            // The Ethernet header may have been added after the packet was cut to the snap length.
            given if kuznetzov && link == LinkType::ETHERNET => given.saturating_add(14),
            given => given,
        };
        let nanoseconds = magic == NANOSECOND_MAGIC;
        let resolution = if nanoseconds { Resolution::Nanoseconds } else { Resolution::Microseconds };
        Ok(Self { order, resolution, snap_len, link, fcs_bytes, kuznetzov, lengths })
    }

    /// Length of a record header: 16, or 24 in Kuznetzov's format, of which the last eight are unused.
    #[inline]
    pub const fn record_header_bytes(&self) -> usize {
        if self.kuznetzov { 24 } else { 16 }
    }

    /// Whether records have the layout of version 2.4: 16 bytes of header, captured length before wire length. A loop over
    /// such records needs this check only once.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.kuznetzov && self.lengths == Lengths::CapturedFirst
    }

    /// Reads the first 16 bytes of a record header.
    #[inline]
    pub fn record(&self, bytes: &[u8; 16]) -> Result<RecordHeader, Cause> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        let seconds = u64::from(self.order.u32([a, b, c, d]));
        let fraction = u64::from(self.order.u32([e, f, g, h]));
        let (one, two) = (self.order.u32([i, j, k, l]), self.order.u32([m, n, o, p]));
        let (stored_len, wire_len) = match self.lengths {
            Lengths::CapturedFirst => (one, two),
            Lengths::WireFirst => (two, one),
            Lengths::Either => (one.min(two), one.max(two)),
        };
        let limit = self.link.maximum_snap_len();
        if stored_len > limit {
            return Err(Cause::CapturedLength { length: stored_len, limit });
        }
        // Cannot overflow with 32 bits of either unit: below 2^62 + 2^42.
        let fraction_ns = match self.resolution {
            Resolution::Microseconds => fraction * 1_000,
            Resolution::Nanoseconds => fraction,
        };
        Ok(RecordHeader {
            time_ns: seconds * 1_000_000_000 + fraction_ns,
            stored_len,
            captured_len: stored_len.min(self.snap_len),
            wire_len,
        })
    }
}

/// Reads records one after the other; see [`crate::capture`] for the loop.
#[derive(Clone, Debug)]
pub struct Reader {
    header: Header,
    interface: Interface,
    /// Offset of the next window in the file.
    offset: u64,
}

impl Reader {
    /// Reads the header. The next window starts [`Header::BYTES`] further on.
    pub fn open(window: &[u8]) -> Result<Self, Stop> {
        let header = Header::parse(window)?;
        let Header { link, snap_len, fcs_bytes, resolution, .. } = header;
        let nanoseconds = resolution == Resolution::Nanoseconds;
        let interface = Interface { link, snap_len, fcs_bytes, name: None, description: None, nanoseconds };
        Ok(Self { header, interface, offset: Header::BYTES as u64 })
    }

    /// The file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The only interface of the file.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Finds the next packet. `window` must start where the last one ended.
    #[inline]
    pub fn next(&mut self, window: &[u8]) -> Result<Record, Stop> {
        let data_offset = self.header.record_header_bytes();
        let Some(bytes) = window.first_chunk() else {
            return Err(Stop::More { consumed: 0, need: data_offset });
        };
        let RecordHeader { time_ns, stored_len, captured_len, wire_len } =
            self.header.record(bytes).map_err(|cause| Stop::Damaged(Damage { offset: self.offset, cause }))?;
        let consumed = data_offset + stored_len as usize;
        if window.len() < consumed {
            return Err(Stop::More { consumed: 0, need: consumed });
        }
        self.offset += consumed as u64;
        Ok(Record {
            time_ns,
            data_offset,
            captured_len,
            wire_len,
            interface: 0,
            options_offset: 0,
            options_len: 0,
            consumed,
        })
    }

    /// Checks that the file may end with `rest` left over.
    pub fn finish(&self, rest: &[u8]) -> Result<(), Damage> {
        if rest.is_empty() {
            return Ok(());
        }
        let header = rest.first_chunk().and_then(|bytes| self.header.record(bytes).ok());
        let body = header.map_or(0, |record| u64::from(record.stored_len));
        let expected = self.header.record_header_bytes() as u64 + body;
        let cause = Cause::EndsInRecord { present: rest.len() as u64, expected };
        Err(Damage { offset: self.offset, cause })
    }
}

/// Appends a file header, little-endian, version 2.4.
pub fn write_header(out: &mut Vec<u8>, link: LinkType, snap_len: u32, resolution: Resolution) {
    let magic = match resolution {
        Resolution::Microseconds => MICROSECOND_MAGIC,
        Resolution::Nanoseconds => NANOSECOND_MAGIC,
    };
    out.extend_from_slice(&magic.to_le_bytes());
    out.extend_from_slice(&[2, 0, 4, 0]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&snap_len.to_le_bytes());
    out.extend_from_slice(&u32::from(link.canonical().0).to_le_bytes());
}

/// Appends the header of a record; the caller appends `captured_len` bytes of packet. The format has 32 bits for
/// seconds, so times after 2106 become the last possible second.
#[inline]
pub fn write_record_header(out: &mut Vec<u8>, time_ns: u64, captured_len: u32, wire_len: u32, resolution: Resolution) {
    let seconds = u32::try_from(time_ns / 1_000_000_000).unwrap_or(u32::MAX);
    let nanoseconds = (time_ns % 1_000_000_000) as u32;
    let fraction = match resolution {
        Resolution::Microseconds => nanoseconds / 1_000,
        Resolution::Nanoseconds => nanoseconds,
    };
    let mut header = [0; 16];
    for (place, word) in header.chunks_exact_mut(4).zip([seconds, fraction, captured_len, wire_len]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&header);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, order: ByteOrder, version: (u16, u16), snap_len: u32, link: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let words = [0, 0, snap_len, link];
        match order {
            ByteOrder::Little => {
                bytes.extend_from_slice(&magic.to_le_bytes());
                bytes.extend_from_slice(&version.0.to_le_bytes());
                bytes.extend_from_slice(&version.1.to_le_bytes());
                words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            }
            ByteOrder::Big => {
                bytes.extend_from_slice(&magic.to_be_bytes());
                bytes.extend_from_slice(&version.0.to_be_bytes());
                bytes.extend_from_slice(&version.1.to_be_bytes());
                words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
            }
        }
        bytes
    }

    const LITTLE: ByteOrder = ByteOrder::Little;

    #[test]
    fn headers() {
        let check = |bytes: &[u8], expected: (u32, u16, Option<u8>, usize)| {
            let read = Header::parse(bytes).unwrap();
            assert_eq!((read.snap_len, read.link.0, read.fcs_bytes, read.record_header_bytes()), expected);
        };
        check(&header(MICROSECOND_MAGIC, LITTLE, (2, 4), 65_535, 1), (65_535, 1, None, 16));
        check(&header(NANOSECOND_MAGIC, ByteOrder::Big, (2, 4), 0, 101), (262_144, 101, None, 16));
        check(&header(KUZNETZOV_MAGIC, LITTLE, (2, 4), 68, 1), (82, 1, None, 24));
        check(&header(KUZNETZOV_MAGIC, LITTLE, (2, 4), 68, 101), (68, 101, None, 24));
        check(&header(MICROSECOND_MAGIC, LITTLE, (2, 4), u32::MAX, 0x2400_0001), (262_144, 1, Some(4), 16));
        check(&header(MICROSECOND_MAGIC, LITTLE, (2, 4), 1, 0x0030_0001), (1, 1, None, 16));
    }

    #[test]
    fn headers_refused() {
        let check = |bytes: &[u8], cause: Cause| {
            assert_eq!(Header::parse(bytes), Err(Stop::Damaged(Damage { offset: 0, cause })));
        };
        let magic = MICROSECOND_MAGIC;
        check(&header(magic, LITTLE, (1, 4), 1, 1), Cause::ArchaicVersion);
        check(&header(magic, LITTLE, (2, 5), 1, 1), Cause::UnsupportedVersion { major: 2, minor: 5 });
        check(&header(magic, LITTLE, (543, 1), 1, 1), Cause::UnsupportedVersion { major: 543, minor: 1 });
        check(b"\x1f\x8b\x08\0", Cause::NotACapture(Some(FileKind::Gzip)));
        check(b"hello", Cause::NotACapture(None));
        let cut = &header(magic, LITTLE, (2, 4), 1, 1)[..23];
        assert_eq!(Header::parse(cut), Err(Stop::More { consumed: 0, need: 24 }));
    }

    /// The lengths in the record, by version: stored, captured, wire.
    #[test]
    fn lengths() {
        let check = |version: (u16, u16), first: u32, second: u32, expected: Result<(u32, u32, u32), Cause>| {
            let read = Header::parse(&header(MICROSECOND_MAGIC, LITTLE, version, 100, 1)).unwrap();
            let mut bytes = [0; 16];
            bytes[8..12].copy_from_slice(&first.to_le_bytes());
            bytes[12..].copy_from_slice(&second.to_le_bytes());
            let got = read.record(&bytes).map(|record| (record.stored_len, record.captured_len, record.wire_len));
            assert_eq!(got, expected);
        };
        check((2, 4), 60, 90, Ok((60, 60, 90)));
        check((2, 2), 60, 90, Ok((90, 90, 60)));
        check((543, 0), 90, 60, Ok((60, 60, 90)));
        check((2, 3), 60, 90, Ok((60, 60, 90)));
        check((2, 3), 90, 60, Ok((60, 60, 90)));
        check((2, 4), 120, 120, Ok((120, 100, 120)));
        check((2, 4), 262_144, 262_144, Ok((262_144, 100, 262_144)));
        check((2, 4), 262_145, 262_145, Err(Cause::CapturedLength { length: 262_145, limit: 262_144 }));
    }

    #[test]
    fn written_and_read() {
        let check = |resolution: Resolution, time_ns: u64, expected_ns: u64| {
            let mut file = Vec::new();
            write_header(&mut file, LinkType::ETHERNET, 262_144, resolution);
            write_record_header(&mut file, time_ns, 3, 1500, resolution);
            file.extend_from_slice(b"abc");
            let mut reader = Reader::open(&file).unwrap();
            let window = &file[Header::BYTES..];
            let record = reader.next(window).unwrap();
            assert_eq!((record.time_ns, record.wire_len), (expected_ns, 1500));
            assert_eq!(record.data(window), b"abc");
            assert_eq!(&window[record.consumed..], b"");
            assert_eq!(reader.finish(&[]), Ok(()));
        };
        check(Resolution::Microseconds, 1_700_000_000_123_456_789, 1_700_000_000_123_456_000);
        check(Resolution::Nanoseconds, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789);
        check(Resolution::Nanoseconds, 0, 0);
        check(Resolution::Nanoseconds, u64::MAX, 4_294_967_295_709_551_615);
    }

    #[test]
    fn ends() {
        let mut file = Vec::new();
        write_header(&mut file, LinkType::ETHERNET, 100, Resolution::Microseconds);
        write_record_header(&mut file, 0, 8, 8, Resolution::Microseconds);
        file.extend_from_slice(&[0; 8]);
        let check = |present: usize, expected: u64| {
            let mut reader = Reader::open(&file).unwrap();
            let rest = &file[Header::BYTES..Header::BYTES + present];
            assert_eq!(reader.next(rest), Err(Stop::More { consumed: 0, need: expected as usize }));
            let cause = Cause::EndsInRecord { present: present as u64, expected };
            assert_eq!(reader.finish(rest), Err(Damage { offset: 24, cause }));
        };
        check(15, 16);
        check(16, 24);
        check(23, 24);
    }
}
