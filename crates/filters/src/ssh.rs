//! The unencrypted openings of both sides of SSH, as a record of the connection.
//!
//! `protocols::ssh` reads the openings. This file keeps them until both sides are complete, and makes the record. Later
//! bytes are not read.

use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::fingerprint::append_md5;
use crate::parts::outlet::Outlet;
use base::limits::SSH_BUFFERED_BYTES;
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::ssh::{self, Identification, Offer, Stop};

static SCHEMA: Schema = Schema::new(
    "ssh",
    &eve_fields![
        Field::new("ssh.client.proto_version", FieldType::Text),
        Field::new("ssh.client.software_version", FieldType::Text),
        Field::new("ssh.client.hassh.hash", FieldType::Text),
        Field::new("ssh.client.hassh.string", FieldType::Text),
        Field::new("ssh.server.proto_version", FieldType::Text),
        Field::new("ssh.server.software_version", FieldType::Text),
        Field::new("ssh.server.hassh.hash", FieldType::Text),
        Field::new("ssh.server.hassh.string", FieldType::Text),
    ],
);

/// Names of a side's fields, client first.
const FIELDS: [[&str; 4]; 2] = [
    ["ssh.client.proto_version", "ssh.client.software_version", "ssh.client.hassh.hash", "ssh.client.hassh.string"],
    ["ssh.server.proto_version", "ssh.server.software_version", "ssh.server.hassh.hash", "ssh.server.hassh.string"],
];

/// What `ssh` is.
pub static KIND: Kind = Kind::new(
    "ssh",
    "reads what SSH peers say of themselves and gives a record of each connection",
    make,
)
.help(
    "Finds SSH on any port, by its first bytes, and gives one record of each connection when both sides have said \
         what they offer, or when it ends. Of each side, under `ssh.client` and `ssh.server`: `proto_version`, \
         `software_version` without comments, and `hassh` with `hash` and `string`, the fingerprint of the offered \
         algorithms (HASSH, of the server HASSHserver). The client is who opened the connection. The rest of a stream \
         is passed over.",
)
.takes(&[Type::Bytes])
.rejects()
.gives_records(&SCHEMA)
.mode(Mode::Session(SessionKey::Connection))
.wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
.parses_payload()
.examples(&[Example { request: "pcap ssh.pcap | ssh", output: BOTH_SIDES }]);

const BOTH_SIDES: &str = r#"{"timestamp":"2023-07-13T10:00:05.282065000Z","flow_id":2310137350286445,"event_type":"ssh","src_ip":"192.168.77.16","src_port":60063,"dest_ip":"10.11.3.225","dest_port":22,"proto":"TCP","ssh":{"client":{"proto_version":"2.0","software_version":"libssh-0.7.2","hassh":{"hash":"c8c5fbf80b7b0a1b0e4de5e683f3c5ad","string":"curve25519-sha256@libssh.org,ecdh-sha2-nistp256,diffie-hellman-group14-sha1,diffie-hellman-group1-sha1;aes256-ctr,aes192-ctr,aes128-ctr,aes256-cbc,aes192-cbc,aes128-cbc,blowfish-cbc,3des-cbc;hmac-sha2-256,hmac-sha2-512,hmac-sha1;none"}},"server":{"proto_version":"2.0","software_version":"OpenSSH_7.4","hassh":{"hash":"6832f1ce43d4397c2c0a3e2f8c94334e","string":"curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521,diffie-hellman-group-exchange-sha256,diffie-hellman-group16-sha512,diffie-hellman-group18-sha512,diffie-hellman-group-exchange-sha1,diffie-hellman-group14-sha256,diffie-hellman-group14-sha1,diffie-hellman-group1-sha1;chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-cbc,aes192-cbc,aes256-cbc,blowfish-cbc,cast128-cbc,3des-cbc;umac-64-etm@openssh.com,umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha1-etm@openssh.com,umac-64@openssh.com,umac-128@openssh.com,hmac-sha2-256,hmac-sha2-512,hmac-sha1;none,zlib@openssh.com"}}}}
"#;

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::session(SessionKey::Connection, Ssh::new(SSH_BUFFERED_BYTES)))
}

struct Ssh {
    row: RowWriter,
    text: Vec<u8>,
    /// Parts of openings, and copies of complete ones, of all connections.
    carried: Carried,
}

