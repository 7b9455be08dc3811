//! Properties of a handle and of its link type.

use super::{export, with, with_live};
use crate::abi::{BpfProgram, Pcap, SNAPLEN_MAX, status};
use crate::guard::guarded;
use crate::handle::Handle;
use crate::live::Live;
use crate::real::real;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Calls a function of libpcap's handle. If `failed` says so of the result, keeps libpcap's error text.
pub fn by_libpcap<T: Copy>(
    handle: &Handle,
    inactive: impl FnOnce() -> T,
    failed: impl FnOnce(T) -> bool,
    work: impl FnOnce(*mut Pcap) -> Option<T>,
) -> T {
    // The handle is not lent during the call: libpcap does not use our handle, and may take long.
    let dead = handle.with(|inner| inner.live.as_ref().map(|live| live.dead().handle())).flatten();
    let Some(dead) = dead else { return inactive() };
    let Some(done) = work(dead) else {
        handle.fail(status::ERROR, "the libpcap that is installed cannot do that");
        return inactive();
    };
    if failed(done)
        && let Some(error) = real().pcap_geterr
    {
        // SAFETY: libpcap's handle; the result is a string inside it.
        let text = unsafe { CStr::from_ptr(error(dead)) };
        handle.fail(status::ERROR, text.to_string_lossy());
    }
    done
}

/// A number that only an active handle has.
fn number(handle: &Handle, function: Option<unsafe extern "C" fn(*mut Pcap) -> c_int>) -> c_int {
    // libpcap sets no error text for these.
    by_libpcap(
        handle,
        || status::NOT_ACTIVATED,
        |_| false,
        |dead| {
            // SAFETY: libpcap's handle.
            function.map(|function| unsafe { function(dead) })
        },
    )
}

export! {
    /// Compiles an expression.
    fn pcap_compile(handle: handle, program: *mut BpfProgram, text: *const c_char, optimise: c_int, mask: u32) -> c_int => |ours| {
        let inactive = || ours.fail(status::ERROR, "not-yet-activated pcap_t passed to pcap_compile");
        by_libpcap(ours, inactive, |done| done < 0, |dead| {
            // SAFETY: libpcap's handle, and the caller's arguments.
            real().pcap_compile.map(|function| unsafe { function(dead, program, text, optimise, mask) })
        })
    }
}

export! {
    /// Its link type.
    fn pcap_datalink(handle: handle) -> c_int => |ours| number(ours, real().pcap_datalink)
}

export! {
    /// Its link type, and more about it.
    fn pcap_datalink_ext(handle: handle) -> c_int => |ours| number(ours, real().pcap_datalink_ext)
}

export! {
    /// The most bytes of each packet.
    fn pcap_snapshot(handle: handle) -> c_int => |ours| number(ours, real().pcap_snapshot)
}

export! {
    /// Whether its file has the other byte order. It reads no file.
    fn pcap_is_swapped(handle: handle) -> c_int => |ours| with_live(ours, |_| Ok(0))
}

export! {
    /// Version of its file. It reads no file.
    fn pcap_major_version(handle: handle) -> c_int => |ours| with_live(ours, |_| Ok(0))
}

export! {
    /// Version of its file. It reads no file.
    fn pcap_minor_version(handle: handle) -> c_int => |ours| with_live(ours, |_| Ok(0))
}

export! {
    /// Bytes of its buffer.
    fn pcap_bufsize(handle: handle) -> c_int => |ours| with_live(ours, |_| Ok(SNAPLEN_MAX))
}

export! {
    /// Its file. It reads no file.
    fn pcap_file(handle: handle) -> *mut c_void => |_ours| std::ptr::null_mut()
}

export! {
    /// Link types that it can be set to. pcap_free_datalinks() frees the list.
    fn pcap_list_datalinks(handle: handle, list: *mut *mut c_int) -> c_int => |ours| with_live(ours, |live| {
        // SAFETY: the caller's place for a pointer.
        Ok(unsafe { super::settings::give_list(ours, live.dead().links(), list) })
    })
}

export! {
    /// Sets another link type.
    fn pcap_set_datalink(handle: handle, link: c_int) -> c_int => |ours| {
        let set = |live: &mut Live| live.dead_mut().set_link(link);
        with(ours, |inner| match inner.live.as_mut().is_some_and(set) {
            true => Ok(0),
            false => Err((status::ERROR, format!("{} is not one of the DLTs supported by this device", link_name(link)))),
        })
    }
}

fn link_name(link: c_int) -> String {
    if let Some(function) = real().pcap_datalink_val_to_name {
        // SAFETY: takes a number; the result is a constant or null.
        let name = unsafe { function(link) };
        if !name.is_null() {
            // SAFETY: a constant string.
            return unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        }
    }
    format!("DLT {link}")
}

export! {
    /// The text of the last error.
    fn pcap_geterr(handle: handle) -> *mut c_char => |ours| ours.error()
}

export! {
    /// Prints the text of the last error.
    fn pcap_perror(handle: handle, prefix: *const c_char) => |ours| {
        // SAFETY: the caller's text, or null.
        let prefix = if prefix.is_null() { c"" } else { unsafe { CStr::from_ptr(prefix) } };
        eprintln!("{}: {}", prefix.to_string_lossy(), base::terminal::text(&ours.error_text()));
    }
}

/// The version of libpcap, and the version of this library in front of it.
///
/// # Safety
///
/// It has no conditions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lib_version() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    guarded(|| {
        let text = TEXT.get_or_init(|| {
            let theirs = real().pcap_lib_version.map_or("libpcap version 1.10.3 (missing)".into(), |function| {
                // SAFETY: the result is a constant.
                unsafe { CStr::from_ptr(function()) }.to_string_lossy().into_owned()
            });
            // libpcap's version comes first: programs parse it.
            let ours = concat!("Streamline ", env!("CARGO_PKG_VERSION"));
            CString::new(format!("{theirs} under {ours}")).unwrap_or_default()
        });
        text.as_ptr()
    })
}
