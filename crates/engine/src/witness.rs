//! Checks in debug builds that a filter changes only what its kind says (`Kind::writes`).
//!
//! The planner lets two filters read the same block if their kinds allow it. A kind that says too little spoils the
//! blocks that other filters see. Release builds leave this check out.

use crate::shared::Shared;
use base::limits::BATCH_BLOCKS;
use buffer::Descriptor;
use buffer::block_table::Traffic;
use filter::{Batch, Parts};

pub(crate) struct Witness {
    /// On the stack, since tests count allocations.
    blocks: [Descriptor; BATCH_BLOCKS],
    traffic: Traffic,
    stream_changes: u64,
}

impl Witness {
    /// The state before the filter runs; `None` in release builds.
    #[inline]
    pub(crate) fn of(batch: &Batch<'_>, shared: &Shared) -> Option<Witness> {
        cfg!(debug_assertions).then(|| Witness {
            blocks: copied(batch.blocks()),
            traffic: shared.rings.traffic(),
            stream_changes: shared.streams.changes(),
        })
    }

    /// Compares with the state after the filter ran.
    ///
    /// # Panics
    /// When the filter has changed a part that its kind does not name.
    pub(crate) fn check(self, batch: &Batch<'_>, shared: &Shared, writes: Parts, label: &str) {
        let now = shared.rings.traffic();
        let edits = |traffic: Traffic| traffic.edits_in_place + traffic.edit_copies;
        let says = |part: Parts| assert!(writes.has(part), "`{label}` changes {part}, and its kind does not say so");
        if edits(now) != edits(self.traffic) {
            says(Parts::DATA);
        }
        if batch.iter().any(|(place, block)| *block != self.blocks[place]) {
            says(if writes.has(Parts::DATA) { Parts::DATA } else { Parts::METADATA });
        }
        if shared.streams.changes() != self.stream_changes {
            says(Parts::STREAMS);
        }
    }
}

fn copied(blocks: &[Descriptor]) -> [Descriptor; BATCH_BLOCKS] {
    let mut copies = [Descriptor::default(); BATCH_BLOCKS];
    copies[..blocks.len()].copy_from_slice(blocks);
    copies
}
