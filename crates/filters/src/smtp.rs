//! Mails out of SMTP: one message for each, with a record of its sender, its receivers and its head, or one for each
//! file in it.
//!
//! The conversation is in `protocols::smtp`. This file finds the client's side, gives what it hears of a mail, and
//! copies nothing of it but what waited for the server's reply or for the end of the head. `smtp/parts.rs` gives files.

mod parts;
#[cfg(test)]
mod tests;

use crate::parts::eve::begin_row;
use crate::parts::fact_fields::FactFields;
use crate::parts::heard::Facts;
use crate::parts::outlet::Outlet;
use base::limits::{SMTP_PARTS, SMTP_RECEIVERS, TEXT_BUFFERED_BYTES};
use filter::prelude::*;
use parts::Parts;
use protocols::carry::Carried;
use protocols::conversation::{Body, Ear, Fact as _, Fed, How, Id, Run, Side, Wants};
use protocols::mime::Found;
use protocols::smtp::{Conversation, Fact};

const FILE: [Field; 2] =
    [Field::new("smtp.filename", FieldType::Text), Field::new("smtp.content_type", FieldType::Text)];

static SCHEMA: Schema = const { &FactFields::record(Fact::ALL).and(&FILE) }.schema("smtp").summary(&[
    "smtp.mail_from",
    "smtp.rcpt_to",
    "email.subject",
]);

/// What `smtp` is.
pub static KIND: Kind = Kind::new("smtp", "takes mails out of SMTP", make)
    .help(
        "Finds SMTP on any port, by the client's HELO or EHLO, and gives each mail as a message: a record with `smtp.helo`, \
         `smtp.mail_from` and `smtp.rcpt_to`, as the client said them, `email.from`, `email.subject`, `email.date`, \
         `email.message_id` and `email.x_mailer` as its head has them, `email.attachment` if the whole mail is a \
         file, and then the mail as it was before it was sent. A \
         mail that was announced, and refused or given up, is a message without a body, marked truncated if it was refused: \
         what the client sent in the meantime is read as commands, up to 64 KiB of it. Mails sent in chunks (BDAT) \
         are put together. Bytes missing in the capture are missing in the mail, and marked.\n\n\
         With `parts=yes` each file in a mail, within nested mails too, is a message in place of the mail: its record has \
         `smtp.filename` and `smtp.content_type` as its part of the mail names it, and the subject and sender, and its bytes \
         are decoded (base64, quoted-printable). Parts without a name are files if they are in base64. Of a mail within a \
         mail that has a name and no files, the first 100 KiB are a file.\n\n\
         Behind STARTTLS nothing more is read: `tls` reads what comes there. At most 100 receivers and 1000 files of a mail \
         are listed, of a command the first 4 KiB are read, and of a mail's head the first 64 KiB.",
    )
    .params(&[Param::new("parts", ParamType::Flag, "give the files in mails, and not the mails").default("no")])
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .mode(Mode::Session(SessionKey::Connection))
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[
        Example { request: "pcap smtp.pcap | smtp | json", output: MAILS },
        Example { request: "pcap smtp.pcap | smtp parts=yes | json", output: FILES },
    ]);

const MAILS: &str = r#"{"timestamp":"2026-06-04T08:18:17.020903000Z","flow_id":247158215737313,"event_type":"smtp","src_ip":"10.0.0.1","src_port":40001,"dest_ip":"10.0.0.2","dest_port":25,"proto":"TCP","email":{"from":"attacker@evil.com","subject":"Normal","attachment":["malware.exe"]},"smtp":{"helo":"attacker.com","mail_from":"<attacker@evil.com>","rcpt_to":["<victim@target.com>"],"length":215,"state":"complete"}}
"#;

const FILES: &str = r#"{"timestamp":"2026-06-04T08:18:17.020903000Z","flow_id":247158215737313,"event_type":"smtp","src_ip":"10.0.0.1","src_port":40001,"dest_ip":"10.0.0.2","dest_port":25,"proto":"TCP","email":{"from":"attacker@evil.com","subject":"Normal"},"smtp":{"mail_from":"<attacker@evil.com>","filename":"malware.exe","content_type":"application/octet-stream","length":32,"state":"complete"}}
"#;

const _: () = assert!(SMTP_RECEIVERS == 100 && SMTP_PARTS == 1000, "the manual says so");

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let wants = Wants { parts: params.flag("parts"), ..Wants::default() };
    let smtp = Smtp { row: RowWriter::new(&SCHEMA), carried: Carried::new(TEXT_BUFFERED_BYTES), wants };
    Ok(Instance::session(SessionKey::Connection, smtp))
}

struct Smtp {
    row: RowWriter,
    /// Kept lines, names and receivers of all connections.
    carried: Carried,
    wants: Wants,
}

#[derive(Default)]
struct Session {
    conversation: Conversation,
    /// The client's direction; `None` before the first bytes.
    client: Option<u8>,
    mail: Mail,
}

/// The current mail.
#[derive(Default)]
struct Mail {
    facts: Facts<Fact>,
    /// Its body was announced.
    has_body: bool,
    /// Its record was given.
    is_begun: bool,
    /// The server refused it.
    is_refused: bool,
    /// Bytes missing before the next ones.
    gap: u32,
    parts: Parts,
}

/// Makes messages of the mails that it hears.
struct Listener<'a, 'b> {
    mail: &'a mut Mail,
    row: &'a mut RowWriter,
    carried: &'a Carried,
    outlet: &'a mut Outlet<'b>,
    /// What is read, in the client's class.
    block: Descriptor,
    wants: Wants,
}

