//! TCP (RFC 9293): one connection, with smoltcp as the protocol machine.
//!
//! - *Up.* The block checks ports, peer, checksum and options of a segment and queues it; each kind of discard has a
//!   name. smoltcp gets the segment in the block's turn.
//! - *Down.* An application writes through [`crate::Stack::stream`]. Segments leave in the block's turn, and only
//!   while the line has room. Packets do not go down through this block.
//! - *Reports.* ICMP errors come as packets or by [`Stream::report`]. During the handshake they end the connection.
//!   Later they lower the MTU, or explain a timeout.
//!
//! Missing: a listener (the driver has it), timestamps, the sender's half of SACK (smoltcp lacks both), moving state.
//!
//! Read next: `connection.rs` for the connection's life, `clock.rs` for why time runs fast, `device.rs` for how
//! segments leave, `sequence.rs` for the first sequence number, `blind.rs` for an attacker's segments.

mod blind;
mod clock;
mod connection;
mod device;
mod options;
mod queue;
mod report;
mod sequence;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packet::frame::protocol;
use packet::tcp::Packet;
use request::Diagnostic;
use smoltcp::wire::TcpOption;

use crate::block::{Block, Out, Step};
use crate::facts::{ChecksumRule, Facts};
use crate::kind::{Below, Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, SendError};
use crate::packets::{Incoming, Outgoing, Problem};
use crate::stream::Stream;
use crate::{problem, pseudo};
use connection::Connection;
use report::LEAST_MTU_V6;

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "tcp",
    help: "the byte stream of one connection (RFC 9293)",
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
        Param {
            key: "to",
            is_main: false,
            is_needed: true,
            form: Form::Endpoint,
            help: "address and port of the other side",
        },
    ],
    complete: Some(super::udp::complete),
    build,
};

/// Addresses for smoltcp; the ports are the real ones. The block below has the real addresses, IPv4 or IPv6.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The window field of a SYN with receive buffers of the usual size.
pub const TCP_WINDOW: u16 = u16::MAX;

/// The window scale of such a SYN (RFC 7323). smoltcp uses one bit more than the buffer needs.
pub const TCP_WINDOW_SHIFT: u8 = (USUAL_BYTES.ilog2() + 1 - u16::BITS) as u8;

/// Bytes of each buffer if the facts say 0.
const USUAL_BYTES: u32 = 256 << 10;

/// MTU that every link carries over IPv4, in bytes (RFC 791, section 3.2).
const LEAST_LINK_MTU: u16 = 68;

/// Bytes of the longest header: 15 words.
const HEADER_BYTES: usize = 60;

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    let wrong = |message: String, key: &str| Err(Diagnostic::new(message, given.span_of(key)));
    let facts = site.facts;
    let Some(peer) = given.endpoint("to") else {
        return wrong("`tcp` needs the other side".into(), "to");
    };
    // RFC 1122, section 4.2.3.10: the peer must be a single station.
    let is_for_many = |address: IpAddr| address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if is_for_many(peer.ip()) || facts.broadcast().map(IpAddr::V4) == Some(peer.ip()) {
        return wrong(format!("{} is no single station", peer.ip()), "to");
    }
    if is_for_many(facts.address) || facts.address.is_unspecified() {
        return wrong(format!("no connection can be from {}", facts.address), "port");
    }
    let least = if facts.address.is_ipv4() { LEAST_LINK_MTU } else { LEAST_MTU_V6 };
    if facts.mtu < least {
        return wrong(format!("`tcp` needs an MTU of {least} bytes, and {} has {}", facts.device, facts.mtu), "port");
    }
    // `Form::Number` limits the port to 16 bits.
    let local = SocketAddr::new(facts.address, given.number("port") as u16);
    let connection = Connection::new(local, peer, facts.mtu, facts.tcp);
    let Some(connection) = connection else { return wrong(format!("no connection from {local} to {peer}"), "to") };
    Ok(Box::new(Tcp { local, peer, rule: facts.checksum, mtu: facts.mtu, connection }))
}

