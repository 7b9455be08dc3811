//! One device's ring for one group: its writer, its readers, the bit that each of them has.
//!
//! Everything here is done under the lock of [`super::CaptureRegistry`], and nothing here waits. What the writer is given to do that
//! takes long, [`super::change`] gives it without the lock.

use super::{Consumed, READERS_OF_USERS, ring_bytes};
use crate::attachment::{Attachment, Device, Past};
use crate::capture_request::{CaptureError, CaptureErrorKind, CaptureRequest, Direction};
use crate::line::{CloseReason, LINE_BYTES, Line, Word};
use crate::permission::{Permission, Shown};
use crate::writer::{Expression, Opened, Writer, own};
use buffer::live::{Areas, EXPRESSIONS, LiveMemory, Progress};
use buffer::shared::segment::Access;
use program::ir::Program;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Who writes a ring. A change of its expressions holds on to it while the ring is being taken down.
pub(super) struct Written {
    pub(super) writer: Box<dyn Writer>,
    /// Where it takes packets away. Dropped behind the writer.
    _consumed: Option<Consumed>,
}

/// One ring of a device, and who reads it.
pub(super) struct Ring {
    pub(super) written: Arc<Written>,
    /// The writer's bell and events, to sleep by without the lock.
    pub(super) bells: Vec<Arc<OwnedFd>>,
    pub(super) device: Device,
    pub(super) memory: LiveMemory,
    pub(super) readers: Vec<Reader>,
    /// Readers that went, whose bits the writer still sets.
    leaving: Vec<Leaving>,
    /// Bits that the writer sets.
    in_force: u64,
    /// Bits that it sets no more, and that packets under way may still have.
    resting: u64,
    /// What its readers may see, and what that is of this device; none: everything.
    pub(super) permission: Permission,
    pub(super) shown: Option<Shown>,
    /// The bit of all packets that its readers may see, where they are all kept: the ring stays without readers.
    pub(super) standing: Option<u8>,
    /// Since when what it takes is what it takes now, by the writer's clock.
    pub(super) since: u64,
    /// The device hears everything.
    pub(super) promiscuous: bool,
    /// The writer could not stop setting bits that nobody wants any more: it is asked again with the next change.
    pub(super) is_stuck: bool,
}

/// One reader of a ring.
pub(super) struct Reader {
    pub(super) id: u64,
    /// Whose it is.
    pub(super) user: u32,
    pub(super) expression: Expression,
    /// The expression that takes its place, until that is in force.
    pub(super) next: Option<Expression>,
    /// What its expression costs a packet, in instructions, without what the policy adds; of both, the dearer.
    pub(super) cost: u32,
    /// Is its first expression in force, so that it is there for others?
    pub(super) is_in: bool,
    pub(super) promiscuous: bool,
    pub(super) line: Arc<OwnedFd>,
    pub(super) asleep: bool,
    pub(super) matched_before: u64,
    /// The first packet it may look at.
    first: u64,
    progress: Progress,
}

/// A reader that went.
struct Leaving {
    id: u64,
    bit: u8,
    matched_before: u64,
}

/// A reader that is to be let in.
pub(super) struct New<'a> {
    pub(super) id: u64,
    pub(super) user: u32,
    pub(super) asked: &'a CaptureRequest,
    /// That of the capture request.
    pub(super) program: Option<Arc<Program>>,
    /// What it costs a packet, in instructions.
    pub(super) cost: u32,
}

/// What is needed to say what a reader has lost, without the lock: that takes time for each packet of the ring.
pub(super) struct Reads {
    memory: LiveMemory,
    bit: u8,
    first: u64,
    progress: Progress,
}

impl Reads {
    /// Of so many packets that were matched.
    pub(super) fn lost(&self, matched: u64) -> u64 {
        self.progress.lost(&self.memory, self.bit, matched, self.first)
    }
}

/// What is known of one reader, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderState {
    /// Its number.
    pub id: u64,
    /// Its bit.
    pub bit: u8,
    /// Packets its expression wanted since it is in force.
    pub matched: u64,
    /// Those of them that were overwritten before it came to them, as far as that is sure now.
    pub lost: u64,
    /// Does it sleep?
    pub asleep: bool,
}

