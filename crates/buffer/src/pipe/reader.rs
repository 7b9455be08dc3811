//! The reading end of a pipe.
//!
//! A read takes at most one block; a shorter read leaves the rest of the block for the next one. A peek shows in place
//! what the next read would give. [`PipeReader::release`] takes a peeked block, [`PipeReader::forward`] passes it on. A
//! reader that does not hold the ring may be overtaken: `release` reports that, and `read` goes on with later blocks.

use super::foreign::Foreign;
use super::local::Local;
use super::origin::{Origin, PATIENCE};
use super::outstanding::Outstanding;
use super::poll::{Due, Poller};
use super::watch::reading::{Reading, Watch};
use crate::descriptor::Descriptor;
use crate::keeper::client::{Named, NamedReader};
use crate::keeper::message::WantedWriter;
use crate::ring::layout::Layout;
use crate::ring::sleeper::Sleeper;
use crate::ring::{Nothing, OnFull, Reader, ReaderCounters, RingKind, Seen};
use crate::shared::futex::wait_any;
use crate::shared::lifeline;
use crate::shared::payload::SharedBytes;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) enum Source {
    Named(Box<NamedReader>, Named),
    Local(Box<Reader>, Local),
}

impl Source {
    pub fn reader(&mut self) -> &mut Reader {
        match self {
            Source::Named(named, _) => named.reader(),
            Source::Local(reader, _) => reader,
        }
    }

    pub fn reader_ref(&self) -> &Reader {
        match self {
            Source::Named(named, _) => named.reader_ref(),
            Source::Local(reader, _) => reader,
        }
    }

    fn hidden(&self) -> u32 {
        match self {
            Source::Named(named, _) => named.written().header_bytes,
            Source::Local(..) => 0,
        }
    }

    /// The ring itself, for naming it in other rings.
    fn origin(&self) -> Origin {
        match self {
            Source::Named(reader, named) => Origin::named(named.clone(), reader.generation()),
            Source::Local(_, local) => local.origin(),
        }
    }

    /// The ring that its descriptors mean by number `ring`.
    pub fn whereabouts(&mut self, ring: u16) -> io::Result<Origin> {
        match self {
            Source::Named(reader, _) => {
                let (named, generation) = reader.whereabouts(ring, Some(Instant::now() + PATIENCE))?;
                Ok(Origin::named(named, generation))
            }
            Source::Local(_, local) => local.whereabouts(ring),
        }
    }
}

/// What a peek showed: a block or the unread rest of one; in a stream, all bytes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub(super) seen: Seen,
    pub(super) offset: u32,
    pub(super) len: u32,
}

impl Block {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Only its first `len` bytes; the rest stays for later calls.
    #[must_use]
    pub fn first(self, len: usize) -> Block {
        Block { len: self.len.min(u32::try_from(len).unwrap_or(u32::MAX)), ..self }
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> Descriptor {
        if self.is_whole() { self.seen.block } else { self.seen.block.part(self.offset, self.len) }
    }

    /// Whether its bytes lie in another ring.
    pub fn is_elsewhere(&self) -> bool {
        self.seen.elsewhere
    }

    /// The unit of the ring at which it begins; the rest of a block has the block's unit.
    pub fn position(&self) -> u64 {
        self.seen.position
    }

    /// Whether it is the whole block, as it was written.
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.len == self.seen.block.len
    }
}

/// How a ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its writer closed it, and there will be no other writer.
    Closed,
    /// Its writer died: blocks that it had not published are missing.
    WriterDied,
    /// It was removed.
    Removed,
    /// Its writer closed it and its keeper died, so that there will be no other writer.
    Unkept,
}

/// Counts of a reader, and facts about its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderStat {
    /// Kind of the ring.
    pub kind: RingKind,
    /// Longest block in bytes; for a stream, bytes of the ring.
    pub block_bytes: u64,
    /// Units of the ring: blocks, if the ring has descriptors.
    pub units: u64,
    /// Generation of a named ring; 0 for others.
    pub generation: u32,
    /// The contract in force.
    pub contract: OnFull,
    /// The ring's own counters.
    pub ring: ReaderCounters,
    /// Forwarded blocks that their readers have not passed yet.
    pub outstanding: usize,
    /// Rings fetched because a block lay in them.
    pub faults: u64,
    /// Blocks whose bytes were refused, or whose ring was not found.
    pub refused: u64,
    /// Writers of this ring that died, up to the place reached.
    pub writers_died: u64,
    /// Blocks in other rings that were overwritten while they were read.
    pub lost_elsewhere: u64,
}

