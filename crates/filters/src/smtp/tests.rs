//! `smtp` from blocks to mails.

use super::*;
use crate::json;
use crate::parts::handmade::{Piece, block, facts};
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::{Chain, Outcome};

fn chain(pieces: Vec<Piece>) -> Chain {
    Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]).then(&KIND, &[])
}

fn records(pieces: Vec<Piece>) -> Vec<Value> {
    let outcome = chain(pieces).then(&json::KIND, &[]).run();
    outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["smtp"].take()).collect()
}

fn bodies(outcome: &Outcome) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for block in &outcome.blocks {
        match block.descriptor.has(Flags::META) {
            true => bodies.push(Vec::new()),
            false => bodies.last_mut().expect("a record first").extend_from_slice(&block.bytes),
        }
    }
    bodies
}

fn piece(class: u32, bytes: &[u8]) -> Piece {
    block(class, Flags::NONE, bytes, 0)
}

const HELLO: &[u8] = b"EHLO me.example\r\n";
const ENVELOPE: &[u8] = b"MAIL FROM:<a@me.example> SIZE=9\r\nRCPT TO:<b@x>\r\nRCPT TO:<c@x>\r\n";

fn mail(length: u64, state: &str) -> Value {
    json!({
        "helo": "me.example", "mail_from": "<a@me.example>", "rcpt_to": ["<b@x>", "<c@x>"],
        "length": length, "state": state,
    })
}

#[test]
fn mails() {
    let conversation = |data: &[u8]| {
        vec![
            piece(1, b"220 mx ESMTP\r\n"),
            piece(0, HELLO),
            piece(1, b"250-mx\r\n250 SIZE\r\n"),
            piece(0, ENVELOPE),
            piece(1, b"250 ok\r\n250 ok\r\n250 ok\r\n"),
            piece(0, b"DATA\r\n"),
            piece(1, b"354 go\r\n"),
            piece(0, data),
            piece(1, b"250 ok\r\n"),
        ]
    };
    let pieces = conversation(b"Subject: x\r\n\r\n..dot\r\n.\r\n");
    assert_eq!(records(pieces.clone()), [mail(20, "complete")]);
    let outcome = chain(pieces).run();
    assert_eq!(bodies(&outcome), [b"Subject: x\r\n\r\n.dot\r\n"]);
    assert!(outcome.blocks.iter().filter(|block| !block.descriptor.has(Flags::META)).count() >= 2);
    assert_eq!(outcome.counters("smtp").blocks_rejected, 0);
    // Without an end, and with no byte of the mail.
    assert_eq!(records(conversation(b"Subject")), [mail(7, "truncated")]);
    // Another mail behind it.
    let two = conversation(b"x\r\n.\r\nMAIL FROM:<>\r\nRSET\r\nQUIT\r\n");
    let second = json!({"helo": "me.example", "mail_from": "<>", "length": 0, "state": "complete"});
    assert_eq!(records(two), [mail(3, "complete"), second]);
}

#[test]
fn chunks() {
    let pieces =
        vec![piece(0, HELLO), piece(0, ENVELOPE), piece(0, b"BDAT 4\r\nab"), piece(0, b".\nBDAT 2 LAST\r\ncdQUIT\r\n")];
    assert_eq!(bodies(&chain(pieces.clone()).run()), [b"ab.\ncd"]);
    assert_eq!(records(pieces), [mail(6, "complete")]);
}

#[test]
fn a_refused_mail_has_no_body() {
    let pieces = vec![
        piece(1, b"220 mx SMTP\r\n"),
        piece(0, b"HELO me.example\r\n"),
        piece(1, b"250 mx\r\n"),
        piece(0, &[ENVELOPE, b"DATA\r\n"].concat()),
        piece(1, b"250 ok\r\n250 ok\r\n250 ok\r\n554 no\r\n"),
        piece(0, b"RSET\r\nQUIT\r\n"),
    ];
    assert_eq!(records(pieces), [mail(0, "truncated")]);
}

