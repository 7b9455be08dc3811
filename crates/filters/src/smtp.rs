//! Mails out of SMTP: one message for each, with a record of its sender and receivers.
//!
//! `protocols::smtp` reads commands. This file finds the client's side, the beginning and end of each mail, and whether
//! it was refused. What comes before the server has replied to the announcement of a mail is copied, and read when the
//! reply came: behind a refusal it is commands. The rest of a mail is not copied, and stuffed dots are left out. The
//! contents of mails are not read.

pub(crate) mod asked;
pub(crate) mod dots;
#[cfg(test)]
mod tests;

use crate::parts::eve::{NAME, begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use asked::{Asked, GO_ON, REPLAYED_BYTES};
use base::limits::{SMTP_RECEIVERS, TEXT_BUFFERED_BYTES};
use dots::Dots;
use filter::prelude::*;
use filter::record::list_push;
use protocols::carry::Carried;
use protocols::reply;
use protocols::smtp::{Command, command};
use protocols::text_lines::TextLines;

static SCHEMA: Schema = Schema::new(
    "smtp",
    &eve_fields![
        Field::new("smtp.helo", FieldType::Text),
        Field::new("smtp.mail_from", FieldType::Text),
        Field::new("smtp.rcpt_to", FieldType::Rows(&NAME)),
    ],
);

/// What `smtp` is.
pub static KIND: Kind = Kind::new("smtp", "takes mails out of SMTP", make)
    .help(
        "Finds SMTP on any port, by the client's HELO or EHLO, and gives each mail as a message: a record with `smtp.helo`, \
         `smtp.mail_from` and `smtp.rcpt_to`, as the client said them, and then the mail as it was before it was sent. A \
         mail that was announced, and refused or given up, is a message without a body, marked truncated if it was refused: \
         what the client sent in the meantime is read as commands, up to 64 KiB of it. Mails sent in chunks (BDAT) \
         are put together. Bytes missing in the capture are missing in the mail, and marked.\n\n\
         Behind STARTTLS nothing more is read: `tls` reads what comes there. At most 100 receivers of a mail are listed, and \
         of a command the first 4 KiB are read.",
    )
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .mode(Mode::Session(SessionKey::Connection))
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap smtp.pcap | smtp | json", output: MAILS }]);

const MAILS: &str = r#"{"timestamp":"2026-06-04T08:18:17.020903000Z","flow_id":247158215737313,"event_type":"smtp","src_ip":"10.0.0.1","src_port":40001,"dest_ip":"10.0.0.2","dest_port":25,"proto":"TCP","smtp":{"helo":"attacker.com","mail_from":"<attacker@evil.com>","rcpt_to":["<victim@target.com>"],"length":215,"state":"complete"}}
"#;

const _: () = assert!(SMTP_RECEIVERS == 100, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let smtp = Smtp {
        row: RowWriter::new(&SCHEMA),
        receiver: RowWriter::new(&NAME),
        whole: Vec::new(),
        carried: Carried::new(TEXT_BUFFERED_BYTES),
    };
    Ok(Instance::session(SessionKey::Connection, smtp))
}

struct Smtp {
    row: RowWriter,
    receiver: RowWriter,
    /// Buffer for a line that spans several blocks.
    whole: Vec<u8>,
    /// Kept lines, names and receivers of all connections.
    carried: Carried,
}

#[derive(Default)]
struct Session {
    lines: [TextLines; 2],
    /// The client's direction; `None` before the first bytes.
    client: Option<u8>,
    /// The client spoke SMTP.
    is_confirmed: bool,
    phase: Phase,
    /// Number of commands that wait for their reply.
    waiting: u32,
    /// The server refused the mail that the last command announced.
    is_refused: bool,
    /// The mail or chunk that the server has not accepted or refused yet, and when it was announced.
    asked: Option<(Asked, u64)>,
    /// Bytes that were held and read again.
    replayed: usize,
    /// The client sent STARTTLS: TLS may come next.
    asked_tls: bool,
    helo: Vec<u8>,
    mail: Mail,
}

/// The part of the conversation that the client is in.
#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Commands,
    /// A mail, up to a line with a single dot.
    Data(Dots),
    /// A mail, by its length.
    Chunk { bytes_left: u64, is_last: bool },
    /// Nothing: this is not SMTP, or no longer.
    Gone,
}

/// The current mail.
#[derive(Default)]
struct Mail {
    is_announced: bool,
    /// Its record was given.
    is_begun: bool,
    /// The server refused it.
    is_refused: bool,
    sender: Vec<u8>,
    /// Rows of receivers, and their number.
    receivers: (Vec<u8>, usize),
    /// Bytes missing before the next ones.
    gap: u32,
}

