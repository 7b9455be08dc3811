//! TLS hellos and certificates as records: the host that a client asks for, the server's choices, and its certificate.
//!
//! `protocols::tls` finds and reads hellos and certificates. This file skips the header of a proxy.

use crate::parts::fact_fields::FactFields;
use crate::parts::heard::{Facts, Heads};
use crate::parts::outlet::Outlet;
use base::limits::{TLS_BUFFERED_BYTES, TLS_PREAMBLE_BYTES};
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::conversation::{Fact as _, Fed};
use protocols::proxy::{Proxy, Read};
use protocols::tls::facts::Fact;
use protocols::tls::opening::Opening;

static SCHEMA: Schema = const { &FactFields::record(Fact::ALL) }.schema("tls").summary(&[
    "tls.type",
    "tls.version",
    "tls.sni",
    "tls.cipher",
    "tls.subject",
]);

/// What `tls` is.
pub static KIND: Kind = Kind::new("tls", "reads TLS hellos and certificates and gives a record of each", make)
    .help(
        "Finds the hello of each side of a TLS connection, on any port, and gives a record of it. `tls.type` is \
         client_hello or server_hello. Of a client: `tls.sni`, the host it asks for, `tls.version`, the highest it \
         offers, `tls.client_alpns`, the protocols it offers, and the fingerprints `tls.ja3` and `tls.ja4`. Of a server: \
         the `tls.version` and `tls.cipher` it chose, `tls.server_alpns` and `tls.ja3s`. Bytes of names that are not \
         printable are written as \\DDD.\n\n\
         A side that shows its certificate, which TLS 1.3 encrypts, has one more record, of type certificate: \
         `tls.subject`, `tls.issuerdn`, `tls.subjectaltname`, `tls.serial`, `tls.fingerprint` (SHA-1), `tls.notbefore` and \
         `tls.notafter`. Certificates behind the first are passed over, and nothing is checked.\n\n\
         The hello is looked for where a stream begins, and where a segment begins within the first 16 KiB: that is how it \
         is found behind STARTTLS and behind what a client says to a proxy; a header of the PROXY protocol (version 1 or 2) \
         may be in the same segment. The rest of a stream is passed over; `decrypt` reads it, with a key log. QUIC is \
         not read.",
    )
    .takes(&[Type::Bytes])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Class))
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap tls.pcap | tls", output: BEHIND_A_PROXY }]);

const BEHIND_A_PROXY: &str = r#"{"timestamp":"2019-09-02T18:56:53.473730000Z","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.11.12.13","src_port":54723,"dest_ip":"10.9.8.7","dest_port":8080,"proto":"TCP","tls":{"type":"client_hello","version":"TLS 1.2","ja3":{"hash":"b288289af2999820648eb3ca4d8304c5","string":"771,49200-49196-49192-49188-49172-49162-165-163-161-159-107-106-105-104-57-56-55-54-136-135-134-133-49202-49198-49194-49190-49167-49157-157-61-53-132-49199-49195-49191-49187-49171-49161-164-162-160-158-103-64-63-62-51-50-49-48-154-153-152-151-69-68-67-66-49201-49197-49193-49189-49166-49156-156-60-47-150-65-49170-49160-22-19-16-13-49165-49155-10-7-49169-49159-49164-49154-5-4-255,11-10-35-13-15,23-25-24-22,0-1-2"},"ja4":"t12i860500_e18388e7f3a3_a1e935682795"}}
{"timestamp":"2019-09-02T18:56:53.550944000Z","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.9.8.7","src_port":8080,"dest_ip":"10.11.12.13","dest_port":54723,"proto":"TCP","tls":{"type":"server_hello","version":"TLS 1.2","cipher":"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384","ja3s":{"hash":"b7bd51222a09f3ad66a340710ae9c01a","string":"771,49200,35-65281"}}}
{"timestamp":"2019-09-02T18:56:53.550959000Z","flow_id":5507001706100995,"event_type":"tls","src_ip":"10.9.8.7","src_port":8080,"dest_ip":"10.11.12.13","dest_port":54723,"proto":"TCP","tls":{"type":"certificate","subject":"C=US, ST=California, L=Irvine, O=CrowdStrike, Inc., CN=lfoup01-b.cloudsink.net","issuerdn":"C=US, O=DigiCert Inc, OU=www.digicert.com, CN=DigiCert SHA2 High Assurance Server CA","subjectaltname":["lfoup01-b.cloudsink.net","cloudsink.net","ts01-b.cloudsink.net","lfodown01-b.cloudsink.net"],"serial":"04:8D:39:8C:BD:9D:68:C8:7E:1B:A3:EC:99:C2:B0:7D","fingerprint":"1c:8a:39:c5:f7:18:dd:cb:6c:e0:da:9c:53:f9:c1:36:d2:37:15:07","notbefore":"2017-05-25T00:00:00","notafter":"2020-05-29T12:00:00"}}
"#;

