//! What sources of live packets share: where packets are copied to before they go down (memory of the worker, used again for
//! each batch), and what time it is while none come.

use buffer::{Interface, SegmentId, ViewId};
use filter::prelude::*;
use std::time::{Duration, SystemTime};

/// Packets may still come that were seen so long ago: by then every reader has looked.
const LATE: Duration = Duration::from_secs(1);

/// The time that all packets seen by then have come, ns since 1970 UTC.
pub fn clock() -> Option<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(now.saturating_sub(LATE).as_nanos()).ok()
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
            Interface { link_type: Some(link_type), name: Some(device.to_string()), description: None, snap_len };
        Landing { interface, memory: None }
    }

    /// Bytes kept of a packet that has so many.
    pub fn kept(&self, len: u32) -> usize {
        let snap_len = self.interface.snap_len;
        let len = if snap_len > 0 { len.min(snap_len) } else { len };
        (len as usize).min(buffer::live::words::PACKET_BYTES)
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
