//! Blocks between a request and the program that embeds it: both ends run in the program's thread, one after the other.
//!
//! - [`give`] — the sink at the open ends of a request: keeps blocks readable until the program has looked at them.
//! - [`push`] — the sources `push_frames`, `push_bytes` and `push_messages`: give what the program has pushed.
//!
//! A request can name them only in a session that embeds. The facade's `Stream` is the program's side of an [`Exchange`]:
//! it runs the worker turn by turn, and takes and adds blocks between two turns.

pub mod give;
pub mod push;

pub use crate::parts::json_row::RowShapes;

use buffer::{BlockTable, Descriptor};
use filter::StreamFacts;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a request and its program hand each other. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Exchange(Arc<Mutex<Sides>>);

/// Both directions.
#[derive(Debug, Default)]
pub struct Sides {
    /// Blocks that came out of open ends, in order.
    pub given: Vec<Given>,
    /// Bytes of those.
    pub given_bytes: u64,
    /// The program takes no more.
    pub is_closed: bool,
    /// Blocks of the program that the request has not met yet, in order.
    pub pushed: Vec<Pushed>,
    /// The program pushes no more.
    pub has_ended: bool,
}

/// A block for the program. One that is not empty is held: the program's side calls [`release`](Given::release).
#[derive(Clone, Debug)]
pub struct Given {
    /// The block.
    pub block: Descriptor,
    /// Facts of its stream as they were when it came; `None` for frames, packets and records.
    pub facts: Option<StreamFacts>,
    /// The open end, counted from 0 in the order of the plan.
    pub end: u32,
}

impl Given {
    /// The program has looked at it.
    pub fn release(&self, rings: &BlockTable) {
        if self.block.len > 0 {
            rings.release(&self.block);
        }
    }
}

/// A block of the program.
#[derive(Clone, Copy, Debug)]
pub struct Pushed {
    /// The block. The source sets its class and the flags of its place.
    pub block: Descriptor,
    /// It comes from the server of its stream.
    pub from_server: bool,
    /// Of a message: more of the same message follows.
    pub more: bool,
    /// Of a byte stream: the stream ends behind it, in both directions.
    pub last: bool,
}

impl Exchange {
    /// Both sides. The worker and the program use them in one thread, so neither waits.
    pub fn sides(&self) -> MutexGuard<'_, Sides> {
        // A panic of another holder leaves lists that are as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
