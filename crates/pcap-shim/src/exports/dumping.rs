//! Writing packets to capture files that were opened for a handle of ours.
//!
//! libpcap opens the file as a stream of the C library. For each packet, its pcap_dump() writes to the stream twice,
//! and each write takes the stream's lock. The locks cost three quarters of a packet's time here (64 bytes, measured by
//! perf: 61 of 83 ns). While the process has only one thread, as the C library reports, no lock is needed: then this
//! file writes the same bytes to the same stream without it.

use super::export;
use crate::abi::{PacketHeader, Pcap, status};
use crate::exports::about::by_libpcap;
use crate::guard::{Failed, guarded};
use crate::handle::Handle;
use crate::real::real;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The most open files that are known to be plain streams. Further files are written by libpcap's pcap_dump().
const STREAMS: usize = 16;

/// The known streams. A program writes to few files, so a linear search costs little.
static OPEN: [AtomicPtr<c_void>; STREAMS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; STREAMS];

unsafe extern "C" {
    fn fwrite_unlocked(bytes: *const c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
    fn ferror_unlocked(stream: *mut c_void) -> c_int;
}

#[repr(C)]
struct Record {
    seconds: u32,
    part: u32,
    captured: u32,
    wire: u32,
}

/// Remembers a dumper, if libpcap says that it is a stream.
fn opened(dumper: *mut c_void) {
    let Some(file_of) = real().pcap_dump_file else { return };
    // SAFETY: libpcap has just opened it.
    if !dumper.is_null() && unsafe { file_of(dumper) } == dumper {
        let free = |place: &AtomicPtr<c_void>| {
            place.compare_exchange(std::ptr::null_mut(), dumper, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        OPEN.iter().any(free);
    }
}

fn closed(dumper: *mut c_void) {
    for place in &OPEN {
        let _ = place.compare_exchange(dumper, std::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn is_open(dumper: *mut c_void) -> bool {
    OPEN.iter().any(|place| place.load(Ordering::Relaxed) == dumper)
}

/// Writes a packet.
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump(dumper: *mut u8, header: *const PacketHeader, bytes: *const u8) {
    guarded(|| {
        let stream = dumper.cast::<c_void>();
        if !stream.is_null() && is_open(stream) && real().has_one_thread() {
            // SAFETY: the caller guarantees an open stream, a header and its bytes; the process has no other thread
            // that could use the stream.
            unsafe { write(stream, &*header, bytes) };
        } else if let Some(function) = real().pcap_dump {
            // SAFETY: passes the caller's arguments to the function that the caller meant.
            unsafe { function(dumper, header, bytes) };
        }
    });
}

/// Does what libpcap does: skips a failed stream; writes the header and, if that succeeded, the bytes.
///
/// # Safety
///
/// The stream is open, and no other thread uses it; `header.captured` bytes are there.
#[inline]
unsafe fn write(stream: *mut c_void, header: &PacketHeader, bytes: *const u8) {
    let record = Record {
        // Files have 32 unsigned bits.
        seconds: header.time.tv_sec as u32,
        part: header.time.tv_usec as u32,
        captured: header.captured,
        wire: header.wire,
    };
    // SAFETY: the caller guarantees the conditions above.
    unsafe {
        if ferror_unlocked(stream) == 0
            && fwrite_unlocked((&raw const record).cast(), size_of::<Record>(), 1, stream) == 1
        {
            fwrite_unlocked(bytes.cast(), header.captured as usize, 1, stream);
        }
    }
}

/// Closes a file.
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_dump_close(dumper: *mut c_void) {
    guarded(|| {
        closed(dumper);
        if let Some(function) = real().pcap_dump_close {
            // SAFETY: passes the caller's argument to the function that the caller meant.
            unsafe { function(dumper) };
        }
    });
}

/// Opens a file for packets.
fn open(handle: &Handle, name: &str, open: impl FnOnce(*mut Pcap) -> Option<*mut c_void>) -> *mut c_void {
    let inactive = || {
        handle.fail(status::ERROR, format!("{name}: not-yet-activated pcap_t passed to pcap_dump_open"));
        Failed::FAILED
    };
    let file = by_libpcap(handle, inactive, |file| file.is_null(), open);
    opened(file);
    file
}

/// A path, for messages.
///
/// # Safety
///
/// `path` is null or a string.
unsafe fn shown(path: *const c_char) -> String {
    if path.is_null() {
        return "A null pointer was supplied as the file name".into();
    }
    // SAFETY: not null, so it is a string.
    unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned()
}

export! {
    /// Opens a file for packets.
    fn pcap_dump_open(handle: handle, path: *const c_char) -> *mut c_void => |ours| {
        // SAFETY: the caller's path.
        open(ours, &unsafe { shown(path) }, |dead| {
            // SAFETY: libpcap's handle, and the caller's path.
            real().pcap_dump_open.map(|function| unsafe { function(dead, path) })
        })
    }
}

export! {
    /// Opens a file, and appends packets to it.
    fn pcap_dump_open_append(handle: handle, path: *const c_char) -> *mut c_void => |ours| {
        // SAFETY: the caller's path.
        open(ours, &unsafe { shown(path) }, |dead| {
            // SAFETY: libpcap's handle, and the caller's path.
            real().pcap_dump_open_append.map(|function| unsafe { function(dead, path) })
        })
    }
}

export! {
    /// Uses an open stream for packets.
    fn pcap_dump_fopen(handle: handle, file: *mut c_void) -> *mut c_void => |ours| open(ours, "stream", |dead| {
        // SAFETY: libpcap's handle, and the caller's file.
        real().pcap_dump_fopen.map(|function| unsafe { function(dead, file) })
    })
}
