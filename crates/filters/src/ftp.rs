//! FTP commands and their replies as records.
//!
//! `protocols::ftp` and `protocols::reply` read the lines. This file finds the client's side and matches replies to
//! commands. `ftp_data` reads the data connections.

use crate::parts::eve::{NAME, begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use base::limits::{FTP_COMMANDS, FTP_REPLY_LINES, TEXT_BUFFERED_BYTES};
use filter::prelude::*;
use filter::record::list_push;
use protocols::carry::Carried;
use protocols::ftp::{self, Place};
use protocols::reply;
use protocols::text_lines::TextLines;
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
    text: RowWriter,
    /// Buffer for a line that spans several blocks.
    whole: Vec<u8>,
    /// Kept lines of all connections.
    carried: Carried,
}

#[derive(Default)]
struct Session {
    lines: [TextLines; 2],
    /// The client's direction; `None` before the first bytes.
    client: Option<u8>,
    /// The client spoke FTP.
    is_confirmed: bool,
    is_gone: bool,
    /// Commands that wait for their reply.
    commands: VecDeque<Waiting>,
    reply: Reply,
    /// The greeting: a reply before the first command.
    greeting: Option<(Reply, u64)>,
}

/// An entry of the queue of commands.
enum Waiting {
    Command(Vec<u8>),
    /// This many commands without a record. Their replies must not go to other commands.
    Unlisted(u32),
}

/// A reply being read.
#[derive(Default)]
struct Reply {
    /// Rows of its lines and of its codes.
    lines: Vec<u8>,
    codes: Vec<u8>,
    count: usize,
    /// The code of an unfinished reply of several lines.
    open: Option<u16>,
    /// Lines are missing, so the last line of another reply may end it.
    has_gap: bool,
    place: Option<Place>,
}

impl SessionFilter for Ftp {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        let mut whole = std::mem::take(&mut self.whole);
        for (place, block) in batch.iter() {
            outlet.place = place;
            if !self.block(session, block, &mut whole, &mut outlet) {
                outlet.reject_block();
            }
        }
        self.whole = whole;
        Ok(Status::Done)
    }

    fn close(
        &mut self,
        mut session: Session,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let class = Class::of_stream(class.connection(), session.client.unwrap_or(0));
        let time = cx.now;
        let mut outlet = Outlet::new(cx);
        while session.is_confirmed && !session.commands.is_empty() {
            self.give(&mut session, time, class, &mut outlet);
        }
        self.leave(&mut session);
        Ok(())
    }
}

impl Ftp {
    /// `limit`: maximum bytes kept of all connections.
    fn new(limit: usize) -> Ftp {
        Ftp {
            row: RowWriter::new(&SCHEMA),
            text: RowWriter::new(&NAME),
            whole: Vec::new(),
            carried: Carried::new(limit),
        }
    }

    /// Reads a block; returns whether it was FTP.
    fn block(
        &mut self,
        session: &mut Session,
        block: &Descriptor,
        whole: &mut Vec<u8>,
        outlet: &mut Outlet<'_>,
    ) -> bool {
        let bytes = outlet.bytes(block);
        let (Some(first), false) = (bytes.first(), session.is_gone) else { return false };
        let direction = block.class.direction();
        // Replies begin with digits, commands do not.
        let client = *session.client.get_or_insert(if first.is_ascii_digit() { 1 - direction } else { direction });
        let side = usize::from(direction);
        if block.gap() > 0 {
            session.lines[side].lose(&self.carried);
            if direction != client && session.is_confirmed {
                self.lose_replies(session, block, outlet);
            }
            if direction != client && reply::line(bytes).code.is_some() {
                // The missing bytes end with a line.
                session.lines[side].clear(&self.carried);
            }
        }
        let mut rest = bytes;
        while !session.is_gone
            && let Some(line) = session.lines[side].next(&mut rest, whole, &self.carried)
        {
            if direction == client {
                self.command(session, line, block, outlet);
            } else {
                self.reply(session, line, block, outlet);
            }
        }
        let says_so = || bytes.windows(3).any(|word| word.eq_ignore_ascii_case(b"FTP"));
        !session.is_gone && (session.is_confirmed || direction != client && says_so())
    }

    fn command(&mut self, session: &mut Session, line: &[u8], block: &Descriptor, outlet: &mut Outlet<'_>) {
        let Some(command) = ftp::command(line) else {
            if !session.is_confirmed {
                self.leave(session);
            }
            return;
        };
        if !session.is_confirmed {
            session.is_confirmed = command.may_be_first();
            if !session.is_confirmed {
                return self.leave(session);
            }
            if let Some((greeting, time)) = session.greeting.take() {
                self.forget(std::mem::replace(&mut session.reply, greeting));
                self.give(session, time, block.class, outlet);
            }
        }
        let mut kept = Vec::new();
        if session.commands.len() < FTP_COMMANDS && self.carried.keep(&mut kept, line) {
            return session.commands.push_back(Waiting::Command(kept));
        }
        outlet.count("ftp commands not listed", 1);
        match session.commands.back_mut() {
            Some(Waiting::Unlisted(count)) => *count = count.saturating_add(1),
            _ => session.commands.push_back(Waiting::Unlisted(1)),
        }
    }

