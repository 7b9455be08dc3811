//! The unencrypted opening of both sides of SSH: identifications (RFC 4253, 4.2) and offers of algorithms (7.1). Later
//! messages are not read; an ear that wants frames gets each record until keys are in use.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk};
use md5::{Digest, Md5};
use memchr::memchr;
use packet::Flow;
use packet::bytes::u32_at;
use packet::text::append_hex;

/// Longest line with its end: 255 bytes in RFC 4253, 4.2, but OpenSSH accepts this many.
pub const LINE_BYTES: usize = 8192;

/// Longest line that is not odd (RFC 4253, 4.2), without its end.
const USUAL_BYTES: usize = 255;

/// Lines that a server may send before its identification: as many as OpenSSH reads. RFC 4253, 4.2 sets no bound.
pub const LINES: u32 = 1024;

/// Longest packet that every implementation must accept (RFC 4253, 6.1).
pub const PACKET_LIMIT: usize = 35_000;

/// Longest record that is given as a frame.
pub const RECORD_BYTES: usize = 64 << 10;

const PREFIX: &[u8] = b"SSH-";

/// Message numbers (RFC 4250, 4.1.2).
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

const HELP: &str = "Finds SSH on any port, by its first bytes, and gives one record of each connection when both sides have said \
         what they offer, or when it ends. Of each side, under `ssh.client` and `ssh.server`: `proto_version`, \
         `software_version` without comments, and `hassh` with `hash` and `string`, the fingerprint of the offered \
         algorithms (HASSH, of the server HASSHserver). The client is who opened the connection. The rest of a stream \
         is passed over.";

const EXAMPLE: &str = r#"{"timestamp":"2023-07-13T10:00:05.282065000Z","flow_id":2310137350286445,"event_type":"ssh","src_ip":"192.168.77.16","src_port":60063,"dest_ip":"10.11.3.225","dest_port":22,"proto":"TCP","ssh":{"client":{"proto_version":"2.0","software_version":"libssh-0.7.2","hassh":{"hash":"c8c5fbf80b7b0a1b0e4de5e683f3c5ad","string":"curve25519-sha256@libssh.org,ecdh-sha2-nistp256,diffie-hellman-group14-sha1,diffie-hellman-group1-sha1;aes256-ctr,aes192-ctr,aes128-ctr,aes256-cbc,aes192-cbc,aes128-cbc,blowfish-cbc,3des-cbc;hmac-sha2-256,hmac-sha2-512,hmac-sha1;none"}},"server":{"proto_version":"2.0","software_version":"OpenSSH_7.4","hassh":{"hash":"6832f1ce43d4397c2c0a3e2f8c94334e","string":"curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521,diffie-hellman-group-exchange-sha256,diffie-hellman-group16-sha512,diffie-hellman-group18-sha512,diffie-hellman-group-exchange-sha1,diffie-hellman-group14-sha256,diffie-hellman-group14-sha1,diffie-hellman-group1-sha1;chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-cbc,aes192-cbc,aes256-cbc,blowfish-cbc,cast128-cbc,3des-cbc;umac-64-etm@openssh.com,umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha1-etm@openssh.com,umac-64@openssh.com,umac-128@openssh.com,hmac-sha2-256,hmac-sha2-512,hmac-sha1;none,zlib@openssh.com"}}}}
"#;

/// A fact about a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The version of the protocol.
    Proto,
    /// The program and its version, without comments.
    Software,
    /// MD5 of the next one, in hexadecimal.
    Hassh,
    /// The offered algorithms that HASSH and HASSHserver are made of.
    HasshString,
    /// The lengths and the message number of a record that is not encrypted,
    RecordHeader,
    /// what is behind them,
    RecordData,
    /// and all of it.
    Record,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About {
            field: ["ssh.client.proto_version", "ssh.server.proto_version"],
            buffer: ["ssh.proto", "ssh.proto"],
            kind: Kind::Name,
        },
        About {
            field: ["ssh.client.software_version", "ssh.server.software_version"],
            buffer: ["ssh.software", "ssh.software"],
            kind: Kind::Name,
        },
        About {
            field: ["ssh.client.hassh.hash", "ssh.server.hassh.hash"],
            buffer: ["ssh.hassh", "ssh.hassh.server"],
            kind: Kind::Text,
        },
        About {
            field: ["ssh.client.hassh.string", "ssh.server.hassh.string"],
            buffer: ["ssh.hassh.string", "ssh.hassh.server.string"],
            kind: Kind::Name,
        },
        About::both("", "frame ssh.record.hdr", Kind::Frame),
        About::both("", "frame ssh.record.data", Kind::Frame),
        About::both("", "frame ssh.record.pdu", Kind::Frame),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// Both sides of a connection. It has one exchange, number 0; a side's message ends with its offer.
