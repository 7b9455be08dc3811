//! Two hosts on one wire, and the driver's part of the work.

use std::net::{IpAddr, SocketAddr};

use stack::{ChecksumRule, Delivery, Description, Discard, Facts, NoEnv, SendError, Stack, TcpFacts};

pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Host 0 is 10.0.0.1, host 1 is 10.0.0.2.
pub fn facts(host: usize) -> Facts {
    Facts {
        device: "eth0".into(),
        mac: MACS[host],
        address: IpAddr::from([10, 0, 0, 1 + host as u8]),
        prefix: 24,
        mtu: 1500,
        checksum: ChecksumRule::Strict,
        tcp: TcpFacts::default(),
    }
}

/// The same for IPv6: host 0 is fd00::1, host 1 is fd00::2.
pub fn facts_v6(host: usize) -> Facts {
    Facts { address: IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1 + host as u16]), prefix: 64, ..facts(host) }
}

pub fn build(text: &str, host: usize) -> Stack {
    build_with(text, &facts(host))
}

pub fn build_with(text: &str, facts: &Facts) -> Stack {
    let built = Description::parse(text).and_then(|description| description.build(facts, &mut NoEnv));
    built.unwrap_or_else(|error| panic!("{}", error.render(text, "stack")))
}

pub fn endpoint(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The frame that a stack sends for one payload.
pub fn sent(stack: &mut Stack, to: Option<&str>, payload: &[u8]) -> Result<Vec<u8>, SendError> {
    let mut frames = Vec::new();
    stack.send(0, to.map(endpoint), payload, &mut |header, payload| frames.push([header, payload].concat()))?;
    assert_eq!(frames.len(), 1, "one payload is one frame");
    Ok(frames.remove(0))
}

/// The deliveries of a stack for one frame.
pub fn received(stack: &mut Stack, frame: &[u8]) -> Result<Vec<(SocketAddr, Vec<u8>)>, Discard> {
    let mut deliveries = Vec::new();
    let mut deliver = |delivery: Delivery<'_>| deliveries.push((delivery.from, delivery.payload.to_vec()));
    stack.receive(0, frame, &mut deliver).map(|()| deliveries)
}

/// The driver's part: writes the next hop's address where the stack left zeros.
pub fn to_station(mut frame: Vec<u8>, mac: [u8; 6]) -> Vec<u8> {
    if frame[..6] == [0; 6] {
        frame[..6].copy_from_slice(&mac);
    }
    frame
}

/// Bytes of Ethernet and IP header of a frame.
pub fn headers(frame: &[u8]) -> usize {
    if frame[12..14] == [8, 0] { 34 } else { 54 }
}

/// Recomputes the transport checksum, which covers a pseudo header. `field`: its offset behind the IP header.
pub fn mend_transport(frame: &mut [u8], field: usize) {
    let start = headers(frame);
    let (ends, protocol) = if start == 34 { (26..34, frame[23]) } else { (22..54, frame[20]) };
    frame[start + field..start + field + 2].fill(0);
    let length = frame.len() as u32 - start as u32;
    let pseudo =
        packet::checksum::Sum::of(&frame[ends]).and(packet::checksum::Sum::number(u32::from(protocol) + length));
    let checksum = pseudo.and(packet::checksum::Sum::of(&frame[start..])).checksum();
    frame[start + field..start + field + 2].copy_from_slice(&checksum.to_be_bytes());
}

pub fn discards(stack: &Stack) -> Vec<(&'static str, u64)> {
    stack.discards().collect()
}

/// Recomputes the header checksum of the IPv4 packet in a frame.
pub fn mend_ipv4(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let checksum = packet::checksum::Sum::of(&frame[14..end]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}
