//! Passes blocks between a request and the program that embeds it, in one thread.
//!
//! - [`give`] — the sink at the open ends of a request: keeps blocks readable until the program releases them.
//! - [`push`] — the sources `push_frames`, `push_bytes` and `push_messages`: give the blocks that the program pushed.
//!
//! Only a session that embeds accepts these filters. The facade's `Stream` is the program's side of an [`Exchange`]: it runs
//! the worker turn by turn, and takes and adds blocks between turns.

pub mod give;
pub mod push;

pub use crate::parts::json_row::RowShapes;

use buffer::{BlockTable, Descriptor};
use filter::{Kind, StreamFacts};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The filters of a session whose program takes and pushes blocks, beside all others.
pub static KINDS: &[&Kind] = &[&give::KIND, &push::FRAMES, &push::BYTES, &push::MESSAGES];

/// The shared state of a request and its program. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Exchange(Arc<Mutex<Sides>>);

/// The blocks of both directions.
#[derive(Debug, Default)]
pub struct Sides {
    /// Blocks from open ends, in order.
    pub given: Vec<Given>,
    /// Bytes of `given`.
    pub given_bytes: u64,
    /// The program takes no more.
    pub is_closed: bool,
    /// Blocks that the program pushed and the request has not taken, in order.
    pub pushed: Vec<Pushed>,
    /// The program pushes no more.
    pub has_ended: bool,
}

/// A block for the program. A block with bytes is held until the program calls [`release`](Given::release).
#[derive(Clone, Debug)]
pub struct Given {
    /// The block.
    pub block: Descriptor,
    /// Facts of its stream when the block came. `None` for frames, packets and records.
    pub facts: Option<StreamFacts>,
    /// The open end, counted from 0 in the order of the plan.
    pub end: u32,
}

impl Given {
    /// Ends the hold: the program has looked at the block.
    pub fn release(&self, rings: &BlockTable) {
        if self.block.len > 0 {
            rings.release(&self.block);
        }
    }
}

/// A block from the program.
#[derive(Clone, Copy, Debug)]
pub struct Pushed {
    /// The block. The source sets its class and its flags.
    pub block: Descriptor,
    /// The block comes from the server of its stream.
    pub from_server: bool,
    /// Of a message: more of the same message follows.
    pub more: bool,
    /// Of a byte stream: the stream ends behind this block, in both directions.
    pub last: bool,
}

impl Exchange {
    /// Locks both sides. The worker and the program run in one thread, so neither waits.
    pub fn sides(&self) -> MutexGuard<'_, Sides> {
        // A panic of another holder leaves valid lists.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
