//! Sends frames through a packet socket of this library.

use super::{export, with_live};
use crate::abi::status;
use crate::handle::Handle;
use std::ffi::{c_int, c_void};

/// Sends a frame. Returns its length, or an error.
///
/// # Safety
///
/// `length` bytes are at `bytes`.
unsafe fn send(handle: &Handle, bytes: *const c_void, length: usize) -> c_int {
    with_live(handle, |live| {
        if bytes.is_null() || length > isize::MAX as usize {
            return Err((status::ERROR, "send: Bad address".into()));
        }
        // SAFETY: the caller guarantees the bytes; the pointer is not null, and `length` is below the limit of any object.
        let frame = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        // The program may read the answer next, without a filter: it must not be missed.
        live.start(&handle.meter).map_err(|text| (status::ERROR, text))?;
        live.send(frame).map_err(|text| (status::ERROR, text))?;
        Ok(c_int::try_from(length).unwrap_or(c_int::MAX))
    })
}

export! {
    /// Sends a frame. Returns its length.
    fn pcap_inject(handle: handle, bytes: *const c_void, length: usize) -> c_int => |ours| {
        // SAFETY: the caller's bytes.
        unsafe { send(ours, bytes, length) }
    }
}

export! {
    /// Sends a frame.
    fn pcap_sendpacket(handle: handle, bytes: *const u8, length: c_int) -> c_int => |ours| {
        let Ok(length) = usize::try_from(length) else { return ours.fail(status::ERROR, "send: Invalid argument") };
        // SAFETY: the caller's bytes.
        unsafe { send(ours, bytes.cast(), length) }.min(0)
    }
}
