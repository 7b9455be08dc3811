//! FTP commands and their replies as records.
//!
//! The conversation is in `protocols::ftp`. This file finds the client's side and keeps what it hears of an exchange
//! until its reply has come. `ftp_data` reads the data connections.

use crate::parts::eve::{NAME, begin_row, eve_fields};
use crate::parts::heard::Facts;
use crate::parts::outlet::Outlet;
use base::limits::{FTP_COMMANDS, FTP_REPLY_LINES, TEXT_BUFFERED_BYTES};
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fed, How, Id, Run, Side};
use protocols::ftp::{Conversation, Fact};
use std::collections::VecDeque;

static SCHEMA: Schema = Schema::new(
    "ftp",
    &eve_fields![
        Field::new("ftp.command", FieldType::Text),
        Field::new("ftp.command_data", FieldType::Text),
        Field::new("ftp.reply", FieldType::Rows(&NAME)),
        Field::new("ftp.completion_code", FieldType::Rows(&NAME)),
        Field::new("ftp.dynamic_port", FieldType::Number),
        Field::new("ftp.mode", FieldType::Text),
        Field::new("ftp.reply_received", FieldType::Text),
    ],
);

/// What `ftp` is.
pub static KIND: Kind = Kind::new("ftp", "reads FTP commands and replies and gives a record of each", make)
    .help(
        "Finds FTP on any port, by the client's first command, and gives a record of each command when its reply has come: \
         `ftp.command`, `ftp.command_data`, the lines of `ftp.reply`, and their codes in `ftp.completion_code`. The greeting of \
         the server is a reply without a command. Where a data connection is agreed on, `ftp.dynamic_port` is its port, and \
         `ftp.mode` active or passive. `ftp.reply_received` is yes or no.\n\n\
         Behind AUTH nothing more is read: `tls` reads what comes there. Up to 64 commands may wait for their replies, and \
         of a reply 64 lines are listed.",
    )
    .takes(&[Type::Bytes])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Connection))
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap ftp.pcap | ftp | head 3", output: COMMANDS }]);

const COMMANDS: &str = r#"{"timestamp":"2026-06-10T21:20:51.277686000Z","flow_id":5020198744909461,"event_type":"ftp","src_ip":"172.23.0.3","src_port":58252,"dest_ip":"172.23.0.2","dest_port":21,"proto":"TCP","ftp":{"reply":["FTP Sandbox Ready."],"completion_code":["220"],"reply_received":"yes"}}
{"timestamp":"2026-06-10T21:20:51.277788000Z","flow_id":5020198744909461,"event_type":"ftp","src_ip":"172.23.0.3","src_port":58252,"dest_ip":"172.23.0.2","dest_port":21,"proto":"TCP","ftp":{"command":"USER","command_data":"bob","reply":["Please specify the password."],"completion_code":["331"],"reply_received":"yes"}}
{"timestamp":"2026-06-10T21:20:51.305075000Z","flow_id":5020198744909461,"event_type":"ftp","src_ip":"172.23.0.3","src_port":58252,"dest_ip":"172.23.0.2","dest_port":21,"proto":"TCP","ftp":{"command":"PASS","command_data":"password","reply":["Login successful."],"completion_code":["230"],"reply_received":"yes"}}
"#;

const _: () = assert!(FTP_COMMANDS == 64 && FTP_REPLY_LINES == 64, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::session(SessionKey::Connection, Ftp::new(TEXT_BUFFERED_BYTES)))
}

struct Ftp {
    row: RowWriter,
    /// Kept lines of all connections.
    carried: Carried,
}

#[derive(Default)]
struct Session {
    conversation: Conversation,
    /// The client's direction; `None` before the first bytes.
    client: Option<u8>,
    told: Told,
}

/// What was told and not given yet.
#[derive(Default)]
struct Told {
    /// The client spoke FTP.
    is_confirmed: bool,
    exchanges: VecDeque<Exchange>,
}

/// A command with its reply so far.
struct Exchange {
    number: u64,
    facts: Facts<Fact>,
    /// The side that said the port of the data connection.
    mode: Option<Side>,
    /// When it ended. It waits until the client speaks FTP.
    ended: Option<u64>,
}

