//! Packets of scripts: IPv4 without options, TCP with its checksum.

use super::{Named, Segment};
use packet::checksum::Sum;
use packet::frame::protocol;
use packet::tcp::{Flags, Packet, TcpOption};
use packet::{ipv4, tcp};
use std::net::SocketAddrV4;

/// Bytes of the IPv4 header of a script's packets.
pub const IP_BYTES: usize = ipv4::Packet::HEADER_BYTES;

/// The byte at a relative sequence number, in either direction.
pub fn pattern(number: u32) -> u8 {
    (number ^ number >> 8).wrapping_mul(37) as u8
}

/// A packet of `segment`, whose numbers count from `isn` and `their_isn`.
pub(super) fn build(segment: &Segment, from: SocketAddrV4, to: SocketAddrV4, isn: u32, their_isn: u32) -> Vec<u8> {
    let (first, len) = segment.data.unwrap_or_default();
    let mut options = Vec::new();
    for option in &segment.options {
        let bytes = option_bytes(option, their_isn);
        // Padded in front with no-operations.
        options.extend(std::iter::repeat_n(1, bytes.len().next_multiple_of(4) - bytes.len()));
        options.extend(bytes);
    }
    let mut bytes = [from.port(), to.port()].map(u16::to_be_bytes).concat();
    bytes.extend(isn.wrapping_add(first).to_be_bytes());
    bytes.extend(segment.acknowledged.map_or(0, |number| their_isn.wrapping_add(number)).to_be_bytes());
    bytes.extend([(5 + options.len() as u8 / 4) << 4, segment.flags]);
    bytes.extend(segment.window.unwrap_or(0).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(segment.urgent.to_be_bytes());
    bytes.extend(options);
    bytes.extend((first..first + len).map(pattern));
    let checksum = pseudo(from, to, bytes.len()).and(Sum::of(&bytes)).checksum();
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = [&[0x45, 0][..], &((IP_BYTES + bytes.len()) as u16).to_be_bytes()].concat();
    packet.extend([0, 0, 0x40, 0, 64, protocol::TCP, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    let checksum = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(bytes);
    packet
}

fn pseudo(from: SocketAddrV4, to: SocketAddrV4, len: usize) -> Sum {
    let addresses = Sum::of(&from.ip().octets()).and(Sum::of(&to.ip().octets()));
    addresses.and(Sum::number(u32::from(protocol::TCP) + len as u32))
}

fn option_bytes(option: &Named, their_isn: u32) -> Vec<u8> {
    match option {
        Named::MaximumSegmentSize(bytes) => [&[2, 4][..], &bytes.unwrap_or(0).to_be_bytes()].concat(),
        Named::WindowScale(shift) => vec![3, 3, shift.unwrap_or(0)],
        Named::SackPermitted => vec![4, 2],
        Named::Sack(blocks) => {
            let edges = blocks.iter().flat_map(|(left, right)| [left, right]);
            let edges = edges.flat_map(|edge| their_isn.wrapping_add(*edge).to_be_bytes());
            [5, 2 + 8 * blocks.len() as u8].into_iter().chain(edges).collect()
        }
    }
}

/// The segment in a packet that the host sent. All checksums must be right, and the addresses those of the script.
pub(super) fn read(packet: &[u8], from: SocketAddrV4, to: SocketAddrV4) -> Result<Packet<'_>, String> {
    let ip = ipv4::Packet::new_checked(packet).map_err(|error| format!("a broken packet: {error:?}"))?;
    let segment = packet.get(ip.header_len().into()..ip.total_len().into()).ok_or("a packet that is cut")?;
    let addresses = [ip.source(), ip.target()] == [*from.ip(), *to.ip()];
    if !addresses || Sum::of(&packet[..ip.header_len().into()]).checksum() != 0 {
        return Err("wrong addresses, or a wrong checksum of IPv4".into());
    }
    let read = tcp::Packet::new_checked(segment, segment.len() as u32);
    let read = read.map_err(|error| format!("a broken segment: {error:?}"))?;
    if pseudo(from, to, segment.len()).and(Sum::of(segment)).checksum() != 0 {
        return Err("a wrong checksum of TCP".into());
    }
    if [read.source_port(), read.target_port()] != [from.port(), to.port()] {
        return Err(format!("wrong ports: {} to {}", read.source_port(), read.target_port()));
    }
    Ok(read)
}

/// A segment in the language of scripts.
pub(super) fn text(read: &Packet<'_>, isn: u32, their_isn: u32) -> String {
    let letters = [(0x02, 'S'), (0x01, 'F'), (0x04, 'R'), (0x08, 'P'), (0x20, 'U'), (0x10, '.')];
    let flags: String = letters.iter().filter(|(bit, _)| read.flags().0 & bit != 0).map(|(_, letter)| letter).collect();
    let first = read.sequence_number().wrapping_sub(isn);
    let mut text = format!("{flags} {first}:{}", first.wrapping_add(read.payload().len() as u32));
    if read.flags().ack() {
        text += &format!(" ack {}", read.acknowledgment_number().wrapping_sub(their_isn));
    }
    let options: Vec<String> = read.options().map(|option| format!("{option:?}")).collect();
    format!("{text} win {} <{}>", read.window(), options.join(","))
}

/// Whether the segment matches the script's.
pub(super) fn matches(expected: &Segment, read: &Packet<'_>, isn: u32, their_isn: u32) -> bool {
    let open = Flags::PSH.0;
    let data = (read.sequence_number().wrapping_sub(isn), read.payload().len() as u32);
    let acknowledged = read.acknowledgment_number().wrapping_sub(their_isn);
    let is_pattern = || read.payload().iter().zip(data.0..).all(|(byte, number)| *byte == pattern(number));
    expected.flags & !open == read.flags().0 & !open
        && expected.data.is_none_or(|expected| expected == data)
        && expected.acknowledged.is_none_or(|expected| expected == acknowledged)
        && expected.window.is_none_or(|expected| expected == read.window())
        && expected.urgent == read.urgent_pointer()
        && are_expected(expected, read, their_isn)
        && is_pattern()
}

fn are_expected(expected: &Segment, read: &Packet<'_>, their_isn: u32) -> bool {
    let is_named = |named: &Named, option: &TcpOption<'_>| match (named, option) {
        (Named::MaximumSegmentSize(bytes), TcpOption::MaximumSegmentSize(read)) => bytes.is_none_or(|it| it == *read),
        (Named::WindowScale(shift), TcpOption::WindowScale(read)) => shift.is_none_or(|it| it == *read),
        (Named::SackPermitted, TcpOption::SackPermitted) => true,
        (Named::Sack(blocks), TcpOption::Sack(read)) => {
            let relative = read.map(|(left, right)| (left.wrapping_sub(their_isn), right.wrapping_sub(their_isn)));
            relative.eq(blocks.iter().copied())
        }
        _ => false,
    };
    let all_there = expected.options.iter().all(|named| read.options().any(|option| is_named(named, &option)));
    let none_else = read.options().all(|option| expected.options.iter().any(|named| is_named(named, &option)));
    all_there && (expected.is_open || none_else)
}