/// What is known of one ring, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingState {
    /// The device.
    pub device: Device,
    /// Who shares it.
    pub group: u32,
    /// Bytes of packets it holds.
    pub ring_bytes: u64,
    /// Packets its writer was shown, and their bytes: of a packet socket that has a filter which does not count, those it
    /// let in.
    pub seen: (u64, u64),
    /// Packets written.
    pub written: u64,
    /// It takes all packets that its readers may see, and stays without readers.
    pub kept: bool,
    /// Its readers.
    pub readers: Vec<ReaderState>,
    /// What the writer and its device count besides, by name.
    pub statistics: Vec<(String, u64)>,
}

impl Ring {
    /// Opens a device, which takes some 50 ms. Nobody reads it yet.
    pub(super) fn open(
        opener: &dyn Opened,
        asked: &CaptureRequest,
        consumed: Option<Consumed>,
    ) -> Result<Ring, CaptureError> {
        let writer = opener.open(&asked.device, ring_bytes(asked.ring_bytes, u64::MAX), asked.mode, asked.by)?;
        let memory = LiveMemory::map(writer.areas(), writer.geometry(), Access::Read)
            .map_err(|error| CaptureError::system("the ring cannot be mapped", &error))?;
        let device = writer.device();
        let since = writer.now();
        let fds = [Some(writer.bell()), writer.events()].into_iter().flatten();
        let bells = fds.map(|fd| own(fd).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Ring {
            written: Arc::new(Written { writer, _consumed: consumed }),
            bells,
            device,
            memory,
            readers: Vec::new(),
            leaving: Vec::new(),
            in_force: 0,
            resting: 0,
            permission: Permission::default(),
            shown: None,
            standing: None,
            since,
            promiscuous: false,
            is_stuck: false,
        })
    }

    /// What its readers want from now on.
    pub(super) fn expressions(&self) -> Vec<Expression> {
        let program = self.shown.as_ref().map(Shown::program);
        let all = |bit| Expression { bit, program, direction: Direction::Both, sample: 1, counts: None };
        let wanted = self.readers.iter().map(|reader| reader.next.as_ref().unwrap_or(&reader.expression));
        wanted.cloned().chain(self.standing.map(all)).collect()
    }

    /// The writer sets the bits of these expressions, and no others.
    pub(super) fn put_in_force(&mut self, expressions: &[Expression]) {
        let bits = expressions.iter().fold(0, |bits, expression| bits | 1u64 << expression.bit);
        self.resting |= self.in_force & !bits;
        self.in_force = bits;
        self.leaving.retain(|reader| bits & 1 << reader.bit != 0);
        self.is_stuck = false;
    }

    /// The writer could not hear of those that went: they are no readers any more all the same.
    pub(super) fn be_stuck(&mut self) {
        self.is_stuck = true;
        self.leaving.clear();
    }

    /// Lets readers go. What they wanted is in force until the writer has heard of it.
    pub(super) fn dismiss(&mut self, is_gone: impl Fn(&Reader) -> bool) {
        let gone = self.readers.extract_if(.., |reader| is_gone(reader)).filter(|reader| reader.is_in);
        let leaving =
            |Reader { id, expression, matched_before, .. }| Leaving { id, bit: expression.bit, matched_before };
        self.leaving.extend(gone.map(leaving));
        // With fewer readers the writer may be able to hear of it.
        self.is_stuck &= self.leaving.is_empty();
    }

    /// Bits that are somebody's.
    fn taken(&self) -> u64 {
        let of = |reader: &Reader| 1u64 << reader.expression.bit | reader.next.as_ref().map_or(0, |next| 1 << next.bit);
        let standing = self.standing.map_or(0, |bit| 1u64 << bit);
        self.readers.iter().fold(standing, |taken, reader| taken | of(reader))
    }

    /// Does its writer do for readers that went what need not be done any more?
    pub(super) fn is_stale(&self) -> bool {
        self.in_force & !self.taken() != 0 || self.promiscuous != self.wants_promiscuous()
    }

