//! One device's ring for one group: its writer, its readers, and the bits of their expressions.
//!
//! Everything here runs under the lock of [`super::CaptureRegistry`], and nothing here waits. Slow work is given to the
//! writer by [`super::change`], without the lock.
//!
//! Life of a bit:
//!
//! | from | to | when |
//! |---|---|---|
//! | free | taken | a reader, its next expression or the standing expression gets the bit |
//! | taken | taken and in force | the writer sets the bit (`put_in_force`) |
//! | taken and in force | in force | the reader went, or has another expression |
//! | in force | resting | the writer sets the bit no more; packets under way may still have it |
//! | resting | free | all packets that were under way are done (`end_rest`) |
//!
//! A bit in force or resting must not be taken: packets that the old expression matched would count as the new one's.

use super::{Consumed, READERS_OF_USERS, ring_bytes};
use crate::attachment::{Attachment, Device, Fds, Granted, Past};
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

/// The writer of a ring. A change of the expressions keeps it alive while the ring is being taken down.
pub(super) struct Written {
    pub(super) writer: Box<dyn Writer>,
    /// Set if it takes packets away. Dropped after the writer.
    _consumed: Option<Consumed>,
}

/// One ring of a device, and its readers.
pub(super) struct Ring {
    pub(super) written: Arc<Written>,
    /// The writer's bell and events, for sleeping on them without the lock.
    pub(super) bells: Vec<Arc<OwnedFd>>,
    pub(super) device: Device,
    pub(super) memory: LiveMemory,
    pub(super) readers: Vec<Reader>,
    /// Readers that went, whose bits the writer still sets.
    leaving: Vec<Leaving>,
    /// Bits that the writer sets.
    in_force: u64,
    /// Bits that it sets no more, but that packets under way may still have.
    resting: u64,
    /// What its readers may see, and that for this device; `None`: everything.
    pub(super) permission: Permission,
    pub(super) shown: Option<Shown>,
    /// The bit of all packets that its readers may see, if all are kept: then the ring stays without readers.
    pub(super) standing: Option<u8>,
    /// Since when it has taken what it takes now, by the writer's clock.
    pub(super) since: u64,
    /// Whether the device is in promiscuous mode.
    pub(super) promiscuous: bool,
    /// The writer failed to stop setting unneeded bits: it is asked again with the next change.
    pub(super) is_stuck: bool,
}

pub(super) struct Reader {
    pub(super) id: u64,
    pub(super) user: u32,
    pub(super) expression: Expression,
    /// The expression that will replace its own, until that is in force.
    pub(super) next: Option<Expression>,
    /// Cost of its expression for a packet, in instructions, without the policy's part; the higher of old and new.
    pub(super) cost: u32,
    /// Whether its first expression is in force, so that it shows in states.
    pub(super) is_in: bool,
    pub(super) promiscuous: bool,
    pub(super) line: Arc<OwnedFd>,
    pub(super) asleep: bool,
    pub(super) matched_before: u64,
    /// The first packet that it may look at.
    first: u64,
    progress: Progress,
}

struct Leaving {
    id: u64,
    bit: u8,
    matched_before: u64,
}

/// A reader that asks to be let in.
pub(super) struct New<'a> {
    pub(super) id: u64,
    pub(super) user: u32,
    pub(super) asked: &'a CaptureRequest,
    pub(super) program: Option<Arc<Program>>,
    /// Its cost for a packet, in instructions.
    pub(super) cost: u32,
}

/// Everything for finding out a reader's losses without the lock, which takes time for each packet of the ring.
pub(super) struct Reads {
    memory: LiveMemory,
    bit: u8,
    first: u64,
    progress: Progress,
}

impl Reads {
    pub(super) fn lost(&self, matched: u64) -> u64 {
        self.progress.lost(&self.memory, self.bit, matched, self.first)
    }
}

/// State of one reader, for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderState {
    /// Its number.
    pub id: u64,
    /// Its bit.
    pub bit: u8,
    /// Packets that its expression wanted since it is in force.
    pub matched: u64,
    /// Those of them that were overwritten before it got to them, as far as that is certain now.
    pub lost: u64,
    /// Whether it sleeps.
    pub asleep: bool,
}