impl Told {
    fn forget(&mut self, kept: &Carried) {
        self.exchanges.drain(..).for_each(|mut exchange| exchange.facts.clear(kept));
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.exchanges.iter().position(|exchange| exchange.number == number)
    }
}

/// Makes records of the exchanges that it hears.
struct Listener<'a, 'b> {
    told: &'a mut Told,
    row: &'a mut RowWriter,
    carried: &'a Carried,
    outlet: &'a mut Outlet<'b>,
    time: u64,
    /// The client's.
    class: Class,
}

impl Ear<Fact> for Listener<'_, '_> {
    fn begin(&mut self, id: Id) {
        if id.side.is_client() && !std::mem::replace(&mut self.told.is_confirmed, true) {
            for greeting in std::mem::take(&mut self.told.exchanges) {
                self.give(greeting);
            }
        } else if !self.told.is_confirmed {
            // The last greeting counts.
            self.told.forget(self.carried);
        }
        if self.told.exchanges.len() == FTP_COMMANDS {
            return self.outlet.count("ftp commands not listed", 1);
        }
        let facts = Facts::default();
        self.told.exchanges.push_back(Exchange { number: id.exchange, facts, mode: None, ended: None });
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let Some(at) = self.told.place(id.exchange) else { return };
        let facts = &mut self.told.exchanges[at].facts;
        if fact == Fact::Reply && facts.count(fact) == FTP_REPLY_LINES {
            self.outlet.count("ftp reply lines not listed", 1);
        } else if facts.count(fact) < FTP_REPLY_LINES && !facts.keep(fact, id.side, value, self.carried) {
            self.outlet.count("ftp texts left out for want of memory", 1);
        }
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        let Some(at) = self.told.place(id.exchange) else { return };
        let exchange = &mut self.told.exchanges[at];
        if exchange.mode.is_none() && exchange.facts.keep(fact, id.side, &value.to_be_bytes(), self.carried) {
            exchange.mode = Some(id.side);
        }
    }

    fn end(&mut self, id: Id, how: How) {
        let Some(at) = self.told.place(id.exchange).filter(|_| !id.side.is_client()) else { return };
        if how == How::Gap {
            self.outlet.count("ftp replies missing", 1);
        }
        self.told.exchanges[at].ended = Some(self.time);
        if let Some(exchange) = self.told.is_confirmed.then(|| self.told.exchanges.remove(at)).flatten() {
            self.give(exchange);
        }
    }
}

impl Listener<'_, '_> {
    fn give(&mut self, Exchange { mut facts, mode, ended, .. }: Exchange) {
        let time = ended.unwrap_or(self.time);
        begin_row(self.row, time, self.class, self.outlet.facts(self.class));
        facts.write(self.row);
        if let Some(side) = mode {
            self.row.text("ftp.mode", if side.is_client() { "active" } else { "passive" });
        }
        self.row.text("ftp.reply_received", if facts.count(Fact::Reply) > 0 { "yes" } else { "no" });
        self.outlet.record(self.row, time, self.class);
        facts.clear(self.carried);
    }
}

impl SessionFilter for Ftp {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            if !self.block(session, block, &mut outlet) {
                outlet.reject_block();
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
        let class = Class::of_stream(class.connection(), session.client.unwrap_or(0));
        let Session { mut conversation, mut told, .. } = session;
        let Ftp { row, carried } = self;
        let mut outlet = Outlet::new(cx);
        conversation.end(carried, &mut Listener { told: &mut told, row, carried, outlet: &mut outlet, time, class });
        told.forget(carried);
        Ok(())
    }
}

impl Ftp {
    /// `limit`: maximum bytes kept of all connections.
    fn new(limit: usize) -> Ftp {
        Ftp { row: RowWriter::new(&SCHEMA), carried: Carried::new(limit) }
    }

