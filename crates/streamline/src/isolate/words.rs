//! What a process of isolated filters and its parent agree on: the words that begin a line, and the limits.

use std::time::Duration;

/// The process is ready to run.
pub(super) const READY: &str = "ready";

pub(super) const FAILED: &str = "failed: ";

pub(super) const NOTE: &str = "note: ";

pub(super) const COUNT: &str = "count: ";

/// How long a process may take to end after its rings have ended.
pub(super) const END: Duration = Duration::from_secs(2);

pub(super) const LINES: usize = 32;
