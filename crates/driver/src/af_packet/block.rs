//! A block of a TPACKET_V3 ring: the frames in it, one after the other (`linux/if_packet.h`, packet_mmap.rst).
//!
//! Pure: bytes in, frames out. The kernel wrote them, but every offset is checked; a block ends at a wrong one.

use crate::frame::{Clock, Frame, OpenChecksum, PACKET_OUTGOING, TAG_BYTES};
use buffer::live::SlotFlags;

// Offsets in struct tpacket_block_desc.
const BLOCK_STATUS: usize = 8;
const FRAME_COUNT: usize = 12;
const FIRST_FRAME: usize = 16;
pub(super) const BLOCK_HEADER_BYTES: usize = 48;

/// struct tpacket3_hdr, followed by struct sockaddr_ll.
const FRAME_HEADER_BYTES: usize = 48 + 20;

/// struct virtio_net_hdr, right before the frame if it was asked for.
pub(super) const OFFLOAD_HEADER_BYTES: usize = 10;
const OFFLOAD_NEEDS_CHECKSUM: u8 = 1;
const OFFLOAD_GSO_NONE: u8 = 0;
const OFFLOAD_GSO_TCP4: u8 = 1;
const OFFLOAD_GSO_TCP6: u8 = 4;
const OFFLOAD_GSO_UDP: u8 = 5;
/// Bits beside the sort: congestion is told; it is in a tunnel over IPv4, over IPv6.
const OFFLOAD_GSO_BITS: u8 = 0x80 | 0x20 | 0x40;

/// Offset of a block's status.
pub(super) const STATUS_OFFSET: usize = BLOCK_STATUS;

/// The ring's options, as far as reading needs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Frames begin with an Ethernet header, so that a tag has a place.
    pub(super) ethernet: bool,
    /// A struct virtio_net_hdr precedes each frame.
    pub(super) offloads: bool,
}

/// A place in a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Walk {
    at: usize,
    left: u32,
}

impl Walk {
    /// Begins at the start of a block that the kernel has handed over.
    pub(super) fn begin(block: &[u8]) -> Walk {
        let word = |at: usize| block.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes);
        // No more than there is room for, whatever the block says.
        let most = (block.len() / FRAME_HEADER_BYTES) as u32;
        Walk { at: word(FIRST_FRAME) as usize, left: word(FRAME_COUNT).min(most) }
    }

    /// Frames that are left.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// The next frame; `None` if none are [`left`](Walk::left), or if the next one is invalid: then some are.
    #[inline]
    pub(super) fn next<'a>(&mut self, block: &'a [u8], shape: Shape) -> Option<Frame<'a>> {
        if self.left == 0 {
            return None;
        }
        let header: &[u8; FRAME_HEADER_BYTES] = block.get(self.at..)?.first_chunk()?;
        let header = Header::parse(header);
        let start = self.at.checked_add(usize::from(header.mac))?;
        let bytes = block.get(start..start.checked_add(header.snap_len as usize)?)?;
        let mut frame = Frame::new(bytes);
        frame.wire = header.len;
        header.describe(&mut frame);
        let offloads = match shape.offloads {
            true => Some(block.get(start.checked_sub(OFFLOAD_HEADER_BYTES)?..)?.first_chunk()?),
            false => None,
        };
        let tag = Tag { status: header.status, value: header.vlan_tci, protocol: header.vlan_tpid };
        let frame = complete(frame, shape, tag, offloads);
        self.left -= 1;
        // The last frame says 0; if another should follow, this position leads nowhere.
        self.at = if header.next == 0 { usize::MAX } else { self.at.saturating_add(header.next as usize) };
        Some(frame)
    }
}

/// The kernel's description of a tag beside a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tag {
    /// TP_STATUS of the frame: whether there is a tag, and whether its protocol is known.
    pub(super) status: u32,
    pub(super) value: u16,
    pub(super) protocol: u16,
}

/// Adds a frame's tag, and its facts about offloads.
#[inline]
pub(super) fn complete<'a>(
    mut frame: Frame<'a>,
    shape: Shape,
    tag: Tag,
    offloads: Option<&[u8; OFFLOAD_HEADER_BYTES]>,
) -> Frame<'a> {
    if tag.status & libc::TP_STATUS_VLAN_VALID != 0 && shape.ethernet {
        let has_protocol = tag.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        frame = frame.tagged(if has_protocol { tag.protocol } else { VLAN }, tag.value);
    }
    if let Some(offloads) = offloads {
        describe_offloads(offloads, &mut frame);
    }
    if frame.len() < frame.wire as usize {
        frame.flags = frame.flags.with(SlotFlags::TRUNCATED);
    }
    frame
}

/// Protocol of a tag if the kernel names none.
const VLAN: u16 = libc::ETH_P_8021Q as u16;

struct Header {
    next: u32,
    seconds: u32,
    nanoseconds: u32,
    snap_len: u32,
    len: u32,
    status: u32,
    mac: u16,
    hash: u32,
    vlan_tci: u16,
    vlan_tpid: u16,
    interface: u32,
    packet_type: u8,
}

impl Header {
    #[inline]
    fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Header {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Header {
            next: word(0),
            seconds: word(4),
            nanoseconds: word(8),
            snap_len: word(12),
            len: word(16),
            status: word(20),
            mac: half(24),
            hash: word(28),
            vlan_tci: word(32) as u16,
            vlan_tpid: half(36),
            interface: word(48 + 4),
            packet_type: bytes[48 + 10],
        }
    }

