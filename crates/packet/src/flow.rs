//! The five values that name a flow: addresses, ports, protocol. Flow tables and states are elsewhere.
//!
//! A flow has a direction; [`Flow::canonical`] removes it, and [`FlowHasher`] gives both directions the same hash.

use std::fmt;
use std::net::IpAddr;

use crate::bytes::u16_at;
use crate::frame::{Frame, protocol};

/// Addresses, ports and protocol, in the direction of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub target: IpAddr,
    /// Source port; 0 if the protocol has none.
    pub source_port: u16,
    /// Destination port; 0 if the protocol has none.
    pub target_port: u16,
    /// Protocol number, see [`protocol`].
    pub protocol: u8,
}

impl Flow {
    /// The flow of a frame. Ports are 0 for later fragments, truncated headers, and protocols without ports.
    #[inline]
    pub fn of(frame: &Frame, bytes: &[u8]) -> Self {
        let transport = frame.payload_of(bytes);
        let (source_port, target_port) = match (u16_at(transport, 0), u16_at(transport, 2)) {
            (Some(source), Some(target)) if has_ports(frame.protocol) && !frame.is_later_fragment() => (source, target),
            _ => (0, 0),
        };
        Self { source: frame.source, target: frame.target, source_port, target_port, protocol: frame.protocol }
    }

    /// The other direction.
    #[inline]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.target,
            target: self.source,
            source_port: self.target_port,
            target_port: self.source_port,
            protocol: self.protocol,
        }
    }

    /// Whether the source is the lower address, or the lower port of equal addresses.
    #[inline]
    pub fn is_canonical(&self) -> bool {
        (self.source, self.source_port) <= (self.target, self.target_port)
    }

    /// This flow or its reverse, whichever [is canonical](Self::is_canonical): the same for both directions.
    #[inline]
    pub fn canonical(self) -> Self {
        if self.is_canonical() { self } else { self.reversed() }
    }

    /// The name of tcpflow's file for this direction: `192.168.101.102.02345-010.011.012.013.45103`.
    ///
    /// IPv6 addresses are eight groups of four hexadecimal digits, as in tcpflow, but joined by `.`: colons are not
    /// allowed in file names on some systems, and mean a remote host to `scp` and `rsync`. The port is always the last
    /// group, in five decimal digits.
    pub const fn tcpflow_name(self) -> TcpflowName {
        TcpflowName(self)
    }
}

/// Whether the first four bytes of the transport header are two ports.
#[inline]
pub const fn has_ports(number: u8) -> bool {
    matches!(number, protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE)
}

/// `10.0.0.1:1234 > 10.0.0.2:80`, `[::1]:1 > [::2]:2`; without ports if the protocol has none.
impl fmt::Display for Flow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if has_ports(self.protocol) {
            let (source, target) = ((self.source, self.source_port), (self.target, self.target_port));
            write!(out, "{} > {}", std::net::SocketAddr::from(source), std::net::SocketAddr::from(target))
        } else {
            write!(out, "{} > {}", self.source, self.target)
        }
    }
}

/// Writes a [`Flow`] as a file name, see [`Flow::tcpflow_name`].
#[derive(Clone, Copy, Debug)]
pub struct TcpflowName(Flow);

impl fmt::Display for TcpflowName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flow { source, target, source_port, target_port, .. } = self.0;
        padded(source, out)?;
        write!(out, ".{source_port:05}-")?;
        padded(target, out)?;
        write!(out, ".{target_port:05}")
    }
}

fn padded(address: IpAddr, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            write!(out, "{a:03}.{b:03}.{c:03}.{d:03}")
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, h] = address.segments();
            write!(out, "{a:04x}.{b:04x}.{c:04x}.{d:04x}.{e:04x}.{f:04x}.{g:04x}.{h:04x}")
        }
    }
}

/// Hashes flows, the same for both directions.
///
/// Each step multiplies two 64-bit words to 128 bits and folds the halves, with keys drawn from the seed. Without the
/// seed attackers cannot choose colliding addresses and ports. Not a cryptographic hash: draw the seed at random and
/// keep it in the process.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    keys: [u64; 4],
}

impl FlowHasher {
    /// Draws the keys from `seed`.
    pub const fn new(seed: u64) -> Self {
        // splitmix64 (Steele, Lea, Flood 2014).
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut keys = [0; 4];
        let mut index = 0;
        let mut state = seed;
        while index < keys.len() {
            state = state.wrapping_add(STEP);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            keys[index] = mixed ^ (mixed >> 31);
            index += 1;
        }
        Self { keys }
    }

