//! The matches that a limit has counted.

/// The matches of one period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) count: u32,
    pub(crate) start: u64,
    /// Until then the other action of [`Kind::Rate`](crate::threshold::Kind::Rate) applies.
    pub(crate) held: u64,
}
