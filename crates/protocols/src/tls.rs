//! The first flight of TLS: client and server hello (RFC 8446, 4.1; RFC 5246, 7.4.1), out of the record layer. Nothing
//! is decrypted.
//!
//! [`hello`] takes the bytes of one direction of a stream from its start, as many as there are, and tells how many
//! more it needs. A hello in one record is read in place; a hello spread over several is copied together.

#[cfg(feature = "decrypt")]
pub mod decrypt;
pub mod facts;
pub mod odd;
pub mod opening;

use packet::bytes::{chunk_at, u16_at};
pub use packet::text::Strings;
use packet::text::append_escaped;

/// Longest hello. Post-quantum key shares take a few KiB; OpenSSL stops at twice this.
pub const HELLO_LIMIT: usize = 65_536;

/// Maximum records of one hello. Each may need another call, so this bounds the calls.
pub const RECORD_LIMIT: usize = 64;

/// RFC 5246, 6.2.3: 2^14 bytes, and what ciphers and compression may add.
const RECORD_BODY_LIMIT: usize = (1 << 14) + 2048;

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE_HEADER_BYTES: usize = 4;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// A hello, of either side.
#[derive(Clone, Copy, Debug)]
pub enum Hello<'a> {
    /// From the client.
    Client(ClientHello<'a>),
    /// From the server; also a request to try again (RFC 8446, 4.1.4).
    Server(ServerHello<'a>),
}

/// Why there is no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The stream is too short.
    Incomplete {
        /// Bytes from its start that are needed, at least.
        need: usize,
    },
    /// Not TLS.
    NotTls,
    /// TLS, but it begins with another message: an alert, or the middle of a connection.
    NoHello,
    /// A hello whose lengths contradict each other or exceed a limit.
    Malformed,
}

/// Reads the hello at the start of `stream`. A hello that is spread over records is copied to `scratch`.
pub fn hello<'a>(stream: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Hello<'a>, Stop> {
    let first = record_body_len(stream, 0)?.ok_or(Stop::NoHello)?;
    let body = stream.get(RECORD_HEADER_BYTES..).unwrap_or_default();
    match message(&body[..body.len().min(first)]) {
        Err(Stop::Incomplete { need }) if need > first => {
            copy_records(stream, scratch, need)?;
            // Where the header is spread, too, the length is known only now.
            if let Some(Stop::Incomplete { need }) = message(scratch).err() {
                copy_records(stream, scratch, need)?;
            }
            message(scratch)
        }
        Err(Stop::Incomplete { need }) => Err(Stop::Incomplete { need: RECORD_HEADER_BYTES + need }),
        read => read,
    }
}

/// Reads the hello at the start of messages without records, such as those in QUIC.
pub fn message(bytes: &[u8]) -> Result<Hello<'_>, Stop> {
    let header = bytes.first_chunk().ok_or(Stop::Incomplete { need: HANDSHAKE_HEADER_BYTES })?;
    let (kind, length) = handshake_header(*header)?;
    let need = HANDSHAKE_HEADER_BYTES + length;
    let body = bytes.get(HANDSHAKE_HEADER_BYTES..need).ok_or(Stop::Incomplete { need })?;
    let read = match kind {
        HandshakeKind::ClientHello => ClientHello::parse(body).map(Hello::Client),
        HandshakeKind::ServerHello => ServerHello::parse(body).map(Hello::Server),
    };
    read.ok_or(Stop::Malformed)
}

/// Length of the body of the handshake record at `offset`; `None` for other valid records.
fn record_body_len(stream: &[u8], offset: usize) -> Result<Option<usize>, Stop> {
    let header = stream.get(offset..).unwrap_or_default();
    // Even with fewer bytes than a header, those that are there must fit.
    let kind_fits = header.first().is_none_or(|kind| (20..=24).contains(kind));
    let version_fits = header.get(1).is_none_or(|major| *major == 3) && header.get(2).is_none_or(|minor| *minor <= 4);
    if !kind_fits || !version_fits {
        return Err(Stop::NotTls);
    }
    let &[kind, _, _, high, low] =
        header.first_chunk().ok_or(Stop::Incomplete { need: offset + RECORD_HEADER_BYTES })?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind {
        _ if length > RECORD_BODY_LIMIT => Err(Stop::NotTls),
        // RFC 8446, 5.1: handshake records are not empty.
        HANDSHAKE if length > 0 => Ok(Some(length)),
        HANDSHAKE => Err(Stop::NotTls),
        ALERT | APPLICATION_DATA | 20 | 24 => Ok(None),
        _ => Err(Stop::NotTls),
    }
}

