//! Results in C's form: a number, or a negative errno; and the text of the last error of each thread.

use base::c_face;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of an error for [`sl_net_error`], and gives its number. A program that polls gets EAGAIN all the
/// time, so that is not kept.
fn told(error: &io::Error) -> i32 {
    let errno = socket::errno_of(error);
    if errno != libc::EAGAIN && errno != libc::EINPROGRESS {
        // A program's exit handler may call after this thread's text is gone.
        let _ = LAST.try_with(|last| last.replace(c_face::text(error.to_string())));
    }
    errno
}

/// Runs the work of a C function. The error of a panic is EIO.
pub(crate) fn guarded(work: impl FnOnce() -> io::Result<i64>) -> i64 {
    c_face::guarded("a function of libstreamline_net", work, told)
}

/// Like [`guarded`], for a small result.
pub(crate) fn guarded_int(work: impl FnOnce() -> io::Result<i64>) -> i32 {
    c_face::int(guarded(work))
}

/// The text, for people, of this thread's last call that returned a negative number other than -EAGAIN and
/// -EINPROGRESS. Valid until the next such call. Empty in an exit handler.
#[unsafe(no_mangle)]
pub extern "C" fn sl_net_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn said() -> String {
        // SAFETY: a text of this thread, used before the next call.
        unsafe { CStr::from_ptr(sl_net_error()) }.to_str().unwrap().to_string()
    }

    #[test]
    fn errors_are_numbers_and_texts_of_their_thread() {
        assert_eq!((guarded(|| Ok(7)), said().as_str()), (7, ""));
        let refused = || Err(io::Error::new(io::ErrorKind::PermissionDenied, "the policy\0 does not permit it"));
        assert_eq!(guarded(refused), -i64::from(libc::EACCES));
        assert_eq!(said(), "the policy does not permit it");
        assert_eq!(guarded_int(|| Err(io::ErrorKind::WouldBlock.into())), -libc::EAGAIN);
        assert_eq!(said(), "the policy does not permit it");
        std::thread::spawn(|| assert_eq!(said(), "")).join().unwrap();
        assert_eq!(guarded_int(|| panic!("to be caught")), -libc::EIO);
        assert!(said().contains("fault"));
    }
}
