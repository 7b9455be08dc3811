//! A *generation*: one writer's ring, its readers, and which of them its writer knows.
//!
//! [`writing`](super::writing) and [`reading`](super::reading) decide which clients may write and read it.
//!
//! Moves of a generation's stage:
//!
//! | from | to | when |
//! |---|---|---|
//! | `Made` | `Offered` | a writer gets the segment |
//! | `Offered` | `Written` | the writer has mapped the segment, and the keeper has sealed it |
//! | `Offered`, `Written` | `Over` | the writer left or died |
//! | `Written` | `Over` | the writer goes on in a ring of another size |
//!
//! Two moves must not happen:
//!
//! - From `Over` back: a stopped writer may wake up and write. The next writer gets a new generation.
//! - Readers before `Written`: until the seal, any process that gets the segment could map it for writing.

use super::RingOptions;
use crate::control;
use crate::keeper::message::{JoinedReader, Message, WantedWriter};
use crate::keeper::policy::Peer;
use crate::ring::memory::RingMemory;
use crate::ring::retire::remove;
use crate::ring::words::{ReaderPage, RingWords};
use crate::ring::{Hold, OnFull, doorbell};
use crate::shared::lifeline::Lifeline;
use crate::shared::segment::{Access, PAGE_BYTES, Pages, Segment};
use crate::shared::words::Shared;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub(super) struct Generation {
    pub number: u32,
    pub memory: RingMemory,
    /// The keeper's own map of the words, made before the seal. The keeper does not map the rest.
    pub words: Shared<RingWords>,
    pub stage: Stage,
    /// Cut when its writer is gone.
    pub line: Lifeline,
    /// The other end of the line, until the writer has it.
    pub held: Option<OwnedFd>,
    pub hold: Hold,
    /// Its writer's declaration.
    pub written: WantedWriter,
    /// Its readers, by number.
    pub readers: BTreeMap<u32, KeptReader>,
    /// Pages of readers that left without the writer knowing yet: the writer may be asleep, waiting for one of them.
    pub gone: Vec<Shared<ReaderPage>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Made,
    Offered,
    Written,
    Over,
}

pub(super) struct KeptReader {
    pub slot: usize,
    pub segment: Segment,
    pub page: Shared<ReaderPage>,
    /// Cut when the reader is gone.
    pub line: Lifeline,
    /// The other end of the line, until the reader has it.
    pub held: Option<OwnedFd>,
    pub wanted: OnFull,
    pub peer: Peer,
}

impl Generation {
    pub(super) fn make(options: &RingOptions, number: u32) -> io::Result<Generation> {
        let memory = RingMemory::create("streamline-ring", options.geometry, options.pages, number)?;
        let words = memory.words(Access::Write)?;
        let (line, held) = Lifeline::new()?;
        Ok(Generation {
            number,
            memory,
            words,
            stage: Stage::Made,
            line,
            held: Some(held),
            hold: options.hold,
            written: WantedWriter::default(),
            readers: BTreeMap::new(),
            gone: Vec::new(),
        })
    }

    /// Tells all users that the ring is removed. Wakes a writer that waits for one of its readers.
    pub(super) fn remove(&self) {
        remove(&self.words);
        self.changed();
        let pages = self.gone.iter().chain(self.readers.values().map(|reader| &reader.page));
        pages.for_each(|page| doorbell::ring(&page.wait.0.bell));
    }

    /// Makes the writer ask for changes; wakes it if it waits for a reader.
    fn changed(&self) {
        doorbell::ring(&self.words.keeper.0.epoch);
    }

    pub(super) fn news_for(&self, told: &[u32]) -> bool {
        self.stage == Stage::Written
            && (told.len() != self.readers.len() || told.iter().any(|serial| !self.readers.contains_key(serial)))
    }

    pub(super) fn tell(&mut self, socket: &OwnedFd, told: &mut Vec<u32>) -> io::Result<()> {
        if self.stage != Stage::Written {
            return Ok(());
        }
        let mut any = false;
        let said = self.say(socket, told, &mut any);
        if any {
            // After the messages, so that a writer that sees the epoch finds them. The bells come last: a woken writer
            // that finds no message would sleep on.
            self.changed();
            self.gone.iter().for_each(|page| doorbell::ring(&page.wait.0.bell));
        }
        if told.iter().all(|serial| self.readers.contains_key(serial)) {
            self.gone.clear();
        }
        said
    }

    fn say(&self, socket: &OwnedFd, told: &mut Vec<u32>, any: &mut bool) -> io::Result<()> {
        let mut say = |message: &Message, fds: &[std::os::fd::BorrowedFd<'_>]| match control::send(socket, message, fds)
        {
            Ok(()) => {
                *any = true;
                Ok(true)
            }
            // Without room, the change waits for the next call.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        };
        let mut index = 0;
        while index < told.len() {
            if self.readers.contains_key(&told[index]) {
                index += 1;
            } else if say(&Message::Left(told[index]), &[])? {
                told.swap_remove(index);
            } else {
                break;
            }
        }
        for (serial, reader) in &self.readers {
            if told.contains(serial) {
                continue;
            }
            let page = reader.segment.read_only_fd()?;
            let hold = if reader.wanted.holds() { self.hold } else { None };
            let joined = JoinedReader { slot: reader.slot as u32, serial: *serial, contract: reader.wanted, hold };
            if !say(&Message::Joined(joined), &[page.as_fd(), reader.line.as_fd()])? {
                break;
            }
            told.push(*serial);
        }
        Ok(())
    }
}

impl KeptReader {
    pub(super) fn make(slot: usize, wanted: OnFull, peer: Peer) -> io::Result<KeptReader> {
        let segment = Segment::create("streamline-reader", PAGE_BYTES, Pages::Normal)?;
        segment.seal_for_writer()?;
        let mapping = segment.map(0, PAGE_BYTES, Access::Write)?;
        let page = Shared::in_mapping(&mapping, 0).ok_or_else(|| io::Error::other("a page holds a reader's words"))?;
        let (line, held) = Lifeline::new()?;
        Ok(KeptReader { slot, segment, page, line, held: Some(held), wanted, peer })
    }
}
