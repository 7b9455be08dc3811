//! An echo client (RFC 792): each payload goes out as an echo request, each reply comes back as a delivery.
//!
//! A delivery's port is the sequence number of the echo, counted from 0. Errors about an echo request of this flow are
//! read as [`Problem`]s, again with the sequence number as port.

use std::net::{Ipv4Addr, SocketAddrV4};

use packet::checksum::Sum;
use packet::frame::protocol;
use packet::icmp::{ECHO_REPLY, ECHO_REQUEST, Packet};
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::kind::{Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};
use crate::problem::{self, Problem};
use crate::state;

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "icmp",
    help: "echo requests and their replies (RFC 792)",
    layer: Layer::Transport,
    is_top: true,
    below: Some("ipv4"),
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
    // The form of the parameter has no larger number.
    Ok(Box::new(Icmp { address: site.facts.address, identifier: given.number("id") as u16, sequence: 0 }))
}

/// Type, code, checksum, identifier, sequence number.
const HEADER_BYTES: usize = 8;

/// One echo client, which its identifier names.
#[derive(Debug)]
pub struct Icmp {
    address: Ipv4Addr,
    identifier: u16,
    /// That of the next request.
    sequence: u16,
}

impl Icmp {
    fn read_problem(&self, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let report = problem::read(packet.bytes(), self.address, protocol::ICMP)?;
        let [ECHO_REQUEST, 0, _, _, high, low, sequence_high, sequence_low] = *report.transport else {
            return Err(Discard::OtherFlow);
        };
        if u16::from_be_bytes([high, low]) != self.identifier {
            return Err(Discard::OtherFlow);
        }
        let to = SocketAddrV4::new(report.target, u16::from_be_bytes([sequence_high, sequence_low]));
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

    /// The destination's port means nothing.
    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let to = packet.meta.remote.filter(|to| !to.ip().is_unspecified()).ok_or(SendError::NoDestination)?;
        // No IP packet is longer: there is no use in summing more.
        if packet.byte_count() > usize::from(u16::MAX) {
            return Err(SendError::MessageTooLong);
        }
        let ([a, b], [c, d]) = (self.identifier.to_be_bytes(), self.sequence.to_be_bytes());
        let mut header = [ECHO_REQUEST, 0, 0, 0, a, b, c, d];
        let checksum = Sum::of(&header).and(packet.sum()).checksum();
        header[2..4].copy_from_slice(&checksum.to_be_bytes());
        *packet.push()? = header;
        packet.meta.remote = Some(to);
        packet.meta.protocol = protocol::ICMP;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        if packet.meta.protocol != protocol::ICMP {
            return Err(Discard::OtherProtocol);
        }
        let bytes = packet.bytes();
        let read = Packet::new_checked(bytes).map_err(|_| Discard::IcmpTruncated)?;
        if (read.kind(), read.code()) != (ECHO_REPLY, 0) {
            return self.read_problem(packet);
        }
        let (identifier, sequence) = read.echo(4).ok_or(Discard::IcmpTruncated)?;
        if Sum::of(bytes).checksum() != 0 {
            return Err(Discard::IcmpChecksum);
        }
        if identifier != self.identifier {
            return Err(Discard::IcmpIdentifier);
        }
        packet.meta.remote = Some(SocketAddrV4::new(packet.remote_address(), sequence));
        packet.crop(HEADER_BYTES, usize::MAX);
        Ok(Step::Pass)
    }

    /// Identifier and next sequence number.
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
