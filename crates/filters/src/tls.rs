//! TLS hellos as records: who a client asks for, and what the server chose.
//!
//! The hello itself is read by `packet::tls`; here is where in a stream it may be — at the start, or behind the plain text
//! of STARTTLS or a proxy — and the record. Nothing behind the hello is looked at.

use crate::parts::eve::{begin_row, eve_fields};
use base::limits::{TLS_BUFFERED_BYTES, TLS_PREAMBLE_BYTES};
use filter::prelude::*;
use filter::record::list_push;
use packet::tls::{self, ClientHello, Hello, ServerHello, Stop};

static SCHEMA: Schema = Schema::new(
    "tls",
    &eve_fields![
        Field::new("tls.type", FieldType::Text),
        Field::new("tls.sni", FieldType::Text),
        Field::new("tls.version", FieldType::Text),
        Field::new("tls.cipher", FieldType::Text),
        Field::new("tls.client_alpns", FieldType::Rows(&NAME)),
        Field::new("tls.server_alpns", FieldType::Rows(&NAME)),
    ],
);

/// A list of these is a list of plain texts.
static NAME: Schema = Schema::new("name", &[Field::new("", FieldType::Text)]);

/// What `tls` is.
pub static KIND: Kind = Kind::new("tls", "reads TLS hellos and gives a record of each", make)
    .help(
        "Finds the hello of each side of a TLS connection, on any port, and gives a record of it. `tls.type` is \
         client_hello or server_hello. Of a client: `tls.sni`, the host it asks for, `tls.version`, the highest it \
         offers, and `tls.client_alpns`, the protocols it offers. Of a server: the `tls.version` and `tls.cipher` it \
         chose, and `tls.server_alpns`. Bytes of names that are not printable are written as \\DDD.\n\n\
         The hello is looked for where a stream begins, and where a segment begins within the first 16 KiB: that is how it \
         is found behind STARTTLS and behind what a client says to a proxy. The rest of a stream is passed over. QUIC is \
         not read.",
    )
    .takes(&[Type::Bytes])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Class))
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap tls.pcap | tls", output: BEHIND_A_PROXY }]);

const BEHIND_A_PROXY: &str = r#"{"timestamp":"2019-09-02T18:56:53.473730000Z","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","tls":{"type":"client_hello","version":"TLS 1.2"}}
{"timestamp":"2019-09-02T18:56:53.550944000Z","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.9.8.7","src_port":8080,"dest_ip":"10.11.12.13","dest_port":54723,"proto":"TCP","tls":{"type":"server_hello","version":"TLS 1.2","cipher":"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}}
"#;

const _: () = assert!(TLS_PREAMBLE_BYTES == 16 << 10, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let record =
        Record { row: RowWriter::new(&SCHEMA), name: RowWriter::new(&NAME), list: Vec::new(), text: Vec::new() };
    Ok(Instance::session(SessionKey::Class, Tls { record, scratch: Vec::new(), buffered_bytes: 0 }))
}

struct Tls {
    record: Record,
    /// Where a hello is put together that is spread over TLS records.
    scratch: Vec<u8>,
    /// Copied parts of hellos, of all streams.
    buffered_bytes: usize,
}

/// What is kept of one direction of a connection.
enum Session {
    Looking(Looking),
    /// The hello was found, or will not come.
    Done,
}

/// A block may begin with a hello, or go on with one.
#[derive(Default)]
struct Looking {
    /// Bytes of the stream that went by.
    passed_bytes: u64,
    /// A copy of the beginning of what may be a hello.
    part: Vec<u8>,
}

/// What a block was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing of interest; the next one may be.
    Nothing,
    /// The beginning of a hello, or more of it.
    Part,
    /// The last of a hello.
    Hello,
    /// What says that no hello will come.
    NoHello,
}

impl SessionFilter for Tls {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::Looking(Looking::default())
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (place, block) in batch.iter() {
            let Session::Looking(looking) = session else {
                cx.reject(place);
                continue;
            };
            if block.gap() > 0 {
                self.forget(looking, cx);
            }
            let found = self.look(looking, block, cx);
            if matches!(found, Found::Nothing | Found::NoHello) {
                cx.reject(place);
            }
            looking.passed_bytes += u64::from(block.wire());
            let too_late = looking.passed_bytes > TLS_PREAMBLE_BYTES && looking.part.is_empty();
            if too_late || matches!(found, Found::Hello | Found::NoHello) {
                self.buffered_bytes -= looking.part.len();
                *session = Session::Done;
            }
        }
        Ok(Status::Done)
    }

    fn close(&mut self, session: Session, _: Class, _: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        if let Session::Looking(mut looking) = session {
            self.forget(&mut looking, cx);
        }
        Ok(())
    }
}

