//! A frame as a device gives it: bytes that lie in the device's memory, a VLAN tag that may stand beside them, and what is
//! known of it.
//!
//! The kernel takes a received frame's outermost VLAN tag out of its bytes. Nobody above should have to know: lengths count
//! it, [`parts`](Frame::parts) and [`copy_into`](Frame::copy_into) put it back.

use base::limits::BATCH_BLOCKS;
use buffer::live::{Facts, SlotFlags};
use std::mem::MaybeUninit;

/// Bytes before a VLAN tag: two addresses.
const BEFORE_TAG: usize = 12;

/// Bytes of a VLAN tag.
pub(crate) const TAG_BYTES: usize = 4;

/// Packet type (packet(7)) of what this host sent.
pub const PACKET_OUTGOING: u8 = 4;

/// Which clock a frame's time is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's, CLOCK_REALTIME.
    #[default]
    Realtime,
    /// The device's own.
    Hardware,
}

/// A frame, borrowed from its device.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    tag: [u8; TAG_BYTES],
    tagged: bool,
    /// When it was seen, ns.
    pub time: u64,
    /// By which clock.
    pub clock: Clock,
    /// Bytes it had on the wire, its tag counted.
    pub wire: u32,
    /// Hash of its flow as the kernel or the device knows it; 0 where neither does.
    pub hash: u32,
    /// Number of the device it came by.
    pub interface: u32,
    /// What is known of it. [`SlotFlags::TAG_PUT_BACK`] means: by those who read it through [`parts`](Frame::parts).
    pub flags: SlotFlags,
    /// Bytes of payload in each segment, where several are in one ([`SlotFlags::SUPER_FRAME`]) and the device was asked
    /// to say; else 0.
    pub segment_bytes: u16,
    /// The protocol of IP that such segments are of, 6 or 17; 0 where there are none, or it is another.
    pub segment_protocol: u8,
    /// The checksum that its sender left to the device ([`SlotFlags::CHECKSUM_OPEN`]), where the device was asked to say.
    pub open_checksum: Option<OpenChecksum>,
}

/// A checksum that is not finished: its field holds the sum of what it covers besides these bytes (the pseudo header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenChecksum {
    /// The first byte that it covers, counted in the frame as it was on the wire. It covers all from there on.
    pub start: u16,
    /// Its field, counted in the frame as it was on the wire.
    pub field: u16,
}

impl<'a> Frame<'a> {
    /// A frame of which nothing is known but its bytes.
    pub fn new(bytes: &'a [u8]) -> Frame<'a> {
        Frame {
            bytes,
            tag: [0; TAG_BYTES],
            tagged: false,
            time: 0,
            clock: Clock::Realtime,
            wire: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            hash: 0,
            interface: 0,
            flags: SlotFlags::default(),
            segment_bytes: 0,
            segment_protocol: 0,
            open_checksum: None,
        }
    }

    /// With a tag that stands beside it, as long as there are the addresses it stands behind. [`wire`](Frame::wire) counts
    /// it from now on.
    #[must_use]
    pub fn tagged(mut self, protocol: u16, tag: u16) -> Frame<'a> {
        self.wire = self.wire.saturating_add(TAG_BYTES as u32);
        if self.bytes.len() >= BEFORE_TAG {
            let ([p0, p1], [t0, t1]) = (protocol.to_be_bytes(), tag.to_be_bytes());
            (self.tag, self.tagged) = ([p0, p1, t0, t1], true);
            self.flags = self.flags.with(SlotFlags::TAG_PUT_BACK);
        }
        self
    }

