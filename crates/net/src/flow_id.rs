//! What tells a flow from all others.

/// Identifies a flow: its place in the table, and its unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowId {
    pub(crate) at: usize,
    pub(crate) number: u64,
}

impl FlowId {
    /// The scheduler's key for it.
    pub(crate) fn key(self) -> u32 {
        // A table with more flows than 32 bits can number would not fit into memory.
        u32::try_from(self.at).unwrap_or(u32::MAX)
    }
}