#[test]
fn a_mail_is_refused_whatever_replies_the_capture_lacks() {
    let refused = [
        piece(0, b"HELO me.example\r\n"),
        piece(1, b"250 mx\r\n"),
        piece(0, &[ENVELOPE, b"DATA\r\n"].concat()),
        piece(1, b"250 ok\r\n250 ok\r\n250 ok\r\n554 no\r\n"),
        piece(0, b"RSET\r\nQUIT\r\n"),
    ];
    // Without a greeting.
    assert_eq!(records(refused.to_vec()), [mail(0, "truncated")]);
    // With a late greeting.
    let mut late = refused.to_vec();
    late.insert(1, piece(1, b"220-mx\r\n220 ESMTP\r\n"));
    assert_eq!(records(late), [mail(0, "truncated")]);
    // The replies to HELO and to the receivers are missing.
    let mut missing = refused.to_vec();
    missing.remove(1);
    missing[2] = block(1, Flags::GAP_BEFORE, b"ok\r\n554 no\r\n", 30);
    assert_eq!(records(missing.clone()), [mail(0, "truncated")]);
    // The server refused the last receiver.
    missing[2] = block(1, Flags::GAP_BEFORE, b"ok\r\n550 no\r\n354 go\r\n", 30);
    missing[3] = piece(0, b"RSET\r\n.\r\nQUIT\r\n");
    assert_eq!(records(missing), [mail(6, "complete")]);
}

#[test]
fn bytes_behind_a_refused_announcement_are_commands() {
    let second = b"MAIL FROM:<x@y>\r\nRCPT TO:<z@y>\r\nDATA\r\n";
    let record = |sender: &str, receiver: &str, length: u64, state: &str| json!({"helo": "me.example", "mail_from": sender, "rcpt_to": [receiver], "length": length, "state": state});
    let check = |announced: &[u8], replies: &[u8], rest: &[Piece], expected: &[Value]| {
        let first = [b"MAIL FROM:<a@b>\r\nRCPT TO:<c@b>\r\n", announced].concat();
        for cut in [first.len(), first.len() - 3, 50] {
            let (start, end) = first.split_at(cut);
            let said =
                [(1, &b"220 mx SMTP\r\n"[..]), (0, HELLO), (1, b"250 mx\r\n"), (0, start), (0, end), (1, replies)];
            let pieces = said.iter().filter(|said| !said.1.is_empty()).map(|(class, bytes)| piece(*class, bytes));
            assert_eq!(records(pieces.chain(rest.iter().cloned()).collect()), expected, "cut at {cut}");
        }
    };
    let ends = [piece(0, b"body\r\n.\r\nQUIT\r\n"), piece(1, b"250 ok\r\n221 bye\r\n")];
    let both = [record("<a@b>", "<c@b>", 0, "truncated"), record("<x@y>", "<z@y>", 6, "complete")];
    let data = [b"DATA\r\n", &second[..]].concat();
    check(&data, b"250 ok\r\n250 ok\r\n554 no\r\n250 ok\r\n250 ok\r\n354 go\r\n", &ends, &both);
    // A server that does not know BDAT.
    let chunk = [b"BDAT 40 LAST\r\n", &second[..]].concat();
    check(&chunk, b"250 ok\r\n250 ok\r\n500 what\r\n250 ok\r\n250 ok\r\n354 go\r\n", &ends, &both);
    // Accepted: they are the mail. So they are if no reply comes.
    let mail = [record("<a@b>", "<c@b>", second.len() as u64, "complete")];
    let data = [&data[..], b".\r\n"].concat();
    check(&data, b"250 ok\r\n250 ok\r\n354 go\r\n", &[piece(1, b"250 ok\r\n")], &mail);
    check(&data, b"250 ok\r\n", &[], &mail);
}

#[test]
fn many_announcements_at_once_are_not_copied_for_each() {
    let announced = b"DATA\r\n.\r\n".repeat(5000);
    let mut pieces = vec![piece(1, b"220 mx SMTP\r\n"), piece(0, HELLO), piece(1, b"250 mx\r\n"), piece(0, &announced)];
    pieces.extend((0..5000).map(|_| piece(1, b"354 go\r\n250 ok\r\n")));
    let outcome = chain(pieces).run();
    assert_eq!(bodies(&outcome).len(), 5000);
    assert!(outcome.counters("smtp").events.get("smtp replies not waited for") > 4900);
}

#[test]
fn more_bytes_than_are_held_are_the_mail() {
    let line = [&[b'x'; 998][..], b"\r\n"].concat();
    let body = line.repeat(protocols::smtp::HELD_BYTES / line.len() + 3);
    let pieces = vec![piece(0, HELLO), piece(0, ENVELOPE), piece(0, b"DATA\r\n")];
    let pieces = pieces.into_iter().chain(body.chunks(1460).map(|bytes| piece(0, bytes)));
    let end = [piece(0, b".\r\nQUIT\r\n"), piece(1, b"250 ok\r\n")];
    let outcome = chain(pieces.chain(end).collect()).run();
    assert_eq!(bodies(&outcome), [body]);
    assert_eq!(outcome.counters("smtp").events.get("smtp replies not waited for"), 1);
}

