//! Writing packets to capture files that were opened for a handle of ours.
//!
//! libpcap does the work: what it opens is a stream of the C library's, and pcap_dump() writes to it twice for each packet.
//! Each of these takes the stream's lock, which costs three quarters of what a packet costs here (64 bytes, measured by
//! perf: 61 of 83 ns). While the process has one thread there is nobody to lock out, as the C library itself says; then the
//! same bytes go into the same stream without.

use super::export;
use crate::abi::{PacketHeader, Pcap, status};
use crate::exports::about::by_libpcap;
use crate::guard::{Failed, guarded};
use crate::handle::Handle;
use crate::real::real;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Files open at a time that are known to be plain streams. Of more, those that were opened last are not, and are written
/// to as by libpcap.
const STREAMS: usize = 16;

/// Those. A program writes to few, so that looking through them costs little.
static OPEN: [AtomicPtr<c_void>; STREAMS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; STREAMS];

unsafe extern "C" {
    fn fwrite_unlocked(bytes: *const c_void, size: usize, count: usize, stream: *mut c_void) -> usize;
    fn ferror_unlocked(stream: *mut c_void) -> c_int;
}

/// A packet's header as it stands in a file.
#[repr(C)]
struct Record {
    seconds: u32,
    part: u32,
    captured: u32,
    wire: u32,
}

/// Remembers a stream, if libpcap says that what it opened is one.
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

/// Forgets one.
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
            // SAFETY: an open stream by the caller's word, that nobody else can use meanwhile; the caller's header, and as
            // many bytes as it says.
            unsafe { write(stream, &*header, bytes) };
        } else if let Some(function) = real().pcap_dump {
            // SAFETY: the caller's arguments, for the function the caller meant.
            unsafe { function(dumper, header, bytes) };
        }
    });
}

/// What libpcap does: nothing to a stream that has failed; the header, and if that was written the bytes.
///
/// # Safety
///
/// The stream is open, and no other thread uses it; `header.captured` bytes are there.
#[inline]
unsafe fn write(stream: *mut c_void, header: &PacketHeader, bytes: *const u8) {
    let record = Record {
        // As in files: 32 bits, unsigned.
        seconds: header.time.tv_sec as u32,
        part: header.time.tv_usec as u32,
        captured: header.captured,
        wire: header.wire,
    };
    // SAFETY: by the caller's word.
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
            // SAFETY: the caller's argument, for the function the caller meant.
            unsafe { function(dumper) };
        }
    });
}

/// Opens a file to write packets to.
fn open(handle: &Handle, name: &str, open: impl FnOnce(*mut Pcap) -> Option<*mut c_void>) -> *mut c_void {
    let inactive = || {
        handle.fail(status::ERROR, format!("{name}: not-yet-activated pcap_t passed to pcap_dump_open"));
        Failed::FAILED
    };
    let file = by_libpcap(handle, inactive, |file| file.is_null(), open);
    opened(file);
    file
}

/// A path, for people.
///
/// # Safety
///
/// `path` is null or a string.
unsafe fn shown(path: *const c_char) -> String {
    if path.is_null() {
        return "A null pointer was supplied as the file name".into();
    }
    // SAFETY: by the caller's word.
    unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned()
}

export! {
    /// Opens a file to write packets to.
    fn pcap_dump_open(handle: handle, path: *const c_char) -> *mut c_void => |ours| {
        // SAFETY: the caller's path.
        open(ours, &unsafe { shown(path) }, |dead| {
            // SAFETY: libpcap's handle, and the caller's path.
            real().pcap_dump_open.map(|function| unsafe { function(dead, path) })
        })
    }
}

export! {
    /// Opens a file to write packets behind those it has.
    fn pcap_dump_open_append(handle: handle, path: *const c_char) -> *mut c_void => |ours| {
        // SAFETY: the caller's path.
        open(ours, &unsafe { shown(path) }, |dead| {
            // SAFETY: libpcap's handle, and the caller's path.
            real().pcap_dump_open_append.map(|function| unsafe { function(dead, path) })
        })
    }
}

export! {
    /// Takes an open file to write packets to.
    fn pcap_dump_fopen(handle: handle, file: *mut c_void) -> *mut c_void => |ours| open(ours, "stream", |dead| {
        // SAFETY: libpcap's handle, and the caller's file.
        real().pcap_dump_fopen.map(|function| unsafe { function(dead, file) })
    })
}
