//! SMTP for rules: a transaction for each mail, with its sender, its receivers, its head and its attached files.

use super::lines::Lines;
use super::mime::Mime;
use super::transactions::Transactions;
use rules::names::{App, Buffer};

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    lines: [Lines; 2],
    helo: Vec<u8>,
    current: Option<u64>,
    /// The mail under way.
    mail: Option<Box<Mime>>,
    /// What follows is encrypted.
    over: bool,
    starts_tls: bool,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, to: &mut Transactions) {
        if self.over {
            return;
        }
        let mut lines = std::mem::take(&mut self.lines[usize::from(!to_server)]);
        lines.each(bytes, |line| if to_server { self.command(line, to) } else { self.reply(line) });
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

    fn reply(&mut self, line: &[u8]) {
        self.over |= self.starts_tls && line.starts_with(b"220");
        self.starts_tls = false;
    }

    fn command(&mut self, line: &[u8], to: &mut Transactions) {
        if self.over {
            return;
        }
        if let Some(mail) = &mut self.mail {
            let Some(id) = self.current else { return };
            if line == b"." {
                mail.end(id, to);
                self.mail = None;
                self.current = None;
                to.complete(id, true);
            } else {
                mail.line(line.strip_prefix(b".").unwrap_or(line), id, to);
            }
            return;
        }
        let word = line.split(|byte| *byte == b' ').next().unwrap_or_default().to_ascii_uppercase();
        let rest = line.get(word.len()..).unwrap_or_default().trim_ascii();
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
            b"DATA" => {
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
