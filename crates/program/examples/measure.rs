//! Nanoseconds per packet: the interpreter, one packet at a time and by the batch, beside a plain switch over classic BPF.
//!
//! `cargo run --release -p program --example measure`. Programs are the output of `tcpdump -d` for Ethernet. Packets
//! lie one after the other in memory, as in a capture file. Their kinds are in random order, so that jumps are as hard
//! to predict as in real traffic. `hot` packets stay in the first-level caches, `cold` ones come from memory. The
//! results are the median of interleaved rounds, and the median of their ratios.

#[path = "../tests/all/plain/mod.rs"]
mod plain;

use program::cbpf::Instruction;
use program::{Frame, Interpreter};
use std::hint::black_box;
use std::time::Instant;

/// Code, jump if true, jump if false, constant; as `tcpdump -ddd` prints it.
type Row = (u16, u8, u8, u32);

const TCP_PORT_80: &[Row] = &[
    (0x28, 0, 0, 12),
    (0x15, 0, 6, 0x86dd),
    (0x30, 0, 0, 20),
    (0x15, 0, 15, 6),
    (0x28, 0, 0, 54),
    (0x15, 12, 0, 80),
    (0x28, 0, 0, 56),
    (0x15, 10, 11, 80),
    (0x15, 0, 10, 0x800),
    (0x30, 0, 0, 23),
    (0x15, 0, 8, 6),
    (0x28, 0, 0, 20),
    (0x45, 6, 0, 0x1fff),
    (0xb1, 0, 0, 14),
    (0x48, 0, 0, 14),
    (0x15, 2, 0, 80),
    (0x48, 0, 0, 16),
    (0x15, 0, 1, 80),
    (0x06, 0, 0, 262_144),
    (0x06, 0, 0, 0),
];

const HOST_NOT_ICMP: &[Row] = &[
    (0x28, 0, 0, 12),
    (0x15, 0, 6, 0x800),
    (0x20, 0, 0, 26),
    (0x15, 2, 0, 0x0a00_0001),
    (0x20, 0, 0, 30),
    (0x15, 0, 9, 0x0a00_0001),
    (0x30, 0, 0, 23),
    (0x15, 7, 6, 1),
    (0x15, 1, 0, 0x806),
    (0x15, 0, 5, 0x8035),
    (0x20, 0, 0, 28),
    (0x15, 2, 0, 0x0a00_0001),
    (0x20, 0, 0, 38),
    (0x15, 0, 1, 0x0a00_0001),
    (0x06, 0, 0, 262_144),
    (0x06, 0, 0, 0),
];

const PORTS_AND_NETS: &[Row] = &[
    (0x28, 0, 0, 12),
    (0x15, 19, 0, 0x86dd),
    (0x15, 0, 18, 0x800),
    (0x30, 0, 0, 23),
    (0x15, 0, 16, 6),
    (0x28, 0, 0, 20),
    (0x45, 14, 0, 0x1fff),
    (0xb1, 0, 0, 14),
    (0x48, 0, 0, 14),
    (0x15, 4, 0, 80),
    (0x15, 3, 0, 8080),
    (0x48, 0, 0, 16),
    (0x15, 1, 0, 80),
    (0x15, 0, 7, 8080),
    (0x20, 0, 0, 26),
    (0x54, 0, 0, 0xff00_0000),
    (0x15, 3, 0, 0x0a00_0000),
    (0x20, 0, 0, 30),
    (0x54, 0, 0, 0xff00_0000),
    (0x15, 0, 1, 0x0a00_0000),
    (0x06, 0, 0, 262_144),
    (0x06, 0, 0, 0),
];

/// tcp[((tcp[12]&0xf0)>>2):4]=0x47455420: it computes, so it runs on registers.
const HTTP_GET: &[Row] = &[
    (0x28, 0, 0, 12),
    (0x15, 0, 13, 0x800),
    (0x30, 0, 0, 23),
    (0x15, 0, 11, 6),
    (0x28, 0, 0, 20),
    (0x45, 9, 0, 0x1fff),
    (0xb1, 0, 0, 14),
    (0x50, 0, 0, 26),
    (0x54, 0, 0, 0xf0),
    (0x74, 0, 0, 2),
    (0x0c, 0, 0, 0),
    (0x07, 0, 0, 0),
    (0x40, 0, 0, 14),
    (0x15, 0, 1, 0x4745_5420),
    (0x06, 0, 0, 262_144),
    (0x06, 0, 0, 0),
];

