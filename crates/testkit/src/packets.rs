//! Frames made by hand: Ethernet, IPv4, TCP and UDP, with correct lengths and with checksums left 0. Also a program
//! that tells them apart, and a checker of checksums that shares no code with the code that writes them.

use filter::{StreamFacts, StreamState};
use packet::flow::Flow;
use program::cbpf::Instruction;
use std::net::Ipv4Addr;

/// TCP flags, with their values on the wire.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Reset the connection.
    pub const RST: u8 = 4;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// Nine expressions that match no packet of these tests (ports above 1024, other addresses): the cost of rejecting.
pub const REJECTING: [&str; 9] = [
    "tcp port 9",
    "tcp port 10",
    "udp port 53",
    "host 10.9.9.9",
    "net 192.0.2.0/24 and port 81",
    "icmp",
    "ip6 and tcp port 7",
    "vlan 7",
    "tcp[13] & 4 != 0 and port 99",
];

/// A program that passes packets to this port, if IPv4 has no options.
pub fn to_port(port: u16) -> Vec<Instruction> {
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    vec![at(0x28, 0, 0, 36), at(0x15, 0, 1, port.into()), at(0x06, 0, 0, 0x40000), at(0x06, 0, 0, 0)]
}

/// The same program with `loads` loads of far bytes in front, to make it costly; packets must be long enough for these.
pub fn dear_to_port(port: u16, loads: u32) -> Vec<Instruction> {
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let far = (0..loads).map(|load| at(0x30, 0, 0, 200 + load % 40));
    far.chain(to_port(port)).collect()
}

/// Lists the wrong checksums of a frame: of the IPv4 header, TCP, UDP, ICMP and ICMPv6. Missing ones (in a cut frame, a
/// fragment, or UDP over IPv4 without one) are not wrong, and neither are those behind a routing header. `None`: there
/// is no IP packet.
pub fn wrong_checksums(link: packet::LinkType, frame: &[u8], wire_len: u32) -> Option<Vec<&'static str>> {
    let read = packet::frame::parse(link, frame, wire_len).ok()?;
    let mut wrong = Vec::new();
    let network = read.network_offset as usize;
    if read.version == 4 && sum(&[&frame[network..network + usize::from(frame[network] & 0xf) * 4]]) != 0xffff {
        wrong.push("IPv4");
    }
    if read.fragment.is_some() || read.is_cut() || read.version == 6 && is_routed(frame, &read) {
        return Some(wrong);
    }
    let payload = read.payload_of(frame);
    let addresses = if read.version == 4 { network + 12..network + 20 } else { network + 8..network + 40 };
    let length = (payload.len() as u32).to_be_bytes();
    let pseudo = [&frame[addresses], &length, &[0, 0, 0, read.protocol]].concat();
    let is_right = |parts: &[&[u8]]| sum(parts) == 0xffff;
    match read.protocol {
        6 if payload.len() >= 20 && !is_right(&[&pseudo, payload]) => wrong.push("TCP"),
        17 if payload.len() >= 8 => {
            let of_udp = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
            let pseudo = [&pseudo[..pseudo.len() - 8], &(of_udp as u32).to_be_bytes(), &[0, 0, 0, 17]].concat();
            let none = payload[6..8] == [0, 0];
            if none && read.version == 6 || !none && payload.get(..of_udp).is_none_or(|all| !is_right(&[&pseudo, all]))
            {
                wrong.push("UDP");
            }
        }
        1 if payload.len() >= 8 && !is_right(&[payload]) => wrong.push("ICMP"),
        58 if payload.len() >= 8 && !is_right(&[&pseudo, payload]) => wrong.push("ICMPv6"),
        _ => {}
    }
    Some(wrong)
}

/// Whether an IPv6 packet has a routing header. Its checksum may be for another target than that of the header.
fn is_routed(frame: &[u8], read: &packet::Frame) -> bool {
    let (mut next, mut at) = (frame[read.network_offset as usize + 6], read.network_offset as usize + 40);
    while at < read.transport_offset as usize && next != 43 {
        let length = usize::from(frame[at + 1]);
        (next, at) = (frame[at], at + if next == 51 { (length + 2) * 4 } else { (length + 1) * 8 });
    }
    at < read.transport_offset as usize
}

/// The ones' complement sum of parts (RFC 1071), byte by byte.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for (at, byte) in part.iter().enumerate() {
            sum += u32::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

