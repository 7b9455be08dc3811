//! Programs that leave out what a filter further up cannot want, and nothing else.
//!
//! In: what packets must be for a filter to want them ([`Narrow`]). Out: a program for Ethernet frames that refuses those
//! that are something else for sure. Whatever it cannot be sure of passes: frames with VLAN tags, MPLS, PPPoE or LLC, IPv4
//! with options, fragments, IPv6 with extension headers, what is too short. The filter itself still decides about what
//! passes; this is only so that the rest is not copied. So a filter says what it needs in three lines, and need not be a
//! program as a whole.

use crate::ir::{Block, BlockId, End, InvalidProgram, Operand, Operation, Program, Size, Step, Test, Value};

/// What a packet must be to be wanted. Where several things are said, all of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrow {
    /// This version of IP.
    pub version: Option<u8>,
    /// It carries one of these protocols: first and last of each range. None says nothing.
    pub protocols: Option<Vec<(u8, u8)>>,
    /// It has ports, and they are among these.
    pub ports: Option<Ports>,
    /// One of its addresses is among these.
    pub addresses: Option<Addresses>,
}

/// Ports that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The source port may be one of them.
    pub source: bool,
    /// The destination port may be one of them.
    pub destination: bool,
    /// First and last of each range.
    pub ranges: Vec<(u16, u16)>,
}

/// Addresses that are wanted, of IPv4. ARP speaks of addresses, too, and passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// First and last of each range.
    pub v4: Vec<(u32, u32)>,
    /// IPv6 packets may be wanted.
    pub v6: bool,
}

/// More ranges than these are not worth their tests.
const RANGES: usize = 32;

/// More alternatives than these, as well.
const ALTERNATIVES: usize = 16;

// Types of Ethernet frames.
const IPV4: u32 = 0x0800;
const ARP: u32 = 0x0806;
const IPV6: u32 = 0x86dd;

/// Protocols with ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// Authentication header, behind which another protocol comes.
const AUTHENTICATION: u32 = 51;

/// Next headers of IPv6 that are no extension for sure: TCP, UDP, ICMPv6, SCTP.
const NO_EXTENSION: [u8; 4] = [6, 17, 58, 132];

/// Offsets in Ethernet frames.
const TYPE: u32 = 12;
const V4: u32 = 14;
const V4_PORTS: u32 = V4 + 20;
const V6: u32 = 14;
const V6_PORTS: u32 = V6 + 40;