struct Tcp {
    local: SocketAddr,
    peer: SocketAddr,
    rule: ChecksumRule,
    /// MTU of the device.
    mtu: u16,
    connection: Connection,
}

impl Tcp {
    /// Reads an ICMP error about a segment that is on its way.
    fn read_problem(&mut self, now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let report = problem::read(packet, self.local.ip(), protocol::TCP)?;
        let [high, low, to_high, to_low, sequence @ ..] = *report.transport;
        let to = SocketAddr::new(report.target, u16::from_be_bytes([to_high, to_low]));
        let is_ours = u16::from_be_bytes([high, low]) == self.local.port() && to == self.peer;
        // RFC 5927, section 4.1: an attacker that guesses the ports does not know the sequence numbers.
        if !is_ours || !self.connection.is_in_flight(u32::from_be_bytes(sequence)) {
            return Err(Discard::OtherFlow);
        }
        packet.meta.problem = Some(Problem { kind: report.kind, to, reporter: packet.remote_address() });
        let (errno, mtu) = report::errno_of(report.kind);
        self.connection.report(now, errno, mtu);
        Ok(Step::Keep)
    }
}

/// Whether smoltcp can read these options. If not, it drops the segment silently.
fn are_read(mut options: &[u8]) -> bool {
    while !options.is_empty() {
        match TcpOption::parse(options) {
            Ok((_, TcpOption::EndOfList)) => break,
            Ok((rest, _)) => options = rest,
            Err(_) => return false,
        }
    }
    true
}

impl Block for Tcp {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        HEADER_BYTES
    }

    fn down(&mut self, _now: u64, _packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        Err(SendError::IsStream)
    }

    fn up(&mut self, now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        match packet.meta.protocol {
            protocol::TCP => {}
            other if problem::is_icmp(other, self.local.ip()) => return self.read_problem(now, packet),
            _ => return Err(Discard::OtherProtocol),
        }
        let segment = packet.bytes();
        let wire_len = u16::try_from(segment.len()).map_err(|_| Discard::TcpTruncated)?;
        let read = Packet::new_checked(segment, wire_len.into()).map_err(|_| Discard::TcpTruncated)?;
        let options = segment.get(Packet::HEADER_BYTES..read.header_len() as usize).ok_or(Discard::TcpTruncated)?;
        if read.target_port() != self.local.port() {
            return Err(Discard::OtherPort);
        }
        if SocketAddr::new(packet.remote_address(), read.source_port()) != self.peer {
            return Err(Discard::OtherPeer);
        }
        let pseudo = pseudo::sum(self.peer.ip(), self.local.ip(), protocol::TCP, wire_len);
        let field = segment.get(16..18).and_then(|field| field.first_chunk()).ok_or(Discard::TcpTruncated)?;
        if !pseudo::holds(pseudo, u16::from_be_bytes(*field), segment, self.rule) {
            return Err(Discard::TcpChecksum);
        }
        let flags = read.flags();
        if u8::from(flags.syn()) + u8::from(flags.fin()) + u8::from(flags.rst()) > 1 {
            return Err(Discard::TcpFlags);
        }
        if !are_read(options) {
            return Err(Discard::TcpOptions);
        }
        self.connection.queue.push(segment)?;
        Ok(Step::Keep)
    }

    fn next(&self) -> Option<u64> {
        self.connection.next()
    }

    fn tend(&mut self, now: u64, out: &mut dyn Out) {
        self.connection.tend(now, out);
    }

    fn facts_changed(&mut self, now: u64, facts: &Facts) {
        self.rule = facts.checksum;
        // While the device's MTU stays the same, the connection keeps the path MTU that it has learnt.
        if facts.mtu != self.mtu {
            self.mtu = facts.mtu;
            self.connection.set_mtu(now, facts.mtu.max(LEAST_LINK_MTU));
        }
    }

    fn stream(&mut self) -> Option<&mut dyn Stream> {
        Some(&mut self.connection)
    }
}