#[derive(Debug, Default)]
pub struct Conversation {
    sides: [Opening; 2],
    /// Both have ended.
    is_over: bool,
}

/// One side's opening.
#[derive(Debug, Default)]
struct Opening {
    phase: Phase,
    /// The beginning of a line or record that goes on in the next run.
    part: Vec<u8>,
    /// Its message has ended.
    has_ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Lines up to the identification; the number of those before.
    Lines(u32),
    /// The side has identified itself, and its first record comes next.
    Offer,
    /// Later records, for an ear that wants frames.
    Records,
    /// Nothing more.
    Over,
    /// It speaks something else.
    Other,
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Lines(0)
    }
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        summary: &["ssh.client.software_version", "ssh.server.software_version"],
        does: "reads what SSH peers say of themselves and gives a record of each connection",
        help: HELP,
        example: ("pcap ssh.pcap | ssh", EXAMPLE),
        ..Protocol::of(App::Ssh, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    /// Lines before an identification are not SSH's, for many protocols begin so.
    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let id = Id { exchange: 0, side };
        let is_other = self.sides[1 - side.index()].phase == Phase::Other;
        let opening = &mut self.sides[side.index()];
        if is_other && matches!(opening.phase, Phase::Lines(_)) {
            opening.phase = Phase::Other;
        }
        if opening.is_over() {
            opening.leave(id, kept, ear);
            self.tell_over(ear);
            return Fed::NotMine;
        }
        if run.bytes.is_empty() {
            return Fed::Mine;
        }
        let mut part = std::mem::take(&mut opening.part);
        let is_kept = part.is_empty() || kept.keep(&mut part, run.bytes);
        let stream = if part.is_empty() { run.bytes } else { &part[..] };
        let mut used = 0;
        if is_kept {
            while !opening.is_over()
                && let Some(length) = opening.step(id, &stream[used..], ear)
            {
                used += length;
            }
        } else {
            ear.lost(id, TOO_MANY);
            opening.phase = Phase::Over;
        }
        let rest = &stream[used..];
        let has_begun = match opening.phase {
            Phase::Lines(_) => rest.starts_with(PREFIX),
            phase => phase != Phase::Other,
        };
        if opening.is_over() {
            kept.clear(&mut part);
            opening.leave(id, kept, ear);
        } else if !part.is_empty() {
            kept.pass(&mut part, used);
            opening.part = part;
        } else if !kept.keep(&mut opening.part, rest) {
            ear.lost(id, TOO_MANY);
            opening.phase = Phase::Over;
            opening.leave(id, kept, ear);
        }
        self.tell_over(ear);
        if has_begun { Fed::Mine } else { Fed::NotMine }
    }

    /// The conversation reads no later bytes of the side.
    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        if !self.sides[side.index()].part.is_empty() {
            ear.count("ssh openings whose rest is missing", 1);
        }
        self.leave(side, kept, ear);
        self.tell_over(ear);
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        [Side::Client, Side::Server].into_iter().for_each(|side| self.leave(side, kept, ear));
        self.tell_over(ear);
    }
}

impl Conversation {
    fn leave(&mut self, side: Side, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        let opening = &mut self.sides[side.index()];
        opening.phase = Phase::Over;
        opening.leave(Id { exchange: 0, side }, kept, ear);
    }

    fn tell_over(&mut self, ear: &mut dyn Ear<Fact>) {
        if self.sides.iter().all(|side| side.has_ended) && !std::mem::replace(&mut self.is_over, true) {
            ear.over(0);
        }
    }
}

