//! SMTP for rules: a transaction for each mail, with its sender, recipients, head and attachments.
//!
//! Rules see a mail (DATA) or a chunk (BDAT) at once, before the server accepts it. Until the server replies, the
//! reader keeps a copy: if the server refuses the mail, the bytes are commands and are parsed again as such.

use super::mime::{self, Mime};
use super::transactions::Transactions;
use crate::smtp::asked::{Asked, HELD_BYTES};
use crate::smtp::dots::Dots;
use base::limits::TEXT_LINE_BYTES;
use protocols::carry::Carried;
use protocols::reply;
use protocols::smtp::{Command, command};
use protocols::text_lines::TextLines;
use rules::names::{App, Buffer};

/// Longest command and reply line, without the line end (RFC 5321, 4.5.3.1).
const COMMAND_BYTES: usize = 510;
const REPLY_BYTES: usize = 510;

/// The TLS record type of a handshake, the first byte of TLS.
const HANDSHAKE: u8 = 22;

/// Verbs that the parser reads as [`Command::Other`], or may if it cannot read their arguments.
const OTHER_VERBS: [&[u8]; 18] = [
    b"ATRN",
    b"AUTH",
    b"BDAT",
    b"BURL",
    b"ETRN",
    b"EXPN",
    b"HELP",
    b"MAIL",
    b"NOOP",
    b"QUIT",
    b"RCPT",
    b"SAML",
    b"SEND",
    b"SOML",
    b"TURN",
    b"VRFY",
    b"XCLIENT",
    b"XFORWARD",
];

#[derive(Debug)]
pub(super) struct Stream {
    lines: [TextLines; 2],
    carried: Carried,
    helo: Vec<u8>,
    current: Option<u64>,
    phase: Phase,
    mail: Option<Box<Mime>>,
    /// Commands without a reply so far.
    waiting: u32,
    /// The mail that the server has not accepted or refused yet.
    asked: Option<Asked>,
    /// A reply was seen. Only the first one may be a greeting.
    is_greeted: bool,
    /// Replies up to and including that to STARTTLS.
    tls_in: Option<u32>,
    /// The server accepted STARTTLS.
    tls_may_come: bool,
    /// After an accepted STARTTLS the client's first bytes were not TLS. The code that reads this field clears it.
    pub is_no_tls: bool,
    /// The transaction of a chunk that just ended: a command must follow.
    behind_chunk: Option<u64>,
    /// Client commands may be missing, so an unexpected reply is no anomaly.
    are_commands_missing: bool,
}

/// The state of the client's side.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Command lines.
    #[default]
    Commands,
    /// A mail, up to a line with a dot.
    Data(Dots),
    /// A chunk of a mail.
    Chunk { bytes_left: u64, is_last: bool },
    /// Encrypted bytes.
    Over,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream {
            lines: Default::default(),
            carried: Carried::new(2 * TEXT_LINE_BYTES),
            helo: Vec::new(),
            current: None,
            phase: Phase::default(),
            mail: None,
            waiting: 0,
            asked: None,
            is_greeted: false,
            tls_in: None,
            tls_may_come: false,
            is_no_tls: false,
            behind_chunk: None,
            are_commands_missing: false,
        }
    }
}

