//! The unencrypted opening of either side of SSH: its identification (RFC 4253, 4.2) and its offer of algorithms
//! (7.1). Later messages are not read.
//!
//! [`opening`] takes the bytes of one direction of a stream from its start, as many as there are, and tells how many
//! more it needs.

use packet::bytes::u32_at;

/// Longest identification line, with its end: 255 bytes in RFC 4253, 4.2, but OpenSSH accepts this many.
pub const IDENTIFICATION_LIMIT: usize = 8192;

/// Longest packet that every implementation must accept (RFC 4253, 6.1).
pub const PACKET_LIMIT: usize = 35_000;

/// Maximum bytes that a server may send before its identification; RFC 4253, 4.2 sets no bound. Legal notices of more than
/// 2 KiB are common.
pub const PREAMBLE_LIMIT: usize = 8192;

const PREFIX: &[u8] = b"SSH-";
const KEXINIT: u8 = 20;

/// The identification of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification<'a> {
    /// Version of the protocol: `2.0`, or `1.99` for a server that supports both.
    pub protocol: &'a [u8],
    /// The program and its version, without comments.
    pub software: &'a [u8],
}

/// The unencrypted opening of a side.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Who it is.
    pub identification: Identification<'a>,
    /// Its algorithms. `None`: it speaks version 1, or its first packet is not an offer.
    pub offer: Option<Offer<'a>>,
}

/// Why there is no opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The stream is too short.
    Incomplete {
        /// Bytes from its start that are needed, at least.
        need: usize,
    },
    /// Not SSH.
    NotSsh,
}

/// Reads the opening of a client, which begins with its identification (RFC 4253, 4.2).
pub fn client_opening(stream: &[u8]) -> Result<Opening<'_>, Stop> {
    let is_begin = stream.starts_with(PREFIX) || PREFIX.starts_with(stream);
    if is_begin { opening(stream) } else { Err(Stop::NotSsh) }
}

/// Does the stream have the beginning of an identification, perhaps behind other lines?
pub fn has_begun(stream: &[u8]) -> bool {
    begin(stream).is_ok()
}

/// Reads the opening at the start of `stream`; a server's may stand behind other lines.
pub fn opening(stream: &[u8]) -> Result<Opening<'_>, Stop> {
    let (identification, start) = identification(stream)?;
    let without = Opening { identification, offer: None };
    if !identification.protocol.starts_with(b"2") && identification.protocol != b"1.99" {
        return Ok(without);
    }
    let Some(length) = u32_at(stream, start) else { return Err(Stop::Incomplete { need: start + 4 }) };
    let length = length as usize;
    if !(2..=PACKET_LIMIT).contains(&length) {
        return Ok(without);
    }
    let end = start + 4 + length;
    let Some(packet) = stream.get(start + 4..end) else { return Err(Stop::Incomplete { need: end }) };
    let payload = packet.split_first().and_then(|(padding, rest)| {
        let length = rest.len().checked_sub(usize::from(*padding))?;
        rest.get(..length)
    });
    Ok(Opening { offer: payload.and_then(Offer::parse), ..without })
}

/// Reads the identification line; also returns where the bytes behind it begin.
pub fn identification(stream: &[u8]) -> Result<(Identification<'_>, usize), Stop> {
    let begin = begin(stream)?;
    let rest = stream.get(begin..).unwrap_or_default();
    let line = rest.get(..IDENTIFICATION_LIMIT).unwrap_or(rest);
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        let need = stream.len() + 1;
        return Err(if line.len() < IDENTIFICATION_LIMIT { Stop::Incomplete { need } } else { Stop::NotSsh });
    };
    let text = &line[PREFIX.len().min(end)..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let dash = text.iter().position(|byte| *byte == b'-').ok_or(Stop::NotSsh)?;
    let (protocol, software) = (&text[..dash], &text[dash + 1..]);
    let software = software.split(|byte| *byte == b' ').next().unwrap_or_default();
    Ok((Identification { protocol, software }, begin + end + 1))
}

/// The start of the identification: the stream's start, or behind lines that a server may send before (RFC 4253, 4.2).
fn begin(stream: &[u8]) -> Result<usize, Stop> {
    let (mut at, seen) = (0, stream.get(..PREAMBLE_LIMIT).unwrap_or(stream));
    loop {
        let rest = &seen[at..];
        if rest.starts_with(PREFIX) {
            return Ok(at);
        }
        if PREFIX.starts_with(rest) && seen.len() < PREAMBLE_LIMIT {
            return Err(Stop::Incomplete { need: stream.len() + 1 });
        }
        // Only lines of text may come before.
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        if line.iter().any(|byte| !matches!(byte, b' '..=b'~' | b'\t' | b'\r' | 0x80..)) {
            return Err(Stop::NotSsh);
        }
        match end {
            Some(end) => at += end + 1,
            None if seen.len() < PREAMBLE_LIMIT => return Err(Stop::Incomplete { need: stream.len() + 1 }),
            None => return Err(Stop::NotSsh),
        }
    }
}

