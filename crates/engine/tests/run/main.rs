//! The engine over graphs made by hand: how blocks go through, and which sessions there are.

mod parts;
mod rejects;
mod replacing;
mod sessions;
mod walk;
mod watching;
