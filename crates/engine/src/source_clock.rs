//! The clock of a source: how much time has passed by its blocks.

use base::limits::CLOCK_STEP_NS;

/// The time that has passed by one source's blocks: see [`Context::now`](filter::Context::now).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceClock {
    /// The source's present time. After a step back by less than a leap, the clock waits until the source has caught
    /// up.
    time: Option<u64>,
    passed: u64,
}

impl SourceClock {
    /// Follows a batch whose first and last blocks have these times. Gives the time since the source began.
    pub(crate) fn follow(&mut self, first: u64, last: u64) -> u64 {
        let before = *self.time.get_or_insert(first);
        self.passed += last.saturating_sub(before).min(CLOCK_STEP_NS);
        if last > before || before - last > CLOCK_STEP_NS {
            self.time = Some(last);
        }
        self.passed
    }
}
