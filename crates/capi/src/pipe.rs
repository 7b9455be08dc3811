//! Rings as pipes, for C: one function for each operation on either end.

use crate::{guarded, guarded_int};
use buffer::pipe::{Block, OpenOptions, PipeReader, PipeWriter};
use buffer::ring::{ActiveWindow, From, OnFull, Signalling};
use std::ffi::{CStr, c_char, c_void};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

/// Open for reading.
pub const SL_READ: u32 = 1;
/// Open for writing.
pub const SL_WRITE: u32 = 2;
/// Calls that would wait return -EAGAIN.
pub const SL_NONBLOCK: u32 = 4;
/// Begin at the oldest block in the ring; for readers that hold nothing.
pub const SL_OLDEST: u32 = 8;
/// When this reader is a whole ring behind, the newest block is dropped. Without this, SL_OVERWRITE and SL_SHARED the
/// writer waits.
pub const SL_DROP_NEWEST: u32 = 16;
/// When this reader is a whole ring behind, it is overtaken.
pub const SL_OVERWRITE: u32 = 32;
/// As SL_OVERWRITE; readers that were overtaken stay together.
pub const SL_SHARED: u32 = 64;
/// Write also while there is no reader; those blocks are lost.
pub const SL_UNREAD: u32 = 128;
/// Wake sleeping readers for every block. Without it they wake for every 32 blocks, by `sl_flush`, and within their own
/// bound.
pub const SL_EVERY: u32 = 256;

/// For `sl_window`: use all of the ring.
pub const SL_WINDOW_WHOLE: u64 = 0;
/// For `sl_window`: use as little of the ring as its readers can keep up with.
pub const SL_WINDOW_AUTO: u64 = u64::MAX;

/// One end of a ring.
pub struct SlPipe(End);

enum End {
    Reader { reader: Box<PipeReader>, peeked: Option<Block> },
    Writer(Box<PipeWriter>),
}

/// A block that `sl_peek` shows.
#[repr(C)]
pub struct SlBlock {
    /// The bytes, in place. NULL if they may not be read; then `refused` says why.
    pub bytes: *const c_void,
    /// The number of bytes.
    pub len: u64,
    /// When the block was seen: nanoseconds since 1970 UTC.
    pub time: u64,
    /// Its class.
    pub block_class: u32,
    /// Its length on the wire.
    pub wire: u32,
    /// 0, or the negative errno from its ring's keeper.
    pub refused: i32,
    /// Not 0: the bytes are in another ring than the one that is read.
    pub elsewhere: i32,
}

/// The state of an end.
#[repr(C)]
pub struct SlStat {
    /// Bytes of the longest block; for a stream, bytes of the ring.
    pub block_bytes: u64,
    /// Blocks read or written.
    pub blocks: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Blocks (bytes, for a stream) that this reader lost by being overtaken, or that this writer dropped.
    pub lost: u64,
    /// Blocks forwarded to this writer by their descriptor alone.
    pub forwarded: u64,
    /// Blocks forwarded to this writer whose bytes had to be copied.
    pub copied: u64,
    /// Blocks that this reader forwarded and that other readers have not read yet.
    pub outstanding: u64,
    /// Rings that this reader has opened because a block was in them.
    pub faults: u64,
    /// Readers of this writer's ring.
    pub readers: u64,
    /// Bytes of payload that this writer uses of a ring of descriptors; 0 for other rings, which use all.
    pub window: u64,
    /// 'c', 'p', 'v' or 'd'.
    pub kind: c_char,
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

fn not_this_end() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// # Safety
///
/// Null, or from `sl_open` and not closed. It has no other user meanwhile.
unsafe fn end<'a>(pipe: *mut SlPipe) -> io::Result<&'a mut End> {
    // SAFETY: the caller's word.
    unsafe { pipe.as_mut() }.map(|pipe| &mut pipe.0).ok_or_else(invalid)
}

/// # Safety
///
/// As for [`end`].
unsafe fn reader<'a>(pipe: *mut SlPipe) -> io::Result<(&'a mut PipeReader, &'a mut Option<Block>)> {
    // SAFETY: the caller's word.
    match unsafe { end(pipe) }? {
        End::Reader { reader, peeked } => Ok((reader, peeked)),
        End::Writer(_) => Err(not_this_end()),
    }
}

