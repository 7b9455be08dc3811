//! DNS messages (RFC 1035, 4), also of multicast DNS and LLMNR. From a truncated message, reads everything before its
//! end. Not a resolver; of DNSSEC it gives raw record data only.
//!
//! Allocates nothing: names stay compressed in the message until [`Name::append_to`] renders one. To bound the time for
//! that, a name follows at most [`POINTER_LIMIT`] pointers. They may point forward: RFC 1035, 4.1.4 speaks of a prior
//! name, but resolvers read such names.

mod probe;
pub mod stream;

pub use probe::{PORTS, is_datagram, is_message, is_plausible, is_response, of_ports, probe};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::bytes::{chunk_at, u16_at, u32_at};
pub use packet::text::Strings;
use packet::text::append_escaped;

/// Most compression pointers in one name. A name has at most 127 labels (RFC 1035, 2.3.4), and each useful pointer
/// leads to a label.
pub const POINTER_LIMIT: u32 = 127;

/// Longest name on the wire, without compression (RFC 1035, 2.3.4).
pub const NAME_LIMIT: usize = 255;

const HEADER_BYTES: usize = 12;

/// Why a message, or the rest of it, cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message ends early. The part before the end is valid.
    Truncated,
    /// A label has an unknown type, or there are too many pointers.
    Label,
    /// A name is longer than [`NAME_LIMIT`].
    NameLength,
}

impl Fault {
    /// The fault in words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "truncated dns message",
            Self::Label => "bad dns label or pointer",
            Self::NameLength => "dns name too long",
        }
    }
}

/// A message with a complete header.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    header: &'a [u8; HEADER_BYTES],
}

impl<'a> Message<'a> {
    /// Checks that the header is complete.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self { bytes, header: bytes.first_chunk().ok_or(Fault::Truncated)? })
    }

    #[inline]
    fn word(&self, index: usize) -> u16 {
        u16::from_be_bytes([self.header[2 * index], self.header[2 * index + 1]])
    }

    /// The identifier, which a response copies from its query.
    #[inline]
    pub fn id(&self) -> u16 {
        self.word(0)
    }

    /// Whether it is a response. Else it is a query.
    #[inline]
    pub fn is_response(&self) -> bool {
        self.word(1) & 0x8000 != 0
    }

    /// The operation: 0 is a standard query, 5 an update.
    #[inline]
    pub fn opcode(&self) -> u8 {
        (self.word(1) >> 11 & 0xf) as u8
    }

    /// Whether the responder is an authority for the name.
    #[inline]
    pub fn is_authoritative(&self) -> bool {
        self.word(1) & 0x0400 != 0
    }

    /// Whether the sender cut the message to fit a datagram.
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.word(1) & 0x0200 != 0
    }

    /// Whether the client wants the server to query other servers.
    #[inline]
    pub fn recursion_desired(&self) -> bool {
        self.word(1) & 0x0100 != 0
    }

    /// Whether the server is willing to query other servers.
    #[inline]
    pub fn recursion_available(&self) -> bool {
        self.word(1) & 0x0080 != 0
    }

    /// Response code, without the upper bits that an OPT record may add.
    #[inline]
    pub fn response_code(&self) -> u8 {
        (self.word(1) & 0xf) as u8
    }

    /// Number of questions, by the header.
    #[inline]
    pub fn question_count(&self) -> u16 {
        self.word(2)
    }

    /// Number of records in a section, by the header.
    #[inline]
    pub fn record_count(&self, section: Section) -> u16 {
        self.word(3 + section as usize)
    }

    /// The questions. Ends with a fault at one that cannot be read.
    pub fn questions(&self) -> Questions<'a> {
        Questions { bytes: self.bytes, offset: HEADER_BYTES, left: self.question_count() }
    }

    /// The records of all sections, in order. Ends with a fault at one that cannot be read.
    pub fn records(&self) -> Records<'a> {
        let left = [Section::Answer, Section::Authority, Section::Additional].map(|section| self.record_count(section));
        Records { questions: Some(self.questions()), bytes: self.bytes, offset: HEADER_BYTES, left }
    }
}