/// The program that passes what one of these may want; none where they want too many things to tell apart.
pub fn program(alternatives: &[Narrow]) -> Option<Program> {
    let few = |narrow: &Narrow| {
        let ports = narrow.ports.as_ref().map_or(0, |ports| ports.ranges.len());
        let addresses = narrow.addresses.as_ref().map_or(0, |addresses| addresses.v4.len());
        narrow.protocols.as_ref().map_or(0, Vec::len) + ports + addresses <= RANGES
    };
    if alternatives.is_empty() || alternatives.len() > ALTERNATIVES || !alternatives.iter().all(few) {
        return None;
    }
    let mut draft = Draft::default();
    let [pass, refuse, v4, v6, arp] = std::array::from_fn(|_| draft.label());
    draft.at_least_on_wire(V4_PORTS + 4, pass);
    draft.load(Size::Half, TYPE);
    draft.branch(Test::Equal, IPV4, v4);
    draft.branch(Test::Equal, IPV6, v6);
    draft.branch(Test::Equal, ARP, arp);
    draft.jump(pass);

    draft.place(v4);
    draft.load(Size::Byte, V4);
    draft.unless(Test::Equal, 0x45, pass);
    draft.load(Size::Half, V4 + 6);
    draft.branch(Test::AnyBit, 0x3fff, pass);
    draft.load(Size::Byte, V4 + 9);
    draft.branch(Test::Equal, AUTHENTICATION, pass);
    for narrow in alternatives.iter().filter(|narrow| narrow.version != Some(6)) {
        let next = draft.label();
        draft.protocol(narrow, V4 + 9, next);
        draft.ports(narrow, V4_PORTS, next);
        if let Some(addresses) = &narrow.addresses {
            let found = draft.label();
            for offset in [V4 + 12, V4 + 16] {
                draft.load(Size::Word, offset);
                draft.within(&addresses.v4, found);
            }
            draft.jump(next);
            draft.place(found);
        }
        draft.jump(pass);
        draft.place(next);
    }
    draft.jump(refuse);

    draft.place(v6);
    draft.at_least_on_wire(V6_PORTS + 4, pass);
    let plain = draft.label();
    draft.load(Size::Byte, V6 + 6);
    for protocol in NO_EXTENSION {
        draft.branch(Test::Equal, protocol.into(), plain);
    }
    draft.jump(pass);
    draft.place(plain);
    for narrow in alternatives.iter().filter(|narrow| narrow.version != Some(4)) {
        let next = draft.label();
        if narrow.addresses.as_ref().is_some_and(|addresses| !addresses.v6) {
            continue;
        }
        draft.protocol(narrow, V6 + 6, next);
        draft.ports(narrow, V6_PORTS, next);
        draft.jump(pass);
        draft.place(next);
    }
    draft.jump(refuse);

    draft.place(arp);
    // No packet of IP: only what asks for addresses alone looks at it.
    let speaks = |narrow: &Narrow| {
        narrow.addresses.is_some() && narrow.version.is_none() && narrow.protocols.is_none() && narrow.ports.is_none()
    };
    draft.jump(if alternatives.iter().any(speaks) { pass } else { refuse });

    draft.place(refuse);
    draft.end(End::Return(0));
    draft.place(pass);
    draft.end(End::Return(u32::MAX));
    draft.finish().ok()
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// How a block ends, while the places of blocks are not known.
enum Way {
    End(End),
    Jump(Label),
    /// Where the test holds there, else on to the next block.
    Branch(Test, u32, Label),
    /// The other way round.
    Unless(Test, u32, Label),
}

/// A program under construction.
#[derive(Default)]
struct Draft {
    blocks: Vec<(Vec<Step>, Way)>,
    /// Of the block that comes next.
    steps: Vec<Step>,
    places: Vec<usize>,
}

impl Draft {
    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// The next block is what the label means.
    fn place(&mut self, label: Label) {
        if !self.steps.is_empty() {
            let here = self.label();
            self.jump(here);
            self.place(here);
        }
        self.places[label.0] = self.blocks.len();
    }

    fn close(&mut self, way: Way) {
        self.blocks.push((std::mem::take(&mut self.steps), way));
    }

    fn load(&mut self, size: Size, offset: u32) {
        self.steps.push(Step::LoadA(Value::Packet { size, offset }));
    }

    fn jump(&mut self, to: Label) {
        self.close(Way::Jump(to));
    }

    fn branch(&mut self, test: Test, operand: u32, to: Label) {
        self.close(Way::Branch(test, operand, to));
    }

    fn unless(&mut self, test: Test, operand: u32, to: Label) {
        self.close(Way::Unless(test, operand, to));
    }

    fn end(&mut self, end: End) {
        self.close(Way::End(end));
    }

    /// On where the packet had so many bytes, else elsewhere.
    fn at_least_on_wire(&mut self, bytes: u32, otherwise: Label) {
        self.steps.push(Step::LoadA(Value::WireLength));
        self.unless(Test::AtLeast, bytes, otherwise);
    }

    /// To `found` where A is in one of these, else on. A is another number afterwards.
    fn within<T: Copy + Into<u32>>(&mut self, ranges: &[(T, T)], found: Label) {
        // A - sum is within 0 to last - first: one test for a range, and A is not lost.
        let mut sum = 0u32;
        for (first, last) in ranges.iter().map(|&(first, last)| (first.into(), last.into())) {
            if first == last {
                self.branch(Test::Equal, first.wrapping_sub(sum), found);
                continue;
            }
            self.steps.push(Step::Arithmetic(Operation::Subtract, Operand::Constant(first.wrapping_sub(sum))));
            sum = first;
            let next = self.label();
            self.branch(Test::Greater, last.wrapping_sub(first), next);
            self.jump(found);
            self.place(next);
        }
    }

    /// On where the protocol at this offset is wanted, else to `next`.
    fn protocol(&mut self, narrow: &Narrow, offset: u32, next: Label) {
        let with_ports = WITH_PORTS.map(|protocol| (protocol, protocol));
        let wanted = [narrow.protocols.as_deref(), narrow.ports.as_ref().map(|_| &with_ports[..])];
        for ranges in wanted.into_iter().flatten() {
            let found = self.label();
            self.load(Size::Byte, offset);
            self.within(ranges, found);
            self.jump(next);
            self.place(found);
        }
    }

    /// On where a port at this offset is wanted, else to `next`.
    fn ports(&mut self, narrow: &Narrow, offset: u32, next: Label) {
        let Some(ports) = &narrow.ports else { return };
        let found = self.label();
        for (looked_at, offset) in [(ports.source, offset), (ports.destination, offset + 2)] {
            if looked_at {
                self.load(Size::Half, offset);
                self.within(&ports.ranges, found);
            }
        }
        self.jump(next);
        self.place(found);
    }

    fn finish(self) -> Result<Program, InvalidProgram> {
        let id = |place: usize| u16::try_from(place).map(BlockId).map_err(|_| InvalidProgram::TooLong);
        let to = |label: Label| id(self.places[label.0]);
        let blocks = self.blocks.iter().enumerate().map(|(at, (steps, way))| {
            let next = id(at + 1);
            let branch = |test: &Test, operand: &u32, yes, no| End::Branch {
                test: *test,
                operand: Operand::Constant(*operand),
                yes,
                no,
            };
            let end = match way {
                Way::End(end) => *end,
                Way::Jump(label) => End::Jump(to(*label)?),
                Way::Branch(test, operand, label) => branch(test, operand, to(*label)?, next?),
                Way::Unless(test, operand, label) => branch(test, operand, next?, to(*label)?),
            };
            Ok(Block { steps: steps.clone(), end })
        });
        Program::new(blocks.collect::<Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interpreter;

    fn frame(kind: u16, fill: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 80];
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        fill.iter().for_each(|&(at, byte)| frame[at] = byte);
        frame
    }

    fn check(narrow: Narrow, cases: &[(&[u8], bool)]) {
        let interpreter = Interpreter::new(&program(std::slice::from_ref(&narrow)).unwrap());
        for (frame, expected) in cases {
            let passes = interpreter.run(frame, frame.len() as u32) != 0;
            assert_eq!(passes, *expected, "{narrow:?} of {frame:02x?}");
        }
    }

    #[test]
    fn what_cannot_be_wanted_is_refused_and_what_is_not_sure_passes() {
        let tcp_80 = frame(0x800, &[(14, 0x45), (23, 6), (37, 80)]);
        let udp_80 = frame(0x800, &[(14, 0x45), (23, 17), (35, 80)]);
        let options = frame(0x800, &[(14, 0x46), (23, 17)]);
        let fragment = frame(0x800, &[(14, 0x45), (23, 17), (21, 1)]);
        let authenticated = frame(0x800, &[(14, 0x45), (23, 51)]);
        let tcp6_80 = frame(0x86dd, &[(14, 0x60), (20, 6), (57, 80)]);
        let udp6 = frame(0x86dd, &[(14, 0x60), (20, 17)]);
        let extension = frame(0x86dd, &[(14, 0x60), (20, 0)]);
        let (arp, tagged, length) = (frame(0x806, &[]), frame(0x8100, &[]), frame(60, &[]));
        let unsure = |of: bool| {
            [&options, &fragment, &authenticated, &extension, &tagged, &length].map(|frame| (&frame[..], of))
        };
        let cases = |cases: &[(&'static str, bool)]| -> Vec<(&[u8], bool)> {
            let named = cases.iter().map(|(name, expected)| {
                let frame = match *name {
                    "tcp_80" => &tcp_80,
                    "udp_80" => &udp_80,
                    "tcp6_80" => &tcp6_80,
                    "udp6" => &udp6,
                    _ => &arp,
                };
                (&frame[..], *expected)
            });
            named.chain(unsure(true)).chain([(&tcp_80[..30], true), (&tcp6_80[..57], true)]).collect()
        };
        let narrow = Narrow { protocols: Some(vec![(6, 6)]), ..Narrow::default() };
        let wanted = [("tcp_80", true), ("udp_80", false), ("tcp6_80", true), ("udp6", false), ("arp", false)];
        check(narrow, &cases(&wanted));
        let narrow = Narrow { version: Some(4), ..Narrow::default() };
        let wanted = [("tcp_80", true), ("udp_80", true), ("tcp6_80", false), ("udp6", false), ("arp", false)];
        check(narrow, &cases(&wanted));
        let ports = Ports { source: false, destination: true, ranges: vec![(1, 7), (79, 90)] };
        let narrow = Narrow { ports: Some(ports), ..Narrow::default() };
        let wanted = [("tcp_80", true), ("udp_80", false), ("tcp6_80", true), ("udp6", false), ("arp", false)];
        check(narrow, &cases(&wanted));
        let addresses = Addresses { v4: vec![(0, 0)], v6: false };
        let narrow = Narrow { addresses: Some(addresses), ..Narrow::default() };
        let wanted = [("tcp_80", true), ("udp_80", true), ("tcp6_80", false), ("udp6", false), ("arp", true)];
        check(narrow, &cases(&wanted));
        let addresses = Addresses { v4: vec![(1, 9)], v6: true };
        let narrow = Narrow { addresses: Some(addresses), ..Narrow::default() };
        check(narrow, &cases(&[("tcp_80", false), ("tcp6_80", true)]));
    }

    #[test]
    fn one_of_several_is_enough() {
        let of = |protocol| Narrow { protocols: Some(vec![(protocol, protocol)]), ..Narrow::default() };
        let interpreter = Interpreter::new(&program(&[of(6), of(17)]).unwrap());
        let run = |protocol| interpreter.run(&frame(0x800, &[(14, 0x45), (23, protocol)]), 80) != 0;
        assert_eq!([6, 17, 1, 0, 255].map(run), [true, true, false, false, false]);
    }

    #[test]
    fn numbers_at_the_edges_of_ranges() {
        let ranges = vec![(0, 3), (10, 10), (20, 30), (65_535, 65_535)];
        let wanted = Ports { source: true, destination: false, ranges: ranges.clone() };
        let narrow = Narrow { ports: Some(wanted), ..Narrow::default() };
        let interpreter = Interpreter::new(&program(&[narrow]).unwrap());
        for port in (0..=40).chain([65_534, 65_535]) {
            let [high, low] = u16::to_be_bytes(port);
            let frame = frame(0x800, &[(14, 0x45), (23, 17), (34, high), (35, low)]);
            let expected = ranges.iter().any(|range| (range.0..=range.1).contains(&port));
            assert_eq!(interpreter.run(&frame, 80) != 0, expected, "{port}");
        }
    }

    #[test]
    fn too_many_things_are_not_told_apart() {
        assert_eq!(program(&[]), None);
        let many = vec![(1, 1); RANGES + 1];
        assert_eq!(program(&[Narrow { protocols: Some(many), ..Narrow::default() }]), None);
        assert_eq!(program(&vec![Narrow::default(); ALTERNATIVES + 1]), None);
    }
}