/// The state of both sides, client first.
#[derive(Default)]
struct Session {
    sides: [Side; 2],
    /// The record was given, or will not be.
    done: bool,
}

#[derive(Default)]
enum Side {
    #[default]
    Fresh,
    /// A copy of the beginning of its opening, and how many bytes are needed at least to read on.
    Part(Vec<u8>, usize),
    /// A complete opening.
    Said(Box<Said>),
    /// The side speaks something else, or bytes are missing.
    Other,
}

/// A copy of a side's opening.
#[derive(Default)]
struct Said {
    protocol: Vec<u8>,
    software: Vec<u8>,
    hassh: Vec<u8>,
}

impl SessionFilter for Ssh {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            let side = usize::from(block.class.direction());
            let is_wanted = matches!(session.sides[side], Side::Fresh | Side::Part(..));
            if session.done || !is_wanted || !self.look(&mut session.sides[side], side, block, &mut outlet) {
                outlet.reject_block();
            }
            let is_over = |side: &Side| matches!(side, Side::Said(_) | Side::Other);
            if !session.done && session.sides.iter().all(is_over) {
                self.give(session, block.time, block.class, &mut outlet);
            }
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        mut session: Session,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let time = cx.now;
        let mut outlet = Outlet::new(cx);
        session.sides.iter_mut().for_each(|side| self.give_up(side, &mut outlet));
        if !session.done {
            self.give(&mut session, time, class, &mut outlet);
        }
        Ok(())
    }
}

impl Ssh {
    /// `limit`: maximum bytes kept of all connections.
    fn new(limit: usize) -> Ssh {
        Ssh { row: RowWriter::new(&SCHEMA), text: Vec::new(), carried: Carried::new(limit) }
    }

    /// Reads a block of a side whose opening is incomplete; returns whether it was part of one. The lines that a
    /// server may send before do not count, because any text protocol begins like them.
    fn look(&mut self, side: &mut Side, number: usize, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        if block.gap() > 0 {
            if matches!(side, Side::Part(..)) {
                outlet.count("ssh openings whose rest is missing", 1);
            }
            self.give_up(side, outlet);
            return false;
        }
        let bytes = outlet.bytes(block);
        if bytes.is_empty() {
            return true;
        }
        let is_fresh = matches!(side, Side::Fresh);
        let stream = match side {
            Side::Part(part, need) => {
                if !self.carried.keep(part, bytes) {
                    outlet.count(TOO_MANY, 1);
                    let has_begun = ssh::has_begun(part);
                    self.end(side, None);
                    return has_begun;
                }
                if part.len() < *need {
                    return true;
                }
                &part[..]
            }
            _ => bytes,
        };
        let has_begun = ssh::has_begun(stream);
        match if number == 0 { ssh::client_opening(stream) } else { ssh::opening(stream) } {
            Ok(opening) => {
                let said = self.said(opening.identification, opening.offer, number, outlet);
                self.end(side, said);
            }
            Err(Stop::Incomplete { need }) if is_fresh => {
                let mut part = Vec::new();
                if self.carried.keep(&mut part, bytes) {
                    *side = Side::Part(part, need);
                } else {
                    outlet.count(TOO_MANY, 1);
                    *side = Side::Other;
                }
            }
            Err(Stop::Incomplete { need: more }) => {
                if let Side::Part(_, need) = side {
                    *need = more;
                }
            }
            Err(Stop::NotSsh) => {
                self.end(side, None);
                return false;
            }
        }
        has_begun
    }

    /// Copies a side's opening; `None` if there is no room.
    fn said(
        &mut self,
        identification: Identification<'_>,
        offer: Option<Offer<'_>>,
        number: usize,
        outlet: &mut Outlet<'_>,
    ) -> Option<Box<Said>> {
        self.text.clear();
        if let Some(offer) = offer {
            if number == 0 { offer.append_hassh(&mut self.text) } else { offer.append_hassh_server(&mut self.text) }
        }
        let mut said = Box::<Said>::default();
        let is_kept = self.carried.keep(&mut said.protocol, identification.protocol)
            && self.carried.keep(&mut said.software, identification.software)
            && self.carried.keep(&mut said.hassh, &self.text);
        if !is_kept {
            outlet.count(TOO_MANY, 1);
            self.forget(&mut said);
        }
        is_kept.then_some(said)
    }

