//! The wire between the two sides' doorbells: a pipe in each direction, and the page of words in a sealed segment.

use super::{BellWords, Bells};
use crate::shared::segment::{Access, Mapping, Pages, Refused, Segment};
use crate::shared::words::Shared;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The application's handles: the page, the end for ringing the driver, and the end that the driver rings.
pub type Handles = [OwnedFd; 3];

/// One side's ends of the pipes, and the page.
#[derive(Debug)]
pub(super) struct Wire {
    page: Arc<OwnedFd>,
    /// Readable after the other side rang while this one slept. Hangs up when the other side has gone.
    mine: Arc<OwnedFd>,
    theirs: Arc<OwnedFd>,
}

impl Wire {
    pub(super) fn pull(&self) {
        // A full pipe wakes the other side as well.
        let _ = rustix::io::write(&self.theirs, &[1]);
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.mine, &mut [0u8; 4096]);
    }
}

impl Bells {
    /// Makes bells: gives the driver's side, and the handles for the application.
    pub fn create() -> io::Result<(Bells, Handles)> {
        let segment = Segment::create("streamline-bells", size_of::<BellWords>(), Pages::Normal)?;
        segment.seal_for_writer()?;
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let ((mine, to_driver), (from_driver, theirs)) = (pipe()?, pipe()?);
        let handles = [segment.fd().try_clone_to_owned()?, to_driver, from_driver];
        Ok((Bells::on(segment, [mine, theirs], true)?, handles))
    }

    /// The application's side.
    pub fn attach([page, theirs, mine]: Handles) -> Result<Bells, Refused> {
        let segment = Segment::receive(page, size_of::<BellWords>(), Access::Write)?;
        Bells::on(segment, [mine, theirs], false).map_err(Refused::Io)
    }

    /// The driver's side in place of a driver that ended, with its [handles](Self::handles).
    ///
    /// # Errors
    ///
    /// If the handles are not those of doorbells.
    pub fn restore([page, mine, theirs]: Handles) -> Result<Bells, Refused> {
        let segment = Segment::receive(page, size_of::<BellWords>(), Access::Write)?;
        Bells::on(segment, [mine, theirs], true).map_err(Refused::Io)
    }

    fn on(segment: Segment, [mine, theirs]: [OwnedFd; 2], is_driver: bool) -> io::Result<Bells> {
        let words = words(&segment)?;
        let [page, mine, theirs] = [segment.into_fd(), mine, theirs].map(Arc::new);
        Ok(Bells { words, is_driver, wire: Wire { page, mine, theirs } })
    }

    /// The page, this side's end, and the other side's end: keep these open. A process that has the page proves with it
    /// that the channels are its own.
    pub fn handles(&self) -> [&Arc<OwnedFd>; 3] {
        [&self.wire.page, &self.wire.mine, &self.wire.theirs]
    }

    /// For sleeping with `poll`: readable once the other side rang. Hangs up once no process has the other side.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wire.mine.as_fd()
    }
}

fn words(segment: &Segment) -> io::Result<Shared<BellWords>> {
    let mapping: Arc<Mapping> = segment.map(0, segment.bytes(), Access::Write)?;
    Shared::in_mapping(&mapping, 0).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
