//! A segment: one memfd, its seals, and maps of it.
//!
//! The process that makes a segment fixes its size before anybody maps it, because a map of a file that was cut gives
//! SIGBUS. Once the writer has mapped it, further writable maps are forbidden: then the kernel guarantees that a reader
//! cannot write. A segment from another process is checked before it is mapped: seals, size, access.

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of an ordinary page; every part of a segment begins at a multiple of it.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The page size of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    #[default]
    Normal,
    /// 2 MiB where the system has some reserved, else 4 KiB.
    HugeIfThere,
}

/// The access that a map allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only; the kernel refuses more.
    Read,
    /// Reading and writing.
    Write,
}

/// Why a file descriptor from another process is refused as a segment.
#[derive(Debug)]
pub enum Refused {
    /// Its size or file system could not be read.
    Io(io::Error),
    /// It may still shrink, grow or get other seals, or (when it is for reading) be mapped for writing.
    Unsealed,
    /// It is smaller than its contents need.
    TooShort {
        /// Its bytes.
        has: u64,
        /// The bytes needed.
        wants: u64,
    },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Io(error) => write!(f, "the shared memory cannot be looked at: {error}"),
            Refused::Unsealed => f.write_str("the shared memory is not sealed as it must be"),
            Refused::TooShort { has, wants } => write!(f, "the shared memory has {has} bytes where {wants} should be"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<rustix::io::Errno> for Refused {
    fn from(error: rustix::io::Errno) -> Refused {
        Refused::Io(error.into())
    }
}

/// A memfd of fixed size.
#[derive(Debug)]
pub struct Segment {
    fd: OwnedFd,
    bytes: usize,
    page_bytes: usize,
    populates: bool,
}

impl Segment {
    /// Makes a segment of at least `bytes` zero bytes, of fixed size. `name` shows in `/proc/PID/maps`.
    pub fn create(name: &str, bytes: usize, pages: Pages) -> io::Result<Segment> {
        if pages == Pages::HugeIfThere
            && let Ok(segment) = Segment::create_of(name, bytes, MemfdFlags::HUGETLB, HUGE_PAGE_BYTES)
            // Reserves the pages: without them the first touch would be SIGBUS.
            && rustix::fs::fallocate(&segment.fd, rustix::fs::FallocateFlags::empty(), 0, segment.bytes as u64).is_ok()
        {
            return Ok(segment);
        }
        Segment::create_of(name, bytes, MemfdFlags::empty(), PAGE_BYTES)
    }

    fn create_of(name: &str, bytes: usize, flags: MemfdFlags, page_bytes: usize) -> io::Result<Segment> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(page_bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "more bytes than memory can have"))?;
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let fd = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Segment { fd, bytes, page_bytes, populates: true })
    }

    /// Maps get each page at the first touch. For memory of which little may ever be used.
    #[must_use]
    pub fn paged_on_use(mut self) -> Segment {
        self.populates = false;
        self
    }

    /// Forbids further maps for writing; present ones can still write. For the payload, once its writer has mapped it.
    pub fn seal_for_readers(&self) -> io::Result<()> {
        Ok(rustix::fs::fcntl_add_seals(&self.fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
    }

    /// Forbids further seals, so that a process that receives the segment cannot seal it against its writer.
    pub fn seal_for_writer(&self) -> io::Result<()> {
        Ok(rustix::fs::fcntl_add_seals(&self.fd, SealFlags::SEAL)?)
    }

    /// For a writer that may have a successor in another process: forbids further seals, and other users to reopen the
    /// file for writing (`/proc/self/fd`). A process with this descriptor can map it for writing, which
    /// [`seal_for_readers`](Self::seal_for_readers) forbids; one with a [read-only one](Self::read_only_fd) cannot.
    pub fn seal_for_successors(&self) -> io::Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::RUSR | Mode::WUSR)?;
        self.seal_for_writer()
    }

    /// Accepts a file descriptor from another process as a segment of at least `bytes` bytes, if its seals are right.
    /// For [`Access::Read`] no process may map it for writing any more; for [`Access::Write`] its size must be fixed.
    pub fn receive(fd: OwnedFd, bytes: usize, access: Access) -> Result<Segment, Refused> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| Refused::Unsealed)?;
        let wanted = match access {
            Access::Read => SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE,
            Access::Write => SealFlags::SHRINK | SealFlags::GROW,
        };
        if !seals.contains(wanted) {
            return Err(Refused::Unsealed);
        }
        Segment::of_size(fd, bytes)
    }

    /// Accepts memory that other processes may map for writing: a reader's page from its keeper, or a segment whose
    /// writer may have a successor. Its size must be fixed.
    pub fn receive_page(fd: OwnedFd, bytes: usize) -> Result<Segment, Refused> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| Refused::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
            return Err(Refused::Unsealed);
        }
        Segment::of_size(fd, bytes)
    }

    fn of_size(fd: OwnedFd, bytes: usize) -> Result<Segment, Refused> {
        let stat = rustix::fs::fstat(&fd)?;
        let has = u64::try_from(stat.st_size).unwrap_or(0);
        if has < bytes as u64 {
            return Err(Refused::TooShort { has, wants: bytes as u64 });
        }
        // The block size alone does not tell: it is as large where the system may give ordinary memory huge pages.
        let system = rustix::fs::fstatfs(&fd)?;
        let is_huge = system.f_type == libc::HUGETLBFS_MAGIC && system.f_bsize as usize == HUGE_PAGE_BYTES;
        let page_bytes = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let bytes = usize::try_from(has).map_err(|_| Refused::TooShort { has, wants: bytes as u64 })?;
        Ok(Segment { fd, bytes, page_bytes, populates: true })
    }

    /// The file descriptor, for handing on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The file descriptor without the rest.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Another file descriptor of the same memory, which can be mapped for reading only.
    pub fn read_only_fd(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Parts of this segment begin at multiples of this.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Maps `bytes` bytes from `offset` on, with all pages present unless they come [on use](Self::paged_on_use).
    pub fn map(&self, offset: usize, bytes: usize, access: Access) -> io::Result<Arc<Mapping>> {
        self.map_parts(&[(offset, bytes)], access)
    }

    /// Like [`map`](Self::map), but twice in a row: up to `bytes` bytes are contiguous, from any place in the ring.
    pub fn map_twice(&self, offset: usize, bytes: usize, access: Access) -> io::Result<Arc<Mapping>> {
        self.map_parts(&[(offset, bytes), (offset, bytes)], access)
    }

    /// Maps the whole segment, and after it the part from `offset` on once more. So a ring at `offset` is contiguous as
    /// with [`map_twice`](Self::map_twice).
    pub fn map_with_ring(&self, offset: usize, access: Access) -> io::Result<Arc<Mapping>> {
        self.map_parts(&[(0, self.bytes), (offset, self.bytes.saturating_sub(offset))], access)
    }

    /// Maps `parts`, each an offset and a length in bytes, one after the other.
    fn map_parts(&self, parts: &[(usize, usize)], access: Access) -> io::Result<Arc<Mapping>> {
        let is_part = |&(offset, bytes): &(usize, usize)| {
            let whole_pages = offset.is_multiple_of(self.page_bytes) && bytes.is_multiple_of(self.page_bytes);
            whole_pages && bytes > 0 && offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
        };
        let all = parts.iter().try_fold(0_usize, |sum, (_, bytes)| sum.checked_add(*bytes));
        let all = all.filter(|&all| all > 0 && all <= isize::MAX as usize && parts.iter().all(is_part));
        let Some(all) = all else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a part of the shared memory"));
        };
        // Room for one more huge page, so that maps of huge pages can begin at a multiple of their size.
        let slack = self.page_bytes - PAGE_BYTES;
        let reserved = all + slack;
        // SAFETY: a fresh range, which holds no other memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), MapFlags::PRIVATE)?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let first = start.as_ptr().wrapping_add(start.as_ptr().align_offset(self.page_bytes));
        // From here on, dropping `mapping` unmaps the whole range, whatever was mapped into it.
        let mapping = Mapping {
            start,
            reserved,
            first: NonNull::new(first).ok_or(io::ErrorKind::OutOfMemory)?,
            bytes: all,
            writable: access == Access::Write,
        };
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let populate = if self.populates { MapFlags::POPULATE } else { MapFlags::empty() };
        let mut at = first;
        for &(offset, bytes) in parts {
            // SAFETY: replaces a part of the range reserved above, which nothing refers to yet.
            unsafe {
                let flags = MapFlags::SHARED | MapFlags::FIXED | populate;
                rustix::mm::mmap(at.cast(), bytes, protection, flags, &self.fd, offset as u64)?;
            }
            at = at.wrapping_add(bytes);
        }
        Ok(Arc::new(mapping))
    }
}

