//! A ring as it lies in this process: its words, its bytes, and where what lies. What is done with it is the writer's and the
//! reader's; by itself it serves who met a block's place in another ring.

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
    /// Where what lies.
    pub layout: AnyLayout,
}

impl RingMap {
    /// Were these bytes written, and nothing of them overwritten up to now? To be asked when one is through with them.
    pub fn payload_intact(&self, pos: u64, len: u64) -> bool {
        // Acquire: nothing that was looked at before is looked at after this. Pairs with the fence in `Writer::begin`.
        fence(Ordering::Acquire);
        self.layout.payload_intact(pos, len, &self.words)
    }
}

impl std::fmt::Debug for RingMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingMap").field("layout", &self.layout).finish_non_exhaustive()
    }
}
