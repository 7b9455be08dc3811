//! `pcap_t` as we make it: what C holds a pointer to.
//!
//! A handle is used by one thread at a time, as libpcap's is, with two exceptions: pcap_breakloop() and pcap_stats() may be
//! called from a signal handler, the first from other threads, too. Those touch [`Handle::stop`] and [`Handle::meter`] only,
//! which are atomics. Everything else is in [`Inner`], which is lent for the length of a call and never while a callback
//! runs, for a callback may call anything but pcap_close() for the same handle.

use crate::abi::{ERROR_BYTES, Pcap};
use crate::inner::Inner;
use crate::meter::Meter;
use crate::stop::Stop;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells handles of ours from libpcap's: those begin with the address of a function, which this is not.
static MARK: u8 = 0;

/// The beginning of libpcap's `struct pcap`, for programs that look into it although they should not: Zeek reads `bufsize`
/// where it finds libpcap's own headers.
#[repr(C)]
struct Disguise {
    mark: *const u8,
    next_packet: *const c_void,
    file: c_int,
    buffer_bytes: u32,
    /// More than `struct pcap` has in any version.
    rest: [u64; 256],
}

/// A handle of ours.
#[repr(C)]
pub struct Handle {
    disguise: Disguise,
    /// pcap_breakloop().
    pub stop: Stop,
    /// pcap_stats().
    pub meter: Meter,
    inner: UnsafeCell<Inner>,
    /// Is `inner` lent?
    lent: AtomicBool,
    error: UnsafeCell<[u8; ERROR_BYTES]>,
}

impl Handle {
    /// A handle, to be freed by [`free`](Self::free).
    pub fn leak(inner: Inner) -> std::io::Result<*mut Pcap> {
        let disguise = Disguise {
            mark: &raw const MARK,
            next_packet: std::ptr::null(),
            file: -1,
            buffer_bytes: inner.buffer_bytes() as u32,
            rest: [0; 256],
        };
        let handle = Handle {
            disguise,
            stop: Stop::new()?,
            meter: Meter::default(),
            inner: UnsafeCell::new(inner),
            lent: AtomicBool::new(false),
            error: UnsafeCell::new([0; ERROR_BYTES]),
        };
        Ok(Box::into_raw(Box::new(handle)).cast())
    }

    /// The handle behind a pointer, if it is one of ours.
    ///
    /// # Safety
    ///
    /// `handle` is null, or a pointer to a `pcap_t` of libpcap's or ours that was not closed, and is not closed while the
    /// result is used.
    #[inline]
    pub unsafe fn of<'a>(handle: *mut Pcap) -> Option<&'a Handle> {
        if handle.is_null() {
            return None;
        }
        // SAFETY: either sort of handle begins with a pointer, aligned as such.
        let mark = unsafe { handle.cast::<*const u8>().read() };
        // SAFETY: only `leak` makes what begins with the address of `MARK`, and it is there until it is closed. Shared
        // references only are made to it: what changes is atomic or in a cell.
        std::ptr::eq(mark, &raw const MARK).then(|| unsafe { &*handle.cast::<Handle>() })
    }

    /// Frees a handle.
    ///
    /// # Safety
    ///
    /// `handle` came from [`leak`](Self::leak) and is used no more.
    pub unsafe fn free(handle: *mut Pcap) {
        // SAFETY: by the caller's word.
        drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    }

    /// What only one thread at a time looks at. `None` if it is lent: then a signal handler has interrupted a call for
    /// this handle and makes another that libpcap does not permit there.
    #[inline]
    pub fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        // Not a lock: the caller promises that no other thread uses this handle. Against handlers of this thread a plain
        // load and store will do, for what comes between is over before either goes on.
        if self.lent.load(Ordering::Relaxed) {
            return None;
        }
        self.lent.store(true, Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        let back = Back(&self.lent);
        // SAFETY: nobody else has a reference: not another thread (above), not this one (it was not lent).
        let done = work(unsafe { &mut *self.inner.get() });
        drop(back);
        Some(done)
    }

    /// Keeps a text for pcap_geterr(), cut to what fits; gives `status`.
    pub fn fail(&self, status: c_int, text: impl fmt::Display) -> c_int {
        write_error(self.error.get().cast(), text);
        status
    }

    /// The same without allocating, for signal handlers.
    pub fn fail_plainly(&self, status: c_int, text: &'static str) -> c_int {
        write_text(self.error.get().cast(), text);
        status
    }

    /// The text that was kept last.
    pub fn error(&self) -> *mut c_char {
        self.error.get().cast()
    }

    /// The same to read.
    pub fn error_text(&self) -> String {
        // SAFETY: `fail` and the beginning end it with a NUL; libpcap, handed the place, does as well.
        unsafe { CStr::from_ptr(self.error()) }.to_string_lossy().into_owned()
    }
}

/// Takes `inner` back, also after a panic.
struct Back<'a>(&'a AtomicBool);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Writes a text to a buffer of [`ERROR_BYTES`], if there is one.
pub fn write_error(to: *mut c_char, text: impl fmt::Display) {
    if to.is_null() {
        return;
    }
    write_text(to, &text.to_string());
}

/// The same, of a text that is there already. `to` is not null.
fn write_text(to: *mut c_char, text: &str) {
    let mut end = text.len().min(ERROR_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: libpcap's callers hand in PCAP_ERRBUF_SIZE bytes, and ours has as many; the text is another piece of memory.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), end);
        to.add(end).write(0);
    }
}
