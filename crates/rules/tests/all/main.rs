//! The rule language and what matches, and regressions.

mod faults;
mod language;
