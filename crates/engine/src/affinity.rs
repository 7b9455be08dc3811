//! The processor that a thread runs on.

use filter::Failure;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One more than the highest processor number.
pub const CPUS: u32 = CpuSet::MAX_CPU as u32;

/// The processors that this process may use; empty if the system does not say.
pub fn processors() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CPUS).filter(|cpu| set.is_set(*cpu as usize)).collect()
}

/// While this lives, its thread runs on one processor; then again where it ran before.
pub(crate) struct Pinned(Option<CpuSet>);

impl Pinned {
    /// `None`: the thread stays free to run anywhere.
    pub(crate) fn to(cpu: Option<u32>) -> Result<Pinned, Box<Failure>> {
        let Some(cpu) = cpu else { return Ok(Pinned(None)) };
        let before = sched_getaffinity(None).ok();
        let mut set = CpuSet::new();
        set.set(cpu.min(CPUS - 1) as usize);
        sched_setaffinity(None, &set)
            .map_err(|error| Box::new(Failure::System(format!("no thread can run on processor {cpu}: {error}"))))?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // If this fails, the thread stays on its processor.
        let _ = self.0.as_ref().map(|before| sched_setaffinity(None, before));
    }
}
