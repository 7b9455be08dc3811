//! An echo client (RFC 792, RFC 4443): sends each payload as an echo request and delivers each reply.
//!
//! The port of a delivery is the echo's sequence number, counted from 0. ICMP errors about an echo request become
//! [`Problem`]s, also with the sequence number as port.

use std::net::{IpAddr, SocketAddr};

use packet::checksum::Sum;
use packet::frame::protocol;
use packet::icmp::{ECHO_REPLY, ECHO_REPLY_V6, ECHO_REQUEST, ECHO_REQUEST_V6, Packet};
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::kind::{Below, Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing, Problem};
use crate::{problem, pseudo, state};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "icmp",
    help: "echo requests and their replies (RFC 792, RFC 4443)",
    layer: Layer::Transport,
    is_top: true,
    below: Some(Below::Ip),
    link: None,
    params: &[Param {
        key: "id",
        is_main: false,
        is_needed: false,
        form: Form::Number(0, 65_535, Some(0)),
        help: "identifier of echo messages",
    }],
    complete: None,
    build,
};

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    // `Form::Number` limits the identifier to 16 bits.
    Ok(Box::new(Icmp { address: site.facts.address, identifier: given.number("id") as u16, sequence: 0 }))
}

/// Type, code, checksum, identifier, sequence number.
const HEADER_BYTES: usize = 8;

/// One echo client, named by its identifier.
#[derive(Debug)]
pub struct Icmp {
    address: IpAddr,
    identifier: u16,
    /// Sequence number of the next request.
    sequence: u16,
}

impl Icmp {
    /// Types of request and reply, and the ICMP protocol.
    fn numbers(&self) -> (u8, u8, u8) {
        match self.address {
            IpAddr::V4(_) => (ECHO_REQUEST, ECHO_REPLY, protocol::ICMP),
            IpAddr::V6(_) => (ECHO_REQUEST_V6, ECHO_REPLY_V6, protocol::ICMPV6),
        }
    }

    fn read_problem(&self, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let (request, _, protocol) = self.numbers();
        let report = problem::read(packet, self.address, protocol)?;
        let [kind, 0, _, _, high, low, sequence_high, sequence_low] = *report.transport else {
            return Err(Discard::OtherFlow);
        };
        if kind != request || u16::from_be_bytes([high, low]) != self.identifier {
            return Err(Discard::OtherFlow);
        }
        let to = SocketAddr::new(report.target, u16::from_be_bytes([sequence_high, sequence_low]));
        packet.meta.problem = Some(Problem { kind: report.kind, to, reporter: packet.remote_address() });
        Ok(Step::Keep)
    }
}

impl Block for Icmp {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        HEADER_BYTES
    }

    /// Ignores the destination's port.
    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let to = packet.meta.remote.filter(|to| !to.ip().is_unspecified()).ok_or(SendError::NoDestination)?;
        let ([a, b], [c, d]) = (self.identifier.to_be_bytes(), self.sequence.to_be_bytes());
        let (request, _, protocol) = self.numbers();
        let mut header = [request, 0, 0, 0, a, b, c, d];
        let length = u16::try_from(packet.byte_count() + HEADER_BYTES).map_err(|_| SendError::MessageTooLong)?;
        // The ICMPv6 checksum includes a pseudo header (RFC 4443, section 2.3).
        let pseudo = match self.address {
            IpAddr::V4(_) => Sum::default(),
            IpAddr::V6(_) => pseudo::sum(self.address, to.ip(), protocol, length),
        };
        let checksum = pseudo.and(Sum::of(&header)).and(packet.sum()).checksum();
        header[2..4].copy_from_slice(&checksum.to_be_bytes());
        *packet.push()? = header;
        packet.meta.remote = Some(to);
        packet.meta.protocol = protocol;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let (_, reply, protocol) = self.numbers();
        if packet.meta.protocol != protocol {
            return Err(Discard::OtherProtocol);
        }
        let bytes = packet.bytes();
        let read = Packet::new_checked(bytes).map_err(|_| Discard::IcmpTruncated)?;
        if (read.kind(), read.code()) != (reply, 0) {
            return self.read_problem(packet);
        }
        let version = if self.address.is_ipv4() { 4 } else { 6 };
        let (identifier, sequence) = read.echo(version).ok_or(Discard::IcmpTruncated)?;
        if problem::sum(bytes, packet.remote_address(), self.address).checksum() != 0 {
            return Err(Discard::IcmpChecksum);
        }
        if identifier != self.identifier {
            return Err(Discard::IcmpIdentifier);
        }
        packet.meta.remote = Some(SocketAddr::new(packet.remote_address(), sequence));
        packet.crop(HEADER_BYTES, usize::MAX);
        Ok(Step::Pass)
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Ok([self.identifier.to_be_bytes(), self.sequence.to_be_bytes()].concat())
    }

    /// The identifier must be this block's.
    fn import(&mut self, state: &[u8]) -> Result<(), ImportError> {
        let mut rest = state;
        let [a, b, c, d] = *state::take(&mut rest)?;
        if !rest.is_empty() {
            return Err(ImportError::Malformed);
        }
        if u16::from_be_bytes([a, b]) != self.identifier {
            return Err(ImportError::OtherFlow);
        }
        self.sequence = u16::from_be_bytes([c, d]);
        Ok(())
    }
}
