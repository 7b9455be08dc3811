//! The C interface of rings: `libstreamline.so`, `libstreamline.a` and `include/streamline.h`, which is generated from
//! this crate.
//!
//! This crate makes no decisions: each function checks its pointers, calls [`buffer::pipe`], and gives an error as a
//! negative errno. A panic does not cross into C: it becomes EIO. Read [`pipe`] first.
//!
//! Only one thread at a time may use a handle. A pointer from `sl_peek` is valid until the next call for that handle.
//! If the ring is not held (SL_OVERWRITE, SL_SHARED), the bytes may change meanwhile, and `sl_release` says whether
//! they have.

pub mod pipe;

use base::c_face;

/// Runs the work of a C function.
fn guarded(work: impl FnOnce() -> std::io::Result<i64>) -> i64 {
    c_face::guarded("a function of libstreamline", work, c_face::errno_of)
}

/// Like [`guarded`], for a small result.
fn guarded_int(work: impl FnOnce() -> std::io::Result<i64>) -> i32 {
    c_face::int(guarded(work))
}
