//! The engine over graphs made by hand: how blocks go through, and which sessions there are.

mod parts;
mod rejects;
mod replacing;
mod sessions;
mod stages;
mod walk;
mod watching;
