//! Settings of a handle before it is active.

use super::export;
use crate::abi::{MICROSECONDS, NANOSECONDS, TIMES_OF_HOST, TIMES_OF_HOST_PRECISE, status};
use crate::handle::Handle;
use crate::real::allocate;
use crate::settings::Settings;
use std::ffi::{c_char, c_int};

fn set(handle: &Handle, change: impl FnOnce(&mut Settings) -> c_int) -> c_int {
    super::with(handle, |inner| match inner.live {
        Some(_) => Err((status::ACTIVATED, "can't perform  operation on activated capture".into())),
        None => Ok(change(&mut inner.settings)),
    })
}

export! {
    /// The most bytes of each packet.
    fn pcap_set_snaplen(handle: handle, snaplen: c_int) -> c_int => |ours| set(ours, |settings| {
        settings.snaplen = snaplen;
        0
    })
}

export! {
    /// Also packets for other hosts.
    fn pcap_set_promisc(handle: handle, on: c_int) -> c_int => |ours| set(ours, |settings| {
        settings.promiscuous = on != 0;
        0
    })
}

export! {
    /// Monitor mode, which is not supported.
    fn pcap_set_rfmon(handle: handle, on: c_int) -> c_int => |ours| set(ours, |settings| {
        settings.monitor = on != 0;
        0
    })
}

export! {
    /// Whether monitor mode is supported. No.
    fn pcap_can_set_rfmon(handle: handle) -> c_int => |ours| set(ours, |_| 0)
}

export! {
    /// How long packets may wait to be delivered together.
    fn pcap_set_timeout(handle: handle, milliseconds: c_int) -> c_int => |ours| set(ours, |settings| {
        settings.timeout_ms = milliseconds;
        0
    })
}

export! {
    /// Deliver each packet at once.
    fn pcap_set_immediate_mode(handle: handle, on: c_int) -> c_int => |ours| set(ours, |settings| {
        settings.immediate = on != 0;
        0
    })
}

export! {
    /// The requested bytes of the ring.
    fn pcap_set_buffer_size(handle: handle, bytes: c_int) -> c_int => |ours| set(ours, |settings| {
        // libpcap ignores invalid sizes.
        if bytes > 0 {
            settings.buffer_bytes = bytes;
        }
        0
    })
}

export! {
    /// Packets of one Ethernet protocol only.
    fn pcap_set_protocol_linux(handle: handle, protocol: c_int) -> c_int => |ours| set(ours, |settings| {
        settings.protocol = protocol;
        0
    })
}

export! {
    /// The source of timestamps.
    fn pcap_set_tstamp_type(handle: handle, times: c_int) -> c_int => |ours| set(ours, |settings| match times {
        TIMES_OF_HOST | TIMES_OF_HOST_PRECISE => {
            settings.times = times;
            0
        }
        _ => status::WARNING_TIMES_NOT_SUPPORTED,
    })
}

export! {
    /// The unit of timestamps.
    fn pcap_set_tstamp_precision(handle: handle, precision: c_int) -> c_int => |ours| set(ours, |settings| match precision {
        MICROSECONDS | NANOSECONDS => {
            settings.precision = precision;
            0
        }
        _ => status::PRECISION_NOT_SUPPORTED,
    })
}

export! {
    /// The unit of timestamps.
    fn pcap_get_tstamp_precision(handle: handle) -> c_int => |ours| super::with(ours, |inner| Ok(inner.settings.precision))
}

export! {
    /// The possible sources of timestamps. pcap_free_tstamp_types() frees the list.
    fn pcap_list_tstamp_types(handle: handle, list: *mut *mut c_int) -> c_int => |ours| {
        // SAFETY: the caller's place for a pointer.
        unsafe { give_list(ours, &[TIMES_OF_HOST, TIMES_OF_HOST_PRECISE], list) }
    }
}

/// Copies numbers into memory that libpcap can free. Returns their count, or an error.
///
/// # Safety
///
/// `to` is valid for writing a pointer.
pub unsafe fn give_list(handle: &Handle, numbers: &[c_int], to: *mut *mut c_int) -> c_int {
    let list = allocate(size_of_val(numbers)).cast::<c_int>();
    if list.is_null() {
        return handle.fail(status::ERROR, "malloc: Cannot allocate memory");
    }
    // SAFETY: the new memory has room for the numbers; the caller guarantees `to`.
    unsafe {
        std::ptr::copy_nonoverlapping(numbers.as_ptr(), list, numbers.len());
        to.write(list);
    }
    numbers.len() as c_int
}

export! {
    /// Makes reads non-blocking, or blocking.
    fn pcap_setnonblock(handle: handle, on: c_int, error: *mut c_char) -> c_int => |ours| {
        let done = super::with(ours, |inner| {
            inner.nonblocking = on != 0;
            Ok(0)
        });
        if done < 0 {
            crate::handle::write_error(error, ours.error_text());
        }
        done
    }
}

export! {
    /// Whether reads are non-blocking.
    fn pcap_getnonblock(handle: handle, error: *mut c_char) -> c_int => |ours| {
        let done = super::with(ours, |inner| match inner.live {
            Some(_) => Ok(c_int::from(inner.nonblocking)),
            None => Err((status::NOT_ACTIVATED, "This handle hasn't been activated yet".into())),
        });
        if done < 0 {
            crate::handle::write_error(error, ours.error_text());
        }
        done
    }
}