impl Tls {
    /// Looks at a block, and gives a record where a hello is complete with it.
    fn look(&mut self, looking: &mut Looking, block: &Descriptor, cx: &mut Context<'_>) -> Found {
        let mut rest = cx.rings.bytes(block);
        let mut is_part = !looking.part.is_empty();
        while !rest.is_empty() || is_part {
            let stream = if is_part { &looking.part[..] } else { rest };
            let need = match tls::hello(stream, &mut self.scratch) {
                Ok(hello) => {
                    self.record.fill(hello, block, cx.streams.get(block.class));
                    if let Some(mut record) = cx.rings.append_copy(cx.own, &[self.record.row.row()]) {
                        (record.time, record.class) = (block.time, block.class);
                        cx.out.push(record);
                    }
                    return Found::Hello;
                }
                Err(Stop::Incomplete { need }) => need,
                Err(Stop::NotTls) => {
                    self.clear(looking);
                    return Found::Nothing;
                }
                Err(Stop::NoHello) => return Found::NoHello,
                Err(Stop::Malformed) => {
                    cx.count("malformed tls hellos", 1);
                    return Found::NoHello;
                }
            };
            let (more, behind) = rest.split_at(need.saturating_sub(looking.part.len()).min(rest.len()));
            if more.is_empty() {
                break;
            }
            if !self.keep_copy(looking, more) {
                cx.count("tls hellos given up for want of memory", 1);
                return Found::NoHello;
            }
            (rest, is_part) = (behind, true);
        }
        Found::Part
    }

    /// Copies bytes behind what is kept of a hello; says no where too much is kept already, of all streams.
    fn keep_copy(&mut self, looking: &mut Looking, bytes: &[u8]) -> bool {
        if self.buffered_bytes + bytes.len() > TLS_BUFFERED_BYTES {
            return false;
        }
        self.buffered_bytes += bytes.len();
        looking.part.extend_from_slice(bytes);
        true
    }

    fn clear(&mut self, looking: &mut Looking) {
        self.buffered_bytes -= looking.part.len();
        looking.part = Vec::new();
    }

    /// The rest of a hello will not come.
    fn forget(&mut self, looking: &mut Looking, cx: &mut Context<'_>) {
        if !looking.part.is_empty() {
            cx.count("tls hellos whose rest is missing", 1);
        }
        self.clear(looking);
    }
}

/// Writes records; its buffers are kept from one to the next.
struct Record {
    row: RowWriter,
    name: RowWriter,
    list: Vec<u8>,
    text: Vec<u8>,
}

impl Record {
    fn fill(&mut self, hello: Hello<'_>, block: &Descriptor, facts: Option<&StreamFacts>) {
        begin_row(&mut self.row, block.time, block.class, facts);
        match hello {
            Hello::Client(hello) => self.client(&hello),
            Hello::Server(hello) => self.server(&hello),
        }
    }

