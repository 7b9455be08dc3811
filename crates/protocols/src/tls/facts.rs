//! The facts of hellos and certificates, by the names of records and rules.

use super::{ClientHello, Hello, ServerHello, odd, version_name};
use crate::conversation::{self, About, Ear, Id, Kind};
use crate::fingerprint::{Transport, append_ja3s, append_sha1, say_client, say_hashed};
use crate::x509::{AlternativeName, Certificate, Chain};
use packet::text::append_with_colons;

/// A fact about a hello, or about the certificates behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The message: a hello of either side, or certificates.
    Type,
    /// The host that the client asks for.
    Sni,
    /// The highest version that the client offers, or the one that the server chose, as rules name it.
    Version,
    /// The cipher suite that the server chose.
    Cipher,
    /// An application protocol that the client offers, or the one that the server chose.
    Alpn,
    /// MD5 of the next one, in hexadecimal.
    Ja3Hash,
    /// Versions and numbers that the client offers (JA3), or the server chose (JA3S).
    Ja3String,
    /// JA4.
    Ja4,
    /// The random bytes.
    Random,
    /// The first four of them, once a time.
    RandomTime,
    /// The others.
    RandomBytes,
    /// A certificate.
    Certificate,
    /// The number of certificates.
    ChainLength,
    /// The subject of the first certificate, with escapes.
    Subject,
    /// The same without escapes.
    RawSubject,
    /// Its issuer, with escapes.
    Issuer,
    /// The same without escapes.
    RawIssuer,
    /// Another name of its subject.
    AlternativeName,
    /// Its serial number.
    Serial,
    /// Its SHA-1.
    Fingerprint,
    /// When it becomes valid.
    NotBefore,
    /// When its validity ends.
    NotAfter,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("tls.type", "", Kind::Text),
        About::client("tls.sni", "tls.sni", Kind::Name),
        About::both("tls.version", "tls.version", Kind::Shown(show_version)),
        About::server("tls.cipher", "", Kind::Text),
        About { field: ["tls.client_alpns", "tls.server_alpns"], buffer: ["tls.alpn"; 2], kind: Kind::NameItem },
        About { field: ["tls.ja3.hash", "tls.ja3s.hash"], buffer: ["ja3.hash", "ja3s.hash"], kind: Kind::Text },
        About { field: ["tls.ja3.string", "tls.ja3s.string"], buffer: ["ja3.string", "ja3s.string"], kind: Kind::Text },
        About::client("tls.ja4", "ja4.hash", Kind::Text),
        About::both("", "tls.random", Kind::Text),
        About::both("", "tls.random_time", Kind::Text),
        About::both("", "tls.random_bytes", Kind::Text),
        About::both("", "tls.certs", Kind::Text),
        About::both("", "tls.cert_chain_len", Kind::Number),
        About::both("tls.subject", "", Kind::Text),
        About::both("", "tls.cert_subject", Kind::Text),
        About::both("tls.issuerdn", "", Kind::Text),
        About::both("", "tls.cert_issuer", Kind::Text),
        About::both("tls.subjectaltname", "tls.subjectaltname", Kind::NameItem),
        About::both("tls.serial", "tls.cert_serial", Kind::Text),
        About::both("tls.fingerprint", "tls.cert_fingerprint", Kind::Text),
        About::both("tls.notbefore", "", Kind::Text),
        About::both("tls.notafter", "", Kind::Text),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// Appends a version as EVE writes it: TLS 1.2, where rules have 1.2.
fn show_version(out: &mut Vec<u8>, version: &[u8]) {
    match version {
        b"1.0" => out.extend_from_slice(b"TLSv1"),
        [b'S' | b'0', ..] => out.extend_from_slice(version),
        _ => out.extend_from_slice(&[b"TLS ", version].concat()),
    }
}

/// Says a text that `append` makes.
fn say(ear: &mut dyn Ear<Fact>, id: Id, fact: Fact, append: impl FnOnce(&mut Vec<u8>)) {
    let mut text = Vec::new();
    append(&mut text);
    ear.fact(id, fact, &text);
}

/// Says the facts of a hello.
pub(super) fn hello(hello: &Hello<'_>, id: Id, ear: &mut dyn Ear<Fact>) {
    match hello {
        Hello::Client(hello) => client(hello, id, ear),
        Hello::Server(hello) => server(hello, id, ear),
    }
    ear.head_done(id);
}

fn client(hello: &ClientHello<'_>, id: Id, ear: &mut dyn Ear<Fact>) {
    ear.fact(id, Fact::Type, b"client_hello");
    if let Some(name) = hello.server_name() {
        ear.fact(id, Fact::Sni, name);
    }
    hello.application_protocols().for_each(|protocol| ear.fact(id, Fact::Alpn, protocol));
    both(hello.version(), hello.random, id, ear);
    say_client(hello, Transport::Tcp, [Fact::Ja3String, Fact::Ja3Hash, Fact::Ja4], id, ear);
    let mut events = Vec::new();
    odd::server_name(hello, &mut events);
    events.into_iter().for_each(|event| ear.odd(id, event));
}

