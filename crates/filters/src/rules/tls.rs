//! TLS for rules: one transaction for each connection, from the hellos and the certificates that are not encrypted.

use super::der;
use super::tls_events::{self, Records};
use super::transactions::Transactions;
use crate::parts::fingerprint::{append_md5, append_sha1, append_with_colons};
use crate::parts::json_text;
use packet::tls::{Hello, Stop, hello, is_grease};
use rules::Transaction;
use rules::names::{App, Buffer, Number};
use std::fmt::Write as _;

/// Bytes of one side that are kept until its hello and its certificates are there.
const KEPT_BYTES: usize = 96 << 10;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Side; 2],
    records: Records,
    scratch: Vec<u8>,
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// The hello was read.
    greeted: bool,
    /// There is nothing more to be read.
    done: bool,
    version: u16,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let mut odd = Vec::new();
        self.records.feed(bytes, to_server, gap, &mut odd);
        self.hello(bytes, to_server, gap, &mut odd, to);
        if !odd.is_empty() {
            let one = to.only(App::Tls);
            let id = one.id;
            for event in odd {
                if !one.events.contains(&(event, to_server)) {
                    one.events.push((event, to_server));
                }
            }
            to.change(id, to_server);
        }
    }

    fn hello(&mut self, bytes: &[u8], to_server: bool, gap: bool, odd: &mut Vec<&'static str>, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        if side.done {
            return;
        }
        side.bytes.extend_from_slice(bytes);
        let one = to.only(App::Tls);
        let id = one.id;
        let mut changed = false;
        if !side.greeted {
            match hello(&side.bytes, &mut self.scratch) {
                Ok(Hello::Client(client)) if to_server => {
                    put_client(one, &client);
                    tls_events::server_name(&client, odd);
                    changed = true;
                    side.greeted = true;
                }
                Ok(Hello::Server(server)) if !to_server => {
                    side.version = server.version();
                    put_server(one, &server);
                    changed = true;
                    side.greeted = true;
                }
                Ok(_) => side.done = true,
                Err(Stop::Incomplete { .. }) => {}
                Err(Stop::Malformed) => {
                    odd.push("tls.invalid_handshake_message");
                    side.done = true;
                }
                Err(_) => side.done = true,
            }
        }
        if side.greeted && !side.done {
            match handshakes(&side.bytes) {
                Handshakes::More => {}
                Handshakes::Over => side.done = true,
                Handshakes::Wrong => {
                    odd.push("tls.handshake_invalid_length");
                    side.done = true;
                }
                Handshakes::Certificates(list) => {
                    put_certificates(one, to_server, &list, odd);
                    changed = true;
                    side.done = true;
                }
            }
        }
        side.done |= gap || side.bytes.len() > KEPT_BYTES;
        if side.done {
            side.bytes = Vec::new();
        }
        if changed {
            to.change(id, to_server);
        }
    }
}

/// What the unencrypted handshake holds.
enum Handshakes {
    /// More must come.
    More,
    /// There are no certificates.
    Over,
    /// A message is longer than any is.
    Wrong,
    /// The body of their message.
    Certificates(Vec<u8>),
}

fn handshakes(stream: &[u8]) -> Handshakes {
    let (mut at, mut messages) = (0, Vec::new());
    let mut over = false;
    while let Some(header) = stream.get(at..at + 5) {
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != 22 {
            over = true;
            break;
        }
        let end = (at + 5 + length).min(stream.len());
        messages.extend_from_slice(&stream[at + 5..end]);
        at += 5 + length;
    }
    let mut rest = &messages[..];
    while let &[kind, high, middle, low, ref behind @ ..] = rest {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > KEPT_BYTES {
            return Handshakes::Wrong;
        }
        let Some(body) = behind.get(..length) else { break };
        match kind {
            11 => return Handshakes::Certificates(body.to_vec()),
            14 | 16 | 20 => return Handshakes::Over,
            _ => {}
        }
        rest = &behind[length..];
    }
    if over { Handshakes::Over } else { Handshakes::More }
}

