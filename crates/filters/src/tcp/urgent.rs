//! Urgent data as Linux takes it (`tcp_check_urg`): a segment points at one byte of the stream, which its receiver's
//! program does not read with the others. Checked against Linux 6.18.
//!
//! - The pointer is one past the byte (RFC 1122, 4.2.2.4); 0 means the first byte of the segment.
//! - The byte may be anywhere ahead, in another segment or in one that is held. Only what the receiver has no longer
//!   waits for cannot be pointed at.
//! - A later pointer replaces an earlier one whose byte was not read. Then that byte is an ordinary one.
//!
//! When its receiver's program reads is not known here. [`Urgent::Out`] presumes that it reads at once.

use super::assembler::Assembler;
use super::direction::is_near;
use super::piece::{Piece, piece_of};
use super::segment::Segment;
use super::settings::Urgent;
use crate::parts::flow_table::Slot;
use filter::prelude::*;
use packet::tcp::Flags as TcpFlags;

/// Why a segment is dropped.
const UNSURE: &str = "urgent data that may be read either way";

impl Assembler {
    /// Notes the byte that a segment points at. `piece` is its data, maybe none. The error is why it is dropped.
    #[inline]
    pub(super) fn point(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        piece: &Piece,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        if self.settings.urgent == Urgent::Inline {
            return Ok(());
        }
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
        let points = segment.flags.intersects(TcpFlags::URG);
        // Linux looks at a segment no more where its last byte was acknowledged long ago, nor at the first SYN.
        let is_met = points || own.urgent > 0;
        if !is_met || segment.is_first_syn() || piece.end < own.acked {
            return Ok(());
        }
        let first = piece.start - u64::from(segment.flags.syn());
        let at = if points { first + u64::from(segment.urgent.saturating_sub(1)) } else { 0 };
        if self.settings.urgent == Urgent::Sure {
            // The receiver may lack what was not acknowledged.
            let is_other = at >= own.acked && at != own.urgent && (own.urgent > 0 || at < own.next);
            let has_unsaid = own.urgent >= own.acked && at != own.urgent && piece.has(own.urgent);
            if is_other || has_unsaid || points && segment.flags.syn() {
                return Err(UNSURE);
            }
        }
        // The program has read the bytes that were given. A pointer to a byte behind them still waits.
        let waits = own.urgent >= own.next;
        if at >= own.next && (!waits || at > own.urgent) {
            cx.count("urgent bytes", 1);
            if own.urgent > 0 && !waits {
                cx.count("urgent bytes of readers in time", 1);
            }
            own.urgent = at;
        }
        Ok(())
    }

    /// The same for a segment without data.
    pub(super) fn point_without_data(
        &mut self,
        slot: Slot,
        side: usize,
        segment: &Segment,
        frame: &Descriptor,
        cx: &mut Context<'_>,
    ) -> Result<(), &'static str> {
        let Some(connection) = self.table.get_mut(slot) else { return Ok(()) };
        let own = &mut connection.directions[side];
        let sequence = segment.data_sequence();
        if !segment.flags.intersects(TcpFlags::URG) || segment.is_first_syn() || !is_near(own.ahead(sequence)) {
            return Ok(());
        }
        own.begin_midstream(sequence);
        let piece = piece_of(segment, frame, own.position(sequence));
        self.point(slot, side, segment, &piece, cx)
    }
}
