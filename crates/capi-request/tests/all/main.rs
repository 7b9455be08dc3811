//! The library for C: its examples, and its header.

mod c_example;
mod header;
