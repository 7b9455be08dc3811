//! Reads numbers at an offset; `None` past the end. Not a cursor: each parser keeps its own offsets.
//! Network byte order unless the name says otherwise.

/// Big-endian 16 bits at `offset`.
#[inline]
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Big-endian 32 bits at `offset`.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// `N` bytes at `offset`, as an array that needs no further bounds checks.
#[inline]
pub fn chunk_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}

/// A length as `u32`; a slice of 4 GiB or more counts as `u32::MAX`. No frame is that long.
#[inline]
pub fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
