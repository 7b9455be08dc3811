//! Verdicts of the kernel's program and of the interpreter never differ: random expressions over real frames.
//!
//! 2,000 expressions; `STREAMLINE_EXPRESSIONS=10000 cargo test --release -p kernel --test verdicts` asks more.

use buffer::live::{LiveMemory, LiveReader, Look};
use buffer::shared::segment::Access;
use kernel::{Expression, Tap, Way};
use program::{Compile, CompileErrorKind, Interpreter, from_cbpf};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most expressions of one program.
const AT_ONCE: usize = 40;

/// Frames of one capture, and of all.
const FRAMES_OF_ONE: usize = 12;
const FRAMES: usize = 400;

/// Longest frame a test run takes.
const LONGEST: usize = 3000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// What appears in the frames, so that expressions have something to say of them.
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

/// Ethernet frames of classic captures in a folder.
fn frames_below(folder: &Path, frames: &mut Vec<Vec<u8>>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            frames_below(&path, frames);
            continue;
        }
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let word =
            |at: usize| bytes.get(at..at + 4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        if word(0) != Some(0xa1b2_c3d4) || word(20) != Some(1) {
            continue;
        }
        let mut at = 24;
        for _ in 0..FRAMES_OF_ONE {
            let Some(frame) = word(at + 8).and_then(|len| bytes.get(at + 16..at + 16 + len as usize)) else { break };
            at += 16 + frame.len();
            if (15..=LONGEST).contains(&frame.len()) {
                frames.push(frame.to_vec());
            }
        }
    }
}

/// Real frames, and the same cut, tagged and damaged.
fn frames(random: &mut Random) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("STREAMLINE_SHARED").map_or(root.join("../shared"), PathBuf::from);
    let mut real = Vec::new();
    frames_below(&root.join("captures"), &mut real);
    frames_below(&shared.join("data/captures"), &mut real);
    let step = real.len().div_ceil(FRAMES).max(1);
    let mut frames: Vec<Vec<u8>> = real.into_iter().step_by(step).collect();
    for number in 0..frames.len() {
        let mut frame = frames[number].clone();
        match number % 4 {
            0 => frame.truncate(15 + random.below(frame.len())),
            1 => drop(frame.splice(12..12, [0x81, 0, 0, random.below(8) as u8])),
            2 => drop(frame.splice(12..12, [0x88, 0xa8, 0, 3, 0x81, 0, 0, random.below(8) as u8])),
            _ => (0..4).for_each(|_| {
                let at = random.below(frame.len());
                frame[at] = random.next() as u8;
            }),
        }
        frames.push(frame);
    }
    frames
}

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

#[test]
fn verdicts_never_differ() {
    let wanted = std::env::var("STREAMLINE_EXPRESSIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let mut tap = match Tap::new(1 << 20, true).and_then(|mut tap| tap.prepare(Way::In).map(|()| tap)) {
        Ok(tap) => tap,
        Err(error) => return println!("skipped: {error}"),
    };
    let mut random = Random(0x5eed_0123_4567_89ab);
    let frames = frames(&mut random);
    assert!(frames.len() > 20, "{} frames", frames.len());
    let seen = seen(&frames);
    let compiler = testkit::Compiler::new();
    let memory = LiveMemory::map(tap.areas(), tap.geometry(), Access::Read).unwrap();
    let mut reader = LiveReader::new(memory, 1 << 63);
    let (mut asked, mut compared, mut accepted, mut refused) = (0usize, 0u64, 0u64, 0usize);
    while asked < wanted {
        let mut programs = Vec::new();
        let at_once = 1 + random.below(AT_ONCE);
        while programs.len() < at_once {
            let text = expression(&mut random, &seen, 2);
            match compiler.compile(&text, 1, 262_144) {
                Ok(code) => programs.push((text, code)),
                Err(error) if error.kind == CompileErrorKind::Unavailable => return println!("skipped: {error}"),
                // libpcap has its own mind on what may be combined.
                Err(_) => refused += 1,
            }
            assert!(refused < 4 * wanted + 1000, "libpcap refuses nearly everything");
        }
        asked += programs.len();
        let lowered = programs.iter().map(|(_, code)| Some(Arc::new(from_cbpf(code).unwrap())));
        let expressions: Vec<Expression> = lowered
            .chain([None])
            .zip((0..at_once as u8).chain([63]))
            .map(|(program, bit)| Expression { bit, program, incoming: true, outgoing: true })
            .collect();
        tap.set(&expressions)
            .unwrap_or_else(|error| panic!("{error}: {:?}", programs.iter().map(|(text, _)| text).collect::<Vec<_>>()));
        let interpreters: Vec<_> = programs.iter().map(|(_, code)| Interpreter::from_cbpf(code).unwrap()).collect();
        for frame in &frames {
            if tap.test_run(Way::In, frame, 1).is_err() {
                // Too short for the header of IP that it says it has: test runs do not take it.
                continue;
            }
            let Look::Packet(packet) = reader.look() else { panic!("nothing was written") };
            reader.advance();
            for (bit, interpreter) in interpreters.iter().enumerate() {
                let expected = interpreter.run(frame, frame.len() as u32) != 0;
                compared += 1;
                accepted += u64::from(expected);
                let found = packet.facts.wanted & 1 << bit != 0;
                assert_eq!(found, expected, "`{}` on {frame:02x?}", programs[bit].0);
            }
        }
    }
    println!("{asked} expressions, {compared} verdicts, {accepted} of them yes; libpcap refused {refused}");
    assert!(accepted > compared / 50 && accepted < compared - compared / 50);
}
