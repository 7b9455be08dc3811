//! ICMP messages that an interface sends and reads (RFC 792, RFC 4443): echo replies, port unreachable, and errors
//! about flows. Neighbour Discovery is in `ndp.rs`.

use crate::answer::{self, headers, ip_header};
use crate::limits::{ICMP_ERROR_BYTES, ICMP6_ERROR_BYTES};
use crate::whole::Whole;
use packet::checksum::Sum;
use packet::ndp::{REDIRECT, ROUTER_SOLICITATION};
use packet::{icmp, ipv4, ipv6, pseudo};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};

const ETHERNET: usize = 14;

/// Protocol numbers of ICMP and ICMPv6.
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP6: u8 = 58;

/// Types of errors (RFC 792).
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;

/// Types of errors (RFC 4443).
const UNREACHABLE_V6: u8 = 1;
const TOO_BIG_V6: u8 = 2;
const TIME_EXCEEDED_V6: u8 = 3;
const PARAMETER_V6: u8 = 4;

/// An error about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) protocol: u8,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) errno: i32,
    /// Bytes 4 to 7 behind the packet's IP header. For TCP: the sequence number.
    pub(crate) sequence: u32,
    /// If the packet was too long: the MTU of the next hop (RFC 1191 4, RFC 4443 3.2), 0 from older IPv4 routers. Else 0.
    pub(crate) mtu: u32,
}

/// The kinds of ICMP messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A neighbour wants its bytes back.
    EchoRequest,
    /// An error about a packet of a flow.
    Error(Report),
    /// An error about another packet.
    StrayError,
    /// Neighbour Discovery (RFC 4861).
    Discovery,
    /// Another message.
    Other,
    /// Truncated, or with a wrong checksum.
    Malformed,
}

/// The sum over a message between these addresses. For a valid message it is all ones.
fn sum(source: IpAddr, target: IpAddr, message: &[u8]) -> Sum {
    let sum = Sum::of(message);
    match source {
        IpAddr::V4(_) => sum,
        IpAddr::V6(_) => sum.and(pseudo::sum(source, target, ICMP6, message.len() as u16)),
    }
}

/// Reads a message. `bytes`: the whole ICMP part of a packet between these addresses.
pub(crate) fn read(bytes: &[u8], source: IpAddr, target: IpAddr) -> Message {
    let Ok(message) = icmp::Packet::new_checked(bytes) else { return Message::Malformed };
    if bytes.len() < 8 || sum(source, target, bytes).folded() != 0xffff {
        return Message::Malformed;
    }
    if source.is_ipv4() {
        return match (message.kind(), message.code()) {
            (icmp::ECHO_REQUEST, 0) => Message::EchoRequest,
            (UNREACHABLE, code) => error(bytes, unreachable(code)),
            (TIME_EXCEEDED, _) => error(bytes, Errno::HOSTUNREACH),
            (PARAMETER, _) => error(bytes, Errno::PROTO),
            _ => Message::Other,
        };
    }
    match (message.kind(), message.code()) {
        (icmp::ECHO_REQUEST_V6, 0) => Message::EchoRequest,
        (UNREACHABLE_V6, code) => error_v6(bytes, unreachable_v6(code)),
        (TOO_BIG_V6, _) => error_v6(bytes, Errno::MSGSIZE),
        (TIME_EXCEEDED_V6, _) => error_v6(bytes, Errno::HOSTUNREACH),
        (PARAMETER_V6, _) => error_v6(bytes, Errno::PROTO),
        (ROUTER_SOLICITATION..=REDIRECT, _) => Message::Discovery,
        _ => Message::Other,
    }
}

/// The errno for a code of destination unreachable, as in Linux's sockets(7).
fn unreachable(code: u8) -> Errno {
    match code {
        0 | 6 | 11 => Errno::NETUNREACH,
        2 => Errno::NOPROTOOPT,
        3 => Errno::CONNREFUSED,
        4 => Errno::MSGSIZE,
        _ => Errno::HOSTUNREACH,
    }
}

/// The same for ICMPv6 (RFC 4443 3.1; `tab_unreach` in net/ipv6/icmp.c).
fn unreachable_v6(code: u8) -> Errno {
    match code {
        0 => Errno::NETUNREACH,
        1 | 5 | 6 => Errno::ACCESS,
        4 => Errno::CONNREFUSED,
        _ => Errno::HOSTUNREACH,
    }
}

