//! Decompression bombs in HTTP, as frames of a capture. Their output is limited, and a cut body is reported.

use serde_json::Value;
use std::io::Write;
use testkit::packets::{CLIENT, Conversation, SERVER};
use testkit::{Chain, Outcome};

const MIB: u64 = 1 << 20;

/// gzip of `bytes` zeros, made without holding them in memory.
fn gzip_zeros(mut bytes: u64) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    while bytes > 0 {
        let len = bytes.min(MIB);
        encoder.write_all(&vec![0; len as usize]).unwrap();
        bytes -= len;
    }
    encoder.finish().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bits in brotli's order, lowest first.
#[derive(Default)]
struct Bits(Vec<u8>, usize);

impl Bits {
    fn put(&mut self, count: usize, value: u64) -> &mut Self {
        for bit in 0..count {
            self.0.resize(self.1 / 8 + 1, 0);
            self.0[self.1 / 8] |= ((value >> bit & 1) as u8) << (self.1 % 8);
            self.1 += 1;
        }
        self
    }
}

/// Brotli of `metablocks` times 16 MiB of zeros (RFC 7932 section 9). Each metablock has one command: insert four
/// literals and copy the rest from distance 4. Every prefix code has one symbol, which takes no bits.
fn brotli_zeros(metablocks: usize) -> Vec<u8> {
    const LEN: u64 = 1 << 24;
    let mut bits = Bits::default();
    bits.put(1, 1).put(3, 5); // WBITS: 22
    for _ in 0..metablocks {
        bits.put(1, 0).put(2, 2).put(24, LEN - 1).put(1, 0); // not the last; six nibbles; compressed
        bits.put(3, 0).put(6, 0).put(2, 0).put(2, 0); // one block type each, no postfix, context mode 0, one tree each
        bits.put(4, 1).put(8, 0); // literals: 0
        bits.put(4, 1).put(10, 384 + (4 << 3) + 7); // insert 4, copy code 23
        bits.put(4, 1).put(6, 0); // distance: the last, which is 4
        bits.put(24, LEN - 4 - 2118);
    }
    bits.put(2, 3);
    bits.0
}

/// gzip of stored blocks without bytes: input that decodes to no output.
fn gzip_of_nothing(blocks: usize) -> Vec<u8> {
    let mut coded = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    coded.extend_from_slice(&[0, 0, 0, 0xff, 0xff].repeat(blocks));
    coded.extend_from_slice(&[1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    coded
}

/// Frames of a connection: each body answers a request. A body without coding comes last.
fn conversation(bodies: &[(&str, Vec<u8>)]) -> Chain {
    let mut frames = Conversation::open(CLIENT, SERVER, 1000);
    let mut exchange = |coding: &str, body: &[u8]| {
        frames.send(0, b"GET /bomb HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len());
        for segment in [head.as_bytes(), body].concat().chunks(1448) {
            frames.send(1, segment);
        }
    };
    for (coding, body) in bodies {
        exchange(coding, body);
    }
    exchange("identity", b"the next message is whole");
    Chain::frames(1, &frames.frames).then(&filters::tcp::KIND, &[])
}

fn lines(outcome: &Outcome) -> Vec<Value> {
    let responses = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["http"].clone());
    responses.filter(|http| http["direction"] == "response").collect()
}

/// Checks that the bomb is cut at 1 MiB plus 100 times its coded bytes, and that the next message is whole.
fn check(coding: &str, body: Vec<u8>) {
    let most = MIB + 100 * body.len() as u64;
    let outcome = conversation(&[(coding, body)]).then(&filters::http::KIND, &[]).then(&filters::json::KIND, &[]).run();
    let lines = lines(&outcome);
    let length = lines[0]["length"].as_u64().unwrap();
    assert!(length <= most, "{coding}: {length} of {most}");
    assert_eq!((&lines[0]["state"], &lines[0]["reason"]), (&"truncated".into(), &"limit".into()), "{coding}");
    assert_eq!((&lines[1]["length"], &lines[1]["state"]), (&25.into(), &"complete".into()));
    assert!(lines[1].get("reason").is_none());
    let counters = outcome.counters("http");
    assert_eq!(counters.events.get("bodies cut at max-ratio"), 1, "{coding}");
    assert!(counters.drops.get("body over max-ratio") > 0, "{coding}");
}

#[test]
fn one_coding() {
    check("gzip", gzip_zeros(16 * MIB));
    check("br", brotli_zeros(4));
}

/// The output of the outer codings counts too: it costs time, however little the innermost gives.
#[test]
fn codings_on_top_of_each_other() {
    check("gzip, gzip", gzip(&gzip_zeros(16 * MIB)));
    check("br, gzip", gzip(&brotli_zeros(100)));
    check("gzip, gzip", gzip(&gzip_of_nothing(1 << 20)));
    check("gzip, gzip, gzip", gzip(&gzip(&gzip_of_nothing(2 << 20))));
}

/// Each of these bodies may give 1 MiB, but all together at most 64 MiB plus 100 times their coded bytes. A message
/// with a small ratio is decoded to its end, however much the other messages have used up.
#[test]
fn many_small_ones() {
    const COUNT: usize = 80;
    let bomb = brotli_zeros(1);
    let most = 64 * MIB + 100 * (COUNT * bomb.len()) as u64;
    let mut bodies: Vec<_> = (0..COUNT).map(|_| ("br", bomb.clone())).collect();
    let text: Vec<u8> = (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect();
    bodies.push(("gzip", gzip(&text)));
    let chain = conversation(&bodies).then(&filters::http::KIND, &[]).then(&filters::json::KIND, &[]);
    let lines = lines(&chain.run());
    let total: u64 = lines[..COUNT].iter().map(|line| line["length"].as_u64().unwrap()).sum();
    assert!(total <= most && total >= 64 * MIB, "{total} of {most}");
    assert!(lines[..COUNT].iter().all(|line| line["reason"] == "limit"));
    assert_eq!((&lines[COUNT]["length"], &lines[COUNT]["state"]), (&text.len().into(), &"complete".into()));
}

#[test]
fn files_say_what_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let bomb = brotli_zeros(128);
    assert!(bomb.len() < 2000, "two GiB");
    let most = MIB + 100 * bomb.len() as u64;
    let chain = conversation(&[("br", bomb)]).then(&filters::http::KIND, &[]);
    let outcome = chain.then(&filters::files::KIND, &[("dir", dir), ("hash", "no")]).run();
    assert_eq!(outcome.failure, None);
    let index = std::fs::read_to_string(folder.path().join("index.jsonl")).unwrap();
    let rows: Vec<Value> = index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["state"], &rows[0]["reason"]), (&"truncated".into(), &"limit".into()));
    let size = std::fs::metadata(folder.path().join(rows[0]["file"].as_str().unwrap())).unwrap().len();
    assert!(size <= most && rows[0]["size"] == size, "{size} of {most}");
    assert_eq!(rows[1]["state"], "complete");
}

#[test]
fn max_ratio_is_a_parameter() {
    let body = brotli_zeros(1);
    for (ratio, expected) in [("0", MIB), ("10000000", 16 * MIB)] {
        let chain = conversation(&[("br", body.clone())]).then(&filters::http::KIND, &[("max-ratio", ratio)]);
        let lines = lines(&chain.then(&filters::json::KIND, &[]).run());
        assert_eq!(lines[0]["length"], expected, "max-ratio={ratio}");
    }
}