#[derive(Clone, Copy)]
enum HandshakeKind {
    ClientHello,
    ServerHello,
}

fn handshake_header(header: [u8; HANDSHAKE_HEADER_BYTES]) -> Result<(HandshakeKind, usize), Stop> {
    let [kind, high, middle, low] = header;
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    let kind = match kind {
        1 => HandshakeKind::ClientHello,
        2 => HandshakeKind::ServerHello,
        _ => return Err(Stop::NoHello),
    };
    if length > HELLO_LIMIT { Err(Stop::Malformed) } else { Ok((kind, length)) }
}

/// Copies the first `wanted` bytes of handshake messages out of their records.
fn copy_records(stream: &[u8], scratch: &mut Vec<u8>, wanted: usize) -> Result<(), Stop> {
    scratch.clear();
    let mut offset = 0;
    for _ in 0..RECORD_LIMIT {
        let length = record_body_len(stream, offset)?.ok_or(Stop::Malformed)?;
        let start = offset + RECORD_HEADER_BYTES;
        let taken = length.min(wanted - scratch.len());
        let body = stream.get(start..start + taken).ok_or(Stop::Incomplete { need: start + taken })?;
        scratch.extend_from_slice(body);
        if scratch.len() == wanted {
            return Ok(());
        }
        offset = start + length;
    }
    Err(Stop::Malformed)
}

/// The start of the message behind the hello in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Offset of its record.
    pub record: usize,
    /// Bytes of the hello in that record's body, and in the bodies of the records behind it.
    pub skip: usize,
}

/// The place behind the hello at the start of `stream`, which [`hello`] must have read.
pub fn behind_hello(stream: &[u8]) -> Option<Behind> {
    let mut scratch = Vec::new();
    copy_records(stream, &mut scratch, HANDSHAKE_HEADER_BYTES).ok()?;
    let (_, length) = handshake_header(*scratch.first_chunk()?).ok()?;
    let mut left = HANDSHAKE_HEADER_BYTES + length;
    let mut record = 0;
    loop {
        let length = record_body_len(stream, record).ok()??;
        if left < length {
            return Some(Behind { record, skip: left });
        }
        left -= length;
        record += RECORD_HEADER_BYTES + length;
        if left == 0 {
            return Some(Behind { record, skip: 0 });
        }
    }
}

/// The body of the message with certificates, if it is the first one behind `skip` bytes of message in the records at
/// the start of `stream`. [`Stop::NoHello`]: another message or an encrypted one comes first.
pub fn certificates<'a>(stream: &[u8], skip: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Stop> {
    const CERTIFICATE: u8 = 11;
    if record_body_len(stream, 0)?.is_none() {
        return Err(Stop::NoHello);
    }
    let start = skip + HANDSHAKE_HEADER_BYTES;
    copy_records(stream, scratch, start)?;
    let Some(&[kind, high, middle, low]) = chunk_at(scratch, skip) else { return Err(Stop::Malformed) };
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    match kind {
        CERTIFICATE if length > HELLO_LIMIT => Err(Stop::Malformed),
        CERTIFICATE => {
            copy_records(stream, scratch, start + length)?;
            scratch.get(start..).ok_or(Stop::Malformed)
        }
        _ => Err(Stop::NoHello),
    }
}

/// Whether the header of a message announces more bytes than a hello or certificates may have.
fn is_too_long(message: &[u8]) -> bool {
    let length = |&[_, high, middle, low]: &[u8; HANDSHAKE_HEADER_BYTES]| u32::from_be_bytes([0, high, middle, low]);
    message.first_chunk().map(length).is_some_and(|length| length as usize > HELLO_LIMIT)
}

/// The name of a version in EVE. `None`: it has none.
pub const fn version_name(number: u16) -> Option<&'static str> {
    Some(match number {
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLS 1.1",
        0x0303 => "TLS 1.2",
        0x0304 => "TLS 1.3",
        _ => return None,
    })
}

/// A client's offer.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'a> {
    /// The version field, which TLS 1.3 leaves at 1.2 (0x0303).
    pub legacy_version: u16,
    /// Random bytes.
    pub random: &'a [u8; 32],
    /// Session to resume, or noise.
    pub session_id: &'a [u8],
    cipher_suites: &'a [u8],
    extensions: Extensions<'a>,
}

