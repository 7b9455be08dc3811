//! What a program in the kernel does that has frames of one device go out by another: nothing of it comes here but numbers.

use filter::prelude::*;
use std::time::Duration;

/// What a program counted that has frames of one device go out by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Frames it was shown.
    pub seen: u64,
    /// Of these, those that were to go; the others stayed the host's.
    pub wanted: u64,
    /// Of the wanted, longer than the other device takes.
    pub too_long: u64,
    /// Of the wanted, lost because the other device was gone.
    pub nowhere: u64,
    /// Of the wanted, dropped by one of the devices, as far as they count that.
    pub dropped: u64,
}

/// Such a program.
pub trait Forwards: Send {
    /// What it counted up to now.
    fn counted(&mut self) -> Forwarded;

    /// It is to end: frames stay the host's from now on.
    fn stop(&mut self);

    /// Why it does nothing any more, where that is so: a device has gone.
    fn failure(&mut self) -> Option<String>;
}

/// What such a program does, as a source that gives nothing: its frames never come here.
pub fn source(program: Box<dyn Forwards>) -> Instance {
    Instance::source(Kernels { program, booked: Forwarded::default(), stopped: false })
}

struct Kernels {
    program: Box<dyn Forwards>,
    booked: Forwarded,
    stopped: bool,
}

impl Kernels {
    fn book(&mut self, cx: &mut Context<'_>) {
        let (now, before) = (self.program.counted(), self.booked);
        let more = |of: fn(&Forwarded) -> u64| of(&now).saturating_sub(of(&before));
        let (seen, wanted) = (more(|all| all.seen), more(|all| all.wanted));
        let drops = [
            ("longer than the device takes", more(|all| all.too_long)),
            ("the device is gone", more(|all| all.nowhere)),
            ("dropped by one of the devices", more(|all| all.dropped)),
        ];
        cx.counters.blocks_in += seen;
        cx.counters.blocks_rejected += seen.saturating_sub(wanted);
        let mut sent = wanted;
        for (why, count) in drops.into_iter().filter(|(_, count)| *count > 0) {
            // Devices count what others send, too.
            let count = count.min(sent);
            sent -= count;
            cx.counters.drops.add(why, count);
        }
        cx.counters.blocks_taken += sent;
        cx.count("sent", sent);
        self.booked = now;
    }
}

impl Source for Kernels {
    fn pull(&mut self, _cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        if self.stopped {
            return Ok(Pull::End);
        }
        match self.program.failure() {
            Some(text) => Err(Box::new(Failure::System(text))),
            None => Ok(Pull::Idle(Duration::MAX)),
        }
    }

    fn stop(&mut self) -> bool {
        self.program.stop();
        self.stopped = true;
        true
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        self.book(cx);
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.program.stop();
        self.book(cx);
    }
}
