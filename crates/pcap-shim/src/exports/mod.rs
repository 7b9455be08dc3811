//! The functions that look at a handle or a device before anything is handed on.
//!
//! - [`opening`] — pcap_create() to pcap_close(); [`settings`] — what is set in between.
//! - [`reading`] — packets; [`control`] — filters, directions, stopping, statistics.
//! - [`about`] — what is known of a handle; [`devices`] — lists; [`sending`]; [`dumping`] — capture files.

pub mod about;
pub mod control;
pub mod devices;
pub mod dumping;
pub mod opening;
pub mod reading;
pub mod sending;
pub mod settings;

/// Exports a function that takes a handle: ours does what follows `=>`, libpcap's is handed on.
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
                // SAFETY: the caller's handle, open as long as this call takes.
                match unsafe { $crate::handle::Handle::of($handle) } {
                    Some($ours) => $work,
                    None => match $crate::real::real().$name {
                        // SAFETY: the caller's arguments, for the function the caller meant.
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

/// A signal handler made a call that libpcap does not permit there.
fn lent(handle: &Handle) -> c_int {
    handle.fail(
        status::ERROR,
        "the handle is in use: only pcap_breakloop() and pcap_stats() may be called from a signal handler",
    )
}

/// Works on a handle; an error is kept.
fn with(handle: &Handle, work: impl FnOnce(&mut Inner) -> Result<c_int, (c_int, String)>) -> c_int {
    match handle.with(work) {
        Some(Ok(done)) => done,
        Some(Err((status, text))) => handle.fail(status, text),
        None => lent(handle),
    }
}

/// The same on an active one.
fn with_live(handle: &Handle, work: impl FnOnce(&mut Live) -> Result<c_int, (c_int, String)>) -> c_int {
    with(handle, |inner| match &mut inner.live {
        Some(live) => work(live),
        None => Err((status::NOT_ACTIVATED, "This handle hasn't been activated yet".into())),
    })
}
