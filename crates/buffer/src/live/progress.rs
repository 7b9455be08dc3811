//! A page in which the reader of a live ring publishes how far it is, so that other processes see what it has lost.
//!
//! Not part of the protocol: writers and other readers do not rely on this page, and its numbers are only shown to
//! people. The loss follows from this page and the ring's own counts, also while the reader is stopped and cannot
//! answer. Next to read: `LiveReader` in [`reader`](super::reader).

use super::memory::LiveMemory;
use super::reader::{LiveReader, Look};
use crate::shared::segment::{Access, Mapping, PAGE_BYTES, Pages, Segment};
use crate::shared::words::{Shared, Words};
use base::atomic::{AtomicU64, Ordering};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

#[derive(Debug)]
#[repr(C)]
struct Page {
    next: AtomicU64,
    /// Packets reached so far, minus those matched by expressions that are no longer in force.
    settled: AtomicU64,
    overtaken: AtomicU64,
}

// SAFETY: repr(C), atomics only, and all bytes zero is a value.
unsafe impl Words for Page {}

/// A reader's page, mapped by either side.
#[derive(Clone, Debug)]
pub struct Progress(Shared<Page>);

impl Progress {
    /// Makes a page: gives this side's map, and the file descriptor with which the reader writes to it.
    pub fn create() -> io::Result<(Progress, OwnedFd)> {
        let segment = Segment::create("live-reader", PAGE_BYTES, Pages::Normal)?;
        segment.seal_for_writer()?;
        let progress = Progress::in_mapping(&segment.map(0, PAGE_BYTES, Access::Read)?)?;
        Ok((progress, segment.fd().try_clone_to_owned()?))
    }

    /// Maps the page for its reader.
    pub fn open(fd: BorrowedFd<'_>) -> io::Result<Progress> {
        Progress::in_mapping(&Mapping::of(fd, PAGE_BYTES, Access::Write)?)
    }

    fn in_mapping(mapping: &std::sync::Arc<Mapping>) -> io::Result<Progress> {
        let page = Shared::in_mapping(mapping, 0);
        page.map(Progress).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a reader's page is too short"))
    }

    /// Publishes the reader's place: three stores to a cache line of its own.
    #[inline]
    pub fn say(&self, reader: &LiveReader, settled: u64) {
        self.0.next.store(reader.position(), Ordering::Relaxed);
        self.0.settled.store(settled, Ordering::Relaxed);
        self.0.overtaken.store(reader.overtaken(), Ordering::Relaxed);
    }

    /// How many packets the reader has lost, or has not reached and can no longer read. `matched`: packets that
    /// expression `bit` wanted since the reader came, at packet `first`. The result is at most the number of overtaken
    /// packets of all expressions, because a packet is counted a moment before it can be read. Takes time for each
    /// packet in the ring.
    pub fn lost(&self, memory: &LiveMemory, bit: u8, matched: u64, first: u64) -> u64 {
        let (next, settled) = (self.0.next.load(Ordering::Relaxed), self.0.settled.load(Ordering::Relaxed));
        let next = next.max(first);
        let head = memory.next();
        let mut ahead = LiveReader::new(memory.clone(), 1 << (bit & 63));
        ahead.begin_at(next);
        let overtaken = self.0.overtaken.load(Ordering::Relaxed);
        if ahead.overtaken() == 0 && overtaken == 0 {
            return 0;
        }
        let mut waiting = 0u64;
        // Stops at the head from the beginning: writers may be as fast as this loop.
        while ahead.position() < head {
            match ahead.look() {
                Look::Packet(_) => {
                    waiting += 1;
                    ahead.advance();
                }
                Look::More => {}
                Look::Nothing => break,
            }
        }
        // The page may hold any value, and one count may be a little older than another.
        let lost = matched.wrapping_sub(settled).wrapping_sub(waiting) as i64;
        u64::try_from(lost).unwrap_or(0).min(matched).min(overtaken.saturating_add(ahead.overtaken()))
    }
}
