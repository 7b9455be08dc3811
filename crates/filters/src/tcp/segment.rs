//! A TCP segment in its frame: the facts that the assembler needs, as plain values. `assembler.rs` decides what it
//! means for its connection.

use crate::parts::client;
use crate::parts::origin::{Origin, Origins};
use crate::parts::transport::{Located, Refusal, locate};
use filter::prelude::*;
use packet::encapsulation::Vlans;
use packet::flow::Flow;
use packet::frame::protocol;
use packet::pseudo;
use packet::tcp::{self, Flags, TcpOption};

/// The sender's clock, and its echo of the receiver's (RFC 7323, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The clock of the sender (TSval).
    pub value: u32,
    /// The clock of the peer, as the sender saw it last (TSecr).
    pub echo: u32,
}

/// The result of verifying a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Not verified, or not verifiable: the capture cut the segment, or saw it before a device finished the checksum.
    #[default]
    Unknown,
    /// It fits the bytes.
    Right,
    /// It does not fit.
    Wrong,
}

/// A segment, parsed.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its flow, from the sender to the receiver.
    pub flow: Flow,
    /// Keeps connections apart beside `flow`: see [`Origins::scope`].
    pub scope: u64,
    /// Its VLANs.
    pub vlans: Vlans,
    /// The sequence number.
    pub sequence: u32,
    /// Valid where ACK is set.
    pub acknowledgment: u32,
    /// The flags.
    pub flags: Flags,
    /// The receive window of its sender, not scaled.
    pub window: u16,
    /// Valid where URG is set.
    pub urgent: u16,
    /// The timestamps option.
    pub stamp: Option<Stamp>,
    /// The window shift option of a SYN.
    pub shift: Option<u8>,
    /// Its checksum, beside the bytes.
    pub checksum: Checksum,
    /// Offset of its header in the frame.
    pub header: u32,
    /// Offset of the payload in the frame.
    pub offset: u32,
    /// Bytes of payload that were captured.
    pub len: u32,
    /// Bytes of payload on the wire, which use up sequence numbers.
    pub span: u32,
}

impl Segment {
    /// The flow in the direction of the client, if this is the first segment of its connection that was seen.
    #[cold]
    pub fn client(&self, frame: &Descriptor, cx: &Context<'_>) -> Flow {
        client::of_client(self.flow, self.flags, || cx.rings.bytes(&frame.part(self.offset, self.len)))
    }

    /// Reads a segment out of a frame.
    #[inline(always)]
    pub fn read(origins: &Origins, origin: Origin, bytes: &[u8], frame_wire: u32) -> Result<Segment, Refusal> {
        let located = locate(origin.link, bytes, frame_wire, protocol::TCP)?;
        let packet = tcp::Packet::new_checked(located.bytes(bytes), located.wire_len)?;
        Ok(Segment::of(&located, &packet, origins.scope(origin, located.vlans), bytes, frame_wire))
    }

    /// The segment `packet` in a frame, at `located`.
    #[inline(always)]
    pub fn of(located: &Located, packet: &tcp::Packet<'_>, scope: u64, bytes: &[u8], frame_wire: u32) -> Segment {
        let header = located.bytes(bytes);
        let offset = located.offset + packet.header_len();
        let len = packet.payload().len() as u32;
        let flags = packet.flags();
        Segment {
            flow: Flow {
                source: located.source,
                target: located.target,
                source_port: packet.source_port(),
                target_port: packet.target_port(),
                protocol: protocol::TCP,
            },
            scope,
            vlans: located.vlans,
            sequence: packet.sequence_number(),
            acknowledgment: packet.acknowledgment_number(),
            flags,
            window: packet.window(),
            urgent: packet.urgent_pointer(),
            stamp: stamp_of(packet, header),
            shift: if flags.syn() { shift_of(packet) } else { None },
            checksum: Checksum::Unknown,
            header: located.offset,
            offset,
            len,
            // At most what the frame had on the wire, whatever the IP header says.
            span: packet.payload_wire_len().min(frame_wire.saturating_sub(offset)).max(len),
        }
    }

    /// Verifies the checksum over all bytes; `bytes` are the frame. A sender that leaves the checksum to its device
    /// writes the sum of the pseudo header there. `may_be_unfinished`: such a sum is not wrong.
    pub fn check(&mut self, bytes: &[u8], may_be_unfinished: bool) {
        if self.len < self.span {
            return;
        }
        let Some(bytes) = bytes.get(self.header as usize..(self.offset + self.len) as usize) else { return };
        let (Some(field), Ok(length)) = (bytes.get(16..18), u16::try_from(bytes.len())) else { return };
        let field = u16::from_be_bytes([field[0], field[1]]);
        let of = |length| pseudo::sum(self.flow.source, self.flow.target, protocol::TCP, length);
        self.checksum = if pseudo::holds(of(length), field, bytes, false) {
            // A field that the sender left 0 is right by chance now and then; its other segments need not be.
            if field == 0 { Checksum::Unknown } else { Checksum::Right }
        } else if may_be_unfinished && (field == of(length).folded() || field == of(0).folded()) {
            // A device that cuts the segment adds the length of each part.
            Checksum::Unknown
        } else {
            Checksum::Wrong
        };
    }

    /// A plain segment begins and ends nothing and has no fault: ACK, with or without data.
    #[inline]
    pub fn is_plain(&self) -> bool {
        const OTHERS: Flags = Flags(Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0 | Flags::URG.0);
        !self.flags.intersects(OTHERS) && self.flags.ack() && self.checksum != Checksum::Wrong
    }

    /// SYN without ACK: its sender is the client (or both are, RFC 9293, 3.5).
    #[inline]
    pub fn is_first_syn(&self) -> bool {
        self.flags.syn() && !self.flags.ack()
    }

    /// Sequence number of the first payload byte: a SYN takes one before it.
    #[inline]
    pub fn data_sequence(&self) -> u32 {
        self.sequence.wrapping_add(u32::from(self.flags.syn()))
    }
}

/// The timestamps of a segment, which nearly always are in one place (RFC 7323, appendix A).
#[inline(always)]
fn stamp_of(packet: &tcp::Packet<'_>, header: &[u8]) -> Option<Stamp> {
    if packet.header_len() < 32 {
        return None;
    }
    match *header.get(20..32)? {
        [1, 1, 8, 10, a, b, c, d, e, f, g, h] => {
            Some(Stamp { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) })
        }
        _ => stamp_elsewhere(packet),
    }
}

#[inline(never)]
fn stamp_elsewhere(packet: &tcp::Packet<'_>) -> Option<Stamp> {
    packet.options().find_map(|option| match option {
        TcpOption::Timestamps { value, echo } => Some(Stamp { value, echo }),
        _ => None,
    })
}

/// The largest shift allowed (RFC 7323, 2.3).
pub(crate) const SHIFT_MAX: u8 = 14;

#[cold]
fn shift_of(packet: &tcp::Packet<'_>) -> Option<u8> {
    packet.options().find_map(|option| match option {
        TcpOption::WindowScale(shift) => Some(shift.min(SHIFT_MAX)),
        _ => None,
    })
}
