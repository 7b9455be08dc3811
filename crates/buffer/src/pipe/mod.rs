//! Rings used like pipes: open, read, write, peek, forward, poll, close, stat, tee.
//!
//! Like a pipe:
//!
//! - A reader of an ended ring gets 0 bytes.
//! - A writer that all readers have left gets EPIPE (`BrokenPipe` in Rust).
//! - A call that would have to wait, but may not, gets EAGAIN (`WouldBlock` in Rust).
//!
//! Unlike a pipe:
//!
//! - Each reader gets everything.
//! - A reader may look at a block in place ([`PipeReader::peek`]) and give it to another ring without copying its bytes
//!   ([`PipeReader::forward`]).
//! - A ring may go on with another writer or in another size. Its readers follow by themselves and lose nothing.
//!
//! - [`reader`] — reads, peeks, takes. Start reading here.
//! - [`writer`] — writes, and accepts forwarded blocks.
//! - [`forward`] — passes blocks from one ring to others; which side waits for which.
//! - [`foreign`] — the buffer fault: fetches the ring in which a descriptor's bytes lie; [`origin`] names such a ring.
//! - [`poll`] — a file descriptor for poll(2) and epoll(7) that is ready when there is something to read.
//! - `room` — the same for room to write.
//! - [`watch`] — the work of the threads behind both; `thread` ends them.
//! - [`local`] — rings within this process, without a keeper's socket.
//!
//! For the fewest instructions per block use [`ring`](crate::ring) itself; for C see the crate `capi`.

pub mod foreign;
pub mod forward;
pub mod local;
pub mod origin;
mod outstanding;
pub mod poll;
pub mod reader;
mod room;
mod sink;
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

/// Options for opening a named ring.
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
    /// A reader with contract Wait, from the next block on; a writer that needs readers; calls that wait.
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
    /// Same as [`OpenOptions::default`].
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets what the ring does when this reader is a whole ring behind.
    #[must_use]
    pub fn contract(mut self, contract: OnFull) -> Self {
        self.contract = contract;
        self
    }

    /// Sets where this reader begins.
    #[must_use]
    pub fn from(mut self, from: From) -> Self {
        self.from = from;
        self
    }

    /// Makes calls that would wait fail with [`io::ErrorKind::WouldBlock`]. Opening a reader waits for a writer if this
    /// is not set, and fails in the same way if it is.
    #[must_use]
    pub fn non_blocking(mut self, non_blocking: bool) -> Self {
        self.blocking = !non_blocking;
        self
    }

    /// Makes a write wait for the first reader and fail when all readers have left, as in a pipe. Otherwise blocks
    /// without a reader are lost.
    #[must_use]
    pub fn needs_readers(mut self, needs_readers: bool) -> Self {
        self.needs_readers = needs_readers;
        self
    }

    /// Sets when the writer wakes readers.
    #[must_use]
    pub fn signalling(mut self, signalling: Signalling) -> Self {
        self.signalling = signalling;
        self
    }

    /// Sets how much of the payload the writer uses, in a ring of descriptors.
    #[must_use]
    pub fn window(mut self, window: ActiveWindow) -> Self {
        self.window = window;
        self
    }

    /// Opens the ring with this name (or with its keeper's socket at this path) for reading.
    pub fn read(&self, name: &str) -> io::Result<PipeReader> {
        let named = Named::at(name)?;
        let deadline = if self.blocking { None } else { Some(Instant::now()) };
        let reader = named.open_reader(self.contract, self.from, deadline)?;
        Ok(PipeReader::of_named(named, reader, self.blocking))
    }

    /// Opens the ring with this name (or with its keeper's socket at this path) for writing.
    pub fn write(&self, name: &str) -> io::Result<PipeWriter> {
        // Other programs write bytes without headers.
        let wanted = WantedWriter { content: Some(Content::Bytes), header_bytes: 0 };
        let writer = Named::at(name)?.open_writer_of(wanted, self.signalling)?;
        let mut writer = PipeWriter::of_named(writer, self.blocking, self.needs_readers);
        writer.set_window(self.window)?;
        Ok(writer)
    }
}