#[test]
fn a_gap_at_the_end_of_the_stream_counts() {
    let check = |start: &[u8], gap: u32, expected: Value| {
        let pieces = vec![
            piece(0, HELLO),
            piece(0, ENVELOPE),
            piece(0, start),
            block(0, Flags::GAP_BEFORE.with(Flags::LAST), b"", gap),
        ];
        assert_eq!(records(pieces), [expected]);
    };
    check(b"BDAT 9 LAST\r\nabc", 6, mail(3, "gap"));
    check(b"BDAT 9 LAST\r\nabc", 20, mail(3, "gap"));
    check(b"BDAT 9 LAST\r\nabc", 5, mail(3, "truncated"));
    check(b"DATA\r\nabc", 6, mail(3, "truncated"));
}

#[test]
fn gaps() {
    let pieces = vec![
        piece(0, HELLO),
        piece(0, ENVELOPE),
        piece(0, b"DATA\r\nabc"),
        block(0, Flags::GAP_BEFORE, b".\r\ndef\r\n.\r\n", 5),
    ];
    assert_eq!(records(pieces), [mail(11, "gap")]);
}

#[test]
fn a_gap_in_a_mail_does_not_lose_the_command_behind_it() {
    let second = json!({"helo": "me.example", "mail_from": "<x>", "length": 0, "state": "complete"});
    let check = |start: &[u8], gap: u32, rest: &[u8], expected: &[Value]| {
        let pieces = vec![
            piece(0, HELLO),
            piece(0, ENVELOPE),
            piece(0, start),
            block(0, Flags::GAP_BEFORE, rest, gap),
            piece(0, b"RSET\r\n"),
        ];
        assert_eq!(records(pieces), expected);
    };
    check(b"DATA\r\nabc", 5, b"\r\n.\r\nMAIL FROM:<x>\r\n", &[mail(5, "gap"), second.clone()]);
    check(b"BDAT 9 LAST\r\nabc", 4, b"deMAIL FROM:<x>\r\n", &[mail(5, "gap"), second.clone()]);
    check(b"BDAT 9 LAST\r\nabc", 6, b"MAIL FROM:<x>\r\n", &[mail(3, "gap"), second.clone()]);
    // The gap extends behind the chunk into a command.
    check(b"BDAT 9 LAST\r\nabc", 8, b"OP\r\nMAIL FROM:<x>\r\n", &[mail(3, "gap"), second]);
}

#[test]
fn no_mail_is_invented_behind_starttls() {
    let pieces = vec![piece(0, HELLO), piece(0, ENVELOPE), piece(0, b"STARTTLS\r\n"), piece(0, b"\x16\x03\x01")];
    assert_eq!(records(pieces), [mail(0, "complete")]);
}

#[test]
fn what_is_not_smtp_is_rejected() {
    let rejected = |pieces: Vec<Piece>| {
        let outcome = chain(pieces).run();
        (bodies(&outcome).len(), outcome.counters("smtp").blocks_rejected)
    };
    assert_eq!(rejected(vec![piece(1, b"220 ftp ready\r\n"), piece(0, b"USER x\r\n"), piece(1, b"331 x\r\n")]), (0, 3));
    assert_eq!(rejected(vec![piece(0, b"GET / HTTP/1.1\r\n"), piece(1, b"HTTP/1.1 200 OK\r\n")]), (0, 2));
    let behind = |reply: &'static [u8]| {
        let replies = piece(1, reply);
        rejected(vec![piece(0, HELLO), piece(0, b"STARTTLS\r\n"), replies, piece(0, b"\x16\x03\x01")])
    };
    assert_eq!(behind(b"220 mx ESMTP\r\n250 mx\r\n220 go\r\n"), (0, 1));
    // What only says that it is encrypted is read.
    assert_eq!(behind(b"220 mx ESMTP\r\n250 mx\r\n454 no\r\n"), (0, 0));
    assert_eq!(rejected(vec![piece(1, b"SSH-2.0-x\r\n"), piece(0, b"SSH-2.0-y\r\n")]), (0, 2));
}

