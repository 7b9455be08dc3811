//! What a full ring does, reader by reader, and how a writer signals.

use std::time::Duration;

/// What happens when a reader is a whole ring behind: its contract.
///
/// Wait and DropNewest hold the ring for all its readers, so they are rights that the ring's owner grants, and end after
/// a [hold limit](Hold). Overwrite and Shared readers do nothing to anybody, whatever they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum OnFull {
    /// The writer waits for this reader (slow reader preference as back-pressure).
    #[default]
    Wait = 1,
    /// The newest block is dropped, for every reader (slow reader preference as tail drop).
    DropNewest = 2,
    /// This reader is overtaken; it learns exactly how much it lost (fast reader preference).
    Overwrite = 3,
    /// As Overwrite, and readers that were overtaken go on where the group last was, so that they stay together (medium
    /// reader preference).
    Shared = 4,
}

impl OnFull {
    /// All of them.
    pub const ALL: [OnFull; 4] = [OnFull::Wait, OnFull::DropNewest, OnFull::Overwrite, OnFull::Shared];

    /// Does the writer leave alone what this reader has not taken yet?
    #[inline]
    pub const fn holds(self) -> bool {
        matches!(self, OnFull::Wait | OnFull::DropNewest)
    }

    /// As it stands in shared memory.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// From shared memory; `None` for what no contract is.
    pub fn from_code(code: u32) -> Option<OnFull> {
        OnFull::ALL.into_iter().find(|contract| contract.code() == code)
    }

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            OnFull::Wait => "wait",
            OnFull::DropNewest => "drop-newest",
            OnFull::Overwrite => "overwrite",
            OnFull::Shared => "shared",
        }
    }
}

impl std::str::FromStr for OnFull {
    type Err = String;

    fn from_str(text: &str) -> Result<OnFull, String> {
        OnFull::ALL
            .into_iter()
            .find(|contract| contract.name() == text)
            .ok_or_else(|| format!("no policy `{text}`: there are wait, drop-newest, overwrite and shared"))
    }
}

/// How long a reader may hold a full ring, and take less than an eighth of it, before it is demoted to Overwrite, and told.
/// `None`: as long as it lives.
pub type Hold = Option<Duration>;

/// When a writer wakes readers that sleep.
///
/// A reader that has found nothing for one latency period sleeps until it is woken, and is woken by the next block
/// whatever is chosen here; so an idle edge costs nothing and its first block is never late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalling {
    /// With every block.
    Every,
    /// With every so many blocks, and when the writer flushes; in between a reader wakes by itself within its latency bound.
    Batched(u32),
    /// Never but as said above.
    Never,
}

/// Blocks between two signals, if nothing else is said.
pub const BATCH: u32 = 32;

impl Default for Signalling {
    fn default() -> Self {
        Signalling::Batched(BATCH)
    }
}

impl Signalling {
    /// As it stands in shared memory.
    pub(crate) fn code(self) -> u32 {
        match self {
            Signalling::Every => 0,
            Signalling::Batched(blocks) => blocks.clamp(1, u32::MAX - 1),
            Signalling::Never => u32::MAX,
        }
    }
}