impl Opening {
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over | Phase::Other)
    }

    /// Nothing more is read of this side.
    fn leave(&mut self, id: Id, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        kept.clear(&mut self.part);
        self.finish(id, How::Cut, ear);
    }

    fn finish(&mut self, id: Id, how: How, ear: &mut dyn Ear<Fact>) {
        if !std::mem::replace(&mut self.has_ended, true) {
            ear.end(id, how);
        }
    }

    /// Reads a line or record at the start of `rest`, and returns its length; `None` if it goes on, or nothing more is
    /// read.
    fn step(&mut self, id: Id, rest: &[u8], ear: &mut dyn Ear<Fact>) -> Option<usize> {
        match self.phase {
            Phase::Lines(number) => self.line(number, id, rest, ear),
            Phase::Offer | Phase::Records => self.record(id, rest, ear),
            Phase::Over | Phase::Other => None,
        }
    }

    fn line(&mut self, number: u32, id: Id, rest: &[u8], ear: &mut dyn Ear<Fact>) -> Option<usize> {
        let end = memchr(b'\n', rest);
        let line = &rest[..end.unwrap_or(rest.len())];
        let is_ours = line.starts_with(PREFIX);
        // A client begins with its identification, and no line has a NUL (as OpenSSH reads them).
        let may_be = is_ours || PREFIX.starts_with(line) && end.is_none();
        if !may_be && (number == 0 && id.side.is_client() || line.contains(&0)) || number == LINES {
            self.phase = Phase::Other;
            return None;
        }
        if line.len() >= LINE_BYTES {
            if is_ours {
                ear.odd(id, "ssh.long_banner");
                ear.odd(id, "ssh.invalid_banner");
            }
            self.phase = if is_ours { Phase::Over } else { Phase::Other };
            return None;
        }
        let end = end?;
        if end > USUAL_BYTES {
            ear.odd(id, "ssh.long_banner");
        }
        self.phase = Phase::Lines(number + 1);
        if is_ours {
            self.identification(line, id, ear);
        }
        Some(end + 1)
    }

    fn identification(&mut self, line: &[u8], id: Id, ear: &mut dyn Ear<Fact>) {
        let Some(said) = identification(line) else { return ear.odd(id, "ssh.invalid_banner") };
        ear.begin(id);
        ear.fact(id, Fact::Proto, said.protocol);
        ear.fact(id, Fact::Software, said.software);
        // Other versions have other records.
        let is_known = said.protocol.starts_with(b"2") || said.protocol == b"1.99";
        self.phase = if is_known { Phase::Offer } else { Phase::Over };
        if !is_known {
            self.finish(id, How::Complete, ear);
        }
    }

    /// A record begins with its length, the length of its padding and, in the clear, the number of its message (RFC
    /// 4253, 6).
    fn record(&mut self, id: Id, rest: &[u8], ear: &mut dyn Ear<Fact>) -> Option<usize> {
        let wants_frames = ear.wants().frames;
        let length = u32_at(rest, 0)? as usize;
        let kind = rest.get(5).copied();
        if self.phase == Phase::Offer
            && (!(2..=PACKET_LIMIT).contains(&length) || kind.is_some_and(|kind| kind != KEXINIT))
        {
            self.no_offer(id, wants_frames, ear);
        }
        if self.phase == Phase::Records && !(2..=RECORD_BYTES).contains(&length) {
            self.phase = Phase::Over;
        }
        if self.phase == Phase::Over {
            return None;
        }
        let record = rest.get(..4 + length)?;
        if self.phase == Phase::Offer {
            match offer(&record[4..]) {
                Some(offer) => self.offer(&offer, id, wants_frames, ear),
                None => self.no_offer(id, wants_frames, ear),
            }
        }
        if wants_frames {
            ear.fact(id, Fact::RecordHeader, &record[..6]);
            ear.fact(id, Fact::RecordData, &record[6..]);
            ear.fact(id, Fact::Record, record);
        }
        // What follows is encrypted.
        if kind == Some(NEWKEYS) {
            self.phase = Phase::Over;
            self.finish(id, How::Complete, ear);
        }
        Some(record.len())
    }

    fn offer(&mut self, offer: &Offer<'_>, id: Id, wants_frames: bool, ear: &mut dyn Ear<Fact>) {
        let (mut text, mut hash) = (Vec::new(), Vec::new());
        offer.append_lists(&mut text, if id.side.is_client() { HASSH } else { HASSH_SERVER });
        append_hex(&mut hash, &Md5::digest(&text));
        ear.fact(id, Fact::Hassh, &hash);
        ear.fact(id, Fact::HasshString, &text);
        self.behind_offer(id, wants_frames, ear);
    }

    fn no_offer(&mut self, id: Id, wants_frames: bool, ear: &mut dyn Ear<Fact>) {
        ear.odd(id, "ssh.invalid_record");
        self.behind_offer(id, wants_frames, ear);
    }

    fn behind_offer(&mut self, id: Id, wants_frames: bool, ear: &mut dyn Ear<Fact>) {
        self.phase = if wants_frames { Phase::Records } else { Phase::Over };
        if !wants_frames {
            self.finish(id, How::Complete, ear);
        }
    }
}

/// The name of a loss: an opening or fact without room.
const TOO_MANY: &str = "ssh openings given up for want of memory";

