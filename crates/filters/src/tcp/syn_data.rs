//! Data that comes with a SYN (RFC 7413). It waits for the answer, which tells whether the other side takes it. If the
//! answer acknowledges the SYN alone, the sender repeats the data, perhaps with other bytes.

use super::assembler::Assembler;
use super::piece::Piece;
use super::piece::lane;
use crate::parts::flow_table::Slot;
use filter::prelude::*;

impl Assembler {
    /// Applies an acknowledgement while the data of a SYN waits.
    pub(super) fn answer_syn_data(&mut self, slot: Slot, side: usize, acknowledgment: u32, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        if own.acked > own.first {
            self.settle_syn_data(slot, side, true, cx);
        } else if acknowledgment == own.first as u32 {
            own.confirmed = true;
            self.settle_syn_data(slot, side, false, cx);
        }
    }

    /// The sender goes on, but no answer was seen: data that follows shows that the data was taken; data at the start,
    /// that it was not.
    pub(super) fn go_on_from_syn_data(&mut self, slot: Slot, side: usize, piece: &Piece, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get(slot) else { return };
        if piece.start <= connection.directions[side].next {
            self.settle_syn_data(slot, side, false, cx);
        } else if piece.start <= self.held.first_end(lane(slot, side)) {
            self.settle_syn_data(slot, side, true, cx);
        }
    }

    /// Gives the waiting data of a SYN (`is_taken`), or drops it.
    pub(super) fn settle_syn_data(&mut self, slot: Slot, side: usize, is_taken: bool, cx: &mut Context<'_>) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let own = &mut connection.directions[side];
        if !std::mem::take(&mut own.syn_data) {
            return;
        }
        if !is_taken {
            let mut bytes = 0;
            own.held -=
                self.held.take_first(lane(slot, side), u64::MAX, cx.rings, |piece| bytes += piece.end - piece.start);
            cx.count("bytes of syns not taken", bytes);
        }
        self.fill(slot, side, cx);
    }
}