    /// Its bytes without the tag that stands beside them. For most purposes [`parts`](Frame::parts) is right.
    pub fn bytes_without_tag(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes that are there, its tag counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() + if self.tagged { TAG_BYTES } else { 0 }
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The tag that stands beside it, protocol and value; a tag among its bytes is not asked for.
    pub fn tag(&self) -> Option<(u16, u16)> {
        let [p0, p1, t0, t1] = self.tag;
        self.tagged.then(|| (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([t0, t1])))
    }

    /// Did this host send it?
    pub fn is_outbound(&self) -> bool {
        self.flags.has(SlotFlags::OUTBOUND)
    }

    /// What it was on the wire, in three pieces one after the other: addresses, tag, rest. Without a tag the first is everything.
    #[inline]
    pub fn parts(&self) -> [&[u8]; 3] {
        if !self.tagged {
            return [self.bytes, &[], &[]];
        }
        let (addresses, rest) = self.bytes.split_at(BEFORE_TAG);
        [addresses, &self.tag, rest]
    }

    /// Copies what it was on the wire, as far as there is room; says how many bytes that were.
    pub fn copy_into(&self, to: &mut [u8]) -> usize {
        let mut at = 0;
        for part in self.parts() {
            let len = part.len().min(to.len() - at);
            to[at..at + len].copy_from_slice(&part[..len]);
            at += len;
        }
        at
    }

    /// What a live ring's slot says of it, if the expressions in `wanted` want it.
    pub fn facts(&self, wanted: u64) -> Facts {
        let [p0, p1, t0, t1] = self.tag;
        Facts {
            time: self.time,
            len: self.len() as u32,
            wire: self.wire,
            wanted,
            class: 0,
            interface: self.interface,
            hash: self.hash,
            flags: self.flags,
            vlan: u32::from_be_bytes([p0, p1, t0, t1]),
            mark: 0,
        }
    }
}

/// Frames one after the other, as they came.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Number of the first: how many the device had for this receiver before it.
    pub first_number: u64,
    /// At least one, at most [`BATCH_BLOCKS`].
    pub frames: &'a [Frame<'a>],
}

/// Room for the frames of a batch, filled anew for each without being cleared.
#[derive(Debug)]
pub(crate) struct FrameArray<'a> {
    frames: [MaybeUninit<Frame<'a>>; BATCH_BLOCKS],
    len: usize,
}

impl<'a> FrameArray<'a> {
    /// An empty one.
    pub(crate) fn new() -> FrameArray<'a> {
        FrameArray { frames: [const { MaybeUninit::uninit() }; BATCH_BLOCKS], len: 0 }
    }

    /// Is there no room left?
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH_BLOCKS
    }

    /// Adds a frame if there is room.
    #[inline]
    pub(crate) fn push(&mut self, frame: Frame<'a>) {
        if let Some(place) = self.frames.get_mut(self.len) {
            place.write(frame);
            self.len += 1;
        }
    }

    /// Those that were added.
    pub(crate) fn as_slice(&self) -> &[Frame<'a>] {
        // SAFETY: the first `len` were written.
        unsafe { std::slice::from_raw_parts(self.frames.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frame: Frame<'_>, wire: u32, expected: &[u8]) {
        assert_eq!((frame.wire, frame.len()), (wire, expected.len()));
        assert_eq!(frame.parts().concat(), expected);
        let mut copy = vec![0; expected.len() + 1];
        assert_eq!(frame.copy_into(&mut copy), expected.len());
        assert_eq!(&copy[..expected.len()], expected);
        let mut short = vec![0; expected.len().min(14)];
        assert_eq!(frame.copy_into(&mut short), short.len());
        assert_eq!(short, &expected[..short.len()]);
    }

    #[test]
    fn a_tag_is_put_back_behind_the_addresses() {
        let bytes: Vec<u8> = (0..20).collect();
        check(Frame::new(&bytes), 20, &bytes);
        let tagged = Frame::new(&bytes).tagged(0x88a8, 0x6007);
        check(tagged, 24, &[&bytes[..12], &[0x88, 0xa8, 0x60, 0x07], &bytes[12..]].concat());
        assert_eq!((tagged.tag(), tagged.facts(1).vlan), (Some((0x88a8, 0x6007)), 0x88a8_6007));
        check(Frame::new(&bytes[..12]).tagged(0x8100, 1), 16, &[&bytes[..12], &[0x81, 0, 0, 1]].concat());
    }

    #[test]
    fn a_tag_without_addresses_only_counts() {
        let frame = Frame::new(&[1; 11]).tagged(0x8100, 1);
        check(frame, 15, &[1; 11]);
        assert_eq!(frame.tag(), None);
        assert!(!frame.flags.has(SlotFlags::TAG_PUT_BACK));
    }
}
