//! How the blocks of a batch ended, and which branch each takes.

use base::limits::BATCH_BLOCKS;

/// How the blocks of a batch ended, one bit for each place. The engine reads it only if the plan uses rejected blocks;
/// else bits of earlier batches may remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Rejected by a filter that gives new blocks. (A filter in place rejects all blocks that it neither keeps nor
    /// drops.)
    pub rejected: u64,
    /// Ended in a filter in place, which dropped or kept them.
    pub ended: u64,
    /// For a filter whose kind [splits](crate::Kind::splits): each block's branch. The edge is this number modulo the
    /// number of edges behind; or [`LEAST_LOADED`].
    pub branches: [u16; BATCH_BLOCKS],
}

/// A splitting filter numbers branches below this. Every number from 1 to 12 divides it, so edges get equal parts.
pub const BRANCHES: u16 = 27_720;

/// Stands for the edge with the shortest backlog.
pub const LEAST_LOADED: u16 = u16::MAX;