/// A range of addresses at which a part of a segment is mapped. Unmapped with its last owner.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    reserved: usize,
    first: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: an address range belongs to the process, not to a thread. Its bytes are touched through atomics and copies
// that expect other processes to write at the same time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a file descriptor, with all pages present: of a memfd, or of a ring of the
    /// kernel's. The caller must know that it is that long and stays so.
    pub fn of(fd: BorrowedFd<'_>, bytes: usize, access: Access) -> io::Result<Arc<Mapping>> {
        Mapping::at(fd, 0, bytes, access)
    }

    /// Like [`of`](Self::of), from `offset` on, which is a multiple of a page.
    pub fn at(fd: BorrowedFd<'_>, offset: u64, bytes: usize, access: Access) -> io::Result<Arc<Mapping>> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh range.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                offset,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let writable = access == Access::Write;
        Ok(Arc::new(Mapping { start, reserved: bytes, first: start, bytes, writable }))
    }

    /// Address of the first byte. Other processes may write there at any time.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Length of the address range; a part that was mapped twice counts twice.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the map is writable.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was reserved by `map_parts` and holds no other memory; all its users hold an owner of it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// Mounts a tmpfs that asks for huge pages on this folder, for this thread alone.
    fn mount_huge(folder: &std::path::Path) -> io::Result<()> {
        let at = CString::new(folder.to_str().expect("a temporary folder's name is text"))?;
        let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let none = std::ptr::null();
        // SAFETY: the strings end, and the thread gets its own mounts before any of them changes.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
            let options = c"huge=always".as_ptr().cast();
            check(libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, options))
        }
    }

    /// If the system may give shared memory huge pages (`shmem_enabled`), each file's block size is a huge page.
    #[test]
    fn memory_that_may_have_huge_pages_is_laid_out_as_any_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let made = std::thread::spawn(move || {
            mount_huge(&path)?;
            let file = std::fs::File::options().create_new(true).write(true).open(path.join("memory"))?;
            file.set_len(PAGE_BYTES as u64)?;
            Ok::<_, io::Error>(OwnedFd::from(file))
        });
        let fd = match made.join().unwrap() {
            Ok(fd) => fd,
            Err(error) => {
                return eprintln!("skipped (rights): no file system with huge pages can be mounted here: {error}");
            }
        };
        let segment = Segment::of_size(fd, PAGE_BYTES).unwrap();
        assert_eq!((segment.bytes(), segment.page_bytes()), (PAGE_BYTES, PAGE_BYTES));
    }

    #[test]
    fn memory_of_huge_pages_is_known_by_who_receives_it() {
        let segment = match Segment::create_of("segment-test", 1, MemfdFlags::HUGETLB, HUGE_PAGE_BYTES) {
            Ok(segment) => segment,
            Err(error) => return eprintln!("skipped (rights): no huge pages: {error}"),
        };
        segment.seal_for_writer().unwrap();
        let fd = segment.fd().try_clone_to_owned().unwrap();
        let received = Segment::receive(fd, HUGE_PAGE_BYTES, Access::Write).unwrap();
        assert_eq!((received.bytes(), received.page_bytes()), (HUGE_PAGE_BYTES, HUGE_PAGE_BYTES));
    }
}
