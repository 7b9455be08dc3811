//! The crate as its users see it: against the shared captures, whose contents are known from other programs, and against
//! any input at all.

mod any_input;
mod files;
mod frames;
mod messages;
mod shared;