const _: () = assert!(TLS_PREAMBLE_BYTES == 16 << 10, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let carried = Carried::new(TLS_BUFFERED_BYTES);
    let tls = Tls { row: RowWriter::new(&SCHEMA), facts: Facts::default(), scratch: Vec::new(), carried };
    Ok(Instance::session(SessionKey::Class, tls))
}

struct Tls {
    row: RowWriter,
    /// The facts of the current message.
    facts: Facts<Fact>,
    /// Buffer for a message that is spread over TLS records.
    scratch: Vec<u8>,
    /// Copied parts of messages of all streams.
    carried: Carried,
}

/// The state of one direction of a connection.
#[derive(Default)]
struct Session {
    opening: Opening,
    /// No byte came yet.
    has_begun: bool,
    /// The header of a proxy with which the stream begins.
    proxy: Option<Proxy>,
}

impl Session {
    /// The bytes behind the header of a proxy, which may be in front of a stream.
    fn behind_proxy<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.proxy = Proxy::begin(bytes);
        }
        let Some(proxy) = &mut self.proxy else { return bytes };
        let used = match proxy.read(bytes) {
            Read::More => return &[],
            Read::Done(used) => used,
            Read::No => 0,
        };
        self.proxy = None;
        &bytes[used..]
    }
}

