//! UDP (RFC 768): ports, a length and a checksum. Over IPv6 the checksum is required (RFC 8200, section 8.1).
//!
//! With a peer, the block sends to it only, and takes datagrams from it only. Else each datagram names its
//! destination.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use packet::checksum::Sum;
use packet::frame::protocol;
use packet::udp::Packet;
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::facts::{ChecksumRule, Facts};
use crate::kind::{Below, Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing, Problem};
use crate::{problem, pseudo, state};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "udp",
    help: "datagrams of one port (RFC 768)",
    layer: Layer::Transport,
    is_top: true,
    below: Some(Below::Ip),
    link: None,
    params: &[
        Param {
            key: "port",
            is_main: true,
            is_needed: true,
            form: Form::Number(1, 65_535, None),
            help: "port of the application",
        },
        Param { key: "to", is_main: false, is_needed: false, form: Form::Endpoint, help: "address and port of a peer" },
    ],
    complete: Some(complete),
    build,
};

/// Checks that the peer has the family of the flow's address.
pub(super) fn complete(given: &mut Given, facts: &Facts) -> Result<(), Diagnostic> {
    match given.endpoint("to") {
        Some(to) if to.is_ipv4() != facts.address.is_ipv4() => {
            Err(Diagnostic::new(format!("no packet goes from {} to {}", facts.address, to.ip()), given.span_of("to"))
                .with_label("of another family than the flow"))
        }
        _ => Ok(()),
    }
}

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    Ok(Box::new(Udp {
        address: site.facts.address,
        // `Form::Number` limits the port to 16 bits.
        port: given.number("port") as u16,
        written_peer: given.endpoint("to"),
        peer: given.endpoint("to"),
        rule: site.facts.checksum,
        sent: 0,
        received: 0,
    }))
}

/// This side's end of a UDP flow.
#[derive(Debug)]
pub struct Udp {
    address: IpAddr,
    port: u16,
    /// The peer that the stack's text names.
    written_peer: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    rule: ChecksumRule,
    sent: u64,
    received: u64,
}

impl Udp {
    /// The destination of a datagram. `to` is `None` if the caller means the peer.
    fn destination(&self, to: Option<SocketAddr>) -> Result<SocketAddr, SendError> {
        let destination = match (self.peer, to) {
            (Some(peer), Some(to)) if peer != to => return Err(SendError::OtherPeer),
            (peer, to) => to.or(peer).ok_or(SendError::NoDestination)?,
        };
        match destination.port() == 0 || destination.ip().is_unspecified() {
            true => Err(SendError::NoDestination),
            false => Ok(destination),
        }
    }

    /// Reads an ICMP error about a datagram of this flow.
    fn read_problem(&self, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let report = problem::read(packet, self.address, protocol::UDP)?;
        let [high, low, to_high, to_low, ..] = *report.transport;
        let to = SocketAddr::new(report.target, u16::from_be_bytes([to_high, to_low]));
        if u16::from_be_bytes([high, low]) != self.port || self.peer.is_some_and(|peer| peer != to) {
            return Err(Discard::OtherFlow);
        }
        packet.meta.problem = Some(Problem { kind: report.kind, to, reporter: packet.remote_address() });
        Ok(Step::Keep)
    }
}

