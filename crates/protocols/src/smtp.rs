//! SMTP (RFC 5321): what a client's lines say, and mails with their senders, receivers and heads.

mod asked;
mod conversation;
mod dots;
mod mail;

pub use asked::HELD_BYTES;
pub use conversation::{Conversation, KEPT_BYTES, NOT_WAITED};

use crate::conversation::{About, Kind};

/// A fact about a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Fields of the mail's head: whom it is from,
    From,
    /// whom it is to,
    To,
    /// who has a copy,
    Cc,
    /// its subject,
    Subject,
    /// when it was written,
    Date,
    /// its name,
    MessageId,
    /// and the program that wrote it.
    XMailer,
    /// The name of a mail that is a file.
    Attachment,
    /// The client's name, with each mail.
    Helo,
    /// The sender.
    MailFrom,
    /// One of the receivers.
    RcptTo,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About { field: ["email.from", ""], buffer: ["email.from", ""], kind: Kind::Text },
        About { field: ["", ""], buffer: ["email.to", ""], kind: Kind::Text },
        About { field: ["", ""], buffer: ["email.cc", ""], kind: Kind::Text },
        About { field: ["email.subject", ""], buffer: ["email.subject", ""], kind: Kind::Text },
        About { field: ["email.date", ""], buffer: ["email.date", ""], kind: Kind::Text },
        About { field: ["email.message_id", ""], buffer: ["email.message_id", ""], kind: Kind::Text },
        About { field: ["email.x_mailer", ""], buffer: ["email.x_mailer", ""], kind: Kind::Text },
        About { field: ["email.attachment", ""], buffer: [""; 2], kind: Kind::Item },
        About { field: ["smtp.helo", ""], buffer: ["smtp.helo", ""], kind: Kind::Text },
        About { field: ["smtp.mail_from", ""], buffer: ["smtp.mail_from", ""], kind: Kind::Text },
        About { field: ["smtp.rcpt_to", ""], buffer: ["smtp.rcpt_to", ""], kind: Kind::Item },
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// The client's name (HELO, EHLO, LHLO).
    Hello(&'a [u8]),
    /// A mail begins: its sender, usually in angle brackets.
    MailFrom(&'a [u8]),
    /// A receiver.
    RcptTo(&'a [u8]),
    /// The mail follows, up to a line with a single dot. The server refuses other text in the command.
    Data,
    /// A part of the mail follows, with its length (RFC 3030).
    Chunk {
        /// Length of the part.
        bytes: u64,
        /// Whether it is the last part.
        is_last: bool,
    },
    /// The client abandons the mail.
    Reset,
    /// TLS follows, if the server agrees (RFC 3207).
    StartTls,
    /// Another command.
    Other,
}

/// Reads a line of a client.
pub fn command(line: &[u8]) -> Command<'_> {
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (verb, rest) = line.split_at(end);
    let rest = rest.trim_ascii();
    let is = |name: &[u8]| verb.eq_ignore_ascii_case(name);
    if [&b"HELO"[..], b"EHLO", b"LHLO"].into_iter().any(is) {
        Command::Hello(rest)
    } else if let Some(rest) = strip_prefix(line, b"MAIL FROM:") {
        Command::MailFrom(path(rest))
    } else if let Some(rest) = strip_prefix(line, b"RCPT TO:") {
        Command::RcptTo(path(rest))
    } else if is(b"DATA") {
        Command::Data
    } else if is(b"BDAT") {
        let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let bytes = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let is_last = words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"LAST"));
        bytes.map_or(Command::Other, |bytes| Command::Chunk { bytes, is_last })
    } else if is(b"RSET") {
        Command::Reset
    } else if is(b"STARTTLS") {
        Command::StartTls
    } else {
        Command::Other
    }
}

/// The text behind two words and a colon, with any number of spaces between the words.
fn strip_prefix<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (first, second) = prefix.split_at(prefix.iter().position(|byte| *byte == b' ')?);
    let (found, rest) = line.split_at_checked(first.len())?;
    let words = rest.trim_ascii_start();
    let (word, behind) = words.split_at_checked(second.len() - 1)?;
    let is_it = found.eq_ignore_ascii_case(first) && word.eq_ignore_ascii_case(&second[1..]);
    (is_it && words.len() < rest.len()).then_some(behind)
}

/// A path as it was sent, with its angle brackets if it has them; parameters follow it. A quoted name may contain
/// brackets and spaces (RFC 5321, 4.1.2).
fn path(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    let is_bracketed = text.first() == Some(&b'<');
    let end_byte = if is_bracketed { b'>' } else { b' ' };
    let (mut is_quoted, mut is_escaped) = (false, false);
    let outside_quotes = text.iter().position(|byte| {
        let is_end = !is_quoted && *byte == end_byte;
        if is_quoted && !is_escaped && *byte == b'\\' {
            is_escaped = true;
        } else {
            is_quoted ^= *byte == b'"' && !is_escaped;
            is_escaped = false;
        }
        is_end
    });
    // An unterminated quote quotes nothing.
    match outside_quotes.or_else(|| text.iter().position(|byte| *byte == end_byte)) {
        Some(end) if is_bracketed => &text[..=end],
        Some(end) => &text[..end],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands() {
        let check = |line: &[u8], expected: Command<'_>| assert_eq!(command(line), expected, "{line:?}");
        check(b"ehlo me.example", Command::Hello(b"me.example"));
        check(b"HELO", Command::Hello(b""));
        check(b"MAIL FROM:<a@b> SIZE=9", Command::MailFrom(b"<a@b>"));
        check(b"mail  from: a@b X", Command::MailFrom(b"a@b"));
        check(b"MAIL FROM:<>", Command::MailFrom(b"<>"));
        check(b"MAIL FROM:<\"a>b c\\\">\"@d> SIZE=9", Command::MailFrom(b"<\"a>b c\\\">\"@d>"));
        check(b"MAIL FROM:\"a b\"@d SIZE=9", Command::MailFrom(b"\"a b\"@d"));
        check(b"MAIL FROM:<a\"b@c> SIZE=9", Command::MailFrom(b"<a\"b@c>"));
        check(b"MAIL FROM:<a\\>b@c", Command::MailFrom(b"<a\\>"));
        check(b"RCPT TO:<c@d", Command::RcptTo(b"<c@d"));
        check(b"MAILFROM:<a@b>", Command::Other);
        check(b"DATA", Command::Data);
        check(b"data x", Command::Data);
        check(b"BDAT 12 LAST", Command::Chunk { bytes: 12, is_last: true });
        check(b"BDAT 12", Command::Chunk { bytes: 12, is_last: false });
        check(b"BDAT -1", Command::Other);
        check(b"RSET", Command::Reset);
        check(b"StartTLS", Command::StartTls);
        check(b"NOOP", Command::Other);
        check(b"", Command::Other);
    }

    proptest! {
        #[test]
        fn any_line(line in proptest::collection::vec(any::<u8>(), 0..60), start in 0usize..4) {
            let line = [[&b"MAIL FROM:"[..], b"RCPT TO:<", b"BDAT ", b""][start], &line].concat();
            if let Command::MailFrom(text) | Command::RcptTo(text) | Command::Hello(text) = command(&line) {
                prop_assert!(text.len() <= line.len());
            }
        }
    }
}
