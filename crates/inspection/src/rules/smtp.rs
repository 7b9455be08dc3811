//! SMTP for rules: a transaction for each mail, with its sender, recipients, head and attachments.
//!
//! Rules see a mail at once, before the server accepts it.

use super::exchanges::{Exchanges, Names};
use super::mime;
use super::transactions::Transactions;
use protocols::carry::Carried;
use protocols::conversation::{Ear, Fact as _, How, Id, Run, Side, Wants};
use protocols::mime::Found;
use protocols::smtp::{Conversation, Fact, KEPT_BYTES};
use rules::names::App;

pub(super) const NAMES: &Names = &Names::new(Fact::ALL);

#[derive(Debug)]
pub(super) struct Stream {
    conversation: Conversation,
    kept: Carried,
    exchanges: Exchanges,
}

impl Default for Stream {
    fn default() -> Stream {
        let exchanges = Exchanges::default();
        Stream { conversation: Conversation::known(), kept: Carried::new(KEPT_BYTES), exchanges }
    }
}

/// Puts what it hears into transactions.
struct Listener<'a> {
    exchanges: &'a mut Exchanges,
    to: &'a mut Transactions,
    /// Events of the connection.
    odd: &'a mut Vec<&'static str>,
}

impl Listener<'_> {
    fn transaction(&mut self, id: Id) -> u64 {
        let one = self.exchanges.transaction(id.exchange, App::Smtp, self.to);
        if let Some(one) = self.to.get(one) {
            one.complete[1] = true;
        }
        self.to.change(one, id.side.is_client());
        one
    }
}

impl Ear<Fact> for Listener<'_> {
    fn wants(&self) -> Wants {
        Wants { at_once: true, parts: true, ..Wants::default() }
    }

    fn begin(&mut self, id: Id) {
        self.transaction(id);
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        let one = self.transaction(id);
        if let Some(one) = self.to.get(one) {
            NAMES.put(one, fact.number(), id.side.is_client(), value);
        }
    }

    fn part(&mut self, id: Id, found: &Found<'_>) {
        if let Some(one) = self.exchanges.find(id.exchange, self.to) {
            mime::put(found, one, self.to);
        }
    }

    fn odd(&mut self, id: Id, event: &'static str) {
        if event.starts_with("applayer_") {
            return self.odd.push(event);
        }
        let one = self.transaction(id);
        if let Some(one) = self.to.get(one) {
            one.put_event(event, id.side.is_client());
        }
    }

    fn lost(&mut self, _id: Id, _what: &'static str) {
        self.to.given_up += 1;
        self.to.unseen = true;
    }

    fn end(&mut self, id: Id, _how: How) {
        if let Some(one) = self.exchanges.find(id.exchange, self.to) {
            self.to.complete(one, true);
        }
    }
}

impl Stream {
    /// Takes bytes of a side; `gap` bytes before them are missing.
    pub fn feed(&mut self, side: Side, run: Run<'_>, gap: u32, to: &mut Transactions, odd: &mut Vec<&'static str>) {
        let Stream { conversation, kept, exchanges } = self;
        let mut ear = Listener { exchanges, to, odd };
        if gap > 0 {
            conversation.gap(side, gap, run.time, kept, &mut ear);
        }
        conversation.feed(side, run, kept, &mut ear);
    }

    pub fn end(&mut self, time: u64, to: &mut Transactions) {
        let Stream { conversation, kept, exchanges } = self;
        conversation.end(time, kept, &mut Listener { exchanges, to, odd: &mut Vec::new() });
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::names::Buffer;

    /// Runs a dialogue of client (`C`) and server (`S`) lines, cut into pieces of `size` bytes.
    fn talk(said: &[&str], size: usize) -> (Vec<&'static str>, Transactions) {
        let (mut stream, mut to, mut odd) = (Stream::default(), Transactions::default(), Vec::new());
        for text in said {
            let (side, text) = text.split_at(1);
            let bytes = text.replace('\n', "\r\n").into_bytes();
            for bytes in bytes.chunks(size) {
                stream.feed(Side::to_server(side == "C"), Run { bytes, time: 0 }, 0, &mut to, &mut odd);
            }
        }
        stream.end(0, &mut to);
        assert!(stream.kept_bytes() <= KEPT_BYTES);
        (odd, to)
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
        let long = "x".repeat(505);
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
            let (odd, _) = talk(&["S220 x\n", "CSTARTTLS\n", reply, first], 1000);
            odd == ["applayer_no_tls_after_starttls"]
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
            stream.feed(Side::to_server(to_server), Run { bytes: text, time: 0 }, gap, &mut to, &mut Vec::new());
        }
        assert!((0..9).filter_map(|id| to.find(id)).all(|one| one.events.is_empty()));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(said: Vec<(bool, Vec<u8>)>, start in 0usize..4) {
            let (mut stream, mut to) = (Stream::default(), Transactions::default());
            let start = ["DATA\r\n", "BDAT 9\r\n", "BDAT 9 LAST\r\n", "STARTTLS\r\n"][start];
            let mut feed = |to_server, bytes: &[u8], gap| {
                stream.feed(Side::to_server(to_server), Run { bytes, time: 0 }, gap, &mut to, &mut Vec::new());
            };
            feed(true, start.as_bytes(), 0);
            for (to_server, bytes) in said {
                feed(to_server, &bytes, u32::from(bytes.first() == Some(&0)));
            }
            stream.end(0, &mut to);
        }
    }

    #[test]
    fn chunks() {
        let chunks = "CMAIL FROM:<a>\nBDAT 37\nSubject: s\nContent-Type: x; name=n\nBDAT 5 LAST\n\n.\nMAIL FROM:<b>\n";
        check(&["CEHLO me\n", "S250 x\n", chunks], &["<a>", "s", "n", ".\r\n", "<b>"]);
    }
}
