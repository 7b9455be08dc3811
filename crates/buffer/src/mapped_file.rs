//! A file's page cache, mapped read-only: a data ring whose positions are file offsets and whose bytes are never copied.
//!
//! Not for pipes or growing rings of our own: see [`append_ring`](crate::append_ring). What a file can do to us while
//! it is mapped is argued at [`MappedFile::bytes`].

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
    /// Present while something is mapped (an empty file has no map).
    watch: Option<Watch>,
    file: File,
}

// SAFETY: the map belongs to this value alone and is only read; moving the value to another thread moves nothing else.
unsafe impl Send for MappedFile {}
// SAFETY: what takes `&self` reads the map and asks the kernel; the map changes through `&mut self` alone.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the whole of a regular file. Makes system calls.
    ///
    /// Fails with [`io::ErrorKind::Unsupported`] for what is not a regular file or when too many files are mapped;
    /// such a file can be read instead.
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

    /// Is nothing mapped (an empty file)?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps what the file has gained since; gives the new length in bytes. Makes system calls. A file that became
    /// shorter keeps its map: the missing pages are noticed when they are touched, see [`MappedFile::cut_at`].
    pub fn grow(&mut self) -> io::Result<usize> {
        let len = self.file_len()?;
        if len > self.len {
            self.map(len, self.cut_at())?;
        }
        Ok(self.len)
    }

    /// The same for a map that others read: another map of the file, if it has gained anything.
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

    /// Maps so many bytes, more than there are mapped; it was noticed before that the file was cut there.
    fn map(&mut self, len: usize, cut_at: Option<u64>) -> io::Result<()> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the fd is open, and `len` is not 0.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, self.file.as_raw_fd(), 0)
        };
        let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        // What was noticed of the map before this one stays true of the bytes already read from it.
        let watch = Watch::new(base.as_ptr() as usize, len, cut_at.map(|at| at as usize));
        if watch.is_none() {
            // SAFETY: mapped just above with this length, and nobody has seen it.
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
    /// The argument for handing out `&[u8]`: the map is read-only here and lives as long as `self`. Another process may
    /// still write to the file, so the bytes can change while they are looked at; this argument is therefore weak and
    /// rests on how they are used: as plain numbers, each checked after it is read, never as lengths or pointers
    /// trusted from an earlier read. A file that becomes shorter reads as zeroes and is noted by [`MappedFile::cut_at`].
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `base` is dangling with length 0, or a live map of `len` readable bytes; see above for mutation.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// Where the file was cut under its map, in bytes from its start, as far as has been noticed: known only after a
    /// missing page was touched, and rounded down to a page. The lowest place is kept, also when the file grows again.
    pub fn cut_at(&self) -> Option<u64> {
        self.watch.as_ref()?.cut_at().map(|at| at as u64)
    }

    /// Asks the kernel to bring `len` bytes from `pos` into this process's page table in one go: one call instead of a
    /// page fault for every few frames. Does nothing on kernels older than 5.14.
    pub fn populate(&self, pos: usize, len: usize) {
        const PAGE: usize = 4096;
        let start = pos & !(PAGE - 1);
        let end = pos.saturating_add(len).min(self.len);
        if start < end {
            // SAFETY: the range lies inside the map; the call only fills page table entries.
            unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), end - start, libc::MADV_POPULATE_READ) };
        }
    }

    /// Keeps the mapped pages in memory until they are unmapped, where the limit of locked memory lets it; says whether it does.
    pub fn lock(&self) -> bool {
        // SAFETY: the range is the map; locking changes none of it. An empty map is dangling, and nothing of it is touched.
        self.len == 0 || unsafe { libc::mlock(self.base.as_ptr().cast(), self.len) } == 0
    }

    fn unmap(&mut self) {
        // The watch goes first: the handler must not put pages into a range that is no longer ours.
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
        // (length the file is cut to, page touched, length it then grows to, byte read there after, note)
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
