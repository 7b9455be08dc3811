//! The code that evaluates predicates: see [`predicate`](super).
//!
//! The frame's EtherType, or the one behind its tag, leads to the code for its shape. Types of headers that may lead to
//! any layer lead to "undecided". A length check may be a failing load instead of a test, if too short a packet is
//! rejected as a whole.

use super::{Ends, HEADER_BYTES, Network, Predicate, Shape};
use crate::draft::{Draft, Label};
use crate::expression::{Expression, joined};
use crate::ir::{Operand, Operation, Size, Step, Test};

// EtherTypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const REVERSE_ARP: u16 = 0x8035;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// EtherTypes of headers before another packet: old VLAN tags, MPLS, PPPoE, Cisco metadata, VN-tag, E-tag, provider backbone.
const OPAQUE: [u16; 10] = [0x9100, 0x9200, 0x9300, 0x8847, 0x8848, 0x8864, 0x8909, 0x8926, 0x893f, 0x88e7];

/// Values up to this are a length, followed by LLC.
const LENGTH_LIMIT: u16 = 1500;

/// The first four bytes of LLC with SNAP, and the first three of IP's own service access point.
const SNAP: u32 = 0xaaaa_0300;
const IP_LLC: u32 = 0x0606_0300;

/// Protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Any protocol or type.
const ALL: [(u8, u8); 1] = [(0, u8::MAX)];

/// ICMP in IPv4 and in IPv6.
const ICMP: [u8; 2] = [1, 58];

/// Authentication header, which another protocol follows.
const AUTHENTICATION: u8 = 51;

/// Extension headers of IPv6 that another header follows.
const EXTENSIONS: [u8; 5] = [0, 43, 44, AUTHENTICATION, 60];

/// The offset of the EtherType.
const TYPE: u32 = 12;

/// Bytes of a VLAN tag.
const TAG_BYTES: u32 = 4;

/// Bytes of an IPv4 header without options, of an IPv6 header and of an ARP packet.
const V4_BYTES: u32 = 20;
const V6_BYTES: u32 = 40;
const ARP_BYTES: u32 = 28;

/// The least bytes of ports, and of an ICMP message, behind an IP header.
const TRANSPORT_BYTES: u32 = 4;

/// Generates the code of an expression of predicates.
pub(crate) struct Code<'a> {
    pub(crate) draft: &'a mut Draft,
    /// Rejects the packet as a whole. A failing load has the same effect.
    pub(crate) refuse: Label,
}

