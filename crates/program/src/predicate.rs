//! Compiles typed selectors to code over Ethernet frames with three results: pass, reject, or undecided.
//!
//! Input: a [`Predicate`] for each selector, joined by `and`, `or` and `not`. Output: blocks of a program
//! ([`Expression::program`](crate::Expression::program) makes the rest). If the code decides, its result equals that of
//! the selector itself, for a frame that is captured in full. Tests compare the two on real, damaged and random frames.
//!
//! The code is undecided about frames with more than one VLAN tag, and with MPLS, PPPoE, SNAP or other headers before
//! IP. It is also undecided about some packets that would pass: with IP options, an authentication header or IPv6
//! extension headers. The selector itself decides about those, where the packet is read.
//!
//! The code first classifies a frame by its types and tags (`Shape`), then asks the predicates about a packet at a
//! known offset. So a result that holds for a whole shape (no ARP packet is IPv6) costs nothing. All loads have fixed
//! offsets, which suits the kernel's generator best.

mod code;

pub(crate) use code::Code;

use crate::draft::Label;

/// The condition of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// It is IP of this version, 4 or 6.
    Version(u8),
    /// It is IP with one of these protocols: first and last of each range. `None`: any protocol.
    Protocol(Option<Vec<(u8, u8)>>),
    /// It has ports, and they match these.
    Ports(Ports),
    /// It is part of an IP packet.
    Fragment,
    /// It is ICMP or ICMPv6 with one of these types: first and last of each range. `None`: any type.
    Icmp(Option<Vec<(u8, u8)>>),
    /// One of its addresses matches these.
    Addresses(Addresses),
    /// It has a VLAN tag, and the outermost one has one of these identifiers: first and last of each range. `None`: any tag.
    Vlan(Option<Vec<(u16, u16)>>),
    /// Its EtherType, in the Ethernet header or behind tags, is in one of these ranges (first, last). `None`: any.
    EtherType(Option<Vec<(u16, u16)>>),
    /// It is from or to this Ethernet address.
    EtherAddress([u8; 6]),
}

/// The wanted ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The source port may be one of them.
    pub source: bool,
    /// The destination port may be one of them.
    pub destination: bool,
    /// First and last of each range.
    pub ranges: Vec<(u16, u16)>,
}

/// The wanted addresses. ARP and reverse ARP packets have the IPv4 addresses in their body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// First and last address of each network of IPv4.
    pub v4: Vec<(u32, u32)>,
    /// First and last address of each network of IPv6.
    pub v6: Vec<(u128, u128)>,
}

/// A predicate with more ranges is not worth its tests.
const RANGES: usize = 32;

/// Bytes of an Ethernet header.
const HEADER_BYTES: u32 = 14;

/// The targets of the results.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) yes: Label,
    pub(crate) no: Label,
    pub(crate) unsure: Label,
}

impl Ends {
    pub(crate) fn swapped(self) -> Ends {
        Ends { yes: self.no, no: self.yes, unsure: self.unsure }
    }
}

/// The layer behind the Ethernet header and its tag.
#[derive(Clone, Copy, PartialEq)]
enum Network {
    /// IPv4, at least as long as a header without options.
    V4,
    /// IPv6, at least as long as its header.
    V6,
    /// A complete ARP or reverse ARP packet.
    Arp,
    /// Another layer, which no predicate reads.
    Other,
    /// LLC that does not lead to IP.
    Llc,
    /// Another header that may lead to any layer.
    Opaque,
    /// Not even a complete Ethernet header.
    Nothing,
}

/// A class of frames.
#[derive(Clone, Copy)]
struct Shape {
    network: Network,
    /// The offset of the network layer, which is higher behind a tag.
    at: u32,
}

impl Shape {
    fn is_tagged(self) -> bool {
        self.at > HEADER_BYTES
    }
}

impl Predicate {
    /// Whether the code can decide about every frame.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Predicate::EtherAddress(_))
    }

    /// Whether it is worth its tests.
    pub(crate) fn is_small(&self) -> bool {
        let ranges = match self {
            Predicate::Protocol(Some(ranges)) | Predicate::Icmp(Some(ranges)) => ranges.len(),
            Predicate::Vlan(Some(ranges)) | Predicate::EtherType(Some(ranges)) => ranges.len(),
            Predicate::Ports(ports) => ports.ranges.len(),
            Predicate::Addresses(addresses) => addresses.v4.len() + addresses.v6.len(),
            _ => 0,
        };
        ranges <= RANGES
    }

    /// Whether it reads this layer.
    fn looks_into(&self, network: Network) -> bool {
        use Network::{Arp, V4, V6};
        match (self, network) {
            (Predicate::Version(4), V4) | (Predicate::Version(6), V6) => true,
            (Predicate::Protocol(_) | Predicate::Ports(_) | Predicate::Fragment | Predicate::Icmp(_), V4 | V6) => true,
            (Predicate::Addresses(Addresses { v4, .. }), V4 | Arp) => !v4.is_empty(),
            (Predicate::Addresses(Addresses { v6, .. }), V6) => !v6.is_empty(),
            _ => false,
        }
    }

    /// Its result for all frames of a shape, if that is known.
    fn of_all(&self, shape: Shape) -> Option<bool> {
        match (self, shape.network) {
            (_, Network::Nothing) => Some(false),
            (Predicate::EtherAddress(_), _) | (_, Network::Opaque) => None,
            (Predicate::Vlan(_), _) if !shape.is_tagged() => Some(false),
            (Predicate::Vlan(ids), _) => ids.is_none().then_some(true),
            (Predicate::EtherType(None), network) => Some(network != Network::Llc),
            (Predicate::EtherType(Some(_)), network) => (network == Network::Llc).then_some(false),
            (_, network) => (!self.looks_into(network)).then_some(false),
        }
    }
}
