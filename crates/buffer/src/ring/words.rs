//! The words of a ring in shared memory: an ABI between processes.
//!
//! Every word has one writer. Positions count *units* (bytes, slots or blocks, as the ring's [layout](super::layout)
//! says), are absolute and never wrap. `layout_is_pinned` below fails when anything moves; then [`ABI`] must grow.
//!
//! How a ring ends, as a reader sees it after the last block:
//!
//! | `ended` (by the writer) | `retired` (by the keeper) | reader gets |
//! |---|---|---|
//! | 0 | 0 | `Yet`; or `Retired` if the writer's line is cut |
//! | 0 | [`REMOVED`] alone | `Removed` |
//! | 0 | [`DIED`], or both | `Retired` |
//! | [`MOVED`] | any | `Moved` |
//! | [`ENDED`] | any | `Ended` |
//!
//! Neither word ever goes back to 0, and `ended` changes once. A reader keeps the first end it gets: a writer that was
//! taken for dead and wakes up late must not give it more blocks.

use crate::shared::words::Words;
use base::atomic::{AtomicU32, AtomicU64};

/// First word of a ring: "slring" and two zero bytes, in memory order on a little-endian machine.
pub const MAGIC: u64 = u64::from_le_bytes(*b"slring\0\0");

/// Version of everything in this file.
pub const ABI: u32 = 2;

/// Most readers of one ring at a time. A model has few, because the model checker makes their words again for each run.
pub const READERS: usize = if cfg!(loom) { 4 } else { 64 };

/// Two cache lines: processors fetch neighbours in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Apart<T>(pub T);

/// Words that the keeper stores before it hands out the ring, and words that it changes later.
#[derive(Debug)]
#[repr(C)]
pub struct KeeperWords {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`ABI`].
    pub abi: AtomicU32,
    /// Code of the [`Layout`](super::layout::Layout).
    pub layout: AtomicU32,
    /// Bytes of payload, a power of two.
    pub payload_bytes: AtomicU64,
    /// Slots of the header or descriptor array, a power of two; 0 where the layout has none.
    pub slots: AtomicU64,
    /// Generation of the ring's id.
    pub generation: AtomicU32,
    /// Grows whenever readers joined or left: the writer then asks its keeper for the changes.
    pub epoch: AtomicU32,
    /// Not 0 when the keeper has ended the ring: [`DIED`], [`REMOVED`], or both.
    pub retired: AtomicU32,
}

/// The writer's words that readers need for every batch.
#[derive(Debug)]
#[repr(C)]
pub struct WriterWords {
    /// Units published: readers may read everything before it.
    pub head: AtomicU64,
    /// Units begun, never less than `head`: the writer may be overwriting everything up to a ring's size before it.
    pub intent: AtomicU64,
    /// The same in bytes of payload, where the layout has an array of descriptors.
    pub intent_bytes: AtomicU64,
    /// Start of a block, a quarter to half a ring back: readers of a layout without an array may begin there.
    pub mark: AtomicU64,
    /// Position at which lapped Shared readers resume.
    pub shared: AtomicU64,
    /// 0 while the writer goes on, else [`ENDED`] or [`MOVED`].
    pub ended: AtomicU32,
    /// When it signals: 0 every block, [`u32::MAX`] never, else blocks in a batch.
    pub signalling: AtomicU32,
}

/// The writer closed the ring in order: readers take the rest and are done.
pub const ENDED: u32 = 1;

/// The writer went on in another ring (of another size): readers take the rest and ask the keeper for that one.
pub const MOVED: u32 = 2;

/// The writer is gone and has not ended the ring.
pub const DIED: u32 = 1;

/// The ring was removed for good.
pub const REMOVED: u32 = 2;

/// The writer's counts, and its wait word when it needs room.
#[derive(Debug)]
#[repr(C)]
pub struct WriterCounts {
    /// [`AWAKE`] or [`ASLEEP`].
    pub wait: AtomicU32,
    /// Readers that the writer knows.
    pub readers: AtomicU32,
    /// Blocks (bytes, where there are no blocks) dropped because a DropNewest reader held the ring.
    pub dropped: AtomicU64,
    /// Blocks written.
    pub blocks: AtomicU64,
    /// Bytes of payload written.
    pub bytes: AtomicU64,
    /// Bytes of payload in use, where the writer goes round in a part of it; 0 = all.
    pub window: AtomicU64,
}

/// The writer's words for one reader.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ReaderSlot {
    /// Changed, and woken on, when something was published for a sleeping reader.
    pub bell: AtomicU32,
    /// The contract in force ([`Contract`](super::contract::OnFull) code); 0 = the place is free.
    pub contract: AtomicU32,
    /// First unit meant for this reader.
    pub start: AtomicU64,
    /// The keeper's number of the reader in this place.
    pub serial: AtomicU32,
    /// Number of blocks written before `start`, modulo 2^32.
    pub number: AtomicU32,
}

/// First page of a ring's segment.
#[derive(Debug)]
#[repr(C)]
pub struct RingWords {
    /// The keeper's words.
    pub keeper: Apart<KeeperWords>,
    /// The writer's words that are read for every batch.
    pub writer: Apart<WriterWords>,
    /// The writer's words that are read now and then.
    pub counts: Apart<WriterCounts>,
    /// The writer's words for each reader.
    pub slots: [ReaderSlot; READERS],
}

