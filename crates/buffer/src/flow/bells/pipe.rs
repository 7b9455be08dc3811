//! The wire between the two sides' doorbells: a pipe in each direction, and the page of the words in a sealed segment.

use super::{BellWords, Bells};
use crate::shared::segment::{Access, Mapping, Pages, Refused, Segment};
use crate::shared::words::Shared;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What an application is handed: the page, the end to ring the driver by, the end to be rung by.
pub type Handles = [OwnedFd; 3];

/// One side's ends.
#[derive(Debug)]
pub(super) struct Wire {
    /// Readable after the other side rang while this one slept.
    mine: OwnedFd,
    theirs: OwnedFd,
    /// Of the driver: the ends that the application has, so that none of the driver's ends says that the other one was closed.
    _held: Option<[OwnedFd; 2]>,
}

impl Wire {
    pub(super) fn pull(&self) {
        // Full is as good as rung.
        let _ = rustix::io::write(&self.theirs, &[1]);
    }

    /// Empties the pipe, as far as one read does.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.mine, &mut [0u8; 4096]);
    }
}

impl Bells {
    /// The driver's side of new bells, and what the application is to be handed.
    pub fn create() -> io::Result<(Bells, Handles)> {
        let segment = Segment::create("streamline-bells", size_of::<BellWords>(), Pages::Normal)?;
        segment.seal_for_writer()?;
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let ((mine, to_driver), (from_driver, theirs)) = (pipe()?, pipe()?);
        let handles = [segment.fd().try_clone_to_owned()?, to_driver.try_clone()?, from_driver.try_clone()?];
        let wire = Wire { mine, theirs, _held: Some([to_driver, from_driver]) };
        Ok((Bells { words: words(&segment)?, is_driver: true, wire }, handles))
    }

    /// The application's side.
    pub fn attach([page, theirs, mine]: Handles) -> Result<Bells, Refused> {
        let segment = Segment::receive(page, size_of::<BellWords>(), Access::Write)?;
        let words = words(&segment).map_err(Refused::Io)?;
        Ok(Bells { words, is_driver: false, wire: Wire { mine, theirs, _held: None } })
    }

    /// Both ends of this side: what has to stay open.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.wire.mine.as_fd(), self.wire.theirs.as_fd()]
    }

    /// To sleep on, by `poll`: readable once the other side rang.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wire.mine.as_fd()
    }
}

fn words(segment: &Segment) -> io::Result<Shared<BellWords>> {
    let mapping: Arc<Mapping> = segment.map(0, segment.bytes(), Access::Write)?;
    Shared::in_mapping(&mapping, 0).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
