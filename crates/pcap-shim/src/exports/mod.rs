//! The exported functions that look at a handle or device, to choose between this library and libpcap.
//!
//! - [`opening`] — pcap_create() to pcap_close(); [`settings`] — settings in between
//! - [`reading`] — packets; [`control`] — filters, directions, stopping, statistics
//! - [`about`] — properties of a handle; [`devices`] — lists; [`sending`]; [`dumping`] — capture files

pub mod about;
pub mod control;
pub mod devices;
pub mod dumping;
pub mod opening;
pub mod reading;
pub mod sending;
pub mod settings;

/// Exports a function that takes a handle. For our handles it runs the code after `=>`; libpcap's handles go to libpcap.
macro_rules! export {
    ($(#[$doc:meta])* fn $name:ident($handle:ident: handle $(, $arg:ident: $type:ty)*) $(-> $gives:ty)? => |$ours:ident| $work:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libpcap's function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($handle: *mut $crate::abi::Pcap $(, $arg: $type)*) $(-> $gives)? {
            $crate::guard::guarded(|| {
                // SAFETY: the caller's handle stays open for this call.
                match unsafe { $crate::handle::Handle::of($handle) } {
                    Some($ours) => $work,
                    None => match $crate::real::real().$name {
                        // SAFETY: passes the caller's arguments to the function that the caller meant.
                        Some(function) => unsafe { function($handle $(, $arg)*) },
                        None => $crate::guard::Failed::FAILED,
                    },
                }
            })
        }
    };
}
pub(crate) use export;

use crate::abi::status;
use crate::handle::Handle;
use crate::inner::Inner;
use crate::live::Live;
use std::ffi::c_int;

/// The error of a call that libpcap does not permit in a signal handler.
fn lent(handle: &Handle) -> c_int {
    handle.fail(
        status::ERROR,
        "the handle is in use: only pcap_breakloop() and pcap_stats() may be called from a signal handler",
    )
}

/// Works on a handle, and keeps the error text.
fn with(handle: &Handle, work: impl FnOnce(&mut Inner) -> Result<c_int, (c_int, String)>) -> c_int {
    match handle.with(work) {
        Some(Ok(done)) => done,
        Some(Err((status, text))) => handle.fail(status, text),
        None => lent(handle),
    }
}

/// The same on an active handle.
fn with_live(handle: &Handle, work: impl FnOnce(&mut Live) -> Result<c_int, (c_int, String)>) -> c_int {
    with(handle, |inner| match &mut inner.live {
        Some(live) => work(live),
        None => Err((status::NOT_ACTIVATED, "This handle hasn't been activated yet".into())),
    })
}