impl Block for Udp {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        Packet::HEADER_BYTES
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let to = self.destination(packet.meta.remote)?;
        let length =
            packet.byte_count().checked_add(Packet::HEADER_BYTES).and_then(|length| u16::try_from(length).ok());
        let length = length.ok_or(SendError::MessageTooLong)?;
        let ([a, b], [c, d], [high, low]) = (self.port.to_be_bytes(), to.port().to_be_bytes(), length.to_be_bytes());
        let mut header = [a, b, c, d, high, low, 0, 0];
        let pseudo = pseudo::sum(self.address, to.ip(), protocol::UDP, length);
        // A field of 0 means no checksum, so a checksum of 0 is sent as 0xffff (RFC 768).
        let checksum = match pseudo.and(Sum::of(&header)).and(packet.sum()).checksum() {
            0 => 0xffff,
            checksum => checksum,
        };
        header[6..].copy_from_slice(&checksum.to_be_bytes());
        *packet.push()? = header;
        packet.meta.remote = Some(to);
        packet.meta.protocol = protocol::UDP;
        self.sent = self.sent.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        match packet.meta.protocol {
            protocol::UDP => {}
            other if problem::is_icmp(other, self.address) => return self.read_problem(packet),
            _ => return Err(Discard::OtherProtocol),
        }
        let bytes = packet.bytes();
        let [_, _, _, _, high, low, sum_high, sum_low] = *bytes.first_chunk().ok_or(Discard::UdpTruncated)?;
        // `packet::udp` accepts lengths that captures may have: 0, and beyond the end. A stack rejects them.
        let length = u16::from_be_bytes([high, low]);
        if usize::from(length) < Packet::HEADER_BYTES {
            return Err(Discard::UdpLength);
        }
        let datagram = bytes.get(..usize::from(length)).ok_or(Discard::UdpLength)?;
        let read = Packet::new_checked(datagram, length.into()).map_err(|_| Discard::UdpTruncated)?;
        if read.target_port() != self.port {
            return Err(Discard::OtherPort);
        }
        let from = SocketAddr::new(packet.remote_address(), read.source_port());
        if self.peer.is_some_and(|peer| peer != from) {
            return Err(Discard::OtherPeer);
        }
        let field = u16::from_be_bytes([sum_high, sum_low]);
        if field == 0 && self.address.is_ipv6() {
            return Err(Discard::UdpNoChecksum);
        }
        if field != 0 {
            let pseudo = pseudo::sum(from.ip(), self.address, protocol::UDP, length);
            if !pseudo::holds(pseudo, field, datagram, self.rule) {
                return Err(Discard::UdpChecksum);
            }
        }
        packet.meta.remote = Some(from);
        packet.crop(Packet::HEADER_BYTES, length.into());
        self.received = self.received.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn facts_changed(&mut self, _now: u64, facts: &Facts) {
        self.rule = facts.checksum;
    }

    /// Port, peer, counts of datagrams down and up. An IPv4 peer is mapped into IPv6; `::` and port 0 mean no peer.
    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        let peer = self.peer.unwrap_or(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0));
        let ip = match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut out = Vec::with_capacity(36);
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&ip.octets());
        out.extend_from_slice(&peer.port().to_be_bytes());
        out.extend_from_slice(&self.sent.to_be_bytes());
        out.extend_from_slice(&self.received.to_be_bytes());
        Ok(out)
    }

    /// The port must be this block's. A peer in this stack's text overrides that of the state: a flow changes its peer
    /// by moving to a stack that names the new one.
    fn import(&mut self, state: &[u8]) -> Result<(), ImportError> {
        let mut rest = state;
        let port = u16::from_be_bytes(*state::take(&mut rest)?);
        let address = IpAddr::from(*state::take::<16>(&mut rest)?).to_canonical();
        let peer = SocketAddr::new(address, u16::from_be_bytes(*state::take(&mut rest)?));
        let sent = u64::from_be_bytes(*state::take(&mut rest)?);
        let received = u64::from_be_bytes(*state::take(&mut rest)?);
        let peer = match (peer.ip().is_unspecified(), peer.port() == 0) {
            (true, true) => None,
            (false, false) => Some(peer),
            _ => return Err(ImportError::Malformed),
        };
        if !rest.is_empty() {
            return Err(ImportError::Malformed);
        }
        if port != self.port || peer.is_some_and(|peer| peer.is_ipv4() != self.address.is_ipv4()) {
            return Err(ImportError::OtherFlow);
        }
        (self.peer, self.sent, self.received) = (self.written_peer.or(peer), sent, received);
        Ok(())
    }
}
