//! One change of a ring: a reader comes or changes its expression, or the ring begins or ends keeping everything.
//!
//! While there is a [`Change`] of a ring, there is no other, and the ring is not given up for want of readers.
//! Meanwhile the kernel verifies programs, which may take seconds. The lock of [`super::CaptureRegistry`] is held only
//! for moments in between, so that readers are woken, dropped and listed, and other rings change.

use super::ring::{New, Reader, Ring, Written};
use super::turn::Turn;
use super::{Consumed, Key, Shared, State};
use crate::attachment::{Attachment, Exchange, Granted, Past};
use crate::capture_request::{CaptureError, CaptureErrorKind, CaptureRequest, Mode};
use crate::permission::Permission;
use crate::writer::Expression;
use buffer::live::{EXPRESSIONS, LiveMemory, LiveReader};
use program::ir::Program;
use std::sync::Arc;

pub(super) struct Change<'a> {
    shared: &'a Shared,
    key: Key,
    turn: Turn,
}

impl Shared {
    /// Waits until this user may change a ring.
    pub(super) fn change(&self, key: &Key, user: u32) -> Change<'_> {
        let turns = Arc::clone(self.lock().turns.entry(key.clone()).or_default());
        let turn = turns.take(user);
        self.lock().changing.insert(key.clone());
        Change { shared: self, key: key.clone(), turn }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.changing.remove(&self.key);
        state.give_up_unused(&self.key);
        if self.turn.is_last() {
            state.turns.remove(&self.key);
        }
        self.shared.release(state);
        // There may be new readers to listen to, and some may have gone meanwhile.
        self.shared.stir();
    }
}

/// For waiting until expressions that a change replaced have decided on their last packet.
pub(super) struct Earlier {
    grace: fn(),
    memory: LiveMemory,
}

impl Earlier {
    /// Waits until their packets are written; gives the number of the first packet after them.
    pub(super) fn await_end(self) -> u64 {
        (self.grace)();
        self.memory.next()
    }
}