/// A name in its compressed form.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    message: &'a [u8],
    offset: usize,
}

impl<'a> Name<'a> {
    /// The labels in order. Ends with a fault at one that cannot be read.
    pub fn labels(&self) -> Labels<'a> {
        Labels { message: self.message, offset: Some(self.offset), length: 1, pointers: 0 }
    }

    /// Appends the name without its last dot; the root is `.`. An unprintable byte becomes `\DDD`; a dot or backslash
    /// in a label gets a backslash (RFC 4343, 2.1). After a fault, the readable part has been appended.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        for label in self.labels() {
            let label = label?;
            if out.len() > start {
                out.push(b'.');
            }
            for &byte in label {
                if byte == b'.' {
                    out.push(b'\\');
                }
                append_escaped(out, byte);
            }
        }
        if out.len() == start {
            out.push(b'.');
        }
        Ok(())
    }
}

/// The labels of a name.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    message: &'a [u8],
    /// Offset of the next label; `None` at the end.
    offset: Option<usize>,
    /// Length of the name so far, with its end.
    length: usize,
    pointers: u32,
}

impl<'a> Iterator for Labels<'a> {
    type Item = Result<&'a [u8], Fault>;

    fn next(&mut self) -> Option<Result<&'a [u8], Fault>> {
        let label = self.step(self.offset?);
        if !matches!(label, Ok(Some(_))) {
            self.offset = None;
        }
        label.transpose()
    }
}

impl<'a> Labels<'a> {
    fn step(&mut self, mut offset: usize) -> Result<Option<&'a [u8]>, Fault> {
        loop {
            match label_at(self.message, offset)? {
                Label::End => return Ok(None),
                Label::Text(text) => {
                    self.length += text.len() + 1;
                    if self.length > NAME_LIMIT {
                        return Err(Fault::NameLength);
                    }
                    self.offset = Some(offset + text.len() + 1);
                    return Ok(Some(text));
                }
                Label::Pointer(target) => {
                    self.pointers += 1;
                    if self.pointers > POINTER_LIMIT {
                        return Err(Fault::Label);
                    }
                    offset = target;
                }
            }
        }
    }
}

enum Label<'a> {
    End,
    Text(&'a [u8]),
    Pointer(usize),
}

#[inline]
fn label_at(message: &[u8], offset: usize) -> Result<Label<'_>, Fault> {
    let length = *message.get(offset).ok_or(Fault::Truncated)?;
    match length >> 6 {
        0 if length == 0 => Ok(Label::End),
        0 => {
            let end = offset + 1 + usize::from(length);
            Ok(Label::Text(message.get(offset + 1..end).ok_or(Fault::Truncated)?))
        }
        3 => Ok(Label::Pointer(usize::from(u16_at(message, offset).ok_or(Fault::Truncated)? & 0x3fff))),
        // RFC 6891, 5 retired the other two label types.
        _ => Err(Fault::Label),
    }
}

/// The name at `offset`, and the offset behind it. Does not follow pointers.
fn name_at(message: &[u8], offset: usize) -> Result<(Name<'_>, usize), Fault> {
    let mut end = offset;
    loop {
        match label_at(message, end)? {
            Label::End => return Ok((Name { message, offset }, end + 1)),
            Label::Pointer(_) => return Ok((Name { message, offset }, end + 2)),
            Label::Text(text) => end += text.len() + 1,
        }
        if end - offset >= NAME_LIMIT {
            return Err(Fault::NameLength);
        }
    }
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Name asked for.
    pub name: Name<'a>,
    /// Record type, see [`type_name`].
    pub kind: u16,
    /// Class; 1 is the Internet. Multicast DNS uses the top bit for another purpose.
    pub class: u16,
}

/// The questions of a message.
#[derive(Clone, Debug)]
pub struct Questions<'a> {
    bytes: &'a [u8],
    offset: usize,
    left: u16,
}