/// # Safety
///
/// As for [`end`].
unsafe fn writer<'a>(pipe: *mut SlPipe) -> io::Result<&'a mut PipeWriter> {
    // SAFETY: the caller's word.
    match unsafe { end(pipe) }? {
        End::Writer(writer) => Ok(writer),
        End::Reader { .. } => Err(not_this_end()),
    }
}

/// Opens the ring with this name, or with its keeper's socket at this path. 0, or a negative errno.
///
/// # Safety
///
/// `name` is a text that ends with a zero byte; `pipe` has room for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_open(name: *const c_char, flags: u32, pipe: *mut *mut SlPipe) -> i32 {
    guarded_int(|| {
        if name.is_null() || pipe.is_null() || flags >= SL_EVERY * 2 {
            return Err(invalid());
        }
        // SAFETY: not null, and the caller's word for the rest.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| invalid())?;
        let has = |flag| flags & flag != 0;
        let contract = match flags & (SL_DROP_NEWEST | SL_OVERWRITE | SL_SHARED) {
            0 => OnFull::Wait,
            SL_DROP_NEWEST => OnFull::DropNewest,
            SL_OVERWRITE => OnFull::Overwrite,
            SL_SHARED => OnFull::Shared,
            _ => return Err(invalid()),
        };
        let options = OpenOptions::new()
            .contract(contract)
            .from(if has(SL_OLDEST) { From::Oldest } else { From::Next })
            .non_blocking(has(SL_NONBLOCK))
            .needs_readers(!has(SL_UNREAD))
            .signalling(if has(SL_EVERY) { Signalling::Every } else { Signalling::default() });
        let opened = match flags & (SL_READ | SL_WRITE) {
            SL_READ => End::Reader { reader: Box::new(options.read(name)?), peeked: None },
            SL_WRITE => End::Writer(Box::new(options.write(name)?)),
            _ => return Err(invalid()),
        };
        // SAFETY: not null, and the caller's word.
        unsafe { pipe.write(Box::into_raw(Box::new(SlPipe(opened)))) };
        Ok(0)
    })
}

/// Reads at most one block or its rest; for a stream, the bytes that are there. Gives the bytes read, 0 at the end, or
/// a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_read(pipe: *mut SlPipe, buffer: *mut c_void, len: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (reader, peeked) = unsafe { reader(pipe) }?;
        *peeked = None;
        if buffer.is_null() || len > isize::MAX as usize {
            return Err(invalid());
        }
        // SAFETY: as above; written to before it is read, as a system call does.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
        Ok(reader.read(buffer)? as i64)
    })
}

/// Writes one block. For a stream it writes the bytes that have room, or all if it may wait. Gives the bytes written,
/// or a negative errno: -EPIPE when all readers have left (without a signal), -EMSGSIZE for a block that can never fit.
///
/// # Safety
///
/// `pipe` is from `sl_open`; `buffer` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_write(pipe: *mut SlPipe, buffer: *const c_void, len: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let writer = unsafe { writer(pipe) }?;
        if len == 0 {
            return Ok(0);
        }
        if buffer.is_null() || len > isize::MAX as usize {
            return Err(invalid());
        }
        // SAFETY: as above.
        let buffer = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) };
        Ok(writer.write(buffer)? as i64)
    })
}

/// Shows the bytes of the next read in place. 1, 0 at the end, or a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`; `block` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_peek(pipe: *mut SlPipe, block: *mut SlBlock) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let (reader, peeked) = unsafe { reader(pipe) }?;
        *peeked = None;
        if block.is_null() {
            return Err(invalid());
        }
        let Some(seen) = reader.peek()? else { return Ok(0) };
        *peeked = Some(seen);
        let (bytes, refused) = match reader.look_at(&seen) {
            Ok(bytes) => (bytes.as_ptr().cast(), 0),
            Err(error) => (std::ptr::null(), -base::c_face::errno_of(&error)),
        };
        let known = seen.descriptor();
        let shown = SlBlock {
            bytes,
            len: seen.len() as u64,
            time: known.time,
            block_class: known.class.0,
            wire: known.wire(),
            refused,
            elsewhere: i32::from(seen.is_elsewhere()),
        };
        // SAFETY: not null, and the caller's word.
        unsafe { block.write(shown) };
        Ok(1)
    })
}