/// A reader's own page: the only memory of the ring that it can write.
#[derive(Debug)]
#[repr(C)]
pub struct ReaderPage {
    /// Units taken: this reader no longer reads anything before it.
    pub position: Apart<AtomicU64>,
    /// The words that the writer reads when the reader sleeps or lags.
    pub wait: Apart<ReaderWait>,
}

/// A reader's words that change when it sleeps or lags.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ReaderWait {
    /// [`AWAKE`], [`TIMED`] or [`ASLEEP`].
    pub wait: AtomicU32,
    /// Changed, and woken on, when room was made for a sleeping writer.
    pub bell: AtomicU32,
    /// Position before its last step (Shared readers).
    pub previous: AtomicU64,
    /// Number of its steps (Shared readers).
    pub stamp: AtomicU64,
    /// Units it lost.
    pub lost: AtomicU64,
}

/// Wait word: running, needs no signal.
pub const AWAKE: u32 = 0;

/// Wait word: sleeps, and wakes by itself within its latency bound.
pub const TIMED: u32 = 1;

/// Wait word: sleeps until it is woken.
pub const ASLEEP: u32 = 2;

// SAFETY: repr(C), atomics only, all zero is a value.
unsafe impl Words for RingWords {}
// SAFETY: as above.
unsafe impl Words for ReaderPage {}

impl RingWords {
    /// Words that are all zero, in this process's own memory.
    pub fn new() -> RingWords {
        RingWords {
            keeper: Apart(KeeperWords {
                magic: AtomicU64::new(0),
                abi: AtomicU32::new(0),
                layout: AtomicU32::new(0),
                payload_bytes: AtomicU64::new(0),
                slots: AtomicU64::new(0),
                generation: AtomicU32::new(0),
                epoch: AtomicU32::new(0),
                retired: AtomicU32::new(0),
            }),
            writer: Apart(WriterWords {
                head: AtomicU64::new(0),
                intent: AtomicU64::new(0),
                intent_bytes: AtomicU64::new(0),
                mark: AtomicU64::new(0),
                shared: AtomicU64::new(0),
                ended: AtomicU32::new(0),
                signalling: AtomicU32::new(0),
            }),
            counts: Apart(WriterCounts {
                wait: AtomicU32::new(0),
                readers: AtomicU32::new(0),
                dropped: AtomicU64::new(0),
                blocks: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                window: AtomicU64::new(0),
            }),
            slots: std::array::from_fn(|_| ReaderSlot {
                bell: AtomicU32::new(0),
                contract: AtomicU32::new(0),
                start: AtomicU64::new(0),
                serial: AtomicU32::new(0),
                number: AtomicU32::new(0),
            }),
        }
    }
}

impl Default for RingWords {
    fn default() -> Self {
        RingWords::new()
    }
}

impl ReaderPage {
    /// A page that is all zero, in this process's own memory.
    pub fn new() -> ReaderPage {
        ReaderPage { position: Apart(AtomicU64::new(0)), wait: Apart(ReaderWait::default()) }
    }
}

impl Default for ReaderPage {
    fn default() -> Self {
        ReaderPage::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// A change here changes the ABI between processes: give [`ABI`] the next number.
    #[test]
    fn layout_is_pinned() {
        assert_eq!(ABI, 2);
        assert_eq!(
            [
                offset_of!(RingWords, keeper),
                offset_of!(RingWords, writer),
                offset_of!(RingWords, counts),
                offset_of!(RingWords, slots),
                size_of::<RingWords>(),
                size_of::<ReaderSlot>(),
                size_of::<ReaderPage>(),
            ],
            [0, 128, 256, 384, 384 + 64 * 64, 64, 256]
        );
        assert_eq!(
            [
                offset_of!(KeeperWords, magic),
                offset_of!(KeeperWords, abi),
                offset_of!(KeeperWords, layout),
                offset_of!(KeeperWords, payload_bytes),
                offset_of!(KeeperWords, slots),
                offset_of!(KeeperWords, generation),
                offset_of!(KeeperWords, epoch),
                offset_of!(KeeperWords, retired),
            ],
            [0, 8, 12, 16, 24, 32, 36, 40]
        );
        assert_eq!(
            [
                offset_of!(WriterWords, head),
                offset_of!(WriterWords, intent),
                offset_of!(WriterWords, intent_bytes),
                offset_of!(WriterWords, mark),
                offset_of!(WriterWords, shared),
                offset_of!(WriterWords, ended),
                offset_of!(WriterWords, signalling),
            ],
            [0, 8, 16, 24, 32, 40, 44]
        );
        assert_eq!(
            [
                offset_of!(WriterCounts, wait),
                offset_of!(WriterCounts, readers),
                offset_of!(WriterCounts, dropped),
                offset_of!(WriterCounts, blocks),
                offset_of!(WriterCounts, bytes),
                offset_of!(WriterCounts, window),
                offset_of!(ReaderSlot, bell),
                offset_of!(ReaderSlot, contract),
                offset_of!(ReaderSlot, start),
                offset_of!(ReaderSlot, serial),
                offset_of!(ReaderSlot, number),
            ],
            [0, 4, 8, 16, 24, 32, 0, 4, 8, 16, 20]
        );
        assert_eq!(
            [
                offset_of!(ReaderPage, position),
                offset_of!(ReaderPage, wait),
                offset_of!(ReaderWait, wait),
                offset_of!(ReaderWait, bell),
                offset_of!(ReaderWait, previous),
                offset_of!(ReaderWait, stamp),
                offset_of!(ReaderWait, lost),
            ],
            [0, 128, 0, 4, 8, 16, 24]
        );
    }
}
