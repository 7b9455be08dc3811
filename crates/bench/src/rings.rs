//! The comparison `rings`: carriers of descriptors and bytes between threads and processes, ours and others.
//!
//! A list of groups of rows, each in a file of its own. Between processes: [`between`] has the rows, [`ours`] and
//! [`pipes`] the two sides, `iceoryx` (a feature) another peer, and [`floors`] the barest loops. [`processes`] runs
//! them, [`payload`] has the blocks they carry, and [`charts`] draws what a table cannot show.

pub mod between;
pub mod charts;
pub mod floors;
#[cfg(feature = "iceoryx2")]
pub mod iceoryx;
pub mod ours;
pub mod payload;
pub mod pipes;
pub mod processes;
pub mod queues;

use crate::case::Case;

/// The groups, in the order of the table.
pub static GROUPS: &[&[Case]] = &[queues::CASES, between::CASES];
