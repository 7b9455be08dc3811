//! SMTP for rules: a transaction for each mail, with its sender, its receivers, its head and its attached files.

use super::lines::Lines;
use super::mime::Mime;
use super::transactions::Transactions;
use rules::names::{App, Buffer};

/// The type of the record that TLS begins with.
const HANDSHAKE: u8 = 22;

/// Bytes of a command and of a reply at most (RFC 5321, 4.5.3.1).
const COMMAND_BYTES: usize = 510;
const REPLY_BYTES: usize = 510;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    lines: [Lines; 2],
    helo: Vec<u8>,
    current: Option<u64>,
    /// The mail under way.
    mail: Option<Box<Mime>>,
    /// Bytes of a chunk of BDAT that are still to come.
    chunk: usize,
    /// The command whose reply is awaited is DATA.
    asks_data: bool,
    /// The server has greeted, and commands wait for this many replies.
    greeted: bool,
    commands: u64,
    /// The client's first bytes behind STARTTLS are no TLS, or were looked at.
    pub is_no_tls: bool,
    checked_tls: bool,
    /// What follows is encrypted.
    over: bool,
    starts_tls: bool,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        if self.over {
            if to_server && !std::mem::replace(&mut self.checked_tls, true) {
                self.is_no_tls = bytes.first() != Some(&HANDSHAKE);
            }
            return;
        }
        let mut lines = std::mem::take(&mut self.lines[usize::from(!to_server)]);
        lines.each(bytes, |line| if to_server { self.command(line, to) } else { self.reply(line, to) });
        self.lines[usize::from(!to_server)] = lines;
    }

    /// The stream ends.
    pub fn end(&mut self, to: &mut Transactions) {
        if let Some(mut mail) = self.mail.take()
            && let Some(id) = self.current.take()
        {
            mail.end(id, to);
            to.complete(id, true);
        }
    }

    fn reply(&mut self, line: &[u8], to: &mut Transactions) {
        let is_code = line.get(..3).is_some_and(|code| code.iter().all(u8::is_ascii_digit));
        if line.len() > REPLY_BYTES {
            self.odd("smtp.max_reply_line_len_exceeded", false, to);
        }
        if !is_code {
            self.odd("smtp.invalid_reply", false, to);
        }
        let is_last = line.get(3) != Some(&b'-');
        if !self.greeted {
            self.greeted = is_last;
            if !line.starts_with(b"220") {
                self.odd("smtp.no_server_welcome_message", false, to);
            }
        } else if is_last {
            match self.commands.checked_sub(1) {
                Some(left) => self.commands = left,
                None => self.odd("smtp.unable_to_match_reply_with_request", false, to),
            }
        }
        if std::mem::take(&mut self.asks_data) && matches!(line.first(), Some(b'4' | b'5')) {
            self.odd("smtp.data_command_rejected", false, to);
            self.mail = None;
        }
        self.over |= self.starts_tls && line.starts_with(b"220");
        if self.starts_tls && !self.over {
            self.odd("smtp.tls_rejected", false, to);
        }
        self.starts_tls = false;
    }

    /// Says that something is odd, once for each mail.
    fn odd(&mut self, event: &'static str, to_server: bool, to: &mut Transactions) {
        let id = self.transaction(to);
        if let Some(one) = to.get(id)
            && !one.events.contains(&(event, to_server))
        {
            one.events.push((event, to_server));
        }
        to.change(id, to_server);
    }

    fn command(&mut self, line: &[u8], to: &mut Transactions) {
        if self.over {
            return;
        }
        if self.chunk > 0 {
            // A chunk ends where its length says, and commands follow (RFC 3030, 2).
            let taken = line.len() + 2;
            if taken > self.chunk {
                self.odd("smtp.bdat_chunk_len_exceeded", true, to);
            }
            self.chunk = self.chunk.saturating_sub(taken);
            return;
        }
        if let Some(mail) = &mut self.mail {
            let Some(id) = self.current else { return };
            if line == b"." {
                mail.end(id, to);
                self.mail = None;
                self.current = None;
                self.commands += 1;
                to.complete(id, true);
            } else {
                mail.line(line.strip_prefix(b".").unwrap_or(line), id, to);
            }
            return;
        }
        let word = line.split(|byte| *byte == b' ').next().unwrap_or_default().to_ascii_uppercase();
        let rest = line.get(word.len()..).unwrap_or_default().trim_ascii();
        self.commands += 1;
        if line.len() > COMMAND_BYTES {
            self.odd("smtp.max_command_line_len_exceeded", true, to);
        }
        match &word[..] {
            b"EHLO" | b"HELO" => {
                self.helo = rest.to_vec();
                self.current = None;
                self.transaction(to);
            }
            b"MAIL" => {
                // A mail begins a transaction, unless the greeting has just begun it.
                let begun = self
                    .current
                    .and_then(|id| to.get(id))
                    .is_some_and(|one| one.first(Buffer::SMTP_MAIL_FROM, true).is_none());
                if !begun {
                    self.current = None;
                }
                let id = self.transaction(to);
                if let Some(one) = to.get(id) {
                    one.put_copy(Buffer::SMTP_MAIL_FROM, true, path(rest));
                }
                to.change(id, true);
            }
            b"RCPT" => {
                let id = self.transaction(to);
                if let Some(one) = to.get(id) {
                    one.put_copy(Buffer::SMTP_RCPT_TO, true, path(rest));
                }
                to.change(id, true);
            }
            b"BDAT" => {
                let size = rest.split(|byte| *byte == b' ').next().and_then(|text| std::str::from_utf8(text).ok());
                self.chunk = size.and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            b"DATA" => {
                self.asks_data = true;
                self.transaction(to);
                self.mail = Some(Box::default());
            }
            b"RSET" => {
                if let Some(id) = self.current.take() {
                    to.complete(id, true);
                }
            }
            b"STARTTLS" => self.starts_tls = true,
            _ => {}
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

/// The path behind `FROM:` or `TO:`, without parameters.
fn path(rest: &[u8]) -> &[u8] {
    let at = memchr::memchr(b':', rest).map_or(0, |at| at + 1);
    let path = rest[at..].trim_ascii();
    let end = memchr::memchr(b'>', path).map_or(path.len(), |end| end + 1);
    &path[..end]
}
