//! System calls in the style of this crate: results for return codes, typed socket options, waits with a time limit.
//!
//! Not a library of system calls: calls that one device alone needs are in its module.

use std::ffi::{c_int, c_short, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// Data without pointers and without padding that matters; every bit pattern is a value.
///
/// # Safety
///
/// The type has all of these properties.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers in a row, without holes.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats_v3 {}
// SAFETY: as above.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: as above.
unsafe impl Plain for libc::sockaddr_ll {}
// SAFETY: as above.
unsafe impl Plain for libc::ifinfomsg {}
// SAFETY: as above.
unsafe impl Plain for libc::nlmsghdr {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_statistics {}

/// Converts a return code; a negative one means `errno`.
pub(crate) fn check(code: c_int) -> io::Result<c_int> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}

/// A new socket, closed on exec.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: just made, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no holes; the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads plain data from the first bytes of `bytes`, aligned or not; `None` if there are too few.
pub(crate) fn read_plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: there are as many bytes as it has, and any of them are a value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

pub(crate) fn set_option<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from a value that has as many.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length) })?;
    Ok(())
}

/// Gets an option of a socket. Bytes that the kernel leaves out are zero.
pub(crate) fn option<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    // SAFETY: zeroes are a value of plain data.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into a value that has as many.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &mut length)
    })?;
    Ok(value)
}

pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<c_int>> {
    let code: c_int = option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((code != 0).then_some(code))
}

/// An `ioctl` whose argument is a structure that the kernel reads and perhaps writes.
///
/// # Safety
///
/// `request` takes a pointer to a `T`, and the structure's own pointers are as the request needs them.
pub(crate) unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: c_ulong, argument: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise; the argument lives for the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(argument)) })?;
    Ok(())
}

/// Waits until one of `events` is true of `fd`, at most for `wait` ([`Duration::MAX`]: for ever). Gives the events that
/// are true; 0 when time was up or a signal came.
pub(crate) fn wait(fd: BorrowedFd<'_>, events: c_short, wait: Duration) -> io::Result<c_short> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let time = libc::time_t::try_from(wait.as_secs())
        .ok()
        .map(|tv_sec| libc::timespec { tv_sec, tv_nsec: wait.subsec_nanos().into() });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd, a timespec or nothing, no signal mask.
    match check(unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) }) {
        Ok(_) => Ok(poll.revents),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// A device's name in the kernel's form; `None` if it is no valid name.
pub(crate) fn name_bytes(name: &str) -> Option<[libc::c_char; libc::IFNAMSIZ]> {
    let bytes = name.as_bytes();
    let fits = !bytes.is_empty() && bytes.len() < libc::IFNAMSIZ && !bytes.contains(&0);
    fits.then(|| std::array::from_fn(|at| bytes.get(at).map_or(0, |&byte| byte as libc::c_char)))
}

/// Waits until every processor has finished its present frames: then no frame is still being looked at by a filter that
/// was replaced. Takes tens of milliseconds.
///
/// The argument is weak because it rests on the kernel's implementation. `membarrier` and closing a packet socket both
/// wait for an RCU grace period, and a frame is filtered and counted inside one read-side section.
pub(crate) fn grace_period() -> io::Result<()> {
    // SAFETY: takes no pointers.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done != 0 {
        // Linux does not offer it on machines with processors that run without its timer.
        drop(socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?);
    }
    Ok(())
}

/// Memory of a file descriptor, mapped for reading and writing. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range belongs to the process, not to a thread; its owner decides how it is used.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `bytes` bytes from `offset` on, with all pages present.
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Map> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a fresh range.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Map { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Address of the byte at `offset`; `None` unless `bytes` bytes from there on are inside.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        // SAFETY: inside the map.
        fits.then(|| unsafe { self.start.add(offset) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and all its users borrowed this value.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
