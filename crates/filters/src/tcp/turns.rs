//! The order of the two directions of a connection. Data that acknowledges bytes of the other direction was sent after
//! these had come, so it is given after them, in whatever order the capture has both. It waits as held data does: at
//! most `gap_wait`, as far as there is room. A filter between the ends (without doubts) has to judge each frame as it
//! passes, so its data does not wait.

use super::assembler::Assembler;
use super::direction::is_near;
use super::piece::{Lane, lane};
use super::segment::Segment;
use crate::parts::flow_table::Slot;
use filter::prelude::*;

impl Assembler {
    /// Notes what the data of a segment at `start` waits for; `true` if it waits.
    pub(super) fn waits(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        start: u64,
        cx: &mut Context<'_>,
    ) -> bool {
        let lane = lane(slot, side);
        let Some(connection) = self.table.get_mut(slot).filter(|_| self.settings.doubts) else { return false };
        let (own, other) = connection.sides(side);
        let wanted = other.position(segment.acknowledgment).min(other.fin.unwrap_or(u64::MAX));
        // A retransmission acknowledges more than the first copy did.
        let is_ahead = segment.flags.ack() && other.heard && start >= own.acked;
        if is_ahead && self.waiting.is_missing(lane, wanted, other.next) && is_near(other.ahead(segment.acknowledgment))
        {
            if self.waiting.from.len() < self.settings.held {
                own.waits = true;
                self.waiting.from.entry((lane, start)).or_insert(wanted);
                cx.count("segments before what they acknowledge", 1);
            } else {
                cx.count("segments given before what they acknowledge", 1);
            }
        }
        own.waits && self.waiting.end(lane) <= start
    }

    /// Gives all data whose turn has come, of both directions.
    pub(super) fn take_turns(&mut self, slot: Slot, cx: &mut Context<'_>) {
        let (mut side, mut idle) = (0, 0);
        while idle < 2 {
            idle = if self.take_turn(slot, side, cx) { 0 } else { idle + 1 };
            side = 1 - side;
        }
    }

    /// Gives the data of a direction whose turn has come; returns whether there was any.
    fn take_turn(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) -> bool {
        let lane = lane(slot, side);
        let Some(connection) = self.table.get_mut(slot) else { return false };
        let (own, other) = connection.sides(side);
        if !own.waits {
            return false;
        }
        let (next, there) = (own.next, other.next);
        while let Some((start, wanted)) = self.waiting.first(lane)
            && (start < next || !self.waiting.is_missing(lane, wanted, there))
        {
            self.waiting.from.remove(&(lane, start));
        }
        own.waits = self.waiting.first(lane).is_some();
        if self.is_next(lane, next) {
            self.fill(slot, side, cx);
        }
        self.table.get(slot).is_some_and(|connection| connection.directions[side].next > next)
    }

    /// Whether held data is next that need not wait.
    pub(super) fn is_next(&self, lane: Lane, next: u64) -> bool {
        self.held.first(lane) == Some(next) && self.waiting.end(lane) > next
    }

    /// Ends the wait of a direction's next data for the bytes that it acknowledges.
    pub(super) fn skip_turn(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        let lane = lane(slot, side);
        if let Some((_, wanted)) = self.waiting.first(lane) {
            let missed = self.waiting.missed.entry(lane).or_default();
            *missed = wanted.max(*missed);
            cx.count("segments given before what they acknowledge", 1);
            self.take_turns(slot, cx);
        }
        self.fill(slot, side, cx);
    }
}