/// Address and port.
pub type End = (Ipv4Addr, u16);

/// The client of most tests.
pub const CLIENT: End = (Ipv4Addr::new(10, 0, 0, 1), 40_000);
/// The server of most tests.
pub const SERVER: End = (Ipv4Addr::new(10, 0, 0, 2), 80);

/// Facts of an established TCP connection between these ends.
pub fn facts(client: End, server: End) -> StreamFacts {
    let flow = Flow {
        source: client.0.into(),
        target: server.0.into(),
        source_port: client.1,
        target_port: server.1,
        protocol: 6,
    };
    StreamFacts::new(flow, 0, StreamState::Established)
}

/// An Ethernet frame that carries an IPv4 packet.
pub fn ipv4(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let total = (20 + payload.len()) as u16;
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&total.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&target.octets());
    frame.extend_from_slice(payload);
    frame
}

/// An Ethernet frame that carries a UDP datagram.
pub fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for field in [from.1, to.1, (8 + payload.len()) as u16, 0] {
        datagram.extend_from_slice(&field.to_be_bytes());
    }
    datagram.extend_from_slice(payload);
    ipv4(from.0, to.0, 17, &datagram)
}

/// An Ethernet frame that carries a TCP segment.
pub fn tcp(from: End, to: End, sequence: u32, acknowledgement: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend_from_slice(&from.1.to_be_bytes());
    segment.extend_from_slice(&to.1.to_be_bytes());
    segment.extend_from_slice(&sequence.to_be_bytes());
    segment.extend_from_slice(&acknowledgement.to_be_bytes());
    segment.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    ipv4(from.0, to.0, 6, &segment)
}

/// A TCP conversation that keeps track of sequence numbers; one frame a millisecond.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The frames so far, with their times in ns.
    pub frames: Vec<(u64, Vec<u8>)>,
    ends: [End; 2],
    /// Next sequence number of each side.
    next: [u32; 2],
}

impl Conversation {
    /// A conversation with its handshake. The initial sequence numbers are `isn` and, for the server, 1,000,000 more.
    pub fn open(client: End, server: End, isn: u32) -> Conversation {
        let mut conversation = Conversation::midstream(client, server, isn);
        let [c, s] = conversation.next;
        conversation.push(tcp(client, server, c, 0, flag::SYN, b""));
        conversation.push(tcp(server, client, s, c.wrapping_add(1), flag::SYN | flag::ACK, b""));
        conversation.next = [c.wrapping_add(1), s.wrapping_add(1)];
        conversation.push(tcp(client, server, c.wrapping_add(1), s.wrapping_add(1), flag::ACK, b""));
        conversation
    }

    /// A conversation without a visible handshake.
    pub fn midstream(client: End, server: End, isn: u32) -> Conversation {
        Conversation { frames: Vec::new(), ends: [client, server], next: [isn, isn.wrapping_add(1_000_000)] }
    }

    /// Adds a frame as it is.
    pub fn push(&mut self, frame: Vec<u8>) -> &mut Self {
        self.frames.push((self.frames.len() as u64 * 1_000_000, frame));
        self
    }

    /// Data from the client (0) or the server (1).
    pub fn send(&mut self, side: usize, payload: &[u8]) -> &mut Self {
        let frame = self.segment(side, 0, flag::ACK | flag::PSH, payload);
        self.next[side] = self.next[side].wrapping_add(payload.len() as u32);
        self.push(frame)
    }

    /// A segment of one side, with a sequence number `offset` away from the next. Does not advance.
    pub fn segment(&self, side: usize, offset: i64, flags: u8, payload: &[u8]) -> Vec<u8> {
        let sequence = (i64::from(self.next[side]) + offset) as u32;
        tcp(self.ends[side], self.ends[1 - side], sequence, self.next[1 - side], flags, payload)
    }

    /// Skips bytes of one side, as if they were lost.
    pub fn lose(&mut self, side: usize, bytes: u32) -> &mut Self {
        self.next[side] = self.next[side].wrapping_add(bytes);
        self
    }

    /// FIN from one side.
    pub fn fin(&mut self, side: usize) -> &mut Self {
        let frame = self.segment(side, 0, flag::FIN | flag::ACK, b"");
        self.next[side] = self.next[side].wrapping_add(1);
        self.push(frame)
    }
}