/// The flow that an error is about. The error quotes the packet's header and the 8 bytes behind it.
fn error(bytes: &[u8], errno: Errno) -> Message {
    let read = || {
        let quoted = bytes.get(8..)?;
        let packet = ipv4::Packet::new_checked(quoted).ok()?;
        let behind = quoted.get(usize::from(packet.header_len())..)?;
        let mtu = if errno == Errno::MSGSIZE { u16::from_be_bytes([bytes[6], bytes[7]]) } else { 0 };
        let ends = [packet.source().into(), packet.target().into()];
        // Only a first fragment has ports.
        (packet.fragment_offset() == 0).then(|| report(packet.protocol(), ends, behind, errno, mtu.into()))?
    };
    read().map_or(Message::StrayError, Message::Error)
}

/// The same for ICMPv6. Packets of flows have no extension headers.
fn error_v6(bytes: &[u8], errno: Errno) -> Message {
    let read = || {
        let (header, quoted) = bytes.split_first_chunk::<8>()?;
        let packet = ipv6::Packet::new_checked(quoted).ok()?;
        let behind = quoted.get(ipv6::Packet::HEADER_BYTES..)?;
        let [.., a, b, c, d] = *header;
        let mtu = if errno == Errno::MSGSIZE { u32::from_be_bytes([a, b, c, d]) } else { 0 };
        report(packet.next_header(), [packet.source().into(), packet.target().into()], behind, errno, mtu)
    };
    read().map_or(Message::StrayError, Message::Error)
}

/// `behind`: the quoted bytes behind the IP header. `None`: the error quotes fewer than 8 of them.
fn report(protocol: u8, [local, remote]: [IpAddr; 2], behind: &[u8], errno: Errno, mtu: u32) -> Option<Report> {
    let [a, b, c, d, sequence @ ..] = *behind.first_chunk::<8>()?;
    Some(Report {
        protocol,
        local: SocketAddr::new(local, u16::from_be_bytes([a, b])),
        remote: SocketAddr::new(remote, u16::from_be_bytes([c, d])),
        errno: errno.raw_os_error(),
        sequence: u32::from_be_bytes(sequence),
        mtu,
    })
}

/// A frame to `mac` with an ICMP message and its checksum.
pub(crate) fn frame(mac: [u8; 6], from: IpAddr, to: IpAddr, message: &[&[u8]]) -> Option<Vec<u8>> {
    let len: usize = message.iter().map(|part| part.len()).sum();
    let len = u16::try_from(len).ok().filter(|len| to.is_ipv6() || usize::from(*len) + ip_header(to) <= 0xffff)?;
    let mut frame = answer::packet(mac, if to.is_ipv4() { ICMP } else { ICMP6 }, from, to, len);
    let (_, mut rest) = frame.split_at_mut(headers(to));
    for part in message {
        let (place, behind) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = behind;
    }
    let message = &mut frame[headers(to)..];
    message[2..4].fill(0);
    let checksum = sum(from, to, message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(frame)
}

/// The reply to an echo request. `None`: the request is too long.
pub(crate) fn echo_reply(request: &Whole<'_>) -> Option<Vec<u8>> {
    let kind = if request.target.is_ipv4() { icmp::ECHO_REPLY } else { icmp::ECHO_REPLY_V6 };
    let behind = request.frame.get(request.header + 1..)?;
    frame(request.sender(), request.target, request.source, &[&[kind], behind])
}

/// Port unreachable, about a packet.
pub(crate) fn port_unreachable(about: &Whole<'_>) -> Option<Vec<u8>> {
    let (kind, code, most) = match about.target {
        IpAddr::V4(_) => (UNREACHABLE, 3, ICMP_ERROR_BYTES),
        IpAddr::V6(_) => (UNREACHABLE_V6, 4, ICMP6_ERROR_BYTES),
    };
    let quoted = about.frame.get(ETHERNET..)?;
    let quoted = &quoted[..quoted.len().min(most - ip_header(about.target) - 8)];
    frame(about.sender(), about.target, about.source, &[&[kind, code, 0, 0, 0, 0, 0, 0], quoted])
}