/// The identification of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identification<'a> {
    /// Version of the protocol: `2.0`, or `1.99` for a server that supports both.
    protocol: &'a [u8],
    /// The program and its version, without comments.
    software: &'a [u8],
}

/// Reads a line that begins with `SSH-`, without its LF.
fn identification(line: &[u8]) -> Option<Identification<'_>> {
    let text = line.strip_prefix(PREFIX)?;
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let dash = memchr(b'-', text)?;
    let software = text[dash + 1..].split(|byte| *byte == b' ').next().unwrap_or_default();
    Some(Identification { protocol: &text[..dash], software })
}

/// Reads a packet behind its length.
fn offer(packet: &[u8]) -> Option<Offer<'_>> {
    let (padding, rest) = packet.split_first()?;
    Offer::parse(rest.get(..rest.len().checked_sub(usize::from(*padding))?)?)
}

/// The lists of an offer whose MD5 is HASSH (key exchanges, ciphers, MACs and compression), and those of HASSHserver.
const HASSH: [usize; 4] = [0, 2, 4, 6];
const HASSH_SERVER: [usize; 4] = [0, 3, 5, 7];

/// Algorithms that a side offers: ten comma-separated lists in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer<'a> {
    lists: [&'a [u8]; 10],
}

impl<'a> Offer<'a> {
    fn parse(payload: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = payload.split_first()?;
        let (_cookie, mut rest) = rest.split_first_chunk::<16>()?;
        let mut lists = [&[][..]; 10];
        for list in &mut lists {
            let (length, behind) = rest.split_first_chunk()?;
            (*list, rest) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        }
        (kind == KEXINIT).then_some(Self { lists })
    }