/// The reading end of a pipe.
#[derive(Debug)]
pub struct PipeReader {
    pub(super) source: Source,
    pub(super) origin: Origin,
    pub(super) blocking: bool,
    hidden: u32,
    /// The unit read last; its bytes that were read or are hidden; and how many rings an interrupted tee has served.
    at: u64,
    offset: u32,
    pub(super) given: usize,
    pub(super) foreign: Foreign,
    pub(super) outstanding: Vec<Outstanding>,
    poller: Option<Poller>,
    /// Time of the last check whether the writer lives, made while the ring was empty.
    looked: Option<Instant>,
    ended: Option<End>,
    /// Whether the death of this generation's writer was counted.
    is_bereft: bool,
    writers_died: u64,
    refused: u64,
    lost_elsewhere: u64,
}

pub(super) fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

pub(super) fn overtaken() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

impl PipeReader {
    /// Wraps a reader that was opened in another way; its calls wait.
    pub fn new(named: Named, reader: NamedReader) -> PipeReader {
        PipeReader::of_named(named, reader, true)
    }

    pub(super) fn of_named(named: Named, reader: NamedReader, blocking: bool) -> PipeReader {
        PipeReader::of(Source::Named(Box::new(reader), named), blocking)
    }

    pub(super) fn of_local(local: Local, reader: Reader) -> PipeReader {
        PipeReader::of(Source::Local(Box::new(reader), local), true)
    }

    fn of(source: Source, blocking: bool) -> PipeReader {
        let hidden = source.hidden();
        PipeReader {
            origin: source.origin(),
            source,
            blocking,
            hidden,
            at: 0,
            offset: hidden,
            given: 0,
            foreign: Foreign::default(),
            outstanding: Vec::new(),
            poller: None,
            looked: None,
            ended: None,
            is_bereft: false,
            writers_died: 0,
            refused: 0,
            lost_elsewhere: 0,
        }
    }

    /// Makes calls that would wait fail with [`io::ErrorKind::WouldBlock`] from now on, or wait.
    pub fn set_non_blocking(&mut self, non_blocking: bool) {
        self.blocking = !non_blocking;
    }

