//! A capture of hostile traffic with honest traffic among it: floods of SYNs, of fragments and of segments out of order, heads
//! without an end, compressed bodies that grow without one, and messages of which half comes. The same for each seed.
//!
//! Attackers do only things that any sender can do: they know addresses and ports, and not what a filter draws at random. What filters
//! must make of it is in `tests/attack.rs`.

use crate::captures::{Content, prose};
use crate::packets::{Conversation, End, PcapWriter, SEGMENT_BYTES, flag};
use crate::random::Random;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;

/// What honest clients and servers did.
#[derive(Clone, Debug, Default)]
pub struct Honest {
    /// Every body that an honest server sent, content coding undone.
    pub bodies: Vec<Content>,
}

/// The name of the honest servers' host.
pub const HOST: &str = "honest.example";

/// Sorts of hostile traffic, and how many of 1,000 turns each has.
const TURNS: [(Turn, usize); 7] = [
    (Turn::Syns, 250),
    (Turn::Fragments, 150),
    (Turn::Ahead, 150),
    (Turn::Head, 150),
    (Turn::Bomb, 1),
    (Turn::Half, 100),
    (Turn::Honest, 199),
];

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// SYNs from anywhere.
    Syns,
    /// Fragments of packets that are never whole.
    Fragments,
    /// Segments behind a hole that nothing fills.
    Ahead,
    /// More of the head of a request that has no end.
    Head,
    /// A response of little that becomes much.
    Bomb,
    /// The first part of a message of DNS or TLS.
    Half,
    /// A part of an honest download.
    Honest,
}

/// Frames of one turn; a bomb has more.
const BURST: usize = 8;

/// Bytes that a bomb becomes.
const BOMB_BYTES: usize = 16 << 20;

/// Connections that attackers use at a time, of each sort, and honest ones. An attacker leaves one open and begins another after
/// `TURNS_EACH` turns, on average.
const OPEN: usize = 16;
const TURNS_EACH: usize = 16;
const HONEST: usize = 16;

/// Writes a capture of about `bytes` bytes.
pub fn write(file: File, bytes: u64, seed: u64) -> io::Result<Honest> {
    let mut writer = PcapWriter::new(file)?;
    let mut random = Random::new(seed);
    let mut attack = Attack::new(&mut writer, &mut random)?;
    let all: usize = TURNS.iter().map(|(_, count)| count).sum();
    while writer.bytes < bytes {
        let mut left = random.below(all);
        let turn = TURNS.iter().find(|(_, count)| {
            let is_it = left < *count;
            left = left.saturating_sub(*count);
            is_it
        });
        if let Some((turn, _)) = turn {
            attack.take(*turn, &mut writer, &mut random)?;
        }
    }
    for mut download in attack.downloads {
        while !download.is_done() {
            download.step(&mut writer, &mut random)?;
        }
        download.talk.close(&mut writer)?;
    }
    writer.finish()?;
    Ok(attack.honest)
}

/// The same into a file of this path.
pub fn write_file(path: &Path, bytes: u64, seed: u64) -> Result<Honest, String> {
    let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
    write(file, bytes, seed).map_err(|error| format!("{}: {error}", path.display()))
}

struct Attack {
    downloads: Vec<Download>,
    honest: Honest,
    ahead: Vec<Conversation>,
    heads: Vec<Conversation>,
    bomb: Vec<u8>,
    /// Connections of bombs and of half messages so far.
    begun: usize,
}

fn server(number: usize, port: u16) -> End {
    (Ipv4Addr::new(192, 0, 2, (number % 250) as u8 + 1), port)
}

/// Of the attackers' own networks: each has all ports.
fn attacker(random: &mut Random) -> End {
    let word = random.word();
    (Ipv4Addr::from(0x1400_0000 | (word as u32 & 0x00ff_ffff)), (word >> 32) as u16 | 1024)
}

