//! One device's ring for one group: its writer, its readers, the bit that each of them has.
//!
//! Everything here is done under the lock of [`super::Taps`]; nothing here waits, but for the kernel while it sets
//! expressions, and for a bit that somebody else took meanwhile.

use super::{Consumed, ring_bytes};
use crate::codec::{Farewell, LINE_BYTES, Line, Word};
use crate::handout::{Device, Exchange, Handout, Past};
use crate::right::{Right, Shown};
use crate::wish::{Direction, Wish};
use crate::writer::{Expression, Opened, Trouble, TroubleKind, Writer, own};
use buffer::live::{Areas, EXPRESSIONS, LiveMemory, LiveReader, Progress};
use buffer::shared::segment::Access;
use program::ir::Program;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A bit that was freed is not given to the next before this long: packets under way may still have it set.
const BIT_REST: Duration = Duration::from_millis(200);

/// One ring of a device, and who reads it.
pub(super) struct Ring {
    pub(super) writer: Box<dyn Writer>,
    /// The writer's bell and events, to sleep by without the lock.
    pub(super) bells: Vec<Arc<OwnedFd>>,
    pub(super) device: Device,
    pub(super) memory: LiveMemory,
    pub(super) readers: Vec<Reader>,
    /// When each bit was given back.
    pub(super) freed: [Option<Instant>; EXPRESSIONS],
    /// What its readers may see, and what that is of this device; none: everything.
    pub(super) right: Right,
    pub(super) shown: Option<Shown>,
    /// The bit of all packets that its readers may see, where they are all kept: the ring stays without readers.
    pub(super) standing: Option<u8>,
    /// Since when what it takes is what it takes now, by the writer's clock.
    pub(super) since: u64,
    /// The device hears everything.
    pub(super) promiscuous: bool,
    /// Where it takes packets away. Dropped behind the writer.
    pub(super) _consumed: Option<Consumed>,
}

/// One reader of a ring.
pub(super) struct Reader {
    pub(super) id: u64,
    pub(super) expression: Expression,
    pub(super) promiscuous: bool,
    pub(super) line: Arc<OwnedFd>,
    pub(super) asleep: bool,
    pub(super) matched_before: u64,
    /// The first packet it may look at.
    first: u64,
    progress: Progress,
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
    pub(super) fn open(opener: &dyn Opened, wish: &Wish) -> Result<Ring, Trouble> {
        let writer = opener.open(&wish.device, ring_bytes(wish.ring_bytes, u64::MAX), wish.mode, wish.by)?;
        let memory = LiveMemory::map(writer.areas(), writer.geometry(), Access::Read)
            .map_err(|error| Trouble::system("the ring cannot be mapped", &error))?;
        let device = writer.device();
        let since = writer.now();
        let fds = [Some(writer.bell()), writer.events()].into_iter().flatten();
        let bells = fds.map(|fd| own(fd).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Ring {
            writer,
            bells,
            device,
            memory,
            readers: Vec::new(),
            freed: [None; EXPRESSIONS],
            right: Right::default(),
            shown: None,
            standing: None,
            since,
            promiscuous: false,
            _consumed: None,
        })
    }

    pub(super) fn expressions(&self) -> Vec<Expression> {
        let program = self.shown.as_ref().map(Shown::program);
        let all = |bit| Expression { bit, program, direction: Direction::Both, sample: 1, counts: None };
        self.readers.iter().map(|reader| reader.expression.clone()).chain(self.standing.map(all)).collect()
    }

