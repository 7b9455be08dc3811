//! What sources of live packets share: where packets are copied to before they go down (memory of the worker, used again for
//! each batch), and what time it is while none come.

use buffer::live::SlotFlags;
use buffer::{Interface, SegmentId, ViewId};
use filter::prelude::*;

/// Packets may still come that were seen so long ago, in ns: by then every reader has looked.
const LATE_NS: u64 = 1_000_000_000;

/// The time that all packets seen by then have come, ns since 1970 UTC.
pub fn clock() -> u64 {
    capture::clock::real().saturating_sub(LATE_NS)
}

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy)]
pub struct Known {
    /// When it was seen, ns since 1970 UTC.
    pub time: u64,
    /// Bytes it has here, before any are left out.
    pub len: u32,
    /// Bytes it had on the wire.
    pub wire: u32,
    /// What else.
    pub flags: SlotFlags,
}

/// Memory for one source.
pub struct Landing {
    interface: Interface,
    memory: Option<(SegmentId, ViewId)>,
}

impl Landing {
    /// For packets of this link type that come by a device of this name; `snap_len` bytes of each at most, 0 for all.
    pub fn new(device: &str, link_type: u16, snap_len: u32) -> Landing {
        let interface =
            Interface { link_type: Some(link_type), name: Some(device.to_string()), snap_len, ..Interface::default() };
        Landing { interface, memory: None }
    }

    /// Gives a packet on as a block, its bytes copied by `copy`, which says how many, and the packet's class; false where there
    /// is nothing to give: no room, or `copy` found that they are gone, or not wanted.
    #[inline(always)]
    pub fn give(
        &self,
        view: ViewId,
        cx: &mut Context<'_>,
        known: Known,
        copy: impl FnOnce(&mut [u8]) -> Option<(usize, Class)>,
    ) -> bool {
        let copied = cx.rings.append(view, self.kept(known.len), |space| {
            let copied = copy(space);
            (copied.map_or(0, |(len, _)| len), copied)
        });
        let Some((mut block, Some((_, class)))) = copied else { return false };
        (block.time, block.class) = (known.time, class);
        block.set_wire(known.wire);
        let mut flags = Flags::NONE;
        if known.flags.has(SlotFlags::OUTBOUND) {
            flags = flags.with(Flags::OUTBOUND);
        }
        if known.flags.has(SlotFlags::CHECKSUM_OPEN) {
            flags = flags.with(Flags::CHECKSUM_OPEN);
        }
        if block.len < known.wire {
            flags = flags.with(Flags::TRUNCATED);
        }
        block.add_flags(flags);
        cx.emit(block);
        true
    }

    /// LINKTYPE of the packets.
    pub fn link_type(&self) -> u16 {
        self.interface.link_type.unwrap_or_default()
    }

    /// Bytes kept of a packet that has so many.
    fn kept(&self, len: u32) -> usize {
        let snap_len = self.interface.snap_len;
        let len = if snap_len > 0 { len.min(snap_len) } else { len };
        (len as usize).min(buffer::live::words::PACKET_BYTES)
    }

    /// Nothing more is appended: the memory goes as soon as nobody holds any of it.
    pub fn leave(&mut self, cx: &mut Context<'_>) {
        if let Some((segment, _)) = self.memory.take() {
            cx.rings.retire(segment);
        }
    }

    /// The view to append to; what was appended before the last call has gone all the way down, or is held.
    pub fn view(&mut self, cx: &mut Context<'_>) -> Result<ViewId, Box<Failure>> {
        if let Some((segment, view)) = self.memory {
            cx.rings.recycle(segment);
            return Ok(view);
        }
        let segment = cx.rings.add_append_ring();
        let view = cx.rings.add_view(segment, self.interface.clone());
        let view = view.ok_or_else(|| Box::new(Failure::System("there are more devices than views".into())))?;
        self.memory = Some((segment, view));
        Ok(view)
    }
}
