//! A received frame: bytes in the device's memory, a VLAN tag that may be beside them, and facts.
//!
//! The kernel takes a received frame's outermost VLAN tag out of its bytes. Code above this crate need not know that:
//! lengths include the tag, and [`parts`](Frame::parts) and [`copy_into`](Frame::copy_into) put it back.

use base::limits::BATCH_BLOCKS;
use buffer::live::{Facts, SlotFlags};
use std::mem::MaybeUninit;

/// Bytes before a VLAN tag: two addresses.
const BEFORE_TAG: usize = 12;

/// Bytes of a VLAN tag.
pub(crate) const TAG_BYTES: usize = 4;

/// Packet type (packet(7)) of frames that this host sent.
pub const PACKET_OUTGOING: u8 = 4;

/// The clock of a frame's time.
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
    /// The clock of `time`.
    pub clock: Clock,
    /// Its bytes on the wire, including its tag.
    pub wire: u32,
    /// Hash of its flow from the kernel or the device; 0 if neither gives one.
    pub hash: u32,
    /// Number of its device.
    pub interface: u32,
    /// Its flags. [`SlotFlags::TAG_PUT_BACK`] holds for readers of [`parts`](Frame::parts).
    pub flags: SlotFlags,
    /// Payload bytes of each segment of a [`SlotFlags::SUPER_FRAME`], if the device was asked to say; otherwise 0.
    pub segment_bytes: u16,
    /// The protocol of IP that such segments are of, 6 or 17; 0 where there are none, or it is another.
    pub segment_protocol: u8,
    /// The checksum that its sender left to the device ([`SlotFlags::CHECKSUM_OPEN`]), if the device was asked to say.
    pub open_checksum: Option<OpenChecksum>,
}

/// An unfinished checksum: its field holds the sum of the pseudo header only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenChecksum {
    /// First byte that it covers, as an offset in the frame on the wire. It covers everything from there on.
    pub start: u16,
    /// Its field, as an offset in the frame on the wire.
    pub field: u16,
}

impl<'a> Frame<'a> {
    /// A frame with these bytes and no other facts.
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

    /// Adds a tag beside the bytes, if these have the two addresses before it. [`wire`](Frame::wire) then includes it.
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

    /// Its bytes without the tag beside them. For most purposes [`parts`](Frame::parts) is right.
    pub fn bytes_without_tag(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes present, including its tag.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() + if self.tagged { TAG_BYTES } else { 0 }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The tag beside its bytes, as protocol and value; ignores a tag among the bytes.
    pub fn tag(&self) -> Option<(u16, u16)> {
        let [p0, p1, t0, t1] = self.tag;
        self.tagged.then(|| (u16::from_be_bytes([p0, p1]), u16::from_be_bytes([t0, t1])))
    }

    /// Whether this host sent it.
    pub fn is_outbound(&self) -> bool {
        self.flags.has(SlotFlags::OUTBOUND)
    }

    /// Its bytes as on the wire, in three parts: addresses, tag, rest. Without a tag the first part is everything.
    #[inline]
    pub fn parts(&self) -> [&[u8]; 3] {
        if !self.tagged {
            return [self.bytes, &[], &[]];
        }
        let (addresses, rest) = self.bytes.split_at(BEFORE_TAG);
        [addresses, &self.tag, rest]
    }

    /// Copies its bytes as on the wire, as many as fit; returns their number.
    pub fn copy_into(&self, to: &mut [u8]) -> usize {
        let mut at = 0;
        for part in self.parts() {
            let len = part.len().min(to.len() - at);
            to[at..at + len].copy_from_slice(&part[..len]);
            at += len;
        }
        at
    }

    /// The contents of its slot in a live ring, if the expressions in `wanted` want it.
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

/// Consecutive frames, in order.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Number of the first: how many frames the device had for this receiver before it.
    pub first_number: u64,
    /// At least one, at most [`BATCH_BLOCKS`].
    pub frames: &'a [Frame<'a>],
}

/// Room for the frames of a batch, filled again for each batch without being cleared.
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

    /// Whether there is no room left.
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

    /// The frames that were added.
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
