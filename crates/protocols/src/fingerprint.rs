//! Fingerprints of TLS programs, from their offers: JA3, JA3S and JA4 (TLS). JA3 is the MD5 of its text; JA4 has two
//! SHA-256 digests, cut to 12 digits, of its texts.
//!
//! JA3 is Salesforce's (BSD-3-Clause). JA4 for TLS clients is FoxIO's (BSD-3-Clause); the rest of JA4+ has another
//! licence and is not here.

use crate::conversation::{Ear, Id};
use crate::tls::{ClientHello, ServerHello, extension, is_grease};
use md5::{Digest, Md5};
use packet::text::{append_hex, append_with_colons};
use sha1::Sha1;
use sha2::Sha256;

/// Curves that a client offers (RFC 8422, 5.1.1).
const SUPPORTED_GROUPS: u16 = 10;
/// Point formats (RFC 8422, 5.1.2).
const POINT_FORMATS: u16 = 11;
/// Signature algorithms (RFC 8446, 4.2.3).
const SIGNATURE_ALGORITHMS: u16 = 13;

/// Maximum extensions and cipher suites that JA4 sorts; a hello with more has no JA4.
const SORTED_LIMIT: usize = 512;

/// Appends JA3's text: version, cipher suites, extensions, curves and point formats.
pub(crate) fn append_ja3(out: &mut Vec<u8>, hello: &ClientHello<'_>) {
    append_decimal(out, hello.legacy_version);
    out.push(b',');
    append_list(out, hello.cipher_suites().filter(|number| !is_grease(*number)));
    out.push(b',');
    append_list(out, hello.extensions().map(|(kind, _)| kind).filter(|number| !is_grease(*number)));
    out.push(b',');
    append_list(out, hello.numbers_of(SUPPORTED_GROUPS).filter(|number| !is_grease(*number)));
    out.push(b',');
    let formats = hello.extensions().find(|(kind, _)| *kind == POINT_FORMATS);
    let formats = formats.and_then(|(_, data)| {
        let (length, rest) = data.split_first()?;
        rest.get(..usize::from(*length))
    });
    append_list(out, formats.unwrap_or_default().iter().map(|format| u16::from(*format)));
}

/// Appends JA3S' text: version, cipher suite and extensions.
pub(crate) fn append_ja3s(out: &mut Vec<u8>, hello: &ServerHello<'_>) {
    append_decimal(out, hello.legacy_version);
    out.push(b',');
    append_decimal(out, hello.cipher_suite);
    out.push(b',');
    append_list(out, hello.extensions().map(|(kind, _)| kind));
}

/// The parts of JA4.
#[derive(Debug, Default)]
pub(crate) struct Ja4 {
    /// The first part.
    pub head: Vec<u8>,
    /// The input of the second part's digest: sorted cipher suites. Empty: that part is twelve zeros.
    pub cipher_suites: Vec<u8>,
    /// The input of the third part's digest: sorted extensions, and signature algorithms. Empty as above.
    pub extensions: Vec<u8>,
}