    fn client(&mut self, hello: &ClientHello<'_>) {
        self.row.text("tls.type", "client_hello");
        if let Some(name) = hello.server_name() {
            self.text.clear();
            tls::append_name(&mut self.text, name);
            self.row.text("tls.sni", &self.text);
        }
        // RFC 8701: numbers that mean nothing, to keep servers used to those.
        let grease = |version: &u16| version & 0x0f0f == 0x0a0a;
        let offered = hello.supported_versions().filter(|version| !grease(version)).max();
        self.version(offered.unwrap_or(hello.legacy_version));
        self.names("tls.client_alpns", hello.application_protocols());
    }

    fn server(&mut self, hello: &ServerHello<'_>) {
        self.row.text("tls.type", "server_hello");
        self.version(hello.version());
        match cipher_name(hello.cipher_suite) {
            Some(name) => self.row.text("tls.cipher", name),
            None => self.row.text("tls.cipher", hex_number(hello.cipher_suite)),
        };
        self.names("tls.server_alpns", hello.application_protocol().into_iter());
    }

    fn version(&mut self, number: u16) {
        match version_name(number) {
            Some(name) => self.row.text("tls.version", name),
            None => self.row.text("tls.version", hex_number(number)),
        };
    }

    fn names<'a>(&mut self, field: &str, names: impl Iterator<Item = &'a [u8]>) {
        self.list.clear();
        for name in names {
            self.text.clear();
            tls::append_name(&mut self.text, name);
            self.name.begin();
            list_push(&mut self.list, self.name.text("", &self.text).row());
        }
        if !self.list.is_empty() {
            self.row.rows(field, &self.list);
        }
    }
}

/// The names EVE has for versions.
const fn version_name(number: u16) -> Option<&'static str> {
    Some(match number {
        0x0300 => "SSLv3",
        0x0301 => "TLSv1",
        0x0302 => "TLS 1.1",
        0x0303 => "TLS 1.2",
        0x0304 => "TLS 1.3",
        _ => return None,
    })
}

/// IANA's names of the cipher suites that most connections use.
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

