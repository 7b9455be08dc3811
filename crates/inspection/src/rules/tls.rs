//! TLS for rules: one transaction per connection, from the hellos and the unencrypted certificates, which
//! `protocols::tls` finds, as it does for the filter `tls`.

use super::transactions::Transactions;
use packet::text::append_with_colons;
use protocols::carry::Carried;
use protocols::fingerprint::{Transport, append_ja3, append_ja3s, append_ja4, append_md5, append_sha1, ja4};
use protocols::tls::odd::{self as tls_events, Records};
use protocols::tls::opening::{Heard, Opening};
use protocols::tls::{ClientHello, HELLO_LIMIT, Hello, ServerHello, version_name};
use protocols::x509::{AlternativeName, Certificate, Chain};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

/// Most bytes kept of both sides until their hellos and certificates are complete, with record headers.
const KEPT_BYTES: usize = 2 * (HELLO_LIMIT + (32 << 10));

/// The openings of both sides.
#[derive(Debug)]
pub(super) struct Openings {
    sides: [Opening; 2],
    kept: Carried,
    scratch: Vec<u8>,
}

impl Default for Openings {
    fn default() -> Openings {
        Openings { sides: Default::default(), kept: Carried::new(KEPT_BYTES), scratch: Vec::new() }
    }
}

impl Openings {
    /// Reads the next bytes of a side, before which `gap` are missing.
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: u32, to: &mut Transactions) {
        let Openings { sides, kept, scratch } = self;
        let opening = &mut sides[usize::from(!to_server)];
        let mut ear = |heard: Heard<'_>| hear(heard, to_server, to);
        if gap > 0 {
            opening.gap(kept, &mut ear);
        }
        opening.feed(bytes, gap.saturating_add(bytes.len() as u32), kept, scratch, &mut ear);
    }

    /// Whether later bytes of both sides are passed over.
    pub fn are_over(&self) -> bool {
        self.sides.iter().all(Opening::is_over)
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes() + self.scratch.capacity()
    }
}

/// Puts what a side says into the only transaction.
fn hear(heard: Heard<'_>, to_server: bool, to: &mut Transactions) {
    match heard {
        Heard::Hello(hello) if matches!(hello, Hello::Client(_)) != to_server => return,
        Heard::Lost(_) | Heard::Missed(_) => {
            to.given_up += 1;
            to.unseen |= matches!(heard, Heard::Lost(_));
            return;
        }
        _ => {}
    }
    let one = to.only(App::Tls);
    let id = one.id;
    let mut odd = Vec::new();
    match heard {
        Heard::Hello(Hello::Client(client)) => {
            put_client(one, &client);
            tls_events::server_name(&client, &mut odd);
        }
        Heard::Hello(Hello::Server(server)) => put_server(one, &server),
        Heard::Certificates(body) => put_certificates(one, to_server, body, &mut odd),
        Heard::Malformed => odd.push("tls.invalid_handshake_message"),
        Heard::TooLong => odd.push("tls.handshake_invalid_length"),
        Heard::Lost(_) | Heard::Missed(_) => {}
    }
    odd.into_iter().for_each(|event| one.put_event(event, to_server));
    to.change(id, to_server);
}

/// A connection that begins with TLS: openings, and what is odd about records.
#[derive(Debug, Default)]
pub(super) struct Stream {
    openings: Openings,
    records: Records,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: u32, to: &mut Transactions) {
        let mut odd = Vec::new();
        self.records.feed(bytes, to_server, gap > 0, &mut odd);
        if !odd.is_empty() {
            let one = to.only(App::Tls);
            let id = one.id;
            odd.into_iter().for_each(|event| one.put_event(event, to_server));
            to.change(id, to_server);
        }
        self.openings.feed(bytes, to_server, gap, to);
    }

    pub fn kept_bytes(&self) -> usize {
        self.openings.kept_bytes() + self.records.kept_bytes()
    }
}

