//! What a writer waits for: room, or its first reader.

use super::Waits;
use crate::ring::Writer;
use crate::ring::sleeper::Needed;
use crate::ring::words::RingWords;
use crate::shared::futex::wait_any;
use crate::shared::lifeline;
use crate::shared::words::Shared;
use base::atomic::AtomicU32;
use std::time::Instant;

/// A ring's writer behind a lock.
pub trait Locked {
    /// Calls `look` with the writer, and with whether new readers can still come.
    fn with<T>(&self, look: impl FnOnce(&mut Writer, bool) -> T) -> T;

    /// The same without asking whether readers can come, which may take a question to the keeper.
    fn with_writer<T>(&self, look: impl FnOnce(&mut Writer) -> T) -> T {
        self.with(|writer, _| look(writer))
    }
}

/// Sleeps until the reader that `needed` finds has moved; returns at once if there is none. May wake early: look again.
/// The lock is free meanwhile, because forwarding readers need it to check how far this ring's readers are.
pub fn sleep_for_readers(sink: &impl Locked, needed: impl FnOnce(&mut Writer) -> Option<Needed>) {
    let began = Instant::now();
    let needed = sink.with_writer(|writer| {
        // Call `needed` after the watch began, because only then the reader will ring.
        writer.watch();
        needed(writer)
    });
    if let Some(needed) = needed {
        needed.sleep();
    }
    sink.with_writer(|writer| {
        writer.unwatch();
        if began.elapsed() >= lifeline::LOOK {
            writer.look_after_readers();
        }
    });
}

/// What a write needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Length of the block in bytes.
    pub room: u64,
    /// Whether the write waits for a first reader.
    pub reader: bool,
}

struct Obstacle {
    needed: Option<Needed>,
    /// The epoch in these words changes when readers join or leave.
    words: Shared<RingWords>,
    epoch: u32,
}

impl Wanted {
    /// Whether a write would return without waiting: it has room, or it fails at once.
    pub fn is_there(&self, sink: &impl Locked) -> bool {
        sink.with(|writer, is_kept| self.obstacle(writer, is_kept)).is_none()
    }

    fn obstacle(&self, writer: &mut Writer, is_kept: bool) -> Option<Obstacle> {
        let needed = writer.room_needs(self.room).ok()?;
        let deserted = self.reader && writer.readers() == 0;
        // Without a keeper no reader can join any more.
        if (needed.is_none() && !deserted) || (deserted && !is_kept) {
            return None;
        }
        let (words, epoch) = writer.membership_word();
        Some(Obstacle { needed: needed.filter(|_| !deserted), words, epoch })
    }
}

/// What a writer waits for.
#[derive(Debug)]
pub struct Writing<S> {
    /// The ring.
    pub sink: S,
    /// What will be written to it.
    pub wanted: Wanted,
}

impl<S: Locked> Waits for Writing<S> {
    fn sleep(&self, kick: (&AtomicU32, u32)) -> bool {
        let obstacle = self.sink.with(|writer, is_kept| {
            writer.watch();
            self.wanted.obstacle(writer, is_kept)
        });
        let began = Instant::now();
        if let Some(Obstacle { needed, words, epoch }) = &obstacle {
            let mut all = vec![kick, (&words.keeper.0.epoch, *epoch)];
            all.extend(needed.as_ref().map(Needed::word));
            // A keeper that dies cannot report that no readers will come.
            let deadline = needed.as_ref().map_or_else(|| began.checked_add(lifeline::LOOK), Needed::deadline);
            wait_any(&all, deadline);
        }
        self.sink.with(|writer, _| {
            writer.unwatch();
            if began.elapsed() >= lifeline::LOOK {
                writer.look_after_readers();
            }
        });
        obstacle.is_none()
    }
}
