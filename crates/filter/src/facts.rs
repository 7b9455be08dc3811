//! Facts of a stream as bytes, for blocks that go to another process: the table of streams does not go with them.
//!
//! Not a file format: both sides have agreed on one version first. The reader finds the bytes in shared memory, so they
//! may hold anything.

use crate::stream::{StreamFacts, StreamState};
use packet::encapsulation::Vlans;
use packet::flow::Flow;
use packet::tunnel::stack::Tunnels;
use std::net::IpAddr;

/// Bytes of the facts of a stream.
pub const FACTS_BYTES: usize = TUNNELS_AT + TUNNELS_BYTES;

/// Place of the tunnels, outermost first; as much is written as finds room: three of IPv4, or one of IPv6.
const TUNNELS_AT: usize = 56;
const TUNNELS_BYTES: usize = 45;

/// The states, in the order of their numbers.
pub const STATES: [StreamState; 6] = [
    StreamState::Midstream,
    StreamState::Opening,
    StreamState::Established,
    StreamState::Closed,
    StreamState::Reset,
    StreamState::Cut,
];

/// IP versions of both addresses; 0 = no facts.
const V4: u8 = 4;
const V6: u8 = 6;

/// Writes facts as bytes.
#[inline]
pub fn to_bytes(facts: Option<&StreamFacts>) -> [u8; FACTS_BYTES] {
    let mut bytes = [0; FACTS_BYTES];
    let Some(StreamFacts { flow, start, reuse, vlans, tunnels, state }) = facts else { return bytes };
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let state = STATES.iter().position(|known| known == state).unwrap_or(0);
    let family = if flow.source.is_ipv4() && flow.target.is_ipv4() { V4 } else { V6 };
    put(0, &[family, state as u8, flow.protocol]);
    put(3, &start.to_le_bytes());
    put(11, &reuse.to_le_bytes());
    put(15, &flow.source_port.to_le_bytes());
    put(17, &flow.target_port.to_le_bytes());
    put(19, &octets(flow.source, family));
    put(35, &octets(flow.target, family));
    put(51, &[vlans.count()]);
    for (id, at) in vlans.ids().iter().zip([52, 54]) {
        put(at, &id.to_le_bytes());
    }
    if let Some(tunnels) = tunnels {
        put(TUNNELS_AT, tunnels.prefix(TUNNELS_BYTES));
    }
    bytes
}

/// Reads facts from bytes. The outer `None`: the bytes are invalid; the inner `None`: they hold no facts.
#[inline]
pub fn of_bytes(bytes: &[u8; FACTS_BYTES]) -> Option<Option<StreamFacts>> {
    let [family, state, protocol, ..] = *bytes;
    if family == 0 {
        return Some(None);
    }
    let ids = [field(bytes, 52)?, field(bytes, 54)?].map(u16::from_le_bytes);
    let tunnels = bytes.get(TUNNELS_AT..).filter(|stack| stack[0] != 0).and_then(Tunnels::of_prefix);
    Some(Some(StreamFacts {
        flow: Flow {
            source: address(field(bytes, 19)?, family)?,
            target: address(field(bytes, 35)?, family)?,
            source_port: u16::from_le_bytes(field(bytes, 15)?),
            target_port: u16::from_le_bytes(field(bytes, 17)?),
            protocol,
        },
        start: u64::from_le_bytes(field(bytes, 3)?),
        reuse: u32::from_le_bytes(field(bytes, 11)?),
        vlans: Vlans::new(bytes[51], ids),
        tunnels,
        state: *STATES.get(usize::from(state))?,
    }))
}

/// `N` bytes from a place on.
#[inline]
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The bytes of an address. If the other address is IPv6, an IPv4 address is written as IPv6, too.
fn octets(address: IpAddr, family: u8) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) if family == V6 => address.to_ipv6_mapped().octets(),
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
    }
}

fn address(octets: [u8; 16], family: u8) -> Option<IpAddr> {
    match family {
        V4 => octets.first_chunk::<4>().map(|four| IpAddr::from(*four)),
        V6 => Some(IpAddr::from(octets)),
        _ => None,
    }
}
