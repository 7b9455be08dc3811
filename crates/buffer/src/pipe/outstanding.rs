//! The blocks that a reader forwarded to one ring, and that this ring's readers have not passed yet.

use super::sink::{SharedSink, locked};
use super::watch::reading::Front;
use crate::ring::sleeper::Needed;
use std::collections::VecDeque;
use std::sync::Arc;

/// A unit of a ring to which a block was forwarded. A ring that goes on in another size starts at unit 0 again, but
/// only after everything forwarded before was passed.
#[derive(Clone, Copy, Debug)]
struct There {
    generation: u32,
    unit: u64,
}

#[derive(Debug)]
pub(super) struct Outstanding {
    sink: SharedSink,
    /// The block's unit there, and its unit here.
    units: VecDeque<(There, u64)>,
}

impl Outstanding {
    /// Of the readers of this ring; nothing was forwarded to it yet.
    pub fn of(sink: &SharedSink) -> Outstanding {
        Outstanding { sink: Arc::clone(sink), units: VecDeque::new() }
    }

    pub fn is_of(&self, sink: &SharedSink) -> bool {
        Arc::ptr_eq(&self.sink, sink)
    }

    /// A block was forwarded: its unit there, and its unit here.
    pub fn push(&mut self, there: u64, here: u64) {
        let there = There { generation: locked(&self.sink).generation(), unit: there };
        self.units.push_back((there, here));
    }

    /// Forgets the blocks that all holding readers of the ring have passed. Returns whether there are others.
    pub fn forget_passed(&mut self) -> bool {
        let mut sink = locked(&self.sink);
        let (generation, passed) = (sink.generation(), sink.writer().passed());
        drop(sink);
        let is_passed = |there: &There| there.generation != generation || there.unit < passed;
        while self.units.front().is_some_and(|(there, _)| is_passed(there)) {
            self.units.pop_front();
        }
        !self.units.is_empty()
    }

    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// The first unit here that is still needed.
    pub fn first(&self) -> Option<u64> {
        self.units.front().map(|(_, here)| *here)
    }

    /// The ring, and the first unit there that is not passed yet.
    pub fn front(&self) -> Option<SinkFront> {
        self.units.front().map(|(there, _)| SinkFront { sink: Arc::clone(&self.sink), there: *there })
    }
}

/// A ring to which blocks were forwarded, and its first unit that is not passed yet.
pub(super) struct SinkFront {
    sink: SharedSink,
    there: There,
}

impl Front for SinkFront {
    fn watch(&self) -> Option<Needed> {
        let SinkFront { sink, there } = self;
        let mut sink = locked(sink);
        sink.writer().watch();
        if sink.generation() == there.generation { sink.writer().needed_by(there.unit) } else { None }
    }

    fn unwatch(&self, is_silent: bool) {
        let mut sink = locked(&self.sink);
        sink.writer().unwatch();
        if is_silent {
            sink.writer().look_after_readers();
        }
    }
}