    /// Releases the memory of a copy.
    fn forget(&mut self, said: &mut Said) {
        for kept in [&mut said.protocol, &mut said.software, &mut said.hassh] {
            self.carried.clear(kept);
        }
    }

    /// The rest of an opening will not come: keeps the identification, if it is complete.
    fn give_up(&mut self, side: &mut Side, outlet: &mut Outlet<'_>) {
        let found = match side {
            Side::Part(part, _) => ssh::identification(part).ok(),
            _ => None,
        };
        let said = found.and_then(|(identification, _)| self.said(identification, None, 0, outlet));
        self.end(side, said);
    }

    /// Finishes a side.
    fn end(&mut self, side: &mut Side, said: Option<Box<Said>>) {
        if let Side::Part(part, _) = side {
            self.carried.clear(part);
        }
        *side = match said {
            Some(said) => Side::Said(said),
            None if matches!(side, Side::Said(_)) => return,
            None => Side::Other,
        };
    }

    /// Gives the record if a side was read. The client is direction 0.
    fn give(&mut self, session: &mut Session, time: u64, class: Class, outlet: &mut Outlet<'_>) {
        session.done = true;
        if !session.sides.iter().any(|side| matches!(side, Side::Said(_))) {
            return;
        }
        let class = Class::of_stream(class.connection(), 0);
        begin_row(&mut self.row, time, class, outlet.facts(class));
        for (side, [protocol, software, hash, string]) in session.sides.iter_mut().zip(FIELDS) {
            let Side::Said(mut said) = std::mem::replace(side, Side::Other) else { continue };
            for (name, value) in [(protocol, &said.protocol), (software, &said.software)] {
                self.text.clear();
                protocols::tls::append_name(&mut self.text, value);
                self.row.text(name, &self.text);
            }
            if !said.hassh.is_empty() {
                self.text.clear();
                append_md5(&mut self.text, &said.hassh);
                self.row.text(hash, &self.text);
                self.text.clear();
                protocols::tls::append_name(&mut self.text, &said.hassh);
                self.row.text(string, &self.text);
            }
            self.forget(&mut said);
        }
        outlet.record(&self.row, time, class);
    }
}