impl SessionFilter for Tls {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        let Tls { row, facts, scratch, carried } = self;
        Outlet::each(batch, cx, |block, outlet| {
            let bytes = outlet.bytes(block);
            let rest = session.behind_proxy(bytes);
            let is_header = rest.is_empty() && !bytes.is_empty();
            let (class, time) = (block.class, block.time);
            let mut ear = Heads { row, facts, carried, outlet, class, time };
            if block.gap() > 0 {
                session.opening.gap(carried, &mut ear);
            }
            let fed = session.opening.feed(rest, block.wire(), carried, scratch, &mut ear);
            !is_header && fed != Fed::NotMine
        })
    }

    fn close(
        &mut self,
        mut session: Session,
        class: Class,
        _: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let (time, mut outlet) = (cx.now, Outlet::new(cx));
        let Tls { row, facts, carried, .. } = self;
        session.opening.end(carried, &mut Heads { row, facts, carried, outlet: &mut outlet, class, time });
        Ok(())
    }
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

    /// A handshake message in records of at most `size` bytes.
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
        json!({
            "type": "client_hello", "sni": host, "version": "TLS 1.3", "client_alpns": ["h2", "http/1.1"],
            "ja3": {"hash": "9cd3a3df22ead6ac1977bf836d6ea964", "string": "771,4865,0-16-43,,"},
            "ja4": "t13d0103h2_0f2cb44170f4_b9a491fefe05",
        })
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
            &[json!({
                "type": "server_hello", "version": "TLS 1.3", "cipher": "TLS_AES_256_GCM_SHA384",
                "server_alpns": ["h2"],
                "ja3s": {"hash": "5bd19e3cf824f32070b4f1e664826f7f", "string": "771,4866,43-16"},
            })],
            0,
        );
        let old = json!({
            "type": "server_hello", "version": "TLS 1.2", "cipher": "0xfefe",
            "ja3s": {"hash": "303b6f4c7d4afab4b71e37ce643c440a", "string": "771,65278,"},
        });
        check(&[(1, &server([0xfe, 0xfe], &[]))], &[old], 0);
    }

    /// A certificate of `a.example`, valid in 2026, without key and signature.
    fn certificate() -> Vec<u8> {
        let der = |tag: u8, contents: &[u8]| [&[tag, 0x81, contents.len() as u8][..], contents].concat();
        let attribute = [der(6, &[0x55, 4, 3]), der(0x0c, b"a.example")].concat();
        let name = der(0x30, &der(0x31, &der(0x30, &attribute)));
        let alternative = der(4, &der(0x30, &der(0x82, b"b.example")));
        let extensions = der(0x30, &der(0x30, &[der(6, &[0x55, 0x1d, 0x11]), alternative].concat()));
        let times = [der(0x17, b"260101000000Z"), der(0x17, b"261231235959Z")].concat();
        let fields = [
            der(2, &[0x0a, 0xbc]),
            der(0x30, b""),
            name.clone(),
            der(0x30, &times),
            name,
            der(0x30, b""),
            der(0xa3, &extensions),
        ];
        der(0x30, &[der(0x30, &fields.concat()), der(0x30, b"")].concat())
    }

    fn certificate_message() -> Vec<u8> {
        let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes()[1..].to_vec();
        let certificate = certificate();
        let one = [length(&certificate), certificate].concat();
        [length(&one), one].concat()
    }

    fn is_certificate(record: &Value) -> bool {
        let expected = json!(["CN=a.example", "CN=a.example", ["b.example"], "0A:BC", "2026-01-01T00:00:00"]);
        let names = ["subject", "issuerdn", "subjectaltname", "serial", "notbefore"];
        json!(names.map(|name| &record[name])) == expected && record["fingerprint"].as_str().unwrap().len() == 59
    }

    #[test]
    fn certificates() {
        // In the record of the hello, in its own record, and spread over several.
        let (hello, message) = (server([0xc0, 0x2f], &[]), certificate_message());
        let one_record = {
            let body = [&hello[5..], &records(11, &message, 1000)[5..]].concat();
            [&[22, 3, 3][..], &prefixed(&body)].concat()
        };
        for stream in [
            one_record,
            [&hello[..], &records(11, &message, 1000)].concat(),
            [&hello[..], &records(11, &message, 50)].concat(),
        ] {
            for size in [1000, 60, 7] {
                let pieces = stream.chunks(size).map(|bytes| block(1, Flags::NONE, bytes, 0)).collect();
                let found = found(&run(pieces));
                assert_eq!(found.len(), 2, "{found:?}");
                assert!(is_certificate(&found[1]), "{:?}", found[1]);
            }
        }
        // Another message follows, or one that TLS 1.3 encrypts.
        let other = [&hello[..], &records(12, &message, 1000)].concat();
        let new = [&server([0x13, 1], &extension(43, &[3, 4]))[..], &records(11, &message, 1000)].concat();
        let damaged = [&hello[..], &records(11, &[0, 0, 4, 0, 0, 1, 9], 1000)].concat();
        for stream in [&other, &new, &damaged] {
            assert_eq!(found(&run(vec![block(1, Flags::NONE, stream, 0)])).len(), 1);
        }
    }

    #[test]
    fn behind_plain_text() {
        let hello_bytes = client(b"mail.example", 1000);
        check(&[(0, b"EHLO me\r\n"), (0, b"STARTTLS\r\n"), (0, &hello_bytes)], &[hello("mail.example")], 2);
        // A proxy's header may be in the segment of the hello, or end in it.
        let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n";
        let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x9c\x40\x01\xbb";
        for header in [&header[..], binary] {
            let both = [header, &hello_bytes].concat();
            check(&[(0, &both)], &[hello("mail.example")], 0);
            check(&[(0, &both[..20]), (0, &both[20..])], &[hello("mail.example")], 1);
            check(&[(0, header), (0, &hello_bytes)], &[hello("mail.example")], 1);
        }
        // Not found inside a segment or too late in the stream.
        check(&[(0, &[b"STARTTLS\r\n", &hello_bytes[..]].concat())], &[], 1);
        check(&[(0, &[b'x'; TLS_PREAMBLE_BYTES as usize + 1]), (0, &hello_bytes)], &[], 2);
        // Directions are separate.
        check(&[(1, b"220 go ahead\r\n"), (0, &hello_bytes)], &[hello("mail.example")], 1);
        // The bytes begin like a record but are none.
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
        /// A hello is found however a stream is cut into segments and the hello into records.
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
            prop_assert!(found(&run(pieces)).len() <= 2);
        }
    }
}
