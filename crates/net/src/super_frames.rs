//! Super-frames: the host at the other end of a virtual pair leaves the cutting of long TCP and UDP to its device, and the
//! kernel joins received segments (GRO). A flow gets the segments of the wire, which fit its buffers.

use crate::counters::{End, Event};
use crate::interface::Core;
use base::limits::SUPER_FRAME_SEGMENTS;
use buffer::live::SlotFlags;
use driver::Frame;
use packet::offload::{Cut, Segments};

/// Buffers for one super-frame and one of its segments.
#[derive(Debug, Default)]
pub(crate) struct Knife {
    whole: Vec<u8>,
    segment: Vec<u8>,
}

impl Core {
    /// Takes a frame of the device; of a super-frame its segments, copied one after the other.
    pub(crate) fn take_cut(&mut self, frame: &Frame<'_>, now: u64) {
        if !frame.flags.has(SlotFlags::SUPER_FRAME) || frame.is_outbound() {
            return self.take(frame, now);
        }
        let mut knife = std::mem::take(&mut self.knife);
        if !self.take_segments(frame, &mut knife, now) {
            self.counters.received += 1;
            self.counters.received_bytes += frame.len() as u64;
            self.counters.end(End::Uncut);
            self.work.charge(None, frame.len());
        }
        self.knife = knife;
    }

    /// `false`: it is of a kind that cannot be cut.
    fn take_segments(&mut self, frame: &Frame<'_>, knife: &mut Knife, now: u64) -> bool {
        let len = frame.len();
        knife.whole.resize(len.max(knife.whole.len()), 0);
        let whole = &mut knife.whole[..len];
        frame.copy_into(whole);
        let transport = frame.open_checksum.map(|open| open.start);
        let cut = Cut { segment_bytes: frame.segment_bytes, protocol: frame.segment_protocol, transport };
        let segments = Segments::new(whole, cut).ok();
        let Some(segments) = segments.filter(|segments| segments.count() <= SUPER_FRAME_SEGMENTS) else { return false };
        self.counters.event(Event::SuperFramesCut);
        for index in 0..segments.count() {
            let len = segments.len_of(index);
            knife.segment.resize(len.max(knife.segment.len()), 0);
            if let Some(len) = segments.write(index, &mut knife.segment) {
                let mut segment = Frame::new(&knife.segment[..len]);
                (segment.time, segment.clock) = (frame.time, frame.clock);
                self.take(&segment, now);
            }
        }
        true
    }
}
