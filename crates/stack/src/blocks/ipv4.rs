//! IPv4 (RFC 791) for one address. The block sends neither options nor fragments, and rejects fragments.
//!
//! All packets are marked "don't fragment", so their identification has no meaning (RFC 6864, section 4.1). The block
//! increments it anyway, because some middleboxes look at it. Its sibling is `ipv6`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packet::checksum::Sum;
use packet::ipv4::Packet;
use packet::{LinkType, Malformed, ethernet};
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::facts::{Facts, Marks};
use crate::kind::{Below, Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "ipv4",
    help: "packets of one address (RFC 791)",
    layer: Layer::Network,
    is_top: false,
    below: Some(Below::Block("ethernet")),
    link: Some(LinkType::RAW),
    params: &[
        Param {
            key: "ttl",
            is_main: false,
            is_needed: false,
            form: Form::Number(1, 255, Some(64)),
            help: "number of hops",
        },
        Param {
            key: "dscp",
            is_main: false,
            is_needed: false,
            form: Form::Number(0, 63, Some(0)),
            help: "differentiated services codepoint (RFC 2474)",
        },
    ],
    complete: None,
    build,
};

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    Ok(Box::new(Ipv4 {
        address: site.ipv4(KIND.name, given.span)?,
        broadcast: site.facts.broadcast(),
        mtu: site.facts.mtu,
        // The parameters' forms limit both numbers; the codepoint is the upper six bits.
        ttl: given.number("ttl") as u8,
        service: (given.number("dscp") as u8) << 2,
        marks: Marks::default(),
        identification: 0,
    }))
}

/// Flags and fragment offset of every packet sent: "don't fragment", offset 0.
const DO_NOT_FRAGMENT: [u8; 2] = [0x40, 0];

/// One IPv4 address.
#[derive(Debug)]
pub struct Ipv4 {
    address: Ipv4Addr,
    broadcast: Option<Ipv4Addr>,
    mtu: u16,
    ttl: u8,
    service: u8,
    /// In place of `ttl` and `service`.
    marks: Marks,
    identification: u16,
}

impl Ipv4 {
    /// Whether this is an address that no single station has. RFC 1122, section 3.2.1.3.
    fn is_impossible(&self, source: Ipv4Addr) -> bool {
        source.is_unspecified() || source.is_multicast() || source.is_broadcast() || Some(source) == self.broadcast
    }
}

impl Block for Ipv4 {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        Packet::HEADER_BYTES
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let IpAddr::V4(to) = packet.meta.remote.ok_or(SendError::NoDestination)?.ip() else {
            return Err(SendError::OtherFamily);
        };
        let total = packet.byte_count().checked_add(Packet::HEADER_BYTES).and_then(|total| u16::try_from(total).ok());
        let total = total.filter(|total| *total <= self.mtu).ok_or(SendError::MessageTooLong)?;
        let mut header = [0; Packet::HEADER_BYTES];
        header[0] = 0x45;
        header[1] = self.marks.class.unwrap_or(self.service);
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6..8].copy_from_slice(&DO_NOT_FRAGMENT);
        header[8] = self.marks.hops.unwrap_or(self.ttl);
        header[9] = packet.meta.protocol;
        header[12..16].copy_from_slice(&self.address.octets());
        header[16..20].copy_from_slice(&to.octets());
        let checksum = Sum::of(&header).checksum();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        *packet.push()? = header;
        packet.meta.ether_type = ethernet::IPV4;
        self.identification = self.identification.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        if packet.meta.ether_type != ethernet::IPV4 {
            return Err(Discard::OtherEtherType);
        }
        let bytes = packet.bytes();
        let read = Packet::new_checked(bytes).map_err(|malformed| match malformed {
            Malformed::IpVersion => Discard::Ipv4Version,
            Malformed::Ipv4HeaderLength => Discard::Ipv4HeaderLength,
            Malformed::Ipv4TotalLength => Discard::Ipv4TotalLength,
            _ => Discard::Ipv4Truncated,
        })?;
        let header_len = usize::from(read.header_len());
        let header = bytes.get(..header_len).ok_or(Discard::Ipv4Truncated)?;
        if Sum::of(header).checksum() != 0 {
            return Err(Discard::Ipv4Checksum);
        }
        let total = usize::from(read.total_len());
        if total < header_len || total > bytes.len() {
            return Err(Discard::Ipv4TotalLength);
        }
        if read.target() != self.address {
            return Err(Discard::OtherAddress);
        }
        if packet.meta.to_many {
            return Err(Discard::SentToMany);
        }
        if self.is_impossible(read.source()) {
            return Err(Discard::SourceAddress);
        }
        if read.more_fragments() || read.fragment_offset() != 0 {
            return Err(Discard::Fragment);
        }
        packet.meta.remote = Some(SocketAddr::new(read.source().into(), 0));
        packet.meta.protocol = read.protocol();
        // Removes options with the header, and the frame's padding.
        packet.crop(header_len, total);
        Ok(Step::Pass)
    }

    fn facts_changed(&mut self, _now: u64, facts: &Facts) {
        (self.broadcast, self.mtu) = (facts.broadcast(), facts.mtu);
    }

    fn set_marks(&mut self, marks: Marks) {
        self.marks = marks;
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
