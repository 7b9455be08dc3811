//! Blocks from one ring to others, by descriptor: 32 bytes, whatever their length.
//!
//! The bytes stay in the ring they were written to. Whoever reads them there must be done before they are overwritten, so
//! a reader that forwards and [holds](crate::ring::OnFull::holds) its ring lets go of a block only when all that hold the
//! ring it was forwarded to have passed it there; it looks again whenever it is called, and is woken for it when it
//! sleeps. Readers that hold nothing find out for themselves: they verify against the ring that the bytes lie in.
//!
//! Copied, and counted as copied: blocks for a ring that has no descriptors, or that cannot name the ring they lie in.

use super::foreign::Origin;
use super::reader::{Block, PipeReader, overtaken};
use super::watch::reading::Front;
use super::writer::{PipeWriter, SharedSink, locked};
use crate::ring::sleeper::Needed;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// A unit of a ring that was forwarded to. One that goes on in another size counts anew, and does so only when all that was
/// forwarded to it before is passed.
#[derive(Clone, Copy, Debug)]
struct There {
    generation: u32,
    unit: u64,
}

/// What was forwarded to one ring and is not passed there yet.
#[derive(Debug)]
pub(super) struct Outstanding {
    sink: SharedSink,
    /// The unit there, and the unit here that the block begins at.
    units: VecDeque<(There, u64)>,
}

impl Outstanding {
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

/// A ring that was forwarded to, and the first unit of it that is not passed there yet.
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

impl PipeReader {
    /// Gives what was peeked last (or its [first](Block::first) bytes) to another ring, as if it were read and written
    /// there, and takes it. To a ring of descriptors goes nothing but the descriptor.
    ///
    /// Fails as a write does, and then nothing was taken; with ESTALE where the block was overwritten, which is taken; with
    /// EINVAL where this is not what was peeked last.
    pub fn forward(&mut self, block: &Block, to: &mut PipeWriter) -> io::Result<usize> {
        self.tee(block, &mut [to])
    }

    /// The same to several rings. Where one would have to be waited for and must not, the next call for the same block goes
    /// on with that one: give it the same rings in the same order.
    pub fn tee(&mut self, block: &Block, to: &mut [&mut PipeWriter]) -> io::Result<usize> {
        let outcome = self.tee_unsettled(block, to);
        self.settle();
        outcome
    }

    fn tee_unsettled(&mut self, block: &Block, to: &mut [&mut PipeWriter]) -> io::Result<usize> {
        self.check(block)?;
        self.pass_outstanding();
        while let Some(next) = to.get_mut(self.given) {
            match self.give(block, next) {
                Ok(()) => self.given += 1,
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                    self.go_past(block);
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        // Overwritten after it was given: who reads it there finds out.
        self.go_past(block);
        Ok(block.len())
    }

    /// Gives what was peeked last to a socket, a pipe or a file, and takes what of it went; says how much. The kernel copies
    /// from the ring where this reader holds it; else the bytes are copied and verified first, for what is sent cannot be
    /// taken back. Pages are never given away: the ring's writer would change them under whoever has them.
    pub fn forward_to_fd(&mut self, block: &Block, to: impl AsFd) -> io::Result<usize> {
        self.check(block)?;
        let holds = self.source.reader_ref().contract().holds() && !block.seen.elsewhere;
        let bytes = self.look_at(block)?;
        let written = if holds {
            // SAFETY: the bytes are mapped for as long as `self` lives, all `len` of them in a row; the kernel only reads them,
            // and does not mind whether they change.
            let written = unsafe { libc::write(to.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
            usize::try_from(written).map_err(|_| io::Error::last_os_error())?
        } else {
            let copy = bytes.copy_to_vec();
            if !self.is_intact(block) {
                self.go_past(block);
                self.settle();
                return Err(overtaken());
            }
            rustix::io::write(to, &copy)?
        };
        self.release(&block.first(written))?;
        Ok(written)
    }

    /// Which ring the block lies in.
    fn origin_of(&mut self, block: &Block) -> io::Result<Origin> {
        if !block.seen.elsewhere {
            return Ok(self.origin.clone());
        }
        let source = &mut self.source;
        self.foreign.origin(&block.seen.block, |ring| source.whereabouts(ring))
    }

    fn give(&mut self, block: &Block, to: &mut PipeWriter) -> io::Result<()> {
        let origin = self.origin_of(block)?;
        let about = block.descriptor();
        let Some(number) = to.number_of(&origin) else {
            let bytes = self.look_at(block)?.copy_to_vec();
            if !self.is_intact(block) {
                return Err(overtaken());
            }
            let mut rest = &bytes[..];
            loop {
                let written = to.forward_copied(about, rest)?;
                rest = &rest[written.min(rest.len())..];
                if rest.is_empty() {
                    return Ok(());
                }
            }
        };
        let reader = self.source.reader_ref();
        if !reader.intact(&block.seen) {
            return Err(overtaken());
        }
        let holds = reader.contract().holds();
        let named = crate::Descriptor { ring: base::id::RingId(number), generation: origin.generation(), ..about };
        if let Some(unit) = to.forward(&named)?
            && holds
        {
            let there = There { generation: locked(to.sink()).generation(), unit };
            let entry = (there, block.seen.position);
            match self.outstanding.iter_mut().find(|one| Arc::ptr_eq(&one.sink, to.sink())) {
                Some(one) => one.units.push_back(entry),
                None => self.outstanding.push(Outstanding { sink: Arc::clone(to.sink()), units: [entry].into() }),
            }
        }
        Ok(())
    }

    /// Lets go of what all have passed to whom it was forwarded.
    pub(super) fn pass_outstanding(&mut self) {
        if self.outstanding.is_empty() {
            return;
        }
        self.outstanding.retain_mut(|one| {
            let mut sink = locked(&one.sink);
            let (generation, passed) = (sink.generation(), sink.writer().passed());
            drop(sink);
            let is_passed = |there: &There| there.generation != generation || there.unit < passed;
            while one.units.front().is_some_and(|(there, _)| is_passed(there)) {
                one.units.pop_front();
            }
            !one.units.is_empty()
        });
        self.pass();
    }
}
