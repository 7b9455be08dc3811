//! The ring behind the writing end of a pipe: a named one, or one of this process.

use super::local::Local;
use super::origin::Origin;
use crate::keeper::client::NamedWriter;
use crate::ring::Writer;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) enum Sink {
    Named(Box<NamedWriter>),
    Local(Box<Writer>, Local),
}

impl Sink {
    pub fn writer(&mut self) -> &mut Writer {
        match self {
            Sink::Named(named) => named.writer(),
            Sink::Local(writer, _) => writer,
        }
    }

    /// Generation of the ring that it writes: each size is another one.
    pub fn generation(&self) -> u32 {
        match self {
            Sink::Named(named) => named.generation(),
            Sink::Local(..) => 0,
        }
    }

    /// Whether new readers can still come.
    pub fn is_kept(&self) -> bool {
        match self {
            Sink::Named(named) => named.is_kept(),
            Sink::Local(..) => true,
        }
    }

    pub fn register(&mut self, origin: &Origin) -> io::Result<u16> {
        match (self, origin.named_place()) {
            (Sink::Named(writer), Some((named, generation))) => writer.register(named.path(), generation),
            (Sink::Local(_, local), _) => local.register(origin),
            // Other processes could not find it.
            (Sink::Named(_), None) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Behind a lock, because forwarding readers check later how far this ring's readers are.
pub(super) type SharedSink = Arc<Mutex<Sink>>;

pub(super) fn locked(sink: &SharedSink) -> MutexGuard<'_, Sink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}
