//! One doorbell for all channels of an application, in each direction: a pipe, a word that says who sleeps, and a bit for each
//! channel with news.
//!
//! A pipe, not an eventfd: each side has an end of its own. Both sides of an eventfd share one file description, so that an
//! application could take `O_NONBLOCK` from it, and the driver would block in it.
//!
//! Both sides write the page. It holds hints only: what lies in a channel decides, so that a side that writes nonsense here
//! keeps news from itself and wakes the other in vain, which costs the other a system call a ring at most.
//!
//! Pairing: the ringer sets the bit, then looks at `asleep`; the sleeper sets `asleep`, then looks at the bits. All four are
//! sequentially consistent, so that one of them sees the other.

use crate::shared::segment::{Access, Mapping, Pages, Refused, Segment};
use crate::shared::words::{Shared, Words};
use base::atomic::{AtomicU64, Ordering};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Channels of one application at most.
pub const CHANNELS: usize = 1024;

const WORDS: usize = CHANNELS / 64;

/// One direction.
#[derive(Debug)]
#[repr(C, align(128))]
struct Direction {
    /// Not 0: the side that is rung sleeps, or is about to.
    asleep: AtomicU64,
    _asleep: [AtomicU64; 15],
    /// Channels with news.
    news: [AtomicU64; WORDS],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct BellWords {
    /// The application rings the driver.
    driver: Direction,
    /// The driver rings the application.
    application: Direction,
}

// SAFETY: `repr(C)`, atomics only; zero is a value.
unsafe impl Words for BellWords {}

/// What an application is handed: the page, the end to ring the driver by, the end to be rung by.
pub type Handles = [OwnedFd; 3];

/// One side's doorbells: its own, which the other side rings, and the other's.
#[derive(Debug)]
pub struct Bells {
    words: Shared<BellWords>,
    is_driver: bool,
    /// Readable after the other side rang while this one slept.
    mine: OwnedFd,
    theirs: OwnedFd,
    /// Of the driver: the ends that the application has, so that none of the driver's ends says that the other one was closed.
    _held: Option<[OwnedFd; 2]>,
}

impl Bells {
    /// The driver's side of new bells, and what the application is to be handed.
    pub fn create() -> io::Result<(Bells, Handles)> {
        let segment = Segment::create("streamline-bells", size_of::<BellWords>(), Pages::Normal)?;
        segment.seal_for_writer()?;
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let ((mine, to_driver), (from_driver, theirs)) = (pipe()?, pipe()?);
        let handles = [segment.fd().try_clone_to_owned()?, to_driver.try_clone()?, from_driver.try_clone()?];
        let held = Some([to_driver, from_driver]);
        Ok((Bells { words: Bells::words(&segment)?, is_driver: true, mine, theirs, _held: held }, handles))
    }

    /// The application's side.
    pub fn attach([page, theirs, mine]: Handles) -> Result<Bells, Refused> {
        let segment = Segment::receive(page, size_of::<BellWords>(), Access::Write)?;
        let words = Bells::words(&segment).map_err(Refused::Io)?;
        Ok(Bells { words, is_driver: false, mine, theirs, _held: None })
    }

    fn words(segment: &Segment) -> io::Result<Shared<BellWords>> {
        let mapping: std::sync::Arc<Mapping> = segment.map(0, segment.bytes(), Access::Write)?;
        Shared::in_mapping(&mapping, 0).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn sides(&self) -> (&Direction, &Direction) {
        match self.is_driver {
            true => (&self.words.driver, &self.words.application),
            false => (&self.words.application, &self.words.driver),
        }
    }

    /// Says to the other side that this channel has news, and wakes it where it sleeps. A channel number past the last is none.
    pub fn ring(&self, channel: usize) {
        let (_, theirs) = self.sides();
        let Some(word) = theirs.news.get(channel / 64) else { return };
        word.fetch_or(1 << (channel % 64), Ordering::SeqCst);
        if theirs.asleep.load(Ordering::SeqCst) != 0 {
            // Full is as good as rung.
            let _ = rustix::io::write(&self.theirs, &[1]);
        }
    }

    /// Calls `look` for each channel with news, and forgets them. News that come meanwhile are kept.
    pub fn news(&self, mut look: impl FnMut(usize)) {
        let (mine, _) = self.sides();
        for (at, word) in mine.news.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                look(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Says that this side is about to sleep on [`fd`](Self::fd). `false`: there are news, do not sleep.
    pub fn fall_asleep(&self) -> bool {
        let (mine, _) = self.sides();
        mine.asleep.store(1, Ordering::SeqCst);
        let quiet = mine.news.iter().all(|word| word.load(Ordering::SeqCst) == 0);
        if !quiet {
            mine.asleep.store(0, Ordering::Relaxed);
        }
        quiet
    }

    /// Says that this side is awake, and empties its pipe, as far as one read does.
    pub fn awake(&self) {
        let (mine, _) = self.sides();
        mine.asleep.store(0, Ordering::Relaxed);
        let _ = rustix::io::read(&self.mine, &mut [0u8; 4096]);
    }

    /// Both ends of this side: what has to stay open.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.mine.as_fd(), self.theirs.as_fd()]
    }

    /// To sleep on, by `poll`: readable once the other side rang.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mine.as_fd()
    }
}
