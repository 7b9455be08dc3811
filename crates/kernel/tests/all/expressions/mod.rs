//! Random expressions: of tcpdump's language, of every kind for which libpcap generates code, and of typed selectors.

use program::predicate::{Addresses, Ports};
use program::{Compile, CompileErrorKind, Passes, Predicate, Program, from_cbpf};
use testkit::Compiler;
use testkit::random::Random;

pub struct Expressions {
    seen: Seen,
    compiler: Compiler,
    made: usize,
    pub refused: usize,
}

impl Expressions {
    pub fn about(frames: &[Vec<u8>]) -> Expressions {
        Expressions { seen: seen(frames), compiler: Compiler::new(), made: 0, refused: 0 }
    }

    /// A random expression that libpcap compiles, with primitives joined up to this depth, possibly combined with typed
    /// selectors. `None`, with a message: libpcap is not installed.
    pub fn any(&mut self, random: &mut Random, depth: usize) -> Option<(String, Program)> {
        let one = self.make(random, 0)?.1;
        if random.below(3) > 0 {
            return self.make(random, depth);
        }
        let expression = typed(random, depth, &one);
        let passes = [Passes::Perhaps, Passes::Surely, Passes::Unsure][random.below(3)];
        Some((format!("{expression:?} {passes:?}"), expression.program(passes).expect("it is small")))
    }

    /// A random expression that libpcap compiles, with primitives joined up to this depth. `None`, with a message:
    /// libpcap is not installed.
    fn make(&mut self, random: &mut Random, depth: usize) -> Option<(String, Program)> {
        loop {
            let text = expression(random, &self.seen, depth);
            match self.compiler.compile(&text, 1, 262_144) {
                Ok(code) => {
                    self.made += 1;
                    return Some((text, from_cbpf(&code).unwrap()));
                }
                Err(error) if error.kind == CompileErrorKind::Unavailable => {
                    println!("skipped: {error}");
                    return None;
                }
                Err(_) => self.refused += 1,
            }
            assert!(self.refused < 4 * self.made + 1000, "libpcap refuses nearly everything");
        }
    }
}

/// Addresses and ports of the frames, so that expressions match some of them.
struct Seen {
    addresses: Vec<String>,
    ports: Vec<u16>,
}

fn primitive(random: &mut Random, seen: &Seen) -> String {
    let address = |random: &mut Random| seen.addresses[random.below(seen.addresses.len())].clone();
    let port = |random: &mut Random| seen.ports[random.below(seen.ports.len())];
    let way = random.of(&["", "src ", "dst ", "src or dst ", "src and dst "]);
    match random.below(14) {
        0 => random
            .of(&["ip", "ip6", "tcp", "udp", "icmp", "icmp6", "arp", "vlan", "mpls", "sctp", "igmp", "pppoes"])
            .into(),
        1 => format!("{way}host {}", address(random)),
        2 => format!("{way}net {}", ["10.0.0.0/8", "192.168.0.0/16", "fe80::/10", "0.0.0.0/1"][random.below(4)]),
        3 => format!("{way}port {}", port(random)),
        4 => format!("{} {way}port {}", random.of(&["tcp", "udp"]), port(random)),
        5 => {
            let low = port(random);
            format!("{way}portrange {low}-{}", low.saturating_add(random.below(5000) as u16))
        }
        6 => format!("{} {}", random.of(&["less", "greater"]), random.below(1600)),
        7 => format!("vlan {}", random.below(8)),
        8 => format!("ether proto 0x{:04x}", [0x800, 0x806, 0x86dd, 0x8100, 0x8847][random.below(5)]),
        9 => format!("{} proto {}", random.of(&["ip", "ip6"]), [1, 6, 17, 41, 47, 58][random.below(6)]),
        10 => random.of(&["ether broadcast", "ether multicast", "ip multicast", "ip6 multicast"]).into(),
        _ => {
            let base = random.of(&["ether", "ip", "ip6", "tcp", "udp", "icmp"]);
            let size = [1, 2, 4][random.below(3)];
            let offset = match random.below(4) {
                0 => format!("(({base}[{}] & 0xf) * {})", random.below(20), 1 + random.below(8)),
                1 => format!("len - {}", 1 + random.below(60)),
                _ => {
                    let end = [300, 40, 40][random.below(3)];
                    random.below(end).to_string()
                }
            };
            let operation =
                random.of(&["", " & 0xff", " + 7", " - len", " * 3", " / 3", " % 7", " << 1", " >> 2", " | 1", " ^ 5"]);
            let compare = random.of(&["=", "!=", "<", ">", "<=", ">="]);
            let end = [2, 300, 70_000][random.below(3)];
            format!("{base}[{offset}:{size}]{operation} {compare} {}", random.below(end))
        }
    }
}

