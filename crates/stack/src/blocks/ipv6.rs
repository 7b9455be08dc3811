//! IPv6 (RFC 8200) for one address. The block sends neither extension headers nor fragments, and rejects both: the
//! driver skips extension headers and reassembles. Its sibling is `ipv4`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use packet::ipv6::{self, Packet};
use packet::{LinkType, Malformed, ethernet};
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::facts::Marks;
use crate::kind::{Below, Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "ipv6",
    help: "packets of one address (RFC 8200)",
    layer: Layer::Network,
    is_top: false,
    below: Some(Below::Block("ethernet")),
    link: Some(LinkType::RAW),
    params: &[
        Param {
            key: "hops",
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
    Ok(Box::new(Ipv6 {
        address: site.ipv6(KIND.name, given.span)?,
        mtu: site.facts.mtu,
        // The parameters' forms limit both numbers; the codepoint is the upper six bits of the traffic class.
        hops: given.number("hops") as u8,
        class: (given.number("dscp") as u8) << 2,
        marks: Marks::default(),
    }))
}

/// One IPv6 address.
#[derive(Debug)]
pub struct Ipv6 {
    address: Ipv6Addr,
    mtu: u16,
    hops: u8,
    class: u8,
    /// In place of `hops` and `class`.
    marks: Marks,
}

/// Whether this is an address that no single station on a wire has. RFC 4291, sections 2.5 and 2.7.
fn is_impossible(source: Ipv6Addr) -> bool {
    source.is_unspecified() || source.is_loopback() || source.is_multicast() || source.to_ipv4_mapped().is_some()
}

impl Block for Ipv6 {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        Packet::HEADER_BYTES
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let IpAddr::V6(to) = packet.meta.remote.ok_or(SendError::NoDestination)?.ip() else {
            return Err(SendError::OtherFamily);
        };
        let whole = packet.byte_count() + Packet::HEADER_BYTES;
        let length = u16::try_from(packet.byte_count()).ok().filter(|_| whole <= usize::from(self.mtu));
        let length = length.ok_or(SendError::MessageTooLong)?;
        let mut header = [0; Packet::HEADER_BYTES];
        // The flow label is 0: this side does not label flows (RFC 6437, section 2).
        let class = self.marks.class.unwrap_or(self.class);
        header[..2].copy_from_slice(&[0x60 | class >> 4, class << 4]);
        header[4..6].copy_from_slice(&length.to_be_bytes());
        header[6..8].copy_from_slice(&[packet.meta.protocol, self.marks.hops.unwrap_or(self.hops)]);
        header[8..24].copy_from_slice(&self.address.octets());
        header[24..].copy_from_slice(&to.octets());
        *packet.push()? = header;
        packet.meta.ether_type = ethernet::IPV6;
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        if packet.meta.ether_type != ethernet::IPV6 {
            return Err(Discard::OtherEtherType);
        }
        let bytes = packet.bytes();
        let read = Packet::new_checked(bytes).map_err(|malformed| match malformed {
            Malformed::IpVersion => Discard::Ipv6Version,
            _ => Discard::Ipv6Truncated,
        })?;
        let end = Packet::HEADER_BYTES + usize::from(read.payload_len());
        if end > bytes.len() {
            return Err(Discard::Ipv6Length);
        }
        if read.target() != self.address {
            return Err(Discard::OtherAddress);
        }
        if packet.meta.to_many {
            return Err(Discard::SentToMany);
        }
        if is_impossible(read.source()) {
            return Err(Discard::SourceAddress);
        }
        match read.next_header() {
            ipv6::FRAGMENT => return Err(Discard::Fragment),
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => return Err(Discard::Ipv6Extension),
            protocol => packet.meta.protocol = protocol,
        }
        packet.meta.remote = Some(SocketAddr::new(read.source().into(), 0));
        // Removes the frame's padding.
        packet.crop(Packet::HEADER_BYTES, end);
        Ok(Step::Pass)
    }

    fn set_marks(&mut self, marks: Marks) {
        self.marks = marks;
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