    #[inline]
    fn describe(&self, frame: &mut Frame<'_>) {
        frame.time = u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanoseconds);
        frame.hash = self.hash;
        frame.interface = self.interface;
        let mut flags = SlotFlags::default().with_packet_type(self.packet_type);
        let mut set = |is: bool, flag| flags = if is { flags.with(flag) } else { flags };
        set(self.packet_type == PACKET_OUTGOING, SlotFlags::OUTBOUND);
        set(self.status & libc::TP_STATUS_CSUMNOTREADY != 0, SlotFlags::CHECKSUM_OPEN);
        set(self.status & TP_STATUS_GSO_TCP != 0, SlotFlags::SUPER_FRAME);
        frame.flags = flags;
        if self.status & libc::TP_STATUS_TS_RAW_HARDWARE != 0 {
            frame.clock = Clock::Hardware;
        }
    }
}

/// `linux/if_packet.h`.
const TP_STATUS_GSO_TCP: u32 = 1 << 8;

/// `frame` has its tag already.
fn describe_offloads(header: &[u8; OFFLOAD_HEADER_BYTES], frame: &mut Frame<'_>) {
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    if header[0] & OFFLOAD_NEEDS_CHECKSUM != 0 {
        // The kernel's offset does not include the tag beside the frame.
        let start = half(6).saturating_add(if frame.tag().is_some() { TAG_BYTES as u16 } else { 0 });
        frame.open_checksum = Some(OpenChecksum { start, field: start.saturating_add(half(8)) });
    }
    if header[1] != OFFLOAD_GSO_NONE {
        frame.flags = frame.flags.with(SlotFlags::SUPER_FRAME);
        frame.segment_bytes = half(4);
        frame.segment_protocol = match header[1] & !OFFLOAD_GSO_BITS {
            OFFLOAD_GSO_TCP4 | OFFLOAD_GSO_TCP6 => libc::IPPROTO_TCP as u8,
            OFFLOAD_GSO_UDP => libc::IPPROTO_UDP as u8,
            // Fragments of one datagram (3), for one.
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { ethernet: true, offloads: false };

    /// A block with these frames, as the kernel lays it out.
    fn block(frames: &[&[u8]]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_HEADER_BYTES];
        block[FRAME_COUNT..FRAME_COUNT + 4].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
        block[FIRST_FRAME..FIRST_FRAME + 4].copy_from_slice(&(BLOCK_HEADER_BYTES as u32).to_ne_bytes());
        for (number, bytes) in frames.iter().enumerate() {
            let start = block.len();
            block.resize(start + 82, 0);
            block.extend_from_slice(bytes);
            block.resize(block.len().next_multiple_of(16), 0);
            let next = if number + 1 == frames.len() { 0 } else { block.len() - start };
            let mut word = |at: usize, value: u32| {
                block[start + at..start + at + 4].copy_from_slice(&value.to_ne_bytes());
            };
            word(0, next as u32);
            word(4, 7);
            word(8, number as u32);
            word(12, bytes.len() as u32);
            word(16, bytes.len() as u32 + number as u32);
            word(20, libc::TP_STATUS_VLAN_VALID);
            word(24, 82);
            word(32, 5);
            word(52, 3);
            block[start + 58] = 4;
        }
        block
    }

    fn walk(block: &[u8], shape: Shape) -> (Vec<Vec<u8>>, u32) {
        let (mut walk, mut frames) = (Walk::begin(block), Vec::new());
        while let Some(frame) = walk.next(block, shape) {
            frames.push(frame.parts().concat());
        }
        (frames, walk.left())
    }

    #[test]
    fn frames_come_in_order_with_what_is_known_of_them() {
        let bytes = [&[1_u8; 60][..], &[2; 14]];
        let block = block(&bytes);
        let mut place = Walk::begin(&block);
        let first = place.next(&block, SHAPE).expect("there are two");
        assert_eq!((first.time, first.wire, first.interface), (7_000_000_000, 64, 3));
        assert_eq!((first.tag(), first.is_outbound(), first.flags.packet_type()), (Some((0x8100, 5)), true, 4));
        assert!(!first.flags.has(SlotFlags::TRUNCATED));
        let second = place.next(&block, SHAPE).expect("as above");
        assert_eq!((second.time, second.wire, second.len()), (7_000_000_001, 19, 18));
        assert!(second.flags.has(SlotFlags::TRUNCATED));
        assert!(place.next(&block, SHAPE).is_none());
        assert_eq!(place.left(), 0);
        let untagged = walk(&block, Shape { ethernet: false, ..SHAPE });
        assert_eq!(untagged, (bytes.map(<[u8]>::to_vec).to_vec(), 0));
    }

    /// Whatever a block contains, walking it ends and stays inside.
    #[test]
    fn blocks_of_any_bytes_end() {
        let whole = block(&[&[1; 60], &[2; 1500], &[3; 14]]);
        for cut in 0..whole.len() {
            let (frames, left) = walk(&whole[..cut], SHAPE);
            assert!(frames.len() + left as usize <= 3);
        }
        let mut state = 1_u64;
        let mut ended_early = 0;
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (at, value) = ((state >> 40) as usize % 300, (state >> 32) as u8);
                bytes[at] = value;
            }
            let offloads = state & (1 << 20) != 0;
            ended_early += u32::from(walk(&bytes, Shape { offloads, ..SHAPE }).1 > 0);
        }
        assert!(ended_early > 100, "the bytes matter");
    }
}
