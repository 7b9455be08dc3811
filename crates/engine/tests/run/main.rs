//! The engine with graphs made by hand: how blocks go through, and which sessions exist.

mod instructions;
mod organisations;
mod parts;
mod rejects;
mod replacing;
mod sessions;
mod stages;
mod switching;
mod walk;
mod watching;
