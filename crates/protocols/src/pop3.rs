//! Commands and replies of POP3 (RFC 1939). An exchange is a command with its reply, in the order of the commands; the greeting
//! is an exchange of its own. Mails and lists are passed over.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, How, Id, Kind, Over, Protocol, Run, Side, Talk};
use crate::fit::Fit;
use crate::probe::First;
use crate::text_lines::TextLines;
use packet::Flow;
use std::collections::VecDeque;

/// Most commands that wait for their replies.
const COMMANDS: usize = 64;

/// A fact about an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The command, such as `USER`.
    Keyword,
    /// Its arguments, without passwords.
    Argument,
    /// `OK` or `ERR`.
    Status,
    /// The text behind the status.
    Header,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::client("pop3.keyword", "pop3.keyword", Kind::Name),
        About::client("pop3.args", "pop3.args", Kind::NameItem),
        About::server("pop3.status", "pop3.status", Kind::Text),
        About::server("pop3.header", "pop3.header", Kind::Name),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Conversation {
    lines: [TextLines; 2],
    next: u64,
    asked: VecDeque<Asked>,
    /// The lines of a reply follow, up to one with a dot alone.
    is_in_reply: bool,
    /// Bytes of the server are missing behind the last reply.
    has_gap: bool,
    /// The client's lines are parts of a login.
    is_in_login: bool,
    /// TLS follows.
    is_over: bool,
}

/// A command that waits for its reply.
#[derive(Debug)]
struct Asked {
    exchange: u64,
    kind: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// A reply without an error has lines.
    Lines,
    /// Lines of a login follow.
    Login,
    /// TLS follows.
    Tls,
    Other,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(probe),
        summary: &["pop3.keyword", "pop3.args", "pop3.status", "pop3.header"],
        does: "reads POP3 commands and replies and gives a record of each",
        help: "Finds POP3 on any port by the server's greeting, and on port 110 by any command or reply. A record has a command \
               with its reply: `pop3.keyword`, `pop3.args` (none of PASS, the first one of APOP and AUTH), `pop3.status` (OK or \
               ERR) and `pop3.header`, the text behind it. The greeting is a reply without a command. The filter passes mails and \
               lists over, and reads no byte behind STLS: `tls` reads it.\n\n\
               Up to 64 commands wait for their replies.",
        example: ("pcap talks.pcap | pop3 | head 3", EXAMPLE),
        ..Protocol::of(App::Pop3, Over::Streams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if self.is_over {
            return Fed::NotMine;
        }
        let mut lines = std::mem::take(&mut self.lines[side.index()]);
        lines.feed(run.bytes, if side.is_client() { is_command } else { is_reply }, kept, |line| {
            match side {
                Side::Client => self.command(line, ear),
                Side::Server => self.reply(line, ear),
            }
            !self.is_over
        });
        self.lines[side.index()] = lines;
        if self.is_over {
            self.end(kept, ear);
        }
        Fed::Mine
    }

    /// A client usually waits for a reply before its next command: the next reply belongs to the last command.
    fn gap(&mut self, side: Side, _missing: u32, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.lines[side.index()].lose(kept);
        if !side.is_client() {
            self.end_replies(1, ear);
            self.has_gap = true;
        }
    }

    fn end(&mut self, kept: &Carried, ear: &mut dyn Ear<Fact>) {
        self.is_over = true;
        self.lines.iter_mut().for_each(|lines| lines.clear(kept));
        while !self.asked.is_empty() {
            self.end_reply(How::Cut, ear);
        }
    }
}

impl Conversation {
    fn command(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        if self.is_in_login || line.is_empty() {
            return;
        }
        if self.has_gap {
            self.end_replies(0, ear);
        }
        if self.asked.len() == COMMANDS {
            ear.count("pop3 replies no longer awaited", 1);
            self.end_reply(How::Cut, ear);
        }
        let mut words = line.split(|byte| *byte == b' ');
        let name = words.next().unwrap_or_default();
        let mut arguments = words.filter(|word| !word.is_empty()).peekable();
        let (kind, told) = match name.to_ascii_uppercase().as_slice() {
            b"RETR" | b"TOP" | b"CAPA" => (Command::Lines, usize::MAX),
            b"LIST" | b"UIDL" | b"AUTH" if arguments.peek().is_none() => (Command::Lines, 0),
            b"AUTH" => (Command::Login, 1),
            b"APOP" => (Command::Other, 1),
            b"PASS" => (Command::Other, 0),
            b"STLS" => (Command::Tls, usize::MAX),
            _ => (Command::Other, usize::MAX),
        };
        let id = Id { exchange: self.next, side: Side::Client };
        self.next += 1;
        self.asked.push_back(Asked { exchange: id.exchange, kind });
        self.is_in_login = kind == Command::Login;
        ear.begin(id);
        ear.fact(id, Fact::Keyword, name);
        arguments.take(told).for_each(|argument| ear.fact(id, Fact::Argument, argument));
        ear.end(id, How::Complete);
    }

