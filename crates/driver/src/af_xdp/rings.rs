//! The rings of an AF_XDP socket: arrays of fixed size with a producer's and a consumer's count; the kernel is one of
//! the two (`linux/if_xdp.h`, af_xdp.rst).
//!
//! The kernel's counts are trusted, but the code checks that they differ by at most the ring's length.

use crate::sys::{self, Map};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) trait Entry: Copy {}
/// Addresses in the frames' memory: of chunks to fill, and of sent frames.
impl Entry for u64 {}

/// A frame that was received or that will be sent (struct xdp_desc).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}
impl Entry for Descriptor {}

/// Offsets of the parts of one ring in its map (struct xdp_ring_offset).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Offsets {
    producer: u64,
    consumer: u64,
    entries: u64,
    flags: u64,
}

/// The same for all rings (struct xdp_mmap_offsets).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct AllOffsets {
    receive: Offsets,
    transmit: Offsets,
    fill: Offsets,
    completion: Offsets,
}

// SAFETY: integers in a row.
unsafe impl sys::Plain for AllOffsets {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Receive,
    Transmit,
    Fill,
    Completion,
}

impl Which {
    fn place(self, offsets: &AllOffsets) -> (u64, Offsets) {
        match self {
            Which::Receive => (libc::XDP_PGOFF_RX_RING as u64, offsets.receive),
            Which::Transmit => (libc::XDP_PGOFF_TX_RING as u64, offsets.transmit),
            Which::Fill => (libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fill),
            Which::Completion => (libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.completion),
        }
    }