/// Takes the first `len` bytes of the block peeked last; SIZE_MAX: all. 0, or a negative errno: -ESTALE if they were
/// overwritten meanwhile.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_release(pipe: *mut SlPipe, len: usize) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let (reader, peeked) = unsafe { reader(pipe) }?;
        let block = peeked.take().ok_or_else(invalid)?;
        reader.release(&block.first(len))?;
        Ok(0)
    })
}

/// Gives the first `len` bytes (SIZE_MAX: all) of the block peeked last to another ring, and takes them. For a ring of
/// descriptors no byte is copied. Gives the bytes, or a negative errno. After an error other than -ESTALE the block is
/// not taken.
///
/// # Safety
///
/// Both are from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_forward(from: *mut SlPipe, to: *mut SlPipe, len: usize) -> i64 {
    // SAFETY: the caller's word; an array of one.
    unsafe { sl_tee(from, &to, 1, len) }
}

/// As `sl_forward`, to `count` rings. After -EAGAIN, call it again with the same rings in the same order: it goes on at
/// the point where it stopped.
///
/// # Safety
///
/// All are from `sl_open`; all of `to` are different; `to` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_tee(from: *mut SlPipe, to: *const *mut SlPipe, count: usize, len: usize) -> i64 {
    guarded(|| {
        // SAFETY: the caller's word.
        let (reader, peeked) = unsafe { reader(from) }?;
        let block = (*peeked).ok_or_else(invalid)?;
        if to.is_null() || count == 0 || count > isize::MAX as usize / size_of::<*mut SlPipe>() {
            return Err(invalid());
        }
        // SAFETY: the caller's word.
        let to = unsafe { std::slice::from_raw_parts(to, count) };
        if to.contains(&from) || to.iter().enumerate().any(|(place, one)| to[..place].contains(one)) {
            return Err(invalid());
        }
        // SAFETY: the caller's word; the check above shows that all are different, and that the reader is not among
        // them.
        let mut writers = to.iter().map(|one| unsafe { writer(*one) }).collect::<io::Result<Vec<_>>>()?;
        let outcome = reader.tee(&block.first(len), &mut writers);
        let stays = matches!(&outcome, Err(error) if error.raw_os_error() != Some(libc::ESTALE));
        if !stays {
            *peeked = None;
        }
        Ok(outcome? as i64)
    })
}

/// A file descriptor to poll. For a reader: readable (POLLIN) when there are bytes to read, or at the end. For a
/// writer: writable (POLLOUT) when a block of 4,096 bytes (or the longest block, if shorter) can be written without
/// waiting, or when a write fails at once; its POLLIN has no meaning. It belongs to the handle: do not read, write or
/// close it. Gives the descriptor, or a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_poll_fd(pipe: *mut SlPipe) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let fd = match unsafe { end(pipe) }? {
            End::Reader { reader, .. } => reader.poll_fd()?.as_raw_fd(),
            End::Writer(writer) => {
                let longest = usize::try_from(writer.stat().block_bytes).unwrap_or(usize::MAX);
                writer.poll_fd(longest.min(libc::PIPE_BUF))?.as_raw_fd()
            }
        };
        Ok(i64::from(fd))
    })
}

/// The file descriptor of a writer, as `sl_poll_fd` gives it. From here on it is writable when there is room for `len`
/// bytes. A length that can never fit counts as writable, because the write fails at once.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_poll_room(pipe: *mut SlPipe, len: usize) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let writer = unsafe { writer(pipe) }?;
        Ok(i64::from(writer.poll_fd(len)?.as_raw_fd()))
    })
}

/// Wakes readers that sleep until a batch is complete. 0, or a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_flush(pipe: *mut SlPipe) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        unsafe { writer(pipe) }?.flush()?;
        Ok(0)
    })
}

/// Goes on in a ring of at least `bytes` bytes and `slots` slots (0: as many as suit). 0, or a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_resize(pipe: *mut SlPipe, bytes: u64, slots: u64) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        unsafe { writer(pipe) }?.resize(bytes, slots)?;
        Ok(0)
    })
}

