//! A live ring's words as they lie in shared memory: an ABI between the kernel's program, a process and its readers.
//!
//! Two counters lead everything: `next`, the number of the packet that comes next, and `reserved`, the bytes given away so
//! far. Whoever writes adds to both, then fills slot and bytes, then stamps the slot. A slot whose stamp is its packet's
//! number plus one is whole; bytes are whole as long as `reserved` is no more than the ring's size ahead of them.
//! `layout_is_pinned` below fails when anything moves; then [`ABI`] must grow.

use crate::shared::words::Words;
use base::atomic::{AtomicU32, AtomicU64, Ordering};

/// Version of everything in this file.
pub const ABI: u32 = 1;

/// Expressions one ring can tell apart.
pub const EXPRESSIONS: usize = 64;

/// Bytes a packet takes are rounded up to a multiple of this, so that no two share a cache line.
pub const GRAIN_BYTES: u64 = 64;

/// Bytes of one packet at most: the largest IP packet, its Ethernet header and the tags before it.
pub const PACKET_BYTES: usize = 65_536 + 192;

/// Bytes behind the ring, so that a packet that begins before its end goes on there.
pub const OVERHANG_BYTES: usize = 65_536 + 256;

/// First page of the words: what the ring is, and how far it is.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    /// [`ABI`].
    pub abi: AtomicU32,
    /// Slots there are, a power of two.
    pub slots: AtomicU32,
    /// Bytes of packets it holds, a power of two.
    pub ring_bytes: AtomicU64,
    pub(super) _constant: [AtomicU64; 6],
    /// Number of the packet that comes next: grows by one for each.
    pub next: AtomicU64,
    pub(super) _next: [AtomicU64; 7],
    /// Bytes given away so far, in whole [`GRAIN_BYTES`].
    pub reserved: AtomicU64,
    pub(super) _reserved: [AtomicU64; 495],
}

/// What one processor counts of one expression.
#[derive(Debug)]
#[repr(C)]
pub struct ExpressionCount {
    /// Packets it wants.
    pub packets: AtomicU64,
    /// Their bytes on the wire.
    pub wire_bytes: AtomicU64,
}

/// What one processor counts: a page for each, which no other writes.
#[derive(Debug)]
#[repr(C)]
pub struct CpuPage {
    /// Packets the writer was shown.
    pub seen: AtomicU64,
    /// Their bytes on the wire.
    pub seen_bytes: AtomicU64,
    /// Packets that any expression wants.
    pub wanted: AtomicU64,
    /// Packets whose bytes could not be copied; their slots say that nothing is there.
    pub lost: AtomicU64,
    pub(super) _rest: [AtomicU64; 4],
    /// By expression.
    pub expressions: [ExpressionCount; EXPRESSIONS],
    /// By expression, of those whose packets are counted and never written: bytes that would have been.
    pub kept_bytes: [AtomicU64; EXPRESSIONS],
    pub(super) _end: [AtomicU64; 312],
}

/// One packet.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The packet's number plus one once everything here and its bytes are written; 0 meanwhile.
    pub stamp: AtomicU64,
    /// Where its bytes begin, absolute.
    pub pos: AtomicU64,
    /// When it was seen, ns; by which clock, its flags say.
    pub time: AtomicU64,
    /// Low half: bytes that are there; high half: bytes on the wire.
    pub lengths: AtomicU64,
    /// Bit n: expression n wants it.
    pub wanted: AtomicU64,
    /// Low half: class, as [`SlotFlags::PORTS`] says; high half: index of the interface.
    pub class_and_interface: AtomicU64,
    /// Low half: hash of its flow, the same in both directions; high half: [`SlotFlags`].
    pub hash_and_flags: AtomicU64,
    /// Low half: the VLAN tag that was put back (TPID << 16 | TCI), 0 for none; high half: its mark.
    pub vlan_and_mark: AtomicU64,
}

/// What is said of a packet by bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotFlags(pub u32);

impl SlotFlags {
    /// It left this host.
    pub const OUTBOUND: SlotFlags = SlotFlags(1 << 0);
    /// Its time is of CLOCK_MONOTONIC; else of CLOCK_REALTIME.
    pub const MONOTONIC: SlotFlags = SlotFlags(1 << 1);
    /// Its outermost VLAN tag had been stripped and is back in the bytes.
    pub const TAG_PUT_BACK: SlotFlags = SlotFlags(1 << 2);
    /// Several segments in one: put together on receipt, or not cut yet on its way out (GRO, TSO).
    pub const SUPER_FRAME: SlotFlags = SlotFlags(1 << 3);
    /// Not all of its bytes are there.
    pub const TRUNCATED: SlotFlags = SlotFlags(1 << 4);
    /// The device will fill its checksum in.
    pub const CHECKSUM_OPEN: SlotFlags = SlotFlags(1 << 5);
    /// Its class is source port << 16 | destination port, for sure: what the filter `port` says of all the bytes that are
    /// there. Without it the class is 0, and whoever wants the ports looks at the bytes, in which they may be all the same.
    pub const PORTS: SlotFlags = SlotFlags(1 << 6);