    fn option(self) -> libc::c_int {
        match self {
            Which::Receive => libc::XDP_RX_RING,
            Which::Transmit => libc::XDP_TX_RING,
            Which::Fill => libc::XDP_UMEM_FILL_RING,
            Which::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }
}

/// Asks for a ring of `entries`, a power of two. Before mapping.
pub(super) fn ask_for(fd: BorrowedFd<'_>, which: Which, entries: u32) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_XDP, which.option(), &entries)
}

pub(super) fn offsets(fd: BorrowedFd<'_>) -> io::Result<AllOffsets> {
    let offsets: AllOffsets = sys::option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    // Kernels before 5.4 have no flags, and return a shorter structure.
    if offsets.completion.entries == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(offsets)
}

#[derive(Debug)]
pub(super) struct Ring<T> {
    map: Map,
    offsets: Offsets,
    size: u32,
    own: u32,
    _entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    pub(super) fn map(fd: BorrowedFd<'_>, which: Which, size: u32, offsets: &AllOffsets) -> io::Result<Ring<T>> {
        let (at, offsets) = which.place(offsets);
        let bytes = offsets.entries as usize + size as usize * size_of::<T>();
        let ring = Ring { map: Map::new(fd, at, bytes)?, offsets, size, own: 0, _entries: PhantomData };
        // All methods rely on this.
        let inside = [offsets.producer, offsets.consumer, offsets.flags]
            .into_iter()
            .all(|word| word % 4 == 0 && ring.map.at(word as usize, 4).is_some());
        if inside && offsets.entries % 8 == 0 && size.is_power_of_two() {
            Ok(ring)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel describes a ring that cannot be"))
        }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        let word = self.map.at(offset as usize, 4).expect("checked when it was mapped");
        // SAFETY: inside the map, which lives as long as this borrow, and aligned; the kernel accesses it as a whole.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    fn entry(&self, count: u32) -> NonNull<T> {
        let index = (count & (self.size - 1)) as usize;
        let bytes = size_of::<T>();
        let entry = self.map.at(self.offsets.entries as usize + index * bytes, bytes);
        entry.expect("an index below the size it was mapped with").cast()
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Whether the kernel sleeps, and needs a call when there is work.
    pub(super) fn wants_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// For a consuming side: number of entries that are there.
    pub(super) fn filled(&self) -> u32 {
        // Acquire: pairs with the kernel's release after it has produced.
        self.word(self.offsets.producer).load(Ordering::Acquire).wrapping_sub(self.own).min(self.size)
    }

    /// The entry `ahead` after the first; `ahead` must be less than the result of [`filled`](Ring::filled).
    pub(super) fn look(&self, ahead: u32) -> T {
        // SAFETY: inside the map and aligned; the kernel wrote it before it counted it, and leaves it until `consume`.
        unsafe { self.entry(self.own.wrapping_add(ahead)).read() }
    }

    /// Gives back the first `count` entries.
    pub(super) fn consume(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        // Release: orders all reads of the entries before this store.
        self.word(self.offsets.consumer).store(self.own, Ordering::Release);
    }

    /// For a producing side: number of entries for which there is room.
    pub(super) fn free(&self) -> u32 {
        // Acquire: pairs with the kernel's release after it has consumed.
        let consumed = self.word(self.offsets.consumer).load(Ordering::Acquire);
        self.size.saturating_sub(self.own.wrapping_sub(consumed))
    }

    /// Adds entries, as many as there is room for, and shows them to the kernel; returns their number.
    pub(super) fn produce(&mut self, entries: impl IntoIterator<Item = T>) -> u32 {
        let mut count = 0;
        for entry in entries.into_iter().take(self.free() as usize) {
            // SAFETY: inside the map and aligned; the kernel does not read it before it is counted.
            unsafe { self.entry(self.own.wrapping_add(count)).write(entry) };
            count += 1;
        }
        self.own = self.own.wrapping_add(count);
        // Release: the entries come before the count.
        self.word(self.offsets.producer).store(self.own, Ordering::Release);
        count
    }
}

/// Tells the kernel that there are frames to send.
pub(super) fn wake_to_send(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no bytes, no address.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells the kernel that there are chunks to fill.
pub(super) fn wake_to_receive(fd: BorrowedFd<'_>) {
    // The next call reports any error again.
    // SAFETY: no bytes, no address.
    let _ = unsafe {
        let (nobody, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        libc::recvfrom(fd.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, nobody, std::ptr::null_mut())
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::shared::segment::{Pages, Segment};
    use std::os::fd::AsFd;

    const SIZE: u32 = 8;
    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, entries: 192, flags: 128 };

    /// A ring in this process's memory, mapped a second time to play the other side.
    fn rings() -> (Ring<u64>, Ring<u64>) {
        let offsets = AllOffsets { receive: OFFSETS, ..AllOffsets::default() };
        let memory = Segment::create("test", 4096, Pages::Normal).expect("a little memory");
        let ring = || Ring::map(memory.fd(), Which::Receive, SIZE, &offsets).expect("it fits");
        (ring(), ring())
    }

    #[test]
    fn what_one_side_produces_the_other_consumes() {
        let (mut producer, mut consumer) = rings();
        let mut next = 0;
        for round in 0..100_u64 {
            let more = round % 11;
            let added = producer.produce(next..next + more);
            assert_eq!(u64::from(added), more.min(u64::from(SIZE)));
            assert_eq!((consumer.filled(), producer.free()), (added, SIZE - added));
            assert!((0..added).all(|ahead| consumer.look(ahead) == next + u64::from(ahead)));
            consumer.consume(added);
            next += u64::from(added);
        }
        assert_eq!(producer.produce(0..20), SIZE, "no more than there is room for");
        assert_eq!(producer.produce(0..1), 0);
    }

    #[test]
    fn counts_that_cannot_be_reach_nothing_outside() {
        let (mut producer, consumer) = rings();
        for count in [0, 1, SIZE, SIZE + 1, u32::MAX / 2, u32::MAX] {
            for offset in [OFFSETS.producer, OFFSETS.consumer] {
                producer.word(offset).store(count, Ordering::Relaxed);
                assert!(consumer.filled() <= SIZE && producer.free() <= SIZE);
                (0..consumer.filled()).for_each(|ahead| {
                    consumer.look(ahead);
                });
            }
            producer.own = count.wrapping_add(3);
            assert!(producer.free() <= SIZE && producer.produce(0..20) <= SIZE);
        }
    }

    #[test]
    fn rings_that_do_not_fit_their_map_are_refused() {
        let memory = Segment::create("test", 4096, Pages::Normal).expect("a little memory");
        for wrong in [
            Offsets { producer: 1 << 20, ..OFFSETS },
            Offsets { consumer: 2, ..OFFSETS },
            Offsets { entries: 4, ..OFFSETS },
        ] {
            let offsets = AllOffsets { receive: wrong, ..AllOffsets::default() };
            assert!(Ring::<u64>::map(memory.fd().as_fd(), Which::Receive, SIZE, &offsets).is_err());
        }
    }
}