/// State of one ring, for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingState {
    /// The device.
    pub device: Device,
    /// The group that shares it.
    pub group: u32,
    /// Bytes of packets it holds.
    pub ring_bytes: u64,
    /// Packets that its writer saw, and their bytes. If a packet socket filters and cannot count, only the packets that
    /// it let in.
    pub seen: (u64, u64),
    /// Packets written.
    pub written: u64,
    /// Whether it takes all packets that its readers may see, and stays without readers.
    pub kept: bool,
    /// Its readers.
    pub readers: Vec<ReaderState>,
    /// Other counts of the writer and its device, by name.
    pub statistics: Vec<(String, u64)>,
}

impl Ring {
    /// Opens a device, which takes some 50 ms. The ring has no readers yet.
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

    pub(super) fn expressions(&self) -> Vec<Expression> {
        let program = self.shown.as_ref().map(Shown::program);
        let all = |bit| Expression { bit, program, direction: Direction::Both, sample: 1, counts: None };
        let wanted = self.readers.iter().map(|reader| reader.next.as_ref().unwrap_or(&reader.expression));
        wanted.cloned().chain(self.standing.map(all)).collect()
    }

    /// Notes that the writer sets the bits of these expressions, and no others.
    pub(super) fn put_in_force(&mut self, expressions: &[Expression]) {
        let bits = expressions.iter().fold(0, |bits, expression| bits | 1u64 << expression.bit);
        self.resting |= self.in_force & !bits;
        self.in_force = bits;
        self.leaving.retain(|reader| bits & 1 << reader.bit != 0);
        self.is_stuck = false;
    }

    /// Notes that the writer could not be told of readers that went. They are no longer listed.
    pub(super) fn be_stuck(&mut self) {
        self.is_stuck = true;
        self.leaving.clear();
    }

    /// Drops readers. Their expressions are in force until the writer was told.
    pub(super) fn dismiss(&mut self, is_gone: impl Fn(&Reader) -> bool) {
        let gone = self.readers.extract_if(.., |reader| is_gone(reader)).filter(|reader| reader.is_in);
        let leaving =
            |Reader { id, expression, matched_before, .. }| Leaving { id, bit: expression.bit, matched_before };
        self.leaving.extend(gone.map(leaving));
        // With fewer readers the writer may accept the change now.
        self.is_stuck &= self.leaving.is_empty();
    }

    /// Bits of readers, of their next expressions and of the standing one.
    fn taken(&self) -> u64 {
        let of = |reader: &Reader| 1u64 << reader.expression.bit | reader.next.as_ref().map_or(0, |next| 1 << next.bit);
        let standing = self.standing.map_or(0, |bit| 1u64 << bit);
        self.readers.iter().fold(standing, |taken, reader| taken | of(reader))
    }

    /// Whether the writer still works for readers that went.
    pub(super) fn is_stale(&self) -> bool {
        self.in_force & !self.taken() != 0 || self.promiscuous != self.wants_promiscuous()
    }

    /// It has no readers, and does not have to stay without any.
    pub(super) fn is_unused(&self) -> bool {
        self.readers.is_empty() && self.standing.is_none()
    }

    /// Whether there is a place for one more reader of this user. Users who fill a ring together leave places there to root.
    pub(super) fn place_for(&self, user: u32) -> Result<(), CaptureError> {
        let places = if user == 0 { EXPRESSIONS } else { READERS_OF_USERS };
        let taken = self.readers.len() + usize::from(self.standing.is_some());
        if taken < places { Ok(()) } else { Err(self.full(places)) }
    }

    pub(super) fn full(&self, places: usize) -> CaptureError {
        let left = if places < EXPRESSIONS { ", and the last places are root's" } else { "" };
        let text = format!(
            "the ring of `{}` has {places} readers already, as many as it may have{left}: a place is free when one of them \
             ends (`streamline ps`, `streamline stop`)",
            self.device.name
        );
        CaptureError::new(CaptureErrorKind::Full, text)
    }