impl SessionFilter for Smtp {
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
        self.wait_no_more(&mut session, class, &mut Vec::new(), &mut outlet);
        let nothing = outlet.nothing(time, class);
        self.end_mail(&mut session, nothing, true, &mut outlet);
        self.leave(&mut session);
        Ok(())
    }
}

impl Smtp {
    /// Reads a block; returns whether it was SMTP.
    fn block(
        &mut self,
        session: &mut Session,
        block: &Descriptor,
        whole: &mut Vec<u8>,
        outlet: &mut Outlet<'_>,
    ) -> bool {
        let bytes = outlet.bytes(block);
        let direction = block.class.direction();
        let (Some(first), false) = (bytes.first(), matches!(session.phase, Phase::Gone)) else {
            if block.gap() > 0 && session.client == Some(direction) {
                self.wait_no_more(session, block.class, whole, outlet);
                self.gap_at_end(session, block, outlet);
            }
            return false;
        };
        if block.gap() > 0 && session.client == Some(direction) {
            self.wait_no_more(session, block.class, whole, outlet);
        }
        // Replies begin with digits, commands do not.
        let client = *session.client.get_or_insert(if first.is_ascii_digit() { 1 - direction } else { direction });
        if block.gap() > 0 {
            self.gap(session, direction == client, usize::from(direction), block);
        }
        if direction == client {
            self.client(session, block, bytes, whole, outlet);
        } else {
            self.server(session, Class::of_stream(block.class.connection(), client), bytes, whole, outlet);
        }
        // Servers of other protocols greet with the same code, so the greeting must name SMTP.
        let says_so = || bytes.windows(4).any(|word| word.eq_ignore_ascii_case(b"SMTP"));
        !matches!(session.phase, Phase::Gone) && (session.is_confirmed || direction != client && says_so())
    }

    /// Bytes of the client are missing at the end of its stream.
    fn gap_at_end(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) {
        self.gap(session, true, usize::from(block.class.direction()), block);
        if let Phase::Chunk { bytes_left: 0, is_last } = session.phase {
            self.end_chunk(session, is_last, block.part(0, 0), outlet);
        }
    }

    fn gap(&mut self, session: &mut Session, is_client: bool, side: usize, block: &Descriptor) {
        let gap = block.gap();
        let lines = &mut session.lines[side];
        match &mut session.phase {
            _ if !is_client => {
                lines.lose(&mut self.carried);
                // A client usually has the replies to all but its last command before it sends that one.
                session.waiting = session.waiting.min(1);
                session.asked.iter_mut().for_each(|(asked, _)| asked.replies = asked.replies.min(1));
            }
            Phase::Data(dots) => {
                session.mail.gap = session.mail.gap.saturating_add(gap);
                *dots = Dots::Inside;
            }
            Phase::Chunk { bytes_left, .. } => {
                let missing = u64::from(gap).min(*bytes_left);
                *bytes_left -= missing;
                session.mail.gap = session.mail.gap.saturating_add(missing as u32);
                if u64::from(gap) > missing {
                    lines.lose(&mut self.carried);
                }
            }
            Phase::Commands => lines.lose(&mut self.carried),
            Phase::Gone => {}
        }
    }