    /// Are all flags of `other` set?
    pub const fn has(self, other: SlotFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: SlotFlags) -> SlotFlags {
        SlotFlags(self.0 | other.0)
    }

    /// To whom it was sent, as packet(7) says it: 0 us, 1 everybody, 2 many, 3 somebody else, 4 by us.
    pub const fn packet_type(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// With that said.
    #[must_use]
    pub const fn with_packet_type(self, packet_type: u8) -> SlotFlags {
        SlotFlags(self.0 & !(7 << 8) | (packet_type as u32 & 7) << 8)
    }
}

/// What a slot says, beside where the bytes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// When it was seen, ns; see [`SlotFlags::MONOTONIC`].
    pub time: u64,
    /// Bytes that are there.
    pub len: u32,
    /// Bytes on the wire.
    pub wire: u32,
    /// Bit n: expression n wants it.
    pub wanted: u64,
    /// What [`SlotFlags::PORTS`] says; 0 without it.
    pub class: u32,
    /// Index of the interface.
    pub interface: u32,
    /// Hash of its flow, the same in both directions.
    pub hash: u32,
    /// By bits.
    pub flags: SlotFlags,
    /// The VLAN tag that was put back: TPID << 16 | TCI; 0 for none.
    pub vlan: u32,
    /// Its mark.
    pub mark: u32,
}

const fn halves(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Slot {
    pub(super) fn store(&self, pos: u64, facts: &Facts) {
        let relaxed = Ordering::Relaxed;
        self.pos.store(pos, relaxed);
        self.time.store(facts.time, relaxed);
        self.lengths.store(halves(facts.len, facts.wire), relaxed);
        self.wanted.store(facts.wanted, relaxed);
        self.class_and_interface.store(halves(facts.class, facts.interface), relaxed);
        self.hash_and_flags.store(halves(facts.hash, facts.flags.0), relaxed);
        self.vlan_and_mark.store(halves(facts.vlan, facts.mark), relaxed);
    }

    /// Everything but the stamp, each word loaded once.
    pub(super) fn load(&self) -> (u64, Facts) {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let [lengths, class, hash, vlan] =
            [&self.lengths, &self.class_and_interface, &self.hash_and_flags, &self.vlan_and_mark].map(load);
        let facts = Facts {
            time: load(&self.time),
            len: lengths as u32,
            wire: (lengths >> 32) as u32,
            wanted: load(&self.wanted),
            class: class as u32,
            interface: (class >> 32) as u32,
            hash: hash as u32,
            flags: SlotFlags((hash >> 32) as u32),
            vlan: vlan as u32,
            mark: (vlan >> 32) as u32,
        };
        (load(&self.pos), facts)
    }
}

// SAFETY: repr(C), atomics only, and all bytes zero is a value.
unsafe impl Words for Head {}
// SAFETY: as above.
unsafe impl Words for CpuPage {}
// SAFETY: as above.
unsafe impl Words for Slot {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layout_is_pinned() {
        assert_eq!([size_of::<Head>(), size_of::<CpuPage>(), size_of::<Slot>()], [4096, 4096, 64]);
        assert_eq!([offset_of!(Head, slots), offset_of!(Head, ring_bytes)], [4, 8]);
        assert_eq!([offset_of!(Head, next), offset_of!(Head, reserved)], [64, 128]);
        let counts = [
            offset_of!(CpuPage, wanted),
            offset_of!(CpuPage, lost),
            offset_of!(CpuPage, expressions),
            offset_of!(CpuPage, kept_bytes),
        ];
        assert_eq!(counts, [16, 24, 64, 1088]);
        let slot = [
            offset_of!(Slot, pos),
            offset_of!(Slot, time),
            offset_of!(Slot, lengths),
            offset_of!(Slot, wanted),
            offset_of!(Slot, class_and_interface),
            offset_of!(Slot, hash_and_flags),
            offset_of!(Slot, vlan_and_mark),
        ];
        assert_eq!(slot, [8, 16, 24, 32, 40, 48, 56]);
        assert_eq!(ABI, 1, "what moved is a new version");
    }

    #[test]
    fn a_packet_type_stands_beside_the_flags() {
        let flags = SlotFlags::OUTBOUND.with(SlotFlags::TRUNCATED).with_packet_type(4);
        assert_eq!((flags.packet_type(), flags.has(SlotFlags::TRUNCATED)), (4, true));
        assert_eq!(flags.with_packet_type(1).packet_type(), 1);
    }
}
