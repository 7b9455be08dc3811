//! Both sides of SMTP. An exchange is a mail: it begins with the client's name or with the sender, and ends with the
//! mail, at RSET, or where the next one begins. All of it is the client's.
//!
//! Bytes behind an announcement (DATA, BDAT) that the server refuses are commands. So a copy of them is kept until the
//! reply comes. An ear that wants bodies at once hears the mail meanwhile, others hear it then.

use super::asked::{Asked, GO_ON, HELD_BYTES, REPLAYED_BYTES};
use super::dots::Dots;
use super::mail::{HEAD_BYTES, Mail};
use super::{Command, Fact, command, mail};
use crate::carry::Carried;
use crate::conversation::{Body, Ear, Fed, How, Id, Run, Side};
use crate::mime;
use crate::reply;
use crate::text_lines::TextLines;
use base::limits::TEXT_LINE_BYTES;

/// Most bytes kept of one connection.
pub const KEPT_BYTES: usize = HELD_BYTES + 3 * TEXT_LINE_BYTES + HEAD_BYTES + mime::KEPT_BYTES;

/// Longest command and reply line that is not odd, without the line end (RFC 5321, 4.5.3.1).
const COMMAND_BYTES: usize = 510;
const REPLY_BYTES: usize = 510;

/// Reply code: the server is ready. A greeting answers no command.
const READY: u16 = 220;

/// The TLS record type of a handshake, the first byte of TLS.
const HANDSHAKE: u8 = 22;

/// Verbs of which [`command`] makes [`Command::Other`], or may if it cannot read their arguments.
const OTHER_VERBS: &str =
    "ATRN AUTH BDAT BURL ETRN EXPN HELP MAIL NOOP QUIT RCPT SAML SEND SOML TURN VRFY XCLIENT XFORWARD";

/// Names of losses: a mail whose reply the conversation did not wait for, and names without room.
pub const NOT_WAITED: &str = "smtp replies not waited for";
const NO_ROOM: &str = "smtp names left out for want of memory";

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    lines: [TextLines; 2],
    /// It is SMTP for sure.
    is_confirmed: bool,
    phase: Phase,
    /// The client's name.
    helo: Vec<u8>,
    /// The number of the current exchange, or of the next one.
    exchange: u64,
    is_open: bool,
    /// The exchange has a sender or receiver.
    has_envelope: bool,
    /// Commands without a reply so far.
    waiting: u32,
    /// A reply was seen. Only the first one may be a greeting.
    is_greeted: bool,
    /// The mail that was announced, and what came of it.
    mail: Option<Box<Mail>>,
    /// The mail or chunk that the server has not accepted or refused yet.
    asked: Option<Asked>,
    /// The server refused the mail that the last command announced.
    is_refused: bool,
    /// Bytes that were held and read again.
    replayed: usize,
    /// Replies up to and including that to STARTTLS.
    tls_in: Option<u32>,
    /// The server accepted STARTTLS.
    tls_may_come: bool,
    /// The exchange of a chunk that just ended: a command must follow.
    behind_chunk: Option<u64>,
    /// Commands may be missing, so an unexpected reply is not odd.
    are_commands_missing: bool,
}

/// The part of the conversation that the client is in.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Command lines.
    #[default]
    Commands,
    /// A mail, up to a line with a single dot.
    Data(Dots),
    /// A part of a mail, by its length.
    Chunk { bytes_left: u64, is_last: bool },
    /// Nothing: this is not SMTP, or it is encrypted.
    Over,
}

/// Who hears what is read, and where it comes from.
struct Talk<'a> {
    kept: &'a Carried,
    ear: &'a mut dyn Ear<Fact>,
    /// When the bytes came.
    time: u64,
    /// They are a copy, not the run.
    is_copy: bool,
    at_once: bool,
}

impl<'a> Talk<'a> {
    fn new(time: u64, kept: &'a Carried, ear: &'a mut dyn Ear<Fact>) -> Talk<'a> {
        let at_once = ear.wants().at_once;
        Talk { kept, ear, time, is_copy: false, at_once }
    }

    fn of_mail(&mut self, id: Id) -> mail::Talk<'_> {
        mail::Talk { id, time: self.time, kept: self.kept, ear: &mut *self.ear }
    }
}

