//! A ring whose keeper is this process: between threads, and between processes that are forked from it.

use super::consumers::{Change, Membership, NewReader};
use super::contract::{Hold, OnFull, Signalling};
use super::doorbell;
use super::layout::{AnyLayout, Layout};
use super::map::RingMap;
use super::reader::{From, Parts, Reader};
use super::retire::retire;
use super::words::{READERS, ReaderPage, RingWords};
use super::writer::Writer;
use crate::shared::payload::Payload;
use crate::shared::words::Shared;
use base::atomic::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;

/// Changes that the writer has not fetched yet, and the places taken.
#[derive(Debug, Default)]
struct Members {
    changes: Vec<Change>,
    taken: u64,
    serial: u32,
}

/// What a ring's writer, its readers and its keeper share outside the shared memory.
#[derive(Debug)]
struct Kept {
    words: Shared<RingWords>,
    members: Mutex<Members>,
}

impl Kept {
    fn members(&self) -> MutexGuard<'_, Members> {
        // Nothing panics while it is locked; if something did, the list would still be whole.
        self.members.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Shows the writer that something changed; wakes it if it waits for that, or for this reader.
    fn tell_writer(&self, page: &Shared<ReaderPage>) {
        // Release: the change is in the list before the epoch says so.
        doorbell::ring(&self.words.keeper.0.epoch);
        doorbell::ring(&page.wait.0.bell);
    }
}

struct Queue(Arc<Kept>);

impl Membership for Queue {
    fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.0.members().changes)
    }
}

struct Leave {
    kept: Arc<Kept>,
    page: Shared<ReaderPage>,
    slot: usize,
    serial: u32,
}

impl Drop for Leave {
    fn drop(&mut self) {
        {
            let mut members = self.kept.members();
            members.taken &= !(1 << self.slot);
            members.changes.push(Change::Left(self.serial));
        }
        self.kept.tell_writer(&self.page);
    }
}

/// The memory of a ring, as one side has it mapped.
struct View<L> {
    words: Shared<RingWords>,
    payload: Payload,
    layout: L,
}

type TwoViews = (Shared<ReaderPage>, Shared<ReaderPage>);

/// Makes a new value at each call.
type Maker<T> = Box<dyn FnMut() -> io::Result<T> + Send>;

/// A ring kept by this process.
pub struct Ring<L: Layout = AnyLayout> {
    kept: Arc<Kept>,
    view: Maker<View<L>>,
    page: Maker<TwoViews>,
}

impl<L: Layout> std::fmt::Debug for Ring<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl<L: Layout> Ring<L> {
    /// Says that the writer died. For a ring whose writer is in a process forked from this one.
    pub fn retire(&self) {
        retire(&self.kept.words);
    }
}

impl<L: Layout + 'static> Ring<L> {
    fn with_writer(
        writer: View<L>,
        signalling: Signalling,
        view: impl FnMut() -> io::Result<View<L>> + Send + 'static,
        page: impl FnMut() -> io::Result<TwoViews> + Send + 'static,
    ) -> (Ring<L>, Writer<L>) {
        let kept = Arc::new(Kept { words: writer.words.clone(), members: Mutex::new(Members::default()) });
        let View { words, payload, layout } = writer;
        let writer = Writer::new(words, payload, layout, signalling, Box::new(Queue(Arc::clone(&kept))));
        (Ring { kept, view: Box::new(view), page: Box::new(page) }, writer)
    }

    /// The ring as a reader has it mapped, for blocks of it that other rings name.
    pub fn view(&mut self) -> io::Result<RingMap>
    where
        AnyLayout: std::convert::From<L>,
    {
        let View { words, payload, layout } = (self.view)()?;
        Ok(RingMap { words, payload, layout: layout.into() })
    }

    /// Attaches a reader with this contract; it may hold the full ring for as long as `hold` says.
    pub fn attach(&mut self, contract: OnFull, hold: Hold, from: From) -> io::Result<Reader<L>> {
        let View { words, payload, layout } = (self.view)()?;
        let (page, seen_by_writer) = (self.page)()?;
        let (slot, serial) = {
            let mut members = self.kept.members();
            let slot = (!members.taken).trailing_zeros() as usize;
            if slot >= READERS {
                return Err(io::Error::other(format!("the ring has {READERS} readers already")));
            }
            members.taken |= 1 << slot;
            members.serial = members.serial.wrapping_add(1).max(1);
            let serial = members.serial;
            members.changes.push(Change::Joined(NewReader {
                slot,
                serial,
                page: seen_by_writer,
                line: None,
                contract,
                hold,
            }));
            (slot, serial)
        };
        let leave = Leave { kept: Arc::clone(&self.kept), page: page.clone(), slot, serial };
        self.kept.tell_writer(&page);
        Ok(Reader::new(Parts {
            words,
            page,
            payload,
            layout,
            slot,
            serial,
            contract,
            from,
            line: None,
            leave: Box::new(leave),
        }))
    }
}

