//! The descriptor: 32 bytes that say where a block lies and what is known of it. It travels; the bytes stay.
//!
//! Not a smart pointer: it owns nothing and can be copied freely. [`BlockTable`] checks it and gives the bytes it
//! names. The layout is an ABI between processes; `layout_is_pinned` below fails when it moves.
//!
//! [`BlockTable`]: crate::BlockTable

use base::id::{Class, Generation, RingId};

/// Where a block lies and what is known of it. Two fit a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Absolute position of the first byte in its ring; never truncated to the ring's size.
    pub pos: u64,
    /// When the block was seen: nanoseconds since 1970 UTC.
    pub time: u64,
    /// Bytes present.
    pub len: u32,
    /// Low 24 bits: length on the wire in bytes; high 8 bits: [`Flags`]. Use [`wire`](Descriptor::wire),
    /// [`flags`](Descriptor::flags) and their setters.
    pub wire_and_flags: u32,
    /// Class that the last class-setting filter gave the block.
    pub class: Class,
    /// The view in which the bytes lie.
    pub ring: RingId,
    /// Generation of the view: a ring number is used again for another view.
    pub generation: Generation,
}

/// Properties of a block, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// Nothing special.
    pub const NONE: Flags = Flags(0);
    /// The first block of its stream or message.
    pub const FIRST: Flags = Flags(1 << 0);
    /// The last block of its stream or message.
    pub const LAST: Flags = Flags(1 << 1);
    /// `wire - len` bytes are missing before this block (streams and messages only).
    pub const GAP_BEFORE: Flags = Flags(1 << 2);
    /// The end is missing: a frame cut by the snap length (then `len < wire`), or, on the LAST block of a stream or
    /// message, an end that was not seen.
    pub const TRUNCATED: Flags = Flags(1 << 3);
    /// The frame left this host.
    pub const OUTBOUND: Flags = Flags(1 << 4);
    /// The block is a metadata record about the message it is FIRST of, not part of its bytes.
    pub const META: Flags = Flags(1 << 5);
    /// With [`Flags::TRUNCATED`] on the LAST block of a message: a limit of the request cut it, not the input's end.
    pub const LIMITED: Flags = Flags(1 << 6);
    /// The frame's sender left the transport checksum to its device, and the frame was seen before that.
    pub const CHECKSUM_OPEN: Flags = Flags(1 << 7);

    /// Whether all flags of `other` are set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// All flags of `self` and of `other`.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags of `self` without those of `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// Largest length on the wire that a descriptor can hold; longer ones saturate.
pub const WIRE_MAX: u32 = (1 << 24) - 1;

impl Descriptor {
    /// Length on the wire in bytes (saturated at [`WIRE_MAX`]). In a stream: the bytes of the stream that this block
    /// accounts for, including those missing before it.
    #[inline]
    pub fn wire(&self) -> u32 {
        self.wire_and_flags & WIRE_MAX
    }

    /// The block's flags.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags((self.wire_and_flags >> 24) as u8)
    }

    /// Whether every flag is in `flags` set.
    #[inline]
    pub fn has(&self, flags: Flags) -> bool {
        self.flags().has(flags)
    }

    /// Sets the length on the wire, saturating, and keeps the flags.
    #[inline]
    pub fn set_wire(&mut self, wire: u32) {
        self.wire_and_flags = (self.wire_and_flags & !WIRE_MAX) | wire.min(WIRE_MAX);
    }

    /// Replaces the flags and keeps the length on the wire.
    #[inline]
    pub fn set_flags(&mut self, flags: Flags) {
        self.wire_and_flags = (u32::from(flags.0) << 24) | self.wire();
    }

    /// Adds flags.
    #[inline]
    pub fn add_flags(&mut self, flags: Flags) {
        self.wire_and_flags |= u32::from(flags.0) << 24;
    }

    /// Bytes missing before this block; 0 unless it is flagged [`Flags::GAP_BEFORE`].
    #[inline]
    pub fn gap(&self) -> u32 {
        if self.has(Flags::GAP_BEFORE) { self.wire().saturating_sub(self.len) } else { 0 }
    }

    /// The block without its first `bytes` bytes, without copying; empty if `bytes` is at least its length.
    #[inline]
    #[must_use]
    pub fn crop_front(mut self, bytes: u32) -> Descriptor {
        let bytes = bytes.min(self.len);
        self.pos += u64::from(bytes);
        self.len -= bytes;
        self.set_wire(self.wire().saturating_sub(bytes));
        self
    }

    /// At most `len` bytes of the block from `offset` on, without copying. Both lengths are the part's; no flags.
    #[inline]
    #[must_use]
    pub fn part(mut self, offset: u32, len: u32) -> Descriptor {
        let offset = offset.min(self.len);
        self.pos += u64::from(offset);
        self.len = len.min(self.len - offset);
        self.wire_and_flags = self.len.min(WIRE_MAX);
        self
    }
}

/// One after the last byte this descriptor names, or `None` where that position cannot exist.
#[inline]
pub(crate) fn end_of(descriptor: &Descriptor) -> Option<u64> {
    descriptor.pos.checked_add(u64::from(descriptor.len))
}

const _: () = assert!(size_of::<Descriptor>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layout_is_pinned() {
        assert_eq!(
            [
                offset_of!(Descriptor, pos),
                offset_of!(Descriptor, time),
                offset_of!(Descriptor, len),
                offset_of!(Descriptor, wire_and_flags),
                offset_of!(Descriptor, class),
                offset_of!(Descriptor, ring),
                offset_of!(Descriptor, generation),
                size_of::<Descriptor>(),
            ],
            [0, 8, 16, 20, 24, 28, 30, 32]
        );
    }

    #[test]
    fn wire_and_flags_do_not_touch_each_other() {
        let mut d = Descriptor { len: 10, ..Descriptor::default() };
        d.set_wire(1500);
        d.set_flags(Flags::FIRST.with(Flags::META));
        assert_eq!((d.wire(), d.flags()), (1500, Flags(0b10_0001)));
        d.set_wire(u32::MAX);
        assert_eq!((d.wire(), d.flags()), (WIRE_MAX, Flags(0b10_0001)));
        d.set_flags(Flags::NONE);
        assert_eq!((d.wire(), d.flags()), (WIRE_MAX, Flags::NONE));
    }

    #[test]
    fn cropping_never_leaves_the_block() {
        let mut d = Descriptor { pos: 100, len: 20, ..Descriptor::default() };
        d.set_wire(30);
        let c = d.crop_front(5);
        assert_eq!((c.pos, c.len, c.wire()), (105, 15, 25));
        let c = d.crop_front(99);
        assert_eq!((c.pos, c.len, c.wire()), (120, 0, 10));
        let p = d.part(18, 10);
        assert_eq!((p.pos, p.len, p.wire()), (118, 2, 2));
    }
}
