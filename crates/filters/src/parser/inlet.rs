//! A source for the rest of a request whose first filters run in another process, for several requests. It reads the ring
//! that an [`outlet`](super::outlet) writes.
//!
//! It copies blocks out with their times, flags and gaps. Streams get new numbers from this process's table, where other
//! sources may open streams, too. Blocks that were overwritten before the inlet read them are lost and counted. The next
//! block shows it: a byte stream has a gap of the right length, a message under way ends truncated.

use super::Continuity;
use super::reading::{Found, Reading};
use crate::parts::landing;
use buffer::pipe::PipeReader;
use filter::prelude::*;
use std::os::fd::BorrowedFd;

/// The keeper of the ring, while the inlet reads it.
pub trait Keeper: Send {
    /// Why the ring has ended, as a whole sentence. `None`: the keeper left without a word.
    fn last_word(&mut self) -> Option<String>;
}

/// A source of blocks that other requests read, too. `what` names it in messages.
pub fn inlet(ring: PipeReader, continuity: Continuity, what: String, keeper: Box<dyn Keeper>) -> Instance {
    Instance::source(Inlet { reading: Reading::new(ring, continuity, what, None), keeper })
}

struct Inlet {
    reading: Reading,
    keeper: Box<dyn Keeper>,
}

impl Source for Inlet {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        match self.reading.pull(cx)? {
            Found::Blocks => Ok(Pull::Ready),
            Found::Nothing(nap) => Ok(Pull::Idle(nap)),
            // The session stopped the source.
            Found::End(None) => Ok(Pull::End),
            // The ring's keeper and its writer are one process, so both are gone.
            Found::End(Some(_)) => {
                let what = self.reading.what();
                let gone = || format!("`{what}` has ended: the process that runs it for several requests is gone");
                Err(Box::new(Failure::System(self.keeper.last_word().unwrap_or_else(gone))))
            }
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.reading.bell()
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.reading.stop();
        true
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        self.reading.book(cx);
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.reading.finish(cx);
    }
}
