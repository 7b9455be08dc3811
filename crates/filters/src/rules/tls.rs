//! TLS for rules: one transaction for each connection, from the hellos and the certificates that are not encrypted.

use super::transactions::Transactions;
use crate::parts::fingerprint::{append_ja4, append_md5, append_sha1, append_with_colons};
use packet::fingerprint::{Transport, append_ja3, append_ja3s, ja4};
use packet::tls::{ClientHello, HELLO_LIMIT, Hello, ServerHello, Stop, behind_hello, certificates, hello};
use packet::x509::{AlternativeName, Certificate, Chain};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

/// Bytes of one side that are kept until its hello or its certificates are there, with the headers of their records.
const KEPT_BYTES: usize = HELLO_LIMIT + (32 << 10);

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Side; 2],
    scratch: Vec<u8>,
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// Bytes of them that are needed at least to read on.
    need: usize,
    /// The hello was read: so many bytes of messages at their start belong to it.
    skip: Option<usize>,
    /// There is nothing more to be read.
    done: bool,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        if !side.done && !gap {
            let room = KEPT_BYTES - side.bytes.len();
            side.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
            while side.bytes.len() >= side.need && !side.done {
                if let Err(stop) = side.read(to_server, &mut self.scratch, to) {
                    match stop {
                        Stop::Incomplete { need } => side.need = need,
                        _ => side.done = true,
                    }
                }
            }
        }
        side.done |= gap || side.bytes.len() == KEPT_BYTES;
        if side.done {
            side.bytes = Vec::new();
        }
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.scratch.capacity() + self.sides.iter().map(|side| side.bytes.capacity()).sum::<usize>()
    }
}

impl Side {
    /// Reads what comes next: the hello, or the certificates.
    fn read(&mut self, to_server: bool, scratch: &mut Vec<u8>, to: &mut Transactions) -> Result<(), Stop> {
        let one = to.only(App::Tls);
        let id = one.id;
        if let Some(skip) = self.skip {
            put_certificates(one, to_server, certificates(&self.bytes, skip, scratch)?);
            self.done = true;
        } else {
            let is_plain = match hello(&self.bytes, scratch)? {
                Hello::Client(client) if to_server => {
                    put_client(one, &client);
                    true
                }
                Hello::Server(server) if !to_server => {
                    put_server(one, &server);
                    // TLS 1.3 encrypts what a server says behind its hello.
                    server.version() <= 0x0303
                }
                _ => return Err(Stop::NoHello),
            };
            match behind_hello(&self.bytes).filter(|_| is_plain) {
                Some(place) => {
                    self.bytes.drain(..place.record);
                    (self.skip, self.need) = (Some(place.skip), 0);
                }
                None => self.done = true,
            }
        }
        to.change(id, to_server);
        Ok(())
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
    put_version(one, true, client.legacy_version);
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

/// Puts a text and its MD5.
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

fn put_certificates(one: &mut Transaction, to_server: bool, body: &[u8]) {
    let mut count = 0;
    for certificate in Chain::new(body) {
        one.put_copy(Buffer::TLS_CERTS, to_server, certificate);
        if count == 0 {
            put_certificate(one, to_server, certificate);
        }
        count += 1;
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