fn opened(ends: [End; 2], writer: &mut PcapWriter, random: &mut Random) -> io::Result<Conversation> {
    let mut talk = Conversation::new(ends[0], ends[1], [random.word() as u32; 2]);
    talk.open(writer)?;
    Ok(talk)
}

/// A connection whose first byte never comes.
fn ahead(writer: &mut PcapWriter, random: &mut Random) -> io::Result<Conversation> {
    let mut talk = opened([attacker(random), server(random.below(250), 80)], writer, random)?;
    talk.pass_over(0, 1);
    Ok(talk)
}

/// A connection whose client has begun with a request.
fn head(writer: &mut PcapWriter, random: &mut Random) -> io::Result<Conversation> {
    let mut talk = opened([attacker(random), server(random.below(250), 80)], writer, random)?;
    talk.send(writer, 0, flag::ACK, b"GET / HTTP/1.1\r\n")?;
    Ok(talk)
}

fn coded(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

impl Attack {
    fn new(writer: &mut PcapWriter, random: &mut Random) -> io::Result<Attack> {
        let mut attack = Attack {
            downloads: Vec::new(),
            honest: Honest::default(),
            ahead: Vec::new(),
            heads: Vec::new(),
            bomb: coded(&vec![0; BOMB_BYTES])?,
            begun: 0,
        };
        for number in 0..HONEST {
            let client = (Ipv4Addr::new(10, 0, 0, number as u8 + 1), 40_000);
            let talk = opened([client, server(number, 80)], writer, random)?;
            attack.downloads.push(Download { talk, response: Vec::new(), sent: 0 });
        }
        for _ in 0..OPEN {
            attack.ahead.push(ahead(writer, random)?);
            attack.heads.push(head(writer, random)?);
        }
        attack.bomb(writer, random)?;
        Ok(attack)
    }

    fn take(&mut self, turn: Turn, writer: &mut PcapWriter, random: &mut Random) -> io::Result<()> {
        let mut payload = [0; SEGMENT_BYTES];
        match turn {
            Turn::Syns => {
                for _ in 0..BURST {
                    let ends = [attacker(random), server(random.below(250), 80)];
                    Conversation::new(ends[0], ends[1], [random.word() as u32; 2]).send(writer, 0, flag::SYN, &[])?;
                }
            }
            Turn::Fragments => {
                for _ in 0..BURST {
                    random.fill(&mut payload);
                    let ends = [attacker(random).0, server(random.below(250), 0).0];
                    // First ones, and ones that lie behind a hole: long ones, and as many short ones.
                    let at = (random.below(2) * random.below(200)) as u16;
                    let length = [1440, 8][random.below(2)];
                    writer.fragment(ends, random.word() as u16, (at, true), &payload[..length])?;
                }
            }
            Turn::Ahead => {
                let talk = &mut self.ahead[random.below(OPEN)];
                if random.below(TURNS_EACH) == 0 {
                    *talk = ahead(writer, random)?;
                }
                for _ in 0..BURST {
                    random.fill(&mut payload);
                    let length = 1 + random.below(SEGMENT_BYTES);
                    talk.send(writer, 0, flag::ACK, &payload[..length])?;
                }
            }
            Turn::Head => {
                let talk = &mut self.heads[random.below(OPEN)];
                if random.below(TURNS_EACH) == 0 {
                    *talk = head(writer, random)?;
                }
                payload.fill(b'x');
                payload[..5].copy_from_slice(b"X-A: ");
                payload[SEGMENT_BYTES - 2..].copy_from_slice(b"\r\n");
                for _ in 0..BURST {
                    talk.send(writer, 0, flag::ACK, &payload)?;
                }
            }
            Turn::Bomb => self.bomb(writer, random)?,
            Turn::Half => self.half(writer, random)?,
            Turn::Honest => {
                let download = &mut self.downloads[random.below(HONEST)];
                if download.is_done() {
                    download.begin(writer, random, &mut self.honest)?;
                }
                for _ in 0..BURST {
                    download.step(writer, random)?;
                }
            }
        }
        Ok(())
    }

    fn bomb(&mut self, writer: &mut PcapWriter, random: &mut Random) -> io::Result<()> {
        self.begun += 1;
        let mut talk = opened([attacker(random), server(self.begun, 80)], writer, random)?;
        talk.send(writer, 0, flag::ACK, b"GET /bomb HTTP/1.1\r\nHost: hostile.example\r\n\r\n")?;
        let length = self.bomb.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
        talk.send(writer, 1, flag::ACK, head.as_bytes())?;
        self.bomb.chunks(SEGMENT_BYTES).try_for_each(|part| talk.send(writer, 1, flag::ACK, part))?;
        talk.close(writer)
    }

    /// A hello of TLS, or a message of DNS, whose length says more than ever comes; the connection stays open.
    fn half(&mut self, writer: &mut PcapWriter, random: &mut Random) -> io::Result<()> {
        self.begun += 1;
        let (port, start): (u16, &[u8]) = match self.begun % 2 {
            0 => (443, &[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3]),
            _ => (53, b"\xff\xff\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01"),
        };
        let mut talk = opened([attacker(random), server(self.begun, port)], writer, random)?;
        let mut message = vec![b'a'; BURST * SEGMENT_BYTES];
        message[..start.len()].copy_from_slice(start);
        message.chunks(SEGMENT_BYTES).try_for_each(|part| talk.send(writer, 0, flag::ACK, part))
    }
}

/// An honest client's connection, with one response after the other.
struct Download {
    talk: Conversation,
    response: Vec<u8>,
    sent: usize,
}

impl Download {
    fn is_done(&self) -> bool {
        self.sent == self.response.len()
    }

    fn begin(&mut self, writer: &mut PcapWriter, random: &mut Random, honest: &mut Honest) -> io::Result<()> {
        let number = honest.bodies.len();
        let request = format!("GET /{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        self.talk.send(writer, 0, flag::PSH | flag::ACK, request.as_bytes())?;
        let octave = 1024 << random.below(10);
        let length = octave + random.below(octave);
        let is_coded = random.below(4) == 0;
        let mut body = if is_coded { prose(random, length) } else { vec![0; length] };
        if !is_coded {
            random.fill(&mut body);
        }
        honest.bodies.push(Content::of(&body));
        let coding = if is_coded { "Content-Encoding: gzip\r\n" } else { "" };
        let body = if is_coded { coded(&body)? } else { body };
        let head = format!("HTTP/1.1 200 OK\r\n{coding}Content-Length: {}\r\n\r\n", body.len());
        self.response = [head.as_bytes(), &body].concat();
        self.sent = 0;
        Ok(())
    }

    /// Sends the next segment; one in 32 comes behind the one that follows it.
    fn step(&mut self, writer: &mut PcapWriter, random: &mut Random) -> io::Result<()> {
        let part = |start: usize| start..self.response.len().min(start + SEGMENT_BYTES);
        let (first, second) = (part(self.sent), part(part(self.sent).end));
        if first.is_empty() {
            return Ok(());
        }
        let mut late = self.talk.clone();
        if !second.is_empty() && random.below(32) == 0 {
            self.talk.pass_over(1, first.len() as u32);
            self.talk.send(writer, 1, flag::ACK, &self.response[second.clone()])?;
            late.send(writer, 1, flag::ACK, &self.response[first])?;
            self.sent = second.end;
        } else {
            self.talk.send(writer, 1, flag::ACK, &self.response[first.clone()])?;
            self.sent = first.end;
        }
        self.talk.send(writer, 0, flag::ACK, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_each_time() {
        let made = |seed| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let honest = write(file.reopen().unwrap(), 300_000, seed).unwrap();
            (std::fs::read(file.path()).unwrap(), honest.bodies)
        };
        let first = made(1);
        assert!(first == made(1) && first.0 != made(2).0);
        assert!(!first.1.is_empty());
    }
}