impl Conversation {
    /// A connection that is SMTP for sure. Otherwise the client's first command has to say so.
    pub fn known() -> Conversation {
        Conversation { is_confirmed: true, ..Conversation::default() }
    }

    /// Reads the next bytes of a side.
    pub fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.is_over() || run.bytes.is_empty() {
            return Fed::NotMine;
        }
        let mut talk = Talk::new(run.time, kept, ear);
        match side {
            Side::Client => self.client(run.bytes, &mut talk),
            Side::Server => self.server(run.bytes, &mut talk),
        }
        // Servers of other protocols greet with the same code, so the greeting must name SMTP.
        let says_so = || run.bytes.windows(4).any(|word| word.eq_ignore_ascii_case(b"SMTP"));
        let is_mine = !self.is_over() && (self.is_confirmed || !side.is_client() && says_so());
        if is_mine { Fed::Mine } else { Fed::NotMine }
    }

    /// `missing` bytes of a side are missing before its next run.
    pub fn gap(&mut self, side: Side, missing: u32, time: u64, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        let mut talk = Talk::new(time, kept, ear);
        match side {
            Side::Client => self.client_gap(missing, &mut talk),
            Side::Server => {
                self.lines[1].lose(kept);
                // A client usually has the replies to all but its last command before it sends that one.
                self.waiting = self.waiting.min(1);
                self.asked.iter_mut().for_each(|asked| asked.replies = asked.replies.min(1));
                self.tls_in = self.tls_in.map(|replies| replies.min(1));
            }
        }
    }

    /// The client says nothing more.
    pub fn end(&mut self, time: u64, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        let mut talk = Talk::new(time, kept, ear);
        self.wait_no_more(&mut talk);
        self.end_exchange(How::Cut, &mut talk);
        self.leave(&mut talk);
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Releases everything: the rest of the connection is not SMTP or is encrypted.
    fn leave(&mut self, talk: &mut Talk<'_>) {
        self.phase = Phase::Over;
        self.mail.take().into_iter().for_each(|mut mail| mail.clear(talk.kept));
        self.asked.take().into_iter().for_each(|mut asked| talk.kept.clear(&mut asked.held));
        self.lines.iter_mut().for_each(|lines| lines.clear(talk.kept));
        talk.kept.clear(&mut self.helo);
    }

    fn client_gap(&mut self, missing: u32, talk: &mut Talk<'_>) {
        self.wait_no_more(talk);
        self.behind_chunk = None;
        let is_inside = matches!(self.phase, Phase::Chunk { bytes_left, .. } if bytes_left >= missing.into());
        self.are_commands_missing |= !is_inside;
        match &mut self.phase {
            Phase::Over => {}
            Phase::Commands => self.lines[0].lose(talk.kept),
            Phase::Data(dots) => {
                *dots = Dots::Inside;
                self.give(b"", Body::Missing(missing), talk);
            }
            Phase::Chunk { bytes_left, is_last } => {
                let inside = u64::from(missing).min(*bytes_left);
                *bytes_left -= inside;
                let (is_over, is_last) = (*bytes_left == 0, *is_last);
                self.give(b"", Body::Missing(inside as u32), talk);
                if is_over {
                    self.end_chunk(is_last, talk);
                    // The next bytes may begin within a line.
                    self.behind_chunk = None;
                }
                if !is_inside {
                    self.lines[0].lose(talk.kept);
                }
            }
        }
    }

    fn client(&mut self, bytes: &[u8], talk: &mut Talk<'_>) {
        self.lines[0].begin(bytes, is_command);
        if talk.at_once && self.asked.is_some() {
            self.hold(bytes, talk);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if !talk.at_once && self.asked.is_some() {
                if self.hold(rest, talk) {
                    return;
                }
                talk.ear.lost(self.id(), NOT_WAITED);
                self.decide(false, talk);
                continue;
            }
            let at = bytes.len() - rest.len();
            match &mut self.phase {
                Phase::Over => return,
                Phase::Commands if std::mem::take(&mut self.tls_may_come) => match rest[0] {
                    HANDSHAKE => {
                        self.end_exchange(How::Complete, talk);
                        self.leave(talk);
                    }
                    // Of the connection, not of a mail.
                    _ => talk.ear.odd(self.id(), "applayer_no_tls_after_starttls"),
                },
                Phase::Commands => {
                    let mut whole = Vec::new();
                    let Some(line) = self.lines[0].next(&mut rest, &mut whole, talk.kept) else { return };
                    self.command(line, rest, talk);
                }
                Phase::Data(dots) => {
                    let step = dots.step(rest);
                    if step.is_return {
                        self.give(b"", Body::Kept(b"\r", talk.time), talk);
                    }
                    self.give_range(bytes, at..at + step.body, talk);
                    rest = &rest[step.body + step.skip..];
                    if step.is_end {
                        self.phase = Phase::Commands;
                        self.waiting = self.waiting.saturating_add(1);
                        self.end_exchange(How::Complete, talk);
                    }
                }
                Phase::Chunk { bytes_left, is_last } => {
                    let len = rest.len().min(usize::try_from(*bytes_left).unwrap_or(usize::MAX));
                    *bytes_left -= len as u64;
                    let (is_over, is_last) = (*bytes_left == 0, *is_last);
                    self.give_range(bytes, at..at + len, talk);
                    rest = &rest[len..];
                    if is_over {
                        self.end_chunk(is_last, talk);
                    }
                }
            }
        }
    }

    /// Gives a piece of the mail, in these bytes.
    fn give_range(&mut self, bytes: &[u8], range: std::ops::Range<usize>, talk: &mut Talk<'_>) {
        match talk.is_copy {
            _ if range.is_empty() => {}
            true => self.give(b"", Body::Kept(&bytes[range], talk.time), talk),
            false => self.give(bytes, Body::Range(range), talk),
        }
    }

    fn give(&mut self, bytes: &[u8], piece: Body<'_>, talk: &mut Talk<'_>) {
        let id = self.id();
        if let Some(mail) = &mut self.mail {
            mail.read(bytes, piece, &mut talk.of_mail(id));
        }
    }

    /// A mail was announced, unless this is a chunk of it.
    fn begin_mail(&mut self, talk: &mut Talk<'_>) {
        self.begin_exchange(talk);
        self.mail.get_or_insert_with(|| Box::new(Mail::new()));
    }

    fn end_chunk(&mut self, is_last: bool, talk: &mut Talk<'_>) {
        self.phase = Phase::Commands;
        self.behind_chunk = Some(self.exchange);
        if is_last {
            self.end_exchange(How::Complete, talk);
        }
    }

    /// Reads a line of the client; `rest` follows it.
    fn command(&mut self, line: &[u8], rest: &[u8], talk: &mut Talk<'_>) {
        let command = command(line);
        self.is_confirmed |= matches!(command, Command::Hello(_) | Command::MailFrom(_));
        if !self.is_confirmed {
            return self.leave(talk);
        }
        self.waiting = self.waiting.saturating_add(1);
        self.is_refused = false;
        if let Some(exchange) = self.behind_chunk.take().filter(|_| !is_command(line)) {
            talk.ear.odd(Id { exchange, side: Side::Client }, "smtp.bdat_chunk_len_exceeded");
        }
        if line.len() > COMMAND_BYTES {
            self.odd(Side::Client, "smtp.max_command_line_len_exceeded", talk);
        }
        match command {
            Command::Hello(name) => {
                self.end_exchange(How::Complete, talk);
                talk.kept.clear(&mut self.helo);
                if !talk.kept.keep(&mut self.helo, name) {
                    talk.ear.lost(self.id(), NO_ROOM);
                }
                self.begin_exchange(talk);
            }
            Command::MailFrom(path) => {
                if self.has_envelope {
                    self.end_exchange(How::Complete, talk);
                }
                self.name(Fact::MailFrom, path, talk);
            }
            Command::RcptTo(path) => self.name(Fact::RcptTo, path, talk),
            Command::Data => {
                self.phase = Phase::Data(Dots::default());
                self.announce(false, rest, talk);
            }
            Command::Chunk { bytes, is_last } => {
                self.phase = Phase::Chunk { bytes_left: bytes, is_last };
                if bytes > 0 {
                    return self.announce(true, rest, talk);
                }
                self.begin_mail(talk);
                self.end_chunk(is_last, talk);
            }
            Command::Reset => self.end_exchange(How::Complete, talk),
            Command::StartTls => self.tls_in = Some(self.waiting),
            Command::Other => {}
        }
    }

    fn name(&mut self, fact: Fact, path: &[u8], talk: &mut Talk<'_>) {
        self.begin_exchange(talk);
        self.has_envelope = true;
        talk.ear.fact(self.id(), fact, path);
    }

    /// A mail or chunk comes next, if the server wants it; `rest` stands behind its announcement.
    fn announce(&mut self, is_chunk: bool, rest: &[u8], talk: &mut Talk<'_>) {
        self.begin_mail(talk);
        if self.asked.is_some() {
            return;
        }
        if self.replayed >= REPLAYED_BYTES {
            return talk.ear.lost(self.id(), NOT_WAITED);
        }
        self.asked = Some(Asked { replies: self.waiting, is_chunk, held: Vec::new(), time: talk.time });
        if talk.at_once {
            self.hold(rest, talk);
        }
    }

    /// Keeps a copy of bytes behind an announcement. Returns whether all of them have room; an ear that hears them at
    /// once needs those that have.
    fn hold(&mut self, bytes: &[u8], talk: &Talk<'_>) -> bool {
        let Some(asked) = &mut self.asked else { return true };
        let taken = if talk.at_once { bytes.len().min(asked.room()) } else { bytes.len() };
        taken <= asked.room() && talk.kept.keep(&mut asked.held, &bytes[..taken]) && taken == bytes.len()
    }

    /// No reply can tell any more whether announced mails were refused.
    fn wait_no_more(&mut self, talk: &mut Talk<'_>) {
        while self.asked.is_some() {
            self.decide(false, talk);
        }
    }

    /// The announced mail was refused or not: reads what was held, unless the ear has heard it and it stands.
    fn decide(&mut self, is_refused: bool, talk: &mut Talk<'_>) {
        let Some(Asked { mut held, time, .. }) = self.asked.take() else { return };
        if is_refused {
            // Bytes beyond the copy may have been commands too.
            self.are_commands_missing |= held.len() >= HELD_BYTES;
            (self.phase, self.waiting, self.behind_chunk) = (Phase::Commands, 0, None);
            self.lines[0].clear(talk.kept);
            self.is_refused = held.is_empty();
            let refused = self.mail.take_if(|mail| talk.at_once || mail.is_empty());
            refused.into_iter().for_each(|mut mail| mail.clear(talk.kept));
            talk.ear.retract(self.id());
        }
        if is_refused || !talk.at_once {
            self.replayed += held.len();
            let Talk { kept, ear, at_once, .. } = talk;
            self.client(&held, &mut Talk { kept, ear: *ear, time, is_copy: true, at_once: *at_once });
        }
        talk.kept.clear(&mut held);
    }

    fn server(&mut self, bytes: &[u8], talk: &mut Talk<'_>) {
        let (mut rest, mut whole) = (bytes, Vec::new());
        let mut lines = std::mem::take(&mut self.lines[1]);
        lines.begin(bytes, |line| reply::line(line).code.is_some());
        while !self.is_over()
            && let Some(line) = lines.next(&mut rest, &mut whole, talk.kept)
        {
            self.reply(line, talk);
        }
        self.lines[1] = lines;
        if self.is_over() {
            self.lines[1].clear(talk.kept);
        }
    }

    fn reply(&mut self, line: &[u8], talk: &mut Talk<'_>) {
        if line.len() > REPLY_BYTES {
            self.odd(Side::Server, "smtp.max_reply_line_len_exceeded", talk);
        }
        let line = reply::line(line);
        if line.code.is_none() {
            if !self.is_confirmed {
                return self.leave(talk);
            }
            self.odd(Side::Server, "smtp.invalid_reply", talk);
        }
        if !self.is_greeted && line.code != Some(READY) {
            self.odd(Side::Server, "smtp.no_server_welcome_message", talk);
        }
        let Some(code) = line.code.filter(|_| line.is_last) else { return };
        let is_first = !std::mem::replace(&mut self.is_greeted, true);
        if is_first && code == READY {
            return;
        }
        if code == GO_ON && std::mem::take(&mut self.is_refused) {
            // The server refused a receiver, not the mail: earlier replies are missing.
            self.phase = Phase::Data(Dots::Start);
            return self.begin_mail(talk);
        }
        if self.waiting == 0 && !is_first && !self.are_commands_missing {
            self.odd(Side::Server, "smtp.unable_to_match_reply_with_request", talk);
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.tls_in = self.tls_in.map(|replies| replies.saturating_sub(1));
        if self.tls_in.take_if(|replies| *replies == 0).is_some() {
            self.tls_may_come = code == READY;
            if !self.tls_may_come {
                self.odd(Side::Server, "smtp.tls_rejected", talk);
            }
        }
        let Some(asked) = &mut self.asked else { return };
        let is_chunk = asked.is_chunk;
        if let Some(is_refused) = asked.answer(code) {
            if is_refused && !is_chunk {
                self.odd(Side::Server, "smtp.data_command_rejected", talk);
            }
            self.decide(is_refused, talk);
        }
    }

    fn odd(&mut self, side: Side, event: &'static str, talk: &mut Talk<'_>) {
        if self.is_confirmed {
            self.begin_exchange(talk);
            talk.ear.odd(Id { side, ..self.id() }, event);
        }
    }

    fn id(&self) -> Id {
        Id { exchange: self.exchange, side: Side::Client }
    }

    /// Begins an exchange, unless one is open.
    fn begin_exchange(&mut self, talk: &mut Talk<'_>) {
        if !std::mem::replace(&mut self.is_open, true) {
            talk.ear.begin(self.id());
            if !self.helo.is_empty() {
                talk.ear.fact(self.id(), Fact::Helo, &self.helo);
            }
        }
    }

    fn end_exchange(&mut self, how: How, talk: &mut Talk<'_>) {
        if let Some(mail) = self.mail.take() {
            mail.end(how, &mut talk.of_mail(self.id()));
        }
        if std::mem::take(&mut self.is_open) {
            talk.ear.end(self.id(), how);
            self.exchange += 1;
            self.has_envelope = false;
        }
    }
}

/// Whether the line begins with an SMTP verb.
fn is_command(line: &[u8]) -> bool {
    let verb = line.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    command(line) != Command::Other || OTHER_VERBS.split(' ').any(|other| verb.eq_ignore_ascii_case(other.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::Heard;

    /// What an ear hears of client (`C`) and server (`S`) runs; a run of digits is a gap in the client's side.
    fn talk(runs: &[&str], at_once: bool) -> Vec<String> {
        let (mut conversation, kept, mut ear) = (Conversation::default(), Carried::new(KEPT_BYTES), Heard::default());
        ear.wants.at_once = at_once;
        for (time, run) in (0..).zip(runs) {
            let (side, text) = run.split_at(1);
            match side.parse::<u32>() {
                Ok(missing) => conversation.gap(Side::Client, missing, time, &kept, &mut ear),
                Err(_) => {
                    let bytes = text.replace('\n', "\r\n").into_bytes();
                    conversation.feed(Side::to_server(side == "C"), Run { bytes: &bytes, time }, &kept, &mut ear);
                }
            }
        }
        conversation.end(99, &kept, &mut ear);
        assert_eq!(kept.bytes(), 0);
        ear.said
    }

    fn check(runs: &[&str], at_once: bool, expected: &[&str]) {
        let start = ["S220 x\n", "CEHLO me\n", "S250 x\n"];
        assert_eq!(talk(&[&start, runs].concat(), at_once), [&["Helo=me"], expected].concat(), "{runs:?}");
    }

    #[test]
    fn a_refused_mail_is_taken_back_or_not_heard() {
        let refused = ["CDATA\n\nMAIL FROM:<a>\n", "S503 x\n"];
        let odd = "smtp.data_command_rejected";
        check(&refused, true, &["head", "bytes 6..23", odd, "retract", "MailFrom=<a>", "Cut"]);
        check(&refused, false, &[odd, "retract", "MailFrom=<a>", "Cut"]);
        let taken = ["CDATA\n\nx\n", "S354 x\n", "C.\n"];
        check(&taken, true, &["head", "bytes 6..11", "Complete"]);
        let taken = ["CDATA\nx\n", "S354 x\n", "C.\n"];
        check(&taken, true, &["head", "kept x\r\n of 3", "Complete"]);
        check(&taken, false, &["head", "kept x\r\n of 3", "Complete"]);
    }

    /// The record of a mail is the first block of its message.
    #[test]
    fn facts_of_the_head_come_before_the_body() {
        let mail = "Subject: a\n b\nX: y\nContent-Type: x; name=n\n\nbody\n";
        let facts = ["Subject=a b", "Attachment=n", "head"];
        let data = format!("C{mail}.\n");
        check(&["CDATA\n", "S354 x\n", &data], false, &[&facts[..], &["bytes 0..55", "Complete"]].concat());
        for cut in 1..mail.len() {
            let (first, second) = mail.split_at(cut);
            let said = talk(
                &["S220 x\n", "CEHLO me\n", "CDATA\n", "S354 x\n", &format!("C{first}"), &format!("C{second}.\n")],
                false,
            );
            assert_eq!(said[1..4], facts, "cut at {cut}");
        }
        // A gap hides the field that it is in.
        let gap = ["CDATA\n", "S354 x\n", "CSubject: a\nFr", "9", "Cdate: x\nDate: y\n\n.\n"];
        let kept = ["kept Subject: a\r\nFr of 5", "missing 9", "bytes 0..20", "Complete"];
        check(&gap, false, &[&["Subject=a", "Date=y", "head"], &kept[..]].concat());
        // What the head says behind its bound comes too late for a record.
        let long = format!("CX: {}\nSubject: a\n\n.\n", "x".repeat(HEAD_BYTES));
        for pieces in [1, 7, HEAD_BYTES] {
            let pieces: Vec<_> =
                long.as_bytes()[1..].chunks(pieces).map(|it| format!("C{}", String::from_utf8_lossy(it))).collect();
            let runs: Vec<_> =
                ["CEHLO me\n", "CDATA\n", "S354 x\n"].into_iter().chain(pieces.iter().map(String::as_str)).collect();
            assert!(talk(&runs, false).iter().all(|said| !said.starts_with("Subject")));
        }
    }

    /// See docs/decisions/protocols.md.
    #[test]
    fn where_record_and_alert_disagreed() {
        for at_once in [true, false] {
            let check = |runs: &[&str], expected: &[&str]| check(runs, at_once, expected);
            // The client's name ends a mail.
            check(&["CMAIL FROM:<a>\nHELO you\n"], &["MailFrom=<a>", "Complete", "Helo=you", "Cut"]);
            // TLS that the server refused.
            let rejected = ["smtp.tls_rejected", "MailFrom=<a>", "Cut"];
            check(&["CSTARTTLS\n", "S454 x\n", "C\x16\nMAIL FROM:<a>\n"], &rejected);
            check(&["CSTARTTLS\n", "S220 x\n", "C\x16\nMAIL FROM:<a>\n"], &["Complete"]);
            // The first line behind a gap.
            check(&["CMAIL F", "9", "CRCPT TO:<b>\n"], &["RcptTo=<b>", "Cut"]);
            check(&["CMAIL F", "9", "CTO:<b>\nRCPT TO:<c>\n"], &["RcptTo=<c>", "Cut"]);
            // A gap while a reply is awaited.
            let gap = ["CDATA\n", "9", "S503 x\n", "C\n.\nMAIL FROM:<a>\n"];
            check(&gap, &["head", "missing 9", "kept \r\n of 6", "Complete", "Helo=me", "MailFrom=<a>", "Cut"]);
            // The server refused a receiver.
            let late = ["CDATA\n", "S550 x\n", "S354 x\n", "C.\n"];
            check(&late, &["smtp.data_command_rejected", "retract", "head", "Complete"]);
        }
    }
}
