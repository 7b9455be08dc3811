//! ICMP messages that an interface sends and reads (RFC 792): replies to echo requests, port unreachable, and errors about flows.

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

const TIME_TO_LIVE: u8 = 64;

/// What an ICMP message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A neighbour wants its bytes back.
    EchoRequest,
    /// An error about a packet of a flow of this side with that one.
    Error { protocol: u8, local: SocketAddrV4, remote: SocketAddrV4, errno: i32 },
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
        let [a, b, c, d] = *quoted.get(usize::from(packet.header_len())..)?.first_chunk()?;
        // Only a first piece has ports.
        (packet.fragment_offset() == 0).then_some(Message::Error {
            protocol: packet.protocol(),
            local: SocketAddrV4::new(packet.source(), u16::from_be_bytes([a, b])),
            remote: SocketAddrV4::new(packet.target(), u16::from_be_bytes([c, d])),
            errno: errno.raw_os_error(),
        })
    };
    read().unwrap_or(Message::StrayError)
}

/// Ethernet and IPv4 headers of an answer to `frame`, from `own`, with room for `len` bytes behind them.
fn answer(frame: &[u8], own: Ipv4Addr, len: usize) -> Option<Vec<u8>> {
    let total = u16::try_from(20 + len).ok().filter(|total| usize::from(*total) + ETHERNET <= ANSWER_BYTES)?;
    let mut answer = vec![0; ETHERNET + usize::from(total)];
    answer[..6].copy_from_slice(frame.get(6..12)?);
    answer[12..15].copy_from_slice(&[8, 0, 0x45]);
    answer[16..18].copy_from_slice(&total.to_be_bytes());
    // It is not cut on its way: then its identification says nothing, and may be 0 (RFC 6864 4.1).
    answer[20] = 0x40;
    answer[22..24].copy_from_slice(&[TIME_TO_LIVE, ICMP]);
    answer[26..30].copy_from_slice(&own.octets());
    answer[30..34].copy_from_slice(frame.get(26..30)?);
    let checksum = Sum::of(&answer[14..34]).checksum();
    answer[24..26].copy_from_slice(&checksum.to_be_bytes());
    Some(answer)
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
