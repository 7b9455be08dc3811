//! The devices of this process's network namespace, as they come and go.

use super::error::capture_error;
use capture::CaptureError;
use driver::namespace::Namespace;
use driver::watch::Watch;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The devices that are present now.
#[derive(Debug)]
pub struct Present {
    watch: Watch,
}

impl Present {
    /// Starts with the present devices, and follows changes.
    pub fn new() -> Result<Present, CaptureError> {
        let namespace = Namespace::current()
            .map_err(|error| CaptureError::system("this process's network namespace cannot be found", &error))?;
        Ok(Present { watch: Watch::new(&namespace).map_err(capture_error)? })
    }

    /// Index and name of each device that is present now.
    pub fn look(&mut self) -> Vec<(u32, String)> {
        // A failed read is no loss: the file descriptor stays readable, and the next call reads again.
        while let Ok(Some(_)) = self.watch.next(Duration::ZERO) {}
        self.watch.links().map(|link| (link.index, link.name.clone())).collect()
    }
}

/// Readable when something may have changed.
impl AsFd for Present {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