    /// Another reader of the same ring with the same contract, from the next block on; it gets every block too. While
    /// the ring has no writer, this waits for one if it may.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        let contract = self.source.reader_ref().contract();
        let mut clone = match &self.source {
            Source::Named(_, named) => {
                let deadline = if self.blocking { None } else { Some(Instant::now()) };
                let reader = named.open_reader(contract, crate::ring::From::Next, deadline)?;
                PipeReader::of_named(named.clone(), reader, self.blocking)
            }
            Source::Local(_, local) => local.reader(contract, None, crate::ring::From::Next)?,
        };
        clone.blocking = self.blocking;
        Ok(clone)
    }

    /// How the ring ended; `None` before everything was read.
    pub fn end(&self) -> Option<End> {
        self.ended
    }

    /// Whether the ring's keeper is still there. Without it the ring goes on for as long as its writer lives.
    pub fn is_kept(&self) -> bool {
        match &self.source {
            Source::Named(named, _) => named.is_kept(),
            Source::Local(..) => true,
        }
    }

    /// Tells the writer what was taken. That happens by itself at each eighth of the ring, and before waiting. For a
    /// caller that is about to do something long.
    pub fn tell(&mut self) {
        self.source.reader().tell();
    }

    /// The counts so far.
    pub fn stat(&self) -> ReaderStat {
        let reader = self.source.reader_ref();
        ReaderStat {
            kind: reader.layout().kind(),
            block_bytes: reader.layout().block_bytes(),
            units: reader.layout().units(),
            generation: match &self.source {
                Source::Named(reader, _) => reader.generation(),
                Source::Local(..) => 0,
            },
            contract: reader.contract(),
            ring: reader.counters(),
            outstanding: self.outstanding.iter().map(Outstanding::len).sum(),
            faults: self.foreign.faults,
            refused: self.refused,
            writers_died: self.writers_died,
            lost_elsewhere: self.lost_elsewhere,
        }
    }

    /// Shows in place what the next read would give: the same again until it is taken, forwarded or read. `None`: the
    /// ring has ended and everything was read. Waits where it may.
    pub fn peek(&mut self) -> io::Result<Option<Block>> {
        let block = self.peek_unsettled();
        if block.is_err() {
            self.settle();
        }
        block
    }

    fn peek_unsettled(&mut self) -> io::Result<Option<Block>> {
        let seen = self.look(self.blocking)?;
        Ok(seen.map(|seen| Block { seen, offset: self.offset, len: seen.block.len - self.offset }))
    }

    /// The bytes of the last peeked block, not copied. Fetches the ring in which they lie from its keeper, once. Fails
    /// with [`io::ErrorKind::PermissionDenied`] where this process may not read that ring.
    pub fn look_at(&mut self, block: &Block) -> io::Result<SharedBytes<'_>> {
        let (pos, len) = (block.seen.block.pos.wrapping_add(u64::from(block.offset)), u64::from(block.len));
        if !block.seen.elsewhere {
            return Ok(self.source.reader_ref().payload().at(pos, len));
        }
        let source = &mut self.source;
        let map = self.foreign.map(&block.seen.block, |ring| source.whereabouts(ring))?;
        if !map.payload_intact(pos, len) {
            return Err(overtaken());
        }
        Ok(map.payload.at(pos, len))
    }

    /// Whether no part of the block is overwritten so far. If so, everything read of it before is good.
    pub fn is_intact(&self, block: &Block) -> bool {
        self.source.reader_ref().intact(&block.seen) && self.is_intact_elsewhere(block)
    }

    fn is_intact_elsewhere(&self, block: &Block) -> bool {
        let pos = block.seen.block.pos.wrapping_add(u64::from(block.offset));
        !block.seen.elsewhere
            || self.foreign.mapped(&block.seen.block).is_none_or(|map| map.payload_intact(pos, u64::from(block.len)))
    }

    /// Takes the peeked block: the writer may overwrite it. Fails with ESTALE where it already has, and with EINVAL
    /// where `block` is not the last peeked one.
    pub fn release(&mut self, block: &Block) -> io::Result<()> {
        self.check(block)?;
        let whole = self.go_past(block);
        self.settle();
        if whole { Ok(()) } else { Err(overtaken()) }
    }

    /// Skips a peeked block that could not be read. It counts as refused where its ring could not be fetched.
    pub fn skip(&mut self, block: &Block) -> io::Result<()> {
        self.check(block)?;
        self.refused += u64::from(block.seen.elsewhere && self.foreign.mapped(&block.seen.block).is_none());
        self.go_past(block);
        self.settle();
        Ok(())
    }

    pub(super) fn check(&self, block: &Block) -> io::Result<()> {
        let same = block.seen.position == self.at && block.offset == self.offset;
        let there = self.source.reader_ref().cursor() == block.seen.position;
        if same && there { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
    }

    /// Goes on after these bytes; says whether they were intact so far.
    pub(super) fn go_past(&mut self, block: &Block) -> bool {
        let whole_elsewhere = self.is_intact_elsewhere(block);
        self.lost_elsewhere += u64::from(!whole_elsewhere);
        self.given = 0;
        let reader = self.source.reader();
        let whole = if reader.layout().kind() == RingKind::C {
            let seen = reader.first(block.seen, block.len);
            reader.go_past(&seen).is_ok()
        } else if whole_elsewhere && block.offset + block.len < block.seen.block.len {
            self.offset += block.len;
            reader.intact(&block.seen)
        } else {
            self.offset = self.hidden;
            reader.go_past(&block.seen).is_ok()
        };
        self.pass();
        whole && whole_elsewhere
    }

    /// Gives the writer the blocks that were taken and that no forwarded ring needs.
    pub(super) fn pass(&mut self) {
        let first = self.outstanding.iter().filter_map(Outstanding::first).min();
        let reader = self.source.reader();
        reader.pass(first.unwrap_or(u64::MAX));
    }

    fn look(&mut self, wait: bool) -> io::Result<Option<Seen>> {
        while self.ended.is_none() {
            self.pass_outstanding();
            match self.source.reader().peek() {
                Ok(seen) => {
                    if seen.position != self.at || self.offset > seen.block.len {
                        (self.at, self.offset, self.given) = (seen.position, self.hidden.min(seen.block.len), 0);
                    }
                    return Ok(Some(seen));
                }
                Err(Nothing::Damaged) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the ring's writer published values that make no sense: it is broken or hostile",
                    ));
                }
                Err(Nothing::Yet) if !wait && self.misses_writer() => continue,
                Err(Nothing::Yet) => {}
                Err(Nothing::Removed) => self.ended = Some(End::Removed),
                Err(nothing @ (Nothing::Ended | Nothing::Moved | Nothing::Retired)) => {
                    if self.next_generation(nothing, wait)? {
                        continue;
                    }
                }
            }
            if self.ended.is_some() {
                break;
            }
            if !wait {
                return Err(would_block());
            }
            self.sleep()?;
        }
        Ok(None)
    }

    /// Checks now and then whether the writer is gone although nothing says so; says whether this check found it.
    fn misses_writer(&mut self) -> bool {
        // A poller may have been woken for that.
        let due = self.poller.is_some() || self.looked.is_none_or(|looked| looked.elapsed() >= lifeline::LOOK);
        if due {
            self.looked = Some(Instant::now());
        }
        due && self.source.reader().look_after_writer()
    }

    /// Goes on with the ring's next generation, or notes the end if there will be none.
    fn next_generation(&mut self, nothing: Nothing, wait: bool) -> io::Result<bool> {
        // While readers elsewhere use this generation's forwarded blocks, its keeper must keep it.
        if !self.outstanding.is_empty() {
            return Ok(false);
        }
        let died = nothing == Nothing::Retired;
        if died && !std::mem::replace(&mut self.is_bereft, true) {
            self.writers_died += 1;
        }
        let end = if died { End::WriterDied } else { End::Closed };
        let Source::Named(named, _) = &mut self.source else {
            self.ended = Some(end);
            return Ok(false);
        };
        let wait = wait && self.poller.is_none();
        match named.next_generation(if wait { None } else { Some(Instant::now()) }) {
            Ok(true) => {
                self.hidden = self.source.hidden();
                (self.at, self.offset, self.given) = (0, self.hidden, 0);
                self.is_bereft = false;
                self.origin = self.source.origin();
                self.foreign.forgive();
                Ok(true)
            }
            Ok(false) => {
                let is_removed = self.source.reader_ref().is_removed();
                self.ended = Some(if is_removed && !died { End::Removed } else { end });
                Ok(false)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => Ok(false),
            // Only an answered question shows whether there will be more. An unanswered one does not prove the end.
            Err(error)
                if error.kind() == io::ErrorKind::NotConnected && nothing == Nothing::Ended && !named.is_asking() =>
            {
                self.ended = Some(End::Unkept);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn sleep(&mut self) -> io::Result<()> {
        if self.poller.is_some() {
            self.settle();
            return self.poller.as_ref().map_or(Ok(()), Poller::wait);
        }
        if self.outstanding.is_empty() {
            // Short waits are woken by the ring's bell alone.
            let longest = matches!(self.source, Source::Named(..)).then(|| Instant::now() + lifeline::LOOK);
            if self.source.reader().wait(longest) == Err(Nothing::Yet) {
                self.sleep_long()?;
            }
            return Ok(());
        }
        // Tell the writer what was taken: it may be waiting for it.
        self.source.reader().tell();
        let reader = self.source.reader_ref();
        // When nothing more comes here, only readers of forwarded blocks are left to wait for.
        let sleeper = (!reader.is_done()).then(|| reader.sleeper());
        let began = Instant::now();
        self.sleep_for_outputs(sleeper.as_ref());
        if began.elapsed() >= lifeline::LOOK {
            self.source.reader().look_after_writer();
        }
        Ok(())
    }

    /// Sleeps until there is something to read or the writer is gone, however long that takes. That works even if the
    /// keeper died first and no bell rings. A thread sleeps on the bell meanwhile, which saves regular checks.
    fn sleep_long(&mut self) -> io::Result<()> {
        self.poller = Some(Poller::new()?);
        self.settle();
        let waited = self.poller.as_ref().map_or(Ok(()), Poller::wait);
        self.poller = None;
        self.source.reader().look_after_writer();
        waited
    }

    /// Sleeps until a reader of forwarded blocks has moved, or this ring's bell rings.
    fn sleep_for_outputs(&self, sleeper: Option<&Sleeper>) {
        let fronts: Vec<_> = self.outstanding.iter().filter_map(Outstanding::front).collect();
        let watch = Watch::new(&fronts);
        if !watch.is_due() {
            match sleeper {
                Some(sleeper) => {
                    let longest = Instant::now() + lifeline::LOOK;
                    sleeper.sleep(&watch.words(), Some(watch.deadline().map_or(longest, |until| until.min(longest))));
                }
                None => wait_any(&watch.words(), watch.deadline()),
            }
        }
    }

    /// A file descriptor that is readable when there is something to read, or the end. It belongs to this reader. A
    /// thread feeds it and sleeps as long as nothing happens. It may also become readable when only forwarded blocks
    /// have been read: then a non-blocking peek says EAGAIN and corrects the descriptor.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        if self.poller.is_none() {
            self.poller = Some(Poller::new()?);
        }
        self.settle();
        match &self.poller {
            Some(poller) => Ok(poller.fd()),
            None => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Closes the descriptor and saves its cost at each call.
    pub fn close_poll_fd(&mut self) {
        self.poller = None;
    }

    pub(super) fn settle(&mut self) {
        if self.poller.is_none() {
            return;
        }
        let blocked = matches!(self.look(false), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        let (source, outstanding) = (&self.source, &self.outstanding);
        let Some(poller) = &mut self.poller else { return };
        // Uses what the look found, not the state by now: a ring that ended since then wakes sleepers on its bell.
        let is_over = source.reader_ref().is_done();
        poller.set(match source {
            _ if !blocked => Due::Now,
            Source::Named(named, _) if is_over && outstanding.is_empty() && named.is_asking() => {
                Due::Answer(named.answer_fd())
            }
            _ => {
                let fronts = outstanding.iter().filter_map(Outstanding::front).collect();
                let watched = Reading { sleeper: source.reader_ref().sleeper(), is_over, fronts };
                Due::Later(watched, source.reader_ref().line().filter(|_| !is_over).cloned())
            }
        });
    }

    /// Waits until readers elsewhere have passed every forwarded block. If this reader is dropped afterwards, none of
    /// them is overwritten unread. Fails with EAGAIN where it may not wait.
    pub fn drain(&mut self) -> io::Result<()> {
        loop {
            self.pass_outstanding();
            self.source.reader().tell();
            if self.outstanding.is_empty() {
                return Ok(());
            }
            if !self.blocking {
                return Err(would_block());
            }
            self.sleep_for_outputs(None);
        }
    }

    /// Waits until there is something to read, or the end, at most for `timeout`; says whether there is.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let outcome = self.wait_unsettled(timeout);
        self.settle();
        outcome
    }

    fn wait_unsettled(&mut self, timeout: Duration) -> io::Result<bool> {
        // A deadline beyond the clock's range is no limit.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            match self.look(false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.map(|_| true),
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            if self.poller.is_none() && self.outstanding.is_empty() && !self.source.reader_ref().is_done() {
                let longest = Instant::now() + left.unwrap_or(lifeline::LOOK).min(lifeline::LOOK);
                // Ignores the result: the next look tells.
                let _ = self.source.reader().wait(Some(longest));
                continue;
            }
            self.poll_fd()?;
            self.settle();
            if let Some(poller) = &self.poller {
                poller.wait_for(left)?;
            }
        }
    }

    /// Copies whole blocks to the end of `to` while there are any and `to` has less than `most` bytes; from a stream,
    /// as many bytes. `false` at the end. Waits for the first block where it may. Blocks that may not be read or were
    /// overwritten are left out and counted. The writer is told what was taken.
    pub fn copy_blocks_to(&mut self, to: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        let outcome = self.copy_unsettled(to, most);
        self.source.reader().tell();
        self.settle();
        outcome
    }

    /// Tiers: [`copy_own`](PipeReader::copy_own) copies blocks of this ring in a loop. This function does the first
    /// block, blocks of other rings, and the step to the next generation.
    fn copy_unsettled(&mut self, to: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        let mut any = false;
        while to.len() < most {
            let seen = match self.look(self.blocking && !any) {
                Ok(Some(seen)) => seen,
                Ok(None) => return Ok(any),
                Err(error) => return if any { Ok(true) } else { Err(error) },
            };
            any = true;
            if self.hidden == 0 && self.offset == 0 && self.outstanding.is_empty() && self.copy_own(to, most) {
                continue;
            }
            let block = Block { seen, offset: self.offset, len: seen.block.len - self.offset };
            let block = if self.source.reader_ref().layout().kind() == RingKind::C {
                block.first(most - to.len())
            } else {
                block
            };
            let at = to.len();
            match self.look_at(&block) {
                Ok(bytes) => {
                    to.resize(at + bytes.len(), 0);
                    bytes.copy_to(&mut to[at..]);
                    if !self.go_past(&block) {
                        to.truncate(at);
                    }
                }
                Err(_) => self.skip(&block)?,
            }
        }
        Ok(true)
    }

    /// Copies blocks of this ring that are not needed elsewhere; says whether there was one.
    fn copy_own(&mut self, to: &mut Vec<u8>, most: usize) -> bool {
        let reader = self.source.reader();
        let is_stream = reader.layout().kind() == RingKind::C;
        let mut any = false;
        while to.len() < most {
            let at = to.len();
            let Ok(seen) = reader.peek() else { break };
            if seen.elsewhere {
                break;
            }
            any = true;
            let seen = if is_stream { reader.first(seen, u32::try_from(most - at).unwrap_or(u32::MAX)) } else { seen };
            let bytes = reader.bytes(&seen);
            to.resize(at + bytes.len(), 0);
            bytes.copy_to(&mut to[at..]);
            if reader.take(&seen).is_err() {
                // Overwritten while it was copied; it counts as lost.
                to.truncate(at);
            }
        }
        any
    }

    /// The declaration of the writer of the present generation.
    pub fn written(&self) -> WantedWriter {
        match &self.source {
            Source::Named(named, _) => named.written(),
            Source::Local(..) => WantedWriter::default(),
        }
    }

    /// Takes up to `most` whole blocks of this ring with their headers, without waiting. `look` sees each block in
    /// place; `taken` gets its result once the block is known to be intact. Returns the number of blocks seen by
    /// `look`, including overwritten ones, which are counted. Returns 0 at the end, where there is no block, and before
    /// a block of another ring or the rest of a block: then use another call.
    pub fn take_each<S, T>(
        &mut self,
        most: usize,
        state: &mut S,
        mut look: impl FnMut(&mut S, &Descriptor, SharedBytes<'_>) -> T,
        mut taken: impl FnMut(&mut S, T),
    ) -> usize {
        if self.offset > self.hidden || !self.outstanding.is_empty() {
            return 0;
        }
        let reader = self.source.reader();
        let mut looks = 0;
        while looks < most {
            let Ok(seen) = reader.peek() else { break };
            if seen.elsewhere || reader.layout().kind() == RingKind::C {
                break;
            }
            let made = look(state, &seen.block, reader.bytes(&seen));
            if reader.take(&seen).is_ok() {
                taken(state, made);
            }
            looks += 1;
        }
        if looks > 0 {
            self.settle();
        }
        looks
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(block) = self.peek_unsettled()? else { return Ok(0) };
            if block.is_empty() {
                // 0 bytes would mean the end.
                self.go_past(&block);
                continue;
            }
            let part = block.first(buffer.len());
            match self.look_at(&part).map(|bytes| bytes.copy_to(buffer)) {
                Ok(len) => {
                    if self.go_past(&part) {
                        return Ok(len);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                    self.go_past(&block);
                }
                Err(error) => {
                    self.refused += 1;
                    self.go_past(&block);
                    return Err(error);
                }
            }
        }
    }
}

impl io::Read for PipeReader {
    /// Reads at most one block, or the rest of one; in a stream, the bytes there are. A block that may not be read is
    /// an error, and the next read goes on after it.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.read_some(buffer);
        self.settle();
        read
    }
}