    /// Neither read, nor to stay without readers.
    pub(super) fn is_unused(&self) -> bool {
        self.readers.is_empty() && self.standing.is_none()
    }

    /// Is there a place for one more reader of this user's? Users who fill a ring together leave places there to root.
    pub(super) fn place_for(&self, user: u32) -> Result<(), CaptureError> {
        let places = if user == 0 { EXPRESSIONS } else { READERS_OF_USERS };
        let taken = self.readers.len() + usize::from(self.standing.is_some());
        if taken < places { Ok(()) } else { Err(self.full(places)) }
    }

    /// That it has so many readers already.
    pub(super) fn full(&self, places: usize) -> CaptureError {
        let left = if places < EXPRESSIONS { ", and the last places are root's" } else { "" };
        let text = format!(
            "the ring of `{}` has {places} readers already, as many as it may have{left}: a place is free when one of them \
             ends (`streamline ps`, `streamline stop`)",
            self.device.name
        );
        CaptureError::new(CaptureErrorKind::Full, text)
    }

    /// A bit that nobody has, and that no packet under way can have.
    pub(super) fn free_bit(&self) -> Option<u8> {
        let used = self.taken() | self.in_force | self.resting;
        (0..EXPRESSIONS as u8).find(|bit| used & 1 << bit == 0)
    }

    /// Bits that nobody has, and that packets under way may have.
    pub(super) fn has_resting(&self) -> bool {
        self.resting != 0
    }

    /// All packets that were under way when the last expressions were put in force have come to their end.
    pub(super) fn end_rest(&mut self) {
        self.resting = 0;
    }

    /// What passes a reader's own expression, of what it may see.
    pub(super) fn of_shown(&self, own: Option<Arc<Program>>) -> Result<Option<Arc<Program>>, CaptureError> {
        match &self.shown {
            None => Ok(own),
            Some(shown) => shown.also(own).map(Some),
        }
    }

    /// Does somebody want every packet, and get it?
    pub(super) fn takes_all(&self) -> bool {
        let wants_all = |reader: &Reader| reader.expression.program.is_none();
        self.shown.is_none() && (self.standing.is_some() || self.readers.iter().any(wants_all))
    }

    pub(super) fn before(&self, bit: u8) -> (u64, u64) {
        let count = self.memory.matched(usize::from(bit));
        (count.packets, count.wire_bytes)
    }

    /// A place for a reader, which nobody knows of before its expression is in force. `first` is the first packet it may look
    /// at.
    pub(super) fn let_in(&mut self, new: New<'_>, bit: u8, first: u64) -> Result<Attachment, CaptureError> {
        let New { id, user, asked, program, cost } = new;
        let program = self.of_shown(program)?;
        let error = |error: rustix::io::Errno| CaptureError::system("no line to the reader can be made", &error.into());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(error)?;
        let no_page = |error| CaptureError::system("there is no page for the reader", &error);
        let (progress, its_progress) = Progress::create().map_err(no_page)?;
        let areas = self.written.writer.areas();
        let areas = Areas { words: own(areas.words)?, slots: own(areas.slots)?, data: own(areas.data)? };
        let (matched_before, seen_before) = (self.before(bit), self.memory.seen().packets);
        let kept_before = self.memory.kept_bytes(usize::from(bit));
        let (sample, counts) = (asked.sample.max(1), asked.counts);
        self.readers.push(Reader {
            id,
            user,
            expression: Expression { bit, program, direction: asked.direction, sample, counts },
            next: None,
            cost,
            is_in: false,
            promiscuous: asked.promiscuous,
            line: Arc::new(line),
            asleep: false,
            matched_before: matched_before.0,
            first,
            progress,
        });
        Ok(Attachment {
            id,
            device: self.device.clone(),
            geometry: self.written.writer.geometry(),
            progress: its_progress,
            areas,
            bit,
            matched_before,
            kept_before,
            seen_before,
            first,
            decided: first,
            past: Past::default(),
            note: String::new(),
            line: theirs,
        })
    }

