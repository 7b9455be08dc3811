//! The rings of one process: turns a descriptor into checked bytes. This is the only way to a block's bytes.
//!
//! - A *segment* is memory that holds bytes: a mapped file, an append ring or the copies of held blocks.
//! - A *view* names a segment together with the kind of its frames (link type, interface). A descriptor's ring field is
//!   a view's id. Several views may share a segment, as the interfaces of one pcapng file do.
//!
//! `source` filters map files and append; other filters read through [`BlockTable::bytes`].

mod lend;
pub mod lookup;

use crate::append_ring::AppendRing;
use crate::borrowed_ring::BorrowedRing;
use crate::descriptor::{Descriptor, WIRE_MAX, end_of};
use crate::held_blocks::HeldBlocks;
use crate::mapped_file::MappedFile;
use base::id::{Generation, RingId};
use base::limits::{BLOCK_BYTES, RINGS};
use lookup::Lookup;
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Origin of the frames of a view. All of it goes into a pcapng file's interface description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// LINKTYPE number of the frames; `None` where the view holds no frames.
    pub link_type: Option<u16>,
    /// The device's name; `None` where the capture does not say it.
    pub name: Option<String>,
    /// The capture's description of the device, if any.
    pub description: Option<String>,
    /// Bytes kept of each frame at most; 0 = no limit.
    pub snap_len: u32,
    /// The capture has times finer than microseconds. False for a device whose capture did not ask for them.
    pub nanoseconds: bool,
    /// The tunnels from which a filter took the frames, in that filter's encoding; `None`: the frames are as captured.
    pub tunnels: Option<Arc<[u8]>>,
}

/// A segment in this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId(u32);

impl SegmentId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A view in this table, as descriptors name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ViewId {
    /// The descriptor's `ring`.
    pub ring: RingId,
    /// The descriptor's `generation`.
    pub generation: Generation,
}

impl ViewId {
    /// The block of `len` bytes at `pos` in this view: complete on the wire, class 0, time 0, no flags.
    #[inline]
    pub fn block(self, pos: u64, len: u32) -> Descriptor {
        let ViewId { ring, generation } = self;
        Descriptor { pos, len, ring, generation, wire_and_flags: len.min(WIRE_MAX), ..Descriptor::default() }
    }
}

/// Room that an [`edit`](BlockTable::edit) wants around a block's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes wanted before the first.
    pub front: u32,
    /// Bytes wanted after the last.
    pub back: u32,
}

/// Why a block cannot be edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditError {
    /// Its bytes are gone or never were.
    Gone,
    /// It would become longer than a block can be.
    TooLong,
}

#[derive(Debug)]
struct View {
    /// Map of a file's segment, so that the common lookup needs no second table; `len` is 0 for other segments.
    base: *const u8,
    len: u64,
    segment: SegmentId,
    generation: Generation,
    live: bool,
    interface: Arc<Interface>,
}

#[derive(Debug)]
enum Memory {
    File(Arc<MappedFile>),
    Append(AppendRing),
    Borrowed(BorrowedRing),
    /// Copies of held blocks; there is one such segment, the first.
    Held(HeldBlocks),
}

#[derive(Debug)]
struct Segment {
    memory: Memory,
    /// Number of this segment; never used again for another one.
    serial: u64,
    views: Vec<RingId>,
    /// Held descriptors of a mapped file (other memory counts its own).
    holds: Cell<u32>,
    retired: bool,
    /// For an append ring with copies of edited blocks: the view of the last block edited, and the view of its copy.
    last_edited: Option<(ViewId, ViewId)>,
    /// The same for all views with edited blocks.
    edited: HashMap<ViewId, ViewId>,
}

/// Counts of faults, held blocks and edits. Tests use them to assert that no block is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Descriptors that named nothing, a mistake of this program or of a peer. They read as empty.
    pub faults: u64,
    /// Held blocks copied because too much was pinned.
    pub hold_copies: u64,
    /// Bytes of these copies.
    pub hold_copied_bytes: u64,
    /// Blocks that could not be held because their bytes were gone, a mistake of this program or of a peer.
    pub hold_refusals: u64,
    /// Edits done where the block lay.
    pub edits_in_place: u64,
    /// Edits that needed a copy.
    pub edit_copies: u64,
}

