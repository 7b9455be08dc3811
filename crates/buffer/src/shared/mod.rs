//! Memory that several processes map, and the few ways to touch it.
//!
//! - [`segment`] — a sealed memfd: made, sealed, checked when received, mapped.
//! - [`words`] — pages of shared atomics: control words are touched in this form only.
//! - [`payload`] — bytes by absolute position; copied in and out, never lent as `&[u8]` in safe code.
//! - [`hints`] — prefetching of cache lines.
//! - [`futex`] — sleeping on a word, and waking sleepers.
//! - [`lifeline`] — notice from the kernel that a process died.
//!
//! This module does not know what the words and bytes mean: see [`ring`](crate::ring).

pub mod futex;
pub mod hints;
pub mod lifeline;
pub mod payload;
pub mod segment;
pub mod words;