impl Stream {
    /// Takes bytes of a side; `gap` bytes before them are missing.
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: u32, to: &mut Transactions) {
        if gap > 0 {
            self.gap(to_server, gap);
        }
        if to_server { self.client(bytes, to) } else { self.server(bytes, to) }
    }

    pub fn end(&mut self, to: &mut Transactions) {
        self.end_mail(to);
        if let Some(id) = self.current.take() {
            to.complete(id, true);
        }
    }

    pub fn kept_bytes(&self) -> usize {
        let held = self.asked.as_ref().map_or(0, |asked| asked.held.capacity());
        self.carried.bytes() + self.helo.len() + held + self.mail.as_ref().map_or(0, |mail| mail.kept_bytes())
    }

    fn gap(&mut self, to_server: bool, gap: u32) {
        if to_server {
            self.behind_chunk = None;
            let is_inside = matches!(self.phase, Phase::Chunk { bytes_left, .. } if bytes_left >= gap.into());
            self.are_commands_missing |= !is_inside;
        }
        match &mut self.phase {
            Phase::Data(dots) if to_server => *dots = Dots::Inside,
            Phase::Chunk { bytes_left, .. } if to_server => *bytes_left = bytes_left.saturating_sub(gap.into()),
            _ => self.lines[usize::from(!to_server)].lose(&mut self.carried),
        }
    }

    fn client(&mut self, bytes: &[u8], to: &mut Transactions) {
        if let Some(asked) = &mut self.asked {
            let len = bytes.len().min(asked.room());
            asked.held.extend_from_slice(&bytes[..len]);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.phase {
                Phase::Over => return,
                Phase::Commands if std::mem::take(&mut self.tls_may_come) => match rest[0] {
                    HANDSHAKE => self.phase = Phase::Over,
                    _ => self.is_no_tls = true,
                },
                Phase::Commands => {
                    let mut whole = Vec::new();
                    let line = self.lines[0].next(&mut rest, &mut whole, &mut self.carried);
                    let Some(line) = line.map(<[u8]>::to_vec) else { return };
                    self.command(&line, rest, to);
                }
                Phase::Data(dots) => {
                    let step = dots.step(rest);
                    let (body, behind) = rest.split_at(step.body);
                    rest = &behind[step.skip..];
                    if step.is_return {
                        self.give(b"\r", to);
                    }
                    self.give(body, to);
                    if step.is_end {
                        self.phase = Phase::Commands;
                        self.waiting = self.waiting.saturating_add(1);
                        self.end_mail(to);
                    }
                }
                Phase::Chunk { bytes_left, is_last } => {
                    let len = rest.len().min(usize::try_from(*bytes_left).unwrap_or(usize::MAX));
                    *bytes_left -= len as u64;
                    let (is_over, is_last) = (*bytes_left == 0, *is_last);
                    let (body, behind) = rest.split_at(len);
                    rest = behind;
                    self.give(body, to);
                    if is_over {
                        self.end_chunk(is_last, to);
                        // The chunk ended in a gap, so the next bytes may start within a line.
                        self.behind_chunk.take_if(|_| len == 0);
                    }
                }
            }
        }
    }

    fn server(&mut self, bytes: &[u8], to: &mut Transactions) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        let (mut rest, mut whole) = (bytes, Vec::new());
        while let Some(line) = self.lines[1].next(&mut rest, &mut whole, &mut self.carried) {
            if line.len() > REPLY_BYTES {
                self.odd("smtp.max_reply_line_len_exceeded", false, to);
            }
            let line = reply::line(line);
            if line.code.is_none() {
                self.odd("smtp.invalid_reply", false, to);
            }
            if !self.is_greeted && line.code != Some(220) {
                self.odd("smtp.no_server_welcome_message", false, to);
            }
            let Some(code) = line.code.filter(|_| line.is_last) else { continue };
            let is_first = !std::mem::replace(&mut self.is_greeted, true);
            if is_first && code == 220 {
                continue;
            }
            if self.waiting == 0 && !is_first && !self.are_commands_missing {
                self.odd("smtp.unable_to_match_reply_with_request", false, to);
            }
            self.waiting = self.waiting.saturating_sub(1);
            self.tls_in = self.tls_in.map(|replies| replies - 1);
            if self.tls_in.take_if(|replies| *replies == 0).is_some() {
                self.tls_may_come = code == 220;
                if !self.tls_may_come {
                    self.odd("smtp.tls_rejected", false, to);
                }
            }
            let Some(is_refused) = self.asked.as_mut().and_then(|asked| asked.answer(code)) else { continue };
            let Some(Asked { is_chunk, held, .. }) = self.asked.take() else { continue };
            if is_refused {
                if !is_chunk {
                    self.odd("smtp.data_command_rejected", false, to);
                }
                // Bytes beyond the copy may have been commands too.
                self.are_commands_missing |= held.len() >= HELD_BYTES;
                (self.mail, self.phase, self.waiting, self.behind_chunk) = (None, Phase::Commands, 0, None);
                self.lines[0].clear(&mut self.carried);
                self.client(&held, to);
            }
        }
    }

    /// Handles a client line; `rest` follows it.
    fn command(&mut self, line: &[u8], rest: &[u8], to: &mut Transactions) {
        self.waiting = self.waiting.saturating_add(1);
        let behind_chunk = self.behind_chunk.take();
        if let Some(chunk) = behind_chunk.filter(|_| !is_command(line)) {
            // The chunk's mail may be complete, and its transaction shown and dropped.
            let id = if to.find(chunk).is_some() { chunk } else { self.transaction(to) };
            put_event("smtp.bdat_chunk_len_exceeded", true, id, to);
        }
        if line.len() > COMMAND_BYTES {
            self.odd("smtp.max_command_line_len_exceeded", true, to);
        }
        match command(line) {
            Command::Hello(name) => {
                self.helo = name.to_vec();
                self.current = None;
                self.transaction(to);
            }
            Command::MailFrom(path) => {
                // A mail begins a transaction, unless the greeting has just begun one.
                let one = self.current.and_then(|id| to.get(id));
                if one.is_some_and(|one| one.first(Buffer::SMTP_MAIL_FROM, true).is_some()) {
                    self.current = None;
                }
                self.put(Buffer::SMTP_MAIL_FROM, path, to);
            }
            Command::RcptTo(path) => self.put(Buffer::SMTP_RCPT_TO, path, to),
            Command::Data => {
                self.begin_mail(false, rest, to);
                self.phase = Phase::Data(Dots::default());
            }
            Command::Chunk { bytes, is_last } => {
                self.begin_mail(true, rest, to);
                self.phase = Phase::Chunk { bytes_left: bytes, is_last };
                if bytes == 0 {
                    self.end_chunk(is_last, to);
                }
            }
            Command::Reset => {
                self.mail = None;
                if let Some(id) = self.current.take() {
                    to.complete(id, true);
                }
            }
            Command::StartTls => self.tls_in = Some(self.waiting),
            Command::Other => {}
        }
    }

    fn put(&mut self, buffer: Buffer, path: &[u8], to: &mut Transactions) {
        let id = self.transaction(to);
        if let Some(one) = to.get(id) {
            one.put_copy(buffer, true, path);
        }
        to.change(id, true);
    }

    fn begin_mail(&mut self, is_chunk: bool, rest: &[u8], to: &mut Transactions) {
        self.transaction(to);
        self.mail.get_or_insert_default();
        if self.asked.is_none() {
            let held = rest[..rest.len().min(HELD_BYTES)].to_vec();
            self.asked = Some(Asked { replies: self.waiting, is_chunk, held });
        }
    }

    fn give(&mut self, bytes: &[u8], to: &mut Transactions) {
        if let (Some(mail), Some(id)) = (&mut self.mail, self.current) {
            mail.feed(bytes, &mut |found| mime::put(&found, id, to));
        }
    }

    fn end_chunk(&mut self, is_last: bool, to: &mut Transactions) {
        self.phase = Phase::Commands;
        self.behind_chunk = self.current;
        if is_last {
            self.end_mail(to);
        }
    }

    fn end_mail(&mut self, to: &mut Transactions) {
        if let (Some(mut mail), Some(id)) = (self.mail.take(), self.current.take()) {
            mail.end(&mut |found| mime::put(&found, id, to));
            to.complete(id, true);
        }
    }

    /// Adds an event, once per mail and side.
    fn odd(&mut self, event: &'static str, to_server: bool, to: &mut Transactions) {
        let id = self.transaction(to);
        put_event(event, to_server, id, to);
    }

    fn transaction(&mut self, to: &mut Transactions) -> u64 {
        if let Some(id) = self.current.filter(|id| to.find(*id).is_some()) {
            return id;
        }
        let one = to.begin(App::Smtp);
        one.complete[1] = true;
        if !self.helo.is_empty() {
            one.put_copy(Buffer::SMTP_HELO, true, &self.helo);
        }
        let id = one.id;
        self.current = Some(id);
        to.change(id, true);
        id
    }
}