proptest! {
    /// Mails do not depend on how the client's bytes are cut into segments.
    #[test]
    fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..160, 0..12)) {
        let bytes = [HELLO, ENVELOPE, b"DATA\r\na\r\n.\rb\r\n..\r\n.\r\nMAIL FROM:<x>\r\nBDAT 3 LAST\r\n.\r\nQUIT\r\n"].concat();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| piece(0, &bytes[ends[0]..ends[1]])).collect();
        prop_assert_eq!(bodies(&chain(pieces).run()), [&b"a\r\n\rb\r\n.\r\n"[..], b".\r\n"]);
    }

    #[test]
    fn any_bytes(blocks in proptest::collection::vec((0u32..2, proptest::collection::vec(any::<u8>(), 0..60)), 0..6), start in 0usize..4) {
        let start: &[u8] = [&b"EHLO x\r\n"[..], b"EHLO x\r\nDATA\r\n", b"EHLO x\r\nBDAT 9\r\n", b""][start];
        let pieces = blocks.iter().map(|(class, bytes)| piece(*class, &[start, bytes].concat())).collect();
        let lines = records(pieces);
        prop_assert!(lines.len() <= 400);
    }
}

/// A mail with a file in each coding, and one within a nested mail.
const FILES: &str = "From: a@b\r\nSubject: two\r\n files\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\ntext\r\n\
    --x\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\naGFs\r\nbG8=\r\n\
    --x\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\nContent-Disposition: attachment; filename=\"b.txt\"\r\n\
    Content-Transfer-Encoding: quoted-printable\r\n\r\na=3Db\r\n--x--\r\n";

fn with_mail(mail: Vec<Piece>) -> Vec<Piece> {
    let start = [
        piece(0, HELLO),
        piece(1, b"250 mx\r\n"),
        piece(0, b"MAIL FROM:<a@b>\r\nDATA\r\n"),
        piece(1, b"250 x\r\n354 go\r\n"),
    ];
    start.into_iter().chain(mail).collect()
}

fn files_of(pieces: Vec<Piece>) -> (Vec<Vec<u8>>, Vec<Value>) {
    let chain = || {
        let chain = Chain::pieces(Type::Bytes, None, pieces.clone()).streams(&[facts(4000, 6, 0)]);
        chain.then(&KIND, &[("parts", "yes")])
    };
    let lines = chain().then(&json::KIND, &[]).run().stdout;
    (bodies(&chain().run()), lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn files_in_mails() {
    for size in [1, 3, 40, 1000] {
        let mail = [FILES.as_bytes(), b".\r\n"].concat();
        let (bodies, records) = files_of(with_mail(mail.chunks(size).map(|bytes| piece(0, bytes)).collect()));
        assert_eq!(bodies, [b"hallo", &b"a=b"[..]], "by {size}");
        let said = |at: usize, object: &str, field: &str| records[at][object][field].as_str().unwrap_or("").to_string();
        for (at, [name, kind]) in [["a.pdf", "application/pdf"], ["b.txt", ""]].into_iter().enumerate() {
            assert_eq!([said(at, "smtp", "filename"), said(at, "smtp", "content_type")], [name, kind]);
            assert_eq!([said(at, "email", "subject"), said(at, "email", "from")], ["two files", "a@b"]);
            assert_eq!([said(at, "smtp", "mail_from"), said(at, "smtp", "state")], ["<a@b>", "complete"]);
        }
    }
}

#[test]
fn a_gap_in_a_file_of_a_mail_is_marked() {
    let (first, second) = FILES.split_once("aGFs\r\n").unwrap();
    let check = |first: &str, gap: u32, second: &str, expected: &[u8], state: &str| {
        let pieces = [piece(0, first.as_bytes()), block(0, Flags::GAP_BEFORE, second.as_bytes(), gap)];
        let (bodies, records) = files_of(with_mail(pieces.to_vec()));
        assert_eq!((bodies[0].as_slice(), records[0]["smtp"]["state"].as_str()), (expected, Some(state)));
    };
    // Base64 goes on at the next line.
    check(first, 2, &format!("Fs\r\n{second}.\r\n"), b"lo", "gap");
    check(first, 6, "", b"", "truncated");
    // The file of a mail that does not end.
    check(&format!("{first}aGFs\r\n"), 0, "bG", b"hall", "truncated");
}

#[test]
fn only_so_many_files_of_a_mail_are_given() {
    let file = "--x\r\nContent-Disposition: x; filename=f\r\n\r\nb\r\n";
    let mail =
        format!("Content-Type: multipart/mixed; boundary=x\r\n\r\n{}--x--\r\n.\r\n", file.repeat(SMTP_PARTS + 2));
    let chain =
        Chain::pieces(Type::Bytes, None, with_mail(vec![piece(0, mail.as_bytes())])).streams(&[facts(4000, 6, 0)]);
    let outcome = chain.then(&KIND, &[("parts", "yes")]).run();
    assert_eq!(bodies(&outcome).len(), SMTP_PARTS);
    assert_eq!(outcome.counters("smtp").events.get("smtp files not given"), 2);
}