impl<'a> Questions<'a> {
    fn read(&mut self) -> Result<Question<'a>, Fault> {
        let (name, end) = name_at(self.bytes, self.offset)?;
        let [a, b, c, d] = *chunk_at(self.bytes, end).ok_or(Fault::Truncated)?;
        self.offset = end + 4;
        Ok(Question { name, kind: u16::from_be_bytes([a, b]), class: u16::from_be_bytes([c, d]) })
    }
}

impl<'a> Iterator for Questions<'a> {
    type Item = Result<Question<'a>, Fault>;

    fn next(&mut self) -> Option<Result<Question<'a>, Fault>> {
        self.left = self.left.checked_sub(1)?;
        let question = self.read();
        if question.is_err() {
            self.left = 0;
        }
        Some(question)
    }
}

/// A part of a message that holds records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Records that answer the question.
    Answer,
    /// Servers that are authorities for the name.
    Authority,
    /// Further useful records.
    Additional,
}

/// A resource record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The section that contains it.
    pub section: Section,
    /// Name of the record.
    pub name: Name<'a>,
    /// Record type, see [`type_name`].
    pub kind: u16,
    /// Class; a UDP payload size in OPT records.
    pub class: u16,
    /// Seconds for which it may be cached.
    pub time_to_live_s: u32,
    /// Content of the record.
    pub data: Data<'a>,
}

/// The content of a record.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// A: an IPv4 address.
    A(Ipv4Addr),
    /// AAAA: an IPv6 address (RFC 3596).
    Aaaa(Ipv6Addr),
    /// CNAME, NS, PTR and DNAME: another name.
    Name(Name<'a>),
    /// MX: a mail exchange.
    Mx {
        /// Lower is tried first.
        preference: u16,
        /// Name of the exchange.
        exchange: Name<'a>,
    },
    /// TXT and SPF: texts.
    Txt(Strings<'a>),
    /// SOA: the start of a zone.
    Soa {
        /// The primary server.
        server: Name<'a>,
        /// The mailbox of the person responsible, as a name.
        mailbox: Name<'a>,
        /// Version of the zone.
        serial: u32,
        /// Seconds for which the absence of a name may be cached (RFC 2308, 4).
        minimum_s: u32,
    },
    /// SRV: a server (RFC 2782).
    Srv {
        /// Lower is tried first.
        priority: u16,
        /// Share among servers of equal priority.
        weight: u16,
        /// Port of the server.
        port: u16,
        /// Name of the server.
        target: Name<'a>,
    },
    /// DS, CDS, SSHFP, TLSA and SMIMEA: numbers, followed by a digest or key.
    Digest {
        /// The numbers; the first `count` are valid.
        numbers: [u16; 3],
        /// Number of valid `numbers`.
        count: usize,
        /// The digest or key.
        bytes: &'a [u8],
    },
    /// CAA: which authorities may issue certificates (RFC 8659).
    Caa {
        /// Flag bits.
        flags: u8,
        /// Name of the property, for instance `issue`.
        tag: &'a [u8],
        /// Value of the property.
        value: &'a [u8],
    },
    /// SVCB and HTTPS: a service and how to reach it (RFC 9460).
    Service {
        /// Lower is tried first; 0 makes it an alias.
        priority: u16,
        /// Name of the server or of the alias.
        target: Name<'a>,
        /// Keys with their values.
        params: ServiceParams<'a>,
    },
    /// NAPTR: a rule that rewrites a name (RFC 3403).
    Naptr {
        /// Order and preference.
        numbers: [u16; 2],
        /// Flags, services and a regular expression.
        texts: [&'a [u8]; 3],
        /// The name to look up next.
        replacement: Name<'a>,
    },
    /// Any other type, or a known type with data that does not fit it.
    Other(&'a [u8]),
}

/// Parameters of a service in order: key and value. Ends at one that is cut.
#[derive(Clone, Copy, Debug)]
pub struct ServiceParams<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ServiceParams<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[a, b, c, d], rest) = self.rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([c, d])))?;
        self.rest = rest;
        Some((u16::from_be_bytes([a, b]), value))
    }
}

