//! The border between C and Rust: no panic crosses it.

use base::fault;

/// The result of an exported function that failed, because our code panicked or the installed libpcap lacks the function.
pub trait Failed {
    /// The value.
    const FAILED: Self;
}

impl Failed for () {
    const FAILED: () = ();
}

impl Failed for i32 {
    const FAILED: i32 = -1;
}

impl Failed for u32 {
    const FAILED: u32 = 0;
}

impl Failed for i64 {
    const FAILED: i64 = -1;
}

impl<T> Failed for *const T {
    const FAILED: *const T = std::ptr::null();
}

impl<T> Failed for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// Runs the body of an exported function.
#[inline]
pub fn guarded<T: Failed>(work: impl FnOnce() -> T) -> T {
    fault::contained("a function of libpcap", work).unwrap_or(T::FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| -> i32 { panic!("to be caught") }), -1);
        assert_eq!(guarded(|| 7), 7);
        assert!(guarded(|| -> *const u8 { panic!("to be caught") }).is_null());
    }
}
