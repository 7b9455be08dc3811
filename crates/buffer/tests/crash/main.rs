//! Processes that die, at every store to shared memory or at random times, and processes that stop and go on. The tests
//! check what other processes see. A table in `CRASH.md` says what each test shows. A program of its own: a fork copies
//! whatever locks other tests hold.
//!
//! - [`process`] — children of this process, and their deaths.
//! - [`blocks`] — blocks whose bytes follow from their number, and readers that check them.
//! - [`kill_points`] — a death at each store in turn (with the feature `kill-points`).
//! - [`flow_points`] — the same for the driver of a flow channel, whose place another driver takes.
//! - [`random_kills`] — deaths at random times. `STREAMLINE_KILLS` sets how many.
//! - [`named`] — deaths that a keeper learns of.
//! - [`stopped`] — processes that stop, and go on later than the other processes.
//! - [`table`] — `CRASH.md` names each store.

#![cfg(not(loom))]

mod blocks;
#[cfg(feature = "kill-points")]
mod flow_points;
#[cfg(feature = "kill-points")]
mod kill_points;
mod named;
mod process;
mod random_kills;
mod stopped;
mod table;