/// The records of a message.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    /// Skipped before the first record.
    questions: Option<Questions<'a>>,
    bytes: &'a [u8],
    offset: usize,
    /// Number of records left in each section.
    left: [u16; 3],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Fault>;

    fn next(&mut self) -> Option<Result<Record<'a>, Fault>> {
        const SECTIONS: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];
        let (section, left) = SECTIONS.into_iter().zip(&mut self.left).find(|(_, left)| **left > 0)?;
        *left -= 1;
        let record = self.read(section);
        if record.is_err() {
            self.left = [0; 3];
        }
        Some(record)
    }
}

impl<'a> Records<'a> {
    fn read(&mut self, section: Section) -> Result<Record<'a>, Fault> {
        if let Some(mut questions) = self.questions.take() {
            for question in questions.by_ref() {
                question?;
            }
            self.offset = questions.offset;
        }
        let (name, end) = name_at(self.bytes, self.offset)?;
        let [a, b, c, d, e, f, g, h, i, j] = *chunk_at(self.bytes, end).ok_or(Fault::Truncated)?;
        let kind = u16::from_be_bytes([a, b]);
        let data_offset = end + 10;
        let data_end = data_offset + usize::from(u16::from_be_bytes([i, j]));
        // Names in record data may point back to any place, but must not continue behind the data.
        let message = self.bytes.get(..data_end).ok_or(Fault::Truncated)?;
        self.offset = data_end;
        Ok(Record {
            section,
            name,
            kind,
            class: u16::from_be_bytes([c, d]),
            time_to_live_s: u32::from_be_bytes([e, f, g, h]),
            data: read_data(message, data_offset, kind).unwrap_or(Data::Other(&message[data_offset..])),
        })
    }
}

/// Reads the record data from `offset` to the end of `message`. `None`: it does not fit its type.
fn read_data(message: &[u8], offset: usize, kind: u16) -> Option<Data<'_>> {
    let data = message.get(offset..)?;
    let last_name =
        |at: usize| name_at(message, at).ok().filter(|(_, end)| *end == message.len()).map(|(name, _)| name);
    match kind {
        1 => Some(Data::A(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?))),
        28 => Some(Data::Aaaa(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?))),
        2 | 5 | 12 | 39 => Some(Data::Name(last_name(offset)?)),
        15 => Some(Data::Mx { preference: u16_at(data, 0)?, exchange: last_name(offset + 2)? }),
        16 | 99 => Some(Data::Txt(Strings::new(data))),
        6 => {
            let (server, end) = name_at(message, offset).ok()?;
            let (mailbox, end) = name_at(message, end).ok()?;
            let fields: &[u8; 20] = message.get(end..)?.try_into().ok()?;
            Some(Data::Soa { server, mailbox, serial: u32_at(fields, 0)?, minimum_s: u32_at(fields, 16)? })
        }
        33 => Some(Data::Srv {
            priority: u16_at(data, 0)?,
            weight: u16_at(data, 2)?,
            port: u16_at(data, 4)?,
            target: last_name(offset + 6)?,
        }),
        43 | 59 => {
            let (&[a, b, algorithm, digest], bytes) = data.split_first_chunk()?;
            let numbers = [u16::from_be_bytes([a, b]), algorithm.into(), digest.into()];
            Some(Data::Digest { numbers, count: 3, bytes })
        }
        44 => {
            let (&[algorithm, digest], bytes) = data.split_first_chunk()?;
            Some(Data::Digest { numbers: [algorithm.into(), digest.into(), 0], count: 2, bytes })
        }
        52 | 53 => {
            let (&[usage, selector, digest], bytes) = data.split_first_chunk()?;
            Some(Data::Digest { numbers: [usage.into(), selector.into(), digest.into()], count: 3, bytes })
        }
        257 => {
            let (&[flags, length], rest) = data.split_first_chunk()?;
            let (tag, value) = rest.split_at_checked(length.into())?;
            Some(Data::Caa { flags, tag, value })
        }
        64 | 65 => {
            let (target, end) = name_at(message, offset + 2).ok()?;
            Some(Data::Service { priority: u16_at(data, 0)?, target, params: ServiceParams { rest: &message[end..] } })
        }
        35 => {
            let mut at = offset + 4;
            let mut texts = [&[][..]; 3];
            for text in &mut texts {
                let length = usize::from(*message.get(at)?);
                *text = message.get(at + 1..at + 1 + length)?;
                at += 1 + length;
            }
            let numbers = [u16_at(data, 0)?, u16_at(data, 2)?];
            Some(Data::Naptr { numbers, texts, replacement: last_name(at)? })
        }
        _ => None,
    }
}