    /// What passes a reader's own expression, of what it may see.
    fn of_shown(&self, own: Option<Arc<Program>>) -> Result<Option<Arc<Program>>, Trouble> {
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

    /// Takes every packet that its readers may see from now on; all or nothing.
    pub(super) fn keep(&mut self) -> Result<(), Trouble> {
        if self.standing.is_some() {
            return Ok(());
        }
        let bit = self.free_bit()?;
        self.standing = Some(bit);
        let set = self.writer.set(&self.expressions()).and_then(|()| self.set_promiscuous());
        if set.is_err() {
            self.forget();
        }
        self.since = self.writer.now();
        set
    }

    /// Takes what its readers want, and no more.
    pub(super) fn forget(&mut self) {
        if let Some(bit) = self.standing.take() {
            self.freed[usize::from(bit)] = Some(Instant::now());
            // As when a reader goes.
            let _ = self.writer.set(&self.expressions());
            let _ = self.set_promiscuous();
            self.since = self.writer.now();
        }
    }

    /// How far back it reaches.
    pub(super) fn past(&self) -> Past {
        let now = self.writer.now();
        let oldest = LiveReader::new(self.memory.clone(), 0).oldest_time().unwrap_or(0);
        Past { reaches_ns: now.saturating_sub(oldest.max(self.since)), whole: self.standing.is_some() }
    }

    /// The bit that is free for longest.
    pub(super) fn next_bit(&self) -> Option<u8> {
        let taken = self.readers.iter().map(|reader| reader.expression.bit).chain(self.standing);
        let taken = taken.fold(0u64, |taken, bit| taken | 1 << bit);
        let free = (0..EXPRESSIONS as u8).filter(|bit| taken & 1 << bit == 0);
        free.min_by_key(|bit| self.freed[usize::from(*bit)])
    }

    /// Is there a place for one more, where there are to be so many at most?
    pub(super) fn place_within(&self, places: usize) -> Result<(), Trouble> {
        let taken = self.readers.len() + usize::from(self.standing.is_some());
        if taken < places { Ok(()) } else { Err(self.full(places)) }
    }

    fn full(&self, places: usize) -> Trouble {
        let left = if places < EXPRESSIONS { ", and the last places are root's" } else { "" };
        let text = format!(
            "the ring of `{}` has {places} readers already, as many as it may have{left}: a place is free when one of them \
             ends (`streamline ps`, `streamline stop`)",
            self.device.name
        );
        Trouble::new(TroubleKind::Full, text)
    }

    /// A bit nobody has had for a while.
    pub(super) fn free_bit(&self) -> Result<u8, Trouble> {
        let bit = self.next_bit().ok_or_else(|| self.full(EXPRESSIONS))?;
        // Slept for before the lock was taken; not all, where somebody else took the bit that was slept for.
        std::thread::sleep(self.rest_of(bit));
        Ok(bit)
    }

    /// How long until a bit may be given away: the writer's last packets with its old meaning get their time.
    pub(super) fn rest_of(&self, bit: u8) -> Duration {
        self.freed[usize::from(bit)].map_or(Duration::ZERO, |freed| BIT_REST.saturating_sub(freed.elapsed()))
    }

    pub(super) fn before(&self, bit: u8) -> (u64, u64) {
        let count = self.memory.matched(usize::from(bit));
        (count.packets, count.wire_bytes)
    }

    pub(super) fn admit(&mut self, id: u64, wish: &Wish, program: Option<Arc<Program>>) -> Result<Handout, Trouble> {
        let program = self.of_shown(program)?;
        let bit = self.free_bit()?;
        let trouble = |error: rustix::io::Errno| Trouble::system("no line to the reader can be made", &error.into());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(trouble)?;
        let no_page = |error| Trouble::system("there is no page for the reader", &error);
        let (progress, its_progress) = Progress::create().map_err(no_page)?;
        let areas = self.writer.areas();
        let areas = Areas { words: own(areas.words)?, slots: own(areas.slots)?, data: own(areas.data)? };
        let (matched_before, seen_before) = (self.before(bit), self.memory.seen().packets);
        let kept_before = self.memory.kept_bytes(usize::from(bit));
        let first = match wish.last_ns {
            0 => self.memory.next(),
            last => {
                let mut reader = LiveReader::new(self.memory.clone(), 0);
                reader.seek_time(self.writer.now().saturating_sub(last), 0);
                reader.position()
            }
        };
        let past = if wish.last_ns > 0 { self.past() } else { Past::default() };
        let (sample, counts) = (wish.sample.max(1), wish.counts);
        let expression = Expression { bit, program, direction: wish.direction, sample, counts };
        self.readers.push(Reader {
            id,
            expression,
            promiscuous: wish.promiscuous,
            line: Arc::new(line),
            asleep: false,
            matched_before: matched_before.0,
            first,
            progress,
        });
        if let Err(trouble) = self.writer.set(&self.expressions()) {
            self.readers.pop();
            return Err(trouble);
        }
        if let Err(trouble) = self.set_promiscuous() {
            self.readers.pop();
            self.freed[usize::from(bit)] = Some(Instant::now());
            // As when a reader goes.
            let _ = self.writer.set(&self.expressions());
            return Err(trouble);
        }
        // Who looks back takes what was written for others, too; who does not begins before its expression was set, so that
        // it misses nothing.
        let decided = if wish.last_ns > 0 { self.memory.next() } else { first };
        Ok(Handout {
            id,
            device: self.device.clone(),
            geometry: self.writer.geometry(),
            progress: its_progress,
            areas,
            bit,
            matched_before,
            kept_before,
            seen_before,
            first,
            decided,
            past,
            note: String::new(),
            line: theirs,
        })
    }

    pub(super) fn exchange(&mut self, id: u64, program: Option<Arc<Program>>) -> Result<Exchange, Trouble> {
        let program = self.of_shown(program)?;
        let bit = self.free_bit()?;
        let matched_before = self.before(bit);
        let Some(at) = self.readers.iter().position(|reader| reader.id == id) else {
            return Err(Trouble::new(TroubleKind::Wish, "there is no such reader"));
        };
        let old = self.readers[at].expression.clone();
        self.readers[at].expression = Expression { bit, program, ..old.clone() };
        if let Err(trouble) = self.writer.set(&self.expressions()) {
            self.readers[at].expression = old;
            return Err(trouble);
        }
        self.freed[usize::from(old.bit)] = Some(Instant::now());
        self.readers[at].matched_before = matched_before.0;
        // It may sleep on a bit that is set no more.
        self.readers[at].wake();
        Ok(Exchange { bit, matched_before, first: self.memory.next() })
    }

    pub(super) fn set_promiscuous(&mut self) -> Result<(), Trouble> {
        let wanted = self.standing.is_some() || self.readers.iter().any(|reader| reader.promiscuous);
        if wanted != self.promiscuous {
            self.writer.promiscuous(wanted)?;
            self.promiscuous = wanted;
        }
        Ok(())
    }

    /// What readers say: that they sleep, and where they are. One message each, so that none can keep others waiting.
    pub(super) fn hear(&mut self, gone: &mut Vec<u64>) {
        let Ring { writer, memory, readers, .. } = self;
        for reader in readers {
            let mut message = [0; LINE_BYTES + 1];
            match rustix::net::recv(&reader.line, &mut message, RecvFlags::DONTWAIT) {
                Ok((LINE_BYTES, _)) => {
                    let mut bytes = [0; LINE_BYTES];
                    bytes.copy_from_slice(&message[..LINE_BYTES]);
                    let Line::Asleep(position) = Line::from_bytes(bytes);
                    reader.asleep = true;
                    writer.arm(1 << reader.expression.bit);
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
        self.readers.iter().map(reads).collect()
    }

    /// Without what readers have lost.
    pub(super) fn state(&mut self, group: u32) -> RingState {
        let seen = self.memory.seen();
        let readers = self.readers.iter().map(|reader| ReaderState {
            id: reader.id,
            bit: reader.expression.bit,
            matched: self.memory.matched(usize::from(reader.expression.bit)).packets - reader.matched_before,
            lost: 0,
            asleep: reader.asleep,
        });
        let mut device = self.device.clone();
        device.how.extend(self.shown.as_ref().map(Shown::how));
        RingState {
            device,
            group,
            ring_bytes: self.writer.geometry().ring_bytes,
            seen: (seen.packets, seen.wire_bytes),
            written: self.memory.next(),
            kept: self.standing.is_some(),
            readers: readers.collect(),
            statistics: self.writer.statistics(),
        }
    }
}

impl Reader {
    pub(super) fn wake(&mut self) {
        self.asleep = false;
        self.say(Word::Wake);
    }

    /// The last word, before its line is closed.
    pub(super) fn bid(&self, farewell: Farewell) {
        self.say(Word::Farewell(farewell));
    }

    fn say(&self, word: Word) {
        let (bytes, len) = word.to_bytes();
        // No room means that it has not looked at earlier words: it will.
        let _ = rustix::net::send(&self.line, &bytes[..len], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