    fn append_lists(&self, out: &mut Vec<u8>, places: [usize; 4]) {
        for (index, place) in places.into_iter().enumerate() {
            if index > 0 {
                out.push(b';');
            }
            out.extend_from_slice(self.lists[place]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;
    use proptest::prelude::*;

    /// A packet that offers these lists, with four bytes of padding.
    fn offer(lists: [&str; 10]) -> Vec<u8> {
        let lists = lists.map(|list| [&(list.len() as u32).to_be_bytes()[..], list.as_bytes()].concat());
        let payload = [&[KEXINIT][..], &[7; 16], &lists.concat(), &[0; 5]].concat();
        [&(payload.len() as u32 + 5).to_be_bytes()[..], &[4], &payload, &[0; 4]].concat()
    }

    const LISTS: [&str; 10] = ["kex1,kex2", "key", "c1", "c2", "m1", "m2", "none", "zlib", "", ""];

    /// What a side says, from pieces of `size` bytes, and whether the last piece was SSH's.
    fn pieces(side: Side, stream: &[u8], size: usize, frames: bool) -> (Vec<String>, Fed) {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(1 << 20), Heard::default());
        ear.wants.frames = frames;
        let mut fed = Fed::NotMine;
        for bytes in stream.chunks(size) {
            fed = conversation.feed(side, Run { bytes, time: 0 }, &kept, &mut ear);
            assert!(kept.bytes() <= RECORD_BYTES + 4);
        }
        conversation.gap(side, 1, &kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        (ear.said, fed)
    }

    fn said(side: Side, stream: &[u8]) -> Vec<String> {
        let whole = pieces(side, stream, stream.len(), false).0;
        for size in [1, 7, 100] {
            assert_eq!(pieces(side, stream, size, false).0, whole, "by {size}");
        }
        whole
    }

    fn check(side: Side, stream: &[u8], expected: &[&str]) {
        assert_eq!(said(side, stream), expected, "{:?}", String::from_utf8_lossy(&stream[..stream.len().min(80)]));
    }

    #[test]
    fn openings() {
        let of_server = ["Hassh=a50172b051398581534b6308cc558fb5", "HasshString=kex1,kex2;c2;m2;zlib", "Complete"];
        let check_server = |line: &[u8], protocol: &str, software: &str| {
            let names = [format!("Proto={protocol}"), format!("Software={software}")];
            let expected: Vec<&str> = names.iter().map(String::as_str).chain(of_server).collect();
            check(Side::Server, &[line, &offer(LISTS), b"more"].concat(), &expected);
        };
        check_server(b"SSH-2.0-OpenSSH_9.6 Debian-3\r\n", "2.0", "OpenSSH_9.6");
        check_server(b"SSH-1.99-x\n", "1.99", "x");
        check_server(b"Welcome\r\nto here\r\nSSH-2.0-a-b\r\n", "2.0", "a-b");
        check_server(&[&b"Welcome to this host\r\n".repeat(1000)[..], b"SSH-2.0-late\r\n"].concat(), "2.0", "late");
        let client = [&b"SSH-2.0-c\r\n"[..], &offer(LISTS)].concat();
        let hash = "Hassh=64ea90025774c72e3536cc259250cb51";
        check(
            Side::Client,
            &client,
            &["Proto=2.0", "Software=c", hash, "HasshString=kex1,kex2;c1;m1;none", "Complete"],
        );
    }

    #[test]
    fn odd_banners_and_records() {
        let odd = |side: Side, stream: &[u8], expected: &[&str]| {
            let found: Vec<String> = said(side, stream).into_iter().filter(|said| said.starts_with("ssh.")).collect();
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(&stream[..stream.len().min(80)]));
        };
        let long = [b'x'; 300];
        odd(Side::Client, b"SSH-2.0-a\r\n\0\0\x01\0\x04\x14", &[]);
        odd(Side::Client, b"SSH-2.0-a\r\n\0\0\x01\0\x04\x15", &["ssh.invalid_record"]);
        odd(Side::Client, b"SSH-2.0-a\r\n\xff\0\0\0\x04\x14", &["ssh.invalid_record"]);
        odd(Side::Client, b"SSH-2.0-a\r\n\0\0\0\x02\0\x14", &["ssh.invalid_record"]);
        odd(Side::Client, b"SSH-2.0-a\r\n\0\0\0\x05\xff\x14\0\0\0", &["ssh.invalid_record"]);
        odd(Side::Client, b"SSH-1.5-a\r\n\0\0\x01\0\x04\x15", &[]);
        odd(Side::Client, b"SSH-broken\r\nSSH-also\r\nSSH-2.0-a\r\n", &["ssh.invalid_banner", "ssh.invalid_banner"]);
        odd(Side::Client, &[b"SSH-2.0-", &long[..], b"\r\n"].concat(), &["ssh.long_banner"]);
        odd(Side::Server, &[&long[..], b"\r\nSSH-2.0-a\r\n"].concat(), &["ssh.long_banner"]);
        let endless = [&b"SSH-2.0-"[..], &[b'x'; LINE_BYTES]].concat();
        odd(Side::Client, &endless, &["ssh.long_banner", "ssh.invalid_banner"]);
        odd(Side::Server, &[b'\n'; 2 * LINES as usize], &[]);
    }

    #[test]
    fn other_protocols() {
        let other = |side: Side, stream: &[u8]| {
            check(side, stream, &["Cut"]);
            assert_eq!(pieces(side, stream, stream.len(), false).1, Fed::NotMine);
        };
        other(Side::Server, b"\x16\x03\x01\0");
        other(Side::Server, b"SSH\x00");
        other(Side::Server, &[b'a'; LINE_BYTES]);
        other(Side::Client, b"Welcome\r\nSSH-1.5-x\r\n");
        other(Side::Client, b"GET / HTTP/1.1\r\n");
        other(Side::Server, &[&b"\n".repeat(LINES as usize)[..], b"SSH-2.0-late\r\n"].concat());
        assert_eq!(pieces(Side::Client, b"SS", 9, false).1, Fed::NotMine);
        assert_eq!(pieces(Side::Client, b"SSH-2", 9, false).1, Fed::Mine);
    }

    #[test]
    fn records_until_they_are_encrypted() {
        // The first record is longer than an offer may be.
        let long = [&(PACKET_LIMIT as u32 + 2).to_be_bytes()[..], b"\0\x1e", &[b'x'; PACKET_LIMIT]].concat();
        let stream = [b"Hi\r\nSSH-2.0-a\r\n", &long[..], b"\0\0\0\x02\0\x15\0\0\0\x04\0\x15ab"].concat();
        for size in [1000, stream.len()] {
            let (said, _) = pieces(Side::Server, &stream, size, true);
            let frames: Vec<&str> = said.iter().filter_map(|said| said.strip_prefix("Record=")).collect();
            assert_eq!(frames, [String::from_utf8_lossy(&long).as_ref(), "\0\0\0\u{2}\0\u{15}"], "{size}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(at in 0usize..200, value: u8, cut in 0usize..200, size in 1usize..50, frames: bool) {
            let mut stream = [b"SSH-2.0-x\r\n".as_slice(), &offer(LISTS)].concat();
            if let Some(byte) = stream.get_mut(at) { *byte = value; }
            stream.truncate(cut);
            for side in [Side::Client, Side::Server] {
                let whole = pieces(side, &stream, stream.len().max(1), frames).0;
                prop_assert_eq!(pieces(side, &stream, size, frames).0, whole);
            }
        }
    }
}
