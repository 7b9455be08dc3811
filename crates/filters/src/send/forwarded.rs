//! A kernel program that forwards frames from one device to another. Only its counters reach this process.

use filter::prelude::*;
use std::time::Duration;

/// Counters of a kernel program that forwards frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Frames that the program saw.
    pub seen: u64,
    /// Frames to be forwarded. The others stay with the host.
    pub wanted: u64,
    /// Wanted frames that are too long for the other device.
    pub too_long: u64,
    /// Wanted frames lost because the other device was gone.
    pub nowhere: u64,
    /// Wanted frames dropped by one of the devices, as far as the devices count them.
    pub dropped: u64,
}

/// A kernel program that forwards frames.
pub trait Forwards: Send {
    /// The counters up to now.
    fn counted(&mut self) -> Forwarded;

    /// Stops forwarding: from now on frames stay with the host.
    fn stop(&mut self);

    /// Why it no longer works, for instance because a device has gone; `None`: it works.
    fn failure(&mut self) -> Option<String>;
}

/// A source that gives no frames: it runs the program and counts.
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
            // The devices count frames of other senders too, so cap the count.
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
