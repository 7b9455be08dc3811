//! The memory of frames (UMEM): chunks of one size in a sealed memfd, so that other processes can get to see it.
//!
//! It has the seals that the kernel allows beside its own map and ours: `SHRINK`, `GROW`, `SEAL` and `FUTURE_WRITE`. No
//! process can map it for writing after this one, or change its size. `WRITE` is refused while a writable map exists,
//! and this process keeps one.

use buffer::shared::segment::{Access, Mapping, Pages, Segment};
use std::io;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct Memory {
    segment: Arc<Segment>,
    mapping: Arc<Mapping>,
    chunk_bytes: u32,
}

impl Memory {
    pub(super) fn create(name: &str, chunks: u32, chunk_bytes: u32) -> io::Result<Memory> {
        let bytes = chunks as usize * chunk_bytes as usize;
        let segment = Segment::create(name, bytes, Pages::Normal)?;
        let mapping = segment.map(0, segment.bytes(), Access::Write)?;
        segment.seal_for_readers()?;
        Ok(Memory { segment: Arc::new(segment), mapping, chunk_bytes })
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.mapping.first().as_ptr() as u64,
            len: self.mapping.bytes() as u64,
            chunk_size: self.chunk_bytes,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    pub(super) fn chunk(&self, address: u64) -> u64 {
        address & !u64::from(self.chunk_bytes - 1)
    }

    pub(super) fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Checks that the `len` bytes at `address` are inside one chunk; gives their offset.
    fn offset(&self, address: u64, len: u32) -> Option<usize> {
        let end_of_chunk = self.chunk(address).checked_add(self.chunk_bytes.into())?;
        let end = address.checked_add(len.into())?;
        let fits = end <= end_of_chunk && end_of_chunk <= self.mapping.bytes() as u64;
        fits.then_some(address as usize)
    }

    /// The bytes of a received frame.
    ///
    /// # Safety
    ///
    /// The kernel said that it received a frame there, and gets its chunk back only after the bytes were used.
    pub(super) unsafe fn frame(&self, address: u64, len: u32) -> Option<&[u8]> {
        let offset = self.offset(address, len)?;
        // SAFETY: inside the map; the caller promises that there is no writer.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.first().add(offset).as_ptr(), len as usize) })
    }

    /// Copies a frame to a chunk for sending; says whether it fits.
    ///
    /// # Safety
    ///
    /// The chunk belongs to this process: the kernel is neither filling it nor sending from it.
    pub(super) unsafe fn copy_in(&self, address: u64, frame: &[u8]) -> bool {
        let offset = u32::try_from(frame.len()).ok().and_then(|len| self.offset(address, len));
        let Some(offset) = offset else { return false };
        // SAFETY: inside the map, as many bytes as the frame has; the caller promises that they are not used elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.as_ptr(), self.mapping.first().add(offset).as_ptr(), frame.len())
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::SealFlags;

    #[test]
    fn places_are_checked() {
        let memory = Memory::create("test", 4, 4096).expect("a little memory");
        for (address, len, expected) in [
            (0, 4096, true),
            (256, 3840, true),
            (256, 3841, false),
            (12_288, 4096, true),
            (16_384, 0, false),
            (u64::MAX, 1, false),
            (u64::MAX - 4096, u32::MAX, false),
        ] {
            assert_eq!(memory.offset(address, len).is_some(), expected, "{address} + {len}");
        }
        // SAFETY: the kernel knows nothing of this memory.
        let copied = unsafe { [memory.copy_in(4096, &[7; 60]), memory.copy_in(4096, &[7; 4097])] };
        assert_eq!(copied, [true, false]);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.frame(4096, 60) }, Some(&[7; 60][..]));
    }

    #[test]
    fn nobody_else_can_write_to_it() {
        let memory = Memory::create("test", 4, 4096).expect("a little memory");
        let seals = rustix::fs::fcntl_get_seals(memory.segment().fd()).expect("a memfd has seals");
        let expected = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE;
        assert!(seals.contains(expected) && !seals.contains(SealFlags::WRITE));
        assert!(memory.segment().map(0, 4096, Access::Write).is_err());
        assert!(memory.segment().map(0, 4096, Access::Read).is_ok());
    }
}
