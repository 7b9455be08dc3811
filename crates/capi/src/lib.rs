//! The C interface of rings: `libstreamline.so`, `libstreamline.a` and `include/streamline.h`, which is generated from
//! this crate.
//!
//! This crate makes no decisions: each function checks its pointers, calls [`buffer::pipe`], and gives an error as a
//! negative errno. A panic does not cross into C: it becomes EIO. Read [`pipe`] first.
//!
//! Only one thread at a time may use a handle. A pointer from `sl_peek` is valid until the next call for that handle.
//! If the ring is not held (SL_OVERWRITE, SL_SHARED), the bytes may change meanwhile, and `sl_release` says whether
//! they have.

mod errno;
pub mod pipe;

use base::fault;

/// Runs the work of a C function. A panic is a fault of ours: it becomes EIO, and its work may be half done.
fn guarded(work: impl FnOnce() -> std::io::Result<i64>) -> i64 {
    match fault::contained("a function of libstreamline", work) {
        Some(Ok(value)) => value,
        Some(Err(error)) => -i64::from(errno::of(&error)),
        None => -i64::from(libc::EIO),
    }
}

/// Like [`guarded`], for a small result.
fn guarded_int(work: impl FnOnce() -> std::io::Result<i64>) -> i32 {
    i32::try_from(guarded(work)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| panic!("to be caught")), -i64::from(libc::EIO));
        assert_eq!(guarded(|| Err(std::io::ErrorKind::BrokenPipe.into())), -i64::from(libc::EPIPE));
        assert_eq!(guarded(|| Ok(7)), 7);
        assert_eq!(guarded_int(|| Ok(i64::MAX)), i32::MAX);
    }
}