    /// Reads bytes of the client.
    fn client(
        &mut self,
        session: &mut Session,
        block: &Descriptor,
        bytes: &[u8],
        whole: &mut Vec<u8>,
        outlet: &mut Outlet<'_>,
    ) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some((asked, _)) = &mut session.asked {
                if rest.len() <= asked.room() && self.carried.keep(&mut asked.held, rest) {
                    return;
                }
                outlet.count(NOT_WAITED, 1);
                self.decide(session, block.class, false, whole, outlet);
                continue;
            }
            let offset = (bytes.len() - rest.len()) as u32;
            match &mut session.phase {
                Phase::Gone => return,
                // The content type of a handshake record.
                Phase::Commands if std::mem::take(&mut session.asked_tls) && rest[0] == 22 => {
                    self.end_mail(session, block.part(offset, 0), false, outlet);
                    self.leave(session);
                }
                Phase::Commands => {
                    let lines = &mut session.lines[usize::from(block.class.direction())];
                    let Some(line) = lines.next(&mut rest, whole, &mut self.carried) else { return };
                    self.command(session, line, block, outlet);
                }
                Phase::Data(dots) => {
                    let step = dots.step(rest);
                    if step.is_return
                        && let Some(byte) = outlet.copied(b"\r", block.time, block.class)
                    {
                        self.give(session, byte, outlet);
                    }
                    if step.body > 0 {
                        self.give(session, block.part(offset, step.body as u32), outlet);
                    }
                    rest = &rest[step.body + step.skip..];
                    if step.is_end {
                        self.end_mail(session, block.part(offset + step.body as u32, 0), false, outlet);
                        session.phase = Phase::Commands;
                        session.waiting += 1;
                    }
                }
                Phase::Chunk { bytes_left, is_last } => {
                    let len = rest.len().min(usize::try_from(*bytes_left).unwrap_or(usize::MAX));
                    *bytes_left -= len as u64;
                    let (is_over, is_last) = (*bytes_left == 0, *is_last);
                    if len > 0 {
                        self.give(session, block.part(offset, len as u32), outlet);
                    }
                    rest = &rest[len..];
                    if is_over {
                        self.end_chunk(session, is_last, block.part(offset + len as u32, 0), outlet);
                    }
                }
            }
        }
    }

    fn end_chunk(&mut self, session: &mut Session, is_last: bool, end: Descriptor, outlet: &mut Outlet<'_>) {
        session.phase = Phase::Commands;
        if is_last {
            self.end_mail(session, end, false, outlet);
        }
    }

    fn command(&mut self, session: &mut Session, line: &[u8], block: &Descriptor, outlet: &mut Outlet<'_>) {
        let command = command(line);
        if !session.is_confirmed {
            session.is_confirmed = matches!(command, Command::Hello(_) | Command::MailFrom(_));
            if !session.is_confirmed {
                return self.leave(session);
            }
        }
        session.waiting = session.waiting.saturating_add(1);
        session.is_refused = false;
        let end = block.part(block.len, 0);
        match command {
            Command::Hello(name) => {
                self.carried.clear(&mut session.helo);
                self.keep(&mut session.helo, name, outlet);
            }
            Command::MailFrom(path) => {
                self.end_mail(session, end, false, outlet);
                session.mail.is_announced = true;
                self.keep(&mut session.mail.sender, path, outlet);
            }
            Command::RcptTo(path) => self.receiver(&mut session.mail, path, outlet),
            Command::Data => {
                session.phase = Phase::Data(Dots::default());
                self.ask(session, false, block.time, outlet);
            }
            Command::Chunk { bytes: 0, is_last } => self.end_chunk(session, is_last, end, outlet),
            Command::Chunk { bytes, is_last } => {
                session.phase = Phase::Chunk { bytes_left: bytes, is_last };
                self.ask(session, true, block.time, outlet);
            }
            Command::Reset => self.end_mail(session, end, false, outlet),
            Command::StartTls => session.asked_tls = true,
            Command::Other => {}
        }
    }

    fn ask(&self, session: &mut Session, is_chunk: bool, time: u64, outlet: &mut Outlet<'_>) {
        session.mail.is_refused = false;
        if session.replayed >= REPLAYED_BYTES {
            return outlet.count(NOT_WAITED, 1);
        }
        session.asked = Some((Asked { replies: session.waiting, is_chunk, held: Vec::new() }, time));
    }

    /// No reply can tell any more whether announced mails were refused.
    fn wait_no_more(&mut self, session: &mut Session, class: Class, whole: &mut Vec<u8>, outlet: &mut Outlet<'_>) {
        while session.asked.is_some() {
            self.decide(session, class, false, whole, outlet);
        }
    }

    /// The announced mail was refused or not: reads what was held.
    fn decide(
        &mut self,
        session: &mut Session,
        class: Class,
        is_refused: bool,
        whole: &mut Vec<u8>,
        outlet: &mut Outlet<'_>,
    ) {
        let Some((mut asked, time)) = session.asked.take() else { return };
        if is_refused {
            session.phase = Phase::Commands;
            (session.mail.is_refused, session.is_refused) = (true, asked.held.is_empty());
        }
        session.replayed += asked.held.len();
        match outlet.copied(&asked.held, time, class) {
            Some(block) => self.client(session, &block, &asked.held, whole, outlet),
            None => session.mail.gap = session.mail.gap.saturating_add(asked.held.len() as u32),
        }
        self.carried.clear(&mut asked.held);
    }

    /// Reads replies of the server. Only the refusal of a mail matters. `class` is the client's.
    fn server(
        &mut self,
        session: &mut Session,
        class: Class,
        bytes: &[u8],
        whole: &mut Vec<u8>,
        outlet: &mut Outlet<'_>,
    ) {
        let side = usize::from(1 - class.direction());
        let mut rest = bytes;
        while let Some(line) = session.lines[side].next(&mut rest, whole, &mut self.carried) {
            let line = reply::line(line);
            let Some(code) = line.code else {
                if !session.is_confirmed {
                    return self.leave(session);
                }
                continue;
            };
            if !line.is_last {
                continue;
            }
            // A greeting answers no command. STARTTLS is answered by the same code.
            if code == GREETING && !session.asked_tls {
                continue;
            }
            session.waiting = session.waiting.saturating_sub(1);
            if code == GO_ON && std::mem::take(&mut session.is_refused) {
                // The server refused a receiver, not the mail: earlier replies are missing.
                (session.phase, session.mail.is_refused) = (Phase::Data(Dots::Start), false);
            } else if let Some(is_refused) = session.asked.as_mut().and_then(|(asked, _)| asked.answer(code)) {
                self.decide(session, class, is_refused, whole, outlet);
            }
        }
    }

    /// Appends text of the client to `kept`; counts it if there is no room.
    fn keep(&mut self, kept: &mut Vec<u8>, text: &[u8], outlet: &mut Outlet<'_>) {
        if !self.carried.keep(kept, text) {
            outlet.count(NO_ROOM, 1);
        }
    }

    fn receiver(&mut self, mail: &mut Mail, path: &[u8], outlet: &mut Outlet<'_>) {
        let (rows, count) = &mut mail.receivers;
        if *count == SMTP_RECEIVERS {
            return outlet.count("smtp receivers not listed", 1);
        }
        self.receiver.begin();
        let row = self.receiver.text("", path).row();
        let mut one = Vec::with_capacity(row.len() + 4);
        list_push(&mut one, row);
        if self.carried.keep(rows, &one) {
            *count += 1;
        } else {
            outlet.count(NO_ROOM, 1);
        }
    }

    /// Gives a piece of the mail, after its record.
    fn give(&mut self, session: &mut Session, mut piece: Descriptor, outlet: &mut Outlet<'_>) {
        if !session.mail.is_begun {
            self.begin_mail(session, piece.time, piece.class, Flags::NONE, outlet);
        }
        let gap = std::mem::take(&mut session.mail.gap);
        if gap > 0 {
            piece.set_wire(gap.saturating_add(piece.len));
            piece.add_flags(Flags::GAP_BEFORE);
        }
        outlet.push(piece);
    }

    /// Gives the record of the mail.
    fn begin_mail(&mut self, session: &mut Session, time: u64, class: Class, flags: Flags, outlet: &mut Outlet<'_>) {
        let mail = &mut session.mail;
        mail.is_begun = true;
        begin_row(&mut self.row, time, class, outlet.facts(class));
        self.row.text("smtp.helo", &session.helo);
        if mail.is_announced {
            self.row.text("smtp.mail_from", &mail.sender);
        }
        if mail.receivers.1 > 0 {
            self.row.rows("smtp.rcpt_to", &mail.receivers.0);
        }
        outlet.meta(&self.row, time, class, flags);
    }

    /// Ends or gives up the current mail; `end` is an empty block of the client.
    fn end_mail(&mut self, session: &mut Session, mut end: Descriptor, is_cut: bool, outlet: &mut Outlet<'_>) {
        let is_data = matches!(session.phase, Phase::Data(_) | Phase::Chunk { .. });
        if session.mail.is_begun {
            let gap = std::mem::take(&mut session.mail.gap);
            end.set_wire(gap);
            let flags = if gap > 0 { Flags::LAST.with(Flags::GAP_BEFORE) } else { Flags::LAST };
            end.set_flags(if is_cut { flags.with(Flags::TRUNCATED) } else { flags });
            outlet.push(end);
        } else if session.mail.is_announced || is_data {
            let flags = if is_cut && is_data || session.mail.is_refused {
                Flags::LAST.with(Flags::TRUNCATED)
            } else {
                Flags::LAST
            };
            self.begin_mail(session, end.time, end.class, flags, outlet);
        }
        self.carried.clear(&mut session.mail.sender);
        self.carried.clear(&mut session.mail.receivers.0);
        session.mail = Mail::default();
    }

    /// Releases everything: the rest of the connection is not SMTP or is encrypted.
    fn leave(&mut self, session: &mut Session) {
        session.phase = Phase::Gone;
        session.asked.take().into_iter().for_each(|(mut asked, _)| self.carried.clear(&mut asked.held));
        session.lines.iter_mut().for_each(|lines| lines.clear(&mut self.carried));
        for kept in [&mut session.helo, &mut session.mail.sender, &mut session.mail.receivers.0] {
            self.carried.clear(kept);
        }
        session.mail = Mail::default();
    }
}

/// Reply code: the server is ready.
const GREETING: u16 = 220;

const NOT_WAITED: &str = "smtp replies not waited for";
const NO_ROOM: &str = "smtp names left out for want of memory";
