//! Where the rest of a request begins whose first filters run elsewhere, once for several: a source that reads the ring
//! which an [`outlet`](super::outlet) writes.
//!
//! Blocks are copied out and come as they were: time, flags, gaps. Streams get numbers of this process's table, for there
//! may be others that make streams here. What is overwritten before it was read is lost, to the block, and what comes after
//! says so: a byte stream has a gap of the right length, a message that was under way ends truncated.

use super::Continuity;
use super::reading::{Found, Reading};
use crate::parts::landing;
use buffer::pipe::PipeReader;
use filter::prelude::*;
use std::os::fd::BorrowedFd;

/// Who keeps the ring, as long as this reads it.
pub trait Keeper: Send {
    /// Why there is nothing more, as a whole sentence, where it said so before it went.
    fn last_word(&mut self) -> Option<String>;
}

/// A source of what others read, too. `what` names it for people.
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
            // It was asked to stop.
            Found::End(None) => Ok(Pull::End),
            // The ring's keeper and its writer are one process: gone together.
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
