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
    /// Looks at it; is told as well whether somebody can come to read it.
    fn with<T>(&self, look: impl FnOnce(&mut Writer, bool) -> T) -> T;

    /// The same for who does not care for that, which may have to be asked for.
    fn with_writer<T>(&self, look: impl FnOnce(&mut Writer) -> T) -> T {
        self.with(|writer, _| look(writer))
    }
}

/// Sleeps until who is `needed` has moved, if there is somebody. May wake early: look again. Nobody has the lock meanwhile:
/// who forwarded to the ring looks now and then how far its readers are, and must not wait for them.
pub fn sleep_for_readers(sink: &impl Locked, needed: impl FnOnce(&mut Writer) -> Option<Needed>) {
    let began = Instant::now();
    let needed = sink.with_writer(|writer| {
        // Whom it finds after the watch began, for that is who will ring.
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
    /// Bytes of the block.
    pub room: u64,
    /// It waits for a first reader.
    pub reader: bool,
}

/// What stands in the way of a write.
struct Obstacle {
    needed: Option<Needed>,
    /// Changes when readers come and go.
    words: Shared<RingWords>,
    epoch: u32,
}

impl Wanted {
    /// Would a write not wait? It has room, or it fails at once.
    pub fn is_there(&self, sink: &impl Locked) -> bool {
        sink.with(|writer, is_kept| self.obstacle(writer, is_kept)).is_none()
    }

    fn obstacle(&self, writer: &mut Writer, is_kept: bool) -> Option<Obstacle> {
        let needed = writer.room_needs(self.room).ok()?;
        let deserted = self.reader && writer.readers() == 0;
        // Without a keeper nobody can come any more.
        if (needed.is_none() && !deserted) || (deserted && !is_kept) {
            return None;
        }
        let (words, epoch) = writer.membership_word();
        Some(Obstacle { needed: needed.filter(|_| !deserted), words, epoch })
    }
}

/// What there is for a writer.
#[derive(Debug)]
pub struct Writing<S> {
    /// The ring.
    pub sink: S,
    /// What is to be written to it.
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
            // A keeper that dies tells nobody that nobody comes.
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
