//! A ring at a path, with its keeper in a thread of this process.

use buffer::keeper::server::{Keeper, RingOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A ring and its keeper. Dropping it ends the keeper, which removes the ring.
pub(crate) struct KeptRing {
    path: PathBuf,
    asks: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl KeptRing {
    /// Makes the ring, owned by this process for the policy.
    pub(crate) fn make(path: PathBuf, options: RingOptions) -> io::Result<KeptRing> {
        let mut keeper = Keeper::create(&path, options)?;
        keeper.set_owner_process(std::process::id() as i32);
        let (asked, asks) = io::pipe()?;
        let thread = std::thread::Builder::new().name("ring-keeper".into()).spawn(move || {
            // The keeper ends when the ring is removed. If it fails, the ring still serves those that have opened
            // it.
            let _ = keeper.run_until(asked.as_fd());
        })?;
        Ok(KeptRing { path, asks: Some(asks.into()), thread: Some(thread) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for KeptRing {
    fn drop(&mut self) {
        drop(self.asks.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already reported its panic.
            let _ = thread.join();
        }
    }
}
