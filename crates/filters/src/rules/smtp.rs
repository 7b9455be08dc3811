//! SMTP for rules: a transaction for each mail, with its sender, its receivers, its head and its attached files.
//!
//! A mail begins with DATA, or comes in chunks (BDAT), if the server wants it. Rules see it at once. Until the server has said so,
//! a copy is kept: what a server has refused are commands, and is read again as such.

use super::mime::{self, Mime};
use super::transactions::Transactions;
use crate::parts::carry::Carried;
use crate::parts::text_lines::TextLines;
use crate::smtp::dots::Dots;
use base::limits::TEXT_LINE_BYTES;
use packet::reply;
use packet::smtp::{Command, command};
use rules::names::{App, Buffer};

/// Bytes of a mail that are kept until the server wants it.
const HELD_BYTES: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Stream {
    lines: [TextLines; 2],
    carried: Carried,
    helo: Vec<u8>,
    current: Option<u64>,
    phase: Phase,
    /// The mail under way.
    mail: Option<Box<Mime>>,
    /// Commands whose reply has not come.
    waiting: u32,
    /// The server has not said whether it wants the mail.
    asked: Option<Asked>,
    /// A reply came: the first one may be a greeting, which no command asks for.
    is_greeted: bool,
    /// Replies up to that to STARTTLS, with it.
    tls_in: Option<u32>,
    /// The server has agreed to TLS.
    tls_may_come: bool,
}

/// What a mail was announced by.
#[derive(Debug)]
struct Asked {
    /// Replies up to the one that decides, with it.
    replies: u32,
    is_chunk: bool,
    /// What has come behind the announcement.
    held: Vec<u8>,
}

/// What the client sends.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Lines with commands.
    #[default]
    Commands,
    /// A mail up to a line with a dot.
    Data(Dots),
    /// Bytes of a mail.
    Chunk { bytes_left: u64, is_last: bool },
    /// What is encrypted.
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
        }
    }
}

