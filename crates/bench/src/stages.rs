//! The comparison `stages`: requests on several workers, the channels between them, generated and forwarded frames, and
//! the work that a request has time for.
//!
//! - [`partitions`] — requests on two workers against the same on one; [`auto`] — `workers=auto` against one worker.
//! - [`channel`] — the cost of a descriptor from thread to thread.
//! - [`hops`] — blocks through 0 to 16 filters; [`others`] — the same work of others; [`signals`] — signals in batches.
//! - [`devices`] — frames sent, forwarded and dropped; [`bed`] has the devices, [`subjects`] the programs.
//! - [`work`] — the work that a request has time for with each frame.

pub mod auto;
pub mod bed;
pub mod channel;
pub mod devices;
pub mod hops;
pub mod others;
pub mod partitions;
pub mod signals;
pub mod subjects;
pub mod work;

use crate::case::Case;

/// The groups, in the order of the table.
pub static GROUPS: &[&[Case]] =
    &[partitions::CASES, auto::CASES, channel::CASES, hops::CASES, signals::CASES, devices::CASES, work::CASES];