    fn reply(&mut self, line: &[u8], ear: &mut dyn Ear<Fact>) {
        if self.is_in_reply {
            if line == b"." {
                self.end_reply(How::Complete, ear);
            }
            return;
        }
        let Some((is_ok, text)) = status(line) else { return };
        if self.asked.is_empty() {
            let id = Id { exchange: self.next, side: Side::Server };
            self.next += 1;
            self.asked.push_back(Asked { exchange: id.exchange, kind: Command::Other });
            ear.begin(id);
        }
        let Asked { exchange, kind } = self.asked[0];
        let id = Id { exchange, side: Side::Server };
        ear.fact(id, Fact::Status, if is_ok { b"OK" } else { b"ERR" });
        if !text.is_empty() {
            ear.fact(id, Fact::Header, text);
        }
        self.is_in_login &= kind != Command::Login;
        self.is_over = is_ok && kind == Command::Tls;
        self.is_in_reply = is_ok && kind == Command::Lines;
        if !self.is_in_reply {
            self.end_reply(How::Complete, ear);
        }
    }

    /// Ends replies that are missing, all except the last ones.
    fn end_replies(&mut self, last: usize, ear: &mut dyn Ear<Fact>) {
        while self.asked.len() > last {
            ear.count("pop3 replies missing", 1);
            self.end_reply(How::Gap, ear);
        }
    }

    fn end_reply(&mut self, how: How, ear: &mut dyn Ear<Fact>) {
        (self.is_in_reply, self.has_gap) = (false, false);
        if let Some(Asked { exchange, .. }) = self.asked.pop_front() {
            ear.end(Id { exchange, side: Side::Server }, how);
            ear.over(exchange);
        }
    }
}

/// Redis says `+OK` without a text behind it.
fn probe(first: &First<'_>) -> Fit {
    match (first.to_server, first.has_port(110)) {
        (true, true) => first.begins_nocase(COMMAND_NAMES),
        (true, false) => Fit::No,
        (false, true) => first.begins(&[b"+OK", b"-ERR"]),
        (false, false) => first.begins(&[b"+OK "]),
    }
}

/// Commands that clients send first, or behind a gap.
const COMMAND_NAMES: &[&[u8]] = &[
    b"USER", b"PASS", b"APOP", b"AUTH", b"CAPA", b"STLS", b"STAT", b"LIST", b"UIDL", b"RETR", b"DELE", b"QUIT",
    b"NOOP", b"RSET", b"TOP ",
];

fn is_command(line: &[u8]) -> bool {
    line.first_chunk::<4>().is_some_and(|name| COMMAND_NAMES.iter().any(|it| name.eq_ignore_ascii_case(it)))
}

/// Whether a line behind a gap is the first or the last one of a reply.
fn is_reply(line: &[u8]) -> bool {
    line == b"." || status(line).is_some()
}

