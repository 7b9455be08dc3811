//! The unencrypted openings of both sides of SSH, as a record of the connection.
//!
//! The conversation is in `protocols::ssh`. This file keeps what both sides say, and makes the record. Later bytes are
//! not read.

use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::heard::Facts;
use crate::parts::outlet::Outlet;
use base::limits::SSH_BUFFERED_BYTES;
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fed, How, Id, Run, Side};
use protocols::ssh::{Conversation, Fact, TOO_MANY};

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
    /// Parts of openings, and what was said in complete ones, of all connections.
    carried: Carried,
}

#[derive(Default)]
struct Session {
    conversation: Conversation,
    told: Told,
}

/// What both sides said.
#[derive(Default)]
struct Told {
    facts: Facts<Fact>,
    /// The sides whose openings are over.
    over: [bool; 2],
    /// The record was given, or will not be.
    done: bool,
}

/// Keeps what it hears.
struct Listener<'a, 'b> {
    told: &'a mut Told,
    carried: &'a Carried,
    outlet: &'a mut Outlet<'b>,
}

impl Ear<Fact> for Listener<'_, '_> {
    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        if !self.told.done && !self.told.facts.keep(fact, id.side, value, self.carried) {
            self.lost(id, TOO_MANY);
        }
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.outlet.count(what, 1);
    }

    fn end(&mut self, id: Id, _how: How) {
        self.told.over[id.side.index()] = true;
    }
}

impl SessionFilter for Ssh {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        let Session { conversation, told } = session;
        for (place, block) in batch.iter() {
            outlet.place = place;
            let bytes = outlet.bytes(block);
            let side = Side::to_server(block.class.direction() == 0);
            let mut ear = Listener { told, carried: &self.carried, outlet: &mut outlet };
            if block.gap() > 0 && conversation.gap(side, &self.carried, &mut ear) {
                ear.outlet.count("ssh openings whose rest is missing", 1);
            }
            let run = Run { bytes, time: block.time };
            if conversation.feed(side, run, &self.carried, &mut ear) == Fed::NotMine {
                outlet.reject_block();
            }
            if !told.done && told.over == [true; 2] {
                self.give(told, block.time, block.class, &mut outlet);
            }
        }
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        session: Session,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let time = cx.now;
        let mut outlet = Outlet::new(cx);
        let Session { mut conversation, mut told } = session;
        conversation.end(&self.carried, &mut Listener { told: &mut told, carried: &self.carried, outlet: &mut outlet });
        if !told.done {
            self.give(&mut told, time, class, &mut outlet);
        }
        Ok(())
    }
}

impl Ssh {
    /// `limit`: maximum bytes kept of all connections.
    fn new(limit: usize) -> Ssh {
        Ssh { row: RowWriter::new(&SCHEMA), carried: Carried::new(limit) }
    }

    /// Gives the record if a side said anything. The client is direction 0.
    fn give(&mut self, told: &mut Told, time: u64, class: Class, outlet: &mut Outlet<'_>) {
        told.done = true;
        if told.facts.is_empty() {
            return;
        }
        let class = Class::of_stream(class.connection(), 0);
        begin_row(&mut self.row, time, class, outlet.facts(class));
        told.facts.write(&mut self.row);
        told.facts.clear(&self.carried);
        outlet.record(&self.row, time, class);
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
    static SMALL: Kind = Kind::new("ssh", "", |_, _| Ok(Instance::session(SessionKey::Connection, Ssh::new(60))))
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
        // The server's algorithms have no room.
        let record = json!({"client": both()["client"], "server": {"proto_version": "1.99", "software_version": "s"}});
        assert_eq!(found(&outcome), [record.clone(), record]);
        assert_eq!(outcome.counters("ssh").events.get(TOO_MANY), 4);
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