    /// The hash of `flow` and of its reverse. All 64 bits are usable.
    #[inline(always)]
    pub fn hash(&self, flow: &Flow) -> u64 {
        let [first, second, third, fourth] = self.keys;
        let one = fold(address_word(flow.source, self.keys) ^ first, u64::from(flow.source_port) ^ second);
        let two = fold(address_word(flow.target, self.keys) ^ first, u64::from(flow.target_port) ^ second);
        // Sum and exclusive or are symmetric, and together they keep all information of both words.
        fold(one.wrapping_add(two) ^ third, (one ^ two).wrapping_add(u64::from(flow.protocol)) ^ fourth)
    }
}

#[inline(always)]
fn address_word(address: IpAddr, keys: [u64; 4]) -> u64 {
    match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            fold((bits >> 64) as u64 ^ keys[2], bits as u64 ^ keys[3])
        }
    }
}

/// Multiplies to 128 bits and combines the halves.
#[inline(always)]
fn fold(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn flow(source: &str, source_port: u16, target: &str, target_port: u16) -> Flow {
        let (source, target) = (source.parse().unwrap(), target.parse().unwrap());
        Flow { source, target, source_port, target_port, protocol: protocol::TCP }
    }

    #[test]
    fn texts() {
        let check = |flow: Flow, text: &str, name: &str| {
            assert_eq!(flow.to_string(), text);
            assert_eq!(flow.tcpflow_name().to_string(), name);
        };
        let v4 = flow("192.168.101.102", 2345, "10.11.12.13", 45103);
        check(v4, "192.168.101.102:2345 > 10.11.12.13:45103", "192.168.101.102.02345-010.011.012.013.45103");
        check(
            flow("2001:db8::1", 80, "fe80::2", 5),
            "[2001:db8::1]:80 > [fe80::2]:5",
            "2001.0db8.0000.0000.0000.0000.0000.0001.00080-fe80.0000.0000.0000.0000.0000.0000.0002.00005",
        );
        let icmp = Flow { protocol: protocol::ICMP, source_port: 0, target_port: 0, ..v4 };
        assert_eq!(icmp.to_string(), "192.168.101.102 > 10.11.12.13");
    }

    #[test]
    fn directions() {
        let check = |one: Flow, canonical: bool| {
            assert_eq!(one.reversed().reversed(), one);
            assert_eq!(one.canonical(), one.reversed().canonical());
            assert_eq!(one.is_canonical(), canonical);
            let hasher = FlowHasher::new(7);
            assert_eq!(hasher.hash(&one), hasher.hash(&one.reversed()));
        };
        check(flow("10.0.0.1", 80, "10.0.0.2", 1), true);
        check(flow("10.0.0.2", 1, "10.0.0.1", 80), false);
        check(flow("10.0.0.1", 80, "10.0.0.1", 81), true);
        check(flow("10.0.0.1", 80, "10.0.0.1", 80), true);
        check(flow("::2", 80, "::1", 80), false);
    }

    /// Neighbouring addresses and ports, as in scans and floods, spread over low and high bits alike.
    #[test]
    fn hashes_spread() {
        let check = |flows: &[Flow]| {
            let hasher = FlowHasher::new(0x5eed);
            let whole: HashSet<u64> = flows.iter().map(|flow| hasher.hash(flow)).collect();
            assert_eq!(whole.len(), flows.len(), "64-bit collision");
            // 4096 balls in 4096 bins fill 1 - 1/e of them, about 2589.
            for shift in [0, 52] {
                let bins: HashSet<u64> = flows.iter().map(|flow| hasher.hash(flow) >> shift & 0xfff).collect();
                assert!(bins.len() > 2400, "{} bins at bit {shift}", bins.len());
            }
        };
        let ports: Vec<Flow> = (0..4096).map(|port| flow("10.0.0.1", port, "10.0.0.2", 80)).collect();
        check(&ports);
        let both: Vec<Flow> = (0..64 * 64).map(|n| flow("10.0.0.1", n / 64, "10.0.0.2", 1000 + n % 64)).collect();
        check(&both);
        let hosts: Vec<Flow> =
            (0..4096).map(|n| flow(&format!("10.1.{}.{}", n >> 8, n & 255), 1, "10.0.0.2", 1)).collect();
        check(&hosts);
        let six: Vec<Flow> = (0..4096).map(|n| flow(&format!("2001:db8::{n:x}"), 1, "2001:db8:1::", 1)).collect();
        check(&six);
    }

    #[test]
    fn seeds_differ() {
        let one = flow("10.0.0.1", 80, "10.0.0.2", 1);
        let hashes: HashSet<u64> = (0..1000).map(|seed| FlowHasher::new(seed).hash(&one)).collect();
        assert_eq!(hashes.len(), 1000);
    }
}
