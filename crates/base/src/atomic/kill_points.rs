//! Points at which a test can end this process: before each store to a counted atomic, in the middle of each copy into
//! shared memory, and before each waking of a sleeper. They exist only with the feature `kill-points`, which no shipped
//! crate uses; `CRASH.md` says what they show.

// This file's own counters do not count.
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{self, Ordering};

static PASSED: atomic::AtomicU64 = atomic::AtomicU64::new(0);
static ARMED_AT: atomic::AtomicU64 = atomic::AtomicU64::new(0);
static THEN: OnceLock<fn()> = OnceLock::new();

/// Calls `then` at the `at`-th point from here on (the first is 1), before its store, copy or waking.
pub fn arm(at: u64, then: fn()) {
    PASSED.store(0, Ordering::Relaxed);
    THEN.get_or_init(|| then);
    ARMED_AT.store(at, Ordering::Relaxed);
}

/// A point. Does nothing unless one is armed.
#[inline]
pub fn point() {
    let armed_at = ARMED_AT.load(Ordering::Relaxed);
    if armed_at != 0
        && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == armed_at
        && let Some(then) = THEN.get()
    {
        then();
    }
}

macro_rules! counted {
    ($name:ident, $value:ty) => {
        /// The standard library's type of this name, with a point before each store.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        impl $name {
            /// As in the standard library.
            pub const fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            /// As in the standard library, behind a point.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            /// As in the standard library, behind a point.
            #[inline]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_add(value, order)
            }

            /// As in the standard library, behind a point.
            #[inline]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_or(value, order)
            }

            /// As in the standard library, behind a point.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            /// As in the standard library, behind a point.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }
        }

        /// Gives methods that do not store, and the type that the system is called with.
        impl Deref for $name {
            type Target = atomic::$name;

            #[inline]
            fn deref(&self) -> &atomic::$name {
                &self.0
            }
        }
    };
}

counted!(AtomicU32, u32);
counted!(AtomicU64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    static CALLED_AT: atomic::AtomicU64 = atomic::AtomicU64::new(0);

    #[test]
    fn each_store_is_a_point_and_happens_after_it() {
        let word = AtomicU64::new(0);
        arm(3, || CALLED_AT.store(PASSED.load(Ordering::Relaxed), Ordering::Relaxed));
        word.store(7, Ordering::Relaxed);
        word.fetch_add(1, Ordering::Relaxed);
        assert_eq!((CALLED_AT.load(Ordering::Relaxed), word.load(Ordering::Relaxed)), (0, 8));
        assert_eq!(word.swap(1, Ordering::Relaxed), 8);
        assert_eq!(CALLED_AT.load(Ordering::Relaxed), 3);
        assert_eq!(word.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed), Ok(1));
        assert_eq!(PASSED.load(Ordering::Relaxed), 4);
    }
}
