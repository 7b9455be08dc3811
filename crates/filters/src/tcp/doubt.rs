//! Data that its receiver should have refused, for a reason of `refusal.rs`. The capture may be at fault: it lost
//! segments, or saw them before a device finished them. So the data waits apart from sound data. It counts if no sound
//! copy has come when the receiver acknowledges these bytes, or when the receiver disappears from the capture.

use super::assembler::Assembler;
use super::direction::{Start, is_near};
use super::piece::{lane, piece_of};
use super::segment::Segment;
use crate::parts::flow_table::Slot;
use crate::parts::policy::Policy;
use base::limits::{TCP_DOUBTFUL_BLOCKS_PER_DIRECTION, TCP_DOUBTFUL_BYTES};
use filter::prelude::*;

impl Assembler {
    /// Keeps the data of a segment that its receiver would refuse for `reason`, or drops it.
    #[cold]
    pub(super) fn doubt(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        reason: &'static str,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Err(reason) };
        let own = &mut connection.directions[side];
        let is_data = segment.span > 0 && !segment.flags.syn() && !segment.flags.rst();
        let sequence = segment.data_sequence();
        let is_kept = is_data
            && self.settings.doubts
            && (!self.settings.checksums.refuse(segment.checksum, false))
            && !own.done
            && own.start == Start::Known
            && is_near(own.ahead(sequence))
            && usize::from(own.doubtful) < TCP_DOUBTFUL_BLOCKS_PER_DIRECTION
            && self.doubtful.bytes() < TCP_DOUBTFUL_BYTES;
        let piece = piece_of(segment, frame, own.position(sequence));
        if !is_kept || piece.end <= own.next {
            return Err(reason);
        }
        let piece = piece.between(piece.start.max(own.next), piece.end);
        let (_, more) = self.doubtful.keep(lane(slot, side), &piece, Policy::First, cx.rings);
        own.doubtful = own.doubtful.saturating_add_signed(more as i16);
        cx.count("segments in doubt", 1);
        cx.count(reason, 1);
        self.settle(slot, cx);
        Ok(())
    }

    /// Drops doubtful data that sound data replaced; gives doubtful data that is next and acknowledged.
    pub(super) fn resolve_doubts(&mut self, slot: Slot, side: usize, cx: &mut Context<'_>) {
        self.drop_doubts(slot, side, false, cx);
        let Some(connection) = self.table.get_mut(slot) else { return };
        let class = Class::of_stream(connection.number, side as u8);
        let own = &mut connection.directions[side];
        if own.doubtful == 0 || self.doubtful.first(lane(slot, side)).is_none_or(|start| start > own.next) {
            return;
        }
        let until = own.acked.min(own.sure_end().unwrap_or(u64::MAX));
        // Waiting sound data is preferred.
        let sound = self.held.first(lane(slot, side)).unwrap_or(u64::MAX);
        let (next, out) = (own.next, &mut *cx.out);
        let taken = self.doubtful.take_first(lane(slot, side), until, cx.rings, |piece| {
            let end = piece.end.min(sound);
            if own.next < end {
                own.give_around_urgent(&piece.between(own.next, end), class, out);
            }
        });
        own.doubtful = own.doubtful.saturating_sub(taken as u16);
        if own.next > next {
            cx.count("bytes in doubt given", own.next - next);
            own.trust_anew();
            self.fill(slot, side, cx);
        }
    }

    /// Advances to `until`, across missing sound data. Data in doubt fills the place unless the receiver is visible
    /// and has not acknowledged it; the rest is a gap.
    pub(super) fn pass_over(&mut self, slot: Slot, side: usize, until: u64, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let class = Class::of_stream(connection.number, side as u8);
        let own = &mut connection.directions[side];
        let lane = lane(slot, side);
        let (mut missing, mut given) = (0, 0);
        while own.doubtful > 0 && self.doubtful.first(lane).is_some_and(|start| start < until) {
            let out = &mut *cx.out;
            let taken = self.doubtful.take_first(lane, u64::MAX, cx.rings, |piece| {
                let (start, end) = (piece.start.max(own.next), piece.end.min(until));
                if start < end && (end <= own.acked || !own.acknowledged) {
                    missing += start - own.next;
                    own.skip_to(start);
                    own.give_around_urgent(&piece.between(start, end), class, out);
                    given += end - start;
                }
            });
            own.doubtful = own.doubtful.saturating_sub(taken as u16);
        }
        if given > 0 {
            own.trust_anew();
            cx.count("bytes in doubt given", given);
        }
        missing += until.saturating_sub(own.next);
        own.skip_to(until);
        if missing > 0 {
            cx.count("gaps", 1);
            cx.count("gap bytes", missing);
        }
    }

    /// Drops doubtful data that sound data replaced, or all of it (`are_all`) when the connection ends.
    pub(super) fn drop_doubts(&mut self, slot: Slot, side: usize, are_all: bool, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        let lane = lane(slot, side);
        while own.doubtful > 0 && (are_all || own.done || self.doubtful.first_end(lane) <= own.next) {
            let taken = self.doubtful.take_first(lane, u64::MAX, cx.rings, |_| {});
            own.doubtful = own.doubtful.saturating_sub(taken as u16);
            if taken == 0 {
                break;
            }
        }
    }
}
