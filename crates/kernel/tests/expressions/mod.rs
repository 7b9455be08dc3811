//! Random expressions of tcpdump's language, of every sort that libpcap makes code for.

use testkit::random::Random;

/// What appears in the frames, so that expressions have something to say of them.
pub struct Seen {
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

/// Primitives joined by `and`, `or` and `not`, so deep at most.
pub fn expression(random: &mut Random, seen: &Seen, depth: usize) -> String {
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

/// Addresses and ports of these frames, and some besides.
pub fn seen(frames: &[Vec<u8>]) -> Seen {
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
