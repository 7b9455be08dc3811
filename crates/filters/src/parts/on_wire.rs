//! Restores received frames to their form on the wire, for a source whose frames go out by another device.
//!
//! The host at the other end of a virtual pair leaves checksums open and sends super-frames, as if a device finished
//! and cut them later. The kernel also merges received segments (GRO). This file finishes open checksums and cuts
//! super-frames into segments; `packet/offload.rs` does the work.

use super::landing::{Known, Landing};
use base::limits::SUPER_FRAME_SEGMENTS;
use buffer::ViewId;
use buffer::live::SlotFlags;
use driver::Frame;
use driver::frame::OpenChecksum;
use filter::prelude::*;
use packet::offload::{Cut, Segments, finish_checksum};

/// Restores frames, and counts.
#[derive(Debug, Default)]
pub struct OnWire {
    /// A super-frame with its tag put back; the buffer is reused.
    whole: Vec<u8>,
    finished: u64,
    cut: u64,
    /// Frames whose checksum could not be finished.
    open: u64,
    /// Super-frames that could not be cut.
    uncut: u64,
}

impl OnWire {
    /// Gives a frame, or the segments of a super-frame.
    #[inline]
    pub fn give(&mut self, frame: &Frame<'_>, landing: &Landing, view: ViewId, class: Class, cx: &mut Context<'_>) {
        if frame.flags.has(SlotFlags::SUPER_FRAME) {
            return self.give_segments(frame, landing, view, class, cx);
        }
        let Frame { time, wire, flags, .. } = *frame;
        let known = Known { time, len: frame.len() as u32, wire, flags };
        if !flags.has(SlotFlags::CHECKSUM_OPEN) {
            landing.give(view, cx, known, |space| Some((frame.copy_into(space), class)));
            return;
        }
        let finished = landing.give(view, cx, known, |space| {
            let len = frame.copy_into(space);
            let OpenChecksum { start, field } = frame.open_checksum?;
            finish_checksum(&mut space[..len], start.into(), field.into()).then_some((len, class))
        });
        *if finished { &mut self.finished } else { &mut self.open } += 1;
    }

    fn give_segments(
        &mut self,
        frame: &Frame<'_>,
        landing: &Landing,
        view: ViewId,
        class: Class,
        cx: &mut Context<'_>,
    ) {
        let len = frame.len();
        self.whole.resize(len.max(self.whole.len()), 0);
        let whole = &mut self.whole[..len];
        frame.copy_into(whole);
        let transport = frame.open_checksum.map(|open| open.start);
        let cut = Cut { segment_bytes: frame.segment_bytes, protocol: frame.segment_protocol, transport };
        let segments = Segments::new(whole, cut).ok();
        let Some(segments) = segments.filter(|segments| segments.count() <= SUPER_FRAME_SEGMENTS) else {
            self.uncut += 1;
            return;
        };
        for index in 0..segments.count() {
            let len = segments.len_of(index) as u32;
            let known = Known { time: frame.time, len, wire: len, flags: frame.flags };
            landing.give(view, cx, known, |space| Some((segments.write(index, space)?, class)));
        }
        self.cut += 1;
    }

    /// Counts the outcomes, once at the end.
    pub fn account(&self, cx: &mut Context<'_>) {
        for (event, count) in [("checksums finished", self.finished), ("super-frames cut into segments", self.cut)] {
            if count > 0 {
                cx.count(event, count);
            }
        }
        for (why, count) in
            [("an open checksum of a sort not known", self.open), ("a super-frame of a sort not known", self.uncut)]
        {
            if count > 0 {
                // They were counted as taken when they came.
                cx.untake(count);
                cx.drop(count, why);
            }
        }
    }
}
