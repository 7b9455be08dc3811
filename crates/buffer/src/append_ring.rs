//! A ring for bytes that this process makes: what a source reads from a pipe, what a filter decodes or encodes.
//!
//! Bytes are appended, published and from then on only read. The ring uses its memory again a region at a time, once no
//! descriptor and no thread needs the region. Not shared between processes; another thread may read regions that it was
//! lent (`lending`). Read through [`BlockTable`](crate::BlockTable).
//!
//! Appending takes `&self`, because it touches only bytes that were never handed out. Using memory again takes `&mut
//! self`, so that no slice handed out is alive then. The compiler checks both.

use base::limits::{APPEND_REGION_BYTES, BLOCK_BYTES, LENT_REGIONS, PINNED_REGIONS, SPARE_REGIONS};
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// The memory of a region. The ring has one handle, and each reader in another thread has its own (`lending`). While
/// there is more than one handle, the ring writes only behind the bytes that it has published.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the allocation belongs to this value. Readers read published bytes only, and the ring does not write those
// while there is more than one handle. `Region::is_alone` orders the last read before the next write.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// `len` bytes from `offset`.
    ///
    /// # Safety
    /// The ring published these bytes before it made this handle.
    pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.capacity && len <= self.capacity - offset, "inside the chunk");
        // SAFETY: inside the allocation, initialised, and not written while this handle lives (the caller's promise).
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(offset), len) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` of a slice of exactly this length, and dropped once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.bytes.as_ptr(), self.capacity)) });
    }
}

/// A run of memory that holds positions `start .. start + used`.
#[derive(Debug)]
struct Region {
    bytes: NonNull<u8>,
    capacity: usize,
    start: u64,
    used: usize,
    /// Held descriptors that point here.
    holds: u32,
    chunk: Arc<Chunk>,
}

impl Region {
    fn new(capacity: usize, start: u64) -> Region {
        // Zeroed, so every byte of it is initialised; the allocator gives untouched zero pages for this size.
        let boxed = vec![0u8; capacity].into_boxed_slice();
        let bytes = NonNull::new(Box::into_raw(boxed).cast::<u8>()).expect("a box is never null");
        Region { bytes, capacity, start, used: 0, holds: 0, chunk: Arc::new(Chunk { bytes, capacity }) }
    }

    /// Whether the ring's handle is the only one. Then the last reader has read for the last time (`Arc::get_mut` acquires).
    fn is_alone(&mut self) -> bool {
        Arc::get_mut(&mut self.chunk).is_some()
    }

    /// Offset of `pos` in the region; `None` unless the region holds `len` bytes from there.
    #[inline]
    fn offset_of(&self, pos: u64, len: u32) -> Option<usize> {
        let offset = usize::try_from(pos.checked_sub(self.start)?).ok()?;
        (offset <= self.used && len as usize <= self.used - offset).then_some(offset)
    }
}

/// A ring of regions, appended to at the end.
#[derive(Debug)]
pub struct AppendRing {
    /// In order of position; the last one is being filled.
    regions: UnsafeCell<VecDeque<Region>>,
    spare: UnsafeCell<Vec<Region>>,
    /// An `append` is filling the free part of the last region.
    busy: Cell<bool>,
}

// SAFETY: nothing in it refers to a thread; it is not `Sync`, so only one thread at a time uses its cells.
unsafe impl Send for AppendRing {}

impl Default for AppendRing {
    fn default() -> Self {
        AppendRing::new()
    }
}

impl AppendRing {
    /// An empty ring; memory comes with the first append.
    pub fn new() -> AppendRing {
        AppendRing {
            regions: UnsafeCell::new(VecDeque::new()),
            spare: UnsafeCell::new(Vec::new()),
            busy: Cell::new(false),
        }
    }

    /// Bytes of memory in use, spare regions included.
    pub fn memory_bytes(&self) -> usize {
        // SAFETY: not `Sync` and no reference to the lists outlives a method, so this is the only one.
        let (regions, spare) = unsafe { (&*self.regions.get(), &*self.spare.get()) };
        regions.iter().chain(spare).map(|region| region.capacity).sum()
    }

    /// Appends a block of at most `max` bytes: `fill` writes into the space and returns how many bytes it used. Gives
    /// the position of the first byte, how many bytes were kept, and what `fill` returned. The space holds older bytes
    /// at first (unspecified, not secret). Allocates when the last region is full.
    ///
    /// # Panics
    /// When `fill` appends to the same ring, or `max` exceeds [`BLOCK_BYTES`]: both are mistakes in our own code.
    pub fn append<R>(&self, max: usize, fill: impl FnOnce(&mut [u8]) -> (usize, R)) -> (u64, usize, R) {
        assert!(max <= BLOCK_BYTES, "a block of {max} bytes");
        assert!(!self.busy.replace(true), "append inside append");
        let (start, space) = self.space(max);
        // SAFETY: `space` is `max` initialised bytes past everything published, so no slice handed out overlaps it;
        // `busy` keeps a second writer away, and recycling needs `&mut self`.
        let space = unsafe { std::slice::from_raw_parts_mut(space.as_ptr(), max) };
        let (used, result) = fill(space);
        let used = used.min(max);
        self.busy.set(false);
        // SAFETY: as in `memory_bytes`; `fill` has returned.
        let regions = unsafe { &mut *self.regions.get() };
        if let Some(last) = regions.back_mut() {
            last.used += used;
        }
        (start, used, result)
    }

    /// Free space for `max` bytes at the end; makes a new region where the last one has too little.
    fn space(&self, max: usize) -> (u64, NonNull<u8>) {
        // SAFETY: as in `memory_bytes`.
        let (regions, spare) = unsafe { (&mut *self.regions.get(), &mut *self.spare.get()) };
        let fits = regions.back().is_some_and(|last| last.capacity - last.used >= max);
        if !fits {
            let start = regions.back().map_or(0, |last| last.start + last.used as u64);
            regions.push_back(AppendRing::next_region(spare, max, start));
        }
        let last = regions.back().expect("one was pushed if there was none");
        // SAFETY: `used <= capacity`, so the sum stays inside the allocation or one past its end.
        (last.start + last.used as u64, unsafe { last.bytes.add(last.used) })
    }

    /// A region for `max` bytes: a spare one that no other thread still reads, or a new one.
    fn next_region(spare: &mut Vec<Region>, max: usize, start: u64) -> Region {
        let is_free = |region: &mut Region| region.capacity >= max && region.is_alone();
        match spare.iter_mut().rposition(is_free) {
            Some(index) => {
                let mut region = spare.swap_remove(index);
                (region.start, region.used, region.holds) = (start, 0, 0);
                region
            }
            None => Region::new(max.max(APPEND_REGION_BYTES), start),
        }
    }

    /// Lends the region that holds this block: its memory, its start, and how many bytes of it are published. The ring
    /// does not use the memory again before the other thread has dropped its handle.
    pub(crate) fn lend(&self, pos: u64, len: u32) -> Option<(Arc<Chunk>, u64, usize)> {
        // SAFETY: as in `memory_bytes`.
        let regions = unsafe { &*self.regions.get() };
        let region = &regions[AppendRing::find(regions, pos, len)?];
        Some((Arc::clone(&region.chunk), region.start, region.used))
    }

    fn find(regions: &VecDeque<Region>, pos: u64, len: u32) -> Option<usize> {
        let after = regions.partition_point(|region| region.start <= pos);
        // An empty region has its successor's start: the last region that starts at or before `pos` has the data.
        let index = after.checked_sub(1)?;
        regions.get(index)?.offset_of(pos, len).map(|_| index)
    }

    /// The bytes at `pos`, or `None` where they were never written or are gone.
    #[inline]
    pub fn bytes(&self, pos: u64, len: u32) -> Option<&[u8]> {
        // SAFETY: as in `memory_bytes`.
        let regions = unsafe { &*self.regions.get() };
        let region = match regions.back() {
            Some(last) if last.start <= pos => last,
            _ => regions.get(AppendRing::find(regions, pos, len)?)?,
        };
        let offset = region.offset_of(pos, len)?;
        // SAFETY: `offset_of` checked `offset + len <= used`; writing published bytes again takes `&mut self`.
        Some(unsafe { std::slice::from_raw_parts(region.bytes.as_ptr().add(offset), len as usize) })
    }

    /// The bytes at `pos` for writing; `&mut self` proves that there is no other slice.
    pub fn bytes_mut(&mut self, pos: u64, len: u32) -> Option<&mut [u8]> {
        let regions = self.regions.get_mut();
        let index = AppendRing::find(regions, pos, len)?;
        let region = &mut regions[index];
        let offset = (pos - region.start) as usize;
        // SAFETY: inside the region as `find` checked, and exclusively borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(region.bytes.as_ptr().add(offset), len as usize) })
    }

    /// Moves the last region's bytes to new positions, so that the caller can change them: gives the new position and
    /// the bytes. Old positions find nothing from then on. `None`: the region is empty, held or lent.
    pub fn reissue(&mut self) -> Option<(u64, &mut [u8])> {
        let region = self.regions.get_mut().back_mut()?;
        if region.used == 0 || region.holds > 0 || !region.is_alone() {
            return None;
        }
        region.start += region.used as u64;
        // SAFETY: all of it is initialised and was published; it is exclusively borrowed.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.bytes.as_ptr(), region.used) };
        Some((region.start, bytes))
    }

    /// Makes the block that ends at the ring's end `more` bytes longer. False where there is no room behind it.
    pub fn extend(&mut self, pos: u64, len: u32, more: u32) -> bool {
        let regions = self.regions.get_mut();
        let Some(index) = AppendRing::find(regions, pos, len) else { return false };
        let is_last = index + 1 == regions.len();
        let region = &mut regions[index];
        let end = (pos - region.start) as usize + len as usize;
        if !is_last || end != region.used || region.capacity - end < more as usize {
            return false;
        }
        region.used += more as usize;
        true
    }

    /// Keeps the memory of this block from being used again. False where the block is gone or too many regions are
    /// pinned: then copy the block.
    pub fn hold(&self, pos: u64, len: u32) -> bool {
        // SAFETY: as in `memory_bytes`.
        let regions = unsafe { &mut *self.regions.get() };
        let Some(index) = AppendRing::find(regions, pos, len) else { return false };
        if regions[index].holds == 0 && regions.len() > PINNED_REGIONS {
            return false;
        }
        regions[index].holds += 1;
        true
    }

    /// Takes back one [`hold`](AppendRing::hold).
    pub fn release(&self, pos: u64, len: u32) {
        // SAFETY: as in `memory_bytes`.
        let regions = unsafe { &mut *self.regions.get() };
        if let Some(index) = AppendRing::find(regions, pos, len) {
            regions[index].holds = regions[index].holds.saturating_sub(1);
        }
    }

    /// Held descriptors that point into this ring.
    pub fn holds(&self) -> u32 {
        // SAFETY: as in `memory_bytes`.
        unsafe { &*self.regions.get() }.iter().map(|region| region.holds).sum()
    }

    /// Whether any block in the same region is held, or read by another thread.
    pub fn is_held(&mut self, pos: u64, len: u32) -> bool {
        let regions = self.regions.get_mut();
        AppendRing::find(regions, pos, len).is_some_and(|index| regions[index].holds > 0 || !regions[index].is_alone())
    }

    /// Frees every region without a held block for use. The caller promises not to follow descriptors of blocks that
    /// are not held. Such a descriptor would find nothing, never other bytes, because positions do not come back.
    pub fn recycle(&mut self) {
        let regions = self.regions.get_mut();
        let spare = self.spare.get_mut();
        if regions.len() == 1 {
            // The common case: one region, started over in place once it is more than half full and not held.
            let region = &mut regions[0];
            if region.holds == 0 && region.used * 2 > region.capacity {
                let start = region.start + region.used as u64;
                if region.is_alone() {
                    (region.start, region.used) = (start, 0);
                } else {
                    let next = AppendRing::next_region(spare, 0, start);
                    AppendRing::keep_spare(spare, std::mem::replace(region, next));
                }
            }
            return;
        }
        let mut index = 0;
        while index + 1 < regions.len() {
            if regions[index].holds > 0 {
                index += 1;
                continue;
            }
            let Some(region) = regions.remove(index) else { break };
            AppendRing::keep_spare(spare, region);
        }
    }

    /// Keeps a region for later use. Regions that other threads still read are kept too, up to `LENT_REGIONS`; beyond
    /// that the last reader frees the region.
    fn keep_spare(spare: &mut Vec<Region>, mut region: Region) {
        let most = if region.is_alone() { SPARE_REGIONS } else { LENT_REGIONS };
        if spare.len() < most && region.capacity == APPEND_REGION_BYTES {
            spare.push(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn append(ring: &AppendRing, bytes: &[u8]) -> (u64, u32) {
        let (pos, len, ()) = ring.append(bytes.len(), |space| {
            space.copy_from_slice(bytes);
            (bytes.len(), ())
        });
        (pos, len as u32)
    }

    #[test]
    fn positions_go_on_and_never_come_back() {
        let mut ring = AppendRing::new();
        let (a, len) = append(&ring, b"hello");
        let (b, _) = append(&ring, b"world!");
        assert_eq!((a, b), (0, 5));
        assert_eq!(ring.bytes(a, len), Some(&b"hello"[..]));
        assert_eq!(ring.bytes(b, 7), None, "past what was written");
        append(&ring, &vec![1; APPEND_REGION_BYTES]);
        ring.recycle();
        assert_eq!(ring.bytes(a, len), None, "used again");
        assert_eq!(append(&ring, b"x").0, 11 + APPEND_REGION_BYTES as u64);
    }

    #[test]
    fn only_the_last_block_can_be_extended() {
        let mut ring = AppendRing::new();
        let (a, a_len) = append(&ring, b"ab");
        let (b, b_len) = append(&ring, b"cd");
        assert!(!ring.extend(a, a_len, 1));
        assert!(ring.extend(b, b_len, 3));
        assert_eq!(ring.bytes(b, b_len + 3).map(<[u8]>::len), Some(5));
        assert!(!ring.extend(b, b_len, 1), "it is longer now");
    }

    #[test]
    fn what_is_issued_again_has_new_positions_and_what_is_held_stays() {
        let mut ring = AppendRing::new();
        assert!(ring.reissue().is_none());
        let (first, len) = append(&ring, b"template");
        let (again, bytes) = ring.reissue().unwrap();
        assert_eq!((again, &*bytes), (first + u64::from(len), &b"template"[..]));
        bytes[0] = b'T';
        assert_eq!((ring.bytes(first, len), ring.bytes(again, len)), (None, Some(&b"Template"[..])));
        assert!(ring.hold(again + 1, 1));
        assert!(ring.reissue().is_none(), "somebody holds a byte of it");
        assert_eq!(ring.bytes(again, len), Some(&b"Template"[..]));
        ring.release(again + 1, 1);
        assert_eq!(ring.reissue().unwrap().0, again + u64::from(len));
        let (next, _) = append(&ring, b"x");
        assert_eq!(next, again + 2 * u64::from(len), "positions go on");
    }

    #[test]
    #[should_panic(expected = "append inside append")]
    fn append_is_not_reentrant() {
        let ring = AppendRing::new();
        ring.append(1, |_| (0, append(&ring, b"x")));
    }

    proptest! {
        /// Compares with a map of everything ever appended: held blocks stay readable, released ones are whole or gone,
        /// and memory stays within what the holds explain.
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0u8..4, 1usize..400_000), 1..120)) {
            let mut ring = AppendRing::new();
            let mut held: BTreeMap<u64, (u32, u8)> = BTreeMap::new();
            let mut fill = 0u8;
            for (step, size) in steps {
                match step {
                    0 | 1 => {
                        fill = fill.wrapping_add(1);
                        let (pos, len, ()) = ring.append(size, |space| { space.fill(fill); (size, ()) });
                        if step == 1 && ring.hold(pos, len as u32) {
                            held.insert(pos, (len as u32, fill));
                        }
                    }
                    2 => if let Some((pos, (len, _))) = held.pop_first() { ring.release(pos, len); },
                    _ => ring.recycle(),
                }
                for (&pos, &(len, value)) in &held {
                    let bytes = ring.bytes(pos, len).expect("held");
                    prop_assert!(bytes.len() == len as usize && bytes.first() == Some(&value) && bytes.last() == Some(&value));
                }
            }
            for (pos, (len, _)) in held { ring.release(pos, len); }
            ring.recycle();
            prop_assert!(ring.memory_bytes() <= (SPARE_REGIONS + 1) * APPEND_REGION_BYTES);
        }
    }
}