    /// Replies are missing before this block of the server. A client usually waits for a reply before its next
    /// command. So the next reply belongs to the last command, and the earlier commands have no reply.
    fn lose_replies(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) {
        session.reply.has_gap = true;
        while session.commands.len() > 1 {
            if let Some(Waiting::Unlisted(count)) = session.commands.front_mut() {
                *count = 1;
            }
            outlet.count("ftp replies missing", 1);
            self.give(session, block.time, client_of(block), outlet);
        }
        if let Some(Waiting::Unlisted(count)) = session.commands.front_mut() {
            *count = 1;
        }
    }

    fn reply(&mut self, session: &mut Session, line: &[u8], block: &Descriptor, outlet: &mut Outlet<'_>) {
        let found = reply::line(line);
        let inside = session.reply.open;
        let (code, is_last) = match (found.code, inside) {
            (Some(code), Some(open)) => (code, found.is_last && (code == open || session.reply.has_gap)),
            (Some(code), None) => (code, found.is_last),
            (None, Some(code)) => (code, false),
            (None, None) => {
                if !session.is_confirmed {
                    self.leave(session);
                }
                return;
            }
        };
        self.reply_line(&mut session.reply, code, found.text, outlet);
        session.reply.open = (!is_last).then_some(inside.unwrap_or(code));
        // A code below 200 is preliminary: another reply follows.
        if !is_last || code < 200 {
            return;
        }
        if !session.is_confirmed {
            let greeting = (std::mem::take(&mut session.reply), block.time);
            if let Some((replaced, _)) = session.greeting.replace(greeting) {
                self.forget(replaced);
            }
            return;
        }
        if code == 234 {
            // TLS follows.
            self.give(session, block.time, client_of(block), outlet);
            return self.leave(session);
        }
        self.give(session, block.time, client_of(block), outlet);
    }

    fn reply_line(&mut self, reply: &mut Reply, code: u16, text: &[u8], outlet: &mut Outlet<'_>) {
        match code {
            227 => reply.place = ftp::place(text),
            229 => reply.place = ftp::extended_place(text),
            _ => {}
        }
        if reply.count == FTP_REPLY_LINES {
            return outlet.count("ftp reply lines not listed", 1);
        }
        reply.count += 1;
        let code = itoa::Buffer::new().format(code).as_bytes().to_vec();
        for (list, value) in [(&mut reply.lines, text), (&mut reply.codes, &code[..])] {
            self.text.begin();
            let mut one = Vec::with_capacity(value.len() + 64);
            list_push(&mut one, self.text.text("", value).row());
            if !self.carried.keep(list, &one) {
                outlet.count("ftp replies left out for want of memory", 1);
            }
        }
    }

    /// Gives the record of the oldest command with the reply so far. A command that is not listed has no record.
    fn give(&mut self, session: &mut Session, time: u64, class: Class, outlet: &mut Outlet<'_>) {
        let reply = std::mem::take(&mut session.reply);
        let mut line = match session.commands.pop_front() {
            Some(Waiting::Command(line)) => line,
            Some(Waiting::Unlisted(count)) => {
                if count > 1 {
                    session.commands.push_front(Waiting::Unlisted(count - 1));
                }
                return self.forget(reply);
            }
            None => Vec::new(),
        };
        begin_row(&mut self.row, time, class, outlet.facts(class));
        let mut place = (reply.place, "passive");
        if let Some(command) = ftp::command(&line) {
            self.row.text("ftp.command", command.name);
            if !command.argument.is_empty() {
                self.row.text("ftp.command_data", command.argument);
            }
            if command.is("PORT") {
                place = (ftp::place(command.argument), "active");
            } else if command.is("EPRT") {
                place = (ftp::extended_place(command.argument), "active");
            }
        }
        if !reply.lines.is_empty() {
            self.row.rows("ftp.reply", &reply.lines).rows("ftp.completion_code", &reply.codes);
        }
        if let (Some(place), mode) = place {
            self.row.number("ftp.dynamic_port", u64::from(place.port)).text("ftp.mode", mode);
        }
        self.row.text("ftp.reply_received", if reply.count > 0 { "yes" } else { "no" });
        outlet.record(&self.row, time, class);
        self.carried.clear(&mut line);
        self.forget(reply);
    }

    /// Releases the memory of a reply.
    fn forget(&mut self, mut reply: Reply) {
        self.carried.clear(&mut reply.lines);
        self.carried.clear(&mut reply.codes);
    }

    /// Releases everything: the rest of the connection is not FTP or is encrypted.
    fn leave(&mut self, session: &mut Session) {
        session.is_gone = true;
        session.lines.iter_mut().for_each(|lines| lines.clear(&self.carried));
        for waiting in session.commands.drain(..) {
            if let Waiting::Command(mut line) = waiting {
                self.carried.clear(&mut line);
            }
        }
        self.forget(std::mem::take(&mut session.reply));
        if let Some((greeting, _)) = session.greeting.take() {
            self.forget(greeting);
        }
    }
}

/// The class of the client's direction, from a block of the server.
fn client_of(block: &Descriptor) -> Class {
    Class::of_stream(block.class.connection(), 1 - block.class.direction())
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
                "completion_code": ["200", "200", "200"], "dynamic_port": 2001, "mode": "active", "reply_received": "yes"},
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