/// A number without a name: `0x1304`.
fn hex_number(number: u16) -> [u8; 6] {
    let digit = |shift: u16| b"0123456789abcdef"[usize::from(number >> shift & 0xf)];
    [b'0', b'x', digit(12), digit(8), digit(4), digit(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{Piece, block, facts};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u8, data: &[u8]) -> Vec<u8> {
        [&[0, kind][..], &prefixed(data)].concat()
    }

    /// A handshake message in records of at most this many bytes.
    fn records(kind: u8, body: &[u8], size: usize) -> Vec<u8> {
        let message = [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat();
        message.chunks(size).flat_map(|chunk| [&[22, 3, 1][..], &prefixed(chunk)].concat()).collect()
    }

    fn client(host: &[u8], size: usize) -> Vec<u8> {
        let name = prefixed(&[&[0][..], &prefixed(host)].concat());
        let extensions = [
            extension(0, &name),
            extension(16, &prefixed(b"\x02h2\x08http/1.1")),
            extension(43, &[6, 0xfa, 0xfa, 3, 4, 3, 3]),
        ];
        let fixed = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0]].concat();
        records(1, &[fixed, prefixed(&extensions.concat())].concat(), size)
    }

    fn server(cipher: [u8; 2], extensions: &[u8]) -> Vec<u8> {
        records(2, &[&[3, 3][..], &[7; 32], &[0], &cipher, &[0], &prefixed(extensions)].concat(), 1000)
    }

    fn run(pieces: Vec<Piece>) -> Outcome {
        Chain::pieces(Type::Bytes, None, pieces)
            .streams(&[facts(4000, 6, 0)])
            .then(&KIND, &[])
            .then(&json::KIND, &[])
            .run()
    }

    fn found(outcome: &Outcome) -> Vec<Value> {
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["tls"].take();
        outcome.stdout.lines().map(record).collect()
    }

    fn hello(host: &str) -> Value {
        json!({"type": "client_hello", "sni": host, "version": "TLS 1.3", "client_alpns": ["h2", "http/1.1"]})
    }

    fn check(pieces: &[(u32, &[u8])], expected: &[Value], rejected: u64) {
        let outcome = run(pieces.iter().map(|(class, bytes)| block(*class, Flags::NONE, bytes, 0)).collect());
        assert_eq!(found(&outcome), expected);
        assert_eq!(outcome.counters("tls").blocks_rejected, rejected);
    }

    #[test]
    fn hellos() {
        check(&[(0, &client(b"example.org", 1000)), (0, b"more")], &[hello("example.org")], 1);
        check(&[(0, &client(b"example.org", 50))], &[hello("example.org")], 0);
        check(&[(0, &client(b"a\x1b[1m\xff", 1000))], &[hello("a\\027[1m\\255")], 0);
        check(
            &[(1, &server([0x13, 2], &[extension(43, &[3, 4]), extension(16, b"\0\x03\x02h2")].concat()))],
            &[
                json!({"type": "server_hello", "version": "TLS 1.3", "cipher": "TLS_AES_256_GCM_SHA384", "server_alpns": ["h2"]}),
            ],
            0,
        );
        let old = json!({"type": "server_hello", "version": "TLS 1.2", "cipher": "0xfefe"});
        check(&[(1, &server([0xfe, 0xfe], &[]))], &[old], 0);
    }

    #[test]
    fn behind_plain_text() {
        let hello_bytes = client(b"mail.example", 1000);
        check(&[(0, b"EHLO me\r\n"), (0, b"STARTTLS\r\n"), (0, &hello_bytes)], &[hello("mail.example")], 2);
        // In a segment that does not begin with it, or too late, it is not looked for.
        check(&[(0, &[b"STARTTLS\r\n", &hello_bytes[..]].concat())], &[], 1);
        check(&[(0, &[b'x'; TLS_PREAMBLE_BYTES as usize + 1]), (0, &hello_bytes)], &[], 2);
        // Directions are separate.
        check(&[(1, b"220 go ahead\r\n"), (0, &hello_bytes)], &[hello("mail.example")], 1);
        // What begins as a record does, and is none.
        check(&[(0, &[22]), (0, b"hello"), (0, &hello_bytes)], &[hello("mail.example")], 1);
    }

    #[test]
    fn no_hello() {
        check(&[(0, &[23, 3, 3, 0, 20, 1, 2]), (0, &client(b"a", 1000))], &[], 2);
        let outcome = run(vec![block(0, Flags::NONE, &records(1, &[3, 3, 0], 1000), 0)]);
        assert_eq!(outcome.counters("tls").events.get("malformed tls hellos"), 1);
        let bytes = client(b"example.org", 1000);
        let pieces = vec![
            block(0, Flags::FIRST, &bytes[..50], 0),
            block(0, Flags::GAP_BEFORE, &bytes[60..], 10),
            block(0, Flags::NONE, &bytes, 0),
        ];
        let outcome = run(pieces);
        assert_eq!(found(&outcome), [hello("example.org")]);
        assert_eq!(outcome.counters("tls").events.get("tls hellos whose rest is missing"), 1);
    }

    proptest! {
        /// However a stream is cut into segments and the hello into records, it is found.
        #[test]
        fn segments_do_not_matter(size in 4usize..200, cuts in proptest::collection::vec(0usize..400, 0..12)) {
            let bytes = client(b"a.rather.long.name.of.a.host.example.org", size);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|ends| block(0, Flags::NONE, &bytes[ends[0]..ends[1]], 0)).collect();
            prop_assert_eq!(found(&run(pieces)), [hello("a.rather.long.name.of.a.host.example.org")]);
        }

        #[test]
        fn any_bytes(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5), like: bool) {
            let head: &[u8] = if like { &[22, 3, 1, 0, 80, 1, 0] } else { &[] };
            let pieces = blocks.iter().map(|bytes| block(0, Flags::NONE, &[head, bytes].concat(), 0)).collect();
            prop_assert!(found(&run(pieces)).len() <= 1);
        }
    }
}