/// Algorithms that a side offers: ten comma-separated lists in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'a> {
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

    /// Key exchange methods.
    pub fn key_exchanges(&self) -> &'a [u8] {
        self.lists[0]
    }

    /// Types of host keys.
    pub fn host_keys(&self) -> &'a [u8] {
        self.lists[1]
    }

    /// Appends the text whose MD5 is HASSH: the client's key exchanges, ciphers, MACs and compression.
    pub fn append_hassh(&self, out: &mut Vec<u8>) {
        self.append_lists(out, [0, 2, 4, 6]);
    }

    /// Appends the text whose MD5 is HASSHserver: the same for the server.
    pub fn append_hassh_server(&self, out: &mut Vec<u8>) {
        self.append_lists(out, [0, 3, 5, 7]);
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
    use proptest::prelude::*;

    /// A packet that offers these lists, with four bytes of padding.
    pub(super) fn offer(lists: [&str; 10]) -> Vec<u8> {
        let lists = lists.map(|list| [&(list.len() as u32).to_be_bytes()[..], list.as_bytes()].concat());
        let payload = [&[KEXINIT][..], &[7; 16], &lists.concat(), &[0; 5]].concat();
        [&(payload.len() as u32 + 5).to_be_bytes()[..], &[4], &payload, &[0; 4]].concat()
    }

    const LISTS: [&str; 10] = ["kex1,kex2", "key", "c1", "c2", "m1", "m2", "none", "zlib", "", ""];

    fn hassh(stream: &[u8]) -> (String, String) {
        let offer = opening(stream).unwrap().offer.unwrap();
        let (mut client, mut server) = (Vec::new(), Vec::new());
        offer.append_hassh(&mut client);
        offer.append_hassh_server(&mut server);
        (String::from_utf8(client).unwrap(), String::from_utf8(server).unwrap())
    }

    #[test]
    fn openings() {
        let check = |line: &[u8], protocol: &[u8], software: &[u8]| {
            let stream = [line, &offer(LISTS), b"more"].concat();
            let found = opening(&stream).unwrap();
            assert_eq!(found.identification, Identification { protocol, software });
            assert_eq!(hassh(&stream), ("kex1,kex2;c1;m1;none".into(), "kex1,kex2;c2;m2;zlib".into()));
            assert_eq!(found.offer.unwrap().host_keys(), b"key");
            // A caller that feeds only the bytes asked for must succeed.
            let mut have = 0;
            while let Err(Stop::Incomplete { need }) = opening(&stream[..have]).map(|_| ()) {
                assert!(need > have && need <= stream.len(), "{need} after {have}");
                have = need;
            }
            assert!(opening(&stream[..have]).is_ok());
        };
        check(b"SSH-2.0-OpenSSH_9.6 Debian-3\r\n", b"2.0", b"OpenSSH_9.6");
        check(b"SSH-1.99-x\n", b"1.99", b"x");
        check(b"Welcome\r\nto here\r\nSSH-2.0-a-b\r\n", b"2.0", b"a-b");
        check(&[&b"Welcome to this host\r\n".repeat(200)[..], b"SSH-2.0-late\r\n"].concat(), b"2.0", b"late");
    }

    #[test]
    fn without_an_offer() {
        let check = |stream: &[u8]| assert!(opening(stream).unwrap().offer.is_none());
        check(b"SSH-1.5-old\r\nanything");
        check(b"SSH-2.0-x\r\n\0\0\0\0");
        check(b"SSH-2.0-x\r\n\xff\xff\xff\xff");
        check(b"SSH-2.0-x\r\n\0\0\0\x05\xff\x14\0\0\0");
    }

    #[test]
    fn refused() {
        let check = |stream: &[u8]| assert_eq!(opening(stream).map(|_| ()), Err(Stop::NotSsh), "{stream:?}");
        check(b"\x16\x03\x01");
        check(b"SSH\x00");
        check(&[b'a'; PREAMBLE_LIMIT]);
        check(&[&b"SSH-2.0-"[..], &[b'a'; IDENTIFICATION_LIMIT]].concat());
        check(b"SSH-2.0\r\n");
        check(b"text\r\n\x01");
    }

    #[test]
    fn only_a_server_sends_lines_before() {
        let check = |stream: &[u8], of_client: Result<(), Stop>, of_server: Result<(), Stop>, begun: bool| {
            assert_eq!(client_opening(stream).map(|_| ()), of_client);
            assert_eq!(opening(stream).map(|_| ()), of_server);
            assert_eq!(has_begun(stream), begun);
        };
        check(b"Welcome\r\nSSH-1.5-x\r\n", Err(Stop::NotSsh), Ok(()), true);
        check(b"SSH-1.5-x\r\n", Ok(()), Ok(()), true);
        check(b"SS", Err(Stop::Incomplete { need: 3 }), Err(Stop::Incomplete { need: 3 }), false);
        check(b"GET / HTTP/1.1\r\n", Err(Stop::NotSsh), Err(Stop::Incomplete { need: 17 }), false);
    }

    proptest! {
        #[test]
        fn any_bytes(at in 0usize..200, value: u8, cut in 0usize..200) {
            let mut stream = [b"SSH-2.0-x\r\n".as_slice(), &offer(LISTS)].concat();
            if let Some(byte) = stream.get_mut(at) { *byte = value; }
            stream.truncate(cut);
            if let Err(Stop::Incomplete { need }) = opening(&stream) {
                prop_assert!(need > stream.len() && need <= PACKET_LIMIT + PREAMBLE_LIMIT + IDENTIFICATION_LIMIT);
            }
        }
    }
}
