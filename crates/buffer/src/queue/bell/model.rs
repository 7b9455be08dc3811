//! The wire of a bell in a model: a word and a futex. It orders as much as the kernel's lock of an eventfd does: a read
//! sees everything before the write that it takes. A sleep has no time limit, so that a lost signal shows.

use crate::shared::futex;
use base::atomic::{AtomicU32, Ordering};
use std::io;

#[derive(Debug)]
pub(super) struct Wire(AtomicU32);

impl Wire {
    pub(super) fn new() -> io::Result<Wire> {
        Ok(Wire(AtomicU32::new(0)))
    }

    pub(super) fn pull(&self) {
        self.0.swap(1, Ordering::Release);
        futex::wake(&self.0);
    }

    pub(super) fn clear(&self) {
        self.0.swap(0, Ordering::Acquire);
    }

    pub(super) fn sleep(&self) {
        futex::wait(&self.0, 0, None);
    }
}