/// The transport of a hello: JA4's first letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// Computes the parts of JA4; `None` for a hello with more cipher suites or extensions than any program has.
pub(crate) fn ja4(hello: &ClientHello<'_>, transport: Transport) -> Option<Ja4> {
    let mut ja4 = Ja4::default();
    let offered = hello.supported_versions().filter(|version| !is_grease(*version)).max();
    let version: &[u8; 2] = match offered.unwrap_or(hello.legacy_version) {
        0x0304 => b"13",
        0x0303 => b"12",
        0x0302 => b"11",
        0x0301 => b"10",
        0x0300 => b"s3",
        0x0002 => b"s2",
        0xfeff => b"d1",
        0xfefd => b"d2",
        0xfefc => b"d3",
        _ => b"00",
    };
    let mut suites: Vec<u16> = hello.cipher_suites().filter(|number| !is_grease(*number)).collect();
    let mut kinds: Vec<u16> = hello.extensions().map(|(kind, _)| kind).filter(|number| !is_grease(*number)).collect();
    if suites.len().max(kinds.len()) > SORTED_LIMIT {
        return None;
    }
    let head = &mut ja4.head;
    head.push(if transport == Transport::Quic { b'q' } else { b't' });
    head.extend_from_slice(version);
    head.push(if kinds.contains(&extension::SERVER_NAME) { b'd' } else { b'i' });
    for count in [suites.len(), kinds.len()] {
        let count = count.min(99) as u8;
        head.extend_from_slice(&[b'0' + count / 10, b'0' + count % 10]);
    }
    head.extend_from_slice(&ends(hello.application_protocols().next().unwrap_or_default()));
    suites.sort_unstable();
    append_hex_list(&mut ja4.cipher_suites, suites.into_iter());
    let has_any = !kinds.is_empty();
    kinds.retain(|kind| ![extension::SERVER_NAME, extension::APPLICATION_PROTOCOLS].contains(kind));
    kinds.sort_unstable();
    if has_any {
        append_hex_list(&mut ja4.extensions, kinds.into_iter());
        let mut signatures = hello.numbers_of(SIGNATURE_ALGORITHMS).filter(|number| !is_grease(*number)).peekable();
        if signatures.peek().is_some() {
            ja4.extensions.push(b'_');
            append_hex_list(&mut ja4.extensions, signatures);
        }
    }
    Some(ja4)
}

/// First and last character of a protocol's name, in hexadecimal if either is no letter or digit; `00` for none.
fn ends(name: &[u8]) -> [u8; 2] {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    match (name.first(), name.last()) {
        (Some(first), Some(last)) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() => [*first, *last],
        (Some(first), Some(last)) => [digit(first >> 4), digit(*last)],
        _ => *b"00",
    }
}

fn append_list(out: &mut Vec<u8>, numbers: impl Iterator<Item = u16>) {
    for (index, number) in numbers.enumerate() {
        if index > 0 {
            out.push(b'-');
        }
        append_decimal(out, number);
    }
}

fn append_decimal(out: &mut Vec<u8>, number: u16) {
    let first = [10_000, 1000, 100, 10].into_iter().find(|step| number >= *step).unwrap_or(1);
    let mut step = first;
    while step > 0 {
        out.push(b'0' + (number / step % 10) as u8);
        step /= 10;
    }
}

fn append_hex_list(out: &mut Vec<u8>, numbers: impl Iterator<Item = u16>) {
    for (index, number) in numbers.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend([12, 8, 4, 0].map(|shift| b"0123456789abcdef"[usize::from(number >> shift & 15)]));
    }
}

/// Appends an MD5 digest in hexadecimal: JA3, HASSH.
pub(crate) fn append_md5(out: &mut Vec<u8>, bytes: &[u8]) {
    append_hex(out, &Md5::digest(bytes));
}

/// Appends a SHA-1 digest in hexadecimal with colons: the usual name of a certificate.
pub(crate) fn append_sha1(out: &mut Vec<u8>, bytes: &[u8]) {
    append_with_colons(out, &Sha1::digest(bytes));
}

/// Appends a JA4 fingerprint, made from its parts.
pub(crate) fn append_ja4(out: &mut Vec<u8>, ja4: &Ja4) {
    out.extend_from_slice(&ja4.head);
    for part in [&ja4.cipher_suites, &ja4.extensions] {
        out.push(b'_');
        match part.is_empty() {
            true => out.extend_from_slice(&[b'0'; 12]),
            false => append_hex(out, &Sha256::digest(part)[..6]),
        }
    }
}