/// Typed selectors and a program joined by `and`, `or` and `not`, up to this depth.
fn typed(random: &mut Random, depth: usize, program: &Program) -> program::Expression {
    use program::Expression;
    let parts = |random: &mut Random| (0..1 + random.below(3)).map(|_| typed(random, depth - 1, program)).collect();
    match random.below(if depth == 0 { 2 } else { 6 }) {
        0 if random.below(4) == 0 => Expression::Program(program.clone()),
        0 | 1 => Expression::Packet(predicate(random)),
        2 => Expression::Not(Box::new(typed(random, depth - 1, program))),
        3 | 4 => Expression::All(parts(random)),
        _ => Expression::Any(parts(random)),
    }
}

fn predicate(random: &mut Random) -> Predicate {
    let byte = |random: &mut Random| [(0, 0x7f), (6, 17), (58, 58)][random.below(3)];
    match random.below(9) {
        0 => Predicate::Version([4, 6][random.below(2)]),
        1 => Predicate::Protocol([None, Some(vec![byte(random)])][random.below(2)].clone()),
        2 => {
            let ranges = vec![(53, 53), (80, 443), (1024, [9000, 65_535][random.below(2)])];
            Predicate::Ports(Ports { source: random.below(2) == 0, destination: true, ranges })
        }
        3 => Predicate::Icmp([None, Some(vec![byte(random), (128, 129)])][random.below(2)].clone()),
        4 => {
            let (ten, link) = (0x0a00_0000, 0xfe80_u128 << 112);
            let v4 = vec![(ten, ten | 0xff_ffff), (0x8000_0000, u32::MAX)];
            Predicate::Addresses(Addresses { v4, v6: vec![(link, link | u128::MAX >> 10)] })
        }
        5 => Predicate::Vlan([None, Some(vec![(0, 3), (7, 7)])][random.below(2)].clone()),
        6 => Predicate::EtherType([None, Some(vec![(0x800, 0x806), (0x8100, 0x8100)])][random.below(2)].clone()),
        7 => Predicate::Fragment,
        _ => Predicate::EtherAddress([2, 0, 0, 0, 0, random.below(3) as u8]),
    }
}

/// Primitives joined by `and`, `or` and `not`, up to this depth.
fn expression(random: &mut Random, seen: &Seen, depth: usize) -> String {
    match random.below(if depth == 0 { 1 } else { 4 }) {
        0 => primitive(random, seen),
        1 => format!("not ({})", expression(random, seen, depth - 1)),
        _ => {
            let word = random.of(&["and", "or"]);
            let (left, right) = (expression(random, seen, depth - 1), expression(random, seen, depth - 1));
            format!("({left}) {word} ({right})")
        }
    }
}

/// Addresses and ports of these frames, and some others.
fn seen(frames: &[Vec<u8>]) -> Seen {
    let mut seen = Seen { addresses: vec!["10.0.0.1".into(), "fe80::1".into()], ports: vec![53, 80, 443] };
    for frame in frames {
        if frame.len() >= 38 && frame[12..14] == [8, 0] {
            let part = |at: usize| format!("{}.{}.{}.{}", frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
            seen.addresses.extend([part(26), part(30)]);
            seen.ports.push(u16::from_be_bytes([frame[36], frame[37]]));
        }
    }
    seen
}
