//! A file's page cache, mapped read-only: a data ring whose positions are file offsets. Its bytes are never copied.
//!
//! Not for pipes, nor for rings that Streamline fills itself: see [`append_ring`](crate::append_ring).
//! [`MappedFile::bytes`] argues what a file can do to its reader while it is mapped.

use crate::sigbus::Watch;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A read-only map of a whole file.
#[derive(Debug)]
pub struct MappedFile {
    base: NonNull<u8>,
    len: usize,
    /// `None` for an empty file, which has no map.
    watch: Option<Watch>,
    file: File,
}

// SAFETY: the map belongs to this value alone and is only read; nothing else moves with it to another thread.
unsafe impl Send for MappedFile {}
// SAFETY: methods with `&self` read the map and ask the kernel; the map changes through `&mut self` alone.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the whole of a regular file. Makes system calls.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] for other files and if too many files are mapped: then read the file.
    pub fn new(file: File) -> io::Result<MappedFile> {
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "not a regular file"));
        }
        let mut mapped = MappedFile { base: NonNull::dangling(), len: 0, watch: None, file };
        mapped.grow()?;
        Ok(mapped)
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped (an empty file).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps the bytes that the file has gained since; gives the new length in bytes. Makes system calls. A file that
    /// became shorter keeps its map: [`MappedFile::cut_at`] tells of missing pages once they were touched.
    pub fn grow(&mut self) -> io::Result<usize> {
        let len = self.file_len()?;
        if len > self.len {
            self.map(len, self.cut_at())?;
        }
        Ok(self.len)
    }

    /// Like [`MappedFile::grow`] for a map that others read: gives a second, longer map. `None`: it has not grown.
    pub(crate) fn grown(&self) -> io::Result<Option<MappedFile>> {
        let len = self.file_len()?;
        if len <= self.len {
            return Ok(None);
        }
        let file = self.file.try_clone()?;
        let mut mapped = MappedFile { base: NonNull::dangling(), len: 0, watch: None, file };
        mapped.map(len, self.cut_at())?;
        Ok(Some(mapped))
    }

    fn file_len(&self) -> io::Result<usize> {
        usize::try_from(self.file.metadata()?.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
    }

    /// Maps `len` bytes, more than are mapped now. `cut_at`: where the file was cut, as noticed before.
    fn map(&mut self, len: usize, cut_at: Option<u64>) -> io::Result<()> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the fd is open, and `len` is not 0.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, self.file.as_raw_fd(), 0)
        };
        let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        // Bytes already read from the old map stay cut, so the new map keeps the note.
        let watch = Watch::new(base.as_ptr() as usize, len, cut_at.map(|at| at as usize));
        if watch.is_none() {
            // SAFETY: mapped just above with this length, and not handed out yet.
            unsafe { libc::munmap(base.as_ptr().cast(), len) };
            return Err(io::Error::new(io::ErrorKind::Unsupported, "too many files are mapped"));
        }
        // SAFETY: advice only, on the range mapped above; failure changes nothing.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_SEQUENTIAL) };
        self.unmap();
        (self.base, self.len, self.watch) = (base, len, watch);
        Ok(())
    }

    /// The mapped bytes.
    ///
    /// Why `&[u8]` is sound: the map is read-only here and lives as long as `self`. The argument is weak, because
    /// another process may write to the file while the bytes are read. It rests on how callers use the bytes: as plain
    /// numbers, each checked after it is read, never as lengths or pointers trusted from an earlier read. A file that
    /// becomes shorter reads as zeroes, and [`MappedFile::cut_at`] tells.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `base` is dangling with length 0, or a live map of `len` readable bytes; see above for mutation.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// Where the file was cut under its map, in bytes from its start. This is known only after a missing page was
    /// touched, and rounded down to a page. The lowest place is kept, also when the file grows again.
    pub fn cut_at(&self) -> Option<u64> {
        self.watch.as_ref()?.cut_at().map(|at| at as u64)
    }

    /// Asks the kernel to enter `len` bytes from `pos` into this process's page table: one call instead of a page fault
    /// for every few frames. Does nothing on kernels older than 5.14.
    pub fn populate(&self, pos: usize, len: usize) {
        const PAGE: usize = 4096;
        let start = pos & !(PAGE - 1);
        let end = pos.saturating_add(len).min(self.len);
        if start < end {
            // SAFETY: the range lies inside the map; the call only fills page table entries.
            unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), end - start, libc::MADV_POPULATE_READ) };
        }
    }

    /// Locks the mapped pages in memory until they are unmapped. False where the limit of locked memory forbids it.
    pub fn lock(&self) -> bool {
        // SAFETY: the range is the map, and locking changes none of its bytes. An empty map makes no call.
        self.len == 0 || unsafe { libc::mlock(self.base.as_ptr().cast(), self.len) } == 0
    }

    fn unmap(&mut self) {
        // The watch goes first: the handler must not put pages into a range that this value no longer owns.
        self.watch = None;
        if self.len > 0 {
            // SAFETY: `base` and `len` describe the map made in `grow`; no slice outlives the borrow of `self`.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.unmap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn maps_empty_grows_and_survives_a_cut() {
        let mut file = tempfile::tempfile().unwrap();
        let mut mapped = MappedFile::new(file.try_clone().unwrap()).unwrap();
        assert!(mapped.is_empty() && mapped.bytes().is_empty());

        file.write_all(&[7; 10_000]).unwrap();
        assert_eq!(mapped.grow().unwrap(), 10_000);
        assert_eq!(mapped.bytes()[9_999], 7);
        mapped.populate(0, usize::MAX);

        file.set_len(4096).unwrap();
        assert_eq!(mapped.bytes()[4095], 7);
        assert_eq!(mapped.cut_at(), None);
        assert_eq!(mapped.bytes()[9_000], 0, "a page that is gone reads as zeroes");
        assert_eq!(mapped.cut_at(), Some(8192));

        file.seek(SeekFrom::End(0)).unwrap();
        assert_eq!(mapped.grow().unwrap(), 10_000, "a shorter file keeps its map");
    }

    #[test]
    fn a_cut_stays_noted_when_the_file_is_mapped_anew_and_lower_ones_are_noticed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 16 << 10]).unwrap();
        let mut mapped = MappedFile::new(file.try_clone().unwrap()).unwrap();
        // (length to which the file is cut, page touched, length to which it then grows, byte read there after, note)
        let rows = [
            (8 << 10, 12 << 10, 20 << 10, 0, 12 << 10),
            (8 << 10, 16 << 10, 24 << 10, 0, 12 << 10),
            (4 << 10, 8 << 10, 28 << 10, 0, 8 << 10),
        ];
        for (cut, touched, grown, expected, note) in rows {
            file.set_len(cut).unwrap();
            assert_eq!(mapped.bytes()[touched], 0);
            assert_eq!(mapped.cut_at(), Some(note as u64));
            file.set_len(grown).unwrap();
            assert_eq!(mapped.grow().unwrap() as u64, grown);
            assert_eq!((mapped.bytes()[touched], mapped.cut_at()), (expected, Some(note as u64)), "{cut} {grown}");
        }
        drop(mapped);
        assert_eq!(MappedFile::new(file).unwrap().cut_at(), None, "a new map knows nothing of it");
    }

    #[test]
    fn only_regular_files() {
        let error = MappedFile::new(File::open("/dev/null").unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