impl<'a> ClientHello<'a> {
    /// Reads the body of the message, behind its header.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let Common { legacy_version, random, session_id, rest } = Common::parse(body)?;
        let (cipher_suites, rest) = split_u16_prefixed(rest)?;
        let (_compression_methods, rest) = split_u8_prefixed(rest)?;
        let extensions = Extensions::parse(rest)?;
        Some(Self { legacy_version, random, session_id, cipher_suites, extensions })
    }

    /// Cipher suites, in order of preference.
    pub fn cipher_suites(&self) -> Numbers<'a> {
        Numbers { rest: self.cipher_suites }
    }

    /// Extensions in order: type and data.
    pub fn extensions(&self) -> Extensions<'a> {
        self.extensions
    }

    /// The highest version that it offers.
    pub fn version(&self) -> u16 {
        self.supported_versions().filter(|version| !is_grease(*version)).max().unwrap_or(self.legacy_version)
    }

    /// The host name that the client asks for (RFC 6066, 3), as it was sent.
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let (mut names, _) = split_u16_prefixed(self.extensions.find(extension::SERVER_NAME)?)?;
        while let Some((&kind, rest)) = names.split_first() {
            let (name, rest) = split_u16_prefixed(rest)?;
            if kind == 0 {
                return Some(name);
            }
            names = rest;
        }
        None
    }

    /// Application protocols, in order of preference (RFC 7301).
    pub fn application_protocols(&self) -> Strings<'a> {
        application_protocols(self.extensions)
    }

    /// Versions in order of preference (RFC 8446, 4.2.1); none before TLS 1.3.
    pub fn supported_versions(&self) -> Numbers<'a> {
        let list = self.extensions.find(extension::SUPPORTED_VERSIONS).and_then(split_u8_prefixed);
        Numbers { rest: list.map_or(&[], |(list, _)| list) }
    }

    /// The numbers of an extension that is a list of them, such as groups or signatures.
    pub fn numbers_of(&self, kind: u16) -> Numbers<'a> {
        let list = self.extensions.find(kind).and_then(split_u16_prefixed);
        Numbers { rest: list.map_or(&[], |(list, _)| list) }
    }
}

/// Whether this is a reserved number that keeps servers tolerant of unknown ones (RFC 8701).
pub const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// A server's choice.
#[derive(Clone, Copy, Debug)]
pub struct ServerHello<'a> {
    /// The version field, which TLS 1.3 leaves at 1.2; [`Self::version`] is the real one.
    pub legacy_version: u16,
    /// Random bytes.
    pub random: &'a [u8; 32],
    /// Session to resume, or the client's noise.
    pub session_id: &'a [u8],
    /// Cipher suite.
    pub cipher_suite: u16,
    extensions: Extensions<'a>,
}

impl<'a> ServerHello<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let Common { legacy_version, random, session_id, rest } = Common::parse(body)?;
        let (&[high, low, _compression_method], rest) = rest.split_first_chunk()?;
        let extensions = Extensions::parse(rest)?;
        Some(Self { legacy_version, random, session_id, cipher_suite: u16::from_be_bytes([high, low]), extensions })
    }

    /// The negotiated version: 0x0304 is TLS 1.3.
    pub fn version(&self) -> u16 {
        self.extensions
            .find(extension::SUPPORTED_VERSIONS)
            .and_then(|data| u16_at(data, 0))
            .unwrap_or(self.legacy_version)
    }

    /// Extensions in order: type and data.
    pub fn extensions(&self) -> Extensions<'a> {
        self.extensions
    }

    /// The chosen application protocol; TLS 1.3 sends it encrypted, behind the hello.
    pub fn application_protocol(&self) -> Option<&'a [u8]> {
        application_protocols(self.extensions).next()
    }
}

/// Extension types.
pub mod extension {
    /// Host name (RFC 6066).
    pub const SERVER_NAME: u16 = 0;
    /// Application-layer protocol negotiation (RFC 7301).
    pub const APPLICATION_PROTOCOLS: u16 = 16;
    /// Versions (RFC 8446, 4.2.1).
    pub const SUPPORTED_VERSIONS: u16 = 43;
}