/// Uses only `bytes` bytes of a ring of descriptors from here on (rounded up to a power of two), so that written bytes
/// stay in the processor's cache. SL_WINDOW_WHOLE uses all of it; SL_WINDOW_AUTO finds out how many bytes are enough.
/// The setting also holds for a ring of another size. 0, or a negative errno: -EINVAL for rings of other kinds.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_window(pipe: *mut SlPipe, bytes: u64) -> i32 {
    guarded_int(|| {
        let window = match bytes {
            SL_WINDOW_WHOLE => ActiveWindow::Whole,
            SL_WINDOW_AUTO => ActiveWindow::AUTO,
            bytes => ActiveWindow::Bytes(bytes),
        };
        // SAFETY: the caller's word.
        unsafe { writer(pipe) }?.set_window(window)?;
        Ok(0)
    })
}

/// Waits until all forwarded blocks are read, so that closing overwrites no unread block. 0, or a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_drain(pipe: *mut SlPipe) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        unsafe { reader(pipe) }?.0.drain()?;
        Ok(0)
    })
}

/// Gives the state of an end. 0, or a negative errno.
///
/// # Safety
///
/// `pipe` is from `sl_open`; `stat` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_stat(pipe: *mut SlPipe, stat: *mut SlStat) -> i32 {
    guarded_int(|| {
        // SAFETY: the caller's word.
        let end = unsafe { end(pipe) }?;
        if stat.is_null() {
            return Err(invalid());
        }
        let (answer, kind) = match end {
            End::Reader { reader, .. } => {
                let is = reader.stat();
                let answer = SlStat {
                    block_bytes: is.block_bytes,
                    blocks: is.ring.blocks,
                    bytes: is.ring.bytes,
                    lost: is.ring.lost + is.lost_elsewhere,
                    forwarded: 0,
                    copied: 0,
                    outstanding: is.outstanding as u64,
                    faults: is.faults,
                    readers: 0,
                    window: 0,
                    kind: 0,
                };
                (answer, is.kind)
            }
            End::Writer(writer) => {
                let is = writer.stat();
                let answer = SlStat {
                    block_bytes: is.block_bytes,
                    blocks: is.ring.blocks,
                    bytes: is.ring.bytes,
                    lost: is.ring.dropped,
                    forwarded: is.forwarded,
                    copied: is.copied,
                    outstanding: 0,
                    faults: 0,
                    readers: is.readers as u64,
                    window: is.window,
                    kind: 0,
                };
                (answer, is.kind)
            }
        };
        let kind = kind.name().bytes().next().map_or(0, |letter| letter as c_char);
        // SAFETY: not null, and the caller's word.
        unsafe { stat.write(SlStat { kind, ..answer }) };
        Ok(0)
    })
}

