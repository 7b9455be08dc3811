//! Rings in the manner of pipes: open, read, write, peek, forward, poll, close, stat, tee.
//!
//! What a pipe does, these do: a reader of an ended ring gets 0 bytes, a writer that all readers have left gets EPIPE, a
//! call that would wait and may not gets EAGAIN (`BrokenPipe` and `WouldBlock` in Rust). What a pipe does not: a reader may
//! look at a block where it lies ([`PipeReader::peek`]) and give it to another ring without its bytes
//! ([`PipeReader::forward`]); each reader gets everything; a ring that goes on with another writer or in another size is
//! followed without the reader's doing, and nothing is lost on the way.
//!
//! - [`reader`] — reads, peeks, takes. Start reading here.
//! - [`writer`] — writes, and is given what is forwarded.
//! - [`forward`] — blocks from one ring to others; who waits for whom.
//! - [`foreign`] — the buffer fault: bytes that lie in another ring than their descriptor.
//! - [`poll`] — a file descriptor for poll(2) and epoll(7) that says that there is something to read; `room`, that there is
//!   room to write; [`watch`] — what the threads behind both do, `thread` how they end.
//! - [`local`] — rings within this process, without a keeper's socket.
//!
//! For the fewest instructions per block use [`ring`](crate::ring) itself; for C see the crate `capi`.

pub mod foreign;
pub mod forward;
pub mod local;
pub mod poll;
pub mod reader;
mod room;
mod thread;
pub mod watch;
pub mod writer;

pub use local::Local;
pub use reader::{Block, End, PipeReader, ReaderStat};
pub use writer::{PipeWriter, WriterStat};

use crate::keeper::client::Named;
use crate::keeper::content::Content;
use crate::keeper::message::WantedWriter;
use crate::ring::{ActiveWindow, From, OnFull, Signalling};
use std::io;
use std::time::Instant;

/// How a named ring is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    contract: OnFull,
    from: From,
    blocking: bool,
    needs_readers: bool,
    signalling: Signalling,
    window: ActiveWindow,
}

impl Default for OpenOptions {
    /// A reader that is waited for, from the next block on; a writer that needs readers; calls that wait.
    fn default() -> Self {
        OpenOptions {
            contract: OnFull::Wait,
            from: From::Next,
            blocking: true,
            needs_readers: true,
            signalling: Signalling::default(),
            window: ActiveWindow::default(),
        }
    }
}

impl OpenOptions {
    /// [`OpenOptions::default`].
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// What the ring does when this reader is a whole ring behind.
    #[must_use]
    pub fn contract(mut self, contract: OnFull) -> Self {
        self.contract = contract;
        self
    }

    /// Where this reader begins.
    #[must_use]
    pub fn from(mut self, from: From) -> Self {
        self.from = from;
        self
    }

    /// Calls that would wait fail with [`io::ErrorKind::WouldBlock`]. Opening a reader waits for a writer all the same,
    /// unless this is set: then it fails likewise.
    #[must_use]
    pub fn non_blocking(mut self, non_blocking: bool) -> Self {
        self.blocking = !non_blocking;
        self
    }

    /// Does a write wait for the first reader, and fail when all have left (as pipes do)? Else what nobody reads is lost.
    #[must_use]
    pub fn needs_readers(mut self, needs_readers: bool) -> Self {
        self.needs_readers = needs_readers;
        self
    }

    /// When the writer wakes readers.
    #[must_use]
    pub fn signalling(mut self, signalling: Signalling) -> Self {
        self.signalling = signalling;
        self
    }

    /// How much of a ring of descriptors the writer uses.
    #[must_use]
    pub fn window(mut self, window: ActiveWindow) -> Self {
        self.window = window;
        self
    }

    /// Opens the ring of this name (or whose keeper's socket is at this path) for reading.
    pub fn read(&self, name: &str) -> io::Result<PipeReader> {
        let named = Named::at(name)?;
        let deadline = if self.blocking { None } else { Some(Instant::now()) };
        let reader = named.open_reader(self.contract, self.from, deadline)?;
        Ok(PipeReader::of_named(named, reader, self.blocking))
    }

    /// Opens the ring of this name (or whose keeper's socket is at this path) for writing.
    pub fn write(&self, name: &str) -> io::Result<PipeWriter> {
        // Bytes without headers are what other programs write.
        let wanted = WantedWriter { content: Some(Content::Bytes), header_bytes: 0 };
        let writer = Named::at(name)?.open_writer_of(wanted, self.signalling)?;
        let mut writer = PipeWriter::of_named(writer, self.blocking, self.needs_readers);
        writer.set_window(self.window)?;
        Ok(writer)
    }
}