/// A generator of pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// A frame: 5 % ARP, 10 % IPv6, the rest IPv4, 80 % of that TCP. Ports and addresses come from short lists.
fn frame(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; length];
    let port = |random: &mut Random| [80u16, 443, 8080, 53, 40_000, 50_000][random.below(6)].to_be_bytes();
    let address = |random: &mut Random| [[10, 0, 0, 1], [10, 1, 2, 3], [192, 168, 0, 1], [8, 8, 8, 8]][random.below(4)];
    let kind = random.below(100);
    let tcp = random.below(100) < 80;
    if kind < 5 {
        bytes[12..14].copy_from_slice(&[0x08, 0x06]);
    } else if kind < 15 {
        bytes[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        bytes[20] = if tcp { 6 } else { 17 };
        bytes[54..56].copy_from_slice(&port(random));
        bytes[56..58].copy_from_slice(&port(random));
    } else {
        bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        bytes[23] = if tcp { 6 } else { 17 };
        bytes[26..30].copy_from_slice(&address(random));
        bytes[30..34].copy_from_slice(&address(random));
        bytes[34..36].copy_from_slice(&port(random));
        bytes[36..38].copy_from_slice(&port(random));
        bytes[46] = 0x50;
    }
    bytes
}

fn nanoseconds(packets: usize, mut run: impl FnMut() -> u64) -> f64 {
    let rounds = (400_000 / packets).max(1);
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(run());
    }
    start.elapsed().as_secs_f64() * 1e9 / (rounds * packets) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let programs = [
        ("tcp port 80", TCP_PORT_80),
        ("host 10.0.0.1 and not icmp", HOST_NOT_ICMP),
        ("(tcp port 80 or tcp port 8080) and (src net 10.0.0.0/8 or dst net 10.0.0.0/8)", PORTS_AND_NETS),
        ("tcp[((tcp[12]&0xf0)>>2):4]=0x47455420", HTTP_GET),
    ];
    println!(
        "{:>5} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7}  expression",
        "bytes", "where", "plain", "run", "select", "x run", "x sel"
    );
    for (length, cold) in [(64, false), (64, true), (1500, false), (1500, true)] {
        let count = if cold { 64 * 1024 * 1024 / length } else { 16 * 1024 / 64 * 4 };
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        // As in a capture file: a record header of 16 bytes before each packet.
        let stride = length + 16;
        let mut memory = vec![0u8; stride * count];
        for record in memory.chunks_exact_mut(stride) {
            record[16..].copy_from_slice(&frame(&mut random, length));
        }
        let wire_len = u32::try_from(length).unwrap();
        let packet = |at: usize| &memory[at * stride + 16..(at + 1) * stride];
        for (expression, rows) in programs {
            let code: Vec<Instruction> =
                rows.iter().map(|&(code, jt, jf, k)| Instruction { code, jt, jf, k }).collect();
            let interpreter = Interpreter::from_cbpf(&code).unwrap();
            let plain = || (0..count).filter(|&at| plain::run(&code, packet(at), wire_len) != 0).count() as u64;
            let one = || (0..count).filter(|&at| interpreter.run(packet(at), wire_len) != 0).count() as u64;
            let batch = || {
                let mut passed = 0;
                let mut frames = [Frame::default(); program::interpreter::SELECT_FRAMES];
                let mut at = 0;
                while at < count {
                    let take = frames.len().min(count - at);
                    for (place, frame) in frames[..take].iter_mut().enumerate() {
                        *frame = Frame { bytes: packet(at + place), wire_len };
                    }
                    passed += u64::from(interpreter.select(&frames[..take]).count_ones());
                    at += take;
                }
                passed
            };
            assert_eq!((plain(), plain()), (one(), batch()), "all three agree");
            let (mut times, mut ratios) = ([vec![], vec![], vec![]], [vec![], vec![]]);
            for _ in 0..31 {
                let round = [nanoseconds(count, plain), nanoseconds(count, one), nanoseconds(count, batch)];
                times.iter_mut().zip(round).for_each(|(times, time)| times.push(time));
                ratios.iter_mut().zip([1, 2]).for_each(|(ratios, of)| ratios.push(round[0] / round[of]));
            }
            let [plain, one, batch] = times.map(|mut times| median(&mut times));
            let [run, select] = ratios.map(|mut ratios| median(&mut ratios));
            let place = if cold { "cold" } else { "hot" };
            println!(
                "{length:>5} {place:>5} {plain:>7.1} {one:>7.1} {batch:>7.1} {run:>7.2} {select:>7.2}  {expression}"
            );
        }
    }
}
