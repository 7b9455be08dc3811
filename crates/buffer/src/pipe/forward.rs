//! Passes blocks from one ring to others by descriptor: 32 bytes, whatever their length.
//!
//! The bytes stay in the ring to which they were written, and the readers of the other rings must be done before they
//! are overwritten. So a forwarding reader that [holds](crate::ring::OnFull::holds) its ring takes a block only when
//! all holding readers of the other ring have passed it there. It checks at each call, and is woken for it when it
//! sleeps. Readers that do not hold their ring verify afterwards, against the ring in which the bytes lie.
//!
//! Blocks are copied, and counted as copied, into a ring that has no descriptors or cannot name the ring of the bytes.

use super::origin::Origin;
use super::outstanding::Outstanding;
use super::reader::{Block, PipeReader, overtaken};
use super::writer::PipeWriter;
use std::io;

impl PipeReader {
    /// Gives the last peeked block (or its [first](Block::first) bytes) to another ring, as if it were read and written
    /// there, and takes it. A ring of descriptors gets only the descriptor.
    ///
    /// Fails as a write does; then nothing was taken. Fails with ESTALE where the block was overwritten; then it is
    /// taken. Fails with EINVAL where `block` is not the last peeked one.
    pub fn forward(&mut self, block: &Block, to: &mut PipeWriter) -> io::Result<usize> {
        self.tee(block, &mut [to])
    }

    /// The same to several rings. If one of them must be waited for and the call may not wait, the next call for the
    /// same block continues with that ring: pass the same rings in the same order.
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
        // If it was overwritten after it was given, its readers there find out.
        self.go_past(block);
        Ok(block.len())
    }

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
            let at = self.outstanding.iter().position(|one| one.is_of(to.sink())).unwrap_or_else(|| {
                self.outstanding.push(Outstanding::of(to.sink()));
                self.outstanding.len() - 1
            });
            self.outstanding[at].push(unit, block.seen.position);
        }
        Ok(())
    }

    /// Takes the blocks that all holding readers of the other rings have passed.
    pub(super) fn pass_outstanding(&mut self) {
        if self.outstanding.is_empty() {
            return;
        }
        self.outstanding.retain_mut(Outstanding::forget_passed);
        self.pass();
    }
}
