//! A ring as this process has it mapped: words, bytes and layout. Writers and readers work with it. By itself it serves
//! a process that has descriptors of the ring's blocks from another ring.

use super::layout::{AnyLayout, Layout};
use super::words::RingWords;
use crate::shared::payload::Payload;
use crate::shared::words::Shared;
use base::atomic::{Ordering, fence};

/// A ring's memory, mapped.
pub struct RingMap {
    /// Words and headers.
    pub words: Shared<RingWords>,
    /// Bytes.
    pub payload: Payload,
    /// Where blocks and headers lie.
    pub layout: AnyLayout,
}

impl RingMap {
    /// Whether these bytes were written, and no part of them is overwritten so far. Ask after using them.
    pub fn payload_intact(&self, pos: u64, len: u64) -> bool {
        // Acquire: keeps every earlier read before the check below. Pairs with the fence in `Writer::begin`.
        fence(Ordering::Acquire);
        self.layout.payload_intact(pos, len, &self.words)
    }
}

impl std::fmt::Debug for RingMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingMap").field("layout", &self.layout).finish_non_exhaustive()
    }
}