/// Splits a stream of DNS over TCP (RFC 1035, 4.2.2) into the first message and the rest. `Err(n)`: the stream must
/// have at least `n` bytes.
pub fn split_tcp(stream: &[u8]) -> Result<(&[u8], &[u8]), usize> {
    let length = usize::from(u16_at(stream, 0).ok_or(2_usize)?);
    stream[2..].split_at_checked(length).ok_or(2 + length)
}

/// Prints the name of a record type, or `TYPE123` for an unknown one (RFC 3597, 5).
#[derive(Clone, Copy, Debug)]
pub struct TypeName(u16);

/// The name of a record type.
pub const fn type_name(kind: u16) -> TypeName {
    TypeName(kind)
}

/// The record type with this name; reverses [`type_name`].
pub fn type_number(name: &str) -> Option<u16> {
    let known = TYPES.iter().find(|row| row.1 == name).map(|row| row.0);
    known.or_else(|| name.strip_prefix("TYPE")?.parse().ok())
}

impl fmt::Display for TypeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TYPES.iter().find(|row| row.0 == self.0) {
            Some((_, name)) => out.write_str(name),
            None => write!(out, "TYPE{}", self.0),
        }
    }
}

/// IANA's names of types in use, frequent ones first.
#[rustfmt::skip]
const TYPES: &[(u16, &str)] = &[
    (1, "A"), (28, "AAAA"), (5, "CNAME"), (65, "HTTPS"), (12, "PTR"), (2, "NS"), (6, "SOA"), (15, "MX"), (16, "TXT"),
    (33, "SRV"), (41, "OPT"), (46, "RRSIG"), (43, "DS"), (48, "DNSKEY"), (47, "NSEC"), (50, "NSEC3"), (64, "SVCB"),
    (13, "HINFO"), (17, "RP"), (18, "AFSDB"), (24, "SIG"), (25, "KEY"), (29, "LOC"), (35, "NAPTR"), (36, "KX"),
    (37, "CERT"), (39, "DNAME"), (42, "APL"), (44, "SSHFP"), (45, "IPSECKEY"), (49, "DHCID"), (51, "NSEC3PARAM"),
    (52, "TLSA"), (53, "SMIMEA"), (55, "HIP"), (59, "CDS"), (60, "CDNSKEY"), (61, "OPENPGPKEY"), (62, "CSYNC"),
    (63, "ZONEMD"), (99, "SPF"), (249, "TKEY"), (250, "TSIG"), (251, "IXFR"), (252, "AXFR"), (255, "ANY"),
    (256, "URI"), (257, "CAA"), (3, "MD"), (4, "MF"), (7, "MB"), (8, "MG"), (9, "MR"), (10, "NULL"), (11, "WKS"),
    (14, "MINFO"),
];

