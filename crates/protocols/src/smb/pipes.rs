//! What is said in the open pipes of a connection: calls of DCE/RPC.

use super::Fact;
use crate::carry::Carried;
use crate::conversation::{Ear, Run, Side};
use crate::dcerpc;

/// Hears a conversation, and what is in pipes.
pub trait Hears: Ear<Fact> {
    /// Gives `tell` an ear for the calls in the pipe with this number, of which these bytes are read.
    fn pipe(&mut self, pipe: u64, bytes: &[u8], tell: &mut dyn FnMut(&mut dyn Ear<dcerpc::Fact>));

    /// The pipe is closed.
    fn pipe_end(&mut self, _pipe: u64) {}
}

/// The conversations in open pipes, by the numbers of these.
#[derive(Debug, Default)]
pub(super) struct Pipes(Vec<(u64, dcerpc::Conversation)>);

impl Pipes {
    /// Reads bytes of a pipe, behind missing ones.
    pub(super) fn read(
        &mut self,
        pipe: u64,
        side: Side,
        run: Run<'_>,
        missing: u64,
        kept: &Carried,
        ear: &mut dyn Hears,
    ) {
        let at = self.0.iter().position(|known| known.0 == pipe).unwrap_or_else(|| {
            self.0.push((pipe, dcerpc::Conversation::default()));
            self.0.len() - 1
        });
        let (conversation, missing) = (&mut self.0[at].1, u32::try_from(missing).unwrap_or(u32::MAX));
        ear.pipe(pipe, run.bytes, &mut |ear| {
            conversation.gap(side, missing, kept, ear);
            conversation.feed(side, run, kept, ear);
        });
    }

    /// A pipe is closed, or no longer known.
    pub(super) fn close(&mut self, pipe: u64, kept: &Carried, ear: &mut dyn Hears) {
        if let Some(at) = self.0.iter().position(|known| known.0 == pipe) {
            let mut conversation = self.0.remove(at).1;
            ear.pipe(pipe, b"", &mut |ear| conversation.end(kept, ear));
        }
        ear.pipe_end(pipe);
    }

    /// Memory of the table.
    pub(super) fn table_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u64, dcerpc::Conversation)>()
    }
}
