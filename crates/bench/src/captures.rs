//! The captures for measurements. They are made here, the same on every machine, and kept in a folder under a name that
//! says how they were made. A file of facts beside each one serves to check results.

use crate::packets::{Conversation, End, PcapWriter, SEGMENT_BYTES, flag};
use crate::random::Random;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Part of the names; changed whenever the same parameters would give other bytes.
const EDITION: u32 = 2;

/// Powers of two that bodies of 1 KB to 4 MB have.
const ORDERS: usize = 12;

/// A run of bytes that has to come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content {
    /// Its length in bytes.
    pub size: u64,
    /// FNV-1a of its bytes, 64 bits: against mistakes, not against attackers.
    pub hash: u64,
}

impl Default for Content {
    fn default() -> Self {
        Content { size: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Content {
    /// The content of these bytes.
    pub fn of(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.add(bytes);
        content
    }

    /// Adds bytes at the end.
    pub fn add(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// A capture with facts about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The file.
    pub path: PathBuf,
    /// Frames in it.
    pub frames: u64,
    /// Frames of TCP with port 80.
    pub web_frames: u64,
    /// All directions of TCP connections that carry bytes, sorted.
    pub streams: Vec<Content>,
    /// All bodies of HTTP responses without content coding, sorted.
    pub bodies: Vec<Content>,
}

/// The folder of captures.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// Facts about a capture that its maker knows.
#[derive(Default)]
struct Facts {
    web_frames: u64,
    streams: Vec<Content>,
    bodies: Vec<Content>,
}

fn client(number: usize) -> End {
    // 250 clients in a network, 40 ports each: addresses and ports both vary.
    let address = Ipv4Addr::new(10, 1, (number / 250 % 250) as u8, (number % 250) as u8 + 1);
    (address, 40_000 + (number % 20_000) as u16)
}

fn server(number: usize, port: u16) -> End {
    (Ipv4Addr::new(192, 0, 2, (number % 250) as u8 + 1), port)
}

impl Store {
    /// A store in this folder, which is made if it is missing.
    pub fn new(folder: &Path) -> Result<Store, String> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Store { folder: folder.to_owned() })
    }

    /// A few large, interleaved flows with frames as long as the link allows: servers on port 80 send, clients
    /// acknowledge every sixteenth segment. `bytes` is the approximate size of the file.
    pub fn large_flows(&self, flows: usize, bytes: u64) -> Result<Capture, String> {
        self.keep(&format!("large-flows-{flows}-{bytes}"), |writer| {
            let mut random = Random::new(1);
            let mut facts = Facts::default();
            let mut talks = Vec::new();
            for number in 0..flows {
                let mut talk = Conversation::new(client(number), server(number, 80), [random.word() as u32; 2]);
                talk.open(writer)?;
                let request = format!("GET /file/{number} HTTP/1.0\r\nHost: example.net\r\n\r\n");
                talk.send(writer, 0, flag::PSH | flag::ACK, request.as_bytes())?;
                facts.streams.push(Content::of(request.as_bytes()));
                talks.push((talk, Content::default(), 0));
            }
            let mut payload = [0; SEGMENT_BYTES];
            while writer.bytes + 16 * writer.frames < bytes {
                let (talk, content, sent) = &mut talks[random.below(flows)];
                random.fill(&mut payload);
                talk.send(writer, 1, flag::ACK, &payload)?;
                content.add(&payload);
                *sent += 1;
                if *sent % 16 == 0 {
                    talk.send(writer, 0, flag::ACK, &[])?;
                }
            }
            for (mut talk, content, _) in talks {
                talk.close(writer)?;
                facts.streams.push(content);
            }
            facts.web_frames = writer.frames;
            Ok(facts)
        })
    }

    /// Frames of 64 bytes with their check sequence: every other one TCP with port 80, the others UDP.
    pub fn small_frames(&self, frames: u64) -> Result<Capture, String> {
        self.keep(&format!("small-frames-{frames}"), |writer| {
            let mut random = Random::new(2);
            let mut talks = Vec::new();
            for number in 0..64 {
                let talk = Conversation::new(client(number), server(number, 80), [random.word() as u32; 2]);
                talks.push((talk.without_stamps(), [Content::default(); 2]));
            }
            let mut facts = Facts::default();
            let mut payload = [0; 22];
            while writer.frames < frames {
                let number = random.below(talks.len());
                random.fill(&mut payload);
                if random.word() & 1 == 0 {
                    let (talk, contents) = &mut talks[number];
                    let from = random.below(2);
                    talk.send(writer, from, flag::ACK, &payload[..10])?;
                    contents[from].add(&payload[..10]);
                    facts.web_frames += 1;
                } else {
                    writer.udp([client(number), server(number, 53)], &payload)?;
                }
            }
            let contents = talks.iter().flat_map(|(_, contents)| contents);
            facts.streams = contents.filter(|content| content.size > 0).copied().collect();
            Ok(facts)
        })
    }

    /// Many small flows, all open at once; they take turns, one segment each. A flow is a request of 240 bytes and four
    /// full segments back, 6 KB in all, from the first SYN to the last FIN.
    pub fn small_flows(&self, flows: usize) -> Result<Capture, String> {
        self.keep(&format!("small-flows-{flows}"), |writer| {
            let mut random = Random::new(3);
            let mut facts = Facts::default();
            let mut talks: Vec<_> = (0..flows)
                .map(|number| {
                    let talk = Conversation::new(client(number), server(number, 80), [random.word() as u32; 2]);
                    (talk, Content::default())
                })
                .collect();
            let mut payload = [0; SEGMENT_BYTES];
            for (talk, _) in &mut talks {
                talk.open(writer)?;
            }
            for (talk, _) in &mut talks {
                let request = &mut payload[..240];
                random.fill(request);
                talk.send(writer, 0, flag::PSH | flag::ACK, request)?;
                facts.streams.push(Content::of(request));
            }
            for _ in 0..4 {
                for (talk, content) in &mut talks {
                    random.fill(&mut payload);
                    talk.send(writer, 1, flag::PSH | flag::ACK, &payload)?;
                    content.add(&payload);
                }
            }
            for (talk, content) in &mut talks {
                talk.close(writer)?;
                facts.streams.push(*content);
            }
            facts.web_frames = writer.frames;
            Ok(facts)
        })
    }

    /// HTTP/1.1 over a few connections that stay open. Bodies have 1 KB to 4 MB, the same number for each order of
    /// magnitude. One in four is coded with gzip; the others do not compress. `bytes` is the approximate size of the
    /// file.
    pub fn http(&self, connections: usize, bytes: u64) -> Result<Capture, String> {
        self.web(&format!("http-{connections}-{bytes}"), connections, bytes, (4, ORDERS))
    }

    /// Like [`http`](Store::http), with bodies of 1 to 4 KB.
    pub fn http_small(&self, connections: usize, bytes: u64) -> Result<Capture, String> {
        self.web(&format!("http-small-{connections}-{bytes}"), connections, bytes, (4, 2))
    }

    /// Like [`http`](Store::http), with all bodies coded.
    pub fn http_coded(&self, connections: usize, bytes: u64) -> Result<Capture, String> {
        self.web(&format!("http-coded-{connections}-{bytes}"), connections, bytes, (1, ORDERS))
    }

    /// Makes HTTP traffic. `bodies` is (N, P): one body in N is coded, and lengths have P orders, each twice the one
    /// before, from 1 KB on.
    fn web(&self, name: &str, connections: usize, bytes: u64, bodies: (usize, usize)) -> Result<Capture, String> {
        self.keep(name, |writer| {
            let mut random = Random::new(4);
            let mut facts = Facts::default();
            let mut talks: Vec<Exchange> = Vec::new();
            for number in 0..connections {
                let mut talk = Conversation::new(client(number), server(number, 80), [random.word() as u32; 2]);
                talk.open(writer)?;
                talks.push(Exchange { talk, response: Vec::new(), sent: 0, contents: [Content::default(); 2] });
            }
            while writer.bytes + 16 * writer.frames < bytes {
                let exchange = &mut talks[random.below(connections)];
                if exchange.is_done() {
                    exchange.begin(writer, &mut random, &mut facts, bodies)?;
                }
                for _ in 0..=random.below(8) {
                    exchange.send_segment(writer)?;
                }
            }
            for mut exchange in talks {
                while !exchange.is_done() {
                    exchange.send_segment(writer)?;
                }
                exchange.talk.close(writer)?;
                facts.streams.extend(exchange.contents.iter().filter(|content| content.size > 0));
            }
            facts.web_frames = writer.frames;
            Ok(facts)
        })
    }

    /// Random bytes, for work over memory.
    pub fn noise(&self, bytes: u64) -> Result<PathBuf, String> {
        let path = self.folder.join(format!("noise-{bytes}-{EDITION}.bin"));
        let wrong = |error: io::Error| format!("{}: {error}", path.display());
        if !path.exists() {
            let mut random = Random::new(5);
            let mut out = io::BufWriter::new(tempfile::NamedTempFile::new_in(&self.folder).map_err(wrong)?);
            let mut piece = [0; 4096];
            let mut left = bytes;
            while left > 0 {
                let here = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                random.fill(&mut piece[..here]);
                out.write_all(&piece[..here]).map_err(wrong)?;
                left -= here as u64;
            }
            let file = out.into_inner().map_err(|error| wrong(error.into_error()))?;
            file.persist(&path).map_err(|error| wrong(error.error))?;
        }
        Ok(path)
    }

    /// A file with this text, for requests that read one beside a capture.
    pub fn text(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// The capture of this name; makes it if it is missing.
    fn keep(&self, name: &str, make: impl FnOnce(&mut PcapWriter) -> io::Result<Facts>) -> Result<Capture, String> {
        let path = self.folder.join(format!("{name}-{EDITION}.pcap"));
        let facts_path = path.with_extension("json");
        if let Ok(text) = std::fs::read_to_string(&facts_path)
            && path.exists()
            && let Some(capture) = from_json(&path, &text)
        {
            return Ok(capture);
        }
        eprintln!("making {}", path.display());
        let wrong = |error: io::Error| format!("{}: {error}", path.display());
        let file = tempfile::NamedTempFile::new_in(&self.folder).map_err(wrong)?;
        let mut writer = PcapWriter::new(file.reopen().map_err(wrong)?).map_err(wrong)?;
        let mut facts = make(&mut writer).map_err(wrong)?;
        facts.streams.sort_unstable();
        facts.bodies.sort_unstable();
        let Facts { web_frames, streams, bodies } = facts;
        let capture = Capture { path: path.clone(), frames: writer.frames, web_frames, streams, bodies };
        writer.finish().map_err(wrong)?;
        file.persist(&path).map_err(|error| wrong(error.error))?;
        // The facts come last: if they exist, the capture is complete.
        let mut facts_file = File::create(&facts_path).map_err(wrong)?;
        facts_file.write_all(to_json(&capture).to_string().as_bytes()).map_err(wrong)?;
        Ok(capture)
    }
}

/// A connection with one exchange after the other.
struct Exchange {
    talk: Conversation,
    response: Vec<u8>,
    sent: usize,
    contents: [Content; 2],
}

impl Exchange {
    fn is_done(&self) -> bool {
        self.sent == self.response.len()
    }

    /// Sends a request, and prepares its response.
    fn begin(
        &mut self,
        writer: &mut PcapWriter,
        random: &mut Random,
        facts: &mut Facts,
        (one_in, orders): (usize, usize),
    ) -> io::Result<()> {
        let number = facts.bodies.len();
        let request = format!(
            "GET /object/{number} HTTP/1.1\r\nHost: example.net\r\nUser-Agent: bench\r\nAccept-Encoding: gzip\r\n\r\n"
        );
        self.talk.send(writer, 0, flag::PSH | flag::ACK, request.as_bytes())?;
        self.contents[0].add(request.as_bytes());
        let octave = 1024 << random.below(orders);
        let length = octave + random.below(octave);
        let gzip = random.below(one_in) == 0;
        let mut body = if gzip { prose(random, length) } else { vec![0; length] };
        if !gzip {
            random.fill(&mut body);
        }
        facts.bodies.push(Content::of(&body));
        let mut coding = "";
        if gzip {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&body)?;
            body = encoder.finish()?;
            coding = "Content-Encoding: gzip\r\n";
        }
        let length = body.len();
        self.response = format!(
            "HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: application/octet-stream\r\n{coding}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        self.response.extend_from_slice(&body);
        self.sent = 0;
        Ok(())
    }

    /// Sends the next segment of the response, and the client's acknowledgement after the last one.
    fn send_segment(&mut self, writer: &mut PcapWriter) -> io::Result<()> {
        let end = self.response.len().min(self.sent + SEGMENT_BYTES);
        if self.sent == end {
            return Ok(());
        }
        let payload = &self.response[self.sent..end];
        self.talk.send(writer, 1, flag::ACK, payload)?;
        self.contents[1].add(payload);
        self.sent = end;
        if self.is_done() {
            self.talk.send(writer, 0, flag::ACK, &[])?;
        }
        Ok(())
    }
}

/// Text of recurring words, low ones most often: compresses to a third.
pub(crate) fn prose(random: &mut Random, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let number = random.below(1000).min(random.below(1000)).min(random.below(1000));
        let mut letters = Random::new(number as u64);
        text.extend((0..2 + letters.below(8)).map(|_| b'a' + letters.below(26) as u8));
        text.extend_from_slice(if random.below(12) == 0 { b".\n" } else { b" " });
    }
    text.truncate(length);
    text
}

fn to_json(capture: &Capture) -> Value {
    let list =
        |contents: &[Content]| contents.iter().map(|content| json!([content.size, content.hash])).collect::<Vec<_>>();
    json!({
        "frames": capture.frames,
        "web_frames": capture.web_frames,
        "streams": list(&capture.streams),
        "bodies": list(&capture.bodies),
    })
}

fn from_json(path: &Path, text: &str) -> Option<Capture> {
    let value: Value = serde_json::from_str(text).ok()?;
    let content = |pair: &Value| Some(Content { size: pair.get(0)?.as_u64()?, hash: pair.get(1)?.as_u64()? });
    let list = |key: &str| value[key].as_array()?.iter().map(content).collect::<Option<Vec<_>>>();
    Some(Capture {
        path: path.to_owned(),
        frames: value["frames"].as_u64()?,
        web_frames: value["web_frames"].as_u64()?,
        streams: list("streams")?,
        bodies: list("bodies")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(make: impl Fn(&Store) -> Result<Capture, String>, streams: usize, bodies: bool) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path()).unwrap();
        let made = make(&store).unwrap();
        assert_eq!(make(&store).unwrap(), made, "found again, with its facts");
        assert_eq!(made.streams.len(), streams);
        assert_eq!(made.bodies.is_empty(), !bodies);
        let bytes = std::fs::read(&made.path).unwrap();
        let (mut at, mut frames) = (24, 0);
        while at < bytes.len() {
            let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
            at += 16 + length as usize;
            frames += 1;
        }
        assert_eq!((at, frames), (bytes.len(), made.frames));
        std::fs::remove_file(&made.path).unwrap();
        make(&store).unwrap();
        assert_eq!(std::fs::read(&made.path).unwrap(), bytes, "the same every time");
    }

    #[test]
    fn captures_are_whole_and_the_same_every_time() {
        check(|store| store.large_flows(3, 300_000), 6, false);
        check(|store| store.small_frames(3000), 128, false);
        check(|store| store.small_flows(20), 40, false);
        check(|store| store.http(2, 3_000_000), 4, true);
    }
}
