//! What typed selectors ask of a packet, as code over Ethernet frames with three outcomes: the packet passes, it does not,
//! or the code cannot tell.
//!
//! In: a [`Predicate`] per selector, joined by `and`, `or` and `not`. Out: blocks of a program
//! ([`Expression::program`](crate::Expression::program) makes the rest). An outcome other than "cannot tell" is that of the
//! selector itself, for a frame all of whose bytes are there: tests compare the two on real, damaged and random frames.
//!
//! The code cannot tell about frames with more than one VLAN tag, with MPLS, PPPoE, SNAP or other headers in front of IP,
//! and about some packets that pass otherwise: with IP options, an authentication header or IPv6 extension headers. The
//! selector itself decides about those, where the packet is read.
//!
//! A frame is sorted first, by its types and tags (`Shape`); then the predicates are asked of a packet that stands at a
//! known place. So what a predicate says of a whole sort (no ARP packet is IPv6) costs nothing, and all loads have fixed
//! offsets, which the kernel's generator likes best.

mod code;

pub(crate) use code::Code;

use crate::draft::Label;
use crate::expression::{Expression, joined};

/// What a selector asks of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// It is of this version of IP, 4 or 6.
    Version(u8),
    /// It is IP and carries one of these protocols: first and last of each range. `None`: any.
    Protocol(Option<Vec<(u8, u8)>>),
    /// It has ports, and they are among these.
    Ports(Ports),
    /// It is part of an IP packet.
    Fragment,
    /// It is ICMP or ICMPv6 of one of these types: first and last of each range. `None`: any.
    Icmp(Option<Vec<(u8, u8)>>),
    /// One of its addresses is among these.
    Addresses(Addresses),
    /// It has a VLAN tag, and the outermost has one of these identifiers: first and last of each range. `None`: any.
    Vlan(Option<Vec<(u16, u16)>>),
    /// Its ether type, in the Ethernet header or behind the headers in front of IP, is one of these: first and last of each
    /// range. `None`: it has one.
    EtherType(Option<Vec<(u16, u16)>>),
    /// It is from or to this Ethernet address.
    EtherAddress([u8; 6]),
}

/// Ports that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The source port may be one of them.
    pub source: bool,
    /// The destination port may be one of them.
    pub destination: bool,
    /// First and last of each range.
    pub ranges: Vec<(u16, u16)>,
}

/// Addresses that are wanted. ARP and reverse ARP packets have the IPv4 addresses they speak of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// First and last address of each network of IPv4.
    pub v4: Vec<(u32, u32)>,
    /// First and last address of each network of IPv6.
    pub v6: Vec<(u128, u128)>,
}

/// More ranges than these in one predicate are not worth their tests.
const RANGES: usize = 32;

/// Bytes of an Ethernet header.
const HEADER_BYTES: u32 = 14;

/// What an outcome leads to.
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

/// What stands behind Ethernet's header and its tag.
#[derive(Clone, Copy, PartialEq)]
enum Network {
    /// IPv4, at least as long as a header without options.
    V4,
    /// IPv6, at least as long as its header.
    V6,
    /// ARP or reverse ARP, and all of it.
    Arp,
    /// What no predicate looks into.
    Other,
    /// LLC that does not lead to IP.
    Llc,
    /// Another header that may lead to anything.
    Opaque,
    /// Not even an Ethernet header.
    Nothing,
}

/// A sort of frames.
#[derive(Clone, Copy)]
struct Shape {
    network: Network,
    /// Where that begins: behind a tag it is further on.
    at: u32,
}

impl Shape {
    fn is_tagged(self) -> bool {
        self.at > HEADER_BYTES
    }
}

impl Predicate {
    /// May the code be unable to tell?
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Predicate::EtherAddress(_))
    }

    /// Is it worth its tests?
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

    /// Does it look into this?
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

    /// What it is of all frames of a shape, where that is known.
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

/// What an expression of predicates alone is of all frames of a shape, where that is known.
fn of_all(expression: &Expression, shape: Shape) -> Option<bool> {
    match expression {
        Expression::Packet(predicate) => predicate.of_all(shape),
        Expression::Program(_) => expression.constant(),
        Expression::All(parts) => joined(parts.iter().map(|part| of_all(part, shape)), false),
        Expression::Any(parts) => joined(parts.iter().map(|part| of_all(part, shape)), true),
        Expression::Not(part) => of_all(part, shape).map(|known| !known),
    }
}

/// Does any predicate of an expression look into this?
fn looks_into(expression: &Expression, network: Network) -> bool {
    match expression {
        Expression::Packet(predicate) => predicate.looks_into(network),
        Expression::Program(_) => false,
        Expression::All(parts) | Expression::Any(parts) => parts.iter().any(|part| looks_into(part, network)),
        Expression::Not(part) => looks_into(part, network),
    }
}
