//! The thread behind a pollable descriptor, and its end. What it does is said in [`watch`](super::watch).

use super::watch::{Event, Waits, Watcher};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A watcher and the thread that runs it, which ends with this.
pub(super) struct Watching<E: Event, W: Waits> {
    watcher: Arc<Watcher<E, W>>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread. A child that was forked has not, nor may the watcher's lock be free there.
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
            // Neither can it be waited for here, nor let go of.
            std::mem::forget(thread);
            return;
        }
        self.watcher.close();
        // It panics nowhere; were it so, there would be nothing left of it to end.
        let _ = thread.join();
    }
}