impl Traffic {
    /// Adds the counts of another table.
    pub fn add(&mut self, other: &Traffic) {
        let Traffic { faults, hold_copies, hold_copied_bytes, hold_refusals, edits_in_place, edit_copies } = other;
        self.faults += faults;
        self.hold_copies += hold_copies;
        self.hold_copied_bytes += hold_copied_bytes;
        self.hold_refusals += hold_refusals;
        self.edits_in_place += edits_in_place;
        self.edit_copies += edit_copies;
    }
}

/// The segment with copies of held blocks: the first one, never retired.
const HELD: SegmentId = SegmentId(0);

/// The table. One worker owns it; it is not shared.
#[derive(Debug)]
pub struct BlockTable {
    views: Vec<View>,
    free_views: Vec<RingId>,
    segments: Vec<Option<Segment>>,
    serials: u64,
    link_types: BTreeSet<u16>,
    /// View of the copies of held blocks. Made with the table, so that a source cannot take the last view before it.
    held: ViewId,
    traffic: Cell<Traffic>,
}

// SAFETY: the raw pointers in `views` point into maps owned by `segments`, which move along; not `Sync`.
unsafe impl Send for BlockTable {}

impl Default for BlockTable {
    fn default() -> Self {
        BlockTable::new()
    }
}

impl BlockTable {
    /// A table with one segment and one view, for copies of held blocks.
    pub fn new() -> BlockTable {
        let mut rings = BlockTable {
            views: Vec::new(),
            free_views: Vec::new(),
            segments: Vec::new(),
            serials: 0,
            link_types: BTreeSet::new(),
            held: ViewId::default(),
            traffic: Cell::default(),
        };
        let segment = rings.add_segment(Memory::Held(HeldBlocks::default()));
        debug_assert_eq!(segment, HELD);
        rings.held = rings.add_view(segment, Interface::default()).expect("the first of many views");
        rings
    }

    // --- segments and views -----------------------------------------------------------------------------------------

    /// Adds a mapped file.
    pub fn add_file(&mut self, file: MappedFile) -> SegmentId {
        self.add_segment(Memory::File(Arc::new(file)))
    }

    /// Adds an empty append ring.
    pub fn add_append_ring(&mut self) -> SegmentId {
        self.add_segment(Memory::Append(AppendRing::new()))
    }

    fn add_segment(&mut self, memory: Memory) -> SegmentId {
        let (views, holds) = (Vec::new(), Cell::new(0));
        self.serials += 1;
        let (last_edited, edited) = (None, HashMap::new());
        let segment = Segment { memory, serial: self.serials, views, holds, retired: false, last_edited, edited };
        let index = match self.segments.iter().position(Option::is_none) {
            Some(index) => {
                self.segments[index] = Some(segment);
                index
            }
            None => {
                self.segments.push(Some(segment));
                self.segments.len() - 1
            }
        };
        SegmentId(u32::try_from(index).expect("segments are bounded by views"))
    }

    /// Makes a view of a segment; `None` when all ids are taken.
    pub fn add_view(&mut self, segment: SegmentId, interface: Interface) -> Option<ViewId> {
        let (base, len) = match &self.segment(segment)?.memory {
            Memory::File(file) => (file.bytes().as_ptr(), file.len() as u64),
            Memory::Append(_) | Memory::Borrowed(_) | Memory::Held(_) => (std::ptr::null(), 0),
        };
        self.link_types.extend(interface.link_type);
        let view = View { base, len, segment, generation: Generation(0), live: true, interface: Arc::new(interface) };
        let ring = match self.free_views.pop() {
            Some(ring) => {
                let slot = &mut self.views[usize::from(ring.0)];
                let generation = Generation(slot.generation.0.wrapping_add(1));
                *slot = View { generation, ..view };
                ring
            }
            None if self.views.len() < RINGS => {
                self.views.push(view);
                RingId((self.views.len() - 1) as u16)
            }
            None => return None,
        };
        self.segments[segment.0 as usize].as_mut()?.views.push(ring);
        Some(ViewId { ring, generation: self.views[usize::from(ring.0)].generation })
    }

    /// Makes another view of the memory in which a block lies, for frames of another kind. `None` where the block names
    /// nothing or all ids are taken.
    pub fn view_beside(&mut self, block: &Descriptor, interface: Interface) -> Option<ViewId> {
        let segment = self.view(block)?.segment;
        self.add_view(segment, interface)
    }

    /// Link types of all frames so far.
    pub fn link_types(&self) -> &BTreeSet<u16> {
        &self.link_types
    }

    fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id.0 as usize)?.as_ref()
    }

    fn segment_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(id.0 as usize)?.as_mut()
    }

    /// Says that the segment's owner adds nothing more. The segment is dropped as soon as nothing in it is held, at the
    /// next [`recycle`](BlockTable::recycle).
    pub fn retire(&mut self, segment: SegmentId) {
        if let Some(segment) = self.segment_mut(segment) {
            segment.retired = true;
        }
    }

    /// The mapped file of a segment; `None` for other segments.
    pub fn file(&self, segment: SegmentId) -> Option<&MappedFile> {
        match &self.segment(segment)?.memory {
            Memory::File(file) => Some(file),
            Memory::Append(_) | Memory::Borrowed(_) | Memory::Held(_) => None,
        }
    }

    /// Maps the bytes that a file has gained since; gives its length in bytes. Makes system calls.
    pub fn grow_file(&mut self, segment: SegmentId) -> std::io::Result<u64> {
        let Some(Segment { memory: Memory::File(file), .. }) = self.segment_mut(segment) else {
            return Err(std::io::Error::other("not a mapped file"));
        };
        match Arc::get_mut(file) {
            Some(file) => _ = file.grow()?,
            None => {
                if let Some(grown) = file.grown()? {
                    *file = Arc::new(grown);
                }
            }
        }
        Ok(self.see_file(segment))
    }

    fn see_file(&mut self, segment: SegmentId) -> u64 {
        let Some(Segment { memory: Memory::File(file), views, .. }) = self.segment(segment) else { return 0 };
        let (base, len, views) = (file.bytes().as_ptr(), file.len() as u64, views.clone());
        for ring in views {
            let view = &mut self.views[usize::from(ring.0)];
            (view.base, view.len) = (base, len);
        }
        len
    }

    /// The interface of this block's view; `None` unless the view is live.
    #[inline]
    pub fn interface(&self, block: &Descriptor) -> Option<&Arc<Interface>> {
        self.view(block).map(|view| &view.interface)
    }

    /// LINKTYPE number of this block's view; `None` where the view holds no frames.
    #[inline]
    pub fn link_type(&self, block: &Descriptor) -> Option<u16> {
        self.view(block)?.interface.link_type
    }

    #[inline]
    fn view(&self, block: &Descriptor) -> Option<&View> {
        self.views.get(usize::from(block.ring.0)).filter(|view| view.live && view.generation == block.generation)
    }

    // --- bytes ------------------------------------------------------------------------------------------------------

    /// The bytes of a block. A descriptor that names nothing reads as empty and is counted as a fault.
    #[inline]
    pub fn bytes(&self, block: &Descriptor) -> &[u8] {
        let Some(view) = self.views.get(usize::from(block.ring.0)).filter(|view| view.generation == block.generation)
        else {
            return self.no_bytes(block);
        };
        if block.pos <= view.len && u64::from(block.len) <= view.len - block.pos && view.len > 0 {
            // SAFETY: `len` is above 0 only for a live view of a mapped file, whose map is at `base` and that long
            // (`add_view` and `grow_file` set both, `drop_segment` sets `len` to 0). The range was checked just now.
            // The map goes only through `&mut self`. Bytes that another process changes: see `MappedFile::bytes`.
            return unsafe { std::slice::from_raw_parts(view.base.add(block.pos as usize), block.len as usize) };
        }
        self.bytes_of_ours(view, block)
    }

    /// For looking up many blocks one after the other, beginning with `first`.
    #[inline]
    pub fn lookup(&self, first: Option<&Descriptor>) -> Lookup<'_> {
        Lookup::new(self, first)
    }

    /// First byte and length of the map of this block's view; `None` unless it is live and of a file that is not empty.
    #[inline]
    pub(crate) fn map_of(&self, block: &Descriptor) -> Option<(*const u8, u64)> {
        self.view(block).filter(|view| view.len > 0).map(|view| (view.base, view.len))
    }

    /// Asks the processor to fetch the first bytes of blocks that lie in one view; this saves time only. For a source
    /// that has described its first blocks and goes on describing.
    pub fn prefetch(&self, blocks: &[Descriptor]) {
        let lookup = self.lookup(blocks.first());
        blocks.iter().for_each(|block| lookup.prefetch(block));
    }

    fn bytes_of_ours(&self, view: &View, block: &Descriptor) -> &[u8] {
        if view.live
            && let Some(Some(segment)) = self.segments.get(view.segment.0 as usize)
        {
            let found = match &segment.memory {
                Memory::Append(ring) => ring.bytes(block.pos, block.len),
                Memory::Held(blocks) => blocks.bytes(block.pos, block.len),
                Memory::Borrowed(ring) => ring.bytes(block.pos, block.len),
                Memory::File(_) => None,
            };
            if let Some(bytes) = found {
                return bytes;
            }
        }
        self.no_bytes(block)
    }

    /// Counts a descriptor that names nothing, unless it is empty.
    #[cold]
    pub(crate) fn no_bytes(&self, block: &Descriptor) -> &[u8] {
        if block.len > 0 {
            self.count(|traffic| traffic.faults += 1);
        }
        &[]
    }

    fn append_ring_of(&self, block: &Descriptor) -> Option<&AppendRing> {
        match &self.segment(self.view(block)?.segment)?.memory {
            Memory::Append(ring) => Some(ring),
            Memory::File(_) | Memory::Borrowed(_) | Memory::Held(_) => None,
        }
    }

    /// Copies `parts`, one after the other, to the end of an append ring. Gives the new block, whose time, class and
    /// flags the caller sets. `None` where the view is not of an append ring or the block would be too long.
    pub fn append_copy(&self, view: ViewId, parts: &[&[u8]]) -> Option<Descriptor> {
        let len = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len()))?;
        self.append(view, len, |mut space| {
            for part in parts {
                let (here, rest) = space.split_at_mut(part.len());
                here.copy_from_slice(part);
                space = rest;
            }
            (len, ())
        })
        .map(|(block, ())| block)
    }

    /// Lets `fill` write at most `max` bytes at the end of an append ring. `fill` returns how many it wrote, and a
    /// result that is passed on. `None` where the view is not of an append ring or `max` is too long for a block.
    pub fn append<R>(
        &self,
        view: ViewId,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<(Descriptor, R)> {
        if max > BLOCK_BYTES {
            return None;
        }
        let mut block = view.block(0, 0);
        let (pos, len, result) = self.append_ring_of(&block)?.append(max, fill);
        block.pos = pos;
        block.len = len as u32;
        block.set_wire(len as u32);
        Some((block, result))
    }

    /// Moves the bytes of an append ring's last region to new positions, so that the caller can change them. Gives the
    /// first position and the bytes; blocks described before are gone. `None` where the region is empty, held or lent:
    /// then append instead. Call when no batch that could name its blocks is under way.
    pub fn reissue(&mut self, segment: SegmentId) -> Option<(u64, &mut [u8])> {
        match &mut self.segment_mut(segment)?.memory {
            Memory::Append(ring) => ring.reissue(),
            Memory::File(_) | Memory::Borrowed(_) | Memory::Held(_) => None,
        }
    }

    // --- holding ----------------------------------------------------------------------------------------------------

    /// Keeps a block readable after its batch, until [`release`](BlockTable::release). Gives the descriptor to keep:
    /// the same one where the memory can be pinned, else that of a copy, which is counted. `None` where the block is
    /// gone, which is counted too.
    pub fn hold(&mut self, block: &Descriptor) -> Option<Descriptor> {
        let held = self.pin(block).or_else(|| self.hold_copy(block));
        if held.is_none() {
            self.count(|traffic| traffic.hold_refusals += 1);
        }
        held
    }

    fn pin(&self, block: &Descriptor) -> Option<Descriptor> {
        let segment = self.segment(self.view(block)?.segment)?;
        let pinned = match &segment.memory {
            Memory::File(_) => {
                segment.holds.set(segment.holds.get() + 1);
                true
            }
            Memory::Append(ring) => ring.hold(block.pos, block.len),
            Memory::Borrowed(ring) => ring.hold(block.pos, block.len),
            Memory::Held(blocks) => blocks.hold(block.pos, block.len),
        };
        pinned.then_some(*block)
    }

    fn hold_copy(&mut self, block: &Descriptor) -> Option<Descriptor> {
        let bytes = match &self.segment(self.view(block)?.segment)?.memory {
            Memory::Append(ring) => ring.bytes(block.pos, block.len),
            Memory::Borrowed(ring) => ring.bytes(block.pos, block.len),
            Memory::File(_) | Memory::Held(_) => None,
        };
        let copy = Box::from(bytes?);
        let Memory::Held(blocks) = &mut self.segment_mut(HELD)?.memory else { return None };
        let pos = blocks.insert(copy);
        self.count(|traffic| {
            traffic.hold_copies += 1;
            traffic.hold_copied_bytes += u64::from(block.len);
        });
        Some(Descriptor { ring: self.held.ring, generation: self.held.generation, pos, ..*block })
    }

    /// Releases one [`hold`](BlockTable::hold); `block` is the descriptor that `hold` gave.
    pub fn release(&self, block: &Descriptor) {
        let Some(segment) = self.view(block).and_then(|view| self.segment(view.segment)) else { return };
        match &segment.memory {
            Memory::File(_) => segment.holds.set(segment.holds.get().saturating_sub(1)),
            Memory::Append(ring) => ring.release(block.pos, block.len),
            Memory::Borrowed(ring) => ring.release(block.pos, block.len),
            Memory::Held(blocks) => blocks.release(block.pos, block.len),
        }
    }

    // --- editing ----------------------------------------------------------------------------------------------------

    /// Gives a block's bytes for writing, with `room` around them, and rewrites the descriptor if they moved. This is
    /// the only way to write to a block. It takes the cheapest way that is allowed:
    ///
    /// 1. *In place* in an append ring, if `exclusive` (no other filter sees it), without room, and with no hold
    ///    nearby.
    /// 2. *Longer in place*, if also room is wanted only behind the block and it is the last one in its ring.
    /// 3. *Copied* otherwise, into the append ring of view `own`, and counted. The room in front and behind is zeroed.
    ///    The copy lies in a view of that ring with the same interface as the block's view.
    ///
    /// A caller that overwrites the whole block first crops it to 0 bytes and asks for room: that saves the copy.
    pub fn edit(
        &mut self,
        block: &mut Descriptor,
        room: Room,
        exclusive: bool,
        own: ViewId,
    ) -> Result<&mut [u8], EditError> {
        let len = u64::from(block.len) + u64::from(room.front) + u64::from(room.back);
        let len = u32::try_from(len).ok().filter(|&len| len as usize <= BLOCK_BYTES).ok_or(EditError::TooLong)?;
        let in_place = exclusive && room.front == 0 && self.extend_in_place(block, room.back);
        if in_place {
            self.count(|traffic| traffic.edits_in_place += 1);
        } else {
            let own = self.view_like(block, own).ok_or(EditError::Gone)?;
            let copy = self.edit_copy(block, room, len, own)?;
            (block.ring, block.generation, block.pos) = (copy.ring, copy.generation, copy.pos);
            self.count(|traffic| traffic.edit_copies += 1);
        }
        let wire = block.wire().saturating_add(room.front).saturating_add(room.back);
        block.len = len;
        block.set_wire(wire);
        let segment = self.view(block).map(|view| view.segment).ok_or(EditError::Gone)?;
        match &mut self.segment_mut(segment).ok_or(EditError::Gone)?.memory {
            Memory::Append(ring) => ring.bytes_mut(block.pos, block.len).ok_or(EditError::Gone),
            Memory::File(_) | Memory::Borrowed(_) | Memory::Held(_) => Err(EditError::Gone),
        }
    }

    /// A view like the block's, of `own`'s segment. `None`: the block names nothing, or all ids are taken.
    pub fn view_like(&mut self, block: &Descriptor, own: ViewId) -> Option<ViewId> {
        let from = ViewId { ring: block.ring, generation: block.generation };
        let id = self.view(&own.block(0, 0))?.segment;
        let segment = self.segment(id)?;
        if let Some((_, view)) = segment.last_edited.filter(|(known, _)| *known == from) {
            return Some(view);
        }
        let view = segment.edited.get(&from).copied().or_else(|| self.find_view_like(block, id))?;
        let segment = self.segment_mut(id)?;
        // The map would grow without end otherwise: views come and go with captures.
        if segment.edited.len() >= RINGS {
            segment.edited.clear();
        }
        segment.edited.insert(from, view);
        segment.last_edited = Some((from, view));
        Some(view)
    }

    #[cold]
    fn find_view_like(&mut self, block: &Descriptor, id: SegmentId) -> Option<ViewId> {
        let interface = Arc::clone(self.interface(block)?);
        let is_alike = |ring: &&RingId| self.views[usize::from(ring.0)].interface == interface;
        match self.segment(id)?.views.iter().find(is_alike) {
            Some(ring) => Some(ViewId { ring: *ring, generation: self.views[usize::from(ring.0)].generation }),
            None => self.add_view(id, Interface::clone(&interface)),
        }
    }

    fn extend_in_place(&mut self, block: &Descriptor, more: u32) -> bool {
        let Some(segment) = self.view(block).map(|view| view.segment) else { return false };
        match self.segment_mut(segment).map(|segment| &mut segment.memory) {
            Some(Memory::Append(ring)) => {
                !ring.is_held(block.pos, block.len)
                    && ring.bytes(block.pos, block.len).is_some()
                    && (more == 0 || ring.extend(block.pos, block.len, more))
            }
            _ => false,
        }
    }

    fn edit_copy(&self, block: &Descriptor, room: Room, len: u32, own: ViewId) -> Result<Descriptor, EditError> {
        let end = end_of(block).ok_or(EditError::Gone)?;
        let bytes = self.bytes(block);
        if bytes.len() as u64 != end - block.pos {
            return Err(EditError::Gone);
        }
        self.append(own, len as usize, |space| {
            let (front, rest) = space.split_at_mut(room.front as usize);
            let (middle, back) = rest.split_at_mut(bytes.len());
            front.fill(0);
            middle.copy_from_slice(bytes);
            back.fill(0);
            (len as usize, ())
        })
        .map(|(copy, ())| copy)
        .ok_or(EditError::Gone)
    }

    // --- using memory again -----------------------------------------------------------------------------------------

    /// Uses a segment's memory again where nothing in it is held; drops a retired segment. Call when no batch that
    /// could name its blocks is under way.
    pub fn recycle(&mut self, id: SegmentId) {
        let Some(segment) = self.segment_mut(id) else { return };
        let is_held = match &mut segment.memory {
            Memory::File(_) => segment.holds.get() > 0,
            Memory::Append(ring) => {
                ring.recycle();
                segment.retired && ring.holds() > 0
            }
            Memory::Borrowed(ring) => ring.recycle(),
            Memory::Held(blocks) => {
                blocks.recycle();
                true
            }
        };
        if segment.retired && !is_held {
            self.drop_segment(id);
        }
    }

    /// [`recycle`](BlockTable::recycle) for copies of held blocks, and for retired segments without holds.
    pub fn recycle_held(&mut self) {
        self.recycle(HELD);
        for index in 0..self.segments.len() {
            if self.segments[index].as_ref().is_some_and(|segment| segment.retired) {
                self.recycle(SegmentId(index as u32));
            }
        }
    }

    fn drop_segment(&mut self, id: SegmentId) {
        let Some(segment) = self.segments.get_mut(id.0 as usize).and_then(Option::take) else { return };
        for ring in &segment.views {
            let view = &mut self.views[usize::from(ring.0)];
            (view.base, view.len, view.live) = (std::ptr::null(), 0, false);
            self.free_views.push(*ring);
        }
    }

    // --- what happened ----------------------------------------------------------------------------------------------

    fn count(&self, change: impl FnOnce(&mut Traffic)) {
        let mut traffic = self.traffic.get();
        change(&mut traffic);
        self.traffic.set(traffic);
    }

    /// The counts so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// Bytes of memory that the table's own rings use now. Mapped files are page cache and not counted.
    pub fn memory_bytes(&self) -> usize {
        let rings = self.segments.iter().flatten().map(|segment| match &segment.memory {
            Memory::Append(ring) => ring.memory_bytes(),
            Memory::Held(blocks) => blocks.memory_bytes(),
            Memory::File(_) | Memory::Borrowed(_) => 0,
        });
        rings.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Flags;
    use std::io::Write;

    pub(super) fn file(bytes: &[u8]) -> MappedFile {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        MappedFile::new(file).unwrap()
    }

    #[test]
    fn a_descriptor_never_reads_outside_its_ring() {
        let mut rings = BlockTable::new();
        let segment = rings.add_file(file(b"0123456789"));
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let rows = [
            (0, 10, &b"0123456789"[..]),
            (9, 1, b"9"),
            (10, 0, b""),
            (10, 1, b""),
            (u64::MAX, 5, b""),
            (5, u32::MAX, b""),
        ];
        for (pos, len, expected) in rows {
            assert_eq!(rings.bytes(&view.block(pos, len)), expected, "{pos} {len}");
        }
        assert_eq!(rings.bytes(&ViewId { ring: RingId(9), ..view }.block(0, 1)), b"");
        assert_eq!(rings.bytes(&ViewId { generation: Generation(1), ..view }.block(0, 1)), b"");
        assert_eq!(rings.traffic().faults, 5, "an empty block is no fault");
    }

    #[test]
    fn a_retired_file_goes_with_its_last_hold_and_its_id_comes_back_under_a_new_generation() {
        let mut rings = BlockTable::new();
        let segment = rings.add_file(file(b"abc"));
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let held = rings.hold(&view.block(0, 3)).unwrap();
        rings.retire(segment);
        rings.recycle(segment);
        assert_eq!(rings.bytes(&held), b"abc");
        rings.release(&held);
        rings.recycle_held();
        assert_eq!(rings.bytes(&held), b"");
        let segment = rings.add_file(file(b"xyz"));
        let next = rings.add_view(segment, Interface::default()).unwrap();
        assert_eq!((next.ring, next.generation), (view.ring, Generation(1)));
        assert_eq!(rings.bytes(&held), b"", "an old descriptor does not see the new file");
        assert_eq!(rings.bytes(&next.block(0, 3)), b"xyz");
    }

    #[test]
    fn too_many_pinned_regions_turn_holds_into_copies() {
        use base::limits::{APPEND_REGION_BYTES, PINNED_REGIONS};
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let mut held = Vec::new();
        for value in 0..PINNED_REGIONS as u8 + 3 {
            let mut block = rings.append_copy(view, &[&vec![value; APPEND_REGION_BYTES - 1]]).unwrap().part(0, 100);
            block.set_flags(Flags::FIRST);
            held.push((value, rings.hold(&block).unwrap()));
            rings.recycle(segment);
        }
        for (value, block) in &held {
            assert_eq!(rings.bytes(block), vec![*value; 100]);
            assert!(block.has(Flags::FIRST));
        }
        let traffic = rings.traffic();
        assert_eq!((traffic.hold_copies, traffic.hold_copied_bytes, traffic.faults), (3, 300, 0));
        for (_, block) in &held {
            rings.release(block);
        }
        rings.recycle(segment);
        rings.recycle_held();
        assert!(rings.memory_bytes() <= 12 * APPEND_REGION_BYTES, "{}", rings.memory_bytes());
    }

    #[test]
    fn memory_of_held_copies_is_what_is_held_whichever_are_released() {
        use base::limits::{APPEND_REGION_BYTES, PINNED_REGIONS};
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let mut held = Vec::new();
        let mut append = |rings: &mut BlockTable, value: u8| {
            let block = rings.append_copy(view, &[&vec![value; APPEND_REGION_BYTES - 1]]).unwrap();
            held.push((value, rings.hold(&block.part(0, 1)).unwrap()));
            let short_lived = rings.hold(&block).unwrap();
            rings.release(&short_lived);
            assert_eq!(rings.bytes(&short_lived).len(), APPEND_REGION_BYTES - 1, "readable until memory is used again");
            rings.recycle(segment);
            rings.recycle_held();
        };
        for value in 0..PINNED_REGIONS as u8 {
            append(&mut rings, value);
        }
        let pinned = rings.memory_bytes();
        for value in 0..100 {
            append(&mut rings, value);
        }
        assert!(rings.memory_bytes() < pinned + 8 * APPEND_REGION_BYTES, "{} {pinned}", rings.memory_bytes());
        for (value, block) in &held {
            assert_eq!(rings.bytes(block), [*value]);
            rings.release(block);
        }
        rings.recycle(segment);
        rings.recycle_held();
        assert!(rings.memory_bytes() < 8 * APPEND_REGION_BYTES, "{}", rings.memory_bytes());
        assert_eq!((rings.traffic().faults, rings.traffic().hold_refusals), (0, 0));
    }

    #[test]
    fn holds_are_copied_when_a_source_has_taken_every_view_and_refusals_are_counted() {
        use base::limits::{APPEND_REGION_BYTES, PINNED_REGIONS};
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = std::iter::from_fn(|| rings.add_view(segment, Interface::default())).last().unwrap();
        let mut held = Vec::new();
        for value in 0..PINNED_REGIONS as u8 + 3 {
            let block = rings.append_copy(view, &[&vec![value; APPEND_REGION_BYTES - 1]]).unwrap().part(0, 10);
            held.push((value, rings.hold(&block).unwrap()));
            rings.recycle(segment);
        }
        for (value, block) in held {
            assert_eq!(rings.bytes(&block), [value; 10]);
        }
        let refusals = |rings: &BlockTable| rings.traffic().hold_refusals;
        assert_eq!((rings.traffic().hold_copies, refusals(&rings)), (3, 0));
        assert_eq!(rings.hold(&view.block(u64::MAX, 1)), None);
        assert_eq!(refusals(&rings), 1);
    }

    #[test]
    fn a_held_copy_is_edited_elsewhere() {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let own = rings.add_view(segment, Interface::default()).unwrap();
        let original = rings.append_copy(own, &[b"hello"]).unwrap();
        let held = rings.hold_copy(&original).unwrap();
        let mut block = held;
        rings.edit(&mut block, Room::default(), true, own).unwrap()[0] = b'J';
        assert_eq!((rings.bytes(&block), rings.bytes(&held)), (&b"Jello"[..], &b"hello"[..]));
    }

    #[test]
    fn edit_takes_the_cheapest_way_that_is_allowed() {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let own = rings.add_append_ring();
        let own = rings.add_view(own, Interface::default()).unwrap();

        let original = rings.append_copy(view, &[b"hello"]).unwrap();
        let mut shared = original;
        rings.edit(&mut shared, Room::default(), false, own).unwrap()[0] = b'J';
        assert_eq!((rings.bytes(&shared), rings.bytes(&original)), (&b"Jello"[..], &b"hello"[..]));

        let mut alone = original;
        rings.edit(&mut alone, Room::default(), true, own).unwrap()[0] = b'Y';
        assert_eq!((alone, rings.bytes(&original)), (original, &b"Yello"[..]), "in place: same descriptor");

        rings.edit(&mut alone, Room { front: 0, back: 1 }, true, own).unwrap()[5] = b'!';
        assert_eq!((rings.bytes(&alone), alone.pos), (&b"Yello!"[..], original.pos), "longer in place");

        let mut framed = alone;
        rings.edit(&mut framed, Room { front: 2, back: 0 }, true, own).unwrap()[..2].copy_from_slice(b"> ");
        assert_eq!(rings.bytes(&framed), b"> Yello!");
        assert_eq!(framed.wire(), 8);

        let held = rings.hold(&alone).unwrap();
        rings.edit(&mut alone, Room::default(), true, own).unwrap()[0] = b'M';
        assert_eq!(rings.bytes(&held), b"Yello!", "somebody holds it");
        let traffic = rings.traffic();
        assert_eq!((traffic.edits_in_place, traffic.edit_copies), (2, 3));
    }

    #[test]
    fn an_edited_copy_is_a_frame_of_the_same_interface() {
        let mut rings = BlockTable::new();
        let own = rings.add_append_ring();
        let own = rings.add_view(own, Interface::default()).unwrap();
        let segment = rings.add_file(file(b"abc"));
        let interface =
            |link, name: &str| Interface { link_type: Some(link), name: Some(name.into()), ..Interface::default() };
        let interfaces = [interface(1, "a"), interface(101, "b"), interface(1, "a"), Interface::default()];
        let views = interfaces.clone().map(|interface| rings.add_view(segment, interface).unwrap());
        let mut edited = Vec::new();
        for _ in 0..3 {
            for (view, interface) in views.iter().zip(&interfaces) {
                let mut block = view.block(0, 3);
                rings.edit(&mut block, Room::default(), true, own).unwrap();
                assert_eq!(rings.interface(&block).unwrap().as_ref(), interface);
                edited.push((block.ring, block.generation));
            }
        }
        edited.sort_unstable_by_key(|(ring, _)| ring.0);
        edited.dedup();
        assert_eq!(edited.len(), 3, "one view for each interface, however many views say the same");
        assert!(edited.contains(&(own.ring, own.generation)), "what says nothing stays in the view of its own");
    }

    #[test]
    fn who_overwrites_everything_copies_nothing() {
        let mut rings = BlockTable::new();
        let own = rings.add_append_ring();
        let own = rings.add_view(own, Interface::default()).unwrap();
        let gone = own.block(1000, 50);
        assert_eq!(rings.edit(&mut gone.clone(), Room::default(), false, own), Err(EditError::Gone));
        let mut nothing = gone.part(0, 0);
        let bytes = rings.edit(&mut nothing, Room { front: 0, back: 50 }, false, own).unwrap();
        assert_eq!(bytes, [0; 50]);
    }

    #[test]
    fn a_file_is_never_edited_in_place() {
        let mut rings = BlockTable::new();
        let segment = rings.add_file(file(b"abc"));
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let own = rings.add_append_ring();
        let own = rings.add_view(own, Interface::default()).unwrap();
        let mut block = view.block(0, 3);
        rings.edit(&mut block, Room::default(), true, own).unwrap()[0] = b'X';
        assert_eq!((rings.bytes(&block), rings.bytes(&view.block(0, 3))), (&b"Xbc"[..], &b"abc"[..]));
        let mut gone = view.block(2, 9);
        assert_eq!(rings.edit(&mut gone, Room::default(), true, own), Err(EditError::Gone));
        let mut long = view.block(0, 3);
        assert_eq!(rings.edit(&mut long, Room { front: u32::MAX, back: 9 }, true, own), Err(EditError::TooLong));
    }
}