    /// Reads a block; returns whether it was FTP.
    fn block(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let run = Run { bytes: outlet.bytes(block), time: block.time };
        let direction = block.class.direction();
        // Replies begin with digits, commands do not.
        let sender = run.bytes.first().map(|first| if first.is_ascii_digit() { 1 - direction } else { direction });
        session.client = session.client.or(sender);
        let Session { conversation, client: Some(client), told } = session else { return false };
        let (side, class) =
            (Side::to_server(direction == *client), Class::of_stream(block.class.connection(), *client));
        let Ftp { row, carried } = self;
        let mut ear = Listener { told, row, carried, outlet, time: block.time, class };
        if block.gap() > 0 {
            conversation.gap(side, carried, &mut ear);
        }
        let fed = conversation.feed(side, run, carried, &mut ear);
        if conversation.is_over() {
            // The rest is not FTP, or it is encrypted.
            told.forget(carried);
        }
        fed == Fed::Mine
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

    fn piece(class: u32, bytes: &[u8]) -> Piece {
        block(class, Flags::NONE, bytes, 0)
    }

    fn run(pieces: Vec<Piece>) -> Outcome {
        let chain = Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]);
        chain.then(&KIND, &[]).then(&json::KIND, &[]).run()
    }

    fn records(outcome: &Outcome) -> Vec<Value> {
        let record = |line| serde_json::from_str::<Value>(line).unwrap()["ftp"].take();
        outcome.stdout.lines().map(record).collect()
    }

    #[test]
    fn commands_and_replies() {
        let outcome = run(vec![
            piece(1, b"220 vsFTPd\r\n"),
            piece(0, b"USER a b\r\nPA"),
            piece(0, b"SV\r\nPORT 192,0,2,1,7,209\r\n"),
            piece(1, b"331 word\r\n227 Entering (192,0,2,1,7,208).\r\n200-a\r\n b\r\n200 c\r\n"),
            piece(0, b"RETR x\r\n"),
            piece(1, b"150 comes\r\n226 done\r\n"),
            piece(0, b"QUIT\r\n"),
        ]);
        let expected = json!([
            {"reply": ["vsFTPd"], "completion_code": ["220"], "reply_received": "yes"},
            {"command": "USER", "command_data": "a b", "reply": ["word"], "completion_code": ["331"], "reply_received": "yes"},
            {"command": "PASV", "reply": ["Entering (192,0,2,1,7,208)."], "completion_code": ["227"], "dynamic_port": 2000,
                "mode": "passive", "reply_received": "yes"},
            {"command": "PORT", "command_data": "192,0,2,1,7,209", "reply": ["a", " b", "c"],
                "completion_code": ["200", "200"], "dynamic_port": 2001, "mode": "active", "reply_received": "yes"},
            {"command": "RETR", "command_data": "x", "reply": ["comes", "done"], "completion_code": ["150", "226"],
                "reply_received": "yes"},
            {"command": "QUIT", "reply_received": "no"},
        ]);
        assert_eq!(json!(records(&outcome)), expected);
    }

    fn codes(pieces: Vec<Piece>) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let row = |record: &Value| (text(&record["command"]), text(&record["completion_code"][0]));
        records(&run(pieces)).iter().map(row).collect()
    }

    #[test]
    fn replies_do_not_shift_behind_one_that_is_missing() {
        let gap = |bytes: &[u8]| block(1, Flags::GAP_BEFORE, bytes, 20);
        let check = |behind: Vec<Piece>, expected: &[(&str, &str)]| {
            let start = [piece(0, b"USER x\r\n"), piece(1, b"331 x\r\n"), piece(0, b"SYST\r\n")];
            let found = codes(start.into_iter().chain(behind).collect());
            let expected: Vec<_> =
                [("USER", "331")].iter().chain(expected).map(|(a, b)| (a.to_string(), b.to_string())).collect();
            assert_eq!(found, expected);
        };
        let pwd = || piece(0, b"PWD\r\n");
        check(
            vec![pwd(), gap(b"257 x\r\n"), piece(0, b"QUIT\r\n"), piece(1, b"221 x\r\n")],
            &[("SYST", ""), ("PWD", "257"), ("QUIT", "221")],
        );
        // The gap ends inside a line, and another line follows.
        check(vec![gap(b"IX\r\n215 x\r\n"), pwd(), piece(1, b"257 x\r\n")], &[("SYST", "215"), ("PWD", "257")]);
        // The end of a reply of several lines is missing.
        check(vec![piece(1, b"215-x\r\n"), pwd(), gap(b"257 x\r\n")], &[("SYST", "215"), ("PWD", "257")]);
        check(
            vec![piece(1, b"215-x\r\n"), gap(b"421 x\r\n"), pwd(), piece(1, b"257 x\r\n")],
            &[("SYST", "215"), ("PWD", "257")],
        );
    }

    #[test]
    fn commands_that_are_not_listed_take_their_replies_with_them() {
        let commands: Vec<u8> =
            (0..FTP_COMMANDS + 3).flat_map(|number| format!("CWD {number}\r\n").into_bytes()).collect();
        let replies: Vec<u8> =
            (0..FTP_COMMANDS + 3).flat_map(|number| format!("{} x\r\n", 250 + number).into_bytes()).collect();
        let pieces = vec![
            piece(0, b"USER x\r\n"),
            piece(1, b"331 x\r\n"),
            piece(0, &commands),
            piece(1, &replies),
            piece(0, b"QUIT\r\n"),
            piece(1, b"221 x\r\n"),
        ];
        let outcome = run(pieces.clone());
        assert_eq!(outcome.counters("ftp").events.get("ftp commands not listed"), 3);
        let found = codes(pieces);
        assert_eq!(found.len(), FTP_COMMANDS + 2);
        assert_eq!(found[FTP_COMMANDS], ("CWD".to_string(), (249 + FTP_COMMANDS).to_string()));
        assert_eq!(found[FTP_COMMANDS + 1], ("QUIT".to_string(), "221".to_string()));
    }

    #[test]
    fn what_is_not_ftp_is_rejected() {
        let check = |pieces: Vec<Piece>, expected: (usize, u64)| {
            let outcome = run(pieces);
            assert_eq!((records(&outcome).len(), outcome.counters("ftp").blocks_rejected), expected);
        };
        check(vec![piece(1, b"220 mx SMTP\r\n"), piece(0, b"EHLO x\r\n"), piece(1, b"250 x\r\n")], (0, 3));
        check(vec![piece(0, b"GET / HTTP/1.1\r\n"), piece(1, b"HTTP/1.1 200 OK\r\n")], (0, 2));
        check(vec![piece(0, b"AUTH TLS\r\n"), piece(1, b"234 go\r\n"), piece(0, b"\x16\x03\x01")], (1, 2));
    }

    /// `ftp` with a small limit.
    static SMALL: Kind = Kind::new("ftp", "", |_, _| Ok(Instance::session(SessionKey::Connection, Ftp::new(1000))))
        .takes(&[Type::Bytes])
        .rejects()
        .gives_records(&SCHEMA)
        .mode(Mode::Session(SessionKey::Connection));

    #[test]
    fn a_replaced_greeting_gives_its_room_back() {
        let long = [&[b'x'; 600][..], b"\r\n"].concat();
        let check = |behind: &[&[u8]]| {
            let mut pieces = vec![piece(1, b"220 FTP\r\n")];
            pieces.extend(behind.iter().map(|start| piece(1, &[start, &long[..]].concat())));
            pieces.extend([piece(0, b"USER x\r\n"), piece(1, &[b"331 ", &long[..]].concat())]);
            let chain = Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]);
            let outcome = chain.then(&SMALL, &[]).then(&json::KIND, &[]).run();
            let last = records(&outcome).pop().unwrap();
            assert_eq!(last["reply"], json!(["x".repeat(600)]));
        };
        // Other greetings, and a reply that goes on after the client's next command.
        check(&[b"220 ", b"220 "]);
        check(&[b"220-"]);
    }

    proptest! {
        #[test]
        fn any_bytes(blocks in proptest::collection::vec((0u32..2, proptest::collection::vec(any::<u8>(), 0..60)), 0..6), like: bool) {
            let start = |class: u32| if like { [&b"USER x\r\n"[..], b"220-x\r\n"][class as usize] } else { b"" };
            let pieces = blocks.iter().map(|(class, bytes)| piece(*class, &[start(*class), bytes].concat())).collect();
            prop_assert!(records(&run(pieces)).len() <= 400);
        }
    }
}