/// Adds an event, unless the transaction has it already.
fn put_event(event: &'static str, to_server: bool, id: u64, to: &mut Transactions) {
    if let Some(one) = to.get(id)
        && !one.events.contains(&(event, to_server))
    {
        one.events.push((event, to_server));
        to.change(id, to_server);
    }
}

/// Does the line begin with an SMTP verb?
fn is_command(line: &[u8]) -> bool {
    let verb = line.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    command(line) != Command::Other || OTHER_VERBS.iter().any(|other| verb.eq_ignore_ascii_case(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a dialogue of client (`C`) and server (`S`) lines, cut into pieces of `size` bytes.
    fn talk(said: &[&str], size: usize) -> (Stream, Transactions) {
        let (mut stream, mut to) = (Stream::default(), Transactions::default());
        for text in said {
            let (side, text) = text.split_at(1);
            let bytes = text.replace('\n', "\r\n").into_bytes();
            bytes.chunks(size).for_each(|piece| stream.feed(piece, side == "C", 0, &mut to));
        }
        stream.end(&mut to);
        assert!(stream.kept_bytes() <= HELD_BYTES + 2 * TEXT_LINE_BYTES);
        (stream, to)
    }

    fn run(said: &[&str], size: usize) -> Vec<String> {
        let (_, to) = talk(said, size);
        let mut found = Vec::new();
        for one in (0..9).filter_map(|id| to.find(id)) {
            for buffer in [Buffer::SMTP_MAIL_FROM, Buffer::EMAIL_SUBJECT, Buffer::FILE_NAME, Buffer::FILE_DATA] {
                found.extend(one.all(buffer, true).map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
            }
        }
        found
    }

    fn check(said: &[&str], expected: &[&str]) {
        for size in [1, 3, 1000] {
            assert_eq!(run(said, size), expected, "{said:?} by {size}");
        }
    }

    /// Checks the events of all mails, without `smtp.`, each with its transaction's number.
    fn check_events(said: &[&str], expected: &[(u64, &str)]) {
        for size in [1, 3, 1000] {
            let (_, to) = talk(said, size);
            let events =
                (0..9).filter_map(|id| to.find(id)).flat_map(|one| one.events.iter().map(|event| (one.id, event.0)));
            let found: Vec<_> = events.map(|(id, event)| (id, event.strip_prefix("smtp.").unwrap())).collect();
            assert_eq!(found, expected, "{said:?} by {size}");
        }
    }

    const MAIL: &str = "CSubject: s\nContent-Type: x; name=n\n\nevil\n.\nMAIL FROM:<next>\n";

    #[test]
    fn a_mail_comes_where_the_server_wants_it() {
        let said =
            ["S220 x\n", "CHELO me\n", "S250 x\n", "CMAIL FROM:<a>\nDATA\n", "S250 x\n354 x\n", MAIL, "S250 x\n"];
        check(&said, &["<a>", "s", "n", "evil\r\n", "<next>"]);
        // The client may not wait for replies, or the server's side may be missing.
        check(&["CHELO me\nMAIL FROM:<a>\nDATA\n", MAIL], &["<a>", "s", "n", "evil\r\n", "<next>"]);
    }

    /// Bytes behind a refused DATA are commands.
    #[test]
    fn what_is_refused_hides_no_command() {
        check(
            &["CHELO me\nDATA\nMAIL FROM:<a>\n", "S220 x\n250-x\n250 x\n", "S503 x\n", "CMAIL FROM:<b>\n"],
            &["<a>", "<b>"],
        );
        check(&["CHELO me\nBDAT 900000\n", "S250 x\n500 x\n", "CMAIL FROM:<a>\n"], &["<a>"]);
        // The server refuses a chunk that arrives all the same.
        check(&["CHELO me\nBDAT 17\n", "S250 x\n503 x\n", "CMAIL FROM:<no>\r\nMAIL FROM:<a>\n"], &["<a>"]);
        // An earlier command was refused.
        let said = ["CHELO me\nRCPT TO:<b>\nDATA\n", "S250 x\n550 x\n", MAIL, "S354 x\n"];
        check(&said, &["s", "n", "evil\r\n", "<next>"]);
    }

    /// TLS begins only if the server accepts it and the client's bytes are TLS.
    #[test]
    fn what_only_says_that_it_is_encrypted_is_read() {
        let after = "CMAIL FROM:<a>\n";
        check(&["CSTARTTLS\n", "S220 greeting\n454 x\n", after], &["<a>"]);
        check(&["CEHLO me\nSTARTTLS\n", "S220 x\n250 x\n220 x\n", after], &["<a>"]);
        check(&["CEHLO me\nSTARTTLS\n", "S220 x\n250 x\n454 x\n", "C\x16\n", after], &["<a>"]);
        check(&["CEHLO me\nSTARTTLS\n", "S220 x\n250 x\n220 x\n", "C\x16\n", after], &[]);
    }

    #[test]
    fn what_is_odd_is_said_once_for_each_mail() {
        let long = "x".repeat(COMMAND_BYTES - 5);
        let start = ["S220 x\n", "CEHLO me\n", "S250-x\n250 x\n"];
        let check = |said: &[&str], expected: &[(u64, &str)]| check_events(&[&start[..], said].concat(), expected);
        check(&["CMAIL FROM:<a>\nDATA\n", "S250 x\n354 x\n", MAIL, "S250 x\n250 x\n", "CQUIT\n", "S221 x\n"], &[]);
        check(&["CDATA\n", "S503 x\n", "CMAIL FROM:<a>\n", "S250 x\n"], &[(0, "data_command_rejected")]);
        check(&[&format!("CNOOP {long}\n"), &format!("S250 {long}x\n")], &[]);
        let (command, answer) = (format!("CNOOP {long}x\nNOOP {long}x\n"), format!("S250-{long}xx\n250 x\n250 x\n"));
        check(&[&command, &answer], &[(0, "max_command_line_len_exceeded"), (0, "max_reply_line_len_exceeded")]);
        check(&["S250 x\n250 x\n"], &[(0, "unable_to_match_reply_with_request")]);
        check(&["CNOOP\n", "Swhat\n999 x\n250 x\n"], &[(0, "invalid_reply")]);
        check(&["CSTARTTLS\n", "S454 x\n"], &[(0, "tls_rejected")]);
        // Encrypted bytes have no lines.
        check(&["CSTARTTLS\n", "S220 x\n", "C\x16\n\n", "S\x16\n\n"], &[]);
        let said = ["S250 x\n", "CMAIL FROM:<a>\nMAIL FROM:<b>\n", "S250 x\n250 x\n250 x\n"];
        check(&said, &[(0, "unable_to_match_reply_with_request"), (1, "unable_to_match_reply_with_request")]);
        // The first reply is not a greeting, and may answer a command.
        check_events(&["CNOOP\n", "S250 x\n"], &[(0, "no_server_welcome_message")]);
        check_events(&["S554 x\n"], &[(0, "no_server_welcome_message")]);
        check_events(&["S220-x\n220 x\n", "CNOOP\n", "S250 x\n"], &[]);
    }

    #[test]
    fn behind_a_chunk_stands_a_command() {
        let start = ["S220 x\n", "CEHLO me\n", "S250 x\n"];
        let check = |said: &str, expected: &[(u64, &str)]| check_events(&[&start[..], &[said]].concat(), expected);
        // As in the capture smtp-rset.
        check("CMAIL FROM:<a>\nBDAT 11 LAST\nMessage 1\nRSET\nMAIL FROM:<a>\nBDAT 13 LAST\nMessage Two\nquit\n", &[]);
        check("CMAIL FROM:<a>\nBDAT 0\nBDAT 3\nabcBDAT 0 LAST\nNOOP x\n", &[]);
        check("CMAIL FROM:<a>\nBDAT 3 LAST\nabcdef\nghi\n", &[(0, "bdat_chunk_len_exceeded")]);
        check("CMAIL FROM:<a>\nBDAT 3\nabc\nBDAT 0 LAST\n", &[(0, "bdat_chunk_len_exceeded")]);
    }

    /// The event needs both STARTTLS and an accepting reply.
    #[test]
    fn a_client_that_goes_on_without_tls() {
        let said = |reply, first| {
            let (stream, _) = talk(&["S220 x\n", "CSTARTTLS\n", reply, first], 1000);
            stream.is_no_tls
        };
        assert!(said("S220 x\n", "CEHLO me\n"));
        assert!(!said("S220 x\n", "C\x16\x03\x01"));
        assert!(!said("S454 x\n", "CEHLO me\n"));
        assert!(!said("S220 x\n", "S220 x\n"));
    }

    /// Gaps cause no events.
    #[test]
    fn gaps_are_not_odd() {
        let (mut stream, mut to) = (Stream::default(), Transactions::default());
        for (text, to_server, gap) in [
            (&b"220 x\r\n"[..], false, 0),
            (b"BDAT 9\r\nabc", true, 0),
            (b"def\r\n", true, 20),
            (b"ghi\r\n", true, 0),
            (b"250 x\r\n250 x\r\n250 x\r\n250 x\r\n", false, 0),
        ] {
            stream.feed(text, to_server, gap, &mut to);
        }
        assert!((0..9).filter_map(|id| to.find(id)).all(|one| one.events.is_empty()));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(said: Vec<(bool, Vec<u8>)>, start in 0usize..4) {
            let (mut stream, mut to) = (Stream::default(), Transactions::default());
            let start = ["DATA\r\n", "BDAT 9\r\n", "BDAT 9 LAST\r\n", "STARTTLS\r\n"][start];
            stream.feed(start.as_bytes(), true, 0, &mut to);
            for (to_server, bytes) in said {
                let gap = u32::from(bytes.first() == Some(&0));
                stream.feed(&bytes, to_server, gap, &mut to);
            }
            stream.end(&mut to);
        }
    }

    #[test]
    fn chunks() {
        let chunks = "CMAIL FROM:<a>\nBDAT 37\nSubject: s\nContent-Type: x; name=n\nBDAT 5 LAST\n\n.\nMAIL FROM:<b>\n";
        check(&["CEHLO me\n", "S250 x\n", chunks], &["<a>", "s", "n", ".\r\n", "<b>"]);
    }
}