fn put_client(one: &mut Transaction, client: &ClientHello<'_>) {
    if let Some(name) = client.server_name() {
        one.put_copy(Buffer::TLS_SNI, true, name);
    }
    for protocol in client.application_protocols() {
        one.put_copy(Buffer::TLS_ALPN, true, protocol);
    }
    put_random(one, true, client.random);
    put_version(one, true, client.version());
    put_fingerprint(one, true, [Buffer::JA3_STRING, Buffer::JA3_HASH], |text| append_ja3(text, client));
    if let Some(parts) = ja4(client, Transport::Tcp) {
        let mut text = Vec::new();
        append_ja4(&mut text, &parts);
        one.put_copy(Buffer::JA4_HASH, true, &text);
    }
}

fn put_server(one: &mut Transaction, server: &ServerHello<'_>) {
    put_random(one, false, server.random);
    put_version(one, false, server.version());
    if let Some(protocol) = server.application_protocol() {
        one.put_copy(Buffer::TLS_ALPN, false, protocol);
    }
    put_fingerprint(one, false, [Buffer::JA3S_STRING, Buffer::JA3S_HASH], |text| append_ja3s(text, server));
}

/// Adds a text and its MD5.
fn put_fingerprint(one: &mut Transaction, to_server: bool, names: [Buffer; 2], append: impl FnOnce(&mut Vec<u8>)) {
    let (mut text, mut hash) = (Vec::new(), Vec::new());
    append(&mut text);
    append_md5(&mut hash, &text);
    names.into_iter().zip([text, hash]).for_each(|(name, bytes)| one.put_copy(name, to_server, &bytes));
}

fn put_random(one: &mut Transaction, to_server: bool, random: &[u8; 32]) {
    one.put_copy(Buffer::TLS_RANDOM, to_server, random);
    one.put_copy(Buffer::TLS_RANDOM_TIME, to_server, &random[..4]);
    one.put_copy(Buffer::TLS_RANDOM_BYTES, to_server, &random[4..]);
}

/// Adds a version as rules name it: 1.2, where EVE has TLS 1.2.
fn put_version(one: &mut Transaction, to_server: bool, version: u16) {
    let hex = format!("0x{version:04x}");
    let name = match version_name(version) {
        Some("TLSv1") => "1.0",
        Some(name) => name.strip_prefix("TLS ").unwrap_or(name),
        None => &hex,
    };
    one.put_copy(Buffer::TLS_VERSION, to_server, name.as_bytes());
}

fn put_certificates(one: &mut Transaction, to_server: bool, body: &[u8], odd: &mut Vec<&'static str>) {
    const LENGTH_BYTES: usize = 3;
    let (mut count, mut bytes) = (0, LENGTH_BYTES);
    for certificate in Chain::new(body) {
        match tls_events::certificate(certificate) {
            Ok(names) if count == 0 && names.into_iter().any(tls_events::has_wrong_text) => {
                odd.push("tls.certificate_invalid_string");
            }
            Ok(_) => {}
            Err(wrong) => odd.extend([wrong, "tls.invalid_certificate", "tls.invalid_handshake_message"]),
        }
        one.put_copy(Buffer::TLS_CERTS, to_server, certificate);
        if count == 0 {
            put_certificate(one, to_server, certificate);
        }
        count += 1;
        bytes += LENGTH_BYTES + certificate.len();
    }
    // The chain ended at a length that does not fit.
    if bytes != body.len() {
        odd.extend(["tls.certificate_invalid_length", "tls.invalid_certificate", "tls.invalid_handshake_message"]);
    }
    one.put_number(Number::TLS_CERT_CHAIN_LEN, to_server, count);
}

