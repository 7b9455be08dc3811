//! The sessions of a filter: finds them by class without hashing (stream numbers are small). Closes a session when it
//! ends, when it has been idle for too long, or to make room. The filter's slab has the states themselves.

use base::id::Class;
use base::limits::{SESSION_IDLE_NS, SESSIONS, STREAMS};
use buffer::{Descriptor, Flags};
use filter::run::{AnySessionFilter, SessionKey, Slot};
use filter::{Closed, Context, Failure};

const NONE: u32 = u32::MAX;

/// One open session; `index` in the table is its slot in the filter's slab.
#[derive(Clone, Copy, Debug)]
struct Open {
    class: Class,
    /// The epoch of the connection's number, in the stream table.
    epoch: u32,
    last_seen: u64,
    /// The run of blocks that touched it last, if there are partitions.
    touched: u64,
    /// Neighbours in the list from the longest to the shortest silence.
    older: u32,
    newer: u32,
    /// Directions that have ended, one bit each.
    ended: u8,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    key: SessionKey,
    /// For each class or connection number: its slot, or [`NONE`]. Grows with the highest number met.
    slots: Vec<u32>,
    open: Vec<Open>,
    oldest: u32,
    latest: u32,
    count: usize,
    cap: usize,
}

impl Sessions {
    pub(crate) fn new(key: SessionKey) -> Sessions {
        Sessions { key, slots: Vec::new(), open: Vec::new(), oldest: NONE, latest: NONE, count: 0, cap: SESSIONS }
    }

    /// The number that all blocks of one session share.
    #[inline]
    pub(crate) fn number(&self, class: Class) -> u32 {
        match self.key {
            SessionKey::Class => class.0,
            SessionKey::Connection => class.connection(),
        }
    }

    /// Whether a stream can have this class. A block of another class has no session.
    #[inline]
    pub(crate) fn is_stream(&self, class: Class) -> bool {
        (class.connection() as usize) < STREAMS
    }

    fn slot_of(&self, class: Class) -> Option<u32> {
        self.slots.get(self.number(class) as usize).copied().filter(|slot| *slot != NONE)
    }

    /// Gives the session of this block, and opens one if there is none. Two kinds of blocks end an open session first:
    /// a block that is FIRST of its class, and a block of another connection with the same number. The end of the
    /// session before may have been left out above.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        block: &Descriptor,
        filter: &mut dyn AnySessionFilter,
        cx: &mut Context<'_>,
    ) -> Result<Slot, Box<Failure>> {
        if let Some(slot) = self.slot_of(block.class) {
            let is_another = self.open[slot as usize].epoch != cx.streams.epoch(block.class);
            let begins_anew = self.key == SessionKey::Class && block.has(Flags::FIRST);
            if !begins_anew && !is_another {
                self.touch(slot, cx);
                return Ok(Slot(slot));
            }
            self.close(slot, Closed::Replaced, filter, cx)?;
        }
        if self.count >= self.cap {
            cx.count("sessions evicted", 1);
            self.close(self.oldest, Closed::Evicted, filter, cx)?;
        }
        let slot = filter.open(block.class, cx);
        let number = self.number(block.class) as usize;
        if self.slots.len() <= number {
            self.slots.resize((number + 1).next_power_of_two(), NONE);
        }
        self.slots[number] = slot.0;
        let epoch = cx.streams.epoch(block.class);
        let open = Open {
            class: block.class,
            epoch,
            last_seen: cx.now,
            touched: cx.order.sequence,
            older: NONE,
            newer: NONE,
            ended: 0,
        };
        if self.open.len() <= slot.0 as usize {
            self.open.resize(slot.0 as usize + 1, open);
        }
        self.open[slot.0 as usize] = open;
        self.append(slot.0);
        self.count += 1;
        Ok(slot)
    }

    /// Notes the last block of a direction. Gives whether that ends the session.
    pub(crate) fn ends_with(&mut self, slot: Slot, block: &Descriptor) -> bool {
        let open = &mut self.open[slot.0 as usize];
        match self.key {
            SessionKey::Class => true,
            SessionKey::Connection => {
                open.ended |= 1 << block.class.direction();
                open.ended == 0b11
            }
        }
    }

    pub(crate) fn close(
        &mut self,
        slot: u32,
        why: Closed,
        filter: &mut dyn AnySessionFilter,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        self.unlink(slot);
        self.count -= 1;
        let class = self.open[slot as usize].class;
        let number = self.number(class) as usize;
        self.slots[number] = NONE;
        filter.close(Slot(slot), class, why, cx)
    }

    /// Ends the session with the longest silence, if that is too long. Gives whether there was one.
    pub(crate) fn expire_one(
        &mut self,
        filter: &mut dyn AnySessionFilter,
        cx: &mut Context<'_>,
    ) -> Result<bool, Box<Failure>> {
        let oldest = self.oldest;
        let silent = oldest != NONE && cx.now.saturating_sub(self.open[oldest as usize].last_seen) > SESSION_IDLE_NS;
        if silent {
            cx.count("sessions idle", 1);
            cx.order.ends = self.open[oldest as usize].touched;
            self.close(oldest, Closed::Idle, filter, cx)?;
        }
        Ok(silent)
    }

    /// Ends the session with the longest silence. Gives whether there was one.
    pub(crate) fn finish_one(
        &mut self,
        filter: &mut dyn AnySessionFilter,
        cx: &mut Context<'_>,
    ) -> Result<bool, Box<Failure>> {
        if self.oldest == NONE {
            return Ok(false);
        }
        cx.order.ends = self.open[self.oldest as usize].touched;
        self.close(self.oldest, Closed::Finished, filter, cx)?;
        Ok(true)
    }

    /// When to check the session with the longest silence.
    pub(crate) fn next_expiry(&self) -> u64 {
        if self.oldest == NONE {
            return u64::MAX;
        }
        self.open[self.oldest as usize].last_seen.saturating_add(SESSION_IDLE_NS + 1)
    }

    #[inline]
    fn touch(&mut self, slot: u32, cx: &Context<'_>) {
        let open = &mut self.open[slot as usize];
        (open.last_seen, open.touched) = (cx.now, cx.order.sequence);
        if self.latest != slot {
            self.unlink(slot);
            self.append(slot);
        }
    }

    fn append(&mut self, slot: u32) {
        let latest = self.latest;
        (self.open[slot as usize].older, self.open[slot as usize].newer) = (latest, NONE);
        match self.open.get_mut(latest as usize) {
            Some(before) if latest != NONE => before.newer = slot,
            _ => self.oldest = slot,
        }
        self.latest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Open { older, newer, .. } = self.open[slot as usize];
        if older == NONE {
            self.oldest = newer;
        } else {
            self.open[older as usize].newer = newer;
        }
        if newer == NONE {
            self.latest = older;
        } else {
            self.open[newer as usize].older = older;
        }
    }
}