const TOO_MANY: &str = "ssh openings given up for want of memory";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{Piece, block, facts};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    fn offer(cipher: &str) -> Vec<u8> {
        let lists = ["kex", "key", cipher, "c2", "m1", "m2", "none", "zlib", "", ""];
        let lists = lists.map(|list| [&(list.len() as u32).to_be_bytes()[..], list.as_bytes()].concat());
        let payload = [&[20][..], &[7; 16], &lists.concat(), &[0; 5]].concat();
        [&(payload.len() as u32 + 5).to_be_bytes()[..], &[4], &payload, &[0; 4]].concat()
    }

    fn said(line: &[u8]) -> Vec<u8> {
        [line, &offer("c1")].concat()
    }

    fn run(pieces: Vec<Piece>) -> Outcome {
        Chain::pieces(Type::Bytes, None, pieces)
            .streams(&[facts(4000, 6, 0)])
            .then(&KIND, &[])
            .then(&json::KIND, &[])
            .run()
    }

    fn found(outcome: &Outcome) -> Vec<Value> {
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["ssh"].take();
        outcome.stdout.lines().map(record).collect()
    }

    fn both() -> Value {
        json!({
            "client": {"proto_version": "2.0", "software_version": "c",
                "hassh": {"hash": "c2cb1fe1c721da87c60fd6b5208daa17", "string": "kex;c1;m1;none"}},
            "server": {"proto_version": "1.99", "software_version": "s",
                "hassh": {"hash": "61970fb30a77b15227a3a4f2ad59f759", "string": "kex;c2;m2;zlib"}},
        })
    }

    #[test]
    fn a_record_when_both_have_spoken() {
        let (client, server) = (said(b"SSH-2.0-c\r\n"), said(b"SSH-1.99-s comment\r\n"));
        let pieces = vec![
            block(1, Flags::FIRST, &server[..5], 0),
            block(0, Flags::FIRST, &client, 0),
            block(1, Flags::NONE, &server[5..], 0),
            block(0, Flags::NONE, b"encrypted", 0),
        ];
        let outcome = run(pieces);
        assert_eq!(found(&outcome), [both()]);
        assert_eq!(outcome.counters("ssh").blocks_rejected, 1);
        let line: Value = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
        assert_eq!((&line["src_port"], &line["dest_port"]), (&json!(4000), &json!(80)));
    }

    #[test]
    fn one_side() {
        let server = json!([{"server": {"proto_version": "2.0", "software_version": "s\\027"}}]);
        let outcome = run(vec![block(1, Flags::FIRST, b"SSH-2.0-s\x1b\r\n", 0)]);
        assert_eq!(json!(found(&outcome)), server);
        let outcome =
            run(vec![block(0, Flags::FIRST, b"GET / HTTP/1.1\r\n\x00", 0), block(1, Flags::FIRST, b"\x16", 0)]);
        assert_eq!((found(&outcome).len(), outcome.counters("ssh").blocks_rejected), (0, 2));
        let client = said(b"SSH-2.0-c\r\n");
        let outcome =
            run(vec![block(0, Flags::FIRST, &client[..20], 0), block(0, Flags::GAP_BEFORE, &client[30..], 10)]);
        assert_eq!(outcome.counters("ssh").events.get("ssh openings whose rest is missing"), 1);
        let client = json!([{"client": {"proto_version": "2.0", "software_version": "c"}}]);
        assert_eq!(json!(found(&outcome)), client);
    }

    #[test]
    fn text_of_other_protocols_is_rejected() {
        let pieces =
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n", b"GET /SSH-2.0-x HTTP/1.1\r\n\r\n", b"OK\r\n"];
        let outcome = run((0..).zip(pieces).map(|(at, bytes)| block(at % 2, Flags::NONE, bytes, 0)).collect());
        assert_eq!((found(&outcome).len(), outcome.counters("ssh").blocks_rejected), (0, 4));
        let server = [&b"Welcome\r\n"[..], b"SSH-2.0-s\r\n"];
        let outcome = run(server.map(|bytes| block(1, Flags::NONE, bytes, 0)).to_vec());
        assert_eq!(json!(found(&outcome)), json!([{"server": {"proto_version": "2.0", "software_version": "s"}}]));
        assert_eq!(outcome.counters("ssh").blocks_rejected, 1);
    }

    /// `ssh` with memory for one side of a connection, but not for both.
    static SMALL: Kind = Kind::new("ssh", "", |_, _| Ok(Instance::session(SessionKey::Connection, Ssh::new(30))))
        .takes(&[Type::Bytes])
        .rejects()
        .gives_records(&SCHEMA)
        .mode(Mode::Session(SessionKey::Connection));

    #[test]
    fn what_sides_said_counts_as_kept_until_it_is_given() {
        let pieces = (0..2).flat_map(|connection| {
            let client = block(2 * connection, Flags::FIRST, &said(b"SSH-2.0-c\r\n"), 0);
            [client, block(2 * connection + 1, Flags::FIRST, &said(b"SSH-1.99-s\r\n"), 0)]
        });
        let outcome = Chain::pieces(Type::Bytes, None, pieces.collect())
            .streams(&[facts(4000, 6, 0), facts(4001, 6, 0)])
            .then(&SMALL, &[])
            .then(&json::KIND, &[])
            .run();
        let client = json!({"client": both()["client"]});
        assert_eq!(found(&outcome), [client.clone(), client]);
        assert_eq!(outcome.counters("ssh").events.get(TOO_MANY), 2);
    }

    proptest! {
        /// The record does not depend on how the streams are cut into segments.
        #[test]
        fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..150, 0..12)) {
            let sides = [said(b"SSH-2.0-c\r\n"), said(b"SSH-1.99-s\r\n")];
            let mut pieces = Vec::new();
            for (class, bytes) in (0..).zip(&sides) {
                let mut cuts: Vec<_> = cuts.iter().map(|cut| *cut.min(&bytes.len())).chain([0, bytes.len()]).collect();
                cuts.sort_unstable();
                pieces.extend(cuts.windows(2).map(|ends| block(class, Flags::NONE, &bytes[ends[0]..ends[1]], 0)));
            }
            prop_assert_eq!(found(&run(pieces)), [both()]);
        }

        #[test]
        fn any_bytes(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5), like: bool) {
            let head: &[u8] = if like { b"SSH-2.0-x\r\n\0\0\0" } else { &[] };
            let pieces = (0..).zip(&blocks).map(|(at, bytes)| block(at % 2, Flags::NONE, &[head, bytes].concat(), 0));
            prop_assert!(found(&run(pieces.collect())).len() <= 1);
        }
    }
}