/// The status of a reply, and the text behind it.
fn status(line: &[u8]) -> Option<(bool, &[u8])> {
    let (is_ok, text) = match line {
        [b'+', b'O', b'K', text @ ..] => (true, text),
        [b'-', b'E', b'R', b'R', text @ ..] => (false, text),
        _ => return None,
    };
    Some((is_ok, text.trim_ascii()))
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.390000000Z","flow_id":2162141377037898,"event_type":"pop3","src_ip":"192.0.2.1","src_port":40003,"dest_ip":"192.0.2.2","dest_port":110,"proto":"TCP","pop3":{"status":"OK","header":"ready"}}
{"timestamp":"2026-05-28T20:26:40.410000000Z","flow_id":2162141377037898,"event_type":"pop3","src_ip":"192.0.2.1","src_port":40003,"dest_ip":"192.0.2.2","dest_port":110,"proto":"TCP","pop3":{"keyword":"USER","args":["bob"],"status":"OK"}}
{"timestamp":"2026-05-28T20:26:40.430000000Z","flow_id":2162141377037898,"event_type":"pop3","src_ip":"192.0.2.1","src_port":40003,"dest_ip":"192.0.2.2","dest_port":110,"proto":"TCP","pop3":{"keyword":"PASS","status":"OK","header":"1 message"}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::{Heard, check_talk};
    use crate::probe::Says;
    use crate::probe::tests::check_first;
    use Side::{Client, Server};

    fn check(runs: &[(Side, &[u8])], expected: &[&str]) {
        check_talk::<Conversation>(runs, expected);
    }

    #[test]
    fn commands_and_replies() {
        check(
            &[(Server, b"+OK ready\r\n"), (Client, b"USER bob\r\nPASS a b\r\n"), (Server, b"+OK\r\n-ERR no\r\n")],
            &[
                "Status=OK",
                "Header=ready",
                "Complete",
                "Keyword=USER",
                "Argument=bob",
                "Complete",
                "Keyword=PASS",
                "Complete",
                "Status=OK",
                "Complete",
                "Status=ERR",
                "Header=no",
                "Complete",
            ],
        );
        let apop = ["Keyword=APOP", "Argument=bob", "Complete", "Cut"];
        check(&[(Client, b"\r\nAPOP bob c4c9334bac560ecc979e58001b3e22fb\r\n")], &apop);
        let tls = ["Keyword=STLS", "Complete", "Status=OK", "Complete"];
        check(&[(Client, b"STLS\r\n"), (Server, b"+OK\r\n"), (Client, b"QUIT\r\n")], &tls);
    }

    #[test]
    fn first_bytes() {
        check_first(&[
            (b"+OK ready", false, 9, Says::Is(App::Pop3)),
            (b"+OK\r\n", false, 110, Says::Is(App::Pop3)),
            // Redis.
            (b"+OK\r\n", false, 9, Says::No),
            (b"user x", true, 110, Says::Is(App::Pop3)),
            (b"user x", true, 9, Says::Is(App::Ftp)),
        ]);
    }

    #[test]
    fn missing_replies() {
        let (kept, mut ear) = (Carried::new(1 << 10), Heard::default());
        let mut conversation = Conversation::default();
        let runs: [(Side, &[u8]); 6] = [
            (Client, b"RETR 1\r\n"),
            (Server, b"+OK\r\nSubject: x\r\n"),
            (Server, b""),
            (Client, b"STAT\r\n"),
            (Server, b"+OK 1\r\n"),
            (Client, b"QUIT\r\n"),
        ];
        for (side, bytes) in runs {
            match bytes {
                b"" => conversation.gap(side, 1, &kept, &mut ear),
                bytes => drop(conversation.feed(side, Run { bytes, time: 0 }, &kept, &mut ear)),
            }
        }
        let retr = ["Keyword=RETR", "Argument=1", "Complete", "Status=OK", "1 pop3 replies missing", "Gap"];
        let stat = ["Keyword=STAT", "Complete", "Status=OK", "Header=1", "Complete"];
        assert_eq!(ear.said, [&retr[..], &stat, &["Keyword=QUIT", "Complete"]].concat());
    }

    #[test]
    fn lines_of_mails_and_logins_are_no_commands_and_replies() {
        check(
            &[(Client, b"retr 1\r\n"), (Server, b"+OK\r\n-ERR in a mail\r\n..\r\n.\r\n"), (Client, b"LIST 1\r\n")],
            &[
                "Keyword=retr",
                "Argument=1",
                "Complete",
                "Status=OK",
                "Complete",
                "Keyword=LIST",
                "Argument=1",
                "Complete",
                "Cut",
            ],
        );
        check(
            &[(Client, b"AUTH PLAIN\r\n"), (Server, b"+ \r\n"), (Client, b"QUIT\r\n"), (Server, b"+OK\r\n")],
            &["Keyword=AUTH", "Argument=PLAIN", "Complete", "Status=OK", "Complete"],
        );
    }
}
