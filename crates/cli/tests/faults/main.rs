//! What goes wrong with live capture, and what must not follow from it: readers that die, stop, or mean harm, daemons that
//! die, devices that go, and a system that has nothing left to give. In namespaces of the tests' own; skipped where those
//! cannot be made.
//!
//! `STREAMLINE_KILLS=1000` and `STREAMLINE_CYCLES=1000` do it more often; `cargo xtask crash` sets both.

mod bed;
mod deaths;
mod hostile;
mod openings;
