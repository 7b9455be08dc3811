//! Shared by sources of live packets: the memory that packets are copied to (owned by the worker, reused for each
//! batch), and the clock between packets.

use buffer::live::SlotFlags;
use buffer::{Interface, SegmentId, ViewId};
use filter::prelude::*;

/// Maximum delay of a packet, ns: by then every reader has polled.
const LATE_NS: u64 = 1_000_000_000;

/// All packets seen before this time have come; ns since 1970 UTC.
pub fn clock() -> u64 {
    capture::clock::real().saturating_sub(LATE_NS)
}

/// The facts about a packet.
#[derive(Clone, Copy)]
pub struct Known {
    /// When it was seen, ns since 1970 UTC.
    pub time: u64,
    /// Bytes captured, before `snap_len` cuts them.
    pub len: u32,
    /// Bytes on the wire.
    pub wire: u32,
    pub flags: SlotFlags,
}

/// Memory for one source.
pub struct Landing {
    interface: Interface,
    memory: Option<(SegmentId, ViewId)>,
}

impl Landing {
    /// For packets of this link type and device. `snap_len`: maximum bytes kept of each, 0 = all.
    pub fn new(device: &str, link_type: u16, snap_len: u32) -> Landing {
        let interface =
            Interface { link_type: Some(link_type), name: Some(device.to_string()), snap_len, ..Interface::default() };
        Landing { interface, memory: None }
    }

    /// Gives a packet as a block. `copy` copies its bytes and returns their number and the packet's class. `false`: no
    /// room, or `copy` found the bytes gone or unwanted.
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

    /// Bytes to keep of a packet with `len` bytes.
    fn kept(&self, len: u32) -> usize {
        let snap_len = self.interface.snap_len;
        let len = if snap_len > 0 { len.min(snap_len) } else { len };
        (len as usize).min(buffer::live::words::PACKET_BYTES)
    }

    /// Appends nothing more; the memory is freed once no block of it is held.
    pub fn leave(&mut self, cx: &mut Context<'_>) {
        if let Some((segment, _)) = self.memory.take() {
            cx.rings.retire(segment);
        }
    }

    /// The view to append to. All blocks of earlier calls were processed, or are held.
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