impl Code<'_> {
    /// Generates the code here: classifies the frame, and evaluates the parts that its shape leaves open.
    pub(crate) fn add(&mut self, expression: &Expression, ends: Ends) {
        let shape = |network, at| Shape { network, at };
        self.long_enough(expression, HEADER_BYTES, shape(Network::Nothing, 0), ends);
        if expression.is_exact() {
            return self.of_shape(expression, shape(Network::Other, HEADER_BYTES), ends);
        }
        let [tagged, llc, opaque, opaque_tagged] = std::array::from_fn(|_| self.draft.label());
        self.draft.load(Size::Half, TYPE);
        TAGS.iter().for_each(|tag| self.draft.when(Test::Equal, (*tag).into(), tagged));
        self.sort(expression, HEADER_BYTES, opaque, llc, ends);

        self.draft.place(llc);
        self.long_enough(expression, HEADER_BYTES + 4, shape(Network::Llc, HEADER_BYTES), ends);
        self.draft.load(Size::Word, HEADER_BYTES);
        self.draft.when(Test::Equal, SNAP, opaque);
        self.draft.step(Step::Arithmetic(Operation::And, Operand::Constant(!0xff)));
        self.draft.when(Test::Equal, IP_LLC, opaque);
        self.of_shape(expression, shape(Network::Llc, HEADER_BYTES), ends);

        self.draft.place(tagged);
        let behind = HEADER_BYTES + TAG_BYTES;
        self.long_enough_or(behind, ends.unsure);
        self.draft.load(Size::Half, TYPE + TAG_BYTES);
        TAGS.iter().for_each(|tag| self.draft.when(Test::Equal, (*tag).into(), opaque_tagged));
        self.sort(expression, behind, opaque_tagged, opaque_tagged, ends);

        for (label, at) in [(opaque, HEADER_BYTES), (opaque_tagged, behind)] {
            self.draft.place(label);
            self.of_shape(expression, shape(Network::Opaque, at), ends);
        }
    }

    /// A holds the type before `at`: jumps to the code for frames of that type.
    fn sort(&mut self, expression: &Expression, at: u32, opaque: Label, llc: Label, ends: Ends) {
        let networks: [(Network, &[u16], u32); 3] = [
            (Network::V4, &[IPV4], V4_BYTES),
            (Network::V6, &[IPV6], V6_BYTES),
            (Network::Arp, &[ARP, REVERSE_ARP], ARP_BYTES),
        ];
        let looked_into = networks.into_iter().filter(|(network, ..)| looks_into(expression, *network));
        let looked_into: Vec<_> = looked_into.map(|network| (network, self.draft.label())).collect();
        for ((_, types, _), label) in &looked_into {
            types.iter().for_each(|one| self.draft.when(Test::Equal, (*one).into(), *label));
        }
        OPAQUE.iter().for_each(|kind| self.draft.when(Test::Equal, (*kind).into(), opaque));
        self.draft.unless(Test::Greater, LENGTH_LIMIT.into(), llc);
        let other = Shape { network: Network::Other, at };
        self.of_shape(expression, other, ends);
        for ((network, _, bytes), label) in looked_into {
            self.draft.place(label);
            self.long_enough(expression, at + bytes, other, ends);
            self.of_shape(expression, Shape { network, at }, ends);
        }
    }

    /// Continues if the frame has at least `bytes`. A shorter one has the shape `short`.
    fn long_enough(&mut self, expression: &Expression, bytes: u32, short: Shape, ends: Ends) {
        match of_all(expression, short) {
            Some(true) => self.long_enough_or(bytes, ends.yes),
            Some(false) => self.long_enough_or(bytes, ends.no),
            None => {
                let [is_short, on] = std::array::from_fn(|_| self.draft.label());
                self.draft.unless_on_wire(bytes, is_short);
                self.draft.jump(on);
                self.draft.place(is_short);
                self.of_shape(expression, short, ends);
                self.draft.place(on);
            }
        }
    }

    /// Continues if the frame has at least `bytes`, else jumps to `otherwise`.
    fn long_enough_or(&mut self, bytes: u32, otherwise: Label) {
        if otherwise == self.refuse {
            // A failing load rejects the packet. It also proves the bytes before it, so that no later test is needed for them.
            self.draft.load(Size::Byte, bytes - 1);
        } else {
            self.draft.unless_on_wire(bytes, otherwise);
        }
    }

    /// Evaluates the expression for frames of a shape.
    fn of_shape(&mut self, expression: &Expression, shape: Shape, ends: Ends) {
        match of_all(expression, shape) {
            Some(true) => return self.draft.jump(ends.yes),
            Some(false) => return self.draft.jump(ends.no),
            None => {}
        }
        match expression {
            Expression::Packet(predicate) => self.ask(predicate, shape, ends),
            Expression::Not(part) => self.of_shape(part, shape, ends.swapped()),
            Expression::All(parts) => self.one_by_one(parts, shape, ends, |ends, next| Ends { yes: next, ..ends }),
            Expression::Any(parts) => self.one_by_one(parts, shape, ends, |ends, next| Ends { no: next, ..ends }),
            // Programs are evaluated elsewhere.
            Expression::Program(_) => self.draft.jump(ends.unsure),
        }
    }

    /// Evaluates the parts that the shape leaves open, in turn. `going_on` says which result leads to the next part.
    fn one_by_one(&mut self, parts: &[Expression], shape: Shape, ends: Ends, going_on: fn(Ends, Label) -> Ends) {
        let open: Vec<&Expression> = parts.iter().filter(|part| of_all(part, shape).is_none()).collect();
        for (index, part) in open.iter().enumerate() {
            if index + 1 == open.len() {
                return self.of_shape(part, shape, ends);
            }
            let next = self.draft.label();
            self.of_shape(part, shape, going_on(ends, next));
            self.draft.place(next);
        }
    }

    /// Evaluates a predicate whose result the shape leaves open.
    fn ask(&mut self, predicate: &Predicate, shape: Shape, ends: Ends) {
        let at = shape.at;
        match (predicate, shape.network) {
            (Predicate::EtherAddress(address), _) => self.ether_address(address, ends),
            (Predicate::Vlan(Some(ids)), network) if shape.is_tagged() => {
                self.draft.load(Size::Half, HEADER_BYTES);
                self.draft.step(Step::Arithmetic(Operation::And, Operand::Constant(0xfff)));
                // Behind an unreadable header, the whole frame may be damaged.
                let found = if network == Network::Opaque { ends.unsure } else { ends.yes };
                self.within(ids, found);
                self.draft.jump(ends.no);
            }
            (Predicate::EtherType(Some(types)), network) => {
                self.draft.load(Size::Half, TYPE);
                // A length is no EtherType.
                let types: Vec<(u16, u16)> = types
                    .iter()
                    .filter(|(_, last)| *last > LENGTH_LIMIT)
                    .map(|(first, last)| ((*first).max(LENGTH_LIMIT + 1), *last))
                    .collect();
                self.within(&types, ends.yes);
                if network == Network::Opaque {
                    return self.draft.jump(ends.unsure);
                }
                if shape.is_tagged() {
                    self.draft.load(Size::Half, TYPE + TAG_BYTES);
                    self.within(&types, ends.yes);
                }
                self.draft.jump(ends.no);
            }
            (_, Network::Opaque) => self.draft.jump(ends.unsure),
            (Predicate::Addresses(addresses), Network::V6) => self.addresses_v6(&addresses.v6, at, ends),
            (Predicate::Addresses(addresses), Network::Arp) => {
                let found = self.draft.label();
                self.words_within(&addresses.v4, [at + 14, at + 24], found);
                self.draft.jump(ends.no);
                self.draft.place(found);
                if self.is_told(ends) {
                    // Ethernet, IPv4, and the lengths of their addresses.
                    self.draft.load(Size::Word, at);
                    self.draft.unless(Test::Equal, 0x0001_0800, ends.unsure);
                    self.draft.load(Size::Half, at + 4);
                    self.draft.unless(Test::Equal, 0x0604, ends.unsure);
                }
                self.draft.jump(ends.yes);
            }
            (Predicate::Addresses(addresses), _) => {
                let found = self.draft.label();
                self.words_within(&addresses.v4, [at + 12, at + 16], found);
                self.draft.jump(ends.no);
                self.draft.place(found);
                self.sound(shape, &ALL, ends);
                self.draft.jump(ends.yes);
            }
            (Predicate::Version(_) | Predicate::Protocol(None), _) => {
                self.sound(shape, &ALL, ends);
                self.draft.jump(ends.yes);
            }
            (Predicate::Protocol(Some(protocols)), _) => {
                self.sound(shape, protocols, ends);
                self.draft.jump(ends.yes);
            }
            (Predicate::Ports(ports), _) => {
                let at = self.transport(shape, &WITH_PORTS.map(|protocol| (protocol, protocol)), ends);
                for (looked_at, offset) in [(ports.source, at), (ports.destination, at + 2)] {
                    if looked_at {
                        self.draft.load(Size::Half, offset);
                        self.within(&ports.ranges, ends.yes);
                    }
                }
                self.draft.jump(ends.no);
            }
            (Predicate::Fragment, Network::V4) => {
                self.draft.load(Size::Half, at + 6);
                self.draft.when(Test::AnyBit, 0x3fff, ends.yes);
                self.draft.jump(ends.no);
            }
            (Predicate::Fragment, _) => {
                self.draft.load(Size::Byte, at + 6);
                EXTENSIONS.iter().for_each(|header| self.draft.when(Test::Equal, (*header).into(), ends.unsure));
                self.draft.jump(ends.no);
            }
            (Predicate::Icmp(types), network) => {
                let protocol = ICMP[usize::from(network == Network::V6)];
                let at = self.transport(shape, &[(protocol, protocol)], ends);
                let types = types.as_deref().unwrap_or(&ALL);
                self.draft.load(Size::Byte, at);
                self.within(types, ends.yes);
                self.draft.jump(ends.no);
            }
            // The shape decides this.
            (Predicate::Vlan(_) | Predicate::EtherType(None), _) => self.draft.jump(ends.unsure),
        }
    }

    fn ether_address(&mut self, address: &[u8; 6], ends: Ends) {
        let [a, b, c, d, e, f] = *address;
        let (high, low) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        for offset in [0, 6] {
            let next = self.draft.label();
            self.draft.load(Size::Word, offset);
            self.draft.unless(Test::Equal, high, next);
            self.draft.load(Size::Half, offset + 4);
            self.draft.when(Test::Equal, low.into(), ends.yes);
            self.draft.place(next);
        }
        self.draft.jump(ends.no);
    }

    /// Continues if IP has one of these protocols, its header is valid, and no other header follows that precedes
    /// another protocol. The selector itself decides about other packets.
    fn sound(&mut self, shape: Shape, protocols: &[(u8, u8)], ends: Ends) {
        let Shape { network, at } = shape;
        let (offset, others): (u32, &[u8]) = match network {
            Network::V4 => (9, &[AUTHENTICATION]),
            _ => (6, &EXTENSIONS),
        };
        if self.is_told(ends) || protocols != ALL {
            self.draft.load(Size::Byte, at + offset);
            others.iter().for_each(|other| self.draft.when(Test::Equal, (*other).into(), ends.unsure));
        }
        if protocols != ALL {
            let found = self.draft.label();
            self.within(protocols, found);
            self.draft.jump(ends.no);
            self.draft.place(found);
        }
        match network {
            Network::V4 if self.is_told(ends) => {
                self.without_options(at, ends);
                self.at_least(at + 2, V4_BYTES, ends);
            }
            Network::V6 if self.is_told(ends) => {
                self.draft.load(Size::Byte, at);
                self.draft.step(Step::Arithmetic(Operation::And, Operand::Constant(0xf0)));
                self.draft.unless(Test::Equal, 0x60, ends.unsure);
            }
            _ => {}
        }
    }

    /// Continues if the header of one of these protocols is at a known offset. Returns the offset.
    fn transport(&mut self, shape: Shape, protocols: &[(u8, u8)], ends: Ends) -> u32 {
        let Shape { network, at } = shape;
        self.sound(shape, protocols, ends);
        let transport = if network == Network::V4 {
            if self.is_told(ends) {
                self.at_least(at + 2, V4_BYTES + TRANSPORT_BYTES, ends);
            } else {
                self.without_options(at, ends);
            }
            // Later fragments have no transport header.
            self.draft.load(Size::Half, at + 6);
            self.draft.when(Test::AnyBit, 0x1fff, ends.no);
            at + V4_BYTES
        } else {
            if self.is_told(ends) {
                self.at_least(at + 4, TRANSPORT_BYTES, ends);
            }
            at + V6_BYTES
        };
        self.long_enough_or(transport + TRANSPORT_BYTES, ends.no);
        transport
    }

    /// Whether the program must tell certain packets from undecided ones. If both have one target, no closer look is needed.
    fn is_told(&self, ends: Ends) -> bool {
        ends.yes != ends.unsure || ends.yes == self.refuse
    }

    fn without_options(&mut self, at: u32, ends: Ends) {
        self.draft.load(Size::Byte, at);
        self.draft.unless(Test::Equal, 0x45, ends.unsure);
    }

    /// Continues if the length field at `offset` is at least `bytes`.
    fn at_least(&mut self, offset: u32, bytes: u32, ends: Ends) {
        self.draft.load(Size::Half, offset);
        self.draft.unless(Test::AtLeast, bytes, ends.unsure);
    }

    fn addresses_v6(&mut self, networks: &[(u128, u128)], at: u32, ends: Ends) {
        let found = self.draft.label();
        for offset in [at + 8, at + 24] {
            for (first, last) in networks {
                // The first and last address of a network share its prefix.
                let (next, prefix) = (self.draft.label(), !(first ^ last));
                for (word, mask) in words(prefix).into_iter().enumerate().filter(|(_, mask)| *mask != 0) {
                    self.draft.load(Size::Word, offset + 4 * word as u32);
                    if mask != u32::MAX {
                        self.draft.step(Step::Arithmetic(Operation::And, Operand::Constant(mask)));
                    }
                    self.draft.unless(Test::Equal, words(*first)[word] & mask, next);
                }
                self.draft.jump(found);
                self.draft.place(next);
            }
        }
        self.draft.jump(ends.no);
        self.draft.place(found);
        self.sound(Shape { network: Network::V6, at }, &ALL, ends);
        self.draft.jump(ends.yes);
    }

    /// Jumps to `found` if one of the words at these offsets is in a range, else continues.
    fn words_within(&mut self, ranges: &[(u32, u32)], offsets: [u32; 2], found: Label) {
        for offset in offsets {
            self.draft.load(Size::Word, offset);
            self.within(ranges, found);
        }
    }

    /// Jumps to `found` if A is in a range, else continues. Changes A.
    fn within<T: Copy + Into<u32>>(&mut self, ranges: &[(T, T)], found: Label) {
        // A - sum lies within 0 to last - first: one test per range, and A need not be loaded again.
        let mut sum = 0u32;
        for (first, last) in ranges.iter().map(|&(first, last)| (first.into(), last.into())) {
            if first == last {
                self.draft.when(Test::Equal, first.wrapping_sub(sum), found);
                continue;
            }
            let by = Operand::Constant(first.wrapping_sub(sum));
            self.draft.step(Step::Arithmetic(Operation::Subtract, by));
            sum = first;
            self.draft.unless(Test::Greater, last.wrapping_sub(first), found);
        }
    }
}

fn words(number: u128) -> [u32; 4] {
    std::array::from_fn(|word| (number >> (96 - 32 * word)) as u32)
}

/// The result of an expression of predicates for all frames of a shape, if that is known.
fn of_all(expression: &Expression, shape: Shape) -> Option<bool> {
    match expression {
        Expression::Packet(predicate) => predicate.of_all(shape),
        Expression::Program(_) => expression.constant(),
        Expression::All(parts) => joined(parts.iter().map(|part| of_all(part, shape)), false),
        Expression::Any(parts) => joined(parts.iter().map(|part| of_all(part, shape)), true),
        Expression::Not(part) => of_all(part, shape).map(|known| !known),
    }
}

/// Whether a predicate of this expression reads this layer.
fn looks_into(expression: &Expression, network: Network) -> bool {
    match expression {
        Expression::Packet(predicate) => predicate.looks_into(network),
        Expression::Program(_) => false,
        Expression::All(parts) | Expression::Any(parts) => parts.iter().any(|part| looks_into(part, network)),
        Expression::Not(part) => looks_into(part, network),
    }
}
