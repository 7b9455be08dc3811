//! A handle's counts, in words that a signal handler may read: tcpdump asks for statistics in one.
//!
//! The thread that reads packets stores its position and counts here; everything else comes from the ring's own words.
//! [`totals`](Meter::totals) does not allocate or wait. It reads only this, the ring, a request's count of losses and
//! two files of `/sys`, with plain system calls.

use crate::shared::Shared;
use buffer::live::{LiveMemory, LiveReader, Look};
use capture::{CaptureReader, Partition};
use rustix::fs::{Mode, OFlags};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The counts of one handle.
#[derive(Debug, Default)]
pub struct Meter {
    ring: OnceLock<(LiveMemory, Option<Partition>)>,
    interface: OnceLock<InterfaceDrops>,
    /// Counts the packets that a request's devices lost before they came into the ring.
    source: OnceLock<Arc<Shared>>,
    /// Number of the next packet to read.
    position: AtomicU64,
    /// Packets that were overwritten before they were looked at, wanted or not.
    overtaken: AtomicU64,
    delivered: AtomicU64,
    others: AtomicU64,
    refused: AtomicU64,
    /// The bit in use, and the previous one, which packets before `first` may carry instead.
    bit: AtomicU8,
    bit_before: AtomicU8,
    first: AtomicU64,
    /// How many packets had the bit in use before it was ours.
    matched_before: AtomicU64,
    /// Packets that had earlier bits of this reader.
    matched_earlier: AtomicU64,
}

/// Totals of the packets that an expression selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All selected packets.
    pub matched: u64,
    /// Packets overwritten before they were read.
    pub lost: u64,
    /// Packets that the device or its driver lost before any expression saw them.
    pub lost_by_interface: u64,
}

impl Meter {
    /// Starts counting on this ring, for a reader without matches so far. With `interface`, counts that interface's
    /// losses, too.
    pub fn begin(
        &self,
        reader: &CaptureReader,
        partition: Option<Partition>,
        interface: Option<&str>,
        source: Option<Arc<Shared>>,
    ) {
        // Only the first call has an effect.
        let _ = self.ring.set((reader.memory().clone(), partition));
        if let Some(drops) = interface.and_then(InterfaceDrops::of) {
            let _ = self.interface.set(drops);
        }
        if let Some(source) = source {
            let _ = self.source.set(source);
        }
        self.advance(reader);
    }

    /// Stores the reader's position and counts.
    #[inline]
    pub fn advance(&self, reader: &CaptureReader) {
        let settled = reader.settled();
        // In this order, a signal handler in between counts a packet twice rather than as lost.
        self.delivered.store(settled.delivered, Relaxed);
        self.refused.store(settled.refused, Relaxed);
        self.others.store(settled.others, Relaxed);
        self.position.store(reader.position(), Relaxed);
        self.overtaken.store(reader.overtaken(), Relaxed);
    }

    /// The reader gets another bit, from packet `first` on. Until now `matched_before` packets had that bit.
    pub fn exchange(&self, bit: u8, first: u64, matched_before: u64) {
        let earlier = self.ring.get().map_or(0, |(memory, _)| self.matched(memory));
        self.matched_earlier.store(earlier, Relaxed);
        self.bit_before.store(self.bit.load(Relaxed), Relaxed);
        self.matched_before.store(matched_before, Relaxed);
        self.first.store(first, Relaxed);
        // 64 marks a bit as valid.
        self.bit.store((bit & 63) | 64, Relaxed);
    }

    fn matched(&self, memory: &LiveMemory) -> u64 {
        let bit = self.bit.load(Relaxed);
        let now = match bit & 64 {
            0 => 0,
            _ => memory.matched(usize::from(bit & 63)).packets.wrapping_sub(self.matched_before.load(Relaxed)),
        };
        self.matched_earlier.load(Relaxed).wrapping_add(now)
    }

    /// The totals until now. `None` before [`Self::begin`]. Takes time for each waiting packet.
    pub fn totals(&self) -> Option<Totals> {
        let (memory, partition) = self.ring.get()?;
        // In this order, a packet that comes meanwhile counts as waiting rather than as lost.
        let matched = self.matched(memory);
        let head = memory.next();
        let bits = |bit: u8| if bit & 64 == 0 { 0 } else { 1u64 << (bit & 63) };
        let (bit, before) = (bits(self.bit.load(Relaxed)), bits(self.bit_before.load(Relaxed)));
        let first = self.first.load(Relaxed);
        let mut others = self.others.load(Relaxed);
        let settled = self.delivered.load(Relaxed) + self.refused.load(Relaxed) + others;
        let mut waiting = 0;
        // Clones share their maps: this allocates nothing.
        let mut ahead = LiveReader::new(memory.clone(), bit | before);
        ahead.begin_at(self.position.load(Relaxed));
        // Stop at `head`, however fast packets come.
        while ahead.position() < head {
            match ahead.look() {
                Look::Nothing => break,
                Look::More => continue,
                Look::Packet(packet) => {
                    ahead.advance();
                    let mine = packet.facts.wanted & bit != 0 || packet.number < first;
                    waiting += u64::from(mine);
                    others += u64::from(mine && partition.is_some_and(|partition| !partition.has(packet.facts.hash)));
                }
            }
        }
        let before = self.source.get().map_or(0, |source| source.lost());
        // A packet is counted a moment before it can be read. So losses are at most the packets that were overwritten.
        let passed_over = self.overtaken.load(Relaxed).saturating_add(ahead.overtaken());
        let lost = matched.saturating_sub(settled + waiting).min(passed_over) + before;
        let lost_by_interface = self.interface.get().map_or(0, InterfaceDrops::until_now);
        Some(Totals { matched: matched.saturating_sub(others), lost, lost_by_interface })
    }
}

/// The counts of `/sys/class/net/NAME/statistics` that libpcap reads: missed packets, and packets that found no room in
/// the device's queue.
#[derive(Debug)]
struct InterfaceDrops {
    files: [CString; 2],
    before: u64,
}

impl InterfaceDrops {
    fn of(name: &str) -> Option<InterfaceDrops> {
        let file = |what| CString::new(format!("/sys/class/net/{name}/statistics/{what}")).ok();
        let mut drops = InterfaceDrops { files: [file("rx_missed_errors")?, file("rx_fifo_errors")?], before: 0 };
        drops.before = drops.until_now();
        Some(drops)
    }

    fn until_now(&self) -> u64 {
        let sum: u64 = self.files.iter().map(|path| number_in(path).unwrap_or(0)).sum();
        sum.wrapping_sub(self.before)
    }
}

/// Reads the number in a file, with plain system calls.
fn number_in(path: &CStr) -> Option<u64> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0u8; 24];
    let length = rustix::io::read(&file, &mut text).ok()?;
    let digits = text[..length].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0u64, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))))
}
