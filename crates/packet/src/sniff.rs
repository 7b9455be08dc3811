//! Finds out the kind of a file from its first bytes, not its name. The rest of the file may still be invalid.

/// A kind of file that users may give to a reader of captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Classic pcap of any byte order and resolution: [`crate::pcap_file`].
    Pcap,
    /// pcapng: [`crate::pcapng`].
    Pcapng,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878). `pzstd` begins with a skippable frame, which LZ4 has, too.
    Zstd,
    /// xz.
    Xz,
    /// bzip2.
    Bzip2,
    /// LZ4 frames.
    Lz4,
    /// ZIP archive.
    Zip,
    /// Solaris snoop (RFC 1761).
    Snoop,
    /// Microsoft Network Monitor 2.
    NetworkMonitor,
    /// Navtel's nanosecond variant of pcap, which libpcap does not read either.
    Navtel,
}

/// Bytes that [`sniff`] needs; fewer may suffice.
pub const SNIFF_BYTES: usize = 12;

impl FileKind {
    /// The name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
            Self::Zip => "zip",
            Self::Snoop => "snoop",
            Self::NetworkMonitor => "network monitor",
            Self::Navtel => "navtel pcap",
        }
    }

    /// Whether it is one file, compressed, in a format that readers of captures decompress. A ZIP archive has a directory of files.
    pub const fn is_compressed(self) -> bool {
        matches!(self, Self::Gzip | Self::Zstd | Self::Xz | Self::Bzip2 | Self::Lz4)
    }
}

/// The kind of a file by its first bytes; `None` if they are unknown.
pub fn sniff(first_bytes: &[u8]) -> Option<FileKind> {
    match *first_bytes {
        [0xa1, 0xb2, 0xc3, 0xd4, ..] | [0xd4, 0xc3, 0xb2, 0xa1, ..] => Some(FileKind::Pcap),
        [0xa1, 0xb2, 0x3c, 0x4d, ..] | [0x4d, 0x3c, 0xb2, 0xa1, ..] => Some(FileKind::Pcap),
        [0xa1, 0xb2, 0xcd, 0x34, ..] | [0x34, 0xcd, 0xb2, 0xa1, ..] => Some(FileKind::Pcap),
        [0xa1, 0x2b, 0x3c, 0x4d, ..] | [0x4d, 0x3c, 0x2b, 0xa1, ..] => Some(FileKind::Navtel),
        // The block type is "\n\r\r\n", which can also be text. The byte order mark behind the length decides.
        [0x0a, 0x0d, 0x0d, 0x0a, _, _, _, _, 0x1a, 0x2b, 0x3c, 0x4d, ..] => Some(FileKind::Pcapng),
        [0x0a, 0x0d, 0x0d, 0x0a, _, _, _, _, 0x4d, 0x3c, 0x2b, 0x1a, ..] => Some(FileKind::Pcapng),
        [0x1f, 0x8b, ..] => Some(FileKind::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(FileKind::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(FileKind::Xz),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(FileKind::Bzip2),
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Some(FileKind::Lz4),
        [b'P', b'K', 3, 4, ..] => Some(FileKind::Zip),
        [b's', b'n', b'o', b'o', b'p', 0, 0, 0, ..] => Some(FileKind::Snoop),
        [b'G', b'M', b'B', b'U', ..] => Some(FileKind::NetworkMonitor),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let check = |bytes: &[u8], expected: Option<&str>| {
            assert_eq!(sniff(bytes).map(FileKind::name), expected, "{bytes:x?}");
        };
        check(&0xa1b2_c3d4_u32.to_le_bytes(), Some("pcap"));
        check(&0xa1b2_c3d4_u32.to_be_bytes(), Some("pcap"));
        check(&0xa1b2_3c4d_u32.to_le_bytes(), Some("pcap"));
        check(&0xa1b2_cd34_u32.to_be_bytes(), Some("pcap"));
        check(b"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a", Some("pcapng"));
        check(b"\n\r\r\n\0\0\0\x1c\x1a\x2b\x3c\x4d", Some("pcapng"));
        check(b"\n\r\r\nsome text", None);
        check(&[0x1f, 0x8b], Some("gzip"));
        check(&0xfd2f_b528_u32.to_le_bytes(), Some("zstd"));
        check(&0x184d_2a50_u32.to_le_bytes(), Some("zstd"));
        check(&0x184d_2204_u32.to_le_bytes(), Some("lz4"));
        check(&0x184c_2102_u32.to_le_bytes(), Some("lz4"));
        check(b"\xfd7zXZ\0\0", Some("xz"));
        check(b"BZh91AY", Some("bzip2"));
        check(b"snoop\0\0\0", Some("snoop"));
        check(b"", None);
        check(b"GET / HTTP/1.1", None);
    }
}
