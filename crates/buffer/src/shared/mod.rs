//! Memory that several processes see: what may be said of it, and the few ways to touch it.
//!
//! - [`segment`] — a sealed memfd: made, sealed, checked when received, mapped.
//! - [`words`] — pages of atomics shared with others: the only form in which control words are touched.
//! - [`payload`] — bytes by absolute position; copied in and out, never lent as `&[u8]` in safe code.
//! - [`hints`] — lines asked for before they are needed.
//! - [`futex`] — sleeping on a word and waking who sleeps.
//! - [`lifeline`] — learning that a process died, from the kernel.
//!
//! Nothing here knows what the words and bytes mean: that is [`ring`](crate::ring).

pub mod futex;
pub mod hints;
pub mod lifeline;
pub mod payload;
pub mod segment;
pub mod words;