/// The common first fields of both hellos.
struct Common<'a> {
    legacy_version: u16,
    random: &'a [u8; 32],
    session_id: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Common<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        let (version, rest) = body.split_first_chunk()?;
        let (random, rest) = rest.split_first_chunk()?;
        let (session_id, rest) = split_u8_prefixed(rest)?;
        (session_id.len() <= 32).then_some(Self {
            legacy_version: u16::from_be_bytes(*version),
            random,
            session_id,
            rest,
        })
    }
}

fn application_protocols(extensions: Extensions<'_>) -> Strings<'_> {
    let list = extensions.find(extension::APPLICATION_PROTOCOLS).and_then(split_u16_prefixed);
    Strings::new(list.map_or(&[], |(list, _)| list))
}

#[inline]
fn split_u8_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[inline]
fn split_u16_prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// Extensions in order: type and data.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Old hellos end before the list of extensions.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self { rest: &[] });
        }
        let (rest, _) = split_u16_prefixed(bytes)?;
        Some(Self { rest })
    }

    fn find(mut self, wanted: u16) -> Option<&'a [u8]> {
        self.find_map(|(kind, data)| (kind == wanted).then_some(data))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (kind, rest) = self.rest.split_first_chunk()?;
        let (data, rest) = split_u16_prefixed(rest)?;
        self.rest = rest;
        Some((u16::from_be_bytes(*kind), data))
    }
}

/// A list of 16-bit numbers: cipher suites, versions.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    rest: &'a [u8],
}

impl Iterator for Numbers<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u16::from_be_bytes(*number))
    }
}

