//! The filter `ftp`: its records, and the blocks that it rejects.

use crate::conversations::ftp::KIND;
use crate::conversations::*;
use crate::json;
use crate::parts::handmade::{Piece, block, facts};
use proptest::prelude::*;
use protocols::ftp::Conversation;
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
        (0..TALK_EXCHANGES + 3).flat_map(|number| format!("CWD {number}\r\n").into_bytes()).collect();
    let replies: Vec<u8> =
        (0..TALK_EXCHANGES + 3).flat_map(|number| format!("{} x\r\n", 250 + number).into_bytes()).collect();
    let pieces = vec![
        piece(0, b"USER x\r\n"),
        piece(1, b"331 x\r\n"),
        piece(0, &commands),
        piece(1, &replies),
        piece(0, b"QUIT\r\n"),
        piece(1, b"221 x\r\n"),
    ];
    let outcome = run(pieces.clone());
    assert_eq!(outcome.counters("ftp").events.get("exchanges not listed"), 3);
    let found = codes(pieces);
    assert_eq!(found.len(), TALK_EXCHANGES + 2);
    assert_eq!(found[TALK_EXCHANGES], ("CWD".to_string(), (249 + TALK_EXCHANGES).to_string()));
    assert_eq!(found[TALK_EXCHANGES + 1], ("QUIT".to_string(), "221".to_string()));
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
static SMALL: Kind =
    Kind::new("ftp", "", |_, _| Ok(Instance::session(SessionKey::Connection, Talks::<Conversation>::new(1000))))
        .takes(&[Type::Bytes])
        .rejects()
        .gives_records(Of::<Conversation>::SCHEMA)
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