impl Ear<Fact> for Listener<'_, '_> {
    fn wants(&self) -> Wants {
        self.wants
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let facts = &mut self.mail.facts;
        if fact.about().field[id.side.index()].is_empty() {
            // Records do not have it.
        } else if fact == Fact::RcptTo && facts.count(fact, id.side) == SMTP_RECEIVERS {
            self.outlet.count("smtp receivers not listed", 1);
        } else if !facts.keep(fact, id.side, value, self.carried) {
            self.outlet.count("smtp names left out for want of memory", 1);
        }
    }

    fn head_done(&mut self, _id: Id) {
        (self.mail.has_body, self.mail.is_refused) = (true, false);
    }

    fn body(&mut self, _id: Id, piece: Body<'_>) {
        if self.wants.parts {
            return;
        }
        let block = match piece {
            Body::Range(range) => Ok(self.block.part(range.start as u32, range.len() as u32)),
            Body::Kept(bytes, time) => self.outlet.copied(bytes, time, self.block.class).ok_or(bytes.len() as u32),
            Body::Missing(missing) => Err(missing),
        };
        match block {
            Ok(block) => self.give(block),
            Err(missing) => self.mail.gap = self.mail.gap.saturating_add(missing),
        }
    }

    fn part(&mut self, _id: Id, found: &Found<'_>) {
        let Listener { mail, row, outlet, block, .. } = self;
        mail.parts.hear(found, &mail.facts, row, outlet, block);
    }

    fn retract(&mut self, _id: Id) {
        self.mail.is_refused = true;
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.outlet.count(what, 1);
    }

    fn end(&mut self, _id: Id, how: How) {
        let (is_cut, mail) = (how == How::Cut, &mut *self.mail);
        let is_announced = mail.has_body || mail.facts.count(Fact::MailFrom, Side::Client) > 0;
        if mail.is_begun {
            self.outlet.push(end_block(self.block.part(0, 0), std::mem::take(&mut mail.gap), is_cut));
        } else if is_announced && !self.wants.parts {
            let is_truncated = is_cut && mail.has_body || mail.is_refused;
            let flags = if is_truncated { Flags::LAST.with(Flags::TRUNCATED) } else { Flags::LAST };
            self.begin_mail(self.block.time, flags);
        }
        self.mail.facts.clear(self.carried);
        *self.mail = Mail::default();
    }
}

/// The last block of a message, empty, behind `gap` missing bytes.
fn end_block(mut end: Descriptor, gap: u32, is_cut: bool) -> Descriptor {
    end.set_wire(gap);
    let flags = if gap > 0 { Flags::LAST.with(Flags::GAP_BEFORE) } else { Flags::LAST };
    end.set_flags(if is_cut { flags.with(Flags::TRUNCATED) } else { flags });
    end
}

/// A block of a message, behind `gap` missing bytes.
fn behind_gap(mut piece: Descriptor, gap: u32) -> Descriptor {
    if gap > 0 {
        piece.set_wire(gap.saturating_add(piece.len));
        piece.add_flags(Flags::GAP_BEFORE);
    }
    piece
}

impl Listener<'_, '_> {
    /// Gives a piece of the mail, after its record.
    fn give(&mut self, piece: Descriptor) {
        if !self.mail.is_begun {
            self.begin_mail(piece.time, Flags::NONE);
        }
        self.outlet.push(behind_gap(piece, std::mem::take(&mut self.mail.gap)));
    }

    /// Gives the record of the mail.
    fn begin_mail(&mut self, time: u64, flags: Flags) {
        let class = self.block.class;
        self.mail.is_begun = true;
        begin_row(self.row, time, class, self.outlet.facts(class));
        self.mail.facts.write(self.row);
        self.outlet.meta(self.row, time, class, flags);
    }
}

impl SessionFilter for Smtp {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        Outlet::each(batch, cx, |block, outlet| self.block(session, block, outlet))
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
        let Session { mut conversation, client, mut mail } = session;
        let block = outlet.nothing(time, Class::of_stream(class.connection(), client.unwrap_or(0)));
        let Smtp { row, carried, wants } = self;
        let mut ear = Listener { mail: &mut mail, row, carried, outlet: &mut outlet, block, wants: *wants };
        conversation.end(time, carried, &mut ear);
        Ok(())
    }
}

impl Smtp {
    /// Reads a block; returns whether it was SMTP.
    fn block(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let run = Run { bytes: outlet.bytes(block), time: block.time };
        let direction = block.class.direction();
        // Replies begin with digits, commands do not.
        let sender = run.bytes.first().map(|first| if first.is_ascii_digit() { 1 - direction } else { direction });
        session.client = session.client.or(sender);
        let Session { conversation, client: Some(client), mail } = session else { return false };
        let side = Side::to_server(direction == *client);
        let block = Descriptor { class: Class::of_stream(block.class.connection(), *client), ..*block };
        let Smtp { row, carried, wants } = self;
        let mut ear = Listener { mail, row, carried, outlet, block, wants: *wants };
        if block.gap() > 0 {
            conversation.gap(side, block.gap(), block.time, carried, &mut ear);
        }
        let fed = conversation.feed(side, run, carried, &mut ear);
        ear.mail.parts.flush(ear.outlet, &block);
        fed == Fed::Mine
    }
}