/// Appends a host or protocol name from a peer: printable ASCII unchanged, the rest as `\DDD`.
pub fn append_name(out: &mut Vec<u8>, name: &[u8]) {
    name.iter().for_each(|byte| append_escaped(out, *byte));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u16_prefixed(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &u16_prefixed(data)].concat()
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
    }

    /// Splits a message into records of at most `size` bytes.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|chunk| [&[HANDSHAKE, 3, 1][..], &u16_prefixed(chunk)].concat()).collect()
    }

    fn client_body(host: &[u8]) -> Vec<u8> {
        let name = [&[0][..], &u16_prefixed(host)].concat();
        let extensions = [
            extension(extension::SERVER_NAME, &u16_prefixed(&name)),
            extension(extension::APPLICATION_PROTOCOLS, &u16_prefixed(b"\x02h2\x08http/1.1")),
            extension(extension::SUPPORTED_VERSIONS, &[4, 3, 4, 3, 3]),
        ];
        let fixed = [&[3, 3][..], &[7; 32], &[2, 9, 9], &[0, 4, 0x13, 1, 0xc0, 0x2f], &[1, 0]].concat();
        [fixed, u16_prefixed(&extensions.concat())].concat()
    }

    fn check_client(stream: &[u8], host: &[u8]) {
        let mut scratch = Vec::new();
        match hello(stream, &mut scratch) {
            Ok(Hello::Client(client)) => {
                assert_eq!((client.legacy_version, client.random, client.session_id), (0x0303, &[7; 32], &[9, 9][..]));
                assert_eq!(client.server_name(), Some(host));
                assert_eq!(client.application_protocols().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
                assert_eq!(client.supported_versions().collect::<Vec<_>>(), [0x0304, 0x0303]);
                assert_eq!(client.cipher_suites().collect::<Vec<_>>(), [0x1301, 0xc02f]);
                assert_eq!(client.extensions().map(|(kind, _)| kind).collect::<Vec<_>>(), [0, 16, 43]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn client_hellos() {
        let whole = message(1, &client_body(b"example.org"));
        for size in [usize::MAX, 100, 50, 9, 4, 3] {
            check_client(&records(&whole, size.min(whole.len())), b"example.org");
        }
        // Bytes behind the hello are not read.
        check_client(&[records(&whole, 1000), b"anything".to_vec()].concat(), b"example.org");
        check_client(&records(&[whole.clone(), vec![9; 20]].concat(), 1000), b"example.org");
    }

    /// A caller that feeds only the bytes asked for must succeed, and each step asks for more.
    #[test]
    fn asks_for_what_it_needs() {
        let whole = message(1, &client_body(b"example.org"));
        for size in [1000, 60, 5] {
            let stream = records(&whole, size);
            let (mut have, mut steps) = (0, 0);
            let mut scratch = Vec::new();
            while let Err(stop) = hello(&stream[..have], &mut scratch) {
                let Stop::Incomplete { need } = stop else { panic!("{stop:?} after {have} bytes") };
                assert!(need > have && need <= stream.len(), "{need} after {have}");
                (have, steps) = (need, steps + 1);
            }
            assert_eq!(have, stream.len());
            assert!(steps <= 2 * whole.len().div_ceil(size) + 1, "{steps} steps");
        }
    }

    #[test]
    fn server_hellos() {
        let check = |extensions: &[u8], expected: (u16, Option<&[u8]>)| {
            let body = [&[3, 3][..], &[7; 32], &[0], &[0x13, 2], &[0], extensions].concat();
            let stream = records(&message(2, &body), 1000);
            let mut scratch = Vec::new();
            match hello(&stream, &mut scratch) {
                Ok(Hello::Server(server)) => {
                    assert_eq!((server.cipher_suite, server.legacy_version), (0x1302, 0x0303));
                    assert_eq!((server.session_id, server.random[0]), (&[][..], 7));
                    assert_eq!((server.version(), server.application_protocol()), expected);
                    assert!(server.extensions().count() <= 1);
                }
                other => panic!("{other:?}"),
            }
        };
        check(&[], (0x0303, None));
        check(&u16_prefixed(&extension(43, &[3, 4])), (0x0304, None));
        check(&u16_prefixed(&extension(16, b"\0\x03\x02h2")), (0x0303, Some(b"h2")));
    }

    #[test]
    fn refused() {
        let check = |stream: &[u8], expected: Stop| {
            assert_eq!(hello(stream, &mut Vec::new()).map(|_| ()), Err(expected), "{stream:x?}");
        };
        check(b"", Stop::Incomplete { need: 5 });
        check(&[22], Stop::Incomplete { need: 5 });
        check(&[22, 3, 1], Stop::Incomplete { need: 5 });
        check(&[22, 3, 1, 0, 200], Stop::Incomplete { need: 9 });
        check(&[22, 3, 1, 0, 200, 1, 0, 0, 196], Stop::Incomplete { need: 205 });
        check(b"GET / HTTP/1.1", Stop::NotTls);
        check(b"S", Stop::NotTls);
        check(&[22, 2], Stop::NotTls);
        check(&[22, 3, 9], Stop::NotTls);
        check(&[22, 3, 1, 0xff, 0xff, 1], Stop::NotTls);
        check(&[22, 3, 1, 0, 0], Stop::NotTls);
        check(&[21, 3, 3, 0, 2, 2, 40], Stop::NoHello);
        check(&[23, 3, 3, 0, 20, 1, 2], Stop::NoHello);
        check(&records(&message(11, &[0; 9]), 100), Stop::NoHello);
        check(&[22, 3, 1, 0, 200, 1, 9, 0, 0], Stop::Malformed);
        check(&records(&message(1, &[3, 3, 0]), 100), Stop::Malformed);
        // Interleaved with another record.
        let whole = message(1, &client_body(b"a"));
        check(&[records(&whole[..20], 20), vec![21, 3, 1, 0, 2, 1, 0]].concat(), Stop::Malformed);
        // Spread over too many records.
        check(&records(&whole, 1), Stop::Malformed);
        let session = [&[3, 3][..], &[7; 32], &[33], &[0; 33], &[0, 2, 0, 1, 1, 0]].concat();
        check(&records(&message(1, &session), 1000), Stop::Malformed);
    }

    #[test]
    fn names_are_safe_to_print() {
        let mut out = Vec::new();
        append_name(&mut out, b"a\x1b[31m.example\n");
        assert_eq!(out, b"a\\027[31m.example\\010");
    }

    #[test]
    fn server_names() {
        let check = |data: &[u8], expected: Option<&[u8]>| {
            let list = extension(extension::SERVER_NAME, data);
            let fixed = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
            let body = [fixed, u16_prefixed(&list)].concat();
            assert_eq!(ClientHello::parse(&body).unwrap().server_name(), expected);
        };
        check(b"\0\x04\0\0\x01a", Some(b"a"));
        // Another type of name first.
        check(b"\0\x08\x01\0\x01x\0\0\x01a", Some(b"a"));
        check(b"\0\x04\x01\0\x01x", None);
        check(b"\0\x04\0\0\x09a", None);
        check(b"", None);
    }
}