/// Closes an end; a writer's ring ends properly. The handle is gone, whatever the result. 0, or a negative errno.
///
/// # Safety
///
/// `pipe` is null, or from `sl_open` and not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_close(pipe: *mut SlPipe) -> i32 {
    guarded_int(|| {
        if !pipe.is_null() {
            // SAFETY: the caller's word: it was made by `Box::into_raw` in `sl_open`.
            drop(unsafe { Box::from_raw(pipe) });
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::keeper::client::Named;
    use buffer::keeper::server::{Keeper, RingOptions};
    use buffer::ring::RingKind;
    use buffer::ring::memory::Geometry;
    use std::ffi::CString;
    use std::ptr::null_mut;
    use std::thread::JoinHandle;

    fn poll(fd: i32, events: i16, wait_ms: i32) -> i16 {
        let mut polled = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one element, as the argument says.
        unsafe { libc::poll(&mut polled, 1, wait_ms) };
        polled.revents
    }

    /// A ring of 8 KiB, kept by a thread: its folder, its path, and the path for C.
    fn kept(kind: RingKind) -> (tempfile::TempDir, String, CString, JoinHandle<io::Result<()>>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let geometry = Geometry::new(kind, 8192, 0);
        let options = RingOptions::new(geometry);
        let mut keeper = Keeper::create(&path, options).unwrap();
        let path = path.to_str().unwrap().to_owned();
        let name = CString::new(path.as_str()).unwrap();
        (folder, path, name, std::thread::spawn(move || keeper.run()))
    }

    #[test]
    fn a_window_is_cut_and_told_and_only_a_ring_of_descriptors_has_one() {
        for (kind, cut, told) in [(RingKind::D, 0, 2048), (RingKind::V, -libc::EINVAL, 0)] {
            let (_folder, path, name, keeper) = kept(kind);
            let mut pipe = null_mut();
            // SAFETY: zeroes are a value of each of its fields.
            let mut stat: SlStat = unsafe { std::mem::zeroed() };
            // SAFETY: handles and memory as the functions need them.
            unsafe {
                assert_eq!(sl_open(name.as_ptr(), SL_WRITE | SL_UNREAD | SL_EVERY, &mut pipe), 0);
                assert_eq!(sl_window(pipe, 2000), cut);
                assert_eq!(sl_stat(pipe, &mut stat), 0);
                assert_eq!(stat.window, told);
                assert_eq!(sl_window(pipe, SL_WINDOW_AUTO), cut);
                assert_eq!(sl_window(pipe, SL_WINDOW_WHOLE), 0);
                assert_eq!(sl_stat(pipe, &mut stat), 0);
                assert_eq!(stat.window, if cut == 0 { 8192 } else { 0 });
                assert_eq!(sl_close(pipe), 0);
                assert_eq!(sl_open(name.as_ptr(), SL_WRITE | (SL_EVERY << 1), &mut pipe), -libc::EINVAL);
            }
            Named::at(&path).unwrap().remove().unwrap();
            keeper.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_writers_descriptor_is_writable_while_there_is_room() {
        let (_folder, path, name, keeper) = kept(RingKind::C);
        let (mut writer, mut reader) = (null_mut(), null_mut());
        let bytes = [7u8; 8192];
        let mut got = [0u8; 8192];
        // SAFETY: handles and memory as the functions need them.
        unsafe {
            assert_eq!(sl_open(name.as_ptr(), SL_WRITE | SL_NONBLOCK, &mut writer), 0);
            let fd = sl_poll_fd(writer);
            assert_eq!(poll(fd, libc::POLLOUT, 0), 0, "nobody reads yet");
            assert_eq!(sl_open(name.as_ptr(), SL_READ, &mut reader), 0);
            assert_eq!(poll(fd, libc::POLLOUT, 5000), libc::POLLOUT);
            assert_eq!(sl_write(writer, bytes.as_ptr().cast(), 5000), 5000);
            assert_eq!(poll(fd, libc::POLLOUT, 0), 0, "no room for 4,096");
            assert_eq!(sl_poll_room(writer, 3000), fd);
            assert_eq!(poll(fd, libc::POLLOUT, 0), libc::POLLOUT);
            assert_eq!(sl_poll_room(reader, 1), -libc::EBADF);
            assert_eq!(sl_poll_fd(null_mut()), -libc::EINVAL);
            assert_eq!(sl_write(writer, bytes.as_ptr().cast(), 5000), 3192);
            assert_eq!(sl_write(writer, bytes.as_ptr().cast(), 1), -i64::from(libc::EAGAIN));
            assert_eq!(poll(fd, libc::POLLOUT, 0), 0);
            assert_eq!(sl_read(reader, got.as_mut_ptr().cast(), 8192), 8192);
            let readable = sl_poll_fd(reader);
            assert_eq!(poll(readable, libc::POLLIN, 0), 0);
            assert_eq!(poll(fd, libc::POLLOUT, 5000), libc::POLLOUT);
            assert_eq!(sl_write(writer, bytes.as_ptr().cast(), 1), 1);
            assert_eq!(poll(readable, libc::POLLIN, 5000), libc::POLLIN);
            assert_eq!(sl_close(reader), 0);
            assert_eq!(poll(fd, libc::POLLOUT, 5000), libc::POLLOUT);
            assert_eq!(sl_close(writer), 0);
        }
        Named::at(&path).unwrap().remove().unwrap();
        keeper.join().unwrap().unwrap();
        assert!(got == bytes);
    }
}
