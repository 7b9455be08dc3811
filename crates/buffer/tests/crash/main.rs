//! Processes that die, at every store to shared memory and at random times, and processes that stop and go on: what the
//! others see. `CRASH.md` has the table of what is shown by which of these tests.
//!
//! - [`process`] — children of this process, and their deaths.
//! - [`blocks`] — blocks whose bytes follow from their number, and readers that check them.
//! - [`kill_points`] — a death at each store in turn (with the feature `kill-points`).
//! - [`flow_points`] — the same of the driver of a flow channel, in whose place another goes on.
//! - [`random_kills`] — deaths at random times. `STREAMLINE_KILLS` says how many.
//! - [`named`] — deaths that a keeper learns of.
//! - [`stopped`] — processes that stop, and go on when the others have.
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