fn server(hello: &ServerHello<'_>, id: Id, ear: &mut dyn Ear<Fact>) {
    ear.fact(id, Fact::Type, b"server_hello");
    hello.application_protocol().into_iter().for_each(|protocol| ear.fact(id, Fact::Alpn, protocol));
    both(hello.version(), hello.random, id, ear);
    let number = hello.cipher_suite;
    match cipher_name(number) {
        Some(name) => ear.fact(id, Fact::Cipher, name.as_bytes()),
        None => ear.fact(id, Fact::Cipher, format!("0x{number:04x}").as_bytes()),
    }
    say_hashed([Fact::Ja3String, Fact::Ja3Hash], id, ear, |text| append_ja3s(text, hello));
}

/// Says the facts that hellos of both sides have.
fn both(version: u16, random: &[u8; 32], id: Id, ear: &mut dyn Ear<Fact>) {
    match version_name(version) {
        Some("TLSv1") => ear.fact(id, Fact::Version, b"1.0"),
        Some(name) => ear.fact(id, Fact::Version, name.strip_prefix("TLS ").unwrap_or(name).as_bytes()),
        None => ear.fact(id, Fact::Version, format!("0x{version:04x}").as_bytes()),
    }
    ear.fact(id, Fact::Random, random);
    ear.fact(id, Fact::RandomTime, &random[..4]);
    ear.fact(id, Fact::RandomBytes, &random[4..]);
}

/// Says the facts of the body of the message with certificates.
pub(super) fn certificates(body: &[u8], id: Id, ear: &mut dyn Ear<Fact>) {
    const LENGTH_BYTES: usize = 3;
    let (mut count, mut bytes, mut events) = (0, LENGTH_BYTES, Vec::new());
    for certificate in Chain::new(body) {
        match odd::certificate(certificate) {
            Ok(names) if count == 0 && names.into_iter().any(odd::has_wrong_text) => {
                events.push("tls.certificate_invalid_string");
            }
            Ok(_) => {}
            Err(wrong) => events.extend([wrong, "tls.invalid_certificate", "tls.invalid_handshake_message"]),
        }
        ear.fact(id, Fact::Certificate, certificate);
        if count == 0 {
            first_certificate(certificate, id, ear);
        }
        count += 1;
        bytes += LENGTH_BYTES + certificate.len();
    }
    // The chain ended at a length that does not fit.
    if bytes != body.len() {
        events.extend(["tls.certificate_invalid_length", "tls.invalid_certificate", "tls.invalid_handshake_message"]);
    }
    events.into_iter().for_each(|event| ear.odd(id, event));
    ear.number(id, Fact::ChainLength, count);
}

fn first_certificate(bytes: &[u8], id: Id, ear: &mut dyn Ear<Fact>) {
    let Some(certificate) = Certificate::parse(bytes) else { return ear.count("malformed tls certificates", 1) };
    ear.fact(id, Fact::Type, b"certificate");
    say(ear, id, Fact::Fingerprint, |text| append_sha1(text, bytes));
    say(ear, id, Fact::Serial, |text| {
        append_with_colons(text, certificate.serial);
        text.make_ascii_uppercase();
    });
    say(ear, id, Fact::Subject, |text| certificate.subject.append(text));
    say(ear, id, Fact::RawSubject, |text| certificate.subject.append_raw(text));
    say(ear, id, Fact::Issuer, |text| certificate.issuer.append(text));
    say(ear, id, Fact::RawIssuer, |text| certificate.issuer.append_raw(text));
    for name in certificate.alternative_names() {
        match name {
            AlternativeName::Text(name) => ear.fact(id, Fact::AlternativeName, name),
            AlternativeName::Address(address) => {
                ear.fact(id, Fact::AlternativeName, address.to_string().as_bytes());
            }
        }
    }
    say(ear, id, Fact::NotBefore, |text| certificate.not_before.append(text));
    say(ear, id, Fact::NotAfter, |text| certificate.not_after.append(text));
    ear.head_done(id);
}

/// IANA's names of the most frequent cipher suites.
const fn cipher_name(number: u16) -> Option<&'static str> {
    Some(match number {
        0x1301 => "TLS_AES_128_GCM_SHA256",
        0x1302 => "TLS_AES_256_GCM_SHA384",
        0x1303 => "TLS_CHACHA20_POLY1305_SHA256",
        0xc02b => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        0xc02c => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        0xc02f => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        0xc030 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        0xcca8 => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        0xcca9 => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        0xc013 => "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        0xc014 => "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        0x009c => "TLS_RSA_WITH_AES_128_GCM_SHA256",
        0x009d => "TLS_RSA_WITH_AES_256_GCM_SHA384",
        0x002f => "TLS_RSA_WITH_AES_128_CBC_SHA",
        0x0035 => "TLS_RSA_WITH_AES_256_CBC_SHA",
        _ => return None,
    })
}