/// Says a text and its MD5, as facts in this order.
pub(crate) fn say_hashed<F>([text, hash]: [F; 2], id: Id, ear: &mut dyn Ear<F>, append: impl FnOnce(&mut Vec<u8>)) {
    let (mut string, mut digest) = (Vec::new(), Vec::new());
    append(&mut string);
    append_md5(&mut digest, &string);
    ear.fact(id, text, &string);
    ear.fact(id, hash, &digest);
}

/// Says JA3, its MD5 and JA4 of a client, as facts in this order.
pub(crate) fn say_client<F>(
    hello: &ClientHello<'_>,
    transport: Transport,
    [ja3, hash, ja4_fact]: [F; 3],
    id: Id,
    ear: &mut dyn Ear<F>,
) {
    say_hashed([ja3, hash], id, ear, |text| append_ja3(text, hello));
    if let Some(parts) = ja4(hello, transport) {
        let mut text = Vec::new();
        append_ja4(&mut text, &parts);
        ear.fact(id, ja4_fact, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Hello, hello};

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
    }

    /// A client hello in one record.
    fn client(suites: &[u8], extensions: &[Vec<u8>]) -> Vec<u8> {
        let extensions = extensions.concat();
        let length = |bytes: &[u8]| (bytes.len() as u16).to_be_bytes();
        let fixed = [&[3, 3][..], &[7; 32], &[0], &length(suites), suites, &[1, 0]].concat();
        let body = [fixed, length(&extensions).to_vec(), extensions].concat();
        let message = [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat();
        [&[22, 3, 1][..], &length(&message), &message].concat()
    }

    fn check(stream: &[u8], ja3: &str, expected: [&str; 3]) {
        let mut scratch = Vec::new();
        let Ok(Hello::Client(hello)) = hello(stream, &mut scratch) else { panic!("a client hello") };
        let mut out = Vec::new();
        append_ja3(&mut out, &hello);
        assert_eq!(String::from_utf8(out).unwrap(), ja3);
        let ja4 = ja4(&hello, Transport::Tcp).unwrap();
        let parts = [ja4.head, ja4.cipher_suites, ja4.extensions].map(|part| String::from_utf8(part).unwrap());
        assert_eq!(parts, expected);
    }

    #[test]
    fn fingerprints() {
        let all = client(
            &[0x0a, 0x0a, 0x13, 2, 0x13, 1],
            &[
                extension(0x1a1a, b""),
                extension(0, b"\0\x04\0\0\x01a"),
                extension(10, b"\0\x06\xaa\xaa\0\x1d\0\x17"),
                extension(11, b"\x01\0"),
                extension(13, b"\0\x04\x04\x03\x08\x04"),
                extension(16, b"\0\x03\x02h2"),
                extension(43, &[4, 3, 4, 3, 3]),
            ],
        );
        check(
            &all,
            "771,4866-4865,0-10-11-13-16-43,29-23,0",
            ["t13d0206h2", "1301,1302", "000a,000b,000d,002b_0403,0804"],
        );
        check(&client(&[], &[]), "771,,,,", ["t12i000000", "", ""]);
        check(&client(&[0, 10], &[extension(16, b"\0\x03\x02\xabx")]), "771,10,16,,", ["t12i0101a8", "000a", ""]);
    }

    #[test]
    fn decimals() {
        for number in [0, 7, 10, 99, 100, 999, 1000, 9999, 10_000, 65_535] {
            let mut out = Vec::new();
            append_decimal(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }

    #[test]
    fn md5() {
        let mut out = Vec::new();
        append_md5(&mut out, b"abc");
        assert_eq!(out, b"900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn the_digests_of_ja4() {
        let check = |cipher_suites: &[u8], expected: &str| {
            let mut out = Vec::new();
            let ja4 = Ja4 { head: b"t12i0000".to_vec(), cipher_suites: cipher_suites.to_vec(), extensions: Vec::new() };
            append_ja4(&mut out, &ja4);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(b"", "t12i0000_000000000000_000000000000");
        check(b"abc", "t12i0000_ba7816bf8f01_000000000000");
    }
}
