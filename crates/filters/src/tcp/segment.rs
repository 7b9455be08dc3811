//! A TCP segment in its frame: what the assembler needs to know of it, as plain values. Not its options, and not what it
//! means for its connection: that is `assembler.rs`.

use crate::parts::origin::{Origin, Origins};
use crate::parts::transport::{Refusal, locate};
use packet::encapsulation::Vlans;
use packet::flow::Flow;
use packet::frame::protocol;
use packet::tcp::{self, Flags};

/// A segment, and where its payload lies in the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub flow: Flow,
    /// What else its connection is known by: see [`Origins::scope`].
    pub scope: u64,
    pub vlans: Vlans,
    pub sequence: u32,
    /// Counts where ACK is set.
    pub acknowledgment: u32,
    pub flags: Flags,
    /// First byte of the payload in the frame.
    pub offset: u32,
    /// Bytes of payload that were captured.
    pub len: u32,
    /// Bytes of payload that the wire had, which is what takes up sequence numbers.
    pub span: u32,
}

impl Segment {
    /// Reads a frame.
    #[inline]
    pub fn read(origins: &Origins, origin: Origin, bytes: &[u8], frame_wire: u32) -> Result<Segment, Refusal> {
        let located = locate(origin.link, bytes, frame_wire, protocol::TCP)?;
        let packet = tcp::Packet::new_checked(located.bytes(bytes), located.wire_len)?;
        let offset = located.offset + packet.header_len();
        let len = packet.payload().len() as u32;
        Ok(Segment {
            flow: Flow {
                source: located.source,
                target: located.target,
                source_port: packet.source_port(),
                target_port: packet.target_port(),
                protocol: protocol::TCP,
            },
            scope: origins.scope(origin, located.vlans),
            vlans: located.vlans,
            sequence: packet.sequence_number(),
            acknowledgment: packet.acknowledgment_number(),
            flags: packet.flags(),
            offset,
            len,
            // No more than the frame had on the wire, whatever the IP header says.
            span: packet.payload_wire_len().min(frame_wire.saturating_sub(offset)).max(len),
        })
    }

    /// Neither begins nor ends anything: ACK, and data perhaps.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.flags.intersects(Flags(Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0)) && self.flags.ack()
    }

    /// SYN without ACK: its sender is the client (or both are, RFC 9293, 3.5).
    #[inline]
    pub fn is_first_syn(&self) -> bool {
        self.flags.syn() && !self.flags.ack()
    }

    /// Sequence number of the first byte of payload: SYN takes one before it.
    #[inline]
    pub fn data_sequence(&self) -> u32 {
        self.sequence.wrapping_add(u32::from(self.flags.syn()))
    }
}