impl Stream {
    /// Takes bytes of a side, before which `gap` bytes are missing.
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: u32, to: &mut Transactions) {
        if gap > 0 {
            self.gap(to_server, gap);
        }
        if to_server { self.client(bytes, to) } else { self.server(bytes, to) }
    }

    /// The stream ends.
    pub fn end(&mut self, to: &mut Transactions) {
        self.end_mail(to);
        if let Some(id) = self.current.take() {
            to.complete(id, true);
        }
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        let held = self.asked.as_ref().map_or(0, |asked| asked.held.capacity());
        self.carried.bytes() + self.helo.len() + held + self.mail.as_ref().map_or(0, |mail| mail.kept_bytes())
    }

    fn gap(&mut self, to_server: bool, gap: u32) {
        match &mut self.phase {
            Phase::Data(dots) if to_server => *dots = Dots::Inside,
            Phase::Chunk { bytes_left, .. } if to_server => *bytes_left = bytes_left.saturating_sub(gap.into()),
            _ => self.lines[usize::from(!to_server)].lose(&mut self.carried),
        }
    }

    fn client(&mut self, bytes: &[u8], to: &mut Transactions) {
        if let Some(asked) = &mut self.asked {
            let room = HELD_BYTES - asked.held.len();
            asked.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.phase {
                Phase::Over => return,
                // The content type of a handshake record.
                Phase::Commands if std::mem::take(&mut self.tls_may_come) && rest[0] == 22 => self.phase = Phase::Over,
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
                    }
                }
            }
        }
    }

    fn server(&mut self, bytes: &[u8], to: &mut Transactions) {
        let (mut rest, mut whole) = (bytes, Vec::new());
        while let Some(line) = self.lines[1].next(&mut rest, &mut whole, &mut self.carried) {
            let line = reply::line(line);
            let Some(code) = line.code.filter(|_| line.is_last) else { continue };
            if !std::mem::replace(&mut self.is_greeted, true) && code == 220 {
                continue;
            }
            self.waiting = self.waiting.saturating_sub(1);
            self.tls_in = self.tls_in.map(|replies| replies - 1);
            if self.tls_in.take_if(|replies| *replies == 0).is_some() {
                self.tls_may_come = code == 220;
            }
            let Some(asked) = &mut self.asked else { continue };
            // Only a mail that may come is answered so: replies before it are not waited for.
            asked.replies = if code == 354 { 0 } else { asked.replies.saturating_sub(1) };
            if asked.replies > 0 {
                continue;
            }
            let Some(Asked { is_chunk, held, .. }) = self.asked.take() else { continue };
            // A chunk comes wanted or not, unless the server does not know the command.
            let is_refused = if is_chunk { matches!(code, 500..=502) } else { code >= 400 };
            if is_refused {
                (self.mail, self.phase, self.waiting) = (None, Phase::Commands, 0);
                self.lines[0].clear(&mut self.carried);
                self.client(&held, to);
            }
        }
    }

    /// A line of the client; `rest` stands behind it.
    fn command(&mut self, line: &[u8], rest: &[u8], to: &mut Transactions) {
        self.waiting = self.waiting.saturating_add(1);
        match command(line) {
            Command::Hello(name) => {
                self.helo = name.to_vec();
                self.current = None;
                self.transaction(to);
            }
            Command::MailFrom(path) => {
                // A mail begins a transaction, unless the greeting has just begun it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What rules see when the client (`C`) and the server (`S`) say these lines, each in pieces of this size.
    fn run(said: &[&str], size: usize) -> Vec<String> {
        let (mut stream, mut to) = (Stream::default(), Transactions::default());
        for text in said {
            let (side, text) = text.split_at(1);
            let bytes = text.replace('\n', "\r\n").into_bytes();
            bytes.chunks(size).for_each(|piece| stream.feed(piece, side == "C", 0, &mut to));
        }
        stream.end(&mut to);
        assert!(stream.kept_bytes() <= HELD_BYTES + 2 * TEXT_LINE_BYTES);
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

    const MAIL: &str = "CSubject: s\nContent-Type: x; name=n\n\nevil\n.\nMAIL FROM:<next>\n";

    #[test]
    fn a_mail_comes_where_the_server_wants_it() {
        let said =
            ["S220 x\n", "CHELO me\n", "S250 x\n", "CMAIL FROM:<a>\nDATA\n", "S250 x\n354 x\n", MAIL, "S250 x\n"];
        check(&said, &["<a>", "s", "n", "evil\r\n", "<next>"]);
        // A client may not wait, and of one side alone nothing is known.
        check(&["CHELO me\nMAIL FROM:<a>\nDATA\n", MAIL], &["<a>", "s", "n", "evil\r\n", "<next>"]);
    }

    /// What a server has refused are commands.
    #[test]
    fn what_is_refused_hides_no_command() {
        check(
            &["CHELO me\nDATA\nMAIL FROM:<a>\n", "S220 x\n250-x\n250 x\n", "S503 x\n", "CMAIL FROM:<b>\n"],
            &["<a>", "<b>"],
        );
        check(&["CHELO me\nBDAT 900000\n", "S250 x\n500 x\n", "CMAIL FROM:<a>\n"], &["<a>"]);
        // A chunk is not wanted, and comes all the same.
        check(&["CHELO me\nBDAT 17\n", "S250 x\n503 x\n", "CMAIL FROM:<no>\r\nMAIL FROM:<a>\n"], &["<a>"]);
        // Another refusal came before.
        let said = ["CHELO me\nRCPT TO:<b>\nDATA\n", "S250 x\n550 x\n", MAIL, "S354 x\n"];
        check(&said, &["s", "n", "evil\r\n", "<next>"]);
    }

    /// TLS comes where the server agrees to it, and the client begins with it.
    #[test]
    fn what_only_says_that_it_is_encrypted_is_read() {
        let after = "CMAIL FROM:<a>\n";
        check(&["CSTARTTLS\n", "S220 greeting\n454 x\n", after], &["<a>"]);
        check(&["CEHLO me\nSTARTTLS\n", "S220 x\n250 x\n220 x\n", after], &["<a>"]);
        check(&["CEHLO me\nSTARTTLS\n", "S220 x\n250 x\n454 x\n", "C\x16\n", after], &["<a>"]);
        check(&["CEHLO me\nSTARTTLS\n", "S220 x\n250 x\n220 x\n", "C\x16\n", after], &[]);
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