#[cfg(not(loom))]
mod mapped {
    use super::*;
    use crate::ring::memory::{Geometry, RingMemory};
    use crate::shared::segment::{Access, PAGE_BYTES, Pages, Segment};

    fn view<L: Layout + TryFrom<AnyLayout>>(map: RingMap) -> io::Result<View<L>> {
        let RingMap { words, payload, layout } = map;
        let other = |_| io::Error::new(io::ErrorKind::InvalidInput, "the ring is of another kind");
        Ok(View { words, payload, layout: layout.try_into().map_err(other)? })
    }

    impl Ring {
        /// Makes a ring and its writer. Readers' maps are read-only, as in another process.
        pub fn create(geometry: Geometry, pages: Pages, signalling: Signalling) -> io::Result<(Ring, Writer)> {
            Ring::create_known(geometry, pages, signalling)
        }
    }

    impl<L: Layout + TryFrom<AnyLayout> + 'static> Ring<L> {
        /// The same for a kind known at compile time, as in `Ring::<Stream>::create_known`. Small blocks take half the
        /// time: no branches on the kind, and no results passed through memory.
        pub fn create_known(
            geometry: Geometry,
            pages: Pages,
            signalling: Signalling,
        ) -> io::Result<(Ring<L>, Writer<L>)> {
            let memory = RingMemory::create("streamline-ring", geometry, pages, 0)?;
            let writer = view(memory.map(Access::Write)?)?;
            memory.segment().seal_for_readers()?;
            let page = || {
                let segment = Segment::create("streamline-reader", PAGE_BYTES, Pages::Normal)?;
                segment.seal_for_writer()?;
                let words = |access| {
                    let mapping = segment.map(0, PAGE_BYTES, access)?;
                    Ok::<_, io::Error>(Shared::in_mapping(&mapping, 0).expect("a page holds the words of a reader"))
                };
                Ok((words(Access::Write)?, words(Access::Read)?))
            };
            Ok(Ring::with_writer(writer, signalling, move || view(memory.map(Access::Read)?), page))
        }
    }
}

#[cfg(loom)]
mod modelled {
    use super::*;
    use crate::ring::layout::{Described, DescriptorSlot, Inline, RingKind, SlotHeader, Slots, Stream};
    use crate::shared::words::SharedArray;

    impl Ring {
        /// A ring of a few units in the model checker's own memory.
        pub fn model(kind: RingKind, bytes: usize, slots: usize, signalling: Signalling) -> (Ring, Writer) {
            let words = Shared::private(RingWords::new());
            let payload = Payload::private(bytes);
            let headers = SharedArray::private((0..slots).map(|_| SlotHeader::default()).collect());
            let descriptors = SharedArray::private((0..slots).map(|_| DescriptorSlot::default()).collect());
            let view = move |writes: bool| {
                let layout = match kind {
                    RingKind::C => AnyLayout::Stream(Stream::new(bytes as u64)),
                    RingKind::V => AnyLayout::Inline(Inline::new(bytes as u64)),
                    RingKind::P => AnyLayout::Slots(Slots::new(headers.clone(), bytes as u64)),
                    RingKind::D if writes => {
                        AnyLayout::Described(Described::new(descriptors.clone(), bytes as u64).for_writer())
                    }
                    RingKind::D => AnyLayout::Described(Described::new(descriptors.clone(), bytes as u64)),
                };
                View { words: words.clone(), payload: payload.clone(), layout }
            };
            let writer = view(true);
            let page = || {
                let page = Shared::private(ReaderPage::new());
                Ok((page.clone(), page))
            };
            Ring::with_writer(writer, signalling, move || Ok(view(false)), page)
        }
    }
}
