//! The thread behind a pollable descriptor, and its end. [`watch`](super::watch) describes its work.

use super::watch::{Event, Waits, Watcher};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A watcher and the thread that runs it. Dropping this ends the thread.
pub(super) struct Watching<E: Event, W: Waits> {
    watcher: Arc<Watcher<E, W>>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. In a forked child it is missing, and the watcher's lock may be held for ever.
    process: u32,
}

impl<E: Event + Send + Sync + 'static, W: Waits + Send + Sync + 'static> Watching<E, W> {
    pub fn new(name: &str, event: E) -> io::Result<Watching<E, W>> {
        let watcher = Arc::new(Watcher::new(event));
        let of_thread = Arc::clone(&watcher);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || of_thread.run())?;
        Ok(Watching { watcher, thread: Some(thread), process: std::process::id() })
    }
}

impl<E: Event, W: Waits> std::ops::Deref for Watching<E, W> {
    type Target = Watcher<E, W>;

    fn deref(&self) -> &Watcher<E, W> {
        &self.watcher
    }
}

impl<E: Event, W: Waits> Drop for Watching<E, W> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.process != std::process::id() {
            // The thread does not exist in this process: it cannot be joined or detached here.
            std::mem::forget(thread);
            return;
        }
        self.watcher.close();
        // The thread does not panic; if it did, it would have ended.
        let _ = thread.join();
    }
}
