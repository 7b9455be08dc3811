//! The comparison `rings`: what carries descriptors and bytes between threads and processes, against what others use.
//!
//! A list of groups of rows, each in a file of its own.

pub mod queues;

use crate::case::Case;

/// The groups, in the order of the table.
pub static GROUPS: &[&[Case]] = &[queues::CASES];