/// The name of a response code; `None` for numbers without one.
pub const fn response_code_name(code: u8) -> Option<&'static str> {
    Some(match code {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        6 => "YXDOMAIN",
        7 => "YXRRSET",
        8 => "NXRRSET",
        9 => "NOTAUTH",
        10 => "NOTZONE",
        11 => "DSOTYPENI",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34];
        bytes.extend_from_slice(&flags.to_be_bytes());
        counts.iter().for_each(|count| bytes.extend_from_slice(&count.to_be_bytes()));
        bytes.extend_from_slice(rest);
        bytes
    }

    fn text(name: Name<'_>) -> String {
        let mut out = Vec::new();
        let fault = name.append_to(&mut out).err();
        let text = String::from_utf8(out).unwrap();
        fault.map_or(text.clone(), |fault| format!("{text}!{}", fault.reason()))
    }

    const QUESTION: &[u8] = b"\x03www\x07example\x03com\0\0\x01\0\x01";

    /// A response about www.example.com. `records` are its answers (type, data), each with a pointer as its name.
    fn response(records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = message(0x8180, [1, records.len() as u16, 0, 0], QUESTION);
        for (kind, data) in records {
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
            bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
            bytes.extend_from_slice(data);
        }
        bytes
    }

    #[test]
    fn header_and_question() {
        let bytes = message(0x0100, [1, 0, 0, 0], QUESTION);
        let query = Message::new_checked(&bytes).unwrap();
        assert_eq!((query.id(), query.is_response(), query.opcode(), query.response_code()), (0x1234, false, 0, 0));
        assert!(query.recursion_desired() && !query.recursion_available());
        assert!(!query.is_truncated() && !query.is_authoritative());
        let questions: Vec<_> = query.questions().map(Result::unwrap).collect();
        assert_eq!(questions.len(), 1);
        assert_eq!(
            (text(questions[0].name).as_str(), questions[0].kind, questions[0].class),
            ("www.example.com", 1, 1)
        );
    }

    #[test]
    fn record_data() {
        let check = |kind: u16, data: &[u8], expected: &str| {
            let bytes = response(&[(kind, data)]);
            let record = Message::new_checked(&bytes).unwrap().records().next().unwrap().unwrap();
            assert_eq!((record.section, record.time_to_live_s, record.class), (Section::Answer, 60, 1));
            assert_eq!(text(record.name), "www.example.com");
            let got = match record.data {
                Data::A(address) => address.to_string(),
                Data::Aaaa(address) => address.to_string(),
                Data::Name(name) => text(name),
                Data::Mx { preference, exchange } => format!("{preference} {}", text(exchange)),
                Data::Txt(strings) => {
                    strings.map(|string| String::from_utf8_lossy(string)).collect::<Vec<_>>().join("|")
                }
                Data::Soa { server, mailbox, serial, minimum_s } => {
                    format!("{} {} {serial} {minimum_s}", text(server), text(mailbox))
                }
                Data::Srv { priority, weight, port, target } => format!("{priority} {weight} {port} {}", text(target)),
                Data::Digest { numbers, count, bytes } => format!("{:?} {bytes:?}", &numbers[..count]),
                Data::Caa { flags, tag, value } => {
                    format!("{flags} {} {}", String::from_utf8_lossy(tag), String::from_utf8_lossy(value))
                }
                Data::Service { priority, target, params } => {
                    format!("{priority} {} {:?}", text(target), params.collect::<Vec<_>>())
                }
                Data::Naptr { numbers, texts, replacement } => format!("{numbers:?} {texts:?} {}", text(replacement)),
                Data::Other(bytes) => format!("{bytes:?}"),
            };
            assert_eq!(got, expected);
        };
        check(1, &[10, 0, 0, 1], "10.0.0.1");
        check(1, &[10, 0, 0], "[10, 0, 0]");
        check(28, &1_u128.to_be_bytes(), "::1");
        check(5, b"\x03alt\xc0\x10", "alt.example.com");
        check(2, b"\xc0\x10", "example.com");
        check(12, b"\0", ".");
        // A name that ends before the data does.
        check(12, b"\0\0", "[0, 0]");
        check(15, b"\0\x0a\x04mail\xc0\x10", "10 mail.example.com");
        check(16, b"\x05v=one\x03two", "v=one|two");
        check(33, b"\0\x01\0\x02\x01\xbb\xc0\x0c", "1 2 443 www.example.com");
        check(
            6,
            b"\xc0\x10\x02ad\xc0\x10\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x3c",
            "example.com ad.example.com 7 60",
        );
        check(6, b"\xc0\x10\xc0\x10\0", "[192, 16, 192, 16, 0]");
        check(65, &[1], "[1]");
        check(65, &[1, 2, 3], "[1, 2, 3]");
        check(65, b"\0\x01\xc0\x10\0\x03\0\x02\x01\xbb\0\x01\0\x09\x02", "1 example.com [(3, [1, 187])]");
        check(43, &[1, 0, 8, 2, 7], "[256, 8, 2] [7]");
        check(44, &[4, 1, 7, 8], "[4, 1] [7, 8]");
        check(52, &[3, 1], "[3, 1]");
        check(257, b"\0\x05issueca.example", "0 issue ca.example");
        check(257, b"\0\x20issue", "[0, 32, 105, 115, 115, 117, 101]");
        check(35, b"\0\x01\0\x02\x01u\0\x01x\0", "[1, 2] [[117], [], [120]] .");
        check(35, b"\0\x01\0\x02\x01u\0\x09x", "[0, 1, 0, 2, 1, 117, 0, 9, 120]");
    }

    #[test]
    fn names() {
        let check = |name: &[u8], expected: &str| {
            let bytes = message(0, [1, 0, 0, 0], name);
            let (name, _) = name_at(&bytes, HEADER_BYTES).unwrap();
            assert_eq!(text(name), expected);
        };
        check(b"\0", ".");
        check(b"\x01a\0", "a");
        check(b"\x05a.b\\c\x02\x00 \0", "a\\.b\\\\c.\\000 ");
        check(b"\x02\xc3\xa4\0", "\\195\\164");
        // A loop, a pointer to itself, behind the end, forward, and into the header, where there is a zero.
        check(b"\x01a\xc0\x0c", &format!("a{}!dns name too long", ".a".repeat(126)));
        check(b"\xc0\x0c", "!bad dns label or pointer");
        check(b"\xc0\x20\0", "!truncated dns message");
        check(b"\x01a\xc0\x11\xff\x01b\0", "a.b");
        check(b"\x01a\xc0\x02", "a");
    }

    #[test]
    fn names_refused() {
        let check = |name: &[u8], expected: Fault| {
            assert_eq!(name_at(name, 0).map(|(_, end)| end), Err(expected));
        };
        check(b"", Fault::Truncated);
        check(b"\x03ab", Fault::Truncated);
        check(b"\x03abc", Fault::Truncated);
        check(b"\xc0", Fault::Truncated);
        check(b"\x41a\0", Fault::Label);
        check(b"\x80a\0", Fault::Label);
        check(&b"\x01a".repeat(200), Fault::NameLength);
    }

    /// 200 pointers, each to the one before: without a limit on pointers, every name would cost that many steps.
    #[test]
    fn pointer_chains_end() {
        let mut bytes = message(0, [1, 0, 0, 0], b"\x01a\0");
        let mut last = HEADER_BYTES;
        for _ in 0..200 {
            let here = bytes.len();
            bytes.extend_from_slice(&(0xc000 | last as u16).to_be_bytes());
            last = here;
        }
        assert_eq!(text(Name { message: &bytes, offset: last }), "!bad dns label or pointer");
        assert_eq!(text(Name { message: &bytes, offset: 15 + 2 * 100 }), "a");
        // A long name made with pointers has the same limit of 255 bytes.
        let mut bytes = message(0, [1, 0, 0, 0], b"");
        let mut last = None;
        for _ in 0..5 {
            let here = bytes.len();
            bytes.push(63);
            bytes.extend_from_slice(&[b'x'; 63]);
            match last {
                None => bytes.push(0),
                Some(last) => bytes.extend_from_slice(&(0xc000 | last as u16).to_be_bytes()),
            }
            last = Some(here);
        }
        assert!(text(Name { message: &bytes, offset: last.unwrap() }).ends_with("!dns name too long"));
    }

    #[test]
    fn truncated_messages_give_what_is_there() {
        let bytes = response(&[(1, &[10, 0, 0, 1]), (1, &[10, 0, 0, 2])]);
        let check = |cut: usize, questions: usize, records: usize| {
            let cut = Message::new_checked(&bytes[..bytes.len() - cut]).unwrap();
            assert_eq!(cut.questions().filter(Result::is_ok).count(), questions);
            assert_eq!(cut.records().filter(Result::is_ok).count(), records);
            let faults: Vec<Fault> = cut.records().filter_map(Result::err).collect();
            assert_eq!(faults, [Fault::Truncated][..usize::from(records < 2)]);
        };
        check(0, 1, 2);
        check(1, 1, 1);
        check(16, 1, 1);
        check(17, 1, 0);
        check(33, 0, 0);
        assert_eq!(Message::new_checked(&bytes[..11]).unwrap_err(), Fault::Truncated);
    }

    #[test]
    fn sections() {
        let record = b"\0\0\x01\0\x01\0\0\0\0\0\0".as_slice();
        let bytes = message(0x8000, [0, 1, 2, 1], &record.repeat(4));
        let sections: Vec<Section> =
            Message::new_checked(&bytes).unwrap().records().map(|record| record.unwrap().section).collect();
        assert_eq!(sections, [Section::Answer, Section::Authority, Section::Authority, Section::Additional]);
    }

    #[test]
    fn plausible() {
        let check = |bytes: &[u8], wire_len: usize, expected: bool| {
            assert_eq!(is_plausible(bytes, wire_len as u32), expected, "{bytes:x?}");
        };
        let query = message(0x0100, [1, 0, 0, 0], QUESTION);
        check(&query, query.len(), true);
        let whole = response(&[(1, &[10, 0, 0, 1])]);
        check(&whole, whole.len(), true);
        // Cut by the snap length, but not on the wire.
        check(&query[..20], query.len(), true);
        check(&query[..20], 20, false);
        check(&message(0x8400, [0, 1, 0, 0], b"\0\0\x01\0\x01\0\0\0\0\0\0"), 23, true);
        check(&message(0x0100, [0; 4], b""), 12, false);
        check(&message(0x0140, [1, 0, 0, 0], QUESTION), 33, false);
        check(&message(0x0103, [1, 0, 0, 0], QUESTION), 33, false);
        check(&message(0x7800, [1, 0, 0, 0], QUESTION), 33, false);
        check(&message(0x0100, [50, 0, 0, 0], QUESTION), 33, false);
        check(&message(0x0100, [1, 0, 0, 0], b"\x01a\0\0\x01\0\x09"), 19, false);
        check(&message(0x0100, [1, 0, 0, 0], b"\x01a\xc0\x0c\0\x01\0\x01"), 20, false);
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, false);
        check(&[0; 40], 40, false);
        check(&[0xff; 40], 40, false);
        check(b"", 0, false);
    }

    #[test]
    fn streams() {
        assert_eq!(split_tcp(b"\0\x03abcdef"), Ok((&b"abc"[..], &b"def"[..])));
        assert_eq!(split_tcp(b"\0\x03ab"), Err(5));
        assert_eq!(split_tcp(b"\0"), Err(2));
    }

    #[test]
    fn type_names() {
        assert_eq!(type_name(28).to_string(), "AAAA");
        assert_eq!(type_name(65_280).to_string(), "TYPE65280");
        let mut numbers: Vec<u16> = TYPES.iter().map(|row| row.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), TYPES.len());
        assert_eq!((response_code_name(3), response_code_name(15)), (Some("NXDOMAIN"), None));
        for kind in 0..=u16::MAX {
            assert_eq!(type_number(&type_name(kind).to_string()), Some(kind));
        }
        assert_eq!((type_number("NONE"), type_number("TYPE65536")), (None, None));
    }
}
