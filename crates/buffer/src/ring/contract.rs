//! What a full ring does for each reader, and when a writer signals.

use std::time::Duration;

/// A reader's contract: what happens when the reader is a whole ring behind.
///
/// A Wait or DropNewest reader holds the ring for all its readers. So the ring's owner grants these contracts as
/// rights, and a [hold limit](Hold) ends them. An Overwrite or Shared reader cannot affect other readers or the writer.
///
/// The only change of contract is a demotion from Wait or DropNewest to Overwrite, after the hold limit. No reader gets
/// its contract back: the writer may already have overwritten its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum OnFull {
    /// The writer waits for this reader (slow reader preference as back-pressure).
    #[default]
    Wait = 1,
    /// The writer drops the newest block, for every reader (slow reader preference as tail drop).
    DropNewest = 2,
    /// The writer overtakes this reader, which learns exactly how much it lost (fast reader preference).
    Overwrite = 3,
    /// Like Overwrite, but overtaken readers go on where the group last was, so that they stay together (medium reader
    /// preference).
    Shared = 4,
}

impl OnFull {
    /// All contracts.
    pub const ALL: [OnFull; 4] = [OnFull::Wait, OnFull::DropNewest, OnFull::Overwrite, OnFull::Shared];

    /// Whether the writer spares blocks that this reader has not taken yet.
    #[inline]
    pub const fn holds(self) -> bool {
        matches!(self, OnFull::Wait | OnFull::DropNewest)
    }

    /// Code in shared memory.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Decodes a word from shared memory; `None` for an unknown code.
    pub fn from_code(code: u32) -> Option<OnFull> {
        OnFull::ALL.into_iter().find(|contract| contract.code() == code)
    }

    /// Name in requests and messages.
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

/// How long a reader may hold a full ring and take less than an eighth of it. Then it is demoted to Overwrite, and sees
/// that. `None`: as long as it lives.
pub type Hold = Option<Duration>;

/// When a writer wakes readers that sleep.
///
/// A reader that has found nothing for one latency period sleeps until it is woken, and the next block wakes it
/// whatever is chosen here. So an idle edge costs nothing, and its first block is never late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalling {
    /// With every block.
    Every,
    /// With each batch of this number of blocks, and when the writer flushes. In between, a reader wakes by itself
    /// within its latency bound.
    Batched(u32),
    /// Only as described above.
    Never,
}

/// Default number of blocks between two signals.
pub const BATCH: u32 = 32;

impl Default for Signalling {
    fn default() -> Self {
        Signalling::Batched(BATCH)
    }
}

impl Signalling {
    pub(crate) fn code(self) -> u32 {
        match self {
            Signalling::Every => 0,
            Signalling::Batched(blocks) => blocks.clamp(1, u32::MAX - 1),
            Signalling::Never => u32::MAX,
        }
    }
}