fn put_client(one: &mut Transaction, client: &packet::tls::ClientHello<'_>) {
    if let Some(name) = client.server_name() {
        one.put_copy(Buffer::TLS_SNI, true, name);
    }
    for protocol in client.application_protocols() {
        one.put_copy(Buffer::TLS_ALPN, true, protocol);
    }
    put_random(one, true, client.random);
    put_version(one, true, client.legacy_version);
    let numbers = |list: &mut dyn Iterator<Item = u16>| {
        let texts: Vec<String> = list.filter(|number| !is_grease(*number)).map(|number| number.to_string()).collect();
        texts.join("-")
    };
    let find = |wanted: u16| client.extensions().find(|(kind, _)| *kind == wanted).map(|(_, data)| data);
    let groups = find(10).and_then(|data| data.get(2..)).unwrap_or_default();
    let formats = find(11).and_then(|data| data.get(1..)).unwrap_or_default();
    let mut groups = groups.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let text = format!(
        "{},{},{},{},{}",
        client.legacy_version,
        numbers(&mut client.cipher_suites()),
        numbers(&mut client.extensions().map(|(kind, _)| kind)),
        numbers(&mut groups),
        formats.iter().map(u8::to_string).collect::<Vec<_>>().join("-"),
    );
    one.put_copy(Buffer::JA3_STRING, true, text.as_bytes());
    let mut hash = Vec::new();
    append_md5(&mut hash, text.as_bytes());
    one.put_copy(Buffer::JA3_HASH, true, &hash);
    one.put_copy(Buffer::JA4_HASH, true, ja4(client).as_bytes());
}

fn put_server(one: &mut Transaction, server: &packet::tls::ServerHello<'_>) {
    put_random(one, false, server.random);
    put_version(one, false, server.version());
    if let Some(protocol) = server.application_protocol() {
        one.put_copy(Buffer::TLS_ALPN, false, protocol);
    }
    let kinds: Vec<String> = server.extensions().map(|(kind, _)| kind.to_string()).collect();
    let text = format!("{},{},{}", server.legacy_version, server.cipher_suite, kinds.join("-"));
    one.put_copy(Buffer::JA3S_STRING, false, text.as_bytes());
    let mut hash = Vec::new();
    append_md5(&mut hash, text.as_bytes());
    one.put_copy(Buffer::JA3S_HASH, false, &hash);
}

fn put_random(one: &mut Transaction, to_server: bool, random: &[u8; 32]) {
    one.put_copy(Buffer::TLS_RANDOM, to_server, random);
    one.put_copy(Buffer::TLS_RANDOM_TIME, to_server, &random[..4]);
    one.put_copy(Buffer::TLS_RANDOM_BYTES, to_server, &random[4..]);
}

fn put_version(one: &mut Transaction, to_server: bool, version: u16) {
    let name: &[u8] = match version {
        0x0301 => b"1.0",
        0x0302 => b"1.1",
        0x0303 => b"1.2",
        0x0304 => b"1.3",
        _ => return,
    };
    one.put_copy(Buffer::TLS_VERSION, to_server, name);
}