impl Change<'_> {
    pub(super) fn end(self) -> Result<Earlier, CaptureError> {
        self.ring(|ring| Earlier { grace: ring.written.writer.grace(), memory: ring.memory.clone() })
    }

    /// Calls `with` with the ring, under the lock.
    pub(super) fn ring<T>(&self, with: impl FnOnce(&mut Ring) -> T) -> Result<T, CaptureError> {
        let mut state = self.shared.lock();
        state.rings.get_mut(&self.key).map(with).ok_or_else(|| self.gone())
    }

    fn gone(&self) -> CaptureError {
        CaptureError::new(CaptureErrorKind::System, format!("`{}` has gone", self.key.device))
    }

    /// Makes the ring if there is none; says whether it did.
    pub(super) fn make(
        &self,
        asked: &CaptureRequest,
        permission: &Permission,
        consumed: Option<Consumed>,
    ) -> Result<bool, CaptureError> {
        if let Some(ring) = self.shared.lock().rings.get(&self.key) {
            assert!(ring.permission == *permission, "two rights of one group differ");
            return Ok(false);
        }
        if self.key.mode == Mode::Consume && consumed.is_none() {
            // The ring that was to be joined went a moment ago.
            return Err(self.gone());
        }
        let mut ring = Ring::open(self.shared.opener.as_ref(), asked, consumed)?;
        if ring.device.index != self.key.index {
            let text = format!("`{}` was another device a moment ago", asked.device);
            return Err(CaptureError::new(CaptureErrorKind::System, text));
        }
        // Set before it has any expression, while it is still empty.
        (ring.permission, ring.shown) = (permission.clone(), permission.shown(&ring.device)?);
        self.shared.lock().rings.insert(self.key.clone(), ring);
        Ok(true)
    }

    /// Puts the readers' expressions in force. This is the slow step.
    fn set(&self) -> Result<(), CaptureError> {
        let (written, expressions) = self.ring(|ring| (Arc::clone(&ring.written), ring.expressions()))?;
        written.writer.set(&expressions)?;
        self.ring(|ring| ring.put_in_force(&expressions))
    }

    /// Switches the device's promiscuous mode as its readers want it.
    fn set_promiscuous(&self) -> Result<(), CaptureError> {
        let of = |ring: &mut Ring| (Arc::clone(&ring.written), ring.wants_promiscuous(), ring.promiscuous);
        let (written, wanted, is): (Arc<Written>, bool, bool) = self.ring(of)?;
        if wanted != is {
            written.writer.promiscuous(wanted)?;
            self.ring(|ring| ring.promiscuous = wanted)?;
        }
        Ok(())
    }

    /// Makes the writer stop working for readers that went. It never refuses fewer expressions as such. If the system
    /// fails, it goes on setting unused bits until the next change.
    pub(super) fn settle(&self) {
        let is_stale = self.ring(|ring| ring.is_stale()).unwrap_or(false);
        if is_stale && self.set().and_then(|()| self.set_promiscuous()).is_err() {
            // If the ring has gone, its writer has gone too.
            let _ = self.ring(Ring::be_stuck);
        }
    }

    /// A free bit for an expression.
    fn bit(&self) -> Result<u8, CaptureError> {
        if let Some(bit) = self.ring(|ring| ring.free_bit())? {
            return Ok(bit);
        }
        // The thread may not have noticed yet that some readers went.
        self.shared.look();
        self.settle();
        if self.ring(|ring| ring.has_resting())? {
            let grace = self.ring(|ring| ring.written.writer.grace())?;
            grace();
            self.ring(Ring::end_rest)?;
        }
        self.ring(|ring| ring.free_bit().ok_or_else(|| ring.full(EXPRESSIONS)))?
    }

    /// Lets in a reader with a new number; all or nothing.
    pub(super) fn admit(&self, new: New<'_>) -> Result<Attachment, CaptureError> {
        let (id, user, last_ns) = (new.id, new.user, new.asked.last_ns);
        if self.ring(|ring| ring.place_for(user).is_err())? {
            // The thread may not have noticed yet that some readers went.
            self.shared.look();
            self.ring(|ring| ring.place_for(user))??;
        }
        let bit = self.bit()?;
        let (written, memory, since, is_whole) =
            self.ring(|ring| (Arc::clone(&ring.written), ring.memory.clone(), ring.since, ring.standing.is_some()))?;
        // Scanning a ring takes too long for doing it under the lock.
        let (mut first, mut past) = (memory.next(), Past::default());
        if last_ns > 0 {
            let now = written.writer.now();
            let mut reader = LiveReader::new(memory.clone(), 0);
            let oldest = reader.oldest_time().unwrap_or(0).max(since);
            past = Past { reaches_ns: now.saturating_sub(oldest), whole: is_whole };
            reader.seek_time(now.saturating_sub(last_ns), 0);
            first = reader.position();
        }
        let Attachment { granted, fds } = self.let_in(new, bit, first)?;
        let set = self.set().and_then(|()| self.set_promiscuous());
        if let Err(error) = set {
            self.ring(|ring| ring.readers.retain(|reader| reader.id != id))?;
            self.settle();
            return Err(error);
        }
        self.ring(|ring| ring.reader(id).map(|reader| reader.is_in = true))??;
        // A reader that looks back also takes packets that were written for other readers. One that does not begins
        // before its expression was set, so that it misses nothing.
        let decided = if last_ns > 0 { memory.next() } else { first };
        Ok(Attachment { granted: Granted { decided, past, ..granted }, fds })
    }

    fn let_in(&self, new: New<'_>, bit: u8, first: u64) -> Result<Attachment, CaptureError> {
        let mut state = self.shared.lock();
        self.shared.afford(&state, &self.key, (new.user, None), new.cost)?;
        state.rings.get_mut(&self.key).ok_or_else(|| self.gone())?.let_in(new, bit, first)
    }

    /// Gives a reader another expression with this cost; all or nothing.
    pub(super) fn exchange(&self, id: u64, program: Option<Arc<Program>>, cost: u32) -> Result<Exchange, CaptureError> {
        let bit = self.bit()?;
        let (matched_before, cost_before) = self.propose(id, bit, program, cost)?;
        let set = self.set();
        self.ring(|ring| {
            let reader = ring.reader(id)?;
            let next = reader.next.take();
            reader.cost = if set.is_ok() { cost } else { cost_before };
            set?;
            // `propose` put it there, and no other change runs.
            reader.expression = next.unwrap_or_else(|| reader.expression.clone());
            reader.matched_before = matched_before.0;
            // It may sleep on a bit that is set no more.
            reader.wake();
            Ok(Exchange { bit, matched_before, first: ring.memory.next() })
        })?
    }

    /// Notes a reader's next expression beside its present one, if the device's budget has room. Gives the bit's
    /// earlier counts, and the cost of the present expression.
    fn propose(
        &self,
        id: u64,
        bit: u8,
        program: Option<Arc<Program>>,
        cost: u32,
    ) -> Result<((u64, u64), u32), CaptureError> {
        let mut state = self.shared.lock();
        let ring = state.rings.get_mut(&self.key).ok_or_else(|| self.gone())?;
        let Reader { user, expression, .. } = ring.reader(id)?;
        let (user, expression) = (*user, expression.clone());
        let (program, matched_before) = (ring.of_shown(program)?, ring.before(bit));
        self.shared.afford(&state, &self.key, (user, Some(id)), cost)?;
        let reader = state.rings.get_mut(&self.key).ok_or_else(|| self.gone())?.reader(id)?;
        reader.next = Some(Expression { bit, program, ..expression });
        let before = reader.cost;
        reader.cost = before.max(cost);
        Ok((matched_before, before))
    }

    /// Takes from now on every packet that the ring's readers may see; all or nothing.
    pub(super) fn keep(&self) -> Result<(), CaptureError> {
        if self.ring(|ring| ring.standing.is_some())? {
            return Ok(());
        }
        let bit = self.bit()?;
        self.ring(|ring| ring.standing = Some(bit))?;
        let set = self.set().and_then(|()| self.set_promiscuous());
        match set {
            Ok(()) => self.ring(|ring| ring.since = ring.written.writer.now()),
            Err(error) => {
                self.forget();
                Err(error)
            }
        }
    }

    /// Takes from now on only what the ring's readers want. `true`: it took more before.
    pub(super) fn forget(&self) -> bool {
        let kept = self.ring(|ring| ring.standing.take()).ok().flatten().is_some();
        if kept {
            self.settle();
            let _ = self.ring(|ring| ring.since = ring.written.writer.now());
        }
        kept
    }
}

impl State {
    fn give_up_unused(&mut self, key: &Key) {
        if self.rings.get(key).is_some_and(Ring::is_unused) {
            self.given_up.extend(self.rings.remove(key));
        }
    }
}