fn put_certificate(one: &mut Transaction, to_server: bool, bytes: &[u8]) {
    let mut text = Vec::new();
    let mut put = |buffer: Buffer, append: &dyn Fn(&mut Vec<u8>)| {
        text.clear();
        append(&mut text);
        one.put_copy(buffer, to_server, &text);
    };
    put(Buffer::TLS_CERT_FINGERPRINT, &|text| append_sha1(text, bytes));
    let Some(certificate) = Certificate::parse(bytes) else { return };
    put(Buffer::TLS_CERT_SERIAL, &|text| {
        append_with_colons(text, certificate.serial);
        text.make_ascii_uppercase();
    });
    put(Buffer::TLS_CERT_ISSUER, &|text| certificate.issuer.append_raw(text));
    put(Buffer::TLS_CERT_SUBJECT, &|text| certificate.subject.append_raw(text));
    for name in certificate.alternative_names() {
        put(Buffer::TLS_SUBJECTALTNAME, &|text| match name {
            AlternativeName::Text(name) => text.extend_from_slice(name),
            AlternativeName::Address(address) => text.extend_from_slice(address.to_string().as_bytes()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind], &(body.len() as u32).to_be_bytes()[1..], body].concat()
    }

    fn record(body: &[u8]) -> Vec<u8> {
        [&[22, 3, 3], &(body.len() as u16).to_be_bytes()[..], body].concat()
    }

    fn server_hello() -> Vec<u8> {
        message(2, &[&[3, 3][..], &[7; 32], &[0, 0, 5, 0]].concat())
    }

    fn events(stream: &[u8], to_server: bool) -> Vec<&'static str> {
        let of = |size: usize| {
            let (mut tls, mut to) = (Stream::default(), Transactions::default());
            stream.chunks(size).for_each(|piece| tls.feed(piece, to_server, 0, &mut to));
            to.only(App::Tls).events.iter().map(|(event, _)| *event).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(stream.len()), "byte by byte");
        of(1)
    }

    #[test]
    fn odd_messages_are_said_once() {
        const INVALID: [&str; 2] = ["tls.invalid_certificate", "tls.invalid_handshake_message"];
        let behind = |more: &[u8]| [record(&server_hello()), record(more)].concat();
        let check = |stream: &[u8], expected: &[&str]| assert_eq!(events(stream, false), expected, "{stream:x?}");
        check(&behind(&message(11, &[0, 0, 0])), &[]);
        check(&behind(&message(14, &[])), &[]);
        check(&record(&message(2, &[3, 3])), &["tls.invalid_handshake_message"]);
        check(&behind(&[11, 2, 0, 0]), &["tls.handshake_invalid_length"]);
        check(&behind(&[12, 2, 0, 0]), &["tls.handshake_invalid_length"]);
        let (cut, wrong) = ("tls.certificate_invalid_length", "tls.certificate_unknown_element");
        check(&behind(&message(11, &[0, 0, 4, 0, 0, 2, 1])), &[cut, INVALID[0], INVALID[1]]);
        check(&behind(&message(11, &[0, 0, 5, 0, 0, 3, 1, 2])), &[cut, INVALID[0], INVALID[1]]);
        let two = [0, 0, 10, 0, 0, 2, 4, 0, 0, 0, 2, 4, 0];
        check(&behind(&message(11, &two)), &[wrong, INVALID[0], INVALID[1]]);
        assert_eq!(events(&record(&message(1, &[3, 3])), true), ["tls.invalid_handshake_message"]);
    }

    #[test]
    fn openings_given_up_are_counted() {
        let feed = |mut tls: Stream, pieces: &[(&[u8], u32)]| {
            let mut to = Transactions::default();
            pieces.iter().for_each(|(bytes, gap)| tls.feed(bytes, false, *gap, &mut to));
            (to.given_up, to.unseen)
        };
        let (hello, small) = (record(&server_hello()), || {
            let openings = Openings { kept: Carried::new(4), ..Openings::default() };
            Stream { openings, ..Stream::default() }
        });
        assert_eq!(feed(Stream::default(), &[(&hello, 0), (&hello, 5)]), (0, false), "the gap is behind the hello");
        assert_eq!(
            feed(Stream::default(), &[(&hello[..9], 0), (&hello[12..], 3)]),
            (1, false),
            "no limit is the cause"
        );
        assert_eq!(feed(small(), &[(&hello[..9], 0)]), (1, true), "there is no room for the hello");
        assert_eq!(feed(small(), &[(&[&hello[..], &[22, 3, 3, 0, 9]].concat(), 0)]), (1, true), "nor for certificates");
    }

    #[test]
    fn what_records_keep_is_counted() {
        let (mut tls, mut to) = (Stream::default(), Transactions::default());
        tls.feed(&[22, 3, 3], true, 0, &mut to);
        assert!(tls.kept_bytes() >= 6, "the bytes, and the header of the record");
        tls.feed(&[], true, 1, &mut to);
        assert!(tls.records.kept_bytes() > 0 && tls.kept_bytes() == tls.records.kept_bytes());
    }
}
