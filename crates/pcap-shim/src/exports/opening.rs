//! Creating, activating and closing handles.

use super::export;
use crate::abi::{Pcap, status};
use crate::guard::{Failed, guarded};
use crate::handle::{Handle, write_error};
use crate::inner::Inner;
use crate::names::{self, Target};
use crate::real::real;
use std::ffi::{CStr, c_char, c_int};

/// The target of a device's name. `None`: the name is libpcap's.
///
/// # Safety
///
/// `device` is null or a string.
unsafe fn target(device: *const c_char) -> Option<(String, Target)> {
    // libpcap takes null for `any`.
    if device.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller guarantees a string.
    let name = unsafe { CStr::from_ptr(device) };
    names::target(name).map(|target| (name.to_string_lossy().into_owned(), target))
}

fn create(name: String, target: Target) -> Result<*mut Pcap, String> {
    // Find libpcap now, and not later in a signal handler.
    real();
    Handle::leak(Inner::new(name, target)).map_err(|error| format!("eventfd: {error}"))
}

/// Makes a handle for a device.
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap {
    guarded(|| {
        // SAFETY: the caller's name.
        match unsafe { target(device) } {
            Some((name, target)) => create(name, target).unwrap_or_else(|text| {
                write_error(error, text);
                Failed::FAILED
            }),
            None => match real().pcap_create {
                // SAFETY: passes the caller's arguments to the function that the caller meant.
                Some(function) => unsafe { function(device, error) },
                None => Failed::FAILED,
            },
        }
    })
}

/// Creates a handle for a device, makes the most common settings, and activates it.
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promiscuous: c_int,
    timeout: c_int,
    error: *mut c_char,
) -> *mut Pcap {
    guarded(|| {
        // SAFETY: the caller's name.
        let Some((name, target)) = (unsafe { target(device) }) else {
            return match real().pcap_open_live {
                // SAFETY: passes the caller's arguments to the function that the caller meant. It calls pcap_create()
                // with this name, which is not ours.
                Some(function) => unsafe { function(device, snaplen, promiscuous, timeout, error) },
                None => Failed::FAILED,
            };
        };
        match open_live(&name, target, snaplen, promiscuous, timeout) {
            Ok(handle) => handle,
            Err(text) => {
                write_error(error, text);
                Failed::FAILED
            }
        }
    })
}

fn open_live(
    name: &str,
    target: Target,
    snaplen: c_int,
    promiscuous: c_int,
    timeout: c_int,
) -> Result<*mut Pcap, String> {
    let made = create(name.to_string(), target)?;
    // SAFETY: just made, and no other code has it.
    let handle = unsafe { Handle::of(made) }.ok_or("the handle was not made")?;
    let status = super::with(handle, |inner| {
        inner.settings.snaplen = snaplen;
        inner.settings.promiscuous = promiscuous != 0;
        inner.settings.timeout_ms = timeout;
        inner.activate(&handle.meter).map(|()| 0)
    });
    if status >= 0 {
        return Ok(made);
    }
    let said = handle.error_text();
    let text = match status {
        status::ERROR => format!("{name}: {said}"),
        status::NO_SUCH_DEVICE | status::NOT_PERMITTED => format!("{name}: {} ({said})", meaning(status)),
        _ => format!("{name}: {}", meaning(status)),
    };
    // SAFETY: made above, and not used afterwards.
    unsafe { Handle::free(made) };
    Err(text)
}

/// The meaning of a status, in libpcap's words.
fn meaning(status: c_int) -> String {
    let Some(function) = real().pcap_statustostr else { return format!("error {status}") };
    // SAFETY: takes a number; the result is a constant string, or a buffer that stays until the next call.
    unsafe { CStr::from_ptr(function(status)) }.to_string_lossy().into_owned()
}

export! {
    /// Opens the device of a handle.
    fn pcap_activate(handle: handle) -> c_int => |ours| super::with(ours, |inner| {
        if inner.live.is_some() {
            // libpcap's words, including the two spaces.
            return Err((status::ACTIVATED, "can't perform  operation on activated capture".into()));
        }
        inner.activate(&ours.meter).map(|()| 0)
    })
}

export! {
    /// Closes a handle.
    fn pcap_close(handle: handle) => |_ours| {
        // SAFETY: the caller does not use it any more, and neither does this function.
        unsafe { Handle::free(handle) }
    }
}