    /// Its reader of this number.
    pub(super) fn reader(&mut self, id: u64) -> Result<&mut Reader, CaptureError> {
        let reader = self.readers.iter_mut().find(|reader| reader.id == id);
        reader.ok_or_else(|| CaptureError::new(CaptureErrorKind::Request, "there is no such reader"))
    }

    /// Must the device hear packets for others, too?
    pub(super) fn wants_promiscuous(&self) -> bool {
        self.standing.is_some() || self.readers.iter().any(|reader| reader.promiscuous)
    }

    /// What those readers say whose lines may have something: that they sleep, and where they are. One message each, so that
    /// none can keep others waiting.
    pub(super) fn hear(&mut self, may_say: impl Fn(&OwnedFd) -> bool, gone: &mut Vec<u64>) {
        let Ring { written, memory, readers, .. } = self;
        for reader in readers.iter_mut().filter(|reader| may_say(&reader.line)) {
            let mut message = [0; LINE_BYTES + 1];
            match rustix::net::recv(&reader.line, &mut message, RecvFlags::DONTWAIT) {
                Ok((LINE_BYTES, _)) => {
                    let mut bytes = [0; LINE_BYTES];
                    bytes.copy_from_slice(&message[..LINE_BYTES]);
                    let Line::Asleep(position) = Line::from_bytes(bytes);
                    reader.asleep = true;
                    written.writer.arm(1 << reader.expression.bit);
                    // What came before the bit was armed rings no bell.
                    if memory.next() != position {
                        reader.wake();
                    }
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                // Closed, or something a reader of ours does not say.
                _ => gone.push(reader.id),
            }
        }
    }

    /// By reader, as in [`state`](Self::state); none of one whose packets are only counted, for they are all it wants.
    pub(super) fn reads(&self) -> Vec<Option<Reads>> {
        let reads = |reader: &Reader| {
            let Expression { bit, counts, .. } = reader.expression;
            let (memory, progress) = (self.memory.clone(), reader.progress.clone());
            counts.is_none().then_some(Reads { memory, bit, first: reader.first, progress })
        };
        self.known().map(reads).collect()
    }

    /// Readers that others may know of.
    pub(super) fn known(&self) -> impl Iterator<Item = &Reader> {
        self.readers.iter().filter(|reader| reader.is_in)
    }

    /// Without what readers have lost.
    pub(super) fn state(&self, group: u32) -> RingState {
        let seen = self.memory.seen();
        let writer = &self.written.writer;
        let state = |id, bit: u8, matched_before, asleep| {
            let matched = self.memory.matched(usize::from(bit)).packets - matched_before;
            ReaderState { id, bit, matched, lost: 0, asleep }
        };
        let readers = self.known().map(|one| state(one.id, one.expression.bit, one.matched_before, one.asleep));
        // Of these it is not known what they lost.
        let readers = readers.chain(self.leaving.iter().map(|one| state(one.id, one.bit, one.matched_before, false)));
        let mut statistics = writer.statistics();
        let cost: u64 = self.readers.iter().map(|reader| u64::from(reader.cost)).sum();
        if cost > 0 {
            statistics.push(("expressions.instructions".into(), cost));
        }
        let mut device = self.device.clone();
        device.how.extend(self.shown.as_ref().map(Shown::how));
        RingState {
            device,
            group,
            ring_bytes: writer.geometry().ring_bytes,
            seen: (seen.packets, seen.wire_bytes),
            written: self.memory.next(),
            kept: self.standing.is_some(),
            readers: readers.collect(),
            statistics,
        }
    }
}

impl Reader {
    pub(super) fn wake(&mut self) {
        self.asleep = false;
        self.say(Word::Wake);
    }

    /// The last word, before its line is closed.
    pub(super) fn bid(&self, close_reason: CloseReason) {
        self.say(Word::CloseReason(close_reason));
    }

    fn say(&self, word: Word) {
        let (bytes, len) = word.to_bytes();
        // No room means that it has not looked at earlier words: it will.
        let _ = rustix::net::send(&self.line, &bytes[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
