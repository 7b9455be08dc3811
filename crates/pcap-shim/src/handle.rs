//! Our `pcap_t`, to which C holds a pointer.
//!
//! One thread at a time uses a handle, as with libpcap. There are two exceptions: signal handlers may call
//! pcap_breakloop() and pcap_stats(), and other threads may call the former. These two use only the atomics in
//! [`Handle::stop`] and [`Handle::meter`]. Everything else is in [`Inner`], which is lent for the length of a call. It
//! is not lent during a callback, since a callback may call anything except pcap_close() for the same handle.

use crate::abi::{ERROR_BYTES, Pcap};
use crate::inner::Inner;
use crate::meter::Meter;
use crate::stop::Stop;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Marks our handles. libpcap's begin with the address of a function, which this is not.
static MARK: u8 = 0;

/// The beginning of libpcap's `struct pcap`, for programs that read it although they should not: Zeek reads `bufsize`
/// if it was built with libpcap's internal headers.
#[repr(C)]
struct Disguise {
    mark: *const u8,
    next_packet: *const c_void,
    file: c_int,
    buffer_bytes: u32,
    /// Larger than `struct pcap` of any version.
    rest: [u64; 256],
}

/// A handle of ours.
#[repr(C)]
pub struct Handle {
    disguise: Disguise,
    /// Set by pcap_breakloop().
    pub stop: Stop,
    /// Read by pcap_stats().
    pub meter: Meter,
    inner: UnsafeCell<Inner>,
    lent: AtomicBool,
    error: UnsafeCell<[u8; ERROR_BYTES]>,
}

impl Handle {
    /// Makes a handle. [`free`](Self::free) frees it.
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

    /// The handle at a pointer. `None`: it is libpcap's.
    ///
    /// # Safety
    ///
    /// `handle` is null, or an open `pcap_t` of libpcap's or ours that stays open while the result is used.
    #[inline]
    pub unsafe fn of<'a>(handle: *mut Pcap) -> Option<&'a Handle> {
        if handle.is_null() {
            return None;
        }
        // SAFETY: both kinds of handles begin with an aligned pointer.
        let mark = unsafe { handle.cast::<*const u8>().read() };
        // SAFETY: only `leak` makes an object that begins with the address of `MARK`, and it exists until it is closed.
        // There are only shared references to it: each mutable part is atomic or in a cell.
        std::ptr::eq(mark, &raw const MARK).then(|| unsafe { &*handle.cast::<Handle>() })
    }

    /// Frees a handle.
    ///
    /// # Safety
    ///
    /// `handle` came from [`leak`](Self::leak), and is not used afterwards.
    pub unsafe fn free(handle: *mut Pcap) {
        // SAFETY: the caller guarantees it.
        drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    }

    /// Works on [`Inner`], which one thread at a time may use. `None`: it is lent, so a signal handler has interrupted
    /// a call for this handle and makes a call that libpcap does not permit there.
    #[inline]
    pub fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        // This is no lock: the caller guarantees that no other thread uses this handle. Against handlers on this
        // thread, a plain load and store are enough, since a handler finishes before the interrupted code goes on.
        if self.lent.load(Ordering::Relaxed) {
            return None;
        }
        self.lent.store(true, Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        let back = Back(&self.lent);
        // SAFETY: there is no other reference: not on another thread (see above), nor on this one (it was not lent).
        let done = work(unsafe { &mut *self.inner.get() });
        drop(back);
        Some(done)
    }

    /// Keeps an error text for pcap_geterr(), cut to its buffer. Returns `status`.
    pub fn fail(&self, status: c_int, text: impl fmt::Display) -> c_int {
        write_error(self.error.get().cast(), text);
        status
    }

    /// The same without allocation, for signal handlers.
    pub fn fail_plainly(&self, status: c_int, text: &'static str) -> c_int {
        write_text(self.error.get().cast(), text);
        status
    }

    /// The last error text.
    pub fn error(&self) -> *mut c_char {
        self.error.get().cast()
    }

    /// The last error text, as a string.
    pub fn error_text(&self) -> String {
        // SAFETY: the text always ends with a NUL: `leak` and `fail` write one, and so does libpcap if it gets this buffer.
        unsafe { CStr::from_ptr(self.error()) }.to_string_lossy().into_owned()
    }
}

/// Takes `inner` back, even after a panic.
struct Back<'a>(&'a AtomicBool);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Writes a text to a buffer of [`ERROR_BYTES`], if `to` is not null.
pub fn write_error(to: *mut c_char, text: impl fmt::Display) {
    if to.is_null() {
        return;
    }
    write_text(to, &text.to_string());
}

/// The same for a finished text. `to` is not null.
fn write_text(to: *mut c_char, text: &str) {
    let mut end = text.len().min(ERROR_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: callers of libpcap pass PCAP_ERRBUF_SIZE bytes, and our buffer has as many; the text is in other memory.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), end);
        to.add(end).write(0);
    }
}
