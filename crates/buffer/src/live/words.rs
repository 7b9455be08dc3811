//! A live ring's words in shared memory: an ABI between the kernel's program, a process and its readers.
//!
//! Two counters order everything: `next`, the number of the next packet, and `reserved`, the bytes given away so far. A
//! writer adds to both, then fills slot and bytes, then stamps the slot. A packet's bytes are intact as long as
//! `reserved` is at most the ring's size ahead of them.
//!
//! What a reader of packet n finds in its slot's stamp:
//!
//! | stamp | state of the slot | reader |
//! |---|---|---|
//! | n + 1 | holds packet n whole | reads it, then checks the stamp again |
//! | 0 | a writer is filling it | comes back later |
//! | below n + 1 | still holds an older packet | comes back later |
//! | above n + 1 | holds a newer packet | was overtaken: goes on further ahead |
//!
//! A stamp is never stored before its slot and bytes, and a slot never changes under its stamp: with the same stamp
//! before and after, the contents are whole. `layout_is_pinned` below fails when anything moves; then [`ABI`] must
//! grow.

use crate::shared::words::Words;
use base::atomic::{AtomicU32, AtomicU64, Ordering};

/// Version of everything in this file.
pub const ABI: u32 = 1;

/// Most expressions in one ring.
pub const EXPRESSIONS: usize = 64;

/// A packet's bytes are rounded up to a multiple of this, so that no two packets share a cache line.
pub const GRAIN_BYTES: u64 = 64;

/// Most bytes of one packet: the largest IP packet, its Ethernet header and the tags before it.
pub const PACKET_BYTES: usize = 65_536 + 192;

/// Bytes behind the ring, for the rest of a packet that begins before the ring's end.
pub const OVERHANG_BYTES: usize = 65_536 + 256;

/// First page of the words: size of the ring, and progress of its writer.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    /// [`ABI`].
    pub abi: AtomicU32,
    /// Number of slots, a power of two.
    pub slots: AtomicU32,
    /// Bytes of packets in the ring, a power of two.
    pub ring_bytes: AtomicU64,
    pub(super) _constant: [AtomicU64; 6],
    /// Number of the next packet: grows by one for each.
    pub next: AtomicU64,
    pub(super) _next: [AtomicU64; 7],
    /// Bytes given away so far, in whole [`GRAIN_BYTES`].
    pub reserved: AtomicU64,
    pub(super) _reserved: [AtomicU64; 495],
}

/// One processor's counts of one expression.
#[derive(Debug)]
#[repr(C)]
pub struct ExpressionCount {
    /// Packets that it wants.
    pub packets: AtomicU64,
    /// Their bytes on the wire.
    pub wire_bytes: AtomicU64,
}

/// One processor's counts, in a page that no other processor writes.
#[derive(Debug)]
#[repr(C)]
pub struct CpuPage {
    /// Packets that the writer saw.
    pub seen: AtomicU64,
    /// Their bytes on the wire.
    pub seen_bytes: AtomicU64,
    /// Packets that any expression wants.
    pub wanted: AtomicU64,
    /// Packets whose bytes could not be copied; their slots have length 0.
    pub lost: AtomicU64,
    pub(super) _rest: [AtomicU64; 4],
    /// Indexed by expression.
    pub expressions: [ExpressionCount; EXPRESSIONS],
    /// For expressions that only count: bytes of their packets that would have been written. Indexed by expression.
    pub kept_bytes: [AtomicU64; EXPRESSIONS],
    pub(super) _end: [AtomicU64; 312],
}

/// The slot of one packet.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The packet's number plus one once the slot and the bytes are written; 0 meanwhile.
    pub stamp: AtomicU64,
    /// Absolute position of its first byte.
    pub pos: AtomicU64,
    /// When the packet was seen, ns; the flags say by which clock.
    pub time: AtomicU64,
    /// Low half: bytes present; high half: bytes on the wire.
    pub lengths: AtomicU64,
    /// Bit n: expression n wants it.
    pub wanted: AtomicU64,
    /// Low half: class, see [`SlotFlags::PORTS`]; high half: index of the interface.
    pub class_and_interface: AtomicU64,
    /// Low half: hash of the flow, the same in both directions; high half: [`SlotFlags`].
    pub hash_and_flags: AtomicU64,
    /// Low half: the VLAN tag that was put back (TPID << 16 | TCI), 0 for none; high half: the packet's mark.
    pub vlan_and_mark: AtomicU64,
}

/// Properties of a packet, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotFlags(pub u32);

impl SlotFlags {
    /// It left this host.
    pub const OUTBOUND: SlotFlags = SlotFlags(1 << 0);
    /// Its time is of CLOCK_MONOTONIC, else of CLOCK_REALTIME.
    pub const MONOTONIC: SlotFlags = SlotFlags(1 << 1);
    /// Its outermost VLAN tag had been stripped, and is back in the bytes.
    pub const TAG_PUT_BACK: SlotFlags = SlotFlags(1 << 2);
    /// Several segments in one: joined on receipt, or not cut yet on the way out (GRO, TSO).
    pub const SUPER_FRAME: SlotFlags = SlotFlags(1 << 3);
    /// Some of its bytes are missing.
    pub const TRUNCATED: SlotFlags = SlotFlags(1 << 4);
    /// The device will fill in its checksum.
    pub const CHECKSUM_OPEN: SlotFlags = SlotFlags(1 << 5);
    /// Its class is source port << 16 | destination port, the same that the filter `port` finds in the bytes present.
    /// Without the flag the class is 0, and the ports, if there are any, must be read from the bytes.
    pub const PORTS: SlotFlags = SlotFlags(1 << 6);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: SlotFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// All flags of `self` and of `other`.
    #[must_use]
    pub const fn with(self, other: SlotFlags) -> SlotFlags {
        SlotFlags(self.0 | other.0)
    }

    /// Packet type as in packet(7): 0 to this host, 1 broadcast, 2 multicast, 3 to another host, 4 sent by this host.
    pub const fn packet_type(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// The flags with this packet type.
    #[must_use]
    pub const fn with_packet_type(self, packet_type: u8) -> SlotFlags {
        SlotFlags(self.0 & !(7 << 8) | (packet_type as u32 & 7) << 8)
    }
}

/// The contents of a slot without the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// When the packet was seen, ns; see [`SlotFlags::MONOTONIC`].
    pub time: u64,
    /// Bytes present.
    pub len: u32,
    /// Bytes on the wire.
    pub wire: u32,
    /// Bit n: expression n wants it.
    pub wanted: u64,
    /// Ports as [`SlotFlags::PORTS`] describes; 0 without that flag.
    pub class: u32,
    /// Index of the interface.
    pub interface: u32,
    /// Hash of the flow, the same in both directions.
    pub hash: u32,
    /// The packet's flags.
    pub flags: SlotFlags,
    /// The VLAN tag that was put back: TPID << 16 | TCI; 0 for none.
    pub vlan: u32,
    /// The packet's mark.
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

    /// Loads everything but the stamp, each word once.
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