/// The fingerprint of a client, in the way of JA4 for TLS over TCP.
fn ja4(client: &packet::tls::ClientHello<'_>) -> String {
    let version = client.supported_versions().filter(|version| !is_grease(*version)).max();
    let version = match version.unwrap_or(client.legacy_version) {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        _ => "00",
    };
    let sni = if client.server_name().is_some() { 'd' } else { 'i' };
    let mut suites: Vec<u16> = client.cipher_suites().filter(|suite| !is_grease(*suite)).collect();
    let kinds: Vec<u16> = client.extensions().map(|(kind, _)| kind).filter(|kind| !is_grease(*kind)).collect();
    let alpn = client.application_protocols().next().filter(|name| !name.is_empty());
    let alpn = match alpn {
        Some([first, .., last]) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() => {
            format!("{}{}", char::from(*first), char::from(*last))
        }
        Some([one]) if one.is_ascii_alphanumeric() => format!("{0}{0}", char::from(*one)),
        Some([first, .., last]) => format!("{:x}{:x}", first >> 4, last & 15),
        Some([one]) => format!("{one:02x}"),
        _ => "00".to_string(),
    };
    let mut text = format!("t{version}{sni}{:02}{:02}{alpn}_", suites.len().min(99), kinds.len().min(99));
    suites.sort_unstable();
    let list = |numbers: &[u16]| numbers.iter().map(|number| format!("{number:04x}")).collect::<Vec<_>>().join(",");
    let short = |text: &str| match text {
        "" => "000000000000".to_string(),
        text => {
            let mut digits = Vec::new();
            json_text::hex(&mut digits, &<sha2::Sha256 as sha2::Digest>::digest(text.as_bytes())[..6]);
            digits.into_iter().map(char::from).collect()
        }
    };
    text.push_str(&short(&list(&suites)));
    let mut sorted: Vec<u16> = kinds.iter().copied().filter(|kind| !matches!(kind, 0 | 16)).collect();
    sorted.sort_unstable();
    let mut behind = list(&sorted);
    let algorithms = client.extensions().find(|(kind, _)| *kind == 13).map(|(_, data)| data);
    let algorithms = algorithms.and_then(|data| data.get(2..)).unwrap_or_default();
    let algorithms: Vec<u16> = algorithms.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect();
    if !algorithms.is_empty() {
        let _ = write!(behind, "_{}", list(&algorithms));
    }
    let _ = write!(text, "_{}", short(&behind));
    text
}

fn put_certificates(one: &mut Transaction, to_server: bool, body: &[u8], odd: &mut Vec<&'static str>) {
    let mut rest = body.get(3..).unwrap_or_default();
    let mut count = 0;
    while let &[high, middle, low, ref behind @ ..] = rest {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let Some(certificate) = behind.get(..length) else {
            odd.extend(["tls.certificate_invalid_length", "tls.invalid_certificate", "tls.invalid_handshake_message"]);
            break;
        };
        if let Some(wrong) = tls_events::certificate(certificate) {
            odd.extend([wrong, "tls.invalid_certificate", "tls.invalid_handshake_message"]);
        }
        one.put_copy(Buffer::TLS_CERTS, to_server, certificate);
        if count == 0 {
            put_certificate(one, to_server, certificate, odd);
        }
        count += 1;
        rest = &behind[length..];
    }
    one.put_number(Number::TLS_CERT_CHAIN_LEN, to_server, count);
}

fn put_certificate(one: &mut Transaction, to_server: bool, bytes: &[u8], odd: &mut Vec<&'static str>) {
    let mut digits = Vec::new();
    append_sha1(&mut digits, bytes);
    one.put_copy(Buffer::TLS_CERT_FINGERPRINT, to_server, &digits);
    let Some(certificate) = der::certificate(bytes) else { return };
    if [certificate.issuer, certificate.subject].into_iter().any(tls_events::has_wrong_text) {
        odd.push("tls.certificate_invalid_string");
    }
    digits.clear();
    append_with_colons(&mut digits, certificate.serial);
    one.put_copy(Buffer::TLS_CERT_SERIAL, to_server, &digits.to_ascii_uppercase());
    one.put_copy(Buffer::TLS_CERT_ISSUER, to_server, &der::name(certificate.issuer));
    one.put_copy(Buffer::TLS_CERT_SUBJECT, to_server, &der::name(certificate.subject));
    for name in der::alternative_names(certificate.rest) {
        one.put_copy(Buffer::TLS_SUBJECTALTNAME, to_server, name);
    }
}
