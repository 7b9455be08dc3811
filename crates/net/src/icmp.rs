//! ICMP messages that an interface sends and reads (RFC 792): replies to echo requests, port unreachable, and errors about flows.

use crate::answer;
use crate::limits::{ANSWER_BYTES, ICMP_ERROR_BYTES};
use packet::checksum::Sum;
use packet::{icmp, ipv4};
use rustix::io::Errno;
use std::net::{Ipv4Addr, SocketAddrV4};

const ETHERNET: usize = 14;

/// Protocol number of ICMP.
pub(crate) const ICMP: u8 = 1;

/// Types of errors (RFC 792).
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;

/// An error about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) protocol: u8,
    pub(crate) local: SocketAddrV4,
    pub(crate) remote: SocketAddrV4,
    pub(crate) errno: i32,
    /// Bytes 4 to 7 behind the packet's IPv4 header: of TCP, the sequence number.
    pub(crate) sequence: u32,
    /// Where the packet was too long: the MTU of the next hop (RFC 1191 4), 0 from older routers. Else 0.
    pub(crate) mtu: u32,
}

/// What an ICMP message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A neighbour wants its bytes back.
    EchoRequest,
    /// An error about a packet of a flow of this side with that one.
    Error(Report),
    /// An error about something else.
    StrayError,
    /// Anything else.
    Other,
    /// Cut, or its checksum is wrong.
    Malformed,
}

/// Reads a message; `bytes` is the whole ICMP part of a packet.
pub(crate) fn read(bytes: &[u8]) -> Message {
    let Ok(message) = icmp::Packet::new_checked(bytes) else { return Message::Malformed };
    if bytes.len() < 8 || Sum::of(bytes).folded() != 0xffff {
        return Message::Malformed;
    }
    match (message.kind(), message.code()) {
        (icmp::ECHO_REQUEST, 0) => Message::EchoRequest,
        (UNREACHABLE, code) => error(bytes, unreachable(code)),
        (TIME_EXCEEDED, _) => error(bytes, Errno::HOSTUNREACH),
        (PARAMETER, _) => error(bytes, Errno::PROTO),
        _ => Message::Other,
    }
}

/// The errno of a code of destination unreachable, as sockets(7) of Linux have it.
fn unreachable(code: u8) -> Errno {
    match code {
        0 | 6 | 11 => Errno::NETUNREACH,
        2 => Errno::NOPROTOOPT,
        3 => Errno::CONNREFUSED,
        4 => Errno::MSGSIZE,
        _ => Errno::HOSTUNREACH,
    }
}

/// The flow that an error is about: its packet's header and the first 8 bytes behind it are in the error.
fn error(bytes: &[u8], errno: Errno) -> Message {
    let read = || {
        let quoted = bytes.get(8..)?;
        let packet = ipv4::Packet::new_checked(quoted).ok()?;
        let [a, b, c, d, sequence @ ..] = *quoted.get(usize::from(packet.header_len())..)?.first_chunk::<8>()?;
        let mtu = if errno == Errno::MSGSIZE { u16::from_be_bytes([bytes[6], bytes[7]]) } else { 0 };
        // Only a first piece has ports.
        (packet.fragment_offset() == 0).then_some(Message::Error(Report {
            protocol: packet.protocol(),
            local: SocketAddrV4::new(packet.source(), u16::from_be_bytes([a, b])),
            remote: SocketAddrV4::new(packet.target(), u16::from_be_bytes([c, d])),
            errno: errno.raw_os_error(),
            sequence: u32::from_be_bytes(sequence),
            mtu: mtu.into(),
        }))
    };
    read().unwrap_or(Message::StrayError)
}

/// Ethernet and IPv4 headers of an answer to `frame`, from `own`, with room for `len` bytes behind them.
fn answer(frame: &[u8], own: Ipv4Addr, len: usize) -> Option<Vec<u8>> {
    let len = u16::try_from(len).ok().filter(|len| usize::from(*len) + answer::HEADERS <= ANSWER_BYTES)?;
    let to = Ipv4Addr::from(*frame.get(26..)?.first_chunk::<4>()?);
    Some(answer::packet(*frame.get(6..)?.first_chunk()?, ICMP, own, to, len))
}

fn finish(mut answer: Vec<u8>) -> Vec<u8> {
    let checksum = Sum::of(&answer[34..]).checksum();
    answer[36..38].copy_from_slice(&checksum.to_be_bytes());
    answer
}

/// The reply to an echo request; the sender's hardware address is left to fill in. None: the request is too long.
pub(crate) fn echo_reply(frame: &[u8], message: &[u8], own: Ipv4Addr) -> Option<Vec<u8>> {
    let mut reply = answer(frame, own, message.len())?;
    reply[34..].copy_from_slice(message);
    reply[34] = icmp::ECHO_REPLY;
    reply[36..38].fill(0);
    Some(finish(reply))
}

/// Port unreachable about the packet in `frame`; the sender's hardware address is left to fill in.
pub(crate) fn port_unreachable(frame: &[u8], own: Ipv4Addr) -> Option<Vec<u8>> {
    let quoted = frame.get(ETHERNET..)?;
    let quoted = &quoted[..quoted.len().min(ICMP_ERROR_BYTES - 28)];
    let mut message = answer(frame, own, 8 + quoted.len())?;
    message[34..36].copy_from_slice(&[UNREACHABLE, 3]);
    message[42..].copy_from_slice(quoted);
    Some(finish(message))
}
