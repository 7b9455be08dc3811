//! A reader of either capture format. Does no I/O: the caller owns the bytes and shows a window of them.
//!
//! The loop is the same for a mapped file, a pipe and a buffer: call [`Reader::next`] with a window that starts where
//! the last call left off. A [`Record`] says how many bytes to skip. [`Stop::More`] says how many to skip and how many
//! the window must then hold. At the end of the input, [`Reader::finish`] says whether the capture is complete.

use crate::capture::{Cause, Damage, Interface, Record, Stop};
use crate::sniff::{FileKind, SNIFF_BYTES, sniff};
use crate::{pcap_file, pcapng};

/// A reader of either format.
#[derive(Clone, Debug)]
pub enum Reader {
    /// Classic pcap.
    Pcap(pcap_file::Reader),
    /// pcapng.
    Pcapng(pcapng::Reader),
}

impl Reader {
    /// Begins a file by its first bytes. Returns also how many of them to skip.
    pub fn open(window: &[u8]) -> Result<(Self, usize), Stop> {
        match sniff(window) {
            Some(FileKind::Pcap) => {
                let reader = pcap_file::Reader::open(window)?;
                Ok((Self::Pcap(reader), pcap_file::Header::BYTES))
            }
            Some(FileKind::Pcapng) => Ok((Self::Pcapng(pcapng::Reader::new()), 0)),
            None if window.len() < SNIFF_BYTES => Err(Stop::More { consumed: 0, need: SNIFF_BYTES }),
            other => Err(Stop::Damaged(Damage { offset: 0, cause: Cause::NotACapture(other) })),
        }
    }

    /// Finds the next packet. `window` must start where the last call left off.
    #[inline]
    pub fn next(&mut self, window: &[u8]) -> Result<Record, Stop> {
        match self {
            Self::Pcap(reader) => reader.next(window),
            Self::Pcapng(reader) => reader.next(window),
        }
    }

    /// Checks that the input may end here. `rest` is the window for which [`Self::next`] wanted more bytes.
    pub fn finish(&self, rest: &[u8]) -> Result<(), Damage> {
        match self {
            Self::Pcap(reader) => reader.finish(rest),
            Self::Pcapng(reader) => reader.finish(rest),
        }
    }

    /// The interface of the last record of [`Self::next`]. Each pcapng section counts its interfaces from 0.
    pub fn interface(&self, index: u32) -> Option<&Interface> {
        match self {
            Self::Pcap(reader) => (index == 0).then(|| reader.interface()),
            Self::Pcapng(reader) => reader.interface(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened() {
        let check = |bytes: &[u8], expected: Result<usize, Stop>| {
            assert_eq!(Reader::open(bytes).map(|(_, consumed)| consumed), expected, "{bytes:x?}");
        };
        let not = |kind| Err(Stop::Damaged(Damage { offset: 0, cause: Cause::NotACapture(kind) }));
        let mut pcap = Vec::new();
        pcap_file::write_header(&mut pcap, crate::LinkType::ETHERNET, 0, pcap_file::Resolution::Nanoseconds);
        check(&pcap, Ok(24));
        check(&pcap[..23], Err(Stop::More { consumed: 0, need: 24 }));
        check(&pcap[..3], Err(Stop::More { consumed: 0, need: SNIFF_BYTES }));
        let mut pcapng = Vec::new();
        pcapng::write_section(&mut pcapng, &pcapng::Section::default());
        check(&pcapng, Ok(0));
        check(&pcapng[..11], Err(Stop::More { consumed: 0, need: SNIFF_BYTES }));
        check(b"", Err(Stop::More { consumed: 0, need: SNIFF_BYTES }));
        check(b"\x1f\x8b", not(Some(FileKind::Gzip)));
        check(b"plain text, more than enough", not(None));
    }

    #[test]
    fn texts() {
        let check = |cause: Cause, expected: &str| {
            assert_eq!(Damage { offset: 240, cause }.to_string(), expected);
        };
        check(
            Cause::EndsInRecord { present: 7, expected: 16 },
            "byte 240: the file ends inside a record, after 7 of 16 bytes",
        );
        check(Cause::NotACapture(Some(FileKind::Zstd)), "byte 240: a zstd file, not pcap or pcapng");
        check(
            Cause::ByteOrderMark(0x1234),
            "byte 240: a section begins with 0x00001234 where its byte order mark should be",
        );
        let check = |length: u32, expected: &str| {
            let cause = Cause::BlockLength { kind: 6, length, least: 32, most: 100 };
            let said =
                format!("a block of type 0x6 (enhanced packet) says that it is {length} bytes long, and {expected}");
            assert_eq!(cause.to_string(), said);
        };
        check(28, "32 is the least that it can be");
        check(33, "a length is a multiple of 4");
        check(104, "100 is the most that it can be");
    }
}
