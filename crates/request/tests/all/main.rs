//! The request language from outside: reading, printing, filling in, errors.

mod begin;
mod errors;
mod expand;
mod format;
mod notations;
mod random;