    /// A bit that is not taken and that no packet under way can have.
    pub(super) fn free_bit(&self) -> Option<u8> {
        let used = self.taken() | self.in_force | self.resting;
        (0..EXPRESSIONS as u8).find(|bit| used & 1 << bit == 0)
    }

    /// Whether there are bits that are not taken but that packets under way may have.
    pub(super) fn has_resting(&self) -> bool {
        self.resting != 0
    }

    /// Notes that all packets under way at the last change of expressions are done.
    pub(super) fn end_rest(&mut self) {
        self.resting = 0;
    }

    /// The program for a reader's own expression within what it may see.
    pub(super) fn of_shown(&self, own: Option<Arc<Program>>) -> Result<Option<Arc<Program>>, CaptureError> {
        match &self.shown {
            None => Ok(own),
            Some(shown) => shown.also(own).map(Some),
        }
    }

    /// Whether some reader wants every packet, and gets it.
    pub(super) fn takes_all(&self) -> bool {
        let wants_all = |reader: &Reader| reader.expression.program.is_none();
        self.shown.is_none() && (self.standing.is_some() || self.readers.iter().any(wants_all))
    }

    pub(super) fn before(&self, bit: u8) -> (u64, u64) {
        let count = self.memory.matched(usize::from(bit));
        (count.packets, count.wire_bytes)
    }

    /// Makes a place for a reader, which shows in states only once its expression is in force. `first`: the first
    /// packet that it may look at.
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
        let granted = Granted {
            id,
            device: self.device.clone(),
            geometry: self.written.writer.geometry(),
            bit,
            matched_before,
            kept_before,
            seen_before,
            first,
            decided: first,
            past: Past::default(),
            note: String::new(),
        };
        Ok(Attachment { granted, fds: Fds { areas, line: theirs, progress: its_progress } })
    }

    pub(super) fn reader(&mut self, id: u64) -> Result<&mut Reader, CaptureError> {
        let reader = self.readers.iter_mut().find(|reader| reader.id == id);
        reader.ok_or_else(|| CaptureError::new(CaptureErrorKind::Request, "there is no such reader"))
    }

    /// Whether the device must be in promiscuous mode.
    pub(super) fn wants_promiscuous(&self) -> bool {
        self.standing.is_some() || self.readers.iter().any(|reader| reader.promiscuous)
    }

    /// Receives messages of readers whose lines may have one: that they sleep, and where they are. One message each, so
    /// that no reader can keep other readers waiting.
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
                    // Packets from before the bit was armed ring no bell.
                    if memory.next() != position {
                        reader.wake();
                    }
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                // Closed, or a message that no correct reader sends.
                _ => gone.push(reader.id),
            }
        }
    }

    /// In the order of [`state`](Self::state). `None` for a reader that only counts: it loses nothing.
    pub(super) fn reads(&self) -> Vec<Option<Reads>> {
        let reads = |reader: &Reader| {
            let Expression { bit, counts, .. } = reader.expression;
            let (memory, progress) = (self.memory.clone(), reader.progress.clone());
            counts.is_none().then_some(Reads { memory, bit, first: reader.first, progress })
        };
        self.known().map(reads).collect()
    }

    /// Readers that show in states.
    pub(super) fn known(&self) -> impl Iterator<Item = &Reader> {
        self.readers.iter().filter(|reader| reader.is_in)
    }

    /// The state, without the readers' losses.
    pub(super) fn state(&self, group: u32) -> RingState {
        let seen = self.memory.seen();
        let writer = &self.written.writer;
        let state = |id, bit: u8, matched_before, asleep| {
            let matched = self.memory.matched(usize::from(bit)).packets - matched_before;
            ReaderState { id, bit, matched, lost: 0, asleep }
        };
        let readers = self.known().map(|one| state(one.id, one.expression.bit, one.matched_before, one.asleep));
        // The losses of these readers are unknown.
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

    /// Sends the last message, before the line is closed.
    pub(super) fn bid(&self, close_reason: CloseReason) {
        self.say(Word::CloseReason(close_reason));
    }

    fn say(&self, word: Word) {
        let (bytes, len) = word.to_bytes();
        // No room means that the reader has unread messages, and will look anyway.
        let _ = rustix::net::send(&self.line, &bytes[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
