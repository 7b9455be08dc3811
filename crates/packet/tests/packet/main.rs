//! Tests the crate from outside: on the shared captures, whose contents other programs have listed, and on any input.

mod any_input;
mod files;
mod frames;
mod shared;
